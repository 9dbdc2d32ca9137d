"""Growth around a few classes of an e-graph: what it reaches, and that it ends."""

from __future__ import annotations

import numpy as np

from eqsat.egraph.encode import encode
from eqsat.egraph.focus import grow_at
from eqsat.egraph.saturation import Saturation
from eqsat.language.graphs.builder import Builder
from eqsat.rewrites.rules.parser import parse_rules

MERGE = "merge: (x * c) * d => x * (c * d) if constant(c, d)"
FORWARDS = "into-relu: relu(x) * c => relu(x * c) if is_positive(c)"


def scaled(count: int):
    """A relu times constants, one after the other, and an equal one apart."""
    g = Builder("scaled")
    for name in ("x", "z"):
        y = g.apply("relu", g.input(name, (4, 8)))
        for number in range(count):
            y = g.apply("mul", y, g.constant(np.full(8, number + 2, np.float32)))
        g.output(f"{name} scaled", y)
    return encode(g.build())


def forms(encoding, value: str) -> set[str]:
    egraph = encoding.egraph
    members = egraph.eclass(encoding.roots[value]).members
    return {f"{egraph.nodes[n].op} of {egraph.nodes[egraph.nodes[n].operands[0]].op}" for n in members}


def test_rules_apply_to_what_is_asked_for_and_below_it_alone():
    encoding = scaled(2)
    report = Saturation()
    grow_at(encoding.egraph, parse_rules(FORWARDS), [encoding.roots["x scaled"]], report, rounds=4, most=50)
    # The inner scale moves first, and then the outer one meets a relu.
    assert forms(encoding, "x scaled") == {"mul of mul", "relu of mul"}
    assert forms(encoding, "z scaled") == {"mul of mul"}
    assert report.fired == {"into-relu": 2}
    assert {rule for _, rule in report.made} == {"into-relu"}


def test_it_ends_with_the_rounds_and_with_the_e_nodes_it_may_make():
    rules = parse_rules("more: x * c => (x * c) * (c / c) if constant(c)")
    for rounds, most in ((3, 1000), (100, 12)):
        encoding = scaled(1)
        before = len(encoding.egraph.nodes)
        grow_at(encoding.egraph, rules, [encoding.roots["x scaled"]], Saturation(), rounds=rounds, most=most)
        assert before < len(encoding.egraph.nodes) <= before + 20


def test_e_nodes_that_are_spared_stay_without_other_forms():
    encoding = scaled(2)
    root = encoding.roots["x scaled"]
    report = Saturation()
    grow_at(encoding.egraph, parse_rules(MERGE), [root], report, rounds=3, most=50, spared=frozenset({root}))
    assert not report.fired
    grow_at(encoding.egraph, parse_rules(MERGE), [root], report, rounds=3, most=50)
    assert forms(encoding, "x scaled") == {"mul of mul", "mul of relu"}


def test_conditions_that_do_not_hold_are_recorded():
    encoding = scaled(1)
    report = Saturation()
    rules = parse_rules("never: relu(x) * c => relu(x * c) if is_all(c, 1)")
    grow_at(encoding.egraph, rules, [encoding.roots["x scaled"]], report, rounds=2, most=50)
    assert list(report.refused) == [("never", "not all 1")]
