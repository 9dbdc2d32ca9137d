"""INT8 as eqsat chooses it against ONNX Runtime's own quantisers: `python -m benchmarks.precision [MODEL …]`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from onnx import ModelProto
from rich.console import Console
from rich.table import Table

from benchmarks.models import MODELS, load

RESULTS = Path(__file__).parent / "results"
DEFAULT = ("resnet50", "mobilenet_v2", "squeezenet1_1", "bert_base", "vit_base", "inception_v3", "vgg19", "llama")
#: Batches of random inputs: some to calibrate on, others to judge all by.
CALIBRATION, HELD_BACK = 12, 6
#: Seconds of the interleaved run.
SECONDS = 40.0
#: The largest error that eqsat is given as a budget, where a quantiser loses more.
MOST = 0.5

Row = dict[str, Any]
Batch = dict[str, Any]


@click.command()
@click.argument("models", nargs=-1, type=click.Choice(list(MODELS)))
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "precision.json")
def main(models: tuple[str, ...], target: Path) -> None:
    """Quantises models by each, and times all in one interleaved run on one thread, beside float32.

    Weights and inputs are random: errors compare the quantisers, and say nothing of accuracy. The budget of eqsat is
    the error of the faster of ONNX Runtime's two, of those that are not slower than float32. Rows of other models that
    the file holds already stay in it.
    """
    from eqsat.costs.table.environment import cpu_model

    rows: list[Row] = json.loads(target.read_text())["models"] if target.exists() else []
    for name in models or DEFAULT:
        command = [sys.executable, "-c", f"from benchmarks.precision import measured; measured({name!r})"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
        row = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {"model": name, "failed": said}
        rows = [*(r for r in rows if r["model"] != name), row]
        found = {"cpu": cpu_model(), "when": datetime.now(UTC).isoformat(timespec="seconds"), "models": rows}
        target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        Console(width=140).print(table(rows))


def table(rows: Sequence[Row]) -> Table:
    """A row for each model: time over float32 with its upper 95 % bound, and the error on data held back."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("model", "static", "error", "dynamic", "error", "eqsat", "error", "predicted", "on integers"):
        shown.add_column(heading, justify="left" if heading in ("model", "on integers") else "right")
    for row in rows:
        if "failed" in row:
            shown.add_row(row["model"], row["failed"])
            continue
        cells = [row["model"]]
        for name in ("static", "dynamic", "eqsat"):
            one = row.get(name, {})
            cells += [f"{one['ratio']:.2f}", f"{one['error']:.3f}"] if one.get("ratio") else [one.get("said", "-"), ""]
        rounding = row["eqsat"].get("rounding") or {}
        counts = ", ".join(f"{n} {op}" for op, n in rounding.get("integers", {}).items())
        shown.add_row(*cells, f"{rounding['predicted']:.3f}" if rounding else "", counts)
    return shown


def measured(name: str) -> None:
    """Print the row of one model as JSON."""
    with tempfile.TemporaryDirectory(prefix="eqsat-precision-") as folder:
        print(json.dumps(_row(name, Path(folder))))


