"""Terms that add, multiply and sum over axes, read as sums of products over indices.

As in products alone, each axis of an operand is an index. Here a product of sums is the sum of all products, each with
the indices it is summed over; where no factor of it has such an index, it counts as often as the index is large. Two
terms are equal where all their products cancel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

from eqsat.language.terms.pattern import App, Expression, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.attention.indices import AxisIndices
from eqsat.rewrites.theories.contractions import Axis, UnreadError, matched, size_factors, stated_sizes
from eqsat.rewrites.theories.identities import argument_of, operands_of, ranks_of, stated_numbers

#: The first part of the names of such equations.
LINEAR = "linear"
#: The most products of a sum that is read.
_MOST_TERMS = 24
#: The indices of a factor, axis by axis.
Factor = tuple[str, tuple[Axis, ...]]


@dataclass(frozen=True)
class Diagonal:
    """A matrix with a number along its diagonal, that of two indices, and zeros beside it."""

    name: str
    number: Fraction
    rows: Axis
    columns: Axis


@dataclass(frozen=True)
class ProductTerm:
    """A number times a product, summed over indices."""

    scale: Fraction
    factors: tuple[Factor, ...] = ()
    diagonals: tuple[Diagonal, ...] = ()
    summed: Axis = ()

    def renamed(self, names: Mapping[int, int]) -> ProductTerm:
        """The same product with other indices for some."""

        def of(axis: Axis) -> Axis:
            return tuple(names.get(i, i) for i in axis)

        factors = tuple((name, tuple(map(of, axes))) for name, axes in self.factors)
        diagonals = tuple(replace(d, rows=of(d.rows), columns=of(d.columns)) for d in self.diagonals)
        return ProductTerm(self.scale, factors, diagonals, of(self.summed))


@dataclass(frozen=True)
class SumOfTerms:
    """A sum of products, and the indices of its axes."""

    terms: tuple[ProductTerm, ...]
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class CombinationReader:
    """Reads terms under conditions; `diagonals` are operands with one number along the diagonal and zeros beside it."""

    indices: AxisIndices
    diagonals: Mapping[str, Fraction]

    @classmethod
    def under(cls, conditions: set[str]) -> CombinationReader:
        """A reader of terms whose operands have ranks, sizes and numbers by conditions."""
        pairs = [argument_of(text, "is_diagonal").split(", ") for text in conditions if text.startswith("is_diagonal(")]
        diagonals = {name: Fraction(ast.literal_eval(value)) for name, value in pairs}
        known = {name: float(value) for name, value in stated_numbers(conditions).items()}
        return cls(AxisIndices(ranks_of(conditions), stated_sizes(conditions), known), diagonals)

    def followed(self, pattern: Pattern | Spread) -> SumOfTerms:
        """A term as a sum of products."""
        match pattern:
            case Var(name):
                return self._operand(name)
            case App("fill", ()) if _literal(pattern.fields["shape"]) == ():
                return SumOfTerms((ProductTerm(Fraction(ast.literal_eval(pattern.fields["value"].text))),), ())
            case App("transpose", (x,)):
                made, perm = self.followed(x), _literal(pattern.fields["perm"])
                if sorted(perm) != list(range(len(made.axes))):
                    raise UnreadError
                return SumOfTerms(made.terms, tuple(made.axes[place] for place in perm))
            case App("reshape", (x,)):
                made = self.followed(x)
                return SumOfTerms(made.terms, tuple(self._reshaped(made.axes, pattern.fields["shape"])))
            case App("expand", (x,)):
                made, shape = self.followed(x), [self._size(ast.unparse(s)) for s in _sizes(pattern.fields["shape"])]
                more = len(shape) - len(made.axes)
                if more < 0:
                    raise UnreadError
                axes = zip(((),) * more + made.axes, shape, strict=True)
                return SumOfTerms(made.terms, tuple(a or self.indices.new(d) for a, d in axes))
            case App("reduce_sum" | "reduce_mean", (x,)):
                return self._reduced(pattern, self.followed(x))
            case App("neg", (x,)):
                made = self.followed(x)
                return SumOfTerms(_scaled(made.terms, Fraction(-1)), made.axes)
            case App("add" | "sub", (x, y)):
                return self._added(self.followed(x), self.followed(y), Fraction(1 if pattern.op == "add" else -1))
            case App("mul", (x, y)):
                one, other = self.followed(x), self.followed(y)
                return SumOfTerms(_multiplied(one, other), tuple(self.indices.met(one.axes, other.axes)))
            case App("div", (x, y)):
                return self._divided(self.followed(x), self.followed(y))
            case App("matmul", (x, y)):
                return self._product(self.followed(x), self.followed(y))
        raise UnreadError

    def finished(self, sides: Sequence[SumOfTerms]) -> list[SumOfTerms]:
        """Sums by indices that are not taken apart any further, equal products of each added up."""
        flat = self.indices.flat
        every = [d for side in sides for term in side.terms for d in term.diagonals]
        for diagonal in every:  # takes apart what one of its two axes is made of
            list(self.indices.refine(diagonal.rows, diagonal.columns))
        found = []
        for side in sides:
            axes = tuple(map(flat, side.axes))
            free = {i for axis in axes for i in axis}
            if len(free) != sum(map(len, axes)):
                raise UnreadError
            found.append(SumOfTerms(self.collected((self._flat(t) for t in side.terms), free), axes))
        return found

    def collected(self, terms: Iterable[ProductTerm], free: set[int]) -> tuple[ProductTerm, ...]:
        """Products of which those that are equal, but for the names of what is summed, are added up."""
        found: list[ProductTerm] = []
        for term in terms:
            for place, other in enumerate(found):
                if matched(self._sized(term), self._sized(other), {i: i for i in free}):
                    found[place] = replace(other, scale=other.scale + term.scale)
                    break
            else:
                found.append(term)
        return tuple(term for term in found if term.scale)

    def _sized(self, term: ProductTerm) -> list[Factor]:
        """The factors of a product, each under its name and the sizes of its indices: axes are taken apart in ways."""
        dims = self.indices.dims
        return [(f"{name} {[[dims[i] for i in axis] for axis in axes]}", axes) for name, axes in term.factors]

    def _flat(self, term: ProductTerm) -> ProductTerm:
        """A product by indices that are not taken apart, without diagonals and indices that no factor needs."""
        flat = self.indices.flat
        factors = tuple((name, tuple(map(flat, axes))) for name, axes in term.factors)
        summed = flat(term.summed)
        made = ProductTerm(term.scale, factors, (), summed)
        kept: list[Factor] = []
        pairs = [(d, list(zip(flat(d.rows), flat(d.columns), strict=True))) for d in term.diagonals]
        names: dict[int, int] = {}
        for diagonal, its in pairs:
            its = [(_last(names, a), _last(names, b)) for a, b in its]
            left = [(a, b) for a, b in its if a != b]
            if any(a not in summed and b not in summed for a, b in left):
                if len(left) < len(its) or len(pairs) > 1:
                    raise UnreadError
                kept.append((diagonal.name, (flat(diagonal.rows), flat(diagonal.columns))))
                made = replace(made, scale=made.scale / diagonal.number)
                continue
            for a, b in left:
                gone, stays = (b, a) if b in summed else (a, b)
                names[gone] = stays
                summed = tuple(i for i in summed if i != gone)
        made = replace(made, summed=summed).renamed({i: _last(names, i) for i in names})
        made = replace(made, factors=(*made.factors, *kept))
        held = {i for _, axes in made.factors for axis in axes for i in axis}
        often = [self.indices.size((i,)) for i in made.summed if i not in held]
        return replace(made, scale=made.scale * prod(often), summed=tuple(i for i in made.summed if i in held))

    def _operand(self, name: str) -> SumOfTerms:
        axes = tuple(self.indices.new(self._size(f"dim({name}, {a})")) for a in range(self.indices.ranks[name]))
        if name in self.indices.numbers:
            return SumOfTerms((ProductTerm(Fraction(self.indices.numbers[name])),), axes)
        if name in self.diagonals and len(axes) == 2:
            if not axes[0] or not self.diagonals[name]:
                raise UnreadError
            diagonal = Diagonal(name, self.diagonals[name], *axes)
            return SumOfTerms((ProductTerm(diagonal.number, diagonals=(diagonal,)),), axes)
        return SumOfTerms((ProductTerm(Fraction(1), ((name, axes),)),), axes)

    def _size(self, dim: str) -> str:
        """The number that a dim is, or the dim that stands for all of its size."""
        return self.indices.sizes.get(dim, dim)

    def _reduced(self, pattern: App, made: SumOfTerms) -> SumOfTerms:
        keeps = pattern.fields["keepdims"].text if "keepdims" in pattern.fields else "False"
        stated = _literal(pattern.fields["axes"])
        rank = len(made.axes)
        if keeps not in ("True", "False") or any(not -rank <= place < rank for place in stated):
            raise UnreadError
        gone = {place % rank for place in stated}
        summed = tuple(i for place in sorted(gone) for i in made.axes[place])
        terms = tuple(replace(term, summed=(*term.summed, *summed)) for term in made.terms)
        if pattern.op == "reduce_mean":
            count = self.indices.size(summed)
            if count == 0:
                raise UnreadError
            terms = _scaled(terms, Fraction(1, count))
        left = [(place, () if place in gone else axis) for place, axis in enumerate(made.axes)]
        return SumOfTerms(terms, tuple(axis for place, axis in left if keeps == "True" or place not in gone))

    def _added(self, one: SumOfTerms, other: SumOfTerms, sign: Fraction) -> SumOfTerms:
        terms = (*one.terms, *_scaled(other.terms, sign))
        if len(terms) > _MOST_TERMS:
            raise UnreadError
        return SumOfTerms(terms, tuple(self.indices.met(one.axes, other.axes)))

    def _divided(self, one: SumOfTerms, other: SumOfTerms) -> SumOfTerms:
        """A sum of products over a number."""
        if len(other.terms) != 1 or other.terms[0] != ProductTerm(other.terms[0].scale) or not other.terms[0].scale:
            raise UnreadError
        axes = tuple(self.indices.met(one.axes, other.axes))
        return SumOfTerms(_scaled(one.terms, 1 / other.terms[0].scale), axes)

    def _product(self, one: SumOfTerms, other: SumOfTerms) -> SumOfTerms:
        """A product of matrices."""
        if len(one.axes) < 2 or len(other.axes) < 2 or bool(one.axes[-1]) != bool(other.axes[-2]):
            raise UnreadError
        summed = self.indices.unite(one.axes[-1], other.axes[-2])
        axes = (*self.indices.met(one.axes[:-2], other.axes[:-2]), one.axes[-2], other.axes[-1])
        terms = (replace(term, summed=(*term.summed, *summed)) for term in _multiplied(one, other))
        return SumOfTerms(tuple(terms), axes)

    def _reshaped(self, axes: Sequence[Axis], shape: Expression) -> list[Axis]:
        """The axes of a reshape: the same indices in their order, taken apart where sizes are numbers."""
        indices, groups, begun = self.indices, [], 0

        def left() -> Axis:
            return indices.flat(i for axis in axes for i in axis)

        for size in _sizes(shape):
            wanted = [self._size(ast.unparse(one)) for one in size_factors(size)]
            end = begun
            if all(one.isdigit() for one in wanted):
                whole = prod(map(int, wanted))
                while (known := indices.size(left()[begun:end])) != whole:
                    if end == len(left()) or not known or known > whole:
                        raise UnreadError
                    if known * indices.size(left()[end : end + 1]) > whole:
                        if whole % known:
                            raise UnreadError
                        indices.take_apart(left()[end], whole // known)
                    end += 1
            else:
                end += len(wanted)
                if [indices.dims[i] for i in left()[begun:end]] != wanted:
                    raise UnreadError
            groups.append(left()[begun:end])
            begun = end
        if begun != len(left()):
            raise UnreadError
        return groups


def states_combination(rule: Rule) -> bool:
    """True if both sides of a rule are the same sum of products of its variables.

    All operands have to be finite: sums and products with infinities may not be regrouped.
    """
    sides = rule.sides
    if sides is None:
        return False
    conditions = {condition.text for condition in rule.conditions}
    finite = operands_of("finite", conditions)
    if not rule.tensors - stated_numbers(conditions).keys() <= finite:
        return False
    reader = CombinationReader.under(conditions)
    try:
        left, right = (reader.followed(side) for side in sides)
        if len(left.axes) != len(right.axes) or any(
            bool(a) != bool(b) for a, b in zip(left.axes, right.axes, strict=True)
        ):
            return False
        for one, other in zip(left.axes, right.axes, strict=True):
            reader.indices.unite(one, other)
        left, right = reader.finished([left, right])
    except (UnreadError, ValueError, KeyError, IndexError):
        return False
    free = {i for axis in left.axes for i in axis}
    return left.axes == right.axes and not reader.collected((*left.terms, *_scaled(right.terms, Fraction(-1))), free)


def _scaled(terms: Sequence[ProductTerm], factor: Fraction) -> tuple[ProductTerm, ...]:
    return tuple(replace(term, scale=term.scale * factor) for term in terms)


def _multiplied(one: SumOfTerms, other: SumOfTerms) -> tuple[ProductTerm, ...]:
    """All products of two sums."""
    if len(one.terms) * len(other.terms) > _MOST_TERMS:
        raise UnreadError
    return tuple(
        ProductTerm(a.scale * b.scale, a.factors + b.factors, a.diagonals + b.diagonals, a.summed + b.summed)
        for a in one.terms
        for b in other.terms
    )


def _last(names: Mapping[int, int], index: int) -> int:
    """The index that one goes by in the end."""
    while index in names:
        index = names[index]
    return index


def _sizes(shape: Expression) -> list[Any]:
    """The sizes that a shape states, as expressions."""
    if not isinstance(shape.tree, ast.Tuple):
        raise UnreadError
    return list(shape.tree.elts)


def _literal(expression: Expression) -> tuple[int, ...]:
    found: Any = ast.literal_eval(expression.text)
    if not isinstance(found, tuple) or not all(isinstance(one, int) for one in found):
        raise UnreadError
    return found
