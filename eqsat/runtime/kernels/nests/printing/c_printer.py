"""Trees of loops as functions of C."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import STORED, Expr, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.nests.computation import Computation, ElementRead, KernelBuffer, substituted
from eqsat.runtime.kernels.nests.extents import Extent, fixed, is_free, largest, number_or_sum, product_at, sum_of
from eqsat.runtime.kernels.nests.options import Blas
from eqsat.runtime.kernels.nests.printing.dialects import GnuC
from eqsat.runtime.kernels.nests.printing.nodes import REDUCED, NodePrinter, updated
from eqsat.runtime.kernels.nests.printing.vector_types import definitions, narrow_definitions
from eqsat.runtime.kernels.nests.printing.vectors import VectorPrinter, VectorTypes
from eqsat.runtime.kernels.nests.tree import Gemm, Gemv, Guard, LaneFold, Local, Loop, Node, Prefetch, Vector
from eqsat.runtime.kernels.writer import bare

#: Bytes at whose multiples buffers of the workspace begin.
ALIGNMENT = 64
#: Rows or columns of which a thread's part of a product is a multiple.
_BLOCK = 16
#: The variable of a library that keeps its loops to one thread.
ALONE = "alone_"
#: Arrays of more bytes are no variables of a function.
MOST_ON_STACK = 1 << 18


#: Texts that say that a function failed.
_FAILING = re.compile(r"\bfailed = 1\b|\b(INSIDE|CHECKED)\b")


@dataclass(frozen=True)
class FunctionText:
    """A function of C: the types of vectors that it takes, its text, its name, and the bytes of its workspace.

    It takes a pointer to each operand, then to each result, then an int for each of its sizes, then the workspace, and
    returns 0, or 1 where a subscript passed its bounds or an integer was divided by 0. `blas` are the libraries that it
    calls. `free` are the temporaries whose bytes in the workspace, behind those that are always there, depend on sizes.
    """

    vectors: tuple[str, ...]
    code: str
    name: str
    arguments: tuple[str, ...]
    workspace: int
    blas: frozenset[Blas] = frozenset()
    sizes: tuple[str, ...] = ()
    free: tuple[KernelBuffer, ...] = ()

    def workspace_at(self, sizes: Sequence[int]) -> int:
        """The bytes of the workspace for values of the sizes."""
        known = dict(zip(self.sizes, sizes, strict=True))
        counts = [product_at(one.shape, known) * one.dtype.itemsize for one in self.free]
        return self.workspace + sum(-(-count // ALIGNMENT) * ALIGNMENT for count in counts)

    @property
    def entry(self) -> str:
        """The function that takes all pointers in one array, which a library exports."""
        return f"{self.name}_entry"

    @property
    def array_entry(self) -> str:
        """The function that takes arrays of NumPy, as objects, and the workspace."""
        return f"{self.name}_arrays"

    @property
    def can_fail(self) -> bool:
        """True if it may return 1, its results unfinished."""
        return _FAILING.search(self.code) is not None

    @property
    def complete(self) -> str:
        """All that is compiled."""
        return translation_unit([self])


@cache
def _shipped(name: str) -> str:
    return files("eqsat.runtime.kernels.nests").joinpath(name).read_text(encoding="utf-8")


def translation_unit(functions: Sequence[FunctionText], calls: str = "") -> str:
    """The text of a library of functions of different names: each with its entry, or with the `calls` of all."""
    called = sorted({library for one in functions for library in one.blas})
    blas = [_shipped("blas.h"), *(f"BLAS({library})" for library in called)] if called else []
    shared = [f"int {ALONE} = 0;"] if any("#pragma omp" in one.code for one in functions) else []
    texts = [_shipped("prelude.h"), *shared, *blas, *dict.fromkeys(text for one in functions for text in one.vectors)]
    if calls:
        return "\n".join([*texts, *(one.code for one in functions), calls])
    for one in functions:
        first, last = len(one.arguments), len(one.arguments) + len(one.sizes)
        passed = [f"(int)(i64)p[{number}]" for number in range(first, last)]
        pointers = ", ".join([*(f"p[{number}]" for number in range(first)), *passed, f"p[{last}]"])
        texts += [one.code, f"int {one.entry}(void *const *p) {{ return {one.name}({pointers}); }}\n"]
        names = [f"a{number}" for number in range(len(one.arguments))]
        sizes = [f"n{number}" for number in range(len(one.sizes))]
        parameters = ", ".join([*(f"void *{name}" for name in (*names, *sizes)), "void *workspace"])
        data = ", ".join([*(f"DATA({name})" for name in names), *(f"(int)(i64){name}" for name in sizes), "workspace"])
        texts.append(f"int {one.array_entry}({parameters}) {{ return {one.name}({data}); }}\n")
    return "\n".join(texts)


def c_function(computation: Computation, nodes: Sequence[Node], threads: int = 1) -> FunctionText:
    """The text of a scheduled computation."""
    return _CPrinter(computation, threads).function(nodes)


class _CPrinter(NodePrinter):
    def __init__(self, computation: Computation, threads: int) -> None:
        super().__init__(computation, GnuC())
        self.threads = threads
        self._vectors = VectorTypes()
        self._blas: set[Blas] = set()
        self._shared = 0

    def function(self, nodes: Sequence[Node]) -> FunctionText:
        """The function of a tree."""
        computation = self.computation
        self.lines.add("int failed = 0;")
        self._tables()
        workspace, free = self._temporaries()
        self.nodes(nodes)
        self.lines.add("return failed;")
        parameters = []
        for names, constant in ((computation.operands, "const "), (computation.results, "")):
            parameters += [f"{constant}{STORED[computation.buffers[n].dtype]} *restrict {n}" for n in names]
        parameters += [f"const int {name}" for name in computation.sizes]
        joined = ",\n    ".join([*parameters, "unsigned char *restrict workspace"])
        head = f"static int {computation.name}(\n    {joined}) {{"
        code = "\n".join([head, *self.lines.text, "}", ""])
        vectors = [definitions(dtype, lanes) for dtype, lanes in sorted(self._vectors.whole, key=str)]
        vectors += [narrow_definitions(dtype, lanes) for dtype, lanes in sorted(self._vectors.narrow, key=str)]
        arguments = (*computation.operands, *computation.results)
        blas, sizes = frozenset(self._blas), computation.sizes
        return FunctionText(tuple(vectors), code, computation.name, arguments, workspace, blas, sizes, free)

    def _tables(self) -> None:
        """Define the buffers whose elements are known."""
        for buffer in self.computation.buffers.values():
            if buffer.role == "table":
                texts = ", ".join(number(element, buffer.dtype).template for element in buffer.elements)
                self.lines.add(f"static const {STORED[buffer.dtype]} {buffer.name}[{buffer.count}] = {{{texts}}};")

    def _temporaries(self) -> tuple[int, tuple[KernelBuffer, ...]]:
        """Define the temporaries: the bytes of those that are always there, and those whose bytes depend on sizes."""
        buffers = [self.computation.buffers[name] for name in self.computation.temporaries]
        free = tuple(one for one in buffers if one.is_free)
        workspace, places = 0, list[str]()
        for buffer in [*(one for one in buffers if not one.is_free), *free]:
            type_ = STORED[buffer.dtype]
            place = " + ".join([str(workspace), *places])
            self.lines.add(f"{type_} *restrict {buffer.name} = ({type_} *)(workspace + {place});")
            if buffer.is_free:
                count = " * ".join(f"({self.extent(extent)})" for extent in buffer.shape)
                bytes_ = f"(i64){buffer.dtype.itemsize} * {count}"
                places.append(f"({bytes_} + {ALIGNMENT - 1}) / {ALIGNMENT} * {ALIGNMENT}")
            else:
                workspace += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        return workspace, free

    def node(self, node: Node) -> None:
        """Write a statement."""
        match node:
            case Vector():
                self._vector(node)
            case LaneFold():
                self._fold(node)
            case Prefetch():
                self._prefetch(node)
            case Gemm():
                self._gemm(node)
            case Gemv():
                self._gemv(node)
            case Guard():
                texts = [f"{self.scalars.index_text(place)} >= {least}" for place, least in node.least]
                texts += [f"{self.scalars.index_text(place)} < {self.extent(bound)}" for place, bound in node.below]
                with self.lines.block(f"if ({' && '.join(texts)})"):
                    self.nodes(node.body)
            case Local(is_register=False, is_shared=False):
                aligned = f"__attribute__((aligned({ALIGNMENT})))"
                self.lines.add(f"{STORED[node.buffer.dtype]} {self.array(node)}[{node.buffer.count}] {aligned};")
            case Local(is_register=True) if node.lanes > 1:
                places = tuple(map(fixed, node.buffer.shape[:-1]))
                self.register(node, self._vectors.of(node.buffer.dtype, node.lanes), places)
            case _:
                super().node(node)

    def before_loop(self, node: Loop) -> None:
        """Write the directive that a loop takes, if any."""
        if node.kind == "parallel":
            if self._shared:
                self._shared -= 1  # one of those that the directive of an outer loop speaks of
                return
            nested = _nested(node)
            self._shared = nested - 1
            collapse = f" collapse({nested})" if nested > 1 else ""
            clauses = f"num_threads({self.threads}) if(!{ALONE}) schedule(static){collapse} reduction(|:failed)"
            self.lines.add(f"#pragma omp parallel for {clauses}")
        elif node.unroll > 1:
            self.lines.add(f"#pragma GCC unroll {min(node.unroll, largest(node.extent))}")

    def _vector(self, node: Vector) -> None:
        first = self.scalars.index(node.first)
        valid: int | str
        if isinstance(node.limit, int):
            valid = min(node.lanes, node.limit - first.constant)
            if valid <= 0:
                return
        else:
            left = self.scalars.index_text(substituted(node.limit, self.scalars.bound) - first)
            left = self.lines.define("int", "left_v", left)
            valid = self.lines.define("int", "lanes_v", f"{left} < {node.lanes} ? {left} : {node.lanes}")
        for one in node.body:
            self.scalars.environment = one.environment
            value = updated(one)
            printer = VectorPrinter(self.scalars, node.variable, value.dtype, node.lanes, valid, self._vectors)
            text = printer.vector(value)
            registers = self.memory.registers.get(one.target.buffer)
            if registers is not None:
                place = [
                    self.scalars.index(s).constant for s in one.target.subscripts[:-1] if isinstance(s, AffineIndex)
                ]
                self.lines.add(f"{registers[tuple(place)]} = {bare(text)};")
            else:
                printer.store(one.target, text)

    def _prefetch(self, node: Prefetch) -> None:
        self.scalars.environment = node.environment
        address = f"{self.memory.texts[node.element.buffer]} + {self.scalars.offset(node.element, False)}"
        distance = node.distance // node.element.dtype.itemsize
        self.lines.add(f"__builtin_prefetch({address} + {distance}, 0, 2);")

    def _gemm(self, node: Gemm) -> None:
        """A call as FORTRAN has it, whose matrices are stored column after column: of the transposed matrices."""
        self.scalars.environment = node.environment
        rows, columns, summed = node.sizes
        a, b, c = node.steps
        by_rows = is_free(rows) or (not is_free(columns) and fixed(rows) >= fixed(columns))
        steps = (1 if node.transposed[0] else a, 0, c) if by_rows else (0, b if node.transposed[1] else 1, 1)
        with self._blocks(rows if by_rows else columns, node.threads) as (begin, count):
            first, second, target = self._parts(node.matrices, begin, steps)
            sizes = f"{self.extent(columns)}, {count}" if by_rows else f"{count}, {self.extent(rows)}"
            flags = ", ".join('"T"' if one else '"N"' for one in reversed(node.transposed))
            matrices = f"{second}, {b}, {first}, {a}, {int(node.is_updated)}, {target}, {c}"
            self.lines.add(f"multiply_{self._type_of(node)}({flags}, {sizes}, {self.extent(summed)}, {matrices});")
        self.lines.forget(self.memory.texts[node.matrices[2].buffer])

    def _gemv(self, node: Gemv) -> None:
        """A call as FORTRAN has it, to which a matrix that is stored row after row is the transposed one."""
        self.scalars.environment = node.environment
        rows, summed = node.sizes
        steps = node.steps
        with self._blocks(rows, node.threads) as (begin, count):
            by_row = (1 if node.is_transposed else steps[0], 0, steps[2])
            matrix, vector, target = self._parts(node.matrices, begin, by_row)
            length = self.extent(summed)
            sizes = f'"N", {count}, {length}' if node.is_transposed else f'"T", {length}, {count}'
            rest = f"{vector}, {steps[1]}, {int(node.is_updated)}, {target}, {steps[2]}"
            self.lines.add(f"multiply_vector_{self._type_of(node)}({sizes}, {matrix}, {steps[0]}, {rest});")
        self.lines.forget(self.memory.texts[node.matrices[2].buffer])

    @contextmanager
    def _blocks(self, extent: Extent, threads: int) -> Iterator[tuple[str, str]]:
        """A block for each thread's part of an extent: where that begins, and how much it is."""
        shares = _BLOCK * threads
        block = number_or_sum((sum_of(extent) + (shares - 1)) // shares * _BLOCK)
        if threads == 1 or (isinstance(extent, int) and fixed(block) >= extent):
            yield "", self.extent(extent)
            return
        whole, part = self.extent(extent), self.extent(block)
        if is_free(block):
            part = self.lines.define("int", "block_v", part)
        begin, count = self.lines.name("begin"), self.lines.name("count")
        self.lines.add(f"#pragma omp parallel for num_threads({threads}) if(!{ALONE}) schedule(static)")
        with self.lines.block(f"for (int {begin} = 0; {begin} < {whole}; {begin} += {part})"):
            left = f"{whole} - {begin}"
            self.lines.add(f"const int {count} = {left} < {part} ? {left} : {part};")
            yield begin, count

    def _parts(self, matrices: Sequence[ElementRead], begin: str, steps: Sequence[int]) -> list[str]:
        """The addresses of matrices, moved by a step for each row or column before where a part begins."""
        texts = [f"{self.memory.texts[one.buffer]} + {self.scalars.offset(one, False)}" for one in matrices]
        return [
            f"{text} + (long){begin} * {step}" if begin and step else text
            for text, step in zip(texts, steps, strict=True)
        ]

    def _type_of(self, node: Gemm | Gemv) -> str:
        """The library that is called, and the letter by which BLAS names the type of elements."""
        self._blas.add(node.library)
        letter = "s" if node.matrices[2].dtype is DType.FLOAT32 else "d"
        return f"{node.library}_{letter}"

    def _fold(self, node: LaneFold) -> None:
        self.scalars.environment = node.environment
        lanes = self.memory.lanes[node.source.buffer]
        name = self.memory.registers[node.source.buffer][self.scalars.vector_place(node.source)]
        dtype = node.target.dtype
        parts: list[Expr] = [Expr(dtype, f"{name}[{lane}]") for lane in range(lanes)]
        join = FUNCTIONS[REDUCED[node.reduction]]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [join(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        text = self.scalars.scalar(join(node.target, parts[0]))
        self.lines.add(f"{self.scalars.element(node.target, False)} = {bare(text)};")


def _nested(loop: Loop) -> int:
    """The loops whose rounds threads share together: one, and those of which each is all that is in the one around."""
    body = loop.body
    inner = body[0] if len(body) == 1 else None
    return 1 + (_nested(inner) if isinstance(inner, Loop) and inner.kind == "parallel" else 0)
