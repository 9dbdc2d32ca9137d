"""The statements of a generated kernel: any value of a group at any coordinates, computed from its operands.

A template says which element is wanted, and asks for it::

    body = KernelBody(group)
    i = AffineIndex.variable("i", count)
    body.writer.line("const int i = blockIdx.x * 256 + threadIdx.x;")
    coords = unflattened(i, shape)
    body.store("y", coords, body.value("y", coords))
    return body.source("relu_f16", grid=(blocks, 1, 1), threads=(256, 1, 1))

Where a template makes some value itself (a sum, a tile of a product), it says so before it asks for later values::

    body.give("sum", coords, Expr(DType.FLOAT32, "total"))
    for name in group.results:
        at = body.onward("sum", name, coords)
        body.store(name, at, body.value(name, at))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from eqsat.language.terms import Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, flattened, offset, unflattened
from eqsat.runtime.kernels.expressions.elements import is_pointwise
from eqsat.runtime.kernels.expressions.expression import (
    NARROW,
    STORED,
    Expr,
    UnsupportedError,
    computed,
    convert,
    held_in_fewer_bits,
    narrowing,
    number,
)
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.groupwise import pointwise
from eqsat.runtime.kernels.movement import MOVES
from eqsat.runtime.kernels.source import Extent, KernelSource
from eqsat.runtime.kernels.statements import Statements
from eqsat.runtime.kernels.view import WIDEST_ACCESS, View
from eqsat.runtime.kernels.writer import bare

#: Makes an element of a value whose operator a template computes itself.
Producer = Callable[[Coords], Expr]
#: The variable that numbers the elements a thread makes side by side.
LANE = "k"
#: The most threads a block has, unless a template says otherwise.
THREADS = 256


@dataclass(frozen=True)
class Access:
    """An element that is read from memory: of which value, where, and how far from the first one it lies.

    `conditional` where it is read in a block of its own, since at some coordinates there is no such element; `packed`
    where it is one of several read in one access.
    """

    value: str
    coords: Coords
    offset: AffineIndex
    conditional: bool
    packed: bool


class KernelBody(Statements):
    """A kernel of a group under construction. A method that needs an operation without C raises UnsupportedError."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.accesses: list[Access] = []
        self.makers = {v: (node, place) for node in group.nodes for place, v in enumerate(node.outputs) if v}
        self.producers: dict[str, Producer] = {}
        self._pointers: dict[str, str] = {}
        self._pack_loop: tuple[int, int] | None = None

    # ---- values ---------------------------------------------------------------------------------------------------

    def value(self, name: str, coords: Sequence[AffineIndex]) -> Expr:
        """The element of a value at coordinates, in the type it is computed in: a name of C, or a number."""
        coords = tuple(coords)
        known: Expr | None = self.writer.recall((name, coords))
        if known is None:
            known = self.named(self._made(name, coords), self.stem(name))
            self.writer.remember((name, coords), known)
        return known

    def stem(self, name: str) -> str:
        """The beginning of names for elements of a value: the operator that makes it."""
        return self.makers[name][0].op if name in self.makers else "value"

    def _made(self, name: str, coords: Coords) -> Expr:
        constant = self.group.constants.get(name)
        if constant is not None and constant.type.size == 1:
            return number(constant.array.reshape(())[()], computed(constant.type.dtype))
        if name in self.producers:
            return self.producers[name](coords)
        if name not in self.makers:
            return self.load(name, coords)
        node, place = self.makers[name]
        if is_pointwise(node):
            return self._pointwise(node, name, coords)
        move = MOVES.get(node.op)
        if move is None:
            raise UnsupportedError(f"{node.op} within a kernel")
        return move(self, node, place, coords)

    def _pointwise(self, node: Node, name: str, coords: Coords) -> Expr:
        return self.named(
            pointwise(self, self.group, node, name, coords), node.op, told(node) if node.op != "cast" else ""
        )

    def give(self, name: str, coords: Sequence[AffineIndex], value: Expr) -> None:
        """Define the element of a value at coordinates, until the block ends."""
        self.writer.remember((name, tuple(coords)), value)

    def produce(self, name: str, producer: Producer) -> None:
        """Give the producer of a value's elements; it writes the statements it needs and returns the element."""
        self.producers[name] = producer

    # ---- memory ---------------------------------------------------------------------------------------------------

    def load(self, name: str, coords: Sequence[AffineIndex]) -> Expr:
        """The element of an operand at coordinates, read from memory."""
        view = self.group.operands.get(name)
        if view is None:
            raise UnsupportedError(f"{name} is not in memory")
        coords = tuple(coords)
        place = offset(coords, view.strides)
        text: str | None = self.writer.recall(("held", name, coords))
        pack = None if text is not None else self._pack(name, place)
        self.accesses.append(Access(name, coords, place, self.writer.depth > self._depth, pack is not None))
        text = text or pack or f"{self.pointer(name)}[{self.writer.index(place)}]"
        return self.named(self.read(name, text), f"{self.pointer(name)}_at")

    @property
    def _depth(self) -> int:
        return self._pack_loop[0] if self._pack_loop is not None else 0

    @contextmanager
    def side_by_side(self, width: int) -> Iterator[None]:
        """A loop over k, for that many elements: operands in which they follow each other are read in one access."""
        with self.writer.loop(f"for (int {LANE} = 0; {LANE} < {width}; ++{LANE})", LANE, unroll=True):
            self._pack_loop = self.writer.depth, width
            yield
            self._pack_loop = None

    def _pack(self, name: str, place: AffineIndex) -> str | None:
        """The element of the lane that is written, of several elements read at once; None where they lie apart.

        Where conditions hold for all lanes or for none, the access is made where they hold.
        """
        if self._pack_loop is None or self._pack_loop[0] + len(self.conditions) != self.writer.depth:
            return None
        width, view = self._pack_loop[1], self.group.operands[name]
        if width == 1 or not fits(view, place, width):
            return None
        first, condition = self.writer.index(place.without(LANE)), " && ".join(self.conditions)
        if not self.writer.is_constant(f"{first} {condition}"):
            return None
        pointer, type = self.pointer(name), f"Pack<{STORED[view.dtype]}, {width}>"
        text = f"load<{width}>({pointer} + {first})"
        if condition:
            text = f"{condition} ? {text} : {type}{{}}"
        return self.writer.define(type, f"{pointer}_pack", text, safe=True) + f".at[{LANE}]"

    def hold(self, operand: str, coords: Coords, text: str) -> None:
        """Define the text of C for an element of an operand as it lies in memory, until the block ends."""
        self.writer.remember(("held", operand, coords), text)

    def read(self, name: str, text: str) -> Expr:
        """The value of an operand that C reads as `text`, in the type that it is computed in."""
        view = self.group.operands[name]
        dtype = computed(view.dtype)
        text = f"widen({text})" if view.dtype in NARROW else text
        return convert(Expr(dtype, text), computed(self.group.types[name].dtype))

    def stored(self, name: str, value: Expr) -> str:
        """The text of a value as an element of a result in memory."""
        view = self.group.results[name]
        text = self.writer.render(convert(value, computed(view.dtype)), "stored")
        if view.dtype not in NARROW:
            return bare(text)
        is_held = held_in_fewer_bits(self.group.types[name].dtype, view.dtype)
        return narrowing(view.dtype, bare(text), is_held=is_held)

    def store(self, name: str, coords: Sequence[AffineIndex], value: Expr) -> None:
        """Write an element of a result."""
        place = offset(tuple(coords), self.group.results[name].strides)
        text = self.stored(name, value)
        self.writer.line(f"{self.pointer(name)}[{self.writer.index(place)}] = {text};")

    def pointer(self, name: str) -> str:
        """The parameter that points to an operand or a result."""
        stem = "out" if name in self.group.results else "in"
        count = sum(p.startswith(stem) for p in self._pointers.values())
        return self._pointers.setdefault(name, f"{stem}{count}")

    # ---- coordinates ----------------------------------------------------------------------------------------------

    def onward(self, source: str, target: str, coords: Sequence[AffineIndex]) -> Coords:
        """The coordinates in `target` of an element of `source`, where operators that keep every element lead."""
        if source == target:
            return tuple(coords)
        node, _ = self.makers.get(target, (None, 0))
        if node is None:
            raise UnsupportedError(f"{target} is not made of {source}")
        for operand in node.inputs:
            if operand is not None and self.depends(operand, source):
                at = self.onward(source, operand, coords)
                return self._forward(node, operand, target, at)
        raise UnsupportedError(f"{target} is not made of {source}")

    def depends(self, value: str, source: str) -> bool:
        """Return whether a value is made of another, or is it itself."""
        seen, waiting = set[str](), [value]
        while waiting:
            current = waiting.pop()
            if current == source:
                return True
            if current not in seen and current in self.makers:
                seen.add(current)
                waiting += [v for v in self.makers[current][0].inputs if v is not None]
        return False

    def _forward(self, node: Node, operand: str, target: str, coords: Coords) -> Coords:
        before, after = self.shape(operand), self.shape(target)
        if node.op == "transpose":
            return tuple(coords[p] for p in node.attrs["perm"])
        if node.op == "reshape":
            return unflattened(flattened(coords, before), after)
        if (is_pointwise(node) or node.op == "identity") and before == after:
            return coords
        raise UnsupportedError(f"{node.op} after what is computed")

    # ---- the whole ------------------------------------------------------------------------------------------------

    def store_made(self, made: str, names: Iterable[str], coords: Coords, value: Expr) -> None:
        """Store the results of those names, given the element of the value that they are made of."""
        self.give(made, coords, value)
        for name in names:
            at = self.onward(made, name, coords)
            self.store(name, at, self.value(name, at))

    def store_at(self, names: Iterable[str], coords: Sequence[AffineIndex]) -> None:
        """Store the elements of results at the same coordinates."""
        for name in names:
            self.store(name, coords, self.value(name, coords))

    def source(self, entry: str, grid: Extent, threads: Extent, shared: int = 0) -> KernelSource:
        """The kernel, once all is written; it takes all results, also those of no elements."""
        for name in self.group.results:
            self.pointer(name)
        read = {n: p for n, p in self._pointers.items() if n not in self.group.results}
        written = {n: p for n, p in self._pointers.items() if n in self.group.results}
        parameters = [f"const {STORED[self.group.operands[n].dtype]}* __restrict__ {p}" for n, p in read.items()]
        parameters += [f"{STORED[self.group.results[n].dtype]}* __restrict__ {p}" for n, p in written.items()]
        count = threads[0] * threads[1] * threads[2]
        head = f'extern "C" __global__ void __launch_bounds__({count}) {entry}('
        body = "\n".join("  " + line for line in self.writer.text().splitlines())
        code = f"{head}{_wrapped(parameters)}) {{\n{body}\n}}\n"
        return KernelSource(entry, code, (*read, *written), grid, threads, shared, comment(self.group))


