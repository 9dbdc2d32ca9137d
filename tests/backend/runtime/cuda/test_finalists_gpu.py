"""Finalists of a GPU that is here are measured on its backend, which stands in for itself on the host's machine."""

import numpy as np
import pytest

import eqsat
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import Graph, Plan
from eqsat.runtime.backend import BACKENDS
from tests.support import host_stopwatch

RELU = OpKey.parse("relu {} float32[4, 16]")


@pytest.fixture
def backend(monkeypatch):
    host_stopwatch.install(monkeypatch)
    made = host_stopwatch.HostBackend()
    monkeypatch.setitem(BACKENDS, "cupy", made)
    return made


def products():
    """Two products of one operand, which are merged."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("products")
    x = g.input("x", (4, 32))
    for name in "ab":
        w = g.constant(rng.standard_normal((32, 16)).astype(np.float32))
        g.output(name, eqsat.relu(x @ w))
    return g


def test_finalists_of_a_gpu_are_run_as_plans_on_its_backend(backend):
    table = CostTable(":memory:")
    table.put(Environment.current("cuda"), RELU, Entry(1e-6, 1e-6, 1e-6, 20, plan="0a by cublaslt 1 ff 0"))
    report = eqsat.optimize(products(), device="cuda", table=table).report
    assert not [w for w in report.warnings if w.startswith("not measured")]
    assert report.measured_before > 0
    assert report.rounds >= 5
    kinds = [type(given) for given, _ in backend.compiled]
    # The original as it is, the others as they were chosen; each by the plans that the table has.
    assert kinds[0] is Graph
    assert set(kinds[1:]) == {Plan}
    assert {plans for _, plans in backend.compiled} == {("0a by cublaslt 1 ff 0",)}


def test_a_result_runs_as_it_was_chosen_by_the_plans_that_the_table_has(backend):
    table = CostTable(":memory:")
    table.put(Environment.current("cuda"), RELU, Entry(1e-6, 1e-6, 1e-6, 20, plan="0a by cublaslt 1 ff 0"))
    graph = products().build()
    result = eqsat.optimize(graph, device="cuda", table=table, measure=False)
    x = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    made = result.run(x=x)
    (given, plans) = backend.compiled[-1]
    assert (given, plans) == (result.graph if result.plan is None else result.plan, ("0a by cublaslt 1 ff 0",))
    for name, exact in run(graph, {"x": x}, Floats(wide=True)).items():
        np.testing.assert_allclose(made[name], exact, rtol=1e-4, atol=1e-4)


def test_what_the_backend_refuses_is_left_out_and_said(backend, monkeypatch):
    compile = backend.compile

    def refusing(graph, **more):
        if isinstance(graph, Plan):
            raise eqsat.errors.BackendError("no kernel for it")
        return compile(graph, **more)

    monkeypatch.setattr(backend, "compile", refusing)
    report = eqsat.optimize(products(), device="cuda", table=":memory:").report
    assert report.kept == "original"
    assert any(w.endswith("was left out: no kernel for it") for w in report.warnings)


def test_a_gpu_that_is_not_here_measures_nothing_and_says_so(monkeypatch):
    host_stopwatch.absent(monkeypatch)
    report = eqsat.optimize(products(), device="nvidia-h200", table=":memory:").report
    assert report.measured_before is None
    assert "not measured: nvidia-h200 is not this machine's" in report.warnings
