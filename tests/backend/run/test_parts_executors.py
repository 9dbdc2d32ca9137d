"""Parts on executors: workers that crash or hang cost a try, and a cluster that loses a worker nothing."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Event

import distributed
import numpy as np

import eqsat
from eqsat.language.terms import Graph
from eqsat.options.options import Options
from eqsat.run import optimised_part
from eqsat.steps.parts.executing import PartsAtOnce
from eqsat.steps.parts.tasks import PartOutcome, PartTask
from eqsat.system.deadline import Deadline


def small(name: str, width: int = 2) -> Graph:
    g = eqsat.Graph(name)
    g.output("y", g.apply("relu", g.apply("relu", g.input("x", (width, width)))))
    return g.build()


def tasks(*names: str) -> list[Callable[[], PartTask]]:
    options = Options(measure=False, cache=False)
    return [partial(PartTask.of, small(name), frozenset(), options) for name in names]


def work(task: PartTask) -> PartOutcome:
    """Optimise a part; what its name asks for comes first, once where a file says that it was tried."""
    kind, _, tried = task.graph.name.partition(" ")
    first = not tried or not Path(tried).exists()
    if tried:
        Path(tried).touch()
    if kind == "crashes" and first:
        os._exit(3)
    if kind == "fails":
        raise RuntimeError("not this one")
    return optimised_part(task)


def test_a_worker_that_crashes_costs_one_try(tmp_path):
    given = tasks("good", f"crashes {tmp_path / 'tried'}", "fails")
    found = PartsAtOnce(work, Deadline(60.0), 1).attempts(given, lambda done: None)
    assert [one.outcome is not None for one in found] == [True, True, False]
    assert found[0].outcome.found(small("good")).graph.nodes[0].op == "relu"
    assert found[1].tries == 2 and found[1].before == "a process ended at work on it" and not found[1].why
    assert found[2].before == found[2].why
    assert found[2].tries == 2 and found[2].why == "unexpected RuntimeError: not this one"


def test_a_worker_that_hangs_costs_one_try():
    """The part is tried by another worker; where that hangs too, it stays."""
    released, tried = Event(), []

    def hanging(task: PartTask) -> PartOutcome:
        name = task.graph.name
        tried.append(name)
        if name == "always" or tried.count(name) == 1:
            released.wait(60)
        return outcome

    outcome = optimised_part(tasks("good")[0]())
    with ThreadPoolExecutor(4) as executor:
        at_once = PartsAtOnce(hanging, Deadline(60.0), executor, late=0.0, starting=0.5)
        found = at_once.attempts(tasks("once", "always"), lambda done: None)
        released.set()
    assert found[0].outcome is outcome and found[0].tries == 2
    assert found[1].outcome is None and found[1].tries == 2
    assert found[1].why == "its worker came to no end"


def test_an_executor_whose_workers_all_hang_is_done_without():
    released = Event()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(released.wait, 60)
        at_once = PartsAtOnce(optimised_part, Deadline(60.0), executor, late=0.0, starting=0.5)
        given = tasks("good")
        found = at_once.attempts([lambda: _later(at_once, given[0]())], lambda done: None)
        released.set()
    assert found[0].outcome is not None and found[0].tries == 2
    assert at_once.warnings == [
        "parts go on in processes of this machine, since the executor failed: its workers came to no end"
    ]


def _later(at_once: PartsAtOnce, task: PartTask) -> PartTask:
    """The task, with time for a process to start in once the executor is given up."""
    if at_once.warnings:
        at_once.starting = 60.0
    return task


def test_a_part_that_crashes_again_stays_and_an_executor_that_broke_is_done_without():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        at_once = PartsAtOnce(work, Deadline(60.0), executor)
        found = at_once.attempts(tasks("crashes", "good"), lambda done: None)
    (warning,) = at_once.warnings
    assert warning == "parts go on in processes of this machine, since the executor failed: a process ended"
    assert found[0].outcome is None and found[0].tries == 2
    assert found[0].why == "a process ended at work on it"
    # Which of the two ended the process could not be told: each was tried again by itself.
    assert found[1].outcome is not None


def test_a_cluster_that_loses_a_worker_optimises_all_parts():
    rng, g = np.random.default_rng(0), eqsat.Graph("tower")
    value = g.input("x", (3, 6))
    for number in range(7):
        weight = rng.normal(size=(value.shape[1], 5 + number % 5)).astype(np.float32)
        value = g.apply("relu", g.apply("relu", value @ weight))
    g.output("y", value)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        killed = []

        def kill_one(progress):
            if not killed and progress.phase == "parts" and progress.detail.startswith(("1 of", "2 of")):
                killed.append(client.run(os.getpid))
                pid = next(iter(killed[0].values()))
                os.kill(pid, 9)

        options = {"measure": False, "cache": False, "max_nodes": 8, "time_limit": 120.0}
        result = eqsat.optimize(g, executor=executor, progress=kill_one, **options)
    assert killed
    assert result.report.kept == "parts"
    assert all(not one.why for one in result.report.partition)
    again = [warning for warning in result.report.warnings if "was tried again: " in warning]
    assert len(again) == sum(one.tries > 1 for one in result.report.partition)
    assert [n.op for n in result.graph.nodes].count("relu") == 7
