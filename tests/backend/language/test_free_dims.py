"""Models with free dims are costed, measured and checked at sizes that they accept, and the report says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import eqsat
from eqsat.costs.model.model import CostModel
from eqsat.errors import BackendError, UsageError
from eqsat.language.onnx.read.importer import load
from eqsat.options.sizes import sizes_of
from eqsat.report.parts import CostedSizes
from eqsat.runtime.examples import MOST_ELEMENTS, SizePoint, tried

OPSETS = [helper.make_opsetid("", 17)]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
FAST: dict[str, Any] = {"time_limit": 5.0}


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str | None]]],
    constants: dict[str, Any],
) -> onnx.ModelProto:
    """A model that makes y."""
    graph = helper.make_graph(
        nodes,
        "m",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=OPSETS)


def weight(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def run(source: onnx.ModelProto, **feed: Any) -> Any:
    """What ONNX Runtime makes of the first output."""
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def products() -> list[onnx.NodeProto]:
    """(h·a + h·b), which rules make h·(a + b)."""
    return [
        helper.make_node("MatMul", ["h", "a"], ["p"]),
        helper.make_node("MatMul", ["h", "b"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["y"]),
    ]


def shortened() -> onnx.ModelProto:
    """A slice that ends three before the end: three steps or fewer leave nothing."""
    ends = [
        helper.make_node("Slice", ["x", "zero", "ends", "one"], ["h"]),
        *products(),
    ]
    constants = {"zero": [0], "ends": [-3], "one": [1], "a": weight(8, 32), "b": weight(8, 32)}
    shape: list[int | str | None] = ["batch", "sequence", 8]
    shortening = {k: np.asarray(v, np.int64) if isinstance(v, list) else v for k, v in constants.items()}
    return model(ends, {"x": (FLOAT, shape)}, shortening)


def in_rows(rows: int) -> onnx.ModelProto:
    """A sequence that is cut into rows of so many elements."""
    nodes = [helper.make_node("Reshape", ["x", "target"], ["h"]), *products()]
    constants = {"target": np.array([-1, rows], np.int64), "a": weight(rows, 32), "b": weight(rows, 32)}
    return model(nodes, {"x": (FLOAT, ["length"])}, constants)


def branched() -> onnx.ModelProto:
    """A sequence that either branch of an If cuts into rows of 96 elements."""

    def branch(name: str) -> onnx.GraphProto:
        nodes = [helper.make_node("Reshape", ["x", "target"], [name])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, FLOAT, ["rows", 96])])

    chosen = helper.make_node("If", ["c"], ["h"], then_branch=branch("t"), else_branch=branch("e"))
    inputs: dict[str, tuple[int, list[int | str | None]]] = {"x": (FLOAT, ["length"]), "c": (TensorProto.BOOL, [])}
    constants = {"target": np.array([-1, 96]), "a": weight(96, 32), "b": weight(96, 32)}
    return model([chosen, *products()], inputs, constants)


def counted() -> onnx.ModelProto:
    """The first so many rows added to all, where the number is an input: 1 or as many as there are."""
    nodes = [
        helper.make_node("Slice", ["x", "zero", "count"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["h"]),
        *products(),
    ]
    inputs: dict[str, tuple[int, list[int | str | None]]] = {"x": (FLOAT, ["n", 8]), "count": (INT64, [1])}
    return model(nodes, inputs, {"zero": np.array([0]), "a": weight(8, 32), "b": weight(8, 32)})


@pytest.mark.parametrize(
    ("build", "at"),
    [
        (shortened, "batch=16, sequence=16"),
        (lambda: in_rows(64), "length=64"),
        (lambda: in_rows(48), "length=48"),
        (branched, "length=96"),
    ],
    ids=["three before the end", "rows of 64", "rows of 48", "a branch that is kept as it is"],
)
def test_a_model_is_measured_at_sizes_that_it_accepts_and_the_report_says_which(build: Any, at: str) -> None:
    given = build()
    result = eqsat.optimize(given, **FAST)
    report = result.report
    assert not [w for w in report.warnings if "not measured" in w or "checked" in w]
    assert report.measured_before is not None
    assert report.measured_at == at
    assert f"measured at {at}" in " ".join(str(report).split())
    assert report.sizes == [CostedSizes(dict(_pairs(at)), 1.0)]
    assert report.to_json()["measured_at"] == at


def _pairs(text: str) -> list[tuple[str, int]]:
    return [(name, int(size)) for name, size in (part.split("=") for part in text.split(", "))]


def test_the_certificate_checks_at_sizes_at_which_no_tensor_has_a_negative_dim() -> None:
    result = eqsat.optimize(shortened(), measure=False, **FAST)
    assert result.report.kept == "ilp"
    assert result.report.certificate.sizes == [{"batch": 3, "sequence": 5}, {"batch": 1, "sequence": 4}]
    x = weight(2, 9, 8)
    (expected,) = ReferenceEvaluator(shortened()).run(None, {"x": x})
    np.testing.assert_allclose(result.run(x=x)["y"], expected, rtol=1e-4, atol=1e-5)


def test_sizes_that_the_model_does_not_accept_give_way_to_the_nearest_and_the_user_is_told() -> None:
    result = eqsat.optimize(in_rows(32), sizes={"length": 60}, **FAST)
    assert result.report.measured_at == "length=64"
    assert "the model does not accept length=60; the nearest that it does is length=64" in result.report.warnings


def test_where_only_running_the_model_tells_it_is_run() -> None:
    result = eqsat.optimize(counted(), **FAST)
    assert result.report.measured_before is not None
    assert result.report.measured_at == "n=16"
    assert not [w for w in result.report.warnings if "not measured" in w]


def test_a_model_that_runs_at_no_sizes_is_costed_and_the_report_says_that_it_may_not_run() -> None:
    nodes = [
        helper.make_node("If", ["c"], ["h"], then_branch=_refusing("t"), else_branch=_refusing("e")),
        *products(),
    ]
    inputs: dict[str, tuple[int, list[int | str | None]]] = {"x": (FLOAT, ["n", 8]), "c": (TensorProto.BOOL, [])}
    given = model(nodes, inputs, {"a": weight(5, 32), "b": weight(5, 32), "never": np.array([3, 5])})
    report = eqsat.optimize(given, **FAST).report
    assert report.measured_before is None
    assert any(w.startswith("costed at n=16, at which the model may not run: ") for w in report.warnings)
    assert any(w.startswith("not measured: no sizes were found that the model runs at") for w in report.warnings)


@pytest.mark.parametrize("narrow", [TensorProto.UINT8, TensorProto.INT8])
def test_sizes_are_tried_that_an_input_of_narrow_integers_cannot_say(narrow: int) -> None:
    """Integers take the sizes of dims in turn, and 256 is none of uint8's."""
    nodes = [
        helper.make_node("If", ["c"], ["h"], then_branch=_refusing("t"), else_branch=_refusing("e")),
        helper.make_node("Cast", ["u"], ["f"], to=FLOAT),
        helper.make_node("Add", ["h", "f"], ["g"]),
        helper.make_node("MatMul", ["g", "a"], ["y"]),
    ]
    inputs: dict[str, tuple[int, list[int | str | None]]] = {
        "x": (FLOAT, ["n", 8]),
        "c": (TensorProto.BOOL, []),
        "u": (narrow, [5]),
    }
    result = eqsat.optimize(model(nodes, inputs, {"a": weight(5, 32), "never": np.array([3, 5])}), **FAST)
    assert not result.report.failure and not result.failures
    assert any(w.startswith("costed at n=16, at which the model may not run: ") for w in result.report.warnings)


