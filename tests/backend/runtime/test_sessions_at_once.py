"""Sessions of large models that are held at a time: two, however many programs are to be timed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.onnx.files import apart
from eqsat.language.terms import Graph
from eqsat.report.finalists import Measured, measure_finalists
from eqsat.report.timing import bench, levels
from eqsat.report.timing.levels import LevelTrial
from eqsat.report.timing.sets import sets_in_time
from eqsat.runtime.examples import SizePoint
from eqsat.runtime.measure import LEAST_ROUNDS, Timings
from eqsat.runtime.onnxruntime.session import SessionProgram
from eqsat.system.deadline import Deadline, TimeUp

Interleaved = Callable[..., Timings]


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the model of these tests for a large one."""
    monkeypatch.setattr(apart, "COPIED_BYTES", 128)


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of sessions that there were each time one was made, that one among them."""
    gc.collect()
    gc.freeze()  # what other tests of this process left is not looked at again each time a session is made
    counts: list[int] = []
    alive: weakref.WeakSet[SessionProgram] = weakref.WeakSet()
    made = SessionProgram.__init__

    def counted(program: SessionProgram, graph: Graph, session: Any) -> None:
        made(program, graph, session)
        gc.collect()
        alive.add(program)
        counts.append(len(alive))

    monkeypatch.setattr(SessionProgram, "__init__", counted)
    return counts


def product(scale: float = 1.0) -> Graph:
    g = eqsat.Graph("product")
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    g.output("y", eqsat.relu(g.input("x", (2, 8)) @ g.constant(np.float32(scale) * w)))
    return g.build()


def timed(graphs: Mapping[str, Graph], **more: Any) -> Measured:
    return measure_finalists(graphs, None, points=[SizePoint({})], seed=0, threads=1, seconds=0.1, **more)


FOUR = {name: product() for name in ("original", "ilp", "greedy", "portable")}


def test_finalists_are_timed_one_after_the_other_beside_the_original(most: list[int]) -> None:
    with Deadline(60.0):
        measured = timed(FOUR)
    assert set(measured.timings.samples) == set(FOUR) and not measured.refused
    assert max(most) == 2 and len(most) >= 4
    assert measured.rounds >= LEAST_ROUNDS
    assert measured.ratio("original") == measured.bound("original") == 1.0
    assert all(0 < measured.ratio(name) <= measured.bound(name) for name in FOUR if name != "original")


def test_small_models_are_timed_in_one_run(most: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "COPIED_BYTES", 1 << 24)
    assert set(timed(FOUR).timings.samples) == set(FOUR)
    assert max(most) == 4


def planned(seconds: Mapping[str, Sequence[float]], calls: list[list[str]]) -> Interleaved:
    """Runs in which programs take so many seconds, those of one of them after the other."""
    taken = {name: list(values) for name, values in seconds.items()}

    def run(
        programs: Mapping[str, Any], rounds: int, *_: Any, clock: Any, is_settled: Any = None, **__: Any
    ) -> Timings:
        calls.append(list(programs))
        one = {name: taken[name.split()[0]].pop(0) for name in programs}
        if 0.0 in one.values():
            raise TimeUp("planned")
        least = Timings({name: (value,) * LEAST_ROUNDS for name, value in one.items()}, clock)
        rounds = LEAST_ROUNDS if is_settled is not None and is_settled(least) else rounds
        return Timings({name: (value,) * rounds for name, value in one.items()}, clock)

    return run


def test_each_finalist_is_compared_with_the_original_of_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine became twice as slow after the first run: what was timed in it would seem to be the fastest."""
    calls: list[list[str]] = []
    run = planned({"original": [1.0, 2.0, 2.0], "ilp": [0.9], "greedy": [1.2], "portable": [2.2]}, calls)
    monkeypatch.setattr(bench, "interleaved", run)
    measured = timed(FOUR)
    assert calls == [["original 0", "ilp 0"], ["original 0", "greedy 0"], ["original 0", "portable 0"]]
    assert {name: measured.ratio(name) for name in FOUR} == pytest.approx(
        {"original": 1.0, "ilp": 0.9, "greedy": 0.6, "portable": 1.1}
    )
    assert measured.bound("greedy") == pytest.approx(0.6)
    # Of one that cannot be faster, no more rounds than the least are run.
    samples = measured.timings.samples
    assert {name: len(samples[name]) for name in FOUR if name != "original"} == {
        "ilp": bench.ROUNDS,
        "greedy": bench.ROUNDS,
        "portable": LEAST_ROUNDS,
    }
    assert len(samples["original"]) == 2 * bench.ROUNDS + LEAST_ROUNDS


