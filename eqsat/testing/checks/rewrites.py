"""Search for an instance that refutes a rule, and shrinking of the one found."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from hypothesis import HealthCheck, find, settings
from hypothesis.errors import NoSuchExample, Unsatisfiable

from eqsat.errors import EqsatError, RuleError, UnsoundRuleError, UsageError
from eqsat.language.terms.pattern import Bindings
from eqsat.rewrites.instances.extremes import integer_mismatch, nonfinite_mismatch
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.instances.mismatch import Mismatch
from eqsat.rewrites.proof.check import Effort, check, mismatch
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.testing.checks.counterexample import Counterexample, counterexample, refuted
from eqsat.testing.checks.reduction import reduced
from eqsat.testing.strategies.instances import instances, size

#: Says how an instance refutes a rule.
Test: TypeAlias = Callable[[Rule, Bindings], Mismatch | None]

#: As many traces are searched for as there are examples to come, within these bounds.
_FEWEST, _MOST = 2, 24


@dataclass(frozen=True)
class CheckedRule:
    """A rule that nothing refuted: how many different instances were tried, and its evidence where asked for."""

    rule: Rule
    instances: int
    evidence: Evidence | None

    def __str__(self) -> str:
        tried = f"{self.rule.name}: both sides are equal on {self.instances} instances"
        if self.evidence is None:
            return tried
        if self.evidence.verdict != "proved":
            return f"{tried}; {self.evidence.verdict}: {self.evidence.detail}"
        return f"{tried}; proved by Z3 on {self.evidence.symbolic}"


@dataclass(frozen=True)
class RewriteReport:
    """The results for each rule in turn, when checking refuted none."""

    checked: tuple[CheckedRule, ...]

    @property
    def proved(self) -> bool:
        """True if every rule has evidence that proves it, so that `optimize` takes it."""
        return all(c.evidence is not None and c.evidence.verdict == "proved" for c in self.checked)

    def __str__(self) -> str:
        return "\n".join(map(str, self.checked))


def check_rewrite(rule: Rule | str, *, max_examples: int = 100, seed: int = 0, prove: bool = True) -> RewriteReport:
    """Try to refute a rule, or every rule of a text, on instances that Hypothesis draws and shrinks.

    CounterexampleError, an UnsoundRuleError, has the smallest instance found and a program that shows it; an instance
    also refutes where the right side does not type, or has other types than the left. RuleError where no instance meets
    the conditions; UsageError for `max_examples` below 1. `prove` adds the evidence that `optimize(rules=…)` asks for.
    The same seed tries the same. Returns a report of every rule that nothing refuted.

    >>> report = check_rewrite("relu(relu(x)) => relu(x)", max_examples=20, prove=False)
    >>> [checked.instances > 5 for checked in report.checked]
    [True]
    """
    if max_examples < 1:
        raise UsageError(f"max_examples = {max_examples}", where="check_rewrite", expected="1 or more")
    rules = _parsed(rule) if isinstance(rule, str) else (rule,)
    return RewriteReport(tuple(_checked(one, max_examples, seed, prove) for one in rules))


def _parsed(text: str) -> tuple[Rule, ...]:
    """The rules of a text, one alone being called rule where it has no name."""
    first = text.partition("=>")[0]
    named = ":" in first.partition("(")[0] or text.lstrip().startswith(("%", "#"))
    return parse_rules(text if named else f"rule: {text.strip()}", origin="candidate")


def _checked(rule: Rule, max_examples: int, seed: int, prove: bool) -> CheckedRule:
    search = _RefutationSearch(rule, max_examples, seed)
    least = search.smallest()
    if least is not None:
        raise refuted(search.shrunk(*least))
    return CheckedRule(rule, len(search.tried), _evidence(rule) if prove else None)


class _RefutationSearch:
    """The instances of a rule that a seed leads to.

    The smallest of all that refute is shrunk, since shrinking leads to the least instance near its start.
    """

    def __init__(self, rule: Rule, max_examples: int, seed: int) -> None:
        self.rule, self.seed = rule, seed
        self.strategy = instances(rule, traces=min(max(max_examples // 4, _FEWEST), _MOST))
        self.settings = settings(
            max_examples=max_examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        self.tried: set[Any] = set()

    def smallest(self) -> tuple[int, tuple[int, int]] | None:
        """The plainest test that the smallest refuting instance fails, and the size of that instance; else None."""
        failures: list[tuple[int, tuple[int, int]]] = []

        def seen(bindings: Bindings) -> bool:
            self.tried.add(_key(bindings))
            failed = (i for i, test in enumerate(TESTS) if test(self.rule, bindings) is not None)
            failures.extend((i, size(bindings)) for i in islice(failed, 1))
            return False

        with suppress(NoSuchExample, Unsatisfiable):
            self.find(seen)
        return min(failures, default=None)

    def find(self, condition: Callable[[Bindings], bool]) -> Bindings:
        """The instance that shrinking leads to, the same for the same condition."""
        try:
            return find(self.strategy, condition, settings=self.settings, random=random.Random(self.seed))
        except EqsatError as error:  # a declaration at fault; how it was come upon says less than the message
            error.__notes__ = []
            raise

    def shrunk(self, failed: int, least: tuple[int, int]) -> Counterexample:
        """The counterexample that shrinking leads to from the first instance that is as small as this."""
        test = TESTS[failed]

        def refutes(bindings: Bindings) -> bool:
            return size(bindings) <= least and test(self.rule, bindings) is not None

        return _counterexample(self.rule, test, self.find(refutes))


def _counterexample(rule: Rule, test: Test, bindings: Bindings) -> Counterexample:
    """The counterexample left of an instance that fails a test, after all cuts under which it still fails."""
    failure = test(rule, bindings)
    if failure is not None and mismatch(rule, failure.instance) is not None:
        test, bindings = mismatch, failure.instance  # what the test put in is reduced as well
    bindings = reduced(rule, bindings, lambda smaller: test(rule, smaller) is not None)
    failure = test(rule, bindings)
    if failure is None:
        raise RuleError(
            f"rule {rule.name!r} is refuted by an instance, but not when it is run again",
            where=rule.where,
            expected="operators whose references always make the same of the same operands",
        )
    return counterexample(rule, failure.instance, failure.reason)


def integers(rule: Rule, bindings: Bindings) -> Mismatch | None:
    """The mismatch that refutes a rule with integers for floats, where conditions and operators allow them."""
    differing = integer_mismatch(rule, bindings)
    return None if differing is None else Mismatch(*differing)


def nonfinite(rule: Rule, bindings: Bindings) -> Mismatch | None:
    """The mismatch by which an instance refutes a rule once an infinity or NaN is put in where conditions allow it."""
    differing = nonfinite_mismatch(rule, bindings)
    return None if differing is None else Mismatch(*differing)


#: Tests of an instance, the plainest first.
TESTS: tuple[Test, ...] = (mismatch, integers, nonfinite)


def _evidence(rule: Rule) -> Evidence:
    """The evidence that the check finds; CounterexampleError if that draws an instance the search did not meet."""
    evidence = check(rule)
    if evidence.verdict != "refuted":
        return evidence
    sampler, effort = Sampler(rule), Effort()
    drawn = [b for _ in range(effort.numeric) if (b := sampler.draw(effort.tries)) is not None]
    for test in TESTS:
        failed = [b for b in drawn if test(rule, b) is not None]
        if failed:
            raise refuted(_counterexample(rule, test, min(failed, key=size)))
    raise UnsoundRuleError(
        f"rule {rule.name!r} is false: {evidence.detail}",
        where=rule.where,
        expected="sides that are equal wherever the conditions hold",
        remedy="add the missing condition, or mend a side",
    )


def _key(bindings: Bindings) -> Any:
    """A key that distinguishes instances: types and attributes, not elements."""
    types = tuple((o.name, o.type, o.constant) for o in operands(bindings))
    return types, repr(sorted(bindings.attrs.items(), key=lambda item: item[0]))
