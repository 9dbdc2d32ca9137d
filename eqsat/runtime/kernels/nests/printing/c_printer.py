"""Trees of loops as functions of C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import C_TYPES, STORED, Expr
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.printing.lines import Lines, bare
from eqsat.runtime.kernels.nests.printing.scalars import Memory, ScalarPrinter
from eqsat.runtime.kernels.nests.printing.vectors import VectorPrinter, definitions, vector_type
from eqsat.runtime.kernels.nests.tree import Assign, Fold, Gemm, Local, Loop, Node, Vector

#: Bytes at whose multiples buffers of the workspace begin.
ALIGNMENT = 64
#: Arrays of more bytes are no variables of a function.
MOST_ON_STACK = 1 << 18
_REDUCED = {"+": "add", "*": "multiply", "min": "minimum", "max": "maximum"}


@dataclass(frozen=True)
class FunctionText:
    """A function of C: the types of vectors that it takes, its text, its name, and the bytes of its workspace.

    It takes a pointer to each operand, then to each result, then the workspace, and returns 0, or 1 where a subscript
    passed its bounds or an integer was divided by 0.
    """

    vectors: tuple[str, ...]
    code: str
    name: str
    arguments: tuple[str, ...]
    workspace: int
    calls_blas: bool = False

    @property
    def entry(self) -> str:
        """The function that takes all pointers in one array, which a library exports."""
        return f"{self.name}_entry"

    @property
    def array_entry(self) -> str:
        """The function that takes arrays of NumPy, as objects, and the workspace."""
        return f"{self.name}_arrays"

    @property
    def complete(self) -> str:
        """All that is compiled."""
        return translation_unit([self])


@cache
def _shipped(name: str) -> str:
    return files("eqsat.runtime.kernels.nests").joinpath(name).read_text(encoding="utf-8")


def translation_unit(functions: Sequence[FunctionText]) -> str:
    """The text of a library of functions of different names, each with its entry."""
    blas = [_shipped("blas.h")] if any(one.calls_blas for one in functions) else []
    texts = [_shipped("prelude.h"), *blas, *dict.fromkeys(text for one in functions for text in one.vectors)]
    for one in functions:
        pointers = ", ".join(f"p[{number}]" for number in range(len(one.arguments) + 1))
        texts += [one.code, f"int {one.entry}(void *const *p) {{ return {one.name}({pointers}); }}\n"]
        names = [f"a{number}" for number in range(len(one.arguments))]
        parameters = ", ".join([*(f"void *{name}" for name in names), "void *workspace"])
        data = ", ".join([*(f"DATA({name})" for name in names), "workspace"])
        texts.append(f"int {one.array_entry}({parameters}) {{ return {one.name}({data}); }}\n")
    return "\n".join(texts)


def c_function(computation: Computation, nodes: Sequence[Node], threads: int = 1) -> FunctionText:
    """The text of a scheduled computation."""
    return _CPrinter(computation, threads).function(nodes)


class _CPrinter:
    def __init__(self, computation: Computation, threads: int) -> None:
        self.computation, self.threads = computation, threads
        self.lines = Lines()
        self.memory = Memory(dict(computation.buffers), {name: name for name in computation.buffers})
        self.scalars = ScalarPrinter(self.lines, self.memory)
        self._vectors: set[tuple[DType, int]] = set()
        self._blas: set[str] = set()
        for name in (*computation.buffers, computation.name):
            self.lines.name(name)

    def function(self, nodes: Sequence[Node]) -> FunctionText:
        """The function of a tree."""
        computation = self.computation
        workspace = 0
        self.lines.add("int failed = 0;")
        for name in computation.temporaries:
            buffer = computation.buffers[name]
            type_ = STORED[buffer.dtype]
            self.lines.add(f"{type_} *restrict {name} = ({type_} *)(workspace + {workspace});")
            workspace += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        for node in nodes:
            self._node(node)
        self.lines.add("return failed;")
        parameters = []
        for names, constant in ((computation.operands, "const "), (computation.results, "")):
            parameters += [f"{constant}{STORED[computation.buffers[n].dtype]} *restrict {n}" for n in names]
        joined = ",\n    ".join([*parameters, "unsigned char *restrict workspace"])
        head = f"static int {computation.name}(\n    {joined}) {{"
        code = "\n".join([head, *self.lines.text, "}", ""])
        vectors = tuple(definitions(dtype, lanes) for dtype, lanes in sorted(self._vectors, key=str))
        arguments = (*computation.operands, *computation.results)
        return FunctionText(vectors, code, computation.name, arguments, workspace, bool(self._blas))

    def _node(self, node: Node) -> None:
        match node:
            case Loop(kind="unrolled"):
                for number in range(node.extent):
                    self.scalars.bound[node.variable] = AffineIndex.number(number)
                    self._body(node.body)
                self.scalars.bound.pop(node.variable, None)
            case Loop(extent=1):
                # A variable of one value is put in as 0.
                with self.lines.block(""):
                    self._body(node.body)
            case Loop():
                self._loop(node)
            case Vector():
                self._vector(node)
            case Local():
                self._local(node)
            case Assign():
                self._assign(node)
            case Fold():
                self._fold(node)
            case Gemm():
                self._gemm(node)

    def _body(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._node(node)

    def _loop(self, node: Loop) -> None:
        if node.kind == "parallel":
            self.lines.add(f"#pragma omp parallel for num_threads({self.threads}) schedule(static) reduction(|:failed)")
        elif node.unroll > 1:
            self.lines.add(f"#pragma GCC unroll {min(node.unroll, node.extent)}")
        name = node.variable
        with self.lines.block(f"for (int {name} = 0; {name} < {node.extent}; ++{name})"):
            self._body(node.body)

    def _local(self, node: Local) -> None:
        buffer = node.buffer
        self.memory.buffers[buffer.name] = buffer
        self.memory.registers.pop(buffer.name, None)
        self.memory.lanes[buffer.name] = node.lanes
        if not node.is_register:
            name = self.lines.name(buffer.name)
            self.memory.texts[buffer.name] = name
            aligned = f"__attribute__((aligned({ALIGNMENT})))"
            self.lines.add(f"{STORED[buffer.dtype]} {name}[{buffer.count}] {aligned};")
            return
        shape = buffer.shape[:-1] if node.lanes > 1 else buffer.shape
        type_ = C_TYPES[buffer.dtype]
        if node.lanes > 1:
            type_ = vector_type(buffer.dtype, node.lanes)
            self._vectors.add((buffer.dtype, node.lanes))
        places = _places(shape)
        names = {place: self.lines.name("_".join([buffer.name, *map(str, place)])) for place in places}
        self.memory.registers[buffer.name] = names
        self.lines.add(f"{type_} {', '.join(names.values())};")

    def _assign(self, node: Assign) -> None:
        self.scalars.environment = node.environment
        value = _updated(node)
        text = self.scalars.scalar(value)
        if node.target.buffer in self.memory.registers:
            self.lines.add(f"{self.scalars.element(node.target, False)} = {bare(text)};")
            return
        buffer = self.memory.buffers[node.target.buffer]
        name = self.memory.texts[node.target.buffer]
        place = self.scalars.offset(node.target, False)
        self.lines.add(f"{name}[{place}] = {self.scalars.stored(buffer, text)};")
        self.lines.forget(name)

    def _vector(self, node: Vector) -> None:
        first = self.scalars.index(node.first)
        valid = min(node.lanes, node.limit - first.constant)
        if valid <= 0:
            return
        for one in node.body:
            self.scalars.environment = one.environment
            value = _updated(one)
            printer = VectorPrinter(self.scalars, node.variable, value.dtype, node.lanes, valid)
            self._vectors.add((value.dtype, node.lanes))
            text = printer.vector(value)
            registers = self.memory.registers.get(one.target.buffer)
            if registers is not None:
                place = [
                    self.scalars.index(s).constant for s in one.target.subscripts[:-1] if isinstance(s, AffineIndex)
                ]
                self.lines.add(f"{registers[tuple(place)]} = {bare(text)};")
            else:
                printer.store(one.target, text)

    def _gemm(self, node: Gemm) -> None:
        """A call as FORTRAN has it, whose matrices are stored column after column: of the transposed matrices."""
        self.scalars.environment = node.environment
        first, second, target = (
            f"{self.memory.texts[one.buffer]} + {self.scalars.offset(one, False)}" for one in node.matrices
        )
        rows, columns, summed = node.sizes
        a, b, c = node.steps
        letter = "s" if node.matrices[2].dtype is DType.FLOAT32 else "d"
        self._blas.add(letter)
        flags = ", ".join('"T"' if one else '"N"' for one in reversed(node.transposed))
        matrices = f"{second}, {b}, {first}, {a}, {int(node.is_updated)}, {target}, {c}"
        self.lines.add(f"multiply_{letter}({flags}, {columns}, {rows}, {summed}, {matrices});")
        self.lines.forget(self.memory.texts[node.matrices[2].buffer])

    def _fold(self, node: Fold) -> None:
        self.scalars.environment = node.environment
        lanes = self.memory.lanes[node.source.buffer]
        name = self.memory.registers[node.source.buffer][self.scalars.vector_place(node.source)]
        dtype = node.target.dtype
        parts: list[Expr] = [Expr(dtype, f"{name}[{lane}]") for lane in range(lanes)]
        join = FUNCTIONS[_REDUCED[node.reduction]]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [join(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        text = self.scalars.scalar(join(node.target, parts[0]))
        self.lines.add(f"{self.scalars.element(node.target, False)} = {bare(text)};")


def _updated(node: Assign) -> Expr:
    """The value that is assigned, with what the target holds where it is reduced."""
    return FUNCTIONS[_REDUCED[node.reduction]](node.target, node.value) if node.reduction else node.value


def _places(shape: Sequence[int]) -> list[tuple[int, ...]]:
    places: list[tuple[int, ...]] = [()]
    for extent in shape:
        places = [(*place, number) for place in places for number in range(extent)]
    return places
