"""The stopwatch of a GPU on a stand-in for CUDA: what is captured computes what it should, on weights that take turns,
by the plan that is asked for, and everything is given back."""

import types
from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.campaign import Measuring
from eqsat.costs.measuring.kernel import planned
from eqsat.costs.measuring.protocol import measure, steady
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError
from eqsat.language.graphs.builder import Builder
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.device import stopwatch
from eqsat.runtime.cuda.device.stopwatch import CudaStopwatch
from eqsat.runtime.cuda.libraries.calls import Convolution, Matmul, Normalisation
from eqsat.runtime.cuda.libraries.cudnn import views_of
from eqsat.runtime.cuda.libraries.cudnn_library import PreparedGraph
from eqsat.runtime.cuda.libraries.tuning import GENERATED, choice, signature, tried, tuned
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.launches import Buffer, Fallback, Launch
from eqsat.runtime.programs.program import KernelProgram
from tests.support.cuda_standin import CudaError, Library, StandIn, Toolkit

HERE = Environment("nvidia-h200", "NVIDIA H200, driver 1", "cupy 14", 1)
PRODUCT = OpKey.parse("matmul {} float32[3, 8] =float32[8, 4]")


class Planned(Library):
    """A library with plans, which says by which of them each call was made ready."""

    def __init__(self, cuda, name):
        super().__init__(cuda, name)
        self.asked = []

    def plans(self, call, address):
        return super().plans(call, address) if isinstance(call, Matmul | Normalisation) else ()

    def prepare(self, call, address, plan=None):
        self.asked.append(plan)
        return super().prepare(call, address, plan)


@pytest.fixture
def watch():
    cuda = StandIn(limit=1 << 32)
    cuda.cupy.cuda.runtime.memcpyDeviceToDevice = 3
    cuda.cupy.cuda.runtime.memsetAsync = lambda to, value, size, stream: None
    toolkit = Toolkit(cuda)
    libraries = toolkit.libraries = {name: Planned(cuda, name) for name in toolkit.libraries}
    made = CudaStopwatch(toolkit, 1 << 10)
    yield made
    made.close()
    assert cuda.taken == 0
    assert [library.open for library in libraries.values()] == [0, 0]


def subject_of(watch, key=PRODUCT):
    kernel = planned(key)
    return watch.subject(kernel.plan, kernel.inputs), kernel


def test_every_copy_reads_its_own_weights_and_writes_in_one_place(watch):
    subject, kernel = subject_of(watch)
    assert subject.weight_bytes == 8 * 4 * 4
    assert len(subject.plans) == 3
    graph = subject.graph(subject.plans[1], 5, 3)
    taken = watch.toolkit.cuda.taken
    places = [subject.weight_address(name, place) for name in subject.weights for place in range(3)]
    assert len(set(places)) == 3 * len(subject.weights)
    assert graph.seconds() >= 0
    made = subject.machine.get("y0")
    exact = kernel.inputs["x0_0"] @ kernel.plan.graph.constants["w0_1"].array
    np.testing.assert_allclose(made, exact, rtol=1e-6)
    again = subject.graph(subject.plans[1], 4, 2)
    again.seconds()
    assert watch.toolkit.cuda.taken == taken
    for one in (graph, again):
        one.close()
    subject.close()


def test_calls_are_prepared_by_the_plan_that_is_asked_for_once_for_each_set(watch):
    subject, _ = subject_of(watch)
    library = watch.toolkit.libraries["cublaslt"]
    library.asked.clear()
    subject.graph(subject.plans[2], 6, 2).close()
    subject.graph(subject.plans[2], 6, 2).close()
    assert library.asked == ["cublaslt 1 plan2"] * 2
    subject.graph("", 2, 1).close()
    assert library.asked[2:] == [None]
    subject.close()


def test_the_protocol_measures_by_every_plan_and_leaves_out_what_fails(watch):
    subject, _ = subject_of(watch)
    watch.toolkit.libraries["cublaslt"].refuses = {"cublaslt 1 plan0"}
    entry = measure(subject, watch)
    assert entry.plan in subject.plans[1:]
    assert (entry.samples, entry.hot is not None) == (20, True)
    subject.close()


NORM = OpKey.parse('layer_norm {"axis":-1,"epsilon":1e-05} float32[4, 8] =float32[8] =float32[8]')


