"""Short models are timed in sessions made anew, in which a gain has to be there again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import eqsat
from eqsat.report.finalists import Measured, measure_finalists
from eqsat.report.timing.bench import SET_ROUNDS, SHORT
from eqsat.report.timing.sets import SETS
from eqsat.runtime.examples import SizePoint
from eqsat.runtime.measure import LEAST_ROUNDS, Timings
from eqsat.system.deadline import TimeUp

#: The ratios of the result's time to the original's in each set of sessions, the first one first.
Ratios = Callable[[int], float]


def timed(monkeypatch: pytest.MonkeyPatch, seconds: float, ratio: Ratios) -> tuple[Measured, list[int]]:
    """Two graphs that are ready to run, on a machine on which a set of sessions has the ratio that it is given."""
    rounds: list[int] = []

    def planned(calls: Mapping[str, Any], count: int, *_: Any, clock: Any, **__: Any) -> Timings:
        number = len(rounds)
        rounds.append(count)
        if ratio(number) == 0.0:
            raise TimeUp("planned")
        return Timings({n: (seconds * (1.0 if n[0] == "o" else ratio(number)),) * count for n in calls}, clock)

    monkeypatch.setattr("eqsat.report.timing.bench.interleaved", planned)
    g = eqsat.Graph("short")
    g.output("y", eqsat.relu(g.input("x", (4, 4))))
    graphs = {"original": g.build(), "ilp": g.build()}
    return measure_finalists(graphs, None, points=[SizePoint({})], seed=0, threads=1), rounds


def test_a_gain_that_new_sessions_do_not_have_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, rounds = timed(monkeypatch, 0.5 * SHORT, lambda number: 0.95 if number == 0 else 1.01)
    assert rounds[1:] == [SET_ROUNDS] * SETS
    assert measured.rounds == SETS
    assert measured.ratio("ilp") == measured.bound("ilp") == pytest.approx(1.01)


def test_a_gain_of_most_sessions_is_bounded_by_how_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, _ = timed(monkeypatch, 0.5 * SHORT, lambda number: 1.02 if number % 4 == 3 else 0.90)
    assert measured.ratio("ilp") == pytest.approx(0.90)
    assert measured.bound("ilp") > 0.95


def test_a_gain_of_all_sessions_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, _ = timed(monkeypatch, 0.5 * SHORT, lambda number: 0.9 + 0.001 * number)
    assert measured.bound("ilp") < 0.91


@pytest.mark.parametrize(("seconds", "ratio"), [(2 * SHORT, 0.95), (0.5 * SHORT, 1.0)])
def test_long_models_and_those_without_a_gain_are_timed_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float, ratio: float
) -> None:
    measured, rounds = timed(monkeypatch, seconds, lambda number: ratio)
    assert len(rounds) == 1
    assert measured.rounds == rounds[0]


def test_too_few_sets_leave_the_first_times(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, rounds = timed(monkeypatch, 0.5 * SHORT, lambda number: 0.95 if number < LEAST_ROUNDS else 0.0)
    assert len(rounds) == LEAST_ROUNDS + 1
    assert measured.rounds == rounds[0]
    assert measured.ratio("ilp") == pytest.approx(0.95)
