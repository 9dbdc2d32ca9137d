"""Times of the benchmark of comprehensions: statistics and rounds on a clock that calls move, and one small case."""

import itertools

import numpy as np
import pytest

from benchmarks.comprehension_cases import OperatorCase
from benchmarks.comprehensions import OWN, measured, quantiles, table, timed


class FakeClock:
    """A clock that stands still but while a call takes its time; every call is noted."""

    def __init__(self):
        self.seconds, self.called = 100.0, []

    def now(self):
        return self.seconds

    def call(self, label, lengths):
        taken = itertools.cycle(lengths)

        def run():
            self.called.append(label)
            self.seconds += next(taken)

        return run


def contenders(clock, **lengths):
    return {label: clock.call(label, given) for label, given in lengths.items()}


def test_least_median_and_ninety_percent_of_known_times():
    clock = FakeClock()
    calls = contenders(clock, numpy=[one * 1e-6 for one in (3, 1, 2, 11, 4, 10, 6, 7, 8, 9, 5)], tuned=[2e-6, 4e-6])
    times = timed(calls, 11, 1.0, clock.now)
    assert quantiles(times["numpy"]) == [1.0, 6.0, 10.0]
    assert quantiles(times["tuned"]) == [2.0, 2.0, 4.0]
    assert quantiles([1e-6, 2e-6]) == [1.0, 1.5, 1.9]


def test_every_round_calls_all_in_an_order_of_its_own_that_is_the_same_each_time():
    orders = []
    for _ in range(2):
        clock = FakeClock()
        timed(contenders(clock, numpy=[1e-6], default=[1e-6], tuned=[1e-6], openvino=[1e-6]), 200, 1.0, clock.now)
        rounds = [tuple(clock.called[at : at + 4]) for at in range(0, len(clock.called), 4)]
        assert len(rounds) == 200 and all(len(set(one)) == 4 for one in rounds)
        # Each of the 24 orders comes, and each contender follows each other one about as often.
        assert len(set(rounds)) == 24
        pairs = [pair for one in rounds for pair in itertools.pairwise(one)]
        counts = [pairs.count(pair) for pair in itertools.permutations(("numpy", "default", "tuned", "openvino"), 2)]
        assert min(counts) > 30 and max(counts) < 70
        orders.append(rounds)
    assert orders[0] == orders[1]


def test_rounds_end_with_the_limit_and_the_last_one_is_whole():
    clock = FakeClock()
    times = timed(contenders(clock, numpy=[0.25], tuned=[0.25]), 1000, 1.75, clock.now)
    assert {label: len(own) for label, own in times.items()} == {"numpy": 4, "tuned": 4}


def test_what_is_written_as_it_stands_leaves_where_it_takes_long():
    clock = FakeClock()
    calls = contenders(clock, numpy=[1e-6], naive=[30e-6], tuned=[1e-6]) | {"naive, kernel": clock.call("k", [30e-6])}
    times = timed(calls, 50, 1.0, clock.now)
    assert {label: len(own) for label, own in times.items()} == {
        "numpy": 50,
        "naive": 20,
        "tuned": 50,
        "naive, kernel": 20,
    }
    clock = FakeClock()
    assert len(timed(contenders(clock, numpy=[2e-6], naive=[30e-6]), 50, 1.0, clock.now)["naive"]) == 50


def test_a_case_has_the_times_of_calls_and_of_kernels_alone():
    pytest.importorskip("openvino", reason="OpenVINO has no wheel for this system")
    case = OperatorCase(
        "def twice(float(N) x) -> (y) { y(i) = x(i) + x(i) }", lambda x: x + x, lambda x: x + x, {"x": (64,)}
    )
    row = measured("twice", case, 1, 0.0, 30, 5.0)
    assert set(row["kernel_microseconds"]) == set(OWN) <= set(row["microseconds"]) and row["runs"]["tuned"] == 30
    for label in OWN:
        whole, alone = row["microseconds"][label], row["kernel_microseconds"][label]
        assert 0 < alone[0] <= alone[1] <= alone[2] and whole == sorted(whole)
    assert "twice" in {str(cell) for cell in table([row]).columns[0].cells}
    assert np.isfinite(row["tuned_over_best_peer"])
