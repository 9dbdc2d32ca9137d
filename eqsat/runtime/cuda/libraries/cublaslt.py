"""Matrix products that cuBLASLt computes, as calls to it, and its algorithms as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.errors import BackendError
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.libraries.calls import Matmul
from eqsat.runtime.cuda.libraries.library import check_plan_version
from eqsat.runtime.kernels.view import View

NAME = "cublaslt"
#: CUDA's numbers of element types (cudaDataType).
TYPES = {
    DType.FLOAT32: 0,
    DType.FLOAT64: 1,
    DType.FLOAT16: 2,
    DType.INT8: 3,
    DType.INT32: 10,
    DType.BFLOAT16: 14,
    DType.FLOAT8E4M3FN: 28,
}
#: Result types for each operand type.
_RESULTS = {
    DType.FLOAT32: (DType.FLOAT32,),
    DType.FLOAT64: (DType.FLOAT64,),
    DType.FLOAT16: (DType.FLOAT16, DType.FLOAT32),
    DType.BFLOAT16: (DType.BFLOAT16, DType.FLOAT32),
    DType.INT8: (DType.INT32,),
    DType.FLOAT8E4M3FN: (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16),
}
#: Multiples that the columns and the terms of a product have to be, and the distances between vectors of its matrices,
#: on tensor cores that take no other (cuBLAS, cublasLtMatmul: regular ordering in int8, and FP8). The first operand of
#: the library, the right one here, is transposed, and the other is not. So many bytes its places are multiples of.
MULTIPLES = {DType.INT8: 4, DType.FLOAT8E4M3FN: 16}
_PLACES = {DType.INT8: 4, DType.FLOAT8E4M3FN: 16}
#: Operations on a product at its end (cublasLtEpilogue_t).
EPILOGUES = {"": 1, "relu": 2, "bias": 4, "relu_bias": 6, "gelu": 32, "gelu_bias": 36}
#: The largest matrix dimension: algorithms count in 32 bits.
_MOST = (1 << 31) - 1


@dataclass(frozen=True)
class Matrix:
    """A matrix as cuBLASLt sees it, in columns: `ld` elements from one column to the next, `step` from one to the next
    of a batch; `turned` where the product takes its transpose."""

    view: View
    rows: int
    columns: int
    ld: int
    turned: bool
    step: int


@dataclass(frozen=True)
class MatrixProduct:
    """result = left · right in columns: `rows` by `columns`, summed over `inner`, `batch` times."""

    left: Matrix
    right: Matrix
    result: Matrix
    rows: int
    columns: int
    inner: int
    batch: int


def expressible(call: Matmul) -> str | None:
    """None where cuBLASLt can compute a call, else the reason why not."""
    product = product_of(call)
    return product if isinstance(product, str) else None


def product_of(call: Matmul) -> MatrixProduct | str:
    """The product that cuBLASLt is asked for, or the reason why it cannot be.

    A matrix in rows is its transpose in columns, so result = a · b in rows is resultᵀ = bᵀ · aᵀ in columns, and a bias
    by columns becomes one by rows, as cuBLASLt has it.
    """
    fault = _type_fault(call) or _size_fault(call)
    if fault is not None:
        return fault
    views = _folded(*(_without_batches_of_one(v) for v in (call.a, call.b, call.result)))
    batch = _one_batch(views)
    if isinstance(batch, str):
        return batch
    count, steps = batch
    a, b, c = (replace(v, shape=v.shape[-2:], strides=v.strides[-2:]) for v in views)
    a_step, b_step, c_step = steps
    result = matrix_of(c, c_step)
    if result is None or result.turned:
        if call.bias is not None:
            return f"a bias by columns of a result with strides {list(c.strides)}"
        # A result in columns is the product of the transposes in rows.
        a, b, c = (v.permuted((1, 0)) for v in (b, a, c))
        a_step, b_step = b_step, a_step
        result = matrix_of(c, c_step)
    left, right = matrix_of(b, b_step), matrix_of(a, a_step)
    for name, matrix, view in (("result", result, c), ("b", left, b), ("a", right, a)):
        if matrix is None:
            return f"{name} of shape {list(view.shape)} has strides {list(view.strides)}, none of which is 1"
    if result is None or left is None or right is None or result.turned:
        return f"a result with strides {list(c.strides)}"
    if count > 1 and result.step == 0:
        return "results of a batch that lie in one place"
    product = MatrixProduct(left, right, result, c.shape[1], c.shape[0], a.shape[1], count)
    return _place_fault(product) or product


def _place_fault(product: MatrixProduct) -> str | None:
    """The reason why operands of one byte are not where the library wants them."""
    dtype = product.left.view.dtype
    least = MULTIPLES.get(dtype)
    if least is None:
        return None
    if not product.left.turned or product.right.turned:
        return f"{dtype.value} by any but rows times columns"
    for what, size in (("columns", product.rows), ("terms", product.inner)):
        if size % least:
            return f"{size} {what} of {dtype.value}, which are no multiple of {least}"
    for matrix in (product.left, product.right, product.result):
        steps = (matrix.ld, matrix.step)
        if any(step * matrix.view.dtype.itemsize % _PLACES[dtype] for step in steps):
            return f"vectors that lie {matrix.ld} elements of {matrix.view.dtype.value} apart"
        if matrix.view.offset * matrix.view.dtype.itemsize % _PLACES[dtype]:
            return f"a matrix {matrix.view.offset} elements behind the beginning of its buffer"
    return None


def _type_fault(call: Matmul) -> str | None:
    a, b, result = call.a.dtype, call.b.dtype, call.result.dtype
    if a not in _RESULTS or a is not b:
        return f"operands of {a.value} and {b.value}"
    if result not in _RESULTS[a]:
        return f"a result of {result.value} from {a.value}"
    if call.arithmetic not in ("", "tf32") or (call.arithmetic and a is not DType.FLOAT32):
        return f"arithmetic {call.arithmetic!r} on {a.value}"
    if call.epilogue not in EPILOGUES or ("bias" in call.epilogue) != (call.bias is not None):
        return f"epilogue {call.epilogue!r} with{'' if call.bias is not None else 'out'} a bias"
    if a in (DType.FLOAT64, *MULTIPLES) and call.epilogue:
        return f"an epilogue in {a.value}"
    if a is DType.INT8 and call.alpha != 1.0:
        return f"sums of int8 times {call.alpha:g}"
    if call.bias is not None:
        unit = call.bias.strides == (1,) or call.bias.shape == (1,)
        if call.bias.shape != call.result.shape[-1:] or not unit or call.bias.dtype is not result:
            return f"a bias of {call.bias.dtype.value}{list(call.bias.shape)}, strides {list(call.bias.strides)}"
    return None


def _size_fault(call: Matmul) -> str | None:
    views = (call.a, call.b, call.result)
    if min(v.rank for v in views) < 2 or len({v.rank for v in views}) > 1:
        return f"operands of rank {call.a.rank} and {call.b.rank}"
    batch = call.result.shape[:-2]
    shapes = (*batch, *call.a.shape[-2:]), (*batch, *call.b.shape[-2:])
    if (call.a.shape, call.b.shape) != shapes:
        return f"operands of shape {list(call.a.shape)} and {list(call.b.shape)} for {list(call.result.shape)}"
    if any(v.count == 0 for v in views):
        return "nothing to multiply"
    if max(size for v in views for size in v.shape) > _MOST:
        return f"a dimension above {_MOST}"
    if any(stride < 0 and size > 1 for v in views for size, stride in zip(v.shape, v.strides, strict=True)):
        return "negative strides"
    return None


def _without_batches_of_one(view: View) -> View:
    axes = [i for i in range(view.rank) if i >= view.rank - 2 or view.shape[i] != 1]
    return view.permuted(axes)


def _folded(a: View, b: View, c: View) -> tuple[View, View, View]:
    """The batch axes over which b is repeated made rows, as far as the rows of a and of the result go on there."""
    while a.rank > 2:
        inner = a.rank - 3
        rows = a.shape[-2]
        goes_on = all(v.strides[inner] == rows * v.strides[-2] or rows == 1 for v in (a, c))
        if len({a.shape[inner], b.shape[inner], c.shape[inner]}) > 1 or b.strides[inner] or not goes_on:
            break
        a, c = (_merged(v, inner, rows) for v in (a, c))
        b = b.permuted([i for i in range(b.rank) if i != inner])
    return a, b, c


def _merged(view: View, inner: int, rows: int) -> View:
    step = view.strides[-2] if rows > 1 else view.strides[inner]
    shape = (*view.shape[:inner], view.shape[inner] * rows, view.shape[-1])
    return replace(view, shape=shape, strides=(*view.strides[:inner], step, view.strides[-1]))


def _one_batch(views: Sequence[View]) -> tuple[int, tuple[int, ...]] | str:
    """The number of products, and each view's stride from one to the next; or the reason why one is too few."""
    shape = views[0].shape[:-2]
    if not shape:
        return 1, (0,) * len(views)
    for view in views:
        for i in range(len(shape) - 1):
            if view.strides[i] != view.strides[i + 1] * shape[i + 1]:
                return f"batches {list(shape)} with strides {list(view.strides[:-2])}"
    return math.prod(shape), tuple(v.strides[len(shape) - 1] for v in views)


