"""The rank up to which a rule has to be proved to hold at every rank, by what a larger instance may lose."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from eqsat.language.terms.pattern import ABSENT, Pattern, Spread, Var
from eqsat.rewrites.proof.removal.cases import RankCase, rank_cases
from eqsat.rewrites.proof.removal.conditions import Conditions
from eqsat.rewrites.proof.removal.frames import Frame, NotRemovable, Untyped
from eqsat.rewrites.proof.removal.movements import MOVEMENTS
from eqsat.rewrites.proof.removal.patterns import PatternFrames
from eqsat.rewrites.rules.rule import Rule

#: The axis along which the sides differ in size, which has to stay beside those that are named.
_WITNESS = 1


def bound_by_removal(rule: Rule, ranks: Mapping[str, int], names: frozenset[str], opaque: frozenset[str]) -> int:
    """The rank at which an instance that refutes a rule exists if one does at any; NotRemovable where none is known.

    Axes along which every operator takes each place by itself are lost by taking one place; two that operators treat
    alike, as sums over both, are taken for one. `names` are operands, sequences of such, and shapes that are as long as
    they like, `ranks` the most axes that some of them may have, `opaque` the operators that a proof does not look into.

    Where an operand of a product may be a vector, this is looked at by itself: each instance is of one such case.
    """
    if rule.parts or rule.attr_groups:
        raise NotRemovable("several parts, or records, of one operator")
    bounds = [0]
    for case in rank_cases(rule, ranks, names):
        bounds.append(_bound_of_case(rule, {**ranks, **case.exact}, names, opaque, case))
    return max(bounds)


def _bound_of_case(
    rule: Rule, ranks: Mapping[str, int], names: frozenset[str], opaque: frozenset[str], case: RankCase
) -> int:
    if names <= ranks.keys():
        return max(ranks.values(), default=0)
    patterns = PatternFrames(rule, ranks, names, opaque, MOVEMENTS)
    patterns.frames.below |= case.statements
    conditions = Conditions(rule, patterns.frames, patterns.said)
    try:
        lefts = [patterns.term(root)[0] for root in rule.roots]
    except Untyped:
        return 0  # no instance is of this case
    conditions.check(patterns.sorts)
    patterns.is_left = False
    _check_sides(lefts, [patterns.term(side)[0] for side in rule.right])
    if patterns.members.keys() & rule.tensors:
        raise NotRemovable("a name of an operand and of members of a sequence")
    _check_sequences(patterns)
    _check_cuts(patterns, conditions)
    if not patterns.sorts.multiplied <= patterns.bases | conditions.counted.keys():
        raise NotRemovable("sizes along axes that are not taken for one another are multiplied")
    return max(_axes_that_stay(patterns, conditions), *patterns.ranks.values(), 0)


def _check_sides(lefts: Sequence[Frame], rights: Sequence[Frame]) -> None:
    """NotRemovable where the sides have their axes in different orders: a place of one is several of an operand.

    ``transpose(x, perm=p) => x`` is true of one axis, and no other has to stay if the sides differ in its size.
    """
    pairs = zip(lefts, rights, strict=True) if len(lefts) == len(rights) else itertools.product(lefts, rights)
    if any(one.moves != other.moves for one, other in pairs):
        raise NotRemovable("sides whose axes are moved in different ways")


def _axes_that_stay(patterns: PatternFrames, conditions: Conditions) -> int:
    """The axes that stay: kept ones, of classes one for each way to be broadcast, and that in which sides differ."""
    ways = max((_ways(base, patterns, conditions) for base in patterns.bases), default=0)
    counted = conditions.counted
    classes = (1 << len(patterns.bases - counted.keys())) - 1
    few = sum(counted.values())
    few += len(conditions.filled - patterns.bases - counted.keys())
    ones = patterns.sorts.by_size and not conditions.witnesses
    return patterns.frames.kept + classes * ways + few + ones + conditions.witnesses + _WITNESS


def _ways(base: str, patterns: PatternFrames, conditions: Conditions) -> int:
    """The ways in which operands may be broadcast along an axis of a class: which of them have all its elements."""
    sized = {patterns.members.get(name, name) for name in patterns.sorts.sized} & patterns.sized_names
    operands = (patterns.broadcast | sized) - {operand for operand, at in conditions.thin_at if at == base}
    is_full = any(
        at == base and operand in operands and operands <= beside
        for (operand, at), beside in conditions.full_at.items()
    )
    return max((1 << len(operands) - 1) if is_full else (1 << len(operands)) - 1, 1)


def _check_sequences(patterns: PatternFrames) -> None:
    """NotRemovable where members of one sequence may have several ranks."""
    frames, said = patterns.frames, patterns.said
    for group in patterns.rule.tensor_groups:
        least = said.uniform.get(group)
        is_said = least is not None and least <= patterns.least.get(group, 0)
        # The first member alone is like another operand where others may have fewer axes.
        is_like_one = not least and any(
            frames.is_below(group, n) and frames.is_below(n, group) for n in patterns.rule.tensors
        )
        if not (group in patterns.ranks or group in patterns.uniform or is_like_one or is_said):
            raise NotRemovable(f"members of {group} of several ranks")


def _check_cuts(patterns: PatternFrames, conditions: Conditions) -> None:
    """NotRemovable where an operand had to be taken at two places at once, or slices are along axes of classes."""
    paths: dict[str, set[tuple[str, ...]]] = {}
    for root in (*patterns.rule.roots, *patterns.rule.right):
        _follow(root, (), paths, patterns)
    if any(len(found) > 1 for found in paths.values()):
        raise NotRemovable("one operand both in a slice and beside it")
    for cut in patterns.sliced:
        if any((f"{cut}.axes", base) not in conditions.apart for base in patterns.bases):
            raise NotRemovable(f"{cut} along axes of {', '.join(sorted(patterns.bases))}")


def _follow(
    pattern: Pattern | Spread, cuts: tuple[str, ...], paths: dict[str, set[tuple[str, ...]]], patterns: PatternFrames
) -> None:
    """Note which slices each operand is in, from the inside."""
    if isinstance(pattern, Spread):
        _follow(pattern.item, cuts, paths, patterns)
    elif isinstance(pattern, Var):
        if not patterns.is_thin(pattern):
            paths.setdefault(patterns.members.get(pattern.name, pattern.name), set()).add(cuts)
    elif pattern != ABSENT:
        inner = (patterns.cuts[id(pattern)], *cuts) if id(pattern) in patterns.cuts else cuts
        for operand in pattern.operands:
            _follow(operand, inner, paths, patterns)
