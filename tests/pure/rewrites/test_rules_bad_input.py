"""Bad rules, bad laws of declarations, stale evidence and solvers that give up: what users are told, and where."""

from dataclasses import replace
from pathlib import Path

import pytest

from eqsat.errors import RuleError
from eqsat.language.ops import spec
from eqsat.options.rules import rules_of
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.proof.verify import verify
from eqsat.rewrites.rules import loader
from eqsat.rewrites.rules.derive import stated_laws
from eqsat.rewrites.rules.evidence import Evidence, basis_hash, is_current, read_evidence, rule_hash, write_evidence
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.ruleset import RuleSource

REFUSED = {
    "r: relu(x) => y": "f.rules:1:15: right side uses unbound variable 'y'\n  expected one of 'x'",
    "r: relu(x) => x if y == 2": "f.rules:1:20: a condition reads unbound 'y'\n  expected 'x'",
    "r: transpose(x, perm=p) => transpose(x, perm=q)": (
        "f.rules:1:28: an attribute of transpose reads unbound 'q'\n  expected 'p', 'x'"
    ),
    "r: relu(x), tanh(x) => relu(x)": (
        "f.rules:1:4: 2 outputs on the left, 1 on the right\n  expected as many outputs on both sides"
    ),
    "r: relu(x => x": "f.rules:1:2: syntax: '(' was never closed\n  expected Python expression syntax",
    "r: relu(x) => x\ns: relu(x => x": "f.rules:2:2: syntax: '(' was never closed\n  expected Python expression syntax",
    "\nr: relu(x)\n  => x\n  if 1 +* 2": "f.rules:4:9: syntax: invalid syntax\n  expected Python expression syntax",
    "\nr: relu(x! => x": "f.rules:2:10: syntax: invalid syntax\n  expected Python expression syntax",
    "\n\nr: relu(x) => x if z for x in y": ("f.rules:3:18: a condition reads unbound 'y', 'z'\n  expected 'x'"),
    "r: x), (relu(x) => x": "f.rules:1:3: syntax: unmatched ')'\n  expected Python expression syntax",
    "r: relu(x) => x if rank(x) >= 0, *wide(x)": (
        "f.rules:1:34: a condition with a star\n  expected an expression that holds or does not"
    ),
    "r: relu(x) => x if len(x, n=1, n=2)": (
        "f.rules:1:20: len is given an argument twice\n  expected each keyword once"
    ),
    "\nr: relu(x)\n  => flor(x)": (
        "f.rules:3:6: no operator 'flor'\n  expected a declared operator\n  did you mean floor"
    ),
}
OTHER = {
    "r: relu(x) => cast(x, to='int64')": (
        "f.rules:1:15: types differ: float64[1] on the left, int64[1] on the right; x: float64[1]"
    ),
    "r: relu(x) => relu(x)\ns: transpose(x, perm=(1, 0))\n  => x": (
        "f.rules:3:6: types differ: float64[1, 2] on the left, float64[2, 1] on the right; x: float64[2, 1]"
    ),
    "r: relu(x) + y => x if floating(x)": (
        "f.rules:1:19: types differ: float64[2] on the left, float64[1] on the right; x: float64[1]; y: float64[2]"
    ),
    "r: relu(x) => split(x, axis=0, sizes=(1, 1))": (
        "f.rules:1:15: types differ: float64[2] on the left, float64[1] and float64[1] on the right; x: float64[2]"
    ),
    "r: relu(x) => reshape(x, shape=(7, 11))": (
        "f.rules:1:15: the right side does not type: reshape of float64[] to [7, 11]; x: float64[]"
    ),
}
REMEDY = (
    "\n  expected outputs of the same types on both sides wherever the conditions hold"
    "\n  correct the right side, or add the condition under which the types agree"
)


