"""Outputs that a result had when it was kept, which it has to have again when it is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.certify.compare import relative_difference
from eqsat.certify.outputs import DRIFT
from eqsat.errors import EqsatError
from eqsat.language.terms import Graph
from eqsat.report.result import Result
from eqsat.runtime.backend import Program
from eqsat.runtime.examples import SizePoint, tried
from eqsat.runtime.onnxruntime.child import may_end_the_process
from eqsat.steps.settings import Settings
from eqsat.system.deadline import TimeUp

#: The most elements of an output that are looked at, evenly spread.
ELEMENTS = 1024


@dataclass(frozen=True)
class OutputSample:
    """The shape of an output and some of its elements: floats as float64, others as int64."""

    shape: tuple[int, ...]
    is_float: bool
    elements: bytes

    @classmethod
    def of(cls, array: Any) -> OutputSample | None:
        """The sample of an array; None for elements that are no real numbers."""
        array = np.asarray(array)
        if array.dtype.kind not in "fiub" and "float" not in array.dtype.name:
            return None
        is_float = "float" in array.dtype.name
        places = np.linspace(0, max(array.size - 1, 0), min(array.size, ELEMENTS)).astype(np.int64)
        elements = array.reshape(-1)[places].astype(np.float64 if is_float else np.int64)
        return cls(array.shape, is_float, elements.tobytes())

    def agrees(self, other: OutputSample | None) -> bool:
        """True if floats differ by no more than rounding does, and others not at all."""
        if other is None or (self.shape, self.is_float) != (other.shape, other.is_float):
            return False
        if not self.is_float:
            return self.elements == other.elements
        return relative_difference(np.frombuffer(self.elements), np.frombuffer(other.elements)) <= DRIFT


@dataclass(frozen=True)
class Witness:
    """Samples of the outputs of a result on drawn inputs at a point where the model runs."""

    point: SizePoint
    seed: int
    outputs: Mapping[str, OutputSample]

    @classmethod
    def of(cls, result: Result, original: Graph, settings: Settings) -> Witness | None:
        """The outputs of a result whose outputs were compared with the original's; None where it does not run here.

        So it is where ONNX Runtime might end the process on inputs that nobody chose, and where there is no time.
        """
        if not settings.device.is_here or not settings.is_plain or may_end_the_process(original):
            return None
        try:
            with settings.deadline:
                program = _TakingAll(result.compile(), frozenset(result.graph.inputs))
                point = tried(program, original, settings.points[0], settings.options.seed)
                outputs = _outputs(program, original, point, settings.options.seed)
        except (TimeUp, EqsatError):
            return None
        return cls(point, settings.options.seed, outputs)

    def agrees(self, result: Result, original: Graph) -> bool:
        """True if a result that was found has these outputs on the same inputs."""
        try:
            program = _TakingAll(result.compile(), frozenset(result.graph.inputs))
            outputs = _outputs(program, original, self.point, self.seed)
        except EqsatError:
            return False
        return outputs.keys() == self.outputs.keys() and all(
            sample.agrees(outputs[name]) for name, sample in self.outputs.items()
        )


@dataclass(frozen=True)
class _TakingAll:
    """A program that takes all inputs of the original, also those that were left out of its result."""

    program: Program
    inputs: frozenset[str]

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self.program.run(self._needed(inputs))

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        return self.program.bind(self._needed(inputs))

    def _needed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in inputs.items() if name in self.inputs}


def _outputs(program: Program, original: Graph, point: SizePoint, seed: int) -> dict[str, OutputSample]:
    samples = {name: OutputSample.of(a) for name, a in program.run(point.inputs(original, seed)).items()}
    return {name: sample for name, sample in samples.items() if sample is not None}
