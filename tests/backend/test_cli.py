"""The command line beside `optimize` and `costs`: inspecting, rules, and how errors end a run."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import eqsat.commands.inspect

GOLDEN = Path(__file__).parents[1] / "golden"


pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def model(folder):
    """A model with a named dim, a weight and a node of an unknown domain."""
    w = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Frob", ["h"], ["f"], name="frob", domain="com.example"),
        helper.make_node("Relu", ["f"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(nodes, "small", [x], [y], [w])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    path = folder / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_version_and_help(run):
    assert run("--version")[:2] == (0, "eqsat 0.1.0\n")
    code, out, _ = run("--help")
    assert code == 0
    for command in ("optimize", "inspect", "costs", "rules", "extract"):
        assert command in out
        assert run(command, "--help")[0] == 0


def test_a_command_that_does_not_exist(run):
    code, _, err = run("improve")
    assert (code, err) == (2, "error: No such command 'improve'.\n  see eqsat --help\n")


def test_inspect_prints_what_a_model_consists_of(run, model):
    code, out, _ = run("inspect", model, "--nodes", "--size", "batch=2")
    text = "\n".join(line.rstrip() for line in out.splitlines()) + "\n"
    assert code == 0
    assert text == (GOLDEN / "inspect.txt").read_text(encoding="utf-8")


def test_inspect_as_json(run, model):
    code, out, _ = run("inspect", model, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["inputs"] == {"x": "float32[batch, 8]"}
    assert found["outputs"] == {"y": "float32[batch, 4]"}
    assert found["named_dims"] == {"batch": 16}
    assert found["operators"]["matmul"] == {"count": 1, "flops": 2 * 16 * 8 * 4, "bytes": 4 * (16 * 8 + 8 * 4 + 16 * 4)}
    assert found["opaque"] == [
        {"name": "frob", "op": "Frob", "reason": "operator of domain 'com.example'"},
        {"name": "relu", "op": "Relu", "reason": "the type of 'f' is unknown"},
    ]
    assert [n["name"] for n in found["nodes"]] == ["product", "frob", "relu"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "missing.onnx"], "missing.onnx: the file cannot be read"),
        (["inspect"], "Missing argument 'IN.onnx'"),
        (["rules", "verify", "missing.rules"], "Invalid value for '[FILE]...'"),
        (["rules", "verify", "bad.rules"], "bad.rules:1"),
    ],
)
def test_bad_input_is_one_clear_error(run, arguments, message):
    Path("bad.rules").write_text("wrong: relu(x => x\n")
    code, _, err = run(*arguments)
    assert code == 2
    assert err.rpartition("error: ")[2].startswith(message)
    assert "Traceback" not in err


def test_rules_are_verified(run):
    Path("mine.rules").write_text("both-negated: (-x) * (-y) => x * y if floating(x)\n")
    code, out, _ = run("rules", "verify", "mine.rules")
    assert (code, out) == (0, "1 rule checked, 1 proved\n")


def test_a_false_rule_is_refuted_with_a_counterexample(run):
    Path("mine.rules").write_text("wrong: relu(-x) => -relu(x) if floating(x)\n")
    code, out, err = run("rules", "verify", "mine.rules")
    assert code == 2
    assert out.startswith("refuted wrong: ")
    assert "error: 1 rule not proved: wrong" in err


def test_debug_shows_the_traceback_of_bad_input(run):
    code, _, err = run("inspect", "missing.onnx", "--debug")
    assert code == 2
    assert "Traceback (most recent call last)" in err
    assert "error: missing.onnx: the file cannot be read" in err


def test_a_fault_of_eqsat_is_short_and_says_how_to_see_more(run, model, monkeypatch):
    def broken(graph, sizes):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(eqsat.commands.inspect, "inspection", broken)
    code, _, err = run("inspect", model)
    assert (code, err.splitlines()[0]) == (1, "error: unexpected ZeroDivisionError: division by zero")
    assert "--debug" in err
    assert "Traceback" not in err
    assert "Traceback" in run("inspect", model, "--debug")[2]


def test_warnings_are_one_line_without_their_place_in_the_code(run, model, folder, monkeypatch):
    monkeypatch.setenv("EQSAT_COST_TABLE", str(folder / "costs.sqlite3"))
    import warnings

    read = eqsat.commands.inspect.inspection

    def warn(graph, sizes):
        warnings.warn("the weights hold NaN", stacklevel=1)
        return read(graph, sizes)

    monkeypatch.setattr(eqsat.commands.inspect, "inspection", warn)
    assert run("inspect", model)[2] == "warning: the weights hold NaN\n"
