"""By which plan of a library, or generated kernel, a machine runs a call."""

import warnings

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import Attrs, Node
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.device.machine import GpuMachine
from eqsat.runtime.cuda.libraries.calls import Convolution, Matmul
from eqsat.runtime.cuda.libraries.tuning import GENERATED
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.launches import Buffer, Fallback, Launch
from eqsat.runtime.programs.program import KernelProgram
from tests.support.cuda_standin import CudaError, Graph, StandIn, Toolkit

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


@pytest.mark.parametrize("biased", [False, True])
def test_where_the_library_cuts_no_convolution_at_0_a_generated_kernel_does(biased):
    """CuDNN has no engine for a convolution with relu, without a bias, and with its channels first."""
    toolkit = Toolkit(StandIn())
    library = toolkit.libraries["cudnn"]
    made, prepare = [], library.prepare

    def picky(call, address, plan=None):
        if call.relu:
            raise BackendError("no plan for it")
        made.append(call)
        return prepare(call, address, plan)

    library.prepare = picky
    views = {"x": View.of("x", DType.FLOAT32, (2, 8, 5, 5)), "w": View.of("w", DType.FLOAT32, (6, 8, 1, 1))}
    if biased:
        views["b"] = View.of("b", DType.FLOAT32, (6,))
    y = View.of("y", DType.FLOAT32, (2, 6, 5, 5))
    call = Convolution(views["x"], views["w"], y, (1, 1), (0, 0, 0, 0), (1, 1), 1, views.get("b"), relu=True)
    buffers = {n: Buffer(n, v.nbytes, "input") for n, v in views.items()} | {"y": Buffer("y", y.nbytes, "output")}
    program = KernelProgram(
        "p", buffers, (Launch(call, tuple(views.values()), (y,), ("y",), "conv + relu"),), views, {"y": y}
    )
    with pytest.warns(RuntimeWarning, match="conv . relu runs as two kernels, not as one: no plan for it$"):
        machine = GpuMachine(program, arrange(program), toolkit)
    assert [(one.relu, one.bias is not None) for one in made] == [(False, biased)]
    arrays = {n: RNG.standard_normal(v.shape).astype(np.float32) for n, v in program.inputs.items()}
    wanted = np.einsum("nchw,oc->nohw", arrays["x"], arrays["w"][:, :, 0, 0])
    wanted += arrays["b"][:, None, None] if biased else 0
    for _ in range(2):
        np.testing.assert_allclose(ran(machine, **arrays), wanted.clip(0), rtol=1e-4, atol=1e-5)
    machine.close()


@pytest.mark.parametrize("epilogue", ["bias", "relu", "relu_bias", "gelu", "gelu_bias"])
def test_where_the_library_has_no_epilogue_a_generated_kernel_follows_its_product(epilogue):
    toolkit = Toolkit(StandIn())
    library = toolkit.libraries["cublaslt"]
    made, prepare = [], library.prepare

    def picky(call, address, plan=None):
        if call.epilogue:
            raise BackendError(f"no plan for {call.epilogue}")
        made.append(call)
        return prepare(call, address, plan)

    library.prepare = picky
    views = {n: View.of(n, DType.FLOAT32, (4, 4)) for n in "xw"}
    if epilogue.endswith("bias"):
        views["b"] = View.of("b", DType.FLOAT32, (4,))
    y = View.of("y", DType.FLOAT32, (4, 4))
    call = Matmul(views["x"], views["w"], y, views.get("b"), 0.5, epilogue)
    buffers = {n: Buffer(n, v.nbytes, "input") for n, v in views.items()} | {"y": Buffer("y", y.nbytes, "output")}
    launch = Launch(call, tuple(views.values()), (y,), ("y",), "matmul + more")
    program = KernelProgram("p", buffers, (launch,), views, {"y": y})
    with pytest.warns(RuntimeWarning, match=f"matmul . more runs as two kernels, not as one: no plan for {epilogue}$"):
        machine = GpuMachine(program, arrange(program), toolkit)
    assert [(one.alpha, one.bias, one.epilogue) for one in made] == [(0.5, None, "")]
    arrays = {n: RNG.standard_normal(v.shape).astype(np.float32) for n, v in views.items()}
    wanted = 0.5 * (arrays["x"].astype(float) @ arrays["w"]) + arrays.get("b", np.zeros(4))
    if epilogue.startswith("relu"):
        wanted = wanted.clip(0)
    if epilogue.startswith("gelu"):
        wanted = wanted / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wanted + 0.044715 * wanted**3)))
    for _ in range(2):
        np.testing.assert_allclose(ran(machine, **arrays), wanted, rtol=1e-5, atol=1e-5)
    machine.close()


PLANS = ("measured", None, "cublaslt 1 plan0", "cublaslt 1 plan1", "cublaslt 1 plan2")


