"""Laws of sums over an axis that operands share: cut in two, composed, turned round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat.language.declaration.indices import Index, IndexForm, IndexTerm
from eqsat.rewrites.schemas.operator import ADDED, Operator, Statement, axis_of, law

_Names = tuple[str, ...]


def product_laws(op: Operator) -> Iterator[Statement]:
    """Laws of an operator that is linear in each of its operands, one or two."""
    if len(op.form.operands) == 1 and op.linear == (0,):
        for index in op.form.contracted():
            yield from _cut_sum_of_one(op, index)
    if len(op.form.operands) != 2 or op.linear != (0, 1):
        return
    if not op.spec.pointwise:
        for index in op.form.contracted():
            if op.form.operands[1].position(index.name) is not None and op.is_ungrouped(index):
                yield from _cut_sum(op, index)
        if not op.spec.attrs:
            yield from _swap(op)
            yield from _shift(op)
        for place, term in enumerate(op.form.operands):
            if term.turned:
                yield from _turn(op, place, term)
    if not op.spec.attrs and _associates(op.form):
        yield from _associativity(op)


def _cut_sum(op: Operator, index: Index) -> Iterator[Statement]:
    """A sum over an axis is one over its first part and one over its second."""
    data, weights = op.form.operands
    here, there = axis_of(data, index.name, "x"), axis_of(weights, index.name, "w")
    guards = [*op.guards, op.group_guard(index), "wide(x)", *op.ranks()]
    one, two = op.applied("x", "w"), op.applied("y", "v")
    joined = f"concat(x, y, axis={here})", f"concat(w, v, axis={there})"
    rests = [
        f"without(shape({a}), {axis_of(t, index.name, a)}) == without(shape({b}), {axis_of(t, index.name, b)})"
        for a, b, t in (("x", "y", data), ("w", "v", weights))
    ]
    # An axis counted from the right is none of a tensor of lower rank, which equal shapes would not show.
    rests += [f"rank({a}) == rank({b})" for a, b, at in (("x", "y", here), ("w", "v", there)) if not at.isdecimal()]
    yield from law(f"sum-of-{op.name}s", f"{one} + {two}", op.applied(*joined), [*guards, *rests])
    fits = f"dim(x, {here}) == dim(w, {there})"
    fixed = here.isdecimal() and there.isdecimal()
    bound = ("", "") if fixed else (f"j == {here}", f"k == {there}")
    cut = joined if fixed else ("concat(x, y, axis=j)", "concat(w, v, axis=k)")
    yield from law(f"{op.name}-of-concats", op.applied(*cut), f"{one} + {two}", [*bound, *guards, fits])
    if op.form.windowed or weights.turned or data.turned:
        return
    place = weights.position(index.name) or 0
    place -= sum(i.many for i in weights.indices[:place])
    end = f"dim(w, {place})"
    halves = [f"slice(w, **cut({place}, {a}, {b}))" for a, b in (("0", f"dim(x, {here})"), (f"dim(x, {here})", end))]
    yield from law(
        f"{op.name}-of-concat-and-one",
        op.applied("concat(x, y, axis=k)", "w"),
        f"{op.applied('x', halves[0])} + {op.applied('y', halves[1])}",
        [f"k == {here}", "wide(x)", f"rank(x) >= {data.fixed}", f"rank(w) == {weights.fixed}", "constant(w)"],
    )


def _cut_sum_of_one(op: Operator, index: Index) -> Iterator[Statement]:
    """A sum over an axis is one over its first part and one over its second."""
    if op.is_ungrouped(index):
        joined = op.applied(f"concat(x, y, axis={axis_of(op.form.operands[0], index.name, 'x')})")
        parts = f"{op.applied('x')} + {op.applied('y')}"
        guards = [*op.guards, op.group_guard(index), *op.ranks(), "wide(x)"]
        yield from law(f"{op.name}-of-joined-{index.name}", joined, parts, guards)


def _swap(op: Operator) -> Iterator[Statement]:
    """The result turned round is that of the operands exchanged and turned round, where the form says so."""
    terms = [tuple(i.name for i in t.indices if not i.many) for t in (*op.form.operands, op.form.result)]
    left, right, result = terms
    renamed = dict(zip(result, reversed(result), strict=True))
    turned = [tuple(renamed.get(n, n) for n in term) for term in (left, right)]
    if len(result) < 2 or turned != [right[::-1], left[::-1]] or any(len(t) != len(result) for t in terms):
        return
    count = len(result)
    last = ", ".join(f"len(p) - {k}" for k in range(1, count + 1))
    ranks = ["rank(x) == rank(w)", f"rank(x) >= {count}", f"p[-{count}:] == ({last})"]
    one = op.applied("transpose(w, perm=p)", "transpose(x, perm=p)")
    yield from law(f"transpose-of-{op.name}", f"transpose({op.applied('x', 'w')}, perm=p)", one, ranks)
    yield from law(f"{op.name}-of-turned", one, f"transpose({op.applied('x', 'w')}, perm=p)", ranks)


def _shift(op: Operator) -> Iterator[Statement]:
    """A constant vector added along the axis of the sum goes through on its own, as one row."""
    data, weights = op.form.operands
    for index in op.form.contracted():
        if not (data.broadcasts and weights.broadcasts) or data.indices[-1] != index:
            continue
        here = axis_of(data, index.name, "x")
        row = "(" + ", ".join(["1"] * (data.fixed - 1) + ["dim(x, -1)"]) + ("," if data.fixed == 1 else "") + ")"
        yield from law(
            f"{op.name}-of-shifted",
            op.applied("x + c", "w"),
            f"{op.applied('x', 'w')} + {op.applied(f'reshape(c, shape={row})', 'w')}",
            [
                "constant(c, w)",
                f"rank(w) == {weights.fixed}",
                f"rank(x) >= {data.fixed}",
                f"along_only(c, {here}, rank(x), dim(x, -1))",
                "wide(x)",
                "finite(x, c, w)",
            ],
        )


def _turn(op: Operator, place: int, term: IndexTerm) -> Iterator[Statement]:
    """An operand that an attribute turns round may be turned round before."""
    name = op.variables[place]
    perm = ", ".join(str(k) for k in reversed(range(len(term.indices))))
    for added in ([], [ADDED]) if op.form.additions else ([],):
        operands = [f"transpose({v}, perm=({perm}))" if v == name else v for v in op.variables]
        yield from law(
            f"{op.name}-turn-{('left', 'right')[place]}{'-bias' if added else ''}",
            op.applied(*op.variables, *added),
            op.applied(*operands, *added, fields={term.turned: "False"}),
            [f"a.{term.turned}"],
        )


def _associativity(op: Operator) -> Iterator[Statement]:
    """Two applications compose in either order; for pointwise operators on request only, as they are many."""
    inner = [f"rank({v}) >= {op.form.operands[0].fixed}" for v in "xyz"] if op.form.operands[0].fixed else []
    finite = [] if op.spec.pointwise else ["finite(x, y, z)"]
    phase = "associate" if op.spec.pointwise else "expand"
    yield from law(
        f"{op.name}-associates",
        op.applied("x", op.applied("y", "z")),
        op.applied(op.applied("x", "y"), "z"),
        ["wide(x)", *inner, *finite],
        phase=phase,
        back=phase,
    )
    if op.spec.pointwise and op.spec.commutative:
        f = op.name
        yield from law(
            f"{f}s-merge", f"{f}({f}(x, c), d)", f"{f}(x, {f}(c, d))", ["constant(c, d)", "wide(x)"], phase="expand"
        )
        yield from law(
            f"{f}-constant-last",
            f"{f}({f}(x, c), y)",
            f"{f}({f}(x, y), c)",
            ["constant(c)", "not constant(y)", "wide(x)"],
        )


def _associates(form: IndexForm) -> bool:
    """True if f(f(x, y), z) and f(x, f(y, z)) walk the same axes."""
    terms = [tuple(i.name for i in t.indices) for t in (*form.operands, form.result)]
    if form.windowed or any(i.mixed or i.group for t in form.terms for i in t.indices):
        return False
    left = _composed(terms, 0)
    right = _composed(terms, 1)
    return left is not None and right is not None and _canonical(left) == _canonical(right)


def _composed(terms: Sequence[_Names], place: int) -> list[_Names] | None:
    """The terms of x, y, z and the result where the inner application is the operand at `place` of the outer one."""
    *operands, result = terms
    inner = [tuple(f"{n}'" if n != "..." else n for n in t) for t in terms]
    if len(operands[place]) != len(result):
        return None
    named = dict(zip(operands[place], inner[-1], strict=True))
    outer = [tuple(named.get(n, n) for n in t) for t in terms]
    inputs = [*inner[:-1], outer[1]] if place == 0 else [outer[0], *inner[:-1]]
    return [*inputs, outer[-1]]


def _canonical(terms: Sequence[_Names]) -> list[tuple[int | str, ...]]:
    names: dict[str, int] = {}
    return [tuple(n if n == "..." else names.setdefault(n, len(names)) for n in t) for t in terms]
