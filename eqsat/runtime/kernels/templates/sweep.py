"""Kernels whose threads walk rows: each sweep visits every element of a row, reductions over threads come between.

The elements of a row stay in registers from the first sweep on where they fit; else each sweep makes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.body import Access, KernelBody, entry_name
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import STORED, Expr, UnsupportedError, computed
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.packs import PackedBody, chunk_of, varying
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.team import HELD_BYTES, Rows, Team, checked, read_strides, team_for
from eqsat.runtime.kernels.view import WIDEST_ACCESS
from eqsat.runtime.kernels.writer import bare

#: Writes the statements for the element at coordinates.
Fill = Callable[["PackedBody", Coords], None]


class RowKernel:
    """A kernel around one operator along rows of its operand `x`, in the shape `shape` that it sees x in.

    `seen` maps coordinates of that shape to those of x. UnsupportedError where the group is none of this kind.
    """

    def __init__(
        self,
        group: Group,
        core: Node,
        along: Sequence[int],
        *,
        shape: Sequence[int] | None = None,
        seen: Callable[[Coords], Coords] = lambda coords: coords,
        sweeps: int = 3,
        vectors: bool = True,
        team: Callable[[RowKernel], Team] | None = None,
    ) -> None:
        self.group, self.core, self.seen = group, core, seen
        self.x, self.made = str(core.inputs[0]), core.outputs[0]
        self.dtype = computed(group.types[self.x].dtype)
        self.body = PackedBody(group)
        shape = self.body.shape(self.x) if shape is None else tuple(shape)
        self.rows = Rows.of(shape, along, read_strides(shape, lambda coords: self._accesses(seen(coords))))
        checked(self.rows.count)
        checked(self.rows.size)
        self.before, self.after = self._results()
        width = self._width() if vectors else 1
        self.team = team_for(self.rows, width, self.dtype.itemsize) if team is None else team(self)
        fits = self.team.turns * width * self.dtype.itemsize <= HELD_BYTES
        self.held = sweeps > 1 and fits and self.rows.size > 0
        self.has_swept = self.is_held = self.is_replaced = False
        self._begin()

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
                sizes = [self.group.operands[a.value].dtype.itemsize for a in accesses if a.offset.reads("k")]
                # As many as the narrowest type has in one access, as long as registers hold them.
                together = all(chunk_of(self.group.operands[a.value], a.offset, width) for a in varying(accesses))
                if sizes and together and width * min(sizes) <= WIDEST_ACCESS and self._leads_back(width):
                    return width
            width //= 2
        return 1

    def _leads_back(self, width: int) -> bool:
        """Return whether the results of that many elements at once can be computed from them."""
        if self.body.shape(self.made) != self.body.shape(self.x):
            return True
        probe = PackedBody(self.group)
        coords = probe.forwardable(self.made, self.after, self._coords(width))
        try:
            probe.store_made(self.made, self.after, coords, Expr(self.dtype, "made"))
        except UnsupportedError:
            return False
        return True

    def _coords(self, width: int) -> Coords:
        """The element k of those that a thread takes at once, of the step that it is at."""
        steps = self.rows.size // width
        place = AffineIndex.variable("step", steps) * width + AffineIndex.variable("k", width)
        return self.seen(self.rows.coords(AffineIndex.variable("row", self.rows.count), place))

    def _results(self) -> tuple[list[str], list[str]]:
        """The results made before the operator, element by element with its operand, and those made of it."""
        later = {o for o in self.core.outputs if o}
        for node in self.group.nodes:
            if any(v in later for v in node.inputs):
                later |= {o for o in node.outputs if o}
        before = [name for name in self.group.results if name not in later]
        if any(self.body.shape(name) != self.body.shape(self.x) for name in before):
            raise UnsupportedError("a result of another shape before a row")
        return before, [name for name in self.group.results if name in later]

    # ---- statements ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        writer, team = self.body.writer, self.team
        writer.line(f"const int row = {team.row};")
        writer.line(f"const int member = {team.member};")
        if self.held:
            writer.line(f"{self.c_type} held[{team.turns * team.width}];")

    @property
    def c_type(self) -> str:
        """The type of C that elements of the operand are computed in."""
        return STORED[self.dtype]

    @property
    def whole(self) -> bool:
        """True if every thread has a row."""
        return not self.rows.count % self._rows_in_block

    @property
    def _rows_in_block(self) -> int:
        return 32 if self.team.kind == "columns" else self.team.rows

    def declare(self, stem: str, dtype: DType, value: str) -> str:
        """A variable of C that each thread has."""
        name = self.body.writer.name(stem)
        self.body.writer.line(f"{STORED[dtype]} {name} = {value};")
        return name

    def reduce(self, operator: str, part: str, dtype: DType, stem: str) -> Expr:
        """The reduction of a variable over the threads of a row: all of them get it."""
        return Expr(dtype, self.body.writer.define(STORED[dtype], stem, self.team.reduced(operator, part)))

    def constant(self, value: Expr, stem: str) -> Expr:
        """A value under a name."""
        return self.body.named(value, stem)

    def element(self, body: PackedBody, coords: Coords) -> Expr:
        """The element of the operand: from registers, or made, and kept there in the first sweep."""
        slot = Expr(self.dtype, self._slot())
        if self.is_held:
            if not self.is_replaced:
                body.give(self.x, coords, slot)
            return slot
        value = body.value(self.x, coords)
        if self.held:
            body.writer.line(f"{slot.template} = {bare(body.writer.render(value, 'element'))};")
        return value

    def replace(self, body: PackedBody, value: Expr) -> None:
        """Put another value in place of the element, from the next sweep on."""
        if self.held:
            body.writer.line(f"{self._slot()} = {bare(body.writer.render(value, 'element'))};")

    def _slot(self) -> str:
        turn = f"turn * {self.team.width} + " if self.team.turns > 1 and self.team.width > 1 else ""
        if self.team.turns > 1 and self.team.width == 1:
            return "held[turn]"
        return f"held[{turn}k]" if self.team.width > 1 else "held[0]"

    def first(self, fill: Fill) -> None:
        """The sweep that makes the elements, and stores the values made on the way to them."""

        def both(body: PackedBody, coords: Coords) -> None:
            fill(body, coords)
            body.store_at(self.before, coords)

        self.sweep(both)
        self.has_swept, self.is_held = True, self.held

    def last(self, result: Callable[[PackedBody, Coords], Expr]) -> None:
        """The sweep that stores every element that is made of the operator's result."""

        def fill(body: PackedBody, coords: Coords) -> None:
            value = body.named(result(body, coords), self.core.op)
            body.store_made(self.made, self.after, coords, value)

        self.sweep(fill, forward=True)

    def sweep(self, fill: Fill, *, forward: bool = False) -> None:
        """Visit the elements of a row: side by side, several are read and stored at once."""
        if not self.rows.size:
            return
        body, width = self.body, self.team.width
        with self._turns():
            coords = self._coords(width)
            if forward:
                coords = body.forwardable(self.made, self.after, coords)
            probe = PackedBody(self.group)
            fill(probe, coords)
            body.load_packs(probe, width)
            with body.stored_packs(probe.stores, width), body.each(width):
                fill(body, coords)

    @contextmanager
    def _turns(self) -> Iterator[None]:
        """The loop over the turns of a thread, and the condition that there is an element for it."""
        writer, team = self.body.writer, self.team
        steps = self.rows.size // team.width
        with ExitStack() as stack:
            if team.turns > 1:
                writer.line("#pragma unroll" if self.held else "#pragma unroll 4")
                stack.enter_context(writer.block(f"for (int turn = 0; turn < {team.turns}; ++turn)"))
                turn = "turn" if team.size == 1 else f"turn * {team.size} + member"
                writer.line(f"const int step = {turn};")
            else:
                stack.enter_context(writer.block(""))
                writer.line("const int step = member;")
            conditions = [] if self.whole else [f"row < {self.rows.count}"]
            conditions += [f"step < {steps}"] if steps % team.size else []
            if conditions:
                stack.enter_context(writer.block(f"if ({' && '.join(conditions)})"))
            yield

    @contextmanager
    def one_of_each_row(self) -> Iterator[AffineIndex]:
        """Statements that one thread of each row runs; yields the row."""
        conditions = [] if self.whole else [f"row < {self.rows.count}"]
        conditions += ["member == 0"] if self.team.size > 1 else []
        head = f"if ({' && '.join(conditions)})" if conditions else ""
        with self.body.writer.block(head):
            yield AffineIndex.variable("row", self.rows.count)

    def source(self) -> KernelSource:
        """The kernel, once all is written."""
        blocks = -(-self.rows.count // self._rows_in_block)
        return self.body.source(entry_name(self.group), (blocks, 1, 1), self.team.threads)
