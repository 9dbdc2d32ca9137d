"""The coverage benchmark: what is opaque by time, how models are counted, and how a run goes on after Ctrl-C."""

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from benchmarks.coverage import __main__ as command
from benchmarks.coverage.sources import Source
from benchmarks.coverage.tables import is_covered, summary
from benchmarks.coverage.times import coverage


def _model(path, nodes, *, size=64):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", size]) for n in "xy"]
    weight = onnx.numpy_helper.from_array(np.ones((size, size), np.float32), "w")
    graph = helper.make_graph(nodes, path.stem, info[:1], info[1:], [weight])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _distances(folder):
    """A product, and distances by an operator of another domain that ONNX Runtime has."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("CDist", ["h", "w"], ["d"], domain="com.microsoft", metric="sqeuclidean"),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    return _model(folder / "distances.onnx", nodes)


def test_the_time_of_opaque_nodes_is_a_share_by_operator(tmp_path):
    found = coverage(_distances(tmp_path))
    shares = {f"{entry['domain']}.{entry['operator']}": entry["time"] for entry in found["operators"]}
    assert 0 < shares["com.microsoft.CDist"] < 1
    assert 0 < found["opaque_time"] < 1
    assert found["opaque_time"] == pytest.approx(sum(shares.values()), abs=1e-4)
    assert found["profiled_at"] == "n=16"


def test_a_model_without_opaque_nodes_has_no_opaque_time(tmp_path):
    found = coverage(_model(tmp_path / "plain.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])]))
    assert (found["opaque"], found["opaque_time"], found["operators"]) == (0, 0, [])


def test_an_if_whose_branch_is_known_is_not_opaque_and_what_is_opaque_in_the_branch_is(tmp_path):
    then = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("CDist", ["h", "w"], ["t"], domain="com.microsoft", metric="sqeuclidean"),
        ],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, ["n", 64])],
    )
    other = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["e"])],
        "other",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, ["n", 64])],
    )
    yes = helper.make_node("Constant", [], ["yes"], value=onnx.numpy_helper.from_array(np.array(True)))
    branch = helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other)
    found = coverage(_model(tmp_path / "branch.onnx", [yes, branch]))
    shares = {entry["operator"]: entry["time"] for entry in found["operators"]}
    assert "If" not in shares
    assert 0 < shares["CDist"] < 1


def test_of_a_loop_whose_body_is_read_its_own_time_counts_and_what_is_opaque_within(tmp_path):
    def body(nodes):
        states = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64]) for n in ("row", "out")]
        return helper.make_graph(nodes, "body", states[:1], states[1:])

    def share(name, nodes):
        scan = helper.make_node("Scan", ["x"], ["y"], body=body(nodes), num_scan_inputs=1)
        return {o["operator"]: o for o in coverage(_model(tmp_path / name, [scan]))["operators"]}

    reads = [helper.make_node("MatMul", ["row", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["out"])]
    read = share("read.onnx", reads)
    assert (read["Scan"]["count"], read["Scan"]["nodes_within"], read["Scan"]["nodes_read_within"]) == (1, 0, 2)
    assert 0 < read["Scan"]["time"] < 1
    own = [reads[0], helper.make_node("QuickGelu", ["h"], ["q"], domain="com.microsoft", alpha=1.0)]
    own += [
        helper.make_node("Inverse", ["w"], ["u"], domain="com.microsoft"),
        helper.make_node("Add", ["q", "u0"], ["out"]),
    ]
    own.insert(3, helper.make_node("ReduceMax", ["u"], ["u0"], axes=[0], keepdims=0))
    kept = share("kept.onnx", own)
    assert kept["Inverse"]["count"] == 1
    assert kept["Scan"]["nodes_read_within"] >= 3
    assert 0 < kept["Inverse"]["time"] < 1
    assert 0 < kept["Inverse"]["time"] + kept["Scan"]["time"] < 1


def test_a_model_that_cannot_be_read_says_why(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    found = coverage(tmp_path / "broken.onnx")
    assert found["imported"] is False
    assert "broken.onnx" in found["error"]


def test_models_that_are_not_covered_are_listed_with_operator_and_reason():
    entry = {"domain": "own", "operator": "Frob", "count": 2, "time": 0.25, "reasons": {"unknown domain 'own'": 2}}
    rows = [
        {"model": "a", "imported": True, "opaque": 0, "operators": [], "outcome": "faster", "new/old": 0.9},
        {"model": "b", "imported": True, "opaque": 2, "opaque_time": 0.25, "operators": [entry]},
        {"model": "c", "imported": True, "opaque": 2, "opaque_time": 0.01, "operators": [entry]},
        {"model": "d", "imported": True, "opaque": 2, "unprofiled": "no sizes", "operators": [{**entry, "time": 0.0}]},
        {"model": "e", "imported": False, "error": "no model"},
    ]
    found = summary(rows)
    assert [is_covered(row) for row in rows] == [True, False, True, False, False]
    assert (found["models"], found["imported"], found["covered"], found["faster"]) == (5, 4, 2, 1)
    assert found["not covered"] == {
        "b": "2 own.Frob, 25 % of the time: unknown domain 'own'",
        "d": "not profiled: no sizes. 2 own.Frob, 0 % of the time: unknown domain 'own'",
        "e": "no model",
    }


@pytest.fixture
def three(monkeypatch):
    """Three models of which the second is interrupted the first time; the names that were taken, in order."""
    taken = []

    def row(source, _bound):
        taken.append(source.name)
        if taken == ["a", "b"]:
            raise KeyboardInterrupt
        return {"model": source.name, "group": "made", "imported": True, "nodes_read": 3, "opaque": 0,
                "operators": [], "opaque_time": 0.0, "outcome": "faster", "new/old": 0.5, "seconds": 1.0}  # fmt: skip

    def sources(group, _python):
        return [Source(name, group, "", lambda folder: folder) for name in "abc"] if group == "made" else []

    monkeypatch.setattr(command, "sources", sources)
    monkeypatch.setattr(command, "_row", row)
    return taken


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, three):
    target = tmp_path / "coverage.json"
    arguments = ["--only", "made", "--json", str(target)]
    stopped = CliRunner().invoke(command.main, arguments)
    assert stopped.exit_code == 130
    assert json.loads(target.read_text())["pending"] == ["b", "c"]
    again = CliRunner().invoke(command.main, arguments)
    assert again.exit_code == 0
    assert three == ["a", "b", "b", "c"]
    found = json.loads(target.read_text())
    assert ([row["model"] for row in found["models"]], found["pending"]) == (["a", "b", "c"], [])
    assert "1 of 3 are done" in again.output
    assert "3 of 3 models (100 %)" in again.output


def test_a_model_that_is_not_there_is_named(three):
    done = CliRunner().invoke(command.main, ["--only", "made", "zebra"])
    assert done.exit_code == 2
    assert "no model 'zebra'; one of a, b, c" in done.output
