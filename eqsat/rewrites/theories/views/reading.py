"""Terms of views read as pieces of operands, and the proof that two are the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat.language.ops import spec
from eqsat.language.terms.dims import Dim, Sym
from eqsat.language.terms.pattern import App, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.contractions import UnreadError, stated_sizes
from eqsat.rewrites.theories.identities import argument_of, ranks_of, stated_numbers
from eqsat.rewrites.theories.views.operators import view_of
from eqsat.rewrites.theories.views.pieces import PiecewiseView
from eqsat.rewrites.theories.views.positions import Integers, counted, gathered, position_of, size_at

#: A size of a shape that a term calls by a name.
_SIZE_OF_SHAPE = re.compile(r"\w+\[\d+\]")


@dataclass(frozen=True)
class ViewReading:
    """Reads terms as views under conditions, which state the ranks and sizes of operands."""

    conditions: frozenset[str]

    @cached_property
    def _sizes(self) -> Mapping[str, Dim]:
        """The sizes that conditions state as polynomials of others, by the dim that stands for all of one size."""
        found: dict[str, Dim] = {}
        for text in sorted(self.conditions):
            size, _, other = text.partition(" == ")
            if (_is_dim(size) and not (other.isdigit() or _is_dim(other))) or _SIZE_OF_SHAPE.fullmatch(size):
                found[self._stated.get(size, size)] = self._value(ast.parse(other, mode="eval").body, {})
        return found

    @cached_property
    def _stated(self) -> Mapping[str, str]:
        """For dims of operands, the number that they are, or the dim that stands for all of one size."""
        pairs = {text: text.partition(" == ") for text in self.conditions}
        return stated_sizes({t for t, (a, _, b) in pairs.items() if _is_dim(a) and (b.isdigit() or _is_dim(b))})

    def dim(self, text: str) -> Dim:
        """A dim as conditions write it: a number, a polynomial of others, or the name of all dims of one size."""
        return self._dim(text, self._sizes)

    def _dim(self, text: str, sums: Mapping[str, Dim]) -> Dim:
        found = self._stated.get(text, text)
        return int(found) if found.isdigit() else sums.get(found, Sym.named(found))

    def operand(self, name: str) -> PiecewiseView:
        """An operand as it is, in row-major order; a number where a condition says that all elements are one."""
        sizes = [self.dim(f"dim({name}, {axis})") for axis in range(ranks_of(self.conditions)[name])]
        number = stated_numbers(self.conditions).get(name)
        if number is None:
            return PiecewiseView.of_operand(name, sizes)
        return PiecewiseView.of_number(int(number) if number.denominator == 1 else float(number), sizes)

    def map_of(self, pattern: Pattern | Spread) -> PiecewiseView:
        """The view that a term is; UnreadError for what is none."""
        match pattern:
            case Var(name):
                return self.operand(name)
            case App("fill", ()):
                fields = self._fields(pattern)
                return PiecewiseView.of_number(fields["value"], fields["shape"])
            case App("gather" | "gather_nd", (x, index)):
                return gathered(pattern.op, self.map_of(x), self.positions_of(index), self._fields(pattern))
            case App(op, operands):
                return view_of(op, [self.map_of(one) for one in operands], self._fields(pattern))
        raise UnreadError

    def positions_of(self, pattern: Pattern | Spread) -> PiecewiseView:
        """The positions that a term of integers is; UnreadError for what is none."""
        match pattern:
            case Var(name):
                integers = next(found for text in self.conditions if (found := _stated_integers(text, name)))
                shape = [self.dim(f"dim({name}, {place})") for place in range(ranks_of(self.conditions)[name])]
                return counted(*integers, shape)
            case App("gather", (App("shape", (x,)) as whole, index)):
                fields = self._fields(whole)
                return size_at(self.map_of(x).shape[fields["start"] : fields["end"]], self.positions_of(index))
            case App(op, operands):
                return position_of(op, [self.positions_of(one) for one in operands], self._fields(pattern))
        raise UnreadError

    def _fields(self, app: App) -> dict[str, Any]:
        # A name stands for a shape, whose sizes are no less than 0 as dims are.
        if any(isinstance(one.tree, ast.Name) and name != "shape" for name, one in app.fields.items()):
            raise UnreadError
        stated = {name: self._value(one.tree, self._sizes) for name, one in app.fields.items()}
        return {**spec(app.op).attrs, **stated}

    def _value(self, tree: ast.expr, sums: Mapping[str, Dim]) -> Any:
        match tree:
            case ast.Constant(value):
                return value
            case ast.Tuple(elements):
                return tuple(self._value(one, sums) for one in elements)
            case ast.UnaryOp(ast.USub(), one):
                return -self._value(one, sums)
            case ast.BinOp(one, ast.Add(), other):
                return self._value(one, sums) + self._value(other, sums)
            case ast.BinOp(one, ast.Sub(), other):
                return self._value(one, sums) - self._value(other, sums)
            case ast.BinOp(one, ast.Mult(), other):
                return self._value(one, sums) * self._value(other, sums)
            case ast.Call(ast.Name("dim")) | ast.Subscript(ast.Name()):
                return self._dim(ast.unparse(tree), sums)
            case ast.Name(name):
                rank = next(
                    int(text.partition(" == ")[2]) for text in self.conditions if text.startswith(f"len({name}) ")
                )
                return tuple(self._dim(f"{name}[{place}]", sums) for place in range(rank))
        raise UnreadError


def _is_dim(text: str) -> bool:
    """True for the text of one dim."""
    return text.startswith("dim(") and text.find(")") == len(text) - 1


def _stated_integers(text: str, name: str) -> Integers | None:
    """The integers that a condition says that a constant holds: the first, sizes and strides."""
    if not text.startswith(f"is_strided({name}, "):
        return None
    start, sizes, strides = ast.literal_eval(f"({argument_of(text, 'is_strided').removeprefix(f'{name}, ')})")
    return start, sizes, strides


def states_view(rule: Rule) -> bool:
    """True if both sides of a rule are the same view of its variables, for all sizes that its conditions leave open."""
    sides = rule.sides
    if sides is None:
        return False
    reading = ViewReading(frozenset(condition.text for condition in rule.conditions))
    try:
        return reading.map_of(sides[0]) == reading.map_of(sides[1])
    except (UnreadError, ValueError, LookupError, StopIteration, TypeError, ZeroDivisionError):
        return False
