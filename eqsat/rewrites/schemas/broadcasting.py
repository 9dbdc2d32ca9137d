"""Laws of operators on two tensors, element by element, one of which has fewer axes or elements than the other.

They only move work about, so all of them run on request.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from eqsat.language.declaration.spec import REQUIRED, OpSpec
from eqsat.rewrites.schemas.operator import Statement, law, takes

_ALIGNED = "reshape(y, shape=ones(rank(x) - rank(y)) + shape(y))"


def broadcasting_laws(spec: OpSpec) -> Iterator[Statement]:
    """Laws of a pointwise operator about each of two operands; where they commute, about the right one alone."""
    numeric = spec.pointwise and not spec.dtypes and REQUIRED not in spec.attrs.values()
    if not numeric or (spec.min_operands, spec.max_operands) != (2, 2):
        return
    smaller = {"right": takes(spec, (2, 3), ()), "left": takes(spec, (), (2, 3))}
    for side in ("right",) if spec.commutative else ("right", "left"):
        if smaller[side]:
            yield from _movements(spec, side)
        if all(smaller.values()):
            yield from _expansion(spec, side)


def _applied(spec: OpSpec, side: str, other: str, one: str) -> str:
    """The operator applied to one operand on that side and to another."""
    operands = [other, one] if side == "right" else [one, other]
    return f"{spec.name}({', '.join([*operands, *(['**a'] if spec.attrs else [])])})"


def _expansion(spec: OpSpec, side: str) -> list[Statement]:
    """The law that the result may be spread instead of an operand."""
    spread, plain = (_applied(spec, side, x, "y") for x in ("expand(x, shape=s)", "x"))
    return law(f"{spec.name}-of-expand-and-{side}", spread, f"expand({plain}, shape=s)", phase="associate")


def _movements(spec: OpSpec, side: str) -> Iterator[Statement]:
    """Laws that take movements past the operator where `y`, the operand on that side, is the smaller one."""
    f, applied = spec.name, partial(_applied, spec, side)
    yield from law(
        f"{f}-of-leading-ones-{side}",
        applied("x", "y"),
        applied("x", "reshape(y, shape=without_leading_ones(shape(y)))"),
        ["1 <= rank(y) <= rank(x)", "dim(y, 0) == 1"],
        phase="associate",
    )
    yield from law(
        f"{f}-of-reshape-and-number-{side}",
        applied("reshape(x, shape=s)", "y"),
        f"reshape({applied('x', 'y')}, shape=s)",
        ["size(y) == 1", "rank(y) <= min(rank(x), len(s))"],
        phase="associate",
        back="associate",
    )
    yield from law(
        f"{f}-of-transpose-and-{side}",
        applied("transpose(x, perm=p)", "y"),
        f"transpose({applied('x', f'transpose({_ALIGNED}, perm=inverse(p))')}, perm=p)",
        ["rank(y) < rank(x)"],
        phase="associate",
    )
    yield from law(
        f"transpose-of-{f}-and-{side}",
        f"transpose({applied('x', 'y')}, perm=p)",
        applied("transpose(x, perm=p)", f"transpose({_ALIGNED}, perm=p)"),
        ["rank(y) < rank(x)"],
        phase="associate",
    )
