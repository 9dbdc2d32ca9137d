"""Results in operators of ONNX Runtime's own against the original and against results without them.

`python -m benchmarks.fused [MODEL …]` optimises transformers as PyTorch exports them now, once as is and once portable,
runs the three in turn on one thread at ONNX Runtime's level "all", compares their outputs, and says which operators
ONNX Runtime ends up running.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

import eqsat
from benchmarks.coverage.sources import exported
from benchmarks.models import FIXTURES, load
from benchmarks.rows import document
from eqsat.language.onnx.read.model import read
from eqsat.runtime.measure import interleaved
from eqsat.runtime.onnxruntime.session import SessionProgram, session
from eqsat.steps.sizes import points_for

RESULTS = Path(__file__).parent / "results"
#: Models of two layers that the coverage benchmark exports, and a whole one that is committed without its weights.
MODELS = ("bert_dynamo", "minilm_dynamo", "roberta_dynamo", "vit_dynamo", "dinov2_dynamo", "clip_vision_dynamo")
COMMITTED = ("bert_base_dynamo",)
_ROUNDS, _SECONDS = 120, 20.0


@click.command()
@click.argument("models", nargs=-1)
@click.option("--python", type=click.Path(path_type=Path), help="An interpreter with PyTorch, to export models with.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "fused.json")
def main(models: tuple[str, ...], python: Path | None, target: Path) -> None:
    """Compares both kinds of results with the original, for all models or those named."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="eqsat-fused-") as folder:
        for name in models or (*MODELS, *COMMITTED):
            rows.append(_row(name, _file(name, Path(folder), python), Path(folder)))
            click.echo(f"{name}: portable {rows[-1]['portable']['ratio']}, own {rows[-1]['own']['ratio']}")
            target.write_text(json.dumps(document(rows), indent=1) + "\n")
    _show(rows)


def _file(name: str, folder: Path, python: Path | None) -> Path:
    if (FIXTURES / f"{name}.onnx").exists():
        path = folder / f"{name}.onnx"
        onnx.save(load(name), path)
        return path
    return next(path for path in exported(python).rglob("*.onnx") if path.stem == name)


def _row(name: str, path: Path, folder: Path) -> dict[str, Any]:
    """The figures of a model: ratios are medians of new/old in one round, errors the largest differences."""
    given = read(path)
    files = {"original": path}
    for kind in ("portable", "own"):
        files[kind] = folder / f"{name}_{kind}.onnx"
        eqsat.optimize(path, portable=kind == "portable").save(files[kind])
    programs = {kind: SessionProgram(given.graph, session(file, threads=1)) for kind, file in files.items()}
    (point,), _ = points_for(given, {})
    feeds = point.inputs(given.graph, 0)
    made = {kind: program.run(feeds) for kind, program in programs.items()}
    calls = {kind: program.bind(feeds) for kind, program in programs.items()}
    timings = interleaved(calls, _ROUNDS, 0, clock="thread", time_limit=_SECONDS)
    row: dict[str, Any] = {"model": name, "sizes": dict(point.sizes), "rounds": timings.rounds}
    for kind in files:
        row[kind] = {
            "ms": round(1e3 * timings.median(kind), 3),
            "ratio": round(timings.ratio(kind, "original"), 4),
            "bound": round(timings.ratio_bound(kind, "original"), 4) if kind != "original" else 1.0,
            "error": max(float(np.abs(made[kind][o] - made["original"][o]).max()) for o in made["original"]),
            "written": _domain_operators(onnx.load(files[kind], load_external_data=False)),
            "run": _domain_operators(_as_run(files[kind], folder)),
        }
    return row


def _domain_operators(model: onnx.ModelProto) -> dict[str, int]:
    """How often each operator of ONNX Runtime's own occurs, and ONNX's Attention."""
    found = Counter(n.op_type for n in model.graph.node if n.domain == "com.microsoft" or n.op_type == "Attention")
    return dict(sorted(found.items()))


def _as_run(path: Path, folder: Path) -> onnx.ModelProto:
    """The model as ONNX Runtime's own optimisations leave it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "run.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "run.data")
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "run.onnx", load_external_data=False)


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="new/old on ONNX Runtime, one thread: in ONNX's operators alone, and in its own too")
    for column in ("model", "original ms", "portable", "own", "bound", "error", "written", "run by the original"):
        table.add_column(column, justify="left" if column in ("model", "written", "run by the original") else "right")
    for row in rows:
        own = row["own"]
        said = [", ".join(f"{n} {op}" for op, n in of.items()) for of in (own["written"], row["original"]["run"])]
        figures = (row["original"]["ms"], row["portable"]["ratio"], own["ratio"], own["bound"], f"{own['error']:.1e}")
        table.add_row(row["model"], *map(str, figures), *said)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
