"""Channels scaled between layers: by rules that are proved, exactly, and where data say that integers err less."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat.certify import certify
from eqsat.costs.kernels.precision import POLICIES
from eqsat.errors import UsageError
from eqsat.extract.tensors.assembly import Assembled, assemble
from eqsat.options.options import Options
from eqsat.quantisation.equalisation import chains
from eqsat.quantisation.sensitivity import output_error
from eqsat.run import Run
from eqsat.runtime.backend import execute, select
from eqsat.steps.precision.equalising import INVERSE, MOVING, Equal

CHANNELS, SIZE = 32, 10
#: Factors of channels over four decades.
SKEW = (10.0 ** np.linspace(-2, 2, CHANNELS)).astype(np.float32)[np.random.default_rng(5).permutation(CHANNELS)]


def filters(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def depthwise(skew: np.ndarray, between=lambda y: y) -> eqsat.Graph:
    """A convolution, one of each channel by itself, and one of single points; the first two around a skewed value."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("depthwise")
    x = g.input("x", (1, 16, SIZE, SIZE))
    w, b = filters(rng, CHANNELS, 16, 3, 3), (rng.standard_normal(CHANNELS) / 10).astype("f")
    y = eqsat.conv(x, g.constant(w * skew[:, None, None, None]), g.constant(b * skew), pads=(1, 1, 1, 1))
    y = between(y)
    v, c = filters(rng, CHANNELS, 1, 3, 3), (rng.standard_normal(CHANNELS) / 10).astype("f")
    v = g.constant(v / skew[:, None, None, None])
    y = eqsat.relu(eqsat.conv(y, v, g.constant(c), pads=(1, 1, 1, 1), group=CHANNELS))
    last = filters(rng, 16, CHANNELS, 1, 1)
    g.output("y", eqsat.conv(y, g.constant(last), g.constant(np.zeros(16, "f"))))
    return g.build()


def grouped(skew: np.ndarray) -> eqsat.Graph:
    """A convolution that is read, without a relu or biases, by one in groups of several channels and outputs."""
    rng = np.random.default_rng(1)
    g = eqsat.Graph("grouped")
    x = g.input("x", (1, 16, SIZE, SIZE))
    y = eqsat.conv(x, g.constant(filters(rng, CHANNELS, 16, 1, 1) * skew[:, None, None, None]))
    v = filters(rng, 48, CHANNELS // 4, 3, 3) / np.tile(skew.reshape(4, 1, -1), (1, 12, 1)).reshape(48, -1, 1, 1)
    g.output("y", eqsat.conv(y, g.constant(v), group=4))
    return g.build()


def gemms(skew: np.ndarray) -> eqsat.Graph:
    """Two products of matrices with biases, the weights of both transposed."""
    rng = np.random.default_rng(2)
    g = eqsat.Graph("gemms")
    x = g.input("x", (24, 16))
    w, b = filters(rng, CHANNELS, 16), (rng.standard_normal(CHANNELS) / 10).astype("f")
    y = eqsat.relu(g.apply("gemm", x, g.constant(w * skew[:, None]), g.constant(b * skew), trans_b=True))
    v = g.constant(filters(rng, 16, CHANNELS) / skew)
    g.output("y", g.apply("gemm", y, v, g.constant(np.ones(16, "f")), trans_b=True))
    return g.build()


def products(skew: np.ndarray) -> eqsat.Graph:
    """Two products of rows in a batch with matrices, a bias and a leaky relu between them."""
    rng = np.random.default_rng(3)
    g = eqsat.Graph("products")
    x = g.input("x", (3, 8, 16))
    w, b = filters(rng, CHANNELS, 16).T, (rng.standard_normal(CHANNELS) / 10).astype("f")
    y = x @ g.constant(np.ascontiguousarray(w) * skew) + g.constant(b * skew)
    y = g.apply("leaky_relu", y, alpha=0.125)
    g.output("y", y @ g.constant(np.ascontiguousarray(filters(rng, 16, CHANNELS).T) / skew[:, None]))
    return g.build()


GRAPHS = {
    "depthwise": lambda skew: depthwise(skew, eqsat.relu),
    "pooled": lambda skew: depthwise(
        skew, lambda y: eqsat.max_pool(eqsat.relu(y), kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))
    ),
    "grouped": grouped,
    "gemms": gemms,
    "products": products,
}


def batches(graph: eqsat.Graph, count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal(graph.type("x").static).astype(np.float32)} for _ in range(count)]


def equalised(graph: eqsat.Graph, **options: object) -> tuple[Assembled, Equal | None]:
    """The choice in float32, and the one with scaled channels beside it in the same e-graph."""
    data = batches(graph, 6)
    run = Run.read(
        graph, Options.of("optimize", {"precision": "int8", "calibration": data, "measure": False} | options)
    )
    grown = run.saturate(run.rules)
    chooser = run.chooser(grown)
    chosen = chooser.choice(chooser.weighed_problem())
    before = assemble(chosen.extraction, chosen.solution, graph)
    every = {node.outputs[0] for node in before.graph.nodes}
    equaliser = run.integers(grown, chooser, chosen).equaliser
    return before, equaliser.equalised(chooser, before, every, (data[0::2], data[1::2]), lambda detail: None)


