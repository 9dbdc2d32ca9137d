"""The backend for GPUs where there is none: what it says is missing, and how programs ask for what they need.

`StandIn` does on host memory what CUDA is asked for, in any order that streams and events allow.
"""

import contextlib
import itertools
import os
import subprocess
import sys
import textwrap
import types
import warnings

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.terms import Attrs, DType, Node
from eqsat.runtime.backend import execute
from eqsat.runtime.cuda import backend
from eqsat.runtime.cuda.backend import warn_of
from eqsat.runtime.cuda.device import toolkit as toolkit_module
from eqsat.runtime.cuda.device.machine import GpuMachine
from eqsat.runtime.cuda.device.toolkit import opened
from eqsat.runtime.cuda.libraries.calls import Matmul
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.cuda.program.streams import Placed, dependencies, enqueue, placed, width
from eqsat.runtime.cuda.shortage import shortage
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import Arrangement, arrange
from eqsat.runtime.programs.compiled import CompiledProgram, DeviceMemoryError
from eqsat.runtime.programs.launches import Buffer, Fallback, Launch
from eqsat.runtime.programs.program import KernelProgram
from eqsat.runtime.programs.static import plain_plan
from eqsat.testing.cuda.host import HostMachine
from tests.support.cuda_standin import Library, StandIn, Toolkit

RNG = np.random.default_rng(0)

#: CuPy as far as it is asked before anything runs.
CUPY = """
__version__ = {version!r}
class cuda:
    class runtime:
        CUDARuntimeError = RuntimeError
        @staticmethod
        def getDeviceCount():
            {count}
        driverGetVersion = staticmethod(lambda: {driver})
        runtimeGetVersion = staticmethod(lambda: 13020)
        getDevice = staticmethod(lambda: 0)
        getDeviceProperties = staticmethod(lambda n: dict(name=b"NVIDIA H200", totalGlobalMem=1 << 37))
    class Device:
        id = 0
        compute_capability = "90"
        attributes = dict(MultiProcessorCount=132, GlobalMemoryBusWidth=6144, L2CacheSize=1 << 26)
"""


def asked(tmp_path, cupy=None, nvrtc="getVersion = lambda: (13, 2)", code="select('cupy')", **values):
    """What a fresh interpreter says when it is asked for the backend, beside packages of these names."""
    given = {"version": "14.2.0", "count": "return 1", "driver": 13000, **values}
    packages = {"cuda/__init__.py": "", "cupy_backends/cuda/libs/nvrtc.py": nvrtc}
    if cupy is not None:
        packages["cupy/__init__.py"] = cupy.format(**given)
    for name, text in packages.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    head = "import sys\n" + ("sys.modules['cupy'] = None\n" if cupy is None else "")
    body = f"""
        import eqsat
        from eqsat.errors import BackendError
        from eqsat.runtime.backend import BACKENDS, select
        assert 'cupy' not in sys.modules or sys.modules['cupy'] is None
        try:
            {code}
        except BackendError as error:
            print(error)
    """
    paths = [str(tmp_path), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(body)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_without_cupy_it_says_what_to_install_and_what_runs_instead(tmp_path):
    assert asked(tmp_path) == (
        "backend 'cupy' cannot be used here: cupy is not installed (pip install 'eqsat[cuda13]')\n"
        "  expected a backend that is installed\n"
        "  use one of onnxruntime, numpy, openvino, c\n"
    )


def test_without_a_gpu_it_says_so(tmp_path):
    raising = "raise RuntimeError('cudaErrorInsufficientDriver: CUDA driver version is insufficient')"
    said = asked(tmp_path, CUPY, count=raising)
    assert "cannot be used here: the driver has no GPU (cudaErrorInsufficientDriver" in said
    assert "cannot be used here: the driver has no GPU\n" in asked(tmp_path, CUPY, count="return 0")


def test_a_cupy_that_does_not_load_is_not_said_to_be_missing(tmp_path):
    said = asked(tmp_path, "raise ImportError('libcudart.so.13: cannot open shared object file')")
    assert "cannot be used here: cupy fails: libcudart.so.13: cannot open shared object file" in said


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"version": "13.6.0"}, "cupy is of version 13.6.0, 14.0 or later is needed (pip install 'eqsat[cuda13]')"),
        (
            {"driver": 12080},
            "the driver speaks CUDA 12.8, but cupy is made for CUDA 13.2, nvrtc is made for CUDA 13.2",
        ),
        (
            {"nvrtc": "raise ImportError('no libnvrtc.so.13')"},
            "NVRTC, which compiles kernels for a GPU, cannot be used",
        ),
    ],
    ids=["cupy", "driver", "compiler"],
)
def test_what_is_of_the_wrong_version_is_named_with_what_is_needed(tmp_path, values, reason):
    assert f"cannot be used here: {reason}" in asked(tmp_path, CUPY, **values)


