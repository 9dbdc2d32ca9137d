"""Comprehensions in graphs for GPUs: kernels of their own, run on the processor and on a stand-in for CUDA."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.kernel import planned
from eqsat.costs.measuring.protocol import measure
from eqsat.errors import BackendError
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.terms import Graph
from eqsat.runtime.backend import execute, select
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.cuda.device.machine import GpuMachine
from eqsat.runtime.cuda.device.stopwatch import CudaStopwatch
from eqsat.runtime.cuda.program.functions import MAPPINGS, FunctionKernels, is_mapping
from eqsat.runtime.cuda.program.lowering import mapping_search, mappings_of, program_of
from eqsat.runtime.cuda.program.streams import dependencies
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.compiled import CompiledProgram
from eqsat.runtime.programs.lowering import KernelMakers, lowered_program
from eqsat.runtime.programs.program import KernelProgram
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.testing.cuda.host import HostMachine
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.corpus_graph import corpus_graph
from tests.support.comprehensions.programs_tiled import TILED
from tests.support.cuda_standin import StandIn, Toolkit

LAYERS = """
def dense(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
  y(n,o) +=! x(n,i) * w(o,i)
  y(n,o) = fmax(y(n,o) + b(o), 0)
}
def rows(float(B,S) z) -> (p) {
  m(r) max=! z(r,s)
  e(r,s) = exp(z(r,s) - m(r))
  t(r) +=! e(r,s)
  p(r,s) = e(r,s) / t(r)
}
def look(float(E,D) table, int32(B) at) -> (y, z) {
  y(b,d) = table(at(b),d)
  z(b) +=! table(at(b),d)
}
def parts(int32(N) a, int32(N) b) -> (q) { q(i) = a(i) / b(i) }
def twice(float(A,B,C) x) -> (y) { y(c,a) +=! x(a,b,c) }
"""
#: Programs whose kernels are compiled by NVRTC for every mapping: the others are so for the first.
SHOWN = tuple(TILED)


@pytest.fixture(scope="module")
def layers() -> Any:
    return eqsat.comprehension(LAYERS)


def network(layers: Any) -> tuple[Graph, dict[str, Any]]:
    """Functions before, between and after operators, of which two need not wait for each other."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {
        "x": rng.standard_normal((16, 12)).astype(np.float32),
        "w": rng.standard_normal((8, 12)).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32),
        "at": np.int32([0, 3, 15, 2, 1]),
        "c": np.int32([7, -7, 7, 9, 0]),
        "d": np.int32([2, 2, -2, 3, 4]),
    }
    g = eqsat.Graph("network")
    x, w, b, at, c, d = (g.input(name, array.shape, array.dtype.name) for name, array in inputs.items())
    y = layers.dense(x, eqsat.relu(w), b)
    g.output("probabilities", layers.rows(eqsat.transpose(y, perm=(1, 0))))
    found, sums = layers.look(y, at)
    g.output("found", eqsat.tanh(found))
    g.output("sums", sums)
    g.output("parts", layers.parts(c, d))
    return g.build(), inputs


def agree(made: Any, graph: Graph, inputs: Any) -> None:
    for name, one in execute(graph, inputs, "numpy").items():
        np.testing.assert_allclose(made[name], one, rtol=1e-5, atol=1e-6)


def mapped(graph: Graph, number: int) -> KernelProgram:
    """The program of a graph whose comprehensions all take one of the mappings."""
    return lowered_program(graph, {}, KernelMakers(FunctionKernels(lambda _: MAPPINGS[number])))


@pytest.mark.parametrize("number", [0, 2, 5, 6, 9, 11])
def test_every_program_of_the_corpus_is_launches_of_one_program(number: int) -> None:
    """Reductions, windows, index arrays, several statements with temporaries, parameters that are updated."""
    graph, inputs, cases = corpus_graph((*RIGHT, *TILED))
    program = mapped(graph, number)
    assert {launch.kind for launch in program.launches} == {"generated"}
    assert sum(", 2 of " in launch.label for launch in program.launches) > 20
    machine = HostMachine(program, arrange(program))
    machine.run(inputs)
    for one in cases:
        one.check(machine.get)


def test_temporaries_lie_in_the_arena_where_others_lay(layers: Any) -> None:
    g = eqsat.Graph("chain")
    x = g.input("x", (64, 32))
    for _ in range(4):
        x = layers.rows(x)
    g.output("y", x)
    program = mapped(g.build(), 7)  # a kernel for each statement
    assert [launch.label for launch in program.launches[:4]] == [f"rows, {n} of 4" for n in range(1, 5)]
    assert [len(launch.values) for launch in program.launches] == 4 * [0, 0, 0, 1]
    names = [name for name in program.buffers if name.startswith("rows, ")]
    assert len(names) == 4 * 3
    memory = program.memory()
    assert memory.arena == memory.bound < memory.sum / 2


