"""Optimises two real models and runs both versions of each, old and new, on ONNX Runtime: `make demo`.

With `--record`, the ratios go into `benchmarks/results/demo.json`, one row a processor; README states their range.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx

from benchmarks.models import load
from eqsat import cli
from eqsat.costs.table.environment import cpu_model
from eqsat.language.onnx.read.importer import load as read
from eqsat.report.units import duration
from eqsat.runtime.examples import example_inputs
from eqsat.runtime.measure import Timings, interleaved
from eqsat.runtime.onnxruntime.session import session

FOLDER = Path("demo")
RESULTS = Path(__file__).parent / "results" / "demo.json"
MODELS = {
    "sru_text_classifier": "an SRU text classifier: one shared weight over 20 time steps, built here without a network",
    "light_squeezenet": "SqueezeNet, from the onnx package",
}
ROUNDS, SECONDS = 60, 10.0


def main(arguments: Sequence[str] = ()) -> int:
    FOLDER.mkdir(exist_ok=True)
    summary, timed = [], {}
    for name, what in MODELS.items():
        old, new = FOLDER / f"{name}.onnx", FOLDER / f"{name}.opt.onnx"
        print(f"\n== {what}\n$ eqsat optimize {old} -o {new}", flush=True)
        onnx.save(load(name), old)
        code = cli.run(["optimize", str(old), "-o", str(new), "--json", str(FOLDER / f"{name}.json")])
        if code:
            return code
        timed[name], line = compare(name, old, new)
        summary.append(line)
    print("\n== both versions in one interleaved run on ONNX Runtime, one thread, level “all”")
    print("\n".join(summary))
    if "--record" in arguments:
        record(timed)
    return 0


def record(timed: dict[str, Timings]) -> None:
    """Writes the ratios of this processor beside those of others."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    cpu = cpu_model()
    row = {"cpu": cpu, "onnxruntime": metadata.version("onnxruntime"), "models": {}}
    for name, timings in timed.items():
        row["models"][name] = {
            "old": timings.median("old"),
            "new": timings.median("new"),
            "ratio": timings.ratio("new", "old"),
            "ratio_bound": timings.ratio_bound("new", "old"),
        }
    rows = sorted([*(r for r in rows if r["cpu"] != cpu), row], key=lambda r: r["cpu"])
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def compare(name: str, old: Path, new: Path) -> tuple[Timings, str]:
    """Times both files in turn on the same inputs, and says how far their outputs are apart."""
    graph = read(old)
    feeds = example_inputs(graph, {}, seed=1)
    sessions = {"old": session(old, threads=1), "new": session(new, threads=1)}
    results = {version: each.run(list(graph.outputs), feeds) for version, each in sessions.items()}
    error = max(_relative(a, b) for a, b in zip(results["new"], results["old"], strict=True))
    calls = {version: lambda each=each: each.run(None, feeds) for version, each in sessions.items()}
    timings = interleaved(calls, ROUNDS, time_limit=SECONDS)
    before, after = timings.median("old"), timings.median("new")
    line = (
        f"{name:<20} {duration(before):>8} -> {duration(after):>8}   new/old {timings.ratio('new', 'old'):.3f}, "
        f"at most {timings.ratio_bound('new', 'old'):.3f} (95 %)   outputs differ by {error:.0e}"
    )
    return timings, line


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    scale = float(np.linalg.norm(b.astype(np.float64)))
    return float(np.linalg.norm(a.astype(np.float64) - b.astype(np.float64))) / (scale or 1.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
