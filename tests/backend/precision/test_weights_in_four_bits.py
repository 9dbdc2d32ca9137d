"""Products whose constant weights are packed in blocks of four bits: chosen, written, run, and how large they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.measure import measure
from eqsat.errors import UsageError
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.lower import lower
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms import PACKINGS, PLAIN, Held, Kernel, Plan, State
from eqsat.quantisation.blocks import block_scale
from eqsat.quantisation.sensitivity import RoundedWeights, output_error, sensitivities
from eqsat.runtime.backend import execute, select
from tests.support.profiles import profiled

BUDGET = 0.25
WIDTH = 512


def network() -> eqsat.Graph:
    """Two layers at one row, as a language model has them: what is read of the weights decides the time."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("layers")
    x = g.input("x", (1, WIDTH))
    up, down = ((rng.laplace(size=(WIDTH, WIDTH)) / WIDTH**0.5).astype("f") for _ in range(2))
    y = eqsat.relu(x @ g.constant(up)) @ g.constant(down)
    g.output("y", y + x)
    return g.build()


def batches(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((1, WIDTH)).astype(np.float32)} for _ in range(count)]


@pytest.fixture(scope="module")
def result():
    return eqsat.optimize(network(), precision="int4", calibration=batches(12), limits={"error": BUDGET}, strict=True)


@pytest.fixture(scope="module")
def saved(result, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "int4.onnx"
    result.save(path)
    return path


def test_packed_weights_are_kept_and_counted_apart(result):
    rounding = result.report.rounding
    assert result.report.kept == "int4"
    assert sum(rounding.narrow["int4"].values()) == 2
    assert rounding.integers == {}
    assert set(rounding.kept) <= {"relu", "add"}
    assert all(set(reasons) == {"policy"} for reasons in rounding.kept.values())
    text = str(result.report)
    assert "on integers" not in text
    assert json.loads(result.report.json())["rounding"]["narrow"] == rounding.narrow


def test_the_error_on_new_data_is_within_the_prediction(result):
    before = select("onnxruntime").compile(network())
    errors = [output_error(result.run(**batch), before.run(batch)) for batch in batches(8, seed=1)]
    assert max(errors) <= result.report.rounding.predicted <= BUDGET
    assert max(errors) > result.report.rounding.predicted / 5


def test_onnxruntime_runs_its_kernel_for_four_bits(saved):
    _, ran = profiled(saved, batches(1)[0])
    assert ran["MatMulNBits"] == 2
    assert not {"MatMul", "Gemm", "FusedMatMul"} & ran.keys()


def test_weights_take_an_eighth_of_their_bytes_and_their_steps(saved):
    model = onnx.load(saved)
    onnx.checker.check_model(model)
    stored = sum(onnx.numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
    stated = sum(c.nbytes for c in network().constants.values())
    assert stated / 8 < stored <= (1 / 8 + 1 / 32 + 1 / 256) * stated
    assert saved.stat().st_size < 0.17 * stated


def test_an_objective_of_memory_packs_weights_whatever_they_take():
    rng = np.random.default_rng(0)
    g = eqsat.Graph("small")
    x = g.input("x", ("rows", 32))
    g.output("y", x @ g.constant(rng.standard_normal((32, 32)).astype("f")))
    data = [{"x": rng.standard_normal((64, 32)).astype("f")} for _ in range(6)]
    options = {"limits": {"error": 0.5}, "objective": {"weight_memory": 1.0}, "sizes": {"rows": 64}}
    found = eqsat.optimize(g.build(), precision="int4", calibration=data, **options, cache=False)
    assert found.report.rounding.narrow == {"int4": {"matmul": 1}}
    assert found.report.cost_after == PACKINGS["int4_32"].nbytes(32, 32) == 640


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int4", "device": "openvino-cpu"}, "device='onnxruntime-cpu' has such kernels"),
        ({"precision": "int4", "device": "nvidia-h200"}, "precision = 'int4' on nvidia-h200\n  expected"),
        ({"precision": "int4", "portable": True}, "precision = 'int4' on onnxruntime-cpu\n  expected one"),
        ({"precision": "int4", "portable": True}, "leave portable out: its kernels are ONNX Runtime's own"),
    ],
)
def test_packed_weights_are_refused_where_nothing_reads_them(options, message):
    with pytest.raises(UsageError) as told:
        eqsat.optimize(network(), **options)
    assert message in str(told.value)


