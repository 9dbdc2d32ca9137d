"""Dropout hands on what it is given; its mask is looked into only where something reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper, parser

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms.graph import OPAQUE

#: Opsets in which the mask holds what ONNX does not say, and in which it holds ones.
UNSAID, SAID = (7, 10), (12, 13, 17)


def model(text: str, opset: int) -> ModelProto:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    if opset < 10:  # the mask is of the input's type
        for output in made.graph.output[1:]:
            output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return made


def outputs(source: ModelProto, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def optimised(source: ModelProto, **feeds: Any) -> list[str]:
    """The operators of the result, once it is seen to give the same in ONNX Runtime."""
    result = eqsat.optimize(source, measure=False)
    assert not result.report.failure
    made = result.to_onnx()
    for wanted, given in zip(outputs(source, **feeds), outputs(made, **feeds), strict=True):
        assert wanted.dtype == given.dtype
        np.testing.assert_array_equal(wanted, given)
    return [node.op_type for node in made.graph.node]


def operators(source: ModelProto) -> list[str]:
    """The operators that the model is read as."""
    return [node.op for node in load(source).nodes]


X = np.float32([1, -2, 3])


@pytest.mark.parametrize("opset", [*UNSAID, *SAID])
def test_a_mask_that_nothing_reads_is_not_computed(opset: int) -> None:
    source = model("g (float[3] x) => (float[3] y) { t = Neg(x) \n u, m = Dropout(t) \n y = Neg(u) }", opset)
    assert operators(source) == ["neg", "neg"]
    assert set(optimised(source, x=X)) <= {"Identity"}


@pytest.mark.parametrize("opset", [*UNSAID, *SAID])
def test_a_mask_that_is_handed_out_is_computed(opset: int) -> None:
    """It is of ones; before opset 12 ONNX Runtime is asked what it holds, and Dropout stays whole."""
    source = model("g (float[n] x) => (float[n] y, bool[n] m) { t = Neg(x) \n y, m = Dropout(t) }", opset)
    assert (OPAQUE in operators(source)) == (opset in UNSAID)
    optimised(source, x=X)


@pytest.mark.parametrize("opset", [10, 12])
def test_a_mask_that_a_node_reads_is_computed(opset: int) -> None:
    nodes = "t = Neg(x) \n u, m = Dropout(t) \n f = Cast<to = 1>(m) \n y = Add(u, f)"
    source = model(f"g (float[3] x) => (float[3] y) {{ {nodes} }}", opset)
    assert (OPAQUE in operators(source)) == (opset == 10)
    optimised(source, x=X)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("known", [False, True])
def test_a_mask_that_a_body_reads_is_computed(opset: int, known: bool) -> None:
    """In a branch that stays one, and in one that takes the place of its If."""
    branch = "(float[3] {0}) {{ f{0} = Cast<to = 1>(m) \n {0} = Add(u, f{0}) }}"
    given = "" if known else ", bool c"
    constant = "<bool c = {1}>" if known else ""
    nodes = f"""t = Neg(x) \n u, m = Dropout(t)
        y = If (c) <then_branch = then () => {branch.format("p")}, else_branch = other () => {branch.format("q")}>"""
    source = model(f"g (float[3] x{given}) => (float[3] y) {constant} {{ {nodes} }}", opset)
    made = operators(source)
    # What is left opaque is the If, and before opset 12 the Dropout whose mask it reads.
    assert made.count(OPAQUE) == (not known) + (opset == 11)
    optimised(source, x=X, **({} if known else {"c": np.array(True)}))


@pytest.mark.parametrize("opset", [11, 13])
def test_what_a_body_makes_in_the_place_of_its_node_counts_as_read(opset: int) -> None:
    """The If hands out the mask that the branch makes, and the branch becomes nodes of the graph."""
    branch = "(bool[3] {0}) {{ u{0}, {0} = Dropout(x) }}"
    nodes = (
        f"y = If (c) <then_branch = then () => {branch.format('p')}, else_branch = other () => {branch.format('q')}>"
    )
    source = model(f"g (float[3] x) => (bool[3] y) <bool c = {{1}}> {{ {nodes} }}", opset)
    assert (OPAQUE in operators(source)) == (opset == 11)
    optimised(source, x=X)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("read", [False, True])
def test_a_function_hands_its_mask_out_or_not(opset: int, read: bool) -> None:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    body = [helper.make_node("Dropout", ["a"], ["b", "m"])]
    held = helper.make_function("own", "Held", ["a"], ["b", "m"] if read else ["b"], body, opsets[:1])
    info = helper.make_tensor_value_info
    results = [info("y", onnx.TensorProto.FLOAT, [3]), *([info("k", onnx.TensorProto.BOOL, [3])] if read else [])]
    nodes = [
        helper.make_node("Neg", ["x"], ["t"]),
        helper.make_node("Held", ["t"], ["h", "k"][: 1 + read], domain="own"),
        helper.make_node("Neg", ["h"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", onnx.TensorProto.FLOAT, [3])], results)
    source = helper.make_model(graph, opset_imports=opsets, functions=[held], ir_version=8)
    assert (OPAQUE in operators(source)) == (read and opset == 11)
    optimised(source, x=X)
