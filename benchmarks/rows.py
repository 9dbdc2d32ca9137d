"""Rows of benchmark files: a model taken through steps, each in a process of its own."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.models import MODELS

#: Batch 16 of the large convolutional networks takes minutes a run; they are there by name.
DEFAULT = [n for n in MODELS if not n.endswith("_batch16")]


def row(name: str, folder: Path, steps: Iterable[str]) -> dict[str, Any]:
    """What the steps of `benchmarks.step` say of a model; the folder is empty before and after."""
    found: dict[str, Any] = {"model": name}
    for step in steps:
        command = [sys.executable, "-m", "benchmarks.step", step, name, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            found["failed"] = f"{step}: {said[-1] if said else done.returncode}"
            break
        found |= json.loads(done.stdout.splitlines()[-1])
    for path in folder.iterdir():
        path.unlink()
    return found


def document(rows: list[dict[str, Any]], peers: Iterable[str] = ()) -> dict[str, Any]:
    """Rows with when and on what they were measured; of `peers` the versions of those installed are added."""
    from importlib.metadata import PackageNotFoundError, version

    from eqsat.costs.table.environment import cpu_model

    versions = {p: version(p) for p in ("eqsat", "egglog", "onnx", "onnxruntime", "numpy", "highspy")}
    for peer in peers:
        with suppress(PackageNotFoundError):
            versions[peer] = version(peer)
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "python": platform.python_version(),
        "versions": versions,
        "models": rows,
    }
