"""What is written at an older opset, or for any size of a named dim, does what the model did, or says what it lacks."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

import eqsat
from eqsat.errors import ExportModelError
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model


def model(text: str, opset: int = 17, ir_version: int = 8) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> {text}')


def run(source: ModelProto, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def agree(source: ModelProto, made: ModelProto, **feeds: Any) -> bool:
    pairs = zip(run(source, **feeds), run(made, **feeds), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


@pytest.mark.parametrize("opset", [None, 13])
def test_an_output_that_is_listed_twice_stays_so(opset: int | None) -> None:
    """ONNX Runtime hands it out twice; by name there is one."""
    source = model("g (float[n] x) => (float[n] y, float[n] z, float[n] y) { y = Neg(x) \n t = Neg(y) \n z = Relu(t) }")
    x = np.float32([1, -2])
    result = eqsat.optimize(source, measure=False)
    made = result.to_onnx(opset=opset)
    assert [o.name for o in made.graph.output] == ["y", "z", "y"] and len(made.graph.node) == 2
    assert agree(source, made, x=x)
    assert list(result.run(x=x)) == ["y", "z"]
    assert [o.name for o in eqsat.optimize(source, measure=False, outputs=["z"]).to_onnx().graph.output] == ["z"]


@pytest.mark.parametrize("opset", range(7, 14))
@pytest.mark.parametrize("sorted_", [0, 1])
def test_the_smallest_elements_are_the_smallest_at_every_opset(opset: int, sorted_: int) -> None:
    text = f"""g (float[2, 5] x) => (float[2, 2] v, int64[2, 2] i) <int64[1] k = {{2}}> {{
        v, i = TopK<largest = 0, sorted = {sorted_}>(x, k) }}"""
    source = model(text)
    x = np.float32([[5, 1, 4, 2, 3], [0, -np.inf, 7, 7, -0.5]])
    values, places = run(to_model(load(source), opset), x=x)
    order = np.argsort(values, axis=1)
    assert np.take_along_axis(values, order, 1).tolist() == [[1, 2], [-np.inf, -0.5]]
    assert np.take_along_axis(places, order, 1).tolist() == [[1, 3], [1, 4]]
    (only,) = run(to_model(load(model(text.replace("float[2, 2] v, ", ""))), opset), x=x)
    assert sorted(only[0].tolist()) == [1, 3]


def test_the_smallest_of_integers_are_refused_by_name() -> None:
    source = model("g (int64[5] x) => (int64[2] v) <int64[1] k = {2}> { v, i = TopK<largest = 0>(x, k) }")
    with pytest.raises(ExportModelError, match=r"with largest=0 of integers is not in opset 9"):
        to_model(load(source), 9)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"])
@pytest.mark.parametrize("dims", ["", "3"])
def test_a_reduction_of_each_element_alone_is_written_at_every_opset(op: str, dims: str) -> None:
    text = f"g (float[{dims}] x) => (float[{dims}] y) {{ y = {op}<noop_with_empty_axes = 1>(x) }}"
    if not dims:
        text = text.replace("float[]", "float")
    source = model(text, 18)
    x = np.float32([0.5, 2, 3]) if dims else np.array(0.5, np.float32)
    for opset in (8, 13, 18):
        made = to_model(load(source), opset)
        assert np.allclose(run(source, x=x)[0], run(made, x=x)[0], rtol=1e-6)


@pytest.mark.parametrize("opset", [7, 8, 9, 17])
def test_a_fill_of_a_named_dim_is_written_at_every_opset(opset: int) -> None:
    source = model(
        """g (float[m, 4] x) => (float[m, 3] y) {
            s = Shape(x) \n n = Slice(s, zero, one, zero) \n t = Concat<axis = 0>(n, three)
            y = ConstantOfShape<value = float[1] {2.5}>(t) }""",
        9,
    )
    parts = {"zero": [0], "one": [1], "three": [3]}
    source.graph.initializer.extend(numpy_helper.from_array(np.array(v), k) for k, v in parts.items())
    source.opset_import[0].version = 12
    made = to_model(load(source), opset)
    for size in (0, 1, 3):
        (filled,) = run(made, x=np.zeros((size, 4), np.float32))
        assert filled.tolist() == [[2.5] * 3] * size


@pytest.mark.parametrize("opset", [7, 12, 13, 17])
def test_what_has_no_elements_is_reshaped_at_every_opset(opset: int) -> None:
    source = model(
        """g (float[n, 2, 5] x) => (float y) { a, b, c = Split<axis = -1, split = [0, 5, 0]>(x)
            y = Softmax<axis = -3>(c) }""",
        12,
        7,
    )
    source.graph.output[0].type.tensor_type.ClearField("shape")
    made = to_model(load(source), opset)
    for size in (0, 1, 3):
        assert run(made, x=np.zeros((size, 2, 5), np.float32))[0].shape == (size, 2, 0)


@pytest.mark.parametrize("opset", [7, 12, 13])
def test_a_dim_of_0_is_made_of_a_flattened_one_before_a_reshape_can_say_so(opset: int) -> None:
    source = model(
        """g (float[n, 6, n] x) => (float[n, 6, n] y) {
            flat = Flatten<axis = 1>(x) \n e = Exp(flat)
            shape = Shape(x) \n y = Reshape<allowzero = 1>(e, shape) }"""
    )
    made = to_model(load(source), opset)
    for size in (0, 1, 3):
        x = np.arange(6 * size * size, dtype=np.float32).reshape(size, 6, size)
        assert agree(source, made, x=x)


def test_bounds_of_slices_that_any_dim_keeps_need_no_newer_opset() -> None:
    source = model(
        """g (float[n, 1, 2] x) => (float[a, b, c] y) {
            y = Slice<axes = [2, 1, 0], ends = [100, 3, 2], starts = [-1, -2, 0]>(x) }""",
        8,
        4,
    )
    made = to_model(load(source))
    assert [n.op_type for n in made.graph.node] == ["Slice"]
    for size in (0, 1, 3):
        assert agree(source, made, x=np.arange(2 * size, dtype=np.float32).reshape(size, 1, 2))


@pytest.mark.parametrize("opset", [7, 21])
def test_bounds_of_slices_stay_numbers_where_a_dim_is_not_known(opset: int) -> None:
    """No size is worked out for them, which no opset before 10 could use in a slice."""
    text = "g (float[n, m] x) => (float[a, m] y, float[n, b] z, float[n, c] v) "
    if opset == 7:
        text += """{ y = Slice<axes = [0], starts = [-2], ends = [-1]>(x)
            z = Slice<axes = [1], starts = [-3], ends = [2]>(x)
            v = Slice<axes = [1], starts = [3], ends = [-1]>(x) }"""
    else:
        text += """<int64[1] i = {-2}, int64[1] j = {-1}, int64[1] p = {-3}, int64[1] q = {2}, int64[1] one = {1}> {
            y = Slice(x, i, j) \n z = Slice(x, p, q, one) \n v = Slice(x, one, j, one) }"""
    source = model(text, opset)
    made = to_model(load(source))
    assert [n.op_type for n in made.graph.node] == ["Slice"] * 3
    for n in range(4):
        for m in range(5):
            assert agree(source, made, x=np.arange(n * m, dtype=np.float32).reshape(n, m))


def test_a_product_is_not_turned_where_onnx_runtime_refuses_a_batch_of_none() -> None:
    """A left operand is not spread over a dim of 0; on the right one it is."""
    source = model(
        """g (float[n, 1, 1] x) => (float[n, 4, 1] y) <float[1, 4] w = {-0.5, 0.75, 1.5, -1.75}> {
            a = MatMul(x, w) \n y = Transpose<perm = [0, 2, 1]>(a) }""",
        11,
        6,
    )
    made = eqsat.optimize(source, measure=False).to_onnx()
    for size in (0, 1, 3):
        assert agree(source, made, x=np.arange(size, dtype=np.float32).reshape(size, 1, 1))


def sparse(nodes: str, outputs: str) -> ModelProto:
    source = model(f"g (float[5] x) => ({outputs}) {{ {nodes} }}")
    values, places = numpy_helper.from_array(np.float32([7, 8]), "s"), numpy_helper.from_array(np.array([1, 3]), "at")
    source.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [5]))
    return source


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ("q = SequenceConstruct(s, s) \n z = SequenceAt(q, one) \n y = Squeeze(s)", "float[k] z, float[5] y"),
        ("y = Identity(s) \n z = Add(s, x)", "float[5] y, float[5] z"),
        (
            "y = Reshape(s, all) \n a, b, c = DynamicQuantizeLinear(s) \n z = DequantizeLinear(a, b, c)",
            "float[5] y, float[5] z",
        ),
    ],
)
def test_a_sparse_tensor_that_becomes_an_output_is_written_in_full(nodes: str, outputs: str) -> None:
    source = sparse(nodes, outputs)
    source.graph.initializer.extend(
        [numpy_helper.from_array(np.array(1), "one"), numpy_helper.from_array(np.array([-1]), "all")]
    )
    x = np.arange(5, dtype=np.float32)
    result = eqsat.optimize(source, measure=False)
    assert not result.report.warnings
    assert agree(source, result.to_onnx(), x=x)
    assert agree(source, to_model(load(source)), x=x)


def test_a_bias_alone_is_spread_by_what_an_older_opset_has() -> None:
    source = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Gemm", ["x", "w", "c"], ["y"], alpha=0.0)],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, ["m", 4])],
            [onnx.helper.make_tensor_value_info("y", 1, ["m", 1])],
            [
                numpy_helper.from_array(np.ones((4, 1), np.float32), "w"),
                numpy_helper.from_array(np.float32([-0.5]), "c"),
            ],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 8)],
        ir_version=4,
    )
    made = eqsat.optimize(source, measure=False).to_onnx()
    for size in (0, 1, 3):
        assert agree(source, made, x=np.ones((size, 4), np.float32))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_distribution_over_several_axes_takes_empty_tensors(op: str, axis: int) -> None:
    """Before opset 13 it covers every axis from one on, and no reshape says so where a named dim is 0."""
    source = model(f"g (float[n, 5, m] x) => (float[n, 5, m] y) {{ t = Mul(x, x) \n y = {op}<axis = {axis}>(t) }}", 11)
    made = eqsat.optimize(source, measure=False).to_onnx()
    assert [n.op_type for n in to_model(load(source)).graph.node] == ["Mul", op]
    for shape in ((2, 5, 3), (0, 5, 3), (2, 5, 0), (0, 5, 0), (1, 5, 1)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        for one in (made, to_model(load(source)), to_model(load(source), 12)):
            assert np.allclose(run(source, x=x)[0], run(one, x=x)[0], rtol=1e-5)


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (2, 1), (2, 3)])
def test_the_greatest_of_other_shapes_is_written_where_operands_have_one_shape(op: str, shape: tuple[int, ...]) -> None:
    """Max and Min broadcast from opset 8 on."""
    declared = f"float[{', '.join(map(str, shape))}]" if shape else "float"
    rows = 2 if shape[:1] == (2,) else "n"
    source = model(f"g (float[{rows}, 3] x, {declared} c) => (float[{rows}, 3] y) {{ y = {op}(x, c) }}")
    made = to_model(load(source), 7)
    assert made.opset_import[0].version == 7
    x, c = np.float32([[1, -2, 3], [0, 5, -6]]), np.full(shape, 0.5, np.float32)
    assert agree(source, made, x=x, c=c)


@pytest.mark.parametrize("op", ["Mean", "Max"])
def test_a_reduction_over_space_takes_what_a_global_pool_refuses(op: str) -> None:
    """ONNX Runtime's global pools want every dim but the first above 0; a reduction of an empty tensor is empty."""
    nodes = f"t = Transpose<perm = [2, 1, 0]>(x) \n y = Reduce{op}<axes = [0]>(t)"
    source = model(f"g (float[4, 5, n] x) => (float[1, 5, 4] y) {{ {nodes} }}")
    text = f"g (float[4, c, 5, 6] x) => (float[4, c, 1, 1] y) {{ y = Reduce{op}<axes = [2, 3]>(x) }}"

    def pools(application: Any) -> float:
        return 1e-6 if application.op.startswith("global") else 1e-3

    for one, shapes in ((source, ((4, 5, 2),)), (model(text), ((4, 2, 5, 6), (4, 0, 5, 6)))):
        made = eqsat.optimize(one, measure=False, cost=pools).to_onnx()
        for shape in shapes:
            x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
            assert all(np.allclose(a, b, rtol=1e-5) for a, b in zip(run(one, x=x), run(made, x=x), strict=True))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_window_larger_than_its_input_is_left_to_onnx_runtime(op: str) -> None:
    attributes = 'auto_pad = "VALID", ceil_mode = 1, kernel_shape = [2]'
    source = model(f"g (float[n, 5, 1] x) => (float[n, 5, k] y) {{ t = {op}<{attributes}>(x) \n y = Neg(t) }}")
    x = np.ones((2, 5, 1), np.float32)
    assert agree(source, eqsat.optimize(source, measure=False).to_onnx(), x=x)


