"""Chains of operators whose time beside their arithmetic is measured: their results, and the time of one operator."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import overhead
from eqsat.runtime.backend import execute
from eqsat.runtime.examples import example_inputs


@pytest.mark.parametrize("chain", overhead.CHAINS)
def test_a_chain_has_its_length_and_every_backend_computes_the_same(chain):
    graph = overhead.CHAINS[chain](30)
    assert len(graph.nodes) in range(30, 46)  # slices of a movement are two
    inputs = example_inputs(graph, {}, 0)
    wanted = execute(graph, inputs, "numpy")["y"]
    for backend in ("c", "onnxruntime", "openvino"):
        np.testing.assert_allclose(execute(graph, inputs, backend)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_the_time_of_an_operator_is_the_slope_over_lengths(monkeypatch, tmp_path):
    """With times that are given, a call takes 5 s and each operator 2 s more, on one backend and three on the other."""
    monkeypatch.setattr(overhead, "LENGTHS", (6, 12))
    monkeypatch.setattr(overhead, "BACKENDS", ("c", "onnxruntime"))
    monkeypatch.setattr(overhead, "CHAINS", {"products": overhead.products})
    seconds = iter([17, 23, 29, 41])

    def times(calls, _):
        return {name: [float(next(seconds))] for name in calls}

    monkeypatch.setattr(overhead, "timed", times)
    done = CliRunner().invoke(overhead.main, ["-o", str(tmp_path / "made.json")])
    assert done.exit_code == 0, done.output
    (record,) = json.loads((tmp_path / "made.json").read_text())["chains"]
    assert record["an operator"] == pytest.approx({"c": 2.0, "onnxruntime": 3.0})
    assert "0.667" in done.output
