"""Extents along the digits of an axis: which places of a digit are meant, and how they are cut, taken apart and merged.

Bounds are polynomials of dims. Each function says what holds for every size of these, and leaves by UnreadError where
the sizes decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.terms.dims import Dim, Sym, polynomial_quotient, product
from eqsat.rewrites.theories.contractions import UnreadError

#: Places along a digit, or those of a box and how it moves there: a first, a number of them, and a step or stride.
Extent = tuple[Dim, Dim, Dim]


def ranges_of(sizes: Sequence[Dim], start: Dim, count: Dim, step: int) -> list[tuple[Dim, Dim, int]]:
    """The places of each digit of an axis that together are some places of it, none of which is left out.

    UnreadError where they begin or end within a digit of several.
    """
    if len(sizes) < 2:
        return [(start, count, step)] if sizes else []
    if step < 0:  # the same places in the other order
        forward = ranges_of(sizes, start + (count - 1) * step, count, -step)
        return [(first + (n - 1) * by, n, -by) for first, n, by in forward]
    inner = sizes[1:]
    block = product(inner)
    first, blocks = polynomial_quotient(start, block), polynomial_quotient(count, block)
    if step == 1 and first is not None and blocks is not None:  # whole blocks
        return [(first, blocks, 1), *((0, size, 1) for size in inner)]
    if not (isinstance(start, int) and isinstance(count, int) and isinstance(block, int)):
        raise UnreadError
    begun, within = divmod(start, block)
    if step % block == 0 or count == 1:  # one place in each block
        return [(begun, count, step // block or 1), *ranges_of(inner, within, 1, 1)]
    if (start + (count - 1) * step) // block == begun:  # a part of one block
        return [(begun, 1, 1), *ranges_of(inner, within, count, step)]
    whole = range(within, block, step)
    if block % step == 0 and count % len(whole) == 0 and within < step:  # the same part of each block
        return [(begun, count // len(whole), 1), *ranges_of(inner, within, len(whole), step)]
    raise UnreadError


def met(extent: Extent, start: Dim, count: Dim, step: int) -> tuple[Dim, Extent] | None:
    """The part of a box among some places of a digit: what is added to the place of its first element, and its extent.

    The extent counts these places. None for no part.
    """
    first, many, stride = extent
    if step in (1, -1):  # the places from the lowest on, the other way round where they fall
        lowest = start if step == 1 else start - (count - 1)
        low, end = _larger(first, lowest), _smaller(first + many, lowest + count)
        both = end - low
        if at_least(0, both):
            return None
        if not at_least(both, 0):
            raise UnreadError
        if step == 1:
            return stride * (low - first), (low - start, both, stride)
        return stride * (end - 1 - first), (start - (end - 1), both, -stride)
    if not (isinstance(first, int) and isinstance(many, int) and isinstance(start, int) and isinstance(count, int)):
        raise UnreadError
    begun, ended = first - start, first + many - 1 - start
    low, high = (-(-begun // step), ended // step) if step > 0 else (-(-ended // step), begun // step)
    low, high = max(low, 0), min(high, count - 1)
    if high < low:
        return None
    return stride * (start + low * step - first), (low, high - low + 1, stride * step)


def taken_apart(extent: Extent, inner: Dim) -> Iterator[tuple[Dim, tuple[Extent, Extent]]]:
    """The boxes that an extent becomes where a digit is written as two, the second of a size; each with its place."""
    start, count, stride = extent
    first, within = _divided(start, inner)
    last, behind = _divided(start + count, inner)
    if within == behind == 0:
        yield start, ((first, last - first, stride * inner), (0, inner, stride))
        return
    if first == last:
        yield start, ((first, 1, 0), (within, count, stride))
        return
    if within != 0:
        yield start, ((first, 1, 0), (within, inner - within, stride))
        first = first + 1
    if not at_least(last - first, 0):
        raise UnreadError
    if last != first:
        yield first * inner, ((first, last - first, stride * inner), (0, inner, stride))
    if behind != 0:
        yield last * inner, ((last, 1, 0), (0, behind, stride))


def _divided(place: Dim, inner: Dim) -> tuple[Dim, Dim]:
    """The quotient of a place by a size, and what is left, which is below it."""
    exact = polynomial_quotient(place, inner)
    if exact is not None:
        return exact, 0
    if isinstance(place, int) and isinstance(inner, int):
        return divmod(place, inner)
    if at_least(place, 0) and at_least(inner - place, 1):
        return 0, place
    if isinstance(place, Sym) and isinstance(inner, int):
        left = dict(place.terms).get((), 0) % inner
        exact = polynomial_quotient(place - left, inner)
        if exact is not None:
            return exact, left
    raise UnreadError


def merged(outer: Extent, inner: Extent, size: Dim) -> Extent | None:
    """The extent along one digit in the place of two, the second of a size; None where a box does not move as one."""
    if outer[1] == 1:
        return outer[0] * size + inner[0], inner[1], inner[2]
    if inner[:2] == (0, size) and outer[2] == size * inner[2]:
        return outer[0] * size, outer[1] * size, inner[2]
    return None


def beside(one: Extent, other: Extent, moved: Dim) -> Extent | None:
    """The extent of a box and of one that goes on where it ends, which begins so much later in the operand."""
    if one[0] + one[1] != other[0]:
        return None
    stride = one[2] if one[1] != 1 else other[2] if other[1] != 1 else moved
    fits = moved == stride * one[1] and all(part[1] == 1 or part[2] == stride for part in (one, other))
    return (one[0], one[1] + other[1], stride) if fits else None


def refinement(lists: Sequence[Sequence[Dim]]) -> list[Dim]:
    """The fewest digits that each of several lists of digits of one size is taken apart into."""
    left, found = [list(sizes) for sizes in lists], list[Dim]()
    while any(left):
        if not all(left):
            raise UnreadError
        last = [sizes.pop() for sizes in left]
        size = next((n for n in last if all(polynomial_quotient(one, n) is not None for one in last)), None)
        if size is None:
            raise UnreadError
        found.insert(0, size)
        for sizes, one in zip(left, last, strict=True):
            outer = polynomial_quotient(one, size)
            if outer is not None and outer != 1:
                sizes.append(outer)
    return found


def _larger(a: Dim, b: Dim) -> Dim:
    return a if at_least(a, b) else b if at_least(b, a) else _undecided()


def _smaller(a: Dim, b: Dim) -> Dim:
    return b if at_least(a, b) else a if at_least(b, a) else _undecided()


def _undecided() -> Dim:
    raise UnreadError
