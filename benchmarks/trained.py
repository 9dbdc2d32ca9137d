"""Trained models that packages ship, taken through `eqsat optimize` with its defaults.

`python -m benchmarks.trained [--time-bound SECONDS] [--json FILE] [MODEL …]` installs packages without their
dependencies into folders of their own below the user's cache, finds the models in them, optimises each in a process of
its own, and prints a table and writes it as JSON. No model is copied anywhere else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import click
import platformdirs
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rows import document

RESULTS = Path(__file__).parent / "results"
#: Packages that hold models, each with the version that the figures are of.
PACKAGES = {"silero-vad": "6.2.3", "rapidocr-onnxruntime": "1.4.4", "magika": "1.0.3"}
#: What a report calls what it warns of, where a model was not measured or not checked.
_LACKING = ("not measured", "could not be checked", "is not checked", "may not run")


@click.command()
@click.argument("models", nargs=-1)
@click.option("--time-bound", default=300.0, help="Seconds after which a run is ended, and said not to end.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "trained.json")
def main(models: tuple[str, ...], time_bound: float, target: Path) -> None:
    """Optimises the models of packages, all or those named, and tabulates what came of it."""
    found = {path.stem: (package, path) for package in PACKAGES for path in models_of(package)}
    unknown = [m for m in models if m not in found]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(found)}")
    rows: list[dict[str, Any]] = []
    for name in track(models or tuple(found), description="models"):
        package, path = found[name]
        rows.append({"model": name, "package": f"{package} {PACKAGES[package]}", **optimised(path, time_bound)})
    Console(width=200).print(table(rows))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document(rows), indent=1) + "\n")


def models_of(package: str) -> list[Path]:
    """The ONNX files of a package, installed first where it is not there in its version."""
    folder = installed(package, PACKAGES[package])
    return sorted(folder.rglob("*.onnx"))


def installed(package: str, version: str) -> Path:
    """The folder of a package without its dependencies, installed there first where it is not there in its version."""
    folder = Path(platformdirs.user_cache_dir("eqsat")) / "trained" / f"{package}-{version}"
    if not any(d.version == version for d in distributions(path=[str(folder)])):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*command, f"{package}=={version}"], check=True)
    return folder


def optimised(path: Path, time_bound: float) -> dict[str, Any]:
    """The figures of one model: how the run ended, what the report says, and its seconds."""
    with tempfile.TemporaryDirectory(prefix="eqsat-trained-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "eqsat", "optimize", str(path), "-o", str(Path(folder) / "out.onnx")]
        environment = {**os.environ, "EQSAT_COST_TABLE": os.environ.get("EQSAT_COST_TABLE", ":memory:")}
        start = time.monotonic()
        try:
            done = subprocess.run(
                [*command, "--json", str(report)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=time_bound,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"outcome": f"not ended after {time_bound:g} s", "seconds": round(time.monotonic() - start, 1)}
        seconds = round(time.monotonic() - start, 1)
        if not report.exists():
            said = next((line for line in done.stderr.splitlines() if "rror" in line), f"exit code {done.returncode}")
            return {"outcome": f"failed: {said}", "exit": done.returncode, "seconds": seconds}
        return {"exit": done.returncode, **figures(json.loads(report.read_text())), "seconds": seconds}


def figures(report: dict[str, Any]) -> dict[str, Any]:
    """What a report says that the table shows."""
    before, after = report["measured_before"], report["measured_after"]
    lacking = [w for w in report["warnings"] if any(words in w for words in _LACKING)]
    opaque: dict[str, int] = {}
    for node in report["opaque"]:
        opaque[node["op"]] = opaque.get(node["op"], 0) + 1
    faster = report["measured_bound"] is not None and report["measured_bound"] < 1
    return {
        "outcome": "faster" if faster else "as it was" if report["kept"] == "original" else "changed, not measured",
        "kept": report["kept"],
        "new/old": None if not before else round(after / before, 3),
        "bound": None if before is None else round(report["measured_bound"], 3),
        "measured at": report["measured_at"],
        "certificate": report["certificate"]["kind"],
        "nodes": [report["nodes_before"], report["nodes_after"]],
        "opaque": dict(sorted(opaque.items())),
        "lacking": lacking,
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows as people read them."""
    shown = Table(title="Trained models of packages, eqsat optimize with its defaults")
    columns = (
        "model",
        "outcome",
        "kept",
        "new/old",
        "bound",
        "measured at",
        "certificate",
        "opaque",
        "lacking",
        "seconds",
    )
    for column in columns:
        shown.add_column(column)
    for row in rows:
        cells = []
        for column in columns:
            value = row.get(column)
            if isinstance(value, dict):
                value = ", ".join(f"{count} {op}" for op, count in value.items())
            elif isinstance(value, list):
                value = "; ".join(value)
            cells.append("" if value is None else str(value))
        shown.add_row(*cells)
    return shown


if __name__ == "__main__":
    main()
