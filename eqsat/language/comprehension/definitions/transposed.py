"""Transposed convolutions: sums in which each element of a tensor adds its multiple of a filter where that falls.

They are written from the place where it falls: what is added is read at a quotient, under the condition that there is
no rest, or for all elements under the condition that they fall there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eqsat.language.comprehension.definitions.elements import indices_of
from eqsat.language.comprehension.definitions.parts import AxedTerm, tuple_of
from eqsat.language.comprehension.definitions.statement import StatementContext
from eqsat.language.comprehension.definitions.windows import merged, parted, product_text
from eqsat.language.comprehension.extents.affine import Affine, affine
from eqsat.language.comprehension.meaning.constants import constant
from eqsat.language.comprehension.text.syntax import Applied, Binary, Conditional, Expression, Number
from eqsat.language.terms import Dim

#: The most axes that filters slide along.
_MOST = 3


@dataclass(frozen=True)
class FallenAxis:
    """An axis along which filters fall: the place in the result, the index inside the filter, and what is between.

    An element falls at stride times its own place, dilation times that inside the filter, and less by what is cut off
    before: `begin`; `end` is cut off behind, and put on where it is negative.
    """

    place: str
    offset: str
    stride: int
    dilation: int
    begin: int
    end: int


@dataclass(frozen=True)
class GuardedProduct:
    """A product of two factors under conditions: one reads a tensor, `weights` is the other.

    `is_whole` says that the whole product is 0 where they do not hold, and not one factor alone.
    """

    conditions: tuple[Expression, ...]
    read: Applied
    weights: Expression
    is_whole: bool


def transposed_convolution(
    statement: StatementContext, value: Expression, weights: Callable[[Expression], AxedTerm], *, exact: bool
) -> AxedTerm | None:
    """The sum of a product as a transposed convolution; None where it is none.

    Where one factor alone is 0 under the condition, the other is multiplied by it: `exact` definitions do so too.
    """

    def first(product: GuardedProduct) -> int:
        """The first index of the target that the tensor has: of two that may be one, that of the batch."""
        read = [indices_of(statement, one) for one in product.read.arguments]
        return min((k for k, index in enumerate(statement.one.indices) if any(index in one for one in read)), default=0)

    for product in sorted(_products(statement, value), key=first):
        if exact and not product.is_whole:
            continue
        made = _made(statement, product, weights)
        if made is not None:
            return made
    return None


def _products(statement: StatementContext, value: Expression) -> Iterator[GuardedProduct]:
    """The ways to read a value as a product under conditions, by which of its factors may be the tensor."""
    tensors = statement.scope.ranks
    match value:
        case Conditional(condition=condition, yes=Binary(operator="*", left=left, right=right), no=no):
            if constant(no) == 0:
                for one, other in ((left, right), (right, left)):
                    if isinstance(one, Applied) and one.name in tensors:
                        yield GuardedProduct(tuple(_all_of(condition)), one, other, True)
        case Binary(operator="*", left=left, right=right):
            for one, other in ((left, right), (right, left)):
                match one:
                    case Conditional(condition=condition, yes=Applied(name=name) as read, no=no) if name in tensors:
                        if constant(no) == 0:
                            yield GuardedProduct(tuple(_all_of(condition)), read, other, False)


def _all_of(condition: Expression) -> Iterator[Expression]:
    match condition:
        case Binary(operator="&&", left=left, right=right):
            yield from _all_of(left)
            yield from _all_of(right)
        case _:
            yield condition


def _made(
    statement: StatementContext, product: GuardedProduct, weights: Callable[[Expression], AxedTerm]
) -> AxedTerm | None:
    symbolic, one = statement.symbolic, statement.one
    if symbolic is None:
        return None
    reader = _AxisReader(statement, product)
    names: dict[str, str] = {}
    fallen: list[FallenAxis] = []
    walked: list[str] = []
    for axis, subscript in enumerate(product.read.arguments):
        plain = affine(subscript, symbolic.known)
        index = next(iter(plain.factors), "") if plain is not None and plain.constant == 0 else ""
        walks = plain is not None and plain.factors == {index: 1}
        walks = walks and statement.symbolic_range(index) == (0, reader.size(axis))
        along = reader.axis(axis, subscript, index if walks and index in one.reduced else None)
        if along is not None:
            fallen.append(along)
            walked += [index] if walks and index in one.reduced else []
            names[str(axis)] = along.place
        elif walks:
            names[str(axis)] = index
        else:
            return None
    held = statement.held(product.read.name)
    is_known = {*held.axes} == {*names} and len({*names.values()}) == len(names)
    if not fallen or len(fallen) > _MOST or reader.left or not is_known:
        return None
    # An index by which elements are looked at, and an offset in a filter, stand for one axis alone.
    others = [one for part in (*product.read.arguments, product.weights) for one in indices_of(statement, part)]
    offsets = [one.offset for one in fallen]
    if (
        any(others.count(index) > 1 for index in walked)
        or len({*offsets}) < len(offsets)
        or {*offsets} & {*names.values()}
    ):
        return None
    return _called(statement, held.renamed(lambda axis: names[axis]), fallen, statement.bare(weights(product.weights)))


def _called(
    statement: StatementContext, data: AxedTerm, fallen: Sequence[FallenAxis], filters: AxedTerm
) -> AxedTerm | None:
    """The call of the operator, where the axes of data, filters and target are those of one."""
    indices, reduced = statement.one.indices, statement.one.reduced
    fallen = sorted(fallen, key=lambda one: data.axes.index(one.place))
    places, offsets = [one.place for one in fallen], [one.offset for one in fallen]
    plain = [one for one in data.named if one not in places]
    batch = [one for one in plain if one in indices and one not in filters.axes]
    groups = [one for one in plain if one in indices and one in filters.axes]
    channels = [one for one in plain if one in reduced and one in filters.axes]
    made = [one for one in filters.axes if one not in (*groups, *channels, *offsets)]
    if len(batch) + len(groups) + len(channels) < len(plain) or not {*offsets} <= {*filters.axes}:
        return None
    walked = {one for one in reduced if one not in (*channels, *offsets)}
    inner = {one for one in walked if one not in (*data.axes, *filters.axes)}
    if {*batch, *groups, *made, *places} != {*indices} or {*made} & {*places} or walked != inner:
        return None
    image = merged(statement, data, (batch, [*groups, *channels]), places)
    weights = merged(statement, filters, ([*groups, *channels], made), offsets)
    pads = [*(str(one.begin) for one in fallen), *(str(max(one.end, 0)) for one in fallen)]
    given = [
        f"strides={tuple_of(str(one.stride) for one in fallen)}",
        f"dilations={tuple_of(str(one.dilation) for one in fallen)}",
        f"pads={tuple_of(pads)}",
        f"output_padding={tuple_of(str(max(-one.end, 0)) for one in fallen)}",
    ]
    if groups:
        given.append(f"group={product_text(filters.extent(one) for one in groups)}")
    text = f"conv_transpose({image}, {weights}, {', '.join(given)})"
    return parted(statement, text, ((batch, data), ([*groups, *made], filters)), places)


class _AxisReader:
    """The reading of conditions, axis by axis; `left` are those that no axis has asked for yet."""

    def __init__(self, statement: StatementContext, product: GuardedProduct) -> None:
        assert statement.symbolic is not None
        self.statement, self.product, self.symbolic = statement, product, statement.symbolic
        self.left = [*product.conditions]

    def size(self, axis: int) -> Dim:
        """The number of elements along an axis of what is read."""
        return self.symbolic.shapes[self.product.read.name][axis]

    def axis(self, axis: int, subscript: Expression, index: str | None) -> FallenAxis | None:
        """An axis along which filters fall, read at a quotient, or by an index that is added up; None of another."""
        return self._by_equation(axis, index) if index is not None else self._by_quotient(axis, subscript)

    def _by_equation(self, axis: int, index: str) -> FallenAxis | None:
        """An axis all of whose elements are looked at: a condition says where they fall."""
        for condition in self.left:
            if not isinstance(condition, Binary) or condition.operator != "==":
                continue
            a, b = self._affine(condition.left), self._affine(condition.right)
            if a is None or b is None:
                continue
            falls = a.plus(b, -1)
            stride = falls.factors.get(index, 0)
            falls = falls if stride > 0 else falls.times(-1)
            others = {name: factor for name, factor in falls.factors.items() if name != index}
            found = self._fallen(axis, Affine(-falls.constant, {n: -f for n, f in others.items()}), abs(stride))
            if found is not None:
                self.left.remove(condition)
                return found
        return None

    def _by_quotient(self, axis: int, subscript: Expression) -> FallenAxis | None:
        """An axis that is read where the place is a multiple of the stride, inside of it."""
        inner, stride = subscript, 1
        match subscript:
            case Binary(operator="/", left=left, right=Number(value=int() as by)) if by > 1:
                inner, stride = left, by
        falls = self._affine(inner)
        found = None if falls is None else self._fallen(axis, falls, stride)
        if found is None or falls is None:
            return None
        asked = [one for one in self.left if self._is_about(one, falls, stride, axis)]
        ranges = self.symbolic.ranges[self.statement.number]
        is_below = any(self._is_upper(one, falls, stride, axis) for one in asked)
        most = stride * self.size(axis) - 1 - falls.most(ranges)
        is_above = any(self._is_lower(one, falls) for one in asked)
        least = falls.least(ranges)
        is_inside = (is_below or _is_never_negative(most)) and (is_above or _is_never_negative(least))
        if not is_inside or (stride > 1 and not any(self._is_multiple(one, falls, stride) for one in asked)):
            return None
        self.left = [one for one in self.left if one not in asked]
        return found

    def _fallen(self, axis: int, falls: Affine, stride: int) -> FallenAxis | None:
        """The axis by stride times its place: that in the result, less dilated ones inside the filter, and a number."""
        indices, reduced = self.statement.one.indices, self.statement.one.reduced
        places = [name for name, factor in falls.factors.items() if name in indices and factor == 1]
        offsets = [name for name, factor in falls.factors.items() if name in reduced and factor < 0]
        begin = falls.constant
        if len(places) != 1 or len(offsets) != 1 or len(falls.factors) != 2 or stride < 1:
            return None
        if not isinstance(begin, int) or begin < 0:
            return None
        (place,), (offset,) = places, offsets
        here, within = self.statement.symbolic_range(place), self.statement.symbolic_range(offset)
        if here is None or within is None or here[0] != 0 or within[0] != 0:
            return None
        dilation = -falls.factors[offset]
        end = (self.size(axis) - 1) * stride + (within[1] - 1) * dilation + 1 - begin - here[1]
        if not isinstance(end, int) or (end < 0 and -end >= stride):
            return None
        return FallenAxis(place, offset, stride, dilation, begin, end)

    def _affine(self, expression: Expression) -> Affine | None:
        return affine(expression, self.symbolic.known)

    def _is_about(self, condition: Expression, falls: Affine, stride: int, axis: int) -> bool:
        return (
            self._is_lower(condition, falls)
            or self._is_upper(condition, falls, stride, axis)
            or self._is_multiple(condition, falls, stride)
        )

    def _not_below(self, condition: Expression) -> tuple[Affine, Affine] | None:
        """The smaller and the larger side of a comparison, a < b as a + 1 <= b; None of another condition."""
        match condition:
            case Binary(operator=("<" | "<=" | ">" | ">=") as operator, left=left, right=right):
                a, b = self._affine(left), self._affine(right)
                if a is None or b is None:
                    return None
                less, more = (a, b) if operator in ("<", "<=") else (b, a)
                return less.plus(Affine(1 if operator in ("<", ">") else 0, {})), more
        return None

    def _is_lower(self, condition: Expression, falls: Affine) -> bool:
        """True of the condition that a place is not below 0."""
        sides = self._not_below(condition)
        return sides is not None and sides[1].plus(sides[0], -1) == falls

    def _is_upper(self, condition: Expression, falls: Affine, stride: int, axis: int) -> bool:
        """True of the condition that a multiple of the stride is inside of the axis, or its quotient is."""
        sides = self._not_below(condition)
        if sides is not None:
            room = sides[1].plus(sides[0], -1).plus(falls).plus(Affine(stride * self.size(axis) - 1, {}), -1)
            return not room.factors and isinstance(room.constant, int) and -stride < room.constant <= 0
        match condition:
            case Binary(operator=("<" | "<=") as operator, left=quotient, right=end) if stride > 1:
                last = self._affine(end)
                room = Affine(self.size(axis) - (0 if operator == "<" else 1), {})
                return last == room and self._is_divided("/", quotient, falls, stride)
            case Binary(operator=(">" | ">=") as operator, left=end, right=quotient) if stride > 1:
                last = self._affine(end)
                room = Affine(self.size(axis) - (0 if operator == ">" else 1), {})
                return last == room and self._is_divided("/", quotient, falls, stride)
        return False

    def _is_multiple(self, condition: Expression, falls: Affine, stride: int) -> bool:
        """True of the condition that nothing is left of a place by the stride."""
        match condition:
            case Binary(operator="==", left=left, right=right) if stride > 1:
                pairs = ((left, right), (right, left))
                return any(constant(b) == 0 and self._is_divided("%", a, falls, stride) for a, b in pairs)
        return False

    def _is_divided(self, operator: str, expression: Expression, falls: Affine, stride: int) -> bool:
        match expression:
            case Binary(operator=found, left=left, right=Number(value=value)):
                return found == operator and value == stride and self._affine(left) == falls
        return False


def _is_never_negative(dim: Dim) -> bool:
    return isinstance(dim, int) and dim >= 0