def _refusing(name: str) -> onnx.GraphProto:
    """A branch that makes 15 elements of rows of 8."""
    nodes = [helper.make_node("Reshape", ["x", "never"], [name])]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, FLOAT, [3, 5])])


def test_costs_at_several_sizes_are_their_weighted_sum() -> None:
    given = in_rows(32)
    one, two = (eqsat.optimize(given, sizes={"length": s}, measure=False, **FAST).report for s in (32, 3200))
    both = eqsat.optimize(given, sizes={"length": [32, 3200]}, measure=False, **FAST).report
    assert both.cost_before == pytest.approx((one.cost_before + two.cost_before) / 2)
    weighted = eqsat.optimize(given, sizes={"length": {32: 9, 3200: 1}}, measure=False, **FAST).report
    assert weighted.cost_before == pytest.approx(0.9 * one.cost_before + 0.1 * two.cost_before)
    assert weighted.sizes == [
        CostedSizes({"length": 32}, 0.9),
        CostedSizes({"length": 3200}, 0.1),
    ]


def test_a_model_is_measured_at_each_of_several_sizes() -> None:
    report = eqsat.optimize(in_rows(32), sizes={"length": {32: 3, 3200: 1}}, **FAST).report
    assert report.measured_at == "length=32 (75 %); length=3200 (25 %)"
    assert report.rounds >= 5
    assert report.measured_bound is not None


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"batch": 0}, "size batch = 0"),
        ({"batch": []}, "sizes of 'batch' are []"),
        ({"batch": [1, "2"]}, "size batch = '2'"),
        ({"batch": {1: -1.0}}, "size batch = 1 has weight -1.0"),
        ({"batch": {1: float("nan")}}, "size batch = 1 has weight nan"),
        ({"batch": [1, 2, 3, 4, 5], "length": [1, 2, 3, 4]}, "sizes give 20 combinations"),
        ([("batch", 1)], "sizes = [('batch', 1)]"),
    ],
)
def test_sizes_that_are_none_are_refused(sizes: Any, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        sizes_of(sizes)
    assert raised.value.what == text


def test_the_command_takes_several_sizes_with_their_weights(tmp_path: Path, run: Any) -> None:
    source = tmp_path / "m.onnx"
    onnx.save(in_rows(32), source)
    several = ("--size", "length=32:1,64:3", "--time-limit", "5s")
    code, out, _ = run("optimize", str(source), "-o", str(tmp_path / "o.onnx"), *several)
    assert code == 0
    assert "measured at length=32 (25 %); length=64 (75 %)" in " ".join(out.split())
    code, _, err = run("optimize", str(source), "-o", str(tmp_path / "p.onnx"), "--size", "length=a")
    assert code == 2
    assert "'length=a' is no size; expected NAME=NUMBER" in " ".join(err.split())


def test_the_other_calls_take_several_sizes_too() -> None:
    front = eqsat.pareto(in_rows(32), "time", "launches", sizes={"length": [32, 64]}, time_limit=5.0)
    assert front.points
    run = eqsat.explore(in_rows(32), sizes={"length": [32, 64]}, **FAST)
    run.grow()
    assert run.optimize(measure=False).report.sizes[1] == CostedSizes({"length": 64}, 0.5)


def test_a_gpu_program_is_made_at_sizes_that_the_model_accepts() -> None:
    result = eqsat.optimize(in_rows(32), device="nvidia-h200", measure=False, **FAST)
    assert result.gpu_program().inputs["x"].shape == (32,)
    assert result.gpu_program({"length": 96}).inputs["x"].shape == (96,)


def rectangular() -> onnx.ModelProto:
    """Three matrices multiplied in turn: which two first depends on how many rows the first has."""
    nodes = [helper.make_node("MatMul", ["x", "a"], ["p"]), helper.make_node("MatMul", ["p", "z"], ["y"])]
    inputs: dict[str, tuple[int, list[int | str | None]]] = {"x": (FLOAT, ["n", 64]), "z": (FLOAT, [96, 8])}
    return model(nodes, inputs, {"a": weight(64, 96)})


def shares(result: eqsat.Result, sizes: list[int]) -> list[float]:
    """The FLOPs of a result over the original's at each size."""
    original = load(rectangular())
    models = [CostModel("onnxruntime-cpu", objective={"flops": 1.0}, sizes={"n": n}) for n in sizes]
    return [m.graph(result.graph).price / m.graph(original).price for m in models]


def test_the_worst_of_several_sizes_is_minimised_where_that_is_asked_for() -> None:
    options: dict[str, Any] = {"objective": {"flops": 1.0}, "measure": False, **FAST}
    sizes = {"n": [4, 4000]}
    # Over the sum the large size decides, and a·z first is a loss of six times at the small one.
    total = eqsat.optimize(rectangular(), sizes=sizes, **options)
    assert shares(total, [4, 4000])[0] > 1 > shares(total, [4, 4000])[1]
    worst = eqsat.optimize(rectangular(), sizes=sizes, over_sizes="worst", **options)
    assert max(shares(worst, [4, 4000])) <= 1
    # What is better at both is taken.
    both = eqsat.optimize(rectangular(), sizes={"n": [400, 4000]}, over_sizes="worst", **options)
    assert max(shares(both, [400, 4000])) < 1


def test_a_finalist_is_measured_at_each_size_by_itself_where_the_worst_counts() -> None:
    report = eqsat.optimize(in_rows(32), sizes={"length": [3200, 6400]}, over_sizes="worst", **FAST).report
    assert report.measured_at == "length=3200 (50 %); length=6400 (50 %)"
    assert report.measured_bound is not None
    with pytest.raises(UsageError, match="over_sizes = 'best'"):
        eqsat.optimize(in_rows(32), over_sizes="best")  # type: ignore[arg-type]


def test_no_convolution_is_put_where_a_size_that_the_original_runs_at_leaves_no_rows() -> None:
    """Behind a resize to half there are no rows of one; ONNX Runtime convolves none, and resizes to none."""
    scales = np.array([1, 1, 0.5, 2], np.float32)
    source = model(
        [
            helper.make_node("Conv", ["x", "a"], ["p"]),
            helper.make_node("Conv", ["x", "b"], ["h"]),
            helper.make_node("Add", ["p", "h"], ["q"]),
            helper.make_node("ReduceSum", ["q", "every"], ["s"], keepdims=0),
            helper.make_node("Resize", ["h", "", "scales"], ["r"], mode="linear"),
            helper.make_node("ReduceSum", ["r", "every"], ["t"], keepdims=0),
            helper.make_node("Add", ["s", "t"], ["y"]),
        ],
        {"x": (FLOAT, ["n", 2, "n", 1])},
        {"a": weight(2, 2, 1, 1), "b": weight(2, 2, 1, 1), "scales": scales, "every": [0, 1, 2, 3]},
    )
    result = eqsat.optimize(source, measure=False, **FAST)
    for n in (1, 4):
        x = weight(n, 2, n, 1)
        np.testing.assert_allclose(run(result.to_onnx(), x=x), run(source, x=x), rtol=1e-4, atol=1e-5)


def test_convolutions_are_folded_behind_a_pool_that_leaves_no_rows_of_one() -> None:
    """The original has a convolution there as well, so that it runs at no smaller size than the result."""
    source = model(
        [
            helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Conv", ["p", "a"], ["c"]),
            helper.make_node("BatchNormalization", ["c", "g", "g", "g", "g"], ["y"]),
        ],
        {"x": (FLOAT, ["n", 2, "height", "width"])},
        {"a": weight(2, 2, 3, 3), "g": np.ones(2, np.float32)},
    )
    made = eqsat.optimize(source, measure=False, **FAST).to_onnx()
    assert [n.op_type for n in made.graph.node] == ["MaxPool", "Conv"]
    x = weight(1, 2, 9, 9)
    np.testing.assert_allclose(run(made, x=x), run(source, x=x), rtol=1e-4, atol=1e-5)


def test_sizes_are_not_tried_at_which_inputs_are_huge() -> None:
    """A model that runs at none is not given 512 by 512 by 512 elements on the way to saying so."""
    scattered = [helper.make_node("Expand", ["x", "shape"], ["y"])]
    graph = load(model(scattered, {"x": (FLOAT, ["m", "n", "m"]), "shape": (INT64, [3])}, {}))
    drawn: list[int] = []

    class Refusing:
        def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
            drawn.append(inputs["x"].size)
            raise BackendError("no")

    with pytest.raises(BackendError, match="no sizes were found"):
        tried(Refusing(), graph, SizePoint({"m": 3, "n": 2}))
    assert len(drawn) > 10 and max(drawn) <= MOST_ELEMENTS
