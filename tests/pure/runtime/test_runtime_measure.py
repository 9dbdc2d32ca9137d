"""Interleaved timing and the bound on a ratio, on programs and samples whose answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.errors import BackendError, UsageError
from eqsat.runtime.measure import LEAST_ROUNDS, Timings, interleaved, ratio_bound, sampled
from eqsat.system.deadline import TimeUp

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=LEAST_ROUNDS, max_size=40)


def test_every_program_is_called_alike_and_each_round_has_one_sample_of_each():
    calls = {"a": 0, "b": 0}

    def program(name):
        def call():
            calls[name] += 1
            sum(range(20_000))

        return call

    timings = interleaved({n: program(n) for n in calls}, rounds=6)
    assert timings.rounds == 6
    assert {len(s) for s in timings.samples.values()} == {6}
    assert min(calls.values()) >= 6 + 2
    assert all(x > 0 for s in timings.samples.values() for x in s)


def test_the_time_limit_stops_the_rounds_but_never_below_the_least():
    timings = interleaved({"a": lambda: sum(range(50_000))}, rounds=100_000, time_limit=1e-9)
    assert timings.rounds == LEAST_ROUNDS


def test_a_request_to_stop_ends_after_the_round_however_few_there_were():
    calls = []
    timings = interleaved({"a": lambda: calls.append("a")}, 50, clock="wall", should_stop=lambda: len(calls) > 2)
    assert timings.rounds < 5
    assert interleaved({"a": lambda: None}, 50, should_stop=lambda: True).rounds == 0


@pytest.mark.parametrize("rounds", [2, LEAST_ROUNDS, LEAST_ROUNDS + 3])
def test_a_run_that_the_deadline_ends_costs_the_round_and_no_more(rounds):
    """ONNX Runtime ends what it runs when the time is over; rounds that were whole by then count."""
    calls = []

    def ended():
        calls.append("a")
        if len(calls) > 2 + rounds:
            raise TimeUp("the time limit of 5 s is over")

    programs = {"a": ended, "b": lambda: None}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eqsat.runtime.measure.calls_a_sample", lambda program, warm_up, now: 1)
        calls += ["warm", "up"]
        if rounds < LEAST_ROUNDS:
            with pytest.raises(TimeUp):
                interleaved(programs, 50)
        else:
            timings = interleaved(programs, 50)
            assert {name: len(s) for name, s in timings.samples.items()} == {"a": rounds, "b": rounds}


def test_each_round_has_an_order_of_its_own_and_is_asked_for():
    order, asked = [], []

    def sampler(name):
        def sample():
            order.append(name)
            return float(len(order))

        return sample

    def ended(done):
        asked.append(done)
        return done == 8

    samples = sampled({name: sampler(name) for name in "abc"}, 20, np.random.default_rng(0), ended)
    rounds = ["".join(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert asked == list(range(9))
    assert {"".join(sorted(r)) for r in rounds} == {"abc"} and len(set(rounds)) > 1
    assert samples == {name: [3.0 * i + r.index(name) + 1 for i, r in enumerate(rounds)] for name in "abc"}


def test_a_ratio_is_the_median_of_the_ratios_of_rounds():
    timings = Timings({"old": (1.0, 2.0, 4.0), "new": (3.0, 2.0, 2.0)}, "wall")
    assert timings.ratio("new", "old") == 1.0
    assert timings.ratio("old", "old") == 1.0
    with pytest.raises(BackendError, match=r"x\.onnx: interrupted after 3 of at least 5 rounds"):
        timings.check_rounds("x.onnx")


def test_medians_are_of_the_samples():
    assert Timings({"a": (1.0, 9.0, 2.0)}, "wall").median("a") == 2.0


@pytest.mark.parametrize("bad", [{"rounds": 2}, {"time_limit": 0}, {"time_limit": float("nan")}, {"warm_up": 0}])
def test_limits_outside_their_domain_are_refused(bad):
    with pytest.raises(UsageError, match="expected at least 5 rounds, a time limit above 0"):
        interleaved({"a": lambda: None}, **bad)


@given(TIMES, st.floats(0.25, 4.0))
def test_a_program_that_is_always_c_times_slower_has_the_bound_c(times, c):
    assert ratio_bound([t * c for t in times], times) == pytest.approx(c)


@given(TIMES, st.randoms(use_true_random=False))
def test_the_bound_is_the_same_each_time_and_grows_with_confidence(times, rng):
    other = [t * rng.uniform(0.5, 2.0) for t in times]
    bounds = [ratio_bound(other, times, c) for c in (0.5, 0.9, 0.95, 0.99)]
    assert bounds == sorted(bounds)
    assert bounds[2] == ratio_bound(other, times)
    ratios = np.array(other) / np.array(times)
    assert min(ratios) <= bounds[0] <= bounds[-1] <= max(ratios)


def test_a_program_against_itself_seldom_looks_faster():
    rng = np.random.default_rng(0)
    drift = np.exp(rng.normal(0, 0.3, (300, 1, 40)))
    noise = np.exp(rng.normal(0, 0.05, (300, 2, 40)))
    wins = sum(ratio_bound(new, old, draws=400) < 1 for new, old in drift * noise)
    assert wins <= 0.1 * 300


def test_a_gain_of_a_tenth_shows_through_drift_that_both_meet():
    rng = np.random.default_rng(1)
    drift = np.exp(rng.normal(0, 0.5, 40))
    assert ratio_bound(0.9 * drift * np.exp(rng.normal(0, 0.05, 40)), drift) < 1


@pytest.mark.parametrize(
    ("new", "old", "confidence", "message"),
    [
        ([1.0] * 4, [1.0] * 4, 0.95, "4 and 4 samples"),
        ([1.0] * 6, [1.0] * 5, 0.95, "6 and 5 samples"),
        ([1.0] * 5, [1.0] * 5, 1.0, "confidence = 1.0"),
        ([0.0] * 5, [1.0] * 5, 0.95, "a sample of zero or fewer seconds"),
    ],
)
def test_samples_that_bound_nothing_are_refused(new, old, confidence, message):
    with pytest.raises(UsageError, match=message):
        ratio_bound(new, old, confidence)
