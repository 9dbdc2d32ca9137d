"""Equations are proved by chains of rules, refuted by counterexamples, or undecided; the published laws are proved."""

import json
from pathlib import Path

import pytest

from benchmarks.rules.power import lacking, lacking_table
from eqsat import cli
from eqsat.egraph.saturation import Limits
from eqsat.errors import RuleError
from eqsat.rewrites.proof.chains.search import both_ways
from eqsat.rewrites.proof.prove import LIMITS, prove
from eqsat.rewrites.rules.loader import laws
from eqsat.rewrites.rules.parser import parse_rules

POWER = Path(__file__).parents[3] / "docs" / "power"
PUBLISHED = parse_rules((POWER / "published.rules").read_text(), "published.rules", origin="axiom")
FALSE = parse_rules((POWER / "false.rules").read_text(), "false.rules", origin="candidate")
#: A handful of rules, enough for the chains below.
RULES = parse_rules(
    """
    compose: transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=compose(p, q))
    gone: transpose(x, perm=p) => x if p == identity_perm(rank(x))
    product: transpose(x @ y, perm=p) => transpose(y, perm=p) @ transpose(x, perm=p)
      if rank(x) == rank(y), rank(x) >= 2, p[-2:] == (len(p) - 1, len(p) - 2)
    relu-turned: relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)
    %phase associate
    associate: x @ (y @ z) => (x @ y) @ z if wide(x), rank(x) >= 2, rank(y) >= 2, rank(z) >= 2, finite(x, y, z)
    """.replace("\n    ", "\n")
)


def equation(text):
    return parse_rules(f"equation: {text}", origin="candidate")[0]


@pytest.mark.parametrize("law", PUBLISHED, ids=lambda law: law.name)
def test_every_published_law_in_its_true_form_is_proved(law):
    proof = prove(law, laws())
    assert proof.verdict == "proved", proof.detail or proof.counterexample
    assert proof.rules


def test_the_published_laws_are_all_there():
    assert [law.name for law in PUBLISHED] == [f"law-{n}" for n in range(1, 45)]


@pytest.mark.parametrize("rule", FALSE, ids=lambda rule: rule.name)
def test_what_is_false_as_published_is_refuted_with_a_counterexample(rule):
    proof = prove(rule, ())
    assert proof.verdict == "refuted"
    assert "float64[" in proof.counterexample
    assert any(why in proof.counterexample for why in ("differs by", "types differ", "does not type"))


def test_a_chain_goes_from_term_to_term_by_one_rule_each():
    proof = prove(
        equation("transpose(transpose(x, perm=(1, 0)) @ transpose(y, perm=(1, 0)), perm=(1, 0)) => y @ x"), RULES
    )
    assert proof.verdict == "proved"
    assert proof.chain[0] == "transpose(transpose(x, perm=(1, 0)) @ transpose(y, perm=(1, 0)), perm=(1, 0))"
    assert proof.chain[1].endswith("[product]")
    assert proof.chain[-1].startswith("= y @ x  [")
    assert {line.rpartition("[")[2] for line in proof.chain[1:]} == {"product]", "compose]", "gone]"}
    assert len(proof.chain) == 6


def test_each_step_of_a_chain_follows_from_its_rule_alone():
    proof = prove(
        equation("relu(transpose(transpose(x, perm=p), perm=q)) => transpose(relu(x), perm=compose(p, q))"), RULES
    )
    by_name = {rule.name: rule for rule in RULES}
    terms = [line.removeprefix("= ").partition("  [")[0] for line in proof.chain]
    used = [line.rpartition("[")[2].rstrip("]").partition(",")[0] for line in proof.chain[1:]]
    steps = list(zip(terms, terms[1:], used, strict=False))
    assert len(steps) >= 2
    for before, after, name in steps:
        filled = [
            t.replace("compose(p, q)", "(2, 0, 1)").replace("=p", "=(2, 0, 1)").replace("=q", "=(0, 1, 2)")
            for t in (before, after)
        ]
        step = prove(equation(" => ".join(filled)), [by_name[name]])
        assert (step.verdict, set(step.rules)) == ("proved", {name})


def test_general_associativity_is_used():
    proof = prove(
        equation(
            "x @ (y @ (z @ w)) => ((x @ y) @ z) @ w "
            "if wide(x), rank(x) >= 2, rank(y) >= 2, rank(z) >= 2, rank(w) >= 2, finite(x, y, z, w)"
        ),
        RULES,
    )
    assert (proof.verdict, proof.rules) == ("proved", ("associate",))


def test_conditions_are_premises():
    text = "x @ (y @ z) => (x @ y) @ z if wide(x), rank(x) >= 2, rank(y) >= 2, rank(z) >= 2"
    assert prove(equation(text + ", finite(x, y, z)"), RULES).verdict == "proved"
    assert prove(equation(text + ", finite(x, y)"), RULES).verdict != "proved"


def test_every_output_of_several_is_proved():
    (group,) = parse_rules(
        "merge: [x @ w for w in ws] => split(x @ concat(*ws, axis=1), axis=rank(x) - 1, sizes=[dim(w, 1) for w in ws]) "
        "if rank(x) >= 2, all(rank(w) == 2 for w in ws), all(dim(w, 0) == dim(ws[0], 0) for w in ws)"
    )
    proof = prove(group, laws())
    assert proof.verdict == "proved"
    assert sum(not line.startswith("= ") for line in proof.chain) >= 2
    half, other = "slice(x, axes=(0,), starts=(0,), ends=(1,))", "slice(x, axes=(0,), starts=(1,), ends=(2,))"
    text = f"pair: relu(relu({half})), relu({other}) => relu({half}), relu(x) if dim(x, 0) == 2"
    (pair,) = parse_rules(text, origin="candidate")
    assert prove(pair, laws()).verdict == "refuted"