def spread(graph: eqsat.Graph, batch: dict[str, np.ndarray]) -> float:
    """The largest quotient of the ranges of two channels of the value of a graph's first chain."""
    chain = next(chains(graph))
    value = execute(replace(graph, outputs={"value": chain.value}).without_dead(), batch, "numpy")["value"]
    ranges = np.abs(value).max(axis=tuple(k for k in range(value.ndim) if k != chain.axis))
    return float(ranges.max() / ranges[ranges > 0].min())


@pytest.mark.parametrize("name", GRAPHS)
def test_the_graph_with_scaled_channels_computes_the_same_bits(name):
    graph = GRAPHS[name](SKEW)
    _, equal = equalised(graph)
    assert equal is not None
    assert equal.quotients
    after = assemble(equal.extraction, equal.solution, graph)
    (batch,) = batches(graph, 1, seed=1)
    assert spread(graph, batch) > 1000
    assert spread(after.graph, batch) < 20
    # Powers of two leave every product and sum the digits that it had.
    np.testing.assert_array_equal(
        execute(after.graph, batch, "numpy")["y"], execute(graph, batch, "numpy")["y"], strict=True
    )
    assert len([n for n in after.graph.nodes if n.op == "mul"]) == 0


def test_the_graph_with_scaled_channels_is_certified_by_what_knows_no_rules():
    graph = GRAPHS["depthwise"](SKEW)
    _, equal = equalised(graph)
    after = assemble(equal.extraction, equal.solution, graph)
    certificate = certify(graph, after.decoded.graph, after.graph, after.decoded.shared)
    assert certificate.regions
    assert certificate.error == 0.0


@pytest.mark.parametrize("missing", ["relu-of-scale-inv", "mul-one"])
def test_without_a_rule_that_says_so_no_channel_is_scaled(missing):
    from eqsat.rewrites.rules.loader import load_rules

    rules = [rule for rule in load_rules() if rule.name != missing]
    _, equal = equalised(GRAPHS["depthwise"](SKEW), rules=rules)
    assert equal is None


def test_every_rule_that_moves_scales_has_evidence():
    from eqsat.rewrites.rules.loader import load_rules

    assert {rule.name for rule in load_rules()} >= MOVING | INVERSE


def alike() -> eqsat.Graph:
    """Two products around a value whose channels are all one."""
    rng = np.random.default_rng(6)
    g = eqsat.Graph("alike")
    w = np.tile(filters(rng, 16)[:, None], (1, CHANNELS))
    y = eqsat.relu(g.input("x", (24, 16)) @ g.constant(w))
    g.output("y", y @ g.constant(np.tile(filters(rng, 16), (CHANNELS, 1))))
    return g.build()


def test_channels_that_are_alike_stay_as_they_are():
    _, equal = equalised(alike())
    assert equal is None


def shared(skew: np.ndarray) -> eqsat.Graph:
    """A skewed value that is an output as well."""
    rng = np.random.default_rng(4)
    g = eqsat.Graph("shared")
    y = eqsat.relu(g.input("x", (24, 16)) @ g.constant(np.ascontiguousarray(filters(rng, CHANNELS, 16).T) * skew))
    g.output("z", y)
    g.output("y", y @ g.constant(np.ascontiguousarray(filters(rng, 16, CHANNELS).T) / skew[:, None]))
    return g.build()


def test_a_value_with_another_reader_keeps_its_channels():
    _, equal = equalised(shared(SKEW))
    assert equal is None


def optimised(graph: eqsat.Graph, *adjust: str) -> eqsat.Result:
    policy = replace(POLICIES["int8"], adjust=adjust)
    objective = {"weight_memory": 1.0, "time": 1e5}
    settings = {"objective": objective, "limits": {"error": 10.0}, "cache": False, "strict": True}
    return eqsat.optimize(graph, precision=policy, calibration=batches(graph, 9), **settings)


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, ...], eqsat.Result]:
    graph = GRAPHS["depthwise"](SKEW)
    return {adjust: optimised(graph, *adjust) for adjust in ((), ("equalise", "round"))}


def test_equalisation_recovers_a_skewed_depthwise_network(results):
    graph = GRAPHS["depthwise"](SKEW)
    plain, adjusted = (results[adjust].report.rounding for adjust in results)
    # Of three convolutions, times that are measured on a busy machine may leave one in float32.
    assert min(plain.integers["conv"], adjusted.integers["conv"]) >= 2
    assert (plain.equalised, adjusted.equalised) == (0, 1)
    assert plain.worst > 0.2
    assert adjusted.worst < 0.05
    (batch,) = batches(graph, 1, seed=7)
    expected = select().compile(graph, threads=1).run(batch)
    assert output_error(results["equalise", "round"].run(**batch), expected) < 0.05


def test_the_report_counts_values_with_scaled_channels(results):
    text = " ".join(str(results["equalise", "round"].report).split())
    assert re.search(r"on integers: [23] conv", text)
    assert "1 value with scaled channels" in text
    assert "with scaled channels" not in str(results[()].report)
    kept = results["equalise", "round"].report.rounding.kept
    assert "mul" not in kept, "factors of weights are no operators that run"


def test_a_policy_names_the_adjustments_that_there_are():
    with pytest.raises(
        UsageError, match=r"no adjustment of weights 'equalize'\n  expected a tuple of 'equalise' and 'round'"
    ):
        eqsat.PrecisionPolicy(("int8",), adjust=("equalize",))
