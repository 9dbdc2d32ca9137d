"""Laws of reductions that only move work about, and of the operators whose results or operands are reduced.

All run on request, but for averages of constants.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.language.declaration.indices import Index
from eqsat.rewrites.schemas.operator import Operator, Statement, axis, axis_of, law

#: The reductions that are linear and leave the other axes as they are.
_LINEAR = ("reduce_sum", "reduce_mean")
_SPREAD = "broadcast(shape(x), s)"


def reduction_laws(op: Operator) -> Iterator[Statement]:
    """Laws of an operator that reduces the axes that an attribute names."""
    f, keeping = op.name, "axes=a, keepdims=True"
    yield from law(
        f"{f}-of-unit-axes",
        f"{f}(x, {keeping})",
        f"{f}(x, axes=tuple(i for i in a if dim(x, i) != 1), keepdims=True)",
        ["any(dim(x, i) == 1 for i in a)"],
        phase="associate",
    )
    yield from law(
        f"{f}-of-reshape",
        f"{f}(reshape(x, shape=s), {keeping})",
        f"reshape({f}(x, axes=kept_axes(shape(x), s, a), keepdims=True), shape=ones_at(s, a))",
        phase="associate",
    )
    lower = f"lowered(a, len({_SPREAD}) - rank(x))"
    yield from law(
        f"{f}-of-expand",
        f"{f}(expand(x, shape=s), {keeping})",
        f"expand({f}(x, axes={lower}, keepdims=True), shape=ones_at({_SPREAD}, a))",
        [f"all(dim(x, i) == {_SPREAD}[i - rank(x)] for i in {lower})"],
        phase="associate",
    )
    if 0 in op.spec.multilinear:
        yield from _linear(f)
    if op.spec.average:
        yield from _average(op)


def _linear(f: str) -> Iterator[Statement]:
    """Signs go through, and factors that do not vary along the axes."""
    yield from law(f"{f}-neg", f"{f}(-x, **a)", f"-{f}(x, **a)", ["floating(x)"], phase="associate", back="associate")
    # A divisor of 0 makes infinities, whose sum is NaN.
    for sign, word, called, more in (
        ("*", "scaled", "mul(x, y)", []),
        ("/", "divided", "div(x, y)", ["invertible(y)"]),
    ):
        rank = f"rank({called})"
        yield from law(
            f"{f}-of-{word}-off-axes",
            f"{f}(x {sign} y, axes=a, keepdims=True)",
            f"{f}(x, axes=lowered(a, {rank} - rank(x)), keepdims=True) {sign} y",
            [f"all(off_axis(y, i, {rank}) for i in a)", "wide(x)", "finite(x, y)", *more],
            phase="associate",
        )


def _average(op: Operator) -> Iterator[Statement]:
    """An average of equal numbers is that number, and one of sums with a number is its sum with the average."""
    f = op.name
    yield from law(
        f"{f}-of-uniform",
        f"{f}(c, axes=a, keepdims=True)",
        "fill(shape=ones_at(shape(c), a), value=number(c), dtype=dtype(c))",
        ["is_uniform(c)", "wide(c)"],
        phase="simplify",
    )
    yield from law(
        f"{f}-of-steady",
        f"{f}(expand(x, shape=s), axes=a, keepdims=True)",
        f"expand(x, shape=ones_at({_SPREAD}, a))",
        [f"all(off_axis(x, i, len({_SPREAD})) and {_SPREAD}[i] > 0 for i in a)", "static(x)", "wide(x)"],
        phase="associate",
    )
    steady = "{f}({x} {sign} {y}, axes=a, keepdims=True)"
    cases = [("+", "sum", "x", "y"), ("-", "difference", "x", "y")]
    cases += [("-", "difference-from", "y", "x")] if 0 in op.spec.multilinear else []
    for sign, word, one, two in cases:
        rank = f"rank({'add' if sign == '+' else 'sub'}({one}, {two}))"
        lower = f"lowered(a, {rank} - rank(x))"
        averaged = {"x": f"{f}(x, axes={lower}, keepdims=True)", "y": "y"}
        yield from law(
            f"{f}-of-{word}-with-steady",
            steady.format(f=f, x=one, y=two, sign=sign),
            f"{averaged[one]} {sign} {averaged[two]}",
            [f"all(off_axis(y, i, {rank}) for i in a)", f"positive_dims(x, {lower})", "wide(x)", "finite(x, y)"],
            phase="associate",
        )


def reduced_laws(op: Operator, index: Index) -> Iterator[Statement]:
    """A linear reduction of the result along an index that one operand alone has, in which the operator is linear."""
    (place,) = op.form.holders(index.name)
    if place not in op.linear or op.form.result.turned or op.form.operands[place].turned or not op.is_ungrouped(index):
        return
    name, term = op.variables[place], op.form.operands[place]
    here, there = axis_of(term, index.name, name), axis(op.form.result, index.name, f"rank({op.called({})})")
    guards = [*op.guards, op.group_guard(index), *op.ranks(), f"wide({name})", f"finite({', '.join(op.variables)})"]
    for f in _LINEAR:
        reduced = op.with_operands({name: f"{f}({name}, axes=({here},), keepdims=True)"})
        yield from law(
            f"{f}-of-{op.name}-along-{index.name}",
            f"{f}({op.with_operands({})}, axes=k, keepdims=True)",
            reduced,
            [f"k == ({there},)", *guards],
            phase="associate",
        )


def monotone_laws(f: str) -> Iterator[Statement]:
    """The extreme of the values of a monotone function is its value at the extreme."""
    for extreme in ("max", "min"):
        yield from law(
            f"reduce_{extreme}-of-{f}",
            f"reduce_{extreme}({f}(x), **a)",
            f"{f}(reduce_{extreme}(x, **a))",
            ["positive_dims(x, a.axes)"],
            phase="associate",
            back="associate",
        )
        larger = f"{extreme}imum"
        yield from law(
            f"{larger}-of-{f}s",
            f"{larger}({f}(x), {f}(y))",
            f"{f}({larger}(x, y))",
            phase="associate",
            back="associate",
        )
