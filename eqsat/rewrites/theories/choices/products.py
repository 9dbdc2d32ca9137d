"""Equations that hide elements of a product behind a choice, proved by following the axes along which it varies."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from eqsat.language.terms.pattern import App, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.identities import operands_of, ranks_of, stated_numbers, written

#: For each axis of a term the axis of the operand that it is, None for one of another operand.
_Origins = list[int | None]


def states_hidden_product(rule: Rule) -> bool:
    """True if a choice between a product and a number is a product with an operand chosen so, plus a choice of 0.

    The choice varies along nothing but axes of one operand that the product has too. Where it hides them it hides all
    of the operand that these elements are made of: the product is 0 there, as all else in it is finite.
    """
    sides = rule.sides
    if sides is None:
        return False
    conditions = {condition.text for condition in rule.conditions}
    trees = {ast.unparse(condition.tree) for condition in rule.conditions}
    match sides:
        case [App("where", (Var(asked), *branches)), App("add", (changed, App("where", (Var(again), *beside))))]:
            pass
        case _:
            return False
    kept = next((place for place in (0, 1) if branches[1 - place] == beside[1 - place]), None)
    if asked != again or kept is None or not isinstance(branches[1 - kept], Var) or not _is_zero(beside[kept]):
        return False
    proof = _HiddenProduct(asked, kept, conditions, trees)
    try:
        origins = proof.origins(branches[kept], changed)
        return proof.is_aligned(origins) and _same_shape(*(written(side) for side in sides)) in trees
    except (UnreadError, ValueError, KeyError):
        return False


class _HiddenProduct:
    """Follows the axes of the one operand of a term that another term has a choice of in its place."""

    def __init__(self, asked: str, kept: int, conditions: set[str], trees: set[str]) -> None:
        self.asked, self.kept, self.conditions, self.trees = asked, kept, conditions, trees
        self.ranks, self.finite = ranks_of(conditions), operands_of("finite", conditions)
        self.numbers = stated_numbers(conditions)
        self.axes: Mapping[int, int] = {}

    def origins(self, one: Pattern | Spread, other: Pattern | Spread) -> _Origins:
        """The axes of a term by those of the operand that is chosen in the other term; UnreadError for other terms."""
        match one, other:
            case Var(name), App("where", (App("reshape", (Var(asked),)) as moved, *branches)):
                chosen, hidden = branches[self.kept], branches[1 - self.kept]
                if asked != self.asked or chosen != one or not _is_zero(hidden):
                    raise UnreadError
                # The choice spreads nothing.
                if _same_shape(written(other), name) not in self.trees:
                    raise UnreadError
                self.axes = self._places(ast.parse(moved.fields["shape"].text, mode="eval").body, self.ranks[name])
                return list(range(self.ranks[name]))
            case App("transpose", (x,)), App("transpose", (y,)) if one.fields == other.fields:
                within, perm = self.origins(x, y), ast.literal_eval(one.fields["perm"].text)
                if sorted(perm) != list(range(len(within))):
                    raise UnreadError
                return [within[axis] for axis in perm]
            case App("mul" | "div", (x, Var(scale))), App(op, (y, Var(same))) if one.op == op and scale == same:
                within = self.origins(x, y)
                self._require_number(scale, len(within))
                return within
            case App("matmul", (x, y)), App("matmul", (u, v)) if (x == u) != (y == v):
                return self._product(x, y, self.origins(y, v) if x == u else self.origins(x, u), x == u)
        raise UnreadError

    def is_aligned(self, origins: Sequence[int | None]) -> bool:
        """True if the choice varies along axes alone that are those of the operand, and chooses there alike."""
        missing = len(origins) - self.ranks[self.asked]
        for axis in range(self.ranks[self.asked]):
            if axis in self.axes:
                if missing < 0 or origins[axis + missing] != self.axes[axis]:
                    return False
            elif f"dim({self.asked}, {axis}) == 1" not in self.conditions:
                return False
        return True

    def _places(self, shape: ast.expr, rank: int) -> dict[int, int]:
        """The axes of the operand at which those of the choice stand, in their order, all others being of size 1."""
        if not isinstance(shape, ast.Tuple) or len(shape.elts) != rank:
            raise UnreadError
        found: dict[int, int] = {}
        known = {f"dim({self.asked}, {axis})": axis for axis in range(self.ranks[self.asked])}
        for place, size in enumerate(map(ast.unparse, shape.elts)):
            if size != "1":
                found[known[size]] = place
        if list(found) != sorted(found) or len(found) != sum(ast.unparse(size) != "1" for size in shape.elts):
            raise UnreadError
        return found

    def _product(self, x: Pattern | Spread, y: Pattern | Spread, within: _Origins, is_right: bool) -> _Origins:
        """The axes of a product of matrices with a finite operand."""
        fixed = x if is_right else y
        if not isinstance(fixed, Var) or fixed.name not in self.finite:
            raise UnreadError
        rank = self.ranks[fixed.name]
        if rank < 2 or len(within) < 2:
            raise UnreadError
        batch: _Origins = [None] * (max(rank, len(within)) - len(within))
        return [*batch, *within[:-2], *((None, within[-1]) if is_right else (within[-2], None))]

    def _require_number(self, name: str, rank: int) -> None:
        """UnreadError for what is no number of one element other than 0, or has axes that the term lacks."""
        single = all(f"dim({name}, {axis}) == 1" in self.conditions for axis in range(self.ranks[name]))
        if not self.numbers[name] or self.ranks[name] > rank or not single:
            raise UnreadError


def _is_zero(pattern: Pattern | Spread) -> bool:
    """True for a number that is 0 in any element type."""
    if not isinstance(pattern, App) or pattern.op != "fill":
        return False
    shape, value = (ast.literal_eval(pattern.fields[name].text) for name in ("shape", "value"))
    return bool(shape == () and value == 0)


def _same_shape(one: str, other: str) -> str:
    return ast.unparse(ast.parse(f"shape({one}) == shape({other})", mode="eval"))
