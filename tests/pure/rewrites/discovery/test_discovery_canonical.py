"""One form for rules that differ in names and order, which rule is the more general, and common subgraphs."""

import pytest

from eqsat.rewrites.discovery.equations.canonical import canonical, distinct, generalises
from eqsat.rewrites.discovery.equations.sides import RuleStatement, written
from eqsat.rewrites.discovery.equations.subgraph import common_inputs, common_outputs, lifted
from eqsat.rewrites.proof.check import check
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules


def statement(text):
    (rule,) = parse_rules(f"rule: {text}", origin="candidate")
    return RuleStatement.of(rule)


SAME = [
    ("relu(x + y) => relu(y + x)", "relu(a + b) => relu(b + a)"),
    ("(x + y) * z => x * z + y * z", "c * (b + a) => b * c + c * a"),
    ("transpose(transpose(x, perm=p), perm=q) => x", "transpose(transpose(y, perm=a), perm=b) => y"),
    ("conv(x, w, **a) => conv(x, w, **a)", "conv(y, k, **r) => conv(y, k, **r)"),
    ("x @ y, x @ z => x @ y, x @ z", "a @ c, a @ b => a @ c, a @ b"),
    ("relu(x) => relu(x) if rank(x) == 2, finite(x)", "relu(y) => relu(y) if finite(y), 2 == rank(y)"),
    (
        "concat(*[relu(x) for x in xs], axis=k) => relu(concat(*xs, axis=k)) if all(rank(x) == 2 for x in xs)",
        "concat(*[relu(t) for t in ts], axis=a) => relu(concat(*ts, axis=a)) if all(rank(y) == 2 for y in ts)",
    ),
    (
        "[x @ w for w in ws] => split(x @ concat(*ws, axis=1), axis=1, sizes=[dim(w, 1) for w in ws])",
        "[y @ v for v in vs] => split(y @ concat(*vs, axis=1), axis=1, sizes=[dim(u, 1) for u in vs])",
    ),
    ("softmax(x, axis=-1) => softmax(x, axis=-1)", "softmax(y) => softmax(y)"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_names_and_orders_do_not_tell_rules_apart(one, other):
    assert canonical(statement(one)) == canonical(statement(other))


DIFFERENT = [
    ("x @ y + z => x @ y + z", "x @ x + z => x @ x + z"),
    ("x - y => x - y", "x - y => y - x"),
    ("softmax(x, axis=k) => x", "softmax(x, axis=0) => x"),
    ("relu(x) => x if finite(x)", "relu(x) => x"),
    ("x @ y, x @ z => x @ y, x @ z", "x @ y, z @ y => x @ y, z @ y"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_rules_that_say_different_things_stay_apart(one, other):
    assert canonical(statement(one)) != canonical(statement(other))


def test_only_equations_may_be_turned_round():
    one, other = statement("relu(relu(x)) => relu(x)"), statement("relu(x) => relu(relu(x))")
    assert canonical(one) != canonical(other)
    assert canonical(one, directed=False) == canonical(other, directed=False)


def test_every_shipped_rule_reads_back_from_its_written_form():
    rules = shipped_rules()
    for rule in rules:
        again = RuleStatement.of(rule).rule(rule.name, rule.phase)
        assert canonical(RuleStatement.of(again)) == canonical(RuleStatement.of(rule)), rule.name
        assert (again.left, again.right) == (rule.left, rule.right), rule.name


def test_written_patterns_keep_their_meaning():
    for text in ("(x + y) @ (z * w) - x", "x - (y - z)", "(x @ y) @ z", "x @ (y @ z)", "x / (y * z)", "-x * -(x + y)"):
        assert written(statement(f"{text} => x").roots[0]) == text


def test_the_first_of_equal_rules_stays():
    texts = {"a": "relu(x + y) => relu(y + x)", "b": "relu(p + q) => relu(q + p)", "c": "relu(x) => x"}
    kept, repeated = distinct((n, statement(t)) for n, t in texts.items())
    assert (kept, repeated) == (["a", "c"], {"b": "a"})


GENERAL = [
    # Two variables of the general rule are one in the special one.
    ("x @ y + x @ z => x @ (y + z)", "x @ y + x @ y => x @ (y + y)"),
    ("(x + y) * z => x * z + y * z", "relu(w) * (v + v) => v * relu(w) + v * relu(w)"),
    ("transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=compose(p, q))",) * 2,
    ("softmax(x, axis=k) + y => y + softmax(x, axis=k)", "softmax(x, axis=2) + y => y + softmax(x, axis=2)"),
    ("relu(x) + y => y + relu(x)", "relu(x) + y => y + relu(x) if finite(x)"),
    ("conv(x, w, **a) + y => y + conv(x, w, **a)", "conv(x, w, **b) + x => x + conv(x, w, **b)"),
]


@pytest.mark.parametrize(("general", "special"), GENERAL)
def test_a_substitution_makes_the_general_rule_the_special_one(general, special):
    assert generalises(statement(general), statement(special))


@pytest.mark.parametrize(("general", "special"), [pair for pair in GENERAL if pair[0] != pair[1]])
def test_no_substitution_makes_the_special_rule_the_general_one(general, special):
    assert not generalises(statement(special), statement(general))


def test_conditions_of_the_general_rule_must_be_among_those_of_the_special_one():
    general = statement("x @ y => y @ x if rank(x) == 2")
    assert generalises(general, statement("z @ z => z @ z if 2 == rank(z), finite(z)"))
    assert not generalises(general, statement("z @ z => z @ z if rank(z) == 3"))


def texts(found):
    return [s.text for s in found]


def test_a_subterm_that_holds_its_variables_becomes_a_variable():
    found = texts(common_inputs(statement("relu(x @ w) + y => y + relu(x @ w) if rank(w) == 2")))
    assert found == ["t + y => y + t", "relu(t) + y => y + relu(t)"]


def test_a_subterm_whose_variable_occurs_elsewhere_stays():
    assert texts(common_inputs(statement("relu(x) + x => x + relu(x)"))) == []


def test_a_subterm_without_variables_stays():
    rule = "x @ eye(n=n, dtype=d) => x"
    assert texts(common_inputs(statement(rule))) == []


def test_conditions_pass_from_an_operand_to_a_result_of_its_shape():
    found = texts(common_inputs(statement("relu(x) @ y => relu(x) @ y if rank(x) == 2, rank(y) == 2, wide(x)")))
    assert found == ["t @ y => t @ y if rank(y) == 2", "t @ y => t @ y if rank(t) == 2, rank(y) == 2, wide(t)"]


def test_the_operator_that_both_sides_end_in_goes():
    found = texts(common_outputs(statement("w * relu(x + y) => relu(y + x) * w if finite(w), finite(x)")))
    assert found == ["relu(x + y) => relu(y + x)", "relu(x + y) => relu(y + x) if finite(x)"]


def test_an_output_that_is_the_same_on_both_sides_goes():
    assert texts(common_outputs(statement("x + y, x @ z => y + x, x @ z"))) == ["x + y => y + x"]


def test_the_generalised_rule_may_be_false_and_is_checked():
    """Equal after relu is not equal: what strips must be verified again."""
    (rule,) = parse_rules("rule: relu(relu(x) - relu(-x)) => relu(x) if floating(x)")
    assert check(rule).verdict == "proved"
    stripped = [s.rule("stripped", "simplify") for s in lifted(RuleStatement.of(rule))]
    assert [r.text for r in stripped] == ["relu(x) - relu(-x) => x", "relu(x) - relu(-x) => x if floating(x)"]
    (wrong,) = parse_rules("wrong: relu(relu(x) - abs(x)) => relu(x - abs(x)) if floating(x)")
    assert check(wrong).verdict == "proved"
    verdicts = {s.text: check(s.rule("stripped", "simplify")).verdict for s in lifted(RuleStatement.of(wrong))}
    assert verdicts["relu(x) - abs(x) => x - abs(x) if floating(x)"] == "refuted"
