"""Elements of tensors that a statement reads by sums of indices, as slices and turns of what the tensors hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eqsat.language.comprehension.definitions.parts import UNIT, AxedTerm, tuple_of
from eqsat.language.comprehension.definitions.statement import NoDefinition, StatementContext
from eqsat.language.comprehension.definitions.steps import stepped
from eqsat.language.comprehension.extents.affine import Affine, affine
from eqsat.language.comprehension.text.syntax import Applied, Binary, Expression, walk
from eqsat.language.terms import Dim

#: One number a trial.
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class AffineSubscript:
    """A subscript as a sum of indices: in each trial, and for all sizes where it is one there.

    `extents` are the numbers of elements of the axis that it subscripts in each trial, `size` that for all sizes.
    `expression` is what it is written as where no formula states it.
    """

    trials: tuple[Affine, ...]
    extents: Numbers
    whole: Affine | None
    size: Dim | None = None
    expression: Expression | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The indices that it reads."""
        return tuple(dict.fromkeys(name for one in self.trials for name in one.factors))

    def factors(self, name: str) -> Numbers:
        """The factor of an index in each trial."""
        return tuple(one.factors.get(name, 0) for one in self.trials)

    @property
    def constants(self) -> Numbers:
        """The constant in each trial."""
        return tuple(one.constant for one in self.trials if isinstance(one.constant, int))

    def moved(self, by: int, extents: Numbers, size: Dim) -> AffineSubscript:
        """The subscript of the same elements in a tensor that has more before them, and is of another size."""
        shift = Affine(by, {})
        whole = None if self.whole is None else self.whole.plus(shift)
        return AffineSubscript(tuple(one.plus(shift) for one in self.trials), extents, whole, size)


@dataclass(frozen=True)
class TensorRead:
    """A tensor as it is held, its axes by their numbers, and the subscripts of what is read, by these."""

    part: AxedTerm
    subscripts: Mapping[str, AffineSubscript]


def source_of(statement: StatementContext, call: Applied) -> TensorRead:
    """The tensor of a read whose subscripts are all sums of indices; NoDefinition otherwise."""
    found = {str(axis): subscript_of(statement, call.name, axis, one) for axis, one in enumerate(call.arguments)}
    known = {axis: one for axis, one in found.items() if one is not None}
    if len(known) < len(found):
        raise NoDefinition(f"a subscript of {call.name} is no sum of indices")
    return TensorRead(statement.held(call.name), known)


def subscript_of(statement: StatementContext, tensor: str, axis: int, expression: Expression) -> AffineSubscript | None:
    """A subscript of an axis of a tensor as a sum of indices; None of one that is none."""
    forms = [affine(expression, trial.inferred.known) for trial in statement.trials]
    kept = tuple(one for one in forms if one is not None and isinstance(one.constant, int))
    if len(kept) < len(forms) or any(name not in statement.one.every_index for one in kept for name in one.factors):
        return None
    sizes = [trial.inferred.shapes[tensor][axis] for trial in statement.trials]
    extents = tuple(one for one in sizes if isinstance(one, int))
    symbolic = statement.symbolic
    if symbolic is None:
        # Of a quotient of sizes, trials show small ones alone.
        apart = any(isinstance(part, Binary) and part.operator in ("/", "%") for part in walk(expression))
        chosen = any(isinstance(part, Applied) for part in walk(expression))
        return None if apart or chosen else AffineSubscript(kept, extents, None, expression=expression)
    return AffineSubscript(kept, extents, affine(expression, symbolic.known), symbolic.shapes[tensor][axis])


def is_plain(statement: StatementContext, subscript: AffineSubscript) -> bool:
    """True of an index alone that walks the whole of its axis."""
    if len(subscript.names) != 1 or any(subscript.constants):
        return False
    (name,) = subscript.names
    ranges, found = statement.ranges(name), statement.symbolic_range(name)
    if found is not None:
        whole = subscript.whole
        is_index = whole is not None and whole.constant == 0 and whole.factors == {name: 1}
        return is_index and found == (0, subscript.size)
    if name in statement.one.ranges and name not in statement.plain_ranges:
        return False
    return all(factor == 1 for factor in subscript.factors(name)) and all(
        one == (0, extent) for one, extent in zip(ranges, subscript.extents, strict=True)
    )


def read(statement: StatementContext, source: TensorRead) -> AxedTerm:
    """The elements of a source along the indices that subscript it, one axis each; others keep their numbers."""
    part = source.part
    names: dict[str, str] = {}
    for axis, subscript in source.subscripts.items():
        if axis not in part.axes:
            continue  # it is the same all along it
        if len(subscript.names) > 1:
            raise NoDefinition("a subscript of several indices")
        part, name = _read_axis(statement, part, axis, subscript)
        names[axis] = name
    along = [name for name in names.values() if name != UNIT]
    if len(set(along)) < len(along):
        raise NoDefinition("an index that subscripts two axes of a tensor")
    return replace(part, axes=tuple(names.get(axis, axis) for axis in part.axes))


