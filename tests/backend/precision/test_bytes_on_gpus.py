"""Plans for GPUs with values in int8, float8 and float16: what is offered, estimated, checked and reported."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.language.terms import Conversion, Kernel, State
from eqsat.quantisation.sensitivity import output_error
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.runtime.backend import execute
from eqsat.runtime.cuda.libraries.calls import Matmul
from eqsat.runtime.programs.arena import arrange
from eqsat.testing.cuda.host import HostMachine

H200 = Device.of("nvidia-h200")
#: An H200 with a thousandth of its speed, and no launches: what pays there for large matrices pays here for small ones.
GPU = dataclasses.replace(
    H200,
    name="nvidia-test",
    gpu="NVIDIA Test",
    launch=0.0,
    flops={name: speed / 1000 for name, speed in H200.flops.items()},
)
FLOAT8 = eqsat.PrecisionPolicy(("float8",))
ROWS, WIDTH = 24, 64


def network(rows: int = ROWS) -> eqsat.Graph:
    """A residual block with a normalisation and a softmax."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("block")

    def weight(*shape):
        return g.constant((rng.standard_normal(shape) / np.sqrt(shape[0])).astype("f"))

    x = g.input("x", (rows, WIDTH))
    h = eqsat.relu(x @ weight(WIDTH, 96) + weight(96)) @ weight(96, WIDTH)
    scale = g.constant((1 + rng.standard_normal(WIDTH) / 10).astype("f"))
    h = eqsat.layer_norm(h + x, scale, weight(WIDTH), axis=-1)
    g.output("y", eqsat.softmax(h @ weight(WIDTH, 32) * g.constant(np.float32(0.25)), axis=-1))
    g.output("z", eqsat.tanh(h @ weight(WIDTH, 48)))
    return g.build()


def batches(count: int, seed: int = 0, rows: int = ROWS) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((rows, WIDTH)).astype("f")} for _ in range(count)]


def optimised(graph, precision, **options):
    options = {"device": GPU, "calibration": batches(6), "limits": {"error": 0.1}, "time_limit": 300.0, **options}
    return eqsat.optimize(graph, precision=precision, measure=False, cache=False, strict=True, **options)


@pytest.mark.parametrize("precision", ["int8", FLOAT8])
def test_scales_for_small_values_are_not_judged_on_inputs_that_are_cut_off(precision):
    g = eqsat.Graph("small")
    weights = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype("f") / 8
    g.output("y", g.input("x", (ROWS, WIDTH)) @ g.constant(weights))
    graph, small = g.build(), [{"x": batch["x"] * np.float32(1e-3)} for batch in batches(8)]
    found = optimised(graph, precision, calibration=small[:6])
    assert found.report.rounding is not None
    # ONNX Runtime's kernels on integers would add in 16 bits on processors without sums of four products.
    expected = execute(graph, small[7])
    assert output_error(execute(found.graph, small[7], "numpy"), expected) <= found.report.rounding.predicted


@pytest.fixture(scope="module")
def results():
    graph = network()
    return {
        name: optimised(graph, policy) for name, policy in (("int8", "int8"), ("float8", FLOAT8), ("mixed", "mixed"))
    }


@pytest.mark.parametrize("name", ["int8", "float8", "mixed"])
def test_products_of_bytes_are_kept_within_the_error_that_was_predicted(results, name):
    report = results[name].report
    rounding = report.rounding
    assert rounding is not None
    assert 0 < rounding.worst <= rounding.predicted <= 0.1
    assert report.kept == {"mixed": "int8 and float8"}.get(name, name)
    counted = [counts for counts in (rounding.integers, rounding.narrow.get("float8", {})) if counts]
    assert len(counted) == (2 if name == "mixed" else 1)
    assert all(counts.get("matmul", 0) + counts.get("gemm", 0) > 0 for counts in counted)
    before = [execute(network(), batch, "onnxruntime") for batch in batches(4, seed=1)]
    after = [execute(results[name].graph, batch, "numpy") for batch in batches(4, seed=1)]
    errors = [output_error(given, expected) for given, expected in zip(after, before, strict=True)]
    assert max(errors) <= 1.5 * rounding.predicted


@pytest.mark.parametrize("name", ["int8", "float8"])
def test_the_program_on_the_processor_computes_what_was_checked(results, name):
    program = results[name].gpu_program()
    products = [launch.work for launch in program.launches if isinstance(launch.work, Matmul)]
    dtype = "int8" if name == "int8" else "float8e4m3fn"
    bytes_ = [product for product in products if product.a.dtype.value == dtype]
    rounding = results[name].report.rounding
    counts = rounding.integers if name == "int8" else rounding.narrow["float8"]
    assert len(bytes_) == counts.get("matmul", 0) + counts.get("gemm", 0) >= 2
    for product in bytes_:
        assert product.result.dtype.value == ("int32" if name == "int8" else "float32")
        assert product.b.strides[-2] == 1, "columns lie together"
    for batch in batches(2, seed=1):
        given = HostMachine(program, arrange(program)).run(batch)
        expected = execute(results[name].graph, batch, "numpy")
        assert output_error(given, expected) <= 0.3 * results[name].report.rounding.predicted


