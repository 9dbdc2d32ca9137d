"""Products with constants of a form, and other forms that experts write, from the call to the result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import eqsat
from eqsat.report.result import Result

RNG = np.random.default_rng(0)
ORDER = RNG.permutation(96)


def planned(build: Callable[[eqsat.Graph], eqsat.Tensor]) -> Result:
    g = eqsat.Graph("constants")
    g.output("y", build(g))
    return eqsat.optimize(g, device="nvidia-h200", measure=False, cache=False)


def check(build: Callable[[eqsat.Graph], eqsat.Tensor], wanted: set[str], unwanted: str) -> None:
    """Check the operators of a result, and its numbers against those of the graph as given."""
    result = planned(build)
    used = {node.op for node in result.graph.nodes}
    assert wanted <= used and unwanted not in used, used
    g = eqsat.Graph("given")
    g.output("y", build(g))
    given = eqsat.optimize(g, rules=[], measure=False, cache=False)
    feeds = {}
    for name in result.graph.inputs:
        shape = [int(str(d)) for d in result.graph.type(name).dims]  # type: ignore[union-attr]
        feeds[name] = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    one, other = (program.compile("numpy")(**feeds)["y"] for program in (result, given))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def constant(g: eqsat.Graph, array: object) -> eqsat.Tensor:
    return g.constant(np.asarray(array, np.float32))


def blocks() -> np.ndarray:
    whole = np.zeros((96, 80), np.float32)
    whole[:32, :48], whole[32:, 48:] = RNG.standard_normal((32, 48)), RNG.standard_normal((64, 32))
    return whole


FORMS = {
    "rows chosen": (lambda g, x: constant(g, np.eye(96)[ORDER[:20]]) @ x, {"gather"}, (96, 64)),
    "columns chosen": (lambda g, x: x @ constant(g, np.eye(96)[:, ORDER]), {"gather"}, (3, 64, 96)),
    "sums up to each": (lambda g, x: constant(g, np.tril(np.ones((96, 96)))) @ x, {"cumsum"}, (96, 64)),
    "sums from each on": (lambda g, x: x @ constant(g, np.tril(np.ones((96, 96)))), {"cumsum"}, (64, 96)),
    "centred": (lambda g, x: x @ constant(g, np.eye(96) - 1 / 96), {"reduce_mean"}, (64, 96)),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_product_with_a_constant_of_a_form_is_none(name: str) -> None:
    build, wanted, shape = FORMS[name]
    check(lambda g: build(g, g.input("x", shape)), wanted, "matmul")


def test_a_product_with_zeros_is_gone() -> None:
    def build(g: eqsat.Graph) -> eqsat.Tensor:
        return eqsat.relu(g.input("x", (96, 96)) @ constant(g, np.zeros((96, 96))) + g.input("y", (96, 96)))

    check(build, {"relu"}, "matmul")


def test_blocks_are_multiplied_apart() -> None:
    g = eqsat.Graph("blocks")
    g.output("y", g.input("x", (512, 96)) @ constant(g, blocks()))
    result = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False)
    products = [node for node in result.graph.nodes if node.op == "matmul"]
    sizes = sorted(result.graph.type(node.inputs[1]).dims for node in products)  # type: ignore[union-attr]
    assert sizes in ([(32, 48), (64, 32)], [(96, 80)])  # as costs of slices have it


def test_filters_with_zeros_are_those_of_groups() -> None:
    w = np.zeros((12, 9, 3, 3), np.float32)
    for n in range(3):
        w[4 * n : 4 * n + 4, 3 * n : 3 * n + 3] = RNG.standard_normal((4, 3, 3, 3))
    result = planned(lambda g: eqsat.conv(g.input("x", (1, 9, 28, 28)), constant(g, w), pads=1))
    (node,) = (node for node in result.graph.nodes if node.op == "conv")
    assert node.attrs["group"] == 3


SHORTER = {
    "filters of one element": (
        lambda g, x: eqsat.conv(
            eqsat.conv(x, constant(g, RNG.standard_normal((64, 8, 3, 3)) / 8), pads=1),
            constant(g, RNG.standard_normal((8, 64, 1, 1)) / 8),
        ),
        1,
        (1, 8, 28, 28),
    ),
    "an image added": (
        lambda g, x: eqsat.conv(x, constant(g, RNG.standard_normal((8, 8, 3, 3)) / 8), pads=1) + x,
        1,
        (1, 8, 28, 28),
    ),
    "parts of an image": (
        lambda g, x: eqsat.concat(
            [
                eqsat.conv(part, constant(g, RNG.standard_normal((4, 4, 3, 3)) / 4), pads=1)
                for part in eqsat.split(x, 3, axis=1)
            ],
            axis=1,
        ),
        1,
        (1, 12, 28, 28),
    ),
    "pads cut away": (lambda g, x: eqsat.pad(x, pads=(0, 2, 1, 0, 1, 3))[:, 2:12, 1:11], 1, (4, 16, 16)),
    "exponentials": (lambda g, x: eqsat.exp(x) * eqsat.exp(x * 0.5), 2, (64, 64)),
    "a logarithm": (lambda g, x: eqsat.log(eqsat.exp(x) * eqsat.exp(-x * 0.5)), 2, (64, 64)),
}


@pytest.mark.parametrize("name", SHORTER)
def test_fewer_operators_make_the_same(name: str) -> None:
    build, most, shape = SHORTER[name]
    result = planned(lambda g: build(g, g.input("x", shape)))
    assert len(result.graph.nodes) <= most, [node.op for node in result.graph.nodes]


@pytest.mark.parametrize("heads", [1, 8])
def test_attention_of_a_shared_head_and_of_a_stack_is_one_operator(heads: int) -> None:
    def build(g: eqsat.Graph) -> eqsat.Tensor:
        if heads == 1:
            q, k, v = g.input("q", (2, 8, 16, 32)), g.input("k", (2, 1, 16, 32)), g.input("v", (2, 1, 16, 32))
            return eqsat.softmax(q @ k.transpose(0, 1, 3, 2) * 0.25) @ v
        q, k, v = (g.input(name, (16, 16, 32)) for name in "qkv")
        return eqsat.softmax((q * 0.25) @ k.transpose(0, 2, 1)) @ v

    check(build, {"attention"}, "softmax")


@pytest.mark.parametrize("values", [(0.0, 1.0), (-0.5, 2.0)])
def test_rows_of_indices_times_a_table_are_rows_of_it(values: tuple[float, float]) -> None:
    """Negative indices count from the end, and those out of range stand nowhere: all of these are tried."""
    depth, table = 48, RNG.standard_normal((48, 64)).astype(np.float32)
    g = eqsat.Graph("rows")
    ids = g.input("ids", (3, 100), "int64")
    g.output("y", eqsat.one_hot(ids, np.array(values, np.float32), depth=depth) @ g.constant(table))
    result = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False, trust="bounded")
    assert sorted(node.op for node in result.graph.nodes) == ["clip", "gather"]
    numbers = np.arange(300).reshape(3, 100) - 150
    rows = np.full((3, 100, depth), values[0])
    for place in zip(*np.nonzero((numbers >= -depth) & (numbers < depth)), strict=True):
        rows[place][numbers[place]] = values[1]
    np.testing.assert_allclose(result.run(ids=numbers)["y"], rows @ table, rtol=1e-4, atol=1e-4)


def test_a_centring_matrix_takes_the_mean_away() -> None:
    """On the way a sum is met whose operands have become one, of which egglog also knows an older form."""
    g = eqsat.Graph("centred")
    g.output("y", constant(g, np.eye(256) - 1 / 256) @ g.input("x", (256, 512)))
    result = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False)
    assert sorted(node.op for node in result.graph.nodes) == ["reduce_mean", "sub"]


@pytest.mark.parametrize("negative", [0, 1])
def test_the_sign_of_a_part_goes_into_a_constant(negative: int) -> None:
    """As in rotary embeddings, whose halves change places."""

    def build(g: eqsat.Graph) -> eqsat.Tensor:
        x = g.input("x", (2, 8, 16, 64))
        parts = [x[..., 32:], x[..., :32]]
        parts[negative] = -parts[negative]
        turned = eqsat.concat(parts, axis=3)
        return x * constant(g, RNG.standard_normal((16, 64))) + turned * constant(g, RNG.standard_normal((16, 64)))

    result = planned(build)
    assert "neg" not in {node.op for node in result.graph.nodes}


def test_of_kernels_at_one_price_those_that_read_inputs_are_offered() -> None:
    """Sums and products in many orders end in one class, each with a last kernel that costs as much as any other."""
    result = planned(lambda g: (g.input("x", (256, 1024)) * 2.0 + 1.0) * 3.0 + (g.input("y", (256, 1024)) * 2.0) * 3.0)
    assert result.report.usage_after is not None
    assert result.report.usage_after.launches == 1
