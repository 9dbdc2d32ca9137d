"""Tensors as functions of their index, of which only equality is known: shapes, element types and elements as keys."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from eqsat.language.declaration import OpSpec
from eqsat.rewrites.proof.naturality.claims import (
    ACTIVATION,
    ALONG,
    NO_ACTIVATION,
    copies,
    is_linear,
    keeps_rank,
    keeps_type,
    spreading,
)
from eqsat.rewrites.proof.naturality.elements import (
    ABSENT,
    Element,
    has_type_of_all,
    in_order,
    inverse_of,
    moved_below,
    outside,
    turned,
    unmoved,
)
from eqsat.rewrites.proof.naturality.statements import (
    Atom,
    Broadcast,
    ShapeStatements,
    length_of,
    rank_of,
    rank_of_result,
)

#: Operators that choose among elements along axes, as functions that keep order do not mind.
_EXTREMES = frozenset({"reduce_max", "reduce_min"})


class Unfollowed(Exception):  # noqa: N818 - nothing is wrong
    """Leaves a rule of which one side is more than single elements, moved."""


@dataclass(frozen=True)
class IndexedValue:
    """A tensor; the members of a spread are one, and `count` is the key of how many there are."""

    shape: Broadcast
    dtype: Hashable
    element: Element
    count: Hashable = None


@dataclass(frozen=True)
class Attributes:
    """The attributes of an operator: the text of each, of one value in one match, and the record of the others."""

    texts: tuple[tuple[str, str], ...]
    record: str | None

    def text(self, name: str) -> str:
        """The text of an attribute, of its record where it is only part of that."""
        return dict(self.texts).get(name, f"**{self.record}")


class Operations:
    """The values that operators make of values, by what conditions state.

    On the left side all that is written has a type. On the right one it has where the values are equal, as their shapes
    name the same movements of the same shapes.
    """

    def __init__(self, statements: ShapeStatements, *, exact: bool) -> None:
        self._known, self._exact = statements, exact
        self.is_left = True
        #: The permutations that the left side has.
        self._perms: set[str] = set()
        #: The shapes of what reshapes of the left side are of, by those that they make.
        self._reshaped: dict[Atom | None, Broadcast] = {}

    def on_each(self, declared: OpSpec, attributes: Attributes, operands: list[IndexedValue]) -> IndexedValue:
        """The value of an operator on single elements of broadcast operands."""
        given = [one for one in operands if one.element != ABSENT]
        if any(one.count is not None for one in given):
            raise Unfollowed
        shape = frozenset().union(*(one.shape for one in given))
        how = "all" if len(given) == 1 else spreading(declared)
        onto = self._known.closed(given[0].shape) == self._known.closed(shape)
        if how == "other" or (how == "onto the first" and not onto):
            raise Unfollowed
        dtype = given[0].dtype
        if not keeps_type(declared):
            dtype = ("made", declared.name, attributes, tuple(one.dtype for one in operands))
        elements = [one.element for one in operands]
        return IndexedValue(shape, dtype, ("each", declared.name, attributes, tuple(elements)))

    def with_single_parameters(
        self, declared: OpSpec, attributes: Attributes, operands: list[IndexedValue]
    ) -> IndexedValue:
        """The value of an operator on the elements of its first operand, with parameters of one element each."""
        first = operands[0]
        given = [one for one in operands[1:] if one.element != ABSENT]
        if first.count is not None or not all(
            one.element[0] == "number" and one.shape <= self._known.single and one.count is None for one in given
        ):
            raise Unfollowed
        texts = dict(attributes.texts)
        if attributes.record is not None or texts.get("block") != "0" or "axis" not in texts:
            raise Unfollowed
        if not self.is_left and texts["axis"] != "0":  # which there is of every tensor
            raise Unfollowed
        plain = Attributes(tuple(pair for pair in attributes.texts if pair[0] not in ALONG), None)
        dtype = ("made", declared.name, plain, tuple(one.dtype for one in operands))
        element = ("each", declared.name, plain, tuple(one.element for one in operands))
        return IndexedValue(first.shape, dtype, element)

    def moved(self, declared: OpSpec, attributes: Attributes, operands: list[IndexedValue]) -> IndexedValue:
        """The value of an operator that copies elements: its movement taken below what is computed of each of them."""
        if declared.name == "transpose":
            return self._transposed(attributes.text("perm"), operands[0])
        if declared.name == "reshape":
            operands = [self._before_reshapes(operands[0])]
        special = self._spread(declared.name, attributes, operands)
        if special is not None:
            return special
        if not copies(declared):
            raise Unfollowed
        parts = [one for place, one in enumerate(operands) if place not in declared.dtypes]
        if any(one.element == ABSENT for one in parts) or len({one.dtype for one in parts}) != 1:
            raise Unfollowed
        shapes = tuple((self._known.closed(one.shape), one.count) for one in operands)
        indices = tuple((one.dtype, one.element) for place, one in enumerate(operands) if place in declared.dtypes)
        move = (declared.name, attributes, shapes, indices)
        atom = ("moved", move)
        if declared.name == "reshape":
            self._known.ranks.join(rank_of(atom), length_of(attributes.text("shape")))
            if self.is_left:  # where it has a type, so that it is of that shape
                self._reshaped[atom] = operands[0].shape
                self._known.equal.append((frozenset({atom}), frozenset({("given", attributes.text("shape"))})))
        steady = self._steady(declared.name, attributes, parts)
        for name in steady:
            self._known.equal.append((frozenset({atom}), frozenset({atom, name})))
        self._note_rank(declared, attributes, operands, atom)
        element = moved_below(move, tuple(one.element for one in parts), steady)
        return IndexedValue(frozenset({atom}), parts[0].dtype, element)

    def filled(self, attributes: Attributes) -> IndexedValue:
        """The value of a tensor of one number, which no movement tells from another of that number."""
        texts = dict(attributes.texts)
        number = (texts.get("value"), texts.get("dtype"))
        if attributes.record is not None or None in number or "shape" not in texts:
            raise Unfollowed
        dtype: Hashable = ("given", texts["dtype"])
        return IndexedValue(frozenset({("given", texts["shape"])}), dtype, ("number", number))

    def _before_reshapes(self, one: IndexedValue) -> IndexedValue:
        """The value that one is a reshape of, or the value itself: a second reshape has all elements in the same order.

        Operators on single elements may be between the two, if all that they take has been through the first.
        """
        (atom,) = one.shape if len(one.shape) == 1 else (None,)
        if atom not in self._reshaped or one.count is not None:
            return one
        element = unmoved(atom[1], one.element)  # type: ignore[index]
        return one if element is None else IndexedValue(self._reshaped[atom], one.dtype, element)

    def reduced(self, declared: OpSpec, attributes: Attributes, operands: list[IndexedValue]) -> IndexedValue:
        """The value of the largest or least elements: functions that keep order are taken out of it.

        Where there is an element: the largest of none is less than all that a function makes.
        """
        if self._exact or declared.name not in _EXTREMES or len(operands) != 1 or operands[0].count is not None:
            return self.computed(declared, attributes, operands)
        (one,) = operands
        axes, shape = attributes.text("axes"), self._known.closed(one.shape)
        if not any(along == axes and shape == self._known.closed({name}) for name, along in self._known.along):
            return self.computed(declared, attributes, operands)
        reduction = (declared.name, attributes, self._known.closed(one.shape))
        return IndexedValue(frozenset({("moved", reduction)}), one.dtype, outside(reduction, one.element))

    def computed(self, declared: OpSpec, attributes: Attributes, operands: list[IndexedValue]) -> IndexedValue:
        """The value of any other operator: the same of the same operands, and sums of results for sums of operands."""
        shapes = tuple((self._known.closed(one.shape), one.count) for one in operands)
        dtype: Hashable = ("made", declared.name, attributes, tuple(one.dtype for one in operands))
        linear: tuple[int, ...] = ()
        is_real = any(one.dtype in {("type", name) for name in self._known.real} for one in operands)
        is_plain = is_real and self._has_no_activation(declared, attributes)
        if is_plain and not self._exact and len(operands) == declared.min_operands:
            linear = tuple(place for place in range(len(operands)) if is_linear(declared, place))
            dtype = operands[0].dtype if keeps_type(declared) else dtype
        result = ("result", declared.name, attributes, shapes)
        elements = tuple(one.element for one in operands)
        self._note_rank(declared, attributes, operands, ("moved", result))
        return IndexedValue(frozenset({("moved", result)}), dtype, self._distributed(result, linear, elements))

    def _distributed(self, result: Hashable, linear: tuple[int, ...], elements: tuple[Element, ...]) -> Element:
        """The result of an operator, taken apart along sums, differences, signs and scales of what it is linear in.

        A quotient is, where the divisor is not 0: what an operator makes of no element at all would be divided by it.
        """
        for place in linear:
            match elements[place]:
                case ("each", "add" | "sub" | "neg" as name, attributes, parts):
                    moved = range(len(parts))
                case ("each", "mul" as name, attributes, (_, ("number", _)) as parts):
                    moved = range(1)
                case ("each", "div" as name, attributes, (_, ("number", one)) as parts) if one in self._known.nonzero:
                    moved = range(1)
                case _:
                    continue
            results = tuple(
                self._distributed(result, linear, (*elements[:place], part, *elements[place + 1 :]))
                if k in moved
                else part
                for k, part in enumerate(parts)
            )
            return ("each", name, attributes, results)
        return ("result", result, elements)

    def name_result(self, value: IndexedValue, text: str) -> None:
        """Note the text by which conditions speak of a value."""
        for atom in value.shape if len(value.shape) == 1 else ():
            self._known.ranks.join(rank_of(atom), rank_of_result(text))

    def _note_rank(self, declared: OpSpec, attributes: Attributes, operands: list[IndexedValue], atom: Atom) -> None:
        """Note that a result has as many axes as the first operand, where it has."""
        if keeps_rank(declared, keepdims=dict(attributes.texts).get("keepdims") == "True"):
            shape = operands[0].shape
            for one in shape:
                if all(self._known.is_at_most(rank_of(other), rank_of(one)) for other in shape):
                    self._known.ranks.join(rank_of(one), rank_of(atom))

    def _has_no_activation(self, declared: OpSpec, attributes: Attributes) -> bool:
        if ACTIVATION not in declared.attrs:
            return True
        stated = dict(attributes.texts).get(ACTIVATION)
        if stated is not None or attributes.record is None:
            return stated is None and declared.attrs[ACTIVATION] == NO_ACTIVATION
        return attributes.record in self._known.plain

    def are_equal(self, one: IndexedValue, other: IndexedValue) -> bool:
        """True if two values are one tensor."""
        return (
            in_order(one.element) == in_order(other.element)
            and (one.dtype == other.dtype or has_type_of_all(one.element))
            and self._normal(one.shape) == self._normal(other.shape)
        )

    def _steady(self, op: str, attributes: Attributes, parts: list[IndexedValue]) -> frozenset[str]:
        """The operands that a movement leaves as they are: spread, they do not vary where it moves anything.

        A slice leaves what does not vary along its axes, a concatenation what does not along its own, and a reshape
        that keeps the last axis what varies along that one alone.
        """
        shapes = {self._known.closed(one.shape) for one in parts}

        def are_of(operand: Atom) -> bool:
            return shapes == {self._known.closed({operand})}

        if op == "reshape":
            return frozenset(
                name
                for operand, shape in self._known.last
                if shape == attributes.text("shape") and are_of(operand)
                for name in self._known.short
                if (frozenset({operand}), frozenset({operand, name})) in self._known.equal
            )
        axes = {"slice": attributes.text("axes"), "concat": attributes.text("axis")}.get(op)
        if axes is None or (op == "slice" and attributes.texts):
            return frozenset()
        return frozenset(
            name
            for name, along, operand in self._known.steady
            if along == axes
            and are_of(operand)
            and (frozenset({operand}), frozenset({operand, name})) in self._known.equal
        )

    def _spread(self, op: str, attributes: Attributes, operands: list[IndexedValue]) -> IndexedValue | None:
        """The value of a movement that broadcasting does not tell from none."""
        first = operands[0]
        shape = attributes.text("shape") if op in ("expand", "reshape") else ""
        if op == "expand":
            return IndexedValue(first.shape | {("given", shape)}, first.dtype, first.element)
        if op == "reshape" and self._known.closed({("given", shape)}) == self._known.closed(first.shape):
            return first
        if op != "reshape" or len(first.shape) != 1 or first.element[0] not in ("of", "number"):
            return None
        (name,) = first.shape
        if shape == "()" and name in self._known.single:
            return IndexedValue(frozenset(), first.dtype, first.element)
        if shape == f"without_leading_ones(shape({name}))":
            return IndexedValue(frozenset({("padded", None, name)}), first.dtype, first.element)
        for rank in self._known.operands:
            aligned = f"ones(rank({rank}) - rank({name})) + shape({name})"
            if shape == aligned and self._known.is_at_most(rank_of(name), rank_of(rank)):
                return IndexedValue(frozenset({("padded", rank_of(rank), name)}), first.dtype, first.element)
        return None

    def _transposed(self, perm: str, one: IndexedValue) -> IndexedValue:
        """The value of a transpose, which depends on no size: operands of fewer axes are spread to as many first."""
        length = length_of(inverse_of(perm) if perm.startswith("inverse(") else perm)
        if self.is_left:
            self._perms |= {perm, inverse_of(perm)}
            for atom in one.shape:
                if all(self._known.is_at_most(rank_of(other), rank_of(atom)) for other in one.shape):
                    self._known.ranks.join(rank_of(atom), length)
        elif perm not in self._perms or not self._has_rank(one.shape, length):
            raise Unfollowed
        shape = frozenset(self._turned(perm, length, atom) for atom in one.shape)
        return IndexedValue(shape, one.dtype, turned(perm, one.element))

    def _turned(self, perm: str, length: Hashable, atom: Any) -> Atom:
        """The shape after a transpose; one of fewer axes has ones before them."""
        if atom[0] == "padded" and atom[1] is not None:
            atom = atom[2]
        if atom[0] == "turned" and atom[1] == inverse_of(perm):
            return ("padded", length, atom[2])
        turned = ("turned", perm, atom)
        self._known.ranks.join(rank_of(turned), length)
        return turned

    def _has_rank(self, shape: Broadcast, length: Hashable) -> bool:
        """True if shapes are known to broadcast to one of so many axes."""
        ranks = [self._rank(atom) for atom in shape]
        return all(self._known.is_at_most(rank, length) for rank in ranks) and any(
            self._known.ranks.of(rank) == self._known.ranks.of(length) for rank in ranks
        )

    def _rank(self, atom: Any) -> Hashable:
        return atom[1] if atom[0] == "padded" and atom[1] is not None else rank_of(atom)

    def _normal(self, shape: Broadcast) -> Broadcast:
        """A closed shape in which nothing has ones before its axes that others have as many axes for."""
        padded = {atom for atom in shape if isinstance(atom, tuple) and atom[0] == "padded"}
        found = set(shape)
        for atom in padded:
            _, rank, name = atom
            own = rank is not None and self._known.ranks.of(rank) == self._known.ranks.of(rank_of(name))
            if own or any(self._makes_up_for(other, rank, name) for other in shape - padded):
                found = (found - {atom}) | {name}
        return self._known.closed(found)

    def _makes_up_for(self, other: Atom, rank: Hashable, name: Atom) -> bool:
        """True if beside another shape it does not matter how many ones a shape begins with.

        With as many axes as that has, these are at most as many; without its own, they have to be as many.
        """
        if rank is None:
            return self._known.is_at_most(rank_of(name), self._rank(other))
        return self._known.ranks.of(rank) == self._known.ranks.of(self._rank(other))