def test_the_place_of_the_least_of_a_scalar_is_left_to_onnx_runtime() -> None:
    source = model("g (float x) => (int64 y) { y = ArgMin(x) }", 10)
    assert agree(source, eqsat.optimize(source, measure=False).to_onnx(), x=np.array(3, np.float32))


@pytest.mark.parametrize("opset", [7, 13, 14])
def test_a_dim_left_open_is_written_so_where_a_computed_0_would_mean_another(opset: int) -> None:
    source = model(
        "g (float[6, n, 6, m] x) => (float[6, n, k] y) <int64[3] c = {0, 0, -1}> { y = Reshape(x, c) }", opset
    )
    made = to_model(load(source))
    for shape in ((6, 2, 6, 3), (6, 2, 6, 0), *([(6, 0, 6, 3)] if opset >= 14 else [])):
        x = np.ones(shape, np.float32)
        (y,) = run(made, x=x)
        assert y.shape == (6, shape[1], 6 * shape[3])


@pytest.mark.parametrize("opset", [7, 10, 12])
def test_the_mask_of_dropout_is_the_one_of_onnx_runtime(opset: int) -> None:
    """It holds zeros before opset 12, and ones from there on."""
    source = model("g (float[3] x) => (float[3] y, bool[3] m) { t = Neg(x) \n y, m = Dropout(t) }", opset)
    if opset < 10:
        source.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    assert agree(source, eqsat.optimize(source, measure=False).to_onnx(), x=np.ones(3, np.float32))


