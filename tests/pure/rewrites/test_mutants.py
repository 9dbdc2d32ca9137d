"""The verifier proves no mutant of a shipped rule that ONNX's reference evaluator finds false."""

import pytest

from benchmarks.rules.falsity import falsity
from benchmarks.rules.mutation import Mutant, mutants, sample
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule

EFFORT = Effort(numeric=24, extremes=9, symbolic=2)


@pytest.fixture(scope="module")
def rules() -> tuple[Rule, ...]:
    return shipped_rules()[::7]


@pytest.fixture(scope="module")
def found(rules: tuple[Rule, ...]) -> list[Mutant]:
    return list(mutants(rules))


def test_no_false_mutant_is_proved(found: list[Mutant]) -> None:
    chosen = sample(found, 60)
    false = [m for m in chosen if falsity(m.rule, instances=4, seed=9) is not None]
    proved = [f"{m.origin}, {m.kind}: {m.rule.text}" for m in false if check(m.rule, EFFORT).verdict == "proved"]
    assert len(false) > len(chosen) // 2
    assert not proved


def test_mutants_are_of_every_kind_and_none_is_a_rule(rules: tuple[Rule, ...], found: list[Mutant]) -> None:
    assert {m.kind for m in found} >= {
        "operands swapped",
        "another operator",
        "another axis",
        "another permutation",
        "another literal",
        "another variable",
        "term dropped",
        "condition dropped",
    }
    texts = [m.rule.text for m in found]
    assert len(set(texts)) == len(texts) > 1000
    assert not set(texts) & {r.text for r in rules}


def test_falsity_shares_no_reference_with_the_verifier() -> None:
    """An operator whose reference is wrong would make the verifier err; ONNX's evaluator sees through it."""
    right, wrong, special, whole = parse_rules(
        "right: relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)\n"
        "wrong: relu(transpose(x, perm=p)) => relu(x)\n"
        "special: x - x => fill(shape=shape(x), value=0.0, dtype=dtype(x)) if static(x)\n"
        "whole: x / c + y / c => (x + y) / c if same_shape(x, y), finite(x, y, c)\n",
        origin="candidate",
    )
    assert falsity(right) is None
    assert falsity(wrong) is not None
    assert falsity(special) == "elements differ with an infinity in x"
    assert falsity(whole) == "elements differ with integers"


def test_what_the_evaluator_takes_for_padding_is_not_held_against_a_rule() -> None:
    """It leaves NaN out of a window, so that a mean would not be linear."""
    left = "avg_pool(x, **a) - avg_pool(y, **a)"
    text = f"true: {left} => avg_pool(x - y, **a) if same_shape(x, y), wide(x)\nfalse: {left} => avg_pool(x, **a)"
    true, false = parse_rules(text, origin="candidate")
    assert falsity(true, 9, 20) is None
    assert falsity(false, 9, 20)
