"""OpenVINO as a backend and as a device: what it computes, refuses and measures, and what is chosen for it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import pytest

import eqsat
from eqsat.costs.devices.device import DEVICES, Device, read_device, write_device
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.measure import measure
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError, CostError
from eqsat.language.graphs.builder import Builder
from eqsat.language.terms import TensorType
from eqsat.report.precision import RoundingReport
from eqsat.runtime.backend import execute, select
from eqsat.runtime.openvino.session import OpenVinoProgram, compiled, core_of_process


def perceptron(width: int = 256, layers: int = 3) -> eqsat.Graph:
    rng = np.random.default_rng(0)
    g = eqsat.Graph("perceptron")
    y = g.input("x", (64, width))
    for _ in range(layers):
        y = eqsat.relu(y @ g.constant((rng.standard_normal((width, width)) / np.sqrt(width / 2)).astype(np.float32)))
    g.output("y", y)
    return g.build()


def images(channels: int = 64) -> eqsat.Graph:
    """Convolutions long enough that kernels on integers pay on any processor."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("images")
    y = g.input("x", (1, channels, 32, 32))
    for _ in range(3):
        w = (rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(4.5 * channels)).astype(np.float32)
        y = eqsat.relu(eqsat.conv(y, g.constant(w), g.constant(np.zeros(channels, "f")), pads=(1, 1, 1, 1)))
    g.output("y", y)
    return g.build()


def drawn(graph: eqsat.Graph, count: int) -> list[dict[str, np.ndarray]]:
    shape = graph.type("x").static
    return [{"x": np.random.default_rng(i).standard_normal(shape).astype(np.float32)} for i in range(count)]


def kernels(model: onnx.ModelProto, graph: eqsat.Graph, feeds: dict[str, np.ndarray]) -> set[tuple[str, str]]:
    """The kernels that OpenVINO ran, with the element type at the end of their kind, from its own profile."""
    program = OpenVinoProgram(graph, compiled(model, threads=1, profiled=True))
    program.run(feeds)
    return {(name, kind.rpartition("_")[2]) for name, kind, _ in program.profile()}


def test_outputs_are_those_of_the_reference():
    graph = perceptron()
    feeds = drawn(graph, 1)[0]
    expected = execute(graph, feeds, "numpy")["y"]
    np.testing.assert_allclose(execute(graph, feeds, "openvino", threads=1)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "uint8", "bool", "bfloat16"])
def test_element_types_come_as_they_go(dtype):
    g = Builder("same")
    g.output("y", g.apply("reshape", g.input("x", (2, 3), dtype), shape=(3, 2)))
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = np.arange(6).reshape(2, 3).astype(kind)
    y = execute(g.build(), {"x": x}, "openvino")["y"]
    assert y.dtype == x.dtype
    assert y.tolist() == x.reshape(3, 2).tolist()


def test_named_dims_take_any_size_and_bound_calls_repeat():
    g = eqsat.Graph("free")
    x = g.input("x", ("n", 4))
    g.output("y", x + x)
    program = select("openvino").compile(g.build(), threads=1)
    for n in (1, 3, 7):
        assert program(x=np.ones((n, 4), np.float32))["y"].tolist() == [[2.0] * 4] * n
    one, two = (program.bind({"x": np.full((2, 4), value, np.float32)}) for value in (1, 2))
    for call in (one, two, one):
        call()


def test_inputs_that_nothing_reads_and_outputs_that_are_inputs_are_served():
    g = eqsat.Graph("idle")
    x, _ = g.input("x", (2,)), g.input("idle", (3,))
    g.output("y", x)
    g.output("z", x * x)
    out = execute(g.build(), {"x": np.float32([1, 2]), "idle": np.zeros(3, np.float32)}, "openvino")
    assert out["y"].tolist() == [1, 2]
    assert out["z"].tolist() == [1, 4]


def test_float64_is_refused_since_it_would_be_rounded():
    g = eqsat.Graph("double")
    x = g.input("x", (2,), "float64")
    g.output("y", x * x)
    with pytest.raises(BackendError, match="OpenVINO computes float64 in float32"):
        select("openvino").compile(g.build())


