"""The guard against NaN that exporters write behind softmax: gone where nothing makes one, kept where something may."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import eqsat

LEAST = float(np.finfo(np.float32).min)
SIZE = 6


def guarded(fill: float, *, asked: str = "shares") -> onnx.ModelProto:
    """Attention over keys that an integer mask keeps, the others filled, with a guard behind the softmax."""
    constants = {"fill": np.float32(fill), "zero": np.float32(0)}
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.BOOL),
        helper.make_node("Where", ["kept", "zero", "fill"], ["bias"]),
        helper.make_node("Add", ["scores", "bias"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"], axis=-1),
        helper.make_node("IsNaN", [asked], ["lost"]),
        helper.make_node("Where", ["lost", "zero", "shares"], ["guarded"]),
        helper.make_node("MatMul", ["guarded", "v"], ["y"]),
    ]
    shape = [2, SIZE, SIZE]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"]
    inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, [2, 1, SIZE]))
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "guarded", inputs, [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def feeds() -> dict[str, np.ndarray]:
    """Inputs of which one row keeps no key."""
    rng = np.random.default_rng(0)
    made = {name: rng.standard_normal((2, SIZE, SIZE)).astype(np.float32) for name in "qkv"}
    mask = rng.integers(0, 2, (2, 1, SIZE))
    mask[1] = 0
    return {**made, "mask": mask}


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


def test_a_guard_of_what_is_finite_is_gone():
    model = guarded(LEAST)
    made = eqsat.optimize(model, measure=False).to_onnx()
    assert "IsNaN" not in operators(made)
    np.testing.assert_allclose(run(made, feeds()), run(model, feeds()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fill", "asked", "finite_math"),
    [(-np.inf, "shares", None), (LEAST, "shares", False), (LEAST, "q", None)],
    ids=["a row of infinities", "overflow", "an input is asked"],
)
def test_a_guard_that_may_be_needed_stays(fill, asked, finite_math):
    model = guarded(fill, asked=asked)
    made = eqsat.optimize(model, measure=False, finite_math=finite_math).to_onnx()
    assert "IsNaN" in operators(made)
    inputs = feeds()
    if asked == "q":
        inputs["q"][0, 0, 0] = np.nan
    np.testing.assert_allclose(run(made, inputs), run(model, inputs), rtol=1e-5, atol=1e-6)