def matrix_of(view: View, step: int) -> Matrix | None:
    """A matrix of rows as one in columns; None where neither stride is 1.

    In columns it has its axes exchanged: one that lies in rows is taken as it is, one in columns is `turned`.
    """
    (rows, columns), (down, along) = view.shape, view.strides
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return Matrix(view, columns, rows, max(down, columns) if rows > 1 else columns, False, step)
    if (down == 1 or rows == 1) and (along >= rows or columns == 1):
        return Matrix(view, rows, columns, max(along, rows) if columns > 1 else rows, True, step)
    return None


def plan_text(algorithm: bytes, workspace: int, version: str) -> str:
    """An algorithm of cuBLASLt's as text: the library's version, the algorithm's 64 bytes, its workspace in bytes.

    >>> parse_plan(plan_text(bytes(range(64)), 1024, "130100"), "130100")[1]
    1024
    """
    return f"{NAME} {version} {algorithm.hex()} {workspace}"


def parse_plan(plan: str, version: str) -> tuple[bytes, int]:
    """The algorithm and its workspace from text; BackendError for one of another version, or text that is no plan."""
    parts = plan.split()
    if len(parts) != 4 or parts[0] != NAME or not parts[3].isdecimal() or len(parts[2]) != 128:
        raise BackendError(f"{plan!r} is no plan of cuBLASLt's", expected=f"{NAME} VERSION ALGORITHM WORKSPACE")
    check_plan_version("cuBLASLt", parts[1], version)
    try:
        return bytes.fromhex(parts[2]), int(parts[3])
    except ValueError as error:
        raise BackendError(f"{plan!r} is no plan of cuBLASLt's", expected="64 bytes in hexadecimal") from error


def described(call: Matmul) -> str:
    """The product, as messages call it."""
    (m, k), n = call.a.shape[-2:], call.b.shape[-1]
    return f"a product of {call.a.dtype.value} {m}×{k} by {k}×{n}" + (f", {call.epilogue}" if call.epilogue else "")
