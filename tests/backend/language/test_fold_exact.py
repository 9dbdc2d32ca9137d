"""What is computed ahead is what ONNX Runtime computes, to the last integer; what no two machines agree on stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_bytes
from eqsat.language.terms.graph import Graph

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
LARGEST = 2**63 - 1


def of_constants(op: str, *arrays: Any, **attrs: Any) -> ModelProto:
    """A model of one operator on constants alone."""
    names = [f"c{i}" for i in range(len(arrays))]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for a, n in zip(arrays, names, strict=True)]
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attrs)], "g", [], [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def folded(graph: Graph) -> Any:
    """The elements of the output where it is a constant, or None."""
    constant = graph.constants.get(graph.outputs["y"])
    return None if constant is None else constant.array


def run(model: bytes, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def edges(dtype: str) -> Any:
    limits = np.iinfo(dtype)
    wanted = (limits.min, limits.min + 1, -3, -1, 0, 1, 2, 7, 1 << 20, (1 << 53) + 1, limits.max - 1, limits.max)
    return np.array([n for n in wanted if limits.min <= n <= limits.max], dtype)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min", "BitwiseXor", "Less"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_arithmetic_on_integers_wraps_around_as_when_it_is_run(op: str, dtype: str) -> None:
    values = edges(dtype)
    model = of_constants(op, values[:, None], values[None, :])
    try:
        (expected,) = run(model.SerializeToString())
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        pytest.skip("ONNX Runtime has no kernel for the element type")
    assert np.array_equal(folded(load(model)), expected)


@pytest.mark.parametrize("op", ["Div", "Mod", "fmod", "Pow"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_quotients_and_powers_of_integers_are_those_of_onnx_runtime_or_stay(op: str, dtype: str) -> None:
    attrs = {"fmod": 1} if op == "fmod" else {}
    counts = {"folded": 0, "stays": 0}
    for a in edges(dtype):
        for b in edges(dtype):
            model = of_constants("Mod" if attrs else op, np.array([a]), np.array([b]), **attrs)
            known = folded(load(model))
            counts["stays" if known is None else "folded"] += 1
            if known is not None:
                # ONNX Runtime would end the process.
                assert op == "Pow" or (b != 0 and (int(a), int(b)) != (np.iinfo(dtype).min, -1))
                (expected,) = run(model.SerializeToString())
                assert np.array_equal(known, expected), (a, b)
    assert all(counts.values())


@pytest.mark.parametrize(("a", "b"), [(-7, 3), (7, -3), (-(2**31), 10), (2**53, -5)])
def test_fmod_has_the_sign_of_the_dividend(a: int, b: int) -> None:
    known = folded(load(of_constants("Mod", np.array([a]), np.array([b]), fmod=1)))
    assert known.tolist() == [abs(a) % abs(b) * (-1 if a < 0 else 1)]


@pytest.mark.parametrize("source", (*INTEGERS, *FLOATS))
@pytest.mark.parametrize("target", (*INTEGERS, *FLOATS, "bool"))
def test_a_cast_folds_to_what_onnx_runtime_makes_of_it_or_stays(source: str, target: str) -> None:
    special = [0.0, -0.0, 0.5, -0.99, 2.5, 127.5, -129, 256, 65520, 2.0**31, -(2.0**31), 2.0**63, 1e39, np.inf, np.nan]
    with np.errstate(over="ignore"):
        values = edges(source) if source in INTEGERS else np.array(special).astype(source)
    for value in values:
        model = of_constants("Cast", np.array([value]), to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
        known = folded(load(model))
        if known is not None:
            (expected,) = run(model.SerializeToString())
            assert known.dtype == expected.dtype
            assert known.tobytes() == expected.tobytes() or (np.isnan(value) and np.isnan(expected)), value


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("Div", ([5], [0]), {}),
        ("Mod", ([5], [0]), {}),
        ("Div", ([-(2**63)], [-1]), {}),
        ("Mod", ([2**53 + 1], [7]), {"fmod": 1}),
        ("BitShift", (np.uint32([1]), np.uint32([32])), {"direction": "LEFT"}),
        ("Cast", (np.float32([3e9]),), {"to": 6}),
        ("Cast", (np.float32([np.nan]),), {"to": 7}),
        ("Cast", (np.float32([-1.0]),), {"to": 2}),
        ("Cast", (np.float64([1 + 2**-11 + 2**-30]),), {"to": 10}),
        ("ReduceSum", ([LARGEST, 1], [0]), {}),
        ("ReduceProd", (np.int32([1 << 20, 1 << 20]), [0]), {}),
        ("ReduceMean", ([LARGEST, LARGEST], [0]), {}),
    ],
)
def test_what_machines_or_runtimes_disagree_on_is_left_to_the_program(
    op: str, operands: tuple[Any, ...], attrs: dict[str, Any]
) -> None:
    graph = load(of_constants(op, *operands, **attrs))
    assert folded(graph) is None
    assert len(graph.nodes) == 1


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd", "ReduceMean", "ReduceMax", "ReduceL1", "ReduceSumSquare"])
@pytest.mark.parametrize("row", [[3, 4, 5], [-3, 4, 2], [7, 7, 8], [0, 0, 0], [2**31 - 1, 1, 0], [-(2**31), -1, -1]])
def test_sums_of_integers_are_those_of_onnx_runtime_or_stay(op: str, row: list[int]) -> None:
    for dtype in ("int32", "int64"):
        model = of_constants(op, np.array([row], dtype), np.array([1]))
        known = folded(load(model))
        if known is not None:
            assert np.array_equal(known, run(model.SerializeToString())[0])


def test_numbers_beside_named_dims_wrap_around_too() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 70000] x) => (int64[1] y)
        <int64[1] one = {1}> {
            s = Shape(x)
            narrow = Cast<to = 6>(s)
            square = Mul(narrow, narrow)
            part = Gather<axis = 0>(square, one)
            y = Cast<to = 7>(part)
        }"""
    model = parser.parse_model(text)
    graph = load(model)
    x = np.zeros((2, 70000), np.float32)
    assert run(to_bytes(graph), x=x)[0].tolist() == run(model.SerializeToString(), x=x)[0].tolist()


