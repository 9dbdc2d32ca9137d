"""`eqsat rules verify`, `prune`, `report` and `show` on the command line."""

import json

import pytest

from eqsat import cli
from eqsat.rewrites.discovery.equations.candidate import CandidateEquation, write_candidates
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = cli.run(["rules", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def candidates(tmp_path):
    shapes = {"x": (3, 3)}
    write_candidates(
        [
            CandidateEquation("c1", ("relu(relu(x))",), ("relu(x)",), shapes, 2, 1),
            CandidateEquation("c2", ("abs(relu(x))",), ("relu(x)",), shapes, 2, 1),
        ],
        tmp_path / "candidates.jsonl",
    )
    return tmp_path / "candidates.jsonl"


def test_candidates_become_verified_rules_and_these_a_file_of_rules(run, candidates, tmp_path):
    code, out, _ = run("verify", candidates, "-o", "verified.jsonl")
    assert code == 0
    assert out.splitlines() == ["2 candidates: 1 derived, 1 plausible", "0 rules proved"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["candidates.jsonl", "verified.jsonl"]
    code, out, _ = run("prune", "verified.jsonl", "-o", "out.rules")
    assert (code, out.splitlines()[0]) == (0, "0 rules, 0 kept")
    assert parse_rules((tmp_path / "out.rules").read_text()) == ()
    assert (tmp_path / "out.dropped.jsonl").read_text() == ""


def test_verified_candidates_need_a_file_of_their_own(run, candidates):
    code, _, err = run("verify", candidates)
    assert code == 2
    assert "verified candidates have no file to go to" in err and "-o verified.jsonl" in err
    code, _, err = run("verify", candidates, "-o", candidates)
    assert code == 2 and "the target is the input" in err


def test_rules_and_candidates_are_not_verified_together(run, candidates, tmp_path):
    (tmp_path / "some.rules").write_text("a: relu(relu(x)) => relu(x)\n")
    code, _, err = run("verify", "some.rules", candidates)
    assert code == 2 and "files of rules and of candidates together" in err
    code, _, err = run("verify", "some.rules", "-o", "out")
    assert code == 2 and "-o is for verified candidates" in err


def test_a_file_that_holds_no_candidates_names_the_line(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"name": 1}\n')
    code, _, err = run("verify", "bad.jsonl", "-o", "out.jsonl")
    assert code == 2 and "bad.jsonl:1: no candidate" in err
    code, _, err = run("prune", "bad.jsonl", "-o", "out.rules")
    assert code == 2 and "bad.jsonl:1: no verified candidate" in err


def test_the_report_counts_what_the_files_hold(run):
    code, out, _ = run("report", "--json")
    found = json.loads(out)
    rules = shipped_rules()
    assert code == 0
    assert found["library"] == sum(r.origin == "library" for r in rules) == found["counts"]["pruned"]["kept"]
    assert [r["name"] for r in found["by_hand"]] == [r.name for r in rules if r.origin == "axiom"]
    assert all(r["reason"] for r in found["by_hand"])
    assert found["counts"]["published_reduction"] == 39
    code, out, _ = run("report")
    assert code == 0
    for rule in (*found["by_hand"], *found["missing"]):
        assert rule["name"] in out
    assert f"library: {found['library']} rule" in out
    assert f"candidates for each rule kept: {found['counts']['reduction']} (published: 39)" in out


def test_a_rule_is_shown_with_its_evidence_and_where_it_fired(run):
    code, out, _ = run("show", "matmul-associates")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("matmul-associates: x @ (y @ z) => x @ y @ z")
    assert "phase:      expand" in lines
    assert "condition:  wide(x)" in lines
    assert any(line.startswith("evidence:   proved") for line in lines)
    assert any(line.startswith("fired:") for line in lines)


def test_an_unknown_rule_brings_the_closest_ones(run):
    code, _, err = run("show", "matmul-asociates")
    assert code == 2
    assert "no rule 'matmul-asociates'" in err and "did you mean matmul-associates" in err