def test_what_limits_end_is_undecided_with_the_limit_that_was_met():
    text = "relu(transpose(transpose(x, perm=p), perm=q)) => transpose(relu(x), perm=compose(p, q))"
    assert prove(equation(text), ()).detail.startswith("saturated")
    few = prove(equation(text), RULES, Limits(nodes=3, seconds=10.0))
    assert (few.verdict, few.detail.partition(";")[0]) == ("undecided", "node_limit")


def test_the_gap_of_an_undecided_equation_is_named():
    proof = prove(equation("relu(sigmoid(transpose(x, perm=p))) => relu(transpose(sigmoid(x), perm=p))"), RULES)
    assert proof.verdict == "undecided"
    assert proof.missing == "sigmoid(transpose(x, perm=p)) => transpose(sigmoid(x), perm=p)"
    assert proof.detail == f"saturated; would follow from {proof.missing}"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("tanh(-x) => -tanh(x)", ""),
        ("-tanh(x) => tanh(-x)", ""),
        ("exp(x + y) => exp(x) * exp(y)", ""),  # nor the same with a product of factors in another order
        ("1 - sigmoid(x) => sigmoid(-x)", ""),  # nor with a difference as a sum
        ("tanh(-relu(x)) * v => -tanh(relu(x)) * v", "tanh(neg(u)) => neg(tanh(u))"),
        ("tanh(-relu(u)) * v => -tanh(relu(u)) * v", "tanh(neg(r)) => neg(tanh(r))"),
        ("tanh(-x), relu(x) => -tanh(x), relu(x)", "tanh(neg(x)) => neg(tanh(x))"),
        (
            "concat(*[tanh(-x) for x in xs], axis=k) => concat(*[-tanh(x) for x in xs], axis=k)",
            "tanh(neg(u)) => neg(tanh(u))",
        ),
    ],
)
def test_what_an_equation_would_follow_from_is_smaller_than_the_equation(text, missing):
    proof = prove(equation(text), laws())
    assert (proof.verdict, proof.missing) == ("undecided", missing)
    hint = f"would follow from {missing}" if missing else "no smaller equation was found that it would follow from"
    assert proof.detail == f"saturated; {hint}"


def test_what_a_set_lacks_is_what_it_does_not_derive():
    rules = parse_rules(
        """
back: transpose(transpose(relu(x), perm=p), perm=q) => relu(transpose(x, perm=compose(p, q)))
sigmoids: sigmoid(transpose(x, perm=p)) => transpose(sigmoid(x), perm=p)
"""
    )
    assert [r.name for r in both_ways(RULES[:1])] == ["compose"]  # the record of a composition has no names to bind
    assert [r.name for r in lacking(rules, RULES)] == ["sigmoids"]
    table = lacking_table(rules, RULES)
    assert table.startswith("1 of 2 rules are not derived from the 5 laws.\n")
    assert "| sigmoids | `sigmoid(transpose(x, perm=p)) => transpose(sigmoid(x), perm=p)` |" in table


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = cli.run(["rules", "prove", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_command_says_of_each_equation_what_was_found(tmp_path, run):
    known, asked, written = tmp_path / "known.rules", tmp_path / "asked.rules", tmp_path / "proofs.json"
    known.write_text("twice: relu(relu(x)) => relu(x)\n")
    asked.write_text("thrice: relu(relu(relu(x))) => relu(x)\n")
    assert run(asked, "--rules", known, "--json", written)[:2] == (
        0,
        "proved    thrice in 24 instances\n  relu(relu(relu(x)))\n  = relu(relu(x))  [twice]\n  = relu(x)  [twice]\n"
        "  sizes: every rank and size\n1 equation: 1 proved\n",
    )
    (proof,) = json.loads(written.read_text())
    assert (proof["verdict"], proof["rules"]) == ("proved", ["twice"])
    asked.write_text("wrong: relu(-x) => -relu(x)\nopen: tanh(-x) => -tanh(x)\n")
    code, out, error = run(asked, "--rules", known, "--time-limit", "5")
    assert code != 0
    assert "refuted   wrong: float64 differs by " in out
    assert "undecided open: saturated; no smaller equation was found that it would follow from\n" in out
    assert out.endswith("2 equations: 1 refuted, 1 undecided\n")
    assert "2 equations not proved: wrong, open" in error


def test_a_file_of_equations_that_cannot_be_read_is_named(tmp_path, run):
    path = tmp_path / "bad.rules"
    path.write_bytes(b"\xff\xfe")
    code, _, error = run(path)
    assert code != 0
    assert "cannot be read" in error


def test_a_rule_that_is_false_is_found_out_when_it_joins_two_types():
    false = parse_rules("false: x * y => y\n", origin="candidate")
    with pytest.raises(RuleError, match="rule false made"):
        prove(equation("relu(x * y) => relu(relu(x * y)) if rank(x) == 2, rank(y) == 1"), false, LIMITS)
