"""The cheapest regions by prices, against all choices of regions, and which program is taken by its times."""

import itertools
import math
import random

import pytest

from eqsat.runtime.c.mixing.measuring import fastest
from eqsat.runtime.c.mixing.prices import RegionPrices
from eqsat.runtime.measure import Timings

LAUNCHES = (10.0, 50.0, 40.0, 10.0)


def singles(*seconds, crossing=1.0):
    """Prices of launches one by one, in C as LAUNCHES has them, in a session each the call and some seconds."""
    windows = {(place, place + 1): crossing + one for place, one in enumerate(seconds)}
    return RegionPrices(LAUNCHES, windows, crossing)


def test_regions_are_where_sessions_are_cheaper():
    prices = singles(30.0, 20.0, 20.0, 30.0)
    assert prices.cheapest() == ((1, 3),)
    assert prices.seconds(((1, 3),)) == 10.0 + 1.0 + 40.0 + 10.0


def test_there_is_none_where_the_call_is_dearer_than_what_it_saves():
    assert singles(30.0, 20.0, 20.0, 30.0, crossing=49.0).cheapest() == ((1, 3),)
    assert singles(30.0, 20.0, 20.0, 30.0, crossing=51.0).cheapest() == ()


def test_they_turn_with_the_prices():
    assert singles(5.0, 60.0, 60.0, 5.0).cheapest() == ((0, 1), (3, 4))
    assert singles(5.0, 52.0, 41.0, 5.0, crossing=4.0).cheapest() == ((0, 4),)
    assert singles(5.0, 52.0, 41.0, 5.0, crossing=2.0).cheapest() == ((0, 1), (3, 4))


def test_a_region_costs_what_it_was_measured_to_and_not_what_its_parts_do():
    prices = singles(30.0, 20.0, 20.0, 30.0)
    assert RegionPrices(LAUNCHES, {**prices.windows, (1, 3): math.inf}, 1.0).cheapest() == ((1, 2),)
    assert RegionPrices(LAUNCHES, {**prices.windows, (0, 4): 12.0}, 1.0).cheapest() == ((0, 4),)


def priced(prices, first, end):
    """The price of a region: its own, or the least of its cuts into windows, worked out from the last one."""
    if (first, end) in prices.windows:
        return prices.windows[first, end]
    cuts = [
        priced(prices, first, middle) + prices.windows[middle, end] - prices.crossing
        for middle in range(first + 1, end)
        if (middle, end) in prices.windows
    ]
    return min(cuts, default=math.inf)


def all_choices(count):
    """All regions of a program, by which launches are in one."""
    for inside in itertools.product((False, True), repeat=count):
        places = [place for place, _ in enumerate(inside) if inside[place]]
        regions = []
        for place in places:
            if regions and regions[-1][1] == place:
                regions[-1] = (regions[-1][0], place + 1)
            else:
                regions.append((place, place + 1))
        yield tuple(regions)


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_is_cheaper(seed):
    rng = random.Random(seed)
    count = rng.randint(1, 7)
    kernels = tuple(rng.uniform(1, 10) for _ in range(count))
    windows = {
        (first, end): rng.choice((math.inf, rng.uniform(0.5, 9) * (end - first)))
        for first in range(count)
        for end in range(first + 1, count + 1)
        if rng.random() < 0.5
    }
    prices = RegionPrices(kernels, windows, rng.uniform(0, 3))

    def total(regions):
        within = {place for first, end in regions for place in range(first, end)}
        outside = sum(one for place, one in enumerate(kernels) if place not in within)
        return outside + sum(priced(prices, *region) for region in regions)

    least = min(map(total, all_choices(count)))
    assert total(prices.cheapest()) == pytest.approx(least)
    assert prices.seconds(prices.cheapest()) == pytest.approx(least)


@pytest.mark.parametrize(
    ("c", "onnxruntime", "mixed", "taken"),
    [(3.0, 2.0, 1.0, "mixed"), (1.0, 2.0, 1.0, "c"), (3.0, 2.0, 2.5, "onnxruntime"), (2.0, 3.0, 2.5, "c")],
)
def test_a_mixed_program_is_taken_where_it_is_faster_than_both(c, onnxruntime, mixed, taken):
    samples = {"c": (c,) * 9, "onnxruntime": (onnxruntime,) * 9, "mixed": (mixed,) * 9}
    assert fastest(Timings(samples, "thread")) == taken


def test_a_program_that_is_faster_by_chance_is_not_taken():
    samples = {"c": (2.0,) * 10, "mixed": (1.0, 3.0) * 5}
    assert fastest(Timings(samples, "thread")) == "c"
