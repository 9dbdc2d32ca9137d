"""Operators that combine or compare the elements along axes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.arithmetic import divergence
from eqsat.language.declaration import Operands, OpSpec, op, present, symbolic, unchanged
from eqsat.language.declaration.spec import FlopRule, Reference
from eqsat.language.ops import sampling
from eqsat.language.ops.movement import axis_of
from eqsat.language.ops.operands import demands
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType

Axes: TypeAlias = tuple[int, ...]


def flops_per_input(count: int) -> FlopRule:
    """A cost rule: so many operations for each element of the first operand."""

    def flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
        return present(operands, 0).size * count

    return flops


def without_axes(x: TensorType, axes: Sequence[int], keepdims: bool) -> Shape | None:
    """The shape when axes are reduced."""
    if x.shape is None:
        return None
    gone = {axis_of(x, a) for a in axes}
    if len(gone) < len(axes):
        raise ShapeError(f"axes {list(axes)} of {x}", expected="each axis once")
    if keepdims:
        return tuple(1 if i in gone else d for i, d in enumerate(x.shape))
    return tuple(d for i, d in enumerate(x.shape) if i not in gone)


def _reduce_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    return (x.with_shape(without_axes(x, attrs["axes"], attrs["keepdims"])),)


def _of_nothing(operands: Operands, attrs: Attrs) -> bool:
    """True if a reduction may be one of no elements, whose mean is NaN and whose extremes are infinite."""
    x = operands[0]
    if x is None or x.shape is None:
        return True
    return not all(isinstance(x.shape[a], int) and x.shape[a] > 0 for a in attrs["axes"])


_SAMPLE = sampling.one_operand(axes=sampling.axes, keepdims=sampling.flag)
_INSTANCES = ({"axes": (0,)}, {"axes": (1,)})


def _reduction(onnx: str, flops: int = 1, **facts: Any) -> Callable[[Reference], OpSpec]:
    """Declare an operator that reduces axes, most of them in kernels that work along rows."""
    derived = {"index": "...{axes} -> ...", "rowwise": True, "total": "static", **facts}
    return op(infer=_reduce_type, flops=flops_per_input(flops), sample=_SAMPLE, onnx=onnx, **derived)


@_reduction(
    "ReduceSum",
    multilinear=(0,),
    instances=_INSTANCES,
    sensitive=True,
    on_dims=symbolic.sum_of,
    unchanged=unchanged.without_axes,
    portable=divergence.reduction(divergence.totals),
    ignores_zeros=True,
)
def reduce_sum(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Sum over axes; over no axes, the operand itself."""
    return xp.sum(x, axis=axes, keepdims=keepdims)


def mean(xp: Any, x: Any, axes: Axes, keepdims: bool = True) -> Any:
    """Sum over axes divided by how many elements it took; of nothing, NaN."""
    total = xp.sum(x, axis=axes, keepdims=keepdims)
    return xp.divide(total, xp.number(math.prod(x.shape[a] for a in axes), x))


