"""Comprehensions in graphs, as kernels of programs of C: values, errors, and choices between them and libraries."""

import numpy as np
import pytest

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError
from eqsat.runtime.backend import select
from eqsat.runtime.c.program.kernels import default_choice
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.c.program.machine import CMachine
from eqsat.runtime.programs.arena import arrange
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.corpus_graph import corpus_graph

LAYERS = """
def look(float(E,D) table, int32(B) at) -> (y, z) { y(b,d) = table(at(b),d)
  z(b) +=! table(at(b),d) }
def strided(float(H) x, int32 s) -> (y) { y(i) = x(s * i) where i in 0:4 }
def outer(float(A,B) x0, float(C) t0) -> (y0) { y0(a,x1,i0) = x0(a,x1) * t0(i0) }
def local(float(B,N) x, float(M,K) w) -> (y) { y(b,m) +=! x(b,m + k) * w(m,k) }
"""


def test_every_program_of_the_corpus_is_a_kernel_of_one_library():
    graph, inputs, cases = corpus_graph(RIGHT)
    lowered = c_program(graph)
    machine = CMachine(lowered, arrange(lowered), default_choice, 1)
    for name, array in inputs.items():
        machine.put(name, array)
    machine.launch()
    for one in cases:
        one.check(machine.get)
    without = {launch.label for launch in lowered.launches if launch.kind == "fallback"}
    assert without == set()


def test_layers_of_a_graph_are_one_call_whatever_their_indices_are_called():
    layers, rng = eqsat.comprehension(LAYERS), np.random.default_rng(0)
    inputs = {
        "x": rng.standard_normal((33, 40)).astype(np.float32),
        "w": rng.standard_normal(7).astype(np.float32),
        "at": rng.integers(0, 33, 5).astype(np.int32),
    }
    g = eqsat.Graph("layers")
    x, w, at = (g.input(name, array.shape, array.dtype.name) for name, array in inputs.items())
    rows, sums = layers.look(eqsat.relu(x), at)
    g.output("rows", eqsat.tanh(rows))
    g.output("sums", sums)
    g.output("outer", layers.outer(eqsat.transpose(x, perm=(1, 0)), w))
    g.output("strided", layers.strided(w, 2))
    graph = g.build()
    program = select("c").compile(graph, threads=2)
    made, wanted = program.run(inputs), select("numpy").compile(graph).run(inputs)
    for name, one in wanted.items():
        np.testing.assert_allclose(made[name], one, rtol=1e-5, atol=1e-5)
    (machine,) = program.machines.values()
    assert machine.calls == 1
    with pytest.raises(BackendError, match="read beyond an operand"):
        program.run({**inputs, "at": np.int32([0, 1, 2, 3, 33])})


def test_kernels_of_comprehensions_are_measured_and_chosen_by_their_times(tmp_path, monkeypatch):
    """Two layers of one input are one of summed weights, and the table has the time of the fastest form of either."""
    monkeypatch.setenv("EQSAT_TUNING_CACHE", str(tmp_path / "tuning.sqlite3"))
    monkeypatch.setenv("EQSAT_EVIDENCE", str(tmp_path / "evidence"))
    local, rng = eqsat.comprehension(LAYERS).local, np.random.default_rng(0)
    g = eqsat.Graph("ensemble")
    x = g.input("x", (32, 520))
    weights = [rng.standard_normal((512, 9)).astype(np.float32) for _ in range(2)]
    first, second = (local(x, g.constant(one)) for one in weights)
    g.output("y", eqsat.tanh(first + second))
    with CostTable(tmp_path / "costs.sqlite3") as table:
        result = eqsat.optimize(g.build(), device="c-cpu", table=table, time_limit=60)
        keys = list(table.own(Environment.current(Device.of("c-cpu"), 1)))
    assert any(key.startswith("local ") for key in keys), keys
    assert [node.op for node in result.graph.nodes] == ["local", "tanh"]
    (step,) = (one for one in result.report.steps if one.op == "local")
    assert not step.estimated
    made = result.run(x=(given := rng.standard_normal((32, 520)).astype(np.float32)))
    np.testing.assert_allclose(made["y"], np.tanh(local(given, weights[0] + weights[1])), rtol=1e-4, atol=1e-4)


def test_gradients_of_largest_elements_are_those_of_the_elements_that_were_compared():
    """A value that is computed again may be rounded otherwise: by vectors in one loop, and one by one in another."""
    largest = eqsat.comprehension("""
    def f(float(N,M) x, float(M) w, float(N) b) -> (y) { y(i) max=! exp(x(i,j) * w(j) + b(i)) }""").f
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((200, 45), 45, 200)]
    above = np.ones(200, np.float32)
    gradient = largest.gradient()
    wanted = gradient(*inputs, above)
    assert all(np.count_nonzero(row) == 1 for row in wanted[0])
    g = eqsat.Graph("gradient")
    tensors = [g.input(f"v{place}", one.shape) for place, one in enumerate((*inputs, above))]
    for place, one in enumerate(gradient(*tensors)):
        g.output(f"d{place}", one)
    graph = g.build()
    given = {f"v{place}": one for place, one in enumerate((*inputs, above))}
    made = select("c").compile(graph, threads=1).run(given)
    for place, (one, other) in enumerate(zip(eqsat.kernel(gradient)(*inputs, above), wanted, strict=True)):
        for result in (one, made[f"d{place}"]):
            np.testing.assert_allclose(result, other, rtol=1e-3, atol=1e-3)


def test_scalars_may_have_any_name():
    scaled = eqsat.comprehension("def k(float(N) x, int32 op, int32 self) -> (y) { y(i) = x(i) * op + self }").k
    g = eqsat.Graph("named")
    g.output("y", scaled(g.input("x", (7,)), 3, 2))
    made = select("c").compile(g.build(), threads=1).run({"x": np.arange(7, dtype=np.float32)})
    np.testing.assert_array_equal(made["y"], 3 * np.arange(7, dtype=np.float32) + 2)
