"""Rules follow from laws by Z3 or by chains that Z3 confirms; what does not follow is never called proved."""

from pathlib import Path

import pytest

from eqsat.rewrites.proof.chains.reading import states
from eqsat.rewrites.proof.entail import entail, with_conditions
from eqsat.rewrites.rules.loader import laws
from eqsat.rewrites.rules.parser import parse_rules

POWER = Path(__file__).parents[3] / "docs" / "power"

LAWS = parse_rules(
    """
compose: transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=compose(p, q))
gone: transpose(x, perm=p) => x if p == identity_perm(rank(x))
relu-turned: relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)
relu-joined: concat(*[relu(x) for x in xs], axis=k) => relu(concat(*xs, axis=k))
turned-joined: transpose(concat(*xs, axis=k), perm=p) => concat(*[transpose(x, perm=p) for x in xs], axis=place(p, k))
commutes: x + y => y + x
associates: x + (y + z) => (x + y) + z if wide(x)
distributes: (x + y) * z => x * z + y * z if wide(x), finite(x, y, z)
filters: conv(x, v, **a) + conv(x, w, **a) => conv(x, v + w, **a)
  if a.activation == "none", same_shape(v, w), wide(x), finite(x, v, w)
"""
)
(TIMES,) = parse_rules("times: x * y => y * x")
#: Rules, and the laws that each needs.
NEEDS = {
    "relu(transpose(transpose(x, perm=p), perm=q)) => transpose(relu(x), perm=compose(p, q))": {
        "compose",
        "relu-turned",
    },
    "concat(relu(x), relu(y), axis=k) => relu(concat(x, y, axis=k))": {"relu-joined"},
    "(x + y) + z => (z + y) + x if wide(x)": {"commutes", "associates"},
    "relu((y + x) * z) => relu(x * z + y * z) if wide(x), finite(x, y, z)": {"commutes", "distributes"},
    "relu(conv(x, v, **a) + conv(x, w, **a)) => relu(conv(x, w + v, **a)) "
    "if a.activation == 'none', same_shape(v, w), wide(x), finite(x, v, w)": {"commutes", "filters"},
}


def rule(text):
    return parse_rules(f"rule: {text}", origin="candidate")[0]


def without(*names):
    return [law for law in LAWS if law.name not in names]


@pytest.mark.parametrize("text", NEEDS)
def test_a_rule_loses_its_proof_exactly_with_the_laws_it_needs(text):
    whole = entail(rule(text), LAWS)
    assert (whole.verdict, set(whole.laws)) == ("proved", NEEDS[text])
    for law in LAWS:
        left = entail(rule(text), without(law.name))
        assert left.verdict == ("undecided" if law.name in NEEDS[text] else "proved"), law.name
        assert bool(left.missing) == (left.verdict == "undecided")


def test_the_law_that_is_missing_is_proposed():
    text = "relu(transpose(transpose(x, perm=p), perm=q)) => transpose(relu(x), perm=compose(p, q))"
    for name in ("compose", "relu-turned"):
        found = entail(rule(text), without(name))
        (law,) = (one for one in LAWS if one.name == name)
        assert states(law, rule(found.missing)), found.missing
        assert entail(rule(text), [*without(name), rule(found.missing)]).verdict == "proved"


def test_a_law_by_other_names_and_under_more_conditions_is_a_law():
    found = entail(rule("(a + b) * c => a * c + b * c if rank(a) == 2, finite(a, b, c), wide(a)"), LAWS)
    assert (found.verdict, found.method, found.laws) == ("proved", "law", ("distributes",))
    turned = entail(rule("transpose(relu(t), perm=r) => relu(transpose(t, perm=r))"), LAWS)
    assert (turned.method, turned.laws) == ("law", ("relu-turned",))
    weaker = entail(rule("(a + b) * c => a * c + b * c if wide(a), finite(a, b)"), LAWS)
    assert weaker.verdict == "undecided"


def test_z3_derives_a_rule_from_laws_and_premises_alone():
    found = entail(rule("relu((y + x) * z) => relu(x * z + y * z) if wide(x), finite(x, y, z)"), LAWS)
    assert found.verdict == "proved"
    assert (found.method, found.bounded) in {("z3", ()), ("chain", found.bounded)}
    plain = entail(rule("relu(y + x) => relu(x + y)"), LAWS)
    assert (plain.method, plain.bounded, plain.laws) == ("z3", (), ("commutes",))
    assert plain.chain == ("relu(y + x)", "= relu(x + y)  [commutes]")


