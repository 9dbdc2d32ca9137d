"""The search of MetaFlow and TASO over graphs: what it visits for an alpha, its split, and that results are equal."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import eqsat
from benchmarks.baselines.figures import baselines
from benchmarks.baselines.search import GraphSearch, Question, in_parts, joined, part_of, split_search
from benchmarks.models import load
from eqsat.extract.tensors.tensors import everything
from eqsat.language.graphs.partition import PARTITIONERS
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.terms import Graph
from eqsat.options.options import Options
from eqsat.run import Run
from eqsat.runtime.backend import BACKENDS


def question(graph: Graph) -> Question:
    """The library's rules and the costs that come with eqsat."""
    run = Run.read(graph, Options(measure=False, cache=False, table=":memory:", threads=1))
    return Question(run.rules, run.settings.costs, everything)


def projections() -> Graph:
    """Three products of one input, then two transposes that cancel, and a sum."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("projections")
    x = g.input("x", (32, 64))
    q, k, v = (x @ g.constant(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(3))
    back = eqsat.transpose(eqsat.transpose(k, perm=(1, 0)), perm=(1, 0))
    g.output("y", eqsat.relu(q + back))
    g.output("z", eqsat.tanh(v))
    return g.build()


def outputs(graph: Graph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return BACKENDS["numpy"].compile(graph).run(inputs)


@pytest.mark.parametrize("alpha", [1.0, 1.05])
def test_a_search_finds_an_equal_and_cheaper_graph(alpha):
    graph = projections()
    found = GraphSearch(question(graph), alpha, 5.0).run(graph)
    assert found.cost < found.begin
    assert not any(node.op == "transpose" for node in found.graph.nodes)
    assert found.visited > 1
    inputs = {"x": np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)}
    for name, wanted in outputs(graph, inputs).items():
        np.testing.assert_allclose(outputs(found.graph, inputs)[name], wanted, rtol=1e-4, atol=1e-4)


def test_an_alpha_below_one_takes_only_what_saves_its_share_at_once():
    graph = projections()
    asked = question(graph)
    greedy = GraphSearch(asked, 1.0, 20.0).run(graph)
    assert greedy.ended == "empty" and greedy.cost < greedy.begin
    much = GraphSearch(asked, 0.5, 20.0).run(graph)
    assert (much.visited, much.met, much.cost, much.ended) == (1, 0, much.begin, "empty")


def test_a_search_without_time_returns_the_graph_itself_and_does_not_say_that_it_saw_all():
    graph = projections()
    found = GraphSearch(question(graph), 1.05, 0.0).run(graph)
    assert found.graph is graph and found.cost == found.begin and found.ended == "time limit"


@pytest.mark.parametrize("method", PARTITIONERS)
@pytest.mark.parametrize("most", [1, 2, 5, 40])
def test_parts_of_a_graph_are_small_and_make_it_again(most, method):
    given = read(load("squeezenet1_1"))
    graph, cuts = in_parts(question(given), given, most, method)
    assert sorted(n.outputs for n in graph.nodes) == sorted(n.outputs for n in given.nodes)
    places = [0, *cuts, len(graph.nodes)]
    assert all(0 < b - a <= most for a, b in itertools.pairwise(places))
    again = joined([part_of(graph, a, b) for a, b in itertools.pairwise(places)], graph)
    assert [(n.op, n.inputs, n.outputs, n.attrs) for n in again.nodes] == [
        (n.op, n.inputs, n.outputs, n.attrs) for n in graph.nodes
    ]
    assert again.outputs == graph.outputs and again.constants.keys() <= graph.constants.keys()


@pytest.mark.parametrize("method", PARTITIONERS)
def test_a_split_search_finds_an_equal_graph(method):
    graph = projections()
    found = split_search(question(graph), graph, 1.05, 6.0, 3, method)
    assert found.cost < found.begin
    inputs = {"x": np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)}
    for name, wanted in outputs(graph, inputs).items():
        np.testing.assert_allclose(outputs(found.graph, inputs)[name], wanted, rtol=1e-4, atol=1e-4)


def test_the_page_says_where_nothing_was_measured():
    assert "baselines.json" in baselines({})
