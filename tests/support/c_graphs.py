"""Graphs of one product or convolution and what follows it, and of operators on small elements."""

import numpy as np

import eqsat
from eqsat.language.graphs.builder import Builder
from eqsat.language.terms import DType
from eqsat.runtime.kernels.nests.options import MappingOptions
from tests.support.c_programs import graph_of_calls

RNG = np.random.default_rng(3)
#: A few roundings of floats of 16 bits, as a share of the largest element.
HALF = 2e-2


def weights(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def convolution(shape, filters, *, after=True, **attrs):
    """A convolution with a bias, and a residual sum and an activation behind it."""
    b = Builder("conv")
    x = b.input("x", shape)
    y = eqsat.conv(x, b.constant(weights(*filters)), b.constant(weights(filters[0], 1)[:, 0]), **attrs)
    if after:
        y = eqsat.sigmoid(eqsat.add(y, b.input("z", y.type.static)))
    b.output("y", y)
    return b.build()


def pool(shape):
    """Maxima of windows that move by two elements."""
    b = Builder("pool")
    b.output("y", eqsat.max_pool(b.input("x", shape), kernel=(3, 3), strides=(2, 2)))
    return b.build()


def product(rows, depth, columns, *, lead=(), constant=True, gemm=False):
    """A product of matrices with a bias, and gelu behind it."""
    b = Builder("product")
    x = b.input("x", (*lead, rows, depth))
    w = weights(depth, columns)
    w = b.constant(w) if constant else b.input("w", w.shape)
    bias = b.constant(weights(columns, 1)[:, 0])
    y = eqsat.gemm(x, w, bias, alpha=0.5) if gemm else eqsat.add(eqsat.matmul(x, w), bias)
    b.output("y", eqsat.gelu(y))
    return b.build()


GRAPHS = {
    "conv 3x3": lambda: convolution((1, 20, 14, 14), (24, 20, 3, 3), pads=(1, 1, 1, 1)),
    "conv 3x3 of odd planes": lambda: convolution((2, 17, 9, 13), (19, 17, 3, 3), pads=(1, 0, 1, 1)),
    "conv 3x3 without more": lambda: convolution((1, 16, 8, 8), (16, 16, 3, 3), after=False),
    "conv 1x1": lambda: convolution((2, 12, 7, 7), (20, 12, 1, 1)),
    "conv 5x5 stride 2": lambda: convolution((1, 6, 23, 20), (8, 6, 5, 5), pads=(2, 2, 2, 2), strides=(2, 2)),
    "conv dilated": lambda: convolution((1, 6, 16, 16), (8, 6, 3, 3), dilations=(2, 2)),
    "conv in groups": lambda: convolution((2, 12, 9, 9), (20, 3, 3, 3), group=4, pads=(1, 1, 1, 1)),
    "conv by channel": lambda: convolution((2, 12, 15, 15), (12, 1, 3, 3), group=12, pads=(1, 1, 1, 1), strides=(2, 2)),
    "conv of one axis": lambda: convolution((1, 8, 33), (9, 8, 4), pads=(1, 2)),
    "matmul": lambda: product(37, 43, 50),
    "matmul of a batch": lambda: product(5, 20, 33, lead=(2, 3)),
    "matmul of one row": lambda: product(1, 64, 70),
    "matmul of inputs": lambda: product(18, 16, 19, constant=False),
    "gemm": lambda: product(13, 21, 34, gemm=True),
    "max pool of odd planes": lambda: pool((2, 5, 23, 37)),
}


def small_elements():
    """Operators on halves and integers, which lie in memory as other numbers than vectors hold, or in more lanes."""
    calls = []
    for dtype in (DType.FLOAT16.numpy, DType.BFLOAT16.numpy):
        x, w = (RNG.standard_normal(shape).astype(dtype) for shape in ((9, 37), (37, 21)))
        calls += [("gelu", [x], {}), ("softmax", [x], {"axis": 1}), ("matmul", [x, w], {})]
        calls += [("layer_norm", [x, w[:, 0].copy(), w[:, 1].copy()], {"axis": 1})]
    for dtype in ("int8", "uint16", "int32", "int64"):
        x = RNG.integers(-100, 100, (19, 70)).astype(dtype)
        calls += [(op, [x], {"axes": (axis,)}) for op in ("reduce_sum", "reduce_max") for axis in (0, 1)]
        calls += [("argmin", [x], {"axis": axis}) for axis in (0, 1)]
    return graph_of_calls(calls)


#: Options by which forms are run: vectors of two widths, and memory that is fetched ahead.
OPTIONS = (MappingOptions(), MappingOptions(13, 2, unroll=1, vector_bytes=64, prefetch=512, fused_rows=64))


def inputs_of(graph):
    return {name: RNG.standard_normal(graph.type(name).static).astype(np.float32) for name in graph.inputs}
