"""Resize and Upsample of every opset: read, computed and written as ONNX Runtime has them."""

from itertools import product

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.errors import ExportModelError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms.graph import OPAQUE


def model(shape, attrs, opset, *, scales=None, sizes=None, roi=None, dtype=TensorProto.FLOAT, named=False):
    """A Resize, or the Upsample of an opset that has no Resize."""
    op_type = "Resize" if opset >= 10 else "Upsample"
    given = {"roi": roi, "scales": scales, "sizes": sizes}
    kinds = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}
    tensors = [
        numpy_helper.from_array(np.asarray(v, kinds[k]), k)
        for k, v in given.items()
        if v is not None and not (k == "scales" and opset < 9)
    ]
    names = {t.name for t in tensors}
    if opset < 9:
        attrs, inputs = {**attrs, "scales": scales}, ["x"]
    elif opset < 11:
        inputs = ["x", "scales"]
    else:
        if opset < 13:
            tensors += [
                numpy_helper.from_array(np.zeros(0, np.float32), k) for k in ("roi", "scales") if k not in names
            ]
            names |= {"roi", "scales"}
        inputs = ["x", *(k if k in names else "" for k in given)]
    node = helper.make_node(op_type, inputs, ["y"], **attrs)
    dims = [f"d{i}" if named else d for i, d in enumerate(shape)]
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info("x", dtype, dims)],
        [helper.make_tensor_value_info("y", dtype, [None] * len(shape))],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def session(proto):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def compare(proto, shape, ops, dtype=np.float32):
    """The reference and what is written give what ONNX Runtime gives for the model as it was."""
    x = (np.random.default_rng(0).standard_normal(shape) * 20).astype(dtype)
    (wanted,) = session(proto).run(None, {"x": x})
    graph = load(proto)
    assert [n.op for n in graph.nodes] == ops
    made = run(graph, {"x": x}, Floats())["y"]
    assert made.shape == wanted.shape and made.dtype == wanted.dtype
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=2e-4)
    (again,) = session(to_model(graph)).run(None, {"x": x})
    np.testing.assert_array_equal(again, wanted)


SHAPE = (2, 3, 5, 7)
SIZE = {
    "up": {"scales": (1, 1, 2, 3)},
    "down": {"scales": (1, 1, 0.6, 0.5)},
    "odd": {"scales": (1, 1, 1.7, 0.8)},
    "sizes": {"sizes": (2, 3, 9, 4)},
    "one": {"sizes": (2, 3, 1, 1)},
}
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


@pytest.mark.parametrize("size", SIZE)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("how", COORDINATES)
def test_nearest(how, rounding, size):
    attrs = {"mode": "nearest", "nearest_mode": rounding, "coordinate_transformation_mode": how}
    compare(model(SHAPE, attrs, 19, **SIZE[size]), SHAPE, ["resize_nearest"])


@pytest.mark.parametrize("size", SIZE)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("how", COORDINATES)
def test_interpolation(how, mode, size):
    attrs = {"mode": mode, "coordinate_transformation_mode": how}
    compare(model(SHAPE, attrs, 19, **SIZE[size]), SHAPE, ["resize"])


@pytest.mark.parametrize("size", SIZE)
@pytest.mark.parametrize(
    "more",
    [
        {"mode": "cubic", "cubic_coeff_a": -0.5},
        {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.6},
        {"mode": "linear", "antialias": 1},
        {"mode": "linear", "antialias": 1, "exclude_outside": 1},
        {"mode": "cubic", "antialias": 1},
        {"mode": "cubic", "antialias": 1, "exclude_outside": 1, "cubic_coeff_a": -0.5},
    ],
    ids=lambda m: "-".join(f"{k}={v}" for k, v in m.items()),
)
def test_kernels(more, size):
    compare(model(SHAPE, more, 18, **SIZE[size]), SHAPE, ["resize"])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("extrapolation", [0.0, 10.0])
