"""ONNX's own node tests, on models imported and run on the operators' references."""

import re
import sys
import warnings

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper

import eqsat.onnx_backend
from eqsat.errors import BackendError, ImportModelError
from eqsat.language.terms.graph import OPAQUE
from eqsat.onnx_backend import EXCLUSIONS, EqsatBackend, exclusion, prepare, run_model, run_node

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # onnx computes what it expects when the suite is made
    SUITE = onnx.backend.test.BackendTest(eqsat.onnx_backend, __name__).test_cases
KIND = "OnnxBackendNodeModelTest"
NAMES = sorted(n.removesuffix("_cpu") for n in dir(SUITE[KIND]) if n.startswith("test_") and n.endswith("_cpu"))
#: Their outcome depends on chance, or on what else is installed.
UNCERTAIN = ("^test_bernoulli", "^test_image_decoder_")


def run_case(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SUITE[KIND](f"{name}_cpu").debug()


@pytest.mark.parametrize("name", [n for n in NAMES if exclusion(n) is None])
def test_onnx_node(name):
    run_case(name)


def test_the_suite_is_whole_and_every_exclusion_concerns_some_of_it():
    assert len(NAMES) > 1800
    for pattern in EXCLUSIONS:
        assert any(re.search(pattern, n) for n in NAMES), pattern
    assert sum(exclusion(n) is not None for n in NAMES) < 0.02 * len(NAMES)


CERTAIN = [n for n in NAMES if exclusion(n) and not any(re.search(p, n) for p in UNCERTAIN)]


@pytest.mark.parametrize("name", CERTAIN)
def test_an_excluded_test_does_fail(name):
    with pytest.raises((AssertionError, TypeError, BackendError, ImportModelError)):
        run_case(name)


def test_images_are_refused_with_the_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)  # as where Pillow is not installed
    with pytest.raises(BackendError, match="ImageDecoder, fails: Pillow must be installed"):
        run_case("test_image_decoder_decode_png_rgb")


def test_a_node_runs_on_arrays_at_the_opset_asked_for():
    x = np.float32([[1, -2], [3, 4]])
    node = helper.make_node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)
    (y,) = run_node(node, [x], opset=11)
    np.testing.assert_array_equal(y, np.float32([-1, 7]))
    outputs = run_node(helper.make_node("Add", ["a", "b"], ["sum"]), {"a": x, "b": np.float32(1)})
    np.testing.assert_array_equal(outputs.sum, x + 1)
    doubled = run_node(helper.make_node("Add", ["a", "a"], ["sum"]), [np.float64([1]), np.float64([1])])
    assert doubled[0].dtype == np.float64


def branching() -> onnx.ModelProto:
    """An If whose branches read outer values, beside an operator that eqsat knows."""
    info = helper.make_tensor_value_info
    then = helper.make_graph([helper.make_node("Add", ["x", "h"], ["t"])], "then", [], [info("t", 1, [2])])
    other = helper.make_graph([helper.make_node("Neg", ["h"], ["e"])], "else", [], [info("e", 1, [2])])
    nodes = [
        helper.make_node("Exp", ["x"], ["h"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = [info("c", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [2])]
    graph = helper.make_graph(nodes, "branching", inputs, [info("y", TensorProto.FLOAT, [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("taken", [True, False])
def test_control_flow_stays_opaque_and_runs_with_the_values_it_captures(taken, backend):
    x = np.float32([0.5, -1])
    rep = prepare(branching(), backend=backend)
    assert [n.op for n in rep.graph.nodes] == ["exp", OPAQUE]
    expected = x + np.exp(x) if taken else -np.exp(x)
    np.testing.assert_allclose(rep.run({"c": np.bool_(taken), "x": x}).y, expected, rtol=1e-6)


def test_devices_other_than_the_cpu_are_refused():
    assert EqsatBackend.supports_device("CPU")
    assert not EqsatBackend.supports_device("CUDA:0")
    with pytest.raises(BackendError, match="no device 'CUDA'\n  expected CPU"):
        prepare(branching(), "CUDA")


def test_too_many_inputs_are_counted():
    with pytest.raises(BackendError, match="3 inputs for 2"):
        run_model(branching(), [1, 2, 3])
