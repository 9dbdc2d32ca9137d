"""Where the elements of a resized axis lie in the original: coordinates, and the elements and weights they stand for.

All in float32, as ONNX Runtime computes them: a place halfway between two elements falls to either by its last bit.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

#: Indices and weights by place and neighbour, and the places that lie outside the operand.
Taps: TypeAlias = "tuple[Any, Any, Any]"

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
#: So near the middle between two elements a place counts as being there: ONNX Runtime 1.31 allows for rounding so far.
_HALFWAY = np.float32(1e-6)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def coordinates(size: int, count: int, scale: float, how: str, region: tuple[float, float] = (0.0, 1.0)) -> Any:
    """Where each of `count` places lies on an axis of `size` elements, as float32.

    A scale of 1 leaves places where they are. `region` is the part that is cropped, in shares of the axis.
    """
    one, half = np.float32(1), np.float32(0.5)
    places, factor = np.arange(count, dtype=np.float32), np.float32(scale)
    given, places_made = np.float32(size), np.float32(count)
    if factor == one:
        return places
    match how:
        case "asymmetric":
            return places / factor
        case "tf_half_pixel_for_nn":
            return (places + half) / factor
        case "align_corners":
            return places * (given - one) / (places_made - one) if count != 1 else np.zeros(1, np.float32)
        case "pytorch_half_pixel" if count <= 1:
            return np.zeros(count, np.float32)
        case "half_pixel_symmetric":
            offset = given / np.float32(2) * (one - places_made / (factor * given))
            return (np.float64(offset) + (places.astype(np.float64) + 0.5) / factor - 0.5).astype(np.float32)
        case "tf_crop_and_resize":
            return _cropped(places, given, places_made, region)
        case _:
            return (places + half) / factor - half


def _cropped(places: Any, given: Any, made: Any, region: tuple[float, float]) -> Any:
    one = np.float32(1)
    start, end = np.float32(region[0]), np.float32(region[1])
    if made > one:
        return start * (given - one) + (places * (end - start) * (given - one)) / (made - one)
    middle = 0.5 * np.float64(start + end) * np.float64(given - one)
    return np.full(places.shape, middle, np.float32)


def outside(at: Any, size: int) -> Any:
    """True where coordinates lie outside an axis."""
    return (at < 0) | (at > np.float32(size - 1))


def nearest(at: Any, size: int, rounding: str) -> Any:
    """The index of the element that each coordinate is rounded to."""
    match rounding:
        case "floor":
            index = np.floor(at)
        case "ceil":
            index = np.ceil(at)
        case _:
            below = np.floor(at)
            past = at - below - np.float32(0.5)
            halfway = np.abs(past) <= _HALFWAY
            index = below + np.where(halfway, rounding == "round_prefer_ceil", past > 0)
    return np.clip(index.astype(np.int64), 0, size - 1)


def linear(at: Any, size: int) -> tuple[Any, Any]:
    """The two elements around each coordinate, those at the border repeated, and their weights."""
    inside = np.clip(at, np.float32(0), np.float32(size - 1))
    below = np.minimum(inside.astype(np.int64), size - 1)
    above = np.minimum(below + 1, size - 1)
    # Where both are one element, each has half: a weight of 0 would make NaN of an infinity.
    upper = np.where(below == above, np.float32(0.5), inside - below.astype(np.float32))
    lower = np.where(below == above, np.float32(0.5), above.astype(np.float32) - inside)
    return np.stack([below, above], -1), np.stack([lower, upper], -1)


def cubic(at: Any, size: int, coefficient: float, exclude_outside: bool) -> tuple[Any, Any]:
    """The four elements around each coordinate and their weights by the cubic convolution of Keys (1981)."""
    first = np.floor(at).astype(np.int64)
    index = first[:, None] + np.arange(-1, 3)
    weights = _kernel(index - at[:, None], "cubic", coefficient)
    return _bordered(index, weights, size, exclude_outside)


def antialiased(
    at: Any, size: int, scale: float, mode: str, coefficient: float, exclude_outside: bool
) -> tuple[Any, Any]:
    """All elements under a kernel that is as much wider as the axis is smaller, and their weights, as Pillow has it."""
    one, half = np.float32(1), np.float32(0.5)
    step = one / np.float32(scale)
    reach = np.float32(2 if mode == "cubic" else 1) * max(step, one)
    centre = at + half
    first = np.floor(centre - reach + half).astype(np.int64)
    last = np.floor(centre + reach + half).astype(np.int64)
    index = first[:, None] + np.arange(max(int((last - first).max(initial=0)), 1))
    narrowing = one / step if step >= one else one
    weights = _kernel((index.astype(np.float32) - centre[:, None] + half) * narrowing, mode, coefficient)
    weights = np.where(index < last[:, None], weights, np.float32(0))
    if exclude_outside:
        weights = np.where((index < 0) | (index >= size), np.float32(0), weights)
    total = weights.sum(-1, keepdims=True, dtype=np.float32)
    return np.clip(index, 0, size - 1), weights / np.where(total == 0, one, total)


def _kernel(distance: Any, mode: str, coefficient: float) -> Any:
    """The weight of an element at a distance, in elements."""
    x, a = np.abs(distance.astype(np.float32)), np.float32(coefficient)
    if mode == "linear":
        return np.maximum(np.float32(1) - x, np.float32(0))
    near = ((a + np.float32(2)) * x - (a + np.float32(3))) * x * x + np.float32(1)
    far = (((x - np.float32(5)) * x + np.float32(8)) * x - np.float32(4)) * a
    return np.where(x < 1, near, np.where(x < 2, far, np.float32(0)))


def _bordered(index: Any, weights: Any, size: int, exclude_outside: bool) -> tuple[Any, Any]:
    if exclude_outside:
        weights = np.where((index < 0) | (index >= size), np.float32(0), weights)
        weights = weights / weights.sum(-1, keepdims=True, dtype=np.float32)
    return np.clip(index, 0, size - 1), weights
