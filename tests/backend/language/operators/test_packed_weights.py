"""Products with weights of a few bits agree with ONNX Runtime's MatMulNBits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import eqsat
from eqsat.language.graphs.builder import Builder
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms.types import TensorType
from eqsat.runtime.backend import select
from tests.support.one_operator import agree, is_lowered, model, opaque, session_run

RNG = np.random.default_rng(4)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def packed(n: int, k: int, bits: int, block: int, zeros: str, bias: bool) -> dict[str, Any]:
    count = -(-k // block)
    constants: dict[str, Any] = {
        "b": RNG.integers(0, 256, (n, count, block * bits // 8)).astype(np.uint8),
        "s": RNG.uniform(0.01, 0.1, (n, count)).astype(np.float32),
    }
    if zeros == "packed":
        constants["z"] = RNG.integers(0, 256, (n, -(-count * bits // 8))).astype(np.uint8)
    if zeros == "floats":
        constants["z"] = RNG.uniform(4, 10, (n, count)).astype(np.float32)
    if bias:
        constants["c"] = RNG.standard_normal(n).astype(np.float32)
    return constants


def product(n: int, k: int, bits: int, block: int, zeros: str, bias: bool, *more: str) -> tuple[Any, dict[str, Any]]:
    constants = packed(n, k, bits, block, zeros, bias)
    names = ["a", "b", "s", "z" if "z" in constants else "", "", "c" if bias else ""]
    while not names[-1]:
        names.pop()
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    return helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **attrs), constants


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("k, block", [(64, 32), (48, 16), (40, 32)])
@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize("bias", [False, True])
def test_products_agree(bits: int, k: int, block: int, zeros: str, bias: bool) -> None:
    a = RNG.standard_normal((2, 3, k)).astype(np.float32)
    node, constants = product(7, k, bits, block, zeros, bias)
    graph = is_lowered(model(node, {"a": a}, constants), {"a": a}, **CLOSE)
    assert [n.op for n in graph.nodes] == ["matmul_packed"]
    assert [n.op_type for n in to_model(graph).graph.node] == ["MatMulNBits"]


def test_zeros_may_be_floats() -> None:
    a = RNG.standard_normal((3, 64)).astype(np.float32)
    node, constants = product(6, 64, 4, 32, "floats", False)
    is_lowered(model(node, {"a": a}, constants), {"a": a}, **CLOSE)


def test_named_dims_run_through() -> None:
    a = RNG.standard_normal((2, 3, 32)).astype(np.float32)
    node, constants = product(6, 32, 4, 32, "none", False)
    graph = is_lowered(model(node, {"a": a}, constants, shapes={"a": ("n", "m", 32)}), {"a": a}, **CLOSE)
    assert graph.type("y") == TensorType.of("float32", ("n", "m", 6))


@pytest.mark.parametrize(
    "attrs, order, reason",
    [
        ({"bits": 3}, False, "numbers of 3 bits, which straddle bytes"),
        ({}, True, "columns in an order of their own (g_idx)"),
        ({"weight_prepacked": 1}, False, "weights packed for one kind of processor"),
    ],
)
def test_what_is_not_read_says_why(attrs: dict[str, int], order: bool, reason: str) -> None:
    a = RNG.standard_normal((3, 32)).astype(np.float32)
    constants = packed(6, 32, 4, 32, "none", False) | {"g": np.zeros(32, np.int32)}
    names = ["a", "b", "s", "", *(["g"] if order else [])]
    full = {"K": 32, "N": 6, "bits": 4, "block_size": 32} | attrs
    graph = load(
        model(helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **full), {"a": a}, constants)
    )
    assert opaque(graph) == [reason]
    assert graph.type("y") == TensorType.of("float32", (3, 6))


def test_weights_stay_packed_when_what_is_around_them_is_optimised() -> None:
    a = RNG.standard_normal((3, 64)).astype(np.float32)
    node, constants = product(16, 64, 4, 32, "packed", False)
    constants |= {n: RNG.standard_normal((16, 8)).astype(np.float32) for n in ("u", "v")}
    nodes = [
        node,
        helper.make_node("MatMul", ["y", "u"], ["p"]),
        helper.make_node("MatMul", ["y", "v"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["r"]),
    ]
    proto = model(nodes, {"a": a}, constants)
    written: ModelProto = eqsat.optimize(proto, measure=False, time_limit=20).to_onnx()
    assert sorted(n.op_type for n in written.graph.node) == ["MatMul", "MatMulNBits"]
    assert [t.dims for t in written.graph.initializer if t.data_type == TensorProto.UINT8] == [[16, 2, 16], [16, 1]]
    agree(session_run(written, {"a": a})[0], session_run(proto, {"a": a})[0], rtol=1e-3, atol=1e-3)


def test_a_graph_built_in_python_is_written_with_the_domain() -> None:
    constants = packed(6, 32, 4, 32, "none", True)
    g = Builder("packed")
    a = g.input("a", (3, 32))
    operands = [g.constant(constants["b"]), g.constant(constants["s"]), None, g.constant(constants["c"])]
    g.output("y", g.apply("matmul_packed", a, *operands, k=32, n=6, bits=4, block=32))
    graph = g.build()
    feed = {"a": RNG.standard_normal((3, 32)).astype(np.float32)}
    wanted = session_run(to_model(graph), feed)[0]
    agree(select("numpy").compile(graph).run(feed)["y"], wanted, **CLOSE)
