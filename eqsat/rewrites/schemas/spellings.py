"""Spellings of attributes that mean the same: defaults left out or written out, and axes counted from either end.

Proofs take them for laws; graphs are not searched with them, for importers write attributes in one way.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.language.declaration.spec import OpSpec
from eqsat.rewrites.schemas.operator import Statement, law

#: Lists of numbers for each axis, left out where all are this one.
_LISTS = {"strides": "1", "dilations": "1", "steps": "1", "pads": "0", "output_padding": "0"}
#: Operators that take no axes counted from the right, or of which instances do not show it: of `scatter_elements`
#: indices are drawn for no axis, and `topk` has two results.
_FROM_THE_LEFT = frozenset(
    {
        "crop_resize",
        "dequantize_linear",
        "mvn",
        "quantize_linear",
        "resize",
        "resize_nearest",
        "scatter_elements",
        "split",
        "topk",
    }
)


def spelling_laws(spec: OpSpec) -> Iterator[Statement]:
    """The laws that take each attribute of an operator to one spelling.

    >>> from eqsat.language.ops import spec
    >>> for statement in spelling_laws(spec("softmax")):
    ...     print(statement.text)
    softmax(x0, axis=k, **a) => softmax(x0, axis=k + rank(x0), **a) if k < 0
    softmax(x0, axis=k, **a) => softmax(x0, axis=-1, **a) if k == rank(x0) - 1
    """
    for operands, first, suffix in _arities(spec):
        for name, number in _LISTS.items():
            if spec.attrs.get(name) == ():
                left, right = (f"{spec.name}({operands}, {name}={value}, **a)" for value in ("k", "()"))
                yield from law(f"{spec.name}-default-{name}{suffix}", left, right, [f"all(n == {number} for n in k)"])
        if spec.name not in _FROM_THE_LEFT:
            yield from _axis_laws(spec, operands, first, suffix)


def _axis_laws(spec: OpSpec, operands: str, first: str, suffix: str) -> Iterator[Statement]:
    rank, default = f"rank({first})", spec.attrs.get("axis")
    if "axis" in spec.attrs:
        left, end = f"{spec.name}({operands}, axis=k, **a)", f"{rank} + 1" if spec.adds_axis else rank
        right = f"{spec.name}({operands}, axis=k + {end}, **a)"
        yield from law(f"{spec.name}-axis-from-the-left{suffix}", left, right, ["k < 0"])
        if default == -1 and not spec.adds_axis:
            right = f"{spec.name}({operands}, axis=-1, **a)"
            yield from law(f"{spec.name}-default-axis{suffix}", left, right, [f"k == {rank} - 1"])
    if "axes" in spec.attrs:
        left, right = (f"{spec.name}({operands}, axes={k}, **a)" for k in ("k", f"[i % {rank} for i in k]"))
        yield from law(f"{spec.name}-axes-from-the-left{suffix}", left, right, ["any(i < 0 for i in k)"])


def _arities(spec: OpSpec) -> Iterator[tuple[str, str, str]]:
    """The operands that an operator may be given, as text, the first of them, and what names of laws end in."""
    if spec.max_operands is None:
        yield "*xs", "xs[0]", ""
        return
    for count in range(spec.min_operands, spec.max_operands + 1):
        names = [f"x{i}" for i in range(count)]
        yield ", ".join(names), names[0] if names else "", "" if count == spec.min_operands else f"-of-{count}"
