"""Ranges of indices and extents of tensors, inferred over a whole function.

Every range is as large as what it subscripts allows, in rounds: a round looks at subscripts with one index whose range
is not known, and holds them inside their tensor for every value of the others (Vasilache et al., section 3.1). Which
round an index is found in, and with that its range, does not depend on its name or on the order of operands. Ranges
start at 0 unless `where` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from eqsat.errors import RangeError
from eqsat.language.comprehension.affine import Affine, Range, affine
from eqsat.language.comprehension.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.syntax import Applied, Expression, Name, Position, walk
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
        self.agreements: list[Agreement] = []

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
        """Rounds until no range is found; tensors whose own shape is not known yet are waited for while that helps."""
        patient = True
        self._take_shapes(patient)
        while True:
            found = self._round(patient)
            shaped = self._take_shapes(patient)
            if found or shaped:
                patient = True
            elif patient:
                patient = False
            else:
                return

    def _round(self, patient: bool) -> bool:
        """One round of all statements on what was known before it; whether a range was found."""
        found: list[dict[str, Range]] = []
        for position, one in enumerate(self.scope.statements):
            if patient and self._awaits(position, one):
                found.append({})
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
                caps = [*given, fixed[index]] if index in fixed and not one.statement.is_definition else given
                new[index] = _box(0, reduce(dim_min, sorted(caps, key=str)))
            found.append(new)
        for position, new in enumerate(found):
            self.ranges[position].update(new)
        return any(found)

    def _awaits(self, position: int, one: ResolvedEquation) -> bool:
        """True where a tensor that a statement reads gets its shape from another one."""
        for call in (*one.reads, *one.kept):
            if call.name != one.statement.target and None in self.shapes[call.name]:
                return any(index not in self.ranges[position] for index in one.every_index)
        return False

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

    def _take_shapes(self, patient: bool) -> bool:
        """Extents of targets from the ranges of their indices; whether one was found.

        A range that a later statement states may be a part of the tensor: those of the first are waited for.
        """
        changed = False
        seen: set[str] = set()
        for position, one in enumerate(self.scope.statements):
            target, ranges = one.statement.target, self.ranges[position]
            later = target in seen
            seen.add(target)
            for axis, index in enumerate(one.indices):
                if patient and later and index in one.ranges:
                    continue
                if index in ranges and self.shapes[target][axis] is None:
                    self.shapes[target][axis] = ranges[index][1]
                    changed = True
        return changed

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


def subscripts_of(one: ResolvedEquation) -> Iterator[tuple[Applied, int, Expression]]:
    """Every subscript of what a statement reads: the element, the axis, and the subscript."""
    for call in (*one.reads, *one.kept):
        for axis, subscript in enumerate(call.arguments):
            yield call, axis, subscript
