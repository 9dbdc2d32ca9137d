"""Constants that several operators share: paid for once, in the cost of a graph and in the integer program alike."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import eqsat
from eqsat.costs.kernels.applications import keys_of
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.model.model import CostModel
from eqsat.costs.model.sharing import passing_bytes
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.snapshot import snapshot
from eqsat.extract import solve
from eqsat.extract.problem.program import INFINITY
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.judging import plan_cost, price_of
from eqsat.extract.tensors.resources import limited
from eqsat.extract.tensors.tensors import tensor_problem
from eqsat.language.onnx.read.model import read
from eqsat.language.terms import Graph
from eqsat.rewrites.rules.loader import load_rules
from eqsat.steps.settings import limits_for

HERE = Environment.current()
COLD, HOT, OTHER = 100e-6, 60e-6, 1e-6
#: Of weights of 1.6 MB, which are more than half of the device's nearest memory; those of LARGE have 18 MB.
WIDTH, LARGE = 640, 2100


def steps(weights: int, readers: int, *, width: int = WIDTH) -> Graph:
    """Several weights of `width` x `width`, each multiplied with so many inputs, and the tanh of all products."""
    rng = np.random.default_rng(0)
    graph = eqsat.Graph("steps")
    held = [graph.constant(rng.standard_normal((width, width)).astype(np.float32)) for _ in range(weights)]
    for reader in range(readers):
        x = graph.input(f"x{reader}", (1, width))
        for place, weight in enumerate(held):
            graph.output(f"y{reader}_{place}", eqsat.tanh(x @ weight))
    return read(graph).graph


@cache
def keys_of_large(width: int) -> tuple[OpKey, ...]:
    """The keys of one product by a weight of `width` x `width`, whose numbers take longer to draw than a test takes."""
    return keys_of(steps(1, 1, width=width))


def table_of(graph: Graph, *, hot: float | None = HOT, reach: int = LARGE) -> CostTable:
    """A table in which each product takes 100 µs, or 60 with its weights near, and everything else takes 1 µs.

    A product by a weight of `reach` x `reach` was measured to have it near too.
    """
    table = CostTable(":memory:")
    for key in (*keys_of(graph), *keys_of_large(reach)):
        product = key.op == "matmul"
        seconds = COLD if product else OTHER
        table.put(HERE, key, Entry(seconds, seconds, seconds, 20, hot=hot if product else None))
    return table


def model_of(graph: Graph, table: CostTable, **options: object) -> CostModel:
    model = CostModel(table=table, **options)
    model.settle(graph)
    return model


@pytest.mark.parametrize(("weights", "readers"), [(1, 1), (1, 2), (1, 7), (2, 1), (2, 5)])
def test_only_the_first_reader_of_a_weight_fetches_it(weights, readers):
    graph = steps(weights, readers)
    whole = model_of(graph, table_of(graph)).graph(graph)
    expected = weights * (COLD + (readers - 1) * HOT + readers * OTHER)
    assert whole.total.seconds == pytest.approx(expected)
    assert whole.price == pytest.approx(expected)
    assert sum(c.seconds for _, c in whole.nodes) == pytest.approx(expected)


def test_a_weight_with_one_reader_costs_what_was_measured():
    graph = steps(1, 1)
    product = next(c for n, c in model_of(graph, table_of(graph)).graph(graph).nodes if n.op == "matmul")
    assert product.seconds == COLD


def test_weights_between_whose_readers_too_much_passes_are_fetched_each_time():
    graph = steps(4, 3, width=1024)
    # Four weights, and the results of the products and of what reads them, but for the last.
    assert passing_bytes(graph, {}) == 4 * (4 * 1024 * 1024 + 7 * 1024)
    near = model_of(graph, table_of(graph, reach=1024))
    assert near.graph(graph).total.seconds == pytest.approx(12 * (COLD + OTHER))
    model = model_of(graph, table_of(graph))
    assert model.graph(graph).total.seconds == pytest.approx(4 * (COLD + 2 * HOT) + 12 * OTHER)


def test_without_a_hot_time_nothing_is_shared():
    graph = steps(1, 3)
    assert model_of(graph, table_of(graph, hot=None)).graph(graph).total.seconds == pytest.approx(3 * (COLD + OTHER))


def test_a_users_cost_function_is_asked_the_whole_cost_of_each():
    graph = steps(1, 3)
    asked = []
    model = model_of(graph, table_of(graph), cost=lambda applied: asked.append(applied.cost.seconds) or 1.0)
    assert model.graph(graph).price == 6
    assert [seconds for seconds in asked if seconds > OTHER] == [COLD] * 3


def chosen(graph: Graph, model: CostModel, extractor: str = "ilp", grown: bool = False, **more: object):
    encoding = encode(graph)
    if grown:
        Saturator(encoding.egraph, load_rules(), limits_for(2000, 10.0)).run()
    extraction = limited(tensor_problem(snapshot(encoding), model), model, {}, ("time",))
    return extraction, solve(extraction.problem, extractor=extractor, **more)


@pytest.mark.parametrize("extractor", ["ilp", "greedy"])
@pytest.mark.parametrize(("weights", "readers"), [(1, 1), (1, 4), (3, 4)])
def test_the_integer_program_prices_shared_weights_as_the_graph_does(extractor, weights, readers):
    graph = steps(weights, readers)
    model = model_of(graph, table_of(graph))
    extraction, solution = chosen(graph, model, extractor)
    assembled = assemble(extraction, solution, graph)
    whole = model.graph(assembled.graph)
    assert solution.cost == pytest.approx(whole.price, rel=1e-9)
    assert price_of(extraction, solution, model) == pytest.approx(whole.price, rel=1e-9)
    assert solution.amounts["time"] == pytest.approx(whole.total.seconds, rel=1e-9)
    assert plan_cost(assembled).total.seconds == pytest.approx(whole.total.seconds, rel=1e-9)
    assert solution.lower_bound <= solution.cost < INFINITY


def test_weights_derived_from_constants_are_shared_as_given_ones_are():
    rng = np.random.default_rng(0)
    builder = eqsat.Graph("derived")
    weight = eqsat.transpose(builder.constant(rng.standard_normal((640, 640)).astype(np.float32)), perm=(1, 0))
    for reader in range(4):
        builder.output(f"y{reader}", builder.input(f"x{reader}", (1, 640)) @ weight)
    graph = read(builder).graph
    model = model_of(graph, table_of(graph))
    extraction, solution = chosen(graph, model)
    assert solution.cost == pytest.approx(COLD + 3 * HOT, rel=1e-6)
    assert model.graph(assemble(extraction, solution, graph).graph).price == pytest.approx(solution.cost, rel=1e-6)


def test_the_predicted_saving_of_joining_products_is_that_of_warm_ones():
    graph = steps(1, 4)
    joined = replace(next(k for k in keys_of(graph) if k.op == "matmul"))
    table = table_of(graph)
    shape = joined.operands[0].with_shape((4, 640))
    # All four at once take less than four cold ones, and more than one cold and three warm ones.
    entry = Entry(300e-6, 300e-6, 300e-6, 20)
    table.put(HERE, replace(joined, operands=(shape, joined.operands[1])), entry)
    report = eqsat.optimize(graph, measure=False, table=table).report
    assert report.cost_before == pytest.approx(COLD + 3 * HOT + 4 * OTHER)
    assert report.cost_after <= report.cost_before
    assert report.lower_bound <= report.cost_after * (1 + 1e-9)


def test_a_new_cost_of_an_operator_in_the_explorer_is_each_readers_own():
    graph = steps(1, 4)
    explorer = eqsat.explore(graph, table=table_of(graph), node_limit=60)
    explorer.reprice("matmul", 5e-6)
    products = [node.cost for node in explorer.choice.extraction.problem.nodes if node.name == "matmul"]
    fetches = [node.cost for node in explorer.choice.extraction.problem.nodes if node.name == "fetch"]
    assert set(products) == {5e-6}
    assert fetches == [0.0] * len(fetches) != []


@pytest.mark.parametrize(
    "options",
    [
        {"layouts": ("row", "column")},
        {"precision": "mixed", "device": "nvidia-h200"},
        {"limits": {"peak_memory": "1 MB", "time": "1 s"}},
        {"objective": {"time": 1.0, "peak_memory": 1e-12}},
        {"extractor": "backtracking"},
        {"extractor": "greedy"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_shared_weights_go_with_every_other_choice(options):
    graph = steps(2, 4)
    report = eqsat.optimize(graph, measure=False, table=table_of(graph), node_limit=100, **options).report
    assert not report.failure
    assert report.cost_after <= report.cost_before * (1 + 1e-9)
    assert report.lower_bound <= report.cost_after