@_reduction(
    "ReduceMean",
    multilinear=(0,),
    average=True,
    partial=_of_nothing,
    index="...{axes} -> ...; reads axes",
    instances=_INSTANCES,
    accumulates=True,
    sensitive=True,
    unchanged=unchanged.without_axes,
    portable=divergence.reduction(divergence.totals),
)
def reduce_mean(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Mean over axes; the mean of nothing is NaN."""
    return mean(xp, x, axes, keepdims)


@_reduction(
    "ReduceMax", average=True, partial=_of_nothing, instances=_INSTANCES, selects=True, unchanged=unchanged.without_axes
)
def reduce_max(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Maximum over axes; of nothing, the least element there is."""
    return xp.max(x, axis=axes, keepdims=keepdims)


@_reduction("ReduceMin", average=True, partial=_of_nothing, selects=True, unchanged=unchanged.without_axes)
def reduce_min(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Minimum over axes; of nothing, the greatest element there is."""
    return xp.min(x, axis=axes, keepdims=keepdims)


@_reduction(
    "ReduceProd",
    sensitive=True,
    on_dims=symbolic.product_of,
    unchanged=unchanged.without_axes,
    portable=divergence.reduction(divergence.products),
)
def reduce_prod(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Product over axes."""
    return xp.prod(x, axis=axes, keepdims=keepdims)


@_reduction(
    "ReduceL1",
    flops=2,
    sensitive=True,
    hides_sign=True,
    portable=divergence.reduction(divergence.totals),
    ignores_zeros=True,
)
def reduce_l1(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Sum of absolute values over axes."""
    return xp.sum(xp.apply("abs", x), axis=axes, keepdims=keepdims)


@_reduction("ReduceL2", flops=2, sensitive=True, hides_sign=True, portable=divergence.no_integers, ignores_zeros=True)
def reduce_l2(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Square root of the sum of squares over axes."""
    return xp.apply("sqrt", xp.sum(xp.multiply(x, x), axis=axes, keepdims=keepdims))


@_reduction(
    "ReduceSumSquare",
    flops=2,
    sensitive=True,
    hides_sign=True,
    portable=divergence.reduction(divergence.squares),
    ignores_zeros=True,
)
def reduce_sum_square(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Sum of squares over axes."""
    return xp.sum(xp.multiply(x, x), axis=axes, keepdims=keepdims)


@_reduction(
    "ReduceLogSum",
    rowwise=False,
    total="",
    partial=True,
    sensitive=True,
    hides_sign=True,
    portable=divergence.no_integers,
)
def reduce_log_sum(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Logarithm of the sum over axes."""
    return xp.apply("log", xp.sum(x, axis=axes, keepdims=keepdims))


@_reduction("ReduceLogSumExp", flops=6, partial=True, sensitive=True, hides_sign=True, portable=divergence.no_integers)
def reduce_log_sum_exp(xp: Any, x: Any, *, axes: Axes, keepdims: bool = True) -> Any:
    """Logarithm of the sum of exponentials over axes; floats are shifted by their maximum, so as not to overflow."""
    if xp.exact:
        return xp.apply("log", xp.sum(xp.apply("exp", x), axis=axes, keepdims=keepdims))
    top = xp.max(x, axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, np.zeros((), top.dtype))
    total = xp.apply("log", xp.sum(xp.apply("exp", xp.subtract(x, top)), axis=axes, keepdims=keepdims))
    return xp.add(total, np.reshape(top, total.shape))


def _arg_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    if x.shape is not None and x.shape[axis_of(x, attrs["axis"])] == 0:
        raise ShapeError(f"the extreme element along axis {attrs['axis']} of {x}", expected="an axis with elements")
    return (TensorType(DType.INT64, without_axes(x, (attrs["axis"],), attrs["keepdims"])),)


def first_extreme(xp: Any, x: Any, axis: int, keepdims: bool, *, smallest: bool, last: bool) -> Any:
    """The index of the first, or last, extreme element along an axis."""
    if not xp.exact:
        flipped = np.flip(x, axis) if last else x
        place = (np.argmin if smallest else np.argmax)(flipped, axis=axis, keepdims=keepdims)
        return x.shape[axis] - 1 - place if last else place
    extreme = (xp.min if smallest else xp.max)(x, axis=(axis,), keepdims=True)
    hits = xp.equal(x, extreme)
    order = range(x.shape[axis]) if last else range(x.shape[axis] - 1, -1, -1)
    index: Any = np.zeros(extreme.shape, np.int64)
    for i in order:
        index = xp.where(np.take(hits, [i], axis=axis), i, index)
    return index if keepdims else np.squeeze(index, axis)


_ARG_SAMPLE = sampling.one_operand(axis=sampling.axis, keepdims=sampling.flag, select_last=sampling.flag)


#: Places of extreme elements along an axis.
_arg = partial(
    op,
    infer=_arg_type,
    flops=flops_per_input(1),
    sample=_ARG_SAMPLE,
    shapes="The shape of x with 1 at `axis`, or without that axis where `keepdims` is False; int64.",
    hides_sign=True,
)


@_arg(onnx="ArgMax")
def argmax(xp: Any, x: Any, *, axis: int = 0, keepdims: bool = True, select_last: bool = False) -> Any:
    """The index of the largest element along an axis, of equal ones the first, or the last where asked for."""
    return first_extreme(xp, x, axis, keepdims, smallest=False, last=select_last)


@_arg(onnx="ArgMin")
def argmin(xp: Any, x: Any, *, axis: int = 0, keepdims: bool = True, select_last: bool = False) -> Any:
    """The index of the smallest element along an axis, of equal ones the first, or the last where asked for."""
    return first_extreme(xp, x, axis, keepdims, smallest=True, last=select_last)


def _topk_type(operands: Operands, attrs: Attrs) -> tuple[TensorType, TensorType]:
    x, k = present(operands, 0), attrs["k"]
    if x.shape is None:
        return x, TensorType(DType.INT64, None)
    axis = axis_of(x, attrs["axis"])
    size = x.shape[axis]
    if isinstance(size, int) and isinstance(k, int) and not 0 <= k <= size:
        raise ShapeError(f"the {k} extreme elements along axis {axis} of {x}", expected=f"k from 0 to {size}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return x.with_shape(shape), TensorType(DType.INT64, shape)


def _topk_count(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> int | None:
    size = x[attrs["axis"]]
    return rng.randint(0, size) if isinstance(size, int) else None


@op(
    infer=_topk_type,
    flops=flops_per_input(4),
    sample=sampling.one_operand(axis=sampling.axis, largest=sampling.flag, k=_topk_count),
    onnx="TopK",
    shapes="Two outputs of the shape of x with k at `axis`: elements, and their indices in int64.",
    demands=demands.enough,
)
def topk(xp: Any, x: Any, *, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, Any]:
    """The k largest or smallest elements along an axis, in order, and their indices; of equal ones the first.

    They come in order whether `sorted` asks for it or not.
    """
    size = x.shape[axis]
    # The largest from a reversed operand, so that a stable ascending order keeps the first of equal elements first.
    backward = np.flip(x, axis) if largest else x
    order = xp.argsort(backward, axis)
    if largest:
        order = size - 1 - np.flip(order, axis)
    index = np.take(order, np.arange(k), axis=axis).astype(np.int64)
    return np.take_along_axis(x, index, axis), index


def _cumsum_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    if x.shape is not None:
        axis_of(x, attrs["axis"])
    return (x,)


@op(
    infer=_cumsum_type,
    sample=sampling.one_operand(axis=sampling.axis, exclusive=sampling.flag, reverse=sampling.flag),
    multilinear=(0,),
    index="...{axis} -> ...{axis}",
    onnx="CumSum",
    sensitive=True,
)
def cumsum(xp: Any, x: Any, *, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """Running sum along an axis; `exclusive` leaves the element itself out, `reverse` runs from the end."""
    axis = axis % x.ndim
    if xp.exact:
        places = np.arange(x.shape[axis], like=x)
        rows, columns = places[:, None], places
        if reverse:
            rows, columns = columns, rows
        counted = columns < rows if exclusive else columns <= rows
        wide = np.expand_dims(np.moveaxis(x, axis, -1), -2)
        return np.moveaxis(xp.sum(xp.where(counted, wide, xp.number(0.0, x)), axis=-1), -1, axis)
    if reverse:
        x = np.flip(x, axis)
    lead: tuple[Any, ...] = (slice(None),) * axis
    result: Any = np.array(x)
    for i in range(1, x.shape[axis]):
        here, before = (*lead, slice(i, i + 1)), (*lead, slice(i - 1, i))
        result[here] = xp.add(result[before], x[here])
    if exclusive and x.shape[axis]:
        shifted: Any = np.empty_like(result)
        shifted[(*lead, slice(1))] = xp.number(0.0, x)
        shifted[(*lead, slice(1, None))] = result[(*lead, slice(None, -1))]
        result = shifted
    return np.flip(result, axis) if reverse else result
