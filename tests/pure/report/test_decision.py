"""The reasons for which finalists are kept or not."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from eqsat.report.decision import finalists_of, kept
from eqsat.report.finalists import Candidate, Measured
from eqsat.runtime.measure import Timings


def candidate(name, price, size=3, within=True):
    return Candidate(name, None, SimpleNamespace(price=price), size, within)


def measured(refused=None, **samples):
    return Measured(Timings({name: tuple(s) for name, s in samples.items()}, "wall"), refused or {})


def decided(candidates, times, refused=None, because=None, decided=True):
    best, why = kept(candidates, times)
    if because is not None:
        best, why = candidates[0], because
    rows = finalists_of(candidates, best, why, times, refused or {}, decided and times is not None)
    return {row.name: row for row in rows}


ORIGINAL, ILP, GREEDY = candidate("original", 3.0), candidate("ilp", 1.0), candidate("greedy", 2.0)
STEADY = [1.0] * 20


def test_where_the_original_is_kept_each_other_says_why_it_lost():
    rows = decided(
        [ORIGINAL, ILP, GREEDY], measured(original=STEADY, ilp=[0.9, 1.02, 0.99, 0.98, 1.3] * 4, greedy=[1.1] * 20)
    )
    assert (rows["original"].kept, rows["ilp"].kept, rows["greedy"].kept) == (True, False, False)
    assert rows["original"].why == "no finalist was measured to be faster with 95 % confidence"
    assert rows["ilp"].why == "it is faster in the median, but not with 95 % confidence"
    assert rows["greedy"].why == "it was measured to be no faster than the original"
    assert (rows["ilp"].predicted, rows["ilp"].nodes, rows["ilp"].measured) == (1.0, 3, 0.99)


def test_where_another_is_kept_the_original_and_the_others_say_why_not():
    rows = decided([ORIGINAL, ILP, GREEDY], measured(original=STEADY, ilp=[0.5] * 20, greedy=[0.7] * 20))
    assert rows["ilp"].kept
    assert rows["ilp"].why == "measured at 0.500 of the original's time, at most 0.500 (95 %)"
    assert rows["original"].why == "ilp is faster with 95 % confidence"
    assert rows["greedy"].why == "ilp is faster in the median"
    assert (rows["original"].ratio, rows["original"].bound) == (None, None)
    assert (rows["greedy"].ratio, rows["greedy"].bound) == pytest.approx((0.7, 0.7))


def test_a_finalist_that_saves_next_to_nothing_is_not_kept():
    rows = decided([ORIGINAL, ILP, GREEDY], measured(original=STEADY, ilp=[0.982] * 20, greedy=[1.1] * 20))
    assert rows["original"].kept
    assert rows["original"].why == "what was found saves less than two hundredths of the time"
    assert rows["ilp"].why == "it saves less than two hundredths of the time"
    assert rows["ilp"].bound == pytest.approx(0.982)
    assert rows["greedy"].why == "it was measured to be no faster than the original"
    assert decided([ORIGINAL, ILP], measured(original=STEADY, ilp=[0.979] * 20))["ilp"].kept


def test_a_finalist_that_was_refused_has_the_reason_and_no_time():
    times = measured({"greedy": "output 'y' differs"}, original=STEADY, ilp=[0.5] * 20)
    row = decided([ORIGINAL, ILP, GREEDY], times, {"greedy": "output 'y' differs"})["greedy"]
    assert (row.why, row.measured, row.ratio, row.bound) == ("output 'y' differs", None, None, None)


def test_without_times_the_cost_is_the_reason():
    rows = decided([ORIGINAL, ILP, GREEDY], None)
    assert rows["ilp"].why == "it costs least by the model; it was not measured"
    assert rows["original"].why == rows["greedy"].why == "it costs no less than ilp by the model"
    assert rows["ilp"].measured is None


def test_an_original_beyond_a_limit_says_so():
    rows = decided([candidate("original", 3.0, within=False), ILP], None)
    assert rows["original"].why == "it breaks a limit"
    assert rows["ilp"].why == "it costs least within the limits"


def test_a_failed_run_is_the_reason_of_all_that_nothing_else_is():
    times = measured(original=STEADY, ilp=[0.5] * 20, greedy=[1.2] * 20)
    rows = decided([ORIGINAL, ILP, GREEDY], times, because="a region of what was found is wrong")
    assert rows["ilp"].why == rows["original"].why == "a region of what was found is wrong"
    assert rows["greedy"].why == "it was measured to be no faster than the original"


def test_a_ratio_is_never_above_its_bound():
    rng = np.random.default_rng(0)
    for count in range(5, 61):
        drift = rng.lognormal(0, 0.3, count)
        old, new = drift * rng.lognormal(0, 0.05, count), drift * rng.lognormal(0.02, 0.05, count)
        times = measured(original=old, ilp=new)
        assert times.ratio("ilp") <= times.bound("ilp")
        assert times.ratio("ilp") == np.median(new / old)


def test_where_each_size_counts_the_ratio_is_that_of_the_bound():
    apart = Timings(
        {"ilp 0": (0.5,) * 9, "ilp 1": (0.9,) * 9, "original 0": (1.0,) * 9, "original 1": (1.0,) * 9}, "wall"
    )
    together = Timings({"original": (2.0,) * 9, "ilp": (1.4,) * 9}, "wall")
    times = Measured(together, {}, points=[None, None], apart=apart)
    assert (times.ratio("ilp"), times.bound("ilp")) == (0.9, 0.9)
    assert (times.ratio("original"), times.bound("original")) == (1.0, 1.0)