@pytest.mark.parametrize("value", [LARGEST, -(2**63), 2**53 + 1])
def test_a_border_of_integers_is_exact(value: int) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (int64[2] x) => (int64[4] y) {
        a = Abs(x) \n b = Abs(a) \n y = Pad(b, pads, value) }"""
    model = parser.parse_model(text)
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.array([1, 1]), "pads"), numpy_helper.from_array(np.array(value), "value")]
    )
    (made,) = eqsat.optimize(model, measure=False).run(x=np.array([1, -2])).values()
    assert made.tolist() == [value, 1, 2, value]


BOUNDS = (0, 1, -1, 2, -4, 100, -100, 2**31 - 1, -(2**31) + 1, -(2**31), LARGEST, -(2**63), -LARGEST)


@pytest.mark.parametrize("step", [1, 2, -1, -2])
@pytest.mark.parametrize("start", BOUNDS)
def test_slices_of_a_named_dim_take_what_onnx_runtime_takes(start: int, step: int) -> None:
    """Any end, and dims of 0, 1 and more; the type says how many elements there are."""
    nodes = " ".join(
        f"s{i} = Constant<value_ints = [{start}]>() \n e{i} = Constant<value_ints = [{end}]>() \n"
        f"t{i} = Constant<value_ints = [{step}]>() \n y{i} = Slice(x, s{i}, e{i}, axis, t{i}) \n"
        for i, end in enumerate(BOUNDS)
    )
    outputs = ", ".join(f"float[k{i}] y{i}" for i in range(len(BOUNDS)))
    text = f"g (float[n] x) => ({outputs}) <int64[1] axis = {{0}}> {{ {nodes} }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    graph = load(model)
    written = to_bytes(graph)
    for size in (0, 1, 2, 5):
        x = np.arange(size, dtype=np.float32)
        pairs = zip(run(model.SerializeToString(), x=x), run(written, x=x), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs), size


def test_a_named_dim_turned_round_keeps_its_size() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[n] x) => (float[k] y)
        <int64[1] s = {-1}, int64[1] e = {-2147483647}, int64[1] axes = {0}> {
            a = Relu(x) \n b = Relu(a) \n y = Slice(b, s, e, axes, s) }"""
    result = eqsat.optimize(parser.parse_model(text), measure=False)
    assert str(result.graph.type(result.graph.outputs["y"])) == "float32[n]"
    (made,) = result.run(x=np.float32([1, 2, 3, 4, 5])).values()
    assert made.tolist() == [5, 4, 3, 2, 1]
    assert result.run(x=np.float32([]))["y"].shape == (0,)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_a_gemm_of_integers_is_what_onnx_runtime_makes_of_it(dtype: str) -> None:
    """Its kernel goes through floats where there is one; a product and a sum that become one gemm do not."""
    limits = np.iinfo(dtype)
    a, b = np.array([[limits.max, 2]], dtype), np.array([[3, limits.max], [limits.min, 1]], dtype)
    for alpha in (1.0, 2.0):
        source = of_constants("Gemm", a, b, np.array([1, limits.max], dtype), alpha=alpha)
        try:
            (expected,) = run(source.SerializeToString())
        except Exception:  # noqa: BLE001 - no kernel of this type
            continue
        for made in (to_bytes(load(source)), eqsat.optimize(source, measure=False).to_onnx().SerializeToString()):
            assert run(made)[0].tolist() == expected.tolist()
    source = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
            g ({dtype}[1, 2] x, {dtype}[2, 2] w, {dtype}[2] c) => ({dtype}[1, 2] y) {{
                t = MatMul(x, w) \n y = Add(t, c) }}"""
    )
    feeds = {"x": a, "w": b, "c": np.array([limits.max, 1], dtype)}
    gemm = eqsat.optimize(source, measure=False, cost=lambda one: 1e-6 if one.op == "gemm" else 1e-3)
    assert (
        run(gemm.to_onnx().SerializeToString(), **feeds)[0].tolist()
        == run(source.SerializeToString(), **feeds)[0].tolist()
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_mean_of_integers_is_what_onnx_runtime_makes_of_it(dtype: str) -> None:
    limits = np.iinfo(dtype)
    for elements in ([limits.max, limits.max, 5], [2**31 - 1, 2**31 - 3, 1], [-7, 2, 2], [limits.min, limits.min, 0]):
        source = of_constants("ReduceMean", np.array([elements], dtype), np.array([1]))
        (expected,) = run(source.SerializeToString())
        for made in (to_bytes(load(source)), eqsat.optimize(source, measure=False).to_onnx().SerializeToString()):
            assert run(made)[0].tolist() == expected.tolist()
