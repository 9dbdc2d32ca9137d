"""INT8 as eqsat chooses it against ONNX Runtime's own quantisers: `python -m benchmarks.precision [MODEL …]`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from onnx import ModelProto
from rich.console import Console
from rich.table import Table

from benchmarks import trained_data
from benchmarks.models import MODELS, load
from benchmarks.trained import models_of
from benchmarks.trained_data import Task

RESULTS = Path(__file__).parent / "results"
DEFAULT = ("resnet50", "mobilenet_v2", "squeezenet1_1", "bert_base", "vit_base", "inception_v3", "vgg19", "llama")
#: What eqsat is asked for, by the name of its column: a device and a precision.
OURS = {
    "eqsat int8": ("onnxruntime-cpu", "int8"),
    "eqsat int8 (OpenVINO)": ("openvino-cpu", "int8"),
    "eqsat mixed (OpenVINO)": ("openvino-cpu", "mixed"),
}
CONTENDERS = ("static", "dynamic", "OpenVINO f32", "OpenVINO bf16", *OURS)
#: Batches of random inputs: some to calibrate on, others to judge all by.
CALIBRATION, HELD_BACK = 12, 6
#: Trained models with the package that ships each, and how inputs are made.
TRAINED: Mapping[str, tuple[str, Callable[[Path, int], Task | None]]] = {
    "ch_PP-OCRv4_det_infer": ("rapidocr-onnxruntime", trained_data.detector),
    "ch_PP-OCRv4_rec_infer": ("rapidocr-onnxruntime", trained_data.recogniser),
    "ch_ppocr_mobile_v2.0_cls_infer": ("rapidocr-onnxruntime", trained_data.classifier),
    "silero_vad_openvino_16k": ("silero-vad", trained_data.listener),
}
#: Batches that trained models are judged by.
JUDGED = 40
#: Seconds of the interleaved run.
SECONDS = 40.0
#: The largest error that eqsat is given as a budget, where a quantiser loses more.
MOST = 0.5

Row = dict[str, Any]
Batch = Mapping[str, Any]


@click.command()
@click.argument("models", nargs=-1, type=click.Choice([*MODELS, *TRAINED]))
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "precision.json")
def main(models: tuple[str, ...], target: Path) -> None:
    """Quantises models by each, and times all in one interleaved run on one thread, beside float32.

    Weights and inputs of most are random: errors compare the quantisers, and say nothing of accuracy. Trained models,
    of packages, read lines that are drawn and hear a synthetic voice: "right" is the share of answers that are. The
    budget of eqsat is the error of the faster of ONNX Runtime's two, of those that are not slower than float32. Rows of
    other models that the file holds already stay in it.
    """
    from eqsat.costs.table.environment import cpu_model

    rows: list[Row] = json.loads(target.read_text())["models"] if target.exists() else []
    for name in models or (*DEFAULT, *TRAINED):
        command = [sys.executable, "-c", f"from benchmarks.precision import measured; measured({name!r})"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
        row = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {"model": name, "failed": said}
        rows = [*(r for r in rows if r["model"] != name), row]
        found = {"cpu": cpu_model(), "when": datetime.now(UTC).isoformat(timespec="seconds"), "models": rows}
        target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        Console(width=220).print(table(rows))


def table(rows: Sequence[Row]) -> Table:
    """A row for each model: time over float32 on ONNX Runtime, and beside it the worst error on data held back."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("model", *CONTENDERS, "predicted", "on integers"):
        shown.add_column(heading, justify="left" if heading in ("model", "on integers") else "right")
    for row in rows:
        if "failed" in row:
            shown.add_row(row["model"], row["failed"])
            continue
        cells = [row["model"]]
        for name in CONTENDERS:
            one = row.get(name, {})
            right = f", {one['right']:.0%} right" if "right" in one else ""
            told = f"{one['ratio']:.2f} ({one['error']:.3f}{right})" if one.get("ratio") else one.get("said", "-")[:20]
            cells.append(told)
        roundings = [row.get(name, {}).get("rounding") or {} for name in OURS]
        counts = [", ".join(f"{n} {op}" for op, n in r["integers"].items()) if r else "none" for r in roundings]
        cells += [" ".join(f"{r['predicted']:.3f}" if r else "-" for r in roundings), " / ".join(counts)]
        shown.add_row(*cells)
    return shown


def measured(name: str) -> None:
    """Print the row of one model as JSON."""
    with tempfile.TemporaryDirectory(prefix="eqsat-precision-") as folder:
        if name not in TRAINED:
            print(json.dumps(row_of(name, load(name), None, Path(folder))))
            return
        package, make = TRAINED[name]
        path = next(path for path in models_of(package) if path.stem == name)
        task = make(path, CALIBRATION + JUDGED)
        row = {"model": name, "failed": "its inputs cannot be made here"}
        print(json.dumps(row if task is None else row_of(name, onnx.load(path), task, Path(folder))))


