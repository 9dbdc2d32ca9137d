"""The finalists: graphs that may be the result, measured end to end in one interleaved run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat.certify import Certificate
from eqsat.certify.outputs import DRIFT, Judge, samples
from eqsat.costs.model.cost import Cost, GraphCost
from eqsat.costs.model.model import CostModel
from eqsat.errors import BackendError, EqsatError, ExportModelError
from eqsat.extract.tensors.assembly import Assembled
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.read.model import Given
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.terms import OPAQUE, Graph, Plan
from eqsat.report.precision import RoundingReport
from eqsat.report.timing.compiling import Compiling, drawn
from eqsat.report.timing.sets import sets_in_time
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import Program
from eqsat.runtime.examples import DRAWS, SizePoint
from eqsat.runtime.measure import LEAST_ROUNDS, WARM_UP, Timings, clock_for, combined, interleaved
from eqsat.system.deadline import TimeUp, check, current

#: Rounds and seconds a comparison may take.
ROUNDS, SECONDS = 60, 12.0
#: The seconds of a model below which its finalists are timed in several sets of sessions, of so many rounds each: two
#: sessions of one model differ for good, by up to 7 % where it takes a millisecond, whatever the number of rounds.
SHORT, SET_ROUNDS = 5e-3, 15
#: The backends that run in sessions, and the share of the time left that sets of them may take.
_IN_SESSIONS, _SHARE = ("onnxruntime", "openvino"), 0.5
#: The time to have for one more finalist, over the longest that one took to be made ready: they are to be timed too.
_PREPARATIONS = 4.0
#: Seconds that ONNX Runtime takes to begin a run of a body: loops of 2 to 32 runs took 0.9 to 1.4 µs a run more than
#: what they run, one after the other.
RUN_SECONDS = 0.9e-6


@dataclass
class Candidate:
    """A graph that may be the result, with its cost, and its certificate once it was checked.

    `assembled` is the plan that the graph was lowered from, None for the original. `size` counts the nodes of its
    model: as given for the original, as it is written for the others; `within` says whether it keeps the limits,
    `amounts` are the amounts it uses. `rounding` has the errors of one that computes on integers.
    """

    name: str
    graph: Graph
    cost: GraphCost
    size: int
    within: bool = True
    amounts: Mapping[str, float] = field(default_factory=dict)
    assembled: Assembled | None = None
    rounding: RoundingReport | None = None
    certificate: Certificate = field(default_factory=lambda: Certificate("identical", 0.0))


@dataclass(frozen=True)
class Measured:
    """Timings of the finalists, "original" among them, over the points together; `refused` says which may not stand for
    it, and why, `losses` how far the others are from it on inputs of unusual size; `differing` are those refused for
    their outputs. `apart` are timings at each point by itself, where a finalist has to be faster at all of them.

    Samples are rounds, or of short models that seem faster the medians of sets of sessions.
    """

    timings: Timings
    refused: Mapping[str, str]
    losses: Mapping[str, Sequence[str]] = field(default_factory=dict)
    differing: frozenset[str] = frozenset()
    points: Sequence[SizePoint] = ()
    apart: Timings | None = None

    @property
    def rounds(self) -> int:
        """The number of rounds, or of sets of sessions, that were run."""
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
        if self.apart is None or name == "original":
            return self.timings, name, "original"
        apart = self.apart
        pairs = [(_part(name, i), _part("original", i)) for i in range(len(self.points))]
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
    tuned: Sequence[str] = (),
    drift: Mapping[str, float] | None = None,
    seconds: float = SECONDS,
    worst: bool = False,
    should_stop: Callable[[], bool] | None = None,
    follow: Callable[[str], None] | None = None,
    when_compared: Callable[[Compared], object] | None = None,
) -> Measured:
    """Time graphs, the original first, then the most promising, on a backend on the same random inputs, at each point.

    ONNX Runtime takes the original as the file or model it was given as. A GPU's backend, "cupy", takes `plans` where
    graphs have them, and library calls by the plans `tuned` for them, and is timed until the result is there. `drift`
    says how far the outputs of a graph may be from the original's, where that is not for rounding alone; timing takes
    some `seconds`, and as many again, in sessions made anew, where a short model seems to have become faster. With
    `worst`, bounds are those of the point where they are largest. The comparison goes to `when_compared` before
    anything is timed. Where the deadline leaves no time for all, the last ones are not made ready, and the original is
    timed beside the one that a single run shows to be fastest. BackendError where the original cannot be run there, or
    too little was measured when `should_stop()` became true.
    """
    compiled = Compiling(backend, source, threads, plans or {}, tuned)
    ready = _compared(graphs, compiled, points, seed, drift or {}, should_stop, follow)
    if when_compared is not None:
        when_compared(ready)
    if follow is not None:
        follow("timing")
    clock = clock_for(threads, backend)
    parts = {name: [(_part(name, i), p.weight) for i, p in enumerate(ready.points)] for name in ready.programs}
    refused = dict(ready.refused)

    def timed(programs: Mapping[str, Program], rounds: int) -> Timings:
        calls = _calls(programs, parts, ready.feeds)
        with current().ending(lambda: _end(programs.values())):
            return interleaved(calls, rounds, seed, clock=clock, time_limit=seconds, should_stop=should_stop)

    with current().ending(lambda: _end(ready.programs.values())):
        calls = _calls(ready.programs, parts, ready.feeds)
        for name in _untimed({name: [calls[part] for part, _ in parts[name]] for name in parts}):
            refused[name] = "the time left was too short to time it beside the others"
            del parts[name]
    timings = timed({name: ready.programs[name] for name in parts}, ROUNDS)
    timings.check_rounds()
    if backend in _IN_SESSIONS and _may_be_chance(combined(timings, parts)):

        def made(number: int) -> dict[str, Program]:
            order = np.random.default_rng([seed, number]).permutation(len(parts))
            return {name: compiled.program(name, graphs[name]) for name in (list(parts)[place] for place in order)}

        anew = _in_sets(lambda number: timed(made(number), SET_ROUNDS), seconds)
        timings = timings if anew is None else anew
    return Measured(
        combined(timings, parts), refused, ready.losses, ready.differing, ready.points, timings if worst else None
    )


def _calls(
    programs: Mapping[str, Program],
    parts: Mapping[str, Sequence[tuple[str, float]]],
    feeds: Sequence[Mapping[str, Any]],
) -> dict[str, Callable[[], object]]:
    """A call for each part of the times of programs: on the inputs at one of the points."""
    bound = ((name, zip(members, feeds, strict=True)) for name, members in parts.items())
    return {part: programs[name].bind(feed) for name, pairs in bound for (part, _), feed in pairs}


def _may_be_chance(timings: Timings) -> bool:
    """True if a finalist of a short model seems to be faster, which the sessions it happened to get may do."""
    others = [name for name in timings.samples if name != "original"]
    is_faster = any(timings.ratio_bound(name, "original") < 1.0 for name in others)
    return is_faster and timings.median("original") < SHORT


def _in_sets(timed: Callable[[int], Timings], seconds: float) -> Timings | None:
    """The medians of sets of sessions that are made anew; None where there was time for too few to bound anything."""
    found: list[Timings] = []
    for number in sets_in_time(min(seconds, _SHARE * current().seconds)):
        try:
            found.append(timed(number))
        except TimeUp:
            break
        if found[-1].rounds < LEAST_ROUNDS:
            found.pop()  # interrupted
            break
    if len(found) < LEAST_ROUNDS:
        return None
    return Timings({name: tuple(one.median(name) for one in found) for name in found[0].samples}, found[0].clock)


def _untimed(calls: Mapping[str, Sequence[Callable[[], object]]]) -> set[str]:
    """The finalists that are not timed, since the least rounds of all of them would end past the deadline."""
    if not math.isfinite(current().seconds) or len(calls) < 3:
        return set()
    took: dict[str, float] = {}
    for name, members in calls.items():
        check(0)
        start = time.monotonic()
        for call in members:
            call()
        took[name] = time.monotonic() - start
    if (LEAST_ROUNDS + WARM_UP) * sum(took.values()) < current().seconds:
        return set()
    others = [name for name in took if name != "original"]
    return set(others) - {min(others, key=lambda name: took[name])}


def _end(programs: Iterable[Program]) -> None:
    """Ask programs to end their runs, if they can be asked."""
    from eqsat.runtime.onnxruntime.session import SessionProgram

    for program in programs:
        if isinstance(program, SessionProgram):
            program.end()


def _part(name: str, index: int) -> str:
    """The name among the timings of a finalist at one of the points."""
    return f"{name} {index}"


@dataclass(frozen=True)
class Compared:
    """Finalists that may stand for the original, made ready to run; for others the reasons, and their losses.

    `differing` are those refused for their outputs, `points` where the original runs, `feeds` inputs at each of them.
    """

    programs: Mapping[str, Program]
    refused: Mapping[str, str]
    losses: Mapping[str, Sequence[str]]
    differing: frozenset[str]
    points: Sequence[SizePoint]
    feeds: Sequence[Mapping[str, Any]]


def compare_finalists(
    graphs: Mapping[str, Graph],
    source: Any,
    *,
    points: Sequence[SizePoint],
    seed: int,
    threads: int,
    drift: Mapping[str, float] | None = None,
    backend: str = "onnxruntime",
    runs_elsewhere: bool = False,
    follow: Callable[[str], None] | None = None,
) -> Compared:
    """Compare the outputs of graphs with the original's, without timing them, on a backend or else on NumPy.

    Graphs that are to run elsewhere, on a GPU say, may be such as ONNX Runtime has no kernels for: those are run on
    NumPy. BackendError where the original runs on neither.
    """
    here = Compiling(backend, source, threads, {}, (), else_on_numpy=runs_elsewhere)
    try:
        return _compared(graphs, here, points, seed, drift or {}, None, follow)
    except BackendError:
        if any(n.op == OPAQUE for n in graphs["original"].nodes):
            raise
    return _compared(graphs, Compiling("numpy", None, threads, {}, ()), points, seed, drift or {}, None, follow)


def _compared(
    graphs: Mapping[str, Graph],
    compiled: Compiling,
    points: Sequence[SizePoint],
    seed: int,
    drift: Mapping[str, float],
    should_stop: Callable[[], bool] | None,
    follow: Callable[[str], None] | None,
) -> Compared:
    original = graphs["original"]
    draws: list[dict[str, Any]] = []
    programs: dict[str, Program] = {}
    refused: dict[str, str] = {}
    losses: dict[str, Sequence[str]] = {}
    differing: set[str] = set()
    judge: Judge | None = None
    longest = 0.0
    for name, graph in graphs.items():
        if should_stop is not None and should_stop():
            raise BackendError("interrupted before anything was measured")
        if len(programs) > 1 and current().seconds < _PREPARATIONS * longest:
            refused[name] = "the time left was too short to make it ready beside the others"
            continue
        if follow is not None:
            follow(f"compiling {name}")
        check(0)
        begun = time.monotonic()
        try:
            if name != "original":
                compiled.check_safe(graph, original)
            program = compiled.program(name, graph)
            limit = drift.get(name, DRIFT)
            if name == "original":
                points, draws = drawn(original, compiled, program, points, seed)
            elif math.isfinite(limit):
                if judge is None:
                    judge = Judge(original, samples(original, draws, seed), programs["original"].run)
                verdict = judge.verdict(program.run, limit)
                if verdict.refused is not None:
                    refused[name] = verdict.refused
                    differing.add(name)
                    continue
                losses[name] = verdict.losses
        except EqsatError as error:
            if name == "original":
                raise
            refused[name] = error.what
            continue
        finally:
            longest = max(longest, time.monotonic() - begun)
        programs[name] = program
    return Compared(programs, refused, losses, frozenset(differing), points, draws[::DRAWS])


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
