"""Products and convolutions of 8-bit integers, and of weights held in 4 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, Value

#: Weights have 7 bits: ONNX Runtime cuts off sums of products of 8 bits on processors without VNNI.
_LOW, _HIGH = -64, 64


def _integers(g: Growing, kind: Any, shape: list[int]) -> Value:
    low = 0 if np.dtype(kind).kind == "u" else _LOW
    return g.constant(g.rng.integers(low, _HIGH, shape).astype(kind))


def _operand(g: Growing, dims: list[int | str]) -> Value:
    """8-bit integers: an input, or what a float input becomes at run time."""
    if g.flip(0.4) and g.opset >= 11:
        return g.add("DynamicQuantizeLinear", [g.input(np.float32, dims)], 3)[0]
    return g.input(np.uint8, dims)


def _scale(g: Growing, count: int = 0) -> Value:
    return g.constant(g.rng.uniform(0.05, 0.6, (count,) if count else ()).astype(np.float32))


def _zero(g: Growing, kind: Any, count: int = 0) -> Value:
    return g.constant(np.full((count,) if count else (), g.among([0, 0, 3]), kind))


def _product(g: Growing) -> None:
    rows, inner, columns = g.among([1, 2, 3, "n"]), g.integer(1, 5), g.integer(1, 4)
    x = _operand(g, [*g.among([(), (2,), ("m",)]), rows, inner])
    kind = g.among([np.uint8, np.int8])
    w = _integers(g, kind, [inner, columns])
    if g.flip(0.4):
        zeros = [_zero(g, np.uint8), _zero(g, kind)][: g.integer(0, 2)]
        g.add("MatMulInteger", [x, w, *zeros])
        return
    each = columns if g.flip(0.2) else 0
    operands = [x, _scale(g), _zero(g, np.uint8), w, _scale(g, each), _zero(g, kind, each)]
    g.add("QLinearMatMul", [*operands, _scale(g), _zero(g, np.uint8)])


def _convolution(g: Growing) -> None:
    channels, filters = g.integer(1, 3), g.integer(1, 3)
    x = _operand(g, [g.among([1, 2, "n"]), channels, g.integer(3, 5), g.integer(3, 5)])
    kind = g.among([np.uint8, np.int8])
    attrs: dict[str, Any] = {"pads": g.among([None, [1, 1, 1, 1]]), "strides": g.among([None, [2, 2]])}
    w = _integers(g, kind, [filters, channels, *g.among([(1, 1), (2, 2), (3, 3)])])
    if g.flip(0.4):
        zeros = [_zero(g, np.uint8), *([_zero(g, kind)] if kind == np.uint8 else [])][: g.integer(0, 2)]
        g.add("ConvInteger", [x, w, *zeros], **attrs)
        return
    each = filters if g.flip(0.3) else 0
    zero = g.constant(np.zeros((each,) if each else (), kind))
    operands = [x, _scale(g), _zero(g, np.uint8), w, _scale(g, each), zero, _scale(g), _zero(g, np.uint8)]
    bias = [g.constant(g.rng.integers(-50, 50, filters).astype(np.int32))] if g.flip() else []
    g.add("QLinearConv", [*operands, *bias], **attrs)


def _blocked(g: Growing) -> None:
    """A product with weights of 4 bits in blocks of 16, each with a scale."""
    columns, blocks = g.integer(1, 3), g.integer(1, 2)
    x = g.input(np.float32, [*g.among([(), (2,), ("n",)]), g.among([1, 3]), 16 * blocks])
    packed = g.constant(g.rng.integers(0, 256, (columns, blocks, 8)).astype(np.uint8), plain=True)
    scales = g.constant(g.rng.uniform(0.1, 0.5, columns * blocks).astype(np.float32), plain=True)
    attrs = {"K": 16 * blocks, "N": columns, "bits": 4, "block_size": 16}
    g.add("MatMulNBits", [x, packed, scales], domain="com.microsoft", **attrs)


STEPS: Mapping[Step, float] = {_product: 2, _convolution: 2, _blocked: 1}
