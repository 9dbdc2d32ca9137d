"""Quantisation and dequantisation.

A quantised element q stands for (q - zero) · scale. Scale and zero point are one number for the whole tensor, a vector
along an axis, or a tensor with one element for each block along an axis. Nothing here is equal to what it approximates.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype
from eqsat.language.ops import sampling
from eqsat.language.ops.operands import enumeration
from eqsat.language.terms import Attrs, DType, Shape, TensorType


def spread(parameter: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point in a shape that broadcasts with the tensor it belongs to."""
    if parameter.ndim == 0 or (parameter.size == 1 and not block):
        return parameter.reshape(())
    if block:
        lead = (slice(None),) * (axis % x.ndim)
        return np.repeat(parameter, block, axis=axis)[(*lead, slice(x.shape[axis]))]
    return parameter.reshape(parameter.shape[0], *(1,) * (x.ndim - 1 - axis % x.ndim))


def whole(x: Any) -> Any:
    """Integers in a type wide enough for differences; terms and residues as they are."""
    return x if x.dtype == object else x.astype(np.int64)


def centred(xp: Any, x: Any, zero: Any) -> Any:
    """Quantised numbers less their zero point, as whole numbers."""
    if zero is None:
        return whole(x)
    return xp.subtract(whole(x), whole(zero))


def rounded(xp: Any, x: Any, zero: Any, dtype: DType) -> Any:
    """Numbers in units of their scale as integers: halves to the even one, plus the zero point, within the type.

    ONNX Runtime makes the least integer of a NaN, and so does this.
    """
    nearest = xp.apply("round", x)
    if xp.exact:
        return xp.cast(
            xp.apply(f"saturate-{dtype.value}", nearest if zero is None else xp.add(nearest, whole(zero))), dtype
        )
    limits = ml_dtypes.iinfo(dtype.numpy)
    offset = 0 if zero is None else whole(zero)
    with np.errstate(invalid="ignore"):
        inside = np.where(nearest == nearest, nearest, float(limits.min) - offset)
        clipped = np.minimum(np.maximum(inside, float(limits.min) - offset), float(limits.max) - offset)
    return (clipped.astype(np.int64) + offset).astype(dtype.numpy)


def single(x: Any) -> Any:
    """Halves as float32, in which ONNX Runtime quantises them."""
    return x.astype(np.float32) if x.dtype != object and x.dtype.itemsize < 4 else x


def check_zero(zero: TensorType | None, dtype: DType) -> None:
    """ShapeError for a zero point of another type than its numbers."""
    if zero is not None and zero.dtype is not dtype:
        raise ShapeError(
            f"zero point {zero} of {dtype.value}", expected="a zero point of the type that is quantised to"
        )


