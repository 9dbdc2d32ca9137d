"""How well sums of operator costs predict whole graphs: `python -m benchmarks.predict [MODEL …]`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.models import MODELS
from eqsat.costs.model.fit import nonnegative
from eqsat.costs.table.environment import Environment

RESULTS = Path(__file__).parent / "results"
#: Batches of 16 take minutes a run, and 48 layers a gigabyte; they are there by name.
DEFAULT = [n for n in MODELS if not n.endswith("_batch16") and n != "bert_48_layers"]

Row = dict[str, Any]


@click.command()
@click.argument("models", nargs=-1)
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "predict.json")
def main(models: tuple[str, ...], target: Path) -> None:
    """Measures operators and whole graphs on ONNX Runtime, one thread, and compares sums with wholes.

    The operators go into the default cost table. Rows of other models that the file holds already stay in it, if they
    are of this environment. `load` is the machine's load average when a whole was timed, 1 where nothing else ran.
    """
    unknown = [m for m in models if m not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(MODELS)}")
    environment = asdict(Environment.current())
    kept = json.loads(target.read_text()) if target.exists() else {"environment": environment, "models": []}
    rows = {row["model"]: row for row in kept["models"] if kept["environment"] == environment}
    with tempfile.TemporaryDirectory(prefix="eqsat-predict-") as folder:
        for name in track(models or DEFAULT, description="models"):
            rows[name] = _row(name, Path(folder))
            found = {"environment": environment, "when": datetime.now(UTC).isoformat(timespec="seconds")}
            found |= summary(list(rows.values())) | {"models": list(rows.values())}
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(found, indent=1) + "\n")
    show(found)


def _row(name: str, folder: Path) -> Row:
    for step in ("build", "predict"):
        command = [sys.executable, "-m", "benchmarks.step", step, name, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            # An error of eqsat goes on in lines that are indented.
            lines = [line for line in done.stderr.splitlines() if line and not line.startswith(" ")]
            return {"model": name, "failed": f"{step}: {lines[-1] if lines else done.returncode}", "forms": {}}
    for path in folder.iterdir():
        path.unlink()
    return {"model": name, **json.loads(done.stdout.splitlines()[-1])}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The fit of wholes by sums and kernels, and by which factor each way of predicting misses."""
    forms = [(row["model"], form) for row in rows for form in row["forms"].values()]
    if not forms:
        return {"fit": None, "errors": {}}
    plain = [form["sum"] / form["measured"] for _, form in forms]
    held = []
    for model, form in forms:
        # A model is predicted by what the others gave.
        a, b = fit([f for m, f in forms if m != model] or [form])
        held.append((a * form["sum"] + b * form["kernels"]) / form["measured"])
    a, b = fit([form for _, form in forms])
    changes = [row["forms"] for row in rows if "optimised" in row["forms"]]
    moved = [_change(f, "sum") / _change(f, "measured") for f in changes]
    errors = {"sum": _errors(plain), "fit, model held back": _errors(held)}
    return {"fit": {"a": a, "b": b}, "errors": errors | ({"new/old": _errors(moved)} if moved else {})}


def fit(forms: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """The factors of 0 or more for which a * sum + b * kernels is nearest to the times measured, in relative terms."""
    terms = np.array([[f["sum"], f["kernels"]] for f in forms]) / np.array([[f["measured"]] for f in forms])
    a, b = nonnegative(terms, np.ones(len(forms)))
    return float(a), float(b)


def _change(forms: Mapping[str, Any], of: str) -> float:
    return float(forms["optimised"][of] / forms["original"][of])


def _errors(ratios: Sequence[float]) -> dict[str, float]:
    missed = [abs(math.log(r)) for r in ratios]
    return {name: math.exp(float(np.quantile(missed, q))) for name, q in (("median", 0.5), ("p90", 0.9), ("most", 1.0))}


def show(found: Mapping[str, Any]) -> None:
    """Prints the rows and what they come to."""
    out = Console(width=130)
    table = Table(title="sums of operator costs against whole graphs, ONNX Runtime, one thread")
    table.add_column("model")
    table.add_column("graph")
    for heading in (
        "kernels",
        "estimated",
        "sum ms",
        "whole ms",
        "sum/whole",
        "fit/whole",
        "new/old by sum",
        "measured",
    ):
        table.add_column(heading, justify="right")
    for row in found["models"]:
        if "failed" in row:
            table.add_row(row["model"], row["failed"])
        for name, form in row["forms"].items():
            fitted = found["fit"]["a"] * form["sum"] + found["fit"]["b"] * form["kernels"]
            ratios = [f"{_change(row['forms'], of):.2f}" for of in ("sum", "measured")] if name == "optimised" else []
            table.add_row(
                row["model"] if name == "original" else "",
                name,
                str(form["kernels"]),
                f"{100 * form['estimated_share']:.0f} %",
                *(f"{1e3 * form[of]:.3g}" for of in ("sum", "measured")),
                *(f"{seconds / form['measured']:.2f}" for seconds in (form["sum"], fitted)),
                *ratios,
            )
    out.print(table)
    if found["fit"] is not None:
        a, b = found["fit"]["a"], found["fit"]["b"]
        out.print(f"whole = {a:.3f} * sum + {1e9 * b:.0f} ns * kernels")
    for name, error in found["errors"].items():
        factors = ", ".join(f"{value:.2f} {of}" for of, value in error.items())
        out.print(f"{name}: missed by a factor of {factors}")


if __name__ == "__main__":
    main()
