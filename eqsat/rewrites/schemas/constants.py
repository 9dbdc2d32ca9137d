"""Laws of products with constant matrices of a form: zeros, selections, triangles, blocks, and even matrices.

The index form says along which axis of the other operand the elements are summed, and that the result has an axis of
the constant in its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.language.declaration.indices import Index
from eqsat.rewrites.schemas.operator import Operator, Statement, axis_of, law


def constant_laws(op: Operator) -> Iterator[Statement]:
    """Laws of an operator of two operands, each a stack of matrices, that sums over one axis of both."""
    if len(op.form.operands) != 2 or op.linear != (0, 1) or op.spec.attrs or op.spec.pointwise:
        return
    for index in op.form.contracted():
        for place, side in ((1, "right"), (0, "left")):
            if _is_matrix(op, place, index):
                yield from _of_form(op, place, index, side)


def _is_matrix(op: Operator, place: int, index: Index) -> bool:
    """True if an operand has a summed axis and one of the result, which stands there where the other operand is summed.

    Counted from the right, as leading axes may be any.
    """
    constant, other = op.form.operands[place], op.form.operands[1 - place]
    here, there = constant.position(index.name), other.position(index.name)
    if here is None or there is None or constant.fixed != 2 or not constant.broadcasts or not other.broadcasts:
        return False
    (free,) = (i for i in constant.indices if i.name not in ("...", index.name))
    found = op.form.result.position(free.name)
    return found is not None and len(op.form.result.indices) - found == len(other.indices) - there


def _of_form(op: Operator, place: int, index: Index, side: str) -> Iterator[Statement]:
    names = list(op.variables)
    names[place] = "c"
    x, terms = names[1 - place], op.form.operands
    summed = 0 if terms[place].indices[-2].name == index.name else 1
    along, whole = axis_of(terms[1 - place], index.name, x), op.applied(*names)
    shown, title = f"{op.name}({', '.join(names)})", f"{op.name}-of-{{}}-{side}"
    guards = [
        f"rank({x}) >= {len(terms[1 - place].indices) - (terms[1 - place].position(index.name) or 0)}",
        f"finite({x})",
    ]
    yield from law(
        title.format("zero-constant"),
        whole,
        f"fill(shape=shape({shown}), value=0.0, dtype=dtype({x}))",
        ["is_zero(c)", f"finite({x})", f"static({shown})"],
        phase="simplify",
    )
    yield from law(
        title.format("selection"),
        whole,
        f"gather({x}, argmax(c, axis={summed}, keepdims=False), axis={along})",
        [f"is_selection(c, {summed})", *guards],
    )
    wide = [*guards, f"wide({x})"]
    turned = "is_upper(c)" if summed else "not is_upper(c)"
    sums = f"cumsum({x}, axis={along}, reverse={turned})"
    yield from law(title.format("triangle"), whole, sums, ["is_triangle(c)", *wide])
    on, beside = (f"fill(shape=(), value={v}, dtype=dtype({x}))" for v in (_ON, "entry(c, 0, 1) * dim(c, 0)"))
    even = f"{x} * {on} + reduce_mean({x}, axes=({along},), keepdims=True) * {beside}"
    yield from law(title.format("even"), whole, even, ["is_even_beside(c)", *wide])
    parts = []
    cut, size = f"block(c, {summed})", f"dim(c, {summed})"
    for first, last, block in ((0, cut, _FIRST), (cut, size, _SECOND)):
        names[place], names[1 - place] = block, f"slice({x}, **cut({along}, {first}, {last}))"
        parts.append(op.applied(*names))
    yield from law(
        title.format("blocks"), whole, f"concat({', '.join(parts)}, axis={along})", ["is_in_blocks(c)", *wide]
    )


#: The number on the diagonal of an even matrix, less the one beside it, and the blocks of a matrix of two.
_ON = "entry(c, 0, 0) - entry(c, 0, 1)"
_FIRST = "slice(c, axes=(0, 1), starts=(0, 0), ends=(block(c, 0), block(c, 1)))"
_SECOND = "slice(c, axes=(0, 1), starts=(block(c, 0), block(c, 1)), ends=shape(c))"
