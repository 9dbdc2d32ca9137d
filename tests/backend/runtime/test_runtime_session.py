"""Graphs on ONNX Runtime: the same outputs as the reference, its element types, its refusals."""

import gc

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat.errors import BackendError, UsageError
from eqsat.language.onnx.files import apart
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms import Attrs, Constant, DType, Graph, Node, TensorType
from eqsat.runtime.backend import execute, select
from eqsat.runtime.measure import interleaved

ON_CPU = ("onnxruntime", "numpy")


def graph_of(op: str, *types: TensorType, result: TensorType, constants=(), **attrs) -> Graph:
    names = [f"x{i}" for i in range(len(types))]
    held = dict(constants)
    return Graph(
        "one",
        tuple(n for n in names if n not in held),
        {"out": "y"},
        (Node(op, tuple(names), ("y",), Attrs(attrs)),),
        held,
        {**dict(zip(names, types, strict=True)), "y": result},
    )


def dense(n: int = 64) -> Graph:
    weight = Constant.of(np.random.default_rng(0).normal(size=(n, n)).astype(np.float32))
    tall = TensorType.of("float32", ("n", n))
    return graph_of("matmul", tall, weight.type, result=tall, constants={"x1": weight}.items())


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_both_backends_agree(threads):
    x = np.random.default_rng(1).normal(size=(5, 64)).astype(np.float32)
    made = [execute(dense(), {"x0": x}, name, threads=threads)["out"] for name in ON_CPU]
    np.testing.assert_allclose(made[0], made[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ON_CPU)
def test_an_output_may_be_an_input_or_a_constant_and_serve_twice(name):
    types = {"x": TensorType.of("float32", (2,)), "c": TensorType.of("int64", (1,))}
    constant = Constant.of(np.int64([7]))
    graph = Graph("plain", ("x",), {"a": "x", "b": "x", "k": "c"}, (), {"c": constant}, types)
    made = execute(graph, {"x": np.float32([1, 2])}, name)
    assert list(made) == ["a", "b", "k"]
    np.testing.assert_array_equal(made["a"], made["b"])
    np.testing.assert_array_equal(made["k"], [7])


@pytest.mark.parametrize(
    "dtype", [d for d in DType if d.value in ("bfloat16", "float8e4m3fn", "float8e5m2", "float16")]
)
@pytest.mark.parametrize("name", ON_CPU)
def test_element_types_that_numpy_lacks_go_in_and_come_out(dtype, name):
    flat, square = TensorType(dtype, (4,)), TensorType(dtype, (2, 2))
    x = np.arange(4).astype(dtype.numpy)
    made = execute(graph_of("reshape", flat, result=square, shape=(2, 2)), {"x0": x}, name)["out"]
    assert made.dtype == dtype.numpy
    np.testing.assert_array_equal(made.astype(np.float32), np.float32([[0, 1], [2, 3]]))


def test_a_bound_program_keeps_foreign_inputs():
    kind = TensorType.of("bfloat16", (4,))
    program = select("onnxruntime").compile(graph_of("reshape", kind, result=kind, shape=(4,)), threads=1)
    timings = interleaved({"it": program.bind({"x0": np.ones(4, ml_dtypes.bfloat16)})}, rounds=5)
    assert timings.rounds == 5


@pytest.mark.parametrize("shared", [1, 512])
def test_tensors_of_large_models_are_read_where_they_are(monkeypatch, shared):
    monkeypatch.setattr(apart, "COPIED_BYTES", 1000)
    monkeypatch.setattr(apart, "SHARED_BYTES", shared)
    x = np.ones((3, 64), np.float32)
    expected = execute(dense(), {"x0": x}, "numpy")["out"]
    program = select("onnxruntime").compile(dense())
    gc.collect()
    np.testing.assert_allclose(program.run({"x0": x})["out"], expected, rtol=1e-4, atol=1e-5)


def test_a_graph_that_onnx_runtime_lacks_operators_for_is_refused_with_a_remedy():
    kind = TensorType.of("int32", (1, 4, 8, 8))
    graph = graph_of(
        "conv",
        kind,
        TensorType.of("int32", (4, 4, 1, 1)),
        result=kind,
        strides=(),
        pads=(),
        dilations=(),
        group=1,
        activation="none",
    )
    with pytest.raises(BackendError, match="ONNX Runtime refuses the graph") as caught:
        select("onnxruntime").compile(graph)
    assert caught.value.where == "one"
    assert caught.value.remedy == "run it on the backend 'numpy'"


def test_a_failure_while_it_runs_is_an_error_too():
    types = TensorType.of("float32", (3,)), TensorType.of("int64", (1,))
    graph = graph_of("gather", *types, result=TensorType.of("float32", (1,)), axis=0)
    with pytest.raises(BackendError, match="ONNX Runtime failed: "):
        execute(graph, {"x0": np.ones(3, np.float32), "x1": np.int64([9])}, "onnxruntime")


def test_a_number_of_threads_below_one_is_refused():
    with pytest.raises(UsageError, match="threads = 0"):
        execute(dense(), {"x0": np.ones((1, 64), np.float32)}, threads=0)


def doubling(times: int) -> onnx.ModelProto:
    """Two numbers joined to themselves so many times: no file is smaller for what it asks for."""
    steps = [helper.make_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(times)]
    last = helper.make_node("Add", ["x", f"v{times}"], ["y"])
    graph = helper.make_graph(
        [*steps, last],
        "doubling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2 << times])],
        [helper.make_tensor("v0", TensorProto.FLOAT, [2], [1, 2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_constants_larger_than_memory_are_refused_before_a_session_computes_them():
    y = execute(load(doubling(20)), {"x": np.float32([1])}, "onnxruntime")["y"]
    assert y.shape == (1 << 21,)
    with pytest.raises(BackendError, match=r"constants take more than the memory of this machine, [0-9.]+ GB") as error:
        select("onnxruntime").compile(load(doubling(50)))
    assert "concat" in str(error.value) and "doubling" in str(error.value)


def overridable() -> onnx.ModelProto:
    """Sum of x and an initializer that is an input too, 5 unless a caller says otherwise."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "d"], ["y"])],
        "overridable",
        [info("x", TensorProto.FLOAT, [2]), info("d", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
        [helper.make_tensor("d", TensorProto.FLOAT, [2], [5, 5])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", ON_CPU)
def test_an_input_with_a_default_may_be_left_out_or_given(name):
    program = select(name).compile(load(overridable()))
    x = np.float32([1, 2])
    np.testing.assert_array_equal(program.run({"x": x})["y"], [6, 7])
    np.testing.assert_array_equal(program.run({"x": x, "d": x})["y"], [2, 4])
    with pytest.raises(BackendError, match="input 'x' is missing"):
        program.run({"d": x})


@pytest.mark.parametrize("name", ON_CPU)
def test_an_unknown_custom_operator_is_named_by_either_backend(name):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Swirl", ["x"], ["y"], domain="acme")],
        "custom",
        [info("x", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    loaded = load(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    with pytest.raises(BackendError, match="Swirl"):
        execute(loaded, {"x": np.float32([1, 2])}, name)
