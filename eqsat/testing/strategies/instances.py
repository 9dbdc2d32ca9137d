"""Strategies for rules and for instances of a rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from hypothesis import assume
from hypothesis import strategies as st

from eqsat.errors import RuleError, UsageError
from eqsat.language.terms.pattern import Bindings
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.testing.strategies.choices import ChoiceSource, Draw, drawn, recorded
from eqsat.testing.strategies.tensors import tensors

#: Tries to meet a rule's conditions once, and to find more instances after that.
_FIRST, _MORE = 40_000, 4_000
#: Instances that say which conditions are met.
_SAMPLE = 100
#: Instances whose choices guide the strategy.
_TRACES = 24


@dataclass(frozen=True)
class Traces:
    """Choices that led to instances of a rule, small ones first, and the share of all tries that they were."""

    found: tuple[tuple[int, ...], ...]
    share: float


def rules(*, phases: Sequence[str] | None = None, ops: Sequence[str] | None = None) -> st.SearchStrategy[Rule]:
    """A strategy of the rules that eqsat ships: those of some phases, or with one of some operators, where asked.

    UsageError where there is none such.
    """
    chosen = [
        r
        for r in shipped_rules()
        if (phases is None or r.phase in phases) and (ops is None or not r.operators().isdisjoint(ops))
    ]
    if not chosen:
        raise UsageError(f"no rule of phases {phases} and operators {ops}", where="rules", expected="known names")
    return st.sampled_from(chosen)


@st.composite
def instances(draw: Draw, rule: Rule, *, traces: int = _TRACES) -> Bindings:
    """Bindings of a rule's left side under which its conditions hold; RuleError where none are found.

    Operands are `Drawn`: their type, whether they are constants, and their elements as `array`. So many `traces`, found
    beforehand by pseudo-random search, guide the choices; all choices shrink, down to the smallest shapes.
    """
    known = find_traces(rule, traces)
    if not known.found:
        raise RuleError(
            f"no instance of rule {rule.name!r} meets its conditions",
            where=rule.where,
            expected=f"one among {_FIRST} drawn ones",
            remedy=_advice(rule),
        )
    free = round(known.share * len(known.found))
    trace = draw(st.sampled_from([*known.found, *[()] * free]))
    bindings = Sampler(rule, rng=ChoiceSource(drawn(draw, trace))).draw(tries=1)
    assume(bindings is not None)
    instance = bindings or Bindings()
    for operand in operands(instance):
        if not operand.read:  # what the rule has looked at stays
            operand.array = draw(tensors(operand.type, limit=operand.limit))
    return instance


@lru_cache(maxsize=4096)
def find_traces(rule: Rule, most: int) -> Traces:
    """Search for choices that meet the conditions of a rule, the same ones every time."""
    rng = random.Random(rule.text)
    sized: list[tuple[tuple[int, int], tuple[int, ...]]] = []
    choices = ChoiceSource(rng.randrange)
    sampler = Sampler(rule, rng=choices)
    tries = 0
    while len(sized) < most and tries < (_MORE if sized else _FIRST):
        tries += 1
        trace: list[int] = []
        choices.below = recorded(rng, trace)
        bindings = sampler.draw(tries=1)
        if bindings is not None:
            sized.append((size(bindings), tuple(trace)))
    return Traces(tuple(trace for _, trace in sorted(sized)), len(sized) / max(tries, 1))


def size(bindings: Bindings) -> tuple[int, int]:
    """The size by which instances are ordered: the elements of its operands, then their dims."""
    types = [o.type for o in operands(bindings)]
    return sum(t.elements({}) for t in types), sum(t.rank for t in types)


def _advice(rule: Rule) -> str:
    """Advice on conditions: those that are never met, or how often each is."""
    unguarded = Sampler(replace(rule, conditions=(), origin="candidate"))
    drawn = [b for _ in range(_SAMPLE) if (b := unguarded.draw(tries=20)) is not None]
    if not drawn:
        return "no operands drawn fit the left side: state a smaller one"
    alone = {c.text: replace(rule, conditions=(c,), origin="candidate") for c in rule.conditions}
    met = {text: sum(one.refused(b) is None for b in drawn) for text, one in alone.items()}
    never = [text for text, count in met.items() if not count]
    if never:
        return f"never met by operands that the left side takes: {', '.join(never)}"
    return "met one at a time, but not together: " + ", ".join(
        f"{text} ({count} of {len(drawn)})" for text, count in met.items()
    )