def test_axes_that_a_normalised_value_does_not_have_are_left_to_onnx_runtime() -> None:
    source = model("g (float[3] x) => (float[3] y) { t = Neg(x) \n y = MeanVarianceNormalization(t) }")
    assert agree(source, eqsat.optimize(source, measure=False).to_onnx(), x=np.float32([1, 2, 5]))


@pytest.mark.parametrize("opset", [9, 17])
def test_a_named_dim_of_0_runs_whatever_is_chosen(opset: int) -> None:
    """Before opset 14 no reshape is put in that cannot say a dim of 0."""
    nodes = "t = MatMul(x, w) \n u = Add(t, b) \n v = Transpose<perm = [0, 2, 3, 1]>(u) \n y = Exp(v)"
    source = model(f"g (float[4, m, n, 1] x, float[1, 4] w, float[4] b) => (float[4, n, 4, m] y) {{ {nodes} }}", opset)
    for values in ("w", "b"):
        source.graph.initializer.append(
            numpy_helper.from_array(np.arange(4, dtype=np.float32).reshape((1, 4) if values == "w" else 4), values)
        )
    del source.graph.input[1:]
    for seed in range(6):

        def cost(one: Any, seed: int = seed) -> float:
            return 1e-6 * (1 + zlib.crc32(f"{seed} {one.op}".encode()) % 100)

        made = eqsat.optimize(source, measure=False, cost=cost).to_onnx()
        for m, n in ((2, 3), (0, 3), (2, 0), (0, 0), (1, 1)):
            x = np.random.default_rng(0).normal(size=(4, m, n, 1)).astype(np.float32)
            assert np.allclose(run(source, x=x)[0], run(made, x=x)[0], rtol=1e-5)


