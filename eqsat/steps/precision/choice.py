"""The choice of kernels on integers beside those in float32: within an error budget that is predicted, then checked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.costs.kernels.precision import PACKED
from eqsat.errors import ExportModelError
from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.assembly import Assembled, assemble
from eqsat.extract.tensors.integers import IntegerKernel, Roundings
from eqsat.extract.tensors.quantised import IntegerOptions, favoured
from eqsat.extract.tensors.resources import limited
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.quantised import BYTES
from eqsat.language.onnx.write import exporter
from eqsat.language.onnx.write.availability import CHANNEL_SCALES, opset_of
from eqsat.language.ops import OPS
from eqsat.language.terms import FLOAT8, DType, Graph, TensorType
from eqsat.report.precision import DataParts, RoundingReport
from eqsat.report.report import Progress
from eqsat.runtime.examples import SizePoint
from eqsat.steps.choosing import Chooser, Chosen
from eqsat.steps.failures import told
from eqsat.steps.kernels import costs_with
from eqsat.steps.precision.chosen import narrow_of, positions_of
from eqsat.steps.precision.equalising import Equaliser
from eqsat.steps.precision.kernels import (
    kernels_of,
    measured_roundings,
    notes_of,
    offered_kernels,
    options_of,
    without_data,
)
from eqsat.steps.precision.outputs import errors_of
from eqsat.steps.precision.roundings import MeasuredRoundings
from eqsat.steps.precision.search import Allowance, ErrorSearch, HeldChoice, Tried, other_bounds

Batch = Mapping[str, Any]

#: The shares of their price that kernels on integers count at in choices that are compared in whole networks, by the
#: end of a choice's name.
_SHARES = {"": 1.0, "-wide": 0.25}
#: Random batches that roundings are measured on where no data were given.
_DRAWN = 4


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

    @cached_property
    def _allowance(self) -> Allowance:
        return Allowance(self.chooser.settings.deadline)

    @property
    def _numbers(self) -> str:
        """The numbers of a byte that may stand for values."""
        return "integers or float8" if FLOAT8 in self.chooser.settings.choices.policy.precisions else "integers"

    @property
    def _shares(self) -> dict[str, float]:
        """The shares of prices that choices are made at, by the end of a choice's name.

        On a GPU that is not here nothing tells them apart; packed weights alone are measured as they run.
        """
        device = self.chooser.settings.device
        return {"": 1.0} if not self._computes or (device.gpu and not device.is_here) else _SHARES

    @property
    def _computes(self) -> bool:
        """True if operators may compute on numbers of a byte, beside those that may read packed weights."""
        return any(name in BYTES for name in self.chooser.settings.choices.policy.precisions)

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
        fault = _unwritable(self.chooser.given.graph, settings.options.opset) if self._computes else None
        if fault is not None:
            log.warnings.append(f"no kernel on integers can be written: {fault}")
            return None
        if settings.data is None:
            log.warnings.append(without_data(settings))
            if settings.device.gpu:
                return None
        else:
            log.warnings += [text for text in (settings.data.warning, settings.data.parts.warning) if text]
        given, solution = self.chooser.given, self.exact.solution
        assembled = assemble(self.exact.extraction, solution, given.graph)
        kernels = self._kernels(assembled, self.exact.extraction, solution)
        if not kernels:
            log.warnings.append(f"no operator of this model may run on {self._numbers} here")
            return None
        costs, keys = settings.costs, options_of(self.exact.extraction, kernels, settings.costs).keys()
        if keys:
            with log.phase("calibrate"), settings.deadline.paused():
                costs = costs_with(keys, settings, log)
        with log.phase("extract"), settings.deadline:
            # Kernels are compared at costs that were measured together.
            extraction = replace(self.chooser, settings=replace(settings, costs=costs)).problem()
            paying = self._paying(options_of(extraction, kernels, costs))
        if not paying:
            log.warnings.append(f"no kernel on {self._numbers} is faster here than those in float32")
            return None
        options, scaled = options_of(extraction, paying, costs), frozenset[int]()
        considered = frozenset(position for kernel in kernels for position in kernel.positions)
        with log.phase("calibrate"), settings.deadline.paused():
            if settings.data is not None and not settings.device.gpu and "equalise" in settings.choices.policy.adjust:
                assembled, options, scaled = self._equalised(assembled, options)
            if scaled:
                considered = frozenset(position for kernel in options.kernels for position in kernel.positions)
            measured = measured_roundings(settings, log, assembled, options.kernels, *self._parts[:2])
        return _Prepared(options, measured, considered, scaled)

    def _paying(self, options: IntegerOptions) -> list[IntegerKernel]:
        """The kernels on the e-nodes that would run on integers if rounding were free in some choice, in all forms.

        Only their roundings are worth a measurement: it takes a run of the whole network each. Those that save most
        come first; of those that quantise an operand when they run, only the faster ones are worth it.
        """
        extraction = limited(options.added(Roundings.free(options.kernels)), options.model, other_bounds(self.chooser))
        chosen: set[int] = set()
        for share in self._shares.values():
            priced = favoured(extraction, share)
            chosen |= positions_of(
                extraction, self.chooser.solved(priced, "ilp", share=self._allowance.share), integers=True
            )
        savings = {kernel: options.saving(kernel) for kernel in options.kernels if chosen.issuperset(kernel.positions)}
        paying = [
            kernel
            for kernel, saving in savings.items()
            if (options.pays(kernel) if kernel.packing else saving > 0 or not kernel.online)
        ]
        return sorted(paying, key=lambda kernel: -savings[kernel])

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
        scaled = options_of(equal.extraction, equal.paying(offered, options.kernels, nodes), options.model)
        kernels = sorted(scaled.kernels, key=lambda kernel: -scaled.saving(kernel))
        return assembled, options_of(equal.extraction, kernels, options.model), equal.quotients

    def _kernels(self, assembled: Assembled, extraction: TensorProblem, solution: Solution) -> list[IntegerKernel]:
        kernels = offered_kernels(extraction, solution, self.chooser.settings, self.chooser.log)
        return kernels_of(assembled.graph, assembled.decoded.names, kernels)

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
        """The choices with finalists whose errors are as predicted: at the prices of kernels, and at shares of them."""
        calibrate, tighten, report = self._parts
        data = (*calibrate, *tighten)
        search = ErrorSearch(self.chooser, prepared.options, prepared.measured, data, self._allowance)
        chosen: dict[str, HeldChoice] = {}
        for end, share in self._shares.items():
            earlier = next(iter(chosen.values()), None)
            held = search.held(end, share, None if earlier is None else earlier.factor)
            graphs = [other.tried.candidate.graph.nodes for other in chosen.values()]
            if held is not None and held.tried.candidate.graph.nodes not in graphs:
                chosen[end] = held
        if not chosen:
            text = f"no choice on {self._numbers} is within the error that is allowed: float32 is kept"
            if search.refused:
                nearest = min(search.refused)
                text += f"; the nearest moved an output by {nearest:.2g}, which a higher limit of error would allow"
            self.chooser.log.warnings.append(text)
            return self.exact
        first = next(iter(chosen.values()))
        tried = first.tried
        unlimited = search.solved(first.factor, math.inf, [tried.solution])
        held_back = search.expected(report)
        for held in chosen.values():
            self._accept(held, prepared, held_back, unlimited)
        candidates = [*self.exact.candidates, *(held.tried.candidate for held in chosen.values())]
        return replace(self.exact, extraction=tried.extraction, solution=tried.solution, candidates=candidates)

    def _accept(
        self,
        held: HeldChoice,
        prepared: _Prepared,
        held_back: Sequence[tuple[Batch, Mapping[str, Any]]],
        unlimited: tuple[TensorProblem, Solution],
    ) -> None:
        """Tell of a finalist its errors on data held back; `unlimited` is the choice that no error limits."""
        settings, tried = self.chooser.settings, held.tried
        calibrate, tighten, report = self._parts
        data = settings.data
        source = "random inputs" if data is None else data.source
        parts = DataParts(source, len(calibrate), len(tighten), len(report))
        with settings.deadline.paused():
            errors = errors_of(tried.program, held_back)
        integers, narrow, kept = self._counted(tried, prepared, unlimited)
        tried.candidate.rounding = RoundingReport(
            settings.budget,
            tried.predicted,
            held.worst,
            held.factor,
            errors,
            parts,
            held.rounds,
            integers,
            kept,
            notes=notes_of(settings),
            narrow=narrow,
            equalised=len(prepared.scaled & _computed(tried)),
        )

    def _counted(
        self, tried: Tried, prepared: _Prepared, unlimited: tuple[TensorProblem, Solution]
    ) -> tuple[dict[str, int], dict[str, dict[str, int]], dict[str, dict[str, int]]]:
        """The operators that compute on integers, those in narrow floats, and why each of the others is in neither.

        `unlimited` is the choice that no error limits.
        """
        nodes = tried.extraction.snapshot.nodes
        chosen = positions_of(tried.extraction, tried.solution, integers=True)
        precisions = narrow_of(tried.extraction, tried.solution)
        integers = Counter(nodes[p].op for p in chosen if p not in precisions)
        unbound = positions_of(*unlimited, integers=True)
        policy, device = self.chooser.settings.choices.policy, self.chooser.settings.device
        kept: dict[str, Counter[str]] = {}
        narrow: dict[str, Counter[str]] = {}
        others = positions_of(tried.extraction, tried.solution, integers=False) - chosen
        for position in (*others, *(p for p in chosen if p in precisions)):
            node = nodes[position]
            declared = OPS.get(node.op)
            known = tried.extraction.snapshot.classes[node.eclass].constant
            if known or declared is None or declared.view or (device.strided and declared.strided):
                continue
            if not _makes_floats(node.types):
                continue
            if position in precisions:
                narrow.setdefault(precisions[position], Counter())[node.op] += 1
                continue
            if not any(policy.allows(node.op, precision) for precision in (*BYTES, *PACKED)):
                reason = "policy"
            elif position not in prepared.considered:
                reason = "kernel"
            else:
                reason = "error" if position in unbound or position in prepared.measured.refused else "cost"
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


def _computed(tried: Tried) -> set[int]:
    """The classes that the e-nodes of a choice make."""
    both = (positions_of(tried.extraction, tried.solution, integers=integers) for integers in (True, False))
    return {tried.extraction.snapshot.nodes[position].eclass for one in both for position in one}


def _plain(counts: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {name: dict(counter) for name, counter in counts.items()}


def _makes_floats(types: Sequence[object]) -> bool:
    return any(isinstance(type, TensorType) and type.dtype is DType.FLOAT32 for type in types)