def test_a_normalisation_is_measured_by_every_plan_and_as_it_is_generated(watch):
    subject, kernel = subject_of(watch, NORM)
    library = watch.toolkit.libraries["cudnn"]
    (call,) = (launch.work for launch in subject.launches)
    assert [choice([plan])(call) for plan in subject.plans] == [*library.plans(call, None), GENERATED]
    x = kernel.inputs["x0_0"].astype(np.float64)
    scale, bias = (kernel.plan.graph.constants[name].array for name in ("w0_1", "w0_2"))
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + bias
    for plan in ("", *subject.plans):
        library.asked.clear()
        before = watch.toolkit.cuda.launched
        subject.graph(plan, 3, 2).seconds()
        chosen = choice([plan])(call)
        generated = chosen in (None, GENERATED)
        assert set(library.asked) == (set() if generated else {chosen})
        assert (watch.toolkit.cuda.launched > before) == generated
        np.testing.assert_allclose(subject.machine.get("y0"), wanted, rtol=1e-5, atol=1e-6)
    entry = measure(subject, watch)
    assert entry.plan in subject.plans
    subject.close()


def test_what_fails_of_a_plan_is_tried_by_the_library_or_generated(watch):
    subject, _ = subject_of(watch, NORM)
    (call,) = (launch.work for launch in subject.launches)
    assert tried(call, None) == (GENERATED,)
    assert tried(call, "cudnn 1 plan0") == ("cudnn 1 plan0", GENERATED)
    assert tried(product(), None) == (None,)
    assert tried(product(), GENERATED) == (GENERATED,)
    subject.close()


def test_a_generated_kernel_has_one_plan_and_no_library(watch):
    subject, kernel = subject_of(watch, OpKey.parse("relu {} float32[4, 6]"))
    assert (subject.plans, subject.weight_bytes) == ((), 0)
    subject.graph("", 3, 1).seconds()
    np.testing.assert_array_equal(subject.machine.get("y0"), np.maximum(kernel.inputs["x0_0"], 0))
    subject.close()