def row_of(name: str, model: ModelProto, task: Task | None, folder: Path) -> Row:
    """The figures of a model: on the batches of its task, or on random ones."""
    from eqsat.runtime.measure import interleaved

    whole = folder / "model.onnx"
    onnx.save(model, whole, save_as_external_data=True, location="model.data")
    given = list(batches(model, CALIBRATION + HELD_BACK)) if task is None else list(task.batches)
    calibration, held = given[:CALIBRATION], given[CALIBRATION:]
    reference = _Session(whole)
    programs: dict[str, Any] = {"float32": reference}
    row: Row = {"model": name}

    def add(kind: str, made: Callable[[], Any]) -> None:
        try:
            program = made()
            program.run(held[0])
        except Exception as error:  # noqa: BLE001 - a contender that fails is a cell of the table
            row[kind] = {"said": f"{type(error).__name__}: {error}"[:200]}
        else:
            programs[kind] = program

    for kind in ("static", "dynamic"):
        add(kind, lambda kind=kind: _Session(_quantised(kind, whole, folder, calibration)))  # type: ignore[misc]
    for hint in ("f32", "bf16"):
        add(f"OpenVINO {hint}", lambda hint=hint: _OpenVino(whole, hint))  # type: ignore[misc]
    errors = {kind: _errors(program, reference, held) for kind, program in programs.items()}
    peers = [kind for kind in ("static", "dynamic") if kind in programs]
    calls = {k: _bound(programs[k], held[0]) for k in ("float32", *peers)}
    first = interleaved(calls, 20, time_limit=SECONDS / 4, clock="process")
    ratios = {k: first.ratio(k, "float32") for k in peers if first.ratio(k, "float32") < 1}
    best = min(ratios, key=lambda k: ratios[k]) if ratios else None
    budget = min(errors[best]["worst"] if best is not None else 0.05, MOST)
    for kind, (device, precision) in OURS.items():
        add(kind, lambda kind=kind, d=device, p=precision: _ours(row, kind, d, p, whole, calibration, budget))  # type: ignore[misc]
        if kind in programs:
            errors[kind] = _errors(programs[kind], reference, held)
    calls = {k: _bound(p, held[0]) for k, p in programs.items()}
    timings = interleaved(calls, 60, time_limit=SECONDS, clock="process")
    for kind in programs:
        if kind != "float32":
            times = {"ratio": timings.ratio(kind, "float32"), "bound": timings.ratio_bound(kind, "float32")}
            row[kind] = row.get(kind, {}) | times | {"error": errors[kind]["worst"], "errors": errors[kind]}
        if task is not None:
            places = range(CALIBRATION, len(given))
            row.setdefault(kind, {})["right"] = task.right(places, [programs[kind].run(given[i]) for i in places])
    row |= {"seconds": timings.median("float32"), "peer": best, "budget": budget, "rounds": timings.rounds}
    for kind in OURS:
        if best is not None and kind in programs:
            row[kind]["against"] = {"ratio": timings.ratio(kind, best), "bound": timings.ratio_bound(kind, best)}
    return row


def _ours(
    row: Row, kind: str, device: str, precision: str, model: Path, calibration: Sequence[Batch], budget: float
) -> Any:
    """The result of eqsat on the backend of its device, and its report in the row."""
    import eqsat

    result = eqsat.optimize(
        str(model),
        device=device,
        precision=precision,
        calibration=calibration,
        limits={"error": budget},
        time_limit=120.0,
        cache=False,
        threads=1,
    )
    report = result.report.to_json()
    row[kind] = {k: report[k] for k in ("rounding", "kept", "warnings", "gap", "seconds", "cost_before", "cost_after")}
    if device == "openvino-cpu":
        return result.compile()
    result.save(target := model.with_name("eqsat.onnx"))
    return _Session(target)


def batches(model: ModelProto, count: int) -> Iterator[Batch]:
    """Random inputs: normal floats, tokens below 1 000, and masks of ones."""
    rng = np.random.default_rng(0)
    known = {t.name for t in model.graph.initializer}
    for _ in range(count):
        batch: dict[str, Any] = {}
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


class _Session:
    """A model on ONNX Runtime, as its users make sessions."""

    def __init__(self, path: Path) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, batch: Batch) -> dict[str, Any]:
        """The outputs by name."""
        return dict(zip(self._names, self._session.run(self._names, batch), strict=True))


class _OpenVino:
    """A model on OpenVINO as it is, at a hint of precision."""

    def __init__(self, path: Path, hint: str) -> None:
        from eqsat.runtime.openvino.session import core_of_process

        core = core_of_process()
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": hint}
        self._compiled = core.compile_model(core.read_model(path), "CPU", settings)
        self._request = self._compiled.create_infer_request()

    def run(self, batch: Batch) -> dict[str, Any]:
        """The outputs by name."""
        found = self._request.infer(dict(batch))
        return {port.any_name: found[port] for port in self._compiled.outputs}


def _bound(program: Any, batch: Batch) -> Callable[[], object]:
    return lambda: program.run(batch)


def _errors(program: Any, reference: Any, held: Sequence[Batch]) -> dict[str, Any]:
    """‖out − ref‖ / ‖ref‖ of the worst output: of the worst batch, the mean over batches, and of each."""
    from eqsat.quantisation.sensitivity import output_error

    every = [output_error(program.run(batch), reference.run(batch)) for batch in held]
    return {"worst": max(every), "mean": math.fsum(every) / len(every), "each": every}


if __name__ == "__main__":
    main()