def test_times_are_labelled_estimates_and_errors_those_of_a_processor(results):
    for result in results.values():
        assert result.report.estimated_share == pytest.approx(1.0)
        assert all(step.estimated for step in result.report.steps)
        text = " ".join(str(result.report).split())
        assert "measured with onnxruntime on this processor, none on a GPU" in text
        assert "estimates from the figures of nvidia-test" in text
        record = json.loads(result.report.json())["rounding"]
        assert {reason for kept in record["kept"].values() for reason in kept} <= {"policy", "kernel", "cost", "error"}


@pytest.mark.parametrize("name", ["int8", "float8", "mixed"])
def test_softmax_and_normalisation_stay_in_float32_and_a_value_is_cast_once(results, name):
    plan = results[name].plan
    producers = {v: node.op for node in plan.graph.nodes for v in node.outputs}
    sensitive = [k for k in plan.kernels if {producers[v] for v in k.nodes} & {"softmax", "layer_norm"}]
    assert len(sensitive) == 2
    for kernel in sensitive:
        assert all(held.state.is_plain for held in (*kernel.operands, *kernel.results))
    casts = [(step.value, step.target) for step in plan.steps if isinstance(step, Conversion)]
    assert len(casts) == len(set(casts))


#: A rule that does nothing here, in the place of those that make one product of two that read one value.
NONE = "none: relu(relu(x)) => relu(x)"


@pytest.mark.parametrize(("precision", "state"), [("int8", "int8"), (FLOAT8, "float8"), ("mixed", "float8")])
def test_one_conversion_serves_all_who_read_a_value_in_a_type(precision, state):
    rng = np.random.default_rng(0)
    g = eqsat.Graph("readers")
    x = g.input("x", (ROWS, WIDTH))
    for name in "yzw":
        weights = g.constant((rng.standard_normal((WIDTH, WIDTH)) / 8).astype("f"))
        g.output(name, x @ weights)
    result = optimised(g.build(), precision, rules=parse_rules(NONE))
    held = State("row", state)
    assert result.plan.conversions == (Conversion("x", State(), held),)
    assert [k.operands[0].state for k in result.plan.kernels] == [held] * 3
    assert sum(node.op in ("quantize_linear", "clip") for node in result.graph.nodes) == 1
    kinds = [
        launch.kind for launch in result.gpu_program().launches if "clip" in launch.label or "quant" in launch.label
    ]
    assert kinds == ["generated"]


@pytest.mark.parametrize(("name", "element", "opset"), [("int8", onnx.TensorProto.INT8, 13), ("float8", 17, 19)])
def test_what_is_written_runs_on_a_processor_with_weights_of_a_byte(results, name, element, opset):
    model = results[name].to_onnx()
    onnx.checker.check_model(model, full_check=True)
    assert next(one.version for one in model.opset_import if not one.domain) >= opset
    matrices = [tensor for tensor in model.graph.initializer if len(tensor.dims) == 2]
    assert sum(tensor.data_type == element for tensor in matrices) >= 2
    batch = batches(1)[0]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    written = dict(zip("yz", session.run(["y", "z"], batch), strict=True))
    assert output_error(written, execute(results[name].graph, batch, "numpy")) <= 0.01


def test_an_opset_without_float8_leaves_it_out_and_says_so():
    result = optimised(product(48), FLOAT8, opset=18, calibration=rows_of(48))
    assert result.report.rounding is None
    assert "float8 is left out: opset 18 has none; pass opset=19 or newer" in result.report.warnings


def test_without_data_bytes_are_left_out_and_said_to_be():
    result = optimised(product(48), "int8", calibration=None)
    assert result.report.rounding is None
    assert "no calibration data: int8 and float8, whose scales come from data on a GPU, are left out" in (
        result.report.warnings
    )


def product(width: int, rows: int = 37) -> eqsat.Graph:
    rng = np.random.default_rng(0)
    g = eqsat.Graph("product")
    weights = g.constant((rng.standard_normal((width, 64)) / np.sqrt(width)).astype("f"))
    g.output("y", g.input("x", (rows, width)) @ weights)
    return g.build()


def rows_of(width: int, rows: int = 37) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.standard_normal((rows, width)).astype("f")} for _ in range(6)]


@pytest.mark.parametrize(("width", "precisions"), [(62, ()), (36, ("int8",)), (48, ("int8", "float8"))])
def test_what_the_library_refuses_is_not_offered(width, precisions):
    """Columns and terms are multiples of 4 in int8 and of 16 in float8; rows are any number."""
    for precision in ("int8", "float8"):
        policy = eqsat.PrecisionPolicy((precision,))
        result = optimised(product(width), policy, calibration=rows_of(width))
        assert (result.report.rounding is not None) == (precision in precisions)
        if result.report.rounding is not None:
            (called,) = (x.work for x in result.gpu_program().launches if isinstance(x.work, Matmul))
            assert called.a.shape == (37, width)