def test_a_whole_graph_runs_by_the_plans_of_a_table(watch):
    g = Builder("whole")
    w = g.constant(np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
    g.output("y", eqsat.softmax(eqsat.relu(g.input("x", (3, 8)) @ w) + g.input("z", (3, 4)), axis=-1))
    inputs = {"x": np.ones((3, 8), np.float32), "z": np.zeros((3, 4), np.float32)}
    first = watch.subject(g.build(), inputs)
    call = next(launch.work for launch in first.launches if isinstance(launch.work, Matmul))
    first.close()
    library = watch.toolkit.libraries["cublaslt"]
    library.asked.clear()
    subject = watch.subject(g.build(), inputs, [tuned(call, "cublaslt 1 plan1"), "", "no plan of a library"])
    assert steady(subject).samples == 20
    assert set(library.asked) == {"cublaslt 1 plan1"}
    exact = np.maximum(inputs["x"] @ g.build().constants[next(iter(g.build().constants))].array, 0)
    exact = np.exp(exact) / np.exp(exact).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(subject.machine.get("y"), exact, rtol=1e-5)
    subject.close()


def test_an_operator_without_a_kernel_is_run_by_the_machine(watch, monkeypatch):
    total = OpKey.parse('cumsum {"axis":1,"exclusive":false,"reverse":false} float32[2, 5]')

    def falling(given, plans):
        program = program_of(given, plans=plans)
        (launch,) = program.launches
        return replace(program, launches=(replace(launch, work=Fallback(given.graph.nodes[0])),))

    monkeypatch.setattr(stopwatch, "program_of", falling)
    subject, kernel = subject_of(watch, total)
    assert subject.graph("", 2, 1).seconds() >= 0
    np.testing.assert_allclose(subject.machine.get("y0"), np.cumsum(kernel.inputs["x0_0"], axis=1), rtol=1e-6)
    subject.close()


def test_a_plan_with_too_large_a_workspace_is_refused(watch):
    subject, _ = subject_of(watch)
    library = watch.toolkit.libraries["cublaslt"]
    prepare = library.prepare
    huge = types.SimpleNamespace(workspace=1 << 40)

    def greedy(call, address, plan=None):
        made = prepare(call, address, plan)
        return types.SimpleNamespace(**{**vars(made), "workspace": huge.workspace})

    library.prepare = greedy
    with pytest.raises(BackendError, match="bytes of workspace"):
        subject.graph(subject.plans[0], 2, 1)
    subject.close()


def test_a_plan_of_cudnn_is_built_once_for_all_sets_of_weights(watch):
    built, run = [], []
    graph = types.SimpleNamespace(
        get_workspace_size_plan_at_index=lambda index: 0,
        execute_plan_at_index=lambda pointers, workspace, index, handle: run.append(tuple(pointers.values())),
    )
    frontend = types.SimpleNamespace(set_stream=lambda handle, stream: None)

    def prepare(call, address, plan=None):
        built.append(plan)
        places = {name: address(view) for name, view in zip("xwy", views_of(call), strict=True)}
        return PreparedGraph(frontend, 1, graph, 0, places, plan, {})

    library = watch.toolkit.libraries["cudnn"]
    library.prepare, library.plans = prepare, lambda call, address: ("cudnn 1 a", "cudnn 1 b")
    key = OpKey.parse(
        'conv {"activation":"none","dilations":[1,1],"group":1,"pads":[0,0,0,0],"strides":[1,1]} '
        "float32[1, 4, 5, 5] =float32[8, 4, 3, 3]"
    )
    subject, _ = subject_of(watch, key)
    built.clear()
    run.clear()
    subject.graph(subject.plans[0], 6, 3).seconds()
    subject.graph(subject.plans[1], 2, 1).seconds()
    assert built == ["cudnn 1 a", "cudnn 1 b"]
    assert len({places[1] for places in run}) == 3
    assert len({places[0] for places in run}) == len({places[2] for places in run}) == 1
    subject.close()


@pytest.mark.filterwarnings("ignore:.* runs on a generated kernel")
def test_a_call_that_no_library_has_runs_on_a_generated_kernel(watch):
    watch.toolkit.libraries = {}
    watch.toolkit.missing = {"cublaslt": "nvmath is not installed"}
    subject, kernel = subject_of(watch)
    assert subject.plans == ()
    subject.graph("", 4, 2).seconds()
    exact = kernel.inputs["x0_0"] @ kernel.plan.graph.constants["w0_1"].array
    np.testing.assert_allclose(subject.machine.get("y0"), exact, rtol=1e-5)
    subject.close()


def with_addend():
    """A program of one convolution with a tensor added, all held with the channels last."""
    half = DType.FLOAT16
    x, a, y = (View.of(n, half, (1, 8, 4, 4), (0, 2, 3, 1)) for n in "xay")
    w = View.of("w", half, (8, 8, 1, 1))
    call = Convolution(x, w, y, (1, 1), (0, 0, 0, 0), (1, 1), 1, relu=True, addend=a)
    views = {"x": x, "w": w, "a": a}
    buffers = {n: Buffer(n, v.nbytes, "input") for n, v in views.items()} | {"y": Buffer("y", y.nbytes, "output")}
    launch = Launch(call, tuple(views.values()), (y,), ("y",), "conv + add + relu")
    return KernelProgram("p", buffers, (launch,), views, {"y": y})


@pytest.mark.filterwarnings("ignore:.* runs as two kernels")
def test_what_is_added_after_a_convolution_is_measured_with_it(watch, monkeypatch):
    """Where the library has no plan for both at once."""
    library = watch.toolkit.libraries["cudnn"]
    prepare = library.prepare

    def picky(call, address, plan=None):
        if call.addend is not None:
            raise BackendError("no plan for it")
        return prepare(call, address, plan)

    library.prepare = picky
    monkeypatch.setattr(stopwatch, "program_of", lambda given, plans: with_addend())
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(v.shape).astype(np.float16) for n, v in with_addend().inputs.items()}
    subject = watch.subject(None, arrays)
    before = watch.toolkit.cuda.launched
    subject.graph("", 2, 1).seconds()
    assert watch.toolkit.cuda.launched > before  # the generated kernel
    x, w, a = (arrays[n].astype(np.float64) for n in "xwa")
    wanted = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) + a
    np.testing.assert_allclose(subject.machine.get("y"), wanted.clip(0), rtol=1e-2, atol=1e-2)
    subject.close()


def faulty(library, *plans):
    """Make a library fail at launches of these plans, as the real one's bindings do."""
    library.faults = {(doing, plan) for plan in plans for doing in ("launch", "capture")}


