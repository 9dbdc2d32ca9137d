"""Constant tensors that rules name: filled ones, identity matrices, identity and pooling kernels; grown kernels."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, symbolic
from eqsat.language.ops import sampling
from eqsat.language.ops.operands import enumeration
from eqsat.language.ops.windows import pad_spatial
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType


def _nothing(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    """A cost rule: constants are made before the program runs."""
    return 0


# Attributes that the generator of rules gives constants, from the shape that it wants.
def _itself(shape: Shape) -> Shape:
    return shape


def _first(shape: Shape) -> Dim:
    return shape[0]


def _spatial(shape: Shape) -> Shape | None:
    return shape[2:] if len(shape) > 2 else None


def _fill_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    return (TensorType.of(attrs["dtype"], attrs["shape"]),)


def _fill_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    return (), {"shape": sampling.shape(rng), "value": rng.choice((0.0, 1.0, 2.5)), **attrs}


def _element(xp: Any, value: float, dtype: str) -> Any:
    """A number of an element type: rounded to it first, as a stored constant would be, if it is known."""
    like = np.zeros((), DType.of(dtype).numpy)
    if not isinstance(value, np.generic) and type(value) not in (bool, int, float):
        return xp.number(value, like)
    rounded = np.asarray(value).astype(like.dtype)
    return xp.number(rounded.item(), like) if DType.of(dtype).is_float else rounded


def _filled(shape: Sequence[int], element: Any) -> Any:
    """An array of one element throughout, of the kind that the element's arithmetic has."""
    filler = element if hasattr(element, "__array_function__") else np.asarray(element)
    return np.full(shape, filler, dtype=filler.dtype, like=filler)


#: Constants that rules name.
_generated = partial(op, flops=_nothing, generated=True)


@_generated(
    infer=_fill_type,
    sample=_fill_sample,
    instances=({"shape": _itself, "value": 1.0},),
    shapes="The dims of `shape`.",
    choices={"shape": enumeration.any_shape, "value": enumeration.of(1.0, 0.5)},
    on_dims=symbolic.fill,
)
def fill(xp: Any, *, shape: tuple[int, ...], value: float, dtype: str = "float32") -> Any:
    """A tensor of one value throughout."""
    return _filled(shape, _element(xp, value, dtype))


def _eye_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    return (TensorType.of(attrs["dtype"], (attrs["n"], attrs["n"])),)


def _eye_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    return (), {"n": sampling.dim(rng), **attrs}


@_generated(
    infer=_eye_type,
    sample=_eye_sample,
    instances=({"n": _first},),
    shapes="A matrix of n by n.",
    choices={"n": enumeration.sides},
)
def eye(xp: Any, *, n: int, dtype: str = "float32") -> Any:
    """The identity matrix."""
    zeros = _filled((n, n), _element(xp, 0.0, dtype))
    places = np.arange(n, like=zeros)
    return xp.where(places[:, None] == places, _element(xp, 1.0, dtype), zeros)


def _kernel_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    return (), {"channels": sampling.dim(rng), "kernel": (rng.choice((1, 3)), rng.choice((1, 3))), **attrs}


def _identity_kernel_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    channels, kernel = attrs["channels"], attrs["kernel"]
    if any(k % 2 == 0 for k in kernel):
        raise ShapeError(f"identity kernel of size {list(kernel)}", expected="odd sizes, which have a middle")
    return (TensorType.of(attrs["dtype"], (channels, channels, *kernel)),)


#: Filters of convolutions that rules name.
_kernel = partial(
    op,
    flops=_nothing,
    sample=_kernel_sample,
    instances=({"channels": _first, "kernel": _spatial},),
    choices={"channels": enumeration.sides, "kernel": enumeration.any_kernel},
    generated=True,
)


@_kernel(infer=_identity_kernel_type, shapes="channels, channels, kernel….")
def identity_kernel(xp: Any, *, channels: int, kernel: tuple[int, ...], dtype: str = "float32") -> Any:
    """The filter of shape (channels, channels, kernel…) whose convolution, padded to keep the size, changes nothing."""
    zeros = _filled((channels, channels, *kernel), _element(xp, 0.0, dtype))
    row, column, *places = (
        np.arange(size, like=zeros).reshape([size if k == axis else 1 for k in range(zeros.ndim)])
        for axis, size in enumerate(zeros.shape)
    )
    is_one = row == column
    for place, size in zip(places, kernel, strict=True):
        is_one = np.logical_and(is_one, place == size // 2)
    return xp.where(is_one, _element(xp, 1.0, dtype), zeros)


def _pool_kernel_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    return (TensorType.of(attrs["dtype"], (attrs["channels"], 1, *attrs["kernel"])),)


@_kernel(infer=_pool_kernel_type, shapes="channels, 1, kernel….")
def pool_kernel(xp: Any, *, channels: int, kernel: tuple[int, ...], dtype: str = "float32") -> Any:
    """The filter of shape (channels, 1, kernel…) whose depthwise convolution is average pooling, padding counted."""
    share = xp.divide(_element(xp, 1.0, dtype), _element(xp, math.prod(kernel), dtype))
    return _filled((channels, 1, *kernel), share)


def _enlarge_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    w, kernel = present(operands, 0), attrs["kernel"]
    if w.shape is None:
        return (w,)
    if len(kernel) != w.rank - 2:
        raise ShapeError(f"enlarging {w} to {list(kernel)}", expected="one size for each spatial dim of the filter")
    for size, target in zip(w.shape[2:], kernel, strict=True):
        if isinstance(size, int) and (target < size or (target - size) % 2):
            raise ShapeError(f"enlarging {w} to {list(kernel)}", expected="sizes no smaller and larger by even numbers")
    return (w.with_shape((*w.shape[:2], *kernel)),)


def _enlarge_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    w, kernel = known[0], attrs.get("kernel")
    if w is None:
        inner = tuple(rng.choice(range(k, 0, -2)) for k in kernel) if kernel else (rng.randint(1, 2), rng.randint(1, 2))
        w = (rng.randint(1, 2), rng.randint(1, 2), *inner)
    grown = kernel if kernel is not None else tuple(d + rng.choice((0, 2)) for d in w[2:])
    return (w,), {**attrs, "kernel": grown}


@op(
    infer=_enlarge_type,
    flops=_nothing,
    sample=_enlarge_sample,
    multilinear=(0,),
    instances=({"kernel": (3, 3)},),
    inputs_only=True,
    shapes="o, c, spatial… becomes o, c, kernel…, each no smaller and larger by an even number.",
    choices={"kernel": enumeration.kernels},
    beside=enumeration.windowed,
    generated=True,
)
def enlarge(xp: Any, w: Any, *, kernel: tuple[int, ...]) -> Any:
    """A filter with zeros put evenly around its spatial dims until they have the sizes given."""
    borders = [(target - size) // 2 for size, target in zip(w.shape[2:], kernel, strict=True)]
    return pad_spatial(xp, w, borders * 2)
