"""The search for a rule with one left side: which right side, and under which conditions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat.language.terms.pattern import Left, Pattern
from eqsat.rewrites.discovery.equations.direction import numbers_of, write_rule
from eqsat.rewrites.discovery.equations.equation import LiteralEquation, names_read
from eqsat.rewrites.discovery.equations.sides import expression
from eqsat.rewrites.discovery.generalise.cases import LeftSideInstance, drawing_rule, drawn, holds
from eqsat.rewrites.discovery.generalise.conditions import Learned, Learner
from eqsat.rewrites.discovery.generalise.guards import Guards, floats_of, guards
from eqsat.rewrites.discovery.generalise.neighbours import Neighbours
from eqsat.rewrites.discovery.generalise.predicates import predicates
from eqsat.rewrites.discovery.generalise.template import Template, right_sides
from eqsat.rewrites.instances.extremes import integer_mismatch, nonfinite_mismatch
from eqsat.rewrites.proof.bounded import run_bounded
from eqsat.rewrites.rules.rule import Rule

#: Number of further instances that each step of the choice among right sides looks at.
_STEPS = (6, 10, 20)
#: The share of equal instances that is worth other conditions.
_MANY = 0.15
#: Number of fresh different instances that are enough to learn anew from.
_ENOUGH = 3
#: Number of instances that must show two attributes apart.
_SHOWN = 2
#: The fewest instances that a check needs.
_LEAST = 3


@dataclass(frozen=True, slots=True)
class GeneralisationEffort:
    """The number of instances drawn: near the candidate's own, others to learn from at first and at most, to confirm
    conditions with, and to check the rule with, of which `extremes` with infinities, NaN and integers as well, and how
    far the `grid` of small instances is gone through.

    `few` equal instances are the least to learn from; `misses` bounds the search for instances, `rounds` how often
    conditions are learned anew, `options` how many right sides they are learned for. A rule whose conditions cost no
    more than `plain` ends the search; `missed` is what it costs to miss all equal instances. Up to `alternatives` rules
    with the same sides have conditions of their own. With `repeats`, directions that repeat work are looked at.
    """

    near: int = 48
    first: int = 40
    most: int = 120
    confirm: int = 40
    check: int = 80
    extremes: int = 24
    grid: int = 1000
    few: int = 8
    misses: int = 40
    rounds: int = 12
    options: int = 2
    plain: float = 3.25
    missed: float = 4.0
    alternatives: int = 3
    repeats: bool = False


@dataclass(frozen=True)
class ConditionedRule:
    """Conditions that fresh instances bear out, and the rule that has them."""

    learned: Learned
    rule: Rule


@dataclass(frozen=True)
class Found:
    """Both sides with conditions, one set or several beside each other, and their cost together.

    What is special costs: conditions, literals, variables that stand for two things, instances that are equal and yet
    do not meet the first conditions.
    """

    cost: float
    left: Left
    right: tuple[Pattern, ...]
    rules: Sequence[ConditionedRule]


class RuleSearch:
    """The search for rules with the left side of a template, deterministic for a seed."""

    def __init__(self, equation: LiteralEquation, template: Template, effort: GeneralisationEffort, seed: int) -> None:
        self.equation, self.template, self.effort, self.seed = equation, template, effort, seed
        self.drawing = drawing_rule(template.left)
        self.own = LeftSideInstance(self.drawing, template.scope.bindings, seed)
        self._cases: list[LeftSideInstance] = []
        self._around = Neighbours(self.drawing, template.scope)
        self._more = drawn(self.drawing, effort.most, effort.misses, seed)

    def found(self, enough: float) -> Iterator[Found]:
        """Rules with this left side that cost less than enough, until one needs few conditions."""
        for cost, right in self.options():
            least = cost + self.template.cost
            if least >= enough:
                continue
            general = self.rule(right, least)
            if general is not None:
                yield general
                enough = min(enough, general.cost)
            if enough <= self.template.cost + self.effort.plain:
                return

    @cached_property
    def near(self) -> list[LeftSideInstance]:
        """Instances near the candidate's."""
        return list(self._around.draw(self.effort.near, self.seed))

    def far(self, count: int) -> list[LeftSideInstance]:
        """The first instances drawn anywhere, so many where there are."""
        self._cases += itertools.islice(self._more, max(0, count - len(self._cases)))
        return self._cases[:count]

    # --- right sides ------------------------------------------------------------------------------------------------

    def options(self) -> list[tuple[float, tuple[Pattern, ...]]]:
        """The right sides that are equal at most of the first instances, best first, and the simplest of the good.

        One that takes one of two equal attributes for both must be equal at all of them.
        """
        options = [o for o in right_sides(self.equation, self.template.scope) if self.own.agrees(o[1])]
        shared = {i for i, (_, right) in enumerate(options) if self._shares(right)}
        scores = dict.fromkeys(range(len(options)), 0)
        best, start = list(scores), 0
        for step in _STEPS:
            if len(best) < 2 and not shared.intersection(best):
                break
            cases = [*self.near[start // 2 : (start + step) // 2], *self.far((start + step) // 2)[start // 2 :]]
            for case in cases:
                known: dict[tuple[object, ...], bool] = {}
                for index in best:
                    scores[index] += case.agrees(options[index][1], known) is not False
            start += step
            best = sorted(best, key=lambda i: (-scores[i], i))
            good = min(i for i in best if 2 * scores[i] >= scores[best[0]])
            best = list(dict.fromkeys([*best[: max(2 * self.effort.options, len(best) // 4)], good]))
        everywhere = len(self.near[: start // 2]) + len(self.far(start // 2))
        best = [i for i in best if i not in shared or scores[i] == everywhere]
        return [options[i] for i in dict.fromkeys([*best[: self.effort.options], *([min(best)] if best else [])])]

    def _shares(self, right: tuple[Pattern, ...]) -> bool:
        """Return whether a right side takes one of two equal attributes for both, if the left side shares them."""
        scope = self.template.scope
        used, kinds, values = names_read(right), {**scope.fields, **scope.records}, scope.bindings.attrs
        return any(
            kinds[a] == kinds[b] and a in used and b not in used and values[a] == values[b]
            for a, b in itertools.permutations(kinds, 2)
        )

    # --- conditions -------------------------------------------------------------------------------------------------

    def rule(self, right: tuple[Pattern, ...], cost: float) -> Found | None:
        """The rule with conditions that fresh instances bear out; None where none do.

        Where many equal instances do not meet them, other conditions that do are looked for beside them.
        """
        learner = Learner(predicates(self.template.scope))
        equal: list[LeftSideInstance] = []
        self._take(learner, right, [self.own, *self.near, *self.far(self.effort.first)], equal)
        if len(equal) < self.effort.few:
            self._take(learner, right, self.far(self.effort.most)[self.effort.first :], equal)
        if len(equal) < self.effort.few:
            return None
        rules: list[ConditionedRule] = []
        while len(rules) < self.effort.alternatives:
            enough = rules and learner.left_over([rule.learned for rule in rules]) <= _MANY
            conditioned = None if enough else self._conditioned(learner, right, equal, rules)
            if conditioned is None:
                break
            rules.append(conditioned)
        if not rules:
            return None
        first = rules[0].learned
        total = cost + sum(a.cost for a in first.predicates) + self.effort.missed * (1 - first.coverage)
        return Found(total, self.template.left, right, rules)

    def _conditioned(
        self,
        learner: Learner,
        right: tuple[Pattern, ...],
        equal: list[LeftSideInstance],
        beside: Sequence[ConditionedRule],
    ) -> ConditionedRule | None:
        """Conditions that fresh instances bear out."""
        for again in range(self.effort.rounds):
            learned = learner.learn([other.learned for other in beside])
            if learned is None:
                return None
            fresh: list[tuple[LeftSideInstance, bool]] = []
            for case in self._fresh(learned, again + 20 * len(beside)):
                verdict = case.agrees(right)
                fresh += [(case, verdict)] if verdict is not None else []
                if sum(not same for _, same in fresh) == _ENOUGH:
                    break
            equal += [case for case, same in fresh if same]
            if not all(same for _, same in fresh):
                for case, same in fresh:
                    learner.add(case, same, case.degenerate(self.own.bindings))
                continue
            met = [case for case in equal if all(holds(a.expression, case.bindings) for a in learned.predicates)]
            random.Random(self.seed).shuffle(met)
            met.sort(key=lambda case: case.degenerate(self.own.bindings))
            typical = sum(not case.degenerate(self.own.bindings) for case in met)
            if typical < self.effort.few // 2 or not fresh or not self._apart(met):
                return None
            checked = self._checked(right, learned, guards(self.template.left, right, met))
            if not isinstance(checked, LeftSideInstance):
                return ConditionedRule(learned, checked) if checked is not None else None
            learner.add(checked, False)
        return None

    def _checked(self, right: tuple[Pattern, ...], learned: Learned, guarded: Guards) -> Rule | LeftSideInstance | None:
        """The rule, or an instance at which its sides differ, of those that its check would draw first.

        Instances with an infinity, NaN or integers may show that it needs guards that others did not. None where too
        few are drawn for any check.
        """
        rule = self._written(right, learned, guarded)
        numbers = numbers_of([a.expression for a in learned.predicates])
        count = 0
        for case in self._checking(rule):
            full = LeftSideInstance(
                self.drawing, replace(case.bindings, attrs={**case.bindings.attrs, **numbers}), count
            )
            if full.agrees(right) is False:
                return full
            count += 1
            if count > self.effort.extremes:
                continue
            every = floats_of(self.template.left, full)
            if guarded.finite != every and nonfinite_mismatch(rule, case.bindings) is not None:
                guarded = replace(guarded, finite=every)
                rule = self._written(right, learned, guarded)
            if not guarded.kind and integer_mismatch(rule, case.bindings) is not None:
                guarded = replace(guarded, kind="floating", first=every[0])
                rule = self._written(right, learned, guarded)
        if count < _LEAST:
            return None
        # Small instances in order show cases that few draws meet, such as products of vectors.
        bindings = run_bounded(rule, self.effort.grid, self.seed).bindings
        if bindings is None:
            return rule
        return LeftSideInstance(self.drawing, replace(bindings, attrs={**bindings.attrs, **numbers}), count)

    def _checking(self, rule: Rule) -> Iterator[LeftSideInstance]:
        """Instances that meet a rule's conditions; a few are looked for longer."""
        count = 0
        for case in drawn(rule, self.effort.check, 3 * self.effort.misses):
            count += 1
            yield case
        if count < _LEAST:
            yield from drawn(rule, _LEAST, 15 * self.effort.misses, 1)

    def _written(self, right: tuple[Pattern, ...], learned: Learned, guarded: Guards) -> Rule:
        conditions = [*(a.text for a in learned.predicates), *guarded.texts]
        return write_rule(self.template.left, right, [expression(text) for text in conditions])

    def _apart(self, met: Sequence[LeftSideInstance]) -> bool:
        """Return whether instances show apart every two attributes that only happen to be equal in the candidate."""
        scope = self.template.scope
        kinds, own = {**scope.fields, **scope.records}, scope.bindings.attrs
        typical = [case.bindings.attrs for case in met if not case.degenerate(scope.bindings)]
        return all(
            sum(attrs[a] != attrs[b] for attrs in typical) >= _SHOWN
            for a, b in itertools.combinations(kinds, 2)
            if kinds[a] == kinds[b] and own[a] == own[b]
        )

    def _take(
        self,
        learner: Learner,
        right: tuple[Pattern, ...],
        cases: Sequence[LeftSideInstance],
        equal: list[LeftSideInstance],
    ) -> None:
        """Add instances to the learner."""
        for case in cases:
            verdict = case.agrees(right)
            if verdict is not None:
                learner.add(case, verdict, case.degenerate(self.own.bindings))
                equal += [case] if verdict else []

    def _fresh(self, learned: Learned, again: int) -> Iterator[LeftSideInstance]:
        """Instances not met before that meet the conditions, some near the candidate's and some from anywhere."""
        conditions = tuple(a.expression for a in learned.predicates)
        rule = replace(self.drawing, conditions=conditions)
        seed = self.seed * 100 + again + 1
        for case in self._around.draw(2 * self.effort.near, seed):
            if all(holds(c, case.bindings) for c in conditions):
                yield case
        yield from drawn(rule, self.effort.confirm, self.effort.misses, seed)
