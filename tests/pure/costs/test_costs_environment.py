"""Where a measured time holds: the environment of a CPU and of a GPU, devices found by the name of a GPU, and what is
said where there is none."""

import json
import shutil
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from eqsat.costs.devices import device as devices
from eqsat.costs.devices.device import DEVICES, Device, gpu_device
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.model.model import CostModel
from eqsat.costs.model.whole_graphs import MeasuredGraph, WholeKey
from eqsat.costs.table import environment as environments
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment, cpu_model, kind_of
from eqsat.costs.table.lines import read_records, write_records
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError, CostError
from eqsat.language.terms import Constant, Graph, TensorType
from eqsat.runtime.cuda.device import installation
from eqsat.runtime.cuda.device.installation import Gpu, Installation

H200 = Installation(
    Gpu("NVIDIA H200", (9, 0), 132, 1.98e9, 3.2e9, 6144, 50 << 20, 140 << 30),
    "580.95.05, CUDA 13.0",
    {"cupy": "14.2.0", "cublasLt": "13.1.0", "cudnn": "9.28.0", "nvrtc": "13.5"},
)
A100 = replace(H200, gpu=Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1.41e9, 1.593e9, 5120, 40 << 20, 80 << 30))
RELU = OpKey.parse("relu {} float32[2, 8]")


@pytest.fixture
def here(monkeypatch):
    """Makes a GPU appear to be here, or the reason why there is none."""

    def install(found):
        for module in (devices, environments, installation):
            monkeypatch.setattr(module, "probe", lambda: found)

    install("cupy is not installed")
    return install


def test_the_environment_of_a_cpu_is_written_as_it_always_was(here):
    there = Environment.current(threads=3)
    assert there.cpu == cpu_model()
    assert json.loads(there.text) == asdict(there)
    assert list(json.loads(there.text)) == ["cpu", "device", "protocol", "runtime", "threads"]
    assert (there.device, there.threads, there.protocol) == ("onnxruntime-cpu", 3, 1)
    here(H200)
    assert Environment.current(threads=3) == there


def test_the_environment_of_a_gpu_has_its_driver_libraries_and_kernels(here):
    here(H200)
    there = Environment.current("cuda", threads=4)
    assert there == Environment.current("nvidia-h200")
    assert (there.device, there.cpu) == ("nvidia-h200", "NVIDIA H200, driver 580.95.05, CUDA 13.0")
    libraries = "cupy 14.2.0, cublasLt 13.1.0, cudnn 9.28.0, nvrtc 13.5"
    assert there.runtime == f"{libraries}, kernels {installation.generator_hash()}"
    assert (there.threads, there.protocol) == (1, environments.GPU_PROTOCOL)
    assert Environment.parse(there.text) == there
    newer = replace(H200, driver="590.1, CUDA 13.1")
    here(newer)
    assert there.differences(Environment.current("cuda")) == [
        "cpu is 'NVIDIA H200, driver 580.95.05, CUDA 13.0', here 'NVIDIA H200, driver 590.1, CUDA 13.1'"
    ]
    here(A100)
    assert Environment.current("nvidia-h200").cpu == "another GPU: NVIDIA A100-SXM4-80GB"


def test_what_generates_kernels_is_part_of_an_environment_and_nothing_else_is(tmp_path, monkeypatch):
    folder = shutil.copytree(installation.SOURCES, tmp_path / "runtime")
    monkeypatch.setattr(installation, "SOURCES", folder)
    hashed = installation.generator_hash.__wrapped__
    before = hashed()
    assert before == installation.generator_hash()
    for name, counts in (
        ("kernels/templates/codegen.py", True),
        ("kernels/prelude.cuh", True),
        ("cuda/device/stopwatch.py", False),
        ("onnxruntime/session.py", False),
    ):
        text = (folder / name).read_text()
        (folder / name).write_text(text + "\n")
        assert (hashed() != before) == counts, name
        (folder / name).write_text(text)


def test_cuda_is_the_gpu_that_is_here(here):
    here(H200)
    assert Device.of("cuda") is DEVICES["nvidia-h200"]
    assert DEVICES["nvidia-h200"].is_here
    assert not replace(DEVICES["nvidia-h200"], gpu="NVIDIA B200").is_here
    assert DEVICES["onnxruntime-cpu"].is_here
    assert [kind_of(n) for n in ("cuda", "nvidia-h200", "nvidia-of-the-future", "onnxruntime-cpu")] == ["gpu"] * 3 + [
        "cpu"
    ]


def test_where_no_gpu_is_cuda_says_what_is_missing_and_what_can_be_had(here):
    with pytest.raises(CostError) as caught:
        Device.of("cuda")
    assert str(caught.value) == (
        "no CUDA device is here: cupy is not installed\n"
        "  expected an NVIDIA GPU with its driver, and CuPy\n"
        "  device='nvidia-h200' chooses for that GPU by the costs that come with eqsat, without one"
    )
    with pytest.raises(
        BackendError, match=r"no CUDA device can be used here: .*\n.*\n  .*pip install 'eqsat\[cuda13\]'"
    ):
        installation.found()
    with pytest.raises(CostError, match="no device 'nvidia-a100-sxm4-80gb'"):
        Device.of("nvidia-a100-sxm4-80gb")


