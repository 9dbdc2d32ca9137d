"""Pareto front of two cost terms over the graphs equal to a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from eqsat.costs.model.amounts import UNIT_NAMES, check_term
from eqsat.costs.model.cost import PEAK_MEMORY, readable
from eqsat.egraph.derived import DerivedConstants
from eqsat.errors import ExtractionError
from eqsat.extract.limited.pareto import Front, check_two, front, plot, table
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.lower import lower
from eqsat.language.onnx.read.model import ModelArgument
from eqsat.language.terms.graph import Graph
from eqsat.options.keywords import ParetoKeywords
from eqsat.options.options import Options
from eqsat.options.signatures import documented
from eqsat.report.progress import Progress
from eqsat.report.units import amount, count, percent
from eqsat.run import Run
from eqsat.system.deadline import TimeUp
from eqsat.system.markup import html_listing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The share of the time limit that saturation may take, and of what is then left that of the search.
_SATURATE, _SEARCH = 0.25, 0.9


@dataclass(frozen=True, repr=False)
class Frontier:
    """The graphs of one e-graph of which none is better in one term and no worse in the other, and their amounts."""

    front: Front
    extraction: TensorProblem
    original: Graph

    @property
    def points(self) -> list[dict[str, Any]]:
        """For every graph the amount it uses of each term, in the term's unit, and whether that is proved to be
        least."""
        x, y = self.front.terms
        return [{x: p.x, y: p.y, "proved": p.is_exact} for p in self.front.points]

    @property
    def units(self) -> dict[str, str]:
        """The units of the two terms."""
        return {term: UNIT_NAMES[term] for term in self.front.terms}

    def as_dict(self) -> dict[str, Any]:
        """The front as JSON has it: terms, their units, whether these are all points, and the points."""
        about = {"terms": list(self.front.terms), "units": self.units, "complete": self.front.is_complete}
        return {**about, "points": self.points}

    def graphs(self) -> Iterator[Graph]:
        """The graphs, in the order of the points; like every graph that is not certified, to be checked before use."""
        known = DerivedConstants()
        for point in self.front.points:
            yield lower(assemble(self.extraction, point.solution, self.original, known).plan)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """The front as a staircase, written to a file if one is named; MissingExtraError without matplotlib."""
        return plot(self.front, path, UNIT_NAMES)

    def __rich__(self) -> Any:
        return table(self.front, amount)

    def __str__(self) -> str:
        from eqsat.system.terminal import captured

        return captured(self.__rich__(), 100)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        x, y = self.front.terms
        rows = ((amount(x, p.x), amount(y, p.y), "yes" if p.is_exact else "no") for p in self.front.points)
        title = f"{x} against {y}" + ("" if self.front.is_complete else " (not all points)")
        return html_listing(title, "point", (x, y, "proved"), rows, len(self.front.points))


@documented("pareto")
def pareto(model: ModelArgument, x: str = "time", y: str = PEAK_MEMORY, **options: Unpack[ParetoKeywords]) -> Frontier:
    """The Pareto front of two terms of the cost over all graphs that rules prove equal to a model.

    `x` and `y` are of time, flops, bytes, launches, weight_memory, peak_memory and error. When the limit of time or
    steps is up, the points found so far are returned, and the table says so. Times are in seconds, memory in bytes. The
    options are

    {options}

    UsageError for a term that is none and for an argument out of its domain; ExtractionError where there was no time
    for one point; otherwise the errors of `optimize`, but for those of certificates: nothing is certified here.
    """
    for term in (x, y):
        check_term(term)
    check_two(x, y)
    run = Run.read(model, Options.of("pareto", options), _SATURATE)
    # Its graphs are written in the operators they have, not in ONNX Runtime's own.
    run = replace(run, settings=replace(run.settings, contrib=False))
    checked, deadline, graph = run.settings.options, run.settings.deadline, run.given.graph
    try:
        grown = run.saturate(run.rules)
        with run.log.phase("extract"), deadline:
            chooser = run.chooser(grown)
            if run.settings.choices.policy.quantises:
                extraction = run.integers(grown, chooser, chooser.choice(chooser.weighed_problem())).problem((x, y))
            else:
                extraction = chooser.problem((x, y))
            time_limit = deadline.part(_SEARCH)
            nodes = len(extraction.snapshot.nodes)

            def follow(points: int, share: float) -> None:
                detail = f"{count(points, 'point')}, {percent(share)} of the range of {y} searched"
                run.log.say(Progress("extract", nodes=nodes, detail=detail))

            run.log.say(Progress("extract", nodes=nodes, detail=f"no point yet, least {y}"))
            points = front(
                extraction.problem,
                x,
                y,
                time_limit=time_limit,
                seed=checked.seed,
                should_stop=checked.should_stop,
                progress=follow,
            )
    except TimeUp as late:
        remedy = "let it run on" if deadline.is_asked else "raise the limit" if checked.steps else "raise time_limit"
        raise ExtractionError(
            f"no point of the front was found: {late}",
            where=graph.name,
            expected="time for one graph at least",
            remedy=remedy,
        ) from late
    return Frontier(_in_units(points), extraction, graph)


def _in_units(front: Front) -> Front:
    """The front with its amounts in the units of its terms: errors were added up as squares."""
    x, y = front.terms
    points = (replace(p, x=readable({x: p.x})[x], y=readable({y: p.y})[y]) for p in front.points)
    return replace(front, points=tuple(points))
