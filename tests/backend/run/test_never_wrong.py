"""What happens to a run that came to something wrong, or that failed: the original, and a report that says why."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.errors import CertificateError, GraphError
from eqsat.rewrites.rules.parser import parse_rules

SHUFFLE = (
    "shuffle: reshape(transpose(reshape(x, shape=(2, dim(x, 0) // 2)), perm=(1, 0)), shape=(dim(x, 0),)) => x "
    "if rank(x) == 1, dim(x, 0) % 2 == 0"
)


def shuffled(last: bool) -> eqsat.Graph:
    """Every other element first, and the ReLU of that, or the shuffle itself as the output."""
    g = eqsat.Graph("shuffled")
    x = g.input("x", (8,))
    y = eqsat.reshape(eqsat.transpose(eqsat.reshape(x, (2, 4)), (1, 0)), (8,))
    g.output("y", y if last else eqsat.relu(y))
    return g


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_a_false_rule_about_an_input_is_found_out_and_left_out(last: bool, measure: bool) -> None:
    """The rule is true of up to two elements; the certificate took what it says of an input for granted."""
    result = eqsat.optimize(shuffled(last), rules=parse_rules(SHUFFLE), measure=measure)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(result.run(x=x)["y"], x.reshape(2, 4).T.ravel())
    assert (result.report.kept, result.report.refuted, result.report.failure) == ("original", ("shuffle",), "")
    (warning,) = [w for w in result.report.warnings if "begun anew" in w]
    assert "differ from the original by" in warning
    assert warning.endswith("begun anew without the rules behind it: shuffle")


def test_strict_raises_what_is_wrong() -> None:
    with pytest.raises(CertificateError, match=r"rules behind it: shuffle \(1\)") as caught:
        eqsat.optimize(shuffled(False), rules=parse_rules(SHUFFLE), measure=False, strict=True)
    assert caught.value.rules == ("shuffle",)


def test_true_rules_do_their_work_when_a_false_one_is_left_out() -> None:
    g = eqsat.Graph("g")
    x = g.input("x", (16,))
    g.output("y", eqsat.relu(eqsat.relu(eqsat.tanh(x))))
    rules = parse_rules("forget-tanh: tanh(x) => x\nrelu-twice: relu(relu(x)) => relu(x)")
    result = eqsat.optimize(g, rules=rules, measure=False)
    assert result.report.operators_after == {"relu": 1, "tanh": 1}
    assert result.report.refuted == ("forget-tanh",)


def test_a_rule_that_makes_two_types_equal_is_left_out() -> None:
    """Nothing is cut off axes as short as rules are drawn on."""
    g = eqsat.Graph("g")
    x = g.input("x", (6, 3))
    g.output("y", eqsat.relu(eqsat.relu(eqsat.slice(x, starts=(0,), ends=(4,), axes=(0,)))))
    cut = "uncut: slice(x, starts=(0,), ends=(4,), axes=(0,)) => x if rank(x) == 2, dim(x, 1) < 4"
    result = eqsat.optimize(g, rules=parse_rules(f"{cut}\nrelu-twice: relu(relu(x)) => relu(x)"), measure=False)
    assert result.report.operators_after == {"relu": 1, "slice": 1}
    assert result.report.refuted == ("uncut",)


def model() -> onnx.ModelProto:
    g = eqsat.Graph("model")
    x = g.input("x", (4, 4))
    g.output("y", eqsat.relu(eqsat.relu(x)))
    return eqsat.optimize(g, rules=[], measure=False).to_onnx()


def broken(*_given: Any, **_more: Any) -> Any:
    raise ZeroDivisionError("planted")


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("growing.encode", "saturate"),
        ("choosing.tensor_problem", "saturate"),
        ("choosing.limited", "extract"),
        ("certifying.kept", "certify"),
    ],
)
def test_an_exception_keeps_the_original(
    name: str, phase: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any
) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(), source)
    monkeypatch.setattr(f"eqsat.steps.{name}", broken)
    code, out, err = run("optimize", source, "-o", target, "--no-measure")
    assert code == 3
    assert f"failed: {phase}: unexpected ZeroDivisionError: planted; the original was kept" in out
    assert "Traceback" not in err
    assert target.read_bytes() == source.read_bytes()
    code, _, err = run("optimize", source, "-o", target, "--no-measure", "--debug")
    assert code == 3
    assert "ZeroDivisionError: planted" in err
    assert "Traceback" in err
    with pytest.raises(ZeroDivisionError, match="planted"):
        eqsat.optimize(source, measure=False, strict=True)
    report = eqsat.optimize(source, measure=False).report
    assert report.failure == f"{phase}: unexpected ZeroDivisionError: planted"
    assert report.to_json()["failure"] == report.failure


def test_an_exception_while_writing_writes_the_original(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any
) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(), source)
    monkeypatch.setattr("eqsat.report.result.Result.save", broken)
    code, out, _ = run("optimize", source, "-o", target, "--no-measure")
    assert code == 3
    assert "failed: write: unexpected ZeroDivisionError: planted; the original was kept" in out
    assert target.read_bytes() == source.read_bytes()


def test_a_page_that_cannot_be_made_costs_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any) -> None:
    source, target, page = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "page.html"
    onnx.save(model(), source)
    monkeypatch.setattr(importlib.import_module("eqsat.explorer.explorer").Explorer, "grow", broken)
    code, out, _ = run("optimize", source, "-o", target, "--html", page, "--no-measure")
    assert code == 0
    assert "no page was written: unexpected ZeroDivisionError: planted" in out
    assert len(onnx.load(target).graph.node) == 1
    assert not page.exists()


def test_a_wrong_region_that_cannot_be_blamed_ends_with_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any
) -> None:
    """A fault of the check itself, or of what reads the choice back: no rule is behind it."""
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(), source)

    def refusing(*_given: Any, **_more: Any) -> Any:
        raise CertificateError("planted", where="here")

    monkeypatch.setattr("eqsat.steps.trials.certify_graphs", refusing)
    code, out, _ = run("optimize", source, "-o", target, "--no-measure")
    assert code == 3
    assert "failed: certify: here: planted; the original was kept" in " ".join(out.split())
    assert target.read_bytes() == source.read_bytes()


def test_exceptions_of_the_callers_own_functions_are_raised() -> None:
    def stop(_progress: object) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        eqsat.optimize(model(), measure=False, progress=stop)
    with pytest.raises(GraphError, match="no output 'z'"):
        eqsat.optimize(model(), measure=False, outputs=["z"])


def scaled(mean: float) -> eqsat.Graph:
    """Features normalised before a product: the mean is moved behind it, where digits are lost."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("scaled")
    x = g.input("x", (256, 64))
    c, w = g.constant(np.full(64, mean, np.float32)), g.constant(rng.standard_normal((64, 64)).astype(np.float32))
    g.output("y", (x - c) @ w + g.constant(rng.standard_normal(64).astype(np.float32)))
    return g


