"""The statements of a rule's conditions about shapes, ranks and lengths, without a number in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterable
from typing import TypeAlias

from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.rules.rule import Rule

#: A part of a shape: the shape of an operand, one that an attribute gives, or that a movement makes of others.
Atom: TypeAlias = Hashable
#: The shape that some shapes are broadcast to. The order of broadcasting, and what is there twice, does not matter.
Broadcast: TypeAlias = "frozenset[Atom]"


class Classes:
    """Names that are known to be of one kind, each class by one of them."""

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    def of(self, name: Hashable) -> Hashable:
        """The name that stands for those of its class."""
        while name in self._parents:
            name = self._parents[name]
        return name

    def join(self, one: Hashable, other: Hashable) -> None:
        """Make one class of two names' classes."""
        if self.of(one) != self.of(other):
            self._parents[self.of(other)] = self.of(one)


#: Below this all integers are floats.
_EXACT = 2**53


def rank_of(atom: Atom) -> Hashable:
    """The key of the rank of a shape."""
    return ("rank", atom)


def rank_of_result(text: str) -> Hashable:
    """The key of the rank of what an operator makes of operands alone, by its text."""
    return ("rank of", text)


def length_of(attribute: str) -> Hashable:
    """The key of the length of an attribute, by its text."""
    return ("length", attribute)


def member(sequence: str) -> Atom:
    """The name of one member of a sequence, any of them."""
    return ("member", sequence)


class ShapeStatements:
    """Statements of conditions, each in the form that it is written in; others are not used."""

    def __init__(self, rule: Rule) -> None:
        #: Shapes that are broadcast to the same.
        self.equal: list[tuple[Broadcast, Broadcast]] = []
        #: Sequences whose members have equal shapes as far as both go.
        self.equal_members: list[tuple[str, str]] = []
        #: Sequences by how long they are, and shapes and attributes by their ranks and lengths.
        self.counts, self.ranks = Classes(), Classes()
        #: Ranks that are at most others.
        self.at_most: set[tuple[Hashable, Hashable]] = set()
        #: Operands of one element, of one number, and of one axis at most.
        self.single: set[str] = set()
        self.uniform: set[str] = set()
        self.short: set[str] = set()
        #: Operands that a movement of another along an attribute's axes leaves as they are, and reshapes of operands
        #: that keep the last axis.
        self.steady: set[tuple[str, str, Atom]] = set()
        self.last: set[tuple[str, str]] = set()
        #: Operands without zeros, and operands of floats.
        self.nonzero: set[str] = set()
        self.real: set[str] = set()
        #: Operands that have elements along axes, and the texts of these.
        self.along: set[tuple[str, str]] = set()
        #: Records of attributes that name no activation.
        self.plain: set[str] = set()
        self.operands = sorted(rule.tensors)
        for condition in rule.conditions:
            for part in conjuncts(condition.tree):
                self._note(ast.unparse(part))

    def is_at_most(self, rank: Hashable, other: Hashable) -> bool:
        """True if a rank or length is known to be at most another, in one step."""
        one, most = self.ranks.of(rank), self.ranks.of(other)
        return one == most or any(
            (self.ranks.of(low), self.ranks.of(high)) == (one, most) for low, high in self.at_most
        )

    def closed(self, shape: Iterable[Atom]) -> Broadcast:
        """A shape with all that may be broadcast into it without changing it."""
        closed = set(shape)
        # Members of the longer of two sequences have none beside them.
        members = [
            (frozenset({member(xs)}), frozenset({member(ys)}))
            for xs, ys in self.equal_members
            if self.counts.of(xs) == self.counts.of(ys)
        ]
        equal = [*self.equal, *members]
        while True:
            more = {a for one, other in equal for x, y in ((one, other), (other, one)) if x <= closed for a in y}
            more |= {
                name
                for name in self.single
                if any(atom != name and self.is_at_most(rank_of(name), rank_of(atom)) for atom in closed)
            }
            if more <= closed:
                return frozenset(closed)
            closed |= more

    def _note(self, text: str) -> None:
        for pattern, note in _FORMS:
            found = re.fullmatch(pattern, text)
            if found is not None:
                note(self, *found.groups())

    def _equal_shapes(self, listed: str) -> None:
        first, *others = listed.split(", ")
        self.equal += [(frozenset({first}), frozenset({other})) for other in others]
        for other in others:
            self.ranks.join(rank_of(first), rank_of(other))

    def _equal_members(self, one: str, other: str, first: str, second: str, xs: str, ys: str) -> None:
        if first != second and {one, other} == {first, second}:
            self.equal_members.append((xs, ys))

    def _equal_ranks(self, one: str, other: str) -> None:
        self.ranks.join(rank_of(one), rank_of(other))

    def _equal_counts(self, one: str, other: str) -> None:
        self.counts.join(one, other)

    def _spans(self, one: str, other: str) -> None:
        self.equal.append((frozenset({one}), frozenset({one, other})))
        self.at_most.add((rank_of(other), rank_of(one)))

    def _each_spans(self, one: str, other: str, loop: str, sequence: str) -> None:
        if one == loop and other != loop:
            each = member(sequence)
            self.equal.append((frozenset({each}), frozenset({each, other})))
            self.at_most.add((rank_of(other), rank_of(each)))

    def _equal_broadcasts(self, left: str, right: str) -> None:
        self.equal.append((_broadcast(left), _broadcast(right)))

    def _is_shape(self, *texts: str) -> None:
        """Of a shape that is written, and that of an operand, in either order."""
        (attribute,) = (text for text in texts if not text.startswith("shape("))
        (name,) = (text[6:-1] for text in texts if text.startswith("shape("))
        self.equal.append((frozenset({("given", attribute)}), frozenset({name})))
        self.ranks.join(rank_of(name), length_of(attribute))

    def _ranks_at_most(self, one: str, other: str) -> None:
        self.at_most.add((rank_of(one), rank_of(other)))

    def _rank_at_most_both(self, one: str, other: str, attribute: str) -> None:
        self.at_most |= {(rank_of(one), rank_of(other)), (rank_of(one), length_of(attribute))}

    def _is_single(self, name: str) -> None:
        self.single.add(name)
        self.uniform.add(name)

    def _is_uniform(self, name: str) -> None:
        self.uniform.add(name)

    def _is_all(self, name: str, number: str) -> None:
        """Of a number that is written, and small enough that no two integers are equal to it as floats."""
        try:
            value = ast.literal_eval(number)
        except (SyntaxError, ValueError):
            return
        if isinstance(value, int | float) and abs(value) < _EXACT:
            self.uniform.add(name)

    def _is_short(self, name: str) -> None:
        self.short.add(name)

    def _off_axes(self, name: str, loop: str, other: str, target: str, record: str) -> None:
        if loop == target and loop not in (name, other):
            self.steady.add((name, f"**{record}", other))

    def _off_axis(self, name: str, axis: str, sequence: str) -> None:
        self.steady.add((name, axis, member(sequence)))

    def _rank_at_most_result(self, one: str, result: str) -> None:
        self.at_most.add((rank_of(one), rank_of_result(result)))

    def _is_real(self, listed: str) -> None:
        self.real |= set(listed.split(", "))

    def _is_nonzero(self, listed: str) -> None:
        self.nonzero |= set(listed.split(", "))

    def _has_elements(self, name: str, axes: str) -> None:
        self.along.add((name, f"**{axes.removesuffix('.axes')}" if axes.endswith(".axes") else axes))

    def _is_plain(self, record: str) -> None:
        self.plain.add(record)

    def _keeps_last(self, name: str, attribute: str) -> None:
        self.last.add((name, attribute))


