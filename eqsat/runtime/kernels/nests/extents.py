"""Extents of loops and tensors: numbers, or sums of sizes that a kernel gets with each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from eqsat.language.comprehension.extents.free import is_sum
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Sym
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex
from eqsat.runtime.kernels.expressions.expression import UnsupportedError

#: A number, or a sum of free sizes: integers from 1 on that a kernel takes as arguments.
Extent: TypeAlias = "int | AffineIndex"
#: The most that a free size may be: an int of C counts to it.
LONGEST = INT_LIMIT - 2


def extent_of(dim: Dim, names: Mapping[str, str]) -> Extent:
    """A dim as an extent, with the names of free sizes in C.

    UnsupportedError for what is no sum of sizes, and of quotients and remainders of such sums by numbers.
    """
    if not isinstance(dim, Sym):
        return dim
    total = AffineIndex(())
    for monomial, factor in dim.terms:
        if not monomial:
            total = total + factor
            continue
        ((atom, power), *more) = monomial
        if more or power != 1 or not is_sum(dim):
            raise UnsupportedError(f"{dim}, which is no sum of sizes")
        if isinstance(atom, str):
            total = total + AffineIndex.variable(names[atom], LONGEST + 1) * factor
            continue
        name, dividend, divisor = atom
        inner, by = sum_of(extent_of(dividend, names)), fixed(extent_of(divisor, names))
        total = total + (inner // by if name == "floordiv" else inner % by) * factor
    return total


def sum_of(extent: Extent) -> AffineIndex:
    """An extent as a sum."""
    return extent if isinstance(extent, AffineIndex) else AffineIndex.number(extent)


def number_or_sum(index: AffineIndex) -> Extent:
    """A sum as an extent: the number that it is, if it is one."""
    return index.constant if index.is_number else index


def is_free(extent: Extent) -> bool:
    """True of an extent that sizes of a call decide."""
    return isinstance(extent, AffineIndex)


def is_several(extent: Extent) -> bool:
    """True of an extent that may be 2 or more."""
    return isinstance(extent, AffineIndex) or extent > 1


def largest(extent: Extent) -> int:
    """A number that the extent does not pass."""
    return min(extent.high, LONGEST) if isinstance(extent, AffineIndex) else extent


def rounds(extent: Extent, together: int) -> Extent:
    """The number of groups of so many that an extent is, the last of which may be smaller."""
    if isinstance(extent, int):
        return -(-extent // together)
    return number_or_sum((extent + (together - 1)) // together)


def tiles_of(extent: Extent, rows: int) -> list[tuple[Extent, int, AffineIndex]]:
    """Rows by tiles: so many tiles, of so many rows, from a row on. What is left of a free extent is taken singly."""
    if isinstance(extent, AffineIndex):
        whole = extent // rows
        rest = [(extent % rows, 1, whole * rows)] if rows > 1 else []
        return [(whole, rows, AffineIndex(())), *rest]
    rows = min(rows, extent)
    count, left = divmod(extent, rows)
    parts = [(count, rows, 0), (1, left, count * rows)]
    return [(times, size, sum_of(start)) for times, size, start in parts if times and size]


def fixed(extent: Extent) -> int:
    """The number that an extent is; UnsupportedError for one that sizes of a call decide."""
    if isinstance(extent, AffineIndex):
        raise UnsupportedError(f"a free extent, {extent.text(lambda one: one.name)}")
    return extent


def value_at(extent: Extent, sizes: Mapping[str, int]) -> int:
    """The value of an extent for free sizes by their names in C."""
    if not isinstance(extent, AffineIndex):
        return extent
    total = extent.constant
    for variable, factor in extent.terms:
        if variable.of is None:
            total += factor * sizes[variable.name]
        else:
            inner = value_at(variable.of, sizes)
            total += factor * (inner // variable.by if variable.kind == "/" else inner % variable.by)
    return total


def product_at(shape: Sequence[Extent], sizes: Mapping[str, int]) -> int:
    """The number of elements of a shape for free sizes."""
    total = 1
    for extent in shape:
        total *= value_at(extent, sizes)
    return total
