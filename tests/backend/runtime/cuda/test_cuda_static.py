"""Programs whose buffers stay in place, where inputs and outputs share memory, and sizes that are no sizes."""

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
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