def test_what_was_timed_counts_where_the_time_ends_before_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "interleaved", planned({"original": [1.0] * 3, "ilp": [0.9], "greedy": [0.0]}, []))
    measured = timed({name: FOUR[name] for name in ("original", "ilp", "greedy")})
    assert measured.ratio("ilp") == pytest.approx(0.9)
    assert measured.refused == {"greedy": "the time left was too short to time it beside the others"}


def test_where_the_first_is_not_timed_in_time_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "interleaved", planned({"original": [1.0], "ilp": [0.0]}, []))
    with pytest.raises(TimeUp, match="planned"):
        timed(FOUR)


def test_a_run_that_is_interrupted_keeps_what_was_timed() -> None:
    stopping: list[str] = []

    def follow(text: str) -> None:
        stopping.extend([text] if text == "compiling greedy" else [])

    measured = timed(FOUR, follow=follow, should_stop=lambda: bool(stopping))
    assert "ilp" in measured.timings.samples
    assert set(measured.refused) == {"greedy", "portable"}
    with pytest.raises(BackendError, match="interrupted before anything was measured"):
        timed(FOUR, should_stop=lambda: True)


def test_one_whose_outputs_differ_is_not_timed_and_the_others_are(most: list[int]) -> None:
    measured = timed(FOUR | {"greedy": product(2.0)})
    assert set(measured.timings.samples) == {"original", "ilp", "portable"}
    assert set(measured.refused) == measured.differing == {"greedy"}
    assert max(most) == 2
    alone = timed({"original": FOUR["original"], "ilp": product(2.0), "greedy": product(3.0)})
    assert set(alone.timings.samples) == {"original"} and alone.differing == {"ilp", "greedy"}


@pytest.mark.parametrize("is_original", [True, False])
def test_levels_are_timed_one_after_the_other(
    most: list[int], monkeypatch: pytest.MonkeyPatch, is_original: bool
) -> None:
    """Levels "basic" and "extended" are compared, and the first is confirmed in sessions made anew."""
    times = {"all": 1.0, "extended": 1.2, "basic": 0.8, "original": 1.6}

    def run(
        programs: Mapping[str, Any], rounds: int, *_: Any, clock: Any, is_settled: Any = None, **__: Any
    ) -> Timings:
        # The second run of a set is on a machine that is twice as slow.
        slower = 2.0 if any(name.startswith("original") for name in programs) else 1.0
        return Timings({name: (slower * times[name.split()[0]],) * rounds for name in programs}, clock)

    monkeypatch.setattr(levels, "interleaved", run)
    graph = product()
    # The number of sets ends the trial, never the clock.
    trial = LevelTrial(graph, replace(graph), is_original, None, (SizePoint({}),), 0, 1, 1e-4, seconds=600.0)
    rows = {row.name: row for row in trial.measured()}
    assert max(most) == 2
    assert rows["extended"].ratio == pytest.approx(1.2)
    basic = rows["basic"]
    assert basic.kept and basic.ratio == pytest.approx(0.8)
    assert basic.new_old == pytest.approx(0.8 if is_original else 0.5)


def test_no_more_sets_are_made_where_too_few_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("eqsat.report.timing.sets.time", SimpleNamespace(monotonic=lambda: now[0]))

    def made(seconds: float) -> int:
        count = 0
        for _ in sets_in_time(seconds):
            count += 1
            now[0] += 1.0
        return count

    assert [made(seconds) for seconds in (4.9, 5.0, 6.5, 100.0)] == [1, 5, 6, 8]
