"""Laws of operators that are linear in an operand: sums, differences, negation and scales go through.

Taking a common factor out is in "expand", distributing in "associate", as it repeats the operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.declaration.indices import Index, IndexTerm
from eqsat.language.declaration.spec import OpSpec
from eqsat.rewrites.schemas.operator import ADDED, VARIABLES, Operator, Statement, axis, axis_of, law, vector

_SIDES = {1: ("",), 2: ("-left", "-right")}


def linear_laws(spec: OpSpec) -> Iterator[Statement]:
    """Laws that follow from linearity in some of the operands."""
    linear = sorted(k for k in spec.multilinear if k < spec.min_operands)
    # Sums and scales of movements follow from those of pointwise operators.
    if not linear or spec.max_operands is None or spec.strided or spec.dtypes:
        return
    op = Operator(spec, spec.form) if spec.form is not None else None
    if spec.pointwise:
        if op is not None:
            yield from _pointwise(op)
        return
    yield from _sums(spec, op, linear)
    if op is None or any(i.name == "1" for i in op.form.result.indices):
        return
    if len(op.form.operands) == 1:
        yield from _scale_of_one(op)
    elif len(op.form.operands) == 2 and len(linear) == 2:
        yield from _negation(op)
        yield from _scale_between(op) if op.guards else _scale_of_each(op)
        yield from _vectors(op)


def _sums(spec: OpSpec, op: Operator | None, linear: list[int]) -> Iterator[Statement]:
    names = VARIABLES[: spec.min_operands]
    record = ["**a"] if spec.attrs else []
    guards = list(op.guards) if op is not None else []
    sides = _SIDES.get(spec.min_operands, tuple(f"-of-{v}" for v in names))

    def applied(*operands: str) -> str:
        return op.applied(*operands) if op is not None else f"{spec.name}({', '.join([*operands, *record])})"

    for place in linear:
        name, other = names[place], "y" if "y" not in names else "z"
        one, two = applied(*names), applied(*(other if n == name else n for n in names))
        conditions = [*guards, f"same_shape({name}, {other})", f"wide({name})"]
        conditions.append(f"finite({', '.join((*names, other))})")
        for sign, word in (("+", "add"), ("-", "sub")):
            whole = applied(*(f"{name} {sign} {other}" if n == name else n for n in names))
            title = f"{spec.name}-over-{word}{sides[place]}"
            apart = "distributes" if word == "add" else "distributes-over-sub"
            yield from law(
                title,
                f"{one} {sign} {two}",
                whole,
                conditions,
                back="associate" if op is not None else None,
                back_name=f"{spec.name}-{apart}{sides[place]}",
            )
        if not spec.partial and not spec.movement and len(linear) == spec.min_operands:
            yield from _zero(spec, op, place, sides[place])


def _zero(spec: OpSpec, op: Operator | None, place: int, side: str) -> list[Statement]:
    """The law that a linear operator makes zeros of zeros, where the other operands are finite."""
    if op is not None and op.form.windowed and len(op.form.operands) == 1:
        return []  # the mean over a window of padding alone is none
    names, record = VARIABLES[: spec.min_operands], ["**a"] if spec.attrs else []
    zeros = "fill(shape=s, value=0.0, dtype=d)"
    operands = [zeros if k == place else name for k, name in enumerate(names)]
    others = [name for k, name in enumerate(names) if k != place]
    called = f"{spec.name}({', '.join([*operands, *record])})"
    left = op.applied(*operands) if op is not None else called
    guards = list(op.guards) if op is not None else []
    finite = [f"finite({', '.join(others)})"] if others else []
    right = f"fill(shape=shape({called}), value=0.0, dtype=d)"
    return law(f"{spec.name}-of-zeros{side}", left, right, [*guards, *finite, f"static({called})"], phase="simplify")


def _scale_of_one(op: Operator) -> Iterator[Statement]:
    """A scalar goes through, and so does a vector along an axis that is walked in step."""
    f, first, result = op.name, op.form.operands[0], op.form.result
    room = ["rank(c) <= rank(x)"] + ([] if _like(first, result) else [f"rank(c) <= {result.fixed}"])
    conditions = [*op.guards, "size(c) == 1", *room, "wide(x)", "finite(x, c)"]
    if first.attribute and not result.attribute:  # a reduction, which may lower the rank
        yield from law(
            f"{f}-of-scaled",
            f"{f}(x * c, **a)",
            f"{f}(x, **a) * reshape(c, shape=())",
            ["size(c) == 1", "spans(x, c)", "wide(x)", "finite(x, c)"],
        )
        keeping = "axes=a, keepdims=True"
        yield from law(f"{f}-scaled", f"{f}(x, {keeping}) * c", f"{f}(x * c, {keeping})", conditions)
        return
    yield from law(f"{f}-of-scaled", op.applied("x * c"), f"{op.applied('x')} * c", conditions, back="expand")
    for index in op.form.parallel():
        here, there = axis_of(first, index.name, "x"), axis(op.form.result, index.name, "rank(x)")
        if here != there or not _like(first, result):
            continue
        yield from law(
            f"{f}-of-scaled-along-{index.name}",
            op.applied("x * c"),
            f"{op.applied('x')} * c",
            [*op.guards, f"along_only(c, {here}, rank(x), dim(x, {here}))", "wide(x)", "finite(x, c)"],
            phase="associate",
            back="associate",
        )


def _negation(op: Operator) -> Iterator[Statement]:
    for name, side in zip(op.variables, ("left", "right"), strict=True):
        yield from law(
            f"{op.name}-neg-{side}",
            op.with_operands({name: f"-{name}"}),
            f"-{op.with_operands({})}",
            [*op.guards, "floating(x)"],
            back="expand",
        )


def _scalar(op: Operator, *names: str) -> list[str]:
    """The conditions that c is one number, and that multiplying by it adds no axes."""
    ranks: list[str] = []
    for name, term in zip(op.variables, op.form.operands, strict=True):
        if name in names:
            ranks += _room(op, term, name)
    return ["size(c) == 1", *ranks, "wide(x)", f"finite({', '.join(op.variables)}, c)"]


def _room(op: Operator, term: IndexTerm, name: str) -> list[str]:
    """The conditions under which a factor of one element adds no axes to an operand, nor to the result."""
    result = op.form.result
    if term.broadcasts and term.fixed:
        if not op.spec.attrs:  # so that the result's rank can be asked for
            return [f"rank(c) <= rank({name})", f"rank(c) <= rank({op.called({})})"]
        return [f"rank(c) <= {min(term.fixed, result.fixed)}", *op.ranks()]
    room = [f"rank(c) <= rank({name})"]
    return room if _like(term, result) else [*room, f"rank(c) <= {result.fixed}"]


def _like(term: IndexTerm, result: IndexTerm) -> bool:
    """True if the result has as many axes as an operand."""
    runs = [[i.name == "..." for i in t.indices if i.many] for t in (term, result)]
    return runs[0] == runs[1] and term.fixed == result.fixed


def _scale_of_each(op: Operator) -> Iterator[Statement]:
    """A scale of either operand is one of the result."""
    for name, side in zip(op.variables, ("left", "right"), strict=True):
        # A divisor of 0 makes infinities, whose sum is NaN.
        for sign, word, more in (("*", "scaled", []), ("/", "quotient", ["invertible(c)"])):
            yield from law(
                f"{op.name}-of-{word}-{side}",
                op.with_operands({name: f"{name} {sign} c"}),
                f"{op.with_operands({})} {sign} c",
                [*_scalar(op, name), *more],
                back="expand",
            )


def _scale_between(op: Operator) -> Iterator[Statement]:
    """A scale of one operand is one of the other whatever follows, and one of the result where nothing does."""
    x, w = op.variables
    yield from law(
        f"{op.name}-of-scaled-left",
        op.with_operands({x: f"{x} * c"}),
        op.with_operands({w: f"{w} * c"}),
        _scalar(op, x, w),
        back="expand",
    )
    yield from law(
        f"{op.name}-scaled",
        f"{op.with_operands({})} * c",
        op.with_operands({x: f"{x} * c"}),
        [*op.guards, *_scalar(op, x)],
        back="expand",
    )


def _vectors(op: Operator) -> Iterator[Statement]:
    """A vector of scales along one axis of the data or of the result goes into the constants, on request elsewhere."""
    data, weights = op.form.operands
    for index in op.form.contracted():
        if weights.position(index.name) is None or not op.is_ungrouped(index):
            continue
        guards = [op.group_guard(index), *_matrix(op)]
        orders = list(itertools.permutations((("x", data), ("w", weights))))
        for (name, here), (other, there) in orders[:1] if op.form.windowed else orders:
            place = axis_of(here, index.name, name)
            count = f"dim({name}, {place})"
            scaled = f"{other} * reshape(c, shape={_turned(there, index, count, other)})"
            sides = op.with_operands({name: f"{name} * c"}), op.with_operands({other: scaled})
            conditions = [*guards, f"along_only(c, {place}, rank({name}), {count})", "wide(x)", "finite(x, c, w)"]
            if name == "x":
                title = f"{op.name}-of-scaled-along-{index.name}"
                yield from law(title, *sides, ["constant(c, w)", *conditions])
            title = f"{op.name}-moves-scale-along-{index.name}"
            yield from law(title if name == "x" else f"{title}-back", *sides, conditions, phase="associate")
    for index in op.form.parallel():
        if op.form.holders(index.name) != (1,):
            continue
        yield from _result_vector(op, index)


def _result_vector(op: Operator, index: Index) -> Iterator[Statement]:
    data, weights = op.form.operands
    result = op.form.result
    if result.open and (not data.open or data.fixed != result.fixed):
        return  # how many axes the result has is not known from the data
    rank = "rank(x)" if result.open else str(len(result.indices))
    there = axis(result, index.name, rank)
    count = f"dim(w, {axis_of(weights, index.name, 'w')})"
    scaled = f"w * reshape(c, shape={_turned(weights, index, count, 'w')})"
    conditions = [*op.guards, *_matrix(op), f"along_only(c, {there}, {rank}, {count})", "wide(x)"]
    sides = f"{op.applied('x', 'w')} * c", op.applied("x", scaled)
    finite = "finite(x, c, w)"
    yield from law(f"{op.name}-scaled-along-{index.name}", *sides, ["constant(c, w)", *conditions, finite])
    yield from law(f"{op.name}-takes-scale-along-{index.name}", *sides, [*conditions, finite], phase="associate")
    for added in op.form.additions:
        if len(added.indices) != 1:
            continue
        bias = f"{ADDED} * reshape(c, shape=({count},))"
        yield from law(
            f"{op.name}-scaled-along-{index.name}-with-bias",
            f"{op.applied('x', 'w', ADDED)} * c",
            op.applied("x", scaled, bias),
            ["constant(c, w, b)", *conditions, "finite(x, c, w, b)"],
        )


def _turned(term: IndexTerm, index: Index, count: str, variable: str) -> str:
    """The shape of a vector along an index of an operand, whichever way an attribute turns it."""
    shape = vector(term, index.name, count, variable)
    if not term.turned:
        return shape
    other = vector(IndexTerm(term.indices[::-1]), index.name, count, variable)
    return f"{other} if a.{term.turned} else {shape}"


def _matrix(op: Operator) -> list[str]:
    """The conditions that the second operand has no leading axes, and the first those that are named."""
    data, weights = op.form.operands
    return [f"rank(w) == {weights.fixed}", f"rank(x) >= {data.fixed}"] if weights.broadcasts else []


def _pointwise(op: Operator) -> Iterator[Statement]:
    """Sums and signs under pointwise operators; the numerator's of a quotient run on request only."""
    f, names = op.name, op.variables
    if len(names) == 1:
        yield from _scale(op.spec)
        for sign, word in (("+", "sum"), ("-", "difference")):
            yield from law(
                f"{f}-of-{word}", f"{f}(x {sign} y)", f"{f}(x) {sign} {f}(y)", ["wide(x)"], phase="associate"
            )
        return
    own = op.spec.commutative
    phase, title = ("expand", "factor") if own else ("associate", f"factor-of-{f}")
    joint = ["wide(x)", "finite(x, y, z)", "same_shape(x, y)"]
    for sign, word in (("+", ""), ("-", "-difference")):
        yield from law(
            f"{title}{word}" if f == "mul" else f"{f}-factor{word}",
            f"{f}(x, z) {sign} {f}(y, z)",
            f"{f}(x {sign} y, z)",
            joint,
            phase=phase,
        )
    for sign, word in (("+", "add"), ("-", "sub")):
        apart = f"{f}(x, z) {sign} {f}(y, z)"
        finite = ["wide(x)", "finite(x, y, z)"]
        yield from law(f"{f}-over-{word}", f"{f}(x {sign} y, z)", apart, finite, phase="associate")
    if own:
        yield from law(
            f"{f}-over-add-of-constants",
            f"{f}(x + c, d)",
            f"{f}(x, d) + {f}(c, d)",
            ["constant(c, d)", "wide(x)", "finite(x, c, d)"],
        )
        yield from law(f"{f}-neg", f"{f}(x, -y)", f"-{f}(x, y)", ["floating(x)"])
        yield from _signs_of_parts(f)
    else:
        yield from law(
            f"{f}-scaled",
            f"{f}(x, y) * c",
            f"{f}(x * c, y)",
            ["wide(x)", "constant(c)", "not constant(y)"],
        )


def _scale(spec: OpSpec) -> Iterator[Statement]:
    """A function that is linear in each element by itself is a product with what it makes of 1."""
    number = float(np.ravel(spec.reference(FloatNamespace(), np.ones(1)))[0]) if not spec.attrs else 1.0
    if number != 1.0:
        conditions = [f"is_all(c, {number!r})", "spans(x, c)", "floating(x)"]
        yield from law(f"mul-is-{spec.name}", "x * c", f"{spec.name}(x)", conditions, phase="simplify")


def _signs_of_parts(f: str) -> Iterator[Statement]:
    """The sign of one part of what is joined goes into a constant factor."""
    for parts, signs, word in (("-x, y", (-1.0, 1.0), "first"), ("x, -y", (1.0, -1.0), "second")):
        filled = (
            f"fill(shape=replaced(ones(rank({v})), k, dim({v}, k)), value={sign}, dtype=dtype({v}))"
            for v, sign in zip("xy", signs, strict=True)
        )
        yield from law(
            f"{f}-of-negative-{word}-part",
            f"{f}(concat({parts}, axis=k), c)",
            f"{f}(concat(x, y, axis=k), {f}(c, concat({', '.join(filled)}, axis=k)))",
            ["constant(c)", "floating(x)"],
        )
