"""The watch sees what it is there for, campaigns go on where they stood, and the page says what was measured."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.faults import __main__ as campaign
from benchmarks.faults.kinds import KINDS
from benchmarks.faults.page import PAGE, RESULT, ROOT, rewritten
from benchmarks.faults.watch import Bounds, Found, Watch


def ends_well(_number: int, _seed: int, folder: Path) -> Found:
    assert not list(folder.iterdir())
    (folder / "left").write_text("")
    return "well", None


def crashes(_number: int, _seed: int, _folder: Path) -> Found:
    os.kill(os.getpid(), signal.SIGSEGV)
    return "not reached", None


def exits(_number: int, _seed: int, _folder: Path) -> Found:
    os._exit(7)


def hangs(_number: int, _seed: int, _folder: Path) -> Found:
    time.sleep(60)
    return "not reached", None


def raises(_number: int, _seed: int, _folder: Path) -> Found:
    raise KeyError("nothing of the kind")


def asks_for_memory(_number: int, _seed: int, _folder: Path) -> Found:
    np.ones(1 << 28, np.float64)
    return "not reached", None


def holds_memory(_number: int, _seed: int, _folder: Path) -> Found:
    held = np.ones(300 << 17, np.float64)
    return f"held {len(held)}", None


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches that optimise nothing first: it takes seconds, and nothing here is timed."""
    monkeypatch.setattr(campaign, "Watch", partial(Watch, cold=True))


def test_the_watch_sees_crashes_hangs_exceptions_and_memory_and_goes_on() -> None:
    with Watch(Bounds(seconds=2.5, memory=320), cold=True) as watch:
        outcomes = [
            watch.call(attempt, number, 0)
            for number, attempt in enumerate(
                (ends_well, crashes, ends_well, exits, hangs, raises, asks_for_memory, holds_memory, ends_well)
            )
        ]
    came_to = [o.came_to for o in outcomes]
    assert came_to == ["well", "crashed", "well", "crashed", "hung", "raised", "memory", "memory", "well"]
    assert [o.number for o in outcomes] == list(range(9))
    faults = [o.fault or "" for o in outcomes]
    assert "SIGSEGV" in faults[1] and "exit code 7" in faults[3] and "no end within 2.5 s" in faults[4]
    assert "in hangs" in faults[4] and "KeyError" in faults[5] and "320 MiB" in faults[6]
    assert outcomes[7].memory > 320 > outcomes[8].memory > 0


@pytest.mark.usefixtures("cold")
def test_a_campaign_that_was_interrupted_goes_on_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result is that of an uninterrupted one, other kinds stay in the file, and the seed is said first."""
    output = tmp_path / "faults.json"
    arguments = ["--only", "paths", "--seed", "3", "-o", str(output)]
    whole = campaign.tried_outcomes
    tried: list[int] = []

    def interrupted(kind, numbers, seed, jobs):  # type: ignore[no-untyped-def]
        for outcome in whole(kind, numbers, seed, jobs):
            tried.append(outcome.number)
            yield outcome
            if len(tried) == 5:
                raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "tried_outcomes", interrupted)
    assert CliRunner().invoke(campaign.main, arguments).exit_code == 1
    assert len(tried) == 5 and not output.exists()
    output.write_text(json.dumps({"kinds": {"sizes": {"tries": 1}}}))
    done = CliRunner().invoke(campaign.main, arguments)
    assert done.exit_code == 0, done.output
    assert "seed 3: " in done.output
    assert sorted(tried) == list(range(KINDS["paths"].tries))
    kinds = json.loads(output.read_text())["kinds"]
    assert list(kinds) == ["paths", "sizes"] and kinds["sizes"] == {"tries": 1}
    assert kinds["paths"]["tries"] == KINDS["paths"].tries and kinds["paths"]["failed"] == 0
    assert {p.name for p in tmp_path.iterdir()} == {"faults.json"}


@pytest.mark.usefixtures("cold")
def test_a_fault_that_shows_fails_the_campaign_and_is_in_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"files": KINDS["files"].__class__(3, crashes, Bounds(5.0), "crashes", "nothing", "none")}
    monkeypatch.setattr(campaign, "KINDS", failing)
    output = tmp_path / "faults.json"
    arguments = ["--only", "files", "--count", "2", "-o", str(output)]
    done = CliRunner().invoke(campaign.main, arguments)
    assert done.exit_code == 1, done.output
    found = json.loads(output.read_text())["kinds"]["files"]
    assert (found["tries"], found["failed"], found["came_to"]) == (2, 2, {"crashed": 2})
    assert "SIGSEGV" in found["failures"][0]["fault"]


def test_the_page_has_the_figures_of_the_results() -> None:
    """`python -m benchmarks.faults --page` writes its table anew."""
    page, document = PAGE.read_text(encoding="utf-8"), json.loads(RESULT.read_text(encoding="utf-8"))
    assert rewritten(page, document) == page
    assert set(document["kinds"]) == set(KINDS)
    assert all((ROOT / kind.test).exists() for kind in KINDS.values())


def test_the_command_tries_as_many_as_are_asked_for_and_none_failed() -> None:
    kinds = json.loads(RESULT.read_text(encoding="utf-8"))["kinds"]
    assert KINDS["graphs"].tries >= 10_000
    assert KINDS["files"].tries >= 5000
    assert kinds["files"]["tries"] >= 5000
    assert kinds["files"]["longest"]["seconds"] <= 10
    assert kinds["files"]["memory"]["mebibytes"] <= 1024
    assert not [name for name, found in kinds.items() if found["failed"]]
