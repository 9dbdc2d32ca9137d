"""Operators that cut, border and repeat: split, slice, pad, tile, expand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, symbolic, unchanged
from eqsat.language.ops import sampling
from eqsat.language.ops.movement import _checked_shape, axis_of, larger, smaller
from eqsat.language.ops.operands import demands, enumeration
from eqsat.language.ops.windows import pad_spatial
from eqsat.language.terms import Attrs, Dim, Shape, TensorType, broadcast_shapes, ceildiv, evaluate


def _halves(axis: int) -> Callable[[tuple[int, ...]], tuple[int, ...] | None]:
    """The sizes of two equal parts, the split at the most recent concat of equal parts."""

    def sizes(x: tuple[int, ...]) -> tuple[int, ...] | None:
        return None if x[axis] % 2 else (x[axis] // 2, x[axis] // 2)

    return sizes


def _split_type(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, sizes = present(operands, 0), attrs["sizes"]
    _checked_shape(sizes)
    if x.shape is None:
        return tuple(x for _ in sizes)
    axis = axis_of(x, attrs["axis"])
    total: Dim = 0
    for size in sizes:
        total = total + size
    gap = total - x.shape[axis]
    if isinstance(gap, int) and gap:
        raise ShapeError(
            f"split of {x} along axis {axis} into {list(sizes)}", expected=f"sizes that sum to {x.shape[axis]}"
        )
    return tuple(x.with_shape((*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)


def _split_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    sizes = attrs.get("sizes")
    drawn = sampling.one_operand(axis=sampling.axis)(rng, known, attrs)
    if drawn is None:
        return None
    (x,), full = drawn
    axis = full["axis"]
    if known[0] is None:
        parts = sizes or tuple(rng.randint(1, 2) for _ in range(rng.randint(2, 3)))
        x = (*x[:axis], sum(parts), *x[axis + 1 :])
        return (x,), {**full, "sizes": parts}
    if sizes is not None:
        return (x,), full
    total = x[axis]
    if not isinstance(total, int) or not total:
        return None
    cut = rng.randint(0, total)
    return (x,), {**full, "sizes": (cut, total - cut)}


#: Operators whose results are elements of their operand, none changed.
_copying = partial(op, multilinear=(0,), movement=True, total="static", hands_on=True)


@_copying(
    infer=_split_type,
    sample=_split_sample,
    onnx="Split",
    instances=({"axis": 0, "sizes": _halves(0)}, {"axis": 1, "sizes": _halves(1)}),
    shapes="One output a size: the shape of x with that size at `axis`; the sizes add up to the dim there.",
    on_dims=symbolic.split,
    unchanged=unchanged.alone,
    demands=demands.parts,
    strided=True,
)
def split(xp: Any, x: Any, *, axis: int, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """The operand cut along an axis into parts of the sizes given, one output each."""
    ends = itertools.accumulate(sizes)
    lead = (slice(None),) * (axis % x.ndim)
    return tuple(x[(*lead, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True))


def _slice_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    starts, ends, axes, steps = (attrs[k] for k in ("starts", "ends", "axes", "steps"))
    steps = steps or (1,) * len(axes)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ShapeError(
            f"slice with starts {starts}, ends {ends}, axes {axes}, steps {steps}", expected="tuples of one length"
        )
    if 0 in steps or list(axes) != sorted(set(axes)):
        raise ShapeError(f"slice with axes {axes}, steps {steps}", expected="ascending axes and steps other than 0")
    if x.shape is None:
        return (x,)
    dims = list(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = axis_of(x, axis)
        dims[at] = _slice_length(start, end, step, dims[at])
    return (x.with_shape(tuple(dims)),)


def _slice_length(start: Dim, end: Dim, step: int, dim: Dim) -> Dim:
    """The number of elements in start:end:step of `dim`; with a negative step, an end of -1 lies before the first."""
    if step > 0:
        span = smaller(end, dim) - start
        return larger(0, ceildiv(span, step) if step > 1 else span)
    span = smaller(start, dim - 1) - end
    return larger(0, ceildiv(span, -step) if step < -1 else span)


def _slice_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    counts = {len(attrs[k]) for k in ("axes", "starts", "ends") if k in attrs}
    counts |= {len(attrs["steps"])} if attrs.get("steps") else set()
    least = max(*(attrs.get("axes") or (0,)), *(c - 1 for c in counts), 0) + 1
    x = known[0]
    if x is None:
        x = tuple(rng.randint(1, 4) for _ in range(rng.randint(least, max(least, 3))))
    if least > len(x) or len(counts) > 1 or not all(isinstance(d, int) for d in x):
        return None
    axes = attrs.get("axes", sampling.axes(rng, x, attrs))
    if counts and len(axes) not in counts:
        axes = tuple(sorted(rng.sample(range(len(x)), counts.pop())))
    dims = [evaluate(x[a], {}) for a in axes]
    drawn: dict[str, Any] = {"axes": axes, "steps": tuple(rng.choice((1, 1, 1, 2, -1)) for _ in axes), **attrs}
    steps = drawn["steps"] or (1,) * len(axes)
    if "starts" not in drawn:
        drawn["starts"] = tuple(rng.randint(0, d) if s > 0 else d - 1 for d, s in zip(dims, steps, strict=True))
    if "ends" not in drawn:
        bounds = zip(dims, drawn["starts"], steps, strict=True)
        drawn["ends"] = tuple(rng.randint(min(b, d), d) if s > 0 else rng.randint(-1, max(b, -1)) for d, b, s in bounds)
    return (x,), drawn


@_copying(
    "slice",
    infer=_slice_type,
    sample=_slice_sample,
    onnx="Slice",
    shapes="The rank of x; along a named axis as many elements as the steps reach.",
    choices={("axes", "starts", "ends", "steps"): enumeration.slices},
    on_dims=symbolic.slice_,
    unchanged=unchanged.uncut,
    demands=demands.bounds_from_left,
    strided=True,
    along_axes=True,
)
def slice_(
    xp: Any,
    x: Any,
    *,
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...],
    steps: tuple[int, ...] = (),
) -> Any:
    """Every steps[i]-th element from starts[i] to before ends[i] along axes[i].

    Bounds count from the left and starts are never negative; an end of -1 lies before the first element and belongs to
    a negative step. Empty `steps` are ones.
    """
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps or (1,) * len(axes), strict=True):
        stop = None if step < 0 and end < 0 else max(end, 0)
        index[axis] = slice(max(start, 0), stop, step)
    return x[tuple(index)]


PAD_MODES = ("constant", "reflect", "edge", "wrap")


def _pad_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, pads, mode = present(operands, 0), attrs["pads"], attrs["mode"]
    if mode not in PAD_MODES:
        raise ShapeError(f"pad mode {mode!r}", expected="one of " + ", ".join(PAD_MODES))
    if x.shape is None:
        return (x,)
    if len(pads) != 2 * x.rank:
        raise ShapeError(f"pads {list(pads)} for {x}", expected=f"{2 * x.rank} pads: all begins, then all ends")
    dims = tuple(d + (pads[i] + pads[x.rank + i]) for i, d in enumerate(x.shape))
    if mode != "constant" and any(d == 0 and max(pads[i], pads[x.rank + i]) > 0 for i, d in enumerate(x.shape)):
        raise ShapeError(f"pads {list(pads)} repeat elements of {x}", expected="axes with elements")
    cuts = [max(-pads[i], 0) + max(-pads[x.rank + i], 0) for i in range(x.rank)]
    if any(isinstance(d, int) and cut > d for d, cut in zip(x.shape, cuts, strict=True) if cut):
        raise ShapeError(
            f"pads {list(pads)} cut more off {x} than there is", expected="a result with dims of 0 or more"
        )
    return (x.with_shape(dims),)


def _pads(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    limits = [min(1, d - 1) if attrs.get("mode") == "reflect" and isinstance(d, int) else 1 for d in x]
    return tuple(rng.randint(0, max(most, 0)) for most in limits * 2)


@op(
    infer=_pad_type,
    sample=sampling.one_operand(
        rank=lambda a: len(a.get("pads", ())) // 2,
        mode=sampling.choice("constant", "constant", "edge", "reflect"),
        value=sampling.choice(0.0, 0.0, 1.5, -0.5),
        pads=_pads,
    ),
    movement=True,
    onnx="Pad",
    instances=({"pads": (0, 0, 1, 1) * 2},),
    shapes="Every dim of x with its begin and its end of `pads` added.",
    total="static",
    choices={("pads", "mode", "value"): enumeration.pads},
    unchanged=unchanged.unpadded,
    demands=demands.mirrored,
    pulled=True,
    along_axes=True,
)
def pad(xp: Any, x: Any, *, pads: tuple[int, ...], mode: str = "constant", value: float = 0.0) -> Any:
    """The operand with a border: all begins, then all ends; a negative pad cuts off. Linear where `value` is 0."""
    rank = x.ndim
    pairs = [(pads[i], pads[rank + i]) for i in range(rank)]
    x = x[tuple(slice(max(-b, 0), n - max(-e, 0)) for n, (b, e) in zip(x.shape, pairs, strict=True))]
    borders = [(max(b, 0), max(e, 0)) for b, e in pairs]
    if mode == "constant":
        return pad_spatial(xp, x, [b for b, _ in borders] + [e for _, e in borders], value)
    for axis, border in enumerate(borders):
        if any(border):
            order = np.pad(np.arange(x.shape[axis]), border, mode=mode)  # type: ignore[call-overload]
            x = np.take(x, order, axis=axis)
    return x


def _tile_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, repeats = present(operands, 0), attrs["repeats"]
    if x.shape is None:
        return (x,)
    if len(repeats) != x.rank:
        raise ShapeError(f"repeats {list(repeats)} for {x}", expected=f"{x.rank} repeats")
    return (x.with_shape(tuple(d * r for d, r in zip(x.shape, repeats, strict=True))),)


@_copying(
    infer=_tile_type,
    sample=sampling.one_operand(
        most=3,
        rank=lambda a: len(a.get("repeats", ())),
        repeats=lambda rng, x, attrs: tuple(rng.choice((1, 1, 2)) for _ in x),
    ),
    onnx="Tile",
    shapes="Every dim of x times its number of `repeats`.",
    choices={"repeats": enumeration.repeats},
    on_dims=symbolic.tile,
    unchanged=unchanged.repeated_once,
    pulled=True,
)
def tile(xp: Any, x: Any, *, repeats: tuple[int, ...]) -> Any:
    """The operand repeated along every axis, `repeats` times each."""
    return np.tile(x, repeats)


def _expand_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, shape = present(operands, 0), _checked_shape(attrs["shape"])
    return (x.with_shape(None if x.shape is None else broadcast_shapes(x.shape, shape)),)


def _wider(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> Shape:
    lead = tuple(sampling.dim(rng) for _ in range(rng.choice((0, 0, 1))))
    return (*lead, *(sampling.dim(rng) if d == 1 else d for d in x))


def _repeated(x: tuple[int, ...]) -> tuple[int, ...] | None:
    """A vector as a row of a square matrix, as often as it has elements."""
    return (x[0], *x) if len(x) == 1 else None


def _expand_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    x, shape = known[0], attrs.get("shape")
    if x is None:
        x = tuple(1 if rng.random() < 0.5 else d for d in (shape or sampling.shape(rng)))
    return (x,), {**attrs, "shape": shape if shape is not None else _wider(rng, x, attrs)}


@_copying(
    infer=_expand_type,
    sample=_expand_sample,
    onnx="Expand",
    instances=({"shape": _repeated},),
    shapes="The broadcast of the shape of x and `shape`, by NumPy's rule.",
    choices={"shape": enumeration.broadcast_to},
    on_dims=symbolic.expand,
    unchanged=unchanged.same_shape,
    demands=demands.repeated,
    strided=True,
)
def expand(xp: Any, x: Any, *, shape: tuple[int, ...]) -> Any:
    """The operand broadcast with a tensor of the shape given."""
    return np.broadcast_to(x, broadcast_shapes(x.shape, shape))  # type: ignore[arg-type]