@pytest.mark.parametrize("seed", range(3))
def test_captured_launches_make_what_the_reference_does_whatever_order_streams_allow(layers: Any, seed: int) -> None:
    graph, inputs = network(layers)
    cuda = StandIn(seed)
    program = program_of(graph)
    assert all(isinstance(launch.work, KernelSource) for launch in program.launches)
    machine = GpuMachine(program, arrange(program), Toolkit(cuda))
    assert cuda.graphs >= 1
    for _ in range(2):
        for name, array in inputs.items():
            machine.put(name, array)
        launched = cuda.launched
        machine.launch()
        assert cuda.launched == launched  # by the graph alone
        agree({name: machine.get(name) for name in graph.outputs}, graph, inputs)
    machine.close()
    assert cuda.taken == 0


def test_kernels_that_share_the_flag_need_not_wait_for_each_other(layers: Any) -> None:
    graph, _ = network(layers)
    program = program_of(graph)
    before = dependencies(program, arrange(program))
    failing = [i for i, launch in enumerate(program.launches) if any(v == program.flag for v in launch.writes)]
    labels = [program.launches[i].label.partition(",")[0] for i in failing]
    assert set(labels) == {"look", "parts"}
    place = labels.index("parts")
    assert not before[failing[place]] & set(failing)


WRONG = {
    "a subscript beyond the last": {"at": np.int32([0, 3, 16, 2, 1])},
    "a negative subscript": {"at": np.int32([0, 3, -1, 2, 1])},
    "a divisor of 0": {"d": np.int32([2, 2, 0, 3, 4])},
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_does_not_fit_is_the_error_of_the_kernels_of_c_and_the_next_run_is_well(layers: Any, fault: str) -> None:
    graph, inputs = network(layers)
    with pytest.raises(BackendError) as of_c:
        select("c").compile(graph, threads=1).run({**inputs, **WRONG[fault]})
    cuda, program = StandIn(), program_of(graph)
    compiled = CompiledProgram(graph, lambda sizes: GpuMachine(program, arrange(program), Toolkit(cuda)), Toolkit(cuda))
    agree(compiled.run(inputs), graph, inputs)
    for _ in range(2):
        with pytest.raises(BackendError) as caught:
            compiled.run({**inputs, **WRONG[fault]})
        assert str(caught.value) == str(of_c.value)
        agree(compiled.run(inputs), graph, inputs)
    with compiled.profile() as profile, pytest.raises(BackendError, match="read beyond an operand"):
        compiled.run({**inputs, **WRONG[fault]})
    assert not profile.runs
    static = compiled.static()
    with pytest.raises(BackendError, match="read beyond an operand"):
        static(**{**inputs, **WRONG[fault]})
    agree(static(**inputs), graph, inputs)
    host = HostMachine(program, arrange(program))
    with pytest.raises(BackendError, match="read beyond an operand"):
        host.run({**inputs, **WRONG[fault]})
    agree(host.run(inputs), graph, inputs)
    static.close()
    compiled.close()


def test_programs_that_cannot_fail_are_not_waited_for(layers: Any) -> None:
    g = eqsat.Graph("safe")
    g.output("p", layers.rows(g.input("z", (4, 5))))
    program = program_of(g.build())
    assert program.flag is None and "failed" not in program.buffers
    cuda = StandIn()
    machine = GpuMachine(program, arrange(program), Toolkit(cuda))
    machine.put("z", np.ones((4, 5), np.float32))
    machine.launch()
    assert not machine.streams[0].last.done
    np.testing.assert_allclose(machine.get("p"), np.full((4, 5), 0.2), rtol=1e-6)


def test_what_no_kernel_computes_runs_by_its_reference() -> None:
    """CUDA has the function, C has not, by which kernels are printed."""
    special = eqsat.comprehension("def i0(float(N) x) -> (y) { y(i) = cyl_bessel_i0(x(i)) }").i0
    g = eqsat.Graph("special")
    g.output("y", special(g.input("x", (5,))))
    program = program_of(g.build())
    assert [launch.kind for launch in program.launches] == ["fallback"]


def test_operands_of_another_layout_or_precision_are_read_where_they_lie(layers: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 6)).astype(np.float32)
    g = eqsat.Graph("turned")
    g.output("y", layers.twice(eqsat.transpose(g.input("x", (6, 3, 4)), perm=(1, 2, 0))))
    plain = g.build()
    program = program_of(plain)
    assert [launch.label for launch in program.launches] == ["twice"]
    made = HostMachine(program, arrange(program)).run({"x": np.ascontiguousarray(x.transpose(2, 0, 1))})
    np.testing.assert_allclose(made["y"], x.sum(1).T, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("bfloat16", 8e-3)])
def test_floats_of_16_bits_are_computed_with_in_32(layers: Any, dtype: str, tolerance: float) -> None:
    name = operator_of(layers.dense).name
    kernel = planned(OpKey.parse(f"{name} {{}} {dtype}[40, 300] ={dtype}[50, 300] {dtype}[50]"))
    program = program_of(kernel.plan)
    assert {launch.kind for launch in program.launches} == {"generated"}
    made = HostMachine(program, arrange(program)).run(kernel.inputs)["y0"].astype(np.float64)
    x, b = (kernel.inputs[name].astype(np.float64) for name in ("x0_0", "x0_2"))
    w = kernel.plan.graph.constants["w0_1"].array.astype(np.float64)
    np.testing.assert_allclose(made, np.maximum(x @ w.T + b, 0), rtol=tolerance)


