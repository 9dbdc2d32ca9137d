"""One ONNX model with a branch for each range of sizes, in real sessions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.errors import ExportModelError
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.onnx.files.tensors import tensor_of
from eqsat.language.onnx.write.switch import SwitchCase, switched
from eqsat.language.terms.graph import Graph

WEIGHT = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def graph(body: Callable[[Builder, Tensor], Tensor]) -> Graph:
    g = Builder("g")
    x = g.input("x", ("n", "t", 4))
    g.output("y", body(g, x))
    g.output("same", x)
    return g.build()


def scaled(factor: float) -> Graph:
    return graph(lambda g, x: (x @ g.constant(WEIGHT)) * g.constant(np.float32(factor)))


def model(cases: list[SwitchCase], opset: int | None = None) -> onnx.ModelProto:
    proto, tensors = switched(cases, opset)
    proto.graph.initializer.extend(tensor_of(name, constant) for name, constant in tensors.items())
    onnx.checker.check_model(proto, full_check=True)
    return proto


def run(proto: onnx.ModelProto, *shape: int) -> float:
    """By which factor the product comes out."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((*shape, 4)).astype(np.float32)
    y, same = session.run(["y", "same"], {"x": x})
    np.testing.assert_array_equal(same, x)
    factor = (y / (x @ WEIGHT)).ravel()
    np.testing.assert_allclose(factor, factor[0], rtol=1e-3)
    return round(float(factor[0]))


@pytest.mark.parametrize("opset", [7, 8, 13, 21])
def test_the_size_chooses_the_branch(opset: int) -> None:
    cases = [
        SwitchCase(scaled(1), [{"n": (-1, 1)}]),
        SwitchCase(scaled(2), [{"n": (1, 4)}]),
        SwitchCase(scaled(3), [{"n": (4, None)}]),
    ]
    proto = model(cases, opset)
    assert [run(proto, n, 2) for n in (1, 2, 4, 5, 9)] == [1, 2, 2, 3, 3]


def test_several_dims_and_boxes_choose_together() -> None:
    low, high = (-1, 2), (2, None)
    cases = [
        SwitchCase(scaled(1), [{"n": low, "t": low}, {"n": high, "t": high}]),
        SwitchCase(scaled(2), [{"n": low, "t": high}, {"n": high, "t": low}]),
    ]
    proto = model(cases)
    assert [run(proto, n, t) for n, t in ((1, 1), (3, 3), (1, 3), (3, 1), (2, 2))] == [1, 1, 2, 2, 1]


def test_weights_stand_once() -> None:
    proto = model([SwitchCase(scaled(1), [{"n": (-1, 1)}]), SwitchCase(scaled(2), [{"n": (1, None)}])])
    weights = [t for t in proto.graph.initializer if list(t.dims) == [4, 4]]
    assert len(weights) == 1
    assert all(not branch.initializer for n in proto.graph.node for a in n.attribute if (branch := a.g))


def test_one_case_is_a_plain_model() -> None:
    proto, _ = switched([SwitchCase(scaled(1), [{"n": (-1, None)}])])
    assert [n.op_type for n in proto.graph.node] == ["MatMul", "Mul", "Identity"]


def test_a_dim_that_no_input_shows_is_named() -> None:
    with pytest.raises(ExportModelError, match="no input shows how large dim 'm' is"):
        switched([SwitchCase(scaled(1), [{"m": (-1, 1)}]), SwitchCase(scaled(2), [{"m": (1, None)}])])
