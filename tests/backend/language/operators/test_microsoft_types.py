"""The types of ONNX Runtime's operators, most of which stay opaque, are those of what it returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from eqsat.language.onnx.microsoft.quantised import IMPORTS
from eqsat.language.onnx.read.importer import load
from tests.support.one_operator import fits, model, opaque, session_run

RNG = np.random.default_rng(2)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_(*shape: int) -> Any:
    return RNG.integers(0, 255, shape).astype(np.uint8)


SCALE, ZERO = np.float32(0.05), np.uint8(7)
X, Y = bytes_(2, 3, 4), bytes_(3, 4)
IMAGE = bytes_(1, 4, 6, 8)
BLOCKS = {"K": 32, "N": 6, "bits": 4, "block_size": 32}
#: Operator, attributes, operands ("" for one left out), and how many outputs.
CASES: list[tuple[str, dict[str, Any], list[Any], int]] = [
    ("QLinearAdd", {}, [X, SCALE, ZERO, Y, SCALE, ZERO, SCALE, ZERO], 1),
    ("QLinearMul", {}, [Y, SCALE, ZERO, X, SCALE, ZERO, SCALE, ZERO], 1),
    ("QLinearLeakyRelu", {"alpha": 0.1}, [X, SCALE, ZERO, SCALE, ZERO], 1),
    ("QLinearSigmoid", {}, [X, SCALE, ZERO, SCALE, ZERO], 1),
    ("QLinearSoftmax", {"axis": -1, "opset": 13}, [X, SCALE, ZERO, np.float32(1 / 256), np.uint8(0)], 1),
    ("QLinearConcat", {"axis": 1}, [SCALE, ZERO, X, SCALE, ZERO, X[:, :2], SCALE, ZERO], 1),
    ("QLinearGlobalAveragePool", {}, [IMAGE, SCALE, ZERO, SCALE, ZERO], 1),
    ("QLinearGlobalAveragePool", {"channels_last": 1}, [IMAGE, SCALE, ZERO, SCALE, ZERO], 1),
    ("QLinearAveragePool", {"kernel_shape": [2, 2]}, [IMAGE, SCALE, ZERO, SCALE, ZERO], 1),
    ("QLinearWhere", {}, [Y > 99, X, SCALE, ZERO, Y, SCALE, ZERO, SCALE, ZERO], 1),
    ("QGemm", {"transB": 1}, [Y, SCALE, ZERO, bytes_(6, 4), SCALE, ZERO, "", SCALE, ZERO], 1),
    ("QGemm", {}, [Y, SCALE, ZERO, bytes_(4, 6), SCALE, ZERO], 1),
    ("MatMulIntegerToFloat", {}, [X, bytes_(4, 6), SCALE, SCALE, ZERO, ZERO], 1),
    ("DynamicQuantizeMatMul", {}, [floats(2, 3, 4), bytes_(4, 6), SCALE, ZERO], 1),
    ("QAttention", {"num_heads": 2}, [bytes_(2, 3, 8), bytes_(8, 24), floats(24), SCALE, SCALE, "", ZERO, ZERO], 1),
    ("MatMulNBits", BLOCKS, [floats(2, 3, 32), bytes_(6, 1, 16), floats(6), "", np.zeros(32, np.int32)], 1),
    ("MatMulBnb4", {"K": 32, "N": 6, "quant_type": 1, "block_size": 32}, [floats(3, 32), bytes_(96), floats(6)], 1),
    ("GatherBlockQuantized", {"block_size": 16, "bits": 4}, [bytes_(5, 16), np.int64([[1, 2]]), floats(5, 2)], 1),
    ("CDist", {"metric": "euclidean"}, [floats(3, 5), floats(4, 5)], 1),
    ("Inverse", {}, [floats(2, 3, 3)], 1),
    ("Unique", {}, [np.float32([1, 2, 1])], 3),
    ("ExpandDims", {}, [floats(2, 3), np.int32(-1)], 1),
    ("MurmurHash3", {"positive": 0}, [np.int32([1, 2])], 1),
    ("MurmurHash3", {}, [np.int32([[1, 2]])], 1),
    ("CropAndResize", {}, [floats(1, 2, 8, 8), floats(3, 4), np.int32([0, 0, 0]), np.int32([4, 5])], 1),
    ("SkipLayerNormalization", {}, [floats(2, 3, 8), floats(2, 3, 8), floats(8)], 4),
]


@pytest.mark.parametrize("op_type, attrs, operands, count", CASES)
def test_types_are_those_of_what_is_returned(
    op_type: str, attrs: dict[str, Any], operands: list[Any], count: int
) -> None:
    names = ["" if isinstance(o, str) else f"x{i}" for i, o in enumerate(operands)]
    arrays = {n: np.asarray(o) for n, o in zip(names, operands, strict=True) if n}
    # Scales, zero points, sizes and weights are constants as in models, the first tensor is what is fed.
    first = next(n for n, a in arrays.items() if a.ndim)
    feeds, constants = {first: arrays.pop(first)}, arrays
    outputs = [f"y{i}" for i in range(count)]
    if op_type == "SkipLayerNormalization":
        outputs[1:3] = ["", ""]
    node = helper.make_node(op_type, names, outputs, domain="com.microsoft", **attrs)
    proto = model(node, feeds, constants)
    graph = load(proto)
    for value, made in zip([o for o in outputs if o], session_run(proto, feeds), strict=True):
        fits(graph, value, made)
    if op_type != "SkipLayerNormalization":
        read = op_type in {*IMPORTS, "QAttention"} and (op_type, attrs) != (
            "QLinearGlobalAveragePool",
            {"channels_last": 1},
        )
        assert len(opaque(graph)) == (0 if read else 1)