def _check_parameter(parameter: TensorType | None, x: TensorType, attrs: Attrs) -> None:
    """ShapeError for a scale or zero point that does not belong to the tensor."""
    axis, block = attrs["axis"], attrs["block"]
    if parameter is None or parameter.shape is None or x.shape is None or (parameter.shape in ((), (1,)) and not block):
        return
    fits = -x.rank <= axis < x.rank and parameter.rank == (x.rank if block else 1)
    if fits and not block:
        fits = _may_equal(parameter.dims[0], x.dims[axis])
    elif fits:
        # ONNX Runtime takes a vector of one element for one scale of the whole tensor, and refuses blocks of that.
        fits = parameter.shape != (1,) and all(
            _may_equal(p, n) for i, (p, n) in enumerate(zip(parameter.dims, x.dims, strict=True)) if i != axis
        )
        count, size = parameter.dims[axis], x.dims[axis]
        if isinstance(count, int) and isinstance(size, int):
            fits = fits and count == -(-size // block)
    if not fits:
        kind = f"one element for each {block} of" if block else "a vector as long as"
        raise ShapeError(f"scale or zero point {parameter} of {x}", expected=f"a number, or {kind} axis {axis}")


def _may_equal(a: object, b: object) -> bool:
    return not isinstance(a, int) or not isinstance(b, int) or a == b


def _quantize_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, scale = present(operands, 0), present(operands, 1)
    zero = operands[2] if len(operands) > 2 else None
    same_dtype([x, scale])
    to = DType.of(attrs["to"])
    check_zero(zero, to)
    for parameter in (scale, zero):
        _check_parameter(parameter, x, attrs)
    return (TensorType(to, x.shape),)


def _quantised_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    x, given = known[0], next((s for s in known[1:] if s is not None), None)
    if x is None and given is None:
        x = sampling.shape(rng)
    full = {"block": rng.choice((0, 0, 2)) if x else 0, **attrs}
    if given is not None and "block" not in attrs:
        full["block"] = 2 if len(given) > 1 and x in (None, (*given[:-1], 2 * _int(given[-1]))) else 0
    if x is None:
        assert given is not None
        x = tuple(d * full["block"] for d in given) if full["block"] else (given or (2,))
    full = {"axis": rng.randrange(len(x)) if x else 0, **full}
    if not -len(x) <= full["axis"] < max(len(x), 1):
        return None
    own: Shape = ()
    if full["block"]:
        axis = full["axis"] % max(len(x), 1)
        own = tuple(-(-_int(d) // full["block"]) if i == axis else d for i, d in enumerate(x))
    elif given is None and x and rng.random() < 0.5:
        own = (x[full["axis"]],)
    elif given is not None:
        own = given
    return [x, *(s if s is not None else own for s in known[1:])], full


def _rounding_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    """The same, to the type that zero points are drawn in."""
    return _quantised_sample(rng, known, {"to": "uint8", **attrs})


def _int(dim: object) -> int:
    assert isinstance(dim, int)
    return dim


#: Operators with a scale and a zero point, of all elements, by axis or by block.
_placed = partial(
    op,
    deferred=True,
    shapes="The shape of x; the scale is a scalar, a vector along `axis`, or one a block.",
    parameters="block",
)


@_placed(
    infer=_quantize_type,
    sample=_rounding_sample,
    choices={"to": enumeration.of("uint8")},
    dtypes={2: "uint8"},
    onnx="QuantizeLinear",
)
def quantize_linear(
    xp: Any, x: Any, scale: Any, zero: Any = None, *, to: str = "uint8", axis: int = 1, block: int = 0
) -> Any:
    """Element x / scale rounded, halves to the even one, plus the zero point, held within the integer type `to`.

    Scale and zero point are numbers, vectors along `axis`, or have one element for each `block` elements along it.
    """
    quotient = xp.divide(single(x), single(spread(scale, x, axis, block)))
    return rounded(xp, quotient, None if zero is None else spread(zero, x, axis, block), DType.of(to))


def _dequantize_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, scale = present(operands, 0), present(operands, 1)
    zero = operands[2] if len(operands) > 2 else None
    if not x.dtype.is_integer or not scale.dtype.is_float:
        raise ShapeError(f"dequantisation of {x} by {scale}", expected="integers and a scale of floats")
    check_zero(zero, x.dtype)
    for parameter in (scale, zero):
        _check_parameter(parameter, x, attrs)
    return (TensorType(scale.dtype, x.shape),)


@_placed(infer=_dequantize_type, sample=_quantised_sample, dtypes={0: "uint8", 2: "uint8"}, onnx="DequantizeLinear")
def dequantize_linear(xp: Any, x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block: int = 0) -> Any:
    """The numbers that quantised ones stand for, (x - zero) · scale, of the element type of the scale."""
    numbers = centred(xp, x, None if zero is None else spread(zero, x, axis, block))
    factor = spread(scale, x, axis, block)
    if xp.exact:
        return xp.multiply(numbers, factor)
    wide = single(factor)
    return xp.multiply(numbers.astype(wide.dtype), wide).astype(factor.dtype)


def _dynamic_type(operands: Operands, attrs: Attrs) -> tuple[TensorType, TensorType, TensorType]:
    x = present(operands, 0)
    return TensorType(DType.UINT8, x.shape), TensorType(x.dtype, ()), TensorType(DType.UINT8, ())


@op(
    infer=_dynamic_type,
    sample=sampling.one_operand(),
    deferred=True,
    onnx="DynamicQuantizeLinear",
    shapes="Three outputs: the shape of x, and two scalars.",
)
def dynamic_quantize_linear(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    """Quantised to uint8 by a scale and zero point that fit all elements and 0: the three of them."""
    every, none = tuple(range(x.ndim)), xp.number(0.0, x)
    least = xp.minimum(xp.min(x, axis=every), none) if x.size else np.asarray(none)
    most = xp.maximum(xp.max(x, axis=every), none) if x.size else np.asarray(none)
    range_ = xp.subtract(most, least)
    scale = xp.where(xp.equal(range_, none), xp.number(1.0, x), xp.divide(range_, xp.number(255.0, x)))
    zero = rounded(xp, xp.negative(xp.divide(least, scale)), None, DType.UINT8)
    return rounded(xp, xp.divide(x, scale), zero, DType.UINT8), scale, zero
