"""Products and convolutions of quantised numbers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype
from eqsat.language.ops.linear import conv, matmul
from eqsat.language.ops.quantised.quantisation import centred, check_zero, rounded, single, whole
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType

_CONV = ("strides", "pads", "dilations", "group")


def _conv_shape(x: TensorType, w: TensorType, attrs: Attrs, dtype: DType) -> tuple[TensorType]:
    (result,) = conv.infer([TensorType(DType.INT32, x.shape), TensorType(DType.INT32, w.shape)], attrs)
    return (TensorType(dtype, result.shape),)


def _check_each(size: Dim | None, *parameters: TensorType | None) -> None:
    """ShapeError unless scales, zero points or a bias are numbers, or vectors of a size where one is given."""
    for parameter in parameters:
        if parameter is None or parameter.shape is None or parameter.shape in ((), (1,)):
            continue
        fits = size is not None and parameter.rank == 1
        if not fits or (isinstance(size, int) and isinstance(parameter.dims[0], int) and parameter.dims[0] != size):
            wanted = "a number" if size is None else f"a number, or a vector of {size}"
            raise ShapeError(f"scale, zero point or bias {parameter}", expected=wanted)


def _axis(x: TensorType, axis: int, least: int) -> Dim | None:
    """The size of an axis of a tensor of some rank; None where that is less."""
    return x.shape[axis] if x.shape is not None and len(x.shape) >= least else None


def _check_sides(a: TensorType, b: TensorType, left: Operands, right: Operands) -> None:
    """ShapeError unless parameters of a left operand belong to its rows, those of a right one to its columns."""
    if a.shape is not None:
        # A product with a vector has its rows as the last axis, where parameters by row would be by column.
        of_vector = b.shape is not None and len(b.shape) == 1
        _check_each(None if of_vector else _axis(a, -2, 2), *left)
    if b.shape is not None:
        _check_each(_axis(b, -1, 2), *right)


def _check_filters(w: TensorType, numbers: Operands, channels: Operands, bias: TensorType | None = None) -> None:
    """ShapeError unless parameters are numbers, those of filters by output channel where they are not."""
    _check_each(None, *numbers)
    if w.shape is None:
        return
    _check_each(w.dims[0] if w.dims else None, *channels)
    if bias is None:
        return
    if bias.dtype is not DType.INT32 or (bias.shape is not None and bias.rank != 1):
        raise ShapeError(f"bias {bias}", expected=f"a vector of {w.dims[0]} of int32")
    if isinstance(w.dims[0], int) and bias.is_static and bias.static != (w.dims[0],):
        raise ShapeError(f"bias {bias}", expected=f"a vector of {w.dims[0]}")


def _check_quantised(*pairs: tuple[TensorType, TensorType | None]) -> None:
    for x, zero in pairs:
        if not x.dtype.is_integer:
            raise ShapeError(f"{x} is not quantised", expected="integers")
        check_zero(zero, x.dtype)


def _conv_integer_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, w, x_zero, w_zero = (operands[i] if i < len(operands) else None for i in range(4))
    x, w = present((x,), 0), present((w,), 0)
    _check_quantised((x, x_zero), (w, w_zero))
    _check_filters(w, [x_zero], [w_zero])
    return _conv_shape(x, w, attrs, DType.INT32)


def _filters(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    """Shapes of an input and of filters, and the attributes of a convolution of them."""
    drawn = conv.sample(rng, known, attrs) if conv.sample is not None else None
    return None if drawn is None else (drawn[0], {k: drawn[1][k] for k in _CONV})


def _conv_integer_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    drawn = _filters(rng, known[:2], attrs)
    if drawn is None:
        return None
    return [*drawn[0], *(s if s is not None else () for s in known[2:])], drawn[1]


def _by_channel(parameter: Any, rank: int) -> Any:
    """A number, or a vector along the first of the axes that follow the batch, or along the first axis of filters."""
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, *(1,) * rank)


def _convolved(xp: Any, x: Any, w: Any, zeros: tuple[Any, Any], attrs: Mapping[str, Any]) -> Any:
    """The convolution of quantised numbers less their zero points, exact."""
    x_zero, w_zero = zeros
    x = centred(xp, x, None if x_zero is None else x_zero.reshape(()))
    w = centred(xp, w, None if w_zero is None else _by_channel(w_zero, w.ndim - 1))
    if xp.exact:
        return conv.reference(xp, x, w, **attrs)
    # Products of bytes are exact in float64, as are sums of fewer than 2^37 of them.
    return conv.reference(xp, x.astype(np.float64), w.astype(np.float64), **attrs).astype(np.int64)


#: Products of numbers of eight bits with zero points of their own.
_integer = partial(op, dtypes={0: "uint8", 1: "uint8", 2: "uint8", 3: "uint8"})


@_integer(
    infer=_conv_integer_type,
    flops=conv.flops,
    sample=_conv_integer_sample,
    onnx="ConvInteger",
    shapes="As conv: n, c, spatial… and o, c/group, kernel… become n, o, windows…; int32.",
)
def conv_integer(
    xp: Any,
    x: Any,
    w: Any,
    x_zero: Any = None,
    w_zero: Any = None,
    *,
    strides: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    group: int = 1,
) -> Any:
    """Convolution of quantised numbers less their zero points, of int32; padding is 0 after that."""
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    return _convolved(xp, x, w, (x_zero, w_zero), attrs).astype(np.int32)


def _matmul_shape(a: TensorType, b: TensorType, attrs: Attrs, dtype: DType) -> tuple[TensorType]:
    (result,) = matmul.infer([TensorType(DType.INT32, a.shape), TensorType(DType.INT32, b.shape)], attrs)
    return (TensorType(dtype, result.shape),)


def _matmul_integer_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    a, b, a_zero, b_zero = (operands[i] if i < len(operands) else None for i in range(4))
    a, b = present((a,), 0), present((b,), 0)
    _check_quantised((a, a_zero), (b, b_zero))
    _check_sides(a, b, [a_zero], [b_zero])
    return _matmul_shape(a, b, attrs, DType.INT32)


def _matmul_integer_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    drawn = matmul.sample(rng, known[:2], attrs) if matmul.sample is not None else None
    if drawn is None:
        return None
    return [*drawn[0], *(s if s is not None else () for s in known[2:])], drawn[1]


def _by_row(parameter: Any) -> Any:
    """A scale or zero point of the rows of a left operand, as it broadcasts with that."""
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, 1)


def _by_column(parameter: Any) -> Any:
    """A scale or zero point of the columns of a right operand, as it broadcasts with that and with the product."""
    return parameter.reshape(()) if parameter.size == 1 else parameter


def _multiplied(xp: Any, a: Any, b: Any, zeros: tuple[Any, Any]) -> Any:
    """The product of quantised matrices less their zero points, exact."""
    a_zero, b_zero = zeros
    a = centred(xp, a, None if a_zero is None else _by_row(a_zero))
    b = centred(xp, b, None if b_zero is None else _by_column(b_zero))
    if xp.exact:
        return xp.matmul(a, b)
    return np.asarray(xp.matmul(a.astype(np.float64), b.astype(np.float64))).astype(np.int64)


@_integer(
    infer=_matmul_integer_type,
    flops=matmul.flops,
    sample=_matmul_integer_sample,
    onnx="MatMulInteger",
    shapes="As matmul; int32.",
)
def matmul_integer(xp: Any, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """Matrix product of quantised numbers less their zero points, of int32.

    The zero point of the left operand is a number or has one for each row, that of the right one for each column.
    """
    return _multiplied(xp, a, b, (a_zero, b_zero)).astype(np.int32)


def _rescaled(xp: Any, sums: Any, scales: tuple[Any, Any, Any], zero: Any, dtype: DType) -> Any:
    """Sums of products in units of two scales as numbers quantised by a third."""
    left, right, result = (single(s) for s in scales)
    factor = xp.divide(xp.multiply(left, right), result)
    if not xp.exact:
        sums = sums.astype(factor.dtype)
    return rounded(xp, xp.multiply(sums, factor), zero, dtype)


#: Element types of operands by place: two quantised ones with scale and zero point, then those of the result.
_QLINEAR = {0: "uint8", 2: "uint8", 3: "uint8", 5: "uint8", 7: "uint8"}


def _qlinear_operands(operands: Operands) -> tuple[TensorType, TensorType, TensorType]:
    """Both quantised operands and the zero point of the result; ShapeError for element types that do not agree."""
    scales = [present(operands, i) for i in (1, 4, 6)]
    same_dtype(scales)
    if not scales[0].dtype.is_float:
        raise ShapeError(f"scale {scales[0]}", expected="floats")
    left, right, zero = (present(operands, i) for i in (0, 3, 7))
    _check_quantised((left, operands[2]), (right, operands[5]), (zero, None))
    return left, right, zero


def _qlinear_shapes(known: Sequence[Shape | None], left: Shape, right: Shape, *more: Shape) -> list[Shape]:
    """The shapes of operands, those that are known as they are, scales and zero points numbers."""
    plain = [left, (), (), right, (), (), (), (), *more]
    return [s if s is not None else p for s, p in zip(known, plain, strict=False)]


def _qlinear_conv_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, w, zero = _qlinear_operands(operands)
    numbers = [operands[i] for i in (1, 2, 6, 7)]
    _check_filters(w, numbers, [operands[4], operands[5]], operands[8] if len(operands) > 8 else None)
    return _conv_shape(x, w, attrs, zero.dtype)


def _qlinear_conv_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    drawn = _filters(rng, [known[0], known[3]], attrs)
    if drawn is None:
        return None
    x, w = drawn[0]
    return _qlinear_shapes(known, x, w, (w[0],)), drawn[1]


@op(
    infer=_qlinear_conv_type,
    sample=_qlinear_conv_sample,
    dtypes={**_QLINEAR, 8: "int32"},
    deferred=True,
    onnx="QLinearConv",
    shapes="As conv: n, c, spatial… and o, c/group, kernel… become n, o, windows….",
)
def qlinear_conv(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    b: Any = None,
    *,
    strides: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    group: int = 1,
) -> Any:
    """Convolution of quantised numbers, with a bias of int32 in units of both scales, quantised again.

    Scale and zero point of the filters are numbers, or have one for each output channel.
    """
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    sums = _convolved(xp, x, w, (x_zero, w_zero), attrs)
    rank = x.ndim - 2
    if b is not None:
        sums = xp.add(sums, whole(b).reshape(-1, *(1,) * rank))
    scales = x_scale.reshape(()), _by_channel(w_scale, rank), y_scale.reshape(())
    return _rescaled(xp, sums, scales, y_zero.reshape(()), _dtype_of(y_zero))


def _qlinear_matmul_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    a, b, zero = _qlinear_operands(operands)
    _check_sides(a, b, operands[1:3], operands[4:6])
    _check_each(None, *operands[6:8])
    return _matmul_shape(a, b, attrs, zero.dtype)


def _qlinear_matmul_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    drawn = matmul.sample(rng, [known[0], known[3]], attrs) if matmul.sample is not None else None
    if drawn is None:
        return None
    return _qlinear_shapes(known, *drawn[0]), drawn[1]


@op(
    infer=_qlinear_matmul_type,
    sample=_qlinear_matmul_sample,
    dtypes=_QLINEAR,
    deferred=True,
    onnx="QLinearMatMul",
    shapes="As matmul.",
)
def qlinear_matmul(
    xp: Any, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    """Matrix product of quantised numbers, quantised again.

    Scale and zero point of the left operand are numbers or have one for each row, those of the right one for each
    column.
    """
    sums = _multiplied(xp, a, b, (a_zero, b_zero))
    scales = _by_row(a_scale), _by_column(b_scale), y_scale.reshape(())
    return _rescaled(xp, sums, scales, y_zero.reshape(()), _dtype_of(y_zero))


def _dtype_of(x: Any) -> DType:
    return DType.INT64 if x.dtype == object else DType.of(x.dtype)
