"""NumPy's functions of arrays of unknown sizes, which references of operators call."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.parametric.arrays import (
    IndexedArray,
    Indices,
    WritableArray,
    elementwise,
    numpy_function,
    product_of,
    spread,
)
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, formula_of
from eqsat.language.parametric.paths import current
from eqsat.language.terms.dims import Dim


class OutOfRange(Exception):  # noqa: N818 - nothing is wrong
    """Leaves a path on which an index is none of the axis that it is to select from."""


@numpy_function(np.shape)
def _shape(x: Any) -> Any:
    return x.shape


@numpy_function(np.reshape)
def _reshape(x: IndexedArray, shape: Any, **_: Any) -> IndexedArray:
    target = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if builtins.any(_is_left_open(dim) for dim in target):
        known = product_of([dim for dim in target if not _is_left_open(dim)])
        target = tuple(x.size // known if _is_left_open(dim) else dim for dim in target)
    groups = _groups(x.shape, target)

    def element(indices: Indices) -> Any:
        found: list[Any] = []
        for axes, places in groups:
            flat: Any = 0
            for place in places:
                flat = flat * target[place] + indices[place]
            rest = [x.shape[axis] for axis in axes]
            for position in range(len(rest)):
                below = product_of(rest[position + 1 :])
                upper = flat if position == 0 else flat % (below * rest[position])
                found.append(upper // below)
        return x.at(tuple(found))

    return IndexedArray(target, element)


def _is_left_open(dim: Any) -> bool:
    return type(dim) is int and dim == -1


def _groups(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    """Axes of two shapes of as many elements that hold as many together, the shortest runs first."""
    path = current()
    left, right = _prefixes(before), _prefixes(after)
    groups: list[tuple[list[int], list[int]]] = []
    at = (0, 0)
    while at != (len(before), len(after)):
        whole = (len(before), len(after))
        ends = [(i, j) for i in range(at[0], whole[0] + 1) for j in range(at[1], whole[1] + 1) if (i, j) != at]
        ends.sort(key=builtins.sum)
        same = [end for end in ends if end == whole or path.reduced(left[end[0]]) == path.reduced(right[end[1]])]
        # Only where no formulas are the same is it asked whether they are equal, of runs with axes on either side.
        parts = [(i, j) for i, j in ends if at[0] < i < whole[0] and at[1] < j < whole[1]] if same[0] == whole else []
        end = next((e for e in parts if path.holds(Fact.equal(left[e[0]], right[e[1]]))), same[0])
        groups.append((list(range(at[0], end[0])), list(range(at[1], end[1]))))
        at = end
    return groups


def _prefixes(dims: Sequence[Any]) -> list[Dim]:
    """The numbers of elements of the first few axes."""
    totals: list[Any] = [1]
    for dim in dims:
        totals.append(totals[-1] * dim)
    return [formula_of(total) for total in totals]


@numpy_function(np.transpose)
def _transposed(x: IndexedArray, axes: Any = None) -> IndexedArray:
    perm = tuple(range(x.ndim))[::-1] if axes is None else tuple(axis % x.ndim for axis in axes)
    places = [perm.index(axis) for axis in range(x.ndim)]
    return IndexedArray([x.shape[p] for p in perm], lambda indices: x.at(tuple([indices[p] for p in places])))


@numpy_function(np.moveaxis)
def _moveaxis(x: IndexedArray, source: Any, destination: Any) -> IndexedArray:
    sources = [s % x.ndim for s in ([source] if isinstance(source, int) else source)]
    targets = [d % x.ndim for d in ([destination] if isinstance(destination, int) else destination)]
    perm = [axis for axis in range(x.ndim) if axis not in sources]
    for target, origin in sorted(zip(targets, sources, strict=True)):
        perm.insert(target, origin)
    return _transposed(x, perm)


@numpy_function(np.swapaxes)
def _swapaxes(x: IndexedArray, first: int, second: int) -> IndexedArray:
    perm = list(range(x.ndim))
    perm[first], perm[second] = perm[second], perm[first]
    return _transposed(x, perm)


@numpy_function(np.concatenate)
def _concatenate(xs: Sequence[IndexedArray], axis: int = 0) -> IndexedArray:
    axis = axis % xs[0].ndim
    ends: list[Any] = []
    for x in xs:
        ends.append(x.shape[axis] + (ends[-1] if ends else 0))

    def element(indices: Indices) -> Any:
        place, before = indices[axis], 0
        for x, end in zip(xs[:-1], ends, strict=False):
            if place < end:
                return x.at((*indices[:axis], place - before, *indices[axis + 1 :]))
            before = end
        return xs[-1].at((*indices[:axis], place - before, *indices[axis + 1 :]))

    return IndexedArray((*xs[0].shape[:axis], ends[-1], *xs[0].shape[axis + 1 :]), element)


@numpy_function(np.stack)
def _stack(xs: Sequence[IndexedArray], axis: int = 0) -> IndexedArray:
    return _concatenate([_expand_dims(x, axis) for x in xs], axis % (xs[0].ndim + 1))


@numpy_function(np.split)
def _split(x: IndexedArray, cuts: Any, axis: int = 0) -> list[IndexedArray]:
    bounds = [0, *list(cuts), x.shape[axis]]
    lead = (slice(None),) * (axis % x.ndim)
    return [x[(*lead, slice(a, b))] for a, b in itertools.pairwise(bounds)]


@numpy_function(np.broadcast_to)
def broadcast_to(x: Any, shape: Any) -> IndexedArray:
    """The elements spread over a shape."""
    return IndexedArray(tuple(shape), spread(x, tuple(shape)))


@numpy_function(np.expand_dims)
def _expand_dims(x: IndexedArray, axis: int) -> IndexedArray:
    at = axis % (x.ndim + 1)
    return IndexedArray((*x.shape[:at], 1, *x.shape[at:]), lambda i: x.at((*i[:at], *i[at + 1 :])))


@numpy_function(np.squeeze)
def _squeeze(x: IndexedArray, axis: Any = None) -> IndexedArray:
    if axis is None:
        raise NotParametric("numpy.squeeze of whatever axes have one element")
    gone = {a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)}
    kept = [a for a in range(x.ndim) if a not in gone]
    places = {a: p for p, a in enumerate(kept)}
    return IndexedArray(
        [x.shape[a] for a in kept], lambda i: x.at(tuple([0 if a in gone else i[places[a]] for a in range(x.ndim)]))
    )


@numpy_function(np.flip)
def _flip(x: IndexedArray, axis: Any) -> IndexedArray:
    turned = {a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)}
    return IndexedArray(
        x.shape, lambda i: x.at(tuple([x.shape[a] - 1 - n if a in turned else n for a, n in enumerate(i)]))
    )


@numpy_function(np.tile)
def _tile(x: IndexedArray, repeats: Any) -> IndexedArray:
    counts = tuple(repeats)
    if len(counts) != x.ndim:
        raise ShapeError("tile along other axes than there are")
    shape = [dim * count for dim, count in zip(x.shape, counts, strict=True)]
    return IndexedArray(shape, lambda i: x.at(tuple([n % dim for n, dim in zip(i, x.shape, strict=True)])))


@numpy_function(np.repeat)
def _repeat(x: IndexedArray, repeats: Any, axis: int) -> IndexedArray:
    shape = [dim * repeats if place == axis % x.ndim else dim for place, dim in enumerate(x.shape)]
    return IndexedArray(
        shape, lambda i: x.at(tuple([n // repeats if place == axis % x.ndim else n for place, n in enumerate(i)]))
    )


@numpy_function(np.pad)
def _pad(x: IndexedArray, widths: Any, mode: str = "constant", constant_values: Any = 0) -> IndexedArray:
    if mode != "constant":
        raise NotParametric(f"numpy.pad with mode {mode!r}")
    filler = spread(constant_values, ())
    shape = [before + dim + after for dim, (before, after) in zip(x.shape, widths, strict=True)]

    def element(indices: Indices) -> Any:
        places = []
        for index, dim, (before, after) in zip(indices, x.shape, widths, strict=True):
            place = index - before
            if (not _is_nothing(before) and place < 0) or (not _is_nothing(after) and place >= dim):
                return filler(())
            places.append(place)
        return x.at(tuple(places))

    return IndexedArray(shape, element)


@numpy_function(np.full)
def _full(shape: Any, fill_value: Any, dtype: Any = None, **_: Any) -> IndexedArray:
    return WritableArray(broadcast_to(fill_value, tuple(shape) if isinstance(shape, tuple | list) else (shape,)))


@numpy_function(np.arange)
def _arange(count: Any, **_: Any) -> IndexedArray:
    return IndexedArray((count,), lambda indices: indices[0])


@numpy_function(np.take)
def _take(x: IndexedArray, indices: IndexedArray, axis: int) -> IndexedArray:
    axis = axis % x.ndim
    if not isinstance(indices, IndexedArray):
        raise NotParametric("numpy.take at indices that are known")
    count = x.shape[axis]

    def element(given: Indices) -> Any:
        place = indices.at(given[axis : axis + indices.ndim])
        place = place + count if place < 0 else place
        if place < 0 or place >= count:
            raise OutOfRange
        return x.at((*given[:axis], place, *given[axis + indices.ndim :]))

    return IndexedArray(lambda: (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), element)


@numpy_function(np.where)
def _where(condition: Any, a: Any, b: Any) -> IndexedArray:
    def choose(holds: Any, x: Any, y: Any) -> Any:
        if not isinstance(holds, bool):
            raise NotParametric("numpy.where of unknown truth values")
        return x if holds else y

    return elementwise(choose, condition, a, b)


@numpy_function(np.lib.stride_tricks.sliding_window_view)
def _windows(x: IndexedArray, window_shape: Any, axis: Any = None, **_: Any) -> IndexedArray:
    sizes = list(window_shape) if isinstance(window_shape, tuple | list) else [window_shape]
    axes = list(range(x.ndim)) if axis is None else [a % x.ndim for a in ([axis] if isinstance(axis, int) else axis)]
    kept = list(x.shape)
    for a, extent in zip(axes, sizes, strict=True):
        kept[a] = kept[a] - extent + 1

    def element(indices: Indices) -> Any:
        places = list(indices[: x.ndim])
        for a, within in zip(axes, indices[x.ndim :], strict=True):
            places[a] = places[a] + within
        return x.at(tuple(places))

    return IndexedArray((*kept, *sizes), element)


def _is_nothing(width: Any) -> bool:
    return type(width) is int and width == 0