@pytest.mark.skipif(sys.platform != "linux", reason="eqsat asks for NVRTC, which compiles for GPUs, on Linux alone")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_every_mapping_compiles_for_gpus_without_spills(architecture: str) -> None:
    """One unit for all of them takes the least time: each is in a namespace of its own, as names repeat."""
    graph, _, _ = corpus_graph(TILED)
    codes: dict[str, None] = {}
    for number in range(len(MAPPINGS)):
        codes |= dict.fromkeys(launch.work.code for launch in mapped(graph, number).launches)
    unit = "\n".join(f"namespace n{i}_ {{\n{code}\n}}".replace('extern "C"', "") for i, code in enumerate(codes))
    log = compile_cubin(unit, arch=architecture).log
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
    assert len(registers) == len(codes) and max(registers) <= 128
    assert set(re.findall(r"(\d+) bytes spill stores", log)) == {"0"}
    shared = [int(found) for found in re.findall(r"(\d+) bytes smem", log)]
    assert shared and max(shared) <= 48 << 10


def test_the_stopwatch_measures_by_every_mapping_and_the_best_is_a_plan_of_the_table(layers: Any) -> None:
    cuda = StandIn(limit=1 << 32)
    cuda.cupy.cuda.runtime.memcpyDeviceToDevice = 3
    cuda.cupy.cuda.runtime.memsetAsync = lambda to, value, size, stream: None
    watch = CudaStopwatch(Toolkit(cuda), 1 << 10)
    kernel = planned(OpKey.parse(f"{operator_of(layers.dense).name} {{}} float32[5, 9] =float32[6, 9] float32[6]"))
    subject = watch.subject(kernel.plan, kernel.inputs)
    assert len(subject.plans) == len(set(subject.plans)) >= 4 and all(map(is_mapping, subject.plans))
    codes = set()
    for plan in subject.plans:
        known = len(cuda.functions)
        subject.graph(plan, 2, 2).seconds()
        codes.add(tuple(cuda.functions[number].code for number in range(known + 1, len(cuda.functions) + 1)))
    assert len(codes) == len(subject.plans)
    entry = measure(subject, watch)
    assert is_mapping(entry.plan) and entry.hot is not None
    tried = {cuda.functions[number].code for number in range(1, len(cuda.functions) + 1)}
    assert len(tried) > len({code for some in codes for code in some})  # by generations after the first one
    chosen = program_of(kernel.plan, plans=(entry.plan,))
    machine = HostMachine(chosen, arrange(chosen))
    made = machine.run(kernel.inputs)["y0"]
    x, b = (kernel.inputs[name] for name in ("x0_0", "x0_2"))
    np.testing.assert_allclose(made, np.maximum(x @ kernel.plan.graph.constants["w0_1"].array.T + b, 0), rtol=1e-5)
    subject.close()
    watch.close()
    assert cuda.taken == 0


def test_a_search_for_mappings_ends_with_its_seconds_and_is_of_one_computation(layers: Any) -> None:
    g = eqsat.Graph("mapped")
    y = layers.dense(g.input("x", (5, 9)), g.input("w", (6, 9)), g.input("b", (6,)))
    g.output("y", y)
    for seconds, goes_on in ((1e-9, False), (600.0, True)):
        for kind in ("genetic", "random"):
            config = TunerConfig(generations=3, population=5, elites=1, seconds=seconds)
            search = mapping_search(g.build(), config, kind)  # type: ignore[arg-type]
            assert search is not None
            first = search.first()
            assert len(first) >= 4
            more = search.further({plan: 1e-6 * (1 + number) for number, plan in enumerate(first)})
            assert bool(more) == goes_on and not set(more) & set(first)
    two = eqsat.Graph("two")
    two.output("y", layers.rows(layers.dense(two.input("x", (5, 9)), two.input("w", (6, 9)), two.input("b", (6,)))))
    assert mapping_search(two.build(), TunerConfig()) is None


def test_a_measured_mapping_is_that_of_the_program(layers: Any) -> None:
    g = eqsat.Graph("mapped")
    g.output("y", layers.dense(g.input("x", (5, 9)), g.input("w", (6, 9)), g.input("b", (6,))))
    graph = g.build()
    plans = mappings_of(graph)
    launches = [program_of(graph, plans=(plan,)).launches for plan in plans]
    assert len(set(launches)) == len(plans) > 1
    assert launches[0] == program_of(graph).launches
    # Those of another computation, or with options of another version, say nothing.
    signature = plans[0].partition(" ")[0]
    other = [plan.replace(signature, 16 * "0") for plan in plans] + [f'{signature} by mapping {{"gone":1}}']
    assert program_of(graph, plans=other).launches == launches[0]
    two = eqsat.Graph("two")
    y = layers.dense(two.input("x", (5, 9)), two.input("w", (6, 9)), two.input("b", (6,)))
    two.output("y", layers.rows(y))
    assert mappings_of(two.build()) == ()
