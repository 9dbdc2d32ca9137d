"""ONNX Runtime as a peer: the model as it was given, at the optimisation level "all", on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat.bench.case import BenchCase
from eqsat.bench.contender import Loaded
from eqsat.language.onnx.write.availability import lacking
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.onnxruntime.session import SessionBackend


class OnnxRuntimePeer:
    """The CPU's provider, which is a peer on a CPU alone."""

    name, ours = "ONNX Runtime", False

    def missing(self, case: BenchCase) -> str | None:
        """Why it cannot take part."""
        return "it runs on the CPU here" if case.on_gpu else SessionBackend().available()

    def load(self, case: BenchCase) -> Loaded:
        """A session of the model."""
        program = SessionBackend().compile(expanded(case.graph, lacking()), threads=case.threads)

        def outputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
            return program.run(inputs)

        return Loaded(program.bind(case.inputs(0)), outputs)
