"""Schedules against enumeration of every order, and parts that need too much against every choice that has them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqsat.extract import Problem
from eqsat.extract.problem.limits import exceeds
from eqsat.extract.problem.memory import Liveness
from eqsat.extract.problem.schedule import (
    Dataflow,
    always_exceeds,
    around,
    depth_first,
    least_peak,
    live_bytes,
    peaks,
    simulate,
)
from tests.support import choices as small

COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SIZES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0])


@st.composite
def dataflows(draw: st.DrawFn, most: int = 6) -> Dataflow:
    """Steps that each write a buffer, or share that of an operand, and read those of earlier steps or given ones."""
    given_ = draw(st.integers(0, 2))
    sizes = [draw(SIZES) for _ in range(given_)]
    storage: list[int] = list(range(given_))
    touches, before = [], []
    for _ in range(draw(st.integers(1, most))):
        reads = draw(st.sets(st.integers(0, len(storage) - 1), max_size=3)) if storage else set()
        if reads and draw(st.integers(0, 4)) == 0:
            mine = storage[min(reads)]
        else:
            mine = len(sizes)
            sizes.append(draw(SIZES))
        touches.append(tuple(sorted({mine, *(storage[r] for r in reads)})))
        before.append(tuple(r - given_ for r in sorted(reads) if r >= given_))
        storage.append(mine)
    kept = draw(st.sets(st.sampled_from(storage), min_size=1, max_size=2))
    return Dataflow(sizes, touches, before, frozenset(range(given_)), frozenset(kept))


def orders(flow: Dataflow) -> Iterator[tuple[int, ...]]:
    for order in itertools.permutations(range(len(flow.touches))):
        place = {step: index for index, step in enumerate(order)}
        if all(place[e] < place[s] for s, earlier in enumerate(flow.before) for e in earlier):
            yield order


def slow_peak(flow: Dataflow, order: tuple[int, ...]) -> float:
    """By intervals: a buffer is live from its first to its last touch."""
    last = len(order)
    spans = []
    for b, size in enumerate(flow.sizes):
        times = [t for t, step in enumerate(order) if b in flow.touches[step]]
        if not times and not (b in flow.given and b in flow.kept):
            continue
        start = -1 if b in flow.given else times[0]
        spans.append((start, last if b in flow.kept else times[-1], size))
    return max(sum(size for a, z, size in spans if a <= t <= z) for t in range(-1, last + 1))


@settings(COMMON, max_examples=300)
@given(dataflows())
def test_the_schedule_is_as_low_as_the_lowest_of_all_orders(flow: Dataflow) -> None:
    found = least_peak(flow)
    every = set(orders(flow))
    best = min(simulate(flow, order) for order in every)
    assert simulate(flow, found.order) == found.peak == best
    assert found.order in every
    assert found.is_exact
    assert found.bound <= best


@settings(COMMON, max_examples=150)
@given(dataflows(most=5))
def test_simulation_is_the_largest_sum_of_overlapping_lives(flow: Dataflow) -> None:
    for order in orders(flow):
        assert simulate(flow, order) == slow_peak(flow, order)


@settings(COMMON, max_examples=200)
@given(dataflows(), SIZES, st.integers(1, 6))
def test_with_few_moves_bounds_hold_and_orders_are_sound(flow: Dataflow, most: float, moves: int) -> None:
    every = set(orders(flow))
    best = min(simulate(flow, order) for order in every)
    found = least_peak(flow, moves=moves)
    assert found.bound <= best <= found.peak == simulate(flow, found.order)
    assert not always_exceeds(flow, most, moves) or best > most
    assert always_exceeds(flow, most) == (best > most)
    assert found.order in every
    assert tuple(depth_first(flow)) in every


@settings(COMMON, max_examples=150)
@given(dataflows(most=5), SIZES, st.integers(0, 2))
def test_steps_around_a_peak_hold_all_that_run_near_it(flow: Dataflow, most: float, reach: int) -> None:
    order = least_peak(flow).order
    during = live_bytes(flow, order)
    above = [index for index, live in enumerate(during) if live > most]
    found = peaks(during, most)
    assert set(found) <= set(above)
    assert not above or max(during) == max(during[index] for index in found)
    assert len(found) == sum(index - 1 not in above for index in above)
    for position in found:
        near = around(flow, order, position, reach)
        assert set(order[max(position - reach, 0) : position + reach + 1]) <= set(near)
        assert near == [step for step in order if step in near]


@settings(small.COMMON, max_examples=100)
@given(st.one_of(small.remembering(weighted=False), small.remembering(weighted=False, classes=4, states=2)))
def test_parts_that_need_too_much_do_so_in_every_choice_that_has_them(problem: Problem) -> None:
    memory = problem.memory
    assert memory is not None
    live = Liveness(problem.program, problem.goals, memory)
    every = [(choice, small.least_peak(problem, memory, choice)) for choice in small.enumerate_choices(problem.program)]
    for choice, peak in every:
        order = live.schedule(choice)[1]
        parts = live.offences(choice, order, memory.most, lambda: False)
        assert bool(parts) == exceeds(peak, memory.most)
        assert len({goal for part in parts for goal in part}) == sum(map(len, parts))
        for part in parts:
            groups = live.alike(choice, part)
            for other, needed in every:
                if all(set(group) & set(other.values()) for group in groups):
                    assert exceeds(needed, memory.most)


def test_wide_graphs_get_a_good_order_and_say_when_it_is_not_proved() -> None:
    """Forty chains of three steps, a large value in the middle of each: one chain after the other is best."""
    chains = 40
    sizes, touches, before = [], [], []
    for chain in range(chains):
        base = 3 * chain
        sizes += [4.0, 100.0, 1.0]
        touches += [(base,), (base, base + 1), (base + 1, base + 2)]
        before += [(), (base,), (base + 1,)]
    sizes.append(1.0)
    touches.append((*(3 * c + 2 for c in range(chains)), len(sizes) - 1))
    before.append(tuple(3 * c + 2 for c in range(chains)))
    flow = Dataflow(sizes, touches, before, frozenset(), frozenset({len(sizes) - 1}))
    found = least_peak(flow, moves=2000)
    assert found.peak == 104.0 + chains - 1
    assert 104.0 <= found.bound < found.peak
    assert not found.is_exact
