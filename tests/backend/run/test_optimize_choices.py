"""`optimize` with layouts, precisions, limits and states of inputs and outputs, as a user combines them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat import State
from eqsat.certify.compare import relative_difference
from eqsat.certify.stated import stated_difference
from eqsat.errors import UsageError
from eqsat.language.onnx.read.model import read
from eqsat.language.terms.state import LAYOUTS

FAST: dict[str, Any] = {"measure": False, "time_limit": 10.0, "node_limit": 1500}
RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.2).astype(np.float32)


def perceptron() -> eqsat.Graph:
    g = eqsat.Graph("perceptron")
    x = g.input("x", (4, 32))
    for width in (48, 32):
        x = eqsat.relu(x @ g.constant(weights(x.shape[-1], width)) + g.constant(weights(width)))
    g.output("y", x)
    return g


def attention() -> eqsat.Graph:
    g = eqsat.Graph("attention")
    x = g.input("x", (2, 8, 32))
    q, k, v = (x @ g.constant(weights(32, 32)) for _ in range(3))
    g.output("y", eqsat.softmax(q @ k.transpose(0, 2, 1) / 6.0, axis=-1) @ v)
    return g


def images() -> eqsat.Graph:
    g = eqsat.Graph("images")
    x = g.input("x", (1, 16, 6, 6))
    g.output("y", eqsat.relu(eqsat.conv(x, g.constant(weights(16, 16, 1, 1)))) + x)
    return g


def folding() -> eqsat.Graph:
    """Weights that are merged before the program runs, so many that settling ties by their bytes would show."""
    g = eqsat.Graph("folding")
    x = g.input("x", (1, 1024))
    g.output("y", eqsat.relu((x * g.constant(weights(1, 1024))) @ g.constant(weights(1024, 1024))))
    return g


def passed_on() -> eqsat.Graph:
    """Outputs that are an input, a constant, and one value twice."""
    g = eqsat.Graph("passed_on")
    x, w = g.input("x", (4, 4)), g.input("w", (4, 4))
    h = x @ w
    for name, value in (("y", x), ("k", g.constant(weights(3, 3))), ("a", h), ("b", h)):
        g.output(name, value)
    return g


def stored(array: np.ndarray, state: State) -> np.ndarray:
    array = array.astype(state.precision or array.dtype)
    return np.transpose(array, LAYOUTS[state.layout].order(array.ndim))


BOUNDARIES: list[tuple[Any, dict[str, State]]] = [
    (perceptron, {"x": State("column")}),
    (perceptron, {"y": State("column", "float16")}),
    (perceptron, {"x": State("row", "float16"), "y": State("row", "float16")}),
    (images, {"x": State("nhwc"), "y": State("nhwc")}),
    (images, {"y": State("nhwc", "float16")}),
    (passed_on, {"x": State("column")}),
    (passed_on, {"x": State("column"), "y": State("row", "float16")}),
    (passed_on, {"k": State("row", "float16")}),
    (passed_on, {"k": State("column"), "a": State("column"), "b": State("row", "float16")}),
]


@pytest.mark.parametrize("device", ["onnxruntime-cpu", "nvidia-h200"])
@pytest.mark.parametrize(("build", "boundary"), BOUNDARIES, ids=lambda v: getattr(v, "__name__", None) or "-".join(v))
def test_inputs_and_outputs_are_held_as_the_caller_says(build: Any, boundary: dict[str, State], device: str) -> None:
    graph = build().build()
    feeds = {
        name: RNG.standard_normal(tuple(graph.type(name).shape)).astype(np.float32)  # type: ignore[union-attr, arg-type]
        for name in graph.inputs
    }
    expected = eqsat.optimize(graph, rules=(), **FAST).run(**feeds)
    result = eqsat.optimize(graph, boundary=boundary, device=device, **FAST)
    held = {name: stored(array, boundary.get(name, State())) for name, array in feeds.items()}
    found = result.compile("onnxruntime")(**held)
    assert list(found) == list(expected)
    for name, array in expected.items():
        wanted = stored(array, boundary.get(name, State()))
        assert (found[name].shape, found[name].dtype) == (wanted.shape, wanted.dtype)
        assert relative_difference(wanted.astype(np.float64), found[name].astype(np.float64)) < 1e-2
    report = result.report
    assert not [w for w in report.warnings if "not checked" in w or "left out" in w]
    assert report.lower_bound <= report.cost_after <= report.cost_before
    assert sum(step.seconds for step in report.steps) == pytest.approx(report.cost_after, abs=1e-11)


@pytest.mark.parametrize("keep", [True, False])
def test_the_original_comes_back_in_the_states_asked_for(keep: bool) -> None:
    boundary = {"x": State("column"), "y": State("row", "float16")}
    choices: dict[str, Any] = {"rules": (), "layouts": "row"} if keep else {}
    result = eqsat.optimize(perceptron(), boundary=boundary, **choices, **FAST)
    assert (result.report.kept == "original") is keep
    assert result.source is None
    model = result.to_onnx()
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == [32, 4]
    assert model.graph.output[0].type.tensor_type.elem_type == 10  # float16


@pytest.mark.parametrize(
    ("boundary", "message"),
    [
        ({"z": State("column")}, "no input or output 'z' to hold in a state\n  expected one of x, y"),
        ({"x": State("nhwc")}, "'x', float32[4, 32], as nhwc\n  expected a tensor of 3 to 5 axes in the layout nhwc"),
        ({"x": State("blocked")}, "'x', float32[4, 32], as blocked\n  expected an order of axes"),
        ({"y": State("packed")}, "'y', float32[4, 32], as packed\n  expected an order of axes"),
        ({"x": State("row", "tf32")}, "as row tf32\n  expected a tensor of float32 held in float16 or bfloat16"),
        ({"x": State("row", "float32")}, "as row float32\n  expected a tensor of float32 held in float16"),
    ],
)
def test_states_that_no_caller_can_hold_are_refused(boundary: dict[str, State], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        eqsat.optimize(perceptron(), boundary=boundary, **FAST)
    assert message in str(raised.value)


BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 8] x, float[8, 8] w) => (float[4, 8] y) {
    a = MatMul(x, w) \n b = Relu(a) \n s = ReduceSum<keepdims = 0>(b) \n zero = Constant<value_float = 0.0>()
    c = Greater(s, zero)
    h = If(c)<then_branch = t() => (float[4, 8] o) { o = Add(b, x) },
              else_branch = e() => (float[4, 8] o) { o = Neg(x) }>
    d = MatMul(h, w) \n e = Relu(d) \n y = Add(e, b)
}"""


