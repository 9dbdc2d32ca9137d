"""A model past 2 GB, where a protobuf message ends: its data lie beside it, when it is read and when it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

#: A table of int8 whose last rows lie past 2 GiB.
WIDTH = 1 << 10
ROWS = (1 << 21) + 1000
#: The memory that the whole command may take; the data that are read are a sparse file.
MEMORY = 6 << 30
#: The command, and then what Linux says of its own memory: a parent's counts in what `wait4` says of a child.
_RUN = """
import sys
from eqsat.cli import run

code = run(sys.argv[1:])
print(open("/proc/self/status").read())
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that is emptied after the test: pytest keeps those of the last runs."""
    yield tmp_path
    for file in tmp_path.iterdir():
        file.unlink()


def rows_of(places: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    """The rows of the table that are not zero, each of numbers of its own."""
    return ((places[:, None] * 31 + np.arange(WIDTH) * 7) % 251 - 125).astype(np.int8)


def lookup(path: Path, places: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    """Writes a model that looks rows up and turns them twice; its table is a sparse file with a few rows."""
    data = path.with_suffix(".data")
    with data.open("wb") as file:
        file.truncate(ROWS * WIDTH)
        for place, row in zip(places.tolist(), rows_of(places), strict=True):
            file.seek(place * WIDTH)
            file.write(row.tobytes())
    table = TensorProto(name="table", data_type=TensorProto.INT8, dims=[ROWS, WIDTH])
    table.data_location = TensorProto.EXTERNAL
    for key, entry in (("location", data.name), ("offset", 0), ("length", ROWS * WIDTH)):
        table.external_data.add(key=key, value=str(entry))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        helper.make_node("Transpose", ["turned"], ["back"], perm=[1, 0]),
        helper.make_node("Cast", ["back"], ["y"], to=TensorProto.FLOAT),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [len(places) + 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(places) + 2, WIDTH])
    graph = helper.make_graph(nodes, "lookup", [ids], [y], [table])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_a_model_past_2_gb_is_read_optimised_and_written(folder: Path) -> None:
    """On the command line, within the memory of three copies; what is written computes what was read."""
    given, made = folder / "big.onnx", folder / "out.onnx"
    places = np.array([0, 7, ROWS // 2, (1 << 21) - 1, 1 << 21, ROWS - 1])
    lookup(given, places)
    # Steps, since a busy machine may take longer than the usual limit for what is nothing but copies.
    command = [sys.executable, "-c", _RUN, "optimize", str(given), "-o", str(made), "--no-measure"]
    done = subprocess.run([*command, "--steps", "100000"], stdout=subprocess.PIPE, text=True, check=True)
    assert "2 transpose -> nothing" in done.stdout
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", done.stdout)
    assert int(peak) << 10 < MEMORY

    model = onnx.load(made, load_external_data=False)
    assert [node.op_type for node in model.graph.node] == ["Gather", "Cast"]
    assert [t.data_location for t in model.graph.initializer] == [TensorProto.EXTERNAL]
    assert made.stat().st_size < 1 << 20 < 1 << 31 < (folder / "out.onnx.data").stat().st_size
    given.with_suffix(".data").unlink()  # nothing is left to the data that were read
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    zeros = np.array([1, ROWS - 2])
    (rows,) = session.run(None, {"ids": np.concatenate([places, zeros])})
    np.testing.assert_array_equal(rows, [*rows_of(places), *np.zeros((2, WIDTH))])
