"""The result of `optimize`: the graph, how it came about, and methods to run it and to write it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.errors import BackendError, ExportModelError, UsageError
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.graphs.operators_on_integers import in_form
from eqsat.language.onnx.write.availability import lacking, lacking_kernels, opset_of
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms import Graph, Plan
from eqsat.report.explanation import Explanation
from eqsat.report.report import Report
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import Program, select
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL, PROPERTY, stating
from eqsat.runtime.onnxruntime.session import SessionBackend

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat.language.onnx.write.properties import Property
    from eqsat.runtime.programs.program import KernelProgram


@dataclass(frozen=True)
class Result:
    """An optimised graph with its report.

    `graph` is the result; `report` lists changes, costs and checks. `plan` says how each part of it is run, for a
    backend that knows layouts and kernels of several operators; None for the original. `library_plans` are those that
    calls of a GPU's libraries were measured to be fastest by. `source` is the model as it was given, a path or a
    ModelProto, where nothing better was found and all of it was wanted; it is then what is written, too. `failures` are
    the errors that cost the run its result, where `report.failure` says that one did. `backend` is that of the device.
    `quantised` is the form that operators on integers are written in.
    `level` is the level of ONNX Runtime's graph optimisation that was measured to be fastest: `run` and `compile` take
    it, and a written model states it where it is not "all".
    """

    graph: Graph
    report: Report
    explanation: Explanation
    source: Path | ModelProto | None = None
    threads: int | None = None
    opset: int | None = None
    plan: Plan | None = None
    library_plans: tuple[str, ...] = ()
    failures: tuple[Exception, ...] = field(default=(), compare=False, repr=False)
    backend: str = "onnxruntime"
    quantised: str = "qdq"
    level: str = DEFAULT_LEVEL

    @cached_property
    def _written(self) -> Graph:
        """The graph in operators that ONNX has, as far as laws define the others."""
        return expanded(in_form(self.graph, self.quantised, self.backend), lacking())

    def written(self, quantised: str | None = None) -> Graph:
        """The graph in operators that ONNX has, those on integers in a form, "qdq" or "operators".

        The form is that of the run if left out. UsageError for another one.
        """
        if quantised is None or quantised == self.quantised:
            return self._written
        return expanded(in_form(self.graph, quantised, self.backend), lacking())

    @cached_property
    def _program(self) -> Program:
        if self.backend == "onnxruntime":
            return program_of(self.graph, self._written, self.threads, self.level)
        return self.compile()

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """The outputs by name for inputs by name, as `run` has them; models of PyTorch are called as their modules."""
        if args:
            raise UsageError(f"{len(args)} inputs without names", where=self.graph.name, expected="inputs by name")
        return self.run(**inputs)

    def run(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, on the backend of the device that was optimised for.

        NumPy arrays come as NumPy arrays; a GPU's backend takes CuPy and any DLPack arrays too, and returns what it was
        given. Arrays have the shapes and element types of the graph's inputs and outputs; named dims may have any size.
        BackendError for inputs that do not fit, and for a GPU that is not here.
        """
        return self._program.run(inputs)

    def compile(self, backend: str | None = None) -> Program:
        """The result made ready to run on "cupy", "onnxruntime", "openvino", "c" or "numpy", else on its own device.

        The program is called with inputs by name. On "cupy" it runs the plan as it was chosen, in memory taken once and
        one captured CUDA graph; `memory()` says what it takes, `profile()` times its launches, and `static()` keeps
        inputs and outputs in place. BackendError for a backend that cannot be used here, with the packages it lacks.
        """
        name = self.backend if backend is None else backend
        try:
            chosen = select(name)
        except BackendError as error:
            if name != "cupy":
                raise
            remedy = "result.compile('onnxruntime') runs the same graph on the CPU, result.to_onnx(path) writes it"
            raise BackendError(error.what, where=self.graph.name, expected=error.expected, remedy=remedy) from error
        if chosen.name == "cupy":
            gpus: Any = chosen
            program: Program = gpus.compile(self.graph if self.plan is None else self.plan, plans=self.library_plans)
            return program
        if chosen.name == "onnxruntime":
            return SessionBackend().compile(self._written, threads=self.threads, level=self.level)
        return chosen.compile(self.graph if chosen.name in ("numpy", "c") else self._written, threads=self.threads)

    def gpu_program(self, sizes: Mapping[str, int] | None = None) -> KernelProgram:
        """The launches of the result on a GPU, whether one is here or not; `memory()` says where values lie, in bytes.

        `sizes` are those of named dims; others get a size that the graph accepts. BackendError for a graph that cannot
        run on a GPU.
        """
        from eqsat.runtime.cuda.program.lowering import program_of

        given = expanded(self.graph, lacking_kernels()) if self.plan is None else self.plan
        return program_of(given, sizing_of(self.graph).completed(sizes or {}), plans=self.library_plans)

    def to_onnx(
        self, path: str | Path | None = None, opset: int | None = None, quantised: str | None = None
    ) -> ModelProto:
        """The result as an ONNX model at its own opset or a chosen one; written to `path` too, if one is given.

        `quantised` is the form of operators on integers, that of the run if left out: "qdq" for float operators between
        dequantisation and quantisation, "operators" for QLinearConv, QLinearMatMul and MatMulInteger. ExportModelError
        for a target that cannot be written or an operator the opset lacks, UsageError for another form. A level other
        than "all" is stated by its property "ort_config".
        """
        from eqsat.language.onnx.write import exporter, verbatim

        if path is not None:
            self.save(path, opset, quantised)
        given = self._given(opset, quantised)
        if given is not None:
            return verbatim.model(given, self._property)
        return exporter.to_model(self._stating(quantised), opset or self.opset)

    def save(self, path: str | Path, opset: int | None = None, quantised: str | None = None) -> None:
        """Write the result as an ONNX file, atomically and without a copy of the weights in memory.

        Where the original was kept, the file is the one it was read from, byte by byte unless it states a level.
        `quantised`, and errors, as in `to_onnx`.
        """
        from eqsat.language.onnx.write import exporter, verbatim

        given = self._given(opset, quantised)
        if given is None:
            exporter.save(self._stating(quantised), Path(path), opset or self.opset)
        else:
            verbatim.save(given, Path(path), self._property)

    @property
    def _property(self) -> Property | None:
        """The property of a written model that states the level; None for that of any session."""
        return None if self.level == DEFAULT_LEVEL else (PROPERTY, partial(stating, self.level))

    def _stating(self, quantised: str | None) -> Graph:
        """The graph as it is written, with the level among its properties."""
        from eqsat.language.onnx.write.properties import with_property

        graph = self.written(quantised)
        return graph if self._property is None else with_property(graph, self._property)

    def _given(self, opset: int | None, quantised: str | None) -> Path | ModelProto | None:
        """The model as it was given, if that is the result at this opset and in this form."""
        wanted = opset or self.opset
        if self.source is None or (wanted is not None and wanted != opset_of(self.graph)):
            return None
        if in_form(self.graph, quantised or self.quantised, self.backend) is not self.graph:
            return None
        # A file that is gone since then was read in full: the graph stands for it.
        gone = isinstance(self.source, Path) and not self.source.exists()
        return None if gone else self.source

    def without_dead_inputs(self) -> Result:
        """The same result without the inputs that no output needs: they leave the signature, and are not passed."""
        graph = self.graph.without_dead_inputs()
        if graph is self.graph:
            return self
        return replace(
            self, graph=graph, source=None, plan=None if self.plan is None else replace(self.plan, graph=graph)
        )

    def explain(self) -> Explanation:
        """The changes, by which rules in which order, with the evidence of these, and the saving of each change."""
        return self.explanation

    @property
    def comprehensions(self) -> dict[str, str]:
        """The texts of the operators of the graph that are functions of comprehensions, by the names of these."""
        found = {node.op: function_of(node.op) for node in self.graph.nodes}
        return {op: repr(function) for op, function in found.items() if function is not None}

    def __repr__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def program_of(
    graph: Graph, written: Graph | None = None, threads: int | None = None, level: str = DEFAULT_LEVEL
) -> Program:
    """A graph made ready to run on ONNX Runtime, or on NumPy with a warning where ONNX Runtime does not take it.

    `written` is the graph in operators that ONNX has, computed if left out; `level` that of ONNX Runtime's sessions.
    """
    try:
        written = expanded(graph, lacking()) if written is None else written
        if level != DEFAULT_LEVEL:
            return SessionBackend().compile(written, threads=threads, level=level)
        return select().compile(written, threads=threads)
    except (BackendError, ExportModelError) as error:
        message = f"{error.what}; it runs on the NumPy reference instead, which is slow"
        warnings.warn(message, stacklevel=5)
        return select("numpy").compile(graph)
