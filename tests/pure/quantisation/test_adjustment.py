"""Numbers of weights that are chosen for data: which rows a product reads, and how far its results move."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.errors import UsageError
from eqsat.language.graphs.builder import Builder
from eqsat.language.ops import spec
from eqsat.language.terms import PACKINGS, AdjustedScale, Attrs, Constant, DType, Node
from eqsat.quantisation.adjustment import Moments, Weights, adjusted
from eqsat.quantisation.blocks import block_scale
from eqsat.quantisation.scales import weights as scale_of
from eqsat.runtime.backend import execute


def product(op: str, w: np.ndarray, axis: int, bits: int = 8, *, shifts: bool = False, **attrs: object) -> Weights:
    full = Attrs(spec(op).complete(attrs))
    return Weights(Node(op, (), (), full), w, scale_of(w, axis, bits), shifts)


def applied(weights: Weights, x: np.ndarray) -> np.ndarray:
    g = Builder("product")
    g.output("y", g.apply(weights.node.op, g.input("x", x.shape), g.constant(weights.array), **weights.node.attrs))
    return np.asarray(execute(g.build(), {"x": x}, "numpy")["y"])


def seen(weights: Weights, *operands: np.ndarray) -> Moments:
    moments = Moments.of(weights.groups, weights.terms)
    for x in operands:
        moments.see(weights.read(x))
    return moments


@pytest.mark.parametrize("group", [1, 4, 16])
@pytest.mark.parametrize("attrs", [{}, {"strides": (2, 1), "pads": (1, 0, 1, 2), "dilations": (1, 2)}])
def test_the_rows_of_a_convolution_are_the_windows_that_it_reads(group, attrs):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 16 // group, 3, 3)).astype(np.float32)
    x = rng.standard_normal((2, 16, 9, 10)).astype(np.float32)
    weights = product("conv", w, 0, group=group, **attrs)
    by_group = weights.rows(w).reshape(group, -1, weights.terms)
    found = np.einsum("rgt,got->rgo", weights.read(x), by_group).reshape(-1, 16)
    np.testing.assert_allclose(found, np.moveaxis(applied(weights, x), 1, -1).reshape(-1, 16), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("op", "attrs", "axis"), [("matmul", {}, 1), ("gemm", {"trans_b": True}, 0)])
def test_numbers_for_data_move_products_less_than_the_nearest_ones(op, attrs, axis):
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((8, 64))
    x, y, z = (np.maximum(rng.standard_normal((200, 8)) @ mixed, 0).astype(np.float32) for _ in range(3))
    w = rng.standard_normal((64, 64)).astype(np.float32)
    weights = product(op, w, axis, bits=7, **attrs)
    scale = adjusted(weights, seen(weights, x), seen(weights, y))
    assert isinstance(scale, AdjustedScale)
    numbers = scale.quantised(w)
    assert numbers.dtype == np.int8
    assert np.abs(numbers).max() <= 64
    matrix = w.T if attrs else w
    errors = [
        np.linalg.norm(z @ (matrix - (s.rounded(w).T if attrs else s.rounded(w)))) for s in (weights.scale, scale)
    ]
    assert errors[1] < 0.6 * errors[0]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(("op", "attrs", "axis"), [("matmul", {}, 1), ("gemm", {"trans_b": True}, 0)])
def test_numbers_in_blocks_are_chosen_by_the_steps_of_their_blocks(op, attrs, axis, packing):
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((16, 96))
    x, y, z = (np.maximum(rng.standard_normal((300, 16)) @ mixed, 0).astype(np.float32) for _ in range(3))
    w = (rng.standard_normal((96, 96)) * np.repeat([0.1, 1.0, 10.0], 32)[:, None]).astype(np.float32)
    w = np.ascontiguousarray(w.T) if attrs else w
    weights = Weights(
        Node(op, (), (), Attrs(spec(op).complete(attrs))), w, block_scale(w, axis, PACKINGS[packing]), shifts=True
    )
    assert weights.is_adjustable
    scale = adjusted(weights, seen(weights, x), seen(weights, y))
    assert scale.quantised(w).max() <= 15
    bias = scale.corrected(np.zeros(96, np.float32))
    misses = [(w - one.rounded(w)).T if attrs else w - one.rounded(w) for one in (weights.scale, scale)]
    errors = [np.linalg.norm(z @ misses[0]), np.linalg.norm(z @ misses[1] - bias)]
    assert errors[1] < 0.6 * errors[0]


def test_a_bias_takes_what_the_mean_of_products_moves_by():
    rng = np.random.default_rng(0)
    x, y = (5 + rng.standard_normal((300, 32)).astype(np.float32) for _ in range(2))
    w = rng.standard_normal((32, 16)).astype(np.float32)
    weights = product("matmul", w, 1, shifts=True)
    scale = adjusted(weights, seen(weights, x), seen(weights, y))
    assert isinstance(scale, AdjustedScale)
    bias = scale.corrected(np.zeros(16, np.float32))
    moved = y @ (w - scale.rounded(w)) - bias
    plain = y @ (w - weights.scale.rounded(w))
    assert np.linalg.norm(moved) < 0.3 * np.linalg.norm(plain)
    np.testing.assert_allclose(moved.mean(axis=0), 0, atol=5e-3)


def test_other_data_decide_whether_the_nearest_numbers_stay():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 16)).astype(np.float32)
    weights = product("matmul", w, 1)
    one = np.zeros((4, 32), np.float32)
    one[:, 0] = 1  # data that know one direction alone, and say nothing of the others
    rest = rng.standard_normal((300, 32)).astype(np.float32)
    rest[:, 0] = 0
    assert adjusted(weights, seen(weights, one), seen(weights, rest)) is weights.scale


def test_data_of_zeros_and_products_that_are_too_long_keep_the_nearest_numbers():
    w = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    weights = product("matmul", w, 1)
    nothing = seen(weights, np.zeros((3, 16), np.float32))
    assert adjusted(weights, nothing, nothing) is weights.scale
    assert not product("matmul", np.zeros((5000, 2), np.float32), 1).is_adjustable
    assert not product("matmul", np.zeros((2, 16, 4), np.float32), None).is_adjustable


def test_numbers_of_other_weights_are_refused():
    scale = AdjustedScale(DType.INT8, (0.5,), numbers=Constant.of(np.zeros((2, 2), np.int8), DType.INT8))
    with pytest.raises(UsageError, match=r"numbers of shape \(2, 2\) for weights of shape \(3,\)"):
        scale.quantised(np.zeros(3, np.float32))
