"""The tuner with compilers and devices that are functions of Python."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from eqsat.errors import BackendError, UsageError
from eqsat.runtime.tuning.candidate import CandidateError, TuningCandidate
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.progress import TuningProgress, tuning_bar
from eqsat.runtime.tuning.search import GeneticSearch, RandomSearch
from eqsat.runtime.tuning.space import OptionSpace
from eqsat.runtime.tuning.tuner import FINAL_ROUNDS, FINALISTS, tune
from eqsat.system.deadline import Deadline, TimeUp
from tests.support.landscapes import pointwise

ROOT = Path(__file__).parents[4]
SPACE = OptionSpace({"tile": tuple(range(1, 1001))})
#: Seconds within which everything here ends, however slow the machine is.
LONG = 120.0


def several(generations=3, population=10):
    return RandomSearch(SPACE, TunerConfig(generations=generations, population=population, elites=2))


def tile(candidate):
    return candidate["tile"]


def micro(size):
    return size * 1e-6


def test_the_fastest_candidate_is_found_and_everything_is_in_the_history():
    result = tune(SPACE, several(), tile, micro, threads=2)
    assert len(result.history) == 30 and not result.is_interrupted and not result.is_out_of_time
    assert result.seconds == min(trial.seconds for trial in result.history) == micro(result.compiled)
    assert result.candidate == TuningCandidate({"tile": result.compiled}) and result.reference_seconds is None


def test_the_result_with_many_threads_is_that_of_one():
    landscape = pointwise()
    config = TunerConfig(generations=5, population=12, elites=3, seed=5)

    def run(threads):
        return tune(
            landscape.space, GeneticSearch(landscape.space, config), lambda c: c, landscape.seconds, threads=threads
        )

    one, other = run(1), run(4)
    assert (one.candidate, one.seconds) == (other.candidate, other.seconds)
    assert {trial.candidate for trial in one.history} == {trial.candidate for trial in other.history}


def test_candidates_that_do_not_compile_or_run_are_dropped_with_their_reason():
    def compiled(candidate):
        if tile(candidate) % 3 == 0:
            raise CandidateError("too many registers", where="k")
        return tile(candidate)

    def measure(size):
        if size % 3 == 1:
            raise BackendError("launch failed")
        return micro(size) if size % 2 else float("nan")

    result = tune(SPACE, several(), compiled, measure, threads=2)
    for trial in result.history:
        size = tile(trial.candidate)
        assert (trial.seconds is not None) == (size % 3 == 2 and size % 2 == 1)
        words = {0: "k: too many registers", 1: "launch failed", 2: "a time of nan s"}
        assert trial.failure == ("" if trial.seconds else words[size % 3])
    assert result.compiled % 6 == 5


def test_a_search_without_a_valid_candidate_says_why():
    def compiled(_):
        raise CandidateError("too many registers")

    with pytest.raises(
        CandidateError, match="none of 30 candidates could be compiled and measured: too many registers"
    ):
        tune(SPACE, several(), compiled, micro)


def test_an_exception_that_is_no_error_of_eqsat_ends_the_search():
    def broken(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tune(SPACE, several(), broken, micro, threads=2)
    with pytest.raises(ZeroDivisionError):
        tune(SPACE, several(), tile, broken, threads=2)


def test_candidates_are_compiled_by_other_threads_and_measured_by_the_caller_alone():
    compiling, measuring = set(), set()

    def compiled(candidate):
        compiling.add(threading.current_thread())
        time.sleep(0.002)
        return tile(candidate)

    def measure(size):
        measuring.add(threading.current_thread())
        return micro(size)

    tune(SPACE, several(), compiled, measure, threads=3)
    assert measuring == {threading.current_thread()}
    assert len(compiling) == 3 and not compiling & measuring


def test_others_are_compiled_while_one_is_measured():
    """The first measurement waits until three more candidates are compiled: it would wait forever if none were."""
    begun = threading.Semaphore(0)
    measured = []

    def compiled(candidate):
        begun.release()
        return tile(candidate)

    def measure(size):
        if not measured:
            assert all(begun.acquire(timeout=LONG) for _ in range(4))
        measured.append(size)
        return micro(size)

    tune(SPACE, several(), compiled, measure, threads=2)


def test_two_compilers_run_at_once():
    meeting = threading.Barrier(2)

    def compiled(candidate):
        meeting.wait(timeout=LONG)
        return tile(candidate)

    assert len(tune(SPACE, several(), compiled, micro, threads=2).history) == 30


def test_the_fastest_are_measured_again_and_the_minimum_of_one_run_does_not_win():
    """One slow candidate is measured as the fastest once; the rounds of the finalists see through that."""
    lucky = []

    def measure(size):
        if not lucky and size > 500:
            lucky.append(size)
            return 1e-9
        return micro(size)

    result = tune(SPACE, several(), tile, measure)
    least = min(tile(trial.candidate) for trial in result.history)
    assert lucky and result.compiled == least and result.seconds == micro(least)
    assert len(result.finals) == FINALISTS
    assert all(len(samples) == FINAL_ROUNDS for samples in result.finals.values())
    assert TuningCandidate({"tile": lucky[0]}) in result.finals


def test_finalists_are_measured_in_interleaved_rounds():
    order = []

    def measure(size):
        order.append(size)
        return micro(size)

    tune(SPACE, several(), tile, measure)
    final = order[30:]
    rounds = [final[begin : begin + FINALISTS] for begin in range(0, len(final), FINALISTS)]
    assert len(rounds) == FINAL_ROUNDS and all(len(set(one)) == FINALISTS for one in rounds)
    assert rounds[0] == rounds[1][::-1]


def test_the_winner_of_noisy_measurements_is_mostly_among_the_best():
    """Noise of up to a half; the minimum of 30 single runs would be 1.25 times the best, or more, in half of them."""
    near = 0
    for seed in range(20):
        noise = random.Random(seed)

        def measure(size, noise=noise):
            return (1 + size / 1000) * (1 + noise.random() / 2)

        result = tune(SPACE, RandomSearch(SPACE, TunerConfig(generations=1, population=30, seed=seed)), tile, measure)
        best = min(1 + tile(trial.candidate) / 1000 for trial in result.history)
        near += 1 + result.compiled / 1000 <= 1.25 * best
    assert near >= 15, near


def test_a_finalist_that_fails_when_measured_again_does_not_win():
    seen = set()

    def measure(size):
        if size in seen and size == min(seen):
            raise BackendError("illegal address")
        seen.add(size)
        return micro(size)

    result = tune(SPACE, several(), tile, measure)
    assert result.compiled == sorted(seen)[1]
    assert [t.failure for t in result.history if t.failure] == ["when measured again: illegal address"]


def test_a_reference_is_tried_first_and_is_a_finalist_however_slow_it_is():
    reference = TuningCandidate({"tile": 1000})
    result = tune(SPACE, several(), tile, micro, reference=reference)
    assert result.history[0].candidate == reference and len(result.history) <= 31
    assert result.reference_seconds == micro(1000) > result.seconds
    assert reference in result.finals and len(result.finals) == FINALISTS + 1


def test_the_result_is_never_slower_than_the_reference_it_starts_from():
    best, times = None, []
    for seed in range(6):
        search = GeneticSearch(SPACE, TunerConfig(generations=2, population=4, elites=1, seed=seed))
        result = tune(SPACE, search, tile, micro, reference=best)
        best, times = result.candidate, [*times, result.seconds]
    assert times == sorted(times, reverse=True) and times[-1] < times[0]


def test_a_reference_that_the_space_does_not_allow_is_refused():
    with pytest.raises(UsageError, match="tile"):
        tune(SPACE, several(), tile, micro, reference=TuningCandidate({"tile": 0}))


@pytest.mark.parametrize("given", [{"seconds": 0}, {"seconds": float("nan")}, {"threads": 0}])
def test_an_argument_outside_its_domain_is_refused(given):
    with pytest.raises(UsageError, match=next(iter(given))):
        tune(SPACE, several(), tile, micro, **given)


def test_the_time_budget_ends_the_search_with_the_best_so_far():
    def compiled(candidate):
        time.sleep(0.01)
        return tile(candidate)

    begun = time.monotonic()
    result = tune(SPACE, several(generations=100_000), compiled, micro, seconds=0.5, threads=2)
    assert result.is_out_of_time and not result.is_interrupted and time.monotonic() - begun < LONG
    assert 0 < len(result.history) < 1000
    assert result.seconds == min(trial.seconds for trial in result.history)


def test_the_time_budget_does_not_wait_for_a_compiler():
    released, first = threading.Event(), threading.Event()

    def compiled(candidate):
        if not first.is_set():
            first.set()
            return tile(candidate)
        released.wait(LONG)
        return tile(candidate)

    result = tune(SPACE, several(), compiled, micro, seconds=0.3, threads=2)
    assert result.is_out_of_time and len(result.history) == 1 and not released.is_set()
    released.set()


def test_finalists_have_a_part_of_the_time_budget():
    def measure(size):
        time.sleep(0.002)
        return micro(size)

    result = tune(SPACE, several(generations=100_000), tile, measure, seconds=1.0)
    assert result.is_out_of_time and result.finals


def test_a_time_budget_that_ends_before_the_first_measurement_is_an_error():
    released = threading.Event()
    with pytest.raises(CandidateError, match=r"time limit of 0\.1 s is over") as error:
        tune(SPACE, several(), lambda _: released.wait(LONG), micro, seconds=0.1)
    assert "more seconds" in error.value.remedy
    released.set()


def test_the_deadline_of_the_call_around_it_ends_the_search_too():
    def compiled(candidate):
        time.sleep(0.01)
        return tile(candidate)

    with Deadline(0.3):
        result = tune(SPACE, several(generations=100_000), compiled, micro)
    assert result.is_out_of_time


def test_a_measurement_that_ends_with_the_time_keeps_the_best():
    calls = []

    def measure(size):
        calls.append(size)
        if len(calls) == 4:
            raise TimeUp("the time limit is over")
        return micro(size)

    result = tune(SPACE, several(), tile, measure)
    assert result.is_out_of_time and result.compiled == min(calls[:3])


def test_ctrl_c_in_a_measurement_keeps_the_best():
    calls = []

    def measure(size):
        calls.append(size)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return micro(size)

    result = tune(SPACE, several(), tile, measure, threads=2)
    assert result.is_interrupted and len(result.history) == 5
    assert result.compiled == min(calls[:5]) and result.finals == {}


def test_ctrl_c_among_the_finalists_keeps_the_whole_rounds():
    calls = []

    def measure(size):
        calls.append(size)
        if len(calls) == 30 + 2 * FINALISTS + 1:
            raise KeyboardInterrupt
        return micro(size)

    result = tune(SPACE, several(), tile, measure)
    assert result.is_interrupted and {len(samples) for samples in result.finals.values()} == {2}


def test_ctrl_c_before_anything_is_measured_is_ctrl_c():
    def measure(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(SPACE, several(), tile, measure)


def test_a_signal_ends_the_waiting_for_compilers():
    released, measured = threading.Event(), []

    def compiled(candidate):
        if measured:
            os.kill(os.getpid(), signal.SIGINT)
            released.wait(LONG)
        return tile(candidate)

    def measure(size):
        measured.append(size)
        return micro(size)

    result = tune(SPACE, several(), compiled, measure)
    assert result.is_interrupted and result.compiled == min(measured) and not released.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    released.set()


def test_a_signal_to_the_process_keeps_the_best():
    script = ROOT / "tests" / "support" / "tuned_until_interrupted.py"
    process = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(5):
        assert process.stdout.readline() == "measured\n"
    process.send_signal(signal.SIGINT)
    lines, _ = process.communicate(timeout=LONG)
    result = json.loads(lines.splitlines()[-1])
    assert process.returncode == 0 and result["interrupted"] and result["least"] and result["tried"] >= 5


def test_a_program_can_ask_for_the_end():
    result = tune(SPACE, several(), tile, micro, should_stop=lambda: len(told) >= 7, progress=(told := []).append)
    assert result.is_interrupted and len(result.history) == 7
    with pytest.raises(CandidateError, match="interrupted"):
        tune(SPACE, several(), tile, micro, should_stop=lambda: True)


def test_progress_is_told_after_each_candidate_with_the_best_so_far():
    told = []

    def compiled(candidate):
        if tile(candidate) % 2:
            raise CandidateError("odd")
        return tile(candidate)

    result = tune(SPACE, several(), compiled, micro, progress=told.append, seconds=LONG)
    assert [one.tried for one in told] == list(range(1, 31))
    assert told[-1].failed == sum(trial.seconds is None for trial in result.history) and told[-1].known == 30
    times = [one.seconds for one in told if one.seconds is not None]
    assert times == sorted(times, reverse=True) and told[-1].best == result.candidate
    assert all(0 < one.left <= LONG for one in told)


def test_a_bar_shows_nothing_where_no_one_watches(capsys):
    with tuning_bar() as follow:
        follow(TuningProgress(1, 0, 2, TuningCandidate({"tile": 1}), 1e-6))
    assert capsys.readouterr() == ("", "")


def test_a_bar_shows_the_best_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with tuning_bar() as follow:
        follow(TuningProgress(12, 3, 20, TuningCandidate({"tile": 1}), 1.25e-5, 61.0))
    assert "12 of 20 tried, 3 invalid, best 12.5 µs, 61 s left" in capsys.readouterr().err


def test_a_strategy_of_ones_own_may_propose_a_candidate_twice():
    class Stubborn:
        def __init__(self):
            self.batches = [[SPACE.at(3), SPACE.at(3), SPACE.at(4)], [SPACE.at(3)]]
            self.told = []

        def propose(self):
            return self.batches.pop(0) if self.batches else []

        def tell(self, candidate, seconds):
            self.told.append((tile(candidate), seconds))

    search = Stubborn()
    result = tune(SPACE, search, tile, micro)
    assert len(result.history) == 2 and search.told == [(4, micro(4)), (5, micro(5)), (4, micro(4))]


def test_a_strategy_that_proposes_no_candidate_of_the_space_is_refused():
    class Foreign:
        def propose(self):
            return [TuningCandidate({"tile": 0})]

        def tell(self, candidate, seconds):
            raise AssertionError

    with pytest.raises(UsageError, match="value 0"):
        tune(SPACE, Foreign(), tile, micro)
