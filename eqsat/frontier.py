"""What a model can be at most in one respect for what it costs in another: the Pareto front of two terms."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.costs.kernels.precision import PrecisionPolicy
from eqsat.costs.model.amounts import UNITS
from eqsat.costs.model.cost import PEAK_MEMORY
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.table import CostTable
from eqsat.egraph.engine import load
from eqsat.egraph.saturate import Limits
from eqsat.errors import ExtractionError, UsageError
from eqsat.extract.limited.pareto import Front, front, plot, table
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.lower import lower
from eqsat.language.onnx.read.model import ModelArgument, read
from eqsat.language.terms.graph import Graph
from eqsat.optimize import RulesArgument, choices_for, rules_of
from eqsat.report.report import Progress
from eqsat.steps.arguments import (
    bounds_of,
    check_budget,
    check_calls,
    check_finite_math,
    check_names,
    check_outputs,
    table_of,
)
from eqsat.steps.failures import marked
from eqsat.steps.pipeline import Pipeline
from eqsat.steps.settings import Settings
from eqsat.steps.sizes import SizesArgument, sizes_of
from eqsat.system.deadline import Deadline, TimeUp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The share of the time limit that saturation may take, and of what is then left that of the search.
_SATURATE, _SEARCH = 0.25, 0.9


@dataclass(frozen=True)
class Frontier:
    """The graphs of one e-graph of which none is better in one term and no worse in the other, and their amounts."""

    front: Front
    framed: TensorProblem
    original: Graph

    @property
    def points(self) -> list[dict[str, Any]]:
        """For every graph what it uses of each term, in the term's unit, and whether that is proved to be least."""
        x, y = self.front.terms
        return [{x: p.x, y: p.y, "proved": p.is_exact} for p in self.front.points]

    def graphs(self) -> Iterator[Graph]:
        """The graphs, in the order of the points; like every graph that is not certified, to be checked before use."""
        known: dict[object, object] = {}
        for point in self.front.points:
            yield lower(assemble(self.framed, point.solution, self.original, known).plan)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """The front as a staircase, written to a file if one is named; MissingExtraError without matplotlib."""
        return plot(self.front, path)

    def __rich__(self) -> Any:
        return table(self.front)

    def __str__(self) -> str:
        from eqsat.system.terminal import plain

        console = plain(100)
        with console.capture() as text:
            console.print(self)
        return "\n".join(line.rstrip() for line in text.get().splitlines())


def pareto(
    model: ModelArgument,
    x: str = "time",
    y: str = PEAK_MEMORY,
    *,
    device: str = "onnxruntime-cpu",
    layouts: str | Sequence[str] = "auto",
    precision: str | PrecisionPolicy = "exact",
    limits: Mapping[str, float | str] | None = None,
    node_limit: int = 20_000,
    time_limit: float = 60.0,
    steps: int | None = None,
    rules: RulesArgument = None,
    finite_math: bool | None = None,
    outputs: Sequence[str] | None = None,
    sizes: SizesArgument | None = None,
    seed: int = 0,
    table: CostTable | str | Path | None = None,
    threads: int = 1,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Frontier:
    """The Pareto front of two terms of the cost over all graphs that rules prove equal to a model.

    `x` and `y` are of time, flops, bytes, launches, weight_memory, peak_memory and error; the other arguments are those
    of `optimize`. When `time_limit` (seconds) is up, or `steps` are taken, the points found so far are returned, and
    the table says so. Times are in seconds, memory in bytes. UsageError for a term that is none and for an argument out
    of its domain; ExtractionError where there was no time for one point; otherwise the errors of `optimize`, but for
    those of certificates, since nothing is certified here.
    """
    for term in (x, y):
        if not isinstance(term, str) or term not in UNITS:
            raise UsageError(f"no term {term!r}", expected="one of " + ", ".join(UNITS))
    check_names(device=device)
    check_budget(node_limit, time_limit, threads, seed, steps)
    check_finite_math(finite_math)
    check_calls(progress=progress, should_stop=should_stop)
    check_outputs(outputs)
    bounds, wanted = bounds_of(limits), sizes_of(sizes)
    costs = CostModel(device, table_of(table), {"time": 1.0}, threads=threads)
    choices, warnings = choices_for(costs.device, layouts, precision)
    settings = Settings(
        device=costs.device.name,
        extractor="ilp",
        alpha=None,
        limits=Limits(nodes=node_limit, seconds=math.inf if steps else _SATURATE * time_limit),
        deadline=Deadline(time_limit, steps=steps, asked=marked(should_stop)),
        choices=choices,
        boundary={},
        bounds=bounds,
        finite_math=finite_math,
        seed=seed,
        opset=None,
        threads=threads,
        sizes={name: min(of) for name, of in wanted.items()},
        points=(),
        over_sizes="sum",
        progress=marked(progress),
        should_stop=marked(should_stop),
    )
    pipeline = Pipeline(settings, warnings=list(warnings))
    deadline = settings.deadline
    with pipeline.phase("read"):
        load()
        loaded, given = rules_of(rules), read(model, outputs)
        deadline.begin()  # reading is not in the limit
        points = pipeline.place(given, wanted, costs)
        costs.settle(sum(c.nbytes for c in given.graph.constants.values()), points)
    try:
        _, _, frozen = pipeline.grow(given, loaded)
        with pipeline.phase("extract"), deadline:
            framed = pipeline.frame(given.graph, frozen, costs, (x, y))
            found = front(framed.problem, x, y, time_limit=deadline.part(_SEARCH), seed=seed, should_stop=should_stop)
    except TimeUp as late:
        raise ExtractionError(
            f"no point of the front was found: {late}",
            where=given.graph.name,
            expected="time for one graph at least",
            remedy="let it run on" if deadline.is_asked else "raise the limit" if steps else "raise time_limit",
        ) from late
    return Frontier(found, framed, given.graph)
