"""The finalists: graphs that may be the result, measured end to end in one interleaved run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.certify import Certificate
from eqsat.costs.model.cost import Cost, GraphCost
from eqsat.costs.model.model import CostModel
from eqsat.errors import BackendError, ExportModelError
from eqsat.extract.tensors.assembly import Assembled
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.read.model import Given
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.terms import OPAQUE, Graph, Plan
from eqsat.report.precision import RoundingReport
from eqsat.report.timing.bench import Bench, part_of
from eqsat.report.timing.comparison import OutputComparison
from eqsat.report.timing.compiling import Compiling
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.examples import SizePoint
from eqsat.runtime.measure import Timings
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL, UNFUSED_LEVEL

#: Seconds that timing may take.
SECONDS = 12.0
#: Seconds that ONNX Runtime takes to begin a run of a body: loops of 2 to 32 runs took 0.9 to 1.4 µs a run more than
#: what they run, one after the other.
RUN_SECONDS = 0.9e-6


@dataclass
class Candidate:
    """A graph that may be the result, with its cost, and its certificate once it was checked.

    `assembled` is the plan that the graph was lowered from, None for the original. `size` counts the nodes of its
    model: as given for the original, as it is written for the others; `within` says whether it keeps the limits,
    `amounts` are the amounts it uses. `rounding` has the errors of one that computes on integers. Where equal blocks
    of the model stand for each other, `pattern` is the one of the smaller graph that it was made from.
    """

    name: str
    graph: Graph
    cost: GraphCost
    size: int
    within: bool = True
    amounts: Mapping[str, float] = field(default_factory=dict)
    assembled: Assembled | None = None
    rounding: RoundingReport | None = None
    pattern: Pattern | None = None
    certificate: Certificate = field(default_factory=lambda: Certificate("identical", 0.0))


@dataclass(frozen=True)
class Pattern:
    """A finalist of a graph in which a few equal blocks stand for all, and the one of the whole is made from it.

    `copies` say, for each block that another one stands for, how values of that one are called there.
    """

    candidate: Candidate
    copies: Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Measured:
    """Timings of the finalists, "original" among them, over the points together; `refused` says which may not stand for
    it, and why, `losses` how far the others are from it on inputs of unusual size; `differing` are those refused for
    their outputs. `apart` are timings at each point by itself, where a finalist has to be faster at all of them. Where
    finalists were timed one after the other, `pairs` are the timings of each beside the original, by name.

    Samples are rounds, or of short models that seem faster the medians of sets of sessions.
    """

    timings: Timings
    refused: Mapping[str, str]
    losses: Mapping[str, Sequence[str]] = field(default_factory=dict)
    differing: frozenset[str] = frozenset()
    points: Sequence[SizePoint] = ()
    apart: Timings | None = None
    pairs: Mapping[str, Measured] = field(default_factory=dict)

    @classmethod
    def joined(cls, pairs: Sequence[Measured]) -> Measured:
        """The timings of several finalists, each of which was timed beside the original at another time."""
        by_name = {name: pair for pair in pairs for name in pair.timings.samples if name != "original"}
        samples = {name: pair.timings.samples[name] for name, pair in by_name.items()}
        original = tuple(sample for pair in pairs for sample in pair.timings.samples["original"])
        timings = Timings({"original": original, **samples}, pairs[0].timings.clock)
        return replace(pairs[0], timings=timings, apart=None, pairs=by_name)

    @property
    def rounds(self) -> int:
        """The number of rounds, or of sets of sessions, that were run; the least of those of all finalists."""
        return self.timings.rounds

    def median(self, name: str) -> float:
        """The median of a finalist, in seconds."""
        return self.timings.median(name)

    def ratio(self, name: str) -> float:
        """The median over rounds of a finalist's time over the original's; 1 for the original."""
        timings, new, old = self._pair(name)
        return 1.0 if name == "original" else timings.ratio(new, old)

    def bound(self, name: str) -> float:
        """The upper 95 % bound of the same ratio; 1 for the original."""
        timings, new, old = self._pair(name)
        return 1.0 if name == "original" else timings.ratio_bound(new, old)

    def _pair(self, name: str) -> tuple[Timings, str, str]:
        """The timings that compare a finalist with the original, and the names of both: where its bound is largest."""
        if name in self.pairs:
            return self.pairs[name]._pair(name)
        if self.apart is None or name == "original":
            return self.timings, name, "original"
        apart = self.apart
        pairs = [(part_of(name, i), part_of("original", i)) for i in range(len(self.points))]
        return apart, *max(pairs, key=lambda pair: apart.ratio_bound(*pair))


def measure_finalists(
    graphs: Mapping[str, Graph],
    source: Any,
    *,
    points: Sequence[SizePoint],
    seed: int,
    threads: int,
    plans: Mapping[str, Plan] | None = None,
    backend: str = "onnxruntime",
    opset: int | None = None,
    tuned: Sequence[str] = (),
    drift: Mapping[str, float] | None = None,
    seconds: float = SECONDS,
    worst: bool = False,
    should_stop: Callable[[], bool] | None = None,
    follow: Callable[[str], None] | None = None,
    when_compared: Callable[[OutputComparison], object] | None = None,
) -> Measured:
    """Time graphs, the original first, then the most promising, on a backend on the same random inputs, at each point.

    ONNX Runtime takes the original as the file or model it was given as, others as written at `opset`. A GPU's backend,
    "cupy", takes `plans` where graphs have them, and library calls by the plans `tuned` for them, and is timed until
    the result is there. `drift` says how far the outputs of a graph may be from the original's, where that is not for
    rounding alone; timing takes some `seconds`, and as many again, in sessions made anew, where a short model seems to
    have become faster. With `worst`, bounds are those of the point where they are largest. The comparison goes to
    `when_compared` before anything is timed. Where the deadline leaves no time for all, the last ones are not made
    ready, and the original is timed beside the one that a single run shows to be fastest. BackendError where the
    original cannot be run there, or too little was measured when `should_stop()` became true.
    """
    compiled = Compiling(backend, source, threads, plans or {}, tuned, opset=opset)
    others = [name for name in graphs if name != "original"]
    if follow is not None:
        follow("compiling original")
    comparison = OutputComparison(graphs["original"], compiled, points, seed, drift or {}, others)
    if when_compared is not None:
        when_compared(comparison)
    bench = Bench(graphs, compiled, comparison, seed, seconds, should_stop, follow)
    found = [(bench.whole(timings), timings if worst else None) for timings in bench.timings()]
    refused = bench.refused | comparison.refused
    losses, differing = dict(comparison.losses), frozenset(comparison.differing)
    measured = [Measured(whole, refused, losses, differing, comparison.points, apart) for whole, apart in found]
    return measured[0] if len(measured) == 1 else Measured.joined(measured)


def compare_finalists(
    graphs: Mapping[str, Graph],
    source: Any,
    *,
    points: Sequence[SizePoint],
    seed: int,
    threads: int,
    drift: Mapping[str, float] | None = None,
    backend: str = "onnxruntime",
    opset: int | None = None,
    runs_elsewhere: bool = False,
) -> OutputComparison:
    """The outputs of the original, to compare those of the other graphs with, on a backend or else on NumPy.

    Graphs that are to run elsewhere, on a GPU say, are run as they are written, without kernels on integers that add in
    16 bits on some processors. They may be such as ONNX Runtime has no kernels for: those are run on NumPy.
    BackendError where the original runs on neither.
    """
    original, others = graphs["original"], [name for name in graphs if name != "original"]
    level = UNFUSED_LEVEL if runs_elsewhere else DEFAULT_LEVEL
    compiled = Compiling(backend, source, threads, {}, (), else_on_numpy=runs_elsewhere, opset=opset, level=level)
    try:
        comparison = OutputComparison(original, compiled, points, seed, drift or {}, others)
    except BackendError:
        if any(n.op == OPAQUE for n in original.nodes):
            raise
        compiled = Compiling("numpy", None, threads, {}, ())
        comparison = OutputComparison(original, compiled, points, seed, drift or {}, others)
    comparison.take_original()
    return comparison


def with_bodies(cost: GraphCost, given: Given, costs: CostModel) -> GraphCost:
    """The cost of a model with its control flow as it was, given that of the graph that was made of it."""
    price = cost.price + math.fsum(body.saved for body in given.inside)
    origin = given.graph.origin
    if isinstance(origin, OnnxOrigin) and costs.cost is None:
        price += costs.weigh(Cost(seconds=RUN_SECONDS * sum(settled.runs for settled in origin.settled)))
    return replace(cost, price=price)


def written_size(graph: Graph, opset: int | None) -> int:
    """The number of nodes a graph is written with; its own number of nodes where ONNX cannot express it."""
    from eqsat.language.onnx.write.exporter import assemble

    try:
        return len(assemble(expanded(graph, lacking()), opset)[0].graph.node)
    except ExportModelError:
        return len(graph.nodes)
