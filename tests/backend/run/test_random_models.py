"""Random ONNX models, written as messages, and the judge that compares them with what they became."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks.onnx_models import others
from benchmarks.onnx_models.drawing import GROUPS, OLDEST_OPSET, newest_opset, random_model
from benchmarks.onnx_models.growing import Growing, RefusedError
from benchmarks.onnx_models.judging import difference
from benchmarks.onnx_models.noise import noisy_runs
from benchmarks.onnx_models.numbers import Numbers
from benchmarks.onnx_models.sessions import Session
from benchmarks.onnx_models.shrinking import Failing, shrunk
from benchmarks.onnx_models.trying import Way, attempt, examined

PLAIN = Way(costs=None, opset=None, command=False, finite_math=None)
#: Another seed tries other models: EQSAT_FAULT_SEED=12345 pytest tests/backend/run/test_random_models.py
SEED = int(os.environ.get("EQSAT_FAULT_SEED", "0"))


def model_of(nodes: list[Any], inputs: dict[str, Any], tensors: dict[str, Any], *, opset: int = 21) -> ModelProto:
    """A model with one output, the last node's."""
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()
    ]
    made = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    constants = [numpy_helper.from_array(a, n) for n, a in tensors.items()]
    graph = helper.make_graph(nodes, "graph", given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_a_seed_draws_the_same_model_every_time() -> None:
    first, again = (random_model(17).model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == again


def test_models_have_all_opsets_many_operators_and_run_at_several_sizes() -> None:
    opsets, operators, runs, edges = set(), set(), 0, set()
    for seed in range(220):
        if seed == 190:
            continue  # ends the process in ONNX Runtime at size 0
        drawn = random_model(seed)
        opsets.add(drawn.model.opset_import[0].version)
        operators |= {(n.domain, n.op_type) for n in drawn.model.graph.node}
        edges.add(drawn.edges)
        session = Session(drawn.model)
        for _, feed in drawn.feeds():
            try:
                session.run(feed)
            except Exception:  # noqa: BLE001 - not every model runs at every size
                continue
            runs += 1
    assert opsets == set(range(OLDEST_OPSET, newest_opset() + 1))
    assert len(operators) > 100 and runs > 600 and edges == {"none", "finite", "all"}
    assert {("", "If"), ("", "Loop"), ("", "Scan")} <= operators
    assert {domain for domain, _ in operators} >= {"", "com.microsoft", "local"}


def test_the_judge_takes_rounding_and_sees_what_is_more() -> None:
    """(a + b) + c is not a + (b + c) in floats; either is right where the terms cancel, and 10 % off is not."""
    nodes = [helper.make_node("Add", ["a", "b"], ["d"]), helper.make_node("Add", ["d", "c"], ["y"])]
    a, b, c = (np.array([v], np.float32) for v in (2049.3, 0.01234, -2047.9))
    model = model_of(nodes, {"a": a, "b": b, "c": c}, {})
    feed = {"a": a, "b": b, "c": c}
    old = Session(model).run(feed)
    new = [a + (b + c)]
    assert abs(new[0] - old[0]) > 1e-6 * abs(old[0])
    assert difference(model, feed, old, new, finite=True) is None
    wrong = difference(model, feed, old, [old[0] * np.float32(1.1)], finite=True)
    assert wrong is not None and "'y'" in wrong and "became" in wrong


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (np.array([1, 2], np.int64), "shape"),
        (np.array([1, 2, 4], np.int64), "3 became 4"),
        (np.array([1, 2, 3], np.int32), "int64 became int32"),
    ],
)
def test_the_judge_takes_nothing_but_the_same_integers(new: Any, says: str) -> None:
    x = np.array([1, 2, 3])
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": x}, {})
    words = difference(model, {"x": x}, Session(model).run({"x": x}), [new], finite=True)
    assert words is not None and says in words


