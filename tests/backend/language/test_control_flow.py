"""If, Loop, Scan and local functions: what is inferred, inlined and optimised against ONNX Runtime."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, checker, parser

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms import Graph, Sym, TensorType
from eqsat.rewrites.rules.parser import parse_rules

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


#: Bodies in which there is something to do.
INSIDE = {
    "products that share an operand": """(int64 m, bool c, float[4, 8] x) => (float[r, k] y)
        <float[8, 8] w = {W}, float[8, 8] v = {V}> {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[4, 8] s) => (bool on, float[4, 8] u) {
            on = Identity(go) \n a = MatMul(s, w) \n b2 = MatMul(s, v) \n e = Add(a, b2)
            f = Relu(e) \n g2 = Relu(f) \n u = Tanh(g2) }> }""",
    "both branches": """(bool c, float[4, 8] x) => (float[r, k] y) <float[8, 8] w = {W}, float one = {1}> {
        h = Neg(x)
        y = If(c)<then_branch = t() => (float[4, 8] p) {
                a = Transpose<perm = [1, 0]>(h) \n d = Transpose<perm = [1, 0]>(a) \n p = MatMul(d, w) },
            else_branch = e() => (float[4, 8] q) { a = Mul(x, one) \n d = Abs(a) \n q = Abs(d) }> }""",
    "weights inside a branch": """(bool c, float[4, 8] x) => (float[r, k] y) {
        y = If(c)<then_branch = t() => (float[4, 8] p) {
                w = Constant<value = float[8, 8] {W}>() \n v = Constant<value = float[8, 8] {V}>()
                a = MatMul(x, w) \n p = MatMul(a, v) },
            else_branch = e() => (float[4, 8] q) {
                w = Constant<value = float[8, 8] {W}>() \n a = Relu(x) \n d = Relu(a) \n q = MatMul(d, w) }> }""",
    "an if in a loop in an if": """(int64 m, bool c, float[4, 8] x) => (float[r, k] y) <int64 two = {2}> {
        y = If(c)<then_branch = t() => (float[4, 8] p) {
                p = Loop(m, c, x)<body = b (int64 i, bool go, float[4, 8] s) => (bool on, float[4, 8] u) {
                    on = Identity(go) \n odd = Mod(i, two) \n take = Cast<to = 9>(odd)
                    z = Relu(s) \n z2 = Relu(z)
                    u = If(take)<then_branch = t2() => (float[4, 8] o) { f = Neg(z2) \n g3 = Neg(f) \n o = Add(g3, x) },
                                 else_branch = e2() => (float[4, 8] o2) { f = Abs(s) \n o2 = Abs(f) }> }> },
            else_branch = e() => (float[4, 8] q) { a = Relu(x) \n q = Relu(a) }> }""",
    "a scan": """(float[8] s, float[90, 8] x) => (float[k] y, float[r, k] z) <float[8, 8] w = {W}> {
        y, z = Scan<num_scan_inputs = 1, body = b (float[8] v, float[8] r) => (float[8] u, float[8] t) {
            a = MatMul(v, w) \n e = MatMul(r, w) \n u = Add(a, e) \n f = Neg(u) \n t = Neg(f) }>(s, x) }""",
    "outputs that are inputs, constants and values from outside": """(int64 m, bool c, float[4, 8] x)
        => (float[r, k] y, float[r, k] z, float[j, r, k] a, float[j, l] d) {
        y, z, a, d = Loop(m, c, x, x)<body = b (int64 i, bool go, float[4, 8] s, float[4, 8] q)
            => (bool on, float[4, 8] u, float[4, 8] v, float[4, 8] f, float[2] e) {
            on = Identity(go) \n u = Identity(q) \n h = Relu(q) \n v = Relu(h) \n f = Identity(x)
            e = Constant<value_floats = [1.0, 2.0]>() }> }""",
    "a function with attributes": """(bool c, float[4, 8] x) => (float[r, k] y) {
        a = local.twice<alpha = 0.5>(x)
        y = If(c)<then_branch = t() => (float[4, 8] p) { p = local.twice<alpha = 0.25>(a) },
                  else_branch = e() => (float[4, 8] q) { d = Neg(a) \n q = Neg(d) }> }
        <domain: "local", opset_import: ["" : 17]> twice <alpha> (v) => (u) {
            a = LeakyRelu<alpha: float = @alpha>(v) \n d = Neg(a) \n u = Neg(d) }""",
}


def matrix(seed: int) -> str:
    return ", ".join(f"{v:.4f}" for v in np.random.default_rng(seed).standard_normal(64) / 3)


def inside(name: str) -> ModelProto:
    return model(INSIDE[name].replace("{W}", "{" + matrix(1) + "}").replace("{V}", "{" + matrix(2) + "}"))


def bodies(proto: ModelProto) -> list[list[str]]:
    """The operators of every body of a model, outer ones first."""
    found: list[list[str]] = []

    def visit(nodes: Any) -> None:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    found.append([n.op_type for n in attribute.g.node])
                    visit(attribute.g.node)

    visit(proto.graph.node)
    return found


def check_names(graph: Any, outside: frozenset[str] = frozenset()) -> None:
    """No body hides a name from outside."""
    own = [v.name for v in graph.input] + [t.name for t in graph.initializer]
    own += [o for n in graph.node for o in n.output if o]
    assert len(set(own)) == len(own)
    assert not outside & set(own)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                check_names(attribute.g, outside | set(own))


def optimised(proto: ModelProto, **given: Any) -> eqsat.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eqsat.optimize(proto, measure=False, strict=True, **given)


@pytest.mark.parametrize("name", INSIDE)
def test_bodies_are_optimised_inside(name: str) -> None:
    proto = inside(name)
    result = optimised(proto)
    written = result.to_onnx()
    checker.check_model(written, full_check=True)
    check_names(written.graph)
    before, after = sum(map(len, bodies(proto))), sum(map(len, bodies(written)))
    assert after < before
    assert result.report.certificate.bodies
    assert all(
        body.certificate.kind in ("identical", "exact", "float64", "mixed") for body in result.report.certificate.bodies
    )
    given = {v.name for v in proto.graph.input}
    for trips in (0, 1, 4) if "m" in given else (0,):
        for condition in (True, False) if "c" in given else (True,):
            feeds = draw(proto, trips, m=trips, c=condition)
            same(run(written, feeds), run(proto, feeds))
            same(result.run(**feeds), run(proto, feeds))


def test_a_false_rule_is_found_out_in_a_body() -> None:
    proto = model("""(int64 m, bool c, float[8] x) => (float[k] y) <int64[2] two = {2, 4}, int64[1] flat = {8}> {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[8] s) => (bool on, float[8] u) {
            on = Identity(go) \n a = Reshape(s, two) \n t = Transpose<perm = [1, 0]>(a) \n r = Reshape(t, flat)
            n = Neg(r) \n n2 = Neg(n) \n u = Relu(n2) }> }""")
    shuffle = (
        "shuffle: reshape(transpose(reshape(x, shape=(2, dim(x, 0) // 2)), perm=(1, 0)), shape=(dim(x, 0),)) => x "
        "if rank(x) == 1, dim(x, 0) % 2 == 0"
    )
    result = eqsat.optimize(proto, rules=parse_rules(f"{shuffle}\nneg-twice: neg(neg(x)) => x"), measure=False)
    (warning,) = [w for w in result.report.warnings if "begun anew" in w]
    assert warning.startswith("body of Loop 'y': ") and warning.endswith("rules behind it: shuffle")
    assert bodies(result.to_onnx()) == [["Reshape", "Transpose", "Reshape", "Relu", "Identity"]]
    feeds = draw(proto, 0, m=1, c=True)
    same(result.run(**feeds), run(proto, feeds))


def test_a_body_that_fails_stays_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = inside("both branches")

    def fail(*_given: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("eqsat.steps.bodies.written", fail)
    result = eqsat.optimize(proto, measure=False)
    assert result.report.failure == "else_branch of If 'y': unexpected ZeroDivisionError: planted"
    assert bodies(result.to_onnx()) == bodies(proto)
    with pytest.raises(ZeroDivisionError):
        eqsat.optimize(proto, measure=False, strict=True)


def test_values_from_outside_that_may_be_infinite_are_not_taken_for_finite() -> None:
    """A mask of minus infinity goes into the body; x * 0 is NaN there."""
    proto = model("""(bool c, bool[4] keep, float[4] x) => (float[k] y)
        <float[1] low = {-inf}, float[1] zero = {0}> {
        masked = Where(keep, x, low)
        y = If(c)<then_branch = t() => (float[4] p) { a = Mul(masked, zero) \n b = Neg(a) \n p = Neg(b) },
                  else_branch = e() => (float[4] q) { a = Mul(x, zero) \n b = Neg(a) \n q = Neg(b) }> }""")
    result = optimised(proto)
    feeds = {"keep": np.array([True, False, True, False]), "x": np.float32([1, -2, 3, 4])}
    for condition in (True, False):
        given = {**feeds, "c": np.array(condition)}
        np.testing.assert_array_equal(np.isnan(result.run(**given)["y"]), np.isnan(run(proto, given)["y"]))
    assert bodies(result.to_onnx())[1] != bodies(proto)[1]


def test_a_state_that_becomes_infinite_is_not_taken_for_finite() -> None:
    """From its second run on the loop divides by zero."""
    proto = model("""(int64 m, bool c, float[4] x) => (float[k] y) <float[1] zero = {0}, float one = {1}> {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[4] s) => (bool on, float[4] u) {
            on = Identity(go) \n a = Mul(s, zero) \n d = Neg(a) \n e = Neg(d) \n f = Div(one, e)
            g2 = Neg(f) \n u = Neg(g2) }> }""")
    result = optimised(proto)
    assert sum(map(len, bodies(result.to_onnx()))) < sum(map(len, bodies(proto)))
    for trips in (0, 1, 2, 3):
        feeds = {"m": np.array(trips), "c": np.array(True), "x": np.float32([1, -2, 3, 4])}
        np.testing.assert_array_equal(result.run(**feeds)["y"], run(proto, feeds)["y"])


def test_the_graph_around_a_body_may_tell_the_sign_of_its_zeros() -> None:
    proto = model("""(bool c, float[2] x) => (float[k] y) <float[1] zero = {0}> {
        h = If(c)<then_branch = t() => (float[2] p) { a = Add(x, zero) \n b = Neg(a) \n p = Neg(b) },
                  else_branch = e() => (float[2] q) { a = Relu(x) \n q = Relu(a) }>
        y = Reciprocal(h) }""")
    result = optimised(proto)
    feeds = {"c": np.array(True), "x": np.float32([-0.0, 0.0])}
    np.testing.assert_array_equal(result.run(**feeds)["y"], run(proto, feeds)["y"])


def test_a_body_may_ask_whether_an_input_is_a_number() -> None:
    proto = model("""(bool c, float[2] x) => (float[k] y, bool[k] z) <float[1] zero = {0}> {
        y = Mul(x, zero)
        z = If(c)<then_branch = t() => (bool[2] p) { p = IsNaN(y) },
                  else_branch = e() => (bool[2] q) { a = Neg(x) \n q = IsNaN(a) }> }""")
    feeds = {"c": np.array(True), "x": np.float32([np.inf, 1.0])}
    made = optimised(proto).run(**feeds)
    np.testing.assert_array_equal(made["y"], run(proto, feeds)["y"])
    np.testing.assert_array_equal(made["z"], run(proto, feeds)["z"])


def test_part_of_a_model_is_compared_with_the_bodies_it_had() -> None:
    proto = inside("outputs that are inputs, constants and values from outside")
    result = optimised(proto, outputs=["z"])
    feeds = draw(proto, 3, m=3, c=True)
    same(result.run(**feeds), {"z": run(proto, feeds)["z"]})
    assert result.report.certificate.bodies


def test_named_dims_go_into_bodies() -> None:
    proto = model("""(int64 m, bool c, float[n, 8] x) => (float[n, 8] y) <int64[2] flat = {-1, 4}, int64 zero = {0},
        int64[1] eight = {8}, int64[1] at = {0}> {
        s = Shape(x) \n rows = Gather(s, zero) \n r1 = Unsqueeze(rows, at) \n back = Concat<axis = 0>(r1, eight)
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go) \n a = Reshape(v, flat) \n d = Neg(a) \n e = Neg(d) \n f = Relu(e)
            u = Reshape(f, back) }> }""")
    result = optimised(proto)
    assert bodies(result.to_onnx()) == [["Relu", "Identity"]]
    for rows in (1, 3):
        feeds = draw(proto, rows, m=2, c=True, n=rows)
        same(result.run(**feeds), run(proto, feeds))


def test_weights_of_bodies_stand_outside_and_once() -> None:
    """The same 2 kB in both branches, and beside the If."""
    cells = ", ".join(f"{v:.3f}" for v in np.random.default_rng(0).standard_normal(512))
    proto = model(f"""(bool c, float[4, 16] x) => (float[r, k] y, float[r, k] z) <float[16, 32] w = {{{cells}}}> {{
        z = MatMul(x, w)
        y = If(c)<then_branch = t() => (float[4, 32] p) {{
                v = Constant<value = float[16, 32] {{{cells}}}>() \n a = Relu(x) \n b = Relu(a) \n p = MatMul(b, v) }},
            else_branch = e() => (float[4, 32] q) {{
                v = Constant<value = float[16, 32] {{{cells}}}>() \n a = Abs(x) \n b = Abs(a)
                q = MatMul(b, v) }}> }}""")
    result = optimised(proto)
    written = result.to_onnx()
    assert [t.name for t in written.graph.initializer] == ["w"]
    assert not [t for n in written.graph.node for a in n.attribute for t in a.g.initializer]
    for condition in (True, False):
        feeds = draw(proto, 1, c=condition)
        same(result.run(**feeds), run(proto, feeds))


HOISTED = {
    # what is moved, what stays, and the loop
    "a product of values from outside": (
        ["MatMul", "Tanh"],
        """(int64 m, bool c, float[4, 8] x, float[8, 8] w) => (float[r, k] y) {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[4, 8] s) => (bool on, float[4, 8] u) {
            on = Identity(go) \n a = MatMul(x, w) \n e = Tanh(a) \n u = Add(s, e) }> }""",
    ),
    "with weights of its own": (
        ["Mul", "Sigmoid"],
        """(int64 m, bool c, float[4, 8] x) => (float[r, k] y) {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[4, 8] s) => (bool on, float[4, 8] u) {
            on = Identity(go) \n v = Constant<value = float[8] {W}>() \n a = Mul(x, v) \n e = Sigmoid(a)
            u = Add(s, e) }> }""",
    ),
    "out of two loops": (
        ["Exp", "Tanh"],
        """(int64 m, bool c, float[4, 8] x) => (float[r, k] y) {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[4, 8] s) => (bool on, float[4, 8] u) {
            on = Identity(go)
            u = Loop(i, go, s)<body = b2 (int64 j, bool go2, float[4, 8] t) => (bool on2, float[4, 8] v) {
                on2 = Identity(go2) \n a = Tanh(x) \n e = Exp(a) \n f = Add(t, e) \n v = Sub(f, s) }> }> }""",
    ),
    "what depends on a state that never changes": (
        ["Tanh", "Exp"],
        """(int64 m, bool c, float[4, 8] x, float[4, 8] z) => (float[r, k] y, float[r, k] same) {
        y, same = Loop(m, c, x, z)<body = b (int64 i, bool go, float[4, 8] s, float[4, 8] q)
            => (bool on, float[4, 8] u, float[4, 8] p) {
            on = Identity(go) \n p = Identity(q) \n a = Tanh(q) \n e = Exp(a) \n u = Add(s, e) }> }""",
    ),
    "out of a scan, and an output as it is": (
        ["Tanh"],
        """(float[8] s, float[90, 8] x, float[8] z) => (float[k] y, float[r, k] o) {
        y, o = Scan<num_scan_inputs = 1, body = b (float[8] v, float[8] r) => (float[8] u, float[8] t) {
            t = Tanh(z) \n e = Add(v, r) \n u = Mul(e, t) }>(s, x) }""",
    ),
}


@pytest.mark.parametrize("name", HOISTED)
def test_what_no_run_changes_is_computed_once(name: str) -> None:
    moved, text = HOISTED[name]
    proto = model(text.replace("{W}", "{" + ", ".join(matrix(1).split(", ")[:8]) + "}"))
    result = optimised(proto)
    written = result.to_onnx()
    checker.check_model(written, full_check=True)
    check_names(written.graph)
    outer = [n.op_type for n in written.graph.node]
    assert set(moved) <= set(outer), outer
    assert not any(set(moved) & set(body) for body in bodies(written))
    assert "loop-invariant" in [rule for change in result.report.changes for rule in change.rules]
    certified = json.loads(result.report.json())["certificate"]["bodies"]
    assert "the same nodes in front of the loop" in [body["text"] for body in certified]
    for trips in (0, 1, 4):
        feeds = draw(proto, trips, m=trips, c=trips < 4 or trips == 4)
        same(run(written, feeds), run(proto, feeds))


STAYS = {
    "a place that there is not": """(int64 m, bool c, float[4] x, int64 at) => (float[k] y) {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[4] s) => (bool on, float[4] u) {
            on = Identity(go) \n a = Gather(x, at) \n u = Add(s, a) }> }""",
    "a division of integers by zero": """(int64 m, bool c, float[4] x, int64 at) => (float[k] y) <int64 one = {1}> {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[4] s) => (bool on, float[4] u) {
            on = Identity(go) \n a = Div(one, at) \n e = Cast<to = 1>(a) \n u = Add(s, e) }> }""",
    "sizes that may not fit": """(int64 m, bool c, float[n] x, float[k] z, int64 at) => (float[j] y) {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[] s) => (bool on, float[] u) {
            on = Identity(go) \n a = Add(x, z) \n e = ReduceSum<keepdims = 0>(a) \n u = Add(s, e) }> }""",
    "a random number": """(int64 m, bool c, float[4] x, int64 at) => (float[k] y) {
        y = Loop(m, c, x)<body = b (int64 i, bool go, float[4] s) => (bool on, float[4] u) {
            on = Identity(go) \n a = RandomUniformLike(x) \n f = Floor(a) \n u = Add(s, f) }> }""",
}


@pytest.mark.parametrize("name", STAYS)
def test_what_may_fail_stays_in_a_loop_that_may_not_run(name: str) -> None:
    proto = model(STAYS[name])
    result = optimised(proto)
    assert [n.op_type for n in result.to_onnx().graph.node] == ["Loop"]
    # The place is beyond the end, the divisor is zero, the sizes do not fit: nothing of it matters to no run.
    at = 0 if "zero" in name else 9
    feeds = draw(proto, 0, m=0, c=True, at=at, n=4, k=3)
    same(run(result.to_onnx(), feeds), run(proto, feeds))


def test_what_may_fail_is_moved_out_of_a_loop_that_surely_runs() -> None:
    text = STAYS["a place that there is not"].replace(
        "(int64 m, bool c, float[4] x, int64 at)", "(float[4] x, int64 at)"
    )
    proto = model(text.replace("(float[k] y) {", "(float[k] y) <int64 m = {300}, bool c = {1}> {", 1))
    written = optimised(proto).to_onnx()
    assert [n.op_type for n in written.graph.node] == ["Gather", "Loop"]
    feeds = draw(proto, 1, at=3)
    same(run(written, feeds), run(proto, feeds))


UNROLLED = {
    "a state and rows": """(float[2, 3] x, float[3, 3] w) => (float[a, b] y, float[j, k, l] z)
        <int64 m = {3}, bool t = {1}> {
        y, z = Loop(m, t, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u, float[] s) {
            on = Identity(go) \n u = MatMul(v, w) \n s = Relu(u) }> }""",
    "no condition, and places that the run says": """(float[2, 3] x, float[3, 3] w) => (float[a, b] y, float[j, k] z)
        <int64 m = {3}> {
        y, z = Loop(m, , x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u, float[] s) {
            on = Constant<value = bool {1}>() \n s = Gather(w, i) \n u = Add(v, s) }> }""",
    "a run number of one element": """(float[2, 3] x, float[3, 3] w) => (float[a, b] y, float[j, k, l] z)
        <int64 m = {3}, bool[1] t = {1}> {
        y, z = Loop(m, t, x)<body = b (int64[1] i, bool[1] go, float[] v) => (bool[1] on, float[] u, float[] s) {
            on = Identity(go) \n s = Gather(w, i) \n u = Add(v, s) }> }""",
    "a dim that grows": """(float[2, 3] x, float[3, 3] w) => (float[a, b] y) <int64 m = {3}, bool t = {1}> {
        y = Loop(m, t, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go) \n u = Concat<axis = 0>(v, w) }> }""",
    "states that change places": """(float[2, 3] x, float[2, 3] w) => (float[a, b] y, float[a, b] z)
        <int64 m = {3}, bool t = {1}> {
        y, z = Loop(m, t, x, w)<body = b (int64 i, bool go, float[] v, float[] q) => (bool on, float[] u, float[] r) {
            on = Identity(go) \n u = Identity(q) \n r = Identity(v) }> }""",
    "no run": """(float[2, 3] x, float[2, 3] w) => (float[a, b] y) <int64 m = {0}, bool t = {1}> {
        h = Loop(m, t, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go) \n u = Concat<axis = 0>(v, w) }> \n y = Neg(h) }""",
    "a loop in a loop with a branch": """(float[2, 3] x, float[2, 3] w) => (float[a, b] y)
        <int64 m = {3}, bool t = {1}, int64 one = {1}> {
        y = Loop(m, t, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go)
            u = Loop(i, t, v)<body = b2 (int64 j, bool go2, float[] q) => (bool on2, float[] o) {
                on2 = Identity(go2) \n k = Equal(j, one)
                o = If(k)<then_branch = t1() => (float[] p) { h = Add(q, w) \n p = Relu(h) },
                          else_branch = e1() => (float[] r) { h = Sub(q, w) \n r = Tanh(h) }> }> }> }""",
    "a scan both ways": """(float[2, 3] x, float[4, 2, 3] w, float[2, 4, 3] a)
        => (float[d, e] y, float[j, k, l] z, float[p, q, r] o) {
        y, z, o = Scan<num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [1, 0],
            scan_output_axes = [1, -1], scan_output_directions = [0, 1],
            body = b (float[2, 3] v, float[2, 3] s, float[2, 3] f) => (float[2, 3] u, float[2, 3] g2, float[2, 3] h) {
                u = Add(v, s) \n g2 = Mul(u, f) \n h = Sub(s, f) }>(x, w, a) }""",
}


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("name", UNROLLED)
def test_short_loops_run_one_after_the_other(name: str, opset: int) -> None:
    proto = model(UNROLLED[name], opset)
    result = optimised(proto)
    written = result.to_onnx()
    checker.check_model(written, full_check=True)
    assert not bodies(written)
    assert any(change.rules == ("known ahead",) for change in result.report.changes)
    for seed in range(3):
        feeds = draw(proto, seed)
        same(run(written, feeds), run(proto, feeds))


LONG = {
    "too many runs": """(float[2, 3] x) => (float[a, b] y) <int64 m = {40}, bool t = {1}> {
        y = Loop(m, t, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go) \n u = Tanh(v) }> }""",
    "numbers drawn on from run to run": """(float[2, 3] x) => (float[a, b] y) <int64 m = {3}, bool t = {1}> {
        y = Loop(m, t, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            on = Identity(go) \n r = RandomUniformLike<seed = 1.0>(v) \n u = Add(r, v) }> }""",
    "an end that the values decide": """(float[2, 3] x) => (float[a, b] y) <int64 m = {3}, bool t = {1},
        float two = {2}> {
        y = Loop(m, t, x)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
            u = Add(v, v) \n e = ReduceMax<keepdims = 0>(u) \n on = Less(e, two) }> }""",
    "rows of no run": """(float[2, 3] x) => (float[a, b] y, float[j, k, l] z) <int64 m = {0}, bool t = {1}> {
        y, z = Loop(m, t, x)<body = b (int64 i, bool go, float[2, 3] v) => (bool on, float[2, 3] u, float[2, 3] s) {
            on = Identity(go) \n u = Add(v, v) \n s = Neg(v) }> }""",
}


@pytest.mark.parametrize("name", LONG)
def test_other_loops_stay_loops(name: str) -> None:
    proto = model(LONG[name])
    written = optimised(proto).to_onnx()
    assert "Loop" in [n.op_type for n in written.graph.node]
    for seed in range(3):
        feeds = draw(proto, seed)
        same(run(written, feeds), run(proto, feeds))


def test_bodies_that_there_is_no_time_for_stay_and_are_told() -> None:
    proto = inside("both branches")
    result = optimised(proto, time_limit=1e-6)
    assert any("left as" in text and "the time limit of 1e-06 s is over" in text for text in result.report.skipped)
    for condition in (True, False):
        feeds = draw(proto, 0, c=condition)
        same(result.run(**feeds), run(proto, feeds))
