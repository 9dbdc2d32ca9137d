"""Strategies for rules and for instances of a rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from eqsat.errors import GraphError, RuleError, UsageError
from eqsat.language.pattern import Bindings
from eqsat.rewrites.extremes import with_integers
from eqsat.rewrites.instance import Drawn, Sampler, operands
from eqsat.rewrites.loader import shipped_rules
from eqsat.rewrites.rule import Rule
from eqsat.rewrites.term import left_terms, right_terms
from eqsat.testing.choices import Choices, Draw, drawn, recorded
from eqsat.testing.tensors import tensors

#: Tries to meet a rule's conditions once, and to find more instances after that.
_FIRST, _MORE = 20_000, 4_000
#: How many instances with floats are drawn for one with integers, at least.
_FLOATS = 4
#: Instances whose choices guide the strategy.
_TRACES = 24


@dataclass(frozen=True)
class Traces:
    """Choices that led to instances of a rule, small ones first, and the share of all tries that they were."""

    found: tuple[tuple[int, ...], ...]
    share: float


def rules(*, phases: Sequence[str] | None = None, ops: Sequence[str] | None = None) -> st.SearchStrategy[Rule]:
    """The rules that eqsat ships; only those of some phases, or that have one of some operators, where asked."""
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
    bindings = Sampler(rule, rng=Choices(drawn(draw, trace))).draw(tries=1)
    assume(bindings is not None)
    made = bindings or Bindings()
    if draw(st.integers(0, _FLOATS)) == _FLOATS:
        made = _of_integers(rule, made)
    for operand in operands(made):
        if not operand.read:  # what the rule has looked at stays
            operand.array = _elements(draw, operand)
    return made


def _of_integers(rule: Rule, bindings: Bindings) -> Bindings:
    """The instance with integers for floats where the rule takes them, else as it was."""
    made = with_integers(rule, bindings)
    if made is None or rule.refused(made) is not None:
        return bindings
    try:
        left_terms(rule, made)
        right_terms(rule, made)
    except GraphError:
        return bindings
    return made


def _elements(draw: Draw, operand: Drawn) -> Any:
    made = draw(tensors(operand.type, limit=operand.limit))
    if operand.type.dtype.is_integer and operand.limit is None:
        made = np.where(made == 0, 1, made).astype(made.dtype)  # integer division by zero is not defined
    return made


@lru_cache(maxsize=4096)
def find_traces(rule: Rule, most: int) -> Traces:
    """Searches for choices that meet the conditions of a rule, the same ones every time."""
    rng = random.Random(rule.text)
    made: list[tuple[int, tuple[int, ...]]] = []
    choices = Choices(rng.randrange)
    sampler = Sampler(rule, rng=choices)
    tries = 0
    while len(made) < most and tries < (_MORE if made else _FIRST):
        tries += 1
        trace: list[int] = []
        choices.below = recorded(rng, trace)
        bindings = sampler.draw(tries=1)
        if bindings is not None:
            made.append((_size(bindings), tuple(trace)))
    return Traces(tuple(trace for _, trace in sorted(made)), len(made) / max(tries, 1))


def _size(bindings: Bindings) -> int:
    return sum(o.type.elements({}) for o in operands(bindings))


def _advice(rule: Rule) -> str:
    """What refuses most instances."""
    sampler = Sampler(rule)
    sampler.draw(tries=_MORE)
    if not sampler.refusals:
        return "no operands drawn fit the left side: state a smaller one"
    ((reason, count),) = sampler.refusals.most_common(1)
    return f"most are refused for this: {reason} ({count} of {sum(sampler.refusals.values())} whose left side types)"
