"""Programs whose buffers stay in place, where inputs and outputs share memory, and sizes that are no sizes."""

import sys
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.runtime.cuda.device.machine import GpuMachine
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.compiled import CompiledProgram
from tests.support.cuda_standin import StandIn, Toolkit

X = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def compiled(graph):
    cuda = StandIn()
    toolkit = Toolkit(cuda)

    def build(sizes):
        program = program_of(graph, sizes)
        return GpuMachine(program, arrange(program), toolkit)

    return CompiledProgram(graph, build, toolkit), cuda


def test_outputs_may_be_one_another_and_an_input_seen_in_other_ways():
    g = eqsat.Graph("views")
    x = g.input("x", ("n", 4))
    y = eqsat.exp(x)
    left, right = eqsat.split(y, 2, axis=1)
    for name, value in {"y": y, "same": y, "left": left, "right": right, "x": x}.items():
        g.output(name, value)
    program, cuda = compiled(g.build())
    static = program.static({"n": 4})
    for given in (X, 2 * X):
        made = static(x=given)
        np.testing.assert_allclose(made["same"], np.exp(given), rtol=1e-5)
        np.testing.assert_array_equal(made["x"], given)
        np.testing.assert_array_equal(np.concatenate([made["left"], made["right"]], axis=1), made["y"])
    held = static(x=static.inputs["x"])
    np.testing.assert_allclose(cuda.cupy.asnumpy(held["y"]), np.exp(2 * X), rtol=1e-5)


def alternating(count):
    """As many operators, none of which is one kernel with those before it."""
    g = eqsat.Graph("alternating")
    x = y = g.input("x", (4, 4))
    for number in range(count):
        y = eqsat.softmax(y, axis=number % 2) if number % 4 else y @ x
    g.output("y", y)
    return g.build()


@pytest.mark.parametrize("count", [2, 24])
def test_a_run_launches_one_graph_and_nothing_else_however_many_operators_there_are(count):
    graph = alternating(count)
    assert len(program_of(graph).launches) >= count / 2
    program, cuda = compiled(graph)
    call = program.bind({"x": X})
    for _ in range(3):
        launched, graphs, replayed = cuda.launched, cuda.graphs_launched, cuda.replayed
        call()
        assert (cuda.launched, cuda.graphs_launched) == (launched, graphs + 1)
        assert cuda.replayed - replayed >= len(program_of(graph).launches)
    entered = calls_of(call)
    assert entered.count("launch") == 1 and len(entered) < 20
    np.testing.assert_allclose(program.run({"x": X})["y"], run(graph, {"x": X}, Floats())["y"], rtol=1e-4)


def calls_of(call):
    """The functions of eqsat's runtime that a call enters before the stand-in computes anything: their names."""
    entered = []
    runtime, standin = str(Path(eqsat.__file__).parent / "runtime"), sys.modules[StandIn.__module__].__file__

    def watch(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(runtime):
            caller = frame.f_back
            while caller is not None and caller.f_code.co_filename != standin:
                caller = caller.f_back
            if caller is None:
                entered.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def over(cuda, array, held):
    """An array on the GPU over the memory of another."""
    return type(array)(cuda, held, array.memory)


def test_inputs_given_as_each_other_are_read_before_they_are_written():
    g = eqsat.Graph("swap")
    a, b = g.input("a", (4, 4)), g.input("b", (4, 4))
    g.output("y", a - b)
    program, cuda = compiled(g.build())
    static = program.static()
    static(a=X, b=3 * X)
    made = static(a=static.inputs["b"], b=static.inputs["a"])
    np.testing.assert_allclose(cuda.cupy.asnumpy(made["y"]), 2 * X, rtol=1e-6)
    made = static(a=over(cuda, static.inputs["a"], static.inputs["a"].held.T))
    np.testing.assert_allclose(cuda.cupy.asnumpy(made["y"]), 3 * X.T - X, rtol=1e-6)


def test_a_closed_program_says_so():
    g = eqsat.Graph("closed")
    g.output("y", eqsat.exp(g.input("x", (4, 4))))
    program, cuda = compiled(g.build())
    static = program.static()
    static(x=X)
    static.close()
    static.close()
    assert cuda.taken == 0
    for use in (lambda: static(x=X), static, lambda: static.outputs, static.memory):
        with pytest.raises(BackendError, match="closed: the program was closed\n  expected calls before close"):
            use()


@pytest.mark.parametrize("size", [-1, 2.5, "3", True, None])
def test_a_size_is_an_integer_from_0(size):
    g = eqsat.Graph("sizes")
    g.output("y", eqsat.transpose(g.input("x", ("n", 4)), perm=(1, 0)))
    program, _ = compiled(g.build())
    with pytest.raises(BackendError, match=f"sizes: the size of 'n' is {size!r}\n  expected an integer from 0"):
        program.prepare({"n": size})
    with pytest.raises(BackendError, match="sizes: no named dim 'm'\n  expected sizes of n"):
        program.static({"n": 3, "m": 4})
    with pytest.raises(BackendError, match=r"sizes: sizes are \[3\]\n  expected the size of each named dim, by name"):
        program_of(program.graph, [3])
    program.prepare({"n": np.int64(3)})
    np.testing.assert_array_equal(program.run({"x": X[:3]})["y"], X[:3].T)
    assert len(program.machines) == 1