def test_a_budget_that_no_rounding_keeps_leaves_float32():
    result = optimised(product(48), "int8", limits={"error": 1e-6}, calibration=rows_of(48))
    assert result.report.rounding is None
    assert "no choice on integers is within the error that is allowed: float32 is kept" in result.report.warnings


def test_a_device_that_lacks_float8_is_told_apart():
    older = dataclasses.replace(GPU, name="nvidia-older", flops={k: v for k, v in GPU.flops.items() if k != "float8"})
    with pytest.raises(eqsat.EqsatError, match="precision = 'float8' on nvidia-older"):
        optimised(product(48), FLOAT8, device=older)


#: A value rounded and brought back is not itself; a cast to fewer digits and back neither.
QUANTISED = "dequantize_linear(quantize_linear(x, s, z, to=t, axis=a, block=b), s, z, axis=c, block=d) => x"
CAST = "cast(cast(x, to=t), to=d) => x if dtype(x) == d"


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        (QUANTISED, "differ from the original by 1.6e-02; begun anew without the rules behind it: planted"),
        (CAST, "rounding moves its output 'y'"),
    ],
    ids=["quantisation", "cast"],
)
def test_a_planted_elimination_is_caught_in_a_plan_for_a_gpu(planted, told):
    g = eqsat.Graph("planted")
    x = g.input("x", (8, 16))
    if planted is CAST:
        rounded = eqsat.cast(eqsat.cast(x, to="float16"), to="float32")
    else:
        step, zero = g.constant(np.float32(0.05)), g.constant(np.int8(0))
        rounded = eqsat.quantize_linear(x, step, zero, to="int8", axis=0)
        rounded = eqsat.dequantize_linear(rounded, step, zero, axis=0)
    g.output("y", rounded * g.constant(np.float32([3.0])))
    graph = g.build()
    result = eqsat.optimize(graph, device=GPU, rules=parse_rules(f"planted: {planted}"), measure=False, cache=False)
    assert result.report.kept == "original"
    assert any(told in warning for warning in result.report.warnings)
    feeds = {"x": np.random.default_rng(0).standard_normal((8, 16)).astype("f")}
    program = result.gpu_program()
    given = HostMachine(program, arrange(program)).run(feeds)
    np.testing.assert_array_equal(given["y"], execute(graph, feeds, "numpy")["y"])


def large() -> eqsat.Graph:
    """A value in the middle reaches 1e5, and what is made of it is small again."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("large")
    weights = [g.constant((rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype("f")) for _ in range(4)]
    h = eqsat.relu(g.input("x", (ROWS, WIDTH)) @ weights[0]) @ weights[1]
    h = eqsat.relu((h * g.constant(np.float32(5e4))) @ weights[2]) * g.constant(np.float32(1e-5))
    g.output("y", h @ weights[3])
    return g.build()


def test_what_float16_cannot_hold_keeps_float32_for_its_range():
    graph, data = large(), batches(6)
    result = optimised(graph, "float16", calibration=data)
    assert any(
        warning.startswith("float32 is kept for range: ") and "float16 holds 65504" in warning
        for warning in result.report.warnings
    )
    narrow = State("row", "float16")
    assert any(held.state == narrow for step in result.plan.kernels for held in step.results)
    program = result.gpu_program()
    for batch in data:
        given = HostMachine(program, arrange(program)).run(batch)["y"]
        assert np.isfinite(given).all()
        assert output_error({"y": given}, execute(graph, batch, "numpy")) <= 0.1
    # Every value that is held in float16 is half of its largest number at most.
    inner = dataclasses.replace(result.graph, outputs={v: v for n in result.graph.nodes for v in n.outputs})
    for batch in data:
        for value, array in execute(inner, batch, "numpy").items():
            if str(inner.type(value)).startswith("float16"):
                assert np.abs(array.astype("f")).max() <= 65504 / 2


def large_in_a_logarithm() -> eqsat.Graph:
    """A value in the middle reaches 1e5, and no factor can be taken out of what makes it small again."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("large")
    weights = [g.constant((rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype("f")) for _ in range(4)]
    h = eqsat.relu(g.input("x", (ROWS, WIDTH)) @ weights[0]) @ weights[1]
    h = eqsat.relu((h * g.constant(np.float32(5e4))) @ weights[2])
    g.output("y", eqsat.log(h + 1.0) @ weights[3])
    return g.build()


def test_without_data_a_choice_that_overflows_is_refused_as_a_whole():
    result = optimised(large_in_a_logarithm(), "float16", calibration=None)
    assert any("left out" in warning for warning in result.report.warnings)
    assert not any(isinstance(s, Kernel) and s.results[0].state.precision for s in result.plan.steps)


def test_without_data_a_choice_that_takes_factors_out_overflows_nowhere():
    graph = large()
    result = optimised(graph, "float16", calibration=None)
    assert not result.report.warnings and any(held.state.precision for s in result.plan.kernels for held in s.results)
    program = result.gpu_program()
    for batch in batches(6):
        given = HostMachine(program, arrange(program)).run(batch)["y"]
        assert output_error({"y": given}, execute(graph, batch, "numpy")) <= 0.1