def test_compiling_without_a_gpu_fails_as_choosing_does(tmp_path):
    said = asked(tmp_path, code="BACKENDS['cupy'].compile(None)")
    assert said.startswith("backend 'cupy' cannot be used here: cupy is not installed")
    assert "expected an NVIDIA GPU, its driver, and CuPy\n  pip install 'eqsat[cuda13]'" in said


def test_a_gpu_is_no_default(tmp_path):
    assert asked(tmp_path, CUPY, code="print(select().name, select('cupy').name)") == "onnxruntime cupy\n"


def test_libraries_that_are_missing_are_named_once_with_what_runs_slower():
    def refuse():
        raise BackendError("cudnn is not installed")

    found, reasons = opened({"cublaslt": lambda: "here", "cudnn": refuse})
    assert (found, reasons) == ({"cublaslt": "here"}, {"cudnn": "cudnn is not installed"})
    with pytest.warns(RuntimeWarning, match="cudnn is not installed; convolutions and attention run on generated"):
        warn_of(reasons)


def test_a_static_graph_or_plan_is_made_ready_at_once_and_its_libraries_are_opened_once(monkeypatch):
    cuda = StandIn()
    cuda.cupy.cuda.runtime.getDevice = lambda: 0
    made = []
    monkeypatch.setitem(sys.modules, "cupy", cuda.cupy)
    monkeypatch.setattr(backend, "fault", lambda: None)
    monkeypatch.setattr(toolkit_module, "Toolkit", lambda number: made.append(Toolkit(cuda, ("cublaslt",))) or made[-1])
    chosen = backend.CupyBackend()
    graph = branches(n=4)
    with pytest.warns(RuntimeWarning, match="cudnn is not installed; convolutions and attention run on generated"):
        program = chosen.compile(graph)
    assert cuda.taken > 0 and made[0].libraries["cublaslt"].open == 5
    inputs = {"x": RNG.standard_normal((4, 8)).astype(np.float32)}
    launched = cuda.launched
    agree(program(**inputs), graph, inputs)
    assert cuda.launched == launched
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned = chosen.compile(plain_plan(graph))
    agree(planned.run(inputs), graph, inputs)
    assert len(made) == 1
    waiting = chosen.compile(branches())
    assert not waiting.machines
    for one in (program, planned):
        one.close()
    assert cuda.taken == 0 and made[0].libraries["cublaslt"].open == 0


@pytest.fixture
def cuda_of_version(monkeypatch):
    """A stand-in whose driver and libraries say of what version they are."""

    def made(driver, runtime=13020, compiler="13.2"):
        cuda = StandIn()
        here = cuda.cupy.cuda
        here.runtime.driverGetVersion, here.runtime.runtimeGetVersion = (lambda: driver), (lambda: runtime)
        here.runtime.free = lambda pointer: None
        here.Device = lambda number: Device()
        loaded = []
        here.driver.moduleLoadData = lambda cubin: loaded.append(cubin) or len(loaded)
        here.driver.moduleUnload = lambda module: loaded.pop()
        here.driver.moduleGetFunction = lambda module, name: (module, name)
        here.driver.funcSetAttribute = lambda function, which, value: loaded.append((which, value))
        monkeypatch.setitem(sys.modules, "cupy", cuda.cupy)
        monkeypatch.setitem(sys.modules, "cupyx.scipy.special", types.SimpleNamespace())
        monkeypatch.setattr(toolkit_module, "nvrtc", lambda: types.SimpleNamespace(version=compiler))
        monkeypatch.setattr(toolkit_module, "Cubins", Cubins)
        monkeypatch.setattr(toolkit_module, "OPENERS", {"cublaslt": lambda: Library(cuda, "cublaslt")})
        return cuda, loaded

    class Device(contextlib.nullcontext):
        compute_capability = "90"

    class Cubins:
        def prepare(self, codes, arch):
            self.prepared = [f"{arch} {code}" for code in codes]

        def get(self, code, arch):
            return types.SimpleNamespace(
                cubin=f"{arch} {code}".encode(), registers=128 if code == "many" else 40, shared=9 << 10
            )

    return made


