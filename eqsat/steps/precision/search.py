"""The search for a choice with kernels on integers whose errors are as predicted, within the error that is allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.judging import price_of
from eqsat.extract.tensors.quantised import IntegerOptions, favoured, is_on_integers
from eqsat.extract.tensors.resources import limited
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.terms import Graph
from eqsat.quantisation.sensitivity import foreseen
from eqsat.report.finalists import Candidate
from eqsat.report.report import Progress
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import Program, select
from eqsat.runtime.onnxruntime.levels import UNFUSED_LEVEL
from eqsat.runtime.onnxruntime.session import SessionBackend
from eqsat.steps.choosing import Chooser
from eqsat.steps.precision.chosen import name_of
from eqsat.steps.precision.outputs import ComparedOutputs
from eqsat.steps.precision.roundings import MeasuredRoundings
from eqsat.system.deadline import Deadline

Batch = Mapping[str, Any]

#: How often a choice may turn out worse than was predicted, or than is allowed, before float32 is kept.
ROUNDS = 8
#: The margin by which a prediction that was too low is raised, and by which a budget that lost a row's largest element
#: is lowered.
_MARGIN, _LESS = 1.1, 0.5
#: The error by which kernels in float32 differ from each other: what is predicted is not below it.
_NOISE = 1e-5
#: The share of a prediction above which an error is as was predicted, and the share of a choice's cost that another one
#: has to save to be worth a measurement.
_SLACK, _CHEAPER = 0.95, 0.995
#: The share of what is left of a call that is kept for timing, and that of the rest that one choice may take: several
#: follow each other. The last ones get at least a fiftieth.
_RESERVED, _SHARE, _LEAST = 0.4, 0.25, 0.02


class Allowance:
    """The shares of what is left of a call that choices on integers may take, one after the other."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline, self._reserved = deadline, _RESERVED * deadline.left

    @property
    def share(self) -> float:
        """The share of what is left for the next choice."""
        left = self._deadline.left
        free = left - self._reserved
        return 1.0 if left == math.inf else max(_SHARE * free / left, _LEAST) if free > 0 else _LEAST


@dataclass(frozen=True)
class Tried:
    """A choice with its program, its predicted error, and its cost by itself."""

    solution: Solution
    extraction: TensorProblem
    candidate: Candidate
    program: Program
    predicted: float
    cost: float


@dataclass(frozen=True)
class HeldChoice:
    """A choice whose errors are as predicted, with the factor of the prediction and the number of its round."""

    tried: Tried
    factor: float
    worst: float
    rounds: int


