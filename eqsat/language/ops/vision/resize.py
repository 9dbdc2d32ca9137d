"""Resizing along some axes: to the nearest element, by interpolation, or of a part cropped out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present
from eqsat.language.ops import sampling
from eqsat.language.ops.movement import axis_of
from eqsat.language.ops.vision import coordinates as places
from eqsat.language.terms import Attrs, Dim, Shape, TensorType, floordiv

Ints: TypeAlias = tuple[int, ...]
Floats: TypeAlias = tuple[float, ...]

#: Up to this numerator and denominator a scale times a dim is exact in float32, in which ONNX Runtime multiplies.
_PLAIN = 256
POLICIES = ("stretch", "not_larger", "not_smaller")


def is_plain(scale: float) -> bool:
    """True if a scale is a fraction so simple that multiplying dims by it never rounds."""
    exact = Fraction(float(np.float32(scale)))
    return exact.numerator <= _PLAIN and exact.denominator <= _PLAIN


def _scaled(dim: Dim, scale: float) -> Dim | None:
    """The size of a scaled axis; None where that is not known for a named dim."""
    if isinstance(dim, int):
        return int(np.float32(scale) * np.float32(dim))
    if not is_plain(scale):
        return None
    exact = Fraction(float(np.float32(scale)))
    return floordiv(dim * exact.numerator, exact.denominator)


def _resized(dims: Sequence[Dim], attrs: Mapping[str, Any]) -> list[Dim] | None:
    """The sizes of the resized axes; None where they are not known for named dims."""
    if attrs["scales"]:
        scaled = [_scaled(d, s) for d, s in zip(dims, attrs["scales"], strict=True)]
        return None if any(d is None for d in scaled) else [d for d in scaled if d is not None]
    sizes = list(attrs["sizes"])
    if attrs.get("policy", "stretch") == "stretch":
        return sizes
    numbers = [d for d in (*dims, *sizes) if isinstance(d, int)]
    if len(numbers) < 2 * len(sizes):
        return None
    scale = _common_scale(numbers[: len(sizes)], numbers[len(sizes) :], attrs["policy"])
    return [_rounded(scale * np.float32(d)) for d in numbers[: len(sizes)]]


def _common_scale(dims: Sequence[int], sizes: Sequence[int], policy: str) -> Any:
    scales = [np.float32(s) / np.float32(d) if d else np.float32(1) for d, s in zip(dims, sizes, strict=True)]
    return min(scales) if policy == "not_larger" else max(scales)


def _rounded(x: Any) -> int:
    return int(np.floor(np.float64(x) + 0.5))


def _resize_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, axes, scales, sizes = present(operands, 0), attrs["axes"], attrs["scales"], attrs["sizes"]
    if bool(scales) == bool(sizes) or len(scales or sizes) != len(axes):
        raise ShapeError(
            f"axes {list(axes)} resized by scales {list(scales)} or to sizes {list(sizes)}",
            expected="either scales or sizes, one for each axis",
        )
    if any(not s > 0 or not np.isfinite(s) for s in scales) or any(isinstance(s, int) and s < 0 for s in sizes):
        raise ShapeError(
            f"scales {list(scales)}, sizes {list(sizes)}", expected="scales above 0 and sizes of 0 or more"
        )
    _check_modes(attrs)
    if x.shape is None:
        return (x,)
    at = [axis_of(x, a) for a in axes]
    # Laws ask which axes there are, so each has one name.
    if len(set(at)) != len(at) or min(axes) < 0:
        raise ShapeError(f"axes {list(axes)}", expected="different axes, counted from the left")
    resized = _resized([x.dims[a] for a in at], attrs)
    if resized is None:
        return (x.with_shape(None),)
    dims = list(x.dims)
    for a, size in zip(at, resized, strict=True):
        if dims[a] == 0 and isinstance(size, int) and size:
            raise ShapeError(f"axis {a} of {x} resized to {size}", expected="an axis with elements")
        dims[a] = size
    return (x.with_shape(tuple(dims)),)


def _check_modes(attrs: Attrs) -> None:
    for name, known in (
        ("coordinates", places.COORDINATES),
        ("rounding", places.ROUNDINGS),
        ("mode", ("nearest", "linear", "cubic")),
        ("policy", POLICIES),
    ):
        if name in attrs and attrs[name] not in known:
            raise ShapeError(f"{name} {attrs[name]!r}", expected="one of " + ", ".join(known))


def _geometry(x: Any, attrs: Mapping[str, Any]) -> Iterator[tuple[int, int, int, float]]:
    """Axis, size, new size and scale of each axis that is resized."""
    axes = [a % x.ndim for a in attrs["axes"]]
    sizes = [x.shape[a] for a in axes]
    counts = [int(str(d)) for d in _resized(sizes, attrs) or ()]
    if attrs["scales"]:
        scales = [np.float32(s) for s in attrs["scales"]]
    elif attrs.get("policy", "stretch") == "stretch":
        scales = [np.float32(m) / np.float32(n) if n else np.float32(1) for m, n in zip(counts, sizes, strict=True)]
    else:
        scales = [_common_scale(sizes, attrs["sizes"], attrs["policy"])] * len(axes)
    for axis, size, count, scale in zip(axes, sizes, counts, scales, strict=True):
        yield axis, size, count, float(scale)


def _combined(xp: Any, x: Any, axis: int, index: Any, weights: Any) -> Any:
    """Sums of the elements at `index`, of shape (places, neighbours), times their weights."""
    spread = (-1, *(1,) * (x.ndim - 1 - axis))
    total = None
    for k in range(index.shape[1]):
        term = xp.multiply(np.take(x, index[:, k], axis=axis), numbers(xp, weights[:, k], x).reshape(spread))
        total = term if total is None else xp.add(total, term)
    return total


def numbers(xp: Any, values: Any, like: Any) -> Any:
    """Numbers that combine with the elements of `like`."""
    if not xp.exact:
        return np.asarray(values).astype(np.asarray(like).dtype)
    known = {v: xp.number(float(v), like) for v in np.unique(values)}
    elements = [known[v] for v in np.ravel(values)]
    result = np.empty(len(elements), object)
    result[:] = [np.asarray(m)[()] for m in elements]
    plain = not elements or isinstance(result[0], int | np.integer)
    return (result.astype(np.int64) if plain else result).reshape(np.shape(values))


def _interpolated(xp: Any, x: Any, attrs: Mapping[str, Any]) -> tuple[Any, dict[int, Any]]:
    """The operand resized axis by axis, and which places of each axis lie outside it."""
    beyond: dict[int, Any] = {}
    for axis, size, count, scale in _geometry(x, attrs):
        region = attrs.get("regions", {}).get(axis, (0.0, 1.0))
        at = places.coordinates(size, count, scale, attrs["coordinates"], region)
        if attrs["coordinates"] == "tf_crop_and_resize" and scale != 1:
            beyond[axis] = places.outside(at, size)
        if scale == 1 or not count:
            x = np.take(x, np.arange(count), axis=axis)
            continue
        if attrs["mode"] == "nearest":
            x = np.take(x, places.nearest(at, size, attrs["rounding"]), axis=axis)
            continue
        coefficient, exclude = attrs["cubic_coeff"], attrs["exclude_outside"]
        if attrs["antialias"]:
            index, weights = places.antialiased(at, size, scale, attrs["mode"], coefficient, exclude)
        elif attrs["mode"] == "cubic":
            index, weights = places.cubic(at, size, coefficient, exclude)
        else:
            index, weights = places.linear(at, size)
        x = _combined(xp, x, axis, index, weights)
    return x, beyond


def _resize_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    """Small operands, resized along their last axes where nothing else is said."""
    axes, given = attrs.get("axes"), attrs.get("scales") or attrs.get("sizes")
    x = known[0]
    if x is None:
        least = max((a + 1 for a in axes or ()), default=len(given or (0,)))
        # ONNX Runtime interpolates matrices and N,C,H,W in every mode.
        rank = rng.choice([r for r in (2, 4) if r >= least] or [least])
        x = tuple(rng.randint(1, 4) for _ in range(rank))
    if axes is None:
        count = len(given) if given else rng.randint(1, 2)
        if count > len(x):
            return None
        axes = tuple(range(len(x) - min(count, len(x)), len(x)))
    if any(not 0 <= a < len(x) for a in axes):
        return None
    drawn: dict[str, Any] = {"axes": axes, **attrs}
    if not given:
        by_scale = "sizes" in attrs or ("scales" not in attrs and rng.random() < 0.5)
        scales = tuple(rng.choice((0.5, 1.5, 2.0, 2.0)) for _ in axes)
        whole = all(isinstance(d, int) and d * s >= 1 for d, s in zip((x[a] for a in axes), scales, strict=True))
        drawn["scales"] = scales if by_scale and whole else (2.0,) * len(axes) if by_scale else ()
        drawn["sizes"] = () if by_scale else tuple(rng.randint(1, 5) for _ in axes)
    return (x,), drawn


def _sample(**draws: sampling.Draw) -> Any:
    def sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
        drawn = _resize_sample(rng, known, attrs)
        if drawn is None:
            return None
        full = sampling.complete(rng, drawn[0][0], drawn[1], draws)
        return None if full is None else (drawn[0], full)

    return sample


def _resize_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    neighbours = 4 if attrs["mode"] == "cubic" else 2
    taps = 2 * int(neighbours ** len(attrs["axes"]))
    return results[0].size * taps


#: Forms of ONNX's Resize.
_resizing = partial(op, index="...{axes} -> ...{axes}; reads axes", onnx="Resize")


@_resizing(
    infer=_resize_type,
    sample=_sample(
        coordinates=sampling.choice("half_pixel", "asymmetric", "align_corners"),
        rounding=sampling.choice(*places.ROUNDINGS),
    ),
    multilinear=(0,),
    movement=True,
)
def resize_nearest(
    xp: Any,
    x: Any,
    *,
    axes: Ints,
    scales: Floats = (),
    sizes: Ints = (),
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    policy: str = "stretch",
) -> Any:
    """The operand with axes scaled, or of other sizes, each place the copy of the element nearest to it (ONNX Resize).

    `coordinates` says where places lie, `rounding` which of two elements is nearer, and `policy` whether the sizes are
    bounds on one scale for all axes. Scales are float32.
    """
    given = {"axes": axes, "scales": scales, "sizes": sizes, "policy": policy}
    for axis, size, count, scale in _geometry(x, given):
        at = places.coordinates(size, count, scale, coordinates)
        index = np.arange(count) if scale == 1 or not size else places.nearest(at, size, rounding)
        x = np.take(x, index, axis=axis)
    return x


@_resizing(
    infer=_resize_type,
    flops=_resize_flops,
    sample=_sample(
        mode=sampling.choice("linear", "linear", "cubic"),
        coordinates=sampling.choice("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    ),
    multilinear=(0,),
)
def resize(
    xp: Any,
    x: Any,
    *,
    axes: Ints,
    scales: Floats = (),
    sizes: Ints = (),
    mode: str = "linear",
    coordinates: str = "half_pixel",
    cubic_coeff: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    policy: str = "stretch",
) -> Any:
    """The operand with axes scaled, or of other sizes, interpolated between elements (ONNX Resize).

    `mode` is "linear" or "cubic", and `antialias` widens the kernel as the axis shrinks. Beyond the border lie copies
    of it, or with `exclude_outside` nothing.
    """
    given = {"axes": axes, "scales": scales, "sizes": sizes, "policy": policy, "mode": mode}
    kernel = {"cubic_coeff": cubic_coeff, "exclude_outside": exclude_outside, "antialias": antialias}
    return _interpolated(xp, x, {**given, **kernel, "coordinates": coordinates})[0]


def _crop_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    if len(attrs["region"]) != 2 * len(attrs["axes"]):
        raise ShapeError(f"region {list(attrs['region'])}", expected="all starts, then all ends, one for each axis")
    return _resize_type(operands, attrs)


def _crop_region(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> Floats:
    count = len(attrs["axes"])
    return (
        *(rng.choice((0.0, 0.25, -0.5)) for _ in range(count)),
        *(rng.choice((0.5, 1.0, 1.5)) for _ in range(count)),
    )


@_resizing(
    infer=_crop_type,
    flops=_resize_flops,
    sample=_sample(
        mode=sampling.choice("linear", "cubic", "nearest"),
        region=_crop_region,
        extrapolation=sampling.choice(0.0, 1.5),
    ),
)
def crop_resize(
    xp: Any,
    x: Any,
    *,
    axes: Ints,
    region: Floats,
    scales: Floats = (),
    sizes: Ints = (),
    mode: str = "linear",
    rounding: str = "round_prefer_floor",
    cubic_coeff: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    policy: str = "stretch",
    extrapolation: float = 0.0,
) -> Any:
    """A part of the operand, resized; places outside the operand are `extrapolation` (ONNX Resize, tf_crop_and_resize).

    `region` holds where the part starts along each axis, then where it ends, in shares of the distance between the
    first and the last element. An axis whose scale is 1 is not cropped, as in ONNX Runtime.
    """
    count = len(axes)
    regions = {a % x.ndim: (region[i], region[count + i]) for i, a in enumerate(axes)}
    given = {"axes": axes, "scales": scales, "sizes": sizes, "policy": policy, "mode": mode, "rounding": rounding}
    kernel = {"cubic_coeff": cubic_coeff, "exclude_outside": exclude_outside, "antialias": antialias}
    more = {"coordinates": "tf_crop_and_resize", "regions": regions}
    resized, beyond = _interpolated(xp, x, {**given, **kernel, **more})
    for axis, there in beyond.items():
        spread = there.reshape(-1, *(1,) * (resized.ndim - 1 - axis))
        resized = np.where(spread, xp.number(extrapolation, x), resized)
    return resized


@dataclass(frozen=True)
class AxisTaps:
    """The elements that each place of a resized axis is made of, by place and neighbour, and their weights.

    Without weights there is one, and the place is a copy of it. `beyond` is true of places outside of the operand.
    """

    axis: int
    index: Any
    weights: Any = None
    beyond: Any = None


def axis_taps(shape: Sequence[int], attrs: Mapping[str, Any]) -> Iterator[AxisTaps]:
    """The elements that places of each resized axis are made of, axis by axis, for attributes of an operator.

    Those without a mode take the nearest element, those without coordinates crop a region. The references state the
    same: laws are proved of their text, which is therefore left as it is.
    """
    rank, region = len(shape), attrs.get("region", ())
    how, mode = attrs.get("coordinates", "tf_crop_and_resize"), attrs.get("mode", "nearest")
    starts, ends = region[: len(region) // 2], region[len(region) // 2 :]
    regions = {axis % rank: part for axis, *part in zip(attrs["axes"], starts, ends, strict=False)}
    for axis, size, count, scale in _geometry(np.broadcast_to(0, shape), attrs):
        start, end = regions.get(axis, (0.0, 1.0))
        at = places.coordinates(size, count, scale, how, (start, end))
        if scale == 1 or not count:
            yield AxisTaps(axis, np.arange(count)[:, None])
            continue
        beyond = places.outside(at, size) if how == "tf_crop_and_resize" else None
        if mode == "nearest":
            yield AxisTaps(axis, places.nearest(at, size, attrs["rounding"])[:, None], None, beyond)
            continue
        coefficient, exclude = attrs["cubic_coeff"], attrs["exclude_outside"]
        if attrs["antialias"]:
            index, weights = places.antialiased(at, size, scale, mode, coefficient, exclude)
        elif mode == "cubic":
            index, weights = places.cubic(at, size, coefficient, exclude)
        else:
            index, weights = places.linear(at, size)
        yield AxisTaps(axis, index, weights, beyond)