def test_an_unknown_gpu_is_a_roofline_of_what_it_reports(here):
    here(A100)
    found = Device.of("cuda")
    assert found == Device.of("nvidia-a100-sxm4-80gb") == gpu_device(A100.gpu)
    assert (found.kind, found.gpu, found.fuses) == ("roofline", "NVIDIA A100-SXM4-80GB", True)
    assert found.source.startswith("An estimate: ")
    # The data sheet: 312 TFLOP/s of float16, 156 of TF32, 19.5 of float32, 2.039 TB/s.
    assert found.flops["float16"] == pytest.approx(312e12, rel=0.01)
    assert found.flops["tf32"] == pytest.approx(156e12, rel=0.01)
    assert found.flops["float32"] == pytest.approx(19.5e12, rel=0.01)
    assert found.bandwidth == pytest.approx(2.039e12, rel=0.01)
    cost = CostModel("cuda", CostTable(":memory:")).node(
        "relu", {}, [TensorType.of("float32", (4, 4))], [TensorType.of("float32", (4, 4))], [False]
    )
    assert cost.estimated
    silent = gpu_device(replace(A100.gpu, clock=0.0, memory_clock=0.0))
    assert min(silent.flops.values()) > 0 < silent.bandwidth


def entries(table, environment, seconds=7e-6, key=RELU, **more):
    table.put(environment, key, Entry(seconds, seconds, seconds, 20, **more))


def relu(table, device="nvidia-h200", **more):
    model = CostModel(device, table, **more)
    return model, lambda: model.node(
        "relu", {}, [TensorType.of("float32", (2, 8))], [TensorType.of("float32", (2, 8))], [False]
    )


THERE = Environment("nvidia-h200", H200.processor, "cupy 14.2.0, kernels 0a", 1)


def test_entries_of_a_gpu_are_its_costs_on_a_machine_without_one(here):
    table = CostTable(":memory:")
    assert relu(table)[1]().estimated
    entries(table, THERE)
    entries(table, replace(THERE, runtime="cupy 14.2.0, kernels 0b"), 9e-6)
    entries(table, replace(THERE, runtime="cupy 14.2.0, kernels 0b"), 9e-6, OpKey.parse("tanh {} float32[3]"))
    # Of several environments the one with most entries counts, of two protocols the later.
    model, cost = relu(table)
    assert (cost().seconds, cost().estimated) == (9e-6, False)
    assert table.mismatch(model.environment) is None
    assert table.stand_in(model.environment, model.device) is None
    entries(table, replace(THERE, protocol=2), 5e-6)
    assert relu(table)[1]().seconds == 5e-6


def test_entries_of_a_gpu_that_is_here_are_those_of_its_driver_where_there_are_any(here):
    here(H200)
    table = CostTable(":memory:")
    entries(table, THERE)
    model, cost = relu(table, "cuda")
    assert cost().seconds == 7e-6
    assert table.stand_in(model.environment, model.device).startswith(
        "costs were measured in another environment: runtime is 'cupy"
    )
    entries(table, Environment.current("cuda"), 6e-6)
    model, cost = relu(table, "cuda")
    assert cost().seconds == 6e-6
    assert table.stand_in(model.environment, model.device) is None


def test_entries_that_wait_for_the_end_of_their_window_are_no_costs(here):
    table = CostTable(":memory:")
    entries(table, THERE.unconfirmed)
    assert relu(table)[1]().estimated
    assert table.confirm(THERE) == 1
    assert not relu(table)[1]().estimated
    assert list(table.environments()) == [THERE.text]
    entries(table, THERE.unconfirmed, 1e-6)
    table.drop(THERE.unconfirmed)
    assert relu(table)[1]().seconds == 7e-6
    assert THERE.is_confirmed
    assert not THERE.unconfirmed.is_confirmed


def holding(weight_bytes: int) -> Graph:
    """A graph with a constant of so many bytes."""
    weight = Constant.of(np.broadcast_to(np.uint8(0), (weight_bytes,)))
    return Graph("weights", (), {"y": "w"}, (), {"w": weight}, {"w": weight.type})


def test_small_models_cost_what_was_measured_with_constants_in_the_cache(here):
    table = CostTable(":memory:")
    entries(table, THERE, 7e-6, hot=4e-6)
    for weight_bytes, seconds in ((0, 4e-6), (25 << 20, 4e-6), (26 << 20, 7e-6), (400 << 20, 7e-6)):
        model, cost = relu(table)
        model.settle(holding(weight_bytes))
        assert cost().seconds == seconds


