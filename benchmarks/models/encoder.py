"""A transformer's encoder of any depth, as PyTorch writes BERT's: what its layers do is told by size alone."""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto

from benchmarks.models.builder import GraphWriter

SEQUENCE, HEAD = 128, 64


def encoder(layers: int = 12, hidden: int = 128, seed: int = 0) -> ModelProto:
    """An encoder of `layers` layers over 128 positions, with heads of 64; inputs `x` and `mask`, output `y`."""
    writer = GraphWriter("encoder", seed)
    shape = [1, SEQUENCE, hidden]
    x = writer.input("x", shape)
    mask = writer.op("Sub", writer.input("mask", [1, 1, 1, SEQUENCE]), _number(writer, "one", 1.0))
    mask = writer.op("Mul", mask, _number(writer, "large", 1e4))
    for layer in range(layers):
        x = _layer(writer, x, mask, hidden, layer, "y" if layer == layers - 1 else None)
    return writer.model({x: shape})


def _layer(writer: GraphWriter, x: str, mask: str, hidden: int, layer: int, name: str | None) -> str:
    split = writer.constant(f"split_{layer}", np.array([1, SEQUENCE, hidden // HEAD, HEAD], np.int64))
    join = writer.constant(f"join_{layer}", np.array([1, SEQUENCE, hidden], np.int64))
    heads = {}
    for role, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        dense = _dense(writer, x, f"{role}_{layer}", hidden, hidden)
        heads[role] = writer.op("Transpose", writer.op("Reshape", dense, split), perm=perm)
    scores = writer.op("MatMul", heads["query"], heads["key"])
    scores = writer.op("Div", scores, _number(writer, f"scale_{layer}", math.sqrt(HEAD)))
    weights = writer.op("Softmax", writer.op("Add", scores, mask), axis=-1)
    mixed = writer.op("Transpose", writer.op("MatMul", weights, heads["value"]), perm=[0, 2, 1, 3])
    mixed = _dense(writer, writer.op("Reshape", mixed, join), f"mixed_{layer}", hidden, hidden)
    x = _norm(writer, writer.op("Add", mixed, x), f"first_{layer}", hidden)
    wide = _dense(writer, x, f"wide_{layer}", hidden, 4 * hidden)
    scaled = writer.op("Div", wide, _number(writer, f"root_{layer}", math.sqrt(2.0)))
    risen = writer.op("Add", writer.op("Erf", scaled), _number(writer, f"one_{layer}", 1.0))
    active = writer.op("Mul", writer.op("Mul", wide, risen), _number(writer, f"half_{layer}", 0.5))
    narrow = _dense(writer, active, f"narrow_{layer}", 4 * hidden, hidden)
    return _norm(writer, writer.op("Add", narrow, x), f"second_{layer}", hidden, name)


def _dense(writer: GraphWriter, x: str, name: str, size: int, units: int) -> str:
    return writer.op(
        "Add", writer.weight(f"{name}_bias", (units,)), writer.op("MatMul", x, writer.weight(name, (size, units)))
    )


def _norm(writer: GraphWriter, x: str, name: str, size: int, result: str | None = None) -> str:
    scale, bias = (writer.weight(f"{name}_{part}", (size,)) for part in ("scale", "shift"))
    return writer.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12, name=result)


def _number(writer: GraphWriter, name: str, value: float) -> str:
    return writer.constant(name, np.array(value, np.float32))