def test_a_portable_result_has_no_packed_weights():
    given = {"precision": "mixed", "calibration": batches(6), "limits": {"error": BUDGET}, "portable": True}
    result = eqsat.optimize(network(), **given, cache=False)
    assert {o.domain for o in result.to_onnx().opset_import} <= {"", "ai.onnx"}
    assert "matmul_packed" not in {node.op for node in result.graph.nodes}


def planned(op: str, rows: int, w: np.ndarray, packing: str, bias: np.ndarray | None = None, **attrs: object) -> Plan:
    g = Builder("product")
    operands = [g.input("x", (rows, w.shape[1 if attrs.get("trans_b") else 0])), g.constant(w)]
    operands += [] if bias is None else [g.constant(bias)]
    g.output("y", g.apply(op, *operands, **attrs))
    graph = g.build()
    (node,) = graph.nodes
    held = [Held(str(v), PLAIN) for v in node.inputs]
    held[1] = Held(held[1].value, State("row", packing))
    scale = block_scale(w, 0 if attrs.get("trans_b") else 1, PACKINGS[packing])
    kernel = Kernel((node.outputs[0],), tuple(held), (Held(node.outputs[0], PLAIN),), packing)
    return Plan(graph, (kernel,), scales={(held[1].value, packing): scale})


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(
    ("op", "terms", "bias", "attrs"),
    [
        ("matmul", 256, None, {}),
        ("matmul", 140, None, {}),
        ("gemm", 256, (24,), {"trans_b": True}),
        ("gemm", 160, (1, 24), {}),
    ],
)
def test_a_packed_product_is_that_of_its_restored_weights(packing, rows, op, terms, bias, attrs):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((24, terms) if attrs.get("trans_b") else (terms, 24)).astype(np.float32)
    addend = None if bias is None else rng.standard_normal(bias).astype(np.float32)
    plan = planned(op, rows, w, packing, addend, **attrs)
    x = rng.standard_normal((rows, terms)).astype(np.float32)
    restored = next(iter(plan.scales.values())).rounded(w)
    exact = x @ (restored.T if attrs.get("trans_b") else restored) + (0 if addend is None else addend)
    lowered = lower(plan)
    assert Counter(node.op for node in lowered.nodes)["matmul_packed"] == 1
    np.testing.assert_allclose(execute(lowered, {"x": x}, "numpy")["y"], exact, rtol=1e-4, atol=1e-4)
    # Kernels round the other operand to int8.
    found = execute(lowered, {"x": x}, "onnxruntime", threads=1)["y"]
    assert 1e-4 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 0.02


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_rounding_that_is_measured_is_that_of_the_kernel(packing):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((256, 64)).astype(np.float32)
    plan = planned("matmul", 3, w, packing)
    ((name, _), scale) = next(iter(plan.scales.items()))
    (node,) = plan.graph.nodes
    given = RoundedWeights(node.outputs[0], "x", node, (plan.graph.constants[name],), scale)
    batch = {"x": rng.standard_normal((3, 256)).astype(np.float32)}
    (error,) = sensitivities(plan.graph, {}, {}, {packing: given}, [batch]).errors.values()
    found = execute(lower(plan), batch, "onnxruntime", threads=1)
    assert error == pytest.approx(output_error(found, execute(plan.graph, batch, "onnxruntime", threads=1)), rel=1e-3)


def test_kernels_on_packed_weights_are_measured():
    texts = (
        "matmul {} float32[1, 64] =int4[64, 48] by int4_32",
        'gemm {"activation":"none","alpha":1.0,"beta":1.0,"trans_a":false,"trans_b":true} float32[4, 128] '
        "=int4[48, 128] =float32[48] by int4_128",
    )
    for text in texts:
        key = OpKey.parse(text)
        assert key.text == text
        assert measure(key, seconds=0.01).seconds > 0


def test_a_model_keeps_the_level_that_it_states():
    plan = planned("matmul", 2, np.ones((64, 8), np.float32), "int4_32")
    model = to_model(lower(plan))
    (node,) = model.graph.node
    assert onnx.helper.get_node_attr_value(node, "accuracy_level") == 4
    again = to_model(load(model))
    assert onnx.helper.get_node_attr_value(again.graph.node[0], "accuracy_level") == 4
    del node.attribute[[a.name for a in node.attribute].index("accuracy_level")]
    assert "accuracy_level" not in [a.name for a in to_model(load(model)).graph.node[0].attribute]
