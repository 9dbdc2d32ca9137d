"""Outputs of finalists compared with the original's, each when it is asked for."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.certify.outputs import DRIFT, Judge, samples
from eqsat.errors import EqsatError
from eqsat.language.terms import Graph
from eqsat.report.timing.compiling import Compiling, drawn
from eqsat.runtime.backend import Program
from eqsat.runtime.examples import DRAWS, SizePoint
from eqsat.system.deadline import check


class TimedProgram:
    """A program whose runs are timed; the outputs for inputs that it was run on before are those of that run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.seconds: list[float] = []
        self._outputs: dict[bytes, dict[str, Any]] = {}

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name, as `run` has them."""
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name."""
        key = _hash(inputs)
        if key not in self._outputs:
            begun = time.monotonic()
            self._outputs[key] = self.program.run(inputs)
            self.seconds.append(time.monotonic() - begun)
        return self._outputs[key]

    def bind(self, inputs: Mapping[str, Any]) -> Any:
        """A call that runs the program on these inputs."""
        return self.program.bind(inputs)


def _hash(inputs: Mapping[str, Any]) -> bytes:
    """A hash of the names, types, shapes and elements of inputs."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(inputs):
        array = np.asarray(inputs[name])
        digest.update(repr((name, str(array.dtype), array.shape)).encode())
        digest.update(repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).data)
    return digest.digest()


class OutputComparison:
    """The outputs of the original on inputs that it runs on, and finalists as far as they were compared with them.

    `points` are where the original runs, `feeds` inputs at each of them. `refused` says which finalists may not stand
    for the original, and why, `differing` are those refused for their outputs, and `losses` say how far others are from
    it on inputs of unusual size. `longest` are the seconds that the program which took longest took to be made ready,
    `run_seconds` those of one run of each at all points.
    """

    def __init__(
        self,
        original: Graph,
        compiling: Compiling,
        points: Sequence[SizePoint],
        seed: int,
        drift: Mapping[str, float],
        names: Sequence[str],
    ) -> None:
        """Make the original ready; EqsatError where it cannot be run, for finalists of these names."""
        self.refused: dict[str, str] = {}
        self.losses: dict[str, Sequence[str]] = {}
        self.differing: set[str] = set()
        self.longest = 0.0
        self.run_seconds: dict[str, float] = {}
        self._original, self._compiling, self._drift = original, compiling, drift
        self._agreed: set[str] = set()
        begun = time.monotonic()
        program = compiling.program("original", original)
        timed = TimedProgram(program)
        self.points, draws = drawn(original, compiling, timed, points, seed)
        self.feeds = draws[::DRAWS]
        self._judge: Judge | None = None
        if any(math.isfinite(drift.get(name, DRIFT)) for name in names):
            self._judge = Judge(original, samples(original, draws, seed), timed.run)
        self._program: Program | None = program
        self._spent("original", begun, timed)

    def take_original(self) -> Program:
        """The program of the original, which is needed for its times alone by now, and not kept any longer."""
        program, self._program = self._program, None
        if program is None:
            raise RuntimeError("it was taken before")
        return program

    def reason(self, name: str, graph: Graph) -> str | None:
        """The reason for which a finalist may not stand for the original; None where it may."""
        if name not in self.refused and name not in self._agreed:
            self.program(name, graph)
        return self.refused.get(name)

    def program(self, name: str, graph: Graph) -> Program | None:
        """The program of a finalist that may stand for the original; None for one that is `refused`."""
        check(0)
        begun = time.monotonic()
        limit = self._drift.get(name, DRIFT)
        timed: TimedProgram | None = None
        try:
            self._compiling.check_safe(graph, self._original)
            timed = TimedProgram(self._compiling.program(name, graph))
            if self._judge is not None and math.isfinite(limit):
                verdict = self._judge.verdict(timed.run, limit)
                if verdict.refused is not None:
                    self.refused[name] = verdict.refused
                    self.differing.add(name)
                    return None
                self.losses[name] = verdict.losses
        except EqsatError as error:
            self.refused[name] = error.what
            return None
        finally:
            self._spent(name, begun, timed)
        self._agreed.add(name)
        return timed.program

    def _spent(self, name: str, begun: float, program: TimedProgram | None) -> None:
        self.longest = max(self.longest, time.monotonic() - begun)
        if program is not None and program.seconds:
            self.run_seconds[name] = len(self.points) * float(np.median(program.seconds))
