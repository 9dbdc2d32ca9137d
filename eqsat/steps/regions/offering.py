"""Functions of regions, offered where they were measured to be faster than the operators that they stand for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from eqsat.costs.measuring.forms import bound_of_ratio
from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.errors import EqsatError
from eqsat.language.terms import Graph, Node, TensorType
from eqsat.report.progress import Progress
from eqsat.rewrites.theories.regions.equations import region_matches
from eqsat.rewrites.theories.regions.finding import FunctionRegion
from eqsat.steps.kernels import may_measure
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings
from eqsat.system.deadline import Deadline, TimeUp, check

#: Seconds for all regions of a graph: finding them, evidence of their equations, and the times of both forms. It is
#: looked at between one and the next, so that one of them may end later.
SECONDS = 10.0
#: The share of the time of its operators that a function may take at most, and the one from which on it is tried at no
#: other sizes.
_FASTER, _FAR_SLOWER = 0.95, 1.3


@dataclass(frozen=True)
class RegionOffer:
    """Regions of a run's graph as functions, on a device that has kernels for these.

    An estimate does not tell whether one kernel with several reductions is faster: that rests on vectors that rows
    fill, and on temporaries between its loops. So a region whose price is a time is offered where both forms were timed
    beside each other at the sizes of the run.
    """

    settings: Settings
    log: Log

    @classmethod
    def of(cls, settings: Settings, log: Log) -> RegionOffer | None:
        """The offer of a run; None where the device has no such kernels, or their times would be estimates alone."""
        offer = cls(settings, log)
        is_possible = not settings.device.writes_out and (may_measure(settings) or not offer._is_timed)
        return offer if is_possible else None

    @property
    def _is_timed(self) -> bool:
        """True where the price of a kernel rests on its time; a caller's function and counts need no measurement."""
        return self.settings.costs.cost is None and bool(self.settings.costs.objective.get("time"))

    def matches(self, egraph: EGraph, choices: Sequence[Collection[int]], roots: Collection[int]) -> list[Match]:
        """The matches of equations that bring functions into an e-graph, from choices of e-nodes and the outputs.

        What this takes is no part of the run's time limit, and ends after SECONDS.
        """
        found: list[Match] = []
        looking = Deadline(math.inf if self.settings.deadline.counts_steps else SECONDS)
        trials = RegionTrials(egraph, self.settings)
        with self.log.phase("calibrate"), self.settings.deadline.paused(), looking:
            self.log.say(Progress("calibrate", detail="regions as functions"))
            try:
                for match in region_matches(egraph, choices, roots, trials.is_faster if self._is_timed else _every):
                    found.append(match)
                    check()
            except TimeUp as late:
                self.log.skipped.append(f"regions as functions: {late}")
        return found


def _every(_name: str, _region: FunctionRegion, _operands: Sequence[int]) -> bool:
    return True


class RegionTrials:
    """Trials of functions beside the operators that they stand for, at the sizes of a run, each once."""

    def __init__(self, egraph: EGraph, settings: Settings) -> None:
        self._egraph, self._settings = egraph, settings
        self._known: dict[tuple[object, ...], bool] = {}
        #: The functions that took so much longer that no other sizes are tried.
        self._slow: set[str] = set()

    def is_faster(self, name: str, region: FunctionRegion, operands: Sequence[int]) -> bool:
        """True where the function of a region was measured to be faster than its operators.

        False where a size is unknown, where one of the two does not compile, and where it took far longer at others.
        TimeUp where the deadline that it is tried under is over.
        """
        sizes = self._settings.costs.sizes
        types = {str(one): self._egraph.type(one) for one in operands}
        types |= {str(one): step.result for one, step in region.steps.items()}
        static = {one: type.at(sizes) for one, type in types.items() if isinstance(type, TensorType)}
        if len(static) < len(types) or not all(type.is_static for type in static.values()):
            return False
        question = (name, *(static[str(one)] for one in operands))
        if question not in self._known and name not in self._slow:
            bound = self._bound(*_forms(name, region, operands, static))
            self._known[question] = bound < _FASTER
            if bound > _FAR_SLOWER:
                self._slow.add(name)
        return self._known.get(question, False)

    def _bound(self, function: Graph, operators: Graph) -> float:
        """The bound of the ratio of their times; infinite where one of them does not compile."""
        try:
            return bound_of_ratio(function, operators, self._settings.device, self._settings.options.threads)
        except EqsatError:
            return math.inf


def _forms(
    name: str, region: FunctionRegion, operands: Sequence[int], types: Mapping[str, TensorType]
) -> tuple[Graph, Graph]:
    """The graphs of a region as its function, and as its operators."""
    given, results = tuple(map(str, operands)), tuple(map(str, region.results))
    outputs = {value: value for value in results}
    function = Graph(
        name, given, outputs, (Node(name, given, results),), {}, {value: types[value] for value in (*given, *results)}
    )
    return function, Graph("operators", given, outputs, tuple(one.node for one in region.steps.values()), {}, types)
