"""If, Loop, Scan and local functions: what is inferred, inlined and optimised against ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, checker, parser

import eqsat
from eqsat.language.dims import Sym
from eqsat.language.graph import Graph
from eqsat.language.onnx.importer import load
from eqsat.language.types import TensorType

Feeds = Mapping[str, np.ndarray[Any, Any]]


def model(body: str, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "local" : 1]> g {body}')


def run(proto: ModelProto, feeds: Feeds) -> dict[str, np.ndarray[Any, Any]]:
    """What ONNX Runtime makes of a model as it is given."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


def draw(proto: ModelProto, seed: int, **given: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs of a model of static shapes; scalars as given."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray[Any, Any]] = {}
    for value in proto.graph.input:
        shape = [given.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
        floats = value.type.tensor_type.elem_type == 1
        kind = {7: np.int64, 9: np.bool_}.get(value.type.tensor_type.elem_type, np.float32)
        drawn = rng.standard_normal(shape).astype(np.float32) if floats else None
        feeds[value.name] = np.asarray(given[value.name], kind) if drawn is None else drawn
    return feeds


def check_types(graph: Graph, feeds: Feeds, made: Feeds) -> None:
    """The outputs have the shapes that were inferred, a named dim the same size wherever it stands."""
    sizes: dict[Sym, int] = {}
    for name, array in (*((n, feeds[n]) for n in graph.inputs), *made.items()):
        type = graph.type(graph.outputs.get(name, name))
        if not isinstance(type, TensorType) or type.shape is None:
            continue
        assert type.dtype.numpy == array.dtype
        assert len(type.shape) == array.ndim, name
        for dim, size in zip(type.shape, array.shape, strict=True):
            assert (dim if isinstance(dim, int) else sizes.setdefault(dim, size)) == size, name


def same(made: Feeds, expected: Feeds) -> None:
    assert list(made) == list(expected)
    for name, array in expected.items():
        assert made[name].shape == array.shape and made[name].dtype == array.dtype, name
        np.testing.assert_allclose(made[name], array, rtol=2e-5, atol=2e-5, err_msg=name)


TYPED = {
    "a growing dim": """(int64 m, bool c, float[n, 3] x) => (float[] y) {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go) \n u = Concat<axis = 0>(v, x) }> }""",
    "a growing rank": """(int64 m, bool c, float[n, 3] x) => (float[] y) <int64[1] zero = {0}> {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go) \n u = Unsqueeze(v, zero) }> }""",
    "rows put together": """(int64 m, bool c, float[n, 3] x) => (float[] y, float[] z) {
        y, z = Loop(m, c, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u, float[] s) {
            on = Identity(go) \n u = Relu(v) \n s = ReduceSum<keepdims = 0>(v) }> }""",
    "rows of stated shape": """(int64 m, bool c, float[n, 3] x) => (float[] y, float[] z) {
        y, z = Loop(m, c, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u, float[k, 3] s) {
            on = Identity(go) \n u = Relu(v) \n s = Neg(v) }> }""",
    "an early end": """(int64 m, bool c, float[n, 3] x) => (float[] y, float[] z) <int64 two = {2}> {
        y, z = Loop(m, c, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u, float[n, 3] s) {
            on = Less(i, two) \n u = Relu(v) \n s = Neg(v) }> }""",
    "branches that differ": """(int64 m, bool c, float[n, 3] x) => (float[] y, float[] z) {
        y, z = If(c)<then_branch = t() => (float[] p, float[] q) { p = Concat<axis = 0>(x, x) \n q = Neg(x) },
                     else_branch = e() => (float[] r, float[] s) { r = Relu(x) \n s = Abs(x) }> }""",
    "branches of other ranks": """(int64 m, bool c, float[n, 3] x) => (float[] y) {
        y = If(c)<then_branch = t() => (float[] p) { p = ReduceSum<keepdims = 0>(x) },
                  else_branch = e() => (float[] r) { r = Relu(x) }> }""",
    "a loop in a branch in a loop": """(int64 m, bool c, float[n, 3] x) => (float[] y) <int64 two = {2}> {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go) \n odd = Mod(i, two) \n take = Cast<to = 9>(odd)
            u = If(take)<then_branch = t() => (float[] p) {
                p = Loop(i, go, v)<body = k (int64 j, bool go2, float[] w) => (bool on2, float[] o) {
                    on2 = Identity(go2) \n o = Concat<axis = 1>(w, x) }> },
                else_branch = e() => (float[] q) { q = Neg(v) }> }> }""",
    "a scan": """(int64 m, bool c, float[n, 3] x) => (float[] y, float[] z) <float[3] s = {1, 2, 3}> {
        y, z = Scan<num_scan_inputs = 1, scan_output_axes = [1],
            body = b (float[3] v, float[3] r) => (float[3] u, float[3] t) {
                u = Add(v, r) \n t = Mul(u, r) }>(s, x) }""",
}


@pytest.mark.parametrize("name", TYPED)
def test_shapes_are_as_inferred(name: str) -> None:
    proto = model(TYPED[name])
    graph = load(proto)
    for trips in (0, 1, 2, 5):
        for condition in (True, False):
            feeds = draw(proto, trips, m=trips, c=condition, n=2)
            check_types(graph, feeds, run(proto, feeds))


KNOWN = {
    "shapes that are compared": """(float[3, 4] x, float[4, 3] z) => (float[r, k] y)
        <int64 zero = {0}, int64 four = {4}> {
        s = Shape(z) \n rows = Gather(s, zero) \n c = Equal(rows, four)
        y = If(c)<then_branch = t() => (float[] p) { p = MatMul(x, z) },
                  else_branch = e() => (float[] q) { h = Neg(x) \n q = Relu(h) }> }""",
    "a branch within a branch": """(float[3, 4] x, float[4, 3] z) => (float[r, k] y) <bool t = {1}, bool f = {0}> {
        y = If(t)<then_branch = t1() => (float[] p) {
                a = Neg(x)
                p = If(f)<then_branch = t2() => (float[] r) { r = Relu(a) },
                          else_branch = e2() => (float[] s) { b = Exp(a) \n s = MatMul(b, z) }> },
            else_branch = e1() => (float[] q) { a = Abs(x) \n q = Relu(a) }> }""",
    "one name in both branches of two": """(float[3, 4] x, float[4, 3] z) => (float[r, k] y, float[r, k] w)
        <bool t = {1}> {
        y = If(t)<then_branch = t1() => (float[] p) { a = Neg(x) \n p = Relu(a) },
                  else_branch = e1() => (float[] q) { a = Abs(x) \n q = Exp(a) }>
        w = If(t)<then_branch = t1() => (float[] p) { a = Exp(y) \n p = Add(a, y) },
                  else_branch = e1() => (float[] q) { a = Abs(x) \n q = Exp(a) }> }""",
}


@pytest.mark.parametrize("name", KNOWN)
def test_branches_known_after_folding_are_inlined(name: str) -> None:
    proto = model(KNOWN[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = eqsat.optimize(proto, measure=False)
    written = result.to_onnx()
    checker.check_model(written, full_check=True)
    assert not [n for n in load(proto).nodes if n.op == "opaque"]
    for seed in range(3):
        feeds = draw(proto, seed)
        same(run(written, feeds), run(proto, feeds))
