"""Attention and rotary embeddings, those of ONNX Runtime and of ONNX, mean what ONNX Runtime computes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from tests.support.one_operator import agree, is_lowered, model, opaque, session_run

RNG = np.random.default_rng(3)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
B, S, N, H = 2, 4, 2, 6
D = N * H


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def node(op_type: str, inputs: list[str], outputs: list[str], domain: str = "com.microsoft", **attrs: Any) -> Any:
    return helper.make_node(op_type, inputs, outputs, domain=domain, **attrs)


def kinds(proto: ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


def trimmed(names: list[str]) -> list[str]:
    while names and not names[-1]:
        names.pop()
    return names


def is_read_and_written(proto: ModelProto, feeds: dict[str, Any]) -> None:
    graph = is_lowered(proto, feeds, **CLOSE)
    assert "attention" in [n.op for n in graph.nodes]
    assert kinds(to_model(graph)) == kinds(proto)


MASKS = {
    "none": None,
    "keys": np.int32([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]]),
    "pairs": RNG.integers(0, 2, (B, S, 5)).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("added", [None, (B, N), (1, 1)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_multi_head_attention(mask: str, bias: bool, added: tuple[int, int] | None, scale: float | None) -> None:
    feeds = {"q": floats(B, S, D), "k": floats(B, 5, D), "v": floats(B, 5, D)}
    constants = {}
    if bias:
        constants["b"] = floats(3 * D)
    if MASKS[mask] is not None:
        feeds["m"] = MASKS[mask]
    if added:
        feeds["a"] = floats(*added, S, 5)
    names = trimmed(["q", "k", "v", "b" * bias, "m" * (mask != "none"), "a" * bool(added)])
    attrs = {"num_heads": N} | ({"scale": scale} if scale else {})
    made = node("MultiHeadAttention", names, ["y"], **attrs)
    is_read_and_written(model(made, feeds, constants), feeds)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("present", [False, True])
def test_a_cache_grows(past: bool, present: bool) -> None:
    feeds = {"q": floats(B, S, D), "k": floats(B, S, D), "v": floats(B, S, D)}
    names = ["q", "k", "v"]
    if past:
        feeds |= {"pk": floats(B, N, 3, H), "pv": floats(B, N, 3, H)}
        names += ["", "", "", "pk", "pv"]
    outputs = ["y", "k_out", "v_out"] if present else ["y"]
    made = node("MultiHeadAttention", names, outputs, num_heads=N)
    if past and not present:
        assert opaque(load(model(made, feeds))) == ["a cache that is not handed on"]
        return
    is_lowered(model(made, feeds), feeds, **CLOSE)
    graph = load(model(made, feeds))
    assert "MultiHeadAttention" in kinds(to_model(graph))


def test_unidirectional_attention_of_equal_lengths() -> None:
    feeds = {"q": floats(B, S, D), "k": floats(B, S, D), "v": floats(B, S, D)}
    made = node("MultiHeadAttention", ["q", "k", "v"], ["y"], num_heads=N, unidirectional=1)
    is_read_and_written(model(made, feeds), feeds)


def test_keys_that_are_apart_by_head() -> None:
    feeds = {"q": floats(B, S, D), "k": floats(B, N, 5, H), "v": floats(B, N, 5, H)}
    made = node("MultiHeadAttention", ["q", "k", "v"], ["y"], num_heads=N)
    is_read_and_written(model(made, feeds), feeds)


SELF_MASKS = {
    "none": None,
    "keys": np.int32([[1, 1, 0, 1], [1, 1, 1, 0]]),
    "lengths": np.int32([2, 4]),
    "pairs": RNG.integers(0, 2, (B, S, S)).astype(np.int32),
}


@pytest.mark.parametrize("mask", SELF_MASKS)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"qkv_hidden_sizes": [D, D, 8]}, {"unidirectional": 1}, {"scale": 0.2}])
def test_self_attention(mask: str, added: bool, attrs: dict[str, Any]) -> None:
    total = sum(attrs.get("qkv_hidden_sizes", [D] * 3))
    feeds, constants = {"x": floats(B, S, 10)}, {"w": floats(10, total), "b": floats(total)}
    if SELF_MASKS[mask] is not None:
        feeds["m"] = SELF_MASKS[mask]
    if added:
        feeds["a"] = floats(B, N, S, S)
    names = trimmed(["x", "w", "b", "m" * (mask != "none"), "", "a" * added])
    made = node("Attention", names, ["y"], num_heads=N, **attrs)
    is_read_and_written(model(made, feeds, constants), feeds)


@pytest.mark.parametrize("past", [False, True])
def test_self_attention_with_a_cache(past: bool) -> None:
    feeds, constants = {"x": floats(B, S, 10)}, {"w": floats(10, 3 * D), "b": floats(3 * D)}
    names = ["x", "w", "b"]
    if past:
        feeds["p"] = floats(2, B, N, 3, H)
        names += ["", "p"]
    made = node("Attention", names, ["y", "present"], num_heads=N)
    graph = is_lowered(model(made, feeds, constants), feeds, **CLOSE)
    assert "Attention" in kinds(to_model(graph))


@pytest.mark.parametrize("interleaved, part, rank", [*itertools.product((0, 1), (0, 4), (3, 4))])
@pytest.mark.parametrize("places", ["tokens", "first"])
def test_rotary_embeddings_of_onnx_runtime(interleaved: int, part: int, rank: int, places: str) -> None:
    x = floats(B, S, D) if rank == 3 else floats(B, N, S, H)
    half = (part or H) // 2
    constants = {"cos": floats(9, half), "sin": floats(9, half)}
    feeds = {"x": x}
    if places == "tokens":
        feeds["at"] = RNG.integers(0, 9, (B, S))
    else:
        constants["at"] = np.int64([2])
    attrs = {"interleaved": interleaved} | ({"rotary_embedding_dim": part, "num_heads": N} if part else {})
    made = node("RotaryEmbedding", ["x", "at", "cos", "sin"], ["y"], **attrs)
    graph = is_lowered(model(made, feeds, constants), feeds, **CLOSE)
    assert kinds(to_model(graph)) == ["RotaryEmbedding"]


@pytest.mark.parametrize("interleaved, part, rank", [*itertools.product((0, 1), (0, 4), (3, 4))])
@pytest.mark.parametrize("places", [False, True])
def test_rotary_embeddings_of_onnx(interleaved: int, part: int, rank: int, places: bool) -> None:
    x = floats(B, S, D) if rank == 3 else floats(B, N, S, H)
    half = (part or H) // 2
    feeds = {"x": x}
    lead = (9,) if places else (B, S)
    feeds |= {"cos": floats(*lead, half), "sin": floats(*lead, half)}
    if places:
        feeds["at"] = RNG.integers(0, 9, (B, S))
    attrs = {"interleaved": interleaved, "num_heads": N} | ({"rotary_embedding_dim": part} if part else {})
    made = node("RotaryEmbedding", ["x", "cos", "sin", *(["at"] if places else [])], ["y"], "", **attrs)
    graph = is_lowered(model(made, feeds, opset=23), feeds, **CLOSE)
    assert kinds(to_model(graph)) == ["RotaryEmbedding"]


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "float32", "bool"])
def test_attention_of_onnx(rank: int, cache: bool, causal: bool, mask: str | None) -> None:
    shared = 1
    q = floats(B, S, D) if rank == 3 else floats(B, N, S, H)
    k, v = (floats(B, S, shared * H) if rank == 3 else floats(B, shared, S, H) for _ in range(2))
    feeds, names, keys = {"q": q, "k": k, "v": v}, ["q", "k", "v", "", "", ""], S
    if cache:
        feeds |= {"pk": floats(B, shared, 3, H), "pv": floats(B, shared, 3, H)}
        names[4:], keys = ["pk", "pv"], S + 3
    if mask:
        feeds["m"] = floats(S, keys) if mask == "float32" else RNG.random((S, keys)) < 0.7
        names[3] = "m"
    attrs = {"q_num_heads": N, "kv_num_heads": shared} if rank == 3 else {}
    outputs = ["y", "k_out", "v_out"] if cache else ["y"]
    made = node("Attention", trimmed(names), outputs, "", is_causal=int(causal), **attrs)
    proto = model(made, feeds, opset=23)
    graph = is_lowered(proto, feeds, **CLOSE)
    assert kinds(to_model(graph))[0] == "Attention"


REFUSED = [
    ({"num_heads": N}, ["q"], "queries, keys and values packed into one tensor"),
    ({"num_heads": 5}, ["q", "q", "q"], "12 columns in 5 heads"),
    ({"num_heads": N}, ["q", "q", "q", "", "n"], "a mask of shape [3] for 4 keys"),
    ({"num_heads": N, "unidirectional": 1}, ["q", "k", "k"], "unidirectional attention to a cache"),
]


@pytest.mark.parametrize("attrs, names, reason", REFUSED, ids=[r[2][:9] for r in REFUSED])
def test_what_is_not_read_says_why(attrs: dict[str, Any], names: list[str], reason: str) -> None:
    feeds = {"q": floats(B, S, D), "k": floats(B, 5, D)}
    proto = model(node("MultiHeadAttention", names, ["y"], **attrs), feeds, {"n": np.int32([1, 2, 3])})
    assert opaque(load(proto)) == [reason]


def test_attention_comes_back_from_an_optimised_model() -> None:
    """The two products of one operand after it become one; the attention between stays one node."""
    feeds = {"x": floats(B, S, D)}
    constants = {n: floats(D, D) for n in ("wq", "wk", "wv", "a", "b")}
    nodes = [node("MatMul", ["x", f"w{c}"], [c], "") for c in "qkv"]
    nodes.append(node("MultiHeadAttention", ["q", "k", "v"], ["h"], num_heads=N))
    nodes += [node("MatMul", ["h", "a"], ["p"], ""), node("MatMul", ["h", "b"], ["r"], "")]
    nodes.append(node("Add", ["p", "r"], ["y"], ""))
    proto = model(nodes, feeds, constants)
    written = eqsat.optimize(proto, measure=False, time_limit=20).to_onnx()
    assert "MultiHeadAttention" in kinds(written)
    assert kinds(written).count("MatMul") < kinds(proto).count("MatMul")
    agree(session_run(written, feeds)[0], session_run(proto, feeds)[0], rtol=1e-3, atol=1e-3)


def test_named_dims_run_through_attention() -> None:
    feeds = {"x": floats(B, S, 10), "m": SELF_MASKS["keys"]}
    constants = {"w": floats(10, 3 * D), "b": floats(3 * D)}
    made = node("Attention", ["x", "w", "b", "m"], ["y"], num_heads=N)
    proto = model(made, feeds, constants, shapes={"x": ("batch", "length", 10), "m": ("batch", "length")})
    graph = is_lowered(proto, feeds, **CLOSE)
    assert str(graph.type("y")) == "float32[batch, length, 12]"
    assert kinds(to_model(graph)) == ["Attention"]
