"""The seconds of phases in the log of a run."""

from __future__ import annotations

import time

import pytest

from eqsat.steps.log import Log


def test_the_seconds_of_a_phase_inside_another_count_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    log = Log()
    with log.phase("saturate"):
        now[0] += 1.0
        with log.phase("calibrate"):
            now[0] += 4.0
        now[0] += 2.0
    with log.phase("calibrate"):
        now[0] += 0.5
    assert log.seconds == pytest.approx({"saturate": 3.0, "calibrate": 4.5})
