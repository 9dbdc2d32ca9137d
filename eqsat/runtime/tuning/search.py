"""Strategies of a search: generations of candidates, proposed by what earlier ones took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Literal, Protocol, get_args

from eqsat.errors import UsageError, nearest
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.config import PARENTS, TunerConfig
from eqsat.runtime.tuning.space import OptionSpace

SearchKind = Literal["genetic", "random"]
#: Children that are bred in place of one that is illegal or was proposed before.
_BREEDINGS = 32


class TuningSearch(Protocol):
    """A strategy that proposes candidates in generations and is told their times."""

    def propose(self) -> list[TuningCandidate]:
        """The next generation: legal candidates that were not proposed before; empty when the search is over."""

    def tell(self, candidate: TuningCandidate, seconds: float | None) -> None:
        """Take in the time of a candidate, None if it could not be compiled or measured.

        Candidates of the last generation that are never told count as invalid; those that were not proposed take part
        in the search as well.
        """


class _Proposals:
    """Legal candidates that were not proposed before."""

    def __init__(self, space: OptionSpace, rng: Random) -> None:
        self.space = space
        self.seen: set[TuningCandidate] = set()
        self._rng = rng
        self._is_exhausted = False

    def take(self, candidate: TuningCandidate) -> bool:
        """Count a candidate as proposed; False where it was already, or where the space does not allow it."""
        if candidate in self.seen or not self.space.allows(candidate):
            return False
        self.seen.add(candidate)
        return True

    def fresh(self, count: int) -> Iterator[TuningCandidate]:
        """Random candidates, fewer than `count` where the space has no more."""
        for _ in range(count):
            candidate = None if self._is_exhausted else self.space.draw(self._rng, self.seen)
            if candidate is None:
                self._is_exhausted = True  # to find that again would take a walk through the space
                return
            self.seen.add(candidate)
            yield candidate


class RandomSearch:
    """Random candidates, `population` of them in each generation; the first one begins with `start`.

    Candidates of `start` that the space does not allow are left out: those of a cache may come from another version.
    """

    def __init__(
        self, space: OptionSpace, config: TunerConfig | None = None, start: Iterable[TuningCandidate] = ()
    ) -> None:
        self.config = config or TunerConfig()
        self._start = tuple(start)
        self._proposals = _Proposals(space, Random(self.config.seed))
        self._generation = 0

    def propose(self) -> list[TuningCandidate]:
        """The next generation, empty when there were as many as the configuration says or no candidate is left."""
        if self._generation == self.config.generations:
            return []
        first = [one for one in self._start if self._proposals.take(one)] if self._generation == 0 else []
        self._generation += 1
        return [*first, *self._proposals.fresh(self.config.population - len(first))]

    def tell(self, candidate: TuningCandidate, seconds: float | None) -> None:
        """Take in that a candidate need not be proposed; times do not matter."""
        _check_time(seconds)
        self._proposals.take(candidate)


class GeneticSearch:
    """The genetic search of Tensor Comprehensions (arXiv 1802.04730, section 6.2).

    A child has each option from one of three parents. These are drawn from the generation before with a probability in
    proportion to 1/time, after which each option mutates with the probability of the configuration. The `elites`
    fastest are members of the next generation without being proposed again. Invalid candidates have no children;
    where fewer than three are valid, the next generation is random but for its elites. Where crossover and mutation
    yield nothing new, neighbours of the fastest follow, then random candidates.

    The first generation begins with `start`, of which those that the space does not allow are left out. Since the
    fastest is always an elite, or told last, the search never ends worse than it starts.
    """

    def __init__(
        self, space: OptionSpace, config: TunerConfig | None = None, start: Iterable[TuningCandidate] = ()
    ) -> None:
        self.config = config or TunerConfig()
        self._start = tuple(start)
        self._space = space
        self._rng = Random(self.config.seed)
        self._proposals = _Proposals(space, self._rng)
        self._generation = 0
        self._proposed: list[TuningCandidate] = []
        self._elites: dict[TuningCandidate, float] = {}
        self._times: dict[TuningCandidate, float] = {}

    def propose(self) -> list[TuningCandidate]:
        """The next generation, empty when there were as many as the configuration says or no candidate is left."""
        if self._generation == self.config.generations:
            return []
        parents = self._members()
        self._elites = dict(list(parents.items())[: self.config.elites])
        self._generation += 1
        if self._generation == 1:
            batch = self._first(parents)
        elif len(parents) < PARENTS:
            batch = list(self._proposals.fresh(self.config.population - len(self._elites)))
        else:
            batch = self._bred(parents, self.config.population - len(self._elites))
        self._proposed, self._times = batch, {}
        return list(batch)

    def tell(self, candidate: TuningCandidate, seconds: float | None) -> None:
        """Take in the time of a candidate in seconds, None if it is invalid; UsageError for a time that is none."""
        _check_time(seconds)
        if self._proposals.take(candidate):
            self._proposed.append(candidate)
        if seconds is not None:
            self._times[candidate] = seconds

    def _members(self) -> dict[TuningCandidate, float]:
        """The valid members of the last generation, fastest first; the order in which they were told plays no part."""
        times = self._elites | {one: self._times[one] for one in self._proposed if one in self._times}
        return dict(sorted(times.items(), key=lambda member: member[1]))

    def _first(self, told: Mapping[TuningCandidate, float]) -> list[TuningCandidate]:
        first = [one for one in self._start if self._proposals.take(one)]
        self._elites = dict(told)  # what was told before the first generation is a member of it
        return [*first, *self._proposals.fresh(self.config.population - len(first))]

    def _bred(self, parents: Mapping[TuningCandidate, float], count: int) -> list[TuningCandidate]:
        children: list[TuningCandidate] = []
        neighbours = (other for parent in parents for other in self._space.neighbours(parent))
        while len(children) < count:
            child = self._child(parents) or next(filter(self._proposals.take, neighbours), None)
            child = child or next(self._proposals.fresh(1), None)
            if child is None:
                break
            children.append(child)
        return children

    def _child(self, parents: Mapping[TuningCandidate, float]) -> TuningCandidate | None:
        """A new legal child, None where many in a row are not."""
        for _ in range(_BREEDINGS):
            child = self._crossover(self._selected(parents))
            child = self._space.mutated(child, self.config.mutation, self._rng)
            if self._proposals.take(child):
                return child
        return None

    def _selected(self, parents: Mapping[TuningCandidate, float]) -> list[TuningCandidate]:
        """Three parents of whom no two are the same, by a roulette of their fitness, 1/time."""
        pool, fastest = dict(parents), min(parents.values())
        selected = []
        for _ in range(PARENTS):
            # In proportion to 1/time, without overflow for the least times that floats can state.
            weights = [fastest / seconds for seconds in pool.values()]
            selected.append(self._rng.choices(list(pool), weights)[0])
            del pool[selected[-1]]
        return selected

    def _crossover(self, parents: list[TuningCandidate]) -> TuningCandidate:
        """A candidate that has each option from one of its parents, all of them alike."""
        return TuningCandidate({name: self._rng.choice(parents)[name] for name in self._space.options})


def search_of(
    kind: SearchKind, space: OptionSpace, config: TunerConfig, start: Iterable[TuningCandidate] = ()
) -> TuningSearch:
    """The search of a name; UsageError for another name."""
    if kind not in get_args(SearchKind):
        known = get_args(SearchKind)
        raise UsageError(f"search = {kind!r}", expected=" or ".join(known), remedy=nearest(str(kind), known))
    return (GeneticSearch if kind == "genetic" else RandomSearch)(space, config, start)


def _check_time(seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < float("inf"):
        raise UsageError(f"a time of {seconds} s", expected="a finite number of seconds above 0, or None")