def test_the_judge_asks_for_infinities_and_nan_unless_results_were_taken_for_finite() -> None:
    model = model_of([helper.make_node("Mul", ["x", "x"], ["d"]), helper.make_node("Sub", ["d", "d"], ["y"])],
                     {"x": np.zeros(1, np.float32)}, {})  # fmt: skip
    large = {"x": np.array([3e38], np.float32)}
    old = Session(model).run(large)
    assert np.isnan(old[0])
    assert difference(model, large, old, [np.zeros(1, np.float32)], finite=True) is None
    assert difference(model, large, old, [np.zeros(1, np.float32)], finite=False) is not None
    poles = model_of([helper.make_node("Reciprocal", ["x"], ["y"])], {"x": np.zeros(1, np.float32)}, {})
    zero = {"x": np.zeros(1, np.float32)}
    assert difference(poles, zero, Session(poles).run(zero), [np.zeros(1, np.float32)], finite=True) is not None


def test_the_judge_takes_an_overflow_on_the_way_of_a_product_alone() -> None:
    """Factors have no order; what a pole makes of a number is no overflow (docs/adr/0025)."""
    nodes = [helper.make_node("Mul", ["x", "a"], ["d"]), helper.make_node("Mul", ["d", "b"], ["y"])]
    factors = {"a": np.array([2], np.float32), "b": np.array([0.125], np.float32)}
    x = {"x": np.array([3e38], np.float32)}
    model = model_of(nodes, x, factors)
    kept = [np.array([7.5e37], np.float32)]
    assert np.isinf(Session(model).run(x)[0])
    assert difference(model, x, Session(model).run(x), kept, finite=False) is None
    nodes[0].op_type = "Div"
    by_zero = model_of(nodes, x, factors | {"a": np.zeros(1, np.float32)})
    assert difference(by_zero, x, Session(by_zero).run(x), kept, finite=False) is not None


@pytest.mark.parametrize(("x", "taken"), [(1e-40, True), (0.0, False)])
def test_the_judge_takes_a_reciprocal_for_a_quotient(x: float, taken: bool) -> None:
    """(1 / x) · b may become b / x, but where x is 0 there is a pole."""
    nodes = [helper.make_node("Reciprocal", ["x"], ["d"]), helper.make_node("Mul", ["d", "b"], ["y"])]
    feed = {"x": np.array([x], np.float32)}
    model = model_of(nodes, feed, {"b": np.zeros(1, np.float32)})
    old = Session(model).run(feed)
    assert np.isnan(old[0])
    assert (difference(model, feed, old, [np.zeros(1, np.float32)], finite=False) is None) == taken


def test_the_judge_takes_halves_whose_rounding_makes_an_exponent_whole() -> None:
    """-2050.3 is -2050 as a half, whose power of itself is 0; in more digits it has none."""
    nodes = [helper.make_node("Div", ["a", "x"], ["d"]), helper.make_node("Pow", ["d", "d"], ["y"])]
    feed = {"x": np.array([-0.1], np.float16)}
    model = model_of(nodes, feed, {"a": np.array([205.03], np.float16)})
    lost = [np.full(1, np.nan, np.float16)]
    assert difference(model, feed, Session(model).run(feed), lost, finite=False) is None
    nodes[1] = helper.make_node("Pow", ["d", "b"], ["y"])
    stated = model_of(nodes, feed, {"a": np.array([0.2], np.float16), "b": np.array([2], np.float16)})
    assert difference(stated, feed, Session(stated).run(feed), lost, finite=False) is not None


def test_noise_is_put_on_models_whose_branches_make_tensors_of_other_sizes() -> None:
    """With its size, noise fixes that of a named dim, for which ONNX Runtime refuses branches that differ."""
    double = helper.make_node("Concat", ["t", "t"], ["r"], axis=0)
    single = helper.make_node("Neg", ["t"], ["r"])
    result = [helper.make_empty_tensor_value_info("r")]
    branches = {
        "then_branch": helper.make_graph([double], "then", [], result),
        "else_branch": helper.make_graph([single], "else", [], result),
    }
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Cast", ["x0"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    feed = {"x": np.ones(3, np.float32), "x0": np.array(0, np.int64)}
    model = model_of(nodes, feed, {})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert len(list(noisy_runs(model, feed))) == 12


