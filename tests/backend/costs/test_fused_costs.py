"""Attention as one operator of ONNX Runtime's own has a cost of its own, measured there, by which it is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import eqsat
from eqsat.commands.costs.keys import keys_of_model
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.fusion import FusedKey
from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.keylist import read_keys, write_keys
from eqsat.costs.measuring.measure import fill, measure
from eqsat.costs.measuring.microbenchmark import build_microbenchmark
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import CostError
from eqsat.language.onnx.write.exporter import to_model
from tests.backend.language.operators.test_fused_operators import JOINED, attention, feeds, fused, operators
from tests.support.one_operator import session_run

DEVICE = "onnxruntime-cpu"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CostTable]:
    """The user's own table, in a file of its own."""
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    with CostTable() as opened:
        yield opened


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[FusedKey]:
    """The keys of attention as one operator that are listed for attention over three products of one tensor."""
    path = tmp_path_factory.mktemp("models") / "model.onnx"
    onnx.save(attention(projected="biased"), path)
    listed = keys_of_model(path, Device.of(DEVICE), {}, Choices(), 64)
    return [k for k in listed if isinstance(k, FusedKey) and "attention" in k.op]


def written(key: FusedKey, copies: int, file: Path) -> list[str]:
    """What ONNX Runtime makes of the graph that a key is measured by."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(file)
    options.log_severity_level = 4
    data = to_model(build_microbenchmark(key, copies).graph).SerializeToString()
    ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(file).graph.node]


def test_it_is_listed_over_joined_heads_and_over_products_of_one_tensor(keys: list[FusedKey], tmp_path: Path) -> None:
    """Without what splits, moves and joins heads, which the operator does not need; and with three products as one."""
    found = {}
    for key in keys:
        kinds = written(key, 3, tmp_path / "model.onnx")
        assert FusedKey.parse(key.text) == key
        assert kinds.count("Expand") in (0, 3)
        (name,) = {kind for kind in kinds if kind != "Expand"}
        assert kinds.count(name) == 3
        found[name] = "matmul" in key.op, len(build_microbenchmark(key, 2).inputs)
    assert found == {"Attention": (True, 4), "MultiHeadAttention": (False, 8)}


def test_the_command_measures_it_and_keeps_the_time(
    keys: list[FusedKey], table: CostTable, run: Any, tmp_path: Path
) -> None:
    listed = tmp_path / "keys.txt"
    listed.write_text(write_keys(keys), encoding="utf-8")
    assert read_keys(listed) == tuple(keys)
    code, out, err = run("measure", "--keys", listed)
    assert (code, err) == (0, "")
    assert out.startswith(f"{len(keys)} operators measured, 0 known before, 0 left")
    entries = table.own(Environment.current(DEVICE, 1))
    assert set(entries) == {key.text for key in keys}
    assert all(entry.seconds > 0 and entry.samples > 0 for entry in entries.values())
    assert fill(keys, table, shipped=False).known == len(keys)


@pytest.mark.parametrize("cheap", [True, False])
def test_the_choice_goes_by_the_measured_time(cheap: bool, keys: list[FusedKey], table: CostTable) -> None:
    for key in keys:
        seconds = 1e-8 if cheap and "matmul" in key.op else 1.0
        table.put(Environment.current(DEVICE, 1), key, Entry(seconds, seconds, seconds, 5))
    # Nothing else of attention is measured, so that the operator by itself costs more than its parts by estimate.
    model = attention(projected="biased")
    result = eqsat.optimize(model, measure=False, time_limit=20)
    made = result.to_onnx()
    assert (fused(made) == ["Attention"]) is cheap
    if cheap:
        assert set(operators(made)) == {"Cast", "Where", "Attention"}
        assert any(tuple(w.dims) == (JOINED, 3 * JOINED) for w in made.graph.initializer)
        portable = eqsat.optimize(model, measure=False, portable=True, time_limit=20).to_onnx()
        assert fused(portable) == []
    wanted = session_run(model, feeds(model))[0]
    np.testing.assert_allclose(session_run(made, feeds(model))[0], wanted, rtol=1e-5, atol=1e-5)


def test_a_front_is_of_graphs_in_operators_of_onnx_alone(keys: list[FusedKey], table: CostTable) -> None:
    """A kernel that no graph of a front is written in makes none cheaper, however cheap it was measured to be."""
    for key in keys:
        table.put(Environment.current(DEVICE, 1), key, Entry(1e-8, 1e-8, 1e-8, 5))
    model = attention(projected="biased")
    portable = eqsat.optimize(model, measure=False, portable=True, time_limit=20).report.cost_after
    own = eqsat.optimize(model, measure=False, time_limit=20).report.cost_after
    least = min(point["time"] for point in eqsat.pareto(model, time_limit=10).points)
    assert own < portable <= least


TWICE = "matmul {} float32[2, 4] =float32[4, 4] ; matmul {} &0:float32[2, 4] =float32[4, 4] ; add {} %0:float32[2, 4] "


def test_what_reads_one_tensor_twice_is_measured_on_one() -> None:
    key = FusedKey.parse(TWICE + "%1:float32[2, 4]")
    assert key.same == ((None, None), (0, None), (None, None))
    assert len(build_microbenchmark(key, 3).inputs) == 3
    assert measure(key).seconds >= 0


@pytest.mark.parametrize(
    "text",
    [
        "relu {} float32[2] ; add {} %0:float32[2] &2:float32[2]",
        "relu {} &0:float32[2] ; add {} %0:float32[2] float32[2]",
        "relu {} float32[2] ; add {} %0:float32[2] &0:float32[1]",
        "relu {} float32[2] ; add {} %0:float32[2] &0:=float32[2]",
        "relu {} float32[2] ; relu {} %0:float32[2] ; add {} %1:float32[2] &1:float32[2]",
    ],
)
def test_keys_that_say_another_tensor_is_the_same_are_refused(text: str) -> None:
    with pytest.raises(CostError):
        build_microbenchmark(FusedKey.parse(text), 1)
