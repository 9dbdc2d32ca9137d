"""Values that pass through registers and buffers of blocks: which assignments reach a read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.runtime.kernels.nests.computation import ElementRead, reads
from eqsat.runtime.kernels.polyhedral.dependences import last_writers
from eqsat.runtime.kernels.polyhedral.events import LocalBuffer, TreeEvent
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.relations import part, union_of


@dataclass(frozen=True, eq=False)
class LocalRead:
    """A read of a local element by an assignment; of its own target where it accumulates."""

    event: TreeEvent
    read: ElementRead
    elements: isl.Map


@dataclass(frozen=True, eq=False)
class Reaching:
    """The assignments that make a local element as it is read: one that begins it, and accumulations since.

    Relations lead from instances of the reader to those of the writers.
    """

    begun: tuple[tuple[TreeEvent, isl.Map], ...]
    updated: tuple[tuple[TreeEvent, isl.Map], ...]


class LocalFlows:
    """Flows of values through the local buffers of a tree."""

    def __init__(self, events: Sequence[TreeEvent]) -> None:
        self.depth = max([len(one.loops) for one in events], default=0)
        self._begins: dict[str, list[TreeEvent]] = defaultdict(list)
        self._updates: dict[str, list[TreeEvent]] = defaultdict(list)
        self._reads: dict[str, list[LocalRead]] = defaultdict(list)
        self._locals: dict[str, LocalBuffer] = {}
        self._written: dict[int, isl.Map] = {}
        for event in events:
            seen = reads(event.value)
            target = event.local(event.target)
            if target is not None:
                self._locals[target.space] = target
                self._written[event.number] = event.elements(event.target)
                if not event.domain.is_subset(self._written[event.number].domain()):
                    raise IllegalScheduleError(
                        f"an assignment writes outside of the local buffer {event.target.buffer}"
                    )
                if event.reduction:
                    seen.append(event.target)
                    self._updates[target.space].append(event)
                else:
                    self._begins[target.space].append(event)
            for read in seen:
                local = event.local(read)
                if local is not None:
                    self._locals[local.space] = local
                    self._reads[local.space].append(LocalRead(event, read, event.elements(read)))
        self._begun: dict[tuple[int, int], list[tuple[TreeEvent, isl.Map]]] = {}
        self._known: dict[tuple[int, int], Reaching] = {}
        for space in self._locals:
            self._flow(space)

    def _flow(self, space: str) -> None:
        """Find the assignment that begins each element that is read."""
        depth, writers = self._locals[space].depth, self._begins[space]
        for place, one in enumerate(self._reads[space]):
            sink = one.event.in_rounds(one.elements, depth).set_tuple_name(isl.dim_type.in_, f"R{place}")
            times = [one.event.times(self.depth).set_tuple_name(isl.dim_type.in_, f"R{place}")]
            schedule = union_of([*times, *(writer.times(self.depth) for writer in writers)])
            written = [writer.in_rounds(self._written[writer.number], depth) for writer in writers]
            made = last_writers(sink, written, schedule)
            links = []
            for writer in writers:
                link = part(made, writer.domain, sink.domain()).reverse()
                link = link.set_tuple_name(isl.dim_type.in_, one.event.space)
                link = _same_rounds(link, depth)
                if not link.is_empty():
                    links.append((writer, link))
            self._begun[one.event.number, id(one.read)] = links

    def reaching(self, event: TreeEvent, read: ElementRead) -> Reaching:
        """The assignments that make an element that an assignment reads."""
        key = event.number, id(read)
        if key not in self._known:
            self._known[key] = Reaching(tuple(self._begun[key]), tuple(self._accumulations(event, read)))
        return self._known[key]

    def _accumulations(self, event: TreeEvent, read: ElementRead) -> Iterator[tuple[TreeEvent, isl.Map]]:
        local = event.local(read)
        assert local is not None
        elements = event.elements(read)
        for other in self._updates[local.space]:
            since = [
                link.apply_range(own.reverse())
                for writer, link in self._begun[event.number, id(read)]
                for same, own in self._begun[other.number, id(other.target)]
                if same is writer
            ]
            reach = elements.apply_range(self._written[other.number].reverse())
            reach = reach.intersect(event.times(self.depth).lex_gt_map(other.times(self.depth)))
            for one in since:
                link = one.intersect(reach)
                if not link.is_empty():
                    yield other, link

    def races(self) -> Iterator[tuple[str, TreeEvent, TreeEvent, isl.Map]]:
        """The pairs of assignments, one of them writing, that meet at an element in rounds that run at once."""
        for space, local in self._locals.items():
            writers = [*self._begins[space], *self._updates[space]]
            others = [(one, self._written[one.number]) for one in writers]
            others += [(one.event, one.elements) for one in self._reads[space]]
            for writer in writers:
                for other, elements in others:
                    apart = writer.unordered_with(other, local.depth)
                    if apart.is_empty():
                        continue
                    meet = self._written[writer.number].apply_range(elements.reverse())
                    pairs = _same_rounds(meet, local.depth).intersect(apart)
                    if not pairs.is_empty():
                        yield local.buffer.name, writer, other, pairs


def _same_rounds(link: isl.Map, depth: int) -> isl.Map:
    """The pairs in the same rounds of the loops around a block: each round has buffers of its own."""
    for place in range(depth):
        link = link.equate(isl.dim_type.in_, place, isl.dim_type.out, place)
    return link
