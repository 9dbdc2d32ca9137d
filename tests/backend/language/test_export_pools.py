"""Pools whose last window would begin past the operand: what reads them by the shape that ONNX infers takes them.

Two kinds stay as ONNX's shape inference misreads them: dilated windows that reach farther along another axis than ONNX
Runtime lets padding, and means that count padding along an axis where windows reach over it.
"""

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.language.onnx.write.exporter import to_model
from eqsat.runtime.backend import execute

#: Sizes, kernels, strides and pads along one axis.
CASES = [
    (size, kernel, stride, pads)
    for size, kernel, stride, pads in itertools.product(
        range(2, 7), (1, 2, 3), (1, 2, 3), itertools.product(range(3), repeat=2)
    )
    if max(pads) < kernel <= size + sum(pads)
]
KINDS = {"max_pool": {}, "avg_pool": {"count_include_pad": False}}


def split(kind, first, second):
    """A pool over two axes, and the first and the other rows of what it makes."""
    attrs = {"ceil_mode": True, **KINDS[kind], "kernel": (first[1], second[1]), "strides": (first[2], second[2])}
    attrs["pads"] = (first[3][0], second[3][0], first[3][1], second[3][1])
    g = eqsat.Graph("pooled")
    made = g.apply(kind, g.input("x", (1, 2, first[0], second[0])), **attrs)
    rows = made.type.static[2]
    if rows > 1:
        for name, part in zip("ab", g.apply("split", made, axis=2, sizes=(1, rows - 1)), strict=True):
            g.output(name, part)
    else:
        g.output("a", made)
    return g.build()


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_those_that_onnx_infers_and_values_those_of_onnx_runtime(kind):
    rng = np.random.default_rng(0)
    misread = 0
    for _ in range(150):
        graph = split(kind, *(CASES[i] for i in rng.integers(0, len(CASES), 2)))
        model = to_model(graph)
        (pool,) = (n for n in model.graph.node if n.op_type in ("MaxPool", "AveragePool"))
        misread += not any(a.name == "ceil_mode" for a in pool.attribute)
        onnx.checker.check_model(model, full_check=True)
        x = rng.standard_normal(graph.type("x").static).astype(np.float32)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for got, wanted in zip(session.run(None, {"x": x}), execute(graph, {"x": x}, "numpy").values(), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert misread > 10