def test_integers_that_it_would_lose_are_refused():
    g = Builder("large")
    g.output("y", g.apply("reshape", g.input("x", (2,), "int64"), shape=(2, 1)))
    program = select("openvino").compile(g.build())
    with pytest.raises(BackendError, match="has elements that 32 bits do not hold"):
        program.run({"x": np.int64([2**40, 5])})


def test_an_operator_that_it_lacks_is_told_in_one_line():
    from onnx import TensorProto, helper

    node = helper.make_node("Nowhere", ["x"], ["y"], domain="example")
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])])
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    with pytest.raises(BackendError, match=r"OpenVINO refuses the graph: .*Nowhere") as error:
        compiled(model)
    assert "\n" not in error.value.what


def test_a_package_that_is_missing_is_named():
    code = (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'openvino' else real(name, *a)\n"
        "from eqsat.runtime.backend import select\n"
        "try: select('openvino')\n"
        "except Exception as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "openvino is not installed; pip install 'eqsat[openvino]'" in said


def test_the_device_is_one_file_whose_environment_names_its_runtime():
    device = Device.of("openvino-cpu")
    assert device == read_device(write_device(device))
    assert device.backend == "openvino"
    assert not device.is_onnxruntime
    assert Environment.current("openvino-cpu").runtime.startswith("openvino 2026.4")
    assert DEVICES["onnxruntime-cpu"].backend == "onnxruntime"
    fields = json.loads(write_device(device)) | {"runtime": "openvimo"}
    with pytest.raises(CostError, match=r"runtime.*'openvimo'"):
        read_device(json.dumps(fields))


def test_kernels_are_measured_on_it_and_one_that_it_lacks_is_told():
    key = OpKey.of("matmul", {}, [TensorType.of("float32", (64, 64))] * 2, [False, True], {})
    assert 0 < measure(key, device="openvino-cpu", seconds=0.01).seconds < 1e-2
    lacking = OpKey.of("matmul", {}, [TensorType.of("float64", (64, 64))] * 2, [False, True], {})
    with pytest.raises(CostError, match="float64"):
        measure(lacking, device="openvino-cpu", seconds=0.01)


def test_a_result_runs_on_the_backend_of_its_device():
    graph = perceptron()
    result = eqsat.optimize(graph, device="openvino-cpu", measure=False)
    assert isinstance(result.compile(), OpenVinoProgram)
    feeds = drawn(graph, 1)[0]
    np.testing.assert_allclose(result.run(**feeds)["y"], execute(graph, feeds, "numpy")["y"], rtol=1e-4, atol=1e-5)


def test_bfloat16_is_written_with_casts_within_the_limit_of_error():
    graph = images()
    result = eqsat.optimize(graph, device="openvino-cpu", precision="bfloat16", limits={"error": 0.05}, measure=False)
    assert {n.op for n in result.graph.nodes} >= {"cast", "conv"}
    model = result.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version >= 22  # the first whose convolutions take bfloat16
    feeds = drawn(graph, 1)[0]
    expected = execute(graph, feeds, "numpy")["y"].astype(np.float64)
    error = np.linalg.norm(result.run(**feeds)["y"] - expected) / np.linalg.norm(expected)
    assert 0 < error <= 0.05


def test_kernels_of_a_lower_precision_are_in_the_profile_of_the_runtime():
    graph = images()
    feeds = drawn(graph, 1)[0]
    result = eqsat.optimize(
        graph, device="openvino-cpu", precision="int8", calibration=drawn(graph, 9), limits={"error": 0.1}, strict=True
    )
    assert result.report.rounding is not None
    assert result.report.rounding.integers["conv"] == 3
    # By the name that OpenVINO gives 8-bit kernels.
    assert ("Convolution", "I8") in kernels(result.to_onnx(), result.graph, feeds)
    if "BF16" in core_of_process().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        halves = eqsat.optimize(graph, device="openvino-cpu", precision="bfloat16", limits={"error": 0.1})
        assert ("Convolution", "bf16") in kernels(halves.to_onnx(), halves.graph, feeds)


def test_products_of_matrices_that_are_chosen_on_integers_are_in_the_profile():
    """Bytes are to be few: in time integers lose where a processor has no sums of four products."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("products")
    w, v = (g.constant((rng.standard_normal((512, 512)) / 16).astype(np.float32)) for _ in range(2))
    y = eqsat.gemm(g.input("x", (128, 512)), w, g.constant(rng.standard_normal(512).astype(np.float32)))
    g.output("y", y @ v)
    graph = g.build()
    options = {"device": "openvino-cpu", "precision": "int8", "limits": {"error": 0.1}, "rules": []}
    options["objective"] = {"bytes": 1.0}
    result = eqsat.optimize(graph, calibration=drawn(graph, 9), strict=True, **options)
    assert result.report.rounding is not None
    assert {"gemm", "matmul"} <= {*result.report.rounding.integers}
    ran = kernels(result.to_onnx(), result.graph, drawn(graph, 1)[0])
    assert {kind for name, kind in ran if name.startswith("FullyConnected")} == {"I8"}


def test_operators_on_integers_are_chosen_with_one_scale_for_all_weights():
    """It would read scales of channels along another axis."""
    graph = images()
    feeds = drawn(graph, 1)[0]
    result = eqsat.optimize(
        graph,
        device="openvino-cpu",
        precision="int8",
        calibration=drawn(graph, 9),
        limits={"error": 0.1},
        quantised="operators",
        rules=[],
    )
    model = result.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node].count("QLinearConv") == 3
    ran = kernels(model, result.graph, feeds)
    assert {kind for name, kind in ran if name == "Convolution"} == {"I8"}
    expected = execute(graph, feeds, "numpy")["y"]
    assert np.linalg.norm(result.run(**feeds)["y"] - expected) <= 0.1 * np.linalg.norm(expected)


@dataclass(frozen=True, slots=True)
class WrittenKey:
    """A key of a cost table as its text."""

    text: str


def test_mixed_means_bfloat16_and_integers_on_it(tmp_path):
    """The table decides between the two here, since either may be faster on a processor."""
    graph = images()

    def optimized(measure: bool) -> RoundingReport:
        result = eqsat.optimize(
            graph,
            device="openvino-cpu",
            precision="mixed",
            calibration=drawn(graph, 9),
            limits={"error": 0.1},
            table=tmp_path / "costs.sqlite3",
            measure=measure,
            cache=False,
        )
        assert result.report.rounding is not None
        return result.report.rounding

    chosen = optimized(measure=True)
    assert chosen.worst <= chosen.predicted <= 0.1
    assert sum(chosen.integers.values()) + sum(chosen.narrow.get("bfloat16", {}).values()) >= 3
    with CostTable(tmp_path / "costs.sqlite3") as table:
        records = list(table.records())
    if "BF16" in core_of_process().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        assert any("bfloat16" in record.key for record in records)
    for slow, integers in (("bfloat16", 3), (" by int8", 0)):
        with CostTable(tmp_path / "costs.sqlite3") as table:
            for record in records:
                times = record.entry if slow not in record.key else Entry(1e-2, 1e-2, 1e-2, 20)
                table.put(record.environment, WrittenKey(record.key), times)
        decided = optimized(measure=False)
        assert decided.worst <= decided.predicted <= 0.1
        assert decided.integers.get("conv", 0) == integers


def test_nothing_is_lowered_unless_it_is_asked_for():
    graph = images()
    feeds = drawn(graph, 1)[0]
    assert {kind for _, kind in kernels(eqsat.optimize(graph, measure=False).to_onnx(), graph, feeds)} == {"f32"}


#: Compiles models that end in the order in which they came, as peers and as a backend, then hears Ctrl-C.
INTERRUPTED = """
import faulthandler, gc, os, signal
faulthandler.enable()
import numpy as np
import eqsat
from eqsat.bench.case import BenchCase
from eqsat.bench.openvino_peer import OpenVinoPeer
from eqsat.costs.devices.device import Device
from eqsat.runtime.backend import select
g = eqsat.Graph("g")
g.output("y", eqsat.relu(g.input("x", (4, 4))))
graph = g.build()
case = BenchCase("g", graph, graph, Device.of("onnxruntime-cpu"), "float32")
held = [select("openvino").compile(graph), OpenVinoPeer().load(case), OpenVinoPeer().load(case)]
while held:
    held.pop(0)
    gc.collect()
signal.signal(signal.SIGINT, lambda *_: print("heard"))
os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_is_heard_after_models_have_come_and_gone():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr
