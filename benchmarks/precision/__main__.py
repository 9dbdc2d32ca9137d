"""The command of the benchmark of precisions."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import platformdirs
from rich.console import Console
from rich.progress import Progress

from benchmarks.models import MODELS
from benchmarks.precision.contenders import OURS
from benchmarks.precision.inputs import NETWORKS, TRAINED
from benchmarks.precision.marks import marks, table
from benchmarks.rows import document

RESULTS = Path(__file__).parents[1] / "results"
FOLDER = Path(platformdirs.user_cache_dir("eqsat")) / "precision"


@click.command()
@click.argument("models", nargs=-1, type=click.Choice([*NETWORKS, *TRAINED, *sorted({*MODELS} - {*NETWORKS})]))
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "precision.json")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Models made ready; kept.")
@click.option("--jobs", default=1, help="Models that are made ready at a time.")
@click.option("--make/--no-make", default=True, help="Make models ready that are not yet; else only time.")
def main(models: tuple[str, ...], target: Path, folder: Path, jobs: int, make: bool) -> None:
    """Makes models ready in lower precisions, then times all of each in one interleaved run on one thread.

    Weights and inputs of most are random: errors compare the contenders, and say nothing of accuracy. Trained models,
    of packages, read lines that are drawn, hear a synthetic voice and tell files apart: the share of right answers is
    given. The budget of eqsat is the error of the faster of ONNX Runtime's two quantisers; of trained models it is told
    none. Models that are ready in the folder are not made again: remove it to begin anew. Rows of other models that the
    file holds already stay in it.
    """
    names = models or (*NETWORKS, *TRAINED)
    console = Console(width=220, stderr=True)
    steps = [("quantised", name) for name in names] + [("optimised", name, kind) for kind in OURS for name in names]
    steps = steps if make else []
    with Progress(console=console) as progress, ThreadPoolExecutor(jobs) as pool:
        task = progress.add_task("made ready", total=len(steps))
        for step in (steps[: len(names)], steps[len(names) :]):
            for place, said in enumerate(pool.map(lambda one: _step(folder, *one), step)):
                progress.advance(task)
                if not isinstance(said, dict):
                    console.print(f"{' '.join(step[place][1:])}: {said}")
    rows: list[dict[str, Any]] = json.loads(target.read_text())["models"] if target.exists() else []
    order = {name: place for place, name in enumerate((*NETWORKS, *TRAINED))}
    with Progress(console=console) as progress:
        task = progress.add_task("timed", total=len(names))
        for name in names:
            row = _step(folder, "measured", name)
            row = row if isinstance(row, dict) else {"model": name, "failed": row}
            rows = sorted((*(r for r in rows if r["model"] != name), row), key=lambda r: order.get(r["model"], 99))
            found = document(rows)
            found["versions"]["openvino"] = _openvino()
            target.write_text(json.dumps(found | {"marks": marks(rows)}, indent=1) + "\n", encoding="utf-8")
            progress.advance(task)
    shown = Console(width=220)
    shown.print(table(rows))
    for mark, value in marks(rows).items():
        shown.print(f"{mark}: {value}")


def _step(folder: Path, step: str, name: str, *more: str) -> Any:
    """The outcome of a step for a model in a process of its own; the last line of its error where it fails."""
    code = (
        "import json, pathlib, sys; from benchmarks.precision import steps; "
        f"print(json.dumps(steps.{step}(sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:]) or {{}}))"
    )
    command = [sys.executable, "-c", code, name, str(folder / name), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def _openvino() -> str:
    from importlib.metadata import version

    return version("openvino")


if __name__ == "__main__":
    main()