@pytest.mark.parametrize("size", [{"sizes": (1, 1, 4, 6)}, {"scales": (1, 1, 0.8, 1.9)}, {"sizes": (1, 1, 1, 3)}])
def test_crops(size, extrapolation, mode):
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": extrapolation}
    roi = (0, 0, 0.4, 0.6, 1, 1, 1.2, 0.9)
    compare(model((1, 1, 5, 7), attrs, 13, roi=roi, **size), (1, 1, 5, 7), ["crop_resize"])


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("axes", [(2, 3), (3, 2)])
@pytest.mark.parametrize("sizes", [(7, 8), (3, 2), (11, 5)])
def test_one_scale_for_all_axes(sizes, axes, policy):
    attrs = {"mode": "nearest", "axes": axes, "keep_aspect_ratio_policy": policy}
    compare(model(SHAPE, attrs, 18, sizes=sizes), SHAPE, ["resize_nearest"])


@pytest.mark.parametrize("axes, size", [((2, 3), {"scales": (2, 0.5)}), ((3, 2), {"sizes": (9, 8)})])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_some_axes(mode, axes, size):
    compare(
        model(SHAPE, {"mode": mode, "axes": axes}, 18, **size),
        SHAPE,
        ["resize_nearest" if mode == "nearest" else "resize"],
    )


OTHER_RANKS = {
    "vector": ((6,), {"scales": (1.5,)}, "nearest"),
    "matrix": ((5, 6), {"scales": (2, 0.5)}, "linear"),
    "matrix, cubic": ((5, 6), {"scales": (2, 0.5)}, "cubic"),
    "rows": ((2, 3, 8), {"sizes": (2, 3, 5)}, "linear"),
    "volume": ((1, 2, 3, 4, 5), {"scales": (1, 1, 2, 2, 2)}, "linear"),
    "volume, nearest": ((1, 2, 3, 4, 5), {"scales": (1, 1, 2, 0.5, 2)}, "nearest"),
    "channels last": ((1, 4, 5, 3), {"scales": (1, 2, 3, 1)}, "linear"),
}


@pytest.mark.parametrize("case", OTHER_RANKS)
def test_other_ranks(case):
    shape, size, mode = OTHER_RANKS[case]
    compare(model(shape, {"mode": mode}, 13, **size), shape, ["resize_nearest" if mode == "nearest" else "resize"])


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 18, 19, 21])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_every_opset(mode, opset):
    op = "resize_nearest" if mode == "nearest" else "resize"
    compare(model(SHAPE, {"mode": mode}, opset, scales=(1.0, 1.0, 2.0, 3.0)), SHAPE, [op])
    if opset >= 10:
        compare(model(SHAPE, {"mode": mode}, opset, scales=(1.0, 1.0, 0.6, 0.4)), SHAPE, [op])


@pytest.mark.parametrize("given, wanted", [*product([9, 10, 11, 19], repeat=2)])
def test_from_opset_to_opset(given, wanted):
    """Places that begin at 0 and the element below mean the same in all opsets."""
    attrs = {"mode": "nearest"}
    if given >= 11:
        attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    proto = model(SHAPE, attrs, given, scales=(1, 1, 2, 3))
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    written = to_model(load(proto), wanted)
    np.testing.assert_array_equal(session(written).run(None, {"x": x})[0], session(proto).run(None, {"x": x})[0])


@pytest.mark.parametrize(
    "attrs, size, opset, reason",
    [
        ({"mode": "nearest"}, {"scales": (1, 1, 2, 2)}, 10, "coordinates 'half_pixel' of mode 'nearest' is not in"),
        ({"mode": "linear", "antialias": 1}, {"scales": (1, 1, 2, 2)}, 13, "antialias is not in opset 13"),
        ({"mode": "linear"}, {"sizes": (2, 3, 4, 4)}, 9, "is not in opset 9"),
    ],
)
def test_what_an_opset_lacks_is_refused(attrs, size, opset, reason):
    with pytest.raises(ExportModelError, match=reason):
        to_model(load(model(SHAPE, attrs, 19, **size)), opset)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("dims", [(1, 1, 4, 6), (2, 3, 1, 9)])
