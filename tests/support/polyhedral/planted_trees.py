"""Computations and trees of loops written by hand, right ones and such with planted faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from eqsat.language.comprehension.extents.free import with_free
from eqsat.language.terms import DType
from eqsat.runtime.c.kernel import computation_of
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import number
from eqsat.runtime.kernels.nests.computation import Computation, ElementRead, KernelBuffer, KernelStatement, LoopAxis
from eqsat.runtime.kernels.nests.extents import Extent, is_several, largest
from eqsat.runtime.kernels.nests.scheduling.plain import plain
from eqsat.runtime.kernels.nests.scheduling.values import own_element
from eqsat.runtime.kernels.nests.tree import Assign, Local, Loop, Node
from tests.support.comprehensions.compiled_corpus import opened
from tests.support.comprehensions.comprehension_cases import Right

PRODUCT = """
def product(float(M,K) a, float(K,N) b) -> (c) { c(i,j) +=! a(i,k) * b(k,j) }
"""
RECTIFIED = """
def rectified(float(M,K) a, float(K,N) b) -> (c, r) {
  c(i,j) +=! a(i,k) * b(k,j)
  r(i,j) = fmaxf(c(i,j), 0.0)
}
"""
PAIR = """
def pair(float(M,N) a) -> (t, r) {
  t(i,j) = a(i,j) + 1.0
  r(i,j) = t(i,j) * 2.0
}
"""
FED = """
def fed(float(K,N) a, float(M,K) b) -> (t, c) {
  t(j,k) = a(k,j) + 1.0
  c(i,j) +=! b(i,k) * t(j,k)
}
"""


def computed(source: str, free: Sequence[str] = (), **sizes: int) -> Computation:
    """The computation of a source at sizes, some of which may be free."""
    program = Right(source, lambda: None, sizes)
    arguments, named = program.arguments(program.function)
    inferred = program.function.bind(arguments, named)[0]
    return computation_of(program.function, with_free(program.function, inferred, free) if free else inferred)


def of_program(program: Right, is_free: bool = False) -> Computation:
    """The computation of a program for the shapes of its arguments, with sizes that are free where they may be."""
    function = program.function
    arguments, named = program.arguments(function)
    inferred, tensors = function.bind(arguments, named)
    shapes = opened(function, inferred) if is_free else inferred
    return computation_of(function, shapes, [one for one in function.scope.updated if one in tensors])


def nest(statement: KernelStatement) -> Loop:
    """One loop for each index of a statement."""
    (made,) = plain(statement, {})
    assert isinstance(made, Loop)
    return made


def rebuilt_loop(loop: Loop, variable: str, change: Callable[[Loop], Node]) -> Loop:
    """A nest whose loop over a variable is changed."""
    body = []
    for node in loop.body:
        if isinstance(node, Loop):
            node = change(node) if node.variable == variable else rebuilt_loop(node, variable, change)
        body.append(node)
    return replace(loop, body=tuple(body))


def beginning(statement: KernelStatement) -> Loop:
    """Loops that write 0 to the elements of a statement."""
    node: Node = Assign(own_element(statement), number(0, statement.value.dtype))
    for axis in reversed(statement.kept):
        node = Loop(axis.name, axis.extent, (node,))
    assert isinstance(node, Loop)
    return node


def accumulating(statement: KernelStatement, sizes: Mapping[str, int], whole_only: bool = False) -> list[Node]:
    """Loops over tiles that add to elements in memory, with those of the rests unless whole ones alone are wanted."""
    return _tiles(statement, list(statement.axes), sizes, {}, [], whole_only)


def _tiles(
    statement: KernelStatement,
    axes: Sequence[LoopAxis],
    sizes: Mapping[str, int],
    at: dict[str, AffineIndex],
    points: list[tuple[str, Extent]],
    whole_only: bool,
) -> list[Node]:
    if not axes:
        node: Node = Assign(own_element(statement), statement.value, statement.reduction, at)
        for name, extent in reversed(points):
            node = Loop(name, extent, (node,))
        return [node]
    axis, *more = axes
    size = sizes[axis.name]
    whole, rest = axis.extent // size, axis.extent % size
    parts: list[tuple[Extent, Extent, Extent]] = [(whole, size, 0)]
    parts += [] if whole_only else [(1, rest, whole * size)]
    nodes: list[Node] = []
    for count, extent, start in parts:
        if count == 0 or extent == 0:
            continue
        tile, point = f"{axis.name}_t", f"{axis.name}_p"
        first = AffineIndex.variable(tile, largest(count)) * size + AffineIndex.variable(point, largest(extent)) + start
        inside = _tiles(statement, more, sizes, {**at, axis.name: first}, [*points, (point, extent)], whole_only)
        nodes += [Loop(tile, count, tuple(inside))] if is_several(count) else inside
    return nodes


def early_epilogue(computation: Computation, is_early: bool) -> list[Node]:
    """A product and its epilogue on one register, which is read in the last round of the sum, or in each."""
    product, epilogue = computation.statements
    dtype = product.value.dtype
    total = ElementRead.of("acc", dtype, ())
    update = Assign(total, product.value, "+")
    # The epilogue reads the register in place of the element that it holds.
    (read,) = [one for one in epilogue.value.operands if isinstance(one, ElementRead)]
    value = replace(epilogue.value, operands=tuple(total if one is read else one for one in epilogue.value.operands))
    (reduced,) = product.reduced
    after = [Assign(own_element(epilogue), value), Assign(own_element(product), total)]
    loop = Loop(reduced.name, reduced.extent, (update, *(after if is_early else ())), is_reduced=True)
    body: list[Node] = [Local(KernelBuffer("acc", dtype, (), "local"), True), Assign(total, number(0, dtype)), loop]
    if not is_early:
        body += after
    node: Node = Loop("j", product.kept[1].extent, tuple(body))
    return [Loop("i", product.kept[0].extent, (node,))]


def stencil(back: int, forth: int, rows: int = 6, columns: int = 7) -> Computation:
    """The update of a(i + back, j) in place from a(i, j + forth), row after row."""
    dtype = DType.FLOAT32
    i, j = LoopAxis("i", rows), LoopAxis("j", columns)
    buffers = {"a": KernelBuffer("a", dtype, (rows + back, columns + forth), "result")}
    value = ElementRead.of("a", dtype, (i.variable, j.variable + forth)) + number(1, dtype)
    statement = KernelStatement("a", (i.variable + back, j.variable), (i, j), "", True, value)
    return Computation("stencil", buffers, (statement,), (), ("a",))


def recurrence(extent: int = 40) -> Computation:
    """A row in which each element follows from the one before it."""
    dtype = DType.FLOAT32
    i = LoopAxis("i", extent)
    value = ElementRead.of("a", dtype, (i.variable,)) * number(0.5, dtype)
    statement = KernelStatement("a", (i.variable + 1,), (i,), "", True, value)
    return Computation("recurrence", {"a": KernelBuffer("a", dtype, (extent + 1,), "result")}, (statement,), (), ("a",))


def swapped(statement: KernelStatement) -> Loop:
    """A nest of two loops with the inner one outside."""
    outer = nest(statement)
    (inner,) = outer.body
    assert isinstance(inner, Loop)
    return replace(inner, body=(replace(outer, body=inner.body),))
