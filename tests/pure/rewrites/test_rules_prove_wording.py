"""What `rules prove` says of equations that no instance meets, and of lines that are no equations."""

import json

import pytest

from eqsat import cli
from eqsat.language.declaration import registry
from eqsat.language.ops import op
from eqsat.rewrites.proof.prove import prove
from eqsat.rewrites.proof.unmet import Unmet, unmet
from eqsat.rewrites.rules.parser import parse_each, parse_rules


def equation(text):
    return parse_rules(f"equation: {text}", origin="asked")[0]


RANKS = {"x": (0, 1, 2, 3, 4), "w": (4,), "y": (0, 2, 3)}
SAID = {
    "no instance meets the conditions: rank(x) == 9 refuses all 1990 that type, of 2000 drawn; "
    "tried x of rank 0 to 4, w of rank 4, y of rank 0 or 2 or 3": Unmet(
        2000, 1990, "rank(x) == 9", {"rank(x) == 9": 1990, "finite(x)": 2}, ranks=RANKS
    ),
    "no instance meets the conditions: each holds in some, all in none; of 7 that type are refused by a == b 6, c 1, "
    "of 9 drawn; tried x of rank 1": Unmet(9, 7, "a == b", {"a == b": 6, "c": 1}, ranks={"x": (1,)}),
    "no instance meets the conditions: the right side's attributes have a value in none of 7 that type, of 9 drawn": (
        Unmet(9, 7)
    ),
    "none of 2000 draws fits the left side: transpose(concat(x, y, axis=5), perm=(1, 0)) is in none; "
    "tried concat(x, y, axis=5) of rank 6": Unmet(
        2000,
        0,
        part="transpose(concat(x, y, axis=5), perm=(1, 0))",
        ranks={"concat(x, y, axis=5)": (6,)},
    ),
    "none of 2000 draws fits the left side": Unmet(2000, 0),
}


@pytest.mark.parametrize("text", SAID)
def test_the_account_of_draws_says_what_refused_and_what_was_tried(text):
    assert str(SAID[text]) == text


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("relu(x) => x if rank(x) == 9", "rank(x) == 9"),
        ("relu(x) + y => x + y if rank(x) >= 1, shape(x)[0] == 1 + 3000, finite(y)", "shape(x)[0] == 1 + 3000"),
        ("relu(x) => reshape(x, shape=shape(x)[25])", ""),
    ],
)
def test_the_condition_that_no_instance_meets_is_named_with_what_was_tried(text, condition):
    proof = prove(equation(text), ())
    assert (proof.verdict, proof.detail) == ("undecided", str(proof.unmet))
    assert proof.unmet.condition == condition
    assert proof.unmet.refusals.get(condition, 0) in (0, proof.unmet.typed)
    assert proof.unmet.typed and {0, 1, 2, 3, 4} <= set(proof.unmet.ranks["x"])


@pytest.mark.parametrize(
    ("text", "part", "tried"),
    [
        ("transpose(concat(x, y, axis=5), perm=(1, 0)) => y", "transpose(concat(x, y, axis=5), perm=(1, 0))", 6),
        ("relu(reduce_sum(conv(x, w), axes=(9,))) => x", "reduce_sum(conv(x, w), axes=(9,))", 4),
    ],
)
def test_the_term_that_never_types_is_named_with_what_was_tried(text, part, tried):
    missed = prove(equation(text), ()).unmet
    assert (missed.typed, missed.part, missed.condition) == (0, part, "")
    ((_, ranks),) = missed.ranks.items()
    assert tried in ranks


def test_conditions_that_hold_only_apart_are_counted():
    missed = unmet(equation("x @ y => y @ x if rank(x) == 1, rank(x) == 2, finite(x)"))
    assert 0 < missed.typed <= missed.tries
    assert set(missed.refusals) == {"rank(x) == 1", "rank(x) == 2"}
    assert missed.refusals[missed.condition] == max(missed.refusals.values()) < missed.typed


FILE = """good: relu(relu(x)) => relu(x)
bad: relu(x) => relu(y)
relu(x) => x
%phase nonsense
both: relu(x) <=> rleu(x)
good: abs(abs(x)) => abs(x)
false: relu(-x) => -relu(x)
unmet: relu(x) => x if rank(x) == 9
last: relu(relu(relu(x))) => relu(x)
"""


