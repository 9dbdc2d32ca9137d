"""Inputs on which ONNX Runtime ends the process cost a run nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.errors import BackendError
from eqsat.language.onnx.read.importer import load
from eqsat.runtime.examples import example_inputs
from eqsat.runtime.onnxruntime.child import child_of, may_end_the_process


def spectrum(*, default: bool = False) -> onnx.ModelProto:
    """An STFT whose frame length a caller gives; ONNX Runtime divides by the length without looking."""
    tensor = helper.make_tensor_value_info
    nodes = [
        helper.make_node("STFT", ["signal", "step", "", "length"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    inputs = [tensor("signal", TensorProto.FLOAT, [1, 64, 1]), tensor("length", TensorProto.INT64, [])]
    weights = [numpy_helper.from_array(np.int64(8), "step")]
    if default:
        weights.append(numpy_helper.from_array(np.int64(16), "length"))
    outputs = [tensor("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "spectrum", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("measure", [False, True])
def test_a_model_whose_inputs_may_end_the_process_is_optimised(measure: bool) -> None:
    result = eqsat.optimize(spectrum(), measure=measure)
    x = np.random.default_rng(0).standard_normal((1, 64, 1)).astype(np.float32)
    assert result.run(signal=x, length=np.int64(16))["y"].shape == (1, 7, 9, 2)


def test_an_input_with_a_default_is_run_with_that() -> None:
    graph = load(spectrum(default=True))
    assert example_inputs(graph, {}, 0)["length"] == 16


def test_a_process_that_ends_is_said_and_begun_anew(tmp_path: Path) -> None:
    model = spectrum()
    graph = load(model)
    assert may_end_the_process(graph)
    onnx.save(model, tmp_path / "model.onnx")
    x = np.zeros((1, 64, 1), np.float32)
    for source in (model, tmp_path / "model.onnx"):
        with child_of(graph, source) as child:
            with pytest.raises(BackendError, match="ONNX Runtime ends the process on such inputs"):
                child.run({"signal": x, "length": np.int64(0)})
            child.run({"signal": x, "length": np.int64(16)})
            with pytest.raises(BackendError, match="ONNX Runtime failed: "):
                child.run({"signal": x, "length": np.int64(-3)})


def test_other_models_are_run_here() -> None:
    g = eqsat.Graph("g")
    x, i = g.input("x", (4, 4)), g.input("i", (2,), "int64")
    g.output("y", eqsat.gather(x, i, axis=0))
    assert not may_end_the_process(g.build())
