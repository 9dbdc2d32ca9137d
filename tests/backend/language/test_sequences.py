"""Readers of a sequence whose elements are known read those, and ONNX Runtime computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from eqsat.language.onnx.read.importer import load
from tests.support.one_operator import is_lowered, model, opaque

X, Y = np.arange(12, dtype=np.float32).reshape(3, 4), -np.ones((3, 4), np.float32)
FEEDS = {"x": X, "y": Y}


def node(op_type: str, inputs: list[str], outputs: list[str], **attrs: Any) -> Any:
    return helper.make_node(op_type, inputs, outputs, **attrs)


def numbers(**values: Any) -> dict[str, Any]:
    return {name: np.asarray(value, np.int64) for name, value in values.items()}


BOTH = node("SequenceConstruct", ["x", "y"], ["s"])


@pytest.mark.parametrize("place", [0, 1, -1, -2])
def test_an_element_is_what_it_was_made_of(place: int) -> None:
    nodes = [BOTH, node("SequenceAt", ["s", "i"], ["a"]), node("Relu", ["a"], ["z"])]
    graph = is_lowered(model(nodes, FEEDS, numbers(i=place)), FEEDS)
    assert [n.op for n in graph.nodes] == ["relu"]


@pytest.mark.parametrize("axis, new", [(0, 0), (1, 0), (-1, 0), (0, 1), (2, 1), (-1, 1), (-3, 1)])
def test_elements_are_put_together(axis: int, new: int) -> None:
    nodes = [BOTH, node("ConcatFromSequence", ["s"], ["z"], axis=axis, new_axis=new)]
    graph = is_lowered(model(nodes, FEEDS), FEEDS)
    assert graph.nodes[-1].op == "concat"


@pytest.mark.parametrize("place", [None, 0, 1, 2, -1, -2])
def test_an_element_goes_in_where_it_is_put(place: int | None) -> None:
    feeds = {**FEEDS, "v": np.full((1, 4), 7, np.float32)}
    put = node("SequenceInsert", ["s", "v"] if place is None else ["s", "v", "i"], ["t"])
    nodes = [BOTH, put, node("ConcatFromSequence", ["t"], ["z"], axis=0)]
    is_lowered(model(nodes, feeds, {} if place is None else numbers(i=place)), feeds)


@pytest.mark.parametrize("place", [None, 0, 1, -1, -2])
def test_an_element_is_taken_out(place: int | None) -> None:
    out = node("SequenceErase", ["s"] if place is None else ["s", "i"], ["t"])
    nodes = [BOTH, out, node("SequenceLength", ["t"], ["n"]), node("ConcatFromSequence", ["t"], ["z"], axis=0)]
    is_lowered(model(nodes, FEEDS, {} if place is None else numbers(i=place), outputs=["n", "z"]), FEEDS)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("size", [None, 1, 2, 3])
@pytest.mark.parametrize("keep", [0, 1])
def test_parts_of_a_tensor(axis: int, size: int | None, keep: int) -> None:
    operands = ["x"] if size is None else ["x", "k"]
    nodes = [
        node("SplitToSequence", operands, ["s"], axis=axis, keepdims=keep),
        node("SequenceAt", ["s", "first"], ["a"]),
        node("SequenceAt", ["s", "last"], ["b"]),
        node("SequenceLength", ["s"], ["n"]),
    ]
    constants = numbers(first=0, last=-1) | ({} if size is None else numbers(k=size))
    proto = model(nodes, {"x": X}, constants, outputs=["a", "b", "n"])
    if size is not None and not keep:  # ONNX Runtime drops the axis of single parts, and refuses others
        assert any("keepdims = 0 beside sizes" in reason for reason in opaque(load(proto)))
        return
    graph = is_lowered(proto, {"x": X})
    assert "opaque" not in [n.op for n in graph.nodes]


def test_parts_of_given_sizes() -> None:
    nodes = [
        node("SplitToSequence", ["x", "k"], ["s"], axis=1),
        node("SequenceInsert", ["s", "y", "zero"], ["t"]),
        node("ConcatFromSequence", ["t"], ["z"], axis=1),
    ]
    is_lowered(model(nodes, FEEDS, numbers(k=[3, 1], zero=0)), FEEDS)


def test_what_is_read_elsewhere_keeps_its_sequence() -> None:
    nodes = [BOTH, node("SequenceAt", ["s", "i"], ["a"]), node("Relu", ["a"], ["z"])]
    feeds = {**FEEDS, "i": np.int64(1)}
    assert opaque(load(model(nodes, feeds))) == [
        "reads or makes sequences, which are no tensors",
        "'i' is computed at run time",
    ]


@pytest.mark.parametrize("place", [2, -3])
def test_a_place_that_is_not_there_is_for_onnx_runtime_to_say(place: int) -> None:
    nodes = [BOTH, node("SequenceAt", ["s", "i"], ["z"])]
    assert f"position {place} in 2 elements" in opaque(load(model(nodes, FEEDS, numbers(i=place))))


def test_a_sequence_from_outside_is_known_at_run_time() -> None:
    stated = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    result = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    graph = helper.make_graph([node("SequenceLength", ["s"], ["n"])], "g", [stated], [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert opaque(load(proto)) == ["a sequence whose elements are known at run time"]


@pytest.mark.parametrize("op_type", ["OptionalHasElement", "OptionalGetElement"])
def test_a_tensor_is_an_optional_that_is_there(op_type: str) -> None:
    graph = is_lowered(model(node(op_type, ["x"], ["z"]), {"x": X}), {"x": X})
    assert not graph.nodes
