"""Programs measured against each other: interleaved rounds, medians, and a bound on the ratio of two."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from eqsat.errors import BackendError, UsageError
from eqsat.system.deadline import Deadline, TimeUp, check, current

#: "thread" is the CPU time of the calling thread, for programs that run on it alone, "process" that of all threads, for
#: programs that run on one other; "wall" is elapsed time.
Clock: TypeAlias = Literal["thread", "process", "wall"]

Name = TypeVar("Name", bound=Hashable)

_CLOCKS: Mapping[str, Callable[[], float]] = {
    "thread": time.thread_time,
    "process": time.process_time,
    "wall": time.perf_counter,
}

#: A sample lasts at least this long, in seconds: shorter programs are called several times.
SAMPLE_SECONDS = 5e-4
#: However little time there is, this many rounds are run: with fewer no 95 % bound exists.
LEAST_ROUNDS = 5
#: Calls of each program before any is timed.
WARM_UP = 2


#: The clocks of backends whose programs run on one thread of this process.
_OF_ONE: Mapping[str, Clock] = {"onnxruntime": "thread", "openvino": "process"}


def clock_for(threads: int, backend: str = "onnxruntime") -> Clock:
    """The clock for programs of a backend on so many threads: CPU time where they run on one thread of this process."""
    return _OF_ONE.get(backend, "wall") if threads == 1 else "wall"


@dataclass(frozen=True)
class Timings:
    """Seconds a call of each program, by name; the samples at one index were taken in one round."""

    samples: Mapping[str, tuple[float, ...]]
    clock: Clock

    @property
    def rounds(self) -> int:
        """The number of rounds that were run."""
        return min((len(s) for s in self.samples.values()), default=0)

    def check_rounds(self, where: str = "") -> None:
        """BackendError where an interruption left too few rounds to compare programs by."""
        if self.rounds < LEAST_ROUNDS:
            raise BackendError(f"interrupted after {self.rounds} of at least {LEAST_ROUNDS} rounds", where=where)

    def median(self, name: str) -> float:
        """The median of a program's samples, in seconds."""
        return float(np.median(self.samples[name]))

    def ratio(self, new: str, old: str) -> float:
        """The median of new/old over rounds."""
        return float(np.median(np.asarray(self.samples[new]) / np.asarray(self.samples[old])))

    def ratio_bound(self, new: str, old: str, confidence: float = 0.95) -> float:
        """The upper bound of new/old at the given confidence."""
        return ratio_bound(self.samples[new], self.samples[old], confidence)


def interleaved(
    programs: Mapping[str, Callable[[], object]],
    rounds: int = 100,
    seed: int = 0,
    *,
    clock: Clock = "thread",
    time_limit: float = 10.0,
    warm_up: int = WARM_UP,
    should_stop: Callable[[], bool] | None = None,
    is_settled: Callable[[Timings], bool] | None = None,
) -> Timings:
    """Time programs in turn, in an order shuffled anew each round, so that drift of the machine meets all alike.

    Stops after `rounds` rounds, or after the first round that ends past `time_limit` seconds, but never before
    LEAST_ROUNDS rounds; when `should_stop()` becomes true, after the current one, and fewer than LEAST_ROUNDS bound
    nothing. TimeUp where the deadline that it runs under is over before there are that many. After that many it ends as
    well where `is_settled` finds that more of them would tell nothing. Each program is called `warm_up` times first,
    which also decides how many calls make a sample.
    """
    if rounds < LEAST_ROUNDS or not time_limit > 0 or warm_up < 1:
        raise UsageError(
            f"rounds = {rounds}, time_limit = {time_limit}, warm_up = {warm_up}",
            expected=f"at least {LEAST_ROUNDS} rounds, a time limit above 0, and a warm-up of 1 or more",
        )
    now = _CLOCKS[clock]
    end = Deadline(min(time_limit, current().seconds))
    calls = {name: calls_a_sample(program, warm_up, now) for name, program in programs.items()}
    taken: dict[str, list[float]] = {name: [] for name in programs}

    def sample(name: str) -> float:
        taken[name].append(_sample(programs[name], calls[name], now))
        return taken[name][-1]

    def ended(done: int) -> bool:
        if done == LEAST_ROUNDS and is_settled is not None and is_settled(_timings(taken, clock)):
            return True
        return (done >= LEAST_ROUNDS and end.over) or (should_stop is not None and should_stop())

    samplers = {name: partial(sample, name) for name in programs}
    return _timings(sampled(samplers, rounds, np.random.default_rng(seed), ended), clock)


