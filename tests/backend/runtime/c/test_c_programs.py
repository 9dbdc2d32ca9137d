"""Whole graphs as libraries of C: real models, named sizes, operators without a kernel, and the device `c-cpu`."""

import subprocess
import sys

import numpy as np
import pytest

import eqsat
from benchmarks.models import load
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.measure import measure
from eqsat.costs.table.environment import Environment
from eqsat.errors import BackendError
from eqsat.language.declaration.spec import same_as
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.terms import DType, TensorType
from eqsat.runtime.backend import BACKENDS, select
from eqsat.runtime.c.blas import blas_threads
from eqsat.runtime.c.program.kernels import CKernel
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.examples import example_inputs

RNG = np.random.default_rng(5)


def weights(*shape):
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


def mixed(shape=(4, 12), between=lambda y: eqsat.cumsum(y, axis=1)):
    """Products with a running sum, or something else, between them."""
    g = eqsat.Graph("mixed")
    x = g.input("x", shape)
    y = between(eqsat.relu(x @ g.constant(weights(12, 16))))
    g.output("y", eqsat.softmax(y @ g.constant(weights(16, 8)), axis=1))
    return g.build()


def near(graph, made, inputs):
    wanted = select("numpy").compile(graph).run(inputs)
    for name, one in wanted.items():
        np.testing.assert_allclose(made[name], one, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["squeezenet1_1", "nasrnn", "bert_base", "llama"])
def test_a_model_is_one_call_and_computes_what_onnx_runtime_does(name):
    graph = read(load(name))
    inputs = example_inputs(graph, {}, 0)
    program = select("c").compile(graph, threads=1)
    made = program.run(inputs)
    wanted = select("onnxruntime").compile(graph, threads=1).run(inputs)
    (machine,) = program.machines.values()
    assert machine.calls == 1
    for output, one in wanted.items():
        one, other = (np.asarray(a, np.float64) for a in (made[output], one))
        assert np.linalg.norm(one - other) <= 2e-5 * max(np.linalg.norm(other), 1e-30)


def calls_of_a_run(graph):
    """The calls that Python makes in one run."""
    call = select("c").compile(graph, threads=1).bind(example_inputs(graph, {}, 0))
    events = []
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        call()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


def test_no_python_runs_between_operators():
    graph = read(load("nasrnn"))
    assert len(c_program(graph).launches) > 15
    g = eqsat.Graph("one")
    g.output("y", g.input("x", (1, 256)) @ g.constant(weights(256, 256)))
    assert calls_of_a_run(graph) == calls_of_a_run(g.build())


def test_an_operator_without_a_kernel_runs_by_its_reference_between_two_calls():
    @eqsat.op(infer=same_as())
    def sorted_columns(xp, x):
        """Each column in order, by NumPy itself, of which no kernel can be made."""
        return np.sort(x, axis=0)

    assert not sorted_columns.is_shipped
    graph = mixed(between=eqsat.sorted_columns)
    program = select("c").compile(graph)
    inputs = {"x": RNG.standard_normal((4, 12)).astype(np.float32)}
    near(graph, program.run(inputs), inputs)
    (machine,) = program.machines.values()
    assert machine.calls == 3


def test_sizes_that_are_named_are_compiled_for_as_they_come():
    graph = mixed(("n", 12))
    program = select("c").compile(graph)
    assert not program.machines
    for n in (3, 5, 3):
        inputs = {"x": RNG.standard_normal((n, 12)).astype(np.float32)}
        near(graph, program.run(inputs), inputs)
    assert len(program.machines) == 2
    with pytest.raises(BackendError, match="input 'x'"):
        program.run({"x": np.ones((2, 11), np.float32)})


def test_a_run_can_be_timed_launch_by_launch():
    graph = mixed()
    program = select("c").compile(graph)
    with program.profile() as profile:
        program.run({"x": np.ones((4, 12), np.float32)})
    (spans,) = profile.runs
    assert [span.label for span in spans] == ["matmul + relu", "cumsum", "matmul", "softmax"]
    assert all(span.seconds > 0 for span in spans)


def test_results_and_calls_do_not_touch_each_other():
    graph = mixed()
    program = select("c").compile(graph)
    one, two = ({"x": RNG.standard_normal((4, 12)).astype(np.float32)} for _ in range(2))
    first = program.run(one)["y"].copy()
    kept = program.run(one)["y"]
    program.run(two)
    assert np.array_equal(kept, first)


def test_blas_takes_the_threads_of_the_program_and_gives_them_back():
    from threadpoolctl import threadpool_info

    def threads():
        return [one["num_threads"] for one in threadpool_info() if "scipy.libs" in one["filepath"]]

    with blas_threads(None):
        before = threads()
    with blas_threads(1):
        assert set(threads()) <= {1}
    assert threads() == before


def test_without_a_compiler_it_says_what_to_install(tmp_path):
    script = """
import importlib.util
import os
os.environ.pop("CC", None)
os.environ["PATH"] = ""
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "ziglang" else found(name, *rest)
from eqsat.errors import BackendError
from eqsat.runtime.backend import select
try:
    select("c")
except BackendError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    others = [name for name in ("onnxruntime", "numpy", "openvino") if BACKENDS[name].available() is None]
    assert done.stdout == (
        "backend 'c' cannot be used here: no C compiler is found; install gcc or clang, or pip install 'eqsat[c]'\n"
        "  expected a backend that is installed\n"
        f"  use one of {', '.join(others)}\n"
    )


# ---- the device -----------------------------------------------------------------------------------------------------


def test_the_device_is_measured_by_the_fastest_form_of_a_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("EQSAT_TUNING_CACHE", str(tmp_path / "tuning.sqlite3"))
    device = Device.of("c-cpu")
    assert device.backend == "c"
    assert Environment.current("c-cpu").runtime.startswith("c by ")
    operands = [TensorType(DType.FLOAT32, shape) for shape in ((16, 32), (32, 24))]
    key = OpKey.of("matmul", {}, operands, [False, True], {})
    assert 0 < measure(key, device="c-cpu", seconds=0.01).seconds < 1e-2
    from eqsat.runtime.tuning.store import KernelCache

    with KernelCache() as cache:
        assert len(cache.entries()) >= 1


@pytest.mark.parametrize("measured", [False, True])
def test_a_graph_is_optimised_for_the_device_and_runs_there(measured, tmp_path, monkeypatch):
    monkeypatch.setenv("EQSAT_TUNING_CACHE", str(tmp_path / "tuning.sqlite3"))
    g = eqsat.Graph("small")
    x = g.input("x", (8, 16))
    h = [x @ g.constant(weights(16, 16)) for _ in range(2)]
    g.output("y", eqsat.tanh(h[0]) * eqsat.sigmoid(h[1]))
    graph = g.build()
    result = eqsat.optimize(graph, device="c-cpu", measure=measured, cache=False)
    assert result.report.device == "c-cpu"
    inputs = {"x": RNG.standard_normal((8, 16)).astype(np.float32)}
    near(graph, result.compile().run(inputs), inputs)
    near(graph, result.compile("c").run(inputs), inputs)
    kernels = [one.work for one in c_program(result.graph).launches]
    assert kernels and all(isinstance(one, CKernel) for one in kernels)