def _broadcast(listed: str) -> Broadcast:
    """The shapes that a call of `broadcast` lists: those of operands, and attributes."""
    names = (re.fullmatch(r"shape\((\w+)\)", one) or one for one in listed.split(", "))
    return frozenset(("given", one) if isinstance(one, str) else one.group(1) for one in names)


_SHAPES = r"broadcast\(((?:(?:shape\(\w+\)|\w+)(?:, )?)+)\)"
#: The forms of conditions, as Python writes them, and what notes them.
_FORMS = (
    (r"same_shape\((\w+(?:, \w+)+)\)", ShapeStatements._equal_shapes),
    (
        r"all\(\(same_shape\((\w+), (\w+)\) for \(?(\w+), (\w+)\)? in zip\((\w+), (\w+)\)\)\)",
        ShapeStatements._equal_members,
    ),
    (r"rank\((\w+)\) == rank\((\w+)\)", ShapeStatements._equal_ranks),
    (r"len\((\w+)\) == len\((\w+)\)", ShapeStatements._equal_counts),
    (r"spans\((\w+), (\w+)\)", ShapeStatements._spans),
    (r"all\(\(spans\((\w+), (\w+)\) for (\w+) in (\w+)\)\)", ShapeStatements._each_spans),
    (rf"{_SHAPES} == {_SHAPES}", ShapeStatements._equal_broadcasts),
    (r"(\w+) == (shape\(\w+\))", ShapeStatements._is_shape),
    (r"(shape\(\w+\)) == (\w+)", ShapeStatements._is_shape),
    (r"(?:1 <= )?rank\((\w+)\) <=? rank\((\w+)\)", ShapeStatements._ranks_at_most),
    (r"rank\((\w+)\) <= min\(rank\((\w+)\), len\((\w+)\)\)", ShapeStatements._rank_at_most_both),
    (r"rank\((\w+)\) <= rank\((\w+\(\w+(?:, \w+)*\))\)", ShapeStatements._rank_at_most_result),
    (r"(?:wide|floating)\((\w+(?:, \w+)*)\)", ShapeStatements._is_real),
    (r"invertible\((\w+(?:, \w+)*)\)", ShapeStatements._is_nonzero),
    (r"size\((\w+)\) == 1", ShapeStatements._is_single),
    (r"is_uniform\((\w+)\)", ShapeStatements._is_uniform),
    (r"is_all\((\w+), ([^,]+)\)", ShapeStatements._is_all),
    (r"rank\((\w+)\) <= 1", ShapeStatements._is_short),
    (r"all\(\(off_axis\((\w+), (\w+), rank\((\w+)\)\) for (\w+) in (\w+)\.axes\)\)", ShapeStatements._off_axes),
    (r"off_axis\((\w+), (\w+), rank\((\w+)\[0\]\)\)", ShapeStatements._off_axis),
    (r"(\w+)\.activation == 'none'", ShapeStatements._is_plain),
    (r"positive_dims\((\w+), (\w+(?:\.axes)?)\)", ShapeStatements._has_elements),
    (r"keeps_last\((\w+), (\w+)\)", ShapeStatements._keeps_last),
)
