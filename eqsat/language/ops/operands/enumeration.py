"""Attributes and operand shapes of operators, all of them up to a bound."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from eqsat.language.declaration.bounds import Bounds, Choices, Sizes, broadcasts, shapes


def sides(bounds: Bounds, dims: Sequence[Sizes]) -> Iterable[int]:
    """Every size of an axis."""
    return range(1, bounds.side + 1)


def any_shape(bounds: Bounds, dims: Sequence[Sizes]) -> Iterable[Sizes]:
    """Every shape within the bounds."""
    return shapes(bounds)


def repeats(bounds: Bounds, dims: Sequence[Sizes]) -> Iterable[Sizes]:
    """Once or twice along each axis."""
    return itertools.product((1, 2), repeat=len(dims[0]))


def of(*values: Any) -> Choices:
    """These values for any operands."""
    return lambda bounds, dims: values


def _along(size: int, kernel: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Stride, dilation and both pads along one axis, wherever a window fits."""
    for stride, dilation, begin, end in itertools.product((1, 2), (1, 2), range(most + 1), range(most + 1)):
        if dilation * (kernel - 1) < size + begin + end:
            yield stride, dilation, begin, end


@cache
def _geometry(sizes: Sizes, kernel: Sizes, most: int) -> tuple[tuple[Sizes, Sizes, Sizes], ...]:
    """Strides, dilations and pads of windows over the spatial axes."""
    combinations = []
    for axes in itertools.product(*(list(_along(n, k, most)) for n, k in zip(sizes, kernel, strict=True))):
        strides, dilations, begins, ends = zip(*axes, strict=True)
        combinations.append((strides, dilations, (*begins, *ends)))
    return tuple(combinations)


def convolved(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Sizes, Sizes, Sizes]]:
    """Strides, dilations and pads of a convolution."""
    x, w = dims[:2]
    if len(x) == len(w) > 2:
        yield from _geometry(x[2:], w[2:], bounds.pad if len(x) == 3 else 1)


def deconvolved(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Any, ...]]:
    """Strides, dilations, pads and output padding of a transposed convolution; too large pads are refused later."""
    count = max(len(dims[0]) - 2, 0)
    ones = list(itertools.product((1, 2), repeat=count))
    yield from itertools.product(
        ones, ones, itertools.product((0, 1), repeat=2 * count), itertools.product((0, 1), repeat=count)
    )