def test_batch_normalisation_of_a_vector_is_left_to_onnx_runtime() -> None:
    source = model("g (float[1] x, float[1] g) => (float[1] y) { t = Neg(x) \n y = BatchNormalization(t, g, g, g, g) }")
    x, g = np.float32([3]), np.float32([0.5])
    assert agree(source, eqsat.optimize(source, measure=False).to_onnx(), x=x, g=g)


@pytest.mark.parametrize(
    ("opset", "nodes"),
    [
        (21, "m = ReduceMean(x, k) \n d = Sub(x, m) \n s = Mul(d, d) \n v = ReduceMean(s, k)"),
        (24, "d = Identity(x) \n s = Mul(x, x) \n v = ReduceMean(s, k)"),
    ],
    ids=["layer", "rms"],
)
def test_an_epsilon_of_float64_keeps_its_digits(opset: int, nodes: str) -> None:
    """ONNX's attributes are float32: 0.001 as one is 5e-8 off, and a normalisation by its parts is not."""
    text = f"""g (double[2, 3] x) => (double[2, 3] y) <double e = {{0.001}}, int64[1] k = {{1}}> {{
        {nodes} \n a = Add(v, e) \n r = Sqrt(a) \n y = Div(d, r) }}"""
    source = model(text, opset, ir_version=10)
    result = eqsat.optimize(source, measure=False)
    assert any(node.op.endswith("_norm") for node in result.graph.nodes)
    x = np.array([[0.01, -0.02, 0.03], [1.0, 2.0, -4.0]])
    (old,), (new,) = run(source, x=x), run(result.to_onnx(), x=x)
    np.testing.assert_allclose(new, old, rtol=1e-12)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("bounds", [(1.0, -1.0), (0.1, 0.3), (-0.3, 0.1)])
