"""Nodes of ONNX that are calls of comprehensions."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import eqsat
from tests.support.one_operator import opaque

SOURCE = "def scaled(float(N) x, int32 times, float gain) -> (y) { y(n,t) = gain * x(n) where t in 0:times }"


def model(**attributes):
    given = {"source": SOURCE, "places": ["0"], "numbers": '{"1": 2, "gain": 0.1}', **attributes}
    node = helper.make_node("Comprehension", ["x"], ["y"], domain="eqsat", **given)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3]), ("y", [3, 2])))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("eqsat", 1)]
    return helper.make_model(helper.make_graph([node], "calls", [x], [y]), opset_imports=opsets, ir_version=10)


def test_a_call_is_an_operator_of_its_graph():
    graph = eqsat.load(model())
    assert [(node.op, dict(node.attrs)) for node in graph.nodes] == [("scaled", {"times": 2})]
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(graph.run(x=x)["y"], np.stack([np.float32(0.1) * x] * 2, axis=1))


def test_a_graph_that_was_read_is_optimised_and_written_as_functions_of_standard_operators(tmp_path):
    result = eqsat.optimize(model(), time_limit=20)
    result.save(tmp_path / "model.onnx")
    x = np.arange(3, dtype=np.float32)
    (made,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x})
    np.testing.assert_array_equal(made, result.run(x=x)["y"])
    np.testing.assert_array_equal(eqsat.load(tmp_path / "model.onnx").run(x=x)["y"], made)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"source": "def scaled(float(N) x) -> (y) { y(n) = z(n) }"}, "a comprehension that is not one: "),
        ({"numbers": "{}"}, "a comprehension that is not one: scaled without times, gain"),
        ({"numbers": '{"1": 2, "3": 0.1}'}, "a comprehension that is not one: "),
        ({"numbers": "["}, "a comprehension that is not one: "),
        ({"source": SOURCE + SOURCE.replace("scaled", "other")}, "a comprehension that is not one: "),
        ({"places": ["times"], "numbers": '{"x": 1, "gain": 0.1}'}, "scaled of a times that is computed"),
    ],
)
def test_a_call_that_does_not_fit_is_kept_as_it_is_with_the_reason(attributes, reason):
    (told,) = opaque(eqsat.load(model(**attributes)))
    assert told.startswith(reason)