def test_the_judge_takes_digits_lost_where_a_number_is_taken_from_1() -> None:
    """exp(x) - 1 is as exact as numbers next to 1 are; the product with a number is not taken for it."""
    x = {"x": np.array([-0.01], np.float32)}
    elu = model_of([helper.make_node("Elu", ["x"], ["y"])], x, {})
    old = Session(elu).run(x)
    assert difference(elu, x, old, [old[0] - np.float32(6e-8)], finite=True) is None
    assert difference(elu, x, old, [old[0] - np.float32(6e-6)], finite=True) is not None
    product = model_of([helper.make_node("Mul", ["x", "x"], ["y"])], x, {})
    old = Session(product).run(x)
    assert difference(product, x, old, [old[0] - np.float32(6e-8)], finite=True) is not None


@pytest.mark.parametrize(("number", "taken"), [(1e30, True), (1e10, False)])
def test_the_judge_takes_squares_that_overflow_within_a_normalisation(number: float, taken: bool) -> None:
    x = {"x": np.array([[[number, 2, 3, 4]]], np.float32)}
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    model = model_of([helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"])], x, {"s": one, "b": zero})
    lost = [np.full((1, 1, 4), np.nan, np.float32)]
    assert (difference(model, x, Session(model).run(x), lost, finite=False) is None) == taken


def test_the_judge_puts_noise_on_a_denormal_number_without_axes() -> None:
    """Half of 1e-45 is 0, which -0 does not divide; 1e-45 by -0 is an infinity."""
    nodes = [helper.make_node("Div", ["x", "two"], ["h"]), helper.make_node("Div", ["h", "zero"], ["y"])]
    x = {"x": np.array(1e-45, np.float32)}
    model = model_of(nodes, x, {"two": np.array(2, np.float32), "zero": np.array(-0.0, np.float32)})
    old = Session(model).run(x)
    assert np.isnan(old[0])
    assert difference(model, x, old, [np.array(-np.inf, np.float32)], finite=True) is None


#: Operators whose operands draws by the schema alone hardly ever fit together.
_FITTED = """
    AffineGrid Bernoulli BitCast BlackmanWindow Col2Im ConvInteger CumProd DFT DeformConv Det GridSample
    GroupQueryAttention HammingWindow HannWindow MatMulNBits MaxRoiPool MaxUnpool MelWeightMatrix MultiHeadAttention
    Multinomial NegativeLogLikelihoodLoss NonMaxSuppression Optional OptionalGetElement OptionalHasElement QLinearConv
    QLinearMatMul RandomNormal RandomNormalLike RandomUniform RandomUniformLike ReverseSequence RoiAlign RotaryEmbedding
    STFT Scatter SequenceErase SequenceMap SoftmaxCrossEntropyLoss StringNormalizer StringSplit TensorScatter
    TfIdfVectorizer
""".split()  # noqa: SIM905 - a page of quotation marks says less
#: Operators drawn neither by their schema nor by a step: ONNX Runtime has no kernel of the first.
_NOT_DRAWN = {"ImageDecoder"}


def test_what_is_not_drawn_by_its_schema_alone_is_drawn_by_a_step() -> None:
    drawn: set[str] = set()
    steps = [step for group in GROUPS for step in group if step is not others.by_schema]
    for seed, step in itertools.product(range(40), steps):
        rng = np.random.default_rng([seed, 9])
        g = Growing(rng, Numbers(rng, "none"), (10, 15, 20, newest_opset())[seed % 4], 10)
        with contextlib.suppress(RefusedError, ValueError, IndexError):
            step(g)
        drawn |= {node.op_type for node in (*g.nodes, *g.constants.values())}
    assert others.LEFT_OUT - drawn == _NOT_DRAWN
    assert set(_FITTED) <= drawn


def test_the_judge_takes_digits_lost_next_to_zero_also_where_a_model_divides_by_zero() -> None:
    """Half of the least number is 0, and 0 / 0 is not 1e-45 / 0; half of 1 is no such number."""
    nodes = [helper.make_node("Div", ["x", "a"], ["d"]), helper.make_node("Div", ["d", "b"], ["y"])]
    factors = {"a": np.array([2], np.float32), "b": np.zeros(1, np.float32)}
    infinite = [np.array([np.inf], np.float32)]
    for number, taken in ((np.finfo(np.float32).smallest_subnormal, True), (np.float32(0), False)):
        x = {"x": np.array([number], np.float32)}
        model = model_of(nodes, x, factors)
        old = Session(model).run(x)
        assert np.isnan(old[0])
        assert (difference(model, x, old, infinite, finite=True) is None) == taken


def test_the_judge_leaves_windows_alone_that_lie_in_no_operand() -> None:
    x = {"x": np.float32([[[3.0]]])}
    for count, taken in ((1, False), (0, True)):
        nodes = [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3], pads=[1, count], count_include_pad=1,
                                  strides=[2])]  # fmt: skip
        model = model_of(nodes, x, {})
        old = Session(model).run(x)
        assert (difference(model, x, old, [old[0] * 2], finite=True) is None) == taken


