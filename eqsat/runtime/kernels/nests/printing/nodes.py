"""Nodes of trees of loops as statements, those that C and CUDA C++ have in common."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import C_TYPES, Expr, UnsupportedError
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.nests.computation import Computation, KernelBuffer
from eqsat.runtime.kernels.nests.extents import Extent, fixed
from eqsat.runtime.kernels.nests.printing.dialects import Dialect
from eqsat.runtime.kernels.nests.printing.lines import Lines
from eqsat.runtime.kernels.nests.printing.scalars import NamedBuffers, ScalarPrinter
from eqsat.runtime.kernels.nests.tree import Assign, Local, Loop, Node
from eqsat.runtime.kernels.writer import bare

#: Functions of elements by the operators of reductions.
REDUCED = {"+": "add", "*": "multiply", "min": "minimum", "max": "maximum"}


class NodePrinter:
    """Statements of a tree, written one after the other; each language adds its own nodes."""

    def __init__(self, computation: Computation, dialect: Dialect) -> None:
        self.computation = computation
        self.lines = Lines()
        self.memory = NamedBuffers(dict(computation.buffers), {name: name for name in computation.buffers})
        self.scalars = ScalarPrinter(self.lines, self.memory, dialect)
        for name in (*computation.buffers, computation.name, *computation.sizes):
            self.lines.name(name)

    def nodes(self, nodes: Sequence[Node]) -> None:
        """Write statements in their order."""
        for one in nodes:
            self.node(one)

    def node(self, node: Node) -> None:
        """Write a statement."""
        match node:
            case Loop(kind="unrolled"):
                for number in range(fixed(node.extent)):
                    self.scalars.bound[node.variable] = AffineIndex.number(number)
                    self.nodes(node.body)
                self.scalars.bound.pop(node.variable, None)
            case Loop(extent=1):
                # A variable of one value is put in as 0.
                with self.lines.block(""):
                    self.nodes(node.body)
            case Loop():
                self.before_loop(node)
                name = node.variable
                with self.lines.block(f"for (int {name} = 0; {name} < {self.extent(node.extent)}; ++{name})"):
                    self.nodes(node.body)
            case Local(is_register=True, lanes=1):
                self.register(node, C_TYPES[node.buffer.dtype], tuple(map(fixed, node.buffer.shape)))
            case Assign():
                self.assign(node)
            case _:
                raise UnsupportedError(f"{type(node).__name__} in this language")

    def extent(self, extent: Extent) -> str:
        """An extent as text."""
        return str(extent) if isinstance(extent, int) else self.scalars.index_text(extent)

    def before_loop(self, node: Loop) -> None:
        """Write the directive that a loop takes, if any."""

    def register(self, node: Local, type: str, shape: Sequence[int]) -> None:
        """Write a variable for each place of a shape."""
        self._known(node)
        names = {place: self.lines.name("_".join([node.buffer.name, *map(str, place)])) for place in _places(shape)}
        self.memory.registers[node.buffer.name] = names
        self.lines.add(f"{type} {', '.join(names.values())};")

    def array(self, node: Local) -> str:
        """The name of a new array."""
        self._known(node)
        name = self.memory.texts[node.buffer.name] = self.lines.name(node.buffer.name)
        return name

    def _known(self, node: Local) -> None:
        buffer: KernelBuffer = node.buffer
        self.memory.buffers[buffer.name] = buffer
        self.memory.registers.pop(buffer.name, None)
        self.memory.lanes[buffer.name] = node.lanes

    def assign(self, node: Assign) -> None:
        """Write an assignment to an element."""
        self.scalars.environment = node.environment
        text = self.scalars.scalar(updated(node))
        if node.target.buffer in self.memory.registers:
            self.lines.add(f"{self.scalars.element(node.target, False)} = {bare(text)};")
            return
        buffer = self.memory.buffers[node.target.buffer]
        name = self.memory.texts[node.target.buffer]
        place = self.scalars.offset(node.target, False)
        self.lines.add(f"{name}[{place}] = {self.scalars.stored(buffer, text)};")
        self.lines.forget(name)


def updated(node: Assign) -> Expr:
    """The value that is assigned, with what the target holds where it is reduced."""
    return FUNCTIONS[REDUCED[node.reduction]](node.target, node.value) if node.reduction else node.value


def _places(shape: Sequence[int]) -> list[tuple[int, ...]]:
    places: list[tuple[int, ...]] = [()]
    for extent in shape:
        places = [(*place, number) for place in places for number in range(extent)]
    return places
