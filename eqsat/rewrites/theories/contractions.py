"""Equations between sums of products of tensors, proved by following every axis.

Each axis of an operand is an index. Operators move indices, join them to one axis or take an axis apart, set those of
two operands equal, or sum over them: what comes out is a sum over indices of a product of operands, and both sides of
an equation have to be the same one. Sizes of axes matter only where a condition states them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from eqsat.language.ops.einsum import explicit
from eqsat.language.terms.pattern import App, Expression, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.identities import argument_of, operands_of, ranks_of

#: The first part of the names of such equations.
CONTRACTION = "contraction"
#: An axis: the indices that it runs over, the last one fastest; none where its size is 1.
Axis = tuple[int, ...]


class UnreadError(Exception):
    """Leaves the reading of a term in which an operator does something else with indices."""


@dataclass(frozen=True)
class Contraction:
    """A number times a sum of products: the indices of each operand and those of the result; all others are summed."""

    scale: Fraction
    factors: Sequence[tuple[str, tuple[Axis, ...]]]
    axes: Sequence[Axis]
    sizes: Mapping[int, str]

    def equals(self, other: Contraction) -> bool:
        """True if indices can be renamed so that both are the same."""
        if self.scale != other.scale or [len(a) for a in self.axes] != [len(a) for a in other.axes]:
            return False
        pairs = zip((i for a in self.axes for i in a), (i for a in other.axes for i in a), strict=True)
        renamed = _extended({}, pairs)
        return renamed is not None and matched(list(self.factors), list(other.factors), renamed)


@dataclass
class _Indices:
    """The indices of the axes of operands, with those that are the same.

    `ranks` are those of the operands, `sizes` stand for the dims of equal size, by how conditions write a dim, and
    `diagonals` are operands that are matrices with this number along the diagonal and zeros beside it.
    """

    ranks: Mapping[str, int]
    sizes: Mapping[str, str]
    diagonals: Mapping[str, Fraction] = field(default_factory=dict)
    same: list[int] = field(default_factory=list)
    dims: list[str] = field(default_factory=list)
    factors: list[tuple[str, list[Axis]]] = field(default_factory=list)
    scale: Fraction = Fraction(1)

    def operand(self, name: str) -> list[Axis]:
        """The axes of an operand: an index each, none where the size is 1."""
        axes: list[Axis] = []
        for axis in range(self.ranks[name]):
            size = self.sizes.get(f"dim({name}, {axis})", f"dim({name}, {axis})")
            axes.append(() if size == "1" else (len(self.same),))
            if size != "1":
                self.same.append(len(self.same))
                self.dims.append(size)
        if name in self.diagonals:
            self.unite(axes[0], axes[1])
            self.scale *= self.diagonals[name]
        else:
            self.factors.append((name, axes))
        return axes

    def find(self, index: int) -> int:
        """The number that stands for an index and all that are the same."""
        while self.same[index] != index:
            index = self.same[index]
        return index

    def join(self, one: Axis, other: Axis) -> Axis:
        """One axis of two that meet: with the same indices, one by one, or one of them of size 1."""
        if not one or not other:
            return one or other
        self.unite(one, other)
        return one

    def unite(self, one: Axis, other: Axis) -> None:
        """Make the indices of two axes the same, one by one; they have to be of one size."""
        if len(one) != len(other) or any(self.dims[a] != self.dims[b] for a, b in zip(one, other, strict=True)):
            raise UnreadError
        for a, b in zip(one, other, strict=True):
            self.same[self.find(b)] = self.find(a)

    def result(self, axes: Sequence[Axis]) -> Contraction:
        """The contraction whose result has these axes."""
        found = [(name, tuple(tuple(map(self.find, axis)) for axis in its)) for name, its in self.factors]
        held = {i for _, its in found for axis in its for i in axis}
        if any(self.find(i) not in held for i in range(len(self.same))):
            raise UnreadError  # a diagonal of which nothing else has an index
        dims = {self.find(i): dim for i, dim in enumerate(self.dims)}
        return Contraction(self.scale, found, [tuple(map(self.find, axis)) for axis in axes], dims)

    def followed(self, pattern: Pattern | Spread) -> list[Axis]:
        """The axes of a term; operators set indices equal on the way, and drop those that are summed."""
        match pattern:
            case Var(name):
                return self.operand(name)
            case App("fill", ()) if _literal(pattern.fields["shape"]) == ():
                self.scale *= Fraction(ast.literal_eval(pattern.fields["value"].text))
                return []
            case App("transpose", (x,)):
                axes, perm = self.followed(x), _literal(pattern.fields["perm"])
                if sorted(perm) != list(range(len(axes))):
                    raise UnreadError
                return [axes[place] for place in perm]
            case App("reduce_sum" | "reduce_mean", (x,)):
                return self._reduced(pattern, self.followed(x))
            case App("reshape", (x,)):
                return self._reshaped(self.followed(x), pattern.fields["shape"])
            case App("mul", (x, y)):
                return self._met(self.followed(x), self.followed(y))
            case App("div", (x, App("fill", ()) as number)):
                axes = self.followed(x)
                value = Fraction(ast.literal_eval(number.fields["value"].text))
                if value == 0 or _literal(number.fields["shape"]) != ():
                    raise UnreadError
                self.scale /= value
                return axes
            case App("matmul", (x, y)):
                one, other = self.followed(x), self.followed(y)
                if len(one) < 2 or len(other) < 2 or bool(one[-1]) != bool(other[-2]):
                    raise UnreadError
                self.unite(one[-1], other[-2])
                return [*self._met(one[:-2], other[:-2]), one[-2], other[-1]]
            case App("einsum", operands):
                return self._einsum(pattern, [self.followed(one) for one in operands])
        raise UnreadError

    def _reduced(self, pattern: App, axes: list[Axis]) -> list[Axis]:
        keeps = pattern.fields["keepdims"].text if "keepdims" in pattern.fields else "False"
        gone = [place % len(axes) for place in _literal(pattern.fields["axes"])]
        if keeps not in ("True", "False"):
            raise UnreadError
        if pattern.op == "reduce_mean":
            for index in (i for place in gone for i in axes[place]):
                if not self.dims[index].isdigit() or int(self.dims[index]) == 0:
                    raise UnreadError
                self.scale /= int(self.dims[index])
        left = [(place, () if place in gone else axis) for place, axis in enumerate(axes)]
        return [axis for place, axis in left if keeps == "True" or place not in gone]

    def _met(self, one: list[Axis], other: list[Axis]) -> list[Axis]:
        """The axes of two operands that broadcast against each other."""
        most = max(len(one), len(other))
        pairs = zip([()] * (most - len(one)) + one, [()] * (most - len(other)) + other, strict=True)
        return [self.join(a, b) for a, b in pairs]

    def _einsum(self, pattern: App, operands: Sequence[list[Axis]]) -> list[Axis]:
        terms, result = explicit(ast.literal_eval(pattern.fields["equation"].text), [len(axes) for axes in operands])
        letters: dict[str, Axis] = {}
        for term, axes in zip(terms, operands, strict=True):
            for letter, axis in zip(term, axes, strict=True):
                letters[letter] = self.join(letters.get(letter, ()), axis)
        return [letters[letter] for letter in result]

    def _reshaped(self, axes: list[Axis], shape: Expression) -> list[Axis]:
        """The axes of a reshape: the same indices in their order, in groups of the sizes that it states."""
        left = [index for axis in axes for index in axis]
        if not isinstance(shape.tree, ast.Tuple):
            raise UnreadError
        groups: list[Axis] = []
        for size in shape.tree.elts:
            group: list[int] = []
            wanted = [ast.unparse(one) for one in size_factors(size)]
            if all(one.isdigit() for one in wanted):
                whole = prod(map(int, wanted))
                while left and self.dims[left[0]].isdigit() and prod(int(self.dims[i]) for i in group) < whole:
                    group.append(left.pop(0))
                if prod(int(self.dims[i]) for i in group) != whole:
                    raise UnreadError
            else:
                group, left = left[: len(wanted)], left[len(wanted) :]
                if [self.dims[i] for i in group] != [self.sizes.get(dim, dim) for dim in wanted]:
                    raise UnreadError
            groups.append(tuple(group))
        if left:
            raise UnreadError
        return groups


def contraction_of(side: Pattern | Spread, conditions: set[str]) -> Contraction:
    """The sum of products that a term is under conditions; UnreadError for one that is none."""
    pairs = [argument_of(text, "is_diagonal").split(", ") for text in conditions if text.startswith("is_diagonal(")]
    diagonals = {name: Fraction(ast.literal_eval(value)) for name, value in pairs}
    indices = _Indices(ranks_of(conditions), stated_sizes(conditions), diagonals)
    try:
        return indices.result(indices.followed(side))
    except KeyError as missing:
        raise UnreadError from missing


def states_contraction(rule: Rule) -> bool:
    """True if both sides of a rule are the same sum of products of its variables.

    All operands have to be finite: sums of products with infinities may not be regrouped.
    """
    sides = rule.sides
    if sides is None:
        return False
    conditions = {condition.text for condition in rule.conditions}
    finite = operands_of("finite", conditions)
    try:
        left, right = (contraction_of(side, conditions) for side in sides)
    except UnreadError:
        return False
    return rule.tensors <= finite and left.equals(right)


def _extended(renamed: Mapping[int, int], pairs: Iterator[tuple[int, int]]) -> dict[int, int] | None:
    """A renaming with more pairs; None where one name would have two."""
    found, used = dict(renamed), set(renamed.values())
    for one, other in pairs:
        if found.get(one, other) != other or (one not in found and other in used):
            return None
        found[one] = other
        used.add(other)
    return found


def matched(
    factors: Sequence[tuple[str, tuple[Axis, ...]]],
    others: Sequence[tuple[str, tuple[Axis, ...]]],
    renamed: Mapping[int, int],
) -> bool:
    """True if all factors are the others under a renaming that extends one."""
    if not factors or len(factors) != len(others):
        return not factors and not others
    (name, axes), rest = factors[0], factors[1:]
    for place, (other, its) in enumerate(others):
        if other != name or [len(a) for a in axes] != [len(a) for a in its]:
            continue
        pairs = zip((i for a in axes for i in a), (i for a in its for i in a), strict=True)
        extended = _extended(renamed, pairs)
        if extended is not None and matched(rest, [*others[:place], *others[place + 1 :]], extended):
            return True
    return False


def stated_sizes(conditions: set[str]) -> dict[str, str]:
    """For axes that conditions state the size of: that number, or an axis that stands for all of one size."""
    found: dict[str, str] = {}

    def first(dim: str) -> str:
        return first(found[dim]) if dim in found else dim

    for text in sorted(conditions):
        one, _, other = text.partition(" == ")
        if one.startswith("dim(") and (other.startswith("dim(") or other.isdigit()):
            one, other = first(one), first(other)
            if one != other and not one.isdigit():
                found[one] = other
            elif one != other and not other.isdigit():
                found[other] = one
    return {dim: first(dim) for dim in found}


def size_factors(size: ast.expr) -> list[ast.expr]:
    """The factors of a size, none for 1."""
    if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult):
        return [*size_factors(size.left), *size_factors(size.right)]
    return [] if isinstance(size, ast.Constant) and size.value == 1 else [size]


def _literal(expression: Expression) -> tuple[int, ...]:
    try:
        found = ast.literal_eval(expression.text)
    except ValueError:
        raise UnreadError from None
    if not isinstance(found, tuple) or not all(isinstance(one, int) for one in found):
        raise UnreadError
    return found
