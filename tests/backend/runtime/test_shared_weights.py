"""Weights of large models: read where they lie in their file, by eqsat and by sessions of ONNX Runtime alike."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.errors import BackendError, ExportModelError, ImportModelError
from eqsat.language.onnx.files.apart import ModelApart, given_apart, with_tensors_apart
from eqsat.language.onnx.files.reader import stored
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import assemble
from eqsat.runtime.onnxruntime.session import SessionBackend, SessionProgram

WIDTH, LAYERS = 1024, 5
X = np.random.default_rng(1).normal(size=(3, WIDTH)).astype(np.float32)


def layers() -> onnx.ModelProto:
    """Products by 20 MB of weights, and two transpositions that cancel."""
    rng = np.random.default_rng(0)
    nodes = []
    for i in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [f"y{i - 1}" if i else "x", f"w{i}"], [f"p{i}"]))
        nodes.append(helper.make_node("Relu", [f"p{i}"], [f"y{i}"]))
    nodes += [helper.make_node("Transpose", [f"y{LAYERS - 1}"], ["t"], perm=[1, 0])]
    nodes += [helper.make_node("Transpose", ["t"], ["out"], perm=[1, 0])]
    weights = [rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 32 for _ in range(LAYERS)]
    held = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    info = helper.make_tensor_value_info
    inputs, outputs = (info(n, TensorProto.FLOAT, ["n", WIDTH]) for n in ("x", "out"))
    graph = helper.make_graph(nodes, "layers", [inputs], [outputs], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """The model in memory."""
    return layers()


@pytest.fixture(params=["inside", "beside", "split"])
def path(request: pytest.FixtureRequest, tmp_path: Path, model: onnx.ModelProto) -> Path:
    """The model in a file, its weights inside, in another file, or some here and some there."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    path = tmp_path / "model.onnx"
    if request.param == "inside":
        onnx.save(copy, path)
        return path
    onnx.external_data_helper.convert_model_to_external_data(copy, location="weights/w.data")
    (tmp_path / "weights").mkdir()
    if request.param == "split":
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(model.graph.initializer)
        copy.graph.initializer.append(numpy_helper.from_array(np.ones((WIDTH, 64), np.float32), "more"))
        onnx.external_data_helper.set_external_data(copy.graph.initializer[0], "weights/w.data")
    onnx.save(copy, path)
    return path


def outputs(model: Any) -> Any:
    """The outputs as a plain session of ONNX Runtime makes them."""
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]


def test_constants_share_memory_with_the_file_and_the_result_computes_the_same(
    path: Path, model: onnx.ModelProto
) -> None:
    result = eqsat.optimize(path, measure=False, cache=False, device="onnxruntime-cpu")
    weights = [c for c in result.graph.constants.values() if c.nbytes >= 4 * WIDTH * WIDTH]
    assert len(weights) == LAYERS and all(c.place is not None for c in weights)
    assert all(np.shares_memory(c.array, c.place.file.bytes) for c in weights if c.place is not None)
    assert all(not c.array.flags.writeable for c in weights)
    np.testing.assert_array_equal(result.run(x=X)["out"], outputs(model))


def test_sessions_read_weights_from_the_file_and_make_the_same_bits(path: Path, model: onnx.ModelProto) -> None:
    graph = load(path)
    parts = with_tensors_apart(*assemble(graph))
    assert not parts.held and parts.folder is not None
    assert parts.model.ByteSize() < 10_000
    np.testing.assert_array_equal(SessionBackend().compile(graph, threads=1).run({"x": X})["out"], outputs(model))
    given = SessionProgram.of_given(graph, path, threads=1)
    np.testing.assert_array_equal(given.run({"x": X})["out"], outputs(model))
    opened = given_apart(path)
    assert opened is path or (isinstance(opened, ModelApart) and not opened.held)


def test_sessions_of_a_model_in_memory_hold_its_bytes_once(model: onnx.ModelProto) -> None:
    whole = stored(model)
    parts = given_apart(whole)
    assert isinstance(parts, ModelApart) and len(parts.held) == LAYERS and parts.folder is None
    buffer = np.frombuffer(whole.data, np.uint8)
    assert all(np.shares_memory(c.array, buffer) for c in parts.held.values())
    program = SessionProgram.of_given(load(model), whole, threads=1)
    np.testing.assert_array_equal(program.run({"x": X})["out"], outputs(model))


def test_a_file_that_another_takes_the_place_of_stays_what_was_read(tmp_path: Path, model: onnx.ModelProto) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    graph = load(path)
    other = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in other.graph.initializer:
        tensor.raw_data = bytes(len(tensor.raw_data))
    onnx.save(other, tmp_path / "other.onnx")
    (tmp_path / "other.onnx").replace(path)
    assert set(with_tensors_apart(*assemble(graph)).held) == set(graph.constants)
    np.testing.assert_array_equal(SessionBackend().compile(graph, threads=1).run({"x": X})["out"], outputs(model))


def test_a_file_that_was_written_over_is_told_where_its_weights_would_be_used(
    tmp_path: Path, model: onnx.ModelProto
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    result = eqsat.optimize(path, measure=False, cache=False, device="onnxruntime-cpu")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    told = "the file was written over since the model was read"
    with pytest.raises(ImportModelError, match=told):
        result.run(x=X)
    with pytest.raises(ImportModelError, match=told) as caught:
        result.compile("onnxruntime")
    assert caught.value.where == str(path) and "another file" in caught.value.remedy
    with pytest.raises(ExportModelError, match=told):
        result.save(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_a_file_that_is_gone_is_refused_by_the_runtime(tmp_path: Path, model: onnx.ModelProto) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    graph = load(path)
    path.unlink()
    with pytest.raises(BackendError, match="ONNX Runtime refuses the graph"):
        SessionProgram.of_given(graph, path, threads=1)
    np.testing.assert_array_equal(SessionBackend().compile(graph, threads=1).run({"x": X})["out"], outputs(model))


def test_files_are_closed_once_nothing_is_read_from_them(tmp_path: Path, model: onnx.ModelProto) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)

    def is_open() -> bool:
        return any(Path(one.path) == path for one in psutil.Process().open_files())

    graph = load(path)
    assert is_open()
    del graph
    gc.collect()
    assert not is_open()


def test_small_files_are_read_whole_and_may_be_written_over(tmp_path: Path) -> None:
    w = np.ones((64, 64), np.float32)
    info = helper.make_tensor_value_info
    ends = [info("x", TensorProto.FLOAT, [3, 64])], [info("y", TensorProto.FLOAT, [3, 64])]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "small", *ends, [numpy_helper.from_array(w, "w")])
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    made = load(path)
    path.write_bytes(b"")
    assert made.constants["w"].place is None
    np.testing.assert_array_equal(made.constants["w"].array, w)
