"""Laws of operators that act on each element alone: they commute with every movement of elements.

Towards one operator on more elements in "expand"; the ways back that only ever undo that are in "associate", except
where they feed another rule: slices (less work), transposes and reshapes (they meet and cancel), and operators that
others take in as an attribute. Laws about one of two operands that has fewer axes or elements than the other, constant
or not, only move work about, so that all of them run on request.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from eqsat.language.declaration.spec import REQUIRED, OpSpec
from eqsat.rewrites.schemas.operator import Statement, law, takes
from eqsat.rewrites.schemas.reductions import monotone_laws

#: Activations that convolutions take in: they go back over a concatenation of convolutions.
ABSORBED = frozenset({"relu"})
_ALIGNED = "reshape(c, shape=ones(rank(x) - rank(c)) + shape(c))"


def pointwise_laws(spec: OpSpec) -> Iterator[Statement]:
    """Laws of a pointwise operator of one or two operands that take numbers."""
    if not spec.pointwise:
        return
    if spec.commutative and (spec.min_operands, spec.max_operands) == (2, 2):
        numbers = {"add": (2,), "mul": (4,)}.get(spec.name, ())
        yield from law(f"{spec.name}-commutes", f"{spec.name}(x, y)", f"{spec.name}(y, x)", laws=numbers)
    if spec.dtypes or REQUIRED in spec.attrs.values():
        return
    if spec.max_operands == 1:
        yield from _unary(spec.name)
        if spec.monotone:
            yield from monotone_laws(spec.name)
    elif spec.min_operands == spec.max_operands == 2:
        yield from _binary(spec.name)
        if takes(spec, (2, 3), ()):
            yield from _with_one(spec.name, "right")
        if not takes(spec, (), (2, 3)):
            return
        yield from _spread(spec.name, "left", "{f}(expand(x, shape=s), y)", "{f}(x, y)")
        if not spec.commutative:
            yield from _with_one(spec.name, "left")
            yield from _spread(spec.name, "right", "{f}(y, expand(x, shape=s))", "{f}(y, x)")


def _unary(f: str) -> Iterator[Statement]:
    back = "expand" if f in ABSORBED else "associate"
    joined, apart = f"{f}(concat(*xs, axis=k), **a)", f"concat(*[{f}(x, **a) for x in xs], axis=k)"
    yield from law(f"concat-of-{f}", apart, joined, back=back, back_name=f"{f}-over-concat", laws=(15,))
    yield from law(
        f"{f}-of-transpose",
        f"{f}(transpose(x, perm=p), **a)",
        f"transpose({f}(x, **a), perm=p)",
        back="expand",
        laws=(16,),
    )
    yield from law(f"{f}-of-reshape", f"{f}(reshape(x, shape=s), **a)", f"reshape({f}(x, **a), shape=s)", back="expand")
    yield from law(f"{f}-of-slice", f"{f}(slice(x, **s), **a)", f"slice({f}(x, **a), **s)", back="expand")
    yield from law(f"{f}-of-expand", f"{f}(expand(x, shape=s), **a)", f"expand({f}(x, **a), shape=s)")
    yield from law(
        f"{f}-of-gather", f"{f}(gather(x, i, axis=k), **a)", f"gather({f}(x, **a), i, axis=k)", ["constant(x)"]
    )


def _binary(f: str) -> Iterator[Statement]:
    """Both operands move together."""
    joined = f"{f}(concat(*xs, axis=k), concat(*ys, axis=k))"
    apart = f"concat(*[{f}(x, y) for x, y in zip(xs, ys)], axis=k)"
    equal = "all(same_shape(x, y) for x, y in zip(xs, ys))"
    yield from law(f"concat-of-{f}", apart, joined, [equal], laws=(21, 22))
    yield from law(f"{f}-over-concats", joined, apart, ["len(xs) == len(ys)", equal], phase="associate", laws=(21, 22))
    yield from law(
        f"{f}-of-transposes",
        f"{f}(transpose(x, perm=p), transpose(y, perm=p))",
        f"transpose({f}(x, y), perm=p)",
        ["rank(x) == rank(y)"],
        back="expand",
        laws=(34, 35),
    )
    yield from law(
        f"{f}-of-reshapes",
        f"{f}(reshape(x, shape=s), reshape(y, shape=s))",
        f"reshape({f}(x, y), shape=s)",
        ["same_shape(x, y)"],
        back="expand",
    )
    yield from law(
        f"{f}-of-slices",
        f"{f}(slice(x, **s), slice(y, **s))",
        f"slice({f}(x, y), **s)",
        ["same_shape(x, y)"],
        back="expand",
    )


def _with_one(f: str, side: str) -> Iterator[Statement]:
    """The operand on that side is broadcast and does not vary along the axis concerned.

    On the right, where commutative operators have it, a scalar is the published S(x, c).
    """
    right = side == "right"

    def title(movement: str) -> str:
        return f"{f}-of-{movement}-and-one" if right else f"{f}-of-one-and-{movement}"

    def outer(movement: str) -> str:
        return f"{movement}-of-{f}-and-one" if right else f"{movement}-of-one-and-{f}"

    def applied(x: str, c: str = "c") -> str:
        return f"{f}({x}, {c})" if right else f"{f}({c}, {x})"

    yield from law(
        outer("concat"),
        f"concat(*[{applied('x')} for x in xs], axis=k)",
        applied("concat(*xs, axis=k)"),
        ["off_axis(c, k, rank(xs[0]))", "all(spans(x, c) for x in xs)"],
        back="associate" if right else None,
        back_name=f"{f}-over-concat-and-one",
        laws=(11,) if right else (),
    )
    fits = ["constant(c)", "rank(c) <= rank(x)"]
    inverse = applied("x", f"transpose({_ALIGNED}, perm=inverse(p))")
    turned = applied("transpose(x, perm=p)"), f"transpose({inverse}, perm=p)"
    yield from law(title("transpose"), *turned, fits, laws=(9,) if right else ())
    if right:
        turned = f"transpose({applied('x')}, perm=p)", applied("transpose(x, perm=p)", f"transpose({_ALIGNED}, perm=p)")
        yield from law(outer("transpose"), *turned, fits, laws=(9,))
    yield from law(
        title("reshape"),
        applied("reshape(x, shape=s)"),
        f"reshape({applied('x')}, shape=s)",
        ["constant(c)", "rank(c) <= 1", "keeps_last(x, s)", "spans(x, c)"],
        back="expand",
    )
    steady = ["spans(x, c)", "all(off_axis(c, k, rank(x)) for k in s.axes)"]
    moved, still = applied("slice(x, **s)"), f"slice({applied('x')}, **s)"
    yield from law(title("slice"), moved, still, ["constant(c)", *steady])
    yield from law(outer("slice"), still, moved, steady)


def _spread(f: str, side: str, spread: str, plain: str) -> list[Statement]:
    """An operand need not be spread over axes that the other has anyway."""
    same = "broadcast(shape(x), shape(y)) == broadcast(shape(x), s, shape(y))"
    return law(f"{f}-of-expand-{side}", spread.format(f=f), plain.format(f=f), [same])


_Y_ALIGNED = "reshape(y, shape=ones(rank(x) - rank(y)) + shape(y))"


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
        f"transpose({applied('x', f'transpose({_Y_ALIGNED}, perm=inverse(p))')}, perm=p)",
        ["rank(y) < rank(x)"],
        phase="associate",
    )
    yield from law(
        f"transpose-of-{f}-and-{side}",
        f"transpose({applied('x', 'y')}, perm=p)",
        applied("transpose(x, perm=p)", f"transpose({_Y_ALIGNED}, perm=p)"),
        ["rank(y) < rank(x)"],
        phase="associate",
    )
