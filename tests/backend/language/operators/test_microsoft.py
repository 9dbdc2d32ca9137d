"""ONNX Runtime's own operators are read as what they mean, and written as what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_bytes, to_model
from tests.support.one_operator import agree, is_lowered, model, opaque, session_run

RNG = np.random.default_rng(1)
CLOSE = {"rtol": 2e-5, "atol": 2e-6}


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def node(op_type: str, inputs: list[str], outputs: list[str], domain: str = "com.microsoft", **attrs: Any) -> Any:
    return helper.make_node(op_type, inputs, outputs, domain=domain, **attrs)


def kinds(proto: ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


def is_read_and_written(proto: ModelProto, feeds: dict[str, Any], **tolerance: float) -> list[str]:
    """Checks values, and that the operators of the model come back; those that they were read as."""
    graph = is_lowered(proto, feeds, **(tolerance or CLOSE))
    assert kinds(to_model(graph)) == kinds(proto)
    return [n.op for n in graph.nodes]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("opset", [13, 21])
def test_gelus(bias: bool, opset: int) -> None:
    x, b = floats(2, 3, 8) * 3, floats(8)
    operands = ["x", "b"] if bias else ["x"]
    constants = {"b": b} if bias else {}
    fast = model(node("FastGelu", operands, ["y"]), {"x": x}, constants, opset=opset)
    assert is_read_and_written(fast, {"x": x}) == [*(["add"] if bias else []), "gelu"]
    plain = node("BiasGelu" if bias else "Gelu", operands, ["y"])
    assert is_read_and_written(model(plain, {"x": x}, constants, opset=opset), {"x": x})[-1] == "gelu"


@pytest.mark.parametrize("attrs", [{}, {"alpha": 1.0}, {"alpha": 2.5}])
def test_quick_gelu(attrs: dict[str, float]) -> None:
    x = floats(2, 3, 8) * 3
    assert is_read_and_written(model(node("QuickGelu", ["x"], ["y"], **attrs), {"x": x}), {"x": x}) == ["silu"]


@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize(
    ("simplified", "extra"),
    [(False, ""), (False, "beta"), (False, "beta bias"), (False, "bias"), (True, ""), (True, "bias")],
)
@pytest.mark.parametrize("total", [False, True])
def test_skip_normalisations(skip: tuple[int, ...], extra: str, total: bool, simplified: bool) -> None:
    x, s = floats(2, 3, 8), floats(*skip)
    constants = {"gamma": floats(8), "beta": floats(8), "bias": floats(8)}
    names = ["x", "s", "gamma", *(["beta" if "beta" in extra else ""] if not simplified else [])]
    names += ["bias"] if "bias" in extra else []
    kept = {k: v for k, v in constants.items() if k in names}
    outputs = ["y", "", "", "sum"] if total else ["y"]
    op_type = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
    proto = model(node(op_type, names, outputs, epsilon=1e-5), {"x": x, "s": s}, kept)
    read = is_read_and_written(proto, {"x": x, "s": s})
    assert read[-1] == ("rms_norm" if simplified else "layer_norm")


@pytest.mark.parametrize("axis", [1, -1, 2])
def test_simplified_layer_normalisation_is_of_onnxs_own_domain(axis: int) -> None:
    x = floats(2, 3, 8)
    scale = floats(*x.shape[axis:])
    made = node("SimplifiedLayerNormalization", ["x", "g"], ["y"], domain="", axis=axis, epsilon=1e-6)
    assert is_read_and_written(model(made, {"x": x}, {"g": scale}), {"x": x}) == ["rms_norm"]


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_layer_normalisation_is_there_before_onnx_has_it(opset: int) -> None:
    x = floats(2, 3, 8)
    made = node("LayerNormalization", ["x", "g", "b"], ["y"], domain="", axis=-1, epsilon=1e-6)
    proto = model(made, {"x": x}, {"g": floats(8), "b": floats(8)}, opset=opset)
    assert is_read_and_written(proto, {"x": x}) == ["layer_norm"]


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("total", [False, True])
def test_embeddings(segments: bool, mask: bool, positions: bool, total: bool) -> None:
    feeds = {"ids": RNG.integers(0, 11, (2, 5)).astype(np.int32)}
    constants = {"words": floats(11, 8), "places": floats(7, 8), "gamma": floats(8), "beta": floats(8)}
    if segments:
        feeds["kinds"] = RNG.integers(0, 2, (2, 5)).astype(np.int32)
        constants["types"] = floats(2, 8)
    if mask:
        feeds["mask"] = np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    if positions:
        feeds["at"] = RNG.integers(0, 7, (2, 5)).astype(np.int32)
    names = ["ids", "kinds" * segments, "words", "places", "types" * segments, "gamma", "beta", "mask" * mask]
    names.append("at" * positions)
    outputs = ["y", "count", *(["sum"] if total else [])]
    proto = model(node("EmbedLayerNormalization", names, outputs), feeds, constants)
    graph = is_lowered(proto, feeds, **CLOSE)
    assert "EmbedLayerNormalization" in kinds(to_model(graph))


def test_an_operand_that_makes_no_difference_is_still_named() -> None:
    feeds = {"ids": RNG.integers(0, 11, (2, 5)).astype(np.int32), "mask": np.ones((2, 5), np.int32)}
    constants = {"words": floats(11, 8), "places": floats(7, 8), "gamma": floats(8), "beta": floats(8)}
    names = ["ids", "", "words", "places", "", "gamma", "beta", "mask"]
    proto = model(node("EmbedLayerNormalization", names, ["y", "count"]), feeds, constants, outputs=["y"])
    graph = is_lowered(proto, feeds, **CLOSE)
    assert kinds(to_model(graph)) == ["EmbedLayerNormalization"]


@pytest.mark.parametrize("alpha", [1.0, 0.125])
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("rank", [2, 4])
def test_fused_products(alpha: float, turned: tuple[int, int], rank: int) -> None:
    lead = (2, 3)[: rank - 2]
    a, b = floats(*lead, 4, 5), floats(*lead, 5, 6)
    a = np.ascontiguousarray(a.swapaxes(-1, -2)) if turned[0] else a
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if turned[1] else b
    made = node("FusedMatMul", ["a", "b"], ["y"], alpha=alpha, transA=turned[0], transB=turned[1])
    read = is_read_and_written(model(made, {"a": a, "b": b}), {"a": a, "b": b})
    assert "matmul" in read


def test_a_fused_product_whose_weight_was_transposed_ahead_comes_back() -> None:
    a, b = floats(4, 5), floats(6, 5)
    proto = model(node("FusedMatMul", ["a", "b"], ["y"], alpha=0.5, transB=1), {"a": a}, {"b": b})
    assert is_read_and_written(proto, {"a": a}) == ["matmul", "mul"]


@pytest.mark.parametrize(
    "attrs",
    [
        {"activation": "Relu", "transB": 1, "alpha": 0.5},
        {"activation": "LeakyRelu", "activation_alpha": 0.3, "beta": 2.0},
        {"activation": "Tanh"},
        {"activation": "Sigmoid"},
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    ],
)
def test_fused_gemm(attrs: dict[str, Any]) -> None:
    a, c = floats(4, 5), floats(6)
    b = floats(6, 5) if attrs.get("transB") else floats(5, 6)
    proto = model(node("FusedGemm", ["a", "b", "c"], ["y"], **attrs), {"a": a}, {"b": b, "c": c})
    assert "gemm" in is_read_and_written(proto, {"a": a})


@pytest.mark.parametrize(
    "attrs",
    [
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
        {"activation": "LeakyRelu", "activation_params": [0.2], "strides": [2, 2]},
        {"activation": "Clip", "activation_params": [-0.5, 0.75]},
        {"activation": "HardSigmoid", "activation_params": [0.1, 0.4], "group": 2},
        {"activation": "Sigmoid", "auto_pad": "SAME_UPPER"},
    ],
)
@pytest.mark.parametrize("addend", [False, True])
def test_fused_convolutions(attrs: dict[str, Any], addend: bool) -> None:
    x, w, b = floats(1, 4, 8, 8), floats(4, 4 // attrs.get("group", 1), 3, 3), floats(4)
    proto = model(node("FusedConv", ["x", "w", "b"], ["y"], **attrs), {"x": x}, {"w": w, "b": b})
    feeds = {"x": x}
    if addend:
        feeds["z"] = floats(*session_run(proto, feeds)[0].shape)
        proto = model(node("FusedConv", ["x", "w", "b", "z"], ["y"], **attrs), feeds, {"w": w, "b": b})
    assert "conv" in is_read_and_written(proto, feeds, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("opset", [13, 21])
def test_quantisation_of_onnx_runtime(dtype: str, opset: int) -> None:
    x = floats(3, 4)
    constants = {"s": np.float32(0.02), "z": np.asarray(3, dtype)}
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    proto = model(nodes, {"x": x}, constants, opset=opset, outputs=["q", "y"])
    graph = load(proto)
    if opset < 21 and "16" in dtype:
        assert opaque(graph) == [f"{dtype} before opset 21"] * 2
    else:
        is_read_and_written(proto, {"x": x})


REFUSED = [
    (("SkipLayerNormalization", ["x", "x", "g"], ["y", "mean"]), {}, "the mean and deviation of a normalisation"),
    (("FusedMatMul", ["x", "m"], ["y"]), {"transBatchA": 1}, "a product that transposes batches"),
    (("FusedGemm", ["m", "m", "g"], ["y"]), {"activation": "Elu"}, "activation 'Elu'"),
    (("BeamSearch", ["x"], ["y"]), {}, "generates text by running graphs of its own until it is done"),
    (("Nowhere", ["x"], ["y"]), {}, "no counterpart among the operators"),
]


@pytest.mark.parametrize("made, attrs, reason", REFUSED, ids=[r[0][0] for r in REFUSED])
def test_what_is_not_read_says_why(made: Any, attrs: dict[str, Any], reason: str) -> None:
    proto = model(node(*made, **attrs), {"x": floats(2, 3, 8)}, {"g": floats(8), "m": floats(8, 8)})
    assert opaque(load(proto)) == [reason]


def test_an_unknown_domain_says_so() -> None:
    proto = model(node("Thing", ["x"], ["y"], domain="my.ops"), {"x": floats(2)})
    proto.opset_import.append(helper.make_opsetid("my.ops", 1))
    assert opaque(load(proto)) == ["unknown domain 'my.ops'"]


def two_blocks() -> tuple[ModelProto, dict[str, Any]]:
    """Two skip normalisations, each followed by what rules improve: two products of one operand.

    What is normalised is an output too, so that its scale cannot move into the products.
    """
    nodes, constants, value = [], {}, "x"
    for i in range(2):
        constants |= {f"g{i}": floats(16), f"a{i}": floats(16, 16), f"b{i}": floats(16, 16)}
        nodes += [
            node("SkipLayerNormalization", [value, "s", f"g{i}"], [f"n{i}"], epsilon=1e-5),
            node("MatMul", [f"n{i}", f"a{i}"], [f"p{i}"], domain=""),
            node("MatMul", [f"n{i}", f"b{i}"], [f"q{i}"], domain=""),
            node("Add", [f"p{i}", f"q{i}"], [f"h{i}"], domain=""),
        ]
        value = f"h{i}"
    feeds = {"x": floats(2, 4, 16), "s": floats(2, 4, 16)}
    return model(nodes, feeds, constants, outputs=[value, "n0", "n1"]), feeds


def test_what_was_not_improved_is_written_as_it_was() -> None:
    """The sums of products become one product each; the normalisations between them stay one node each."""
    proto, feeds = two_blocks()
    result = eqsat.optimize(proto, measure=False, time_limit=20)
    assert result.report.failure == ""
    written = result.to_onnx()
    assert sorted(kinds(written)) == ["MatMul", "MatMul", "SkipLayerNormalization", "SkipLayerNormalization"]
    agree(session_run(written, feeds)[0], session_run(proto, feeds)[0], rtol=1e-3, atol=1e-4)


def test_what_others_read_inside_stays_apart() -> None:
    """A sum that is an output of the graph cannot hide inside an operator that does not hand it out."""
    x, s = floats(2, 3, 8), floats(2, 3, 8)
    nodes = [
        node("SkipLayerNormalization", ["x", "s", "g"], ["y"]),
        node("Add", ["x", "s"], ["t"], domain=""),
        node("Mul", ["y", "t"], ["z"], domain=""),
    ]
    proto = model(nodes, {"x": x, "s": s}, {"g": floats(8)}, outputs=["z", "t"])
    result = eqsat.optimize(proto, measure=False, time_limit=20)
    for made, wanted in zip(
        session_run(result.to_onnx(), {"x": x, "s": s}), session_run(proto, {"x": x, "s": s}), strict=True
    ):
        agree(made, wanted, **CLOSE)


def test_an_operand_that_changed_is_the_one_that_is_read() -> None:
    """An improved region before a fused operator is what that reads from then on."""
    x = floats(2, 3, 8)
    nodes = [
        node("Relu", ["x"], ["a"], domain=""),
        node("Relu", ["a"], ["b"], domain=""),
        node("FastGelu", ["b", "c"], ["y"]),
    ]
    proto = model(nodes, {"x": x}, {"c": floats(8)})
    written = eqsat.optimize(proto, measure=False, time_limit=20).to_onnx()
    assert kinds(written) == ["Relu", "FastGelu"]
    agree(session_run(written, {"x": x})[0], session_run(proto, {"x": x})[0], **CLOSE)


def test_equal_operators_become_one() -> None:
    x = floats(2, 3, 8)
    nodes = [
        node("FastGelu", ["x", "c"], ["a"]),
        node("FastGelu", ["x", "c"], ["b"]),
        node("Add", ["a", "b"], ["y"], domain=""),
    ]
    proto = model(nodes, {"x": x}, {"c": floats(8)})
    written = eqsat.optimize(proto, measure=False, time_limit=20).to_onnx()
    assert kinds(written).count("FastGelu") == 1
    agree(session_run(written, {"x": x})[0], session_run(proto, {"x": x})[0], **CLOSE)


def test_a_convolution_that_took_its_activation_in_comes_back() -> None:
    """A rule makes one operator of a convolution and the relu after it; the fused node was one all along."""
    x = floats(1, 4, 8, 8)
    constants = {"w": floats(4, 4, 3, 3), "b": floats(4)}
    nodes = [
        node("Relu", ["x"], ["a"], domain=""),
        node("Relu", ["a"], ["r"], domain=""),
        node("FusedConv", ["r", "w", "b"], ["y"], activation="Relu", pads=[1, 1, 1, 1]),
    ]
    proto = model(nodes, {"x": x}, constants)
    written = eqsat.optimize(proto, measure=False, time_limit=20).to_onnx()
    assert kinds(written) == ["Relu", "FusedConv"]
    agree(session_run(written, {"x": x})[0], session_run(proto, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_another_opset_keeps_operators_of_other_domains() -> None:
    x = floats(2, 3, 8)
    proto = model(node("FastGelu", ["x"], ["y"]), {"x": x})
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, x.shape))
    written = to_bytes(load(proto), 17)
    assert kinds(ModelProto.FromString(written)) == ["FastGelu"]
    agree(session_run(written, {"x": x})[0], session_run(proto, {"x": x})[0], **CLOSE)


def test_attention_that_came_as_one_operator_runs_on_no_elements_whatever_is_around_it() -> None:
    """Heads that are split again need not be joined before; ONNX's own attention refuses a length of 0."""
    weights, biases, split = floats(3, 24), floats(24), np.array([0, 0, 2, 4])
    nodes = [
        node("Attention", ["x", "w", "b"], ["y"], num_heads=2, unidirectional=1),
        helper.make_node("Reshape", ["y", "split"], ["z"]),
    ]
    shapes = {"x": ("n", "m", 3)}
    proto = model(nodes, {"x": floats(2, 4, 3)}, {"w": weights, "b": biases, "split": split}, opset=23, shapes=shapes)
    result = eqsat.optimize(proto, measure=False, portable=True)
    assert kinds(result.to_onnx()) != kinds(proto)
    for length in (0, 3):
        x = floats(2, length, 3)
        wanted, made = (session_run(m, {"x": x})[0] for m in (proto, result.to_onnx()))
        np.testing.assert_allclose(made, wanted, **CLOSE)
