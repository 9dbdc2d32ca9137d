"""Models made ready in lower precisions: by ONNX Runtime's quantisers, by OpenVINO's hint, and by eqsat."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

Batch = Mapping[str, Any]

#: What eqsat is asked for, by the name of its column: a device and a precision.
OURS = {
    "eqsat int8 (OpenVINO)": ("openvino-cpu", "int8"),
    "eqsat mixed (OpenVINO)": ("openvino-cpu", "mixed"),
    "eqsat int8": ("onnxruntime-cpu", "int8"),
}
#: ONNX Runtime's own quantisers.
QUANTISERS = ("static", "dynamic")
#: OpenVINO's hints of precision.
HINTS = {"OpenVINO f32": "f32", "OpenVINO bf16": "bf16"}
#: Seconds that eqsat may take to choose and measure, calibration apart.
SECONDS = 120.0
_REPORTED = (
    *("rounding", "kept", "kept_because", "failure", "warnings", "skipped"),
    *("gap", "seconds", "cost_before", "cost_after", "measured_bound"),
)


class Program(Protocol):
    """A model that is ready to run."""

    def run(self, batch: Batch) -> dict[str, Any]:
        """The outputs by name."""


class Session:
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


class OpenVino:
    """A model on OpenVINO, at a hint of precision."""

    def __init__(self, path: Path, hint: str) -> None:
        from eqsat.runtime.openvino.session import core_of_process

        core = core_of_process()
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": hint}
        self._compiled = core.compile_model(core.read_model(path), "CPU", settings)
        self._request = self._compiled.create_infer_request()

    def run(self, batch: Batch) -> dict[str, Any]:
        """The outputs by name."""
        found = self._request.infer(dict(batch))
        # An output may have several names, of operators that do nothing.
        return {name: found[port] for port in self._compiled.outputs for name in port.names}


def ready(kind: str, folder: Path) -> Program:
    """The program of a column, of the files in the folder of a model."""
    if kind in OURS:
        on_openvino = OURS[kind][0] == "openvino-cpu"
        return OpenVino(path_of(kind, folder), "f32") if on_openvino else Session(path_of(kind, folder))
    if kind in HINTS:
        return OpenVino(folder / "model.onnx", HINTS[kind])
    return Session(folder / "model.onnx" if kind == "float32" else path_of(kind, folder))


def own_float32(kind: str) -> str:
    """The column of float32 on the runtime of one of eqsat's."""
    return "OpenVINO f32" if OURS[kind][0] == "openvino-cpu" else "float32"


def path_of(kind: str, folder: Path) -> Path:
    """The file of a column's model."""
    return folder / f"{kind.replace(' ', '_')}.onnx"


def quantise(kind: str, folder: Path, calibration: Sequence[Batch]) -> None:
    """Write the model as ONNX Runtime's quantiser makes it: after its basic optimisations, each channel by its scale.

    Weights have 7 bits where products overflow on this processor, as its documentation advises.
    """
    import onnxruntime as ort
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    from eqsat.runtime.onnxruntime.saturation import saturates

    basic, target = folder / "basic.onnx", path_of(kind, folder)
    if not basic.exists():
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(basic)
        ort.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    common = {"reduce_range": saturates(), "weight_type": QuantType.QInt8}

    def write(*, per_channel: bool) -> None:
        if kind == "dynamic":
            quantize_dynamic(basic, target, per_channel=per_channel, **common)
        else:
            form = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8}
            quantize_static(basic, target, _Reader(calibration), per_channel=per_channel, **form, **common)

    try:
        write(per_channel=True)
    except ValueError:  # 1.31 compares the scales of channels as if they were one, where a bias is small
        write(per_channel=False)


def optimise(kind: str, folder: Path, calibration: Sequence[Batch], budget: float | None) -> None:
    """Write the result of eqsat for a column, and beside it what its report says.

    Without a budget, eqsat keeps the largest element of every row of the outputs where it was on the calibration data.
    """
    import eqsat

    device, precision = OURS[kind]
    result = eqsat.optimize(
        str(folder / "model.onnx"),
        device=device,
        precision=precision,
        calibration=calibration,
        limits={} if budget is None else {"error": budget},
        time_limit=SECONDS,
        cache=False,
        threads=1,
    )
    report = result.report.to_json()
    result.save(path_of(kind, folder))
    said = {key: report[key] for key in _REPORTED} | {"bytes": weight_bytes(path_of(kind, folder))}
    path_of(kind, folder).with_suffix(".json").write_text(json.dumps(said), encoding="utf-8")


def weight_bytes(path: Path) -> int:
    """The bytes of the weights in a model's file."""
    import onnx
    from onnx import external_data_helper, numpy_helper

    graph = onnx.load(path, load_external_data=False).graph
    constants = [a.t for node in graph.node if node.op_type == "Constant" for a in node.attribute if a.name == "value"]
    total = 0
    for tensor in (*graph.initializer, *constants):
        if external_data_helper.uses_external_data(tensor):
            total += int(next(e.value for e in tensor.external_data if e.key == "length"))
        else:
            total += numpy_helper.to_array(tensor).nbytes
    return total


def errors_of(program: Program, expected: Sequence[Mapping[str, Any]], held: Sequence[Batch]) -> dict[str, Any]:
    """‖out − ref‖ / ‖ref‖ of the worst output: of the worst batch, the mean over batches, and of each."""
    from eqsat.quantisation.sensitivity import output_error

    every = [output_error(program.run(batch), ref) for batch, ref in zip(held, expected, strict=True)]
    return {"worst": max(every), "mean": math.fsum(every) / len(every), "each": every}


class _Reader:
    """Calibration data as ONNX Runtime's quantiser asks for them."""

    def __init__(self, data: Sequence[Batch]) -> None:
        self._left = iter(data)

    def get_next(self) -> Batch | None:
        """The next batch; None after the last."""
        return next(self._left, None)

    def __iter__(self) -> Iterator[Batch]:
        return self._left
