"""Group normalisations as frameworks spell them: found where groups are of whole channels, and left alone elsewhere."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import eqsat
from eqsat import Tensor, group_norm, instance_norm, reduce_mean, sqrt
from eqsat.language.onnx.write.exporter import to_model
from eqsat.runtime.backend import select

EPS = 1e-5


def _by_instance(x: Tensor, shape: tuple[Any, ...], gains: tuple[Tensor, Tensor]) -> Tensor:
    normed: Tensor = instance_norm(x.reshape(*shape), *gains, epsilon=EPS)
    return normed


def _by_means(x: Tensor, shape: tuple[Any, ...], gains: tuple[Tensor, Tensor]) -> Tensor:
    grouped = x.reshape(*shape)
    axes = list(range(2, len(shape)))
    centred = grouped - reduce_mean(grouped, axes, keepdims=True)
    normed: Tensor = centred / sqrt(reduce_mean(centred * centred, axes, keepdims=True) + EPS)
    return normed


SPELLINGS = {"instance norm": _by_instance, "means": _by_means}


def _graph(
    spelling: str, dims: tuple[Any, ...], grouped: tuple[Any, ...], column: tuple[int, ...], numbers: Any
) -> eqsat.Graph:
    g = eqsat.Graph("group norm")
    x = g.input("x", dims, "float32")

    def drawn(*shape: int) -> Tensor:
        return g.constant(numbers.standard_normal(shape).astype(np.float32))

    gains = drawn(grouped[1]), drawn(grouped[1])
    normed = SPELLINGS[spelling](x, grouped, gains).reshape(*dims)
    g.output("y", normed * drawn(*column) + drawn(*column))
    return g


def _distance(one: Any, other: Any) -> float:
    return float(np.abs(one - other).max() / np.abs(one).max()) if one.size else 0.0


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
@given(
    batch=st.sampled_from([1, 2, "n"]),
    groups=st.integers(2, 4),
    each=st.integers(2, 3),
    plane=st.sampled_from([(7,), (3, 5), (2, 3, 4)]),
    flat=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=12, deadline=None)
def test_each_spelling_is_one_operator_that_computes_the_same(
    spelling: str, batch: Any, groups: int, each: int, plane: tuple[int, ...], flat: bool, seed: int
) -> None:
    random, channels = np.random.default_rng(seed), groups * each
    inner = (each * int(np.prod(plane)),) if flat else (each, *plane)
    column = (channels, *(1 for _ in plane))
    graph = _graph(spelling, (batch, channels, *plane), (batch, groups, *inner), column, random).build()
    result = eqsat.optimize(graph, device="nvidia-h200", measure=False, cache=False)
    assert [node.op for node in result.graph.nodes] == ["group_norm"]
    size = 3 if batch == "n" else batch
    x = (5 + random.standard_normal((size, channels, *plane))).astype(np.float32)
    wanted, found = (select("numpy").compile(g).run({"x": x})["y"] for g in (graph, result.graph))
    assert _distance(wanted, found) < 1e-4
    on_processor = eqsat.optimize(graph, device="onnxruntime-cpu", measure=False, cache=False)
    assert _distance(wanted, on_processor.run(x=x)["y"]) < 1e-4


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
@pytest.mark.parametrize(
    ("dims", "grouped", "column"),
    [
        ((2, 6, 4, 4), (2, 4, 24), (6, 1, 1)),  # groups that end within a channel
        ((2, 6, 4, 4), (4, 3, 16), (6, 1, 1)),  # groups of the halves of the channels of one image
        ((2, 6, 4, 4), (1, 4, 48), (6, 1, 1)),  # groups of both images
        ((2, 4, 4, 6), (2, 4, 4, 6), (6,)),  # gains along another axis than channels
        ((2, 6, 4, 4), (2, 3, 32), (4, 1)),  # gains along an axis of the plane
    ],
)
def test_other_groups_stay_apart(
    spelling: str, dims: tuple[int, ...], grouped: tuple[int, ...], column: tuple[int, ...]
) -> None:
    random = np.random.default_rng(0)
    graph = _graph(spelling, dims, grouped, column, random).build()
    result = eqsat.optimize(graph, device="nvidia-h200", measure=False, cache=False)
    x = random.standard_normal(dims).astype(np.float32)
    wanted, found = (select("numpy").compile(g).run({"x": x})["y"] for g in (graph, result.graph))
    assert _distance(wanted, found) < 1e-4
    assert [node.op for node in result.graph.nodes] != ["group_norm"]


@pytest.mark.parametrize("opset", [17, 21, 23])
@pytest.mark.parametrize("dims", [(2, 6, 4, 5), ("n", 6, 4, 5), ("n", 6, "h", "w"), (0, 6, 4, 5), (2, 6, 0, 4)])
def test_what_is_written_keeps_its_digits_at_a_large_mean_and_takes_empty_batches(
    dims: tuple[Any, ...], opset: int
) -> None:
    import onnxruntime

    random = np.random.default_rng(0)
    g = eqsat.Graph("g")
    gain, bias = (random.standard_normal(6).astype(np.float32) for _ in range(2))
    g.output("y", group_norm(g.input("x", dims, "float32"), g.constant(gain), g.constant(bias), groups=2))
    proto = to_model(g.build(), opset).SerializeToString()
    session = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    for size in (3, 0) if "n" in dims else (0,):
        shape = tuple(size if d == "n" else 3 if isinstance(d, str) else d for d in dims)
        x = (1000 + random.standard_normal(shape)).astype(np.float32)
        parts = x.astype(np.float64).reshape(shape[0], 2, 3 * shape[2] * shape[3])
        if parts.size:
            parts = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + EPS)
        wanted = parts.reshape(shape) * gain[:, None, None] + bias[:, None, None]
        (found,) = session.run(None, {"x": x})
        assert found.shape == wanted.shape
        assert _distance(wanted, found) < 2e-3
