"""From a candidate, equal at one choice of shapes, to the most general rules that it is an instance of.

Attributes become variables and expressions of them, from the most general left side to the most special; of the right
sides that are the candidate's at its own shapes, the one that is equal at most drawn instances is taken; conditions are
learned from the instances at which it is equal and those at which it is not, until fresh instances bear them out.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from eqsat.language.pattern import Expression, Left, Pattern
from eqsat.rewrites.factory.atoms import atoms
from eqsat.rewrites.factory.candidate import Candidate
from eqsat.rewrites.factory.cases import Case, drawing_rule, drawn, holds
from eqsat.rewrites.factory.conditions import Learned, Learner
from eqsat.rewrites.factory.direction import name_of, phase_of
from eqsat.rewrites.factory.equation import Equation, equations, expression, left_text, names_read, text_of
from eqsat.rewrites.factory.guards import guards
from eqsat.rewrites.factory.neighbours import neighbours
from eqsat.rewrites.factory.spread import lifted
from eqsat.rewrites.factory.template import Template, right_sides, templates
from eqsat.rewrites.loader import shipped_rules
from eqsat.rewrites.parser import parse_rules
from eqsat.rewrites.rule import Rule


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is drawn: instances to tell right sides apart, to learn from at first, at most, and to confirm with.

    `near` instances are drawn near the candidate's own. `few` equal instances are the least to learn from; `misses`
    bounds the search for instances, `rounds` how often conditions are learned anew, `options` how many right sides are.
    A rule whose conditions cost no more than `plain` ends the search; `missed` is what it costs to miss all equal
    instances.
    """

    screen: int = 12
    near: int = 60
    first: int = 48
    most: int = 120
    confirm: int = 80
    few: int = 8
    misses: int = 60
    rounds: int = 12
    options: int = 2
    plain: float = 3.0
    missed: float = 4.0


def generalise(candidate: Candidate, effort: Effort = Effort(), seed: int = 0) -> tuple[Rule, ...]:
    """The most general rules found for a candidate, best first; none where it holds by accident of its shapes.

    A rule with more operators than the candidate's other side is in the phase that is off unless asked for. Every rule
    is worth checking, none is proved yet. Deterministic for a seed.

    >>> twice = Candidate("c1", ("relu(relu(x))",), ("relu(x)",), {"x": (3, 3)}, 2, 1)
    >>> [str(rule) for rule in generalise(twice)]
    ['relu-of-relu-to-relu: relu(relu(x)) => relu(x)']
    """
    found: dict[str, Rule] = {}
    for equation in equations(candidate):
        if phase_of(equation.left, equation.right) is None:
            continue
        for form in (lifted(equation), equation):
            made = _rule(form, effort, seed) if form is not None else None
            if made is not None:
                found.setdefault(made.text, made)
                break
    order = ("simplify", "fuse", "merge", "expand", "associate")
    return tuple(sorted(found.values(), key=lambda r: order.index(r.phase)))


def _rule(equation: Equation, effort: Effort, seed: int) -> Rule | None:
    """The rule of the most general left side that needs few conditions; of all, the one that needs the least."""
    found: list[_Found] = []
    for template in templates(equation):
        if found and min(f.cost for f in found) <= template.cost + effort.plain:
            break
        found += _Search(equation, template, effort, seed).found()
    return min(found, key=lambda f: f.cost).rule() if found else None


@dataclass(frozen=True)
class _Found:
    """Both sides with conditions that fresh instances bear out, and what they cost together.

    What is special costs: conditions, literals, variables that stand for two things, instances that are equal and yet
    meet no conditions.
    """

    cost: float
    left: Left
    right: tuple[Pattern, ...]
    learned: Learned
    equal: Sequence[Case]

    def rule(self) -> Rule:
        texts = [a.text for a in self.learned.atoms] + list(guards(self.left, self.right, self.equal))
        return write_rule(self.left, self.right, [expression(t) for t in texts])


