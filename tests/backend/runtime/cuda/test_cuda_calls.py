"""By which plan of a library, or generated kernel, a machine runs a call."""

import warnings

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.interpret import run
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.device.machine import GpuMachine
from eqsat.runtime.cuda.libraries.calls import Convolution, Matmul
from eqsat.runtime.cuda.libraries.tuning import GENERATED
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.launches import Buffer, Launch
from eqsat.runtime.programs.program import KernelProgram
from tests.support.cuda_standin import StandIn, Toolkit

RNG = np.random.default_rng(0)


def product():
    views = [View.of(n, DType.FLOAT32, (4, 4)) for n in "xwy"]
    roles = ("input", "input", "output")
    buffers = {v.buffer: Buffer(v.buffer, 64, role) for v, role in zip(views, roles, strict=True)}
    launch = Launch(Matmul(*views), tuple(views[:2]), (views[2],), ("y",), "matmul")
    return KernelProgram("p", buffers, (launch,), {"x": views[0], "w": views[1]}, {"y": views[2]})


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


def residual():
    """A convolution with a tensor added, all held with the channels last."""
    half = DType.FLOAT16
    x, a, y = (View.of(n, half, (1, 8, 4, 4), (0, 2, 3, 1)) for n in "xay")
    w, b = View.of("w", half, (8, 8, 1, 1)), View.of("b", half, (8,))
    views = {"x": x, "w": w, "b": b, "a": a}
    call = Convolution(x, w, y, (1, 1), (0, 0, 0, 0), (1, 1), 1, b, relu=True, addend=a)
    buffers = {n: Buffer(n, v.nbytes, "input") for n, v in views.items()} | {"y": Buffer("y", y.nbytes, "output")}
    launch = Launch(call, tuple(views.values()), (y,), ("y",), "conv + add + relu")
    return KernelProgram("p", buffers, (launch,), views, {"y": y})


@pytest.mark.parametrize("refused", [False, True])
def test_where_the_library_adds_no_tensor_a_generated_kernel_does_after_it(refused):
    toolkit, program = Toolkit(StandIn()), residual()
    library = toolkit.libraries["cudnn"]
    made, prepare = [], library.prepare

    def picky(call, address, plan=None):
        if refused and call.addend is not None:
            raise BackendError("no plan for it")
        made.append((call.addend is not None, call.relu))
        return prepare(call, address, plan)

    library.prepare = picky
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        machine = GpuMachine(program, arrange(program), toolkit)
    said = ["conv + add + relu runs as two kernels, not as one: no plan for it"] if refused else []
    assert [str(w.message) for w in caught] == said
    assert made == [(not refused, not refused)]
    arrays = {n: RNG.standard_normal(v.shape).astype(np.float16) for n, v in program.inputs.items()}
    for _ in range(2):
        y = ran(machine, **arrays)
    x, w, b, a = (arrays[n].astype(np.float64) for n in "xwba")
    wanted = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) + b[:, None, None] + a
    np.testing.assert_allclose(y, wanted.clip(0), rtol=1e-2, atol=1e-2)
    machine.close()
