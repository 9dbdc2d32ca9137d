"""Schedules whose threads walk rows: each sweep visits every element of a row, reductions over threads come between.

The elements of a row stay in registers from the first sweep on where they fit; else each sweep makes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.language.terms import DType
from eqsat.language.terms import Node as Operator
from eqsat.runtime.kernels.body import LANE, Access, KernelBody
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import ElementRead, GroupElement, KernelBuffer, Reduction
from eqsat.runtime.kernels.nests.gpu_groups.stores import (
    has_results,
    local_name,
    made,
    named_quotients,
    side_by_side,
    stored_results,
)
from eqsat.runtime.kernels.nests.gpu_groups.teams import HELD_BYTES, Rows, Team, checked, read_strides, team_for
from eqsat.runtime.kernels.nests.tree import (
    Assign,
    GpuKernel,
    Guard,
    Let,
    Local,
    Loop,
    Named,
    Node,
    PlacedAssign,
    PlaceReduction,
    Produced,
)
from eqsat.runtime.kernels.packs import chunk_of, varying
from eqsat.runtime.kernels.view import WIDEST_ACCESS

#: Rounds of a sweep over elements that are not held that are written out one after the other.
_UNROLL = 4
#: The value of an element at coordinates, with the statements it needs added to those given.
Term = Callable[[list[Node], Coords], Expr]


class RowSchedule:
    """The kernel around one operator along rows of its operand `x`, in the shape `shape` that it sees x in.

    `seen` maps coordinates of that shape to those of x. UnsupportedError where the group is none of this kind.
    """

    def __init__(
        self,
        group: Group,
        core: Operator,
        along: Sequence[int],
        *,
        shape: Sequence[int] | None = None,
        seen: Callable[[Coords], Coords] = lambda coords: coords,
        sweeps: int = 3,
        vectors: bool = True,
        team: Callable[[Rows], Team] | None = None,
    ) -> None:
        self.group, self.core, self.seen = group, core, seen
        self.x, self.made = str(core.inputs[0]), core.outputs[0]
        self.dtype = computed(group.types[self.x].dtype)
        shape = group.types[self.x].static if shape is None else tuple(shape)
        self.rows = Rows.of(shape, along, read_strides(shape, lambda coords: self._accesses(seen(coords))))
        checked(self.rows.count)
        checked(self.rows.size)
        self.before, self.after = self._results()
        width = self._width() if vectors else 1
        self.team = team_for(self.rows, width, self.dtype.itemsize) if team is None else team(self.rows)
        fits = self.team.turns * width * self.dtype.itemsize <= HELD_BYTES
        self.held = sweeps > 1 and fits and self.rows.size > 0
        self.has_swept = self.is_held = self.is_replaced = False
        self.blocks = -(-self.rows.count // self.team.rows_of_block)
        self.nodes: list[Node] = [Named("row", self.team.row(self.blocks)), Named("member", self.team.member)]
        if self.held:
            held = KernelBuffer(self.name("held"), self.dtype, (self.team.turns * self.team.width,), "local")
            self.nodes.append(Local(held))

    # ---- rows, width and results --------------------------------------------------------------------------------

    def _accesses(self, coords: Coords) -> list[Access]:
        probe = KernelBody(self.group)
        probe.value(self.x, coords)
        return probe.accesses

    def _width(self) -> int:
        """The number of neighbouring elements of a row that can be read at once."""
        if not self.rows.contiguous:
            return 1
        width = WIDEST_ACCESS
        while width > 1:
            if self.rows.size % width == 0:
                accesses = self._accesses(self._coords(width))
                sizes = [self.group.operands[a.value].dtype.itemsize for a in accesses if a.offset.reads(LANE)]
                # As many as the narrowest type has in one access, as long as registers hold them.
                together = all(chunk_of(self.group.operands[a.value], a.offset, width) for a in varying(accesses))
                if sizes and together and width * min(sizes) <= WIDEST_ACCESS and self._leads_back(width):
                    return width
            width //= 2
        return 1

    def _leads_back(self, width: int) -> bool:
        """Return whether the results of that many elements at once can be computed from them."""
        if self.group.types[self.made].static != self.group.types[self.x].static:
            return True
        _, coords = named_quotients(self.group, self.made, self.after, self._coords(width))
        return has_results(self.group, self.made, self.after, coords)

    def _coords(self, width: int) -> Coords:
        """The element k of those that a thread takes at once, of the step that it is at."""
        steps = self.rows.size // width
        place = AffineIndex.variable("step", steps) * width + AffineIndex.variable(LANE, width)
        return self.seen(self.rows.coords(self.row, place))

    def _results(self) -> tuple[list[str], list[str]]:
        """The results made before the operator, element by element with its operand, and those made of it."""
        later = {o for o in self.core.outputs if o}
        for node in self.group.nodes:
            if any(v in later for v in node.inputs):
                later |= {o for o in node.outputs if o}
        before = [name for name in self.group.results if name not in later]
        if any(self.group.types[name].static != self.group.types[self.x].static for name in before):
            raise UnsupportedError("a result of another shape before a row")
        return before, [name for name in self.group.results if name in later]

    # ---- statements ---------------------------------------------------------------------------------------------

    @property
    def row(self) -> AffineIndex:
        """The row of a thread that has one."""
        return AffineIndex.variable("row", self.rows.count)

    @property
    def in_rows(self) -> tuple[AffineIndex, int]:
        """The sum and the bound of the condition that a thread has a row."""
        return AffineIndex.variable("row", self.blocks * self.team.rows_of_block), self.rows.count

    def name(self, stem: str) -> str:
        """A name that no value of the group has."""
        return local_name(self.group, stem)

    def variable(
        self, stem: str, dtype: DType, value: Expr | None = None, *, has_place: bool = False
    ) -> tuple[Local, ElementRead]:
        """A variable that each thread has, and its element; it may begin with a value."""
        buffer = KernelBuffer(self.name(stem), dtype, (), "local")
        return Local(buffer, True, value=value, has_place=has_place), ElementRead.of(buffer.name, dtype, ())

    def register(self, stem: str, value: Expr) -> ElementRead:
        """A variable that each thread has from here on, with the value that it begins with."""
        local, element = self.variable(stem, value.dtype, value)
        self.nodes.append(local)
        return element

    def folded(self, source: ElementRead, reduction: Reduction | PlaceReduction, stem: str) -> ElementRead:
        """The reduction of a variable over the threads of a row: all of them get it."""
        target = ElementRead.of(self.name(stem), source.dtype, ())
        self.nodes.append(self.team.fold(target, source, reduction))
        return target

    def let(self, nodes: list[Node], value: Expr, stem: str) -> ElementRead:
        """A value under a name, added to statements."""
        nodes.append(Let(self.name(stem), value))
        return ElementRead.of(self.name(stem), value.dtype, ())

    def constant(self, value: Expr, stem: str) -> ElementRead:
        """A value of a whole row under a name."""
        return self.let(self.nodes, value, stem)

    def element(self, nodes: list[Node], coords: Coords) -> Expr:
        """The element of the operand: from registers, or made, and kept there in the first sweep."""
        value = GroupElement.of(self.x, self.dtype, coords)
        if not self.is_held:
            if self.held:
                nodes.append(Assign(self._slot, value))
            return value
        if not self.is_replaced:
            nodes.append(Produced(value, self._slot))
        return self._slot

    def replace(self, nodes: list[Node], value: Expr) -> None:
        """Put another value in place of the element, from the next sweep on."""
        if self.held:
            nodes.append(Assign(self._slot, value))

    @property
    def _slot(self) -> ElementRead:
        """The register in which a thread holds the element that it is at."""
        turn, k = AffineIndex.variable("turn", self.team.turns), AffineIndex.variable(LANE, self.team.width)
        return ElementRead.of(self.name("held"), self.dtype, (turn * self.team.width + k,))

    # ---- sweeps -------------------------------------------------------------------------------------------------

    def joined(self, reduction: Reduction, start: Expr, stem: str, term: Term) -> ElementRead:
        """The reduction over a row of a term of each element; elements that are not made yet are made."""
        part = self.register(f"{stem}_part", start)

        def fill(nodes: list[Node], coords: Coords) -> None:
            nodes.append(Assign(part, convert(term(nodes, coords), start.dtype), reduction))

        if self.has_swept:
            self.sweep(fill)
        else:
            self.first(fill)
        return self.folded(part, reduction, stem)

    def extreme(self, axis: int, reduction: PlaceReduction) -> ElementRead:
        """The extreme of a row and its place along an axis, found by the first sweep."""
        local, best = self.variable("best", self.dtype, has_place=True)
        self.nodes.append(local)

        def fill(nodes: list[Node], coords: Coords) -> None:
            nodes.append(PlacedAssign(best, self.element(nodes, coords), coords[axis], reduction))

        self.first(fill)
        return self.folded(best, reduction, "found")

    def first(self, fill: Callable[[list[Node], Coords], None]) -> None:
        """The sweep that makes the elements, and stores the values made on the way to them."""

        def both(nodes: list[Node], coords: Coords) -> None:
            fill(nodes, coords)
            nodes += [made(self.group, name, coords) for name in self.before]

        self.sweep(both)
        self.has_swept, self.is_held = True, self.held

    def last(self, result: Term) -> None:
        """The sweep that stores every element that is made of the operator's result."""

        def fill(nodes: list[Node], coords: Coords) -> None:
            nodes += stored_results(self.group, self.made, self.after, coords, result(nodes, coords))

        self.sweep(fill, forward=True)

    def sweep(self, fill: Callable[[list[Node], Coords], None], *, forward: bool = False) -> None:
        """Visit the elements of a row: side by side, several are read and stored at once."""
        if not self.rows.size:
            return
        width, coords = self.team.width, self._coords(self.team.width)
        before: Sequence[Node] = ()
        if forward:
            before, coords = named_quotients(self.group, self.made, self.after, coords)
        body: list[Node] = []
        fill(body, coords)
        self.nodes.append(self._turns((*before, *side_by_side(width, body)), is_reduced=not forward))

    def _turns(self, body: tuple[Node, ...], *, is_reduced: bool) -> Node:
        """The loop over the turns of a thread, and the condition that there is an element for it."""
        team = self.team
        steps = self.rows.size // team.width
        step = AffineIndex.variable("turn", team.turns) * team.size + AffineIndex.variable("member", team.size)
        inside = (self.in_rows, (AffineIndex.variable("step", team.turns * team.size), steps))
        rounds = (Named("step", step), Guard(inside, body))
        return Loop("turn", team.turns, rounds, "unrolled" if self.held else "serial", _UNROLL, is_reduced)

    def each_row(self, body: Callable[[AffineIndex], Sequence[Node]]) -> None:
        """Add statements that one thread of each row runs."""
        one = (AffineIndex.variable("member", self.team.size), 1)
        self.nodes.append(Guard((self.in_rows, one), tuple(body(self.row))))

    def kernel(self) -> GpuKernel:
        """The kernel of all statements."""
        return GpuKernel(tuple(self.nodes), self.blocks, self.team.threads)
