"""Queries from which a mask hides all keys: what ONNX Runtime makes of them, NaN or 0, is what results make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from tests.support.one_operator import is_lowered, model, session_run

B, N, S, K, H = 2, 2, 5, 5, 4
LEAST = float(np.finfo(np.float32).min)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def heads(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    sizes = {"q": (B, N, S, H), "k": (B, N, K, H), "v": (B, N, K, H)}
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()} | more


def floats(low: float, *, column: int | None = None) -> Any:
    """A mask in which one query has `low` at all keys, and another at those that are no later than it."""
    mask = np.random.default_rng(6).standard_normal((S, K)).astype(np.float32)
    mask[1], mask[3, :4] = low, low
    if column is not None:
        mask[1, column] = np.nan
    return mask


def triangle(size: int) -> Any:
    return np.where(np.tri(size, dtype=bool), 0, -np.inf).astype(np.float32)


def softmax_of_scores(feeds: dict[str, Any], opset: int, constants: dict[str, Any]) -> ModelProto:
    """The products and the softmax of attention as exporters write them."""
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["products"]),
        helper.make_node("Mul", ["products", "half"], ["scores"]),
        helper.make_node("Add", ["scores", "m"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["y"]),
    ]
    if "m" not in feeds and "m" not in constants:
        nodes = [n for n in nodes if n.output[0] != "masked"]
        nodes[-2].input[0] = "scores"
    return model(nodes, feeds, constants | {"half": np.float32(0.5)}, opset=opset)


def attention_of_onnx(feeds: dict[str, Any], constants: dict[str, Any], *before: Any, causal: int = 0) -> ModelProto:
    node = helper.make_node("Attention", ["q", "k", "v", "m"], ["y"], is_causal=causal)
    proto = model([*before, node], feeds, constants, opset=23)
    # An older opset is checked to allow the types of the outputs.
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    return proto


def kinds(proto: ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


def optimised(proto: ModelProto, **options: Any) -> Any:
    return eqsat.optimize(proto, measure=False, time_limit=20, **options)


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("held", ["input", "constant"])
@pytest.mark.parametrize("low", [-np.inf, LEAST])
def test_a_softmax_of_what_is_hidden_stays_what_it_is(opset: int, portable: bool, held: str, low: float) -> None:
    mask = {"m": floats(low)}
    feeds = heads() | (mask if held == "input" else {})
    proto = softmax_of_scores(feeds, opset, mask if held == "constant" else {})
    wanted = session_run(proto, feeds)[0]
    assert np.isnan(wanted[:, :, 1]).all() == (low == -np.inf)
    result = optimised(proto, portable=portable)
    np.testing.assert_allclose(session_run(result.to_onnx(), feeds)[0], wanted, **CLOSE)
    np.testing.assert_allclose(result.run(**feeds)["y"], wanted, **CLOSE)


@pytest.mark.parametrize("opset", [17, 23])
def test_scores_that_overflow_make_what_they_made(opset: int) -> None:
    feeds = heads()
    feeds["q"][0, 0, 2], feeds["k"][0, 0] = -np.inf, np.abs(feeds["k"][0, 0])
    proto = softmax_of_scores(feeds, opset, {})
    with np.errstate(invalid="ignore"):
        wanted = session_run(proto, feeds)[0]
        assert np.isnan(wanted[0, 0, 2]).all()
        made = optimised(proto, finite_math=False).to_onnx()
        np.testing.assert_allclose(session_run(made, feeds)[0], wanted, **CLOSE)


@pytest.mark.parametrize("size", [K, 80])
@pytest.mark.parametrize("opset, portable, expected", [(17, False, "MultiHeadAttention"), (23, True, "Attention")])
def test_a_mask_that_hides_what_comes_later_is_no_hindrance(
    size: int, opset: int, portable: bool, expected: str
) -> None:
    rng = np.random.default_rng(7)
    feeds = {name: rng.standard_normal((B, N, size, H)).astype(np.float32) for name in "qkv"}
    proto = softmax_of_scores(feeds, opset, {"m": triangle(size)})
    made = optimised(proto, portable=portable).to_onnx()
    assert expected in kinds(made)
    assert "Softmax" not in kinds(made)
    np.testing.assert_allclose(session_run(made, feeds)[0], session_run(proto, feeds)[0], **CLOSE)


MASKS = {
    "hidden": floats(-np.inf),
    "all": np.full((S, K), -np.inf, np.float32),
    "NaN": floats(-np.inf, column=2),
    "shown": triangle(K),
    "truth values": floats(-np.inf) > -1,
    "true": np.ones((B, 1, S, K), bool),
}


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("held", ["input", "constant"])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_of_onnx_makes_zeros(mask: str, held: str, causal: int) -> None:
    """At its own opset, in parts at an older one, and by the references; optimised, too."""
    given = {"m": MASKS[mask]}
    feeds = heads() | (given if held == "input" else {})
    proto = attention_of_onnx(feeds, given if held == "constant" else {}, causal=causal)
    graph = is_lowered(proto, feeds, **CLOSE)
    assert kinds(to_model(graph)) == ["Attention"]
    older = to_model(graph, 17)
    wanted = session_run(proto, feeds)[0]
    if mask in ("hidden", "truth values"):
        assert not wanted[:, :, 1].any()
    np.testing.assert_allclose(session_run(older, feeds)[0], wanted, **CLOSE)
    result = optimised(proto)
    np.testing.assert_allclose(session_run(result.to_onnx(), feeds)[0], wanted, **CLOSE)
    np.testing.assert_allclose(result.run(**feeds)["y"], wanted, **CLOSE)


SHAPES = [(), (K,), (1, K), (S, 1), (1, 1, 1, K), (B, 1, 1, K), (1, N, S, 1), (B, N, S, K)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_masks_of_every_shape_are_written_as_onnx_runtime_takes_them(shape: tuple[int, ...]) -> None:
    mask = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    proto = softmax_of_scores(heads(), 23, {"m": mask})
    made = optimised(proto, portable=True).to_onnx()
    assert "Attention" in kinds(made)
    np.testing.assert_allclose(session_run(made, heads())[0], session_run(proto, heads())[0], **CLOSE)


def test_a_mask_of_fewer_keys_is_not_read() -> None:
    """ONNX hides the others, and ONNX Runtime refuses to run it."""
    source = attention_of_onnx(heads(), {"m": np.zeros((S, 1), np.float32)})
    capped = ModelProto.FromString(source.SerializeToString())
    capped.graph.node[0].attribute.append(helper.make_attribute("softcap", 2.0))
    for proto in (source, capped):  # the second is read by its definition with a mask for all
        (node,) = load(proto).nodes
        assert node.attrs["reason"] == "a mask that may not be one for all of 5 keys"


@pytest.mark.parametrize("mask", ["shown", "true"])
def test_a_mask_that_shows_something_needs_no_guard(mask: str) -> None:
    older = to_model(load(attention_of_onnx(heads(), {"m": MASKS[mask]})), 17)
    assert kinds(older).count("Where") == (mask == "true")
    assert "Less" not in kinds(older)


def test_a_mask_made_of_truth_values_needs_no_guard() -> None:
    feeds = heads(kept=np.ones((1, 1, S, K), bool))
    made = helper.make_node("Where", ["kept", "zero", "low"], ["m"])
    for low, count in ((LEAST, 1), (-np.inf, 2)):
        proto = attention_of_onnx(feeds, {"zero": np.float32(0), "low": np.float32(low)}, made)
        assert kinds(to_model(load(proto), 17)).count("Where") == count


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("portable", [False, True])
def test_attention_of_onnx_runtime_makes_nan(opset: int, portable: bool) -> None:
    rng = np.random.default_rng(8)
    feeds = {name: rng.standard_normal((B, S, N * H)).astype(np.float32) for name in "qkv"}
    feeds["m"] = np.broadcast_to(floats(-np.inf), (1, 1, S, K)).copy()
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v", "", "", "m"], ["y"], domain="com.microsoft", num_heads=N
    )
    proto = model(node, feeds, opset=opset)
    graph = is_lowered(proto, feeds, **CLOSE)
    assert kinds(to_model(graph)) == ["MultiHeadAttention"]
    wanted = session_run(proto, feeds)[0]
    assert np.isnan(wanted[:, 1]).all()
    made = optimised(proto, portable=portable).to_onnx()
    np.testing.assert_allclose(session_run(made, feeds)[0], wanted, **CLOSE)


@pytest.mark.parametrize("operator", ["Attention", "MultiHeadAttention"])
@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("filter_value", [None, LEAST, -np.inf])
@pytest.mark.parametrize("hiding", ["mask", "bias", "both", "bias of the least"])
def test_masks_of_onnx_runtime_hide_what_they_hide_there(
    operator: str, later: int, filter_value: float | None, hiding: str
) -> None:
    """A query that sees nothing but later keys is given those, where minus infinity hides what it may look at."""
    rng = np.random.default_rng(10)
    places = ["m", "", "a"] if operator == "Attention" else ["", "m", "a"]
    width = N * H
    feeds: dict[str, Any] = {"x": rng.standard_normal((B, S, 10)).astype(np.float32)}
    constants = {"w": rng.standard_normal((10, 3 * width)), "b": rng.standard_normal(3 * width)}
    constants = {name: array.astype(np.float32) for name, array in constants.items()}
    names = ["x", "w", "b"]
    if operator == "MultiHeadAttention":
        feeds, constants, names = dict.fromkeys("qkv", feeds["x"][..., :width]), {}, ["q", "k", "v"]
    if hiding in ("mask", "both"):
        feeds["m"] = np.ones((B, S, S), np.int32)
        feeds["m"][:, 1], feeds["m"][:, 2, :3] = 0, 0
    if hiding != "mask":
        feeds["a"] = np.zeros((B, N, S, S), np.float32)
        feeds["a"][:, :, 1] = feeds["a"][:, :, 2, :3] = LEAST if hiding == "bias of the least" else -np.inf
    names += [place if place in feeds else "" for place in places]
    attrs = {"num_heads": N, "unidirectional": later}
    attrs |= {} if filter_value is None else {"mask_filter_value": filter_value}
    node = helper.make_node(operator, names, ["y"], domain="com.microsoft", **attrs)
    proto = model(node, feeds, constants)
    with np.errstate(over="ignore"):
        assert kinds(to_model(is_lowered(proto, feeds, **CLOSE))) == [operator]


@pytest.mark.parametrize("scale", [2.0, -0.5])
def test_a_scale_without_a_root_of_float32_is_written_by_parts_in_float64(scale: float) -> None:
    """ONNX Runtime's kernel multiplies queries and keys by that root: NaN, or nine digits of sixteen."""
    feeds = {name: value.astype(np.float64) for name, value in heads().items()}
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["s"]),
        helper.make_node("Mul", ["s", "c"], ["d"]),
        helper.make_node("Softmax", ["d"], ["p"], axis=3),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    source = model(nodes, feeds, {"c": np.float64(scale)}, opset=23)
    made = optimised(source).to_onnx()
    assert "Softmax" in kinds(made)
    np.testing.assert_allclose(session_run(made, feeds)[0], session_run(source, feeds)[0], rtol=1e-12)