@pytest.mark.parametrize("doing", ["prepare", "launch", "capture"])
@pytest.mark.parametrize("bad", range(1, len(PLANS) + 1))
def test_an_error_of_the_librarys_costs_one_plan_then_the_next_then_a_generated_kernel(doing, bad):
    toolkit = Toolkit(StandIn())
    library = toolkit.libraries["cublaslt"]
    library.faults = {(doing, plan) for plan in PLANS[:bad]}
    asked, prepare = [], library.prepare
    library.prepare = lambda call, address, plan=None: (asked.append(plan), prepare(call, address, plan))[1]
    program = product()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        machine = GpuMachine(program, arrange(program), toolkit, lambda call: "measured")
    # A library that makes nothing ready by its own choice has no other plans.
    tried = PLANS[:2] if doing == "prepare" else PLANS
    runs = tried[bad] if bad < len(tried) else None
    generated = bad >= len(tried)
    assert asked == list(tried[: bad + 1])
    which = "on a generated kernel, which is slower" if generated else "by another plan of cublaslt's"
    which = "by cublaslt's own choice" if not generated and runs is None else which
    (said,) = (str(warning.message) for warning in caught)
    last = tried[min(bad, len(tried)) - 1]
    assert said.startswith(f"matmul runs {which}: cublaslt fails")
    assert said.endswith(f"ForeignError: EXECUTION_FAILED at {doing} of {last}")
    x, w = RNG.standard_normal((2, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(ran(machine, x=x, w=w), x @ w, rtol=1e-5, atol=1e-6)
    assert library.open == (0 if generated else 1)
    machine.close()
    assert toolkit.cuda.taken == library.open == 0


def test_a_library_that_cannot_list_its_plans_leaves_the_generated_kernel():
    toolkit = Toolkit(StandIn())
    library = toolkit.libraries["cublaslt"]
    library.faults = {("launch", None), ("plans", None)}
    program = product()
    with pytest.warns(RuntimeWarning, match="matmul runs on a generated kernel.*EXECUTION_FAILED at launch"):
        machine = GpuMachine(program, arrange(program), toolkit)
    machine.close()


def test_a_plan_with_more_workspace_than_others_gets_it_before_it_is_launched():
    toolkit = Toolkit(StandIn())
    library = toolkit.libraries["cublaslt"]
    given, prepare = [], library.prepare

    def greedy(call, address, plan=None):
        made = prepare(call, address, plan)
        launch, made.workspace = made.launch, 1 << 20

        def checked(stream, workspace):
            held = [m for m in toolkit.cuda.memories if m.ptr <= workspace and workspace + (1 << 20) <= m.ptr + m.size]
            given.append(len(held))
            launch(stream, workspace)

        made.launch = checked
        return made

    library.prepare = greedy
    program = product()
    machine = GpuMachine(program, arrange(program), toolkit)
    assert len(given) >= 3 and set(given) == {1}
    machine.close()


def test_a_dead_gpu_is_named_with_the_launch_and_what_was_taken_is_given_back():
    """Where an error stays, as that of an illegal address does, nothing that is tried after it runs."""
    cuda = StandIn()
    toolkit = Toolkit(cuda)

    def dead(*_):
        raise CudaError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

    toolkit.libraries["cublaslt"].faults = {("launch", plan) for plan in PLANS}
    toolkit.driver.launchKernel = dead
    program = product()
    with (
        pytest.raises(BackendError, match="matmul: the first launch fails: CudaError: CUDA_ERROR_ILLEGAL_ADDRESS"),
        pytest.warns(RuntimeWarning, match="runs on a generated kernel"),
    ):
        GpuMachine(program, arrange(program), toolkit)
    assert cuda.taken == toolkit.libraries["cublaslt"].open == 0


def test_an_error_of_cudas_at_a_run_is_eqsats_own(monkeypatch):
    toolkit, program = Toolkit(StandIn()), product()
    machine = GpuMachine(program, arrange(program), toolkit)

    def fails(graph, stream):
        raise CudaError("cudaErrorLaunchFailure: unspecified launch failure", 719)

    monkeypatch.setattr(Graph, "launch", fails)
    with pytest.raises(BackendError, match="the GPU fails at a run: CudaError: cudaErrorLaunchFailure"):
        machine.launch()
    machine.close()


def test_a_kernel_that_cupy_cannot_compile_is_named_with_its_operator():
    compile_exception = type("CompileException", (Exception,), {})  # as CuPy has it

    cuda = StandIn()

    def fails(x):
        raise compile_exception("cannot open source file 'cuda_fp16.h'\n1 error detected")

    cuda.cupy.asarray = fails
    x, y = (View.of(n, DType.FLOAT32, (2, 4)) for n in "xy")
    buffers = {"x": Buffer("x", 32, "input"), "y": Buffer("y", 32, "output")}
    work = Fallback(Node("cumsum", ("x",), ("y",), Attrs(axis=1)))
    program = KernelProgram("p", buffers, (Launch(work, (x,), (y,), ("y",), "cumsum"),), {"x": x}, {"y": y})
    with pytest.raises(BackendError, match="cumsum: the first launch fails: CompileException: cannot open source file"):
        GpuMachine(program, arrange(program), Toolkit(cuda))
    assert cuda.taken == 0
