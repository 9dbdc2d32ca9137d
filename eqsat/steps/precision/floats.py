"""Choices in narrower floats, whose errors are predicted, then measured, and which are made again where need be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.errors import EqsatError
from eqsat.extract.tensors.assembly import Assembled, assemble
from eqsat.extract.tensors.judging import is_lowered
from eqsat.extract.tensors.resources import limited
from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, DType, TensorType
from eqsat.language.terms.plan import Kernel
from eqsat.quantisation.sensitivity import foreseen
from eqsat.report.finalists import Candidate
from eqsat.report.precision import DataParts, RoundingReport
from eqsat.report.timing.compiling import gpu_program
from eqsat.runtime.backend import BACKENDS, Program
from eqsat.runtime.examples import SizePoint
from eqsat.steps.choosing import Chooser, Chosen
from eqsat.steps.precision.emulated import EmulatedProgram
from eqsat.steps.precision.outputs import ComparedOutputs, errors_of
from eqsat.steps.precision.search import compiled, other_bounds
from eqsat.system.deadline import TimeUp

Batch = Mapping[str, Any]
_Expected = Sequence[tuple[Batch, Mapping[str, Any]]]

#: How often a choice may turn out worse than is allowed before float32 is kept.
ROUNDS = 8
#: The margin by which a prediction that was too low is raised, and by which a limit that lost a row's largest element
#: is lowered.
_MARGIN, _LESS = 1.1, 0.5
#: Arithmetic operations up to which a choice for a device that is not here is run on NumPy.
MOST_WORK = 4 * 10**9
#: The share of what is left of a call that errors on random inputs may take.
_SHARE = 0.15


@dataclass(frozen=True)
class _Judged:
    """A finalist with the error that is predicted of it once data raised it, and the worst that was measured."""

    candidate: Candidate
    program: Program | None
    predicted: float
    factor: float
    worst: float
    keeps_largest: bool


@dataclass(frozen=True)
class FloatChoice:
    """The choice in the precisions of floats, with errors measured on data: within the limit, or chosen again."""

    chooser: Chooser
    first: Chosen

    def chosen(self) -> Chosen:
        """The choice whose finalists in narrower floats have errors that are reported, none more than is allowed.

        Without data, errors are measured on random inputs and told; the certificate refuses what is too far off.
        """
        settings, log = self.chooser.settings, self.chooser.log
        if not _lowered(self.first) or not settings.is_plain or self.chooser.given.heard:
            return self.first
        if settings.data is None:
            with log.phase("extract"), settings.deadline.part(_SHARE):
                return self._told()
        with log.phase("extract"), settings.deadline:
            return self._within(settings.drift)

    def _told(self) -> Chosen:
        """The first choice with its errors on random inputs, where there is time to run it."""
        settings = self.chooser.settings
        points = settings.points or (SizePoint({}),)
        expected: _Expected = ()
        try:
            batch = points[0].inputs(self.chooser.given.graph, settings.options.seed + 1000)
            expected = [(batch, compiled(self.chooser, self.chooser.given.graph).run(batch))]
        except (EqsatError, TimeUp):
            pass  # of a model that does not run here, nothing is measured
        for candidate in _lowered(self.first):
            self._report(self._judged(candidate, expected), expected, 1)
        return self.first

    def _within(self, most: float) -> Chosen:
        """Choose, measure on data, and choose again within what was learned, until errors are as predicted."""
        settings, chosen = self.chooser.settings, self.first
        assert settings.data is not None
        parts = settings.data.parts
        with settings.deadline.paused():
            original = compiled(self.chooser, self.chooser.given.graph)
            tightening = [(batch, original.run(batch)) for batch in (*parts.calibrate, *parts.tighten)]
            held_back = [(batch, original.run(batch)) for batch in parts.report]
        limit = most
        for number in range(1, ROUNDS + 1):
            with settings.deadline.paused():
                judged = [self._judged(candidate, tightening) for candidate in _lowered(chosen)]
            fitting = [one for one in judged if self._fits(one, most)]
            main = judged[0] if judged else None
            if main is None or main in fitting:
                with settings.deadline.paused():
                    for one in fitting:
                        self._report(one, held_back, number)
                if main is None:
                    self._say_exact()
                left_out = {id(one.candidate) for one in judged if one not in fitting}
                return replace(chosen, candidates=[c for c in chosen.candidates if id(c) not in left_out])
            limit = main.predicted / main.factor * _LESS if main.predicted <= most else most / main.factor
            if not limit > 0 or math.isinf(main.factor):
                break
            chosen = self._chosen_within(limit)
        self._say_exact()
        exact = replace(self.chooser, settings=settings.exact)
        return exact.choice(exact.weighed_problem())

    def _say_exact(self) -> None:
        self.chooser.log.warnings.append(
            "no choice in narrower floats is within the error that is allowed on the data: float32 is kept"
        )

    def _fits(self, one: _Judged, most: float) -> bool:
        """True if errors are within what is allowed; without a limit, if rows keep their largest elements too."""
        return one.predicted <= most and (self.chooser.settings.budget is not None or one.keeps_largest)

    def _chosen_within(self, limit: float) -> Chosen:
        """The choice within another limit of error."""
        settings = self.chooser.settings
        limits = {**(settings.options.limits or {}), "error": limit}
        options = replace(settings.options, limits=limits)
        tighter = replace(self.chooser, settings=replace(settings, options=options))
        return tighter.choice(tighter.weighed_problem())

    def _judged(self, candidate: Candidate, expected: _Expected) -> _Judged:
        """A finalist run on data; its prediction is raised where they show more."""
        predicted = candidate.cost.total.error
        unmeasured = _Judged(candidate, None, predicted, 1.0, math.nan, keeps_largest=True)
        try:
            program = self._program(candidate) if expected else None
            if program is None:
                return unmeasured
            compared = ComparedOutputs.of(program, expected)
        except (EqsatError, TimeUp):
            return unmeasured
        worst = max(compared.errors)
        if math.isfinite(worst):
            worst = max(worst, foreseen(compared.errors))
        margin = 1.0 if self.chooser.settings.data is None else _MARGIN
        factor = 1.0 if worst <= predicted else margin * worst / max(predicted, 1e-30)
        return _Judged(candidate, program, predicted * factor, factor, worst, compared.keeps_largest)

    def _program(self, candidate: Candidate) -> Program | None:
        """A finalist made ready to run on its device, or else on what computes the same here; None for neither."""
        settings = self.chooser.settings
        assembled = candidate.assembled
        assert assembled is not None
        if settings.device.gpu and settings.device.is_here and BACKENDS["cupy"].available() is None:
            return gpu_program(assembled.plan, settings.costs.library_plans)
        here = settings.device.is_here and not settings.device.gpu and BACKENDS[settings.backend].available() is None
        if here and not _arithmetic(assembled):
            return compiled(self.chooser, candidate.graph, settings.backend)
        # ONNX Runtime would compute float16 in float32, without the overflows of the device.
        is_shown = all(node.op != OPAQUE for node in candidate.graph.nodes)
        if candidate.cost.total.flops > MOST_WORK or not is_shown:
            return None
        return EmulatedProgram(candidate.graph, _arithmetic(assembled))

    def _report(self, one: _Judged, expected: _Expected, rounds: int) -> None:
        """Tell of a finalist the errors that are reported of it."""
        settings, assembled = self.chooser.settings, one.candidate.assembled
        assert assembled is not None
        data = settings.data
        if data is None:
            parts = DataParts("random inputs", 0, 0, len(expected))
        else:
            parts = DataParts(data.source, *map(len, (data.parts.calibrate, data.parts.tighten, data.parts.report)))
        notes = []
        if one.program is None:
            notes.append("errors were not measured: the result does not run here, or there was no time for it")
        elif isinstance(one.program, EmulatedProgram):
            products = ", the operands of all products rounded to TF32" if one.program.tf32 else ""
            notes.append(f"errors were measured on NumPy in the element types of the device{products}")
        narrow, kept = self._counted(assembled)
        if "error" in one.candidate.amounts:
            one.candidate.amounts = {**one.candidate.amounts, "error": one.predicted}
        one.candidate.rounding = RoundingReport(
            settings.budget,
            one.predicted,
            one.worst,
            one.factor,
            {} if one.program is None else errors_of(one.program, expected),
            parts,
            rounds,
            {},
            kept,
            tuple(notes),
            narrow,
        )

    def _counted(self, assembled: Assembled) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
        """The operators in narrower floats, and why each of the others keeps float32."""
        policy = self.chooser.settings.choices.policy
        narrow: dict[str, Counter[str]] = {}
        kept: dict[str, Counter[str]] = {}
        known = _narrow(assembled)
        leaders = {name: leader for leader, name in assembled.decoded.names.items()}
        for value, node in assembled.graph.producers.items():
            declared = OPS.get(node.op)
            if declared is None or declared.view or not _is_float(assembled.graph.type(value)):
                continue
            if value in known:
                narrow.setdefault(known[value], Counter())[node.op] += 1
                continue
            allowed = any(policy.allows(node.op, precision) for precision in policy.floats)
            if not (allowed or (declared.product and policy.arithmetic)):
                reason = "policy"
            else:
                reason = "error" if leaders.get(value) in self._unlimited else "cost"
            kept.setdefault(node.op, Counter())[reason] += 1
        return {k: dict(v) for k, v in narrow.items()}, {k: dict(v) for k, v in kept.items()}

    @cached_property
    def _unlimited(self) -> frozenset[int]:
        """The classes that are made in narrower floats where no error limits the choice."""
        chooser, settings = self.chooser, self.chooser.settings
        assembled = _lowered(self.first)[0].assembled
        if settings.budget is not None:
            free = limited(self.first.extraction, settings.costs, other_bounds(chooser), ("error",))
            assembled = assemble(free, chooser.solved(free, "ilp", [self.first.solution], _SHARE), chooser.given.graph)
        assert assembled is not None
        narrow = _narrow(assembled)
        return frozenset(leader for leader, name in assembled.decoded.names.items() if name in narrow)


def _lowered(chosen: Chosen) -> list[Candidate]:
    """The finalists that hold or compute something in a lower precision, that of the solution first."""
    return [c for c in chosen.candidates[1:] if c.assembled is not None and is_lowered(c.assembled)]


def _kernels(assembled: Assembled) -> Iterator[Kernel]:
    yield from (step for step in assembled.plan.steps if isinstance(step, Kernel))


def _arithmetic(assembled: Assembled) -> bool:
    """True if a product is formed in an arithmetic that no graph states."""
    return any(kernel.arithmetic for kernel in _kernels(assembled))


def _narrow(assembled: Assembled) -> dict[str, str]:
    """The values that kernels make in other precisions than their own, with these; an arithmetic is of products."""
    producers = assembled.graph.producers
    narrow: dict[str, str] = {}
    for kernel in _kernels(assembled):
        stored = {held.state.precision for held in (*kernel.operands, *kernel.results)} - {""}
        for value in kernel.nodes:
            declared = OPS.get(producers[value].op)
            multiplied = {kernel.arithmetic} - {""} if declared is not None and declared.product else set()
            if stored | multiplied:
                narrow[value] = max(multiplied or stored)
    return narrow


def _is_float(type: object) -> bool:
    return isinstance(type, TensorType) and type.dtype is DType.FLOAT32