def test_scales_of_named_dims(dims, mode):
    proto = model(SHAPE, {"mode": mode}, 13, scales=(1, 1, 2, 1.5), named=True)
    graph = load(proto)
    assert str(graph.type(graph.outputs["y"])) == "float32[d0, d1, 2*d2, floordiv(3*d3, 2)]"
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    (wanted,) = session(proto).run(None, {"x": x})
    np.testing.assert_allclose(run(graph, {"x": x}, Floats())["y"], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(session(to_model(graph)).run(None, {"x": x})[0], wanted)


def test_sizes_that_are_computed_from_shapes():
    """Exporters write the size of another value: Shape, Slice, Concat, Resize."""
    nodes = [
        helper.make_node("Shape", ["x"], ["lead"], start=0, end=2),
        helper.make_node("Shape", ["like"], ["tail"], start=2, end=4),
        helper.make_node("Concat", ["lead", "tail"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    info = helper.make_tensor_value_info
    inputs = [info("x", 1, ["n", "c", "h", "w"]), info("like", 1, ["n", "e", "a", "b"])]
    graph = helper.make_graph(nodes, "sized", inputs, [info("y", 1, ["n", "c", "a", "b"])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    read = load(proto)
    assert "resize" in [n.op for n in read.nodes]
    rng = np.random.default_rng(1)
    for sizes in ((5, 7), (1, 2)):
        x = rng.standard_normal((1, 2, 3, 4)).astype(np.float32)
        feed = {"x": x, "like": np.zeros((1, 3, *sizes), np.float32)}
        (wanted,) = session(proto).run(None, feed)
        np.testing.assert_allclose(run(read, feed, Floats())["y"], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(session(to_model(read)).run(None, feed)[0], wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_integers_are_copied_and_not_interpolated(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    compare(model(SHAPE, {}, 13, scales=(1, 1, 2, 0.5), dtype=kind), SHAPE, ["resize_nearest"], dtype)
    graph = load(model(SHAPE, {"mode": "linear"}, 13, scales=(1, 1, 2, 2), dtype=kind))
    assert [n.op for n in graph.nodes] == [OPAQUE]
    assert graph.nodes[0].attrs["reason"].startswith(f"Resize of {dtype} in mode 'linear'")


def test_infinities_stay_where_they_are():
    x = np.zeros((1, 1, 3, 3), np.float32)
    x[0, 0, 2, 2], x[0, 0, 0, 0] = np.inf, np.nan
    proto = model(x.shape, {"mode": "linear"}, 13, scales=(1, 1, 2, 2))
    np.testing.assert_array_equal(run(load(proto), {"x": x}, Floats())["y"], session(proto).run(None, {"x": x})[0])


REASONS = {
    "neither scales nor sizes are given": ({}, 19, {}),
    "a nearest element above along one axis and below along another": ({}, 10, {"scales": (1, 1, 2, 0.5)}),
    "tf_half_pixel_for_nn of a vector": (
        {"coordinate_transformation_mode": "tf_half_pixel_for_nn"},
        11,
        {"scales": (2,)},
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_stays_opaque_has_a_reason(reason):
    attrs, opset, size = REASONS[reason]
    shape = SHAPE[: len(size.get("scales", SHAPE))]
    (node,) = load(model(shape, attrs, opset, **size)).nodes
    assert node.op == OPAQUE and node.attrs["reason"] == reason


def test_a_scale_that_float32_rounds_needs_sizes():
    (node,) = load(model(SHAPE, {}, 13, scales=(1, 1, 1.1, 2), named=True)).nodes
    assert node.attrs["reason"] == "a dim known by name only times a scale that is no simple fraction"


def test_the_smaller_tensor_is_convolved():
    """The head of a segmentation network: features are resized, then mixed by a convolution at single places."""
    rng = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(rng.standard_normal((4, 64, 1, 1)).astype(np.float32), "w"),
        numpy_helper.from_array(np.float32([1, 1, 4, 4]), "s"),
    ]
    nodes = [
        helper.make_node("Resize", ["x", "", "s"], ["big"], mode="nearest"),
        helper.make_node("Conv", ["big", "w"], ["mixed"]),
        helper.make_node("Relu", ["mixed"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "head", [info("x", 1, [1, 64, 64, 64])], [info("y", 1, None)], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    result = eqsat.optimize(proto, measure=False)
    assert [n.op for n in result.graph.nodes][-1] == "resize_nearest"
    x = rng.standard_normal((1, 64, 64, 64)).astype(np.float32)
    (wanted,) = session(proto).run(None, {"x": x})
    (made,) = session(to_model(result.graph)).run(None, {"x": x})
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
