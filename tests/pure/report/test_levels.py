"""Levels of ONNX Runtime's optimisation, judged by times in several sessions."""

from __future__ import annotations

import pytest

from eqsat.report.parts import SessionLevel
from eqsat.report.timing.levels import confirmed_level


def judged(level: list[float], base: list[float], original: list[float] | None = None) -> SessionLevel:
    times = {"basic": level, "all": base, "original": original or base}
    return confirmed_level(SessionLevel("basic", 0.9), times)


def test_a_level_that_is_faster_in_all_sessions_is_kept_with_its_bounds():
    row = judged([0.9, 0.91, 0.89, 0.9, 0.9], [1.0] * 5, [1.2] * 5)
    assert row.kept
    assert row.ratio == pytest.approx(0.9)
    assert 0.9 <= row.bound < 0.92
    assert row.new_old == pytest.approx(0.75)
    assert row.sessions == 5
    assert row.why.startswith('measured at 0.900 of the time at "all", at most 0.9')


@pytest.mark.parametrize(
    ("times", "why"),
    [
        (([0.99] * 6, [1.0] * 6), "it saves less than 2 %"),
        (([0.9, 1.1, 0.9, 1.1, 0.9, 0.9], [1.0] * 6), "it is faster in the median, but not with 95 % confidence"),
        (([0.9] * 6, [1.0] * 6, [0.8] * 6), "it is faster in the median, but not with 95 % confidence"),
        (([0.9] * 4, [1.0] * 4), "no time was left to confirm it in sessions made anew"),
    ],
)
def test_any_other_is_not_kept_and_the_reason_is_told(times, why):
    row = judged(*times)
    assert (row.kept, row.why) == (False, why)
