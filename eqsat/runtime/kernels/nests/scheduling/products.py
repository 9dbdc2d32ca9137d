"""Products of matrices among statements, which BLAS computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer, KernelStatement, LoopAxis
from eqsat.runtime.kernels.nests.extents import is_several
from eqsat.runtime.kernels.nests.options import Blas
from eqsat.runtime.kernels.nests.scheduling.strides import depends, stride
from eqsat.runtime.kernels.nests.scheduling.values import own_element
from eqsat.runtime.kernels.nests.tree import Gemm, Gemv, Loop, Node


def product(
    statement: KernelStatement, buffers: Mapping[str, KernelBuffer], library: Blas = "scipy"
) -> list[Node] | None:
    """The calls of a library for a statement, in loops over the indices that all its tensors have; None for no product.

    One index has to be of the first operand and the target, one of the second and the target, and one is summed over;
    where one of the first two has one value, it is a product with a vector.
    """
    value, dtype = statement.value, statement.value.dtype
    if statement.reduction != "+" or value.template != "({0} * {1})" or dtype not in (DType.FLOAT32, DType.FLOAT64):
        return None
    first, second = value.operands
    target = own_element(statement)
    if not isinstance(first, ElementRead) or not isinstance(second, ElementRead):
        return None
    names = {axis.name for axis in statement.axes}
    if not all(_is_matrix(one, dtype, names, buffers) for one in (first, second, target)):
        return None
    rows = [axis for axis in statement.kept if depends(first, axis.name) and not depends(second, axis.name)]
    columns = [axis for axis in statement.kept if depends(second, axis.name) and not depends(first, axis.name)]
    shared = [axis for axis in statement.kept if axis not in rows and axis not in columns and is_several(axis.extent)]
    summed = [axis for axis in statement.reduced if is_several(axis.extent)]
    if len(summed) != 1 or len(rows) > 1 or len(columns) > 1 or not (rows or columns):
        return None
    common = all(depends(one, axis.name) for axis in (*shared, *summed) for one in (first, second))
    if not common or statement.target in (first.buffer, second.buffer):
        return None
    made: Gemm | Gemv | None
    if rows and columns:
        made = _call(first, second, target, rows[0], columns[0], summed[0], statement, buffers)
    elif rows:
        made = _vector_call(first, second, target, rows[0], summed[0], statement, buffers)
    else:
        made = _vector_call(second, first, target, columns[0], summed[0], statement, buffers)
    return None if made is None else _looped(replace(made, library=library), shared)


def _is_matrix(read: ElementRead, dtype: DType, names: set[str], buffers: Mapping[str, KernelBuffer]) -> bool:
    """True where every subscript has one index of the statement at most, as it is, and none has two."""
    found: list[str] = []
    for subscript in read.subscripts:
        if not isinstance(subscript, AffineIndex):
            return False
        own = [(v, factor) for v, factor in subscript.terms if v.of is not None or v.name in names]
        if len(own) > 1 or any(v.of is not None or factor != 1 for v, factor in own):
            return False
        found += [v.name for v, _ in own]
    return len(set(found)) == len(found) and not any(read.checked) and buffers[read.buffer].dtype is dtype


def _call(
    first: ElementRead,
    second: ElementRead,
    target: ElementRead,
    row: LoopAxis,
    column: LoopAxis,
    summed: LoopAxis,
    statement: KernelStatement,
    buffers: Mapping[str, KernelBuffer],
) -> Gemm | None:
    if stride(target, column.name, buffers) != 1:
        first, second, row, column = second, first, column, row
    a = _stored(first, row, summed, buffers)
    b = _stored(second, summed, column, buffers)
    c = _stored(target, row, column, buffers)
    if a is None or b is None or c is None or c[0]:
        return None
    environment = {axis.name: AffineIndex(()) for axis in (row, column, summed)}
    return Gemm(
        (first, second, target),
        (a[0], b[0]),
        (row.extent, column.extent, summed.extent),
        (a[1], b[1], c[1]),
        not statement.is_fresh,
        environment,
    )


def _vector_call(
    matrix: ElementRead,
    vector: ElementRead,
    target: ElementRead,
    row: LoopAxis,
    summed: LoopAxis,
    statement: KernelStatement,
    buffers: Mapping[str, KernelBuffer],
) -> Gemv | None:
    stored = _stored(matrix, row, summed, buffers)
    steps = stride(vector, summed.name, buffers), stride(target, row.name, buffers)
    if stored is None or steps[0] is None or steps[1] is None or min(steps[0], steps[1]) < 1:
        return None
    return Gemv(
        (matrix, vector, target),
        stored[0],
        (row.extent, summed.extent),
        (stored[1], steps[0], steps[1]),
        not statement.is_fresh,
        {axis.name: AffineIndex(()) for axis in (row, summed)},
    )


def _stored(
    read: ElementRead, row: LoopAxis, column: LoopAxis, buffers: Mapping[str, KernelBuffer]
) -> tuple[bool, int] | None:
    """True where a matrix is stored column after column, and the distance of its rows, or its columns."""
    down, along = stride(read, row.name, buffers), stride(read, column.name, buffers)
    if down is None or along is None or 1 not in (down, along):
        return None
    is_transposed = along != 1
    step, inside = (along, row.extent) if is_transposed else (down, column.extent)
    if isinstance(inside, int):
        return is_transposed, max(step, inside)
    return None  # BLAS asks for rows that are no nearer to each other than they are long


def _looped(made: Gemm | Gemv, shared: list[LoopAxis]) -> list[Node]:
    node: Node = made
    for axis in reversed(shared):
        node = Loop(axis.name, axis.extent, (node,))
    return [node]
