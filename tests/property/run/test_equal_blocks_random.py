"""Random models of equal blocks: what one block is made stands for all, and computes the same."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.language.graphs.repeats import KEPT, condensed
from eqsat.runtime.backend import select

SIZE = 16
#: What a block may do to a tensor, with weights of its own where it has some.
PARTS = ("dense", "biased", "gelu", "relu", "norm", "residual", "heads", "twice", "scaled", "shifted")


def weight(g: eqsat.Graph, rng: np.random.Generator, *shape: int) -> eqsat.Tensor:
    return g.constant((rng.standard_normal(shape) / 4).astype(np.float32))


def part(g: eqsat.Graph, x: eqsat.Tensor, start: eqsat.Tensor, kind: str, rng: np.random.Generator) -> eqsat.Tensor:
    match kind:
        case "dense":
            return x @ weight(g, rng, SIZE, SIZE)
        case "biased":
            return x @ weight(g, rng, SIZE, SIZE) + weight(g, rng, SIZE)
        case "gelu":
            return x * 0.5 * (eqsat.erf(x / 2.0**0.5) + 1.0)
        case "relu":
            return eqsat.maximum(x, 0.0)
        case "norm":
            return eqsat.layer_norm(x, weight(g, rng, SIZE), weight(g, rng, SIZE), axis=-1)
        case "residual":
            return x + start
        case "heads":
            split = eqsat.transpose(eqsat.reshape(x, shape=(3, 4, 4)), perm=(1, 0, 2))
            joined = eqsat.softmax(split @ eqsat.transpose(split, perm=(0, 2, 1)) * 0.5, axis=-1) @ split
            return eqsat.reshape(eqsat.transpose(joined, perm=(1, 0, 2)), shape=(3, SIZE))
        case "twice":
            return x @ weight(g, rng, SIZE, SIZE) + start @ weight(g, rng, SIZE, SIZE)
        case "scaled":
            return x * weight(g, rng, SIZE)
        case _:
            return x + weight(g, rng, 1, SIZE)


@st.composite
def models(draw: st.DrawFn) -> eqsat.Graph:
    kinds = draw(st.lists(st.sampled_from(PARTS), min_size=6, max_size=10))
    count, every = draw(st.integers(6, 12)), draw(st.booleans())
    rng, g = np.random.default_rng(draw(st.integers(0, 99))), eqsat.Graph("chain")
    x = g.input("x", (3, SIZE))
    for number in range(count):
        start = x
        for kind in ("norm", *kinds):
            x = part(g, x, start, kind, rng)
        if every:
            g.output(f"y{number}", x)
    g.output("y", eqsat.tanh(x))
    return g


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(models(), st.sampled_from(["onnxruntime-cpu", "nvidia-h200"]))
def test_a_model_of_equal_blocks_computes_what_it_did(g, device):
    graph = g.build()
    known = condensed(graph)
    result = eqsat.optimize(graph, device=device, measure=False, cache=False, strict=True, threads=1)
    report = result.report
    if known is not None and not report.warnings:
        assert [one.grown for one in report.blocks] == [KEPT] * len(known.repeats)
        assert report.nodes_grown < report.nodes_before
    assert report.cost_after <= report.cost_before * (1 + 1e-9)
    assert list(result.graph.outputs) == list(graph.outputs)
    if device == "onnxruntime-cpu":
        x = np.random.default_rng(1).standard_normal((3, SIZE)).astype(np.float32)
        before, after = (select("numpy").compile(one).run({"x": x}) for one in (graph, result.graph))
        for name, value in before.items():
            np.testing.assert_allclose(after[name], value, rtol=1e-3, atol=1e-3)
