"""Seconds and bytes of each phase on transformers of 10³, 10⁴ and 10⁵ nodes, each call in a process of its own.

`python -m benchmarks.growth [--nodes N …]` takes each size three ways: `parts` reads, looks for equal blocks, encodes,
exports and writes the whole graph, with no rule; `blocks` is a call of `optimize`, in which equal blocks stand for each
other; `whole` is the same call with every block in the e-graph, as of a model that has no equal blocks. Seconds are
those of the processor. Memory is what a phase added at its peak to what was held before it. A size is what a
process was given; nothing is extrapolated in the file. It needs Linux, which tells the largest memory since a moment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import onnx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.long_models import transformer
from benchmarks.memory import Part, Watch
from benchmarks.rows import document

RESULT = Path(__file__).parent / "results" / "growth.json"
SIZES = (1_000, 10_000, 100_000)
WAYS = ("parts", "blocks", "whole")
#: Seconds of a call, the e-nodes that it may grow to for each node of the model, and the most that it may have.
LIMIT, ENODES, MOST = 240.0, 12, 200_000
#: Width and heads of the models: narrow, so that nodes are what there is most of.
WIDTH, HEADS = 16, 4


@click.command()
@click.option("--nodes", "sizes", type=int, multiple=True, default=SIZES, help="Nodes of a model; repeatable.")
@click.option("--way", "ways", type=click.Choice(WAYS), multiple=True, default=WAYS, help="What to do; repeatable.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULT, show_default=False)
@click.option("--inside", type=(click.Choice(WAYS), click.Path(path_type=Path)), hidden=True)
def main(sizes: tuple[int, ...], ways: tuple[str, ...], target: Path, inside: tuple[str, Path] | None) -> None:
    """Measures phases at each size; rows of other sizes and ways that the file holds already stay in it."""
    if inside is not None:
        way, path = inside
        click.echo(json.dumps(_parts(path) if way == "parts" else _call(path, way)))
        return
    rows = json.loads(target.read_text())["models"] if target.exists() else []
    with tempfile.TemporaryDirectory(prefix="eqsat-growth-") as folder:
        for size in track(sizes, description="sizes"):
            path = Path(folder) / f"{size}.onnx"
            onnx.save(_model(size), path)
            for way in ways:
                row = {"size": size, "way": way, **_apart(way, path)}
                rows = [one for one in rows if (one["size"], one["way"]) != (size, way)] + [row]
                rows.sort(key=lambda one: (one["size"], WAYS.index(one["way"])))
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(json.dumps(document(rows), indent=1) + "\n")
            path.unlink()
    Console(width=180).print(_table(rows))


def _model(size: int) -> onnx.ModelProto:
    """A transformer of at least so many nodes."""
    first, second = (len(transformer(layers, WIDTH, HEADS).graph.node) for layers in (1, 2))
    return transformer(1 + -(-(size - first) // (second - first)), WIDTH, HEADS)


def _apart(way: str, path: Path) -> dict[str, Any]:
    """The figures of one way, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", "--inside", way, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _parts(path: Path) -> dict[str, Any]:
    """Reading, looking for blocks, encoding, exporting and writing, one after the other."""
    from eqsat.egraph.encode import encode
    from eqsat.egraph.engine import load
    from eqsat.egraph.snapshot import snapshot
    from eqsat.language.graphs.repeats import condensed
    from eqsat.language.onnx.read.importer import load as read
    from eqsat.language.onnx.write.exporter import save

    load()
    watch = Watch()
    watch.next("read")
    graph = read(path)
    watch.next("blocks")
    found = condensed(graph)
    watch.next("encode")
    encoding = encode(graph)
    watch.next("export")
    frozen = snapshot(encoding)
    watch.next("write")
    save(graph, path.with_suffix(".again.onnx"))
    watch.next("end")
    path.with_suffix(".again.onnx").unlink()
    return {
        "nodes": len(graph.nodes),
        "enodes": len(frozen.nodes),
        "kept_nodes": len(found.graph.nodes) if found is not None else len(graph.nodes),
        "phases": _phases(watch.parts[1:]),
    }


def _call(path: Path, way: str) -> dict[str, Any]:
    """A whole call from file to file, by phase; costs are those that come with eqsat."""
    from eqsat.options.options import Options
    from eqsat.run import Opened

    watch = Watch()
    nodes = len(onnx.load(path, load_external_data=False).graph.node)
    options = Options(
        measure=False,
        cache=False,
        threads=1,
        table=":memory:",
        time_limit=LIMIT,
        node_limit=max(20_000, min(ENODES * nodes, MOST)),
        progress=lambda now: watch.next(now.phase),
    )
    watch.next("read")
    run = Opened.of(path, options).run().with_bodies()
    result = (run.with_blocks() if way == "blocks" else run).result()
    watch.next("write")
    result.save(path.with_suffix(".new.onnx"))
    watch.next("end")
    path.with_suffix(".new.onnx").unlink()
    report = result.report
    return {
        "nodes": len(run.given.graph.nodes),
        "enodes": report.enodes,
        "stopped_by": report.stopped_by,
        "extraction": report.extraction,
        "gap": report.gap,
        "kept": report.kept,
        "outcome": report.failure or "",
        "skipped": list(report.skipped),
        "node_limit": options.node_limit,
        "time_limit": options.time_limit,
        "phases": _phases(watch.parts[1:]),
    }


def _phases(parts: list[Part]) -> dict[str, dict[str, float]]:
    """Seconds of each phase, and the bytes that it added at its peak and at its end; a phase may come in parts."""
    found: dict[str, dict[str, float]] = {}
    before = 0.0
    for part in parts:
        row = found.setdefault(part.phase, {"seconds": 0.0, "peak": 0.0, "held": 0.0})
        row["seconds"] += asdict(part)["seconds"]
        row["peak"] = max(row["peak"], 1e6 * (part.peak - before))
        row["held"] += 1e6 * (part.end - before)
        before = part.end
    return found


def _table(rows: list[dict[str, Any]]) -> Table:
    """The rows as people read them: seconds, and microseconds and bytes for each node of the model."""
    shown = Table("size", "way", "phase", title="Phases by the size of a model")
    for column in ("s", "µs a node", "bytes a node, peak", "bytes a node, held"):
        shown.add_column(column, justify="right")
    for row in rows:
        for phase, one in row["phases"].items():
            shares = (1e6 * one["seconds"], one["peak"], one["held"])
            cells = (f"{share / row['nodes']:,.0f}" for share in shares)
            shown.add_row(f"{row['nodes']:,}", row["way"], phase, f"{one['seconds']:.2f}", *cells)
        shown.add_row("", row["way"], f"e-nodes {row['enodes']:,}", row.get("stopped_by", ""), row.get("kept", ""))
    return shown


if __name__ == "__main__":
    main()