@dataclass(frozen=True)
class ErrorSearch:
    """Choices among kernels on integers, run on the data for calibration and for tightening.

    `refused` are the errors of those that moved outputs by more than is allowed.
    """

    chooser: Chooser
    options: IntegerOptions
    measured: MeasuredRoundings
    data: Sequence[Batch]
    allowance: Allowance
    refused: list[float] = field(default_factory=list)

    def held(self, end: str, share: float = 1.0, factor: float | None = None) -> HeldChoice | None:
        """Solve, measure what was chosen, and solve again with what was learned, until it is what was predicted.

        Kernels on integers count at a `share` of their price: choices are compared in whole networks, and where
        runtimes fuse what was measured apart, more of them pay than their prices say. `factor` is on the root of the
        sum of the squares of single errors, by default that of all roundings together. `end` is that of its name.
        """
        log, settings = self.chooser.log, self.chooser.settings
        budget = settings.budget
        factor = self.measured.interaction if factor is None else factor
        most = math.inf if budget is None else budget
        held: HeldChoice | None = None
        known: list[Solution] = []
        for number in range(1, ROUNDS + 1):
            log.say(Progress("extract", detail=f"choice {number} within an error of {_shown(most)}"))
            tried = self._tried(end, factor, most, known, share)
            if tried is None or (held is not None and tried.cost > _CHEAPER * held.tried.cost):
                break
            known = [tried.solution]
            with settings.deadline.paused():
                compared = ComparedOutputs.of(tried.program, self._expected)
            lower = self._to_lower(compared) if budget is None else 1.0
            worst = max(*compared.errors, foreseen(compared.errors))
            if worst > most or lower < 1.0:
                self.refused.append(worst)
            if worst > tried.predicted:
                if held is not None:
                    break
                factor *= _MARGIN * worst / max(tried.predicted, 1e-30)
                continue
            if lower < 1.0:
                most = tried.predicted * lower
                continue
            held = HeldChoice(tried, factor, max(compared.errors), number)
            if budget is None or worst > _SLACK * tried.predicted:
                break
            # More kernels fit where roundings amount to less than was predicted.
            factor *= max(worst / (_SLACK * tried.predicted), _LESS)
        return held

    def _to_lower(self, compared: ComparedOutputs) -> float:
        """The share that a prediction has to come down to where no limit is stated; 1 where outputs are as they should.

        Rows keep their largest elements; outputs that have none are within the error that is accepted of floats.
        """
        rows, drift = 1.0 if compared.keeps_largest else _LESS, self.chooser.settings.drift
        return min(rows, _SLACK * drift / compared.unranked if compared.unranked > drift else 1.0)

    @cached_property
    def _original(self) -> Program:
        return compiled(self.chooser, self.chooser.given.graph)

    def expected(self, data: Sequence[Batch]) -> list[tuple[Batch, Mapping[str, Any]]]:
        """Data with the outputs of the original."""
        with self.chooser.settings.deadline.paused():
            return [(batch, self._original.run(batch)) for batch in data]

    @cached_property
    def _expected(self) -> list[tuple[Batch, Mapping[str, Any]]]:
        return self.expected(self.data)

    def _tried(self, end: str, factor: float, most: float, known: Sequence[Solution], share: float) -> Tried | None:
        """The cheapest choice within an error with its program; None where it has no kernel on integers."""
        settings = self.chooser.settings
        extraction, solution = self.solved(factor, most, known, share)
        if not any(is_on_integers(extraction.options[index]) for index in solution.chosen.values()):
            return None
        chooser = replace(self.chooser, settings=replace(settings, costs=self.options.model))
        (_, candidate) = chooser.finalists(extraction, {name_of(extraction, solution) + end: solution})[:2]
        predicted = max(math.sqrt(solution.amounts["error"]), min(_NOISE, most))
        with settings.deadline.paused():
            program = compiled(self.chooser, candidate.graph, settings.portable_backend)
        cost = price_of(extraction, solution, self.options.model)
        return Tried(solution, extraction, candidate, program, predicted, cost)

    def solved(
        self, factor: float, most: float, known: Sequence[Solution] = (), share: float = 1.0
    ) -> tuple[TensorProblem, Solution]:
        """The problem with all kernels on integers within an error, and its solution; `known` are of earlier rounds."""
        extraction = self.options.added(self.measured.roundings.scaled(factor))
        bounds = {**other_bounds(self.chooser), "error": most}
        extraction = limited(extraction, self.options.model, bounds)
        priced = extraction if share == 1.0 else favoured(extraction, share)
        return extraction, self.chooser.solved(priced, "ilp", known, self.allowance.share)


def other_bounds(chooser: Chooser) -> dict[str, float]:
    """The limits of a run but that of the error."""
    return {term: most for term, most in chooser.settings.bounds.items() if term != "error"}


def compiled(chooser: Chooser, graph: Graph, backend: str | None = None) -> Program:
    """A graph made ready to run: by default on ONNX Runtime, against whose outputs errors count.

    What is to run on a GPU is run as it is written: ONNX Runtime's own kernels on integers add in 16 bits on some
    processors.
    """
    made, threads = expanded(graph, lacking()), chooser.settings.options.threads
    if chooser.settings.device.gpu and backend in (None, "onnxruntime"):
        return SessionBackend().compile(made, threads=threads, level=UNFUSED_LEVEL)
    return select(backend).compile(made, threads=threads)


def _shown(most: float) -> str:
    return "any size" if math.isinf(most) else f"{most:.2g}"
