"""Operators that ONNX defines by others are read by those, mean what ONNX Runtime computes, and come back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, defs, helper
from onnx.backend.test.loader import load_model_tests
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph, NotImplemented

from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.operators.import_table import importers_of, reason_for
from eqsat.language.onnx.read.definitions import DEFINED
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms.graph import Graph
from eqsat.runtime.backend import select
from tests.support.one_operator import agree, is_lowered, model, opaque, session_run

RNG = np.random.default_rng(29)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
#: ONNX Runtime has no kernel for the operator, its opset, or an element type.
REFUSED = (Fail, InvalidArgument, InvalidGraph, NotImplemented)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def defined() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in load_model_tests(kind="node"):
            (first, *rest) = ((n.domain, n.op_type) for n in case.model.graph.node)
            if not rest and first in DEFINED | {("", "LayerNormalization")}:
                yield pytest.param(case, id=case.name)


def apart(graph: Graph) -> ModelProto:
    """The model with every operator written as what it was read as."""
    assert isinstance(graph.origin, OnnxOrigin)
    return to_model(replace(graph, origin=replace(graph.origin, records=())))


def kinds(proto: ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


@pytest.mark.parametrize("case", list(defined()))
def test_node_tests_come_back_and_are_what_they_were_read_as(case: Any) -> None:
    graph = load(case.model)
    if opaque(graph):
        assert all(reason and "no counterpart" not in reason for reason in opaque(graph))
        return
    # An output that is as the operand it comes from is made by no node.
    assert kinds(to_model(graph)) in (kinds(case.model), [*kinds(case.model), "Identity"])
    for given, expected in case.data_sets:
        feeds = dict(zip((v.name for v in case.model.graph.input), given, strict=True))
        for value, want in zip(select("numpy").compile(graph).run(feeds).values(), expected, strict=True):
            agree(value, np.asarray(want), **within(want))
        try:
            wanted = session_run(case.model, feeds)
        except REFUSED:
            continue
        for value, want in zip(session_run(apart(graph), feeds), wanted, strict=True):
            agree(value, want, **within(want))


def within(array: Any) -> dict[str, float]:
    """The tolerance for floats of an array's width."""
    return {"rtol": 1e-2, "atol": 1e-2} if np.asarray(array).itemsize == 2 else {"rtol": 1e-3, "atol": 1e-5}


MASK = RNG.integers(0, 2, (3, 5)).astype(bool)
MASK[1] = False
MASKS = {"none": None, "bool": MASK, "float": floats(3, 5), "no key": np.where(MASK, 0, -np.inf).astype(np.float32)}


@pytest.mark.parametrize("opset", [23, 24, 25])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("mode", [None, 0, 1, 2, 3])
def test_attention(opset: int, mask: str, causal: int, softcap: float, mode: int | None) -> None:
    """Rows without a key too: in them ONNX Runtime and the definition agree, but for the scores before the softmax."""
    feeds = {"q": floats(1, 2, 3, 4), "k": floats(1, 2, 5, 4), "v": floats(1, 2, 5, 4)}
    feeds |= {} if MASKS[mask] is None else {"m": MASKS[mask]}
    attrs = {"softcap": softcap, "is_causal": causal} | ({} if mode is None else {"qk_matmul_output_mode": mode})
    outputs = ["y"] if mode is None else ["y", "", "", "scores"]
    proto = model(helper.make_node("Attention", list(feeds), outputs, **attrs), feeds, opset=opset)
    graph = load(proto)
    if mode == 2 and (causal or mask == "bool"):
        assert "lowest" in opaque(graph)[0]
        return
    assert not opaque(graph)
    assert kinds(to_model(graph)) == ["Attention"]
    for made, want in zip(session_run(apart(graph), feeds), session_run(proto, feeds), strict=True):
        agree(made, want, **CLOSE)


@pytest.mark.parametrize("length", [0, 2, 5])
@pytest.mark.parametrize("attrs", [{}, {"softcap": 2.0}, {"is_causal": 1}])
def test_keys_up_to_a_length_known_at_run_time(length: int, attrs: dict[str, Any]) -> None:
    feeds = {"q": floats(1, 2, 3, 4), "k": floats(1, 2, 5, 4), "v": floats(1, 2, 5, 4), "n": np.array([length])}
    node = helper.make_node("Attention", ["q", "k", "v", "", "", "", "n"], ["y"], **attrs)
    proto = model(node, feeds, opset=24)
    assert kinds(to_model(is_lowered(proto, feeds, **CLOSE))) == ["Attention"]
    agree(session_run(apart(load(proto)), feeds)[0], session_run(proto, feeds)[0], **CLOSE)


