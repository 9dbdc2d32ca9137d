"""OpenVINO as a peer, on the ONNX that eqsat writes."""

from __future__ import annotations

import importlib.util

from eqsat.bench.case import BenchCase
from eqsat.bench.contender import Loaded
from eqsat.language.onnx.write.availability import lacking
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.openvino.session import OpenVinoBackend


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
        program = OpenVinoBackend().compile(expanded(case.graph, lacking()), threads=case.threads)
        return Loaded(program.bind(case.inputs(0)), program.run)