def _wrapped(parameters: list[str]) -> str:
    joined = ", ".join(parameters)
    return joined if len(joined) < 60 else "\n    " + ",\n    ".join(parameters)


def entry_name(group: Group) -> str:
    """A name for the kernel of a group: its operators, and the element type of the first result."""
    operators = [n.op.strip("_") for n in group.nodes]
    shown = operators if len(operators) <= 4 else [*operators[:3], f"{len(operators) - 3}_more"]
    stored = next((STORED[v.dtype] for v in group.results.values() if v.dtype in STORED), "")
    name = "_".join([*shown, _SHORT.get(stored, stored)])
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


_SHORT = {"float": "f32", "double": "f64"}


def fits(view: View, place: AffineIndex, width: int) -> bool:
    """Return whether `width` elements, numbered by LANE, follow each other from an aligned address."""
    size, rest = width * view.dtype.itemsize, place.without(LANE)
    if place.coefficient(LANE) != 1 or rest.reads(LANE) or size > WIDEST_ACCESS or view.alignment % size:
        return False
    return math.gcd(rest.constant, *(c for _, c in rest.terms)) % width == 0


def told(node: Node) -> str:
    """An operator and its attributes, for a comment; nothing where it has none."""
    attrs = ", ".join(f"{k}={v}" for k, v in node.attrs.items())
    # A backslash or the end of a line would make something else of the lines that follow.
    return ascii(f"{node.op}: {attrs}")[1:-1].replace("\\", "/") if attrs else ""


def comment(group: Group) -> str:
    """A comment with the operators of a kernel, in the graph's names."""
    lines = []
    for node in group.nodes:
        operands = ", ".join(v or "" for v in node.inputs)
        results = ", ".join(v or "_" for v in node.outputs)
        lines.append(f"{results} = {node.op}({operands})" + (f"  [{node.name}]" if node.name else ""))
    return "\n".join(lines)
