"""Graphs cut into parts: what is stitched computes what the whole did, and what a cut goes through is found again."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat.errors import CertificateError, UncheckedError, UsageError
from eqsat.language.terms import Constant, Graph
from eqsat.options.options import Options
from eqsat.run import optimised_part
from eqsat.runtime.backend import execute
from eqsat.steps.parts.stitching import parts_of, stitched
from eqsat.steps.parts.tasks import PartTask


def tower(count: int, seed: int = 0) -> Graph:
    """Layers of which no two are alike: products by weights of their own sizes, and activations twice over."""
    rng, g = np.random.default_rng(seed), eqsat.Graph("tower")
    value, width = g.input("x", ("batch", 6)), 6
    for number in range(count):
        wide = 5 + (number * 7) % 11
        weight = rng.normal(size=(width, wide)).astype(np.float32) / np.float32(width)
        value = g.apply(("relu", "abs", "tanh")[number % 3], value @ weight)
        if number % 2:
            value = g.apply("relu", g.apply("relu", value))
        if number % 4 == 1:
            value = value.transpose(1, 0).transpose(1, 0)
        width = wide
    g.output("y", value)
    g.output("z", g.apply("tanh", value))
    return g.build()


def run(graph: Graph) -> list[np.ndarray]:
    x = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    return list(execute(graph, {"x": x}, "numpy").values())


@pytest.mark.parametrize("partition", ["flow", "balanced"])
def test_a_graph_in_parts_computes_the_same_and_costs_less(partition):
    graph = tower(16)
    result = eqsat.optimize(graph, measure=False, cache=False, max_nodes=14, partition=partition)
    report = result.report
    assert report.kept == "parts"
    assert report.cost_after < report.cost_before
    assert {one.name.split(":")[0] for one in report.partition} == {"part", "cut"}
    assert all(one.nodes[0] <= 14 and one.tries == 1 and not one.why for one in report.partition)
    assert report.certificate.bodies
    for old, new in zip(run(graph), run(result.graph), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
    assert "parts" in str(report) and "more around the cuts" in str(report)


def test_what_a_cut_goes_through_is_found_around_it():
    g = eqsat.Graph("reluctant")
    value = g.input("x", (4, 4))
    for _ in range(12):
        value = g.apply("relu", value)
    g.output("y", value)
    result = eqsat.optimize(g, measure=False, cache=False, max_nodes=5)
    assert [one.nodes[0] for one in result.report.partition if one.name.startswith("part")] != [12]
    assert [node.op for node in result.graph.nodes] == ["relu"]


def test_a_graph_that_is_small_enough_is_not_cut():
    result = eqsat.optimize(tower(4), measure=False, cache=False)
    assert result.report.partition == ()


def test_parts_may_be_optimised_by_threads():
    with ThreadPoolExecutor(1) as executor:
        result = eqsat.optimize(tower(8), measure=False, cache=False, max_nodes=12, executor=executor)
    assert result.report.kept == "parts"
    assert result.report.arguments["executor"] == "concurrent.futures.thread.ThreadPoolExecutor"


def test_steps_are_shared_by_the_parts():
    texts = set()
    for _ in range(2):
        result = eqsat.optimize(tower(8), measure=False, cache=False, max_nodes=12, steps=200_000)
        texts.add("\n".join(node.describe() for node in result.graph.nodes))
    assert len(texts) == 1


def test_what_is_asked_of_the_whole_is_not_cut():
    limited = eqsat.optimize(tower(8), measure=False, cache=False, max_nodes=12, limits={"launches": 100})
    assert limited.report.partition == ()
    assert any("not cut" in warning for warning in limited.report.warnings)


def test_an_unusable_executor_is_named():
    with pytest.raises(
        UsageError, match=r"executor = 0\n  expected a concurrent.futures.Executor, or a number of processes above 0"
    ):
        eqsat.optimize(tower(2), executor=0)
    with pytest.raises(UsageError, match="partition = 'flows'"):
        eqsat.optimize(tower(2), partition="flows")


def test_parts_that_pass_on_what_they_read_are_stitched():
    """A part may come to hand on an input, a constant, or one value under two names."""
    g = eqsat.Graph("passing")
    x = g.input("x", (2, 2))
    a = g.apply("relu", x)
    b = g.apply("abs", a)
    c = g.apply("abs", a)
    g.output("y", g.apply("tanh", b + c))
    g.output("z", b)
    graph = g.build()
    first, last = parts_of(graph, [(0, 1, 2), (3, 4)])
    names = list(first.graph.outputs)
    assert len(names) == 2
    one = Constant.of(np.ones((2, 2), np.float32))
    shared = Graph(
        "new", first.graph.inputs, dict.fromkeys(names, "k"), (), {"k": one}, {"x": graph.type("x"), "k": one.type}
    )
    whole = stitched(graph, [(first, shared), (last, None)])
    assert [node.op for node in whole.nodes] == ["add", "tanh"]
    passed = Graph("new", first.graph.inputs, dict.fromkeys(names, "x"), (), {}, {"x": graph.type("x")})
    whole = stitched(graph, [(first, passed), (last, None)])
    x = np.float32([[1, -2], [3, -4]])
    found = execute(whole, {"x": x}, "numpy")
    np.testing.assert_array_equal(found["z"], x)
    np.testing.assert_allclose(found["y"], np.tanh(2 * x), rtol=1e-6)


def test_a_part_that_is_wrong_is_refused_whoever_found_it():
    graph = tower(2)
    part = parts_of(graph, [range(len(graph.nodes))])[0].graph
    outcome = optimised_part(PartTask.of(part, frozenset(), Options(measure=False, cache=False)))
    found = outcome.found(part)
    assert found.check(part, {}, 0).stated < 1e-6
    nodes = tuple(replace(node, op="sigmoid") if node.op == "tanh" else node for node in found.chosen.nodes)
    wrong = replace(found.chosen, nodes=nodes)
    with pytest.raises(CertificateError, match="differ"):
        replace(found, graph=wrong, chosen=wrong, folded=wrong).check(part, {}, 0)
    lowered = tuple(replace(node, op="sigmoid") if node.op == "tanh" else node for node in found.graph.nodes)
    with pytest.raises(UncheckedError, match="its layouts move an output"):
        replace(found, graph=replace(found.graph, nodes=lowered)).check(part, {}, 0)
