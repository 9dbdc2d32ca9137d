"""A model past 2 GB, with external data: read, optimised within a limit, written, and read back.

`python -m benchmarks.large_file [--gigabytes N]` makes a model with lookups in tables of half a gigabyte each, in a
sparse file, and prints the seconds and the memory of each step. What is written must compute what was read.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import eqsat

_ROWS, _WIDTH = 1 << 17, 1 << 10


@click.command()
@click.option("--gigabytes", default=2.5, help="Size of the external data.")
@click.option("--limit", default=20.0, help="Seconds of the call.")
def main(gigabytes: float, limit: float) -> None:
    """Takes a large model through a call."""
    with tempfile.TemporaryDirectory(prefix="eqsat-large-") as folder:
        path, target = Path(folder) / "model.onnx", Path(folder) / "out.onnx"
        with step("make"):
            make(path, round(2 * gigabytes))
        with step("optimise"):
            result = eqsat.optimize(path, time_limit=limit)
        report = result.report
        click.echo(f"  kept {report.kept}: {report.kept_because}; {report.nodes_before} -> {report.nodes_after} nodes")
        click.echo(f"  {dict(report.seconds)}; skipped: {list(report.skipped)}; warnings: {list(report.warnings)}")
        with step("write"):
            result.save(target)
        sizes = {file.name: file.stat().st_size for file in target.parent.iterdir()}
        click.echo(f"  files: {sizes}")
        with step("compare"):
            np.testing.assert_allclose(outputs(target), outputs(path), rtol=1e-5, atol=1e-5)
        click.echo("  what was written computes what was read")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Prints what a step took, and the most memory that the process has used."""
    start = time.monotonic()
    yield
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    click.echo(f"{name}: {time.monotonic() - start:.1f} s, at most {most:.1f} GB of memory so far")


def make(path: Path, count: int) -> None:
    """Writes a model of lookups in `count` tables, whose data are one sparse file with some rows that are not zero."""
    size = 4 * _ROWS * _WIDTH
    data, rng = path.with_suffix(".data"), np.random.default_rng(0)
    with data.open("wb") as file:
        file.truncate(count * size)
        for index in range(count):
            file.seek(index * size)
            file.write(rng.standard_normal((8, _WIDTH)).astype(np.float32).tobytes())
    nodes, held, value = [], [], ""
    for index in range(count):
        table = TensorProto(name=f"table{index}", data_type=TensorProto.FLOAT, dims=[_ROWS, _WIDTH])
        table.data_location = TensorProto.EXTERNAL
        for key, entry in (("location", data.name), ("offset", index * size), ("length", size)):
            table.external_data.add(key=key, value=str(entry))
        held.append(table)
        nodes.append(helper.make_node("Gather", [f"table{index}", "ids"], [f"rows{index}"]))
        nodes.append(helper.make_node("Transpose", [f"rows{index}"], [f"turned{index}"], perm=[1, 0]))
        nodes.append(helper.make_node("Transpose", [f"turned{index}"], [f"back{index}"], perm=[1, 0]))
        if index:
            nodes.append(helper.make_node("Add", [value, f"back{index}"], [f"sum{index}"]))
        value = f"sum{index}" if index else "back0"
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [4])
    out = helper.make_tensor_value_info(value, TensorProto.FLOAT, [4, _WIDTH])
    graph = helper.make_graph(nodes, "lookups", [ids], [out], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def outputs(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The outputs of a file for fixed ids."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = session.run(None, {"ids": np.array([0, 3, 5, 7])})[0]
    return found


if __name__ == "__main__":
    main()