def pooled(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Sizes, Sizes, Sizes, Sizes]]:
    """Windows of a pool, with their strides, dilations and pads."""
    for kernel in kernels(bounds, dims) if len(dims[0]) > 2 else ():
        most = min(bounds.pad if len(dims[0]) == 3 else 1, max(kernel, default=0) // 2)
        yield from ((kernel, *rest) for rest in _geometry(dims[0][2:], kernel, most))


def groups(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[int]:
    """The groups into which the input's channels fall for a filter."""
    x, w = dims[:2]
    if w[1] and not x[1] % w[1] and not w[0] % (x[1] // w[1]):
        yield x[1] // w[1]


def divisors(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[int]:
    """The numbers of groups into which the channels fall."""
    yield from (g for g in range(1, dims[0][1] + 1) if not dims[0][1] % g)


def kernels(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    """Windows over the spatial axes of the first operand."""
    yield from itertools.product(range(1, bounds.most(len(dims[0])) + 1), repeat=max(len(dims[0]) - 2, 0))


def any_kernel(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    """Windows over one axis and over two."""
    for rank in (1, 2):
        yield from itertools.product(range(1, bounds.most(rank + 2) + 1), repeat=rank)


def regrouped(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    """Every shape of as many elements."""
    size = 1
    for d in dims[0]:
        size *= d
    for rank in range(max(bounds.rank - 1, len(dims[0])) + 1):
        yield from _factored(size, rank)


def _factored(size: int, rank: int) -> Iterator[Sizes]:
    if rank == 0:
        yield from ((),) if size == 1 else ()
        return
    for d in range(1, size + 1):
        if size % d == 0:
            yield from ((d, *rest) for rest in _factored(size // d, rank - 1))


def broadcast_to(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    """Every shape that the first operand can be repeated to."""
    yield from (s for s in shapes(bounds) if broadcasts(s, dims[0]))


def slices(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Any, ...]]:
    """Axes, starts, ends and steps: none, any of one axis, of two axes those that drop the first or last element."""
    x = dims[0]
    yield (), (), (), ()
    for axis, d in enumerate(x):
        for start, end in itertools.combinations_with_replacement(range(d + 1), 2):
            yield (axis,), (start,), (end,), ()
            if end - start > 1:
                yield (axis,), (start,), (end,), (2,)
        for start in range(d):
            yield (axis,), (start,), (-1,), (-1,)
    for i, j in itertools.combinations(range(len(x)), 2):
        for a, b in itertools.product(((0, x[i] - 1), (1, x[i])), ((0, x[j] - 1), (1, x[j]))):
            yield (i, j), (a[0], b[0]), (a[1], b[1]), ()


def pads(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Any, ...]]:
    """Pads, mode and value: up to one element on every side, and one element cut off a side."""
    count = 2 * len(dims[0])
    for pads in itertools.product((0, 1), repeat=count):
        yield pads, "constant", 0.0
        if sum(pads) <= 2:
            yield from ((pads, "constant", 1.5), (pads, "edge", 0.0))
    for place in range(count):
        yield tuple(-int(i == place) for i in range(count)), "constant", 0.0


def activations(count: int, other: tuple[str, ...]) -> Callable[[Bounds, Sequence[Sizes]], Iterator[tuple[Any, ...]]]:
    """Activations of a layer with so many for each direction: none, its own by name, others, their operands clipped."""
    own = {3: ("Sigmoid", "Tanh", "Tanh"), 2: ("Sigmoid", "Tanh"), 1: ("Tanh",)}[count]

    def choices(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Any, ...]]:
        yield (), (), (), None
        many = count * dims[1][0]
        yield own * dims[1][0], (0.0,) * many, (0.0,) * many, None
        yield other * dims[1][0], (0.5,) * many, (0.25,) * many, 0.5

    return choices


def _filters(known: Sequence[Sizes | None], place: int, bounds: Bounds, channels: int) -> Iterator[Sizes]:
    """Operands of convolutions; `channels` is the axis of the filter that divides the channels of the input."""
    x, w = known[0], known[1]
    if place == 2 and w is not None:
        yield from ((w[0],),) if channels == 1 else shapes(bounds, 1, 1)
    for s in shapes(bounds, 3) if place < 2 else ():
        first, second = (s, w) if place == 0 else (x, s)
        if first is None or second is None or (len(first) == len(second) and not first[1] % second[channels]):
            yield s


def beside_conv(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """Operands of a convolution."""
    yield from _filters(known, place, bounds, 1)


def beside_conv_transpose(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """Operands of a transposed convolution."""
    yield from _filters(known, place, bounds, 0)


def beside_matmul(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """Operands of a matrix product."""
    for s in shapes(bounds, 1):
        a, b = (s, known[1]) if place == 0 else (known[0], s)
        if a is None or b is None or (a and b and a[-1] == b[-2 if len(b) > 1 else 0] and broadcasts(a[:-2], b[:-2])):
            yield s


def beside_gemm(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """Two matrices, and an addend of their product."""
    yield from shapes(bounds, 2, 2) if place < 2 else shapes(bounds, 0, 2)


def beside_concat(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """Operands that can be joined with the others along some axis."""
    others = [k for k in known if k is not None]
    for s in shapes(bounds, 1):
        if joinable([*others, s]):
            yield s


def joinable(given: Sequence[Sizes]) -> bool:
    """True if tensors of these shapes can be joined along some axis."""
    if len({len(s) for s in given}) > 1:
        return False
    return sum(len(set(column)) > 1 for column in zip(*given, strict=True)) <= 1


def per_channel(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """An input N,C,… and vectors of one number a channel."""
    x = known[0]
    if place == 0:
        yield from shapes(bounds, 2)
    else:
        yield from ((x[1],),) if x is not None and len(x) > 1 else shapes(bounds, 1, 1)


def normalised(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """An input, and gain and bias over its last axes."""
    x = known[0]
    if place == 0:
        yield from shapes(bounds, 1)
    else:
        yield from shapes(bounds, 1, 3) if x is None else (x[i:] for i in range(len(x)))


def gathered(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """A tensor to select from, and indices."""
    yield from shapes(bounds, 1) if place == 0 else shapes(bounds, 0, 2)


def attended(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """Queries, keys, values and a mask."""
    q, k = (*known, None, None)[:2]
    if any(given is not None and len(given) != 4 for given in known[:3]):
        return
    for s in shapes(bounds, 4, 4) if place < 3 else shapes(bounds, 2, 4):
        fits = q is None or place in (0, 3) or s[:2] == q[:2]
        if fits and (q is None or place != 1 or s[3] == q[3]) and (k is None or place != 2 or s[2] == k[2]):
            yield s


def recurrent(gates: int) -> Callable[[tuple[Sizes | None, ...], int, Bounds], Iterator[Sizes]]:
    """Operands of a layer with so many gates: steps and batch in either order, few hidden elements."""

    def fitting(known: tuple[Sizes | None, ...], place: int, bounds: Bounds) -> Iterator[Sizes]:
        x, w, r = known[:3]
        if any(s is not None and len(s) != 3 for s in (x, w, r)):
            return
        directions = (w[0],) if w else (r[0],) if r else (1, 2)
        hidden = (r[2],) if r else (w[1] // gates,) if w else (1, 2)
        batches = sorted({*x[:2]}) if x else (1, 2)
        for d, n in itertools.product(directions, hidden):
            if place == 0:
                yield from (s for s in shapes(bounds, 3, 3) if w is None or s[2] == w[2])
                return
            if place == 1:
                yield from ((d, gates * n, k) for k in ((x[2],) if x else range(1, bounds.side + 1)))
            elif place in (2, 3):
                yield (d, gates * n, n) if place == 2 else (d, 2 * gates * n)
            elif place == 4:
                yield from ((k,) for k in batches)
            elif place == 7:
                yield (d, 3 * n)
            else:
                yield from dict.fromkeys(s for k in batches for s in ((d, k, n), (k, d, n)))

    return fitting


def windowed(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """Tensors with an axis that windows slide over."""
    yield from shapes(bounds, 3)
