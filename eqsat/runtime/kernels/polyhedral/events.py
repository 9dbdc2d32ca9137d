"""Assignments in a tree of loops, with the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import (
    Computation,
    ElementRead,
    Environment,
    KernelBuffer,
    Subscript,
    substituted,
)
from eqsat.runtime.kernels.nests.extents import Extent, fixed, sum_of
from eqsat.runtime.kernels.nests.tree import Assign, Gemm, Gemv, Guard, LaneFold, Local, Loop, Node, Vector
from eqsat.runtime.kernels.polyhedral.dependences import memory_space
from eqsat.runtime.kernels.polyhedral.faults import UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.relations import SizeParameters, box, element_map, index_text, tuple_text


@dataclass(frozen=True)
class EventLoop:
    """A loop around an assignment; rounds of an unordered one may run in any order, or at once."""

    variable: str
    extent: Extent
    is_unordered: bool = False
    #: The condition that limits lanes of a vector to those that are there.
    condition: str = ""


@dataclass(frozen=True)
class LocalBuffer:
    """A buffer of a block, by a name that no other one has, and the number of loops around the block."""

    space: str
    buffer: KernelBuffer
    depth: int


@dataclass(frozen=True, eq=False)
class TreeEvent:
    """An assignment with the loops around it, outermost first, and its places among its siblings."""

    number: int
    loops: tuple[EventLoop, ...]
    positions: tuple[int, ...]
    target: ElementRead
    value: Expr
    reduction: str
    environment: Environment
    locals: Mapping[str, LocalBuffer]
    buffers: Mapping[str, KernelBuffer]
    parameters: SizeParameters
    #: The conditions around it, in its dimensions.
    conditions: tuple[str, ...] = ()

    @cached_property
    def space(self) -> str:
        """The name of its instances in isl."""
        return f"E{self.number}"

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The dimensions of its instances, one for each loop."""
        return tuple(f"t{place}" for place in range(len(self.loops)))

    @cached_property
    def names(self) -> dict[str, str]:
        """The dimension of each variable; inner loops hide outer ones of the same name."""
        return {loop.variable: dim for loop, dim in zip(self.loops, self.dims, strict=True)}

    @cached_property
    def at(self) -> str:
        """An instance in isl."""
        return tuple_text(self.space, self.dims)

    @cached_property
    def domain(self) -> isl.Set:
        """The instances."""
        conditions = [*(loop.condition for loop in self.loops if loop.condition), *self.conditions]
        text = " and ".join([box(self.dims, [loop.extent for loop in self.loops], self.parameters), *conditions])
        return self.parameters.set(f"{{ {self.at} : {text} }}")

    @cached_property
    def identity(self) -> isl.Map:
        """Each instance with itself."""
        return self.domain.identity()

    def times(self, depth: int) -> isl.Map:
        """The order: places among siblings and rounds of loops by turns, filled up for a number of loops."""
        items = [str(self.positions[0])]
        for dim, position in zip(self.dims, self.positions[1:], strict=True):
            items += [dim, str(position)]
        items += ["0"] * (2 * depth + 1 - len(items))
        return self.parameters.map(f"{{ {self.at} -> [{', '.join(items)}] }}").intersect_domain(self.domain)

    def index(self, index: AffineIndex) -> str:
        """A sum of indices in the dimensions."""
        try:
            return index_text(substituted(index, self.environment), {**self.parameters.names, **self.names})
        except KeyError as error:
            raise UndecidedScheduleError(f"no loop around an assignment to {self.target.buffer} has {error}") from None

    def local(self, read: ElementRead) -> LocalBuffer | None:
        """The buffer of a block that an element is of; None of memory."""
        return self.locals.get(read.buffer)

    def elements(self, read: ElementRead) -> isl.Map:
        """The elements that the instances reach by subscripts."""
        local = self.local(read)
        buffer = local.buffer if local is not None else self.buffers.get(read.buffer)
        if buffer is None or len(buffer.shape) != len(read.subscripts):
            raise UndecidedScheduleError(f"no buffer {read.buffer} here has {len(read.subscripts)} axes")
        space = local.space if local is not None else memory_space(read.buffer)
        inside: list[Subscript] = [
            substituted(one, self.environment) if isinstance(one, AffineIndex) else one for one in read.subscripts
        ]
        return element_map(self.domain, self.at, inside, self.names, buffer, space, self.parameters)

    def in_rounds(self, elements: isl.Map, depth: int) -> isl.Map:
        """Elements with the rounds of so many outer loops: each round of those around a buffer has one of its own."""
        around = self.parameters.map(f"{{ {self.at} -> {tuple_text('P', self.dims[:depth])} }}")
        return around.intersect_domain(self.domain).range_product(elements)

    def common_loops(self, other: TreeEvent) -> int:
        """The number of loops around both."""
        count = 0
        most = min(len(self.loops), len(other.loops))
        while count < most and self.positions[: count + 1] == other.positions[: count + 1]:
            count += 1
        return count

    def unordered_with(self, other: TreeEvent, outside: int = 0) -> isl.Map:
        """The pairs of instances in different rounds of an unordered loop, further in than so many loops."""
        pairs = isl.Map.empty(isl.Map.from_domain_and_range(self.domain, other.domain).get_space())
        theirs = tuple(f"u{place}" for place in range(len(other.loops)))
        equal: list[str] = []
        for place in range(self.common_loops(other)):
            mine, their = self.dims[place], theirs[place]
            if self.loops[place].is_unordered and place >= outside:
                condition = " and ".join([*equal, f"{mine} != {their}"])
                text = f"{{ {self.at} -> {tuple_text(other.space, theirs)} : {condition} }}"
                pairs = pairs.union(self.parameters.map(text))
            equal.append(f"{mine} = {their}")
        return pairs

    def not_before(self, other: TreeEvent) -> isl.Map:
        """The pairs of instances of which the first one is not surely done when the other one begins."""
        depth = max(len(self.loops), len(other.loops))
        late = self.times(depth).lex_ge_map(other.times(depth))
        return late.union(self.unordered_with(other))


