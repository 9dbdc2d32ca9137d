"""Orders of products of tensors, two at a time: written as terms, and the one with the least work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from eqsat.rewrites.theories.chosen import UNKNOWN

#: The most tensors whose orders are all looked at, and of more the most sets of them that share indices one by one.
_OPTIMAL, _CONNECTED = 8, 100
#: The ways to compute a product that are offered.
_FORMS = 3


@dataclass(frozen=True)
class PartialProduct:
    """A tensor as text, the indices of its axes, the elements that are computed for it, and whether it is known before
    the program runs.

    `whole` is the same tensor with axes of size 1 that this one is without.
    """

    text: str
    axes: tuple[int, ...]
    work: float = 0.0
    constant: bool = False
    whole: WithUnits | None = None


@dataclass(frozen=True)
class WithUnits:
    """A tensor with axes of size 1: its text and work, and its axes, none for those."""

    text: str
    axes: tuple[tuple[int, ...], ...]
    work: float = 0.0


@dataclass(frozen=True)
class PairwiseSteps:
    """Writes products of two parts, sums and moves of axes; `dims` are the sizes of indices as rules write them."""

    dims: Mapping[int, str]
    #: What an operator costs beside its elements.
    step: ClassVar[float] = 2_000.0

    def size(self, indices: Iterable[int]) -> int:
        """The number of elements of axes."""
        return math.prod(int(self.dims[i]) if self.dims[i].isdigit() else UNKNOWN for i in indices)

    def leaf(self, name: str, axes: Sequence[tuple[int, ...]], constant: bool) -> PartialProduct:
        """An operand, without its axes of size 1."""
        part = PartialProduct(name, tuple(i for axis in axes for i in axis), constant=constant)
        if all(len(axis) == 1 for axis in axes):
            return part
        made = self._as_shape(part, [[i] for i in part.axes])
        return replace(made, whole=WithUnits(name, tuple(axes)))

    def products(self, one: PartialProduct, other: PartialProduct, needed: Collection[int]) -> list[PartialProduct]:
        """The product of two parts, summed over the indices that nothing else needs, in each way to compute it."""
        one = self.summed(one, {*needed, *other.axes})
        other = self.summed(other, {*needed, *one.axes})
        if not any(i in other.axes and i not in needed for i in one.axes):
            return [self._spread(one, other)]
        by_sum = self.summed(self._spread(one, other), needed)
        return [self._matmul(one, other, needed), self._matmul(other, one, needed), by_sum]

    def _matmul(self, one: PartialProduct, other: PartialProduct, needed: Collection[int]) -> PartialProduct:
        """The product of parts as one of matrices, or of a batch of them."""
        shared = [i for i in one.axes if i in other.axes]
        batch, summed = [i for i in shared if i in needed], [i for i in shared if i not in needed]
        left, right = ([i for i in part.axes if i not in shared] for part in (one, other))
        plain = not batch and len(summed) == len(right) == 1
        rows = [[i] for i in left] if plain and left else [left]
        a = self.reshaped(self.ordered(one, [*batch, *left, *summed]), [*([i] for i in batch), *rows, summed])
        b = self.reshaped(self.ordered(other, [*batch, *summed, *right]), [*([i] for i in batch), summed, right])
        axes = (*batch, *left, *right)
        made = self._made(f"matmul({a.text}, {b.text})", axes, self.size({*one.axes, *other.axes}), (a, b))
        groups = [*([i] for i in batch), *rows, right]
        if all(len(g) == 1 for g in groups):
            return made
        apart = self._as_shape(made, [[i] for i in axes])
        return replace(apart, whole=WithUnits(made.text, tuple(map(tuple, groups)), made.work))

    def _spread(self, one: PartialProduct, other: PartialProduct) -> PartialProduct:
        """The product of parts that share all that is summed: element by element, each spread along the other."""
        axes = (*one.axes, *(i for i in other.axes if i not in one.axes))
        if set(one.axes) < set(other.axes):
            axes = other.axes
        parts = []
        for part in (one, other):
            moved = self.ordered(part, [i for i in axes if i in part.axes])
            # Leading axes that a part has not are spread over anyway.
            first = next((n for n, i in enumerate(axes) if i in part.axes), len(axes))
            groups = [[i] if i in part.axes else [] for i in axes[first:]]
            parts.append(self.with_units(moved, groups, len(axes)) or self.reshaped(moved, groups))
        return self._made(f"mul({parts[0].text}, {parts[1].text})", axes, self.size(axes), parts)

    def with_units(self, part: PartialProduct, groups: Sequence[Sequence[int]], most: int) -> PartialProduct | None:
        """A part as it is with axes of size 1, where that is a shape but for leading ones of at most so many axes."""
        whole = part.whole
        if whole is None or not len(groups) <= len(whole.axes) <= most:
            return None
        before = len(whole.axes) - len(groups)
        if any(whole.axes[:before]) or whole.axes[before:] != tuple(map(tuple, groups)):
            return None
        return PartialProduct(whole.text, part.axes, whole.work, part.constant)

    def _made(self, text: str, axes: Iterable[int], elements: float, parts: Sequence[PartialProduct]) -> PartialProduct:
        constant = all(part.constant for part in parts)
        work = sum(part.work for part in parts) + (0.0 if constant else self.step + elements)
        return PartialProduct(text, tuple(axes), work, constant)

    def summed(self, part: PartialProduct, needed: Collection[int]) -> PartialProduct:
        """A part summed over the indices that are not needed."""
        axes = [n for n, index in enumerate(part.axes) if index not in needed]
        if not axes:
            return part
        kept = [i for i in part.axes if i in needed]
        text = f"reduce_sum({part.text}, axes={tuple(axes)}, keepdims=False)"
        groups = tuple((i,) if i in needed else () for i in part.axes)
        made = self._made(text, kept, self.size(part.axes), [part])
        return replace(made, whole=WithUnits(f"{text.removesuffix('False)')}True)", groups, made.work))

    def ordered(self, part: PartialProduct, axes: Sequence[int]) -> PartialProduct:
        """A part with its axes in another order."""
        if part.axes == tuple(axes):
            return part
        text = f"transpose({part.text}, perm={tuple(part.axes.index(i) for i in axes)})"
        return self._made(text, axes, self.size(axes), [part])

    def reshaped(self, part: PartialProduct, groups: Sequence[Sequence[int]]) -> PartialProduct:
        """A part with its axes in groups, those of a group as one."""
        return part if all(len(group) == 1 for group in groups) else self._as_shape(part, groups)

    def _as_shape(self, part: PartialProduct, groups: Sequence[Sequence[int]]) -> PartialProduct:
        wanted = tuple(map(tuple, groups))
        if part.whole is not None and wanted == part.whole.axes:
            return PartialProduct(part.whole.text, part.axes, part.whole.work, part.constant)
        if part.whole is not None and sorted(wanted) == sorted(part.whole.axes):
            # Products take in a transpose, and no reshape; that this one is a reshape too, a rule says.
            units = (place for place, axis in enumerate(part.whole.axes) if not axis)
            perm = tuple(part.whole.axes.index(group) if group else next(units) for group in wanted)
            before = replace(part, work=part.whole.work)
            return self._made(f"transpose({part.whole.text}, perm={perm})", part.axes, 0.0, [before])
        text = f"reshape({part.text}, shape={self._shape(groups)})"
        return self._made(text, part.axes, 0.0, [part])

    def _shape(self, groups: Sequence[Sequence[int]]) -> str:
        dims = [" * ".join(self.dims[i] for i in group) or "1" for group in groups]
        return f"({''.join(f'{dim}, ' for dim in dims).rstrip() if len(dims) < 2 else ', '.join(dims)})"

    def scaled(self, part: PartialProduct, scale: Fraction, like: str) -> PartialProduct:
        """A part times a number, of the element type that another one has."""
        factors = [("mul", scale)]
        if Fraction(float(scale)) != scale:
            factors = [("mul", Fraction(scale.numerator)), ("div", Fraction(scale.denominator))]
        for op, value in factors:
            if value != 1:
                number = f"fill(shape=(), value={float(value)!r}, dtype=dtype({like}))"
                part = self._made(f"{op}({part.text}, {number})", part.axes, self.size(part.axes), [part])
        return part


def least_work(parts: Sequence[PartialProduct], result: Collection[int], steps: PairwiseSteps) -> list[PartialProduct]:
    """The products of parts with the least work, two at a time, with at least the axes of the result; best first."""
    if not parts:
        return []
    everything = (1 << len(parts)) - 1
    masks = set(range(1, everything + 1)) if len(parts) <= _OPTIMAL else _connected(parts)
    if everything not in masks:
        return [_greedy(parts, result, steps)]
    best: dict[int, list[PartialProduct]] = {1 << n: [part] for n, part in enumerate(parts)}
    for mask in sorted(masks, key=lambda mask: (mask.bit_count(), mask)):
        if mask in best:
            continue
        outside = {i for n, part in enumerate(parts) if not mask >> n & 1 for i in part.axes}
        needed = {*result, *outside}
        halves = [one for one in _halves(mask) if one in best and mask ^ one in best]
        made = (steps.products(best[one][0], best[mask ^ one][0], needed) for one in halves)
        # Of orders with as much work, each comes once before any comes in another form.
        ranked = [way for ways in made for way in enumerate(sorted(ways, key=_by_work))]
        ways = {way.text: way for _, way in sorted(ranked, key=lambda way: (way[1].work, way[0], *_by_work(way[1])))}
        best[mask] = list(ways.values())[:_FORMS]
    return best[everything]


def _by_work(part: PartialProduct) -> tuple[float, int, str]:
    return part.work, len(part.text), part.text


def _connected(parts: Sequence[PartialProduct]) -> set[int]:
    """The sets of parts that share indices one by one, as the pieces of a chain do; none where these are too many."""
    beside = [
        sum(1 << k for k, other in enumerate(parts) if k != n and not set(part.axes).isdisjoint(other.axes))
        for n, part in enumerate(parts)
    ]
    found = {1 << n for n in range(len(parts))}
    level = set(found)
    while level and len(found) <= _CONNECTED:
        level = {
            mask | 1 << k
            for mask in level
            for n in range(len(parts))
            if mask >> n & 1
            for k in range(len(parts))
            if beside[n] >> k & 1 and not mask >> k & 1
        } - found
        found |= level
    return found if len(found) <= _CONNECTED else set()


def _halves(mask: int) -> Iterable[int]:
    """The parts of a set that hold its first element, but for the whole."""
    first, half = mask & -mask, (mask - 1) & mask
    while half:
        if half & first:
            yield half
        half = (half - 1) & mask


def _greedy(parts: Sequence[PartialProduct], result: Collection[int], steps: PairwiseSteps) -> PartialProduct:
    """The product in the order that NumPy's greedy search finds."""
    indices = {i: n for n, i in enumerate(dict.fromkeys(itertools.chain.from_iterable(part.axes for part in parts)))}
    if len(indices) > 52:
        return _in_order(parts, result, steps)
    letters = {i: chr(ord("a") + n) if n < 26 else chr(ord("A") + n - 26) for i, n in indices.items()}
    written = ",".join("".join(letters[i] for i in part.axes) for part in parts)
    # Arrays of one element that look as large as the operands.
    arrays = [np.broadcast_to(np.float32(0), [steps.size([i]) for i in part.axes]) for part in parts]
    equation = f"{written}->{''.join(letters[i] for i in result)}"
    path, _ = np.einsum_path(equation, *arrays, optimize=("greedy", 2**62))
    left = list(parts)
    for step in path[1:]:
        taken = [left[place] for place in step]
        left = [part for place, part in enumerate(left) if place not in step]
        needed = {*result, *(i for part in left for i in part.axes)}
        left.append(_in_order(taken, needed, steps))
    return left[0]


def _in_order(parts: Sequence[PartialProduct], needed: Collection[int], steps: PairwiseSteps) -> PartialProduct:
    first, *others = parts
    for count, other in enumerate(others, 2):
        rest = {i for part in parts[count:] for i in part.axes}
        first = min(steps.products(first, other, {*needed, *rest}), key=lambda part: (part.work, part.text))
    return first
