"""Small graphs of what models are made of, in an element type that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eqsat.language.graphs.builder import Builder
from eqsat.language.terms import Graph
from eqsat.language.terms.types import DType

Maker = Callable[[str], Graph]
#: The largest distance from what is computed in float32 or float64, by the norm of that: some steps of the type.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
#: Rows, inner size and columns of products: none a power of two, all multiples of eight, as libraries want them.
_M, _K, _N = 72, 136, 104


def numbers(seed: int, *shape: int) -> Any:
    """Numbers about one, of which float16 and bfloat16 hold each exactly."""
    return np.round(np.random.default_rng(seed).standard_normal(shape) * 16) / 64


def _constant(g: Builder, dtype: str, seed: int, *shape: int) -> Any:
    return g.constant(numbers(seed, *shape).astype(DType(dtype).numpy))


def element_wise(dtype: str) -> Graph:
    """A chain of functions of elements, and a sum along rows."""
    g = Builder("element-wise")
    x = g.input("x", (33, 65), dtype)
    y = g.apply("tanh", x * _constant(g, dtype, 1, 65)) + x
    g.output("y", y)
    g.output("sum", g.apply("reduce_sum", y, axes=(1,), keepdims=False))
    return g.build()


def product(dtype: str, epilogue: str = "") -> Graph:
    """A product with what may follow it in one call of the library."""
    g = Builder(f"product {epilogue}".strip())
    y = g.input("x", (_M, _K), dtype) @ _constant(g, dtype, 1, _K, _N)
    if "bias" in epilogue:
        y = y + _constant(g, dtype, 2, _N)
    if "addend" in epilogue:
        y = y + g.input("addend", (_M, _N), dtype)
    for function in ("relu", "gelu"):
        if function in epilogue:
            y = g.apply(function, y)
    g.output("y", y)
    return g.build()


def batched(dtype: str) -> Graph:
    """Products of matrices in a batch, the second transposed."""
    g = Builder("batched product")
    a, b = g.input("x", (6, 24, 40), dtype), g.input("z", (6, 32, 40), dtype)
    g.output("y", a @ g.apply("transpose", b, perm=(0, 2, 1)))
    return g.build()


def convolution(dtype: str, form: str = "") -> Graph:
    """A convolution with bias and relu: strided, in groups, or with an addend before the relu."""
    g = Builder(f"convolution {form}".strip())
    channels, groups = 16, 4 if form == "grouped" else 1
    x = g.input("x", (2, channels, 20, 20), dtype)
    w = _constant(g, dtype, 1, 24, channels // groups, 3, 3)
    strides = (2, 2) if form == "strided" else (1, 1)
    options = {"pads": (1, 1, 1, 1), "strides": strides, "group": groups}
    y = g.apply("conv", x, w, _constant(g, dtype, 2, 24), **options)
    if form == "residual":
        y = y + g.input("addend", (2, 24, 20, 20), dtype)
    g.output("y", g.apply("relu", y))
    return g.build()


def attention(dtype: str, form: str = "") -> Graph:
    """Attention of four heads: plain, causal, or with a mask that is added."""
    g = Builder(f"attention {form}".strip())
    q, k, v = (g.input(name, (2, 4, 48, 32), dtype) for name in ("x", "k", "v"))
    mask = [g.input("mask", (2, 1, 48, 48), dtype)] if form == "masked" else []
    g.output("y", g.apply("attention", q, k, v, *mask, causal=form == "causal"))
    return g.build()


def norm(dtype: str, form: str) -> Graph:
    """A norm over rows after a sum, as residual layers have it."""
    g = Builder(form)
    x = g.input("x", (40, 192), dtype) + g.input("addend", (40, 192), dtype)
    factors = [_constant(g, dtype, 1, 192)] + ([_constant(g, dtype, 2, 192)] if form == "layer_norm" else [])
    y = g.apply("softmax", x, axis=-1) if form == "softmax" else g.apply(form, x, *factors, axis=-1)
    g.output("y", y)
    return g.build()


def branches(dtype: str) -> Graph:
    """Four products side by side, of which each two meet: work for several streams."""
    g = Builder("branches")
    x = g.input("x", (64, 64), dtype)
    a, b, c, d = (x @ _constant(g, dtype, seed, 64, 64) for seed in range(1, 5))
    g.output("y", g.apply("relu", a) + g.apply("tanh", b))
    g.output("z", g.apply("softmax", c @ g.apply("transpose", d, perm=(1, 0)), axis=-1))
    return g.build()


def layer(dtype: str) -> Graph:
    """One layer of a BERT of 128 channels and four heads: attention, two products, two norms, residuals."""
    g = Builder("a layer of BERT")
    batch, length, width, heads = 2, 32, 128, 4
    x = g.input("x", (batch, length, width), dtype)
    seeds = iter(range(1, 99))

    def linear(value: Any, to: int) -> Any:
        w = _constant(g, dtype, next(seeds), value.type.dims[-1], to)
        return value @ w + _constant(g, dtype, next(seeds), to)

    def split(value: Any) -> Any:
        parts = g.apply("reshape", value, shape=(batch, length, heads, width // heads))
        return g.apply("transpose", parts, perm=(0, 2, 1, 3))

    def normed(value: Any) -> Any:
        gain, bias = (_constant(g, dtype, next(seeds), width) for _ in range(2))
        return g.apply("layer_norm", value, gain, bias, axis=-1)

    seen = g.apply("attention", *(split(linear(x, width)) for _ in range(3)))
    joined = g.apply("reshape", g.apply("transpose", seen, perm=(0, 2, 1, 3)), shape=(batch, length, width))
    x = normed(x + linear(joined, width))
    g.output("y", normed(x + linear(g.apply("gelu", linear(x, 4 * width)), width)))
    return g.build()


def inputs(graph: Graph, seed: int = 0) -> Mapping[str, Any]:
    """Numbers for the inputs of a graph, in their element types."""
    made = {}
    for place, name in enumerate(graph.inputs):
        stated: Any = graph.type(name)
        values = numbers(1000 * seed + 100 + place, *stated.static)
        if name == "mask":
            values = np.where(values > 0.25, -1e4, 0.0)
        made[name] = values.astype(stated.dtype.numpy)
    return made
