"""Regions of operators of the library that become one function, and one kernel, where that costs less."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.costs.measuring.forms import bound_of_ratio
from eqsat.language.comprehension.graphs.operators import NAME, DeclaredRegion, declare_region, region_of, regions_in
from eqsat.rewrites.rules.loader import laws
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.regions.equations import states_region
from eqsat.runtime.backend import execute
from eqsat.steps.regions import offering

OPTIONS = {"device": "c-cpu", "measure": False, "strict": True, "cache": False, "time_limit": 300.0}


def standardised(x: eqsat.Tensor, axis: int) -> eqsat.Tensor:
    """Elements less their mean, over their deviation."""
    d = x - eqsat.reduce_mean(x, axes=(axis,), keepdims=True)
    return d / eqsat.sqrt(eqsat.reduce_mean(d * d, axes=(axis,), keepdims=True))


def columns() -> eqsat.Graph:
    """Two means along columns, and a third kernel that reads both."""
    g = eqsat.Graph("columns")
    g.output("y", standardised(g.input("x", (24, 18)), 0))
    return g.build()


def sharing() -> eqsat.Graph:
    """A sum that goes into a normalisation and into a product with a vector: the region has two results."""
    g = eqsat.Graph("sharing")
    r = g.input("a", (24, 18)) + g.input("b", (24, 18))
    g.output("y", standardised(r, 0))
    g.output("z", r @ g.input("w", (18,)))
    return g.build()


def pooled() -> eqsat.Graph:
    """A softmax whose shares average other values, named dims beside known ones."""
    g = eqsat.Graph("pooled")
    x = g.input("x", ("batch", 18))
    shares = eqsat.softmax(x * g.input("s", (1, 18)), axis=-1)
    g.output("y", eqsat.reduce_sum(shares * g.input("v", ("batch", 18)), axes=(1,), keepdims=False))
    return g.build()


def feeds_of(graph: eqsat.Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {name: [24 if not isinstance(d, int) else d for d in graph.type(name).dims] for name in graph.inputs}
    return {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}


def is_region(op: str) -> bool:
    return op.startswith("region_")


@pytest.mark.parametrize(
    ("build", "others", "results"),
    [(columns, [], ["y0"]), (sharing, ["matmul"], ["y0", "y1"]), (pooled, [], ["y0"])],
    ids=["two reductions", "two results", "a softmax and a sum"],
)
def test_a_region_is_one_kernel_where_that_costs_less(build, others, results):
    graph = build()
    sizes = {"batch": 24} if build is pooled else None
    found = eqsat.optimize(graph, cost=lambda one: 1.0 if is_region(one.op) else 100.0, sizes=sizes, **OPTIONS)
    (whole,) = [node.op for node in found.graph.nodes if is_region(node.op)]
    assert [node.op for node in found.graph.nodes if node.op != whole] == others
    assert len(graph.nodes) > 3
    assert found.comprehensions == {whole: region_of(whole).text}
    assert list(eqsat.comprehension(found.comprehensions[whole]).region.results) == results
    shown = str(found.explain())
    assert f"{whole}(" in shown and "region-" in shown
    feeds = feeds_of(graph)
    expected = execute(graph, feeds, "numpy")
    session = ort.InferenceSession(found.to_onnx().SerializeToString())
    for made in (execute(found.graph, feeds, "c"), found.run(**feeds), _named(session, feeds)):
        for name, value in expected.items():
            np.testing.assert_allclose(made[name], value, rtol=1e-4, atol=1e-5)


def _named(session: ort.InferenceSession, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))


def test_a_region_that_costs_more_stays_as_it_was():
    found = eqsat.optimize(columns(), cost=lambda one: 9999.0 if is_region(one.op) else 1.0, **OPTIONS)
    assert not any(is_region(node.op) for node in found.graph.nodes)
    assert found.comprehensions == {}


def test_devices_without_kernels_for_functions_are_offered_none():
    found = eqsat.optimize(
        columns(), cost=lambda one: 1.0 if is_region(one.op) else 100.0, **{**OPTIONS, "device": "onnxruntime-cpu"}
    )
    assert not any(is_region(node.op) for node in found.graph.nodes)


def fired(found: eqsat.Result) -> list[str]:
    """The equations of regions that an e-graph was grown by."""
    return [name for name in found.report.rules_fired if name.startswith("region-")]


@pytest.mark.parametrize("build", [columns, pooled], ids=["two reductions", "a softmax and a sum"])
def test_no_estimate_alone_picks_a_region(build):
    found = eqsat.optimize(build(), sizes={"batch": 24} if build is pooled else None, **OPTIONS)
    assert found.comprehensions == {}
    assert fired(found) == []


@pytest.mark.parametrize(("ratio", "is_offered"), [(0.5, True), (1.08, False)], ids=["faster", "slower"])
def test_a_region_is_offered_where_it_was_measured_to_be_faster(monkeypatch, ratio, is_offered):
    seen = []

    def measured(new, old, device, threads):
        seen.append((*[node.op for node in new.nodes], tuple(node.op for node in old.nodes)))
        feeds = feeds_of(old)
        made, expected = execute(new, feeds, "c"), execute(old, feeds, "numpy")
        for name, value in expected.items():
            np.testing.assert_allclose(made[name], value, rtol=1e-4, atol=1e-5)
        return ratio

    monkeypatch.setattr(offering, "bound_of_ratio", measured)
    found = eqsat.optimize(columns(), **{**OPTIONS, "measure": True})
    assert bool(fired(found)) == is_offered
    assert seen
    for new, old in seen:
        assert is_region(new)
        assert len(old) > 1 and not any(map(is_region, old))
    assert len(set(seen)) == len(seen)


def test_the_ratio_of_two_forms_is_that_of_their_times():
    small, large = eqsat.Graph("small"), eqsat.Graph("large")
    x = small.input("x", (300, 300))
    small.output("y", x + x)
    x = large.input("x", (300, 300))
    y = x
    for _ in range(20):
        y = eqsat.softmax(y, axis=0)
    large.output("y", y)
    device = Device.of("c-cpu")
    assert bound_of_ratio(small.build(), large.build(), device) < 0.5
    assert bound_of_ratio(large.build(), small.build(), device) > 2.0


def test_looking_for_regions_ends_and_the_report_says_so(monkeypatch):
    monkeypatch.setattr(offering, "SECONDS", 0.0)
    found = eqsat.optimize(columns(), **{**OPTIONS, "objective": {"launches": 1.0}})
    assert found.comprehensions == {}
    assert "regions as functions: the time limit of 0 s is over" in found.report.skipped


@pytest.mark.parametrize("change", [{"device": "onnxruntime-cpu"}, {}], ids=["no such kernels", "no measurements"])
def test_nothing_is_looked_for_where_no_region_may_be_offered(monkeypatch, change):
    def look(*given):
        raise AssertionError(given)

    monkeypatch.setattr(offering, "region_matches", look)
    eqsat.optimize(columns(), **{**OPTIONS, **change})


def test_what_is_one_kernel_already_and_what_a_product_parts_is_no_region():
    g = eqsat.Graph("plain")
    x, w = g.input("x", (3, 24, 18)), g.input("w", (18,))
    g.output("y", eqsat.softmax(eqsat.exp(x) + x, axis=1))
    g.output("z", eqsat.reduce_max(eqsat.reduce_max(x, axes=(0,), keepdims=True) @ w, axes=(1,), keepdims=True))
    found = eqsat.optimize(g.build(), cost=lambda one: 1.0 if is_region(one.op) else 100.0, **OPTIONS)
    assert not any(is_region(node.op) for node in found.graph.nodes)


MEAN = "def region(float(N0, N1) x0) -> (y0) { t(i) +=! x0(i,j) / N1  y0(i,j) = x0(i,j) - t(i) }"


@pytest.mark.parametrize(
    ("left", "holds"),
    [
        ("sub(x0, reduce_mean(x0, axes=(1,), keepdims=True))", True),
        ("sub(x0, reduce_mean(x0, axes=(0,), keepdims=True))", False),
        ("sub(x0, reduce_sum(x0, axes=(1,), keepdims=True))", False),
        ("add(x0, reduce_mean(x0, axes=(1,), keepdims=True))", False),
    ],
)
def test_the_equation_of_a_region_is_checked(left, holds):
    text = repr(eqsat.comprehension(MEAN).region)
    declared = declare_region(DeclaredRegion("region_of_tests", text, f"{left} => {NAME}(x0) if rank(x0) == 2"))
    (rule,) = parse_rules(f"region-one: {declared.laws[0]}", origin="identity")
    assert states_region(rule) == holds
    evidence = theory_evidence(rule)
    assert (evidence.verdict == "proved") == holds
    assert not evidence.is_for_every_size
    assert not any(rule.right and getattr(rule.right[0], "op", "") == declared.name for rule in laws())


READ_AGAIN = """
import sys
sys.path.insert(0, {folder!r})
from test_c_regions import columns
import eqsat
found = eqsat.optimize(columns(), device="c-cpu", measure=False, strict=True, objective={{"launches": 1.0}})
print(bool(found.report.found_again), *found.comprehensions)
"""


def test_a_kept_result_brings_its_regions_along(tmp_path):
    program = READ_AGAIN.format(folder=str(Path(__file__).parent))
    environment = {**os.environ, "EQSAT_RESULTS": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert [one[0] for one in runs] == ["False", "True"]
    assert runs[0][1:] == runs[1][1:] != []


def test_graphs_say_which_regions_they_have():
    declared = declare_region(DeclaredRegion("region_of_tests", repr(eqsat.comprehension(MEAN).region), ""))
    assert declared.name.startswith("region_of_tests_")
    assert regions_in(columns()) == ()
