"""Chains of rules between equal e-nodes: complete, resting on earlier unions alone, and true step by step."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.random_graphs import random_graph, random_inputs
from eqsat.egraph.egraph import ABSENT, CONST, INPUT, PROJECTION, EGraph
from eqsat.egraph.encode import Encoding, encode
from eqsat.egraph.explain import CONGRUENCE, Derivation, Explainer, ProofStep
from eqsat.egraph.matching.instance import MatchedTerm
from eqsat.egraph.notation import Notation
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.interpret import run_node
from eqsat.language.terms import Graph, TensorType
from eqsat.language.terms import Node as GraphNode
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.parser import parse_rules

EXACT = Floats(wide=True)


def grown(graph: Graph, nodes: int = 400) -> Encoding:
    encoding = encode(graph)
    Saturator(encoding.egraph, load_rules(), Limits(nodes=nodes, seconds=60.0)).run()
    return encoding


def projections(count: int = 3) -> Graph:
    """Products of one input by several weights, slices of one, and sums of products."""
    rng = np.random.default_rng(0)
    g = Builder("projections")
    x = g.input("x", (6, 8))
    made = [x @ g.constant(rng.standard_normal((8, 4)).astype(np.float32)) for _ in range(count)]
    parts = [g.apply("slice", x, starts=(2 * i,), ends=(2 * i + 2,), axes=(0,)) for i in range(3)]
    turned = [g.apply("tanh", p @ g.constant(np.ones((8, 4), np.float32))) for p in parts]
    g.output("sum", made[0] + made[1] - made[2])
    g.output("joined", g.apply("concat", *turned, axis=0))
    return g.build()


def everything(egraph: EGraph) -> list[tuple[int, int]]:
    """Every e-node with the first one of its class."""
    return [(egraph.find(n), n) for n in range(len(egraph.nodes)) if egraph.find(n) != n]


class Values:
    """What e-nodes and terms are in float64, each computed from its own operands."""

    def __init__(self, egraph: EGraph, inputs: dict[str, Any], sizes: dict[str, int]) -> None:
        self.egraph, self.inputs, self.sizes = egraph, inputs, sizes
        self.known: dict[int, Any] = {}

    def enode(self, number: int) -> Any:
        if number not in self.known:
            self.known[number] = self._made(number, [self.enode(k) for k in self.egraph.nodes[number].operands])
        return self.known[number]

    def term(self, term: MatchedTerm) -> Any:
        if term.below is None:
            return self.enode(term.enode)
        return self._made(term.enode, [self.term(t) for t in term.below])

    def _made(self, number: int, operands: list[Any]) -> Any:
        node = self.egraph.nodes[number]
        if node.op == INPUT:
            type = node.types[0]
            assert isinstance(type, TensorType)
            return EXACT.constant(self.inputs[node.attrs["name"]], type)
        if node.op == CONST:
            constant = self.egraph.constants[node.attrs["index"]]
            return EXACT.constant(constant.array, constant.type)
        if node.op == ABSENT:
            return None
        if node.op == PROJECTION:
            return operands[0][node.attrs["index"]]
        types = [t if isinstance(t := self.egraph.type(k), TensorType) else None for k in node.operands]
        results = [t for t in node.types if isinstance(t, TensorType)]
        made = run_node(EXACT, GraphNode(node.op, (), (), node.attrs), operands, types, results, self.sizes)
        return made if len(node.types) > 1 else made[0]


def rule_steps(derivation: Derivation) -> list[ProofStep]:
    return [s for chain in derivation.chains.values() for s in chain or () if s.rule != CONGRUENCE]


def agree(one: Any, two: Any) -> bool:
    return one.shape == two.shape and bool(np.allclose(one, two, rtol=1e-4, atol=1e-5, equal_nan=True))


@pytest.mark.parametrize("seed", [None, *range(4)])
def test_every_pair_is_explained_and_every_step_computes_the_same(seed: int | None) -> None:
    """Each side of each step, rule by rule, evaluated with nothing but the references of operators."""
    graph = projections() if seed is None else random_graph(seed)
    sizes = {"n": 3, "m": 2}
    encoding = grown(graph)
    derivation = Explainer(encoding.egraph).derive(everything(encoding.egraph))
    assert derivation.gaps == 0
    values = Values(encoding.egraph, random_inputs(graph, sizes, 0), sizes)
    for step in rule_steps(derivation):
        assert step.before is not None
        assert step.after is not None
        sides = [values.term(step.before.term), values.term(step.after.term)]
        for found in (*sides, values.enode(step.target)):
            if isinstance(found, np.ndarray):
                assert agree(values.enode(step.source), found), step.rule


def test_the_replay_finds_equal_what_the_egraph_does_and_nothing_else() -> None:
    egraph = grown(projections()).egraph
    explainer = Explainer(egraph)
    assert len(everything(egraph)) > 50
    for one in range(len(egraph.nodes)):
        for two in range(0, len(egraph.nodes), 7):
            assert (explainer.chain(one, two) is not None) == (egraph.find(one) == egraph.find(two))


def test_no_chain_rests_on_itself() -> None:
    egraph = grown(projections()).egraph
    explainer = Explainer(egraph)
    derivation = explainer.derive(everything(egraph))
    checked = 0
    for step in (s for chain in derivation.chains.values() for s in chain or ()):
        for pair in step.equalities:
            chain = explainer.chain(*pair)
            assert chain is not None
            assert all(below.time < step.time for below in chain)
            checked += 1
    assert checked > 10


def test_chains_lead_from_one_end_to_the_other_and_back() -> None:
    egraph = grown(projections()).egraph
    explainer = Explainer(egraph)
    for source, target in everything(egraph):
        chain = explainer.chain(source, target)
        back = explainer.chain(target, source)
        assert chain
        assert back
        assert (chain[0].source, chain[-1].target) == (source, target)
        assert all(a.target == b.source for a, b in itertools.pairwise(chain))
        assert [(s.rule, s.time, not s.backwards) for s in reversed(back)] == [
            (s.rule, s.time, s.backwards) for s in chain
        ]


def test_what_a_record_does_not_tell_is_a_gap() -> None:
    egraph = grown(projections()).egraph
    pairs = everything(egraph)
    lost = egraph.applications[3]
    egraph.applications[3] = replace(lost, firing=None)
    assert Explainer(egraph).derive(pairs).gaps >= 1
    egraph.applications[3] = replace(lost, right=lost.left)  # as if the union had no cause
    without = Explainer(egraph).derive(pairs)
    assert any(chain is None for chain in without.chains.values())
    assert without.gaps >= 1


def test_a_firing_that_was_recorded_wrongly_is_a_gap() -> None:
    egraph = grown(projections()).egraph
    pairs = everything(egraph)
    for index, applied in enumerate(egraph.applications):
        firing = applied.firing
        assert firing is not None
        names = [n for n, c in firing.classes.items() if isinstance(c, int)]
        if len(names) == 2 and egraph.type(firing.classes[names[0]]) != egraph.type(firing.classes[names[1]]):
            swapped = {**firing.classes, names[0]: firing.classes[names[1]], names[1]: firing.classes[names[0]]}
            egraph.applications[index] = replace(applied, firing=replace(firing, classes=swapped))
            break
    else:
        pytest.fail("no firing binds two tensors of different types")
    assert Explainer(egraph).derive(pairs).gaps >= 1


def test_what_is_added_later_is_brought_in() -> None:
    g = Builder("later")
    x = g.input("x", (2, 2))
    g.output("y", g.apply("neg", g.apply("neg", x)))
    encoding = encode(g.build())
    explainer = Explainer(encoding.egraph)
    ends = encoding.values["x"], encoding.roots["y"]
    assert explainer.chain(*ends) is None
    Saturator(encoding.egraph, parse_rules("back: neg(neg(x)) => x", origin="candidate"), Limits()).run()
    explainer.replay()
    chain = explainer.chain(*ends)
    assert chain is not None
    assert [(s.rule, s.backwards) for s in chain] == [("back", True)]


def test_terms_are_written_with_the_names_of_values() -> None:
    g = Builder("names")
    x = g.input("x", (2, 3))
    g.output("y", g.apply("softmax", x * 2.0, axis=-1))
    g.output("z", g.apply("concat", *[g.apply("neg", x)] * 9, axis=0))
    encoding = encode(g.build())
    notation = Notation(encoding.egraph, {})
    assert notation.name(encoding.values["x"]) == "x"
    assert notation.enode(encoding.roots["y"]) == "softmax(mul_0, axis=1)"
    assert notation.enode(encoding.egraph.nodes[encoding.roots["y"]].operands[0]) == "mul(x, 2)"
    assert notation.enode(encoding.roots["z"]) == "concat(neg_0, neg_0, neg_0, … 5 more …, neg_0, axis=0)"
