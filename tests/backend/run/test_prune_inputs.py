"""Inputs that nothing reads stay in the signature of a result, unless they are to leave it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.errors import BackendError, UsageError


def value(name, shape=("batch", 4)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def made(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, "parts", [value(i) for i in inputs], [value(o) for o in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def two_parts():
    """Two outputs, each of an input of its own."""
    nodes = [helper.make_node("Relu", ["a"], ["left"]), helper.make_node("Tanh", ["b"], ["right"])]
    return made(nodes, ["a", "b"], ["left", "right"])


def cancelled():
    """One input takes no part in the result, since it is added and subtracted."""
    nodes = [
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Add", ["r", "b"], ["more"]),
        helper.make_node("Sub", ["more", "b"], ["y"]),
    ]
    return made(nodes, ["a", "b"], ["y"])


def session_inputs(path):
    return [i.name for i in onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()]


CASES = {
    "dead by outputs": (two_parts, {"outputs": ["left"]}, "left"),
    "dead by rewriting": (cancelled, {}, "y"),
}


@pytest.mark.parametrize("case", CASES)
def test_dead_inputs_stay_in_the_signature(case, folder):
    model, options, output = CASES[case]
    result = eqsat.optimize(model(), measure=False, **options)
    result.save("kept.onnx")
    a, b = np.ones((2, 2, 4), np.float32)
    assert session_inputs("kept.onnx") == ["a", "b"]
    assert result.run(a=a, b=b)[output].tolist() == np.maximum(a, 0).tolist()


@pytest.mark.parametrize("case", CASES)
def test_dead_inputs_leave_the_signature_on_request(case, folder):
    model, options, output = CASES[case]
    result = eqsat.optimize(model(), measure=False, prune_inputs=True, **options)
    result.save("pruned.onnx")
    a = np.ones((2, 4), np.float32)
    assert session_inputs("pruned.onnx") == ["a"]
    assert [i.name for i in result.to_onnx().graph.input] == ["a"]
    assert result.run(a=a)[output].tolist() == a.tolist()
    with pytest.raises(BackendError, match=r"unknown input 'b'"):
        result.run(a=a, b=a)


def test_an_original_that_is_kept_loses_its_dead_inputs_too(folder):
    model = two_parts()
    model.graph.input.append(value("unused"))
    onnx.save(model, "model.onnx")
    for options, names in (({}, ["a", "b", "unused"]), ({"prune_inputs": True}, ["a", "b"])):
        result = eqsat.optimize("model.onnx", measure=False, **options)
        assert result.report.kept == "original"
        result.save("kept.onnx")
        assert session_inputs("kept.onnx") == names


def test_a_run_that_fails_keeps_an_original_without_dead_inputs(monkeypatch):
    def broken(*_arguments, **_more):
        raise RuntimeError("broken")

    model = two_parts()
    model.graph.input.append(value("unused"))
    monkeypatch.setattr("eqsat.run.grow", broken)
    result = eqsat.optimize(model, prune_inputs=True)
    assert result.report.failure
    assert result.graph.inputs == ("a", "b")


def test_the_default_of_a_dead_input_leaves_with_it():
    """An initializer that is an input too is a default that callers may override."""
    default = numpy_helper.from_array(np.ones((2, 4), np.float32), "b")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["y"])], "g", [value("a"), value("b", (2, 4))], [value("y")], [default]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    kept = eqsat.optimize(model, measure=False).to_onnx()
    pruned = eqsat.optimize(model, measure=False, prune_inputs=True).to_onnx()
    assert [t.name for t in kept.graph.initializer] == ["b"]
    assert (len(pruned.graph.initializer), [i.name for i in pruned.graph.input]) == (0, ["a"])


def test_an_input_that_a_branch_captures_is_alive():
    """Only the body of an If reads it, and the body's own inputs are those of its node."""
    then, other = (
        helper.make_graph([helper.make_node(op, ["b"], [op])], op, [], [value(op)]) for op in ("Relu", "Tanh")
    )
    nodes = [helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "branches", [flag, value("a"), value("b")], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = eqsat.optimize(model, measure=False, prune_inputs=True)
    assert result.graph.inputs == ("flag", "b")
    b = np.ones((2, 4), np.float32)
    assert result.run(flag=np.array(True), b=b)["y"].tolist() == b.tolist()


def test_a_plan_for_a_gpu_loses_its_dead_inputs():
    result = eqsat.optimize(cancelled(), device="nvidia-h200", prune_inputs=True)
    assert result.plan is not None
    assert result.plan.graph.inputs == result.graph.inputs == ("a",)
    assert result.gpu_program() is not None


def test_an_explored_model_is_pruned_by_the_same_option():
    explorer = eqsat.explore(cancelled(), prune_inputs=True)
    explorer.grow()
    assert explorer.optimize(measure=False).graph.inputs == ("a",)


def test_buckets_and_pruned_inputs_do_not_go_together():
    with pytest.raises(UsageError, match="buckets and prune_inputs"):
        eqsat.optimize(cancelled(), buckets={"batch": [1, 8]}, prune_inputs=True)


def test_buckets_keep_dead_inputs():
    result = eqsat.optimize(cancelled(), buckets={"batch": [1, 8]}, measure=False)
    assert all(one.graph.inputs == ("a", "b") for one in result.results.values())


def test_the_command_line_prunes_inputs(run, folder):
    onnx.save(cancelled(), "model.onnx")
    code, _, err = run("optimize", "model.onnx", "-o", "out.onnx", "--no-measure", "--prune-inputs")
    assert (code, err) == (0, "")
    assert session_inputs("out.onnx") == ["a"]
