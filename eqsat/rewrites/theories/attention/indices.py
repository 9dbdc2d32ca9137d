"""Terms of attention as sums over indices, by following every axis through products, shares and sums.

As in sums of products, each axis of an operand is an index, which operators move, join, take apart and set equal.
Shares, a softmax along some indices, are a factor of their own: what they are shares of is a sum of products and masks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from eqsat.language.terms.pattern import App, Expression, Pattern, Spread, Var
from eqsat.rewrites.theories.contractions import Axis, UnreadError, stated_sizes
from eqsat.rewrites.theories.identities import ranks_of

#: The first part of the names of such equations.
ATTENTION = "attention-spelled"
#: The distance between scales that is rounding: products of numbers in another order.
_ROUNDING = 1e-14
#: The shares of rows without keys by the attribute of attention: 0, no numbers, or that there are none.
_GUARDED = {"nan": False, "zero": True, "none": None}
_Axes = list[Axis]


@dataclass(frozen=True)
class IndexedOperand:
    """An operand with the indices of its axes."""

    name: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Shares:
    """A softmax of a sum along an axis; `guarded` shares are 0 where those of a row are no numbers."""

    summands: tuple[SumOfProducts, ...]
    axes: tuple[Axis, ...]
    along: Axis
    guarded: bool | None


@dataclass(frozen=True)
class SumOfProducts:
    """A number times a product of operands and shares, summed over all indices that are not of its axes."""

    scale: float
    factors: tuple[IndexedOperand | Shares, ...]
    axes: tuple[Axis, ...]


@dataclass
class AxisIndices:
    """The indices of axes: those that are the same, and those that were taken apart.

    `ranks` are those of operands, `numbers` the operands of one element with the number that it is, and `sizes` stand
    for dims of equal size, by how conditions write a dim.
    """

    ranks: Mapping[str, int]
    sizes: Mapping[str, str]
    numbers: Mapping[str, float]
    dims: list[str] = field(default_factory=list)
    same: list[int] = field(default_factory=list)
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)

    def new(self, size: str) -> Axis:
        """An axis of one new index, none if the size is 1."""
        if size == "1":
            return ()
        self.same.append(len(self.same))
        self.dims.append(size)
        return (len(self.same) - 1,)

    def flat(self, axis: Iterable[int]) -> Axis:
        """An axis by the indices that stand for its own, each of those that were taken apart as its parts."""
        found: list[int] = []
        for index in axis:
            while self.same[index] != index:
                index = self.same[index]
            found += self.flat(self.parts[index]) if index in self.parts else [index]
        return tuple(found)

    def size(self, axis: Axis) -> int:
        """The number of elements of an axis; UnreadError where it is not known."""
        dims = [self.dims[i] for i in self.flat(axis)]
        if not all(dim.isdigit() for dim in dims):
            raise UnreadError
        return prod(map(int, dims))

    def take_apart(self, index: int, size: int) -> None:
        """Take an index apart into a first one of a size and the rest."""
        whole = self.size((index,))
        if size <= 1 or whole % size or whole == size:
            raise UnreadError
        self.parts[index] = self.new(str(size))[0], self.new(str(whole // size))[0]

    def refine(self, one: Axis, other: Axis) -> Iterator[tuple[int, int]]:
        """The indices of two axes that meet, taken apart until they are of the same sizes, in pairs."""
        place = 0
        while True:
            a, b = self.flat(one), self.flat(other)
            if place == len(a) or place == len(b):
                if len(a) != len(b):
                    raise UnreadError
                return
            if self.dims[a[place]] == self.dims[b[place]]:
                yield a[place], b[place]
                place += 1
                continue
            sizes = self.size((a[place],)), self.size((b[place],))
            self.take_apart(a[place] if sizes[0] > sizes[1] else b[place], min(sizes))

    def unite(self, one: Axis, other: Axis) -> Axis:
        """Make the indices of two axes the same."""
        for a, b in self.refine(one, other):
            if a != b:
                self.same[b] = a
        return one

    def met(self, one: Sequence[Axis], other: Sequence[Axis]) -> _Axes:
        """The axes of two operands that broadcast against each other."""
        most = max(len(one), len(other))
        pairs = zip([()] * (most - len(one)) + [*one], [()] * (most - len(other)) + [*other], strict=True)
        return [self.unite(a, b) if a and b else a or b for a, b in pairs]

    def reshaped(self, axes: Sequence[Axis], shape: Sequence[int]) -> _Axes:
        """The axes of a reshape to numbers: the same indices in their order, taken apart where it does."""
        groups: _Axes = []
        begun = 0
        for size in shape:
            end = begun
            while True:
                left = self.flat(i for axis in axes for i in axis)
                known = self.size(left[begun:end])
                if known == size:
                    break
                if end == len(left) or known > size:
                    raise UnreadError
                more = self.size(left[end : end + 1])
                if known * more > size:
                    if size % known:
                        raise UnreadError
                    self.take_apart(left[end], size // known)
                end += 1
            groups.append(left[begun:end])
            begun = end
        if begun != len(self.flat(i for axis in axes for i in axis)):
            raise UnreadError
        return groups

    def followed(self, pattern: Pattern | Spread) -> SumOfProducts:
        """A term as a sum of products of operands and shares."""
        match pattern:
            case Var(name):
                sizes = [self.sizes.get(d, d) for d in (f"dim({name}, {a})" for a in range(self.ranks[name]))]
                if name in self.numbers:
                    if any(size != "1" for size in sizes):
                        raise UnreadError
                    return SumOfProducts(self.numbers[name], (), ((),) * len(sizes))
                own = tuple(self.new(size) for size in sizes)
                return SumOfProducts(1.0, (IndexedOperand(name, own),), own)
            case App("transpose", (x,)):
                made, perm = self.followed(x), _literal(pattern.fields["perm"])
                return self._with(made, [made.axes[place] for place in perm])
            case App("reshape", (x,)):
                made = self.followed(x)
                return self._with(made, self.reshaped(made.axes, _literal(pattern.fields["shape"])))
            case App("expand", (x,)):
                made, shape = self.followed(x), _literal(pattern.fields["shape"])
                axes: _Axes = [()] * (len(shape) - len(made.axes)) + [*made.axes]
                if len(axes) > len(shape):
                    raise UnreadError
                return self._with(made, [a or self.new(str(d)) for a, d in zip(axes, shape, strict=True)])
            case App("mul" | "div" as op, (x, y)):
                return self._scaled(self.followed(x), self.followed(y), op)
            case App("matmul", (x, y)):
                return self._product(self.followed(x), self.followed(y))
            case App("softmax", (x,)):
                return self._shares(self.summands(x), _integer(pattern.fields["axis"]), guarded=False)
            case App("where", (App("isnan", (asked,)), Var(zero), shares)) if asked == shares:
                made = self.followed(shares)
                number = self.followed(Var(zero))
                if number.factors or number.scale != 0 or len(number.axes) > len(made.axes) or not _is_shares(made):
                    raise UnreadError
                return SumOfProducts(1.0, (_guarded(made.factors[0]),), made.axes)
            case App("attention", operands):
                return self._attention(pattern, operands)
        raise UnreadError

    def summands(self, pattern: Pattern | Spread) -> list[SumOfProducts]:
        """The terms of a sum."""
        if isinstance(pattern, App) and pattern.op == "add":
            return [one for operand in pattern.operands for one in self.summands(operand)]
        return [self.followed(pattern)]

    def _with(self, made: SumOfProducts, axes: Sequence[Axis]) -> SumOfProducts:
        return SumOfProducts(made.scale, made.factors, tuple(axes))

    def _scaled(self, x: SumOfProducts, y: SumOfProducts, op: str) -> SumOfProducts:
        if op == "mul" and not x.factors:
            x, y = y, x
        if y.factors or not x.factors or len(y.axes) > len(x.axes) or (op == "div" and y.scale == 0):
            raise UnreadError
        return SumOfProducts(x.scale * y.scale if op == "mul" else x.scale / y.scale, x.factors, x.axes)

    def _product(self, x: SumOfProducts, y: SumOfProducts) -> SumOfProducts:
        """A product of matrices, over an index that at least one of them has."""
        if len(x.axes) < 2 or len(y.axes) < 2 or not x.axes[-1]:
            raise UnreadError
        summed = self.unite(x.axes[-1], y.axes[-2])
        held = {i for factor in (*x.factors, *y.factors) for axis in factor.axes for i in self.flat(axis)}
        if not held.issuperset(self.flat(summed)):
            raise UnreadError
        axes = (*self.met(x.axes[:-2], y.axes[:-2]), x.axes[-2], y.axes[-1])
        if not set(self.flat(summed)).isdisjoint(self.flat(i for axis in axes for i in axis)):
            raise UnreadError
        return SumOfProducts(x.scale * y.scale, (*x.factors, *y.factors), axes)

    def _shares(self, summands: Sequence[SumOfProducts], axis: int, guarded: bool | None) -> SumOfProducts:
        axes: _Axes = []
        for one in summands:
            axes = self.met(axes, one.axes)
        along = axes[axis % len(axes)] if axes else ()
        if not along or not -len(axes) <= axis < len(axes):
            raise UnreadError
        aligned = (self._with(one, [()] * (len(axes) - len(one.axes)) + [*one.axes]) for one in summands)
        return SumOfProducts(1.0, (Shares(tuple(aligned), tuple(axes), along, guarded),), tuple(axes))

    def _attention(self, pattern: App, operands: Sequence[Pattern | Spread]) -> SumOfProducts:
        """Attention by its declaration: shares of scaled products along the keys, by which values are averaged."""
        fields = {name: expression.text for name, expression in pattern.fields.items()}
        q, k, v = (self.followed(one) for one in operands[:3])
        added = [one for mask in operands[3:] for one in self.summands(mask)]
        hidden = _GUARDED[ast.literal_eval(fields.get("hidden", "'zero'"))]
        if fields.get("causal", "False") != "False" or any(len(one.axes) != 4 for one in (q, k, v)):
            raise UnreadError
        self.unite(q.axes[0], k.axes[0])
        self.unite(k.axes[0], v.axes[0])
        self.unite(k.axes[1], v.axes[1])
        heads, shared = self.flat(q.axes[1]), self.size(k.axes[1])
        first = self.reshaped([heads], (shared, self.size(heads) // max(shared, 1)))[0]
        self.unite(first, k.axes[1])
        turned = self._with(k, [k.axes[0], (), k.axes[3], k.axes[2]])
        scores = self._product(q, turned)
        scaled = SumOfProducts(scores.scale * float(fields["scale"]), scores.factors, scores.axes)
        shares = self._shares([scaled, *added], 3, guarded=hidden)
        return self._product(shares, self._with(v, [v.axes[0], (), v.axes[2], v.axes[3]]))


def attention_indices(conditions: set[str], numbers: Mapping[str, float]) -> AxisIndices:
    """The indices of operands of which conditions state the ranks and sizes."""
    return AxisIndices(ranks_of(conditions), stated_sizes(conditions), numbers)


def _is_shares(made: SumOfProducts) -> bool:
    return len(made.factors) == 1 and isinstance(made.factors[0], Shares) and made.scale == 1


def _guarded(shares: IndexedOperand | Shares) -> Shares:
    assert isinstance(shares, Shares)
    return Shares(shares.summands, shares.axes, shares.along, guarded=True)


def _literal(expression: Expression) -> tuple[int, ...]:
    found: Any = ast.literal_eval(expression.text)
    if not isinstance(found, tuple) or not all(isinstance(one, int) for one in found):
        raise UnreadError
    return found


def _integer(expression: Expression) -> int:
    found: Any = ast.literal_eval(expression.text)
    if not isinstance(found, int):
        raise UnreadError
    return found
