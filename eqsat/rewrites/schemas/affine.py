"""Laws of operators that scale and shift by channel: a factor or an addend behind them goes into gain and bias."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.rewrites.schemas.operator import Operator, Statement, axis_of, law


def affine_laws(op: Operator) -> Iterator[Statement]:
    """Laws of a gain and a bias with one element for each place along one axis of the first operand."""
    first, *others = op.form.operands
    vectors = {tuple(i.name for i in term.indices) for term in others[:2]}
    if not op.spec.affine or len(others) < 2 or len(vectors) != 1 or len(others[0].indices) != 1:
        return
    x, g, b = op.variables[:3]
    along = axis_of(first, others[0].indices[0].name, x)
    conditions = [f"constant({g}, {b}, s)", f"along_only(s, {along}, rank({x}), dim({x}, {along}))", f"wide({x})"]
    spread = f"reshape(s, shape=shape({g}))"
    yield from law(
        f"{op.name}-with-scale",
        f"{op.with_operands({})} * s",
        op.with_operands({g: f"{g} * {spread}", b: f"{b} * {spread}"}),
        [*conditions, f"finite({g}, {b}, s)"],
    )
    yield from law(
        f"{op.name}-with-bias",
        f"{op.with_operands({})} + s",
        op.with_operands({b: f"{b} + {spread}"}),
        conditions,
    )
