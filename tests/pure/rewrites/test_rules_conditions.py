"""The benchmark of conditions says what each is about, and whether a rule is true without it."""

import pytest

from benchmarks.conditions import DROPPED, judged
from benchmarks.rules.dropping import dropped
from benchmarks.rules.mutation import mutants
from benchmarks.rules.needed import subject
from eqsat.rewrites.rules.loader import shipped_rules


def without(name, condition):
    """The mutant of a shipped rule that lacks one of its conditions."""
    (rule,) = (one for one in shipped_rules() if one.name == name)
    kept = {one.text for one in rule.conditions} - {condition}
    assert len(kept) == len(rule.conditions) - 1
    found = (m for m in mutants([rule]) if m.kind == DROPPED and {c.text for c in m.rule.conditions} == kept)
    return rule, next(found)


@pytest.mark.parametrize(
    ("name", "condition", "about", "verdict"),
    [
        ("add-of-reshapes", "same_shape(x, y)", "equality", "refuted"),
        ("sin-of-gather", "constant(x)", "cost", "redundant"),
        ("add-of-reshape-and-one", "spans(x, c)", "equality", "refuted"),
    ],
)
def test_a_condition_is_needed_or_not_and_about_something(name, condition, about, verdict):
    rule, mutant = without(name, condition)
    assert subject(dropped(rule, mutant.rule)) == about
    record = judged(mutant)
    assert (record["origin"], record["subject"], record["verdict"]) == (name, about, verdict)
    assert record["why"]
