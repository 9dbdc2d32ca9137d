"""Operators whose integer operands say where an element goes, or how far an order is turned."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present
from eqsat.language.ops import sampling
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType


def _one_hot_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    indices, values = present(operands, 0), present(operands, 1)
    if indices.dtype not in (DType.INT32, DType.INT64):
        raise ShapeError(f"indices are {indices}", expected="int32 or int64", remedy="cast the indices")
    if values.shape is not None and (values.rank != 1 or (isinstance(values.dims[0], int) and values.dims[0] != 2)):
        raise ShapeError(f"values {values} of one_hot", expected="two: that of other places, then that of the index")
    if isinstance(attrs["depth"], int) and attrs["depth"] < 0:
        raise ShapeError(f"depth {attrs['depth']}", expected="a depth of 0 or more")
    if indices.shape is None:
        return (values.with_shape(None),)
    if not indices.rank:
        raise ShapeError(f"one_hot of {indices}", expected="one axis or more", remedy="reshape the index")
    axis = attrs["axis"]
    if not -indices.rank - 1 <= axis <= indices.rank:
        raise ShapeError(f"axis {axis} of one_hot of {indices}", expected=f"{-indices.rank - 1} to {indices.rank}")
    at = axis % (indices.rank + 1)
    return (values.with_shape((*indices.dims[:at], attrs["depth"], *indices.dims[at:])),)


def _one_hot_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    axis = attrs.get("axis", -1)
    least = axis if axis >= 0 else -axis - 1
    indices = known[0] if known[0] is not None else sampling.shape(rng, max(least, 1), max(least, 3))
    if not indices:
        return None
    drawn = {"depth": rng.randint(1, 4), "axis": rng.choice((-1, 0)), **attrs}
    return (indices, known[1] or (2,)), drawn


def _no_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    return results[0].size


@op(
    infer=_one_hot_type,
    flops=_no_flops,
    sample=_one_hot_sample,
    dtypes={0: "int64"},
    onnx="OneHot",
    shapes="The shape of the indices with the depth put in at `axis`.",
    adds_axis=True,
)
def one_hot(xp: Any, indices: Any, values: Any, *, depth: int, axis: int = -1) -> Any:
    """The second value at each index along a new axis, and the first elsewhere (ONNX OneHot).

    Negative indices count from the end; those out of range stand nowhere.
    """
    indices = np.asarray(indices, np.int64)
    at = axis % (indices.ndim + 1)
    places = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - at))
    counted = np.expand_dims(np.where(indices < 0, indices + depth, indices), at)
    return np.where(counted == places, values[1], values[0])


def _turned_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, lens = present(operands, 0), present(operands, 1)
    axes = attrs["batch_axis"], attrs["time_axis"]
    if sorted(axes) != [0, 1]:
        raise ShapeError(f"batch axis {axes[0]} and time axis {axes[1]}", expected="0 and 1, or 1 and 0")
    if lens.dtype is not DType.INT64:
        raise ShapeError(f"lengths of sequences {lens}", expected="int64", remedy="cast them")
    if x.shape is None or lens.shape is None:
        return (x,)
    batch = x.dims[axes[0]] if x.rank > 1 else 0
    differs = lens.rank == 1 and isinstance(lens.dims[0], int) and isinstance(batch, int) and lens.dims[0] != batch
    if x.rank < 2 or lens.rank != 1 or differs:
        raise ShapeError(f"reverse_sequence of {x} by {lens}", expected="two axes or more, and a length for each batch")
    return (x,)


def _turned_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    batch = attrs.get("batch_axis", 1 - attrs["time_axis"] if "time_axis" in attrs else rng.choice((0, 1)))
    x, lens = known
    if x is None:
        x = sampling.shape(rng, 2, 4)
        x = (*x[:batch], lens[0], *x[batch + 1 :]) if lens else x
    if len(x) < 2 or batch not in (0, 1):
        return None
    return (x, lens or (x[batch],)), {"time_axis": 1 - batch, **attrs, "batch_axis": batch}


@op(
    infer=_turned_type,
    sample=_turned_sample,
    movement=True,
    dtypes={1: "int64"},
    onnx="ReverseSequence",
    shapes="The shape of x.",
)
def reverse_sequence(xp: Any, x: Any, lens: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    """The first `lens[i]` steps of batch i in reverse order, the rest as they are (ONNX ReverseSequence)."""
    moved = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    batches, steps = moved.shape[:2]
    lens, places = np.asarray(lens, np.int64)[:, None], np.arange(steps)
    order = np.where(places < lens, np.clip(lens - 1 - places, 0, max(steps - 1, 0)), places)
    return np.moveaxis(moved[np.arange(batches)[:, None], order], (0, 1), (batch_axis, time_axis))
