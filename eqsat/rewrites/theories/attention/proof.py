"""Equations between spellings of attention: both sides are the same sum over the same indices of the same shares."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.attention.indices import (
    AxisIndices,
    IndexedOperand,
    Shares,
    SumOfProducts,
    attention_indices,
)
from eqsat.rewrites.theories.contractions import Axis, UnreadError
from eqsat.rewrites.theories.identities import numbers_of, operands_of

#: The distance between scales that is rounding: products of numbers in another order.
_ROUNDING = 1e-14


def states_attention(rule: Rule) -> bool:
    """True if both sides of a rule are the same average of values by the same shares.

    Each product of two elements, and each sum, is of the same on both sides, so operands may be infinite or no numbers.
    Where the right side says that no query is without keys, that has to follow from what conditions say.
    """
    sides = rule.sides
    if sides is None:
        return False
    conditions = {condition.text for condition in rule.conditions}
    numbers = {name: float(value) for name, value in numbers_of(rule).items()}
    indices = attention_indices(conditions, numbers)
    try:
        left, right = (indices.followed(side) for side in sides)
        pairs = _pairs(left, right)
        if pairs is None or not _is_renaming(
            indices, [*pairs.axes, *zip(left.axes, right.axes, strict=True)], pairs.sets
        ):
            return False
        return _is_scaled(left) and _may_say(left, right, conditions, indices)
    except (UnreadError, ValueError, KeyError, IndexError):
        return False


def _is_scaled(side: SumOfProducts) -> bool:
    """True if no product is multiplied by 0, which makes something else of infinities."""
    inner = (one for shares in side.factors if isinstance(shares, Shares) for one in shares.summands)
    return side.scale != 0 and all(map(_is_scaled, inner))


def _may_say(left: SumOfProducts, right: SumOfProducts, conditions: set[str], indices: AxisIndices) -> bool:
    """True if the right side says no more of queries without keys than conditions do.

    Shares that are put to 0 where they are no numbers are just shares where scores are finite, of which a softmax makes
    numbers. That there are no queries without keys is said of masks that are looked at: others may hide with the least
    float, and runtimes take that for minus infinity.
    """
    (given,), (shares,) = ([one for one in side.factors if isinstance(one, Shares)] for side in (left, right))
    finite = operands_of("finite", conditions)
    products = [one for one in shares.summands if len(one.factors) > 1]
    scores = {leaf.name for one in products for leaf in one.factors if isinstance(leaf, IndexedOperand)}
    masks = [one.factors[0] for one in shares.summands if len(one.factors) == 1]
    is_finite = scores <= finite and all(isinstance(m, IndexedOperand) and m.name in finite for m in masks)
    if shares.guarded is False:
        return is_finite or given.guarded is False
    if not masks or not scores <= finite:
        return scores <= finite
    # Two masks that each leave a key may hide all of them together; and their last axes alone are looked at.
    (mask, *others) = masks
    if others or not isinstance(mask, IndexedOperand) or not mask.axes:
        return False
    is_along = indices.flat(mask.axes[-1]) == indices.flat(shares.along)
    return is_along and asked_of_mask(scores, mask.name) in conditions


def asked_of_mask(scores: Iterable[str], mask: str) -> str:
    """The condition that a mask leaves each row of scores a key."""
    return f"hidden({', '.join([*sorted(scores), mask])}) == 'none'"


@dataclass
class _Pairs:
    """Axes of two sides that have to be the same, and sets of axes that have to have the same indices."""

    axes: list[tuple[Axis, Axis]] = field(default_factory=list)
    sets: list[tuple[tuple[Axis, ...], tuple[Axis, ...]]] = field(default_factory=list)


def _pairs(one: SumOfProducts, other: SumOfProducts) -> _Pairs | None:
    """The axes of two sums of products that have to be the same; None where their operands or numbers are others."""
    leaves, others = ({f.name: f for f in side.factors if isinstance(f, IndexedOperand)} for side in (one, other))
    shares, its = ([f for f in side.factors if isinstance(f, Shares)] for side in (one, other))
    whole = all(
        len(known) + len(some) == len(side.factors)
        for known, some, side in ((leaves, shares, one), (others, its, other))
    )
    if not math.isclose(one.scale, other.scale, rel_tol=_ROUNDING) or leaves.keys() != others.keys():
        return None
    if not whole or len(shares) != len(its) or len(shares) > 1:
        return None
    found = _Pairs([pair for name, f in leaves.items() for pair in zip(f.axes, others[name].axes, strict=True)])
    found.sets.append((one.axes, other.axes))
    for a, b in zip(shares, its, strict=True):
        inner = _pairs_of_shares(a, b)
        if inner is None:
            return None
        found = _Pairs([*found.axes, *inner.axes], [*found.sets, *inner.sets])
    return found


def _pairs_of_shares(one: Shares, other: Shares) -> _Pairs | None:
    """The same of two shares, the first of which says what rows without keys have."""
    if one.guarded is None or len(one.summands) != len(other.summands):
        return None
    for order in itertools.permutations(other.summands):
        found = [_pairs(a, b) for a, b in zip(one.summands, order, strict=True)]
        known = [pairs for pairs in found if pairs is not None]
        if len(known) == len(found):
            axes = [(one.along, other.along), *(pair for pairs in known for pair in pairs.axes)]
            return _Pairs(axes, [(one.axes, other.axes), *(pair for pairs in known for pair in pairs.sets)])
    return None


def _is_renaming(
    indices: AxisIndices,
    pairs: Sequence[tuple[Axis, Axis]],
    sets: Sequence[tuple[tuple[Axis, ...], tuple[Axis, ...]]],
) -> bool:
    """True if the indices of the first axes can be renamed to be the second ones."""
    before = -1
    while before != len(indices.same):  # what is taken apart for one pair is so in others
        before = len(indices.same)
        for one, other in pairs:
            list(indices.refine(one, other))
    found: dict[int, int] = {}
    for one, other in pairs:
        for a, b in indices.refine(one, other):
            if found.setdefault(a, b) != b:
                return False
    if len(set(found.values())) < len(found):
        return False
    flat = ([{i for axis in axes for i in indices.flat(axis)} for axes in pair] for pair in sets)
    return all(one <= found.keys() and {found[i] for i in one} == other for one, other in flat)
