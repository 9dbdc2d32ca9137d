"""Conditions learned from instances: a conjunction of predicates that holds exactly where both sides are equal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.rewrites.discovery.generalise.cases import LeftSideInstance, holds
from eqsat.rewrites.discovery.generalise.predicates import Predicate

#: Weight of an instance where much is equal by accident, with an axis of one or a scalar.
DEGENERATE = 0.1
_PAIRS, _TRIPLES, _BEAM, _DEPTH = 90, 36, 10, 7


@dataclass(frozen=True)
class Learned:
    """A conjunction of predicates and the share of equal instances, by weight, that meet it."""

    predicates: tuple[Predicate, ...]
    coverage: float


class Learner:
    """The predicates that hold at each instance; instances are added as they are found."""

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self.predicates = list(predicates)
        #: For each predicate the instances at which it holds, a bit each: of the equal ones, and of the others.
        self._equal = [0] * len(predicates)
        self._different = [0] * len(predicates)
        #: Number of equal instances and of different ones, and the equal ones that are degenerate.
        self._found = 0
        self._count = 0
        self._odd = 0

    def add(self, case: LeftSideInstance, equal: bool, degenerate: bool = False) -> None:
        """Add an instance."""
        place = 1 << (self._found if equal else self._count)
        masks = self._equal if equal else self._different
        for index, predicate in enumerate(self.predicates):
            if holds(predicate.expression, case.bindings):
                masks[index] |= place
        if equal:
            self._odd |= place * degenerate
            self._found += 1
        else:
            self._count += 1

    def learn(self, beside: Sequence[Learned] = ()) -> Learned | None:
        """The weakest conjunction found that no different instance meets; None where there is none.

        One that all equal instances meet is preferred, the cheapest; else the one that most of them meet. Equal
        instances that meet one of the conjunctions `beside` this one do not count.
        """
        if not self._count:
            return Learned((), 1.0)
        everywhere = self._beside(beside)
        strict = [i for i, mask in enumerate(self._equal) if mask & everywhere == everywhere]
        chosen = self._cheapest(self._distinct(strict)) if self._excluded(strict) else self._covering(everywhere)
        if chosen is None:
            return None
        covered = everywhere
        for index in chosen:
            covered &= self._equal[index]
        whole = self._weight(everywhere)
        ordered = sorted((self.predicates[i] for i in chosen), key=lambda a: (a.cost, a.text))
        return Learned(tuple(ordered), self._weight(covered) / whole if whole else 0.0)

    def left_over(self, beside: Sequence[Learned]) -> float:
        """The share of equal instances, by weight, that meet none of some conjunctions."""
        whole = self._weight((1 << self._found) - 1)
        return self._weight(self._beside(beside)) / whole if whole else 0.0

    def _beside(self, beside: Sequence[Learned]) -> int:
        rest = (1 << self._found) - 1
        masks = {predicate.text: mask for predicate, mask in zip(self.predicates, self._equal, strict=True)}
        for learned in beside:
            met = (1 << self._found) - 1
            for predicate in learned.predicates:
                met &= masks[predicate.text]
            rest &= ~met
        return rest

    def _excluded(self, chosen: Sequence[int]) -> bool:
        """Return whether no different instance meets all of these predicates."""
        left = (1 << self._count) - 1
        for index in chosen:
            left &= self._different[index]
        return not left

    def _weight(self, mask: int) -> float:
        odd = (mask & self._odd).bit_count()
        return mask.bit_count() - odd + DEGENERATE * odd

    def _distinct(self, chosen: Sequence[int]) -> list[int]:
        """The cheapest predicate for each set of different instances it admits, those that admit all left out."""
        best: dict[int, int] = {}
        for index in chosen:
            other = best.get(self._different[index])
            if other is None or self._order(index) < self._order(other):
                best[self._different[index]] = index
        best.pop((1 << self._count) - 1, None)
        return sorted(best.values(), key=self._order)

    def _order(self, index: int) -> tuple[float, int, str]:
        predicate = self.predicates[index]
        return predicate.cost, len(predicate.text), predicate.text

    def _cheapest(self, usable: Sequence[int]) -> tuple[int, ...]:
        """The cheapest set of predicates that excludes every different instance: of up to three, or by leaving out."""
        sets: list[tuple[int, ...]] = []
        for size, most in ((1, len(usable)), (2, _PAIRS), (3, _TRIPLES)):
            sets += [c for c in itertools.combinations(usable[:most], size) if self._excluded(c)]
            if sets:
                return min(sets, key=lambda c: (sum(self.predicates[i].cost for i in c), sorted(map(self._order, c))))
        return min(self._taken(usable), self._kept(usable), key=lambda c: sum(self.predicates[i].cost for i in c))

    def _taken(self, usable: Sequence[int]) -> tuple[int, ...]:
        """Predicates taken one after the other, each the one that excludes the most for its cost."""
        chosen: list[int] = []
        left = (1 << self._count) - 1
        while left:
            here = left
            best = max(
                usable,
                key=lambda i: ((here & ~self._different[i]).bit_count() / self.predicates[i].cost, -self._order(i)[0]),
            )
            chosen.append(best)
            left &= self._different[best]
        return self._kept(chosen)

    def _kept(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """The predicates left when each that is not needed is left out, the dearest first."""
        needed = list(chosen)
        for index in sorted(chosen, key=self._order, reverse=True):
            without = [i for i in needed if i != index]
            if self._excluded(without):
                needed = without
        return tuple(needed)

    def _covering(self, everywhere: int) -> tuple[int, ...] | None:
        """Predicates that exclude every different instance and keep as many equal ones as a beam search finds."""
        all_different = (1 << self._count) - 1
        total = self._weight(everywhere) or 1.0
        beam: list[tuple[float, tuple[int, ...], int, int]] = [(0.0, (), everywhere, all_different)]
        complete: list[tuple[float, float, tuple[int, ...]]] = []
        kinds: dict[tuple[int, int], int] = {}
        for index in sorted(range(len(self.predicates)), key=self._order):
            kinds.setdefault((self._equal[index] & everywhere, self._different[index]), index)
        for _ in range(_DEPTH):
            grown: dict[tuple[int, int], tuple[float, tuple[int, ...], int, int]] = {}
            for _, chosen, equal, different in beam:
                for index in kinds.values():
                    covered, left = equal & self._equal[index], different & self._different[index]
                    weight = self._weight(covered) / total if left != different else 0.0
                    if not weight:
                        continue
                    cost = sum(self.predicates[i].cost for i in (*chosen, index))
                    if not left:
                        complete.append((-weight, cost, (*chosen, index)))
                        continue
                    score = weight - left.bit_count() / self._count - 0.01 * cost
                    if (covered, left) not in grown or grown[covered, left][0] < score:
                        grown[covered, left] = (score, (*chosen, index), covered, left)
            beam = sorted(grown.values(), key=lambda s: (-s[0], s[1]))[:_BEAM]
            if complete and (not beam or -min(complete)[0] >= max(self._weight(s[2]) / total for s in beam)):
                break
        return min(complete)[2] if complete else None
