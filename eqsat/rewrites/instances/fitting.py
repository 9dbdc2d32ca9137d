"""The shapes that operands of an operator can have beside one another, all of them up to a bound."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from eqsat.errors import GraphError
from eqsat.language.ops import spec
from eqsat.language.terms.types import broadcast_shapes

Sizes: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far instances go: dims up to `side` in tensors of rank 3 and less, up to `deep` in those of rank 4.

    Groups have up to `length` members; a window pads by up to `pad` on either side, has strides and dilations of 1 and
    2, and as many spatial axes as the rank leaves. A convolution along one axis thus goes up to `side`.
    """

    side: int = 4
    deep: int = 4
    length: int = 3
    pad: int = 2

    def most(self, rank: int) -> int:
        """The largest dim of a tensor of this rank; 0 where there is none such."""
        return self.side if rank <= 3 else self.deep if rank == 4 else 0

    @property
    def rank(self) -> int:
        """The highest rank."""
        return 4 if self.deep else 3


@cache
def shapes(bounds: Bounds, least: int = 0, most: int = 4) -> tuple[Sizes, ...]:
    """Every shape within the bounds, of ranks in a range."""
    ranks = range(least, min(most, bounds.rank) + 1)
    return tuple(s for r in ranks for s in itertools.product(range(1, bounds.most(r) + 1), repeat=r))


@cache
def operand_shapes(op: str, known: tuple[Sizes | None, ...], place: int, bounds: Bounds) -> tuple[Sizes, ...]:
    """The shapes that an operand may have beside others of known shapes.

    Some may still not fit, but none that fits is left out, except for operators that need more than a shape to say so.
    """
    declared = spec(op)
    if op in _SHAPES:
        return tuple(_SHAPES[op](known, place, bounds))
    if declared.pointwise:
        return tuple(s for s in shapes(bounds) if broadcasts(s, *(k for k in known if k is not None)))
    return shapes(bounds)


def broadcasts(*given: Sizes) -> bool:
    """Whether tensors of these shapes broadcast together."""
    try:
        broadcast_shapes(*given)
    except GraphError:
        return False
    return True


def _filters(known: Sequence[Sizes | None], place: int, bounds: Bounds, channels: int) -> Iterator[Sizes]:
    """Operands of convolutions; `channels` is the axis of the filter that divides the channels of the input."""
    x, w = known[0], known[1]
    if place == 2 and w is not None:
        yield from ((w[0],),) if channels == 1 else shapes(bounds, 1, 1)
    for s in shapes(bounds, 3) if place < 2 else ():
        first, second = (s, w) if place == 0 else (x, s)
        if first is None or second is None or (len(first) == len(second) and not first[1] % second[channels]):
            yield s


def _conv(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    yield from _filters(known, place, bounds, 1)


def _transposed(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    yield from _filters(known, place, bounds, 0)


def _matmul(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    for s in shapes(bounds, 1):
        a, b = (s, known[1]) if place == 0 else (known[0], s)
        if a is None or b is None or (a and b and a[-1] == b[-2 if len(b) > 1 else 0] and broadcasts(a[:-2], b[:-2])):
            yield s


def _gemm(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    yield from shapes(bounds, 2, 2) if place < 2 else shapes(bounds, 0, 2)


def _concat(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    others = [k for k in known if k is not None]
    for s in shapes(bounds, 1):
        if joinable([*others, s]):
            yield s


def joinable(given: Sequence[Sizes]) -> bool:
    """Whether tensors of these shapes can be joined along some axis."""
    if len({len(s) for s in given}) > 1:
        return False
    return sum(len(set(column)) > 1 for column in zip(*given, strict=True)) <= 1


def _per_channel(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """An input N,C,… and vectors of one number a channel."""
    x = known[0]
    if place == 0:
        yield from shapes(bounds, 2)
    else:
        yield from ((x[1],),) if x is not None and len(x) > 1 else shapes(bounds, 1, 1)


def _normalised(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    """An input, and gain and bias over its last axes."""
    x = known[0]
    if place == 0:
        yield from shapes(bounds, 1)
    else:
        yield from shapes(bounds, 1, 3) if x is None else (x[i:] for i in range(len(x)))


def _gathered(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    yield from shapes(bounds, 1) if place == 0 else shapes(bounds, 0, 2)


def _attention(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    q, k = (*known, None, None)[:2]
    if any(given is not None and len(given) != 4 for given in known[:3]):
        return
    for s in shapes(bounds, 4, 4) if place < 3 else shapes(bounds, 2, 4):
        fits = q is None or place in (0, 3) or s[:2] == q[:2]
        if fits and (q is None or place != 1 or s[3] == q[3]) and (k is None or place != 2 or s[2] == k[2]):
            yield s


def _recurrent(gates: int) -> Callable[[tuple[Sizes | None, ...], int, Bounds], Iterator[Sizes]]:
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


def _windowed(known: Sequence[Sizes | None], place: int, bounds: Bounds) -> Iterator[Sizes]:
    yield from shapes(bounds, 3)


_SHAPES: dict[str, Callable[[tuple[Sizes | None, ...], int, Bounds], Iterator[Sizes]]] = {
    **dict.fromkeys(("max_pool", "avg_pool", "global_max_pool", "global_avg_pool", "enlarge"), _windowed),
    "conv": _conv,
    "conv_transpose": _transposed,
    "matmul": _matmul,
    "gemm": _gemm,
    "concat": _concat,
    "batch_norm": _per_channel,
    "instance_norm": _per_channel,
    "group_norm": _per_channel,
    "layer_norm": _normalised,
    "rms_norm": _normalised,
    "gather": _gathered,
    "attention": _attention,
    "lstm": _recurrent(4),
    "gru": _recurrent(3),
    "rnn": _recurrent(1),
}
