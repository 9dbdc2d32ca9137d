"""Dependences between the instances of the statements of a computation, in the order in which they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.runtime.kernels.nests.computation import Computation, ElementRead, KernelStatement, reads
from eqsat.runtime.kernels.polyhedral.faults import UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.relations import SizeParameters, box, element_map, part, tuple_text, union_of


@dataclass(frozen=True, eq=False)
class ReadAccess:
    """An element that each instance of a statement reads; `is_own` of the one that it updates."""

    statement: int
    number: int
    buffer: str
    read: ElementRead | None
    elements: isl.Map

    @property
    def is_own(self) -> bool:
        """True of the element of the target that takes part in an update."""
        return self.read is None


class PolyhedralStatement:
    """A statement as a set of instances, the elements that they write, and those that they read.

    The element that an update takes part in is among the reads; that of a reduction is not read between its instances,
    which commute.
    """

    def __init__(self, computation: Computation, number: int) -> None:
        self.number, self.statement = number, computation.statements[number]
        statement = self.statement
        if statement.around is not None:
            raise UndecidedScheduleError(f"rounds of the loop {statement.around.name} share buffers")
        if statement.is_scattered:
            raise UndecidedScheduleError(f"elements decide which ones of {statement.target} are written")
        self.space = f"S{number}"
        self.dims = tuple(f"x{place}" for place in range(len(statement.axes)))
        self.names = {axis.name: dim for axis, dim in zip(statement.axes, self.dims, strict=True)}
        self.at = tuple_text(self.space, self.dims)
        self.parameters = SizeParameters.of(computation)
        #: What sums of indices are written by: its dimensions, and sizes that calls give.
        self.terms = {**self.parameters.names, **self.names}
        extents = [axis.extent for axis in statement.axes]
        self.domain = self.parameters.set(f"{{ {self.at} : {box(self.dims, extents, self.parameters)} }}")
        self.writes = self._elements(computation, statement.target, statement.place)
        self.reads: list[ReadAccess] = []
        for one in reads(statement.value):
            self._add(computation, one.buffer, one)
        if not statement.is_fresh:
            self._add(computation, statement.target, None)

    def _add(self, computation: Computation, buffer: str, read: ElementRead | None) -> None:
        elements = self.writes if read is None else self._elements(computation, buffer, read.subscripts)
        self.reads.append(ReadAccess(self.number, len(self.reads), buffer, read, elements))

    def _elements(self, computation: Computation, buffer: str, subscripts: Sequence[object]) -> isl.Map:
        given = computation.buffers[buffer]
        space = memory_space(buffer)
        return element_map(self.domain, self.at, subscripts, self.names, given, space, self.parameters)  # type: ignore[arg-type]

    @cached_property
    def commutes(self) -> bool:
        """True where instances that meet at an element accumulate, and none reads what another one made."""
        accumulates = bool(self.statement.reduced) or not self.statement.is_fresh
        return accumulates and all(one.is_own or one.buffer != self.statement.target for one in self.reads)

    @cached_property
    def together(self) -> isl.Map:
        """The pairs of instances that write one element."""
        return self.writes.apply_range(self.writes.reverse())

    def indices(self, values: Sequence[int]) -> dict[str, int]:
        """The values of an instance by the names of the indices."""
        return {axis.name: value for axis, value in zip(self.statement.axes, values, strict=True)}


class Dependences:
    """The dependences of a computation.

    Flow is that of the last writer, and of all instances that accumulate what is read; a read whose subscript is
    computed may be of the whole axis. Dependences by overwriting are those of all pairs.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.statements = [PolyhedralStatement(computation, number) for number in range(len(computation.statements))]
        self._depth = max([len(one.dims) for one in self.statements], default=0)
        self._flows: dict[tuple[int, int], dict[int, isl.Map]] = {}

    def writers(self, buffer: str) -> list[PolyhedralStatement]:
        """The statements that write a buffer, in their order."""
        return [one for one in self.statements if one.statement.target == buffer]

    def flow_of(self, access: ReadAccess) -> dict[int, isl.Map]:
        """The instances whose value an access reads, by statement: relations from writers to readers."""
        key = access.statement, access.number
        if key not in self._flows:
            self._flows[key] = self._flow(access)
        return self._flows[key]

    def _flow(self, access: ReadAccess) -> dict[int, isl.Map]:
        reader = self.statements[access.statement]
        writers = [
            one
            for one in self.writers(access.buffer)
            if one.number < reader.number or (one.number == reader.number and not access.is_own)
        ]
        # The reader gets a space of its own, as it may be among the writers.
        sink = access.elements.set_tuple_name(isl.dim_type.in_, "reader")
        made = last_writers(sink, [one.writes for one in writers], self._schedule(writers, reader))
        flows = {}
        for one in writers:
            found = part(made, one.domain, sink.domain()).set_tuple_name(isl.dim_type.out, reader.space)
            if found.is_empty():
                continue
            if one.commutes and one is not reader:
                found = one.together.apply_range(found)
            if access.is_own and reader.commutes:
                found = found.apply_range(reader.together)
            flows[one.number] = found
        return flows

    def _schedule(self, writers: Iterable[PolyhedralStatement], reader: PolyhedralStatement) -> isl.UnionMap:
        maps = [self.order_of(one) for one in writers]
        return union_of([*maps, self.order_of(reader).set_tuple_name(isl.dim_type.in_, "reader")])

    def order_of(self, one: PolyhedralStatement) -> isl.Map:
        """The order in which statements are written: their numbers, then their indices."""
        rest = ["0"] * (self._depth - len(one.dims))
        text = f"{{ {one.at} -> [{', '.join([str(one.number), *one.dims, *rest])}] }}"
        return one.parameters.map(text).intersect_domain(one.domain)

    def live_elements(self, number: int) -> isl.Set:
        """The elements of results whose last value a statement writes."""
        one = self.statements[number]
        left = one.writes.range()
        if self.computation.buffers[one.statement.target].role == "temporary":
            return isl.Set.empty(left.get_space())
        for other in self.writers(one.statement.target):
            if other.number > number:
                left = left.subtract(other.writes.range())
        return left

    def before(self, first: PolyhedralStatement, second: PolyhedralStatement) -> isl.Map:
        """The pairs of instances of which the first one comes first."""
        if first.number == second.number:
            return self.order_of(first).lex_lt_map(self.order_of(second))
        pairs = isl.Map.from_domain_and_range(first.domain, second.domain)
        return pairs if first.number < second.number else isl.Map.empty(pairs.get_space())

    def overwrites(self, access: ReadAccess, writer: PolyhedralStatement) -> isl.Map:
        """The pairs of a read, and a later write of the same element."""
        reader = self.statements[access.statement]
        if access.is_own and reader.number == writer.number and reader.commutes:
            return isl.Map.empty(reader.together.get_space())
        return access.elements.apply_range(writer.writes.reverse()).intersect(self.before(reader, writer))

    def rewrites(self, first: PolyhedralStatement, second: PolyhedralStatement) -> isl.Map:
        """The pairs of writes of one element, in their order."""
        if first.number == second.number and first.commutes:
            return isl.Map.empty(first.together.get_space())
        return first.writes.apply_range(second.writes.reverse()).intersect(self.before(first, second))

    @cached_property
    def flow(self) -> isl.UnionMap:
        """All pairs of a write, and a read of what it wrote."""
        return union_of(
            found for one in self.statements for access in one.reads for found in self.flow_of(access).values()
        )

    @cached_property
    def anti(self) -> isl.UnionMap:
        """All pairs of a read, and a later write of the same element."""
        return union_of(
            self.overwrites(access, writer)
            for one in self.statements
            for access in one.reads
            for writer in self.writers(access.buffer)
        )

    @cached_property
    def output(self) -> isl.UnionMap:
        """All pairs of writes of one element, in their order."""
        return union_of(
            self.rewrites(one, other)
            for one in self.statements
            for other in self.writers(one.statement.target)
            if one.number <= other.number
        )

    @cached_property
    def every(self) -> isl.UnionMap:
        """The pairs of instances whose order matters."""
        return self.flow.union(self.anti).union(self.output)


def last_writers(sink: isl.Map, writes: Sequence[isl.Map], schedule: isl.UnionMap) -> isl.UnionMap:
    """The pairs of the last write of an element before a read of it, and the read."""
    if not writes:
        return isl.UnionMap("{ }")
    info = isl.UnionAccessInfo.from_sink(isl.UnionMap.from_map(sink))
    info = info.set_must_source(union_of(writes)).set_schedule_map(schedule)
    return info.compute_flow().get_must_dependence()


def memory_space(buffer: str) -> str:
    """The name that isl knows a buffer of a computation by."""
    return f"m_{buffer}"


def instance_text(statement: KernelStatement, indices: dict[str, int]) -> str:
    """An instance as messages write it."""
    at = ", ".join(f"{name}={value}" for name, value in indices.items())
    return f"{statement.target} at ({at})" if at else statement.target
