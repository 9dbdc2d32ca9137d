"""Launches and memory of the original and of the result, in every report."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.extract.problem.peaks import peak_of_graph
from eqsat.language.terms import Graph
from eqsat.report.result import Result

KIB = 1024
QUIET = {"measure": False, "cache": False, "strict": True}


def optimised(g: eqsat.Graph | Graph, device: str, **options: object) -> Result:
    return eqsat.optimize(g, **{"device": device, **QUIET, **options})  # type: ignore[arg-type]


def branches() -> eqsat.Graph:
    """Four branches of 64 KiB each, of which little is wanted; to end one before the next begins takes less."""
    g = eqsat.Graph("branches")
    x = g.input("x", (64, 64))
    parts = [eqsat.exp(eqsat.tanh(x @ g.constant(eye(k))) * 2.0) for k in range(1, 5)]
    g.output("y", eqsat.concat([p @ g.constant(eye(9).T[:, :4].copy()) for p in parts], axis=1))
    return g


def eye(seed: int):  # type: ignore[no-untyped-def]
    import numpy as np

    return np.random.default_rng(seed).standard_normal((64, 256)).astype(np.float32)


def test_the_peak_of_a_graph_counts_what_is_live_at_once():
    g = eqsat.Graph("chain")
    x = g.input("x", (256,))
    y = eqsat.exp(x)
    z = eqsat.reshape(eqsat.tanh(y), shape=(16, 16))
    g.output("z", z + eqsat.reshape(y, shape=(16, 16)))
    # y and tanh(y) are live with the sum; x is gone, and reshapes take nothing.
    assert peak_of_graph(g.build(), {}) == 3 * KIB


def test_inputs_that_are_outputs_are_live_to_the_end_and_constants_take_nothing():
    g = eqsat.Graph("kept")
    x = g.input("x", (256,))
    g.output("x_too", x)
    g.output("y", eqsat.exp(eqsat.tanh(x)) * 2.0)
    assert peak_of_graph(g.build(), {}) == 3 * KIB


def test_named_dims_take_the_sizes_that_they_are_costed_at():
    g = eqsat.Graph("sized")
    g.output("y", eqsat.exp(g.input("x", ("batch", 256))))
    assert peak_of_graph(g.build(), {"batch": 3}) == 6 * KIB
    report = optimised(g, "onnxruntime-cpu", sizes={"batch": 5}).report
    assert report.usage_before is not None
    assert report.usage_before.peak_memory == 10 * KIB


@pytest.mark.parametrize("device", ["onnxruntime-cpu", "nvidia-h200"])
def test_a_report_counts_the_kernels_of_the_plan(device):
    g = eqsat.Graph("merged")
    x = g.input("x", (64, 256))
    parts = [eqsat.relu(x @ g.constant(eye(k).T.copy())) for k in range(1, 5)]
    g.output("y", eqsat.concat(parts, axis=1))
    result = optimised(g, device)
    before, after = result.report.usage_before, result.report.usage_after
    assert before is not None
    assert after is not None
    assert before.launches == 9
    assert after.launches < before.launches
    if device != "onnxruntime-cpu":
        assert result.plan is not None
        assert after.launches == len(result.plan.steps)
    assert before.weights == after.weights == 4 * 64 * 256 * 4
    assert f"launches {before.launches} -> {after.launches}, peak memory" in str(result.report)


def test_the_peak_of_a_result_is_the_one_that_was_limited():
    free = optimised(branches(), "nvidia-h200").report
    assert free.usage_after is not None
    most = 0.4 * free.usage_after.peak_memory
    report = optimised(branches(), "nvidia-h200", limits={"peak_memory": most}).report
    assert report.usage_after is not None
    assert report.kept != "original"
    assert report.usage_after.peak_memory == pytest.approx(report.amounts["peak_memory"])
    assert report.usage_after.peak_memory <= most
