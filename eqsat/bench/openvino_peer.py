"""OpenVINO as a peer, on the ONNX that eqsat writes."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from eqsat.bench.case import BenchCase
from eqsat.bench.contender import Loaded
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.onnx.write.exporter import save
from eqsat.rewrites.rules.definitions import expanded


class OpenVinoPeer:
    """The model compiled by OpenVINO for the CPU, in the element types that it states."""

    name, ours = "OpenVINO", False

    def missing(self, case: BenchCase) -> str | None:
        """Why OpenVINO cannot take part."""
        if importlib.util.find_spec("openvino") is None:
            return "openvino is not installed"
        return "it runs on the CPU here" if case.on_gpu else None

    def load(self, case: BenchCase) -> Loaded:
        """The model compiled for one request at a time, on the case's threads."""
        openvino: Any = importlib.import_module("openvino")
        core = openvino.Core()
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            save(expanded(case.graph, lacking()), path)
            # The processor's bfloat16 would be taken for float32 where it has it.
            settings = {
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_NUM_THREADS": case.threads,
                "INFERENCE_PRECISION_HINT": "f32",
            }
            compiled = core.compile_model(core.read_model(path), "CPU", settings)
        request = compiled.create_infer_request()
        timed = case.inputs(0)

        def outputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
            results = request.infer(dict(inputs), share_inputs=False, share_outputs=False)
            return {name: np.array(results[compiled.output(name)]) for name in case.graph.outputs}

        return Loaded(lambda: request.infer(timed, share_inputs=True, share_outputs=True), outputs)
