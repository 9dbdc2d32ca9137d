"""Scales of channels between products: where they may be, what they are, and what they leave as it is."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.language.graphs.builder import Builder
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Node
from eqsat.quantisation.comparison import best_factors
from eqsat.quantisation.equalisation import chains, factors, likely, reach, scaled
from eqsat.runtime.backend import execute

READERS = {
    "a matrix": ("matmul", (3, 5, 12), (12, 7), {}),
    "a turned matrix": ("gemm", (5, 12), (7, 12), {"trans_b": True}),
    "filters": ("conv", (2, 12, 6, 6), (7, 12, 3, 3), {"pads": (1, 1, 1, 1)}),
    "filters in groups": ("conv", (2, 12, 6, 6), (6, 4, 3, 3), {"group": 3}),
    "filters of single channels": ("conv", (2, 12, 6, 6), (24, 1, 3, 3), {"group": 12}),
    "filters along one axis": ("conv", (2, 12, 9), (7, 12, 3), {}),
}


def applied(node: Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    g = Builder("product")
    g.output("y", g.apply(node.op, g.input("x", x.shape), g.constant(w), **node.attrs))
    return np.asarray(execute(g.build(), {"x": x}, "numpy")["y"])


@pytest.mark.parametrize("name", READERS)
def test_scaled_weights_make_of_a_divided_operand_the_same_bits(name):
    op, shape, filters, attrs = READERS[name]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape).astype("f"), rng.standard_normal(filters).astype("f")
    node = Node(op, (), (), Attrs(spec(op).complete(attrs)))
    found = np.exp2(rng.integers(-9, 9, 12)).astype("f")
    axis = 1 if op == "conv" else x.ndim - 1
    divided = x / found.reshape(-1, *(1,) * (x.ndim - 1 - axis))
    np.testing.assert_array_equal(applied(node, divided, scaled(node, w, found)), applied(node, x, w))


@pytest.mark.parametrize("name", READERS)
def test_the_reach_of_a_channel_is_the_largest_weight_that_meets_it(name):
    op, _, filters, attrs = READERS[name]
    w = np.ones(filters, np.float32)
    node = Node(op, (), (), Attrs(spec(op).complete(attrs)))
    for channel in range(12):
        one = np.where(np.arange(12) == channel, 8, 1).astype("f")
        np.testing.assert_array_equal(reach(node, scaled(node, w, one)), one)


def test_factors_are_powers_of_two_that_even_out_ranges():
    ranges = (10.0 ** np.random.default_rng(0).uniform(-2, 2, 64)).astype(np.float32)
    found = factors(ranges, np.ones(64), 1.0)
    exponents = np.log2(found)
    np.testing.assert_array_equal(exponents, np.rint(exponents))
    assert (ranges / found).max() <= 2.001 * (ranges / found).min()
    # Between weights and values, the error is shared: the products of both ranges are even.
    shared = factors(ranges, 1 / ranges, 0.5)
    np.testing.assert_array_equal(shared, found)


def test_a_channel_that_was_dead_counts_by_what_was_made_before_the_relu():
    np.testing.assert_array_equal(likely(np.array([4.0, 0.0]), np.array([4.0, 16.0])), [4.0, 2.0])
    assert np.isfinite(factors(np.zeros(3), np.zeros(3), 0.5)).all()


def chain_of(between, outputs: tuple[str, ...] = ()) -> list[str]:
    """The values that channels may be scaled at, of two products around operators."""
    rng = np.random.default_rng(0)
    g = Builder("chain")
    x = g.input("x", (2, 4, 8, 8))
    y = g.apply("conv", x, g.constant(rng.standard_normal((6, 4, 3, 3)).astype("f")))
    if between is not None:
        y = between(g, y)
    g.output("y", g.apply("conv", y, g.constant(rng.standard_normal((5, 6, 1, 1)).astype("f"))))
    if "value" in outputs:
        g.output("value", y)
    return [chain.value for chain in chains(g.build())]


def bias(shape: tuple[int, ...]):
    return lambda g, y: g.apply("add", y, g.constant(np.ones(shape, np.float32)))


def bounded(g: Builder, y):
    return g.apply("clip", y, g.constant(np.float32(0)), g.constant(np.float32(6)))


@pytest.mark.parametrize(
    ("between", "count"),
    [
        (None, 1),
        (lambda g, y: g.apply("relu", y), 1),
        (lambda g, y: g.apply("leaky_relu", g.apply("relu", y), alpha=0.1), 1),
        (lambda g, y: g.apply("max_pool", y, kernel=(2, 2), strides=(2, 2)), 1),
        (bias((6, 1, 1)), 1),
        (bias(()), 1),
        (bias((6, 6, 6)), 0),
        (bounded, 0),
        (lambda g, y: g.apply("sigmoid", y), 0),
        (lambda g, y: g.apply("add", y, y), 0),
    ],
)
def test_channels_are_scaled_across_what_factors_above_0_pass_through(between, count):
    assert len(chain_of(between)) == count


def test_a_value_that_is_an_output_keeps_its_channels():
    assert len(chain_of(lambda g, y: g.apply("relu", y))) == 1
    assert not chain_of(lambda g, y: g.apply("relu", y), outputs=("value",))


def skewed(factor: float) -> Builder:
    rng = np.random.default_rng(0)
    g = Builder("skewed")
    skew = factor ** np.linspace(-1, 1, 8).astype(np.float32)
    w = g.constant(rng.standard_normal((16, 8)).astype("f") * skew)
    y = g.apply("relu", g.apply("matmul", g.input("x", (32, 16)), w))
    g.output("y", g.apply("matmul", y, g.constant(rng.standard_normal((8, 4)).astype("f") / skew[:, None])))
    return g


def test_the_other_batches_decide_whether_channels_are_scaled():
    graph = skewed(100.0).build()
    rng = np.random.default_rng(1)
    first, second = ([{"x": rng.standard_normal((32, 16)).astype("f")} for _ in range(3)] for _ in range(2))
    (chain,) = chains(graph)
    found = best_factors(graph, [chain], first, second)
    assert list(found) == [chain]
    assert found[chain].shape == (8,)
    assert found[chain].max() / found[chain].min() > 100
    # Of data of zeros there is no error to be less.
    nothing = [{"x": np.zeros((32, 16), np.float32)}]
    assert not best_factors(graph, [chain], first, nothing)


def test_a_value_that_was_infinite_keeps_its_channels():
    graph = skewed(100.0).build()
    (chain,) = chains(graph)
    data = [{"x": np.full((32, 16), np.inf, np.float32)}]
    assert not best_factors(graph, [chain], data, data)
