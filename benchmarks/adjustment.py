"""INT8 with and without adjusted weights on a skewed depthwise network: `python -m benchmarks.adjustment`.

A small network of depthwise and pointwise convolutions is trained on the handwritten digits that scikit-learn ships.
Channels before its depthwise layers are then scaled by factors over four decades, with the inverse in these layers: the
same function, as trained networks with folded normalisations often have it. eqsat writes it on integers, for the least
bytes of weights, so that every product is quantised, and judges by digits that neither training nor calibration saw.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.digits import TRAINED, Network, digits, trained
from benchmarks.trained import installed

RESULTS = Path(__file__).parent / "results"
#: The package with the digits, in the version that the figures are of.
PACKAGE, VERSION = "scikit-learn", "1.9.1"
#: Images in a batch, batches of the images for training that are calibrated on, and decades of the factors.
ROWS, CALIBRATION, DECADES = 16, 24, 4.0
#: Adjustments of weights by the name of their row.
ADJUSTMENTS: Mapping[str, tuple[str, ...]] = {
    "INT8": (),
    "INT8, rounding and biases": ("round",),
    "INT8, equalisation": ("equalise",),
    "INT8, all adjustments": ("equalise", "round"),
}
#: What is least: bytes of weights, and of equal choices the time, so that every product is quantised that can be.
OBJECTIVE = {"weight_memory": 1.0, "time": 1e5}
#: An error that no choice comes to: what every rounding does to accuracy is the question here.
_ANY = 1e3

Row = dict[str, Any]


@click.command()
@click.option("--seeds", default=3, help="Networks that are trained, each from other weights and with other factors.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "adjustment.json")
def main(seeds: int, target: Path) -> None:
    """Trains, skews and quantises, and tabulates accuracies on the test and bytes of weights."""
    from eqsat.costs.table.environment import cpu_model
    from eqsat.runtime.onnxruntime.saturation import saturates

    images, answers = digits(installed(PACKAGE, VERSION))
    rows: list[Row] = []
    for seed in range(seeds):
        network = trained(images[:TRAINED], answers[:TRAINED], seed)
        for name, one in (("trained", network), ("skewed", network.skewed(DECADES, seed))):
            rows += [{"network": name, "seed": seed} | row for row in quantised(one, images, answers)]
    Console(width=160).print(table(rows))
    found = {
        "cpu": cpu_model(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": f"{PACKAGE} {VERSION}, digits: {TRAINED} for training, {len(images) - TRAINED} for the test",
        "bits": 7 if saturates() else 8,
        "decades": DECADES,
        "rows": rows,
    }
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def quantised(network: Network, images: np.ndarray[Any, Any], answers: np.ndarray[Any, Any]) -> list[Row]:
    """The rows of a network: as it is, and on integers with each set of adjustments."""
    import eqsat
    from eqsat.costs.kernels.precision import POLICIES
    from eqsat.runtime.backend import select

    graph = network.graph(ROWS)
    batches = [{"x": images[ROWS * k : ROWS * (k + 1)]} for k in range(CALIBRATION)]
    before = select().compile(graph, threads=1)
    stated = _sizes([constant.array for constant in graph.constants.values()])
    rows: list[Row] = [{"kind": "float32", "right": _right(before, images, answers), "weights": 1.0, "size": 1.0}]
    for kind, adjust in ADJUSTMENTS.items():
        result = eqsat.optimize(
            graph,
            precision=dataclasses.replace(POLICIES["int8"], adjust=adjust),
            calibration=batches,
            limits={"error": _ANY},
            objective=OBJECTIVE,
            time_limit=300.0,
            threads=1,
            cache=False,
        )
        weights, every = _sizes(_saved(result))
        row: Row = {"kind": kind, "right": _right(result, images, answers)}
        row |= {"weights": weights / stated[0], "size": every / stated[1]}
        rounding = result.report.rounding
        if rounding is not None:
            row |= {"integers": dict(rounding.integers), "kept": {k: dict(v) for k, v in rounding.kept.items()}}
            row |= {"error": rounding.worst, "equalised": rounding.equalised}
        row |= {"certificate": result.report.certificate.text, "warnings": list(result.report.warnings)}
        rows.append(row)
    return rows


def table(rows: Sequence[Row]) -> Table:
    """A row for each network and adjustment: the share of right answers, the mean over seeds and each; the worst error,
    the values with scaled channels, and the bytes of weights, and of all constants, over those in float32."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("network", "kind", "right", "of each", "error", "scaled", "weights", "all", "on integers"):
        shown.add_column(heading, justify="left" if heading in ("network", "kind", "on integers") else "right")
    for key in dict.fromkeys((row["network"], row["kind"]) for row in rows):
        some = [row for row in rows if (row["network"], row["kind"]) == key]
        rights = [row["right"] for row in some]
        errors = [row["error"] for row in some if "error" in row]
        counts = ", ".join(f"{n} {op}" for op, n in some[0].get("integers", {}).items())
        shown.add_row(
            *key,
            f"{np.mean(rights):.1%}",
            " ".join(f"{right:.1%}" for right in rights),
            f"{max(errors):.3f}" if errors else "",
            str(max(row.get("equalised", 0) for row in some)),
            f"{np.mean([row['weights'] for row in some]):.1%}",
            f"{np.mean([row['size'] for row in some]):.1%}",
            counts,
        )
    return shown


def _right(program: Any, images: np.ndarray[Any, Any], answers: np.ndarray[Any, Any]) -> float:
    """The share of images of the test whose largest output is their digit; the last batch is filled up."""
    rights: list[bool] = []
    for start in range(TRAINED, len(images), ROWS):
        batch = images[start : start + ROWS]
        full = np.concatenate([batch, np.zeros((ROWS - len(batch), *batch.shape[1:]), batch.dtype)])
        feeds = {"x": full}
        outputs = program.run(**feeds) if hasattr(program, "report") else program.run(feeds)
        told = np.asarray(outputs["y"])[: len(batch)].argmax(axis=1)
        rights += (told == answers[start : start + ROWS]).tolist()
    return float(np.mean(rights))


def _saved(result: Any) -> list[np.ndarray[Any, Any]]:
    """The constants of a result as it is saved."""
    with tempfile.TemporaryDirectory(prefix="eqsat-adjustment-") as folder:
        result.save(path := Path(folder) / "digits.onnx")
        return [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]


def _sizes(constants: Sequence[np.ndarray[Any, Any]]) -> tuple[int, int]:
    """Bytes of weights, which have two axes or more, and of all constants: biases and scales as well."""
    return sum(one.nbytes for one in constants if one.ndim > 1), sum(one.nbytes for one in constants)


if __name__ == "__main__":
    main()