def _timings(samples: Mapping[str, Sequence[float]], clock: Clock) -> Timings:
    return Timings({name: tuple(s) for name, s in samples.items()}, clock)


def sampled(
    samplers: Mapping[Name, Callable[[], float]],
    rounds: int,
    rng: np.random.Generator,
    ended: Callable[[int], bool] = lambda done: False,
) -> dict[Name, list[float]]:
    """Samples by name: in rounds of all samplers, in an order drawn anew for each round.

    Before each round `ended` is asked, with the number of those that were run. TimeUp where the deadline that it runs
    under is over before there are LEAST_ROUNDS.
    """
    names = list(samplers)
    samples: dict[Name, list[float]] = {name: [] for name in names}
    for done in range(rounds):
        if ended(done):
            break
        try:
            check(0)
            order = [names[index] for index in rng.permutation(len(names))]
            taken = {name: samplers[name]() for name in order}
        except TimeUp:
            if done < LEAST_ROUNDS:
                raise
            break  # a round that was ended within is none
        for name in names:
            samples[name].append(taken[name])
    return samples


def combined(timings: Timings, parts: Mapping[str, Sequence[tuple[str, float]]]) -> Timings:
    """Timings of programs that are made of others: the sums of these, round by round, each with its weight.

    >>> combined(Timings({"a": (1.0, 2.0), "b": (4.0, 6.0)}, "wall"), {"both": [("a", 0.5), ("b", 0.5)]}).samples
    {'both': (2.5, 4.0)}
    """
    samples: dict[str, tuple[float, ...]] = {}
    for name, members in parts.items():
        rows = [np.multiply(weight, timings.samples[member][: timings.rounds]) for member, weight in members]
        samples[name] = tuple(np.sum(rows, axis=0).tolist())
    return Timings(samples, timings.clock)


def calls_a_sample(program: Callable[[], object], warm_up: int, now: Callable[[], float]) -> int:
    """The number of calls that one sample takes to last SAMPLE_SECONDS, by calls that warm the program up."""
    check(0)
    seconds = min(_sample(program, 1, now) for _ in range(warm_up))
    return max(1, round(SAMPLE_SECONDS / max(seconds, 1e-7)))


def _sample(program: Callable[[], object], calls: int, now: Callable[[], float]) -> float:
    begin = now()
    for _ in range(calls):
        program()
    return (now() - begin) / calls


def ratio_bound(
    new: Sequence[float], old: Sequence[float], confidence: float = 0.95, *, draws: int = 2000, seed: int = 0
) -> float:
    """The upper bound, one-sided at `confidence`, of the median ratio new/old of paired samples.

    A paired bootstrap: rounds are drawn with replacement and the median of their ratios is taken, so that what slowed
    both programs in one round cancels. The same samples give the same bound.

    >>> ratio_bound([1.0] * 20, [2.0] * 20)
    0.5
    """
    if len(new) != len(old) or len(new) < LEAST_ROUNDS:
        raise UsageError(
            f"{len(new)} and {len(old)} samples", expected=f"as many of one as of the other, {LEAST_ROUNDS} or more"
        )
    if not 0 < confidence < 1:
        raise UsageError(f"confidence = {confidence}", expected="a number between 0 and 1")
    if min(min(new), min(old)) <= 0:
        raise UsageError("a sample of zero or fewer seconds", expected="times above 0")
    ratios = np.asarray(new, float) / np.asarray(old, float)
    picks = np.random.default_rng(seed).integers(0, len(ratios), (draws, len(ratios)))
    medians = np.median(ratios[picks], axis=1)
    return float(np.quantile(medians, confidence, method="higher"))
