"""Ranges of indices and extents of tensors, inferred over a whole function.

Every range is as large as what it subscripts allows, in rounds: a round looks at subscripts with one index whose range
is not known, and holds them inside their tensor for every value of the others (Vasilache et al., section 3.1). Which
round an index is found in, and with that its range, does not depend on its name or on the order of operands. Ranges
start at 0 unless `where` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from eqsat.errors import RangeError
from eqsat.language.comprehension.extents.affine import Affine, Range, affine
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.syntax import Expression, Name, Position, walk
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import dim_min, floordiv

Shapes = Mapping[str, tuple[Dim, ...]]


@dataclass(frozen=True)
class Agreement:
    """Two extents that one axis of a tensor has by two statements, and that have to be equal."""

    tensor: str
    axis: int
    first: Dim
    second: Dim
    place: Position


@dataclass(frozen=True)
class Inferred:
    """The ranges of the indices of each statement, the shape of every tensor, and extents that have to agree."""

    known: Mapping[str, Dim]
    ranges: tuple[Mapping[str, Range], ...]
    shapes: Shapes
    agreements: tuple[Agreement, ...]


def infer(scope: Scope, shapes: Shapes, known: Mapping[str, Dim]) -> Inferred:
    """The ranges and shapes of a function, given the shapes of its parameters, its sizes and its integer scalars.

    RangeError names the indices that nothing holds, or whose range would not start at 0.
    """
    inference = _Inference(scope, shapes, known)
    inference.run()
    return inference.result()


class _Inference:
    def __init__(self, scope: Scope, shapes: Shapes, known: Mapping[str, Dim]) -> None:
        self.scope, self.known = scope, known
        self.shapes: dict[str, list[Dim | None]] = {name: list(dims) for name, dims in shapes.items()}
        for name, rank in scope.ranks.items():
            self.shapes.setdefault(name, [None] * rank)
        for one in scope.function.results:
            for axis, extent in enumerate(one.extents or ()):
                self.shapes[one.name][axis] = known[extent] if isinstance(extent, str) else extent
        self.stated = {one.name for one in scope.function.results if one.extents is not None}
        self.ranges: list[dict[str, Range]] = [self._written(one) for one in scope.statements]
        self.firsts: dict[str, int] = {}
        self.users: dict[str, list[int]] = {}
        for position, each in enumerate(scope.statements):
            self.firsts.setdefault(each.statement.target, position)
            for name in {each.statement.target, *(call.name for call in (*each.reads, *each.kept))}:
                self.users.setdefault(name, []).append(position)

    def _written(self, one: ResolvedEquation) -> dict[str, Range]:
        """The ranges that `where` states."""
        return {name: _box(self._size(clause.low), self._size(clause.high)) for name, clause in one.ranges.items()}

    def _size(self, bound: Expression) -> Dim:
        found = affine(bound, self.known)
        if found is None or found.factors:
            raise self.scope.fault(
                RangeError,
                "a bound of a range that is no whole number of sizes",
                bound.place,
                expected="sums, products and quotients of sizes and integers",
                remedy="give the integer scalars that it has",
            )
        return found.constant

    def run(self) -> None:
        """Rounds until no range is found; a round looks again at statements for which something has changed alone.

        Where none is found, a tensor gets the shape of a part of it that `where` states; failing that, statements that
        wait for the shapes of each other go on without.
        """
        every = range(len(self.ranges))
        pending = {*self._take_shapes(every), *every}
        patient = True
        while True:
            found = self._round(sorted(pending), patient)
            pending = {*found, *self._take_shapes(found)}
            if pending:
                patient = True
                continue
            pending = self._take_shapes(every, parts=True)
            if not pending:
                if not patient:
                    return
                pending, patient = {*every}, False

    def _round(self, positions: Iterable[int], patient: bool) -> list[int]:
        """One round of some statements on what was known before it; those of which a range was found."""
        found: dict[int, dict[str, Range]] = {}
        waits = {} if patient else self._waits()
        for position in positions:
            one = self.scope.statements[position]
            if all(index in self.ranges[position] for index in one.every_index):
                continue
            awaited = self._awaited(position, one)
            if awaited and (patient or not all(_reaches(waits, name, one.statement.target) for name in awaited)):
                continue
            highs: dict[str, list[Dim]] = {}
            lows: dict[str, list[Dim]] = {}
            for index, low, high in self._held(position, one):
                highs.setdefault(index, []).append(high)
                lows.setdefault(index, []).append(low)
            fixed = self._fixed_by_target(position, one)
            new: dict[str, Range] = {name: (0, extent) for name, extent in fixed.items() if name not in highs}
            for index, given in highs.items():
                self._check_starts_at_0(one, index, lows[index])
                new[index] = _box(0, reduce(dim_min, sorted(given, key=str)))
            if new:
                found[position] = new
        for position, new in found.items():
            self.ranges[position].update(new)
        return list(found)

    def _awaited(self, position: int, one: ResolvedEquation) -> set[str]:
        """The tensors that a statement reads and that get their shape from another one."""
        names = {call.name for call in (*one.reads, *one.kept)}
        if self.firsts[one.statement.target] == position:
            names.discard(one.statement.target)
        return {name for name in names if None in self.shapes[name]}

    def _waits(self) -> Mapping[str, set[str]]:
        """The tensors without a shape that each target waits for."""
        waits: dict[str, set[str]] = {}
        for position, one in enumerate(self.scope.statements):
            waits.setdefault(one.statement.target, set()).update(self._awaited(position, one))
        return waits

    def _held(self, position: int, one: ResolvedEquation) -> Iterator[tuple[str, Dim, Dim]]:
        """Each index that a subscript alone leaves open, its first value there, and the one after its last."""
        ranges = self.ranges[position]
        for call in (*one.reads, *one.kept):
            for subscript, extent in zip(call.arguments, self.shapes[call.name], strict=True):
                form = affine(subscript, self.known)
                if extent is None or form is None or not form.factors.keys() <= set(one.every_index):
                    continue
                open_ = [name for name in form.factors if name not in ranges]
                if len(open_) == 1:
                    yield (open_[0], *_between(form, open_[0], extent, ranges))

    def _fixed_by_target(self, position: int, one: ResolvedEquation) -> dict[str, Dim]:
        """The extents that indices of the target have by other statements, or as they are stated."""
        dims = self.shapes[one.statement.target]
        pairs = zip(one.indices, dims, strict=True)
        return {name: dim for name, dim in pairs if dim is not None and name not in self.ranges[position]}

    def _check_starts_at_0(self, one: ResolvedEquation, index: str, lows: list[Dim]) -> None:
        first = max((low for low in lows if isinstance(low, int)), default=0)
        if first > 0:
            raise self.scope.fault(
                RangeError,
                f"{index} would have to start at {first}",
                _place_of(one, index),
                expected="ranges that start at 0, unless where says otherwise",
                remedy=f"write where {index} in {first}:…, or shift the subscript",
            )

    def _take_shapes(self, positions: Iterable[int], *, parts: bool = False) -> set[int]:
        """Extents of targets from the ranges of their indices; the statements for which one is new.

        A range that `where` states after another statement for a target may be that of a part: it counts with `parts`.
        """
        changed: set[str] = set()
        for position in positions:
            one, ranges = self.scope.statements[position], self.ranges[position]
            target = one.statement.target
            for axis, index in enumerate(one.indices):
                is_part = index in one.ranges and self.firsts[target] != position
                if index in ranges and self.shapes[target][axis] is None and (parts or not is_part):
                    self.shapes[target][axis] = ranges[index][1]
                    changed.add(target)
        return {position for name in changed for position in self.users[name]}

    def result(self) -> Inferred:
        """The ranges and shapes; RangeError where an index is left."""
        for position, one in enumerate(self.scope.statements):
            left = [index for index in one.every_index if index not in self.ranges[position]]
            if left:
                clauses = ", ".join(f"{index} in 0:…" for index in left)
                raise self.scope.fault(
                    RangeError,
                    f"no range of {', '.join(left)} follows from what is read",
                    _place_of(one, left[0]),
                    expected="an index that subscripts a parameter by a sum of indices with whole factors",
                    remedy=f"write where {clauses}",
                )
        shapes: dict[str, tuple[Dim, ...]] = {}
        for name, dims in self.shapes.items():
            known = tuple(dim for dim in dims if dim is not None)
            assert len(known) == len(dims), name
            shapes[name] = known
        return Inferred(self.known, tuple(self.ranges), shapes, tuple(self._agreed(shapes)))

    def _agreed(self, shapes: Shapes) -> Iterator[Agreement]:
        """The extents that statements give a tensor beside the one it has."""
        seen: set[str] = set(self.stated)
        for position, one in enumerate(self.scope.statements):
            target = one.statement.target
            for axis, index in enumerate(one.indices):
                low, high = self.ranges[position][index]
                free = index in one.ranges and target in seen
                if free or (high == shapes[target][axis] and low == 0):
                    continue
                if low != 0:
                    raise self.scope.fault(
                        RangeError,
                        f"elements of {target} before {low} are not defined",
                        _place_of(one, index),
                        expected="a first definition of all elements, from 0 on",
                        remedy=f"define {target} with a range from 0 before",
                    )
                yield Agreement(target, axis, shapes[target][axis], high, _place_of(one, index))
            seen.add(target)


def _reaches(waits: Mapping[str, set[str]], start: str, end: str) -> bool:
    """True where a tensor waits for another one, or for one that does."""
    seen, pending = {start}, [start]
    while pending:
        name = pending.pop()
        if name == end:
            return True
        pending += waits.get(name, set()) - seen
        seen |= waits.get(name, set())
    return False


def _box(low: Dim, high: Dim) -> Range:
    """A range that ends no earlier than it begins, where sizes are known."""
    return (low, max(low, high)) if isinstance(low, int) and isinstance(high, int) else (low, high)


def _between(form: Affine, index: str, extent: Dim, ranges: Mapping[str, Range]) -> Range:
    """The values of an index with which a subscript is inside an extent, whatever the other indices are."""
    factor = form.factors[index]
    rest = form.plus(Affine(0, {index: factor}), -1)
    below, above = -rest.least(_filled(ranges)), extent - 1 - rest.most(_filled(ranges))
    if factor > 0:
        return -floordiv(-below, factor), floordiv(above, factor) + 1
    return -floordiv(above, -factor), floordiv(-below, -factor) + 1


def _filled(ranges: Mapping[str, Range]) -> Mapping[str, Range]:
    """Ranges of which those that are empty have one value: nothing would hold an index beside an empty one."""
    return {
        name: (low, low + 1 if isinstance(low, int) and isinstance(high, int) and high <= low else high)
        for name, (low, high) in ranges.items()
    }


def _place_of(one: ResolvedEquation, index: str) -> Position:
    """The first place of an index in its statement."""
    if index in one.ranges:
        return one.ranges[index].place
    parts = [*one.statement.subscripts, one.value, *one.kept]
    found = (part.place for top in parts for part in walk(top) if isinstance(part, Name) and part.name == index)
    return next(found, one.statement.place)
