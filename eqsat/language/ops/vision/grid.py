"""Sampling at places that a grid gives, relative to the size of the operand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype
from eqsat.language.terms import Attrs, Dim, Shape, TensorType

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
#: Places further out than any element are as far out as this.
_FAR = float(1 << 40)
#: The coefficient of the cubic kernel, which ONNX fixes here.
_CUBIC = -0.75


def _grid_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, grid = present(operands, 0), present(operands, 1)
    same_dtype([x, grid])
    for name, known in (("mode", MODES), ("padding", PADDINGS)):
        if attrs[name] not in known:
            raise ShapeError(f"{name} {attrs[name]!r}", expected="one of " + ", ".join(known))
    if x.shape is None or grid.shape is None:
        return (x.with_shape(None),)
    spatial = x.rank - 2
    if spatial < 1 or grid.rank != x.rank or grid.dims[-1] not in (spatial, *_names(grid.dims[-1])):
        raise ShapeError(
            f"grid_sample of {x} at {grid}", expected="N,C,spatial… and a grid N,places…,number of spatial axes"
        )
    batches = [d for d in (x.dims[0], grid.dims[0]) if isinstance(d, int)]
    if len(set(batches)) > 1:
        raise ShapeError(f"grid_sample of {x} at {grid}", expected="as many grids as batches")
    return (x.with_shape((*x.dims[:2], *grid.dims[1:-1])),)


def _names(dim: Dim) -> tuple[Dim, ...]:
    """A dim that is known by name only may be any size."""
    return () if isinstance(dim, int) else (dim,)


def _grid_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[attrs["mode"]]
    return results[0].size * (2 * int(taps ** (results[0].rank - 2)))


def _grid_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    x, grid = known
    batch = x[0] if x else grid[0] if grid else rng.randint(1, 2)
    if any(s is not None and len(s) != 4 for s in known):
        return None
    x = x or (batch, rng.randint(1, 2), rng.randint(1, 4), rng.randint(1, 4))
    grid = grid or (batch, rng.randint(1, 3), rng.randint(1, 3), 2)
    drawn = {"mode": rng.choice(MODES), "padding": rng.choice(PADDINGS), "align_corners": rng.random() < 0.5}
    return (x, grid), {**drawn, **attrs}


def _reflected(index: Any, low: float, high: float) -> Any:
    """Indices beyond a border, mirrored at it as often as it takes."""
    span = high - low
    if not span:
        return np.full(index.shape, int(low))
    at = index.astype(np.float64)
    beyond = np.maximum(np.where(at < low, low - at, at - high), 0.0)
    times = np.floor(beyond / span)
    rest = beyond - times * span
    from_low = (at < low) == (times % 2 == 0)
    mirrored = np.where(from_low, low + rest, high - rest)
    return np.trunc(np.where((at < low) | (at > high), mirrored, at)).astype(np.int64)


def _neighbours(at: Any, mode: str) -> list[tuple[Any, Any]]:
    """The indices around a place on one axis, some of them beyond the border, and their weights."""
    settled = np.clip(np.nan_to_num(at), -_FAR, _FAR)
    if mode == "nearest":
        return [(np.rint(settled).astype(np.int64), None)]
    first = np.floor(settled)
    past, start = at - first, first.astype(np.int64)
    if mode == "linear":
        return [(start, 1 - past), (start + 1, past)]
    a = _CUBIC
    near = (((a + 2) * t - (a + 3)) * t * t + 1 for t in (past, 1 - past))
    far = (((a * t - 5 * a) * t + 8 * a) * t - 4 * a for t in (past + 1, 2 - past))
    (second, third), (begin, end) = near, far
    return [(start - 1, begin), (start, second), (start + 1, third), (start + 2, end)]


@op(
    infer=_grid_type,
    flops=_grid_flops,
    sample=_grid_sample,
    onnx="GridSample",
    shapes="n, c, spatial… and n, places…, rank become n, c, places….",
)
def grid_sample(
    xp: Any, x: Any, grid: Any, *, mode: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> Any:
    """The operand N,C,spatial… at the places of a grid, whose vectors name the last axis first (ONNX GridSample).

    -1 and 1 are the borders of an axis, or with `align_corners` the middles of its first and last element. What lies
    beyond is zeros, the element at the border, or a mirror image.
    """
    spatial = x.ndim - 2
    rows = np.arange(x.shape[0]).reshape(-1, *(1,) * spatial)
    if xp.exact:
        return _opaque(xp, x, grid, rows, f"{mode}-{padding}-{align_corners}")
    axes = []
    for axis, size in enumerate(x.shape[2:]):
        at = grid[..., spatial - 1 - axis]
        at = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
        axes.append(_neighbours(at, mode))
    total = None
    for taps in itertools.product(*axes):
        index, weights, inside = [], [], np.ones(grid.shape[:-1], bool)
        for (place, weight), size in zip(taps, x.shape[2:], strict=True):
            if padding == "reflection":
                low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
                place = _reflected(place, low, high)
            elif padding == "zeros":
                inside &= (place >= 0) & (place < size)
            index.append(np.clip(place, 0, size - 1))
            weights.append(weight)
        elements = np.moveaxis(x[(rows, slice(None), *index)], -1, 1)
        elements = np.where(inside[:, None], elements, np.zeros((), x.dtype))
        for weight in weights:
            elements = elements if weight is None else elements * weight[:, None].astype(x.dtype)
        total = elements if total is None else total + elements
    return total


def _opaque(xp: Any, x: Any, grid: Any, rows: Any, how: str) -> Any:
    """Elements at places that are some function of the grid: numbers without an order have no places between them."""
    if np.asarray(grid).dtype == object:
        raise ShapeError("terms have no order", expected="an operator whose movement does not depend on values")
    spatial = x.ndim - 2
    index = [xp.apply(f"place-{how}-{i}", grid[..., spatial - 1 - i]) % n for i, n in enumerate(x.shape[2:])]
    return np.moveaxis(x[(rows, slice(None), *index)], -1, 1)
