"""Values of a tree of loops as sums of instances of statements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from eqsat.runtime.kernels.nests.computation import ElementRead
from eqsat.runtime.kernels.polyhedral.dependences import PolyhedralStatement, ReadAccess
from eqsat.runtime.kernels.polyhedral.events import TreeEvent
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.relations import point_values


@dataclass(frozen=True, eq=False)
class TracedRead:
    """A read of memory by an assignment, and the instances that it is for."""

    event: TreeEvent
    instances: isl.Map
    access: ReadAccess


@dataclass(frozen=True, eq=False)
class ValuePart:
    """Values of instances of a statement in a sum; `link` leads to the assignment that computes them."""

    event: TreeEvent
    link: isl.Map
    instances: isl.Map
    reads: tuple[TracedRead, ...]
    inner: tuple[TracedValue, ...]


@dataclass(frozen=True, eq=False)
class EarlierPart:
    """The element that an update takes part in: as memory has it where `value` is None, or as it was computed."""

    event: TreeEvent
    link: isl.Map
    value: TracedValue | None


@dataclass(frozen=True, eq=False)
class TracedValue:
    """The parts of a value that accumulate instances of one statement, and the elements that it is for."""

    statement: PolyhedralStatement
    event: TreeEvent
    elements: isl.Map
    values: tuple[ValuePart, ...]
    earlier: tuple[EarlierPart, ...]

    @property
    def contributions(self) -> isl.Map:
        """The instances in the value."""
        empty = isl.Map.empty(isl.Map.from_domain_and_range(self.event.domain, self.statement.domain).get_space())
        return reduce(isl.Map.union, (one.link.apply_range(one.instances) for one in self.values), empty)

    @property
    def touched(self) -> isl.Map:
        """All instances that write the elements, those that the value lacks too."""
        return self.elements.apply_range(self.statement.writes.reverse())

    def all_values(self) -> Iterator[TracedValue]:
        """The value, and those of other statements that it is computed from."""
        yield self
        for one in self.values:
            for inner in one.inner:
                yield from inner.all_values()
        for earlier in self.earlier:
            if earlier.value is not None:
                yield from earlier.value.all_values()


def fault_of(made: TracedValue, whole: bool) -> IllegalScheduleError | None:
    """The reason for which parts are no value of a statement; `whole` ones have all instances of an element."""
    one, total = made.statement, made.contributions
    statement, number = one.statement, one.number

    def fault(what: str, at: isl.Map | None = None) -> IllegalScheduleError:
        instances = (one.indices(point_values(at.range())),) if at is not None else ()
        place = f" at {dict(instances[0])}" if instances else ""
        return IllegalScheduleError(
            f"a value of {made.event.target.buffer} {what} statement {number}, of {statement.target}{place}",
            statements=(number,),
            buffer=statement.target,
            instances=instances,
        )

    if not made.event.domain.is_subset(made.elements.domain()):
        return fault("is stored outside of its buffer, by")
    places = total.apply_range(one.writes)
    if not places.is_subset(made.elements):
        return fault("goes to another element than that of", total)
    seen = isl.Map.empty(total.get_space())
    for part in made.values:
        mine = part.link.apply_range(part.instances)
        twice = seen.intersect(mine)
        if not twice.is_empty():
            return fault("has twice an instance of", twice)
        pairs = part.link.reverse().range_product(part.instances).reverse()
        if not pairs.is_single_valued():
            return fault("has several times an instance of", mine)
        seen = seen.union(mine)
    needed = made.elements.apply_range(one.writes.reverse())
    missing = needed.subtract(total)
    if not missing.is_empty() and (whole or not statement.reduced):
        return fault("lacks an instance of", missing)
    return _wrong_earlier(made, fault("takes a wrong earlier value into"), whole)


def _wrong_earlier(made: TracedValue, fault: IllegalScheduleError, whole: bool) -> IllegalScheduleError | None:
    """The fault, unless an element before an update is there once where it has to be, and is the right one."""
    statement = made.statement.statement
    seen = isl.Set.empty(made.event.domain.get_space())
    for part in made.earlier:
        here = part.link.domain()
        if part.value is not None:
            found = part.link.apply_range(part.value.elements)
        else:
            read = part.event.value if not _is_update(part.event) else part.event.target
            assert isinstance(read, ElementRead)
            found = part.link.apply_range(part.event.elements(read))
        if (
            not here.intersect(seen).is_empty()
            or not part.link.is_single_valued()
            or not found.is_subset(made.elements)
        ):
            return fault
        if statement.is_fresh and (whole or part.value is not None):
            return fault
        seen = seen.union(here)
    needs = not statement.is_fresh
    return fault if needs and not made.event.domain.is_subset(seen) else None


def _is_update(event: TreeEvent) -> bool:
    """True of an assignment to memory that accumulates there."""
    return bool(event.reduction) and event.local(event.target) is None