@dataclass
class _Search:
    """The search for rules with one left side."""

    equation: Equation
    template: Template
    effort: Effort
    seed: int

    def __post_init__(self) -> None:
        self.drawing = drawing_rule(self.template.left)
        self.own = Case(self.drawing, self.template.scope.bindings, self.seed)
        self.cases: list[Case] = []
        self.close: list[Case] | None = None
        self._more = drawn(self.drawing, self.effort.most, self.effort.misses, self.seed)

    def found(self) -> Iterator[_Found]:
        """Rules with this left side, until one needs few conditions."""
        for cost, right in self.ranked():
            learned = self.conditions(right)
            if learned is None:
                continue
            total = cost + self.template.cost + sum(a.cost for a in learned.atoms)
            total += self.effort.missed * (1 - learned.coverage)
            yield _Found(total, self.template.left, right, learned, self.equal)
            if total <= self.template.cost + self.effort.plain:
                return

    def around(self) -> list[Case]:
        """Instances near the candidate's."""
        if self.close is None:
            self.close = list(neighbours(self.drawing, self.template.scope, self.effort.near, self.seed))
        return self.close

    def pool(self, count: int) -> list[Case]:
        """The first instances drawn, so many where there are."""
        self.cases += itertools.islice(self._more, max(0, count - len(self.cases)))
        return self.cases[:count]

    def ranked(self) -> list[tuple[float, tuple[Pattern, ...]]]:
        """The right sides that are equal at most of the first instances, best first, and the simplest of the good."""
        options = [o for o in right_sides(self.equation, self.template.scope) if not self.shares(o[1])]
        options = [o for o in options if self.own.agrees(o[1])]
        if len(options) <= 1:
            return options
        scores = dict.fromkeys(range(len(options)), 0)
        kept = list(scores)
        step = self.effort.screen
        for start in range(3):
            cases = [*self.pool(step * (start + 1))[step * start :], *self.around()[step * start : step * (start + 1)]]
            for index in kept:
                scores[index] += sum(case.agrees(options[index][1]) is True for case in cases)
            kept = sorted(kept, key=lambda i: (-scores[i], i))
            good = [i for i in kept if 2 * scores[i] >= scores[kept[0]]]
            kept = list(dict.fromkeys([*kept[: max(self.effort.options, len(kept) // 4)], min(good)]))
        return [options[i] for i in dict.fromkeys([*kept[: self.effort.options], min(good)])]

    def shares(self, right: tuple[Pattern, ...]) -> bool:
        """Whether a right side takes one of two equal attributes for both, which a left side that shares them says."""
        scope = self.template.scope
        used = names_read(right)
        kinds = {**scope.fields, **scope.records}
        values = scope.bindings.attrs
        return any(
            kinds[a] == kinds[b] and a in used and b not in used and values[a] == values[b]
            for a, b in itertools.permutations(kinds, 2)
        )

    def conditions(self, right: tuple[Pattern, ...]) -> Learned | None:
        """Conditions that fresh instances bear out; None where none do."""
        learner = Learner(atoms(self.template.scope))
        self.equal = [self.own]
        learner.add(self.own, True)
        self.take(learner, right, [*self.around(), *self.pool(self.effort.first)])
        if len(self.equal) < self.effort.few:
            more = self.pool(self.effort.most)[self.effort.first :]
            self.take(learner, right, more)
        if len(self.equal) < self.effort.few:
            return None
        for again in range(self.effort.rounds):
            learned = learner.learn()
            if learned is None:
                return None
            fresh = [case for case in self.confirming(right, learned, again) if case.agrees(right) is not None]
            refuted = [case for case in fresh if case.agrees(right) is False]
            if not refuted:
                met = [case for case in self.equal if all(holds(a.expression, case.bindings) for a in learned.atoms)]
                self.equal = [*fresh, *met]
                random.Random(self.seed).shuffle(self.equal)
                self.equal.sort(key=lambda c: c.degenerate(self.own.bindings))
                typical = sum(not case.degenerate(self.own.bindings) for case in self.equal)
                return learned if typical >= self.effort.few // 2 else None
            self.take(learner, right, fresh)
        return None

    def take(self, learner: Learner, right: tuple[Pattern, ...], cases: Sequence[Case]) -> None:
        for case in cases:
            verdict = case.agrees(right)
            if verdict is not None:
                learner.add(case, verdict, case.degenerate(self.own.bindings))
                self.equal += [case] if verdict else []

    def confirming(self, right: tuple[Pattern, ...], learned: Learned, again: int) -> list[Case]:
        """Fresh instances that meet the conditions."""
        conditions = tuple(a.expression for a in learned.atoms)
        rule = Rule("confirm", "expand", self.template.left, right, conditions, text=self.drawing.text)
        seed = self.seed * 100 + again + 1
        near = neighbours(self.drawing, self.template.scope, 2 * self.effort.near, seed)
        far = drawn(rule, self.effort.confirm, self.effort.misses, seed)
        return [*(case for case in near if all(holds(c, case.bindings) for c in conditions)), *far]


def write_rule(left: Left, right: tuple[Pattern, ...], conditions: Sequence[Expression]) -> Rule:
    """The rule of two sides in canonical text, with its phase and a name after its form."""
    phase = phase_of(left, right) or "associate"
    tail = " if " + ", ".join(c.text for c in conditions) if conditions else ""
    body = f"{left_text(left)} => {', '.join(map(text_of, right))}{tail}"
    (rule,) = parse_rules(f"%phase {phase}\n{name_of(left, right)}: {body}", "generated")
    taken = _shipped().get(rule.name)
    if taken is not None and taken != rule.text:
        digest = hashlib.sha256(rule.text.encode()).hexdigest()[:6]
        rule = replace(rule, name=f"{rule.name}-{digest}")
    return rule


@cache
def _shipped() -> dict[str, str]:
    """The texts of the shipped rules by name."""
    return {rule.name: rule.text for rule in shipped_rules()}


def generalise_all(candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, tuple[Rule, ...]]]:
    """Each candidate with its rules."""
    for candidate in candidates:
        yield candidate, generalise(candidate)
