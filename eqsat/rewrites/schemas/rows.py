"""Laws of axes that broadcast: leading axes of one operand that the others lack, and batches that all operands have."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from eqsat.language.declaration.indices import Index
from eqsat.rewrites.schemas.operator import Operator, Statement, law


def free_block(op: Operator) -> tuple[Index, ...]:
    """The leading axes that the first operand shares with the result alone, but for one last axis of each.

    In ``... m k, ... k n -> ... m n`` they are ``... m``, once the second operand is a matrix.
    """
    form = op.form
    if len(form.operands) < 2 or form.additions or op.spec.attrs or not all(t.broadcasts for t in form.operands):
        return ()
    pairs = zip(form.operands[0].indices, form.result.indices, strict=False)
    block = tuple(a for a, _ in itertools.takewhile(lambda p: p[0] == p[1], pairs))
    others = {i.name for t in form.operands[1:] for i in t.indices} - {"..."}
    tails = [len(t.indices) - len(block) for t in (form.operands[0], form.result)]
    lasts = form.result.indices[-1].name in others
    return block if tails == [1, 1] and lasts and not others & {i.name for i in block} else ()


def row_laws(op: Operator) -> Iterator[Statement]:
    """Laws of rows, batches and broadcast operands."""
    if free_block(op) and len(op.form.operands) == 2:
        yield from _movements(op)
        yield from _reshapes(op)
        yield from _row_merges(op)
    plain = len(op.form.operands) > 1 and not op.spec.pointwise and not op.spec.attrs
    if plain and all(t.broadcasts for t in op.form.operands):
        yield from _batches(op)
        yield from _expansions(op)


def _matrix(op: Operator) -> str:
    return f"rank(w) == {op.form.operands[1].fixed}"


def _width(op: Operator) -> str:
    """The last dim of the result, as one of the second operand, which then has no leading axes."""
    last = op.form.result.indices[-1].name
    return f"dim(w, {(op.form.operands[1].position(last) or 0) - 1})"


def _movements(op: Operator) -> Iterator[Statement]:
    """Movement of rows goes through."""
    f, whole, matrix = op.name, op.applied("x", "w"), _matrix(op)
    yield from law(
        f"{f}-of-slice",
        op.applied("slice(x, **s)", "w"),
        f"slice({whole}, **s)",
        [matrix, "rank(x) >= 2", "(rank(x) - 1) not in s.axes"],
        back="expand",
    )
    apart, joined = f"concat(*[{whole} for x in xs], axis=k)", op.applied("concat(*xs, axis=k)", "w")
    rows = [matrix, "k < rank(xs[0]) - 1"]
    yield from law(f"concat-of-{f}s", apart, joined, rows, back="associate", back_name=f"{f}-over-concat")
    yield from law(
        f"{f}-of-gather",
        op.applied("gather(x, i, axis=k)", "w"),
        f"gather({whole}, i, axis=k)",
        [matrix, "k < rank(x) - 1", "constant(x, w)"],
        back="expand",
    )
    yield from law(
        f"{f}-of-transpose",
        op.applied("transpose(x, perm=p)", "w"),
        f"transpose({whole}, perm=p)",
        [matrix, "p[-1] == len(p) - 1", "rank(x) >= 2"],
        back="expand",
    )


def _reshapes(op: Operator) -> Iterator[Statement]:
    f, whole, matrix, width = op.name, op.applied("x", "w"), _matrix(op), _width(op)
    moved = op.applied("reshape(x, shape=s)", "w")
    rows = ["rank(x) >= 2", "len(s) >= 2"]
    equal = "prod(s[:-1]) == prod(shape(x)[:-1])"
    yield from law(
        f"{f}-of-reshape",
        moved,
        f"reshape({whole}, shape=s[:-1] + ({width},))",
        [matrix, *rows, "keeps_last(x, s)", equal],
    )
    yield from law(
        f"reshape-of-{f}",
        f"reshape({whole}, shape=s)",
        op.applied("reshape(x, shape=s[:-1] + (dim(x, -1),))", "w"),
        [matrix, *rows, f"s[-1] == {width}", equal],
    )
    yield from law(
        f"{f}-of-expand-rows",
        op.applied("expand(x, shape=s)", "w"),
        f"expand({whole}, shape=s[:-1] + ({width},))",
        [matrix, "len(s) >= 2", "dim(x, -1) == s[-1]"],
    )


def _row_merges(op: Operator) -> Iterator[Statement]:
    """Siblings with one matrix: joined along the first axis, or along the last of the rows where all have batches."""
    f, whole = op.name, op.applied("x", "w")
    fixed = op.form.operands[1].fixed
    yield from law(
        f"{f}s-merge-rows",
        f"[{whole} for x in xs]",
        f"split({op.applied('concat(*xs, axis=0)', 'w')}, axis=0, sizes=[dim(x, 0) for x in xs])",
        [_matrix(op), "rank(xs[0]) >= 2", "all(shape(x)[1:] == shape(xs[0])[1:] for x in xs)"],
        phase="merge",
    )
    joined = op.applied(f"concat(*xs, axis=rank(w) - {fixed})", "w")
    yield from law(
        f"{f}s-merge-rows-of-batches",
        f"[{whole} for x in xs]",
        f"split({joined}, axis=rank(w) - {fixed}, sizes=[dim(x, -{fixed}) for x in xs])",
        [f"rank(w) >= {fixed + 1}", f"all(shape(x)[:-{fixed}] == shape(w)[:-{fixed}] for x in xs)"],
        phase="merge",
    )


def _batches(op: Operator) -> Iterator[Statement]:
    """Leading axes that all operands have."""
    tails = {t.fixed for t in (*op.form.operands, op.form.result)}
    if len(tails) > 1 or op.variables != ("x", "w"):
        return
    f, tail = op.name, tails.pop()
    if not tail:
        return
    last = ", ".join(f"len(p) - {k}" for k in range(tail, 0, -1))
    yield from law(
        f"{f}-of-transposes",
        op.applied("transpose(x, perm=p)", "transpose(w, perm=p)"),
        f"transpose({op.applied('x', 'w')}, perm=p)",
        ["rank(x) == rank(w)", f"rank(x) >= {tail}", f"p[-{tail}:] == ({last},)"],
        back="expand",
    )
    alike = "all(without(shape({v}), k) == without(shape({v}s[0]), k) for {v} in {v}s)"
    step = "rank(x) == rank(w) == rank(xs[0]) and dim(x, k) == dim(w, k)"
    yield from law(
        f"{f}-of-batches",
        op.applied("concat(*xs, axis=k)", "concat(*ws, axis=k)"),
        f"concat(*[{op.applied('x', 'w')} for x, w in zip(xs, ws)], axis=k)",
        [
            "len(xs) == len(ws)",
            f"k < rank(xs[0]) - {tail}",
            f"all({step} for x, w in zip(xs, ws))",
            alike.format(v="x"),
            alike.format(v="w"),
        ],
        back="expand",
    )


def _expansions(op: Operator) -> Iterator[Statement]:
    """An operand need not be spread over axes that another has anyway."""
    sides = dict(zip(op.variables, ("left", "right"), strict=True)) if len(op.variables) == 2 else {}
    for name, term in zip(op.variables, op.form.operands, strict=True):
        spread = op.with_operands({name: f"expand({name}, shape=s)"})
        yield from law(
            f"{op.name}-of-expand-{sides.get(name, name)}",
            spread,
            op.with_operands({}),
            [
                f"shape({op.called({})}) == shape({op.called({name: f'expand({name}, shape=s)'})})",
                f"rank({name}) >= {term.fixed}",
            ],
            phase="simplify",
        )
