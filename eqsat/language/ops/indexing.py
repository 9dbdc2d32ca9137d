"""Operators that pick, place and rearrange single elements, and those that read shapes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import InferRule, Operands, Sample, op, present, same_dtype, symbolic
from eqsat.language.ops import sampling
from eqsat.language.ops.movement import axis_of
from eqsat.language.ops.operands import demands, enumeration
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType, evaluate, floordiv

_INDICES = {1: "int64"}


def _indices(operands: Operands) -> TensorType:
    indices = present(operands, 1)
    if indices.dtype not in (DType.INT32, DType.INT64):
        raise ShapeError(f"indices are {indices}", expected="int32 or int64", remedy="cast the indices")
    return indices


def _gather_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, indices = present(operands, 0), _indices(operands)
    if x.shape is None or indices.shape is None:
        return (x.with_shape(None),)
    axis = axis_of(x, attrs["axis"])
    return (x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)


def _gather_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    drawn = sampling.one_operand(most=3, axis=sampling.axis)(rng, known[:1], attrs)
    if drawn is None:
        return None
    indices = known[1] if known[1] is not None else sampling.shape(rng, 0, 2)
    return [drawn[0][0], indices], drawn[1]


#: Operators that take elements at indices.
_gathering = partial(op, multilinear=(0,), movement=True, dtypes=_INDICES, pulled=True, indexed=True)


@_gathering(
    infer=_gather_type,
    sample=_gather_sample,
    onnx="Gather",
    shapes="The shape of x with the dims of the indices in place of `axis`.",
    beside=enumeration.gathered,
    on_dims=symbolic.gather,
)
def gather(xp: Any, x: Any, indices: Any, *, axis: int = 0) -> Any:
    """The slices of `x` along an axis that the indices name; negative ones count from the end."""
    return np.take(x, indices.astype(np.int64), axis=axis)


def _gather_elements_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, indices = present(operands, 0), _indices(operands)
    if x.shape is not None and indices.shape is not None:
        if x.rank != indices.rank:
            raise ShapeError(f"gather_elements of {x} by {indices}", expected="indices of the same rank")
        along = axis_of(x, attrs["axis"])
        sizes = [(d, n) for i, (d, n) in enumerate(zip(x.dims, indices.dims, strict=True)) if i != along]
        if any(isinstance(d, int) and isinstance(n, int) and n > d for d, n in sizes):
            raise ShapeError(f"gather_elements of {x} by {indices}", expected="indices no larger off the axis")
    return (x.with_shape(indices.shape),)


def _same_rank_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    """An operand, and indices and updates no larger than it on any axis."""
    drawn = sampling.one_operand(most=3, axis=sampling.axis)(rng, known[:1], attrs)
    if drawn is None:
        return None
    x = drawn[0][0]
    if not all(isinstance(d, int) for d in x):
        return None
    indices = next((s for s in known[1:] if s is not None), None)
    if indices is None:
        indices = tuple(rng.randint(1, evaluate(d, {})) if d else 0 for d in x)
    return [x, *(s if s is not None else indices for s in known[1:])], drawn[1]


def _place(shape: Sequence[int], axis: int, indices: Any) -> tuple[Any, ...]:
    """The index that takes, for every position of `shape`, the element at `indices` along the axis."""
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in shape)])
    grid[axis] = indices
    return tuple(grid)


@_gathering(
    infer=_gather_elements_type,
    sample=_same_rank_sample,
    onnx="GatherElements",
    shapes="The shape of the indices, which have the rank of x.",
)
def gather_elements(xp: Any, x: Any, indices: Any, *, axis: int = 0) -> Any:
    """result[i][j] = x[indices[i][j]][j] for axis 0, and so on for other axes and ranks."""
    indices = np.asarray(indices, np.int64)
    return x[_place(indices.shape, axis % x.ndim, indices)]


def _gather_nd_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, indices, batch = present(operands, 0), _indices(operands), attrs["batch_dims"]
    if x.shape is None or indices.shape is None:
        return (x.with_shape(None),)
    depth = indices.dims[-1] if indices.shape else 0
    if not indices.shape or (isinstance(depth, int) and batch + depth > x.rank) or batch >= min(x.rank, indices.rank):
        raise ShapeError(
            f"gather_nd of {x} by {indices} with {batch} batch dims",
            expected="indices whose last dim is at most the rank of the input without its batch dims",
        )
    if not isinstance(depth, int):
        return (x.with_shape(None),)
    return (x.with_shape((*indices.shape[:-1], *x.shape[batch + depth :])),)


def _nd_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    """An operand, indices into its leading axes, and updates where they are asked for."""
    batch = attrs.get("batch_dims", 0)
    x = known[0] if known[0] is not None else sampling.shape(rng, batch + 1, max(3, batch + 1))
    if len(x) <= batch:
        return None
    indices = known[1]
    if indices is None:
        indices = (*x[:batch], *sampling.shape(rng, 0, 2), rng.randint(1, len(x) - batch))
    depth = indices[-1] if indices else 0
    if not isinstance(depth, int) or batch + depth > len(x):
        return None
    updates = [s if s is not None else (*indices[:-1], *x[depth:]) for s in known[2:]]
    return [x, indices, *updates], attrs


@_gathering(
    infer=_gather_nd_type,
    sample=_nd_sample,
    onnx="GatherND",
    shapes="The dims of the indices but the last, then the dims of x that an index vector does not reach.",
)
def gather_nd(xp: Any, x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    """The slices of `x` at the index vectors that the last axis of `indices` holds, batch by batch."""
    indices = np.asarray(indices, np.int64)
    lead = indices.shape[:batch_dims]
    grid = [g.reshape(g.shape + (1,) * (indices.ndim - 1 - batch_dims)) for g in _grid(lead)]
    vectors = [indices[..., i] for i in range(indices.shape[-1])]
    index = (*grid, *vectors)
    return x[index] if index else np.broadcast_to(x, (*indices.shape[:-1], *x.shape))


def _grid(shape: Sequence[int]) -> list[Any]:
    return list(np.ogrid[tuple(slice(n) for n in shape)]) if shape else []


_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _scatter_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, indices, updates = present(operands, 0), _indices(operands), present(operands, 2)
    same_dtype([x, updates])
    if attrs["reduction"] not in _REDUCTIONS:
        raise ShapeError(f"reduction {attrs['reduction']!r}", expected="one of " + ", ".join(_REDUCTIONS))
    if x.shape is None or indices.shape is None or updates.shape is None:
        return (x,)
    if "axis" in attrs:
        axis = axis_of(x, attrs["axis"])
        fits = x.rank == indices.rank == updates.rank and _alike(updates.dims, indices.dims)
        within = zip(indices.dims, x.dims, strict=False)
        fits = fits and not any(_exceeds(i, d) for k, (i, d) in enumerate(within) if k != axis)
    else:
        depth = indices.dims[-1] if indices.shape else -1
        fits = not isinstance(depth, int) or (
            0 <= depth <= x.rank and _alike(updates.dims, indices.dims[:-1] + x.dims[depth:])
        )
    if not fits:
        raise ShapeError(f"scatter of {updates} into {x} at {indices}", expected="updates as many as the indices name")
    return (x,)


def _alike(a: Shape, b: Shape) -> bool:
    """True if two shapes may be one: as many dims, and no two sizes that differ."""
    return len(a) == len(b) and all(
        i == j for i, j in zip(a, b, strict=True) if isinstance(i, int) and isinstance(j, int)
    )


def _exceeds(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a > b


def _scattered(xp: Any, x: Any, index: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    """`x` with the updates put, or combined, at the index; in order where several meet one place."""
    result = np.array(x)
    if reduction == "none":
        # A 0-d array of objects would be stored itself, not its element.
        result[index] = updates[()]
        return result
    names = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
    if not xp.exact:
        getattr(np, names[reduction]).at(result, index, updates)
        return result
    combine = getattr(xp, names[reduction])
    lead = np.broadcast_shapes(*(np.shape(i) for i in index))
    places = [np.broadcast_to(i, lead) for i in index]
    for at in np.ndindex(*lead):
        place = tuple(int(p[at]) for p in places)
        result[place] = combine(np.asarray(result[place]), np.asarray(updates[at]))[()]
    return result


#: Operators that put elements at indices.
_scattering = partial(op, infer=_scatter_type, dtypes=_INDICES, indexed=True)


@_scattering(
    sample=_same_rank_sample,
    onnx="ScatterElements",
    shapes="The shape of x; indices and updates have one shape, of the rank of x.",
)
def scatter_elements(xp: Any, x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
    """`x` with result[indices[i][j]][j] = updates[i][j] for axis 0, or combined by `reduction`: add, mul, max, min."""
    indices = np.asarray(indices, np.int64)
    return _scattered(xp, x, _place(indices.shape, axis % x.ndim, indices), updates, reduction)


@_scattering(
    sample=_nd_sample,
    onnx="ScatterND",
    shapes="The shape of x; updates have the dims of the indices but the last, then those of a slice.",
)
def scatter_nd(xp: Any, x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    """`x` with the slices at the index vectors in `indices` replaced by, or combined with, the updates."""
    indices = np.asarray(indices, np.int64)
    index = tuple(indices[..., i] for i in range(indices.shape[-1]))
    return _scattered(xp, x, index, updates, reduction)


def _blocks(to_space: bool) -> InferRule:
    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
        x, block = present(operands, 0), attrs["blocksize"]
        if x.shape is None:
            return (x,)
        if x.rank != 4:
            raise ShapeError(f"depth and space of {x}", expected="N,C,H,W")
        n, c, h, w = x.shape
        cut: tuple[Dim, ...] = (c,) if to_space else (h, w)
        factor = block * block if to_space else block
        if any(isinstance(d, int) and d % factor for d in cut):
            raise ShapeError(
                f"blocks of {block} in {x}", expected=f"{'channels' if to_space else 'H and W'} a multiple"
            )
        if to_space:
            return (x.with_shape((n, floordiv(c, factor), h * block, w * block)),)
        return (x.with_shape((n, c * (block * block), floordiv(h, block), floordiv(w, block))),)

    return infer


def _depth_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    block = attrs.get("blocksize", 2)
    x = (
        known[0]
        if known[0] is not None
        else (rng.randint(1, 2), block * block * rng.randint(1, 2), rng.randint(1, 2), 2)
    )
    return (x,), {**attrs, "blocksize": block, "mode": attrs.get("mode") or rng.choice(("DCR", "CRD"))}


def _space_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    block = attrs.get("blocksize", 2)
    x = known[0] if known[0] is not None else (rng.randint(1, 2), rng.randint(1, 2), block * rng.randint(1, 2), block)
    return (x,), {**attrs, "blocksize": block}


#: Operators that exchange channels and pixels.
_regrouping = partial(op, multilinear=(0,), movement=True, total="static", demands=demands.as_many_after, pulled=True)


@_regrouping(
    infer=_blocks(to_space=True),
    sample=_depth_sample,
    onnx="DepthToSpace",
    shapes="n, b·b·c, h, w becomes n, c, h·b, w·b for a blocksize of b.",
)
def depth_to_space(xp: Any, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    """Channels spread over blocks of pixels; "DCR" has the block at the slow end of the channels, "CRD" at the fast."""
    n, c, h, w = x.shape
    b, rest = blocksize, c // (blocksize * blocksize)
    if mode == "DCR":
        parts = x.reshape(n, b, b, rest, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, rest, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, rest, h * b, w * b)


@_regrouping(
    infer=_blocks(to_space=False),
    sample=_space_sample,
    onnx="SpaceToDepth",
    shapes="n, c, h·b, w·b becomes n, b·b·c, h, w for a blocksize of b.",
)
def space_to_depth(xp: Any, x: Any, *, blocksize: int) -> Any:
    """Blocks of pixels stacked into channels, the block at the slow end."""
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * b * b, h // b, w // b)


def _trilu_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    if x.shape is not None and x.rank < 2:
        raise ShapeError(f"trilu of {x}", expected="matrices: rank 2 or more")
    return (x,)


@op(
    infer=_trilu_type,
    sample=sampling.one_operand(2, k=sampling.choice(0, 0, 1, -1), upper=sampling.flag),
    multilinear=(0,),
    index="... [m n] -> ... [m n]",
    onnx="Trilu",
    total="static",
    choices={"k": enumeration.of(-1, 0, 1)},
    pulled=True,
)
def trilu(xp: Any, x: Any, *, k: int = 0, upper: bool = True) -> Any:
    """The upper or lower triangle of matrices from diagonal `k` on, zero elsewhere."""
    rows, columns = np.arange(x.shape[-2], like=x)[:, None], np.arange(x.shape[-1], like=x)
    inside = columns - rows >= k if upper else columns - rows <= k
    return xp.where(np.broadcast_to(inside, x.shape), x, xp.number(0.0, x))


def _shape_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    if x.shape is None:
        return (TensorType(DType.INT64, None),)
    return (TensorType(DType.INT64, (len(x.shape[attrs["start"] : attrs["end"]]),)),)


#: Operators that read a shape.
_measuring = partial(op, sample=sampling.one_operand(0), hides_sign=True, total="all")


@_measuring(
    infer=_shape_type,
    onnx="Shape",
    shapes="A vector of as many elements as there are axes from `start` to before `end`.",
)
def shape(xp: Any, x: Any, *, start: int = 0, end: int | None = None) -> Any:
    """The dims of the operand, from axis `start` to before axis `end`, as a vector of int64."""
    return np.array(np.shape(x)[start:end], np.int64)


def _size_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    return (TensorType(DType.INT64, ()),)


@_measuring(infer=_size_type, onnx="Size", shapes="A scalar.")
def size(xp: Any, x: Any) -> Any:
    """The number of elements as an int64 scalar."""
    return np.array(np.size(x), np.int64)
