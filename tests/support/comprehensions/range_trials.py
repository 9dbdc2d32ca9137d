"""Ranges of indices by trying values: the rounds of section 3.1 of Vasilache et al., without solving anything."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TypeAlias

from eqsat.language.comprehension.text.syntax import Applied, Binary, Expression, Name, Number, Unary, walk

Range: TypeAlias = tuple[int, int]
#: A subscript, and the extent of its axis.
Access: TypeAlias = tuple[Expression, int]


def computed(part: Expression, values: Mapping[str, int]) -> int:
    """A subscript that is affine, for values of all names in it."""
    match part:
        case Number(value=number):
            return int(number)
        case Name(name=name):
            return values[name]
        case Unary(operand=operand):
            return -computed(operand, values)
        case Applied(name=name, arguments=arguments):
            return (min if name == "min" else max)(computed(one, values) for one in arguments)
        case Binary(operator=operator, left=left, right=right):
            a, b = computed(left, values), computed(right, values)
            if operator in ("/", "%"):
                quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
                return quotient if operator == "/" else a - b * quotient
            return {"+": a + b, "-": a - b, "*": a * b}[operator]
    raise AssertionError(part)


def is_affine(part: Expression, constants: Mapping[str, int], indices: set[str]) -> bool:
    """True of sums of indices with whole factors, where only names of constants stand beside indices."""
    for one in walk(part):
        match one:
            case Number(value=int()) | Name() | Unary(operator="-"):
                if isinstance(one, Name) and one.name not in constants and one.name not in indices:
                    return False
            case Binary(operator="+" | "-"):
                pass
            case Binary(operator="*", left=left, right=right):
                if _has(left, indices, constants) and _has(right, indices, constants):
                    return False
            case Binary(operator="/" | "%", right=right) | Applied(name="min" | "max", arguments=(_, right)):
                if _has(one, indices, constants) or not is_affine(
                    one.arguments[0] if isinstance(one, Applied) else one.left, constants, indices
                ):
                    return False
                if isinstance(one, Binary) and (
                    not is_affine(right, constants, indices) or computed(right, constants) == 0
                ):
                    return False
            case _:
                return False
    return True


def _has(part: Expression, indices: set[str], constants: Mapping[str, int]) -> bool:
    return any(isinstance(one, Name) and one.name in indices and one.name not in constants for one in walk(part))


class Trials:
    """Ranges of a statement, given the shapes of all tensors and the values of sizes and integer scalars."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, int]) -> None:
        self.shapes, self.constants = shapes, constants

    def ranges(
        self,
        indices: list[str],
        accesses: list[Access],
        written: Mapping[str, Range],
        ends: Mapping[str, int],
        is_update: bool,
    ) -> dict[str, Range]:
        """The range of each index: as written, else the largest in the round that finds it, else its target's extent.

        `ends` are the extents of the target by its indices; an update stays within them.
        """
        found = dict(written)
        pending = [name for name in indices if name not in found]
        while pending:
            new: dict[str, Range] = {}
            for name in pending:
                held = [one for one in accesses if self._open(one[0], found, pending) == [name]]
                if held:
                    high = min(self._end(name, subscript, extent, found) for subscript, extent in held)
                    new[name] = (0, min(high, ends[name]) if is_update and name in ends else high)
            if not new:
                new = {name: (0, ends[name]) for name in pending if name in ends}
                assert new, f"nothing holds {pending}"
            found |= new
            pending = [name for name in pending if name not in found]
        return found

    def _factor(self, name: str, subscript: Expression) -> int:
        names = {one.name for one in walk(subscript) if isinstance(one, Name)}
        zero = {one: self.constants.get(one, 0) for one in names}
        return computed(subscript, zero | {name: 1}) - computed(subscript, zero | {name: 0})

    def _open(self, subscript: Expression, found: Mapping[str, Range], pending: list[str]) -> list[str]:
        names = dict.fromkeys(one.name for one in walk(subscript) if isinstance(one, Name))
        return [name for name in names if name in pending and self._factor(name, subscript)]

    def _end(self, name: str, subscript: Expression, extent: int, found: Mapping[str, Range]) -> int:
        """The number of values from 0 on with which a subscript is inside for every value of the others."""
        others = {
            one.name: range(found[one.name][0], max(found[one.name][1], found[one.name][0] + 1))
            for one in walk(subscript)
            if isinstance(one, Name) and one.name in found and self._factor(one.name, subscript)
        }
        unread = {one.name: 0 for one in walk(subscript) if isinstance(one, Name)}
        for end in itertools.count():
            for values in itertools.product(*others.values()):
                at = {**unread, **self.constants, **dict(zip(others, values, strict=True)), name: end}
                if not 0 <= computed(subscript, at) < extent:
                    return end
        raise AssertionError(name)
