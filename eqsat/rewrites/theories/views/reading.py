"""Terms of views read as pieces of operands, and the proof that two are the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.ops import OPS, spec
from eqsat.language.terms.dims import Dim, Sym, polynomial_quotient
from eqsat.language.terms.pattern import App, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.contractions import UnreadError, stated_sizes
from eqsat.rewrites.theories.identities import argument_of, ranks_of, stated_numbers
from eqsat.rewrites.theories.views.boxes import ViewPiece
from eqsat.rewrites.theories.views.naming import size_text
from eqsat.rewrites.theories.views.pieces import PiecewiseView

#: Operators whose results are elements of their operands.
VIEWS = frozenset({"reshape", "transpose", "slice", "expand", "tile", "gather", "pad", "concat"})
#: A size of a shape that a term calls by a name.
_SIZE_OF_SHAPE = re.compile(r"\w+\[\d+\]")
#: Integers that a constant holds: the first, and the sizes and strides of digits by which they go on.
Integers = tuple[int, tuple[int, ...], tuple[int, ...]]


def view_of(op: str, views: Sequence[PiecewiseView], fields: Mapping[str, Any]) -> PiecewiseView:
    """The view that an operator makes of others, but for one that reads indices; UnreadError for what is none."""
    x = views[0]
    match op:
        case "transpose":
            return x.transposed(fields["perm"])
        case "reshape":
            return x.reshaped(fields["shape"])
        case "expand":
            return x.expanded(fields["shape"])
        case "tile":
            return x.tiled(fields["repeats"])
        case "pad" if fields["mode"] == "constant":
            return x.padded(fields["pads"], fields["value"])
        case "concat":
            return PiecewiseView.joined(views, fields["axis"] % len(x.axes))
        case "slice":
            steps = fields["steps"] or (1,) * len(fields["axes"])
            for axis, *bounds in zip(fields["axes"], fields["starts"], fields["ends"], steps, strict=True):
                x = x.sliced(axis, *_kept(x.shape[axis], *bounds))
            return x
    if is_of_elements(op) and x.rest is None:
        return x.mapped(lambda operand: f"{op}({', '.join([operand, *written_fields(fields)])})")
    raise UnreadError


def is_of_elements(op: str) -> bool:
    """True for an operator that computes each element of its result from the one of its operand there."""
    declared = OPS.get(op)
    return declared is not None and declared.pointwise and declared.max_operands == 1 and not declared.random


def written_fields(fields: Mapping[str, Any]) -> list[str]:
    """Attributes as rules write them; ValueError where one is no literal and no size."""
    return [f"{name}={_text(value)}" for name, value in fields.items()]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({''.join(f'{_text(one)}, ' for one in value)})"
    if isinstance(value, Sym):
        return size_text(value)
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"{value!r} is no literal")
    return repr(value).replace("inf", "1e999") if isinstance(value, float) else repr(value)


def _kept(size: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim, int]:
    """The first place that a slice takes, how many there are, and the step; there has to be one."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        kept = range(size)[start : None if end < 0 and step < 0 else end : step]
        if not kept or end < -1 or (end < 0 and step > 0) or start < 0:
            raise UnreadError
        return kept[0], len(kept), step if len(kept) > 1 else 1
    if step == -1 and end == -1 and start == size - 1:
        return start, size, step
    end = size if at_least(end, size) else end
    if step == 1 and start != end and all(at_least(*pair) for pair in ((start, 0), (end, start), (size, end))):
        return start, end - start, 1
    count = polynomial_quotient(size, step) if step > 1 and end == size else None
    if count is None or not (at_least(start, 0) and at_least(step - 1, start)):
        raise UnreadError
    return start, count, step


def gathered(view: PiecewiseView, axis: int, integers: Integers, shape: Sequence[Dim]) -> PiecewiseView:
    """The view of what constant indices of a shape choose along an axis."""
    start, sizes, strides = integers
    if 0 in sizes:
        raise UnreadError
    extents = tuple((0, size, stride) for size, stride in zip(sizes, strides, strict=True))
    indices = PiecewiseView((sizes,), (ViewPiece("", start, extents),)).reshaped(shape)
    (piece,) = indices.pieces
    digits = [[piece.extents[place][1:] for place in indices.places(its)] for its in range(len(shape))]
    return view.gathered(axis % len(view.axes), start, digits)


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
            case App("gather", (x, Var(name))):
                return self._gathered(self.map_of(x), name, self._fields(pattern)["axis"])
            case App(op, operands) if op in VIEWS - {"gather"} or is_of_elements(op):
                return view_of(op, [self.map_of(one) for one in operands], self._fields(pattern))
        raise UnreadError

    def _gathered(self, view: PiecewiseView, name: str, axis: int) -> PiecewiseView:
        """The view of what constant indices choose along an axis; a condition states them."""
        integers = next(found for text in self.conditions if (found := _stated_integers(text, name)))
        shape = [self.dim(f"dim({name}, {place})") for place in range(ranks_of(self.conditions)[name])]
        return gathered(view, axis, integers, shape)

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
    except (UnreadError, ValueError, KeyError, StopIteration, TypeError):
        return False
