"""Assignments in kernels of a GPU, in the order of a run in which all threads take each step together.

Blocks run at once, and so do threads between two barriers: rounds of them that no barrier orders are unordered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import (
    Computation,
    ElementRead,
    Environment,
    KernelBuffer,
    reads,
    rebuilt,
    substituted,
)
from eqsat.runtime.kernels.nests.extents import sum_of
from eqsat.runtime.kernels.nests.scheduling.gpu_elements import BLOCK, THREAD, THREAD_ROW
from eqsat.runtime.kernels.nests.scheduling.values import neutral
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, GpuKernel, Guard, Local, Loop, Named, Node, ThreadFold
from eqsat.runtime.kernels.polyhedral.events import EventLoop, LocalBuffer, TreeEvent
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError, UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.relations import SizeParameters, index_text, tuple_text

_Condition = tuple[AffineIndex, str, AffineIndex]


@dataclass(frozen=True, eq=False)
class ThreadEvent(TreeEvent):
    """An assignment by the threads of all blocks of a kernel.

    Its loops are blocks, those of the tree, and threads, rows of them first; one that threads do together has no
    threads. `limit` are the instances that matter, None where all do.
    """

    barriers: Sequence[TreeEvent] = ()
    is_of_threads: bool = True
    limit: isl.Set | None = None
    _between: dict[int, isl.Map] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def domain(self) -> isl.Set:
        """The instances."""
        every = super().domain
        return every if self.limit is None else every.intersect(self.limit)

    def unordered_with(self, other: TreeEvent, outside: int = 0) -> isl.Map:
        """The pairs of instances in different blocks, or in different threads of one that no barrier is between."""
        pairs = super().unordered_with(other, outside)
        if not isinstance(other, ThreadEvent) or not (self.is_of_threads and other.is_of_threads):
            return pairs
        if self.positions[0] != other.positions[0]:  # another kernel
            return pairs
        if other.number not in self._between:
            self._between[other.number] = self._apart(other)
        return pairs.union(self._between[other.number])

    def _apart(self, other: ThreadEvent) -> isl.Map:
        theirs = tuple(f"u{place}" for place in range(len(other.loops)))
        differ = [f"{self.dims[-place]} {sign} {theirs[-place]}" for place in (1, 2) for sign in ("<", ">")]
        pairs = self.parameters.map(
            f"{{ {self.at} -> {tuple_text(other.space, theirs)} : t0 = u0 and ({' or '.join(differ)}) }}"
        )
        pairs = pairs.intersect_domain(self.domain).intersect_range(other.domain)
        depth = max(len(one.loops) for one in (self, other, *self.barriers))
        mine, their = self.times(depth), other.times(depth)
        for barrier in self.barriers:
            at = barrier.times(depth)
            pairs = pairs.subtract(mine.lex_lt_map(at).apply_range(at.lex_lt_map(their)))
            pairs = pairs.subtract(mine.lex_gt_map(at).apply_range(at.lex_gt_map(their)))
        return pairs


class _BarrierEvent(TreeEvent):
    @cached_property
    def space(self) -> str:
        """The name of its instances in isl."""
        return f"B{-self.number}"


def kernel_events(computation: Computation, kernels: Sequence[GpuKernel]) -> list[ThreadEvent]:
    """The assignments of kernels that run one after the other, without those whose values nothing stores.

    UndecidedScheduleError for kernels whose sizes calls give, and for nodes that kernels of groups alone have.
    """
    walk = _KernelWalk(computation)
    for number, kernel in enumerate(kernels, 1):
        walk.kernel(number, kernel)
    return _living(walk.events, walk.registers)


@dataclass(frozen=True)
class _Scope:
    """The surroundings of a node: loops and places, conditions, and what names stand for."""

    loops: tuple[EventLoop, ...]
    places: tuple[int, ...]
    conditions: tuple[_Condition, ...] = ()
    named: Mapping[str, AffineIndex] = field(default_factory=dict)
    locals: Mapping[str, LocalBuffer] = field(default_factory=dict)
    registers: frozenset[str] = frozenset()

    def sum(self, index: AffineIndex) -> AffineIndex:
        """A sum in the variables of loops."""
        return substituted(index, self.named)

    def has_named(self, variable: str, index: AffineIndex) -> _Scope:
        """The same, with a name."""
        return replace(self, named={**self.named, variable: self.sum(index)})


class _KernelWalk:
    def __init__(self, computation: Computation) -> None:
        if computation.sizes:
            raise UndecidedScheduleError(f"sizes that calls give decide the blocks of {computation.name}")
        self.computation = computation
        self.parameters = SizeParameters.of(computation)
        self.events: list[ThreadEvent] = []
        #: The buffers of which each thread has its own.
        self.registers: set[str] = set()
        self._count = 0

    def kernel(self, number: int, kernel: GpuKernel) -> None:
        """Walk a kernel, the one of that number."""
        if not isinstance(kernel.blocks, int):
            raise UndecidedScheduleError("sizes that calls give decide the blocks of a kernel")
        columns, rows = kernel.threads
        self.threads = (EventLoop(THREAD_ROW, rows), EventLoop(THREAD, columns))
        self.place = AffineIndex.variable(THREAD_ROW, rows), AffineIndex.variable(THREAD, columns)
        self.barriers: list[TreeEvent] = []
        self._body(kernel.body, _Scope((EventLoop(BLOCK, kernel.blocks, True),), (number,)))

    def _body(self, nodes: Sequence[Node], scope: _Scope) -> None:
        place = 0
        for node in nodes:
            place += 1
            here = replace(scope, places=(*scope.places, place))
            match node:
                case Loop():
                    loop = EventLoop(node.variable, node.extent, node.kind == "parallel")
                    inside = {name: at for name, at in scope.named.items() if name != node.variable}
                    self._body(node.body, replace(here, loops=(*scope.loops, loop), named=inside))
                case Guard():
                    met = [(scope.sum(index), "<", scope.sum(sum_of(bound))) for index, bound in node.below]
                    met += [(scope.sum(index), ">=", AffineIndex.number(least)) for index, least in node.least]
                    # A loop of one round, so that the body has places of its own.
                    once = replace(here, loops=(*scope.loops, EventLoop("", 1)))
                    self._body(node.body, replace(once, conditions=(*scope.conditions, *met)))
                case Named():
                    scope = scope.has_named(node.variable, node.value)
                case Local():
                    scope = self._local(node, scope)
                case Assign():
                    self._assign(node, here)
                case Barrier():
                    if scope.conditions:
                        raise IllegalScheduleError("threads wait for each other under a condition")
                    self.barriers.append(self._barrier(here))
                case ThreadFold():
                    place = self._fold(node, scope, place)
                case _:
                    raise UndecidedScheduleError(f"{type(node).__name__} in a kernel of a computation")

    def _barrier(self, scope: _Scope) -> TreeEvent:
        """The place where threads wait, as a step without an effect."""
        nothing = ElementRead.of("", DType.BOOL, ())
        number = -len(self.barriers) - 1
        return _BarrierEvent(
            number, scope.loops, scope.places, nothing, nothing, "", {}, {}, self.computation.buffers, self.parameters
        )

    def _local(self, node: Local, scope: _Scope) -> _Scope:
        """The scope with a buffer: of a block, or with one for each thread."""
        if node.value is not None or node.has_place or node.lanes != 1 or node.is_shared == node.is_register:
            raise UndecidedScheduleError(f"a buffer {node.buffer.name} that begins with values, or has places or lanes")
        self._count += 1
        buffer, registers = node.buffer, scope.registers - {node.buffer.name}
        if node.is_register:
            shape = tuple(loop.extent for loop in self.threads)
            buffer = KernelBuffer(buffer.name, buffer.dtype, (*shape, *buffer.shape), "local")
            registers |= {buffer.name}
        made = LocalBuffer(f"L{self._count}", buffer, len(scope.loops))
        if node.is_register:
            self.registers.add(made.space)
        return replace(scope, locals={**scope.locals, buffer.name: made}, registers=registers)

    def _assign(self, node: Assign, scope: _Scope) -> None:
        known = {name: scope.sum(index) for name, index in node.environment.items()}
        self._add(scope, node.target, node.value, node.reduction, known)

    def _add(
        self,
        scope: _Scope,
        target: ElementRead,
        value: Expr,
        reduction: str,
        known: Environment,
        is_of_threads: bool = True,
        threads: Sequence[EventLoop] | None = None,
    ) -> None:
        around = self.threads if threads is None else tuple(threads)
        loops, places = (*scope.loops, *around), (*scope.places, *(0 for _ in around))
        names = {loop.variable: f"t{place}" for place, loop in enumerate(loops)}
        if scope.conditions:
            texts = [f"{index_text(a, names)} {sign} {index_text(b, names)}" for a, sign, b in scope.conditions]
            loops = (*loops[:-1], replace(loops[-1], condition=" and ".join(texts)))
        made = rebuilt(value, lambda one: self._read(one, scope))
        event = ThreadEvent(
            len(self.events), loops, places, self._own(target, scope), made, reduction, {**scope.named, **known},
            scope.locals, self.computation.buffers, self.parameters,
            barriers=self.barriers, is_of_threads=is_of_threads,
        )  # fmt: skip
        self.events.append(event)

    def _own(self, read: ElementRead, scope: _Scope) -> ElementRead:
        """An element, of a register the one of the thread."""
        if read.buffer not in scope.registers:
            return read
        return ElementRead.of(read.buffer, read.dtype, (*self.place, *read.subscripts), read.checked)

    def _read(self, one: Expr, scope: _Scope) -> Expr | None:
        return self._own(one, scope) if isinstance(one, ElementRead) and one.buffer in scope.registers else None

    def _fold(self, node: ThreadFold, scope: _Scope, place: int) -> int:
        """Add the reduction of a register of all threads: from its neutral value, by turns, and given to each one."""
        columns, rows = (loop.extent for loop in reversed(self.threads))
        if node.among != "block" or node.threads != columns or rows != 1 or node.target.buffer != node.source.buffer:
            raise UndecidedScheduleError(f"a reduction among {node.threads} threads that are no block")
        if node.reduction not in ("+", "*", "min", "max"):
            raise UndecidedScheduleError(f"a reduction by {node.reduction}")
        if scope.conditions:
            raise IllegalScheduleError("threads wait for each other under a condition")
        dtype = node.source.dtype
        self._count += 1
        buffer = KernelBuffer("(fold)", dtype, (), "local")
        known = {**scope.locals, "(fold)": LocalBuffer(f"L{self._count}", buffer, len(scope.loops))}
        whole = ElementRead.of("(fold)", dtype, ())
        for step in range(5):
            here = replace(scope, places=(*scope.places, place + step), locals=known)
            match step:
                case 0 | 3:
                    self.barriers.append(self._barrier(here))
                case 1:
                    self._add(here, whole, neutral(node.reduction, dtype), "", {}, False, ())
                case 2:
                    self._add(here, whole, node.source, node.reduction, {}, False)
                case _:
                    self._add(here, node.target, whole, "", {})
        return place + 5


def _living(events: Sequence[ThreadEvent], registers: Collection[str]) -> list[ThreadEvent]:
    """The assignments, less the rounds that write to registers what no round that is left reads.

    Threads beyond the last element of a target compute values too, of what lies in shared memory; they store none.
    """
    living: dict[int, isl.Set] = {}
    needed: dict[str, isl.Set] = {}
    is_changed = True
    while is_changed:
        is_changed = False
        for event in events:
            local, live = event.local(event.target), event.domain
            if local is not None and local.space in registers:
                if local.space not in needed:
                    continue
                live = _touched(event, event.target, local).intersect_range(needed[local.space]).domain()
            if live.is_empty() or (event.number in living and live.is_subset(living[event.number])):
                continue
            living[event.number] = live
            is_changed = True
            for read in (*reads(event.value), *((event.target,) if event.reduction else ())):
                source = event.local(read)
                if source is not None and source.space in registers:
                    found = _touched(event, read, source).intersect_domain(live).range()
                    needed[source.space] = found.union(needed.get(source.space, found))
    return [replace(event, limit=living[event.number]) for event in events if event.number in living]


def _touched(event: ThreadEvent, read: ElementRead, local: LocalBuffer) -> isl.Map:
    """The elements of a buffer that instances reach, with the rounds of the loops around it."""
    return event.in_rounds(event.elements(read), local.depth)