def difference_last(application: Any) -> float:
    """A cost by which nothing is taken off before a product."""
    return 2.0 if application.op in ("sub", "gemm") else 1.0


@pytest.mark.parametrize(("mean", "kept"), [(0.5, "ilp"), (1e4, "original"), (1e6, "original")])
def test_digits_that_a_sum_loses_at_large_means_are_not_given_up(mean: float, kept: str) -> None:
    # The difference behind the product is the cheapest form on any machine, whatever was measured there.
    report = eqsat.optimize(scaled(mean), measure=False, cost=difference_last).report
    assert report.kept == kept
    told = [w for w in report.warnings if "on inputs near the constants that it takes off them" in w]
    assert bool(told) == (kept == "original")


def of_model(nodes: Sequence[onnx.NodeProto], inputs: Any, outputs: Any, **constants: np.ndarray) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_integer_and_boolean_outputs_are_compared() -> None:
    """A rule that is true of floats, and not of the integers that a model makes of them."""
    tensor = helper.make_tensor_value_info
    made = of_model(
        [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Greater", ["t", "c"], ["y"])],
        [tensor("x", TensorProto.FLOAT, [512])],
        [tensor("y", TensorProto.BOOL, [512])],
        c=np.float32([0.5]),
    )
    result = eqsat.optimize(made, rules=parse_rules("forget-tanh: tanh(x) => x"), measure=False)
    assert result.report.kept == "original"
    assert result.report.refuted == ("forget-tanh",)


def test_rounding_on_purpose_is_kept() -> None:
    """X + 1.5 · 2^23 - 1.5 · 2^23 is x to the nearest integer."""
    g = eqsat.Graph("rounding")
    x = g.input("x", (32,))
    magic = g.constant(np.float32([12582912.0]))
    g.output("y", (x + magic) - magic)
    result = eqsat.optimize(g, measure=False)
    assert result.report.operators_after == {"add": 1, "sub": 1}
    values = np.float32([0.4, 0.6, 2.5, -1.7] * 8)
    np.testing.assert_array_equal(result.run(x=values)["y"], np.rint(values))


def test_a_model_that_asks_for_nan_is_given_it() -> None:
    tensor = helper.make_tensor_value_info
    made = of_model(
        [helper.make_node("Sub", ["x", "x"], ["d"]), helper.make_node("IsNaN", ["d"], ["y"])],
        [tensor("x", TensorProto.FLOAT, [3])],
        [tensor("y", TensorProto.BOOL, [3])],
    )
    x = np.float32([np.inf, 1, np.nan])
    assert eqsat.optimize(made, measure=False).run(x=x)["y"].tolist() == [True, False, True]
    zero = of_model(
        [helper.make_node("Mul", ["x", "c"], ["y"])],
        [tensor("x", TensorProto.FLOAT, [3])],
        [tensor("y", TensorProto.FLOAT, [3])],
        c=np.float32([0.0]),
    )
    strict = eqsat.optimize(zero, measure=False, finite_math=False).run(x=x)["y"]
    np.testing.assert_array_equal(strict, np.float32([np.nan, 0, np.nan]))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_constants_that_leave_their_range_when_folded_leave_the_original(scale: float) -> None:
    g = eqsat.Graph("range")
    x = g.input("x", (200, 80))
    a, b = (g.constant(np.full((80, 80), s, np.float32)) for s in (scale, scale))
    g.output("y", x @ a @ b)
    result = eqsat.optimize(g, measure=False)
    assert (result.report.kept, result.report.failure) == ("original", "")


@pytest.mark.parametrize("operator", ["BatchNormalization", "LayerNormalization"])
def test_a_shift_is_not_taken_out_from_under_an_infinite_gain(operator: str) -> None:
    """0 times infinity is NaN, where what the sum had rounded to 0 comes out as infinity without it."""
    tensor = helper.make_tensor_value_info
    x = np.float32([[1e-9, 2e-9]])
    shift = {"c": np.float32([1, 1]), "g": np.float32([np.inf, np.inf]), "b": np.float32([0, 0])}
    names = ["s", "g", "b"]
    if operator == "LayerNormalization":
        shift["c"] = np.float32([1])
    else:
        shift |= {"m": np.float32([1, 1]), "v": np.float32([1, 1])}
        names += ["m", "v"]
    made = of_model(
        [helper.make_node("Add", ["x", "c"], ["s"]), helper.make_node(operator, names, ["y"])],
        [tensor("x", TensorProto.FLOAT, [1, 2])],
        [tensor("y", TensorProto.FLOAT, [1, 2])],
        **shift,
    )
    for finite_math in (None, False):
        result = eqsat.optimize(made, measure=False, finite_math=finite_math)
        assert np.isnan(result.run(x=x)["y"]).all()
        assert not any("left out" in warning for warning in result.report.warnings)