def test_the_judge_leaves_the_order_of_factors_open() -> None:
    """1e38 * 10 * 0 is NaN in one order and 0 in others; 2 * 0 is 0 in each."""
    nodes = [helper.make_node("ReduceProd", ["x"], ["y"])]
    for factors, taken in (([1e38, 1e38, 0], True), ([2, 3, 0], False)):
        x = {"x": np.array(factors, np.float32)}
        model = model_of(nodes, x, {})
        nan = [np.full((1,), np.nan, np.float32)]
        assert (difference(model, x, Session(model).run(x), nan, finite=False) is None) == taken


def test_the_judge_knows_the_rounding_of_models_with_loops_over_slices() -> None:
    """A Scan wants the shape of what it carries, also where noise is put on it."""
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "v"], ["t"]), helper.make_node("Identity", ["t"], ["u"])],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("s", "v")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("t", "u")],
    )
    nodes = [
        helper.make_node("Scan", ["s0", "x"], ["last", "all"], body=body, num_scan_inputs=1),
        helper.make_node("Mul", ["last", "last"], ["y"]),
    ]
    feed = {"s0": np.zeros(2, np.float32), "x": np.array([[2049.3, 1], [-2049.29, 2]], np.float32)}
    model = model_of(nodes, feed, {})
    old = Session(model).run(feed)
    assert difference(model, feed, old, [old[0] * np.float32(1 + 1e-5)], finite=True) is None
    assert difference(model, feed, old, [old[0] * np.float32(1.5)], finite=True) is not None


def test_a_failing_model_is_made_small() -> None:
    """Of a chain of ten the one node stays that a verdict asks for."""
    nodes = [helper.make_node("Relu" if i != 4 else "Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(10)]
    x = np.ones((2, 3), np.float32)
    model = model_of(nodes, {"v0": x}, {})

    def verdict(failing: Failing) -> str | None:
        return "wrong" if any(n.op_type == "Neg" for n in failing.model.graph.node) else None

    small = shrunk(Failing(model, [({}, {"v0": x})], PLAIN), verdict, seconds=20.0)
    assert [n.op_type for n in small.model.graph.node] == ["Neg"]
    Session(small.model).run(small.feeds[0][1])


@pytest.mark.parametrize("number", range(40))
def test_a_random_model_stays_right(number: int, tmp_path: Path) -> None:
    came_to, fault = attempt(number, SEED, tmp_path)
    assert fault is None, f"{came_to}: {fault}"


def test_what_onnx_runtime_refuses_is_no_model(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": np.zeros(2, np.float32)}, {})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    assert examined(model, [({}, {"x": np.zeros(2, np.float32)})], PLAIN, tmp_path) == ("refused by ONNX Runtime", None)


def test_a_half_that_overflows_between_two_nodes_is_what_onnx_says_or_is_not_promised() -> None:
    """ONNX Runtime computes halves in float32 and rounds between two nodes or not."""
    model = model_of(
        [helper.make_node("Mul", ["x", "c"], ["a"]), helper.make_node("Softsign", ["a"], ["y"])],
        {"x": np.zeros(2, np.float16)},
        {"c": np.float16([2.0])},
    )
    for x, new, right in (([60000, 50000], [np.nan, 1], True), ([1, 1.5], [np.nan, 0.75], False)):
        feed = {"x": np.float16(x)}
        words = difference(model, feed, Session(model).run(feed), [np.float16(new)], finite=False)
        assert (words is None) == right, words
