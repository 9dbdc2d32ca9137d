"""Results in operators of ONNX Runtime's own, where they are to run there, and in ONNX's alone elsewhere."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.language.graphs.builder import Builder
from eqsat.language.onnx.fused.contrib import for_onnxruntime
from eqsat.language.onnx.write.exporter import to_model

BATCH, LENGTH, HEADS, WIDTH = 2, 12, 4, 8
JOINED = HEADS * WIDTH
LEAST = float(np.finfo(np.float32).min)


def attention(*, batch=BATCH, masked=True, fill=LEAST, projected="") -> onnx.ModelProto:
    """Attention as torch 2.13 exports it: keys turned with batch and heads joined, both scaled, softmax guarded."""
    root = np.float32(WIDTH**-0.25)
    constants = {
        "apart": np.array([-1, LENGTH, HEADS, WIDTH]),
        "flat": np.array([-1, LENGTH, WIDTH]),
        "turned": np.array([-1, HEADS, WIDTH, LENGTH]),
        "together": np.array([-1, LENGTH, JOINED]),
        "root": root,
        "zero": np.float32(0),
        "least": np.float32(fill),
    }
    nodes = []
    rng = np.random.default_rng(1)
    for name in "qkv":
        if projected:
            constants[f"w{name}"] = rng.standard_normal((JOINED, JOINED)).astype(np.float32) / 6
            constants[f"b{name}"] = rng.standard_normal(JOINED).astype(np.float32)
            nodes.append(helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}p" if projected == "biased" else name]))
            if projected == "biased":
                nodes.append(helper.make_node("Add", [f"{name}p", f"b{name}"], [name]))
        nodes.append(helper.make_node("Reshape", [name, "apart"], [f"{name}r"]))
        nodes.append(helper.make_node("Transpose", [f"{name}r"], [f"{name}h"], perm=[0, 2, 1, 3]))
    nodes += [
        helper.make_node("Reshape", ["kh", "flat"], ["kf"]),
        helper.make_node("Transpose", ["kf"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["kt", "turned"], ["keys"]),
        helper.make_node("Mul", ["qh", "root"], ["qs"]),
        helper.make_node("Mul", ["keys", "root"], ["ks"]),
        helper.make_node("MatMul", ["qs", "ks"], ["scores"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.BOOL),
        helper.make_node("Where", ["kept", "zero", "least"], ["bias"]),
        helper.make_node("Add", ["scores", "bias"], ["masked"]),
        helper.make_node("Softmax", ["masked" if masked else "scores"], ["shares"], axis=-1),
        helper.make_node("IsNaN", ["shares"], ["lost"]),
        helper.make_node("Where", ["lost", "zero", "shares"], ["guarded"]),
        helper.make_node("MatMul", ["guarded", "vh"], ["made"]),
        helper.make_node("Transpose", ["made"], ["back"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "together"], ["y"]),
    ]
    names = "x" if projected else "qkv"
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, LENGTH, JOINED]) for name in names]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, LENGTH, JOINED])]
    if masked:
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, [batch, 1, LENGTH, LENGTH]))
    else:
        nodes = [node for node in nodes if "mask" not in node.input and not {"bias", "masked"} & set(node.output)]
    weights = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def feeds(model: onnx.ModelProto, batch: int = BATCH) -> dict[str, np.ndarray]:
    """Inputs of which one query may look at nothing."""
    rng = np.random.default_rng(0)
    names = [value.name for value in model.graph.input]
    made = {name: rng.standard_normal((batch, LENGTH, JOINED)).astype(np.float32) for name in names if name != "mask"}
    if "mask" in names:
        made["mask"] = rng.integers(0, 2, (batch, 1, LENGTH, LENGTH))
        made["mask"][..., 3, :] = 0
    return made


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)


def fused(model: onnx.ModelProto) -> list[str]:
    """The operators of ONNX Runtime's own, after the opset that a model imports of them is checked."""
    found = [node.op_type for node in model.graph.node if node.domain]
    assert {node.domain for node in model.graph.node if node.domain} <= {"com.microsoft"}
    assert [(o.domain, o.version) for o in model.opset_import if o.domain] == [("com.microsoft", 1)] * bool(found)
    return found


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("masked", [True, False])
def test_attention_as_torch_exports_it_becomes_one_operator(masked):
    model = attention(masked=masked)
    result = eqsat.optimize(model, measure=False)
    made = result.to_onnx()
    onnx.checker.check_model(made)
    assert fused(made) == ["MultiHeadAttention"]
    assert set(operators(made)) <= {"MultiHeadAttention", "Cast", "Where"}
    (node,) = [node for node in made.graph.node if node.domain]
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert attrs["num_heads"] == HEADS
    assert attrs["scale"] == pytest.approx(WIDTH**-0.5)
    expected = run(model, feeds(model))[0]
    np.testing.assert_allclose(run(made, feeds(model))[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result.run(**feeds(model))["y"], expected, rtol=1e-5, atol=1e-5)
    assert any("ONNX Runtime's own MultiHeadAttention" in w and "--portable" in w for w in result.report.warnings)


@pytest.mark.parametrize("projected", ["plain", "biased"])
def test_attention_over_products_of_one_tensor_is_as_exact(projected):
    model = attention(projected=projected)
    made = eqsat.optimize(model, measure=False).to_onnx()
    assert set(fused(made)) <= {"Attention", "MultiHeadAttention"}
    assert len(fused(made)) == 1
    assert {w.name for w in made.graph.initializer} <= {v for n in made.graph.node for v in n.input}
    np.testing.assert_allclose(run(made, feeds(model))[0], run(model, feeds(model))[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("biased", [True, False])
def test_products_with_constants_are_packed_into_attention(biased):
    model = to_model(for_onnxruntime(_heads_from("biased" if biased else "plain")))
    assert operators(model) == fused(model) == ["Attention"]
    assert sorted(tuple(w.dims) for w in model.graph.initializer) == [(JOINED, 3 * JOINED), (3 * JOINED,)]
    _agree(_heads_from("biased" if biased else "plain"), ["Attention"])


@pytest.mark.parametrize("arguments", [{"portable": True}, {"device": "nvidia-h200"}])
def test_a_result_that_may_run_elsewhere_is_written_in_operators_of_onnx(arguments):
    model = attention()
    result = eqsat.optimize(model, measure=False, **arguments)
    made = result.to_onnx()
    assert fused(made) == []
    assert not any("of ONNX Runtime's own" in warning for warning in result.report.warnings)
    np.testing.assert_allclose(run(made, feeds(model))[0], run(model, feeds(model))[0], rtol=1e-5, atol=1e-5)


def test_the_command_line_writes_either(run_command, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(attention(), path)
    for options, expected in (((), ["MultiHeadAttention"]), (("--portable",), [])):
        target = tmp_path / "out.onnx"
        code, _, err = run_command("optimize", path, "-o", target, "--no-measure", *options)
        assert (code, err) == (0, "")
        assert fused(onnx.load(target)) == expected


@pytest.fixture
def run_command(request, monkeypatch, tmp_path):
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    return request.getfixturevalue("run")


def test_a_batch_that_may_be_empty_is_taken():
    model = attention(batch="batch")
    made = eqsat.optimize(model, measure=False).to_onnx()
    assert fused(made) == ["MultiHeadAttention"]
    for batch in (0, 1, 5):
        inputs = feeds(model, batch)
        np.testing.assert_allclose(run(made, inputs)[0], run(model, inputs)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("projected", ["", "biased"])
def test_a_query_that_may_look_at_nothing_is_what_softmax_makes_of_it(projected):
    rng = np.random.default_rng(0)
    for fill in (LEAST, -np.inf):
        graph = _heads_from(projected)
        model = for_onnxruntime(graph)
        inputs = {n: rng.standard_normal(graph.type(n).static).astype(np.float32) for n in graph.inputs}
        inputs["m"] = np.where(rng.random(inputs["m"].shape) < 0.7, 0, fill).astype(np.float32)
        inputs["m"][..., 3, :] = fill
        one, parts = to_model(model), to_model(graph, 21)
        assert (len(fused(one)), fused(parts)) == (1, [])
        np.testing.assert_allclose(run(one, inputs)[0], run(parts, inputs)[0], rtol=1e-4, atol=1e-5)


def _heads_from(projected):
    """Attention over joined heads with a mask of numbers, of inputs or of products with constants."""
    g = Builder("heads")
    rng = np.random.default_rng(2)
    if projected:
        x = g.input("x", (BATCH, LENGTH, JOINED))
        weights = [rng.standard_normal((JOINED, JOINED)).astype(np.float32) / 6 for _ in "qkv"]
        sources = [x @ g.constant(w) for w in weights]
        if projected == "biased":
            sources = [s + g.constant(rng.standard_normal(JOINED).astype(np.float32)) for s in sources]
    else:
        sources = [g.input(name, (BATCH, LENGTH, JOINED)) for name in "qkv"]
    shape = (BATCH, LENGTH, HEADS, WIDTH)
    heads = [g.apply("transpose", g.apply("reshape", s, shape=shape), perm=(0, 2, 1, 3)) for s in sources]
    made = g.apply("attention", *heads, g.input("m", (BATCH, 1, LENGTH, LENGTH)), hidden="nan")
    back = g.apply("transpose", made, perm=(0, 2, 1, 3))
    g.output("y", g.apply("reshape", back, shape=(BATCH, LENGTH, JOINED)))
    return g.build()


@pytest.mark.parametrize(
    "mask", [None, (5, 7), (1, 7), (5, 1), (BATCH, 1, 1, 7), (BATCH, HEADS, 5, 7), (1, 1, 1, 1), (7,)], ids=str
)
@pytest.mark.parametrize("scale", [None, 0.3, -0.5])
def test_masks_of_every_shape_and_scales_of_either_sign_are_taken(mask, scale):
    g = Builder("masks")
    q, k = g.input("q", (BATCH, HEADS, 5, WIDTH)), g.input("k", (BATCH, HEADS, 7, WIDTH))
    v = g.input("v", (BATCH, HEADS, 7, WIDTH))
    operands = [q, k, v] if mask is None else [q, k, v, g.input("m", mask)]
    g.output("y", g.apply("attention", *operands, scale=scale, hidden="nan"))
    _agree(g.build(), ["MultiHeadAttention"])


def _agree(graph, expected):
    """Both ways of writing a graph make the same, and one has these operators."""
    rng = np.random.default_rng(0)
    inputs = {}
    for name in graph.inputs:
        type = graph.type(name)
        drawn = rng.standard_normal(type.static)
        inputs[name] = drawn > -1 if type.dtype.value == "bool" else drawn.astype(np.float32)
    one, parts = to_model(for_onnxruntime(graph), 21), to_model(graph, 21)
    assert (fused(one), fused(parts)) == (expected, [])
    for made, wanted in zip(run(one, inputs), run(parts, inputs), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["truth values", "causal", "no scale", "shared keys", "other width", "zeros"])
def test_what_the_operator_would_make_otherwise_is_written_by_parts(case):
    g = Builder("parts")
    keys = 2 if case == "shared keys" else HEADS
    length = 7 if case == "causal" else 5
    q, k = g.input("q", (BATCH, HEADS, 5, WIDTH)), g.input("k", (BATCH, keys, length, WIDTH))
    v = g.input("v", (BATCH, keys, length, 3 if case == "other width" else WIDTH))
    mask = [g.input("m", (5, 5), "bool")] if case == "truth values" else []
    hidden = "zero" if case in ("shared keys", "zeros") else "nan"
    attrs = {"causal": case == "causal", "scale": 0.0 if case == "no scale" else None, "hidden": hidden}
    g.output("y", g.apply("attention", q, k, v, *mask, **attrs))
    if case == "shared keys":
        assert fused(to_model(for_onnxruntime(g.build()), 23)) == []
    else:
        _agree(g.build(), [])


@pytest.mark.parametrize("scale", [None, 0.3])
def test_queries_that_look_at_no_later_key_are_taken_where_there_are_as_many_keys(scale):
    g = Builder("causal")
    heads = [g.input(name, (BATCH, HEADS, 5, WIDTH)) for name in "qkv"]
    g.output("y", g.apply("attention", *heads, scale=scale, causal=True, hidden="nan"))
    _agree(g.build(), ["MultiHeadAttention"])


def test_heads_that_something_else_reads_are_made_too():
    g = Builder("read")
    x = g.input("x", (BATCH, LENGTH, JOINED))
    rng = np.random.default_rng(3)
    sources = [x @ g.constant(rng.standard_normal((JOINED, JOINED)).astype(np.float32) / 6) for _ in "qkv"]
    shape = (BATCH, LENGTH, HEADS, WIDTH)
    heads = [g.apply("transpose", g.apply("reshape", s, shape=shape), perm=(0, 2, 1, 3)) for s in sources]
    made = g.apply("attention", *heads, hidden="nan")
    back = g.apply("transpose", made, perm=(0, 2, 1, 3))
    g.output("y", g.apply("reshape", back, shape=(BATCH, LENGTH, JOINED)))
    g.output("y2", g.apply("relu", sources[0]))
    _agree(g.build(), ["MultiHeadAttention"])
    g.output("keys", heads[1])
    _agree(g.build(), ["MultiHeadAttention"])
    g.output("values", sources[2])
    _agree(g.build(), ["MultiHeadAttention"])
    g.output("apart", back)
    _agree(g.build(), ["MultiHeadAttention"])


@pytest.mark.parametrize("alpha", [1.0, 1.702])
@pytest.mark.parametrize("portable", [False, True])
def test_a_product_with_a_sigmoid_is_one_operator_of_onnx_runtime(alpha: float, portable: bool) -> None:
    g = Builder("gate")
    x = g.input("x", (64, 256))
    g.output("y", x * eqsat.sigmoid(x * alpha))
    result = eqsat.optimize(
        g.build(), device="onnxruntime-cpu", measure=False, cache=False, opset=23, portable=portable
    )
    model = to_model(for_onnxruntime(result.graph) if not portable else result.graph, 23)
    assert fused(model) == ([] if portable else ["QuickGelu"])
    drawn = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32) * 4
    np.testing.assert_allclose(run(model, {"x": drawn})[0], drawn / (1 + np.exp(-alpha * drawn)), rtol=1e-4, atol=1e-5)