@pytest.mark.parametrize("text", REFUSED)
def test_a_rule_that_is_not_well_formed_is_refused_where_it_is_wrong(text: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(text, "f.rules")
    assert str(caught.value).startswith(REFUSED[text])


@pytest.mark.parametrize("text", OTHER)
def test_a_right_side_of_another_type_is_refused_with_both_types_and_an_instance(text: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(text, "f.rules")
    assert str(caught.value) == OTHER[text] + REMEDY


def test_rules_from_a_text_a_file_and_by_hand_are_refused_alike(tmp_path: Path) -> None:
    text = "r: relu(x) => cast(x, to='int64')"
    path = tmp_path / "mine.rules"
    path.write_text(text)
    (asked,) = parse_rules(text, origin="candidate")
    makers = {
        "<text>:1:15": [lambda: loader.load_rules([text]), lambda: loader.check_rules(text)],
        f"{path}:1:15": [lambda: loader.load_rules([path])],
        "right side": [
            lambda: rules_of([Rule("r", "simplify", asked.left, asked.right)]),
            lambda: rules_of([replace(asked, origin="given")]),
        ],
    }
    for where, made in makers.items():
        for make in made:
            with pytest.raises(RuleError, match=r"types differ: .* on the left, int64") as caught:
                make()
            assert caught.value.where == where


def test_what_types_nowhere_is_told_from_what_types_here_and_there() -> None:
    """A rule does not fire where its right side does not type; its check has the last word."""
    (somewhere,) = parse_rules("r: (x @ y) @ z => x @ (y @ z)")
    assert check(somewhere, Effort(numeric=40)).verdict == "refuted"
    with pytest.raises(RuleError, match="the right side does not type: "):
        parse_rules("r: relu(x) @ relu(y) => x @ transpose(y, perm=(0, 1, 2, 3, 4))")


def test_types_that_no_instance_shows_are_left_to_the_check() -> None:
    (rule,) = parse_rules("r: relu(x) => cast(x, to='int64') if rank(x) == 9")
    assert check(rule).verdict == "undecided"


def test_a_rule_that_is_only_asked_about_is_refuted_and_not_refused() -> None:
    (asked,) = parse_rules("r: relu(x) => cast(x, to='int64')", origin="candidate")
    record = check(asked)
    assert (record.verdict, record.detail[:12]) == ("refuted", "types differ")


def test_a_law_of_a_declaration_that_does_not_parse_names_the_line_that_states_it() -> None:
    declared = replace(spec("relu"), laws=("relu(x) => relu(x) if rank(x) = 2",))
    with pytest.raises(RuleError, match=r"relu, law 1: syntax: .*\n.*\n  correct laws= where 'relu' is declared"):
        stated_laws([declared])

    # Not declared, since a false law would then be refused in every other test.
    stated = replace(spec("relu"), reference=lambda xp, x: x, laws=("relu(x) => x + unheard",))
    lines = Path(__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if text.startswith("    stated = "))
    column = lines[line - 1].index("x + unheard") + 1
    with pytest.raises(RuleError) as caught:
        stated_laws([stated])
    assert str(caught.value) == (
        f"{__file__}:{line}:{column}: relu, law 1: right side uses unbound variable 'unheard'\n"
        "  expected one of 'x'\n  correct laws= where 'relu' is declared"
    )


RULES = parse_rules("law: -(-x) => x\nfound: relu(-(-x)) => relu(x)\n")
LAW, FOUND = RULES
EDITED = parse_rules("law: -(-x) => x if floating(x)")[0]
RECORD = Evidence(
    "found",
    rule_hash(FOUND),
    "proved",
    2,
    3,
    entailed="z3",
    laws=("law",),
    basis=basis_hash(["law"], {"law": LAW}),
    ranks=4,
)


def test_editing_a_law_drops_the_evidence_of_what_rests_on_it() -> None:
    assert is_current(FOUND, RECORD, {"law": LAW})
    assert not is_current(FOUND, RECORD, {"law": EDITED})
    assert not is_current(FOUND, RECORD, {})
    assert not is_current(LAW, RECORD, {"law": LAW})


def test_rules_without_current_evidence_are_left_out_and_the_message_says_how_to_verify(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    law = Evidence("law", rule_hash(EDITED), "proved", 2, 3, ranks=4)
    monkeypatch.setattr(loader, "shipped_sources", lambda: tuple(map(RuleSource.of, (EDITED, FOUND))))
    monkeypatch.setattr(loader, "shipped_evidence", lambda: {"law": law, "found": RECORD})
    loader.rules_with_evidence.cache_clear()
    try:
        with pytest.warns(loader.EvidenceWarning) as caught:
            assert EDITED in loader.load_rules()
        assert str(caught[0].message) == (
            "1 of 2 rules have no current evidence and are left out: found\n"
            "  run `eqsat rules verify` to check them again"
        )
    finally:
        loader.rules_with_evidence.cache_clear()


def test_records_written_before_bounded_execution_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    path.write_text('{"name": "found", "hash": "0", "verdict": "proved", "symbolic": 24, "numeric": 80, "exact": 80}\n')
    assert read_evidence(path) == {"found": Evidence("found", "0", "proved", 24, 80, 80)}
    write_evidence([RECORD], path)
    assert read_evidence(path) == {"found": RECORD}


def test_a_solver_that_gives_up_leaves_the_rule_undecided() -> None:
    (rule,) = parse_rules("r: abs(abs(x)) => abs(x)")
    assert check(rule, Effort(numeric=8, symbolic=4)).verdict == "proved"
    record = check(rule, Effort(numeric=8, symbolic=4, solver=1, questions=0))
    assert (record.verdict, record.detail[:15]) == ("undecided", "Z3 says unknown")


def test_what_is_known_is_not_checked_again() -> None:
    known = {"law": Evidence("law", rule_hash(LAW), "proved", 99, 99, bounded=9, ranks=2)}
    fresh, stale = verify([LAW, FOUND], known)
    assert fresh is known["law"]
    assert (stale.name, stale.verdict, stale.symbolic < 99) == ("found", "proved", True)


def test_a_record_without_bounded_instances_is_current_but_made_again() -> None:
    known = {"law": Evidence("law", rule_hash(LAW), "proved", 99, 99)}
    assert is_current(LAW, known["law"])
    (again,) = verify([LAW], known)
    assert again.exhaustive and again.bounded == 341