def test_kernels_are_loaded_once_and_unloaded_with_the_toolkit(cuda_of_version):
    _, loaded = cuda_of_version(13000)
    toolkit = toolkit_module.Toolkit(0)
    small, large = (KernelSource("k", code, (), (1, 1, 1), (1, 1, 1), n) for code, n in (("a", 0), ("b", 100 << 10)))
    assert (toolkit.arch, list(toolkit.libraries), toolkit.missing) == ("sm_90", ["cublaslt"], {})
    assert toolkit.function(small) == toolkit.function(small) == (1, "k")
    assert loaded == [b"sm_90 a"]
    toolkit.prepare([small, large])
    assert toolkit.cubins.prepared == ["sm_90 b"]  # the other is loaded already
    assert toolkit.function(large) == (2, "k")
    assert loaded == [b"sm_90 a", b"sm_90 b", (8, 100 << 10)]
    loaded.pop()
    toolkit.close()
    assert not loaded and not toolkit.libraries


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            KernelSource("k", "many", (), (1, 1, 1), (1024, 1, 1)),
            "k: 128 registers in each of 32 warps: 131072\n  expected at most 65536 registers in a block",
        ),
        (
            KernelSource("k", "a", (), (1, 1, 1), (32, 1, 1), 220 << 10),
            "k: 234496 bytes of shared memory, 9216 of them static\n  expected 0 to 232448",
        ),
        (
            KernelSource("k", "a", (), (1, 65_536, 1), (32, 1, 1)),
            "k: a grid of (1, 65536, 1) blocks\n  expected at most (2147483647, 65535, 65535)",
        ),
    ],
    ids=["registers", "shared memory", "blocks"],
)
def test_a_kernel_that_asks_for_more_than_the_gpu_has_is_refused_before_its_launch(cuda_of_version, source, message):
    _, loaded = cuda_of_version(13000)
    toolkit = toolkit_module.Toolkit(0)
    with pytest.raises(BackendError) as caught:
        toolkit.function(source)
    assert str(caught.value) == message
    assert not loaded


def test_static_and_dynamic_memory_that_is_shared_are_asked_for_together(cuda_of_version):
    _, loaded = cuda_of_version(13000)
    toolkit_module.Toolkit(0).function(KernelSource("k", "a", (), (1, 1, 1), (32, 1, 1), 40 << 10))
    assert loaded == [b"sm_90 a", (8, 40 << 10)]


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ((12080,), "the driver speaks CUDA 12.8, but cupy is made for CUDA 13.2, nvrtc is made for CUDA 13.2"),
        ((12080, 12060), "the driver speaks CUDA 12.8, but nvrtc is made for CUDA 13.2"),
    ],
)
def test_a_driver_that_is_too_old_is_refused(cuda_of_version, versions, said):
    cuda_of_version(*versions)
    with pytest.raises(BackendError) as caught:
        toolkit_module.Toolkit(0)
    assert str(caught.value) == (
        f"{said}\n  expected a driver at least as new as the libraries\n"
        "  update the NVIDIA driver, or install libraries for its version of CUDA"
    )


def branches(n="n", width=8):
    """Four products side by side, of which two meet before the end."""
    g = eqsat.Graph("branches")
    x = g.input("x", (n, width))
    weights = [g.constant(RNG.standard_normal((width, width)).astype(np.float32)) for _ in range(4)]
    a, b, c, d = (eqsat.matmul(x, w) for w in weights)
    g.output("y", eqsat.add(eqsat.relu(a), eqsat.tanh(b)))
    g.output("z", eqsat.softmax(eqsat.matmul(c, eqsat.transpose(d, perm=(1, 0))), axis=-1))
    return g.build()


