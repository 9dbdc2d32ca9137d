"""The command line beside `optimize` and `costs`: inspecting, rules, and how errors end a run."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat.report.inspection import Inspection

GOLDEN = Path(__file__).parents[2] / "golden"


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
        {"name": "frob", "op": "Frob", "reason": "unknown domain 'com.example'"},
        {"name": "relu", "op": "Relu", "reason": "the type of 'f' is unknown"},
    ]
    assert [n["name"] for n in found["nodes"]] == ["product", "frob", "relu"]


@pytest.fixture
def odd(folder):
    """A model of nodes that cannot be read for one reason on values of different names, and one that holds graphs."""
    then = helper.make_graph([helper.make_node("Relu", ["a"], ["t"])], "then", [], [_info("t")])
    twice = [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Relu", ["r"], ["e"])]
    other = helper.make_graph(twice, "other", [], [_info("e")])
    nodes = [
        helper.make_node("Frob", ["x"], ["a"], domain="com.example"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Relu", ["a"], ["c"], name="another"),
        helper.make_node("Sqrt", ["x"], ["s"]),
        helper.make_node("Choose", ["p"], ["i"], domain="com.example", first=then, second=other),
    ]
    inputs = [_info("x"), helper.make_tensor_value_info("p", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "odd", inputs, [_info(name) for name in "bcsi"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    path = folder / "odd.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4])


def test_what_stays_opaque_is_counted_by_operator_with_the_reason(run, odd):
    code, out, err = run("inspect", "--opaque", odd)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert lines[0].endswith("odd.onnx: 7 of 8 nodes opaque, 88 %")
    assert "Relu 2 – – 25 % the type of input 0 is unknown" in lines
    assert "com.example.Frob 1 – – 12 % unknown domain 'com.example'" in lines
    assert "com.example.Choose 1 3 – 50 % unknown domain 'com.example'" in lines


def test_of_a_body_that_is_read_only_what_is_opaque_in_it_counts(run, folder):
    body = helper.make_graph(
        [
            helper.make_node("Tanh", ["v"], ["t"]),
            helper.make_node("Frob", ["t"], ["f"], domain="com.example"),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            _info("v"),
        ],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), _info("f")],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    inputs = [helper.make_tensor_value_info("n", TensorProto.INT64, []), _info("x")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    path = folder / "loop.onnx"
    graph = helper.make_graph([loop], "loop", inputs, [_info("y")])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    _, out, _ = run("inspect", "--opaque", path)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0].endswith("loop.onnx: 2 of 3 nodes opaque, 67 %")
    assert "com.example.Frob 1 – – 33 % unknown domain 'com.example'" in lines
    assert any(line.startswith("Loop 1 – 2 33 % how often it runs is known at run time") for line in lines)


def test_what_stays_opaque_in_several_models_is_added_up_as_json(run, odd, model):
    code, out, _ = run("inspect", "--opaque", "--json", odd, model, odd)
    found = json.loads(out)
    assert code == 0
    assert [(Path(m["model"]).name, m["nodes"], m["opaque"]) for m in found["models"]] == [
        ("odd.onnx", 8, 7),
        ("small.onnx", 3, 2),
    ]
    relu = next(o for o in found["all"]["operators"] if o["operator"] == "Relu")
    assert relu == {
        "domain": "ai.onnx",
        "operator": "Relu",
        "count": 3,
        "nodes_within": 0,
        "nodes_read_within": 0,
        "share": 3 / 11,
        "reasons": {"the type of input 0 is unknown": 3},
    }
    assert found["all"]["share"] == 9 / 11


def test_a_model_that_cannot_be_read_is_named_and_the_others_are_listed(run, model):
    code, out, err = run("inspect", "--opaque", "missing.onnx", model)
    assert code == 2
    assert err.startswith("error: missing.onnx: the file cannot be read")
    assert "2 of 3 nodes opaque" in out


def test_a_model_without_opaque_nodes_says_so(run, folder):
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "plain", [_info("x")], [_info("y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "plain.onnx")
    assert run("inspect", "--opaque", "plain.onnx") == (0, "plain.onnx: 1 node, none opaque\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "missing.onnx"], "missing.onnx: the file cannot be read"),
        (["inspect"], "Missing argument 'IN.onnx...'"),
        (["inspect", "a.onnx", "b.onnx"], "2 models, and one is shown at a time"),
        (["inspect", "--opaque", "--nodes", "a.onnx"], "--opaque lists operators by their number"),
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

    monkeypatch.setattr(Inspection, "of", broken)
    code, _, err = run("inspect", model)
    assert (code, err.splitlines()[0]) == (1, "error: unexpected ZeroDivisionError: division by zero")
    assert "--debug" in err
    assert "Traceback" not in err
    assert "Traceback" in run("inspect", model, "--debug")[2]


def test_warnings_are_one_line_without_their_place_in_the_code(run, model, folder, monkeypatch):
    monkeypatch.setenv("EQSAT_COST_TABLE", str(folder / "costs.sqlite3"))
    import warnings

    read = Inspection.of

    def warn(graph, sizes):
        warnings.warn("the weights hold NaN", stacklevel=1)
        return read(graph, sizes)

    monkeypatch.setattr(Inspection, "of", warn)
    assert run("inspect", model)[2] == "warning: the weights hold NaN\n"
