"""What is unusual and legal goes through the pipeline unharmed; what is refused is refused before the work starts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import eqsat
import eqsat.report.timing.compiling
from eqsat.errors import BackendError, CostError, EqsatError, GraphError, UsageError
from eqsat.report.parts import OpaqueNode
from eqsat.rewrites.rules.parser import parse_rules

FAST = {"measure": False}
X = np.array([[-1.5, 0.5], [2.0, -0.25]], np.float32)


def model(text: str, **constants: Any) -> ModelProto:
    """A model of opset 17 in ONNX's text, with constants of that name."""
    found = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "local" : 1, "custom" : 1]> {text}')
    found.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items())
    return found


def outputs_of(source: ModelProto, **inputs: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


ODDITIES: dict[str, Callable[[], ModelProto]] = {
    "an output that is an input": lambda: model("g (float[2, 2] x) => (float[2, 2] x, float[2, 2] y) { y = Relu(x) }"),
    "an output that is an initializer": lambda: model(
        "g (float[2, 2] x) => (float[2, 2] w, float[2, 2] y) { y = Add(x, w) }", w=X
    ),
    "no node at all": lambda: model("g (float[2, 2] x) => (float[2, 2] x) { }"),
    "two outputs of one value": lambda: model(
        "g (float[2, 2] x) => (float[2, 2] y, float[2, 2] z) { y = Relu(x) \n z = Identity(y) }"
    ),
    "a local function": lambda: model(
        """g (float[2, 2] x) => (float[2, 2] y) { a = local.twice(x) \n y = local.twice(a) }
        <domain: "local", opset_import: ["" : 17]> twice (p) => (q) { q = Add(p, p) }"""
    ),
    "a sequence": lambda: model(
        "g (float[2, 2] x) => (float[2, 2] y) { s = SequenceConstruct(x, w) \n z = SequenceAt(s, i) \n y = Relu(z) }",
        i=np.int64(1),
        w=X,
    ),
    "an optional": lambda: model(
        "g (float[2, 2] x) => (float[2, 2] y) { o = Optional(x) \n z = OptionalGetElement(o) \n y = Relu(z) }"
    ),
    "a branch with captured values": lambda: model(
        """g (float[2, 2] x) => (float[2, 2] y) { a = Relu(x) \n s = ReduceSum<keepdims = 0>(a) \n c = Greater(s, zero)
            h = If(c)<then_branch = t() => (float[2, 2] o) { o = Add(a, w) },
                      else_branch = e() => (float[2, 2] p) { p = Neg(a) }>
            y = Relu(h) }""",
        w=X,
        zero=np.float32(0),
    ),
    "a loop": lambda: model(
        """g (float[2, 2] x) => (float[2, 2] y) {
            y = Loop(n, go, x)<body = b(int64 i, bool c, float[2, 2] v) => (bool d, float[2, 2] u) {
                d = Identity(c) \n u = Add(v, w) }> }""",
        n=np.int64(3),
        go=np.array(True),
        w=X,
    ),
    "NaN in weights": lambda: model(
        "g (float[2, 2] x) => (float[2, 2] y, float[2, 2] z) { y = MatMul(x, w) \n z = Add(y, w) }",
        w=np.array([[np.nan, 1], [2, 3]], np.float32),
    ),
    "infinities in weights": lambda: model(
        "g (float[2, 2] x) => (float[2, 2] y) { m = Add(x, w) \n y = Softmax(m) }",
        w=np.array([[-np.inf, 0], [0, -np.inf]], np.float32),
    ),
    "zeros of both signs": lambda: model(
        """g (float[2, 2] x) => (float[2, 2] y, float[2, 2] z) {
            a = Div(one, p) \n b = Div(one, n) \n y = Max(x, a) \n z = Max(x, b) }""",
        one=np.float32(1),
        p=np.float32(0.0),
        n=np.float32(-0.0),
    ),
    "empty tensors": lambda: model(
        """g (float[2, 2] x) => (float[2] y, float[2] z, float[0, 2] e) {
            e = Slice(x, two, four, axis)
            s = ReduceSum<keepdims = 0>(e, axis) \n y = ReduceSum<keepdims = 0>(x, axis)
            z = Add(y, s) }""",
        two=np.array([2]),
        four=np.array([4]),
        axis=np.array([0]),
    ),
    "shapes as values": lambda: model(
        """g (float[2, 2] x) => (float[2, 2] y, int64 n) {
            s = Shape(x) \n n = Size(x) \n f = Reshape(x, one) \n u = Unsqueeze(f, axis) \n q = Squeeze(u, axis)
            y = Reshape(q, s) }""",
        one=np.array([-1]),
        axis=np.array([0]),
    ),
}


@pytest.mark.parametrize("name", ODDITIES)
def test_legal_oddities_work(name: str, tmp_path: Path) -> None:
    source = ODDITIES[name]()
    result = eqsat.optimize(source, **FAST)
    expected = outputs_of(source, x=X)
    result.save(tmp_path / "out.onnx")
    written = onnx.load(tmp_path / "out.onnx")
    names = [o.name for o in source.graph.output]
    assert [o.name for o in written.graph.output] == names
    for got in (outputs_of(written, x=X), [result.run(x=X)[n] for n in names]):
        for a, b in zip(expected, got, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5)


def test_nan_in_weights_is_warned_about_by_name_and_infinity_is_not() -> None:
    (warning,) = eqsat.optimize(ODDITIES["NaN in weights"](), **FAST).report.warnings
    assert warning == "constant 'w' holds NaN in 1 of 4 elements; it is kept as it is"
    assert eqsat.optimize(ODDITIES["infinities in weights"](), **FAST).report.warnings == []
    (assumed,) = eqsat.optimize(ODDITIES["NaN in weights"](), finite_math=True, **FAST).report.warnings
    assert assumed == warning


def test_shapes_of_known_values_and_steps_that_do_nothing_vanish() -> None:
    result = eqsat.optimize(ODDITIES["shapes as values"](), **FAST)
    assert result.graph.nodes == ()
    assert result.report.nodes_after < result.report.nodes_before == 6


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_random_operators_are_neither_folded_nor_merged(op: str) -> None:
    text = (
        f"g (float[2] x) => (float[2] y, float[2] z) {{ a = {op}(c) \n b = {op}(c) \n y = Add(x, a) \n z = Add(x, b) }}"
    )
    result = eqsat.optimize(model(text, c=np.float32([0.5, 0.5])), **FAST)
    assert [n.op_type for n in result.to_onnx().graph.node].count(op) == 2


def test_a_broadcast_to_a_gigabyte_is_not_folded() -> None:
    source = model(
        """g (float[1] x) => (float[1] y) {
            b = Expand(w, s) \n t = ReduceSum<keepdims = 0>(b) \n h = Identity(x) \n y = Add(h, t) }""",
        w=np.ones((1, 1), np.float32),
        s=np.array([16384, 16384]),
    )
    result = eqsat.optimize(source, **FAST)
    assert [n.op for n in result.graph.nodes] == ["expand", "reduce_sum", "add"]
    assert result.to_onnx().ByteSize() < 1000


def test_certificates_of_named_dims_use_two_sizes_one_among_them() -> None:
    g = eqsat.Graph("dynamic")
    x = g.input("x", ("batch", 4))
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    g.output("y", (x @ g.constant(w)) @ g.constant(w.T.copy()))
    report = eqsat.optimize(g, sizes={"batch": 6}, **FAST).report
    assert report.operators_after["matmul"] == 1
    assert report.certificate.sizes == [{"batch": 6}, {"batch": 1}]


def test_a_custom_operator_that_nothing_can_run_does_not_stop_the_rest() -> None:
    source = model("g (float[2, 2] x) => (float[2, 2] y) { a = Identity(x) \n b = custom.mystery(a) \n y = Relu(b) }")
    unmeasured = eqsat.optimize(source, **FAST).report
    assert unmeasured.kept == "ilp"
    (warning,) = unmeasured.warnings
    assert warning.startswith("rounding was not compared: ONNX Runtime refuses the graph: ")
    report = eqsat.optimize(source).report
    assert report.measured_before is None
    assert report.warnings[0].startswith("not measured: ONNX Runtime refuses the graph: ")
    assert "mystery" in report.warnings[0]
    assert report.opaque == [
        OpaqueNode("b", "mystery", "unknown domain 'custom'"),
        OpaqueNode("y", "Relu", "the type of 'b' is unknown"),
    ]


def test_what_onnx_runtime_refuses_runs_on_the_reference_with_a_warning() -> None:
    g = eqsat.Graph("integers")
    x = g.input("x", (2, 2), "int16")
    g.output("y", x @ x)
    result = eqsat.optimize(g, **FAST)
    with pytest.warns(UserWarning, match=r"ONNX Runtime refuses the graph: .* the NumPy reference instead"):
        got = result.run(x=np.array([[1, 2], [3, 4]], np.int16))["y"]
    assert got.tolist() == [[7, 10], [15, 22]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result.run(x=np.ones((2, 2), np.int16))


def test_a_finalist_that_the_backend_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = parse_rules("odd: x + x => x - neg(x)")
    g = eqsat.Graph("g")
    x = g.input("x", (4, 4))
    g.output("y", x + x)
    backend = type(eqsat.report.timing.compiling.select("onnxruntime"))
    compiled = backend.compile

    def refusing(self: Any, graph: Any, **options: Any) -> Any:
        if any(n.op == "neg" for n in graph.nodes):
            raise BackendError("it has no such kernel")
        return compiled(self, graph, **options)

    monkeypatch.setattr(backend, "compile", refusing)
    report = eqsat.optimize(g, rules=rules, cost=lambda a: float(a.op == "add")).report
    assert report.kept == "original"
    assert report.warnings == ["ilp was left out: it has no such kernel"]


REFUSED_FIRST: list[tuple[dict[str, Any], type[EqsatError], str]] = [
    ({"device": "abacus"}, CostError, "no device 'abacus'"),
    ({"extractor": "magic"}, UsageError, "no extractor 'magic'"),
    ({"objective": {"beauty": 1.0}}, UsageError, "objective has no term 'beauty'"),
    ({"node_limit": 0}, UsageError, "node_limit = 0"),
    ({"time_limit": float("nan")}, UsageError, "time_limit = nan"),
    ({"seed": -1}, UsageError, "seed = -1"),
    ({"opset": 6}, UsageError, "opset = 6"),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), REFUSED_FIRST, ids=lambda a: str(a))
def test_arguments_are_refused_before_the_model_is_read(
    arguments: dict[str, Any], kind: type[EqsatError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        eqsat.optimize("missing.onnx", **arguments)


def test_sizes_are_of_named_dims_that_there_are() -> None:
    g = eqsat.Graph("dynamic")
    g.output("y", eqsat.relu(g.input("x", ("batch", "tokens", 4))))
    with pytest.raises(UsageError) as raised:
        eqsat.optimize(g, sizes={"bach": 4}, **FAST)
    assert str(raised.value).splitlines()[:2] == ["dynamic: no named dim 'bach'", "  expected one of batch, tokens"]
    for size in (0, -1, 2.5, True):
        with pytest.raises(UsageError, match="size batch = "):
            eqsat.optimize(g, sizes={"batch": size}, **FAST)  # type: ignore[dict-item]
    assert eqsat.optimize(g, sizes={"batch": np.int64(2)}, **FAST).report.kept == "original"


@pytest.mark.parametrize("outputs", ["y", []])
def test_outputs_are_a_list_of_names(outputs: Any) -> None:
    g = eqsat.Graph("g")
    g.output("y", eqsat.relu(g.input("x", (2,))))
    with pytest.raises(UsageError, match="outputs = "):
        eqsat.optimize(g, outputs=outputs, **FAST)


def test_a_graph_without_outputs_is_refused() -> None:
    with pytest.raises(GraphError, match="it has no outputs"):
        eqsat.optimize(model("g (float[2, 2] x) => () { y = Relu(x) }"), **FAST)


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"x": np.ones((2, 4), np.float32)}, "input 'z' is missing"),
    ({"x": np.ones((2, 4), np.float32), "z": np.ones((3, 4), np.float32)}, "named dim 'batch' is 2 in input 'x' and 3"),
    ({"x": np.ones((2, 4), np.float32), "z": np.ones((2, 5), np.float32)}, r"input 'z' of shape \[2, 5\]"),
    ({"x": np.ones((2, 4), np.float32), "z": np.ones((2, 4), np.float32), "q": 1}, "unknown input 'q'"),
    ({"x": np.ones((2, 4)), "z": np.ones((2, 4), np.float32)}, "input 'x' has element type float64"),
]