def compiled(graph, **options):
    """A graph on a GPU that stands in, and the stand-in."""
    cuda = StandIn(**options)
    toolkit = Toolkit(cuda)

    def build(sizes):
        program = program_of(graph, sizes)
        return GpuMachine(program, arrange(program), toolkit)

    return CompiledProgram(graph, build, toolkit), cuda


def agree(made, graph, inputs):
    wanted = execute(graph, inputs, "numpy")
    assert made.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(made[name], array, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_launches_that_are_captured_and_replayed_make_what_the_reference_does(seed):
    graph = branches()
    program, cuda = compiled(graph, seed=seed)
    for n in (3, 5, 3):
        inputs = {"x": RNG.standard_normal((n, 8)).astype(np.float32)}
        launched = cuda.launched
        made = program.run(inputs)
        agree(made, graph, inputs)
        assert isinstance(made["y"], np.ndarray)
    assert cuda.launched == launched, "a size that was captured is not launched again"
    program.close()
    assert cuda.taken == 0


def test_arrays_on_the_gpu_stay_there_in_the_order_of_the_callers_stream():
    graph = branches()
    program, cuda = compiled(graph)
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    given = cuda.cupy.asarray(x)
    first, second = program.run({"x": given}), program.run({"x": cuda.cupy.asarray(2 * x)})
    assert type(first["y"]).__name__ == "Array"
    agree({k: cuda.cupy.asnumpy(v) for k, v in second.items()}, graph, {"x": 2 * x})
    agree({k: cuda.cupy.asnumpy(v) for k, v in first.items()}, graph, {"x": x})


def test_a_static_program_keeps_its_buffers_and_takes_what_it_is_given():
    graph = branches()
    program, cuda = compiled(graph)
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    static = program.static({"n": 4})
    agree(static(x=x), graph, {"x": x})
    static.inputs["x"][...] = 3 * x
    held = static()
    assert held["y"].held is static.outputs["y"].held
    agree({k: cuda.cupy.asnumpy(v) for k, v in held.items()}, graph, {"x": 3 * x})
    with pytest.raises(BackendError, match=r"branches: input 'x' has shape \[5, 8\]\n  expected \[4, 8\]"):
        static(x=np.zeros((5, 8), np.float32))
    with pytest.raises(BackendError, match="input 'x' and output 'y' share memory"):
        static(x=static.outputs["y"].__class__(cuda, static.outputs["y"].held, None))
    del held
    static.close()
    assert cuda.taken == 0


def test_each_launch_is_timed_by_itself():
    program, cuda = compiled(branches())
    inputs = {"x": np.ones((2, 8), np.float32)}
    program.run(inputs)
    with program.profile() as profile:
        made = program.run(inputs)
    agree(made, program.graph, inputs)
    assert [span.kind for span in profile.spans].count("matmul") == 5
    assert all(span.seconds >= 0 for span in profile.spans)
    launched = cuda.launched
    program.run(inputs)
    assert cuda.launched == launched and len(profile.runs) == 1


def test_a_program_that_does_not_fit_says_what_would_and_gives_back_what_it_took():
    program, cuda = compiled(branches(), limit=100 << 20)
    with pytest.raises(DeviceMemoryError) as caught:
        program.run({"x": np.zeros((4096, 8), np.float32)})
    assert str(caught.value) == (
        "branches: the GPU's memory is too small: 160.5 MiB are needed, 100.0 MiB are free\n"
        "  expected 0.0 MiB for weights, 128.5 MiB for values, inputs and outputs, and 32.0 MiB for libraries; "
        "the largest tensor is 'matmul_4' with 64.0 MiB\n"
        "  use smaller inputs, or free memory: values, inputs and outputs of 53% of this size would fit beside the "
        "weights"
    )
    del caught
    assert cuda.taken == 0
    small = {"x": np.ones((4, 8), np.float32)}
    agree(program.run(small), program.graph, small)


@pytest.mark.parametrize(
    ("free", "fits"),
    [(99, "not even the weights fit"), (101, "only the weights fit"), (1000, "it fits, but not in one piece")],
)
def test_how_much_of_a_program_fits_is_said(free, fits):
    arrangement = Arrangement(100, {}, 100, 100, weights=100, inputs=10, outputs=10, largest=("w", 60))
    assert fits in str(shortage("p", arrangement, 5, free))


def test_programs_for_other_sizes_make_room():
    graph = branches()
    program, cuda = compiled(graph)
    sizes = [program_of(graph, {"n": n}) for n in (64, 65)]
    cuda.limit = int(1.5 * max(arrange(p).total for p in sizes)) + (1 << 13)
    for n in (64, 65, 64):
        inputs = {"x": RNG.standard_normal((n, 8)).astype(np.float32)}
        agree(program.run(inputs), graph, inputs)
    assert len(program.machines) == 1


def test_programs_for_several_sizes_share_their_weights():
    graph = branches(width=64)
    program, cuda = compiled(graph)
    taken = [0]
    for n in (1, 2):
        inputs = {"x": RNG.standard_normal((n, 64)).astype(np.float32)}
        agree(program.run(inputs), graph, inputs)
        taken.append(cuda.taken - taken[-1])
    weights = 4 * 64 * 64 * 4
    assert taken[1] > weights > taken[2]
    program.close()
    assert cuda.taken == 0


def test_weights_of_the_same_bytes_are_taken_and_freed_once():
    cells = (RNG.standard_normal(128 * 128) / 8).astype(np.float32)
    g = eqsat.Graph("blocks")
    for index, shape in enumerate(((128, 128), (64, 256), (256, 64))):
        g.output(
            f"y{index}", g.input(f"x{index}", ("n", shape[0])) @ g.constant(cells.reshape(shape), name=f"w{index}")
        )
    graph = g.build()
    program, cuda = compiled(graph)
    inputs = {name: RNG.standard_normal((2, graph.type(name).shape[1])).astype(np.float32) for name in graph.inputs}
    agree(program.run(inputs), graph, inputs)
    assert cells.nbytes < cuda.taken < 2 * cells.nbytes
    assert program.memory({"n": 2}).weights == cells.nbytes
    program.close()
    assert cuda.taken == 0


def test_only_so_many_sizes_are_kept():
    closed = []

    class Counted(HostMachine):
        def close(self):
            closed.append(self.program.inputs["x"].shape[0])
            super().close()

    graph = branches()

    def build(sizes):
        program = program_of(graph, sizes)
        return Counted(program, arrange(program))

    program = CompiledProgram(graph, build)
    for n in (1, 2, 3, 1, 4, 5):
        program.run({"x": np.zeros((n, 8), np.float32)})
    assert closed == [2]
    program.close()
    assert sorted(closed) == [1, 2, 3, 4, 5]


def test_a_kernel_that_does_not_compile_gives_back_what_was_taken():
    cuda = StandIn()
    toolkit = Toolkit(cuda)
    view = View.of("x", DType.FLOAT32, (8,))
    good = Launch(Matmul(*(View.of(n, DType.FLOAT32, (2, 2), None) for n in "xxx")), (), (), ())
    bad = Launch(KernelSource("k", "not C", ("x",), (1, 1, 1), (1, 1, 1)), (view,), (), ())
    program = KernelProgram("p", {"x": Buffer("x", 32, "input")}, (good, bad), {"x": view}, {})

    def refuse(source):
        raise BackendError("the kernel does not compile")

    toolkit.function = refuse
    with pytest.raises(BackendError, match="does not compile"):
        GpuMachine(program, arrange(program), toolkit)
    assert cuda.taken == 0 and toolkit.libraries["cublaslt"].open == 0


def ran(machine, **inputs):
    for name, array in inputs.items():
        machine.put(name, array)
    machine.launch()
    return machine.get("y")


def test_an_operator_without_a_kernel_runs_between_captured_graphs():
    views = {name: View.of(name, DType.FLOAT32, (4, 4)) for name in "xwtuy"}
    roles = {"x": "input", "w": "input", "t": "value", "u": "value", "y": "output"}
    buffers = {name: Buffer(name, 64, role) for name, role in roles.items()}

    def matmul(a, b, y):
        return Launch(Matmul(views[a], views[b], views[y]), (views[a], views[b]), (views[y],), (y,), "matmul")

    node = Node("cumsum", ("t",), ("u",), Attrs(axis=1))
    falls = Launch(Fallback(node), (views["t"],), (views["u"],), ("u",), "cumsum")
    inputs = {"x": views["x"], "w": views["w"]}
    program = KernelProgram(
        "p", buffers, (matmul("x", "w", "t"), falls, matmul("u", "w", "y")), inputs, {"y": views["y"]}
    )
    cuda = StandIn()
    machine = GpuMachine(program, arrange(program), Toolkit(cuda))
    x, w = RNG.standard_normal((2, 4, 4)).astype(np.float32)
    wanted = np.cumsum(x @ w, axis=1) @ w
    for _ in range(2):
        np.testing.assert_allclose(ran(machine, x=x, w=w), wanted, rtol=1e-4, atol=1e-5)
    assert cuda.graphs == 2 + 2  # each product was tried out in one of its own
    assert machine.fallback.on_host == {"cumsum"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [span.kind for span in machine.timed()] == ["matmul", "fallback", "matmul"]


def test_launches_may_run_in_any_order_that_keeps_what_they_wait_for():
    graph = branches(n=4)
    program = program_of(graph)
    arrangement = arrange(program)
    before = dependencies(program, arrangement)
    assert width(before) > 1
    inputs = {"x": RNG.standard_normal((4, 8)).astype(np.float32)}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        order, left = [], list(range(len(before)))
        while left:
            ready = [i for i in left if before[i] <= set(order)]
            order.append(int(rng.choice(ready)))
            left.remove(order[-1])
        machine = HostMachine(program, arrangement)
        machine.put("x", inputs["x"])
        machine.launch_in(order)
        agree({name: machine.get(name) for name in program.outputs}, graph, inputs)


def vector(name, start=0, size=8, step=1):
    return View.of(name, DType.FLOAT32, (64,)).sliced(0, start, size, step)


def test_what_launches_wait_for_follows_from_the_memory_they_share():
    def launch(reads, writes):
        return Launch(Fallback(Node("identity", (), ())), tuple(reads), tuple(writes), ())

    buffers = {n: Buffer(n, 256, "output") for n in "abc"}
    launches = (
        launch([], [vector("a", 0, 8, 2)]),
        launch([], [vector("a", 1, 8, 2)]),  # between the elements of the first
        launch([vector("a", 0, 4)], [vector("b")]),  # reads both
        launch([], [vector("a", 2, 1)]),  # writes what the third reads
        launch([vector("b")], [vector("c")]),
        launch([vector("c"), vector("b")], [vector("c", 32)]),
    )
    program = KernelProgram("p", buffers, launches, {}, {})
    found = dependencies(program, arrange(program))
    assert found == tuple(map(frozenset, ((), (), (0, 1), (2,), (2,), (4,))))


@pytest.mark.parametrize("stream_count", [1, 2, 3])
def test_streams_and_events_keep_every_order_that_is_needed(stream_count):
    rng = np.random.default_rng(stream_count)
    for _ in range(20):
        before = [frozenset(j for j in range(i) if rng.random() < 0.3) for i in range(9)]
        cuda = StandIn(seed=int(rng.integers(1 << 30)))
        streams = [cuda.cupy.cuda.Stream(non_blocking=True) for _ in range(stream_count)]
        done = []
        streams[0].begin_capture()
        enqueue(
            placed(before, stream_count),
            lambda index, stream: stream.push(lambda: done.append(index)),  # noqa: B023 - run within the turn
            streams,
            cuda.cupy.cuda.Event,
        )
        graph = streams[0].end_capture()
        graph.launch(streams[0])
        streams[0].synchronize()
        assert sorted(done) == list(range(9))
        for index, earlier in itertools.chain((i, e) for i, some in enumerate(before) for e in some):
            assert done.index(earlier) < done.index(index)


def test_work_that_was_not_joined_is_seen_by_the_stand_in():
    cuda = StandIn()
    one, two = (cuda.cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    one.begin_capture()
    event = cuda.cupy.cuda.Event()
    event.record(one)
    two.wait_event(event)
    two.push(lambda: None)
    with pytest.raises(RuntimeError, match="was not joined"):
        one.end_capture()
    assert placed([frozenset(), frozenset({0})], 1) == (Placed(0, 0, (), False), Placed(1, 0, (), False))
