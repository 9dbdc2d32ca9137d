"""The library's files, its order, what becomes of candidates, and that all of it can be made again."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from eqsat.errors import RuleError
from eqsat.rewrites.discovery.enumerate.generate import GenerationSettings
from eqsat.rewrites.discovery.equations.candidate import (
    CONSTANT,
    DERIVED,
    FAILED,
    NEUTRAL,
    PLAUSIBLE,
    PROVED,
    REPEATED,
    CandidateEquation,
    read_outcomes,
    verified_rules,
    written_outcomes,
)
from eqsat.rewrites.discovery.journal import Journal
from eqsat.rewrites.discovery.library import (
    COUNTS,
    DROPPED,
    EVIDENCE,
    LIBRARY,
    MISSING,
    RULES,
    Use,
    ordered,
    read_counts,
    read_dropped,
    read_missing,
    read_usage,
    rules_text,
    write_usage,
)
from eqsat.rewrites.discovery.pipeline import assemble, build
from eqsat.rewrites.discovery.verification import verify_candidates
from eqsat.rewrites.rules.evidence import is_current, read_evidence
from eqsat.rewrites.rules.loader import laws, shipped_rules
from eqsat.rewrites.rules.parser import parse_rules

GOLDEN = Path(__file__).parents[3] / "golden" / "library"
SQUARE = {"x": (3, 3), "y": (3, 3), "z": (3, 3)}


def candidate(name, left, right, ours=3, theirs=2, shapes=SQUARE):
    used = {n: s for n, s in shapes.items() if n in left + right}
    return CandidateEquation(name, tuple(left.split(" ; ")), tuple(right.split(" ; ")), used, ours, theirs)


CANDIDATES = [
    candidate("c1", "relu(relu(x))", "relu(x)", 2, 1),
    candidate("c2", "relu(eye(n=3))", "eye(n=3)", 1, 0),
    candidate("c3", "relu(add(eye(n=3), eye(n=3)))", "add(eye(n=3), eye(n=3))", 2, 1),
    candidate("c4", "add(matmul(x, y), matmul(x, z))", "matmul(x, add(y, z))"),
    candidate("c5", "add(matmul(z, y), matmul(z, x))", "matmul(z, add(x, y))"),
    candidate("c6", "add(matmul(relu(x), y), matmul(relu(x), z))", "matmul(relu(x), add(y, z))"),
    candidate("c7", "concat(relu(x), eye(n=3), axis=0)", "relu(concat(x, eye(n=3), axis=0))", 2, 2),
    candidate("c8", "concat(relu(x), eye(n=3), axis=1)", "relu(concat(x, eye(n=3), axis=1))", 2, 2),
]


@pytest.fixture(scope="module")
def some_laws():
    """The laws of a few operators, without what says which constants relu leaves as they are."""
    wanted = {"relu", "add", "matmul", "concat"}
    return [r for r in laws() if r.operators() <= wanted and r.name != "relu-of-nonnegative"]


def test_candidates_are_set_aside_before_they_are_verified(some_laws):
    settled = []

    def generalise(one):
        settled.append(one.name)
        return []

    found = {
        o.name: (o.status, o.by)
        for o in verify_candidates(CANDIDATES, some_laws, everything=True, generaliser=generalise)
    }
    assert found["c1"] == (DERIVED, ("relu-relu",))
    assert found["c3"] == (CONSTANT, ())
    assert found["c4"][0] == DERIVED
    assert found["c5"] == (REPEATED, ("c4",))
    assert found["c6"] == (REPEATED, ("c4",))
    assert settled == ["c2", "c7", "c8"]
    assert found["c7"] == (FAILED, ())


def test_what_laws_prove_leads_to_the_laws_of_its_proof(some_laws):
    """With nothing known, laws that prove candidates settle them, each law once; the rest is generalised."""
    both = candidate("c9", "relu(concat(relu(x), y, axis=0))", "concat(relu(x), relu(y), axis=0)", 3, 2)
    again = candidate("c10", "relu(relu(relu(x)))", "relu(x)", 3, 1)
    found = {o.name: o for o in verify_candidates([*CANDIDATES, both, again], some_laws, known=())}
    led = {n: [name for name, *_ in o.rules] for n, o in found.items()}
    assert found["c1"].status == PROVED and led["c1"] == ["relu-relu"]
    assert found["c1"].evidence[0].entailed == "law"
    assert found["c4"].status == PROVED and set(led["c4"]) <= {r.name for r in some_laws}
    assert found["c9"].status == PROVED and len(led["c9"]) == 1 and "concat" in led["c9"][0]
    assert found["c10"].status == DERIVED and "relu-relu" in found["c10"].by
    assert found["c2"].status == PLAUSIBLE


def test_a_rule_that_came_out_true_sets_later_candidates_aside(some_laws):
    """The same for another axis follows from the general rule; without a law both are only plausible."""
    found = {o.name: o for o in verify_candidates(CANDIDATES, some_laws, everything=True)}
    assert {o.name for o in verify_candidates(CANDIDATES, some_laws) if o.status == NEUTRAL} == {"c7", "c8"}
    assert found["c2"].status == PLAUSIBLE
    fact = found["c2"].rules[0][0]
    assert found["c7"].status == DERIVED and fact in found["c7"].by
    assert found["c8"].status == DERIVED and fact in found["c8"].by


def test_a_law_that_is_left_out_is_the_one_that_is_missed(some_laws):
    """Without the law exactly the candidate that states it lacks one, and it is proposed; with it none does."""
    fewer = [r for r in some_laws if r.operators() != {"relu"}]
    assert len(fewer) == len(some_laws) - 1
    found = {o.name: o for o in verify_candidates(CANDIDATES[:1], fewer)}
    (evidence,) = found["c1"].evidence
    assert found["c1"].status == PLAUSIBLE
    assert evidence.missing == "relu(relu(x)) => relu(x)"


def test_every_executor_and_every_start_give_the_same_file(some_laws, tmp_path):
    whole = written_outcomes(verify_candidates(CANDIDATES, some_laws))
    with ThreadPoolExecutor(2) as executor:
        assert written_outcomes(verify_candidates(CANDIDATES, some_laws, executor=executor)) == whole
    path = tmp_path / "verified.jsonl.partial"
    with pytest.raises(KeyboardInterrupt), Journal(path) as journal:
        for outcome in verify_candidates(CANDIDATES, some_laws, journal=journal):
            if outcome.status == PLAUSIBLE:
                raise KeyboardInterrupt

    def generalise(one):
        assert one.name != "c2", "settled again"
        return []

    with Journal(path) as journal:
        again = written_outcomes(verify_candidates(CANDIDATES, some_laws, generaliser=generalise, journal=journal))
    assert again == whole
    target = tmp_path / "verified.jsonl"
    target.write_text(whole)
    assert written_outcomes(read_outcomes(target)) == whole


def test_a_file_of_something_else_is_refused_with_its_line(tmp_path):
    path = tmp_path / "verified.jsonl"
    path.write_text('{"name": "c1"}\n')
    with pytest.raises(RuleError, match=r"verified.jsonl:1: no verified candidate: 'text'"):
        list(read_outcomes(path))
    usage = tmp_path / "usage.jsonl"
    usage.write_text('{"rule": "a", "model": "b", "fired": 1, "chosen": 0}\n{"rule": 1}\n')
    with pytest.raises(RuleError, match=r"usage.jsonl:2"):
        read_usage(usage)


def test_rules_come_in_the_order_in_which_they_pay(tmp_path):
    text = "%phase expand\na: x + y => y + x\nb: x * y => y * x\nc: -x => -x\n%phase simplify\nd: -(-(-x)) => -x"
    rules = parse_rules(text)
    assert [r.name for r in ordered(rules)] == ["d", "c", "b", "a"]
    uses = [Use("a", "bert", 9, 0), Use("b", "bert", 1, 1), Use("a", "resnet", 2, 0), Use("d", "bert", 0, 0)]
    assert [r.name for r in ordered(rules, uses)] == ["d", "b", "a", "c"]
    write_usage(uses, tmp_path / "usage.jsonl")
    assert read_usage(tmp_path / "usage.jsonl") == sorted(uses, key=lambda u: (u.rule, u.model))
    again = parse_rules(rules_text(ordered(rules, uses)))
    assert [(r.name, r.phase, r.text) for r in again] == [(r.name, r.phase, r.text) for r in ordered(rules, uses)]


def test_assembling_writes_a_library(tmp_path):
    """Cases of a law that only runs on request come out as rules that run by default, entailed by it."""
    known = parse_rules("%phase associate\nneg-neg: -(-x) => x\n%phase simplify\nrelu-relu: relu(relu(x)) => relu(x)")
    candidates = [
        candidate("d1", "relu(relu(x))", "relu(x)", 2, 1),
        candidate("d2", "tanh(neg(neg(x)))", "tanh(x)", 3, 1),
        candidate("d3", "tanh(neg(neg(relu(x))))", "tanh(relu(x))", 4, 2),
        candidate("d4", "abs(neg(x))", "abs(x)", 2, 1),
    ]
    built = assemble(candidates, {"candidates": 20}, known, tmp_path, beyond_laws=True)
    rules = parse_rules((tmp_path / RULES).read_text(), RULES)
    assert [r.text for r in rules] == [r.text for r in built.rules] == ["tanh(--x) => tanh(x)"]
    evidence = read_evidence(tmp_path / EVIDENCE)
    assert all(is_current(r, evidence[r.name]) and evidence[r.name].laws == ("neg-neg",) for r in rules)
    counts = json.loads((tmp_path / COUNTS).read_text())
    assert counts["candidates"] == {
        "all": 4,
        "constant": 0,
        "repeated": 1,
        "derived": 1,
        "neutral": 0,
        "open": 0,
        "proved": 1,
        "plausible": 1,
        "failed": 0,
    }
    assert counts["pruned"]["kept"] == 1
    assert counts["reduction"] == 20
    assert [m["missing"] for m in read_missing(tmp_path / MISSING)] == ["abs(neg(x)) => abs(x) if floating(x)"]
    assert len(read_dropped(tmp_path / DROPPED)) == sum(counts["pruned"].values()) - len(rules)
    again = tmp_path / "again"
    assemble(candidates, {"candidates": 20}, known, again, beyond_laws=True)
    assert all((again / f).read_bytes() == (tmp_path / f).read_bytes() for f in (RULES, EVIDENCE, COUNTS, DROPPED))


def test_the_committed_library_is_as_its_counts_say():
    rules = [r for r in shipped_rules() if r.origin == "library"]
    evidence = read_evidence(LIBRARY / EVIDENCE)
    assert {r.name for r in rules} == set(evidence)
    assert all(is_current(r, evidence[r.name]) and evidence[r.name].entailed for r in rules)
    counts = read_counts()
    assert counts["pruned"]["kept"] == len(rules)
    dropped = read_dropped()
    assert sum(counts["pruned"].values()) - len(rules) == len(dropped)
    assert counts["candidates"]["all"] == sum(n for s, n in counts["candidates"].items() if s != "all")
    written = [r.name for r in parse_rules((LIBRARY / RULES).read_text(), RULES, origin="library")]
    assert written == [r.name for r in ordered(rules, read_usage())]


def test_verified_rules_of_two_candidates_are_one():
    outcomes = []
    (rule,) = parse_rules("r: relu(relu(x)) => relu(x)")
    evidence = replace(next(iter(read_evidence().values())), name="r", verdict="proved", entailed="law")

    def generalise(one):
        return [(rule, evidence)]

    outcomes = list(verify_candidates([CANDIDATES[0], CANDIDATES[6]], [], everything=True, generaliser=generalise))
    assert [o.status for o in outcomes] == [PROVED, PROVED]
    assert list(verified_rules(outcomes)) == ["r"]


def test_a_small_library_is_made_again_byte_for_byte(tmp_path):
    """From declarations and laws to files, at a small bound, standing alone."""
    operators = ("relu", "add", "matmul", "transpose", "concat")
    known = [r for r in laws() if r.operators() <= {*operators, "slice"}]
    settings = GenerationSettings(ops=operators, max_ops=2, domains=("3x3*3",))
    build(settings, tmp_path, laws=known, work=tmp_path)
    made = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert set(made) == {RULES, EVIDENCE, COUNTS, DROPPED, MISSING}
    for name in (RULES, COUNTS, DROPPED, MISSING):
        assert made[name] == (GOLDEN / name).read_text(), name
    rules = parse_rules(made[RULES], RULES)
    evidence = read_evidence(tmp_path / EVIDENCE)
    assert [r.name for r in rules] == list(evidence)
    assert all(is_current(r, evidence[r.name]) and set(evidence[r.name].laws) <= {k.name for k in known} for r in rules)
