"""Views of a tensor as strided maps: where each element of a result lies in the row-major order of the operand.

An axis of a view is a list of digits, each with a size and a stride: an index along the axis is written in the mixed
radix of the sizes, and each digit moves by its stride through the operand. Transposes reorder axes, reshapes regroup
digits, slices change strides and the offset, expands have digits of stride 0, and constant indices that are such a map
themselves have its digits. Sizes are numbers or products of dims.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.language.terms.dims import Dim, Sym, exact_quotient, product
from eqsat.language.terms.pattern import App, Expression, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.contractions import UnreadError, stated_sizes
from eqsat.rewrites.theories.identities import argument_of, ranks_of

#: A digit of an index: its size and its stride.
Digit = tuple[Dim, Dim]
#: The digits of an axis, the last one fastest; none where its size is 1.
Digits = tuple[Digit, ...]


@dataclass(frozen=True)
class StridedMap:
    """The place of each element of a view in an operand: an offset, and the digits of each axis.

    Digits are merged where two move as one does, so that equal maps of fixed sizes are written alike.
    """

    operand: str
    offset: Dim
    axes: tuple[Digits, ...]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The sizes of the axes."""
        return tuple(product(size for size, _ in axis) for axis in self.axes)

    def with_axes(self, axes: Iterable[Sequence[Digit]], offset: Dim = 0) -> StridedMap:
        """The map with other axes, and a greater offset."""
        return StridedMap(self.operand, self.offset + offset, tuple(map(merged, axes)))

    def transposed(self, perm: Sequence[int]) -> StridedMap:
        """The map with its axes in another order."""
        if sorted(perm) != list(range(len(self.axes))):
            raise UnreadError
        return self.with_axes(self.axes[place] for place in perm)

    def reshaped(self, shape: Sequence[Dim]) -> StridedMap:
        """The map with its digits in other groups, taken apart where a size ends within one."""
        left = list(merged([digit for axis in self.axes for digit in axis]))
        groups: list[list[Digit]] = []
        for wanted in reversed(shape):
            group: list[Digit] = []
            while wanted != 1:
                if not left or wanted == 0:
                    raise UnreadError
                size, stride = left.pop()
                rest, outer = exact_quotient(wanted, size), exact_quotient(size, wanted)
                if rest is not None:
                    group.insert(0, (size, stride))
                    wanted = rest
                elif outer is not None:
                    group.insert(0, (wanted, stride))
                    left.append((outer, stride * wanted))
                    wanted = 1
                else:
                    raise UnreadError
            groups.insert(0, group)
        if left:
            raise UnreadError
        return self.with_axes(groups)

    def expanded(self, shape: Sequence[Dim]) -> StridedMap:
        """The map with axes of size 1 repeated, and with more axes before."""
        if len(shape) < len(self.axes):
            raise UnreadError
        axes: list[Digits] = [()] * (len(shape) - len(self.axes)) + [*self.axes]
        found: list[Digits] = []
        for axis, wanted in zip(axes, shape, strict=True):
            if wanted == 0 or (axis and product(size for size, _ in axis) != wanted):
                raise UnreadError
            found.append(axis or ((wanted, 0),))
        return self.with_axes(found)

    def sliced(self, fields: Mapping[str, Sequence[int]]) -> StridedMap:
        """The map of a part of it; bounds and steps are numbers, and the part is not empty."""
        found, offset = list(self.axes), 0 * self.offset
        places = [axis % len(found) for axis in fields["axes"]]
        steps = fields.get("steps") or [1] * len(places)
        if len({*places}) < len(places):
            raise UnreadError
        for place, start, end, step in zip(places, fields["starts"], fields["ends"], steps, strict=True):
            digits = found[place]
            size = product(n for n, _ in digits)
            if not isinstance(size, int):
                raise UnreadError
            kept = range(size)[start : None if end < 0 and step < 0 else end : step]
            if not kept or end < -1 or (end < 0 and step > 0) or start < 0:
                raise UnreadError
            found[place], begun = cut(digits, kept)
            offset = offset + begun
        return self.with_axes(found, offset)

    def gathered(self, axis: int, indices: StridedMap, count: int) -> StridedMap:
        """The map of what indices along an axis choose, where these are a map of natural numbers below a count."""
        if not isinstance(indices.offset, int):
            raise UnreadError
        offset, left = 0 * self.offset, indices.offset
        # Two digits may be equal, and each adds to a place.
        known = [digit for its in indices.axes for digit in its]
        placed: dict[int, Dim] = {}
        block = count
        for size, stride in self.axes[axis]:
            assert isinstance(size, int)
            block //= size
            first, left = divmod(left, block)
            offset = offset + stride * first
            lowest, highest = first, first
            for place, (number, step) in enumerate(known):
                assert isinstance(number, int) and isinstance(step, int)
                if place in placed or step % block:
                    continue
                placed[place] = stride * (step // block)
                lowest += min(0, (number - 1) * (step // block))
                highest += max(0, (number - 1) * (step // block))
            if lowest < 0 or highest >= size:
                raise UnreadError
        if left or len(placed) < len(known):
            raise UnreadError
        places = iter(range(len(known)))
        chosen = [[(number, placed[next(places)]) for number, _ in its] for its in indices.axes]
        return self.with_axes([*self.axes[:axis], *chosen, *self.axes[axis + 1 :]], offset)


def cut(digits: Digits, kept: range) -> tuple[Digits, Dim]:
    """The digits of a part of an axis, which is not empty, and the place at which it begins.

    UnreadError where the part begins or ends within a digit of several.
    """
    if not digits:
        return (), 0
    (size, stride), inner = digits[0], digits[1:]
    block = product(n for n, _ in inner)
    assert isinstance(block, int) and isinstance(size, int)
    if kept == range(size * block):
        return digits, 0
    first, within = divmod(kept[0], block)
    if kept.step % block == 0 or len(kept) == 1:  # one place in each block
        _, begun = cut(inner, range(within, within + 1))
        return ((len(kept), stride * (kept.step // block)),), begun + stride * first
    if kept[-1] // block == first:  # a part of one block
        found, begun = cut(inner, range(within, within + kept[-1] - kept[0] + (1 if kept.step > 0 else -1), kept.step))
        return found, begun + stride * first
    if kept.step == 1 and within == 0 and len(kept) % block == 0:  # whole blocks
        return ((len(kept) // block, stride), *inner), stride * first
    whole = range(within, block, kept.step)
    if kept.step > 0 and block % kept.step == 0 and len(kept) % len(whole) == 0 and within < kept.step:
        found, begun = cut(inner, whole)  # the same part of each block
        return ((len(kept) // len(whole), stride), *found), begun + stride * first
    raise UnreadError


def merged(digits: Sequence[Digit]) -> Digits:
    """Digits without those of size 1, and with one for neighbours that move as one does."""
    found: list[Digit] = []
    for size, stride in digits:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            size = found.pop()[0] * size
        found.append((size, stride))
    return tuple(found)


@dataclass(frozen=True)
class ViewReading:
    """Reads terms as views under conditions, which state the ranks and sizes of operands."""

    conditions: frozenset[str]

    def dim(self, text: str) -> Dim:
        """A dim as conditions write it: a number, or the name of all dims of one size."""
        found = stated_sizes(set(self.conditions)).get(text, text)
        return int(found) if found.isdigit() else Sym.named(found)

    def operand(self, name: str) -> StridedMap:
        """An operand as it is, in row-major order."""
        sizes = [self.dim(f"dim({name}, {axis})") for axis in range(ranks_of(self.conditions)[name])]
        if 0 in sizes:
            raise UnreadError
        digits = [((size, product(sizes[place + 1 :])),) for place, size in enumerate(sizes)]
        return StridedMap(name, 0, tuple(map(merged, digits)))

    def map_of(self, pattern: Pattern | Spread) -> StridedMap:
        """The map of a chain of views; UnreadError for what is none."""
        match pattern:
            case Var(name):
                return self.operand(name)
            case App("transpose", (x,), fields):
                return self.map_of(x).transposed(_numbers(fields["perm"]))
            case App("reshape", (x,), fields):
                return self.map_of(x).reshaped(self._shape(fields["shape"]))
            case App("expand", (x,), fields):
                return self.map_of(x).expanded(self._shape(fields["shape"]))
            case App("slice", (x,), fields):
                return self.map_of(x).sliced({name: _numbers(value) for name, value in fields.items()})
            case App("gather", (x, Var(name)), fields):
                return self._gathered(self.map_of(x), name, ast.literal_eval(fields["axis"].text))
        raise UnreadError

    def _gathered(self, view: StridedMap, name: str, axis: int) -> StridedMap:
        """The map of what constant indices choose along an axis; a condition states them."""
        start, sizes, strides = next(found for text in self.conditions if (found := _stated_integers(text, name)))
        size, rank = product(n for n, _ in view.axes[axis]), ranks_of(self.conditions)[name]
        if not isinstance(size, int) or 0 in sizes:
            raise UnreadError
        indices = StridedMap(name, start, (merged([*zip(sizes, strides, strict=True)]),))
        indices = indices.reshaped([self.dim(f"dim({name}, {place})") for place in range(rank)])
        return view.gathered(axis, indices, size)

    def _shape(self, expression: Expression) -> list[Dim]:
        if not isinstance(expression.tree, ast.Tuple):
            raise UnreadError
        return [self._size(one) for one in expression.tree.elts]

    def _size(self, tree: ast.expr) -> Dim:
        match tree:
            case ast.Constant(int() as number):
                return number
            case ast.BinOp(left, ast.Mult(), right):
                return self._size(left) * self._size(right)
            case ast.Call(ast.Name("dim")):
                return self.dim(ast.unparse(tree))
        raise UnreadError


def _stated_integers(text: str, name: str) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """The integers that a condition says that a constant holds: the first, sizes and strides."""
    if not text.startswith(f"is_strided({name}, "):
        return None
    start, sizes, strides = ast.literal_eval(f"({argument_of(text, 'is_strided').removeprefix(f'{name}, ')})")
    return start, sizes, strides


def states_view(rule: Rule) -> bool:
    """True if both sides of a rule are the same view of one variable, for all sizes that its conditions leave open."""
    sides = rule.sides
    if sides is None:
        return False
    reading = ViewReading(frozenset(condition.text for condition in rule.conditions))
    try:
        return reading.map_of(sides[0]) == reading.map_of(sides[1])
    except (UnreadError, ValueError, KeyError, StopIteration):
        return False


def _numbers(expression: Expression) -> tuple[int, ...]:
    found = ast.literal_eval(expression.text)
    if not isinstance(found, tuple) or not all(isinstance(one, int) for one in found):
        raise UnreadError
    return found
