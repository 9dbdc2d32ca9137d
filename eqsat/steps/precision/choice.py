"""The choice of kernels on integers beside those in float32: within an error budget that is predicted, then checked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.errors import ExportModelError
from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.assembly import Assembled, assemble
from eqsat.extract.tensors.integers import IntegerKernel, Roundings, integer_kernels
from eqsat.extract.tensors.quantised import IntegerOptions
from eqsat.extract.tensors.resources import limited
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.quantised import INTEGER
from eqsat.language.onnx.write import exporter
from eqsat.language.onnx.write.availability import CHANNEL_SCALES, lacking, opset_of
from eqsat.language.ops import OPS
from eqsat.language.terms import DType, Graph, TensorType
from eqsat.quantisation.sensitivity import foreseen, output_error
from eqsat.report.finalists import Candidate
from eqsat.report.precision import DataParts, RoundingReport
from eqsat.report.report import Progress
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import Program, select
from eqsat.runtime.examples import SizePoint
from eqsat.steps.choosing import Chooser, Chosen
from eqsat.steps.failures import told
from eqsat.steps.kernels import costs_with
from eqsat.steps.precision.equalising import Equaliser
from eqsat.steps.precision.outputs import agreement_of, errors_of
from eqsat.steps.precision.roundings import Calibration, MeasuredRoundings

Batch = Mapping[str, Any]

#: How often a choice may turn out worse than was predicted, or than is allowed, before float32 is kept.
ROUNDS = 8
#: The margin by which a prediction that was too low is raised, and by which a budget that lost a row's largest element
#: is lowered.
_MARGIN, _LESS = 1.1, 0.5
#: The share of a prediction above which an error is as was predicted, and the share of a choice's cost that another one
#: has to save to be worth a measurement.
_SLACK, _CHEAPER = 0.95, 0.995
#: The share of what is left of a call that one choice may take: several follow each other, and are then to be timed.
_SHARE = 0.2
#: Random batches that roundings are measured on where no data were given.
_DRAWN = 4


@dataclass(frozen=True)
class _Tried:
    """A choice with its program, its predicted error, and what was measured of it."""

    solution: Solution
    extraction: TensorProblem
    candidate: Candidate
    program: Program
    predicted: float


@dataclass(frozen=True)
class _Held:
    """A choice whose errors are as predicted, with the factor of the prediction and the number of its round."""

    tried: _Tried
    factor: float
    worst: float
    rounds: int


@dataclass(frozen=True)
class _Prepared:
    """Kernels on integers that would pay, their roundings, the e-nodes whose kernels were considered, and the classes
    of values with scaled channels."""

    options: IntegerOptions
    measured: MeasuredRoundings
    considered: frozenset[int]
    scaled: frozenset[int] = frozenset()


@dataclass(frozen=True)
class IntegerChoice:
    """Chooses, after the choice in the precisions of floats, among kernels on integers as well."""

    chooser: Chooser
    exact: Chosen
    equaliser: Equaliser

    def chosen(self) -> Chosen:
        """The choice with a finalist that computes on integers, where one is within the budget."""
        if self.chooser.settings.budget == 0.0:
            return self.exact
        prepared = self._prepared()
        if prepared is None:
            return self.exact
        with self.chooser.log.phase("extract"), self.chooser.settings.deadline:
            return self._within(prepared)

    def problem(self, counted: Sequence[str] = ()) -> TensorProblem:
        """The problem with kernels on integers, their errors as they were measured; `counted` are only added up."""
        settings, prepared = self.chooser.settings, self._prepared()
        if prepared is None:
            return limited(self.exact.extraction, settings.costs, settings.bounds, counted)
        options, measured = prepared.options, prepared.measured
        extraction = options.added(measured.roundings.scaled(measured.interaction))
        return limited(extraction, options.model, settings.bounds, counted)

    def _prepared(self) -> _Prepared | None:
        """The kernels on integers that would pay here, with the errors of their roundings; None where there are none.

        Calibration is no part of the time limit: it takes as long as the data and the network ask for.
        """
        log, settings = self.chooser.log, self.chooser.settings
        if (fault := _unwritable(self.chooser.given.graph, settings.options.opset)) is not None:
            log.warnings.append(f"no kernel on integers can be written: {fault}")
            return None
        if settings.data is None:
            log.warnings.append(
                "no calibration data: operands are quantised when they are read, and errors measured on random inputs"
            )
        else:
            log.warnings += [text for text in (settings.data.warning, settings.data.parts.warning) if text]
        given, solution = self.chooser.given, self.exact.solution
        assembled = assemble(self.exact.extraction, solution, given.graph)
        kernels = self._kernels(assembled, self.exact.extraction, solution)
        if not kernels:
            log.warnings.append("no operator of this model may run on integers here")
            return None
        with log.phase("calibrate"), settings.deadline.paused():
            costs = costs_with(IntegerOptions(self.exact.extraction, kernels, settings.costs).keys(), settings, log)
        with log.phase("extract"), settings.deadline:
            # Kernels are compared at costs that were measured together.
            extraction = replace(self.chooser, settings=replace(settings, costs=costs)).problem()
            paying = self._paying(IntegerOptions(extraction, kernels, costs))
        if not paying:
            log.warnings.append("no kernel on integers is faster here than those in float32")
            return None
        options, scaled = IntegerOptions(extraction, paying, costs), frozenset[int]()
        considered = frozenset(position for kernel in kernels for position in kernel.positions)
        with log.phase("calibrate"), settings.deadline.paused():
            if settings.data is not None and "equalise" in settings.choices.policy.adjust:
                assembled, options, scaled = self._equalised(assembled, options)
            if scaled:
                considered = frozenset(position for kernel in options.kernels for position in kernel.positions)
            measured = Calibration(settings, log, assembled, options.kernels).measured(*self._parts[:2])
        return _Prepared(options, measured, considered, scaled)

    def _paying(self, options: IntegerOptions) -> list[IntegerKernel]:
        """The kernels on the e-nodes that would run on integers if rounding were free, in all their forms.

        Only their roundings are worth a measurement: it takes a run of the whole network each.
        """
        extraction = limited(options.added(Roundings.free(options.kernels)), options.model, self._bounds)
        solution = self.chooser.solved(extraction, "ilp", share=_SHARE)
        chosen = _positions(extraction, solution, integers=True)
        return [kernel for kernel in options.kernels if chosen.issuperset(kernel.positions)]

    @property
    def _bounds(self) -> dict[str, float]:
        """The limits but that of the error."""
        return {term: most for term, most in self.chooser.settings.bounds.items() if term != "error"}

    def _equalised(
        self, assembled: Assembled, options: IntegerOptions
    ) -> tuple[Assembled, IntegerOptions, frozenset[int]]:
        """The kernels on a graph with scaled channels, and the classes that have them; as they are where none has."""
        settings, nodes = replace(self.chooser.settings, costs=options.model), assembled.snapshot.nodes
        products = {nodes[kernel.weights].eclass for kernel in options.kernels if kernel.weights is not None}
        equal = self.equaliser.equalised(
            replace(self.chooser, settings=settings),
            assembled,
            {assembled.decoded.names[leader] for leader in products},
            self._parts[:2],
            lambda detail: self.chooser.log.say(Progress("calibrate", detail=detail)),
        )
        if equal is None:
            return assembled, options, frozenset()
        assembled = assemble(equal.extraction, equal.solution, self.chooser.given.graph)
        offered = self._kernels(assembled, equal.extraction, equal.solution)
        kernels = equal.paying(offered, options.kernels, nodes)
        return assembled, IntegerOptions(equal.extraction, kernels, options.model), equal.quotients

    def _kernels(self, assembled: Assembled, extraction: TensorProblem, solution: Solution) -> list[IntegerKernel]:
        settings = self.chooser.settings
        policy = settings.choices.policy
        allowed = [op for op in settings.device.integers if policy.allows(op, INTEGER)]
        kernels = integer_kernels(extraction, solution, allowed, static=settings.data is not None)
        names = assembled.decoded.names
        return [k for k in kernels if all(leader in names for leader in (*k.reads, k.eclass))]

    @property
    def _parts(self) -> tuple[Sequence[Batch], Sequence[Batch], Sequence[Batch]]:
        """The batches to calibrate on, to tighten on, and to report."""
        data, settings = self.chooser.settings.data, self.chooser.settings
        if data is not None:
            return data.parts.calibrate, data.parts.tighten, data.parts.report
        points = settings.points or (SizePoint({}),)
        drawn = [
            points[0].inputs(self.chooser.given.graph, settings.options.seed + 1000 + number)
            for number in range(3 * _DRAWN)
        ]
        return drawn[0::3], drawn[1::3], drawn[2::3]

    def _within(self, prepared: _Prepared) -> Chosen:
        """Solve, measure what was chosen, and solve again with what was learned, until it is what was predicted."""
        log, settings = self.chooser.log, self.chooser.settings
        with settings.deadline.paused():
            original = self._compiled(self.chooser.given.graph)
            tightening = [(batch, original.run(batch)) for batch in (*self._parts[0], *self._parts[1])]
        budget, factor = settings.budget, prepared.measured.interaction
        most = math.inf if budget is None else budget
        held: _Held | None = None
        known: list[Solution] = []
        for number in range(1, ROUNDS + 1):
            log.say(Progress("extract", detail=f"choice {number} within an error of {_shown(most)}"))
            tried = self._tried(prepared, factor, most, known)
            if tried is None or (held is not None and tried.solution.cost > _CHEAPER * held.tried.solution.cost):
                break
            known = [tried.solution]
            with settings.deadline.paused():
                errors = [output_error(tried.program.run(batch), expected) for batch, expected in tightening]
                agreement = agreement_of(tried.program, tightening) if budget is None else 1.0
            worst = max(*errors, foreseen(errors))
            if worst > tried.predicted:
                if held is not None:
                    break
                factor *= _MARGIN * worst / max(tried.predicted, 1e-30)
                continue
            if agreement < 1.0:
                most = tried.predicted * _LESS
                continue
            held = _Held(tried, factor, max(errors), number)
            if budget is None or worst > _SLACK * tried.predicted:
                break
            # More kernels fit where roundings amount to less than was predicted.
            factor *= max(worst / (_SLACK * tried.predicted), _LESS)
        if held is not None:
            return self._accepted(held.tried, prepared, held.factor, held.worst, held.rounds)
        log.warnings.append("no choice on integers is within the error that is allowed: float32 is kept")
        return self.exact

    def _tried(self, prepared: _Prepared, factor: float, most: float, known: Sequence[Solution]) -> _Tried | None:
        """The cheapest choice within an error with its program; None where it has no kernel on integers."""
        settings, options = self.chooser.settings, prepared.options
        extraction, solution = self._solved(prepared, factor, most, known)
        if not any(_is_integer(extraction, index) for index in solution.chosen.values()):
            return None
        chooser = replace(self.chooser, settings=replace(settings, costs=options.model))
        (_, candidate) = chooser.finalists(extraction, {"int8": solution})[:2]
        predicted = math.sqrt(solution.amounts["error"])
        with settings.deadline.paused():
            program = self._compiled(candidate.graph, settings.portable_backend)
        return _Tried(solution, extraction, candidate, program, predicted)

    def _solved(
        self, prepared: _Prepared, factor: float, most: float, known: Sequence[Solution] = ()
    ) -> tuple[TensorProblem, Solution]:
        """The problem with all kernels on integers within an error, and its solution; `known` are of earlier rounds."""
        extraction = prepared.options.added(prepared.measured.roundings.scaled(factor))
        extraction = limited(extraction, prepared.options.model, {**self._bounds, "error": most})
        return extraction, self.chooser.solved(extraction, "ilp", known, _SHARE)

    def _compiled(self, graph: Graph, backend: str | None = None) -> Program:
        """A graph made ready to run: by default on ONNX Runtime, against whose outputs errors count."""
        return select(backend).compile(expanded(graph, lacking()), threads=self.chooser.settings.options.threads)

    def _accepted(
        self,
        tried: _Tried,
        prepared: _Prepared,
        factor: float,
        worst: float,
        rounds: int,
    ) -> Chosen:
        """The choice with the finalist, and the errors that are reported of it."""
        settings = self.chooser.settings
        calibrate, tighten, report = self._parts
        data = settings.data
        source = "random inputs" if data is None else data.source
        parts = DataParts(source, len(calibrate), len(tighten), len(report))
        with settings.deadline.paused():
            original = self._compiled(self.chooser.given.graph)
            errors = errors_of(tried.program, [(batch, original.run(batch)) for batch in report])
        integers, narrow, kept = self._counted(tried, prepared, factor)
        tried.candidate.rounding = RoundingReport(
            settings.budget,
            tried.predicted,
            worst,
            factor,
            errors,
            parts,
            rounds,
            integers,
            kept,
            narrow=narrow,
            equalised=len(prepared.scaled & _computed(tried)),
        )
        solutions = [*self.exact.candidates, tried.candidate]
        return replace(self.exact, extraction=tried.extraction, solution=tried.solution, candidates=solutions)

    def _counted(
        self, tried: _Tried, prepared: _Prepared, factor: float
    ) -> tuple[dict[str, int], dict[str, dict[str, int]], dict[str, dict[str, int]]]:
        """The operators that compute on integers, those in narrow floats, and why each of the others is in neither."""
        nodes = tried.extraction.snapshot.nodes
        chosen = _positions(tried.extraction, tried.solution, integers=True)
        integers = Counter(nodes[p].op for p in chosen)
        unbound = _positions(*self._solved(prepared, factor, math.inf), integers=True)
        policy, device = self.chooser.settings.choices.policy, self.chooser.settings.device
        kept: dict[str, Counter[str]] = {}
        narrow: dict[str, Counter[str]] = {}
        precisions = _narrow(tried.extraction, tried.solution)
        for position in _positions(tried.extraction, tried.solution, integers=False) - chosen:
            node = nodes[position]
            declared = OPS.get(node.op)
            known = tried.extraction.snapshot.classes[node.eclass].constant
            if known or declared is None or declared.view or not _makes_floats(node.types):
                continue
            if position in precisions:
                narrow.setdefault(precisions[position], Counter())[node.op] += 1
                continue
            if not policy.allows(node.op, INTEGER):
                reason = "policy"
            elif node.op not in device.integers or position not in prepared.considered:
                reason = "kernel"
            else:
                reason = "error" if position in unbound else "cost"
            kept.setdefault(node.op, Counter())[reason] += 1
        return dict(integers), _plain(narrow), _plain(kept)


def _unwritable(graph: Graph, asked: int | None) -> str | None:
    """The reason why a model with scales for channels cannot be written at the opset asked for, or at its own."""
    if asked is not None and asked < CHANNEL_SCALES:
        return f"opset {asked} has no scale for each channel; pass opset={CHANNEL_SCALES} or newer"
    if asked is None and opset_of(graph) < CHANNEL_SCALES:
        try:
            exporter.assemble(graph, CHANNEL_SCALES)
        except ExportModelError as fault:
            return told(fault)
    return None


def _positions(extraction: TensorProblem, solution: Solution, *, integers: bool) -> set[int]:
    """The e-nodes of the kernels of a solution, those on integers or the others."""
    chosen = (extraction.options[index] for index in solution.chosen.values())
    return {p for option in chosen if _on_integers(option) is integers and not option.fetch for p in option.positions}


def _narrow(extraction: TensorProblem, solution: Solution) -> dict[int, str]:
    """The e-nodes of a solution that run in other precisions than their own, with these."""
    chosen = (extraction.options[index] for index in solution.chosen.values())
    return {
        position: precision
        for option in chosen
        if not option.fetch and not _on_integers(option)
        for way in option.implementations
        for precision in {way.arithmetic, way.result.precision, *(state.precision for state in way.operands)} - {""}
        for position in option.positions
    }


def _computed(tried: _Tried) -> set[int]:
    """The classes that the e-nodes of a choice make."""
    both = (_positions(tried.extraction, tried.solution, integers=integers) for integers in (True, False))
    return {tried.extraction.snapshot.nodes[position].eclass for one in both for position in one}


def _plain(counts: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {name: dict(counter) for name, counter in counts.items()}


def _on_integers(option: Any) -> bool:
    return any(way.arithmetic == INTEGER for way in option.implementations)


def _is_integer(extraction: TensorProblem, index: int) -> bool:
    return _on_integers(extraction.options[index])


def _makes_floats(types: Sequence[object]) -> bool:
    return any(isinstance(type, TensorType) and type.dtype is DType.FLOAT32 for type in types)


def _shown(most: float) -> str:
    return "any size" if math.isinf(most) else f"{most:.2g}"