def test_whole_graphs_correct_the_costs_of_kernels(here):
    table = CostTable(":memory:")
    entries(table, THERE, 10e-6)
    for n in range(1, 8):
        key = WholeKey(f"model {n}", "ilp", "exact", "0a")
        # Graphs take nine tenths of their sums and half a microsecond a kernel.
        measured = 0.9 * n * 1e-4 + 5e-7 * 10 * n**2
        entries(table, THERE, measured, key, plan=MeasuredGraph.predicted(n * 1e-4, 10 * n**2, 0.0))
    assert relu(table)[1]().seconds == pytest.approx(0.9 * 10e-6 + 5e-7)
    assert relu(table, corrected=False)[1]().seconds == 10e-6


def test_lines_of_gpus_and_whole_graphs_read_as_they_are_written():
    table = CostTable(":memory:")
    entries(table, THERE, 7e-6, hot=4e-6, plan="0a by cublaslt 130100 ff 0")
    entries(table, THERE, 1e-3, WholeKey("a; b", "ilp", "mixed", "0a"), plan=MeasuredGraph.predicted(9e-4, 80, 0.5))
    text = write_records(table.records())
    assert list(read_records(text, "lines")) == list(table.records())
    assert write_records(read_records(text, "lines")) == text
    broken = text.replace('\\"form\\":\\"ilp\\",', "")
    with pytest.raises(CostError, match="lines:3: no key of a whole graph"):
        list(read_records(broken, "lines"))
    with pytest.raises(CostError, match="hot = -1"):
        list(read_records(text.replace('"hot": 4e-06', '"hot": -1.0'), "lines"))


def cupy(count=1, name=b"NVIDIA H200", fault=None, capability="90"):
    """A stand-in for CuPy that reports one GPU; among its attributes is no compute capability, as in CuPy."""

    def counted():
        if fault is not None:
            raise RuntimeError(fault)
        return count

    attributes = {"MultiProcessorCount": 132, "ClockRate": 1980000, "MemoryClockRate": 3201000}
    attributes |= {"GlobalMemoryBusWidth": 6144, "L2CacheSize": 50 << 20}
    device = SimpleNamespace(id=0, attributes=attributes, compute_capability=capability)
    runtime = SimpleNamespace(
        getDeviceCount=counted,
        getDeviceProperties=lambda _: {"name": name, "totalGlobalMem": 140 << 30},
        driverGetVersion=lambda: 13000,
    )
    return SimpleNamespace(
        __version__="14.2.0",
        cuda=SimpleNamespace(runtime=runtime, Device=lambda: device),
    )


def test_an_installation_is_read_from_the_driver_and_the_libraries(monkeypatch):
    def failing():
        raise OSError("driver too old")

    monkeypatch.setitem(sys.modules, "cupy", cupy())
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublasLt", SimpleNamespace(get_version=lambda: 130100))
    monkeypatch.setitem(sys.modules, "cudnn", SimpleNamespace(backend_version=failing))
    monkeypatch.setattr(installation, "nvrtc", lambda: SimpleNamespace(version="13.5"))
    found = installation.probe.__wrapped__()
    assert found.gpu == Gpu("NVIDIA H200", (9, 0), 132, 1.98e9, 3.201e9, 6144, 50 << 20, 140 << 30)
    assert found.driver.endswith("CUDA 13.0")
    assert found.libraries == {
        "cupy": "14.2.0",
        "cublasLt": "13.1.0",
        "cudnn": "failing (OSError)",
        "nvrtc": "13.5",
    }


def test_the_version_of_nvrtc_is_that_of_what_compiles(monkeypatch):
    """CuPy has no module cupy.cuda.nvrtc; its own copy may be another than the one that is called."""

    def none():
        raise BackendError("NVRTC, which compiles kernels for a GPU, cannot be used")

    monkeypatch.setitem(sys.modules, "cupy", cupy())
    monkeypatch.setattr(installation, "nvrtc", none)
    assert installation.probe.__wrapped__().libraries["nvrtc"] == "absent"
    monkeypatch.setattr(installation, "nvrtc", lambda: SimpleNamespace(version="13.9"))
    assert installation.probe.__wrapped__().libraries["nvrtc"] == "13.9"


@pytest.mark.parametrize(("written", "capability"), [("80", (8, 0)), ("90", (9, 0)), ("103", (10, 3))])
def test_the_compute_capability_is_read_as_cupy_writes_it(monkeypatch, written, capability):
    monkeypatch.setitem(sys.modules, "cupy", cupy(capability=written))
    assert installation.probe.__wrapped__().gpu.capability == capability


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "cupy is not installed"),
        (cupy(count=0), "the driver has no GPU"),
        (cupy(fault="cudaErrorInsufficientDriver"), "the driver has no GPU (cudaErrorInsufficientDriver)"),
    ],
)
def test_what_is_missing_for_a_gpu_is_said(monkeypatch, module, reason):
    monkeypatch.setitem(sys.modules, "cupy", module)
    assert installation.probe.__wrapped__().startswith(reason)