@pytest.fixture
def run(capsys, tmp_path):
    (tmp_path / "asked.rules").write_text(FILE)
    (tmp_path / "known.rules").write_text("twice: relu(relu(x)) => relu(x)\n")

    def call(*arguments):
        code = cli.run(["rules", "prove", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_each_line_that_is_no_equation_is_named_and_the_others_are_judged(tmp_path, run):
    asked = tmp_path / "asked.rules"
    code, out, error = run(asked, "--rules", tmp_path / "known.rules")
    assert code == 2
    assert [line for line in out.splitlines() if not line.startswith(("refuted", "undecided", "  relu", "  ="))] == [
        "proved    good in 24 instances",
        "  sizes: every rank and size",
        f"malformed bad: {asked}:2:17: right side uses unbound variable 'y'",
        "  expected one of 'x'",
        f"malformed {asked}:3:1: a rule has no name",
        "  expected name: lhs => rhs",
        "  put a name and a colon before it",
        f"malformed {asked}:4:1: '%phase nonsense' is no directive",
        "  expected %phase and one of simplify, expand, merge, fuse, associate; or %because and a reason; "
        "or %each f in operators; or %end",
        f"malformed both: {asked}:5:19: no operator 'rleu'",
        "  expected a declared operator",
        "  did you mean relu or trilu or prelu?",
        f"malformed {asked}:6:1: rule 'good' is already there",
        f"  expected names used once; {asked}:1:7 has this one",
        "  choose another name",
        "proved    last in 24 instances",
        "  sizes: every rank and size",
        "9 equations: 2 proved, 5 malformed, 1 refuted, 1 undecided",
    ]
    assert "refuted   false: float64 differs by " in out
    assert "undecided unmet: no instance meets the conditions: rank(x) == 9 refuses all " in out
    assert error == (
        f"error: 7 equations not proved: bad, {asked}:3:1, {asked}:4:1, both, {asked}:6:1, false, unmet\n"
        "  expected equations that the rules prove\n"
    )


def test_json_has_the_place_the_fault_and_what_was_tried(tmp_path, run):
    asked = tmp_path / "asked.rules"
    code, out, _ = run(asked, "--rules", tmp_path / "known.rules", "--json", "-")
    found = json.loads(out)
    assert code == 2
    assert [(p["name"], p["verdict"]) for p in found] == [
        ("good", "proved"),
        ("bad", "malformed"),
        ("", "malformed"),
        ("", "malformed"),
        ("both", "malformed"),
        ("", "malformed"),
        ("false", "refuted"),
        ("unmet", "undecided"),
        ("last", "proved"),
    ]
    assert [p["where"] for p in found] == [
        f"{asked}:{place}" for place in ("1:7", "2:17", "3:1", "4:1", "5:19", "6:1", "7:8", "8:8", "9:7")
    ]
    assert found[1]["error"] == {
        "what": "right side uses unbound variable 'y'",
        "where": f"{asked}:2:17",
        "expected": "one of 'x'",
        "remedy": "",
    }
    assert all((p["error"] is None) == (p["verdict"] != "malformed") for p in found)
    missed = found[7]["unmet"]
    assert (missed["condition"], missed["part"]) == ("rank(x) == 9", "")
    assert missed["refusals"] == {"rank(x) == 9": missed["typed"]}
    assert missed["ranks"]["x"][:5] == [0, 1, 2, 3, 4]


def test_faults_of_a_text_stand_in_the_order_of_its_lines():
    each = parse_each(FILE, "f", origin="asked")
    assert [one.name for one in each] == ["good", "bad", "", "", "both", "", "false", "unmet", "last"]
    assert parse_each("", "f") == () and parse_each("# nothing", "f") == ()


@pytest.fixture
def unsampled():
    op("unsampled", infer=lambda operands, attrs: [operands[0]])(lambda xp, x: x)
    yield
    registry.forget("unsampled")


def test_an_operator_without_a_sample_rule_is_a_fault_of_its_line(tmp_path, run, unsampled):
    asked = tmp_path / "more.rules"
    asked.write_text("bare: unsampled(x) => x\nnext: relu(relu(x)) => relu(x)\n")
    code, out, _ = run(asked, "--rules", tmp_path / "known.rules")
    assert code == 2
    assert f"malformed bare: {asked}:1:7: {__file__}:" in out and ": operator 'unsampled' has no sample rule\n" in out
    assert "proved    next in 24 instances" in out


def test_an_equation_of_a_bare_variable_says_that_it_is_proved_from_right_to_left(tmp_path, run):
    asked = tmp_path / "more.rules"
    asked.write_text("Bare: X => identity(X) * 1\nfalse: x => relu(x)\n")
    code, out, _ = run(asked, "--json", tmp_path / "proofs.json")
    assert code == 2
    assert out.startswith("proved    Bare in 24 instances, from right to left\n  identity(X) * 1.0\n")
    assert [p["swapped"] for p in json.loads((tmp_path / "proofs.json").read_text())] == [True, True]


def test_what_numbers_imply_is_said_with_the_verdict(tmp_path, run):
    asked = tmp_path / "more.rules"
    asked.write_text("halves: x + 0.5 => 0.5 + x\nlarge: x + 300 => 300 + x if rank(x) == 1\nsmall: x + 7 => 7 + x\n")
    code, out, _ = run(asked, "--json", tmp_path / "proofs.json")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("proved")] == [
        "proved    halves in 24 instances, if floating(x)",
        "proved    large in 24 instances, if representable(x, 300)",
        "proved    small in 24 instances",
    ]
    proofs = json.loads((tmp_path / "proofs.json").read_text())
    assert [p["implied"] for p in proofs] == [["floating(x)"], ["representable(x, 300)"], []]


def test_side_conditions_that_no_condition_implies_are_listed_as_seen_on_instances(tmp_path, capsys):
    file = tmp_path / "two.rules"
    file.write_text(
        "there: reshape(reshape(x, shape=s), shape=t) => x if t == shape(x)\nplain: relu(-(-x)) => relu(x)\n"
    )
    assert cli.run(["rules", "prove", str(file), "--json", str(tmp_path / "out.json")]) == 0
    assert "  seen only on instances: reshape-gone: shape(x) == s\n" in capsys.readouterr().out
    there, plain = json.loads((tmp_path / "out.json").read_text())
    assert there["assumed"] == ["reshape-gone: shape(x) == s"]
    assert plain["assumed"] == []
