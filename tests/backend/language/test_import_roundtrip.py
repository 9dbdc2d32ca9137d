"""Models read and written back compute the same in ONNX Runtime, at their own opset and at others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, parser, version_converter

from benchmarks.models.stripped import refill
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_bytes, to_model

LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
MODELS = Path(__file__).parents[2] / "models"


def run(model: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def feeds(model: ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    held = {t.name for t in model.graph.initializer}
    made = {}
    for value in model.graph.input:
        if value.name in held:
            continue
        kind = value.type.tensor_type
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        numbers = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        made[value.name] = numbers.astype(dtype)
    return made


def assert_same(model: ModelProto, back: bytes, sizes: dict[str, int], tolerance: float = 0.0) -> None:
    given = feeds(model, sizes)
    for ours, theirs in zip(run(back, given), run(model.SerializeToString(), given), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("path", LIGHT, ids=lambda p: p.stem)
def test_light_models(path: Path) -> None:
    model = onnx.load(path)
    back = to_bytes(load(path))
    onnx.checker.check_model(back, full_check=True)
    assert_same(model, back, {})


@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v2", "llama_dynamic", "llama_dynamic_dynamo"])
def test_exported_models(name: str) -> None:
    model = refill(onnx.load(MODELS / f"{name}.onnx", load_external_data=False))
    back = to_bytes(load(model))
    onnx.checker.check_model(back, full_check=True)
    for sizes in ({"batch": 1, "sequence": 1}, {"batch": 2, "sequence": 5}):
        assert_same(model, back, sizes, 1e-6)


OPSETS = (7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 23, 24, 25)

#: Bodies in the oldest form, with the first opset that has all their operators; onnx converts them upward.
BODIES = {
    "squeeze": (7, "(float[2, 1, 3] x) => (float[a, b] y) { y = Squeeze<axes = [1]>(x) }"),
    "unsqueeze": (7, "(float[2, 3] x) => (float[a, b, c] y) { y = Unsqueeze<axes = [1]>(x) }"),
    "reduce": (7, "(float[2, 3, 4] x) => (float[a, b] y) { y = ReduceMean<axes = [-1], keepdims = 0>(x) }"),
    "sum": (7, "(float[2, 3, 4] x) => (float[a, b, c] y) { y = ReduceSum<axes = [1]>(x) }"),
    "all": (7, "(float[2, 3] x) => (float[a, b] y) { y = ReduceMax(x) }"),
    "clip": (7, "(float[2, 3] x) => (float[a, b] y) { y = Clip<min = -0.5, max = 0.5>(x) }"),
    "pad": (7, "(float[2, 3] x) => (float[a, b] y) { y = Pad<pads = [0, 1, 0, 2], value = 1.5>(x) }"),
    "slice": (7, "(float[4, 5] x) => (float[a, b] y) { y = Slice<starts = [1, -3], ends = [9, -1]>(x) }"),
    "split": (7, "(float[2, 6] x) => (float[a, b] y, float[c, d] z) { y, z = Split<axis = 1, split = [2, 4]>(x) }"),
    "even": (7, "(float[2, 6] x) => (float[a, b] y, float[c, d] z) { y, z = Split<axis = 1>(x) }"),
    "topk": (7, "(float[2, 6] x) => (float[a, b] y, int64[c, d] z) { y, z = TopK<axis = 1, k = 3>(x) }"),
    "dropout": (7, "(float[2, 6] x) => (float[a, b] y) { y = Dropout<ratio = 0.25>(x) }"),
    "softmax": (7, "(float[2, 3, 4] x) => (float[a, b, c] y) { y = Softmax<axis = 1>(x) }"),
    "last": (7, "(float[2, 3, 4] x) => (float[a, b, c] y) { y = LogSoftmax<axis = 2>(x) }"),
    "gemm": (7, """(float[3, 2] x, float[3, 4] w, float[4] b) => (float[a, c] y)
        { y = Gemm<transA = 1, alpha = 0.5>(x, w, b) }"""),
    "flatten": (7, "(float[2, 3, 4] x) => (float[a, b] y) { y = Flatten<axis = 2>(x) }"),
    "same": (7, """(float[1, 2, 7, 7] x, float[3, 2, 3, 3] w) => (float[a, b, c, d] y)
        { y = Conv<auto_pad = "SAME_LOWER", strides = [2, 2], kernel_shape = [3, 3]>(x, w) }"""),
    "pool": (7, """(float[1, 2, 7, 7] x) => (float[a, b, c, d] y)
        { y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(x) }"""),
    "norm": (7, """(float[2, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[a, c, d] y)
        { w = Mul(v, v) \n y = BatchNormalization<epsilon = 0.1>(x, s, b, m, w) }"""),
    "less": (9, "(float[2, 3] x, float[2, 3] z) => (bool[a, b] y) { y = Less(x, z) }"),
    "mean": (8, "(float[2, 3] x, float[3] z, float[1] w) => (float[a, b] y) { y = Mean(x, z, w) }"),
    "expand": (8, "(float[2, 1] x) => (float[a, b] y) <int64[2] s = {1, 3}> { y = Expand(x, s) }"),
    "where": (9, "(float[2, 3] x, float[2, 1] z) => (float[a, b] y) { c = Greater(x, z) \n y = Where(c, x, z) }"),
    "erf": (9, "(float[2, 3] x) => (float[a, b] y) { y = Erf(x) }"),
}  # fmt: skip


def converted(name: str, opset: int) -> ModelProto | None:
    since, body = BODIES[name]
    if opset < since:
        return None
    model = parser.parse_model(f'<ir_version: 7, opset_import: ["" : {since}]> g {body}')
    if opset == since:
        return model
    try:
        return version_converter.convert_version(model, opset)
    except RuntimeError:
        # onnx has no adapter for this step; the other opsets remain.
        return None


@pytest.mark.parametrize("name", BODIES)
def test_every_form_an_operator_had(name: str) -> None:
    models = {opset: model for opset in OPSETS if (model := converted(name, opset)) is not None}
    assert len(models) > 4
    for opset, model in models.items():
        graph = load(model)
        assert "opaque" not in {n.op for n in graph.nodes}, opset
        back = to_bytes(graph)
        onnx.checker.check_model(back, full_check=True)
        assert_same(model, back, {}, 1e-6)


@pytest.mark.parametrize("name", BODIES)
def test_every_form_an_operator_is_written_in(name: str) -> None:
    since, _ = BODIES[name]
    model = converted(name, since)
    assert model is not None
    graph = load(model)
    for opset in OPSETS:
        if opset >= since:
            back = to_model(graph, opset)
            assert back.opset_import[0].version == opset
            assert_same(model, back.SerializeToString(), {}, 1e-6)


def test_layers_an_opset_lacks() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3, 8] x, float[8] s, float[8] b) => (float[p, q, r] y)
        { y = LayerNormalization<axis = -1, epsilon = 0.01>(x, s, b) }"""
    )
    graph = load(model)
    for opset in (9, 13, 16):
        back = to_model(graph, opset)
        assert "LayerNormalization" not in {n.op_type for n in back.graph.node}
        assert_same(model, back.SerializeToString(), {}, 1e-5)


def test_attention_by_parts_ignores_what_the_mask_hides() -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 23]>
        g (float[1, 2, 3, 4] q, float[1, 2, 5, 4] k, float[1, 2, 5, 6] v) => (float[a, b, c, d] y)
        <bool[3, 5] m = {1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}> { y = Attention(q, k, v, m) }"""
    )
    back = to_model(load(model), 17)
    (made,) = run(back.SerializeToString(), feeds(model, {}))
    assert np.isfinite(made).all()
    assert not made[:, :, 1].any()