@pytest.mark.parametrize(("inputs", "message"), MISFITS, ids=[m for _, m in MISFITS])
def test_inputs_that_do_not_fit_are_named(inputs: dict[str, Any], message: str) -> None:
    g = eqsat.Graph("dynamic")
    g.output("y", eqsat.relu(g.input("x", ("batch", 4)) + g.input("z", ("batch", 4))))
    with pytest.raises(BackendError, match=message) as raised:
        eqsat.optimize(g, **FAST).run(**inputs)
    assert raised.value.expected and raised.value.remedy


def test_tensors_that_inner_graphs_keep_in_files_follow(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    X.tofile(tmp_path / "w.bin")
    source = ODDITIES["a branch with captured values"]()
    branch = next(a for n in source.graph.node for a in n.attribute if a.name == "then_branch").g
    inner = TensorProto(name="w", dims=[2, 2], data_type=1, data_location=TensorProto.EXTERNAL)
    inner.external_data.add(key="location", value="w.bin")
    branch.initializer.append(inner)
    del source.graph.initializer[0]
    onnx_file = tmp_path / "in.onnx"
    onnx_file.write_bytes(source.SerializeToString())
    result = eqsat.optimize(onnx_file, opset=18, **FAST)
    result.save(tmp_path / "sub" / "out.onnx")
    expected = outputs_of(ODDITIES["a branch with captured values"](), x=X)
    np.testing.assert_array_equal(outputs_of(onnx.load(tmp_path / "sub" / "out.onnx"), x=X)[0], expected[0])
    inner.external_data[0].value = "../w.bin"
    branch.initializer[0].CopyFrom(inner)
    (tmp_path / "sub" / "in.onnx").write_bytes(source.SerializeToString())
    with pytest.raises(EqsatError, match="outside the model's folder"):
        eqsat.optimize(tmp_path / "sub" / "in.onnx", **FAST)


def test_names_of_nodes_and_values_survive() -> None:
    source = model("g (float[2, 2] x) => (float[2, 2] y) { h = Identity(x) \n a = Exp(h) \n y = Neg(a) }")
    for i, node in enumerate(source.graph.node):
        node.name = f"layer{i}/{node.op_type}"
    written = eqsat.optimize(source, **FAST).to_onnx()
    assert [(n.name, *n.output) for n in written.graph.node] == [("layer1/Exp", "a"), ("layer2/Neg", "y")]
    assert helper.printable_value_info(written.graph.input[0]).startswith("%x")
