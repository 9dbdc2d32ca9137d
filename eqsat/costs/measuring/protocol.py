"""Measurement of a kernel's time on a device that replays graphs: the protocol of the tables of GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from eqsat.costs.table.entry import Entry
from eqsat.errors import CostError, EqsatError
from eqsat.runtime.measure import sampled

#: Replays of each graph, and of each candidate before the best are looked at closely.
REPLAYS, SCREENED = 20, 5
#: Candidates that are looked at closely: as many, and as far from the fastest.
FINALISTS, NEAR = 4, 1.25
#: Seconds that the shorter graph should take: long against a clock's resolution.
GRAPH_SECONDS = 2e-4
LEAST_COPIES, MOST_COPIES = 8, 256
#: The constants that copies take turns on are this many times the second-level cache together, where copies suffice.
COLD_TIMES = 3
#: Largest relative difference of two measurements of one kernel on a steady device.
DRIFT = 0.02
_SETTLING = 20


class Replay(Protocol):
    """Copies of a kernel in a graph that is replayed as one."""

    def seconds(self) -> float:
        """Replay the graph once and return the seconds between its first kernel and its last."""

    def close(self) -> None:
        """Free the resources of the graph."""


class Subject(Protocol):
    """A kernel with data to run it on.

    `plans` are the ways a device has to run it, as text, the device's own choice first; empty for one way without a
    name. `weight_bytes` are those of its constants.
    """

    weight_bytes: int

    @property
    def plans(self) -> Sequence[str]:
        """The ways to run it."""

    def further(self, times: Mapping[str, float]) -> Sequence[str]:
        """More ways to run it, for the seconds of all that ran so far; none where all were named, or enough tried."""

    def graph(self, plan: str, copies: int, weights: int) -> Replay:
        """`copies` of the kernel one after the other, which take turns on so many sets of constants.

        Results are read and written in place, by all copies alike. EqsatError where the plan does not run.
        """

    def close(self) -> None:
        """Free the resources of the kernel."""


class Stopwatch(Protocol):
    """A device that can time graphs; `l2_bytes` is its second-level cache."""

    l2_bytes: int

    def sweep(self) -> None:
        """Read at least three times the second-level cache, so that its old content is gone."""


def measure(subject: Subject, stopwatch: Stopwatch, *, seed: int = 0, replays: int = REPLAYS) -> Entry:
    """The time of a kernel by its fastest plan: cold, and hot where it has constants.

    Graphs of K and of 2K copies are replayed in turn; the time is (T(2K) - T(K)) / K, in each round, which is free of
    the fixed cost of a replay. Cold, copies take turns on so many constants that COLD_TIMES the second-level cache lies
    between two readings of one, or each has its own, and before each replay the cache is swept; hot, all share theirs.
    The plans are screened first, and those that the subject goes on to by their times; then the fastest are timed in
    turn, in an order drawn anew each round, so that drift meets all alike. CostError where no plan runs.
    """
    if replays < REPLAYS:
        raise CostError(f"replays = {replays}", expected=f"{REPLAYS} or more")
    rng = np.random.default_rng(seed)
    plans = tuple(dict.fromkeys(subject.plans)) or ("",)
    copies = _copies(subject, plans)
    if len(plans) > 1:
        plans = _screened(subject, stopwatch, plans, copies, rng)
    with _slopes(subject, stopwatch, plans, copies, hot=True) as slopes:
        by_plan = _sampled(slopes, replays, rng)
    cold = {plan: samples for (plan, is_hot), samples in by_plan.items() if not is_hot}
    best = min(cold, key=lambda plan: (float(np.median(cold[plan])), plans.index(plan)))
    entry, hot = Entry.of(cold[best], best), by_plan.get((best, True))
    return entry if hot is None else replace(entry, hot=min(float(np.median(hot)), entry.seconds))


def steady(subject: Subject, *, replays: int = REPLAYS) -> Entry:
    """The hot time of a kernel, or of a whole graph, by the device's own choice of plan.

    Of one kernel, it tells a device whose clock has fallen from a kernel that is slow.
    """
    plan = next(iter(subject.plans), "")
    copies = _copies(subject, (plan,))
    with ExitStack() as stack:
        short, long = (_held(stack, subject, plan, n * copies, 1) for n in (1, 2))
        slopes = {(plan, True): _Slope(short, long, copies, hot=True)}
        (samples,) = _sampled(slopes, replays, np.random.default_rng(0)).values()
    return Entry.of(samples, plan)


def settled(subject: Subject) -> float:
    """The time of a kernel once two measurements in a row agree: a card that was idle takes a while to its clock."""
    before = steady(subject).seconds
    for _ in range(_SETTLING):
        now = steady(subject).seconds
        if not drifted(before, now):
            return now
        before = now
    raise CostError(
        f"one product takes {before:.3g} s, then {now:.3g} s: the device does not settle",
        expected=f"times within {DRIFT:.0%} of each other",
        remedy="let nothing else run on it",
    )


def drifted(before: float, after: float) -> bool:
    """Return whether two measurements of one kernel are too far apart to keep those made between them."""
    return not (before > 0 and after > 0 and abs(after / before - 1) <= DRIFT)


@dataclass
class _Slope:
    """The graphs of K and of 2K copies of one candidate."""

    short: Replay
    long: Replay
    copies: int
    sweep: Stopwatch | None = None
    hot: bool = False

    def sample(self) -> float:
        """Seconds of one copy."""
        taken = []
        if self.hot:
            # Whatever ran before has pushed the constants out.
            self.short.seconds()
        for replay in (self.short, self.long):
            if self.sweep is not None:
                self.sweep.sweep()
            taken.append(replay.seconds())
        return max((taken[1] - taken[0]) / self.copies, 0.0)


def _copies(subject: Subject, plans: Sequence[str]) -> int:
    """The number of copies that take about as long as a graph should, and fit with constants of their own."""
    failed: EqsatError | None = None
    for plan in plans:
        try:
            with ExitStack() as stack:
                pilot = _held(stack, subject, plan, LEAST_COPIES, 1)
                pilot.seconds()
                # Fixed costs make a copy look longer than it is; the graph is then at most twice as short.
                taken = min(pilot.seconds() for _ in range(3)) / LEAST_COPIES
        except EqsatError as error:
            failed = error
            continue
        return min(max(math.ceil(GRAPH_SECONDS / max(taken, 1e-9)), LEAST_COPIES), MOST_COPIES)
    raise CostError(
        f"no plan runs: {failed.what if failed is not None else 'none is known'}", expected="a kernel of the device"
    )


def _screened(
    subject: Subject, stopwatch: Stopwatch, plans: Sequence[str], copies: int, rng: np.random.Generator
) -> tuple[str, ...]:
    """The fastest plans, cold; those that fail are left out."""
    rough = _roughly(subject, stopwatch, plans, copies, rng)
    while more := [plan for plan in subject.further(rough) if plan not in rough]:
        with suppress(CostError):  # of a generation that does not run there are no times
            rough |= _roughly(subject, stopwatch, more, copies, rng)
    fastest = min(rough.values())
    names = list(rough)
    ranked = sorted(rough, key=lambda plan: (rough[plan], names.index(plan)))
    return tuple(plan for plan in ranked[:FINALISTS] if rough[plan] <= NEAR * fastest)


def _roughly(
    subject: Subject, stopwatch: Stopwatch, plans: Sequence[str], copies: int, rng: np.random.Generator
) -> dict[str, float]:
    """The times of plans by few replays."""
    with _slopes(subject, stopwatch, plans, copies, hot=False) as slopes:
        by_plan = _sampled(slopes, SCREENED, rng)
    times = {plan: float(np.median(samples)) for (plan, _), samples in by_plan.items()}
    return {plan: times[plan] for plan in plans if plan in times}


@contextmanager
def _slopes(
    subject: Subject, stopwatch: Stopwatch, plans: Sequence[str], copies: int, *, hot: bool
) -> Iterator[dict[tuple[str, bool], _Slope]]:
    """The graphs of each plan, cold and, where asked for and there are constants, hot."""
    sweep = stopwatch if subject.weight_bytes else None
    sets = max(math.ceil(COLD_TIMES * stopwatch.l2_bytes / max(subject.weight_bytes, 1)), 2)
    with ExitStack() as stack:
        slopes: dict[tuple[str, bool], _Slope] = {}
        failed: EqsatError | None = None
        for plan in plans:
            try:
                short, long = (_held(stack, subject, plan, n * copies, min(n * copies, sets)) for n in (1, 2))
                slopes[plan, False] = _Slope(short, long, copies, sweep)
                if hot and subject.weight_bytes:
                    short, long = (_held(stack, subject, plan, n * copies, 1) for n in (1, 2))
                    slopes[plan, True] = _Slope(short, long, copies, hot=True)
                for slope in (slopes[name] for name in ((plan, False), (plan, True)) if name in slopes):
                    slope.sample()  # one that fails must not take the others with it
            except EqsatError as error:
                slopes.pop((plan, False), None)
                slopes.pop((plan, True), None)
                failed = error
        if not slopes:
            raise CostError(f"no plan runs: {failed.what if failed else ''}", expected="a kernel of the device")
        yield slopes


def _sampled(
    slopes: dict[tuple[str, bool], _Slope], rounds: int, rng: np.random.Generator
) -> dict[tuple[str, bool], list[float]]:
    """Samples of each candidate, in rounds of all of them, after one that is not counted."""
    samples = sampled({name: slope.sample for name, slope in slopes.items()}, rounds + 1, rng)
    return {name: counted for name, (_, *counted) in samples.items()}


def _held(stack: ExitStack, subject: Subject, plan: str, copies: int, weights: int) -> Replay:
    """A graph that is given back when the stack ends."""
    replay = subject.graph(plan, copies, weights)
    stack.callback(replay.close)
    return replay
