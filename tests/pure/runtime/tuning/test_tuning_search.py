"""Genetic and random search on synthetic costs."""

import math
from statistics import median

import pytest

from eqsat.errors import UsageError
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.search import GeneticSearch, RandomSearch
from eqsat.runtime.tuning.space import OptionSpace
from tests.support.landscapes import Landscape, matmul, pointwise, reduction, searched, stencil

SEEDS = range(30)
SEARCHES = (GeneticSearch, RandomSearch)


def least(search, landscape, evaluations):
    return min(seconds for _, seconds in searched(search, landscape, evaluations))


def comparison(landscape, told, evaluations=300):
    """The ratio of the medians of genetic and random search over all seeds, and how often the former is faster.

    The genetic search is told times by `told`, and judged by the true ones.
    """
    genetic, random = [], []
    for seed in SEEDS:
        config = TunerConfig(generations=1000, population=30, elites=5, seed=seed)
        tried = searched(GeneticSearch(landscape.space, config), Landscape(landscape.space, told), evaluations)
        assert len(tried) == evaluations
        genetic.append(min(landscape.seconds(candidate) for candidate, _ in tried))
        random.append(least(RandomSearch(landscape.space, config), landscape, evaluations))
    return median(genetic) / median(random), sum(one < other for one, other in zip(genetic, random, strict=True))


def test_genetic_search_beats_random_search_at_equal_evaluations():
    landscape = matmul()
    ratio, wins = comparison(landscape, landscape.seconds)
    assert ratio <= 0.85 and wins >= 25, (ratio, wins)


def test_genetic_search_does_not_beat_random_search_if_it_is_told_nothing():
    ratio, wins = comparison(matmul(), lambda _: 1.0)
    assert ratio > 0.85 and wins < 25, (ratio, wins)


@pytest.mark.parametrize("landscape", [pointwise(), reduction(), stencil()], ids=["pointwise", "reduction", "stencil"])
def test_genetic_search_comes_within_a_twentieth_of_exhaustive_search(landscape):
    evaluations = sum(1 for _ in landscape.space.candidates()) * 2 // 5
    near, exhaustive = 0, landscape.least
    for seed in SEEDS:
        config = TunerConfig(generations=1000, population=16, elites=4, mutation=0.1, seed=seed)
        near += least(GeneticSearch(landscape.space, config), landscape, evaluations) <= 1.05 * exhaustive
    assert near >= 25, near


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_is_reproduced_by_its_seed_and_differs_with_another(kind):
    landscape = matmul()

    def run(seed):
        return searched(kind(landscape.space, TunerConfig(population=20, elites=3, seed=seed)), landscape, 120)

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_the_order_in_which_times_are_told_plays_no_part():
    landscape = matmul()
    config = TunerConfig(population=20, elites=3)
    one, other = GeneticSearch(landscape.space, config), GeneticSearch(landscape.space, config)
    for _ in range(6):
        batch = one.propose()
        assert other.propose() == batch
        for candidate in batch:
            one.tell(candidate, landscape.seconds(candidate))
        for candidate in reversed(batch):
            other.tell(candidate, landscape.seconds(candidate))


@pytest.mark.parametrize("kind", SEARCHES)
def test_candidates_are_legal_and_proposed_once_until_the_space_is_exhausted(kind):
    landscape = reduction()
    tried = searched(kind(landscape.space, TunerConfig(generations=10_000, population=20, elites=4)), landscape, 10_000)
    assert all(landscape.space.allows(candidate) for candidate, _ in tried)
    assert len({candidate for candidate, _ in tried}) == len(tried) == sum(1 for _ in landscape.space.candidates())


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_has_as_many_generations_as_its_configuration_says(kind):
    landscape = matmul()
    search = kind(landscape.space, TunerConfig(generations=4, population=20, elites=5))
    sizes = []
    while batch := search.propose():
        sizes.append(len(batch))
        for candidate in batch:
            search.tell(candidate, landscape.seconds(candidate))
    assert sizes == ([20, 15, 15, 15] if kind is GeneticSearch else [20] * 4)


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_begins_with_the_candidates_it_is_given_if_they_are_legal(kind):
    space = reduction().space
    legal = list(space.candidates())[5:8]
    illegal = TuningCandidate({**legal[0], "rows": 72, "columns": 26})
    search = kind(space, TunerConfig(population=10, elites=2), start=[legal[0], illegal, *legal, TuningCandidate({})])
    batch = search.propose()
    assert batch[:3] == legal and len(batch) == 10 and illegal not in batch


