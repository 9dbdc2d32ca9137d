"""Padding: where it is proved to change nothing a padded run agrees with the exact one, and what leaks is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eqsat.buckets.padding import leak_of
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.graphs.fold import infer_and_fold
from eqsat.language.terms.graph import Graph
from eqsat.runtime.backend import select

Body = Callable[[Builder, Tensor], Tensor]
RNG = np.random.default_rng(0)
SQUARE = RNG.standard_normal((6, 6)).astype(np.float32)
KERNEL = RNG.standard_normal((4, 6, 3)).astype(np.float32)
ROW = RNG.standard_normal((6,)).astype(np.float32)


def graph(body: Body) -> Graph:
    g = Builder("g")
    g.output("y", body(g, g.input("x", ("n", "t", 6))))
    return infer_and_fold(g.build())


def attention(g: Builder, x: Tensor) -> Tensor:
    scores = x @ g.apply("transpose", x, perm=(0, 2, 1))
    return g.apply("softmax", scores, axis=2) @ x


SAFE: dict[str, tuple[Body, tuple[str, ...]]] = {
    "element by element": (lambda g, x: g.apply("tanh", x + g.constant(ROW)) * x, ("n", "t")),
    "product": (lambda g, x: x @ g.constant(SQUARE), ("n", "t")),
    "softmax of another axis": (lambda g, x: g.apply("softmax", x, axis=2), ("n", "t")),
    "norm of another axis": (
        lambda g, x: g.apply("layer_norm", x, g.constant(ROW), g.constant(ROW), axis=2, epsilon=1e-5),
        ("n", "t"),
    ),
    "attention over a batch": (attention, ("n",)),
    "sum of zeros": (lambda g, x: g.apply("reduce_sum", x, axes=(1,), keepdims=False), ("n", "t")),
    "sum of what keeps zero": (
        lambda g, x: g.apply("reduce_sum", g.apply("relu", x * g.constant(ROW)), axes=(1,), keepdims=True),
        ("n", "t"),
    ),
    "sum of products of zeros": (
        lambda g, x: g.apply("transpose", x, perm=(0, 2, 1)) @ (x @ g.constant(SQUARE)),
        ("n", "t"),
    ),
    "mean of another axis": (lambda g, x: g.apply("reduce_mean", x, axes=(2,), keepdims=False), ("n", "t")),
    "transpose and back": (
        lambda g, x: g.apply("transpose", g.apply("transpose", x, perm=(1, 0, 2)) * 2.0, perm=(1, 0, 2)),
        ("n", "t"),
    ),
    "heads": (
        lambda g, x: g.apply(
            "transpose", g.apply("reshape", x, shape=(x.shape[0], x.shape[1], 2, 3)), perm=(0, 2, 1, 3)
        ),
        ("n", "t"),
    ),
    "rows of a batch": (lambda g, x: g.apply("reshape", x, shape=(x.shape[0], x.shape[1] * 6)), ("n", "t")),
    "first piece": (lambda g, x: g.apply("slice", x, axes=(1,), starts=(0,), ends=(1,), steps=(1,)), ("n", "t")),
    "behind a constant": (lambda g, x: g.apply("concat", x * 0.5, x, axis=2), ("n", "t")),
    "named place": (lambda g, x: g.apply("gather", x, g.constant(np.int64([0, 0])), axis=1), ("n", "t")),
    "convolution over a batch": (
        lambda g, x: g.apply(
            "conv",
            g.apply("transpose", x, perm=(0, 2, 1)),
            g.constant(KERNEL),
            strides=(1,),
            pads=(1, 1),
            dilations=(1,),
            group=1,
        ),
        ("n",),
    ),
}

LEAKS: dict[str, tuple[Body, str, str]] = {
    "softmax": (lambda g, x: g.apply("softmax", x, axis=1), "t", "softmax computes elements along axis 1"),
    "mean": (lambda g, x: g.apply("reduce_mean", x, axes=(1,), keepdims=False), "t", "from one another"),
    "largest": (
        lambda g, x: g.apply("reduce_max", -g.apply("abs", x), axes=(1,), keepdims=False),
        "t",
        "reduce_max reduces an axis that padding makes longer",
    ),
    "attention": (attention, "t", "softmax computes"),
    "place of the largest": (
        lambda g, x: g.apply("argmax", -g.apply("abs", x), axis=1, keepdims=False),
        "t",
        "nothing is known of how argmax walks its axes",
    ),
    "sum of what zero becomes": (
        lambda g, x: g.apply("reduce_sum", g.apply("exp", x), axes=(1,), keepdims=False),
        "t",
        "which is not zero where it is padded",
    ),
    "sum of a bias": (
        lambda g, x: g.apply("reduce_sum", x + g.constant(ROW), axes=(1,), keepdims=False),
        "t",
        "which is not zero where it is padded",
    ),
    "last piece": (
        lambda g, x: g.apply("slice", x, axes=(1,), starts=(x.shape[1] - 1,), ends=(x.shape[1],), steps=(1,)),
        "t",
        "slice counts from the end of axis 1",
    ),
    "joined axes": (
        lambda g, x: g.apply("reshape", x, shape=(x.shape[0] * x.shape[1], 6)),
        "t",
        "reshape moves elements",
    ),
    "something behind it": (lambda g, x: g.apply("concat", x, x, axis=1), "t", "concat moves what follows"),
}


def padded_agrees(g: Graph, names: tuple[str, ...]) -> bool:
    """Whether a run at larger sizes, with zeros behind the data, gives what the exact run gives."""
    program = select("numpy").compile(g)
    sizes = {"n": 2, "t": 3}
    larger = {name: size + (3 if name in names else 0) for name, size in sizes.items()}
    x = np.random.default_rng(1).standard_normal((sizes["n"], sizes["t"], 6)).astype(np.float32)
    long = np.zeros((larger["n"], larger["t"], 6), np.float32)
    long[: sizes["n"], : sizes["t"]] = x
    exact, wide = program.run({"x": x})["y"], program.run({"x": long})["y"]
    return np.allclose(wide[tuple(slice(0, s) for s in exact.shape)], exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", SAFE)
def test_what_is_proved_not_to_leak_does_not(case: str) -> None:
    body, names = SAFE[case]
    g = graph(body)
    assert leak_of(g, names) is None
    assert padded_agrees(g, names)


@pytest.mark.parametrize("case", LEAKS)
def test_what_leaks_is_named(case: str) -> None:
    body, name, reason = LEAKS[case]
    g = graph(body)
    leak = leak_of(g, (name,))
    assert leak is not None
    assert reason in str(leak)
    assert not padded_agrees(g, (name,))


def test_what_is_not_padded_leaks_nothing() -> None:
    assert leak_of(graph(attention), ()) is None


def test_an_opaque_operator_may_do_anything() -> None:
    from onnx import TensorProto, helper

    from eqsat.language.onnx.read.importer import load

    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Mystery", ["x"], ["y"], domain="com.example")]
    made = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["n", 3])], [value("y", TensorProto.FLOAT, ["n", 3])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    leak = leak_of(load(helper.make_model(made, opset_imports=opsets, ir_version=8)), ("n",))
    assert leak is not None
    assert "y" in leak.value
