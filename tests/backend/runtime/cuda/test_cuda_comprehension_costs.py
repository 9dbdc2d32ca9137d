"""Comprehensions on GPUs beside what they are written as: estimates, measured times, and the choice between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.generated import SHARE
from eqsat.costs.measuring import campaign, gpu
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.terms import PLAIN, Graph, Implementation, State, TensorType
from eqsat.report.result import Result
from eqsat.runtime.backend import execute
from eqsat.runtime.cuda.device.stopwatch import CudaStopwatch
from eqsat.runtime.cuda.program.functions import is_mapping
from eqsat.runtime.cuda.program.lowering import mappings_of
from eqsat.runtime.programs.arena import arrange
from eqsat.testing.cuda.host import HostMachine
from tests.support import host_stopwatch
from tests.support.cuda_standin import StandIn, Toolkit

H200 = Device.of("nvidia-h200")
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
def look(float(E,D) table, int32(B) at) -> (y) { y(b,d) = table(at(b),d) + table(at(b),0) }
def squared(float(M,K) x) -> (y) { t(i,j) +=! x(i,k) * x(j,k)  y(i,j) +=! t(i,l) * t(j,l) }
"""


@pytest.fixture(scope="module")
def layers() -> Any:
    return eqsat.comprehension(LAYERS)


def cost_of(function: Any, *shapes: tuple[int, ...], way: Implementation | None = None) -> Any:
    """The cost of a call on the roofline of an H200."""
    spec = operator_of(function)
    dtypes = [function.types[name].value for name in function.operands]
    given = [TensorType.of(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=True)]
    made = spec.result_types(given, spec.complete({}))
    return CostModel(H200).node(spec.name, spec.complete({}), given, list(made), [False] * len(given), way)


def test_the_estimate_is_that_of_launches_bytes_and_operations(layers: Any) -> None:
    """Rows are one kernel that writes and reads what is between its statements; two products are two."""
    cost = cost_of(layers.rows, (100, 50))
    inside = 100 * 50 + 100 + 100  # e, m and t
    assert (cost.launches, cost.bytes, cost.estimated) == (1, 4 * (100 * 50 + inside + 100 * 50), True)
    cost = cost_of(layers.squared, (300, 200))
    assert (cost.launches, cost.bytes) == (2, 4 * (300 * 200 + 3 * 300 * 300))
    assert cost.seconds > 2 * H200.launch
    large = cost_of(layers.squared, (4000, 3000))
    assert large.seconds > large.flops / (H200.peak("float32") * SHARE)


