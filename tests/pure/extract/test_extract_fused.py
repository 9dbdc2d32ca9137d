"""Fused kernels that are offered for extraction: of many, those that cost least with all that they read."""

import math

import numpy as np
import pytest

from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.egraph.snapshot import snapshot
from eqsat.extract import solve
from eqsat.extract.tensors.tensors import TensorProblem, tensor_problem
from eqsat.language.graphs import functions as F
from eqsat.language.graphs.builder import Builder
from eqsat.language.terms import Graph
from eqsat.rewrites.rules.loader import load_rules
from tests.pure.language.test_states import toy

#: Laws that multiply the ways to write a sum, all of which cost the same as kernels.
ALGEBRA = """
%phase expand
more-add-commutes: add(x, y) => add(y, x)
more-add-associates: add(add(x, y), z) => add(x, add(y, z))
"""


@pytest.fixture(params=["a few of each class", "all where there are few"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of small graphs, once offered as those of large ones are."""
    if request.param == "a few of each class":
        monkeypatch.setattr("eqsat.extract.tensors.fused.ALL_CHAINS", 0)


def residuals(blocks: int, *, apart: int) -> Graph:
    """Blocks that add a product and a constant to what they are given; every `apart` blocks there is a tanh."""
    rng, g = np.random.default_rng(0), Builder("residuals")
    x = g.input("x", (4, 4))
    for block in range(blocks):
        product = F.relu(x @ g.constant(rng.standard_normal((4, 4)).astype(np.float32)))
        x = x + (product + g.constant(rng.standard_normal(4).astype(np.float32)))
        if block % apart == apart - 1:
            x = F.tanh(x)
    g.output("y", F.relu(x))
    return g.build()


def problem(graph: Graph, *rules: str) -> TensorProblem:
    encoding = encode(graph)
    run = Saturator(encoding.egraph, load_rules(list(rules)), Limits(seconds=100)).run()
    assert run.stopped_by == "radius_limit"
    return tensor_problem(snapshot(encoding), CostModel(toy(fuses=True)))


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(("blocks", "apart"), [(3, 9), (4, 9), (5, 9), (5, 3), (6, 2)])
def test_more_ways_to_write_a_sum_never_make_the_best_choice_dearer(blocks: int, apart: int) -> None:
    few = solve(problem(residuals(blocks, apart=apart)).problem)
    many = solve(problem(residuals(blocks, apart=apart), ALGEBRA).problem)
    assert few.status == many.status == "optimal"
    assert many.cost <= few.cost * (1 + 1e-9)


@pytest.mark.usefixtures("room")
def test_kernels_with_dear_operands_crowd_out_none_with_cheap_ones() -> None:
    extraction = problem(residuals(5, apart=9), ALGEBRA)
    kernels = [node for node, option in zip(extraction.problem.nodes, extraction.options, strict=True) if option.links]
    assert len(kernels) > 1000
    assert math.isclose(solve(extraction.problem).cost, 1494.0)


def test_all_kernels_are_offered_where_there_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = residuals(4, apart=9)
    every = problem(graph, ALGEBRA)
    monkeypatch.setattr("eqsat.extract.tensors.fused.ALL_CHAINS", 0)
    some = problem(graph, ALGEBRA)
    kernels = [{option for option in one.options if option.links} for one in (every, some)]
    assert kernels[1] < kernels[0]
