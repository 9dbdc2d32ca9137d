"""The pipeline end to end, on real graphs, real rules and real sessions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import eqsat
from benchmarks.models import load
from benchmarks.models.sru import sru_text_classifier
from eqsat.costs.model.asked import Application
from eqsat.errors import CertificateError, GraphError, RuleError, UnsoundRuleError, UsageError
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.runtime.backend import execute

FAST = {"measure": False}


def products(steps: int = 4) -> eqsat.Graph:
    """A shared weight applied to each step of a sequence."""
    g = eqsat.Graph("products")
    x = g.input("x", (steps, 1, 8))
    w = g.constant(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))
    parts = eqsat.split(x, [1] * steps, axis=0)
    g.output("y", eqsat.concat([eqsat.tanh(p @ w) for p in parts], axis=0))
    return g


def model_of(graph: eqsat.Graph) -> onnx.ModelProto:
    return eqsat.optimize(graph, rules=[], **FAST).to_onnx()


def outputs_of(model: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def test_a_shared_weight_over_time_is_applied_once() -> None:
    model = sru_text_classifier(hidden=32)
    result = eqsat.optimize(model, **FAST)
    assert result.report.operators_before["matmul"] == 60
    assert result.report.operators_after["matmul"] <= 3
    assert result.report.cost_after < result.report.cost_before
    assert result.report.lower_bound <= result.report.cost_after
    assert result.report.certificate.kind in ("exact", "mixed")
    (name,) = (i.name for i in model.graph.input)
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    expected = outputs_of(model, **{name: x})
    for want, got in zip(expected, result.run(**{name: x}).values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    for want, got in zip(expected, outputs_of(result.to_onnx(), **{name: x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert any("matmul" in str(c) for c in result.explain().changes)


def test_the_argument_is_not_changed_and_the_bytes_are_the_same_each_time() -> None:
    model = sru_text_classifier(steps=8, hidden=16)
    before = model.SerializeToString(deterministic=True)
    first, second = (eqsat.optimize(model, seed=3, **FAST).to_onnx().SerializeToString() for _ in range(2))
    assert model.SerializeToString(deterministic=True) == before
    assert first == second


def test_a_planted_wrong_rule_is_caught_and_named() -> None:
    wrong = parse_rules("forget-tanh: tanh(x) => x")
    with pytest.raises(CertificateError, match=r"forget-tanh \(4\)") as caught:
        eqsat.optimize(products(), rules=wrong, strict=True, **FAST)
    assert "the original is unchanged" in str(caught.value)


def test_a_users_own_rule_is_proved_before_it_is_used() -> None:
    with pytest.raises(UnsoundRuleError, match="forget-tanh"):
        eqsat.optimize(products(), rules="forget-tanh: tanh(x) => x", **FAST)
    result = eqsat.optimize(
        products(), rules="tanh-is-odd: tanh(concat(*xs, axis=k)) => concat(*[tanh(x) for x in xs], axis=k)", **FAST
    )
    assert result.report.certificate.kind != "float64"


def test_rules_that_are_not_proved_for_every_size_take_part_where_they_are_trusted() -> None:
    g = eqsat.Graph("looked-up")
    ids = g.input("i", (2, 3), dtype="int64")
    table = g.constant(np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32))
    g.output("y", eqsat.one_hot(ids, np.array([0, 1], np.float32), depth=64) @ table)
    proved = eqsat.optimize(g, **FAST).report
    assert proved.cost_after == proved.cost_before and not proved.rules_bounded
    result = eqsat.optimize(g, trust="bounded", **FAST)
    bounded = result.report.rules_bounded
    assert result.report.cost_after < proved.cost_after
    assert bounded and set(bounded) <= {*result.explain().grounds}
    assert not any(result.explain().grounds[name].is_for_every_size for name in bounded)
    assert "not proved for every size, but true of what was tried" in str(result.report)
    # A user's own are refused instead.
    text = "single: max_pool(x, kernel=(1, 1)) => x"
    with pytest.raises(RuleError, match="not proved for every size"):
        eqsat.optimize(g, rules=text, **FAST)
    with pytest.raises(UsageError, match="trust = 'most'"):
        eqsat.optimize(g, trust="most", **FAST)


def _likes_large(applied: Application) -> float:
    return 1.0 / applied.results[0].elements({}) if applied.op == "tanh" and applied.results[0] else 0.0


def test_a_slower_choice_is_never_returned() -> None:
    """A cost function that likes slow graphs: every finalist it brings up loses to the original when measured."""
    bloat = parse_rules(
        "bloat: tanh(x) => slice(tanh(concat(x, x, axis=0)), starts=(0,), ends=(dim(x, 0),), axes=(0,), steps=(1,)) "
        "if dim(x, 0) < 10000"
    )
    g = eqsat.Graph("wide")
    x = g.input("x", (4096, 256))
    g.output("y", eqsat.tanh(x))
    result = eqsat.optimize(g, rules=bloat, cost=_likes_large)
    assert result.report.kept == "original"
    assert [n.op for n in result.graph.nodes] == ["tanh"]


def test_a_graph_that_amplifies_rounding_is_kept_as_it_is() -> None:
    """Equal in the reals, and useless in float32: a difference of equal products is nothing but rounding."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("amplified")
    x = g.input("x", (64, 256))
    v, w = (rng.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    product = (v.astype(np.float64) @ w).astype(np.float32)
    g.output("y", (x @ g.constant(v)) @ g.constant(w) - x @ g.constant(product))
    rules = parse_rules("together: (x @ y) @ z => x @ (y @ z) if constant(y, z), rank(y) == 2, rank(z) == 2")
    for measure in (False, True):
        report = eqsat.optimize(g, rules=rules, measure=measure).report
        assert report.kept == "original"
        assert any("rounding moves its output 'y' by" in w for w in report.warnings)


@pytest.mark.parametrize("measure", [False, True])
def test_rounding_that_one_draw_does_not_show_is_found(measure: bool) -> None:
    """The weights of this network are all equal, and its logits huge: a mean in another order decides its softmax."""
    model = load("light_squeezenet")
    result = eqsat.optimize(model, seed=0, measure=measure)
    for seed in range(1, 4):
        x = np.random.default_rng(seed).standard_normal((1, 3, 224, 224)).astype(np.float32)
        for want, got in zip(outputs_of(model, data_0=x), result.run(data_0=x).values(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3)


def test_the_original_is_kept_where_no_rule_applies() -> None:
    result = eqsat.optimize(products(), rules=[])
    assert result.report.measured_bound in (None, 1.0) or result.report.measured_bound < 1
    assert result.report.rules_fired == {}


def test_an_opaque_operator_is_kept_and_the_rest_optimised() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Mystery", ["b"], ["c"], domain="com.example", name="who", strength=3),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [2])], [info("y", TensorProto.FLOAT, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)])
    result = eqsat.optimize(model, rules=parse_rules("twice: relu(relu(x)) => relu(x)"), **FAST)
    assert result.report.opaque[0].name == "who"
    kinds = [n.op_type for n in result.to_onnx().graph.node]
    # The second pair keeps both: nothing is known of the type of what the opaque operator makes.
    assert kinds[:2] == ["Relu", "Mystery"]
    assert next(n for n in result.to_onnx().graph.node if n.op_type == "Mystery").attribute[0].i == 3


def test_named_dims_run_at_any_size() -> None:
    g = eqsat.Graph("dynamic")
    x = g.input("x", ("batch", 4))
    g.output("y", eqsat.relu(eqsat.relu(x)) @ g.constant(np.eye(4, dtype=np.float32)[:, :3]))
    result = eqsat.optimize(g, **FAST)
    for batch in (0, 1, 5):
        data = np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32)
        np.testing.assert_allclose(result.run(x=data)["y"], np.maximum(data, 0)[:, :3], rtol=1e-6)


def test_outputs_restrict_the_graph() -> None:
    g = eqsat.Graph("two")
    x = g.input("x", (2,))
    g.output("a", eqsat.relu(x))
    g.output("b", eqsat.tanh(x))
    result = eqsat.optimize(g, outputs=["b"], **FAST)
    assert list(result.graph.outputs) == ["b"]
    assert [n.op for n in result.graph.nodes] == ["tanh"]
    with pytest.raises(GraphError, match="no output 'c'"):
        eqsat.optimize(g, outputs=["c"], **FAST)


@pytest.mark.parametrize("name", ["node_limit", "time_limit", "threads"])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_of_zero_or_below_are_refused(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"{name} = {value}"):
        eqsat.optimize(products(), **{name: value})


def test_an_interruption_returns_the_best_so_far() -> None:
    result = eqsat.optimize(products(), should_stop=lambda: True, **FAST)
    assert result.report.stopped_by == "interrupted"
    assert result.run(x=np.zeros((4, 1, 8), np.float32))["y"].shape == (4, 1, 8)


def test_greedy_is_an_extractor_and_an_unknown_one_is_refused() -> None:
    assert eqsat.optimize(products(), extractor="greedy", **FAST).report.extraction == "heuristic"
    with pytest.raises(UsageError, match="no extractor 'magic'"):
        eqsat.optimize(products(), extractor="magic", **FAST)


def test_progress_is_told_by_phase() -> None:
    seen: list[eqsat.Progress] = []
    eqsat.optimize(products(), progress=seen.append, **FAST)
    phases = [p.phase for p in seen]
    assert [p for i, p in enumerate(phases) if i == 0 or phases[i - 1] != p][:3] == ["read", "saturate", "extract"]
    assert any(p.best is not None for p in seen)


def test_a_device_that_is_not_here_is_costed_but_not_measured(tmp_path: Path) -> None:
    result = eqsat.optimize(products(), device="nvidia-h200")
    assert result.report.measured_before is None
    assert result.report.estimated_share == 1.0
    assert any("nvidia-h200 is not this machine" in w for w in result.report.warnings)
    result.save(tmp_path / "out.onnx")
    onnx.checker.check_model(str(tmp_path / "out.onnx"))


def test_what_cannot_be_checked_is_not_returned() -> None:
    g = eqsat.Graph("huge")
    x = g.input("x", (1, 1))
    wide = g.apply("expand", x, shape=(1 << 14, 1 << 14))
    g.output("y", eqsat.reduce_sum(eqsat.relu(eqsat.relu(wide)), axes=(0, 1)))
    result = eqsat.optimize(g, rules=parse_rules("twice: relu(relu(x)) => relu(x)"), **FAST)
    assert result.report.kept == "original"
    assert any("too many to check" in w for w in result.report.warnings)


def test_an_infinite_gain_is_not_folded_into_a_filter() -> None:
    """Infinity · x + (b − infinity · m) is NaN where the normalisation is infinite (ONNX Runtime folds it itself)."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("infinite")
    x = g.input("x", (1, 2, 4, 4))
    w = g.constant(rng.standard_normal((1, 2, 3, 3)).astype(np.float32))
    gain, bias, mean, variance = (g.constant(np.float32([v])) for v in (np.inf, 0.0, 0.5, 1.0))
    g.output("y", g.apply("batch_norm", eqsat.conv(x, w), gain, bias, mean, variance, epsilon=1e-5))
    data = rng.standard_normal((1, 2, 4, 4)).astype(np.float32)
    got = execute(eqsat.optimize(g, **FAST).graph, {"x": data}, "numpy")["y"]
    assert np.isinf(got).all()
