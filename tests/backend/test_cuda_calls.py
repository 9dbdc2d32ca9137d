"""By which plan of a library, or generated kernel, a machine runs a call."""

import warnings

import numpy as np
import pytest
from cuda_standin import StandIn, Toolkit

import eqsat
from eqsat.language.builder import Builder
from eqsat.language.floats import Floats
from eqsat.language.interpret import run
from eqsat.language.types import DType
from eqsat.runtime.cuda.calls import Matmul
from eqsat.runtime.cuda.lowering import program_of
from eqsat.runtime.cuda.machine import GpuMachine
from eqsat.runtime.cuda.memory import arrange
from eqsat.runtime.cuda.program import Buffer, Launch, Program
from eqsat.runtime.cuda.tuning import GENERATED
from eqsat.runtime.cuda.view import View

RNG = np.random.default_rng(0)


def product():
    views = [View.of(n, DType.FLOAT32, (4, 4)) for n in "xwy"]
    roles = ("input", "input", "output")
    buffers = {v.buffer: Buffer(v.buffer, 64, role) for v, role in zip(views, roles, strict=True)}
    launch = Launch(Matmul(*views), tuple(views[:2]), (views[2],), ("y",), "matmul")
    return Program("p", buffers, (launch,), {"x": views[0], "w": views[1]}, {"y": views[2]})


def ran(machine, **inputs):
    for name, array in inputs.items():
        machine.put(name, array)
    machine.launch()
    return machine.get("y")


@pytest.mark.parametrize(
    ("libraries", "refused", "said"),
    [
        (("cublaslt",), {"measured"}, "matmul runs by cublaslt's own choice: no plan measured"),
        (("cublaslt",), {"measured", None}, "matmul runs on a generated kernel, which is slower: no plan None"),
        ((), set(), "matmul runs on a generated kernel, which is slower: cublaslt is not installed"),
        (("cublaslt",), set(), ""),
    ],
)
def test_a_call_goes_by_the_measured_plan_else_by_the_librarys_else_by_a_generated_kernel(libraries, refused, said):
    toolkit = Toolkit(StandIn(), libraries)
    for library in toolkit.libraries.values():
        library.refuses = refused
    program = product()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        machine = GpuMachine(program, arrange(program), toolkit, lambda call: "measured")
    assert [str(w.message) for w in caught] == ([said] if said else [])
    x, w = RNG.standard_normal((2, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(ran(machine, x=x, w=w), x @ w, rtol=1e-5)
    machine.close()


@pytest.mark.parametrize(
    ("plan", "asked", "said"),
    [
        (None, [], ""),
        (GENERATED, [], ""),
        ("measured", ["measured"], ""),
        ("stale", ["stale"], "layer_norm runs on a generated kernel, which is slower: no plan stale"),
    ],
)
def test_a_normalisation_is_generated_but_where_the_librarys_was_measured_to_be_faster(plan, asked, said):
    g = Builder("norm")
    scale, bias = (g.constant(RNG.standard_normal(8).astype(np.float32)) for _ in range(2))
    g.output("y", eqsat.layer_norm(g.input("x", (6, 8)), scale, bias, axis=-1))
    graph = g.build()
    program = program_of(graph)
    toolkit = Toolkit(StandIn())
    library = toolkit.libraries["cudnn"]
    library.refuses = {"stale"}
    given, prepare = [], library.prepare
    library.prepare = lambda call, address, plan=None: (given.append(plan), prepare(call, address, plan))[1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        machine = GpuMachine(program, arrange(program), toolkit, lambda call: plan)
    assert [str(w.message) for w in caught] == ([said] if said else [])
    assert given == asked
    x = RNG.standard_normal((6, 8)).astype(np.float32)
    np.testing.assert_allclose(ran(machine, x=x), run(graph, {"x": x}, Floats(wide=True))["y"], rtol=1e-5, atol=1e-6)
    machine.close()
