"""Proof that a tree of loops computes what the statements of a computation do, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat.language.comprehension.evaluation import neutral
from eqsat.runtime.kernels.expressions.expression import number
from eqsat.runtime.kernels.nests.computation import Computation, KernelStatement
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.scheduling.gpu_schedule import gpu_scheduled
from eqsat.runtime.kernels.nests.scheduling.schedule import scheduled
from eqsat.runtime.kernels.nests.tree import GpuKernel, Node
from eqsat.runtime.kernels.polyhedral.dependences import Dependences, PolyhedralStatement, ReadAccess, instance_text
from eqsat.runtime.kernels.polyhedral.events import TreeEvent, events_of
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError, UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.gpu_events import kernel_events
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.locals import LocalFlows
from eqsat.runtime.kernels.polyhedral.relations import SizeParameters, only, point_values
from eqsat.runtime.kernels.polyhedral.traced import TracedRead, TracedValue
from eqsat.runtime.kernels.polyhedral.tracing import Tracer


def check_schedule(computation: Computation, options: MappingOptions) -> None:
    """Prove the loops legal that the scheduler makes of a computation; the errors are those of `check_tree`."""
    check_tree(computation, scheduled(computation, options))


def check_tree(computation: Computation, nodes: Sequence[Node]) -> None:
    """Prove that loops write every element that the statements define, and keep the dependences between these.

    Sizes that calls give are parameters: what is proved holds for each of their values.
    IllegalScheduleError for loops that compute something else, UndecidedScheduleError for those whose assignments are
    not understood.
    """
    made = _with_values(computation)
    _TreeCheck(made, events_of(made, nodes)).run()


def check_kernels(computation: Computation, kernels: Sequence[GpuKernel]) -> None:
    """Prove of kernels that run one after the other what `check_tree` proves of loops; the errors are its own.

    Blocks, and threads between two barriers, run in any order: what one makes and another reads, or overwrites, is a
    fault. So only such indices are proved to be mapped to them along which statements carry no dependence, or which all
    threads of a block reduce together. UndecidedScheduleError for kernels whose sizes calls give.
    """
    made = _with_values(computation)
    _TreeCheck(made, kernel_events(made, kernels)).run()


def check_mapping(computation: Computation, options: GpuMapping) -> None:
    """Prove the kernels legal that the scheduler makes of a computation; the errors are those of `check_kernels`."""
    check_kernels(computation, gpu_scheduled(computation, options))


def _with_values(computation: Computation) -> Computation:
    """A computation whose statements reduce something: others assign the number that their reduction begins with."""
    return computation.with_statements([_nonempty(one) for one in computation.statements])


def _nonempty(one: KernelStatement) -> KernelStatement:
    """A statement that reduces nothing as one that assigns the number that its reduction begins with."""
    if all(axis.extent != 0 for axis in one.reduced):
        return one
    value = number(neutral(one.reduction, one.value.dtype), one.value.dtype)
    return replace(one, axes=one.kept, value=value, reduction="" if one.is_fresh else one.reduction)


@dataclass(frozen=True, eq=False)
class ElementAccess:
    """An assignment that reads or writes elements of a buffer, and the instances of a statement that it is for."""

    statement: PolyhedralStatement
    event: TreeEvent
    instances: isl.Map


class _TreeCheck:
    def __init__(self, computation: Computation, events: Sequence[TreeEvent]) -> None:
        self.computation = computation
        self.parameters = SizeParameters.of(computation)
        self.dependences = Dependences(self.computation)
        self.statements = self.dependences.statements
        self.events = [one for one in events if not one.domain.is_empty()]
        self.flows = LocalFlows(self.events)
        self.stores: dict[int, list[TracedValue]] = defaultdict(list)
        self.reads: dict[int, list[TracedRead]] = defaultdict(list)
        #: The instances that assignments compute values of.
        self.computed: dict[int, list[tuple[PolyhedralStatement, isl.Map]]] = defaultdict(list)

    def run(self) -> None:
        """Trace what is stored, then look at races, at the order of dependences, and at what is missing."""
        tracer = Tracer(self.dependences, self.flows)
        for event in self.events:
            if event.local(event.target) is None:
                self._trace(tracer, event)
        self._check_races()
        for one in self.statements:
            for access in one.reads:
                self._check_reads(access)
            for other in self.dependences.writers(one.statement.target):
                self._check_overwritten(one, other)
        for one in self.statements:
            self._check_repeated(one)
            self._check_coverage(one)

    def _trace(self, tracer: Tracer, event: TreeEvent) -> None:
        """Find the statement whose elements an assignment to memory writes."""
        tracer.failures.clear()
        buffer = event.target.buffer
        fitting = []
        for one in self.dependences.writers(buffer):
            made = tracer.stored(event, one)
            if made is not None:
                fitting.append(made)
        if not fitting:
            if tracer.failures:
                # One that names both statements says most.
                found = max(tracer.failures, key=lambda failure: len(failure.statements))
                raise found.at(self.computation.name)
            raise UndecidedScheduleError(
                f"an assignment to {buffer} is understood as no statement", where=self.computation.name
            )
        # Of statements that are the same, the first one that nothing has been stored of.
        chosen = next((made for made in fitting if not self._is_stored(made)), fitting[0])
        self.stores[chosen.statement.number].append(chosen)
        for value in chosen.all_values():
            self._record(value)

    def _is_stored(self, made: TracedValue) -> bool:
        instances = made.contributions.range()
        known = [one.contributions.range() for one in self.stores[made.statement.number]]
        return any(not one.intersect(instances).is_empty() for one in known)

    def _record(self, value: TracedValue) -> None:
        one = value.statement
        for part in value.values:
            self.computed[part.event.number].append((one, part.instances))
            for read in part.reads:
                self.reads[one.number].append(read)
        own = next((access for access in one.reads if access.is_own), None)
        for earlier in value.earlier:
            if earlier.value is None and own is not None:
                instances = earlier.link.reverse().apply_range(value.contributions)
                self.reads[one.number].append(TracedRead(earlier.event, instances, own))

    def _check_races(self) -> None:
        for buffer, first, second, pairs in self.flows.races():
            at, sizes = self.parameters.some(pairs.wrap())
            pairs = pairs.intersect_params(at)
            mine, theirs = point_values(pairs.domain()), point_values(pairs.range())
            found = [*self._instances(first, mine), *self._instances(second, theirs)]
            texts = ", ".join(instance_text(one.statement, one.indices(values)) for one, values in found)
            raise IllegalScheduleError(
                f"rounds {mine} and {theirs} of loops that run at once meet at {buffer}: {texts}{sizes}",
                where=self.computation.name,
                statements=tuple(one.number for one, _ in found),
                buffer=buffer,
                instances=tuple(one.indices(values) for one, values in found),
            )

    def _instances(self, event: TreeEvent, at: Sequence[int]) -> Iterator[tuple[PolyhedralStatement, list[int]]]:
        """The instances whose values an assignment computes in a round."""
        for one, instances in self.computed[event.number]:
            reached = instances.intersect_domain(only(at, event.domain)).range()
            if not reached.is_empty():
                yield one, point_values(reached)
                return

    def _check_reads(self, access: ReadAccess) -> None:
        """Prove that an element is read after it was written, and before it is overwritten."""
        reader, buffer = self.statements[access.statement], access.buffer
        reads = [
            ElementAccess(reader, one.event, one.instances)
            for one in self.reads[access.statement]
            if one.access is access
        ]
        for number_, flow in self.dependences.flow_of(access).items():
            for read in reads:
                for write in self._writes(number_):
                    self._keep(write, read, flow, buffer, "is read before it is written")
        for writer in self.dependences.writers(buffer):
            pairs = self.dependences.overwrites(access, writer)
            for read in reads:
                for write in self._writes(writer.number):
                    self._keep(read, write, pairs, buffer, "is overwritten before it is read", True)

    def _check_overwritten(self, first: PolyhedralStatement, second: PolyhedralStatement) -> None:
        pairs = self.dependences.rewrites(first, second)
        for one in self._writes(first.number):
            for other in self._writes(second.number):
                self._keep(one, other, pairs, first.statement.target, "is overwritten in another order")

    def _writes(self, number_: int) -> list[ElementAccess]:
        """The assignments to memory that are for a statement, each for all instances at its elements."""
        return [ElementAccess(one.statement, one.event, one.touched) for one in self.stores[number_]]

    def _keep(
        self,
        first: ElementAccess,
        second: ElementAccess,
        pairs: isl.Map,
        buffer: str,
        what: str,
        reads_first: bool = False,
    ) -> None:
        """Prove that instances that depend on each other run in their order."""
        wanted = first.instances.apply_range(pairs).apply_range(second.instances.reverse())
        if wanted.is_empty():
            return
        late = first.event.not_before(second.event)
        if reads_first and first.event is second.event:  # an assignment reads before it writes
            late = late.subtract(first.event.identity)
        self._refuse(wanted.intersect(late), first, second, pairs, buffer, what)

    def _refuse(
        self, bad: isl.Map, first: ElementAccess, second: ElementAccess, pairs: isl.Map, buffer: str, what: str
    ) -> None:
        """Raise for a pair of rounds that break a dependence, if there is one."""
        if bad.is_empty():
            return
        at_sizes, sizes = self.parameters.some(bad.wrap())
        bad, pairs = bad.intersect_params(at_sizes), pairs.intersect_params(at_sizes)
        round_ = only(point_values(bad.domain()), bad.domain())
        later = bad.intersect_domain(round_).range()
        later = only(point_values(later), later)
        instances = pairs.intersect_domain(first.instances.intersect_domain(round_).range())
        instances = instances.intersect_range(second.instances.intersect_domain(later).range())
        at = only(point_values(instances.domain()), instances.domain())
        one, other = first.statement, second.statement
        mine = one.indices(point_values(at))
        theirs = other.indices(point_values(instances.intersect_domain(at).range()))
        raise IllegalScheduleError(
            f"{buffer} {what}: statement {one.number}, {instance_text(one.statement, mine)}, has to come before "
            f"statement {other.number}, {instance_text(other.statement, theirs)}{sizes}",
            where=self.computation.name,
            statements=(one.number, other.number),
            buffer=buffer,
            instances=(mine, theirs),
        )

    def _check_repeated(self, one: PolyhedralStatement) -> None:
        """Prove that an element is stored once, or in parts of which each one adds to those before it."""
        stores = self.stores[one.number]
        for place, first in enumerate(stores):
            for second in stores[place:]:
                self._check_twice(first, second)
        for first in stores:
            for second in stores:
                self._check_parts(first, second)

    def _check_twice(self, first: TracedValue, second: TracedValue) -> None:
        again = first.contributions.apply_range(second.contributions.reverse())
        if first is second:
            again = again.subtract(first.event.identity)
        if not again.is_empty():
            instances = first.contributions.intersect_domain(again.domain()).range()
            self._refuse_one(first.statement, "is computed twice", instances)

    def _check_parts(self, first: TracedValue, second: TracedValue) -> None:
        """Prove that what adds to an element reads it after earlier parts are stored, and that none begins anew."""
        same = first.elements.apply_range(second.elements.reverse())
        if first is second:
            same = same.subtract(first.event.identity)
        if same.is_empty():
            return
        one = first.statement
        if not one.commutes:
            return  # pairs of such instances are dependences
        unordered = same.intersect(first.event.unordered_with(second.event))
        depth = self.flows.depth
        follows = same.intersect(first.event.times(depth).lex_lt_map(second.event.times(depth)))
        kept = isl.Map.empty(same.get_space())
        for earlier in second.earlier:
            if earlier.value is None:
                late = first.event.not_before(earlier.event)
                if earlier.event is first.event is second.event and earlier.event.reduction:
                    late = earlier.event.unordered_with(earlier.event)
                links = earlier.link.reverse()
                reached = first.event.times(depth).lex_lt_map(earlier.event.times(depth)).subtract(late)
                kept = kept.union(reached.apply_range(links))
        bad = unordered.union(follows.subtract(kept))
        mine, theirs = (ElementAccess(one, made.event, made.touched) for made in (first, second))
        what = "is accumulated in parts of which one is lost"
        self._refuse(bad, mine, theirs, one.together, one.statement.target, what)

    def _check_coverage(self, one: PolyhedralStatement) -> None:
        """Prove that all instances are computed whose value a result or a read of memory has."""
        needed = self.dependences.live_elements(one.number)
        for traced in self.reads.values():
            for read in traced:
                flow = self.dependences.flow_of(read.access).get(one.number)
                if flow is not None:
                    sources = flow.intersect_range(read.instances.range()).domain()
                    needed = needed.union(sources.apply(one.writes))
        missing = one.domain.intersect(needed.apply(one.writes.reverse()))
        begun = isl.Set.empty(needed.get_space())
        for store in self.stores[one.number]:
            missing = missing.subtract(store.contributions.range())
            if not any(earlier.value is None for earlier in store.earlier):
                begun = begun.union(store.elements.range())
        if not missing.is_empty():
            self._refuse_one(one, "is not computed", missing)
        if one.statement.is_fresh:
            old = needed.subtract(begun)
            if not old.is_empty():
                self._refuse_one(one, "adds to an element that nothing begins", old.apply(one.writes.reverse()))

    def _refuse_one(self, one: PolyhedralStatement, what: str, instances: isl.Set) -> None:
        at, sizes = self.parameters.some(instances)
        indices = one.indices(point_values(instances.intersect_params(at)))
        raise IllegalScheduleError(
            f"statement {one.number}, {instance_text(one.statement, indices)}, {what}{sizes}",
            where=self.computation.name,
            statements=(one.number,),
            buffer=one.statement.target,
            instances=(indices,),
        )