def test_bounds_become_attributes_where_those_mean_the_same(bounds: tuple[float, float], kind: str) -> None:
    """Before opset 11 ONNX Runtime refuses a lower bound above the upper one, and attributes are float32."""
    low, high = bounds
    source = model(
        f"g ({kind}[n] x) => ({kind}[n] y) <{kind} a = {{{low}}}, {kind} b = {{{high}}}> {{ y = Clip(x, a, b) }}"
    )
    x = np.linspace(-2, 2, 33).astype({"float": np.float32, "double": np.float64}[kind])
    made = to_model(load(source), 8)
    assert agree(source, made, x=x)
    kept = kind == "float" and low < high
    assert ([n.op_type for n in made.graph.node] == ["Clip"]) == kept
    if not kept:
        with pytest.raises(ExportModelError, match="bounds that no attributes keep"):
            to_model(load(source), 7)


def test_a_dim_divided_by_one_that_may_be_0_is_written_before_opset_14() -> None:
    """Which form of a reshape runs at more sizes is asked at sizes where such a dim has no value, too."""
    source = model(
        """g (float[2, 4, n, 3, m] x) => (float[a, b] y) <int64[4] s = {0, 0, 0, -1}, int64[2] t = {2, -1}> {
            p = MaxPool<kernel_shape = [3, 1, 1]>(x) \n r = Reshape(p, s) \n e = Exp(r) \n y = Reshape(e, t) }""",
        10,
    )
    made = to_model(load(source))
    for n, m in ((3, 1), (5, 2)):
        assert agree(source, made, x=np.arange(24 * n * m, dtype=np.float32).reshape(2, 4, n, 3, m) / 99)


def test_an_old_distribution_over_dims_that_may_both_be_0_stays_one_operator() -> None:
    """No shape operand before opset 14 says which of two dims is 0, once something is done between the reshapes."""
    source = model(
        """g (float[n, 1, n, m] x) => (float[n, n, 1, m] y) <float two = {2.0}> {
            t = Transpose<perm = [0, 2, 1, 3]>(x) \n p = Pow(t, two) \n y = Hardmax<axis = 0>(p) }""",
        7,
        4,
    )
    made = eqsat.optimize(source, measure=False).to_onnx()
    for size in (0, 1, 3):
        assert agree(source, made, x=np.arange(2 * size * size, dtype=np.float32).reshape(size, 1, size, 2))


def test_attributes_of_no_elements_are_written() -> None:
    g = eqsat.Graph("none")
    g.output("y", eqsat.mvn(g.input("x", (2, 3)), axes=()))
    made = to_model(g.build())
    onnx.checker.check_model(made, full_check=True)
    (axes,) = made.graph.node[0].attribute
    assert (axes.name, axes.type, list(axes.ints)) == ("axes", onnx.AttributeProto.INTS, [])
    assert load(made).nodes[0].attrs["axes"] == ()