def test_retuning_from_the_best_known_is_monotone_and_goes_on_improving():
    landscape, improved = matmul(), 0
    for seed in range(10):
        best, times = (), []
        for repetition in range(5):
            config = TunerConfig(generations=3, population=12, elites=2, seed=100 * seed + repetition)
            tried = searched(GeneticSearch(landscape.space, config, start=best), landscape, 32)
            candidate, seconds = min(tried, key=lambda one: one[1])
            best, times = (candidate,), [*times, seconds]
        assert times == sorted(times, reverse=True)
        improved += times[-1] < times[0]
    assert improved >= 8, improved


def test_children_have_the_options_of_three_parents():
    """Without mutation, and with three valid candidates that share no value, each option is from one of them."""
    space = OptionSpace({name: tuple(range(20)) for name in "abcdef"})
    parents = [TuningCandidate(dict.fromkeys("abcdef", value)) for value in (3, 5, 7)]
    search = GeneticSearch(space, TunerConfig(population=40, elites=0, mutation=0.0), start=parents)
    for candidate in search.propose():
        search.tell(candidate, 1.0 if candidate in parents else None)
    children = search.propose()
    assert all(set(child.values()) <= {3, 5, 7} for child in children)
    assert sum(len(set(child.values())) == 3 for child in children) > 20


def test_faster_candidates_have_more_children():
    space = OptionSpace({name: tuple(range(20)) for name in "abcdefgh"})
    start = [TuningCandidate(dict.fromkeys("abcdefgh", value)) for value in range(6)]
    search = GeneticSearch(space, TunerConfig(population=60, elites=0, mutation=0.0), start=start)
    for candidate in search.propose():
        search.tell(candidate, (1.0 if candidate == start[0] else 8.0) if candidate in start else None)
    values = [value for child in search.propose() for value in child.values()]
    # In each child the fast one is a parent with a probability above 0.9, thus a third of all values are its own.
    assert values.count(0) > 1.5 * max(values.count(value) for value in range(1, 6))


def test_elites_stay_parents_without_being_proposed_again():
    space = OptionSpace({name: tuple(range(30)) for name in "abcd"})
    elite = [TuningCandidate(dict.fromkeys("abcd", value)) for value in (11, 12, 13)]
    search = GeneticSearch(space, TunerConfig(population=20, elites=3, mutation=0.0), start=elite)
    for generation in range(4):
        batch = search.propose()
        assert generation == 0 or not set(elite) & set(batch)
        for candidate in batch:  # everything but the elites is invalid
            search.tell(candidate, 1.0 if candidate in elite else None)
    assert all(set(child.values()) <= {11, 12, 13} for child in search.propose())


def test_a_generation_with_too_few_valid_candidates_is_followed_by_a_random_one():
    space = matmul().space
    search = GeneticSearch(space, TunerConfig(population=20, elites=2))
    first = search.propose()
    for place, candidate in enumerate(first):
        search.tell(candidate, 1.0 if place < 2 else None)
    second = search.propose()
    assert len(second) == 18 and not set(first) & set(second)
    for candidate in second:
        search.tell(candidate, None)
    assert len(search.propose()) == 18


def test_a_candidate_that_was_not_proposed_takes_part_in_the_search():
    space = OptionSpace({name: tuple(range(20)) for name in "abcdef"})
    reference = TuningCandidate(dict.fromkeys("abcdef", 9))
    search = GeneticSearch(space, TunerConfig(population=20, elites=1, mutation=0.0))
    search.tell(reference, 1e-9)
    batch = search.propose()
    assert reference not in batch
    for candidate in batch:
        search.tell(candidate, 1.0)
    assert sum(9 in child.values() for child in search.propose()) >= 14  # of 19; 5 of random ones


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(kind, seconds):
    space = pointwise().space
    with pytest.raises(UsageError, match="time"):
        kind(space, TunerConfig()).tell(space.at(0), seconds)


def test_the_least_and_greatest_times_that_floats_can_state_are_taken():
    space = pointwise().space
    search = GeneticSearch(space, TunerConfig(population=8, elites=2))
    for candidate, seconds in zip(search.propose(), [5e-324, 1.7e308] * 4, strict=True):
        search.tell(candidate, seconds)
    assert len(search.propose()) == 6