@pytest.mark.parametrize("boundary", [{}, {"x": State("column")}])
@pytest.mark.parametrize("precision", ["exact", "mixed"])
def test_what_is_around_an_opaque_node_runs_in_other_states(precision: str, boundary: dict[str, State]) -> None:
    given = onnx.parser.parse_model(BRANCHES)
    feeds = {"x": weights(4, 8), "w": weights(8, 8)}
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    result = eqsat.optimize(given, device="nvidia-h200", precision=precision, boundary=boundary, **FAST)
    assert result.report.kept != "original"
    assert result.plan is not None and not result.plan.is_plain
    held = {name: stored(array, boundary.get(name, State())) for name, array in feeds.items()}
    found = result.compile("onnxruntime")(**held)
    assert relative_difference(session.run(None, feeds)[0].astype(float), found["y"].astype(float)) < 2e-2


def test_a_model_declares_its_inputs_and_outputs_as_they_are_held() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[rows, columns] x, float[8, 2] w) => (float[rows, 2] y) <float[8, 2] w> { y = MatMul(x, w) }"""
    given = onnx.parser.parse_model(text)
    w = weights(8, 2)
    given.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))  # a default, which a caller may override
    boundary = {"x": State("column"), "w": State("column"), "y": State("column", "float16")}
    model = eqsat.optimize(given, boundary=boundary, sizes={"rows": 4, "columns": 8}, **FAST).to_onnx()
    onnx.checker.check_model(model, full_check=True)
    shapes = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input]
    assert shapes == [["columns", "rows"], [2, 8]]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = weights(3, 8)
    (y,) = session.run(None, {"x": np.ascontiguousarray(x.T)})
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.T, x @ w, rtol=1e-2, atol=1e-3)


def test_what_an_opaque_node_reads_is_checked_too() -> None:
    given = onnx.parser.parse_model(BRANCHES.replace("y = Add(e, b)", "y = Identity(e)"))
    graph = read(given).graph
    wrong = read(
        onnx.parser.parse_model(BRANCHES.replace("Relu(a)", "Neg(a)").replace("Add(e, b)", "Identity(e)"))
    ).graph
    assert stated_difference(graph, graph, {}, {}, 0) == 0.0
    # The outputs agree, since the branches' results are drawn; what goes into them does not.
    assert stated_difference(graph, wrong, {}, {}, 0) > 0.1


def test_a_plan_that_random_indices_cannot_check_is_left_out() -> None:
    g = eqsat.Graph("lookup")
    x, i = g.input("x", (1, 4)), g.input("i", (3,), dtype="int64")
    g.output("y", eqsat.relu(eqsat.gather(x, i, axis=0) * 2.0) + 1.0)
    result = eqsat.optimize(g, device="nvidia-h200", **FAST)
    assert result.report.kept == "original"
    assert any("random inputs are none that it takes" in w for w in result.report.warnings)


def test_a_front_is_drawn_into_files_that_show_plots(tmp_path: Path) -> None:
    front = eqsat.pareto(perceptron(), time_limit=10.0, node_limit=500)
    with pytest.raises(UsageError, match=r"no plot of the kind '\.xyz'"):
        front.plot(tmp_path / "front.xyz")
    front.plot(tmp_path / "front.svg")
    assert (tmp_path / "front.svg").read_text().startswith("<?xml")


#: Arguments of the wrong kind, and what the message says of them.
MISTAKEN: list[tuple[dict[str, Any], str]] = [
    ({"layouts": None}, "layouts = None\n  expected 'auto', or names of layouts"),
    ({"layouts": [["row"]]}, "no layout ['row']"),
    ({"precision": ["mixed"]}, "precision = ['mixed']"),
    ({"limits": "launches=3"}, "limits = 'launches=3'\n  expected a mapping, such as {'peak_memory': '8 GB'"),
    ({"boundary": [State()]}, "expected a mapping, such as {'x': State('column', 'float16')}"),
    ({"sizes": 5}, "sizes = 5\n  expected a mapping"),
    ({"extractor": ["ilp"]}, "no extractor ['ilp']"),
    ({"extractor": "backtracking", "alpha": "1"}, "alpha='1'\n  expected a factor above 0"),
    ({"time_limit": "30s"}, "time_limit = '30s'\n  expected seconds, a number above 0"),
    ({"node_limit": 2.5}, "node_limit = 2.5\n  expected a whole number above 0"),
    ({"threads": True}, "threads = True"),
    ({"seed": 1.5}, "seed = 1.5"),
    ({"opset": "17"}, "opset = '17'"),
    ({"device": None}, "device = None\n  expected the name of a device"),
    ({"outputs": 5}, "outputs = 5\n  expected a list of one name or more"),
    ({"table": 5}, "table = 5\n  expected a CostTable, or the path of one"),
    ({"rules": [5]}, "rules = [5]"),
    ({"finite_math": "yes"}, "finite_math = 'yes'\n  expected True, False or None"),
    ({"should_stop": 5}, "should_stop = 5\n  expected a function, or None"),
    ({"cost": 5}, "cost = 5\n  expected a function, or None"),
    ({"cost": float, "objective": {"time": 1.0}}, "cost and objective\n  expected one of the two"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKEN, ids=lambda v: "-".join(v) if isinstance(v, dict) else "")
def test_arguments_of_another_kind_are_refused_before_the_model_is_read(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        eqsat.optimize("missing.onnx", **arguments)
    assert message in str(raised.value)


PARETO_MISTAKEN: list[tuple[dict[str, Any], str]] = [
    ({"y": ["bytes"]}, "no term ['bytes']"),
    ({"limits": 5}, "limits = 5"),
    ({"node_limit": 0}, "node_limit = 0"),
    ({"seed": -1}, "seed = -1"),
    ({"threads": 0}, "threads = 0"),
    ({"time_limit": float("nan")}, "time_limit = nan"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), PARETO_MISTAKEN, ids=lambda v: "-".join(v) if isinstance(v, dict) else ""
)
def test_arguments_of_a_front_are_checked_too(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        eqsat.pareto("missing.onnx", **arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize("objective", [{"time": 1.0}, {"time": 1.0, "launches": 1e-6, "peak_memory": 1e-12}])
def test_the_cost_is_the_sum_of_what_runs(objective: dict[str, float]) -> None:
    result = eqsat.optimize(folding(), device="nvidia-h200", objective=objective, **FAST)
    report = result.report
    assert result.plan is not None and not result.plan.is_plain
    total = sum(step.seconds for step in report.steps)
    if "launches" in objective:
        total += 1e-6 * len(report.steps) + 1e-12 * report.amounts["peak_memory"]
    assert report.cost_after == pytest.approx(total, rel=1e-9)
    assert report.lower_bound <= report.cost_after < report.cost_before


@pytest.mark.parametrize("build", [attention, perceptron])
def test_whoever_allows_more_gets_nothing_dearer(build: Any) -> None:
    graph = build().build()

    def cost(layouts: Any, precision: str) -> float:
        report = eqsat.optimize(graph, device="nvidia-h200", layouts=layouts, precision=precision, **FAST).report
        assert report.extraction == "optimal"
        return report.cost_after

    rows, exact = cost(("row",), "exact"), cost("auto", "exact")
    assert exact <= rows * (1 + 1e-9)
    for precision in ("tf32", "mixed", "bfloat16"):
        assert cost("auto", precision) <= exact * (1 + 1e-9)
