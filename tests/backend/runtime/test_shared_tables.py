"""Tables of which sessions read rows: all read them where eqsat has mapped them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from eqsat.language.onnx.files import apart
from eqsat.language.onnx.files.apart import ModelApart, given_apart, with_tensors_apart
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import assemble
from eqsat.runtime.onnxruntime.session import SessionBackend, SessionProgram, session
from eqsat.system.mapped import mapped

ROWS, WIDTH = 4096, 1100
TABLE = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
INDICES = np.array([7, 0, ROWS - 1])


def lookup(*more: NodeProto, output: str = "rows") -> onnx.ModelProto:
    """Rows of a table of 18 MB, and what else reads it."""
    nodes = [helper.make_node("Gather", ["table", "i"], ["rows"]), *more]
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, [3])]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "lookup", inputs, outputs, [numpy_helper.from_array(TABLE, "table")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(model: onnx.ModelProto, path: Path, beside: bool = False) -> Path:
    onnx.save(model, path, save_as_external_data=beside, location="table.data")
    return path


@pytest.mark.parametrize("beside", [False, True], ids=["inside", "beside"])
def test_the_model_as_given_and_as_written_read_one_table(tmp_path: Path, beside: bool) -> None:
    path = saved(lookup(), tmp_path / "model.onnx", beside)
    graph = load(path)
    written, given = with_tensors_apart(*assemble(graph)), given_apart(path, TABLE.nbytes)
    assert isinstance(given, ModelApart)
    (one,), (other,) = written.tables.values(), given.tables.values()
    assert np.shares_memory(one.array, other.array)
    programs = [SessionBackend().compile(graph, threads=1), SessionProgram.of_given(graph, path, threads=1)]
    for program in programs:
        np.testing.assert_array_equal(program.run({"i": INDICES})["rows"], TABLE[INDICES])


def test_a_session_keeps_its_table(tmp_path: Path) -> None:
    path = saved(lookup(), tmp_path / "model.onnx")
    made = SessionProgram.of_given(load(path), path, threads=1).session
    path.unlink()
    gc.collect()
    np.testing.assert_array_equal(made.run(None, {"i": INDICES})[0], TABLE[INDICES])


def body(name: str) -> Any:
    """A body that reads the table around it."""
    number = f"{name} number"
    nodes = [
        helper.make_node("Constant", [], [number], value_int=0),
        helper.make_node("Gather", ["table", number], [f"{name} row"]),
    ]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name} row", TensorProto.FLOAT, None)])


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ([helper.make_node("Transpose", ["table"], ["t"]), helper.make_node("MatMul", ["rows", "t"], ["y"])], "y"),
        ([helper.make_node("Identity", ["rows"], ["y"])], "table"),
        (
            [
                helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
                helper.make_node("If", ["yes"], ["y"], then_branch=body("one"), else_branch=body("two")),
            ],
            "y",
        ),
    ],
    ids=["multiplied too", "an output", "a body reads it"],
)
def test_a_table_that_may_be_read_otherwise_is_left_to_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[NodeProto], output: str
) -> None:
    monkeypatch.setattr(apart, "SHARED_BYTES", 0)
    path = saved(lookup(*more, output=output), tmp_path / "model.onnx")
    given = given_apart(path)
    assert isinstance(given, ModelApart) and not given.tables
    session(given, threads=1).run(None, {"i": INDICES})


def test_a_file_is_mapped_once_unless_another_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    first = mapped(path)
    assert mapped(path) is first
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "other").replace(path)
    other = mapped(path)
    assert other is not first
    assert (bytes(first.bytes), bytes(other.bytes)) == (b"first", b"other")