@pytest.mark.parametrize("attrs", [{}, {"softcap": 2.0}])
def test_causal_attention_to_a_cache(attrs: dict[str, Any]) -> None:
    feeds = {name: floats(1, 2, n, 4) for name, n in (("q", 3), ("k", 3), ("v", 3), ("pk", 4), ("pv", 4))}
    node = helper.make_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "a", "b"], is_causal=1, **attrs)
    proto = model(node, feeds, opset=23)
    assert kinds(to_model(is_lowered(proto, feeds, **CLOSE))) == ["Attention"]
    for made, want in zip(session_run(apart(load(proto)), feeds), session_run(proto, feeds), strict=True):
        agree(made, want, **CLOSE)


def test_named_lengths_run_through_a_growing_cache() -> None:
    feeds = {name: floats(2, 2, n, 4) for name, n in (("q", 3), ("k", 3), ("v", 3), ("pk", 5), ("pv", 5))}
    shapes = {name: ("b", 2, "p" if name in ("pk", "pv") else "s", 4) for name in feeds}
    node = helper.make_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "a", "c"], is_causal=1, softcap=2.0)
    proto = model(node, feeds, opset=23, shapes=shapes)
    graph = is_lowered(proto, feeds, **CLOSE)
    assert str(graph.type("a")) == "float32[b, 2, p + s, 4]"
    assert kinds(to_model(graph)) == ["Attention"]


@pytest.mark.parametrize("outputs", [["y", "m"], ["y", "m", "d"], ["y", "", "d"]])
@pytest.mark.parametrize("axis", [-1, 1])
def test_statistics_of_a_normalisation(outputs: list[str], axis: int) -> None:
    x = floats(2, 3, 8)
    gains = {"g": floats(*x.shape[axis:]), "b": floats(*x.shape[axis:])}
    node = helper.make_node("LayerNormalization", ["x", "g", "b"], outputs, axis=axis, epsilon=1e-3)
    proto = model(node, {"x": x}, gains)
    graph = is_lowered(proto, {"x": x}, **CLOSE)
    assert "layer_norm" in [n.op for n in graph.nodes]
    assert kinds(to_model(graph)) == ["LayerNormalization"]
    for made, want in zip(session_run(apart(graph), {"x": x}), session_run(proto, {"x": x}), strict=True):
        agree(made, want, **CLOSE)


def test_named_dims_run_through_a_definition() -> None:
    feeds = {"x": floats(4, 3), "t": np.array([0, 2, -1, 1])}
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y", "p"], ignore_index=-1, reduction="none")
    proto = model(node, feeds, shapes={"x": ("n", 3), "t": ("n",)})
    assert kinds(to_model(is_lowered(proto, feeds, **CLOSE))) == ["SoftmaxCrossEntropyLoss"]


def test_what_a_definition_cannot_be_read_for_says_why() -> None:
    feeds = {"x": floats(4, 3), "s": np.array([2, 2])}
    graph = load(model(helper.make_node("CenterCropPad", ["x", "s"], ["y"]), feeds))
    assert opaque(graph) == ["in its definition, Pad: 'pads' is computed at run time"]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_global_pools_of_an_order(order: int) -> None:
    x = floats(2, 3, 4, 5)
    proto = model(helper.make_node("GlobalLpPool", ["x"], ["y"], p=order), {"x": x})
    if order == 3:
        assert opaque(load(proto)) == ["GlobalLpPool of order 3"]
        return
    assert kinds(to_model(is_lowered(proto, {"x": x}, **CLOSE))) == ["GlobalLpPool"]
    agree(session_run(apart(load(proto)), {"x": x})[0], session_run(proto, {"x": x})[0], **CLOSE)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("starts", [None, [0, 2], [1, 0]])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("named", [False, True])
def test_a_cache_is_written_from_a_place_on(mode: str, starts: list[int] | None, rank: int, named: bool) -> None:
    lead = (2, 3)[: rank - 2]
    feeds = {"past": floats(*lead, 4, 5), "new": floats(*lead, 2, 5)}
    feeds |= {} if starts is None else {"at": np.array(starts if mode == "linear" else [3, *starts[1:]], np.int64)}
    shapes = {name: ("n", *array.shape[1:]) for name, array in feeds.items()} if named else None
    proto = model(helper.make_node("TensorScatter", list(feeds), ["y"], mode=mode), feeds, opset=24, shapes=shapes)
    graph = is_lowered(proto, feeds)
    assert kinds(to_model(graph)) == ["TensorScatter"]
    assert graph.nodes[-1].op == "scatter_elements"
    agree(session_run(apart(graph), feeds)[0], session_run(proto, feeds)[0])


def test_every_operator_of_onnx_that_is_not_read_has_a_reason() -> None:
    known = {s.name: s.domain for s in defs.get_all_schemas()}
    left = [name for name, domain in known.items() if name not in importers_of(domain)]
    held = {"If", "Loop", "Scan"}  # these say why by their bodies
    assert held < set(left)
    without = [name for name in left if "no counterpart" in reason_for(known[name], name)]
    assert set(without) == held