def test_an_algorithm_that_fails_at_a_launch_costs_no_more_than_itself(watch):
    library = watch.toolkit.libraries["cublaslt"]
    faulty(library, "cublaslt 1 plan0", "cublaslt 1 plan2")
    subject, kernel = subject_of(watch)
    entry = measure(subject, watch)
    assert entry.plan == subject.plans[1]
    with pytest.raises(BackendError, match=r"ForeignError: EXECUTION_FAILED at launch of cublaslt 1 plan0$"):
        subject.graph(subject.plans[0], 2, 1)
    subject.graph("", 2, 1).seconds()
    exact = kernel.inputs["x0_0"] @ kernel.plan.graph.constants["w0_1"].array
    np.testing.assert_allclose(subject.machine.get("y0"), exact, rtol=1e-6)
    subject.close()


def test_a_graph_is_measured_by_the_plans_that_its_machine_found_to_run(watch):
    library = watch.toolkit.libraries["cublaslt"]
    faulty(library, None, "cublaslt 1 plan0")
    with pytest.warns(RuntimeWarning, match=r"matmul runs by another plan of cublaslt's: .*EXECUTION_FAILED"):
        subject, _ = subject_of(watch)
    library.asked.clear()
    subject.graph("", 2, 1).seconds()
    assert library.asked == ["cublaslt 1 plan1"]
    subject.close()


def test_heuristics_that_fail_leave_one_plan_to_measure(watch):
    watch.toolkit.libraries["cublaslt"].faults = {("plans", None)}
    with pytest.warns(RuntimeWarning, match="measured by one plan alone: cublaslt fails to list plans: ForeignError"):
        subject, _ = subject_of(watch)
    assert subject.plans == ()
    assert measure(subject, watch).plan == ""
    subject.close()


@pytest.mark.filterwarnings("ignore:.* runs on a generated kernel")
def test_a_campaign_goes_on_after_a_kernel_that_the_gpu_does_not_run(watch, tmp_path, monkeypatch):
    """The library has no plan that runs, and the driver refuses to load what is generated in its stead."""
    cuda, library = watch.toolkit.cuda, watch.toolkit.libraries["cublaslt"]
    faulty(library, None, *(f"cublaslt 1 plan{n}" for n in range(3)))
    function = watch.toolkit.function

    def picky(source):
        if "matmul" in source.entry:
            raise CudaError("CUDA_ERROR_INVALID_IMAGE", 200)
        return function(source)

    def elapsed(cuda_module, run, stream):
        before = cuda.replayed
        run()
        stream.synchronize()
        return 1e-5 + 1e-6 * (cuda.replayed - before)

    watch.toolkit.function = picky
    monkeypatch.setattr(stopwatch, "elapsed", elapsed)
    sentinel = OpKey.parse("relu {} float32[4, 6]")
    keys = [PRODUCT, OpKey.parse("exp {} float32[4, 6]")]

    def subject(key):
        kernel = planned(key)
        return watch.subject(kernel.plan, kernel.inputs)

    with CostTable(tmp_path / "table.db", shipped=False) as table:
        made = Measuring(subject, watch, table, HERE, sentinel).run(keys)
        assert [key in table.own(HERE) for key in (keys[0].text, keys[1].text)] == [False, True]
    assert made.measured == 1
    ((key, reason),) = made.failed
    assert key == PRODUCT and "CudaError: CUDA_ERROR_INVALID_IMAGE" in reason


def test_sweeping_reads_and_leaves_what_is_there(watch):
    watch.sweep()
    assert watch.toolkit.cuda.launched >= 1


def product(rows=8, buffer="", offset=0):
    views = [View(buffer + name, DType.FLOAT16, (rows, 8), (8, 1), offset) for name in "abc"]
    return Matmul(*views)


def test_equal_calls_have_one_signature_wherever_they_lie():
    assert signature(product()) == signature(product(buffer="other", offset=64))
    # Where an operand is aligned less, a plan that needs more would fail.
    assert signature(product()) != signature(product(offset=1))
    assert signature(product()) != signature(product(rows=16))
    chosen = choice([tuned(product(), "cublaslt 1 ff 0"), "", "plain text"])
    assert chosen(product(buffer="elsewhere")) == "cublaslt 1 ff 0"
    assert chosen(product(rows=16)) is None
    assert choice([])(product()) is None
