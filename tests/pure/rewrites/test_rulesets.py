"""Rules are read, and their evidence is checked, when an e-graph first has the operators for them."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import PHASES, Saturator
from eqsat.egraph.saturation import Limits
from eqsat.errors import RuleError
from eqsat.language.ops import OPS
from eqsat.rewrites.rules import loader
from eqsat.rewrites.rules.evidence import Evidence, rule_hash
from eqsat.rewrites.rules.parser import parse_rules, rule_sources
from eqsat.rewrites.rules.ruleset import RuleSet, RuleSource

TEXT = """%phase expand
turned: relu(transpose(x, perm=p)) + y => y + transpose(relu(x), perm=p)
twice: relu(relu(x)) <=> relu(x)
broken: tanh(x) => tanh(x
"""


def unread(rules: RuleSet) -> list[str]:
    return [one.name for one in rules.sources if "rule" not in vars(one)]


def anew() -> RuleSet:
    """The shipped rules, none of which is read yet."""

    def unread_source(one: RuleSource) -> RuleSource:
        return RuleSource(one.name, one.phase, one.operators, lambda: one.rule)

    return RuleSet(map(unread_source, loader.shipped_sources()))


def test_operators_that_are_told_without_reading_a_rule_are_those_of_its_left_side() -> None:
    sources = loader.shipped_sources()
    assert [one.name for one in sources if not one.operators <= one.rule.matched] == []
    assert [one.name for one in sources if (one.rule.name, one.rule.phase) != (one.name, one.phase)] == []
    told, all_of_them = (sum(map(len, x)) for x in zip(*((s.operators, s.rule.matched) for s in sources), strict=True))
    assert told > 0.9 * all_of_them


@pytest.mark.parametrize(
    ("text", "operators"),
    [
        ("r: x - relu(y) => x", {"sub", "relu"}),
        ("r: -relu(x) ** y => x", {"pow", "relu"}),
        ("r: concat(*xs, axis=k) => x", {"concat"}),
        ("r: concat(x, -y) => x", {"concat"}),
        ("r: reshape(x, shape=shape(slice(y, **s))) => x", {"reshape"}),
        ("r: [matmul(x, w) + b for w, b in zip(ws, bs)] => split(x)", {"matmul", "add"}),
        ("r: tanh(x), x /\n  y => x, y", {"tanh", "div"}),
    ],
)
def test_operators_are_told_from_patterns_alone(text: str, operators: set[str]) -> None:
    (source,) = rule_sources(text)
    assert source.operators == operators


def test_an_inverse_has_operators_of_the_right_side_without_names_and_conditions() -> None:
    _, inverse = rule_sources("r: relu(x) <=> tanh(x) + g where g := exp(x) if rank(slice(x)) - 1 > 0")
    assert inverse.operators == {"tanh", "add"}


def test_a_rule_is_read_when_its_operators_are_there() -> None:
    rules = RuleSet(rule_sources(TEXT, origin="axiom"))
    assert [r.name for r in rules.applicable("expand", {"relu", "add"})] == ["twice", "twice-inv"]
    assert unread(rules) == ["turned", "broken"]
    assert rules.applicable("simplify", OPS) == []
    assert [r.name for r in rules.named({"turned", "gone"})] == ["turned"]
    with pytest.raises(RuleError, match=r"<text>:4:.*\(' was never closed"):
        list(rules)


def test_rules_are_left_out_and_added_without_reading_them() -> None:
    rules = RuleSet(rule_sources(TEXT, origin="axiom")).without({"broken", "turned"})
    more = rules.plus(parse_rules("mine: exp(x) => exp(x)"))
    assert unread(more) == ["twice", "twice-inv", "mine"]
    assert [r.name for r in more] == ["twice", "twice-inv", "mine"]
    assert (len(more), more[-1].name, more[0] in rules) == (3, "mine", True)
    assert not RuleSet.of(())


def test_a_rule_without_current_evidence_is_never_seen_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    good, stale = parse_rules("good: relu(relu(x)) => relu(x)\nstale: relu(tanh(x)) => tanh(x)", origin="axiom")
    hashes = {"good": rule_hash(good), "stale": "0" * 24}
    evidence = {name: Evidence(name, one, "proved", ranks=4) for name, one in hashes.items()}
    monkeypatch.setattr(loader, "shipped_sources", lambda: tuple(map(RuleSource.of, (good, stale))))
    monkeypatch.setattr(loader, "shipped_evidence", lambda: evidence)
    loader.rules_with_evidence.cache_clear()
    try:
        rules = loader.load_rules()
        assert rules.applicable("simplify", {"relu"}) == [good]
        with pytest.warns(loader.EvidenceWarning, match="1 of 2 rules have no current evidence.*: stale"):
            assert rules.applicable("simplify", {"relu", "tanh"}) == [good]
        assert (rules.named({"stale"}), list(rules)) == ([], [good])
    finally:
        loader.rules_with_evidence.cache_clear()


def test_growth_reads_few_rules_and_is_the_same_as_with_all_of_them_read() -> None:
    g = eqsat.Graph("small")
    x = g.input("x", (4, 8))
    g.output("y", eqsat.relu(x @ g.input("w", (8, 8))) + x)
    rules = anew()
    lazily, eagerly = (Saturator(encode(g.build()).egraph, given, Limits()) for given in (rules, tuple(anew())))
    assert lazily.run().fired == eagerly.run().fired
    assert lazily.egraph.size() == eagerly.egraph.size()
    assert len(unread(rules)) > 0.9 * len(rules.sources)
    assert {one.phase for one in rules.sources} <= {*PHASES, "associate"}