def test_a_look_up_costs_what_it_reads_of_a_table(layers: Any) -> None:
    small, large = (cost_of(layers.look, (rows, 8), (10,)) for rows in (1000, 1000000))
    assert small == large and small.bytes == 4 * (2 * 10 * 8 + 2 * 10 * 8 // 2 + 10 * 8) - 4 * 70


def test_products_of_floats_of_16_bits_are_multiplied_as_float32(layers: Any) -> None:
    half = State("row", "float16")
    cost = cost_of(layers.squared, (4000, 3000), way=Implementation((half,), half))
    assert cost.seconds > cost.flops / (H200.peak("float32") * SHARE)
    assert cost.bytes < cost_of(layers.squared, (4000, 3000)).bytes
    assert cost_of(layers.squared, (4000, 3000), way=Implementation((PLAIN,), PLAIN)).launches == 2


def network(layers: Any) -> tuple[Graph, dict[str, Any]]:
    rng = np.random.default_rng(0)
    shapes = {"x": (16, 12), "w": (8, 12), "b": (8,)}
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    g = eqsat.Graph("network")
    g.output("y", layers.dense(*(g.input(name, shape) for name, shape in shapes.items())))
    return g.build(), inputs


def check_run(result: Result, graph: Graph, inputs: Any, tolerance: float = 1e-5) -> None:
    """Fail unless the program of a result computes what the graph does."""
    program = result.gpu_program()
    made = HostMachine(program, arrange(program)).run(inputs)
    np.testing.assert_allclose(made["y"], execute(graph, inputs, "numpy")["y"], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("is_fast", [True, False])
def test_measured_times_decide_between_a_kernel_of_its_own_and_operators(
    layers: Any, is_fast: bool, tmp_path: Path
) -> None:
    """The table has a time of the function and its fastest mapping; with another time the choice is the other."""
    graph, inputs = network(layers)
    (node,) = graph.nodes
    (plan,) = [one for one in mappings_of(graph) if '{"fusion":"min"}' in one]
    model = CostModel(H200)
    key = model.key(node.op, node.attrs, [graph.type(str(v)) for v in node.inputs], [False] * 3)  # type: ignore[misc]
    with CostTable(tmp_path / "costs.sqlite3") as table:
        table.put(Environment.current(H200), key, Entry.of([1e-7 if is_fast else 1e-3], plan))
        result = eqsat.optimize(graph, device="nvidia-h200", table=table, measure=False)
    operators = [one.op for one in result.graph.nodes]
    labels = [launch.label for launch in result.gpu_program().launches]
    assert (node.op in operators) == is_fast
    if is_fast:
        assert operators == [node.op] and plan in result.library_plans
        (step,) = result.report.steps
        assert not step.estimated
        assert labels == [f"{node.op}, 1 of 2", f"{node.op}, 2 of 2"]  # as its mapping has it
    else:
        assert "gemm" in operators or "matmul" in operators
    check_run(result, graph, inputs)


@pytest.mark.parametrize("whole", [1.0, 99.0])
def test_functions_are_put_together_where_that_costs_less(layers: Any, whole: float) -> None:
    g = eqsat.Graph("two")
    inputs = {"x": np.random.default_rng(0).standard_normal((16, 12)).astype(np.float32)}
    inputs |= {"w": inputs["x"][:8] * 2, "b": inputs["x"][0, :8].copy()}
    tensors = [g.input(name, array.shape) for name, array in inputs.items()]
    g.output("y", layers.rows(layers.dense(*tensors)))
    graph = g.build()
    names = [node.op for node in graph.nodes]
    costs = {**dict.fromkeys(names, 10.0), "_".join(names): whole}
    result = eqsat.optimize(graph, device="nvidia-h200", cost=lambda one: costs.get(one.op, 100.0), measure=False)
    operators = ["_".join(names)] if whole < 20 else names
    assert [node.op for node in result.graph.nodes] == operators
    assert {launch.kind for launch in result.gpu_program().launches} == {"generated"}
    check_run(result, graph, inputs)


def test_a_function_and_an_operator_before_it_run_as_one_kernel_in_the_precision_that_is_chosen(layers: Any) -> None:
    g = eqsat.Graph("looked")
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((40, 30)).astype(np.float32), "at": np.int32([3, 39, 0])}
    g.output("y", layers.look(eqsat.relu(g.input("x", (40, 30))), g.input("at", (3,), "int32")))
    graph = g.build()
    result = eqsat.optimize(
        graph,
        device="nvidia-h200",
        precision="float16",
        cost=lambda one: 1.0 if "look" in one.op else 2.0,
        measure=False,
    )
    assert [node.op for node in result.graph.nodes] == ["relu_look"]
    assert {launch.kind for launch in result.gpu_program().launches} == {"generated"}
    check_run(result, graph, inputs, 2e-3)


def test_a_campaign_on_a_gpu_measures_functions_by_their_mappings(
    layers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a stand-in for CUDA, which runs kernels on the processor: the times mean nothing, the entries are kept."""
    host_stopwatch.install(monkeypatch)
    cuda = StandIn(limit=1 << 32)
    cuda.cupy.cuda.runtime.memcpyDeviceToDevice = 3
    cuda.cupy.cuda.runtime.memsetAsync = lambda to, value, size, stream: None
    monkeypatch.setattr(gpu, "open_stopwatch", lambda: CudaStopwatch(Toolkit(cuda, ()), 1 << 10))
    monkeypatch.setattr(campaign, "drifted", lambda before, after: False)
    graph, _ = network(layers)
    (node,) = graph.nodes
    key = CostModel(H200).key(node.op, node.attrs, [graph.type(str(v)) for v in node.inputs], [False] * 3)  # type: ignore[misc]
    with CostTable(tmp_path / "costs.sqlite3") as table:
        with gpu.measuring(H200, table) as run:
            found = run.run([key])
        assert (found.measured, found.failed) == (1, ())
        (entry,) = table.own(run.environment).values()
        assert is_mapping(entry.plan)
        assert entry.plan in CostModel(H200, table).library_plans
