"""eqsat as a contender, and ONNX Runtime: a model as it is given, and as it is optimised in whole or in part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.bench.case import BenchCase
from eqsat.bench.contender import Loaded
from eqsat.calls import optimize
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.terms.graph import Graph
from eqsat.report.result import Result
from eqsat.report.timing.compiling import gpu_program, tuned_program
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import select
from eqsat.runtime.onnxruntime.session import SessionBackend

#: Options that leave out the other parts, for a form that optimises one part.
_PARTS: Mapping[str, Mapping[str, Any]] = {"graph only": {"layouts": "row"}, "layout only": {"rules": ()}}


@dataclass
class Ours:
    """A form of the model on the backend of the device; `time_limit` is that of an optimisation, in seconds."""

    form: str
    table: CostTable
    time_limit: float = 30.0
    ours: bool = True

    @property
    def name(self) -> str:
        """The name in tables."""
        return "eqsat" if self.form == "joint" else f"eqsat, {self.form}"

    def missing(self, case: BenchCase) -> str | None:
        """Why the backend of the device cannot be used here."""
        try:
            select(case.device.backend)
        except BackendError as error:
            return error.what
        return None

    def load(self, case: BenchCase) -> Loaded:
        """The form on its backend."""
        return self._on_gpu(case) if case.on_gpu else self._on_cpu(case)

    def _on_cpu(self, case: BenchCase) -> Loaded:
        graph = case.graph if self.form == "unoptimised" else self._optimised(case).graph
        program: Any
        if case.device.backend == "c":
            program = tuned_program(graph, case.threads)
        else:
            program = select(case.device.backend).compile(expanded(graph, lacking()), threads=case.threads)
        return Loaded(program.bind(case.inputs(0)), program.run)

    def _on_gpu(self, case: BenchCase) -> Loaded:
        tuned = CostModel(case.device, self.table).library_plans
        program: Any
        if self.form == "unoptimised":
            program = gpu_program(case.graph, tuned)
        else:
            result = self._optimised(case)
            program = gpu_program(result.graph if result.plan is None else result.plan, tuned)
        static = program.static({})

        def outputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
            for array in static.outputs.values():
                if array.dtype.kind != "b" and array.dtype.kind not in "iu":
                    array.fill(math.nan)
            return {name: np.asarray(one) for name, one in static(**inputs).items()}

        def close() -> None:
            static.close()
            program.close()

        return Loaded(program.bind(case.inputs(0)), outputs, close)

    def _optimised(self, case: BenchCase) -> Result:
        if self.form == "one after the other":
            first = self._by(case, case.graph, layouts="row")
            return self._by(case, first.graph, rules=())
        return self._by(case, case.graph, **_PARTS.get(self.form, {}))

    def _by(self, case: BenchCase, graph: Graph, **more: Any) -> Result:
        return optimize(
            graph,
            device=case.device,
            precision="tf32" if case.tf32 else "exact",
            table=self.table,
            threads=case.threads,
            time_limit=self.time_limit,
            measure=False,
            cache=False,
            **more,
        )


class OnnxRuntimePeer:
    """ONNX Runtime with the model as it was given, at the optimisation level "all", a peer on a CPU alone."""

    name, ours = "ONNX Runtime", False

    def missing(self, case: BenchCase) -> str | None:
        """Why it cannot take part."""
        return "it runs on the CPU here" if case.on_gpu else SessionBackend().available()

    def load(self, case: BenchCase) -> Loaded:
        """A session of the model."""
        program = SessionBackend().compile(expanded(case.graph, lacking()), threads=case.threads)
        return Loaded(program.bind(case.inputs(0)), program.run)