def test_conditions_that_are_no_matter_of_logic_are_named_with_the_instances_they_hold_in():
    found = entail(rule("transpose(transpose(x, perm=p), perm=inverse(p)) => x"), LAWS)
    assert (found.verdict, found.method) == ("proved", "chain")
    assert found.laws == ("compose", "gone")
    assert found.bounded == ("gone: p == identity_perm(rank(x))",)
    assert "hold in all 40 instances drawn" in found.detail


def test_sequences_are_looked_at_in_two_lengths():
    found = entail(
        rule(
            "transpose(concat(*[relu(x) for x in xs], axis=k), perm=p) "
            "=> relu(concat(*[transpose(x, perm=p) for x in xs], axis=place(p, k)))"
        ),
        LAWS,
    )
    assert found.verdict == "proved"
    assert found.detail.endswith("sequences of 2 and 3")


def test_a_solver_that_gives_up_proves_nothing():
    text = "relu(transpose(transpose(x, perm=p), perm=q)) => transpose(relu(x), perm=compose(p, q))"
    found = entail(rule(text), LAWS, steps=1)
    assert (found.verdict, found.method) == ("undecided", "")
    assert found.detail.startswith("Z3 does not confirm the step by ")


def test_the_same_question_has_the_same_answer():
    text = "transpose(transpose(x, perm=p), perm=inverse(p)) => x"
    assert entail(rule(text), LAWS) == entail(rule(text), LAWS)


def test_what_laws_ask_of_element_types_follows_from_premises_or_is_no_proof():
    text = "(x + y) + z => (z + x) + y"
    assert entail(rule(text), LAWS).detail == "its conditions do not imply associates: wide(x)"
    assert entail(rule(f"{text} if wide(y)"), LAWS).verdict == "proved"
    assert entail(rule(f"{text} if floating(x)"), LAWS).verdict == "undecided"


def test_premises_that_a_rule_lacks_are_supplied_and_no_more():
    stronger, found = with_conditions(rule("z * (y + x) => x * z + y * z if rank(x) == 2"), [*LAWS, TIMES])
    assert stronger.text == "z * (y + x) => x * z + y * z if rank(x) == 2, wide(x), finite(x, y, z)"
    assert (found.verdict, set(found.laws)) == ("proved", {"commutes", "times", "distributes"})
    plain = rule("relu(y + x) => relu(x + y)")
    assert with_conditions(plain, LAWS)[0] is plain
    false = rule("relu(x) => x")
    assert (with_conditions(false, LAWS)[0], with_conditions(false, LAWS)[1].verdict) == (false, "undecided")


def test_constancy_is_no_premise_but_values_are():
    known = parse_rules(
        "merge: (x + c) + d => x + (c + d) if constant(c, d), wide(x)\nzero: x + c => x if is_all(c, 0), spans(x, c)"
    )
    assert entail(rule("(x + y) + z => x + (y + z) if wide(x)"), known).method == "law"
    assert entail(rule("relu(x + c) => relu(x) if spans(x, c)"), known).verdict == "undecided"
    assert entail(rule("relu(x + c) => relu(x) if spans(x, c), is_all(c, 0)"), known).verdict == "proved"


@pytest.mark.parametrize(
    "false",
    [
        *parse_rules((POWER / "false.rules").read_text(), "false.rules", origin="candidate"),
        *parse_rules(
            """
zero: x * c => c if is_all(c, 0), floating(x), spans(c, x)
axis: softmax(transpose(x, perm=p), axis=k) => transpose(softmax(x, axis=k), perm=p)
distributed: (x + y) * z => x * z + y * z if floating(x)
twice: reduce_sum(eye(n=n, dtype=d), axes=(0, 1)) => reduce_sum(eye(n=n, dtype=d) + eye(n=n, dtype=d), axes=(0, 1))
sizes: reduce_sum(eye(n=n, dtype=d), axes=(0, 1)) => reduce_sum(eye(n=n + 1, dtype=d), axes=(0, 1))
turned: transpose(x @ y, perm=p) => transpose(x, perm=p) @ transpose(y, perm=p) if rank(x) == rank(y)
""",
            origin="candidate",
        ),
    ],
    ids=lambda one: one.name,
)
def test_a_false_rule_is_never_proved(false):
    about = false.operators() | {"add", "mul", "concat", "transpose", "slice"}
    assert entail(false, [law for law in laws() if law.operators() <= about]).verdict == "undecided"


def test_laws_that_contradict_one_another_prove_nothing_by_that():
    broken = [*LAWS, *parse_rules("odd: relu(x) => sigmoid(x) if dtype(x) == 1, dtype(x) == 2")]
    assert entail(rule("relu(x) => sigmoid(x)"), broken).verdict == "undecided"
    assert entail(rule("relu(x + y) => relu(y) if 1 == 2"), LAWS).verdict == "undecided"
