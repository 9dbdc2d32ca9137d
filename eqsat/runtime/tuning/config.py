"""Settings of a search for the options of a kernel."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

from eqsat.errors import UsageError
from eqsat.runtime.threads import check_threads

#: Candidates that a child of the genetic search is bred from.
PARENTS = 3


@dataclass(frozen=True)
class TunerConfig:
    """Settings of a search; UsageError for one outside its domain.

    `elites` of a generation of `population` candidates are carried into the next one as they are; `mutation` is the
    probability that an option of a child changes. `seconds` bound the search, without end unless given; `threads`
    compile. The same seed and the same times give the same candidates.
    """

    generations: int = 25
    population: int = 100
    elites: int = 10
    mutation: float = 0.07
    seed: int = 0
    seconds: float = math.inf
    threads: int = field(default_factory=lambda: min(os.cpu_count() or 1, 8))

    def __post_init__(self) -> None:
        _check_count("generations", self.generations, 1)
        _check_count("population", self.population, PARENTS)
        _check_count("elites", self.elites, 0)
        _check_count("seed", self.seed, 0)
        if self.elites >= self.population:
            raise UsageError(
                f"elites = {self.elites} in a population of {self.population}",
                expected="fewer elites than candidates, so that there are new ones",
            )
        if not _is_number(self.mutation) or not 0 <= self.mutation <= 1:
            raise UsageError(f"mutation = {self.mutation!r}", expected="a probability, from 0 to 1")
        check_seconds(self.seconds)
        check_threads(self.threads)


def check_seconds(seconds: object) -> None:
    """UsageError for a time limit that is not above zero."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise UsageError(f"seconds = {seconds!r}", expected="a number above 0")


def _check_count(name: str, count: object, least: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise UsageError(f"{name} = {count!r}", expected=f"a whole number, {least} or more")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
