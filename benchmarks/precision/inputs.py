"""The models that precisions are compared on, with inputs to calibrate on and others to judge by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, version_converter

from benchmarks import trained_data
from benchmarks.models import load
from benchmarks.models.classics import mobilenet_v1, vgg16
from benchmarks.trained import models_of
from benchmarks.trained_data import Task

#: The networks that marks are counted on, with seeded random weights.
NETWORKS = (
    *("resnet50", "mobilenet_v1", "mobilenet_v2", "vgg16", "inception_v3", "squeezenet1_1"),
    *("bert_base", "vit_base", "llama"),
)
#: Trained models: the package that ships each, the name of its file there, and how inputs are made.
TRAINED: Mapping[str, tuple[str, str, Callable[[Path, int], Task | None]]] = {
    "rapidocr detector": ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer", trained_data.detector),
    "rapidocr recogniser": ("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer", trained_data.recogniser),
    "rapidocr classifier": ("rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer", trained_data.classifier),
    "silero-vad": ("silero-vad", "silero_vad_openvino_16k", trained_data.listener),
    "magika": ("magika", "model", trained_data.sorter),
}
#: Batches of random inputs: some to calibrate on, others to judge all by. Trained models have more of both: what they
#: read differs more from batch to batch.
CALIBRATION, HELD_BACK = 12, 6
TRAINED_CALIBRATION, TRAINED_HELD_BACK = 24, 40
#: The first opset with scales for channels, to which trained models are brought: ONNX Runtime's quantiser asks for it.
OPSET = 13
_BUILT: Mapping[str, Callable[[], ModelProto]] = {"vgg16": vgg16, "mobilenet_v1": mobilenet_v1}

Batch = Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """A model with batches, of which the first `count` are to calibrate on; `task` says which answers are right."""

    model: ModelProto
    batches: Sequence[Batch]
    count: int
    task: Task | None = None

    @property
    def calibration(self) -> Sequence[Batch]:
        """The batches to calibrate on."""
        return self.batches[: self.count]

    @property
    def held_back(self) -> Sequence[Batch]:
        """The batches to judge by."""
        return self.batches[self.count :]


def subject_of(name: str) -> Subject | None:
    """A model by its name with its inputs; None where inputs of a trained one cannot be made here."""
    if name not in TRAINED:
        model = _BUILT[name]() if name in _BUILT else load(name)
        return Subject(model, list(random_batches(model, CALIBRATION + HELD_BACK)), CALIBRATION)
    package, stem, make = TRAINED[name]
    path = next(path for path in models_of(package) if path.stem == stem)
    task = make(path, TRAINED_CALIBRATION + TRAINED_HELD_BACK)
    if task is None:
        return None
    return Subject(_sized(onnx.load(path), task.batches[0]), task.batches, TRAINED_CALIBRATION, task)


def _sized(model: ModelProto, batch: Batch) -> ModelProto:
    """The model with the dims of its inputs those of a batch, at an opset that all contenders can be made at."""
    for value in model.graph.input:
        if value.name in batch:
            for dim, size in zip(value.type.tensor_type.shape.dim, batch[value.name].shape, strict=True):
                dim.dim_value = size
    del model.graph.value_info[:]
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.Clear()
    if model.opset_import[0].version < OPSET:
        model = version_converter.convert_version(model, OPSET)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def random_batches(model: ModelProto, count: int) -> Iterator[Batch]:
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
