"""Elements of tensors: slices where a subscript is one index, and gathered where it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from eqsat.language.comprehension.definitions.parts import UNIT, AxedTerm
from eqsat.language.comprehension.definitions.points import ReadGuard, points_of
from eqsat.language.comprehension.definitions.sources import AffineSubscript, TensorRead, is_plain, read, subscript_of
from eqsat.language.comprehension.definitions.statement import NoDefinition, StatementContext
from eqsat.language.comprehension.text.syntax import Applied, Expression, Name, walk

#: Makes a subscript a term of integers, of int64 where it is asked to.
Place = Callable[[Expression, ReadGuard, bool], AxedTerm]


def element(statement: StatementContext, call: Applied, guard: ReadGuard, place_of: Place) -> AxedTerm:
    """The elements of a tensor that a call reads, along the indices that it is subscripted by.

    Axes with one index of a steady step are cut; others are gathered, one by one where no index subscripts two of them,
    else all at once from the tensor laid out as a vector.
    """
    held = statement.held(call.name)
    subscripts = {
        axis: subscript_of(statement, call.name, int(axis), call.arguments[int(axis)])
        for axis in held.axes
        if axis != UNIT
    }
    cut = {
        axis: one
        for axis, one in subscripts.items()
        # Under a condition the rest may pass its bounds.
        if one is not None and len(one.names) < 2 and (guard.is_free or is_plain(statement, one))
    }
    names = [name for one in cut.values() for name in one.names]
    gathered = [axis for axis in subscripts if axis not in cut]
    for axis in gathered:
        asked = guard.term.named if guard.term is not None and _is_asked(statement, call, axis, guard) else ()
        names += dict.fromkeys([*indices_of(statement, call.arguments[int(axis)]), *asked])
    if len(set(names)) < len(names):
        return _gathered_at_once(statement, call, held, guard, place_of)
    try:
        return _gathered_apart(statement, call, held, cut, gathered, guard, place_of)
    except NoDefinition:
        return _gathered_apart(statement, call, held, {}, list(subscripts), guard, place_of)


def indices_of(statement: StatementContext, expression: Expression) -> list[str]:
    """The indices that an expression reads, each once."""
    read_here = (part.name for part in walk(expression) if isinstance(part, Name))
    return [name for name in dict.fromkeys(read_here) if name in statement.one.every_index]


def _gathered_apart(
    statement: StatementContext,
    call: Applied,
    held: AxedTerm,
    cut: Mapping[str, AffineSubscript],
    gathered: list[str],
    guard: ReadGuard,
    place_of: Place,
) -> AxedTerm:
    part = read(statement, TensorRead(held, cut))
    for axis in gathered:
        places = _inside(statement, call, axis, guard, place_of, wide=False)
        places = statement.bare(places)
        at = part.axes.index(axis)
        text = f"gather({part.text}, {places.text}, axis={at})"
        part = AxedTerm(text, (*part.axes[:at], *places.axes, *part.axes[at + 1 :]))
    return part


def _gathered_at_once(
    statement: StatementContext, call: Applied, held: AxedTerm, guard: ReadGuard, place_of: Place
) -> AxedTerm:
    plain = statement.shared(statement.shared(held).turned(sorted(held.named, key=int)))
    total: AxedTerm | None = None
    for axis in plain.axes:
        places = _inside(statement, call, axis, guard, place_of, wide=True)
        if total is None:
            total = places
            continue
        statement.require(f"{plain.extent(axis)} > 0")
        width = f"fill(shape=(), value={plain.extent(axis)}, dtype='int64')"
        total = statement.together(f"add(mul({{}}, {width}), {{}})", [total, places])
    assert total is not None
    total = statement.bare(total)
    count = " * ".join(plain.extent(axis) for axis in plain.axes)
    return AxedTerm(f"gather(reshape({plain.text}, shape=({count},)), {total.text}, axis=0)", total.axes)


def _inside(
    statement: StatementContext, call: Applied, axis: str, guard: ReadGuard, place_of: Place, *, wide: bool
) -> AxedTerm:
    """A subscript as integers inside its axis: where a condition keeps it there, it is clipped where that fails.

    One that elements decide is 0 where a condition does not hold: where it holds, it is looked at as any other.
    """
    expression = call.arguments[int(axis)]
    part = place_of(expression, guard, wide or not guard.is_free)
    if guard.term is None:
        return part
    statement.require(f"{statement.held(call.name).extent(axis)} > 0")
    if _is_asked(statement, call, axis, guard):
        zero = AxedTerm("fill(shape=(), value=0, dtype='int64')")
        return statement.together("where({}, {}, {})", [statement.shared(guard.term), part, zero])
    extent = f"fill(shape=(), value={statement.held(call.name).extent(axis)}, dtype='int64')"
    last = f"sub({extent}, fill(shape=(), value=1, dtype='int64'))"
    return AxedTerm(f"maximum(minimum({part.text}, {last}), fill(shape=(), value=0, dtype='int64'))", part.axes)


def _is_asked(statement: StatementContext, call: Applied, axis: str, guard: ReadGuard) -> bool:
    """True where a condition that elements decide keeps a subscript inside its axis, or one keeps what they decide.

    NoDefinition of one that conditions on indices let pass its bounds: that is an error of a call.
    """
    sizes = [trial.inferred.shapes[call.name][int(axis)] for trial in statement.trials]
    for number, size in enumerate(sizes):
        place = points_of(statement, call.arguments[int(axis)], number)
        if place is None:
            return True
        fits = (place >= 0) & (place < size)
        if not np.all(fits | ~np.asarray(guard.truths[number])):
            if guard.reads:
                return True
            raise NoDefinition(f"elements of {call.name} out of its bounds")
    return False
