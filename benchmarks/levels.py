"""Models at the levels of ONNX Runtime's graph optimisation, in sessions made anew.

`python -m benchmarks.levels [--json FILE] [MODEL …]` times each model as it is given at "extended" and "basic" beside
"all", as a run times its result, and prints a table and writes it as JSON. No model is changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from onnx import ModelProto
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsat
from benchmarks.models import MODELS
from benchmarks.rows import document
from eqsat.language.onnx.read.model import read
from eqsat.language.sizes.solve import sizing_of
from eqsat.report.timing.levels import LevelTrial
from eqsat.runtime.examples import SizePoint
from eqsat.system.deadline import TimeUp

RESULTS = Path(__file__).parent / "results"
#: Seconds that the trials of a model may take.
SECONDS = 120.0


def convolutions(channels: int, size: int) -> ModelProto:
    """Three convolutions of many channels on few pixels, as at the end of a detector."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph(f"convolutions_{channels}_on_{size}x{size}")
    x = g.input("x", (1, channels, size, size))
    for _ in range(3):
        w = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / np.float32(3 * channels**0.5)
        x = eqsat.relu(eqsat.conv(x, g.constant(w), pads=(1, 1, 1, 1)))
    g.output("y", x)
    return eqsat.optimize(g.build(), measure=False, rules=(), cache=False).to_onnx()


#: Models besides those of other benchmarks.
SMALL = {f"convolutions_{c}_on_{s}x{s}": (c, s) for c, s in ((512, 4), (256, 4), (512, 7))}
NAMES = (*SMALL, *(name for name in MODELS if not name.endswith("_batch16")))


@click.command()
@click.argument("models", nargs=-1)
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "levels.json")
def main(models: tuple[str, ...], target: Path) -> None:
    """Times models at all levels, all or those named, and tabulates what came of it."""
    unknown = [m for m in models if m not in NAMES]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(NAMES)}")
    rows = [measured(name) for name in track(models or NAMES, description="models")]
    Console(width=160).print(table(rows))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document(rows), indent=1) + "\n")


def measured(name: str) -> dict[str, Any]:
    """The levels of a model, as a report lists them."""
    model = convolutions(*SMALL[name]) if name in SMALL else MODELS[name]()
    graph = read(model).graph
    trial = LevelTrial(graph, graph, True, model, (SizePoint(sizing_of(graph).near()),), 0, 1, 1e-4, seconds=SECONDS)
    try:
        levels = [row.as_dict() for row in trial.measured()]
    except TimeUp:
        return {"model": name, "levels": [], "failed": f"not timed within {SECONDS:g} s"}
    return {"model": name, "levels": levels}


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="time over that at the level all")
    for title in ("model", "level", "ratio", "at most (95 %)", "sessions", "why"):
        shown.add_column(title)
    for row in rows:
        if "failed" in row:
            shown.add_row(row["model"], "", "", "", "", row["failed"])
        for one in row["levels"]:
            ratio, bound = (f"{one[key]:.3f}" if key in one else "" for key in ("ratio", "bound"))
            shown.add_row(row["model"], one["name"], ratio, bound, str(one["sessions"] or ""), one["why"])
    return shown


if __name__ == "__main__":
    main()
