"""Policies of precision: what they promise of sums, casts, interfaces and fusion, and how they are refused."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.precision import POLICIES, PrecisionPolicy
from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import encode
from eqsat.egraph.snapshot import snapshot
from eqsat.errors import UsageError
from eqsat.extract import solve
from eqsat.extract.tensors.tensors import tensor_problem
from eqsat.language.graphs.builder import Builder
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.runtime.backend import execute

#: A cast and back is nothing only where the first one keeps all digits.
ILLEGAL = "cast(cast(x, to=t), to=d) => x if dtype(x) == d"


@pytest.mark.parametrize(("dtype", "backend"), [("float16", "numpy"), ("bfloat16", "numpy"), ("bfloat16", "openvino")])
def test_products_of_narrow_floats_add_up_in_float32(dtype, backend):
    """4096 times 1e-4: added up in float16 the sum would stop at 0.25, in bfloat16 at 0.03."""
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    g = Builder("sum")
    g.output("y", g.apply("matmul", g.input("x", (1, 4096), dtype), g.input("ones", (4096, 4), dtype)))
    feeds = {"x": np.full((1, 4096), 1e-4, kind), "ones": np.ones((4096, 4), kind)}
    found = execute(g.build(), feeds, backend, threads=1)["y"].astype(np.float64)
    exact = 4096 * float(kind(1e-4))
    np.testing.assert_allclose(found, exact, rtol=2.0**-8)


def test_a_planted_elimination_does_not_change_a_result():
    g = eqsat.Graph("casts")
    x = g.input("x", (4, 8))
    g.output("y", eqsat.cast(eqsat.cast(x, to="float16"), to="float32") * g.constant(np.float32([3.0])))
    graph = g.build()
    result = eqsat.optimize(graph, rules=parse_rules(f"planted: {ILLEGAL}"), measure=False, cache=False)
    assert result.report.kept == "original"
    assert any("rounding moves its output 'y'" in warning for warning in result.report.warnings)
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
    np.testing.assert_array_equal(result.run(**feeds)["y"], execute(graph, feeds, "numpy")["y"])


def model() -> eqsat.Graph:
    g = eqsat.Graph("model")
    x = g.input("x", (64, 256))
    w = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32) / 16
    h = eqsat.relu(x @ g.constant(w)) @ g.constant(w)
    g.output("y", eqsat.softmax(h, axis=-1) @ g.constant(w))
    return g.build()


@pytest.mark.parametrize("precision", ["bfloat16", "mixed", "int8"])
def test_one_flag_on_a_model_keeps_its_interface_and_its_softmax(precision):
    data = [{"x": np.random.default_rng(i).standard_normal((64, 256)).astype(np.float32)} for i in range(6)]
    result = eqsat.optimize(
        model(), device="openvino-cpu", precision=precision, calibration=data, limits={"error": 0.2}, cache=False
    )
    graph = result.graph
    assert [str(graph.type(name).dtype.value) for name in (*graph.inputs, *graph.outputs.values())] == ["float32"] * 2
    for node in graph.nodes:
        if node.op == "softmax":
            assert graph.type(node.inputs[0]).dtype.value == "float32"


def seconds(graph: eqsat.Graph, device: Device, policy: PrecisionPolicy) -> float:
    problem = tensor_problem(snapshot(encode(graph)), CostModel(device), choices=Choices(policy=policy))
    return solve(problem.problem).cost


def test_precision_and_fusion_together_save_more_than_each_alone():
    """60 % of the time in products and 40 % in memory, each four times as fast: 1.82, 1.43, and together 4.

    The example of PAI's article on mixed precision with fusion of what memory bounds.
    """
    g = Builder("amdahl")
    g.output("y", g.apply("matmul", g.input("x", (8, 8)), g.constant(np.ones((8, 8), np.float32))))
    z = g.input("z", (64, 64))
    for _ in range(4):
        z = g.apply("neg", z)
    g.output("z4", z)
    graph = g.build()
    products, moved = 2 * 8**3, 4 * 2 * 4 * 64**2
    plain = Device(
        name="amdahl",
        kind="roofline",
        flops={"float32": products / 60.0, "tf32": products / 15.0},
        near_bytes=0,
        launch=0.0,
        view=0.0,
        efficiency={"neg": 1e9},  # what memory bounds
        rates={},
        layouts=("row",),
        fuses=False,
        source="made by hand for tests",
        **dict.fromkeys(("bandwidth", "near_bandwidth", "weight_bandwidth"), moved / 40.0),
    )
    fused = dataclasses.replace(plain, fuses=True)
    exact, tf32 = POLICIES["exact"], POLICIES["tf32"]
    base = seconds(graph, plain, exact)
    speedups = [base / seconds(graph, *one) for one in ((plain, tf32), (fused, exact), (fused, tf32))]
    assert speedups == pytest.approx([1.82, 1.43, 4.0], abs=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"precision": PrecisionPolicy(("float8",)), "device": "openvino-cpu"},
            "precision = 'float8' on openvino-cpu\n  expected",
        ),
        (
            {"precision": "bfloat16"},
            "precision = 'bfloat16' on onnxruntime-cpu\n  expected one",
        ),
        ({"precision": "bfloat16"}, "device='openvino-cpu' has such kernels"),
        (
            {"precision": "int8", "limits": {"error": 1e-9}},
            "limits: error = 1e-09\n  expected 0, for no lower",
        ),
    ],
)
def test_what_cannot_be_had_is_told_before_anything_is_done(options, message):
    with pytest.raises(UsageError) as told:
        eqsat.optimize(model(), **options)
    assert message in str(told.value)
