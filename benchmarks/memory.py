"""Memory and seconds of `optimize` by phase, on models in files, each in a process of its own.

`python -m benchmarks.memory [MODEL …]` writes each model once with its weights inside and once with them in another
file, and gives the path to a call that measures and to one that does not. What one session of ONNX Runtime takes for
the same file stands beside it. Figures are above what the process takes once eqsat, or onnxruntime, is imported. It
needs Linux, which tells the largest memory since a moment.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import onnx
from rich.console import Console
from rich.progress import track
from rich.table import Table

RESULT = Path(__file__).parent / "results" / "memory.json"
NAMES = ("bert_base", "resnet50", "squeezenet1_1")
#: Seconds of a call: so many that all finalists of the largest are timed on a busy machine.
LIMIT = 120.0
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
#: The calls and the session that are looked at.
KINDS = ("session", "unmeasured", "measured")


@dataclass(frozen=True)
class Part:
    """A phase: its largest memory and that at its end in MB, and its seconds of CPU."""

    phase: str
    peak: float
    end: float
    seconds: float


class Watch:
    """Memory and seconds of phases that follow each other."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._before = _megabytes("VmRSS")
        self._begin("begin")

    def next(self, phase: str) -> None:
        """End the phase before, and begin another, unless it goes on."""
        if phase == self._phase:
            return
        now, peak = _megabytes("VmRSS"), _megabytes("VmHWM")
        seconds = time.process_time() - self._begun
        self.parts.append(Part(self._phase, peak - self._before, now - self._before, seconds))
        self._begin(phase)

    def _begin(self, phase: str) -> None:
        _RESET.write_text("5")  # what was the largest memory begins anew
        self._phase, self._begun = phase, time.process_time()


def _megabytes(name: str) -> float:
    """A figure of this process's memory, in MB of 10^6 bytes."""
    lines = (line.split() for line in _STATUS.read_text().splitlines())
    return next(int(words[1]) * 1024 / 1e6 for words in lines if words[0] == f"{name}:")


def watched(path: Path, kind: str) -> dict[str, Any]:
    """The phases of one call, or of a session, in this process."""
    if kind == "session":
        import onnxruntime

        watch = Watch()
        watch.next("session")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        watch.next("end")
        assert session
        return {"phases": [asdict(part) for part in watch.parts[1:]]}
    import eqsat

    _ = eqsat.optimize
    watch = Watch()
    result = eqsat.optimize(
        path,
        measure=kind == "measured",
        cache=False,
        device="onnxruntime-cpu",
        time_limit=LIMIT,
        progress=lambda now: watch.next(now.phase),
    )
    watch.next("end")
    timed = sum(one.measured is not None for one in result.report.finalists)
    return {"phases": [asdict(part) for part in watch.parts], "kept": result.report.kept, "timed": timed}


def row(path: Path, kind: str) -> dict[str, Any]:
    """The figures of one call, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--inside", kind, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    size = sum(file.stat().st_size for file in path.parent.iterdir()) / 1e6
    peak = max(part["peak"] for part in found["phases"])
    seconds = sum(part["seconds"] for part in found["phases"])
    return {"file": path.parent.name, "kind": kind, "size": size, "peak": peak, "seconds": seconds, **found}


def files(name: str, folder: Path) -> Iterator[Path]:
    """A model written with its weights inside, and with them in another file."""
    from benchmarks.models import load

    model = load(name)
    for kind in ("inside", "beside"):
        path = folder / kind / "model.onnx"
        path.parent.mkdir()
        onnx.save(model, path, save_as_external_data=kind == "beside", location="model.data", size_threshold=1024)
        yield path


@click.command()
@click.argument("models", nargs=-1)
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULT, show_default=True)
@click.option("--inside", type=click.Choice(KINDS), hidden=True, help="Watch a file in this process, print JSON.")
def main(models: tuple[str, ...], target: Path, inside: str | None) -> None:
    """Watch the memory of calls on models, and tabulate it; rows of other models that the file holds stay in it."""
    if inside is not None:
        click.echo(json.dumps(watched(Path(models[0]), inside)))
        return
    kept = json.loads(target.read_text())["models"] if target.exists() else {}
    console = Console(width=160)
    for name in track(models or NAMES, description="models"):
        with tempfile.TemporaryDirectory(prefix="eqsat-memory-") as folder:
            kept[name] = [row(path, kind) for path in files(name, Path(folder)) for kind in KINDS]
        document = {"machine": platform.processor() or platform.machine(), "limit": LIMIT, "models": kept}
        target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        console.print(table(name, kept[name]))


def table(name: str, rows: list[dict[str, Any]]) -> Table:
    """The rows of a model: the largest memory, its share of the file, and both by phase."""
    made = Table(title=f"{name}, {rows[0]['size']:.0f} MB", box=None)
    for heading in ("weights", "call", "peak MB", "peak/file", "CPU s", "timed", "peak MB (CPU s) by phase"):
        made.add_column(heading, justify="left" if heading in ("weights", "call") or "by" in heading else "right")
    for one in rows:
        phases = ", ".join(f"{p['phase']} {p['peak']:.0f} ({p['seconds']:.1f})" for p in one["phases"])
        ratio = one["peak"] / one["size"]
        shown = (f"{one['peak']:.0f}", f"{ratio:.2f}", f"{one['seconds']:.1f}", str(one.get("timed", "")))
        made.add_row(one["file"], one["kind"], *shown, phases)
    return made


if __name__ == "__main__":
    main()
