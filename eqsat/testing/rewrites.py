"""Looks for an instance that refutes a rule, and shrinks what it finds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, find, settings
from hypothesis.errors import NoSuchExample, Unsatisfiable

from eqsat.errors import UnsoundRuleError, UsageError
from eqsat.language.pattern import Bindings
from eqsat.rewrites.check import Mismatch, build, check, numeric_mismatch
from eqsat.rewrites.evidence import Evidence
from eqsat.rewrites.extremes import nonfinite_mismatch
from eqsat.rewrites.instance import operands
from eqsat.rewrites.parser import parse_rules
from eqsat.rewrites.rule import Rule
from eqsat.testing.counterexample import counterexample, refuted
from eqsat.testing.instances import find_traces, instances

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
    """What checking found of each rule in turn, when it refuted none."""

    checked: tuple[CheckedRule, ...]

    @property
    def proved(self) -> bool:
        """Whether every rule has evidence that proves it, so that `optimize` takes it."""
        return all(c.evidence is not None and c.evidence.verdict == "proved" for c in self.checked)

    def __str__(self) -> str:
        return "\n".join(map(str, self.checked))


def check_rewrite(rule: Rule | str, *, max_examples: int = 200, seed: int = 0, prove: bool = True) -> RewriteReport:
    """Tries to refute a rule, or every rule of a text, on instances that Hypothesis draws and shrinks.

    CounterexampleError, an UnsoundRuleError, has the smallest instance found and a program that shows it; an instance
    also refutes where the right side does not type, or has other types than the left. RuleError where no instance meets
    the conditions. What `prove` adds is the evidence that `optimize(rules=…)` asks for. The same seed tries the same.

    >>> print(check_rewrite("relu(relu(x)) => relu(x)", max_examples=20, prove=False))
    rule: both sides are equal on 19 instances
    """
    if max_examples < 1:
        raise UsageError(f"max_examples = {max_examples}", where="check_rewrite", expected="1 or more")
    rules = _parsed(rule) if isinstance(rule, str) else (rule,)
    return RewriteReport(tuple(_checked(one, max_examples, seed, prove) for one in rules))


def _parsed(text: str) -> tuple[Rule, ...]:
    """The rules of a text, one alone being called rule where it has no name."""
    first = text.partition("=>")[0]
    named = ":" in first.partition("(")[0] or text.lstrip().startswith(("%", "#"))
    return parse_rules(text if named else f"rule: {text.strip()}")


def _checked(rule: Rule, max_examples: int, seed: int, prove: bool) -> CheckedRule:
    traces = min(max(max_examples // 4, _FEWEST), _MOST)
    find_traces(rule, traces)
    tried: set[Any] = set()

    def refutes(bindings: Bindings) -> bool:
        tried.add(_key(bindings))
        return mismatch(rule, bindings) is not None

    how = settings(max_examples=max_examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    strategy = instances(rule, traces=traces)
    try:
        smallest = find(strategy, refutes, settings=how, random=random.Random(seed))
    except (NoSuchExample, Unsatisfiable):
        return CheckedRule(rule, len(tried), _evidence(rule) if prove else None)
    found = mismatch(rule, smallest)
    if found is None:
        raise RuntimeError(f"an instance refuted rule {rule.name!r} only once: its operators are not deterministic")
    raise refuted(counterexample(rule, found.instance, found.reason))


def mismatch(rule: Rule, bindings: Bindings) -> Mismatch | None:
    """How an instance refutes a rule, None where it does not.

    By types, by elements in float64, or with an infinity or NaN put in where conditions allow it.
    """
    made = build(rule, bindings)
    found = made if isinstance(made, Mismatch) else numeric_mismatch(made)
    changed = nonfinite_mismatch(rule, bindings) if found is None else None
    return found if changed is None else Mismatch(*changed)


def _evidence(rule: Rule) -> Evidence:
    evidence = check(rule)
    if evidence.verdict == "refuted":
        raise UnsoundRuleError(
            f"rule {rule.name!r} is false: {evidence.detail}",
            where=rule.where,
            expected="sides that are equal wherever the conditions hold",
            remedy="add the missing condition, or mend a side",
        )
    return evidence


def _key(bindings: Bindings) -> Any:
    """What tells instances apart: types and attributes, not elements."""
    types = tuple((o.name, o.type, o.constant) for o in operands(bindings))
    return types, repr(sorted(bindings.attrs.items(), key=lambda item: item[0]))
