"""What a result says of its changes: regions, rules in order, evidence, and what each saves."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import eqsat
from benchmarks.models import load
from eqsat.egraph.encode import encode
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.report.changes import Region, regions
from eqsat.report.explanation import SHARED, STATES
from eqsat.report.finalists import Candidate
from eqsat.report.result import Result
from eqsat.report.savings import part
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.runtime.examples import example_inputs
from eqsat.steps.certifying import Ruling
from eqsat.steps.growing import Grown
from eqsat.steps.reporting import explained

#: A device whose costs follow from its figures: whether a change pays here depends on what was measured before.
STATED = "nvidia-h200"


class Kept:
    """The e-graph and the finalist behind a result, which a result itself does not hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[Any, Candidate]] = []

        def watched(grown: Grown, ruling: Ruling, *more: Any) -> Any:
            self.found.append((grown.encoding, ruling.best))
            return explained(grown, ruling, *more)

        monkeypatch.setattr("eqsat.run.explained", watched)

    @property
    def regions(self) -> list[Region]:
        return regions(*self.found[-1])


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def projections() -> eqsat.Graph:
    """Two places with the same change: three products of one input by weights."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("projections")
    for place in ("first", "second"):
        x = eqsat.tanh(g.input(place, (32, 256)))
        for name in ("q", "k", "v"):
            g.output(f"{place}_{name}", eqsat.relu(x @ g.constant(rng.standard_normal((256, 64)).astype(np.float32))))
    return g


def optimized(model: Any, **more: Any) -> Result:
    return eqsat.optimize(model, **{"measure": False, "time_limit": 30.0, "threads": 1} | more)


def test_a_change_names_its_values_its_rules_in_order_and_their_grounds() -> None:
    result = optimized(projections(), device=STATED)
    (change,) = result.explain().changes
    assert change.places == 2
    assert set(change.values) == {f"relu_{i}" for i in range(6)}
    assert change.before == {"matmul": 3, "relu": 3}
    assert change.after["matmul"] == 1
    assert change.rules[0] == "matmuls-merge-along-n"
    assert [s.rule for s in change.steps][: len(change.rules)].count(change.rules[0]) >= 1
    assert all(not s.is_gap for s in change.steps)
    grounds = result.explain().grounds
    assert set(grounds) == set(change.rules)
    merge = grounds["matmuls-merge-along-n"]
    assert merge.text.startswith("[x @ w for w in ws] => split(x @ concat(")
    assert merge.published == (28,)
    assert merge.evidence.startswith("proved for every rank and size: ")
    assert " by Z3" in merge.evidence
    text = str(result.explain())
    assert "2 × (3 matmul + 3 relu -> " in text
    assert "1. matmuls-merge-along-n: " in text
    assert "published law 28" in text


def test_predictions_of_all_changes_add_up_to_what_the_report_says() -> None:
    halves = {"device": "nvidia-h200", "precision": "float16"}
    for name, more in (("squeezenet1_1", {}), ("squeezenet1_1", halves)):
        result = optimized(load(name), **more)
        explained = result.explain()
        assert explained.changes
        total = math.fsum(c.predicted or 0.0 for c in explained.changes)
        assert total == pytest.approx(result.report.cost_before - result.report.cost_after, rel=1e-9)
        assert explained.share == 1.0
        assert explained.gaps == 0
        assert explained.pairs >= len(explained.changes)


@pytest.mark.parametrize("name", ["squeezenet1_1", "sru_text_classifier"])
def test_regions_are_equal_parts_that_cover_what_differs(name: str, kept: Kept) -> None:
    result = optimized(load(name), node_limit=1500)
    (encoding, best) = kept.found[-1]
    assert best.assembled is not None
    graph = best.assembled.graph
    found = kept.regions
    assert found
    old = [o for r in found for n in r.old for o in n.outputs if o]
    new = [o for r in found for n in r.new for o in n.outputs if o]
    assert len(set(old)) == len(old)
    assert len(set(new)) == len(new)
    gone = {o for n in encoding.graph.nodes for o in n.outputs} - {o for n in graph.nodes for o in n.outputs}
    assert gone <= set(old)
    checked = 0
    for region in found[:6]:
        graphs = part(encoding.graph, region, graph)
        feeds = example_inputs(graphs["original"], {}, 0)
        one, two = (run(graphs[k], feeds, Floats(wide=True)) for k in ("original", "new"))
        for value in one:
            np.testing.assert_allclose(two[value], one[value], rtol=1e-4, atol=1e-5)
            checked += 1
    assert checked
    assert sum(len(c.replaced) for c in result.explain().changes) == sum(len(r.old) for r in found)


def test_each_change_is_measured_alone() -> None:
    rng = np.random.default_rng(0)
    g = eqsat.Graph("many")
    x = g.input("x", (16, 512))
    weights = [g.constant(rng.standard_normal((512, 512)).astype(np.float32)) for _ in range(2)]
    g.output("y", x @ weights[0] + x @ weights[1])  # one product of the sum of the weights
    result = eqsat.optimize(g, time_limit=20.0, threads=1)
    (change,) = result.explain().changes
    assert result.report.kept != "original"
    assert change.measured is not None
    assert 0 < change.measured < result.report.measured_before * 1.5
    (row,) = result.report.changes
    assert row.measured == change.measured
    assert row.predicted == change.predicted
    assert "predicted to save" in str(result.report)
    assert json.loads(result.report.json())["changes"][0]["steps"]


def test_what_cannot_be_measured_says_why() -> None:
    result = optimized(projections(), device=STATED)
    assert all(c.measured is None for c in result.explain().changes)
    assert " predicted, not measured" in str(result.explain())


def test_equal_nodes_that_become_one_are_a_change_without_a_rule() -> None:
    g = eqsat.Graph("twins")
    x = g.input("x", (64, 64))
    g.output("y", eqsat.tanh(x @ x))
    g.output("z", eqsat.exp(x @ x))
    (change,) = optimized(g).explain().changes
    assert change.rules == (SHARED,)
    assert change.before == {"matmul": 2}
    assert change.after == {"matmul": 1}
    assert change.nodes == -1


def test_what_other_states_spare_is_a_change() -> None:
    """A value held in columns is its transpose in rows: no rule is needed, and two nodes are gone."""
    g = eqsat.Graph("turned")
    x = g.input("x", (8, 6))
    g.output("y", eqsat.relu(x.transpose(1, 0)).transpose(1, 0))
    result = optimized(g)
    (change,) = result.explain().changes
    assert (change.before, change.after, change.rules) == ({"transpose": 2}, {}, (STATES,))
    assert change.nodes == -2
    assert change.predicted == pytest.approx(result.report.cost_before - result.report.cost_after)
    assert "2 transpose -> nothing: layouts, precisions, kernels" in str(result.explain())
    assert "2 transpose -> nothing" in str(result.report)


def test_nothing_changed_is_said_so() -> None:
    g = eqsat.Graph("plain")
    g.output("y", eqsat.tanh(g.input("x", (3,))))
    explained = optimized(g).explain()
    assert explained.changes == ()
    assert explained.share == 1.0
    assert str(explained) == "nothing changed"


def test_a_rule_of_the_users_own_has_its_own_evidence() -> None:
    g = eqsat.Graph("own")
    x = g.input("x", (8,))
    g.output("y", x + x)
    rules = parse_rules("mine-doubled: x + x => x - (-x) if floating(x)")
    result = optimized(g, rules=rules, cost=lambda applied: 5.0 if applied.op == "add" else 1.0)
    (change,) = result.explain().changes
    assert change.rules == ("mine-doubled",)
    assert result.explain().share == 1.0
    grounds = result.explain().grounds["mine-doubled"]
    assert grounds.origin == "given"
    assert grounds.evidence.startswith("proved")


def test_the_encoding_is_left_as_it_was() -> None:
    """Explaining asks; it adds no e-node."""
    encoding = encode(projections().build())
    before = len(encoding.egraph.nodes)
    regions(encoding, Candidate("original", encoding.graph, None, 0))  # type: ignore[arg-type]
    assert len(encoding.egraph.nodes) == before
