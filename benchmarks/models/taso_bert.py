"""The graph that TASO's repository, and TENSAT after it, measure under the name BERT.

Eight layers of width 1024 over 64 positions with 16 heads, and nothing but products: no softmax, no scale, no
residual, no normalisation, keys not transposed; the last product of a layer takes the layer's *input*, not
the result of its attention. TASO runs every sink, so the eight attention results are outputs here: without
them they would be dead code and the whole model one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto

from benchmarks.models.builder import GraphWriter

SEQUENCE = 64
HIDDEN = 1024
HEADS = 16


def taso_bert(batch: int = 1, seed: int = 0, *, layers: int = 8) -> ModelProto:
    """TASO's BERT.

    Input `x` is (64, 1024) for one sequence and (batch, 64, 1024) for more; the outputs `y` and
    `attention_0` … have the same shape.
    """
    writer = GraphWriter("taso_bert", seed)
    lead = [] if batch == 1 else [batch]
    shape = [*lead, SEQUENCE, HIDDEN]
    x = writer.input("x", shape)
    split = writer.constant("split_heads", np.array([*lead, SEQUENCE, HEADS, HIDDEN // HEADS], np.int64))
    join = writer.constant("join_heads", np.array(shape, np.int64))
    perm = [1, 0, 2] if batch == 1 else [0, 2, 1, 3]
    outputs: dict[str, Sequence[int]] = {}
    for i in range(layers):
        names = [f"{role}_{i}" for role in ("query", "key", "value")]
        q, k, v = (_heads(writer, x, writer.weight(name, (HIDDEN, HIDDEN)), split, perm) for name in names)
        mixed = writer.op("MatMul", writer.op("MatMul", q, k), v)
        result = writer.op("Reshape", writer.op("Transpose", mixed, perm=perm), join, name=f"attention_{i}")
        outputs[result] = shape
        last = i == layers - 1
        x = writer.op("MatMul", x, writer.weight(f"linear_{i}", (HIDDEN, HIDDEN)), name="y" if last else None)
    return writer.model({x: shape, **outputs})


def _heads(writer: GraphWriter, x: str, weight: str, split: str, perm: Sequence[int]) -> str:
    return writer.op("Transpose", writer.op("Reshape", writer.op("MatMul", x, weight), split), perm=perm)
