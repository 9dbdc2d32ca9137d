"""Operators with forms that opsets and attributes differ in: read, computed and written as ONNX Runtime has them."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms.graph import OPAQUE

RNG = np.random.default_rng(11)


def model(op_type, feed, constants=(), *, opset=21, outputs=1, **attrs):
    """One node on inputs and constants, these behind those."""
    info = helper.make_tensor_value_info
    tensors = [numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(constants)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, [*feed, *(t.name for t in tensors)], made, **attrs)
    graph = helper.make_graph(
        [node],
        "one",
        [info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feed.items()],
        [helper.make_empty_tensor_value_info(o) for o in made],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def session(proto):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def compare(proto, feed, *ops):
    wanted = session(proto).run(None, feed)
    graph = load(proto)
    assert tuple(n.op for n in graph.nodes) == ops
    for made, want in zip(run(graph, feed, Floats()).values(), wanted, strict=True):
        assert made.shape == want.shape and made.dtype == want.dtype
        np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-5)
    for made, want in zip(session(to_model(graph)).run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_gains_of_groups_and_of_channels(groups, opset):
    count, feed = groups if opset < 21 else 6, {"x": floats(2, 6, 4, 3)}
    proto = model("GroupNormalization", feed, [floats(count), floats(count)], opset=opset, num_groups=groups)
    compare(proto, feed, "group_norm")


@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [2, 3]},
        {"kernel_shape": [3, 3], "p": 1, "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "p": 3, "strides": [2, 1], "pads": [0, 1, 1, 0]},
        {"kernel_shape": [2, 2], "p": 2, "dilations": [2, 1]},
        {"kernel_shape": [2, 2], "p": 4, "auto_pad": "SAME_LOWER"},
    ],
)
def test_norms_of_windows(attrs):
    feed = {"x": floats(1, 2, 6, 7)}
    compare(model("LpPool", feed, **attrs), feed, "lp_pool")


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
def test_one_hot(axis):
    feed = {"x": np.int64([[0, 4, -1], [-5, 5, 9]])}
    compare(model("OneHot", feed, [np.int64(5), np.float32([0.25, 2])], axis=axis), feed, "one_hot")


def test_one_hot_of_other_integers_is_kept():
    (node,) = load(model("OneHot", {"x": np.int32([1])}, [np.int32(5), np.float32([0, 1])])).nodes
    assert node.op == OPAQUE and node.attrs["reason"] == "OneHot of int32 with a depth of int32"


@pytest.mark.parametrize("batch", [0, 1])
def test_turned_sequences(batch):
    feed = {"x": floats(4, 4, 2), "lens": np.int64([4, 1, 0, 3])}
    proto = model("ReverseSequence", feed, batch_axis=batch, time_axis=1 - batch)
    compare(proto, feed, "reverse_sequence")


@pytest.mark.parametrize("k", [-1, 0, 2])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2)])
def test_diagonals(shape, k):
    feed = {"x": floats(*shape)}
    # A constant, so that nothing is left to run.
    compare(model("EyeLike", feed, k=k, dtype=TensorProto.INT32), feed)


@pytest.mark.parametrize(
    "attrs",
    [
        {"output_shape": [10, 8]},
        {"output_shape": [9, 8], "group": 1},
        {"output_shape": [7, 5]},
        {"output_shape": [7, 5], "auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "SAME_UPPER"},
        {"pads": [1, 0, 1, 1], "output_padding": [2, 1]},
        {"group": 2, "dilations": [2, 1]},
    ],
)
def test_transposed_convolutions(attrs):
    feed = {"x": floats(1, 2, 3, 3)}
    weight, bias = floats(2, 3, 3, 3), floats(3 * attrs.get("group", 1))
    proto = model("ConvTranspose", feed, [weight, bias], strides=[3, 2], **attrs)
    compare(proto, feed, "conv_transpose")


BY_DATA, BY_CHANCE = "how many elements it makes depends on its data", "random: it must be neither folded nor merged"
KEPT = {
    "NonZero": (BY_DATA, {"x": floats(2, 3)}, ["int64[2, ?0]"]),
    "Compress": (BY_DATA, {"x": floats(4), "c": np.ones(4, bool)}, ["float32[?0]"]),
    "Unique": (BY_DATA, {"x": floats(4)}, ["float32[?0]"]),
    "NonMaxSuppression": (BY_DATA, {"b": floats(1, 6, 4), "s": floats(1, 1, 6)}, ["int64[?0, 3]"]),
    "RandomNormalLike": (BY_CHANCE, {"x": floats(2, 3)}, ["float32[2, 3]"]),
    "Bernoulli": (BY_CHANCE, {"x": floats(2, 3)}, ["float32[2, 3]"]),
}


@pytest.mark.parametrize("op_type", KEPT)
def test_what_is_kept_is_typed_and_says_why(op_type):
    reason, feed, types = KEPT[op_type]
    graph = load(model(op_type, feed))
    (node,) = graph.nodes
    assert (node.op, node.attrs["reason"]) == (OPAQUE, reason)
    assert [str(graph.type(o)) for o in node.outputs] == types


@pytest.mark.parametrize(
    ("scale", "axis", "ops"),
    [
        ((4,), -1, ["layer_norm"]),
        ((1, 1, 4), 2, ["layer_norm"]),
        ((3, 4), 1, ["layer_norm"]),
        ((3, 4), 2, ["layer_norm", "mul", "add"]),
        ((2, 1, 4), -1, ["layer_norm", "mul", "add"]),
        ((2, 3, 4), 1, ["layer_norm", "mul", "add"]),
    ],
    ids=str,
)
def test_gains_that_differ_along_axes_that_are_not_normalised_are_multiplied_behind(scale, axis, ops):
    feed = {"x": floats(2, 3, 4)}
    compare(model("LayerNormalization", feed, [floats(*scale), floats(4)], axis=axis), feed, *ops)
    if len(ops) > 1:
        ops = ["rms_norm", "mul"]
        compare(model("RMSNormalization", feed, [floats(*scale)], opset=23, axis=axis), feed, *ops)
        compare(model("SimplifiedLayerNormalization", feed, [floats(*scale)], axis=axis, epsilon=1e-5), feed, *ops)


def test_dilated_windows_that_lie_in_padding_alone_are_left_to_onnx_runtime():
    attrs = {"kernel_shape": [2], "pads": [1, 1], "dilations": [2]}
    feed = {"x": floats(1, 2, 2)}
    compare(model("AveragePool", feed, opset=19, **attrs), feed, "avg_pool")
    feed = {"x": floats(1, 2, 1)}
    proto = model("AveragePool", feed, opset=19, **attrs)
    (node,) = load(proto).nodes
    assert (node.op, "lies in the padding of axis 2 alone" in node.attrs["reason"]) == (OPAQUE, True)
