"""Models of float16 on which a fusion of ONNX Runtime ends the process are optimised, and none is made of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import eqsat

HALF = TensorProto.FLOAT16
LOAD = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
RUN = """
import sys
import eqsat

result = eqsat.optimize(sys.argv[1])
result.save(sys.argv[2])
print(result.report.failure)
"""


def model(nodes: list[onnx.NodeProto], shape: list[int], outputs: dict[str, int], size: int) -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((size, size)).astype(np.float16)
    graph = helper.make_graph(
        nodes,
        "halves",
        [helper.make_tensor_value_info("x", HALF, shape)],
        [helper.make_tensor_value_info(name, HALF, [None] * rank) for name, rank in outputs.items()],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)])


def ended(program: str, *arguments: Any) -> int:
    """The exit code of a program in a process of its own."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_a_model_that_ends_other_processes_is_optimised(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["t", "w"], ["p"]),
        helper.make_node("Neg", ["p"], ["n"]),
        helper.make_node("Neg", ["n"], ["y"]),
    ]
    source = model(nodes, [3, 2, 4], {"y": 3}, 4)
    onnx.save(source, tmp_path / "given.onnx")
    assert ended(LOAD, tmp_path / "given.onnx") < 0
    assert ended(RUN, tmp_path / "given.onnx", tmp_path / "made.onnx") == 0
    made = onnx.load(tmp_path / "made.onnx")
    x = np.random.default_rng(1).standard_normal((3, 2, 4)).astype(np.float16)
    (wanted,), (found,) = (ReferenceEvaluator(m).run(None, {"x": x}) for m in (source, made))
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("perm", [[1, 0, 2], [1, 2, 0, 3]])
def test_no_result_ends_the_process_where_its_original_does_not(tmp_path: Path, perm: list[int]) -> None:
    """One transpose for both would do, where ONNX Runtime could make a session of it."""
    shape = [3, 2, 5, 4][-len(perm) :]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Transpose", ["p"], ["y"], perm=perm),
        helper.make_node("Transpose", ["x"], ["t"], perm=perm),
        helper.make_node("Relu", ["t"], ["z"]),
    ]
    source = model(nodes, shape, {"y": len(perm), "z": len(perm)}, 4)
    result = eqsat.optimize(source, measure=False)
    result.save(tmp_path / "made.onnx")
    assert ended(LOAD, tmp_path / "made.onnx") == 0
