"""Coordinates as C integers: sums of variables times numbers, simplified by the ranges of the variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

#: Bound of an int of C.
INT_LIMIT = 2**31

#: The name of a variable in C.
Namer: TypeAlias = "Callable[[IndexVariable], str]"


@dataclass(frozen=True)
class IndexVariable:
    """An integer from 0 to below `size`: one that C code names, or the quotient or remainder of a sum by a number."""

    name: str
    size: int
    kind: Literal["", "/", "%"] = ""
    of: AffineIndex | None = None
    by: int = 0

    @cached_property
    def key(self) -> str:
        """The variable as text: the same for equal quotients."""
        return self.name if self.of is None else f"({self.of.key}){self.kind}{self.by}"

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class AffineIndex:
    """A sum of variables times numbers, and a number; equal sums are equal objects.

    Quotients and remainders by a number are worked out where ranges determine them, and put together again where a
    sum holds both, so that a reshape of a reshape is none, and the offset into contiguous memory the position itself.

    >>> i = AffineIndex.variable("i", 12)
    >>> (i // 4 * 4 + i % 4) == i, ((i * 8 + 3) % 8).constant, ((i * 8 + 3) // 4).text(lambda v: v.name)
    (True, 3, 'i * 2')
    """

    terms: tuple[tuple[IndexVariable, int], ...]
    constant: int = 0

    @staticmethod
    def number(value: int) -> AffineIndex:
        """A number alone."""
        return AffineIndex((), value)

    @staticmethod
    def variable(name: str, size: int) -> AffineIndex:
        """A variable of C that holds 0 to below `size`; 0 itself where it can hold nothing else."""
        return AffineIndex(((IndexVariable(name, size), 1),)) if size > 1 else AffineIndex(())

    @cached_property
    def key(self) -> str:
        """The sum as text, the same for equal sums."""
        return "+".join([*(f"{c}*{v.key}" for v, c in self.terms), str(self.constant)])

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def low(self) -> int:
        """No more than the least value."""
        return self.constant + sum(c * (v.size - 1) for v, c in self.terms if c < 0)

    @property
    def high(self) -> int:
        """No less than the greatest value."""
        return self.constant + sum(c * (v.size - 1) for v, c in self.terms if c > 0)

    @property
    def is_number(self) -> bool:
        """True if the value is known."""
        return not self.terms

    @property
    def is_wide(self) -> bool:
        """True if its computation takes 64 bits."""
        return abs(self.constant) + sum(abs(c) * (v.size - 1) for v, c in self.terms) >= INT_LIMIT

    def coefficient(self, name: str) -> int:
        """The factor of the variable of that name, outside of quotients and remainders."""
        return next((c for v, c in self.terms if v.of is None and v.name == name), 0)

    def without(self, name: str) -> AffineIndex:
        """The sum less the variable of that name."""
        return AffineIndex(tuple((v, c) for v, c in self.terms if v.of is not None or v.name != name), self.constant)

    def reads(self, name: str) -> bool:
        """Return whether the value depends on the variable of that name."""
        return any(v.name == name if v.of is None else v.of.reads(name) for v, _ in self.terms)

    def __add__(self, other: AffineIndex | int) -> AffineIndex:
        if isinstance(other, int):
            return AffineIndex(self.terms, self.constant + other)
        return _sum([*self.terms, *other.terms], self.constant + other.constant)

    def __sub__(self, other: AffineIndex | int) -> AffineIndex:
        return self + other * -1

    def __mul__(self, factor: int) -> AffineIndex:
        return AffineIndex(tuple((v, c * factor) for v, c in self.terms) if factor else (), self.constant * factor)

    def __floordiv__(self, by: int) -> AffineIndex:
        return self._divided(by)[0]

    def __mod__(self, by: int) -> AffineIndex:
        return self._divided(by)[1]

    def _divided(self, by: int) -> tuple[AffineIndex, AffineIndex]:
        """Quotient and remainder by a positive number; the value is taken to be 0 or more."""
        if by == 1:
            return self, AffineIndex(())
        if self.low >= 0 and self.high < by:
            return AffineIndex(()), self
        for unit in sorted({math.gcd(by, c) for _, c in self.terms} | {by}, reverse=True):
            whole = tuple((v, c // unit) for v, c in self.terms if c % unit == 0)
            rest = AffineIndex(tuple((v, c) for v, c in self.terms if c % unit), self.constant % unit)
            if unit > 1 and rest.low >= 0 and rest.high < unit:
                units = AffineIndex(whole, self.constant // unit)
                if unit == by:
                    return units, rest
                quotient, remainder = units._divided(by // unit)
                return quotient, remainder * unit + rest
        if self.is_number:
            return AffineIndex.number(self.constant // by), AffineIndex.number(self.constant % by)
        multiple = AffineIndex(tuple((v, c // by) for v, c in self.terms if c % by == 0), self.constant // by)
        left = AffineIndex(tuple((v, c) for v, c in self.terms if c % by), self.constant % by)
        if (multiple.terms or multiple.constant) and left.low >= 0:
            quotient, remainder = left._divided(by)
            return multiple + quotient, remainder
        count = max(self.high, 0) // by + 1
        parts = (
            IndexVariable("", count, "/", self, by),
            IndexVariable("", min(by, max(self.high, 0) + 1), "%", self, by),
        )
        return self._divided_twice(by) or AffineIndex(((parts[0], 1),)), AffineIndex(((parts[1], 1),))

    def _divided_twice(self, by: int) -> AffineIndex | None:
        """The quotient of a quotient, by one division; None for other sums."""
        (variable, factor), *more = self.terms
        if variable.kind != "/" or variable.of is None or factor != 1 or more or self.constant:
            return None
        return variable.of // (variable.by * by)

    def compared(self, bound: int) -> tuple[AffineIndex, int]:
        """Another sum and bound: the one is less than the other exactly where this one is less than this bound.

        It has fewer terms, where those left out never decide, and the dividend in place of a quotient.
        """
        if len(self.terms) == 1 and self.terms[0][1] == 1 and self.terms[0][0].kind == "/":
            (quotient, _), *_ = self.terms
            return (quotient.of or self).compared((bound - self.constant) * quotient.by)
        for unit in sorted({math.gcd(bound, c) for _, c in self.terms}, reverse=True):
            rest = AffineIndex(tuple((v, c) for v, c in self.terms if c % unit), self.constant % unit)
            if rest.low >= 0 and rest.high < unit:
                whole = tuple((v, c) for v, c in self.terms if c % unit == 0)
                return AffineIndex(whole, self.constant - self.constant % unit), bound
        return self, bound

    def text(self, name: Namer) -> str:
        """The sum as a C expression, with the variables named by `name`; wide where it takes 64 bits.

        Without brackets around it.
        """
        cast = "(long long)" if self.is_wide else ""
        written = ""
        for variable, factor in sorted(self.terms, key=lambda t: (t[1] < 0, -abs(t[1]))):
            called = name(variable)
            part = f"{cast}{called}" + (f" * {abs(factor)}" if abs(factor) != 1 else "")
            sign = ("-" if not written else " - ") if factor < 0 else (" + " if written else "")
            written += sign + part
        if self.constant or not written:
            sign = " - " if self.constant < 0 else " + "
            number = str(abs(self.constant)) + ("LL" if abs(self.constant) >= INT_LIMIT else "")
            written = f"{written}{sign}{number}" if written else f"{'-' if self.constant < 0 else ''}{number}"
        return written


def _sum(terms: Iterable[tuple[IndexVariable, int]], constant: int) -> AffineIndex:
    """The sum of terms, those of one variable together, quotients and remainders that belong together put as one."""
    total: dict[IndexVariable, int] = {}
    for variable, factor in terms:
        total[variable] = total.get(variable, 0) + factor
    for variable, factor in total.items():
        whole = _whole(variable, factor, total) if variable.kind == "%" and factor else None
        if whole is not None:
            gone, joined = whole
            others = [(v, c) for v, c in total.items() if v not in gone]
            return _sum([*others, *joined.terms], constant + joined.constant)
    ordered = sorted(((v, c) for v, c in total.items() if c), key=lambda t: t[0].key)
    return AffineIndex(tuple(ordered), constant)


def broadcast(coords: Sequence[AffineIndex], shape: Sequence[int]) -> Coords:
    """The coordinates in an operand of that shape which broadcasts to the result."""
    skipped = len(coords) - len(shape)
    padded = [AffineIndex.number(0)] * -skipped + list(coords[max(skipped, 0) :])
    return tuple(AffineIndex.number(0) if size == 1 else c for c, size in zip(padded, shape, strict=True))


def _whole(
    variable: IndexVariable, factor: int, total: Mapping[IndexVariable, int]
) -> tuple[set[IndexVariable], AffineIndex] | None:
    """The variables that belong with a remainder in a sum, and their total; None if there are none.

    With the quotient it is the dividend; with the quotient's own remainder, that by the product of both divisors.
    """
    of, by = variable.of or AffineIndex(()), variable.by
    quotient = of // by
    if quotient.terms and all(total.get(v, 0) == c * factor * by for v, c in quotient.terms):
        return {variable, *(v for v, _ in quotient.terms)}, (of - quotient.constant * by) * factor
    for other, scale in total.items():
        if other.kind == "%" and scale == factor * by and other.of == quotient:
            return {variable, other}, of % (by * other.by) * factor
    return None


def flattened(coords: Sequence[AffineIndex], shape: Sequence[int]) -> AffineIndex:
    """The position in row-major order of an element of a tensor."""
    position = AffineIndex(())
    for coord, size in zip(coords, shape, strict=True):
        position = position * size + coord
    return position


def unflattened(position: AffineIndex, shape: Sequence[int]) -> tuple[AffineIndex, ...]:
    """The coordinates of the element at a position in row-major order."""
    coords: list[AffineIndex] = []
    for size in reversed(shape):
        coords.append(position % max(size, 1))
        position = position // max(size, 1)
    return tuple(reversed(coords))


def offset(coords: Sequence[AffineIndex], strides: Sequence[int]) -> AffineIndex:
    """The offset of an element: the sum of coordinates times strides."""
    return _sum(
        [(v, c * stride) for coord, stride in zip(coords, strides, strict=True) if stride for v, c in coord.terms],
        sum(coord.constant * stride for coord, stride in zip(coords, strides, strict=True)),
    )


#: One index for each axis.
Coords: TypeAlias = tuple[AffineIndex, ...]
