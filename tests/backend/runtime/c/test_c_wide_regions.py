"""Regions with movements, products and windows that become one function, and one kernel."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import eqsat
from eqsat.language.comprehension.graphs.operators import NAME, DeclaredRegion, declare_region
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.regions.equations import states_region
from eqsat.runtime.backend import execute
from eqsat.steps.regions import offering
from tests.support.region_graphs import FORMS, joined

OPTIONS = {"device": "c-cpu", "measure": False, "strict": True, "cache": False, "time_limit": 300.0}


#: A part of the statements of each.
STATED = {
    "odd_layout": "+=! x1(m, b0, k) * x0(n, k)",
    "joined": "N1 / 2 > i1 ? x0(i0, i1 + N1 / 2) : x1(i0, i1 - N1 / 2)",
    "shuffled": "x0(i0, i1 % 2 * (N1 / 2) + i1 / 2, i2, i3)",
    "convolved": "go / (N4 / 2) * N5 + c, 2 * h0 + r0, h1 + r1",
    "pooled": "max=! t0(n, c, 2 * h0 + kernel0, h1 + kernel1)",
    "bordered": "? 0.5 :",
}


def is_region(op: str) -> bool:
    return op.startswith("region_")


def feeds_of(graph):
    rng = np.random.default_rng(0)
    shapes = {name: [7 if not isinstance(d, int) else d for d in graph.type(name).dims] for name in graph.inputs}
    return {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}


@pytest.mark.parametrize("form", FORMS)
def test_a_region_is_one_kernel(form):
    graph = FORMS[form]()
    sizes = {"batch": 7} if form == "bordered" else None
    found = eqsat.optimize(graph, cost=lambda one: 1.0 if is_region(one.op) else 100.0, sizes=sizes, **OPTIONS)
    (whole,) = [node.op for node in found.graph.nodes]
    assert is_region(whole)
    assert STATED[form] in found.comprehensions[whole]
    feeds = feeds_of(graph)
    expected = execute(graph, feeds, "numpy")
    session = ort.InferenceSession(found.to_onnx().SerializeToString())
    written = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))
    for made in (execute(found.graph, feeds, "c"), execute(found.graph, feeds, "numpy"), written):
        for name, value in expected.items():
            np.testing.assert_allclose(made[name], value, rtol=1e-4, atol=1e-5)


def refused():
    """What no sizes follow from, a border that repeats elements, a product with a vector, and one of many parts."""
    heads = eqsat.Graph("heads")
    parts = eqsat.reshape(heads.input("x", (4, 132)), shape=(4, 12, 11))
    heads.output("y", eqsat.reduce_sum(eqsat.exp(parts), axes=(2,), keepdims=True))
    edges = eqsat.Graph("edges")
    edges.output("y", eqsat.exp(eqsat.pad(edges.input("x", (4, 6)), pads=(0, 1, 0, 1), mode="edge")))
    vector = eqsat.Graph("vector")
    vector.output("y", eqsat.exp(vector.input("x", (4, 6)) @ vector.input("v", (6,))))
    many = eqsat.Graph("many")
    parts = [many.input(f"x{number}", (2 + number, 3)) for number in range(30)]
    many.output("y", eqsat.exp(eqsat.concat(parts, axis=0)))
    large = eqsat.Graph("large")
    large.output("y", eqsat.exp(large.input("x", (256, 256)) @ large.input("w", (256, 256))))
    return {one.name: one for one in (graph.build() for graph in (heads, edges, vector, many, large))}


@pytest.mark.parametrize("form", ["heads", "edges", "vector", "many", "large"])
def test_what_is_not_stated_is_no_region(form):
    found = eqsat.optimize(refused()[form], cost=lambda one: 1.0 if is_region(one.op) else 100.0, **OPTIONS)
    assert found.comprehensions == {}


@pytest.mark.parametrize(("ratio", "is_offered"), [(0.5, True), (1.08, False)], ids=["faster", "slower"])
def test_a_region_with_a_movement_is_offered_where_it_was_faster(monkeypatch, ratio, is_offered):
    seen = []

    def measured(new, old, device, threads):
        seen.append([node.op for node in old.nodes])
        return ratio

    monkeypatch.setattr(offering, "bound_of_ratio", measured)
    found = eqsat.optimize(joined(), **{**OPTIONS, "measure": True})
    assert any("concat" in ops for ops in seen)
    assert bool([name for name in found.report.rules_fired if name.startswith("region-")]) == is_offered


@pytest.mark.parametrize(("ratio", "trials"), [(1.1, 2), (1.5, 1)], ids=["slower", "far slower"])
def test_what_is_far_slower_is_not_tried_at_other_sizes(monkeypatch, ratio, trials):
    g = eqsat.Graph("sizes")
    for number, rows in enumerate((8, 16)):
        x, z = g.input(f"x{number}", (rows, 12)), g.input(f"z{number}", (rows, 5))
        g.output(f"y{number}", eqsat.sigmoid(eqsat.concat([x, z], axis=1)))
    seen = []

    def measured(new, old, device, threads):
        seen.append(new.nodes[0].op)
        return ratio

    monkeypatch.setattr(offering, "bound_of_ratio", measured)
    eqsat.optimize(g.build(), **{**OPTIONS, "measure": True})
    assert len({*seen}) == 1 and len(seen) == trials


PLACES = """
def turned(float(N, M) x) -> (y) { t(i, j) = max(x(i, j), 0)  y(i, j) = t(i, j % 4 * (M / 4) + j / 4) where j in 0:M }
"""


def test_a_statement_reads_the_one_before_it_at_quotients():
    g = eqsat.Graph("turned")
    g.output("y", eqsat.comprehension(PLACES).turned(g.input("x", (6, 112))))
    x = np.random.default_rng(0).standard_normal((6, 112)).astype("f")
    expected = np.maximum(x, 0).reshape(6, 4, 28).transpose(0, 2, 1).reshape(6, 112)
    np.testing.assert_array_equal(execute(g.build(), {"x": x}, "c")["y"], expected)


HALVES = "def region(float(N0, N1) x0) -> (y0) { y0(i,a,b) = x0(i,a*(N1/2)+b) where i in 0:N0, a in 0:2, b in 0:N1/2 }"
LAST = "transpose(reshape(x0, shape=(dim(x0, 0), 2, dim(x0, 1) // 2)), perm=(0, 2, 1))"


@pytest.mark.parametrize(
    ("left", "holds"),
    [
        ("reshape(x0, shape=(dim(x0, 0), 2, dim(x0, 1) // 2))", True),
        ("reshape(x0, shape=(dim(x0, 0), dim(x0, 1) // 2, 2))", False),
        (LAST, False),
        ("neg(reshape(x0, shape=(dim(x0, 0), 2, dim(x0, 1) // 2)))", False),
    ],
)
def test_the_equation_of_a_movement_is_checked(left, holds):
    text = repr(eqsat.comprehension(HALVES).region)
    conditions = "rank(x0) == 2, dim(x0, 1) % 2 == 0"
    declared = declare_region(DeclaredRegion("region_of_tests", text, f"{left} => {NAME}(x0) if {conditions}"))
    (rule,) = parse_rules(f"region-one: {declared.laws[0]}", origin="identity")
    assert states_region(rule) == holds
