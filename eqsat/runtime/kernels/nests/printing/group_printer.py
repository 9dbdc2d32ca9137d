"""Trees of loops over the values of a group as kernels in CUDA C++."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from eqsat.language.terms import DType
from eqsat.runtime.kernels.body import LANE, entry_name
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, offset
from eqsat.runtime.kernels.expressions.expression import STORED, Expr, UnsupportedError, convert
from eqsat.runtime.kernels.nests.computation import Coordinate, ElementRead, GroupElement, rebuilt
from eqsat.runtime.kernels.nests.extents import fixed
from eqsat.runtime.kernels.nests.printing.cuda_nodes import OPERATORS, MappingPrinter, folded
from eqsat.runtime.kernels.nests.tree import (
    Assign,
    Barrier,
    ComputedIndex,
    GpuKernel,
    Guard,
    InlinedValue,
    LaneScan,
    LaneShift,
    LastLane,
    Let,
    Local,
    Loop,
    Named,
    Node,
    PackedLoop,
    PlacedAssign,
    Produced,
    Promoted,
    ThreadFold,
    ThreadLoop,
    Vector,
)
from eqsat.runtime.kernels.packs import PackedBody
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.writer import bare


def group_kernel(body: PackedBody, kernel: GpuKernel) -> KernelSource:
    """The text of a kernel, whose values the body makes where they are read.

    Buffers are values of the group by name, and arrays that the tree declares.
    """
    return _GroupPrinter(body).source(kernel)


class _GroupPrinter(MappingPrinter):
    def __init__(self, body: PackedBody) -> None:
        self.body = body
        self._arrays: set[str] = set()
        #: Registers and names of values, as the text has them.
        self._names: dict[str, Expr] = {}
        self._is_inlined = False

    def source(self, kernel: GpuKernel) -> KernelSource:
        """The kernel of a tree."""
        if kernel.purpose:
            self.body.writer.comment(kernel.purpose)
        self._last(kernel.body)
        columns, rows = kernel.threads
        assert isinstance(kernel.blocks, int), "groups have no free sizes"
        return self.body.source(entry_name(self.body.group), (kernel.blocks, 1, 1), (columns, rows, 1))

    def _last(self, nodes: Sequence[Node]) -> None:
        """Write the statements at the end of a kernel: a thread that has no part in the last of them returns."""
        self.nodes(nodes[:-1])
        for node in nodes[-1:]:
            if isinstance(node, Guard) and len(node.below) == 1 and not node.least:
                for place, _, bound in self.bounds(node):
                    self.line(f"if ({place} >= {bound}) return;")
                self._last(node.body)
            else:
                self.nodes([node])

    def nodes(self, nodes: Sequence[Node]) -> None:
        """Write statements in their order."""
        for one in nodes:
            self._node(one)

    def _node(self, node: Node) -> None:
        match node:
            case Named():
                self.mapped(node)
                if len(node.value.terms) > 1:
                    self.body.writer.remember(("sum", node.value), node.variable)
            case Guard() | Barrier():
                self.mapped(node)
            case ThreadLoop():
                name, first = node.variable, self.sum_text(node.first)
                if node.kind == "unrolled":
                    self.line("#pragma unroll")
                with self.block(f"for (int {name} = {first}; {name} < {node.limit}; {name} += {node.step})"):
                    self.nodes(node.body)
            case Loop():
                self._loop(node)
            case Local(is_register=True, lanes=1):
                self._register(node)
            case Local(lanes=1):
                self._array(node)
            case Promoted():
                self.body.hold(node.element.buffer, _sums(node.element), self._place(node.copy))
            case Vector(variable=variable) if variable == LANE:
                self._vector(node)
            case PackedLoop(variable=variable) if variable == LANE:
                self._packed(node)
            case _:
                self._valued(node)

    def _valued(self, node: Node) -> None:
        """Write a statement that works out a value."""
        match node:
            case Assign():
                self._assign(node)
            case PlacedAssign():
                target, text = self._place(node.target), self._rendered(node.value, node.target.buffer)
                pair = f"Place<{STORED[node.target.dtype]}>{{{text}, {self.sum_text(node.place)}}}"
                self.line(f"{target} = {OPERATORS[node.reduction]}::join({target}, {pair});")
            case ThreadFold():
                self._fold(node)
            case LaneScan() | LaneShift() | LastLane():
                self._lanes(node)
            case Let():
                self._names[node.variable] = self.body.named(self._value(node.value), node.variable)
            case ComputedIndex():
                self.line(f"const int {node.variable} = {self._rendered(node.value, node.variable)};")
            case InlinedValue():
                self.body.produce(node.name, lambda coords: self._inlined(node, coords))
            case Produced(element=element):
                value = self._value(node.value)
                if not isinstance(node.value, ElementRead):
                    value = self.body.named(value, self.body.stem(element.name))
                self.body.give(element.name, element.coords, value)
            case _:
                raise UnsupportedError(f"{type(node).__name__} in a kernel of a group")

    def _loop(self, node: Loop) -> None:
        extent, name = fixed(node.extent), node.variable
        if extent == 1:
            # A variable of one value is put in as 0.
            with self.block(""):
                self.nodes(node.body)
            return
        if node.kind == "unrolled":
            self.line("#pragma unroll")
        elif node.unroll > 1:
            self.line(f"#pragma unroll {min(node.unroll, extent)}")
        head = f"for (int {name} = 0; {name} < {extent}; ++{name})"
        with self.body.writer.loop(head, *self._varying((node,))) if self._is_inlined else self.block(head):
            self.nodes(node.body)

    def _inlined(self, node: InlinedValue, coords: Coords) -> Expr:
        """An element that is made where it is read; what all rounds of its loops share stands before them."""
        nodes, value = node.make(coords)
        self._is_inlined, before = True, self._is_inlined
        self.nodes(nodes)
        self._is_inlined = before
        return self._value(value)

    def _varying(self, nodes: Sequence[Node]) -> Iterator[str]:
        """The names in the text of what statements assign to."""
        for node in nodes:
            match node:
                case Loop() | Named():
                    yield node.variable
                case Assign(target=target) if self._is_local(target.buffer):
                    yield self._names[target.buffer].template if target.buffer in self._names else target.buffer
            yield from self._varying(node.body if isinstance(node, Loop | Guard) else ())

    def _register(self, node: Local) -> None:
        name, type = self.body.writer.name(node.buffer.name), STORED[node.buffer.dtype]
        self._names[node.buffer.name] = Expr(node.buffer.dtype, name)
        if node.has_place:
            self.line(f"Place<{type}> {name} = {{0, -1}};")
        elif node.value is None:
            self.line(f"{type} {name};")
        else:
            self.line(f"{type} {name} = {self._rendered(node.value, node.buffer.name)};")

    def _array(self, node: Local) -> None:
        if node.value is not None and (node.is_shared or node.value.value != 0):
            raise UnsupportedError("an array of a kernel of a group that begins with anything but zeros of its own")
        self._arrays.add(node.buffer.name)
        sizes = "".join(f"[{size}]" for size in node.buffer.shape)
        shared, zeros = "__shared__ " if node.is_shared else "", "" if node.value is None else " = {}"
        self.line(f"{shared}{STORED[node.buffer.dtype]} {node.buffer.name}{sizes}{zeros};")

    def _assign(self, node: Assign) -> None:
        name, value = node.target.buffer, node.value
        if not self._is_local(name):
            if node.reduction:
                raise UnsupportedError("a reduction to a result of a kernel of a group")
            self.body.store(name, _sums(node.target), self._value(value))
            return
        place = self._place(node.target)
        if isinstance(value, ElementRead) and not self._is_local(value.buffer):
            text = self._place(value)  # as it lies in memory
        else:
            text = self._rendered(convert(value, node.target.dtype), name)
        if node.reduction:
            # C makes ints of smaller integers, and join takes two of one type.
            text = f"({STORED[node.target.dtype]})({text})" if node.target.dtype.itemsize < 4 else text
            text = f"{OPERATORS[node.reduction]}::join({place}, {text})"
        self.line(f"{place} = {text};")

    def _fold(self, node: ThreadFold) -> None:
        """Write a reduction over threads; that of one thread is its register."""
        source = self._place(node.source)
        text = source if node.threads == 1 else folded(node, source)
        if node.target.buffer in self._names:
            self.line(f"{self._place(node.target)} = {text};")
            return
        stored = STORED[node.target.dtype]
        type = f"Place<{stored}>" if node.reduction.endswith(("argmax", "argmin")) else stored
        name = self.body.writer.define(type, node.target.buffer, text)
        self._names[node.target.buffer] = Expr(node.target.dtype, name)

    def _lanes(self, node: LaneScan | LaneShift | LastLane) -> None:
        """Write an exchange between the lanes of a warp; one lane alone has nothing to exchange."""
        source, is_warp = self._place(node.source), node.lanes > 1
        match node:
            case LaneScan():
                scanned = f"warp_scan({source})" if is_warp else source
                text = f"Sum::join({self._place(node.carry)}, {scanned})"
            case LaneShift():
                first = self._place(node.first)
                text = f"exclusive_of({source}, {first})" if is_warp else first
            case LastLane():
                self.line(f"{self._place(node.target)} = {f'last_of_warp({source})' if is_warp else source};")
                return
        name = self.body.writer.define(STORED[node.target.dtype], node.target.buffer, text)
        self._names[node.target.buffer] = Expr(node.target.dtype, name)

    def _packed(self, node: PackedLoop) -> None:
        """Write a body for elements side by side, with reads before it and stores after it."""
        probe = _GroupPrinter(PackedBody(self.body.group))
        probe._arrays, probe._names = set(self._arrays), dict(self._names)
        probe.nodes(node.body)
        body, width = self.body, node.lanes
        body.load_packs(probe.body, width)
        with body.stored_packs(probe.body.stores, width), body.each(width):
            self.nodes(node.body)

    def _vector(self, node: Vector) -> None:
        """Write the elements of each target into a pack, and store it in one access."""
        body, writer, width = self.body, self.body.writer, node.lanes
        packs = [writer.name(f"{body.pointer(one.target.buffer)}_pack") for one in node.body]
        for one, pack in zip(node.body, packs, strict=True):
            stored = STORED[body.group.results[one.target.buffer].dtype]
            self.line(f"Pack<{stored}, {width}> {pack};")
        with body.side_by_side(width):
            for one, pack in zip(node.body, packs, strict=True):
                self.line(f"{pack}.at[{LANE}] = {body.stored(one.target.buffer, self._value(one.value))};")
        for one, pack in zip(node.body, packs, strict=True):
            name = one.target.buffer
            place = offset(_sums(one.target), body.group.results[name].strides).without(LANE)
            self.line(f"store<{width}>({body.pointer(name)} + {self.sum_text(place)}, {pack});")

    def _value(self, value: Expr) -> Expr:
        """A value with the elements of the group put in."""
        return rebuilt(value, self._element)

    def _element(self, one: Expr) -> Expr | None:
        """A leaf of a value as the text has it; None for what is no leaf."""
        match one:
            case GroupElement():
                return self.body.value(one.name, one.coords)
            case ElementRead():
                return self._names[one.buffer] if one.buffer in self._names else Expr(one.dtype, self._place(one))
            case Coordinate():
                text = self.sum_text(one.index)
                return Expr(DType.INT32, text if text.isidentifier() or text.isdigit() else f"({text})")
        return None

    def _rendered(self, value: Expr, stem: str) -> str:
        """The text of a value, the names of whose parts begin with a stem."""
        return bare(self.body.writer.render(self._value(value), stem))

    def _is_local(self, name: str) -> bool:
        """True of arrays and registers of the kernel, whose names no value of its group has."""
        return name in self._arrays or name in self._names

    def _place(self, read: ElementRead) -> str:
        """The text of a register, or of an element of an array or of memory."""
        if read.buffer in self._names:
            return self._names[read.buffer].template
        if read.buffer in self._arrays:
            return read.buffer + "".join(f"[{self.sum_text(one)}]" for one in _sums(read))
        place = offset(_sums(read), self.body.group.operands[read.buffer].strides)
        return f"{self.body.pointer(read.buffer)}[{self.sum_text(place)}]"

    # ---- lines ------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Write a line."""
        self.body.writer.line(text)

    def block(self, head: str) -> AbstractContextManager[None]:
        """Lines in braces after a head."""
        return self.body.writer.block(head)

    def constant(self, type: str, name: str, text: str) -> None:
        """Define a constant under a name that a tree gives."""
        self.line(f"const {type} {name} = {text};")

    def sum_of(self, index: AffineIndex) -> AffineIndex:
        """A sum as it is: coordinates are in the variables of the kernel."""
        return index

    def sum_text(self, index: AffineIndex) -> str:
        """A sum of variables of the kernel as text; one that the tree has named is that name."""
        named: str | None = self.body.writer.recall(("sum", index))
        return named or self.body.writer.index(index)


def _sums(read: ElementRead) -> tuple[AffineIndex, ...]:
    """The subscripts of an element of a group, which no elements decide."""
    return tuple(one for one in read.subscripts if isinstance(one, AffineIndex))