def events_of(computation: Computation, nodes: Sequence[Node]) -> list[TreeEvent]:
    """The assignments in a tree."""
    walk = _TreeWalk(computation)
    walk.body(nodes, (), (), {})
    return walk.events


class _TreeWalk:
    def __init__(self, computation: Computation) -> None:
        self.buffers = computation.buffers
        self.parameters = SizeParameters.of(computation)
        self.events: list[TreeEvent] = []
        self._count = 0
        self._conditions: tuple[str, ...] = ()

    def body(
        self,
        nodes: Sequence[Node],
        loops: tuple[EventLoop, ...],
        places: tuple[int, ...],
        known: Mapping[str, LocalBuffer],
    ) -> None:
        """Walk the nodes of a block."""
        inside = dict(known)
        place = 0
        for node in nodes:
            place += 1
            match node:
                case Loop():
                    loop = EventLoop(node.variable, node.extent, node.kind == "parallel")
                    self.body(node.body, (*loops, loop), (*places, place), inside)
                case Guard():
                    outside = self._conditions
                    self._conditions = (*outside, *self._limits(node, loops))
                    # A block of its own: a loop of one round, so that what is declared in it is.
                    self.body(node.body, (*loops, EventLoop(f"guard {len(loops)}", 1)), (*places, place), inside)
                    self._conditions = outside
                case Vector():
                    for one in node.body:
                        place += 1
                        self._lanes(node, one, loops, (*places, place), inside)
                case Local():
                    self._count += 1
                    made = LocalBuffer(f"L{self._count}", node.buffer, len(loops))
                    inside = {**inside, node.buffer.name: made}  # assignments before it keep what they know
                case Assign():
                    self._add(node, loops, (*places, place), inside)
                case LaneFold():
                    self._fold(node, loops, (*places, place), inside)
                case Gemm() | Gemv():
                    raise UndecidedScheduleError("a product that BLAS computes has no order of its sums")

    def _add(
        self, node: Assign, loops: tuple[EventLoop, ...], places: tuple[int, ...], known: Mapping[str, LocalBuffer]
    ) -> None:
        event = TreeEvent(
            len(self.events), loops, places, node.target, node.value, node.reduction, node.environment, known,
            self.buffers, self.parameters, self._conditions,
        )  # fmt: skip
        self.events.append(event)

    def _names(self, loops: Sequence[EventLoop]) -> dict[str, str]:
        """The dimensions of the variables around a node."""
        return {**self.parameters.names, **{loop.variable: f"t{place}" for place, loop in enumerate(loops)}}

    def _limits(self, node: Guard, loops: Sequence[EventLoop]) -> list[str]:
        """The conditions of a guard."""
        names = self._names(loops)
        least = [f"{index_text(index, names)} >= {bound}" for index, bound in node.least]
        below = [f"{index_text(index, names)} < {index_text(sum_of(bound), names)}" for index, bound in node.below]
        return [*least, *below]

    def _lanes(
        self,
        node: Vector,
        one: Assign,
        loops: tuple[EventLoop, ...],
        places: tuple[int, ...],
        known: Mapping[str, LocalBuffer],
    ) -> None:
        """Add an assignment in a vector as one in a loop over lanes, whose rounds run at once."""
        names = self._names(loops)
        limit = index_text(sum_of(node.limit), names)
        condition = f"{index_text(node.first, names)} + t{len(loops)} < {limit}"
        lane = EventLoop(node.variable, node.lanes, True, condition)
        self._add(one, (*loops, lane), (*places, 0), known)

    def _fold(
        self, node: LaneFold, loops: tuple[EventLoop, ...], places: tuple[int, ...], known: Mapping[str, LocalBuffer]
    ) -> None:
        """Add the reduction of lanes as a loop over them."""
        source = known.get(node.source.buffer)
        if source is None:
            raise UndecidedScheduleError(f"the lanes of {node.source.buffer}, which no block has, are reduced")
        lanes = fixed(source.buffer.shape[-1])
        variable = f"{node.source.buffer} lane"
        lane = AffineIndex.variable(variable, lanes)
        read = ElementRead.of(node.source.buffer, node.source.dtype, (*node.source.subscripts[:-1], lane))
        made = replace(Assign(node.target, read, node.reduction, node.environment), environment={**node.environment})
        self._add(made, (*loops, EventLoop(variable, lanes)), (*places, 0), known)
