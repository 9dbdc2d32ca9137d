"""GridSample in all its modes: read, computed and written as ONNX Runtime has it."""

from itertools import product

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from eqsat.errors import ExportModelError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms.graph import OPAQUE


def model(x, grid, opset=20, **attrs):
    info = helper.make_tensor_value_info
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("GridSample", ["x", "grid"], ["y"], **attrs)],
        "sampling",
        [info("x", kind, x.shape), info("grid", kind, grid.shape)],
        [info("y", kind, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def session(proto):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def drawn(places, dtype=np.float32, reach=1.6):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 3, *(5, 4, 3)[: len(places)])).astype(dtype)
    return x, rng.uniform(-reach, reach, (2, *places, len(places))).astype(dtype)


def compare(x, grid, **attrs):
    proto = model(x, grid, **attrs)
    feed = {"x": x, "grid": grid}
    (wanted,) = session(proto).run(None, feed)
    graph = load(proto)
    assert [n.op for n in graph.nodes] == ["grid_sample"]
    made = run(graph, feed, Floats())["y"]
    assert made.shape == wanted.shape and made.dtype == wanted.dtype
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=2e-5)
    np.testing.assert_array_equal(session(to_model(graph)).run(None, feed)[0], wanted)


ALL = [*product(["linear", "nearest", "cubic"], ["zeros", "border", "reflection"], [0, 1])]


@pytest.mark.parametrize("mode, padding, corners", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_images(mode, padding, corners, dtype):
    compare(*drawn((6, 7), dtype), mode=mode, padding_mode=padding, align_corners=corners)


@pytest.mark.parametrize("mode, padding, corners", [case for case in ALL if case[0] != "cubic"])
def test_volumes(mode, padding, corners):
    compare(*drawn((3, 4, 5)), mode=mode, padding_mode=padding, align_corners=corners)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_places_far_away(padding):
    compare(*drawn((9, 8), reach=20.0), padding_mode=padding)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_older_names_of_modes(mode):
    compare(*drawn((4, 4)), opset=16, mode=mode)
    written = to_model(load(model(*drawn((4, 4)), opset=16, mode=mode)), 20)
    (new,) = (a.s.decode() for a in written.graph.node[0].attribute if a.name == "mode")
    assert new == {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


def test_one_element_and_one_corner():
    x, grid = drawn((3, 3))
    for corners, padding in product([0, 1], ["zeros", "border"]):
        compare(x[:, :, :1, :1], grid, align_corners=corners, padding_mode=padding)


def test_what_an_opset_lacks_is_refused():
    with pytest.raises(ExportModelError, match="other than two axes is not in opset 16"):
        to_model(load(model(*drawn((3, 4, 5)))), 16)


def test_cubic_volumes_stay_opaque():
    (node,) = load(model(*drawn((3, 4, 5)), mode="cubic")).nodes
    assert node.op == OPAQUE and node.attrs["reason"] == "cubic sampling of other than two axes"