def _read_axis(
    statement: StatementContext, part: AxedTerm, axis: str, subscript: AffineSubscript
) -> tuple[AxedTerm, str]:
    """A part with one axis cut to what is read of it, and the index along it."""
    name = subscript.names[0] if subscript.names else UNIT
    if is_plain(statement, subscript):
        return part, name
    place = part.axes.index(axis)
    if name != UNIT and subscript.expression is not None:
        held = stepped(statement.scope, statement.sizes, subscript.expression, name)
        if held is not None and not held.step.isdecimal():
            start, end = held.start, held.end(statement.count_text(name))
            text = f"slice({part.text}, starts=({start},), ends=({end},), axes=({place},), steps=({held.step},))"
            return replace(part, text=text), name
    starts, counts, step = _walked(statement, subscript, name)
    lasts = [start + step * (count - 1) for start, count in zip(starts, counts, strict=True)]
    ends = zip(starts, lasts, subscript.extents, strict=True)
    if any(min(start, last) < 0 or max(start, last) >= extent for start, last, extent in ends):
        raise NoDefinition("elements that are read out of bounds under a condition")
    start = statement.text_of(starts, _sum(statement, subscript, name))
    count = "1" if name == UNIT else statement.count_text(name)
    reach = f"({count} - 1)" if step in (1, -1) else f"{abs(step)} * ({count} - 1)"
    ends_at = {1: f"{start} + {count}", -1: f"{start} - {reach} - 1"}
    end = ends_at.get(step) or (f"{start} + {reach} + 1" if step > 0 else f"{start} - {reach} - 1")
    steps = f", steps=({step},)" if step != 1 else ""
    return replace(part, text=f"slice({part.text}, starts=({start},), ends=({end},), axes=({place},){steps})"), name


def _walked(statement: StatementContext, subscript: AffineSubscript, name: str) -> tuple[Numbers, Numbers, int]:
    """The first element that is read and how many there are, in each trial, and the step between two."""
    if name == UNIT:
        return subscript.constants, (1,) * len(subscript.trials), 1
    factors, ranges = set(subscript.factors(name)), statement.ranges(name)
    if len(factors) != 1:
        raise NoDefinition(f"a factor of {name} that differs from call to call")
    (step,) = factors
    starts = tuple(c + step * low for c, (low, _) in zip(subscript.constants, ranges, strict=True))
    return starts, tuple(high - low for low, high in ranges), step


def _sum(statement: StatementContext, subscript: AffineSubscript, name: str) -> object:
    """The first element that is read, for all sizes; None where no formula says it."""
    if subscript.whole is None:
        return None
    if name == UNIT:
        return subscript.whole.constant
    low = statement.symbolic_range(name)
    return None if low is None else subscript.whole.constant + subscript.whole.factors.get(name, 0) * low[0]


def padded_source(statement: StatementContext, call: Applied, condition: Expression, value: float) -> TensorRead:
    """The source of a read that a condition keeps inside its tensor, as one of the tensor with a border of a number.

    The condition has to be that the subscripts are inside, by formulas, as far as they are not inside anyway.
    """
    source, symbolic = source_of(statement, call), statement.symbolic
    if symbolic is None:
        raise NoDefinition("a condition of sizes that integer scalars decide")
    asked: list[Affine] = []
    for one in source.subscripts.values():
        if one.whole is None or one.size is None:
            raise NoDefinition("a condition on what no formula states")
        asked += [one.whole, one.whole.times(-1).plus(Affine(one.size - 1, {}))]
    stated = list(_not_below_zero(condition, symbolic.known))
    if any(one not in asked for one in stated):
        raise NoDefinition("a condition that is no test of bounds")
    for form in asked:
        least = form.least(symbolic.ranges[statement.number])
        if form not in stated and not (isinstance(least, int) and least >= 0):
            raise NoDefinition("elements that are read out of bounds under a condition")
    borders = {axis: _border(statement, one) for axis, one in source.subscripts.items()}
    begins = [str(borders[axis][0]) if axis in borders else "0" for axis in source.part.axes]
    ends = [borders[axis][2] if axis in borders else "0" for axis in source.part.axes]
    pads = tuple_of([*begins, *ends])
    text = f'pad({source.part.text}, pads={pads}, mode="constant", value={value!r})'
    moved = {}
    for axis, one in source.subscripts.items():
        begin, after, _ = borders[axis]
        assert one.whole is not None and one.size is not None
        extents = tuple(begin + extent + end for extent, end in zip(one.extents, after, strict=True))
        behind = one.whole.most(symbolic.ranges[statement.number]) - one.size + 1
        moved[axis] = one.moved(begin, extents, begin + one.size + behind)
    return TensorRead(replace(source.part, text=statement.named(text)), moved)


def _not_below_zero(condition: Expression, known: Mapping[str, Dim]) -> Iterator[Affine]:
    """The sums of indices that a condition says are not below 0; NoDefinition of one that says something else."""
    match condition:
        case Binary(operator="&&", left=left, right=right):
            yield from _not_below_zero(left, known)
            yield from _not_below_zero(right, known)
            return
        case Binary(operator=("<" | "<=" | ">" | ">=") as operator, left=left, right=right):
            a, b = affine(left, known), affine(right, known)
            if a is not None and b is not None:
                less, more = (a, b) if operator in ("<", "<=") else (b, a)
                yield more.plus(less, -1).plus(Affine(-1 if operator in ("<", ">") else 0, {}))
                return
    raise NoDefinition("a condition that is no test of bounds")


def _border(statement: StatementContext, subscript: AffineSubscript) -> tuple[int, Numbers, str]:
    """The elements that a subscript reaches below its axis, as many in each trial, and above it, with their text."""
    before, after = set[int](), []
    for number, (form, extent) in enumerate(zip(subscript.trials, subscript.extents, strict=True)):
        ranges = statement.trial_ranges(number)
        least, most = form.least(ranges), form.most(ranges)
        assert isinstance(least, int) and isinstance(most, int)
        before.add(-least)
        # Below 0 it cuts what is not read.
        after.append(most - extent + 1)
    if len(before) != 1:
        raise NoDefinition("a border whose width differs from call to call")
    formula = None
    if subscript.whole is not None and subscript.size is not None and statement.symbolic is not None:
        formula = subscript.whole.most(statement.symbolic.ranges[statement.number]) - subscript.size + 1
    return before.pop(), tuple(after), statement.text_of(after, formula)
