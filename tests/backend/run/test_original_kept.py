"""What is written where nothing better was found: the model as it was given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper, parser

import eqsat
from eqsat.errors import ExportModelError
from eqsat.rewrites.rules.parser import parse_rules

FAST = {"measure": False, "rules": []}


def given() -> ModelProto:
    """A model with much that our own writer would change: a Constant node, names, documentation."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17], producer_name: "someone">
        described (float[2, 64] x) => (float[2, 64] y, float[2, 64] z) {
            c = Constant <value_float = 2.0> ()
            h = MatMul (x, w)
            y = Mul (h, c)
            z = Tanh (h)
        }"""
    )
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.initializer[0].doc_string = "the weight"
    model.graph.node[1].name, model.graph.node[1].doc_string = "product", "x times w"
    model.metadata_props.add(key="origin", value="a test")
    return model


def kinds(model: ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


def test_a_file_comes_back_byte_by_byte(tmp_path: Path) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    # Not how protobuf would write it: an unknown field behind the model.
    source.write_bytes(given().SerializeToString() + b"\xfa\x3f\x03abc")
    result = eqsat.optimize(source, **FAST)
    assert (result.report.kept, result.source) == ("original", source)
    result.save(target)
    assert target.read_bytes() == source.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.onnx", "out.onnx"]
    assert result.to_onnx() == onnx.load(source)
    with pytest.raises(ExportModelError, match="the target is the model that was read"):
        result.save(source)


def test_a_model_comes_back_equal_and_as_a_copy(tmp_path: Path) -> None:
    model = given()
    result = eqsat.optimize(model, **FAST)
    back = result.to_onnx(tmp_path / "out.onnx")
    assert back == model == onnx.load(tmp_path / "out.onnx")
    back.graph.node[0].name = "changed"
    assert result.to_onnx() == model


def test_tensors_in_other_files_follow(tmp_path: Path) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "sub" / "out.onnx"
    target.parent.mkdir()
    onnx.save(given(), source, save_as_external_data=True, location="in.bin", size_threshold=0)
    result = eqsat.optimize(source, **FAST)
    assert result.report.kept == "original"
    result.save(target)
    back = onnx.load(target)
    assert kinds(back) == kinds(given())
    assert back.metadata_props == given().metadata_props
    assert numpy_helper.to_array(back.graph.initializer[0]).tobytes() == given().graph.initializer[0].raw_data
    assert numpy_helper.to_array(result.to_onnx().graph.initializer[0]).tobytes() == back.graph.initializer[0].raw_data
    assert sorted(p.name for p in target.parent.iterdir()) == ["out.onnx", "out.onnx.data"]
    with pytest.raises(ExportModelError, match="a data file of it"):
        result.save(tmp_path / "in.bin")


@pytest.mark.parametrize("how", ["at another opset", "some outputs", "a file that is gone"])
def test_what_was_not_given_is_written_from_the_graph(how: str, tmp_path: Path) -> None:
    source = tmp_path / "in.onnx"
    onnx.save(given(), source)
    more = {"at another opset": {"opset": 18}, "some outputs": {"outputs": ["y"]}}.get(how, {})
    result = eqsat.optimize(source, **FAST, **more)
    if how == "a file that is gone":
        source.unlink()
    back = result.to_onnx()
    onnx.checker.check_model(back, full_check=True)
    assert kinds(back) == (["MatMul", "Mul"] if how == "some outputs" else ["MatMul", "Mul", "Tanh"])
    assert back.opset_import[0].version == (18 if how == "at another opset" else 17)


def test_a_chosen_opset_may_be_the_models_own() -> None:
    assert eqsat.optimize(given(), opset=17, **FAST).to_onnx(opset=17) == given()


def test_nodes_are_counted_as_given_without_constants() -> None:
    report = eqsat.optimize(given(), **FAST).report
    assert (report.nodes_before, report.nodes_after) == (3, 3)
    assert sum(report.operators_before.values()) == 3


def test_nodes_that_do_nothing_are_dropped_where_the_rest_costs_no_more() -> None:
    model = given()
    model.graph.node.insert(2, onnx.helper.make_node("Identity", ["h"], ["again"]))
    model.graph.node[3].input[0] = "again"
    result = eqsat.optimize(model, **FAST)
    assert (result.report.nodes_before, result.report.nodes_after) == (4, 3)
    assert "fewer nodes" in result.report.kept_because
    assert kinds(result.to_onnx()) == ["MatMul", "Mul", "Tanh"]


def test_an_output_under_a_second_name_takes_a_node() -> None:
    model = given()
    model.graph.node.append(onnx.helper.make_node("Identity", ["z"], ["again"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("again", onnx.TensorProto.FLOAT, [2, 64]))
    result = eqsat.optimize(model, **FAST)
    assert result.report.nodes_after == 4 == sum(k != "Constant" for k in kinds(result.to_onnx()))


def test_what_is_not_measured_to_be_faster_is_not_written() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        wide (float[2048, 256] x) => (float[2048, 256] y) { h = Identity(x)
            y = Tanh (h) }"""
    )
    bloat = parse_rules(
        "bloat: tanh(x) => slice(tanh(concat(x, x, axis=0)), starts=(0,), ends=(dim(x, 0),), axes=(0,), steps=(1,)) "
        "if dim(x, 0) < 10000"
    )
    result = eqsat.optimize(model, rules=bloat, cost=lambda a: 0.0 if a.op in ("concat", "slice") else 1.0)
    if result.report.kept == "original":
        assert result.to_onnx() == model
    else:
        assert result.report.measured_bound is not None and result.report.measured_bound < 1
