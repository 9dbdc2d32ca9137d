"""Functions of rules about permutations of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.terms.dims import Dim
from eqsat.rewrites.conditions.functions import Fail, function


@function
def compose(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """The one permutation that does what two transposes do one after the other."""
    return tuple(first[i] for i in second)


@function
def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    return tuple(perm.index(i) for i in range(len(perm)))


@function
def permuted(dims: Sequence[Any], perm: Sequence[int]) -> tuple[Any, ...]:
    """The shape after a transpose."""
    return tuple(dims[i] for i in perm)


@function
def identity_perm(rank: int) -> tuple[int, ...]:
    """The permutation that moves nothing."""
    return tuple(range(rank))


@function
def swapped(rank: int) -> tuple[int, ...]:
    """The permutation that exchanges the last two axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


@function
def trailing(perm: Sequence[int], rank: int) -> tuple[int, ...]:
    """The part of a permutation that acts on the last `rank` axes; refuses where those do not stay last."""
    lead = len(perm) - rank
    if any(p >= lead for p in perm[:lead]):
        raise ShapeError("the permutation moves leading axes among the trailing ones")
    return tuple(p - lead for p in perm[lead:])


@function
def unit_perm(dims: Sequence[Dim], shape: Sequence[Dim], perm: Sequence[int]) -> tuple[int, ...]:
    """The transpose to do before a reshape that only adds or drops axes of one element, in place of one after it."""
    source = [i for i, d in enumerate(dims) if d != 1]
    target = [i for i, d in enumerate(shape) if d != 1]
    if [dims[i] for i in source] != [shape[i] for i in target]:
        raise ShapeError("the reshape does more than add and drop axes of one element")
    moved = [source[target.index(i)] for i in perm if i in target]
    return (*moved, *(i for i in range(len(dims)) if i not in source))


@function
def view_keeps_order(dims: Sequence[Dim], perm: Sequence[int]) -> bool | Fail:
    """True where a transpose moves only axes of one element, so that it is a mere reshape."""
    kept = [p for p in perm if dims[p] != 1 or not isinstance(dims[p], int)]
    return kept == sorted(kept) or Fail("the transpose moves elements")
