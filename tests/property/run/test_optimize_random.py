"""Random graphs through the whole pipeline: what comes out computes what went in, whatever operators cost."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import eqsat
from benchmarks.faults.graphs import REGRESSIONS, keep_graph, regressions
from benchmarks.fuzz import Settings, described, difference, fault, settings_of, shrunk
from benchmarks.random_graphs import random_graph
from eqsat.costs.model.asked import Application
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms.graph import Graph

#: The seed of the first graph. A run is the same each time; set the variable to try other graphs.
SEED = int(os.environ.get("EQSAT_FAULT_SEED", "0"))
#: Graphs of one to three steps, cheap enough that so many are tried; larger ones are for `python -m benchmarks.faults`.
GRAPHS, PART, NODES = 500, 25, 80


def assert_right(graph: Graph, how: Settings) -> None:
    words = fault(graph, how)
    assert words is None, f"{words}\n{described(graph)}"


@pytest.mark.parametrize("first", range(0, GRAPHS, PART))
def test_random_graphs_compute_the_same(first: int) -> None:
    """One that does not is made small and kept in tests/regressions, where it is tried from then on."""
    print(f"seeds {SEED + first} to {SEED + first + PART - 1}; EQSAT_FAULT_SEED={SEED}")
    for seed in range(SEED + first, SEED + first + PART):
        graph, how = random_graph(seed, steps=1 + seed % 3), replace(settings_of(seed), nodes=NODES)
        words = fault(graph, how)
        if words is not None:
            keep_graph(graph, how, seed, REGRESSIONS, lambda g, how=how: fault(g, how))  # type: ignore[misc]
        assert words is None, f"seed {seed}: {words}\n{described(graph)}"


@pytest.mark.parametrize("seed", range(12))
def test_longer_graphs_compute_the_same(seed: int) -> None:
    assert_right(random_graph(seed, steps=9), Settings(costs=seed, nodes=400))


def test_graphs_that_failed_once_compute_the_same() -> None:
    kept = list(regressions())
    assert {r.file: r.replayed(REGRESSIONS) for r in kept} == {r.file: None for r in kept}
    assert {p.name for p in REGRESSIONS.glob("*.onnx")} == {r.file for r in kept}


def test_a_graph_that_fails_is_made_small_and_kept_with_its_seed_and_settings(tmp_path: Path) -> None:
    graph, how = random_graph(5, steps=8), Settings(costs=3, nodes=50)
    op = "matmul"  # written to ONNX as one operator, which not all are
    assert any(node.op == op for node in graph.nodes)

    def verdict(candidate: Graph) -> str | None:
        return f"{op} is there: at {len(candidate.nodes)}" if any(n.op == op for n in candidate.nodes) else None

    came_to, _ = keep_graph(graph, how, 5, tmp_path, verdict)
    assert came_to == "kept"
    (kept,) = regressions(tmp_path)
    assert (kept.file, kept.seed, kept.settings, kept.fault) == ("graph_5.onnx", 5, asdict(how), f"{op} is there: at 1")
    assert [n.op for n in load(tmp_path / kept.file).nodes] == [op]
    assert kept.replayed(tmp_path) is None


def test_the_verdict_of_a_process_that_crashes_or_hangs_is_that_it_does() -> None:
    """In a process that has not optimised anything, as where `benchmarks.faults` makes a graph small."""
    script = (
        "import os, signal, time\n"
        "from benchmarks.faults import graphs\n"
        "from benchmarks.fuzz import Settings\n"
        "graphs._ONE_SECONDS = 1.0\n"
        "graph, _ = graphs.graph_of(7, 0)\n"
        "crash, hang = lambda *_: os.kill(os.getpid(), signal.SIGSEGV), lambda *_: time.sleep(60)\n"
        "for graphs.fault in (crash, hang, lambda *_: 'wrong: y'):\n"
        "    print(graphs.verdict_apart(graph, Settings(None)))\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, timeout=60)
    assert done.stdout.splitlines() == ["crashed: SIGSEGV", "hung: no end within 1.0 s", "wrong: y"], done.stderr


def test_a_difference_of_subject_and_itself_needs_no_input() -> None:
    g = eqsat.Graph("gone")
    x = g.input("x", (3, 4))
    g.output("y", x - x)
    assert_right(g.build(), Settings(None))
    assert [n.op for n in eqsat.optimize(g, measure=False).graph.nodes] == []


@pytest.mark.parametrize("op", ["sqrt", "log", "acosh", "atanh"])
def test_functions_of_part_of_the_numbers_are_certified(op: str) -> None:
    g = eqsat.Graph("domain")
    g.output("y", g.apply("identity", g.apply(op, g.input("x", (1, 2)))))
    for seed in range(8):
        result = eqsat.optimize(g, measure=False, seed=seed)
        assert [n.op for n in result.graph.nodes] == [op]


def test_a_result_that_constants_make_nan_is_certified() -> None:
    g = eqsat.Graph("nan")
    x = g.input("x", (2, 3))
    g.output("y", g.apply("identity", x + np.full((2, 3), np.nan, np.float32)))
    assert_right(g.build(), Settings(None))


def test_rows_that_congruence_removed_are_no_matches() -> None:
    """An e-node that is its own operand after a union is matched again, besides the row that it replaced."""
    g = eqsat.Graph("removed")
    x = g.input("x", ("n",), "uint8")
    g.output("y", g.apply("minimum", x, x))
    assert_right(g.build(), Settings(None))


def test_outputs_of_one_operator_may_be_checked_apart() -> None:
    g = eqsat.Graph("parts")
    x = g.input("x", (2, 4))
    nothing, whole = eqsat.split(eqsat.concat([x, x], axis=0), [0, 4], axis=0)
    g.output("y", eqsat.concat([whole, nothing], axis=0))
    for costs in range(6):
        assert_right(g.build(), Settings(costs))


def test_an_operator_without_a_kernel_is_not_chosen() -> None:
    """ONNX Runtime averages float64 as a reduction only."""
    g = eqsat.Graph("mean")
    x = g.input("x", (3, 2, 2), "float64")
    g.output("y", eqsat.reduce_mean(x, 2, keepdims=True))

    def liking(applied: Application) -> float:
        return float(applied.op != "global_avg_pool")

    here, there = (
        eqsat.optimize(g, measure=False, cost=liking, device=device) for device in ("onnxruntime-cpu", "nvidia-h200")
    )
    assert [n.op for n in here.graph.nodes] == ["reduce_mean"]
    assert [n.op for n in there.graph.nodes] == ["global_avg_pool"]


def test_an_output_that_nothing_reads_is_named_where_onnx_wants_it() -> None:
    g = eqsat.Graph("first")
    x = g.input("x", (6, 2))
    values, _ = g.apply("topk", g.apply("identity", x), k=1, axis=0)
    g.output("y", values)
    (node,) = eqsat.optimize(g, measure=False).to_onnx().graph.node
    assert all(node.output)


def test_a_shrunk_graph_still_fails_and_is_small() -> None:
    graph = random_graph(5, steps=8)
    op = "matmul"  # written to ONNX as one operator, which not all are
    assert any(node.op == op for node in graph.nodes)

    def fails(smaller: Graph) -> bool:
        return any(n.op == op for n in smaller.nodes)

    small = shrunk(graph, fails, seconds=5)
    assert fails(small)
    assert len(small.nodes) == 1


def test_differences_are_told() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = np.array([1.0, np.nan, np.inf])
        assert difference(one, one.copy(), 0.0) is None
        assert difference(one, np.array([1.1, np.nan, np.inf]), 1e-3) is not None
        assert difference(one, np.array([1.0, np.nan, -np.inf]), 1e-3) is not None
        assert difference(one, np.array([1.0, 0.0, np.inf]), 1e-3) is not None
        assert difference(one, one[:2], 1.0) is not None


def test_constants_are_not_regrouped_out_of_their_range() -> None:
    """1 / 1e25 / 1e25 is no number of float32 but 0, and the root of a variance of 0 has no finite inverse."""
    g = eqsat.Graph("range")
    x = g.input("x", (3, 2))
    g.output("y", (x * np.float32([1e25, 1])) / np.float32([1e25, 1]) * np.float32([1e-25, 1]))
    g.output("z", (x / np.float32([1e30, 1])) * np.float32([1e30, 1]) / np.float32([1e30, 1]))
    one = np.ones(2, np.float32)
    g.output(
        "n", g.apply("batch_norm", x @ np.float32([[1, 2], [3, 4]]), one, one, one, np.float32([1, 0]), epsilon=0.0)
    )
    for costs in (None, *range(8)):
        assert_right(g.build(), Settings(costs))


def test_a_constant_that_cannot_be_computed_is_left_to_fail_when_it_runs() -> None:
    g = eqsat.Graph("outside")
    x = g.input("x", (3, 2))
    g.output("y", g.apply("gather", g.constant(np.float32([1])), g.constant([2, 2, 2]), axis=0))
    g.output("z", g.apply("identity", g.apply("relu", x)))
    result = eqsat.optimize(g, measure=False)
    assert [n.op for n in result.graph.nodes] == ["gather", "relu"]