def _row(name: str, folder: Path) -> Row:
    import eqsat
    from eqsat.runtime.measure import interleaved

    model = load(name)
    whole = folder / "model.onnx"
    onnx.save(model, whole, save_as_external_data=True, location="model.data")
    data = list(batches(model, CALIBRATION + HELD_BACK))
    calibration, held = data[:CALIBRATION], data[CALIBRATION:]
    programs: dict[str, Any] = {"float32": _session(whole)}
    row: Row = {"model": name}
    for kind in ("static", "dynamic"):
        try:
            programs[kind] = _session(_quantised(kind, whole, folder, calibration))
        except Exception as error:  # noqa: BLE001 - a quantiser that fails is a row of the table
            row[kind] = {"said": f"{type(error).__name__}: {error}"[:80]}
    errors = {kind: _errors(session, programs["float32"], held) for kind, session in programs.items()}
    first = interleaved({k: _bound(s, held[0]) for k, s in programs.items()}, 20, time_limit=SECONDS / 4)
    peers = {k: first.ratio(k, "float32") for k in programs if k != "float32" and first.ratio(k, "float32") < 1}
    best = min(peers, key=lambda k: peers[k]) if peers else None
    budget = min(errors[best]["worst"] if best is not None else 0.05, MOST)
    result = eqsat.optimize(
        str(whole), precision="int8", calibration=calibration, limits={"error": budget}, time_limit=120.0, cache=False
    )
    result.save(folder / "eqsat.onnx")
    programs["eqsat"] = _session(folder / "eqsat.onnx")
    errors["eqsat"] = _errors(programs["eqsat"], programs["float32"], held)
    timings = interleaved({k: _bound(s, held[0]) for k, s in programs.items()}, 60, time_limit=SECONDS)
    report = result.report.to_json()
    for kind in programs:
        if kind != "float32":
            times = {"ratio": timings.ratio(kind, "float32"), "bound": timings.ratio_bound(kind, "float32")}
            row[kind] = times | {"error": errors[kind]["worst"], "errors": errors[kind]}
    row["eqsat"] |= {k: report[k] for k in ("rounding", "kept", "warnings", "gap", "seconds")} | {"budget": budget}
    row["seconds"] = timings.median("float32")
    if best is not None:
        row["against"] = {
            "peer": best,
            "ratio": timings.ratio("eqsat", best),
            "bound": timings.ratio_bound("eqsat", best),
        }
    return row


def batches(model: ModelProto, count: int) -> Iterator[Batch]:
    """Random inputs: normal floats, tokens below 1 000, and masks of ones."""
    rng = np.random.default_rng(0)
    known = {t.name for t in model.graph.initializer}
    for _ in range(count):
        batch: Batch = {}
        for value in model.graph.input:
            if value.name in known:
                continue
            tensor = value.type.tensor_type
            shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
            kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            if kind.kind == "f":
                batch[value.name] = rng.standard_normal(shape).astype(kind)
            else:
                tokens = "mask" not in value.name and "type" not in value.name
                low, high = (0, 1000) if tokens else (1, 2) if "mask" in value.name else (0, 1)
                batch[value.name] = rng.integers(low, high, shape).astype(kind)
        yield batch


def _quantised(kind: str, model: Path, folder: Path, calibration: Sequence[Batch]) -> Path:
    """The model as ONNX Runtime's quantiser writes it: after its basic optimisations, each channel by its own scale.

    Weights have 7 bits where products overflow on this processor, as its documentation advises.
    """
    import onnxruntime as ort
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    from eqsat.runtime.onnxruntime.saturation import saturates

    basic, target = folder / "basic.onnx", folder / f"{kind}.onnx"
    if not basic.exists():
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(basic)
        ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    common = {"per_channel": True, "reduce_range": saturates(), "weight_type": QuantType.QInt8}
    if kind == "dynamic":
        quantize_dynamic(basic, target, **common)
    else:
        quantize_static(
            basic,
            target,
            _Reader(calibration),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            **common,
        )
    return target


class _Reader:
    """Calibration data as ONNX Runtime's quantiser asks for them."""

    def __init__(self, data: Sequence[Batch]) -> None:
        self._left = iter(data)

    def get_next(self) -> Batch | None:
        """The next batch; None after the last."""
        return next(self._left, None)

    def __iter__(self) -> Iterator[Batch]:
        return self._left


def _session(path: Path) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _bound(session: Any, batch: Mapping[str, Any]) -> Any:
    return lambda: session.run(None, batch)


def _errors(session: Any, reference: Any, held: Sequence[Batch]) -> dict[str, float]:
    """‖out − ref‖ / ‖ref‖ of the worst output: of the worst batch, and the mean over batches."""
    from eqsat.quantisation.sensitivity import output_error

    names = [output.name for output in reference.get_outputs()]
    every = [
        output_error(*(dict(zip(names, s.run(names, batch), strict=True)) for s in (session, reference)))
        for batch in held
    ]
    return {"worst": max(every), "mean": math.fsum(every) / len(every)}


if __name__ == "__main__":
    main()
