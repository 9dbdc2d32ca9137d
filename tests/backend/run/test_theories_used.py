"""Sums, products and einsums in better forms, from the call to the report."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

import eqsat
from eqsat.options.options import Options
from eqsat.report.result import Result
from eqsat.run import Run
from eqsat.steps.growing import Grown

SHAPE = (64, 128)


def grown(g: eqsat.Graph) -> Grown:
    """The e-graph of a graph, grown within a number of steps."""
    options = Options(device="onnxruntime-cpu", measure=False, steps=300_000)
    run = Run.read(g.build(), options)
    return run.saturate(run.rules)


def operators(result: Result) -> list[str]:
    return [node.op for node in result.graph.nodes]


def planned(build: object, count: int, device: str = "nvidia-h200") -> Result:
    g = eqsat.Graph("sums")
    g.output("y", build(*(g.input(f"x{n}", SHAPE) for n in range(count))))  # type: ignore[operator]
    return eqsat.optimize(g, device=device, measure=False, cache=False)


def test_a_common_factor_of_many_terms_is_taken_out() -> None:
    result = planned(lambda a, *terms: reduce(add, [a * x for x in terms]), 13)
    assert operators(result).count("mul") == 1
    assert result.report.certificate.kind == "exact"


def test_a_polynomial_is_computed_by_horners_scheme() -> None:
    result = planned(lambda x: 0.5 + x * 0.25 + x**2.0 * 2.0 + x**3.0 * 1.5 + x**4.0 * 0.75, 1)
    assert sorted(operators(result)) == ["add"] * 4 + ["mul"] * 4
    x = np.linspace(-2, 2, 64 * 128, dtype=np.float32).reshape(SHAPE)
    wanted = 0.5 + x * 0.25 + x**2 * 2 + x**3 * 1.5 + x**4 * 0.75
    np.testing.assert_allclose(result.compile("numpy")(x0=x)["y"], wanted, rtol=1e-4, atol=1e-4)


def test_the_rule_behind_it_is_shown_with_its_proof() -> None:
    result = planned(lambda a, b: a * a + 2.0 * (a * b) + b * b, 2)
    assert sorted(operators(result)) == ["add", "mul"]
    told = str(result.explain())
    assert "identity-" in told
    assert "both sides are one polynomial" in told


def test_a_chain_in_index_notation_is_multiplied_in_the_order_of_least_work() -> None:
    g = eqsat.Graph("chain")
    a, b, c = (g.input(name, shape) for name, shape in (("a", (128, 256)), ("b", (256, 128)), ("c", (128, 4))))
    g.output("y", eqsat.einsum("ij,jk,kl->il", a, b, c))
    result = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False)
    assert operators(result) == ["matmul", "matmul"]
    assert result.graph.nodes[0].inputs == ("b", "c")
    assert "both sides are one sum of products over the same indices" in str(result.explain())


SPELLED = {
    "gelu": lambda x: x * (0.5 + 0.5 * eqsat.erf(x / 2.0**0.5)),
    "silu": lambda x: x * 0.5 * (1.0 + eqsat.tanh(x * 0.5)),
    "tanh": lambda x: (eqsat.exp(2.0 * x) - 1.0) / (eqsat.exp(2.0 * x) + 1.0),
    "softplus": lambda x: eqsat.relu(x) + eqsat.log(1.0 + eqsat.exp(-abs(x))),
    "elu": lambda x: eqsat.relu(x) + eqsat.minimum(eqsat.exp(x) - 1.0, 0.0),
    "leaky_relu": lambda x: eqsat.relu(x) - 0.1 * eqsat.relu(-x),
    "hard_swish": lambda x: x * eqsat.clip(x + 3.0, 0.0, 6.0) / 6.0,
    "abs": lambda x: eqsat.maximum(x, -x),
}


@pytest.mark.parametrize("name", SPELLED)
def test_a_function_that_is_spelled_out_is_one_operator(name: str) -> None:
    result = planned(SPELLED[name], 1)
    assert operators(result) == [name]
    assert "both sides are one function of an operand" in str(result.explain())
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32) * 4
    g = eqsat.Graph("spelled")
    g.output("y", SPELLED[name](g.input("x0", SHAPE)))
    wanted = eqsat.optimize(g, rules=[], measure=False, cache=False).run(x0=x)["y"]
    np.testing.assert_allclose(result.compile("numpy")(x0=x)["y"], wanted, rtol=2e-5, atol=1e-5)


def centred(x: eqsat.Tensor) -> eqsat.Tensor:
    return x - eqsat.reduce_mean(x, -1, keepdims=True)


def moments(x: eqsat.Tensor) -> eqsat.Tensor:
    mean = eqsat.reduce_mean(x, -1, keepdims=True)
    return (x - mean) / eqsat.sqrt(eqsat.reduce_mean(x * x, -1, keepdims=True) - mean * mean + 1e-5)


NORMS = {
    "layer_norm": moments,
    "rms_norm": lambda x: x * ((eqsat.reduce_sum(x * x, -1, keepdims=True) / 128.0 + 1e-6) ** -0.5),
    "softmax": lambda x: eqsat.exp(centred(x)) / eqsat.reduce_sum(eqsat.exp(centred(x)), -1, keepdims=True),
    "log_softmax": lambda x: x - eqsat.reduce_log_sum_exp(x, axes=(1,)),
    "lp_norm": lambda x: x / eqsat.reduce_l2(x, axes=(1,)),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_normalisation_that_is_spelled_out_is_one_operator(name: str) -> None:
    result = planned(NORMS[name], 1)
    assert operators(result) == [name]
    if name != "softmax":  # which rules name as well
        assert "both sides are one function of the elements of rows" in str(result.explain())
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    g = eqsat.Graph("spelled")
    g.output("y", NORMS[name](g.input("x0", SHAPE)))
    wanted = eqsat.optimize(g, rules=[], measure=False, cache=False).run(x0=x)["y"]
    np.testing.assert_allclose(result.compile("numpy")(x0=x)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_equal_blocks_are_named_alike_and_once() -> None:
    g = eqsat.Graph("blocks")
    h, rng = g.input("x", SHAPE), np.random.default_rng(0)
    for _ in range(4):
        gain, weight = rng.standard_normal(128).astype(np.float32), rng.standard_normal((128, 128)).astype(np.float32)
        h = eqsat.relu((moments(h) * gain) @ weight)
    g.output("y", h)
    result = eqsat.optimize(g, device="nvidia-h200", measure=False, cache=False)
    assert operators(result).count("layer_norm") == 4
    assert len([rule for rule in result.report.rules_fired if rule.startswith("norm-")]) < 4


def test_a_function_with_another_constant_is_not_that_function() -> None:
    result = planned(lambda x: x * (0.5 + 0.5 * eqsat.erf(x / 1.41)), 1)
    assert "gelu" not in operators(result)


def test_a_constant_of_float32_is_not_the_root_of_2_in_float64() -> None:
    g = eqsat.Graph("double")
    x = g.input("x", SHAPE, "float64")
    g.output("y", x * (0.5 + 0.5 * eqsat.erf(x / g.constant(np.float64(np.sqrt(2.0))))))
    result = eqsat.optimize(g, device="nvidia-h200", measure=False, cache=False)
    assert not any(rule.startswith("function-") for rule in result.report.rules_fired)


def test_a_scale_of_a_product_is_one_operator() -> None:
    g = eqsat.Graph("scaled")
    x, scaled = g.input("x", SHAPE), g.constant((0.1 * np.eye(128)).astype(np.float32))
    g.output("y", eqsat.relu(x @ scaled))
    result = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False)
    assert sorted(operators(result)) == ["mul", "relu"]


def test_a_sum_of_products_is_computed_with_the_least_work() -> None:
    g = eqsat.Graph("trace")
    a, b, eye = g.input("a", (64, 96)), g.input("b", (96, 64)), g.constant(np.eye(64, dtype=np.float32))
    g.output("y", eqsat.reduce_sum((a @ b) * eye, (0, 1)))
    result = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False)
    made = [result.graph.type(value) for node in result.graph.nodes for value in node.outputs]
    assert (64, 64) not in [type.shape for type in made]  # the product itself
    x, y = (np.random.default_rng(0).random(shape, np.float32) for shape in ((64, 96), (96, 64)))
    np.testing.assert_allclose(result.run(a=x, b=y)["y"], np.trace(x @ y), rtol=1e-4)


def test_infinities_that_a_model_asks_for_stop_it() -> None:
    g = eqsat.Graph("asked")
    x, y, z = (g.input(f"x{n}", SHAPE) for n in range(3))
    g.output("y", x * y + x * z)
    g.output("n", eqsat.isnan(x))
    result = eqsat.optimize(g, device="nvidia-h200", measure=False, cache=False)
    assert operators(result).count("mul") == 2


def test_rules_of_ones_own_bring_no_theory() -> None:
    g = eqsat.Graph("own")
    x, y, z = (g.input(f"x{n}", SHAPE) for n in range(3))
    g.output("y", x * y + x * z)
    result = eqsat.optimize(g, device="nvidia-h200", measure=False, cache=False, rules=[])
    assert operators(result).count("mul") == 2


def test_a_softmax_that_overflows_as_it_is_written_is_still_one() -> None:
    """Of large numbers the original makes NaN even in float64: it has no answer that a result could be far from."""
    result = planned(lambda x: eqsat.exp(x) / eqsat.reduce_sum(eqsat.exp(x), 1, keepdims=True), 1, "onnxruntime-cpu")
    assert operators(result) == ["softmax"]


def test_heads_that_share_keys_are_written_at_the_opset_that_has_them() -> None:
    """Finalists are compared as they are written, at the opset that was asked for."""
    g = eqsat.Graph("grouped")
    q, k, v = g.input("q", (1, 8, 64, 32)), g.input("k", (1, 2, 64, 32)), g.input("v", (1, 2, 64, 32))
    wide = [eqsat.expand(eqsat.reshape(t, shape=(1, 2, 1, 64, 32)), shape=(1, 2, 4, 64, 32)) for t in (k, v)]
    keys, values = (eqsat.reshape(t, shape=(1, 8, 64, 32)) for t in wide)
    g.output("y", eqsat.softmax(q @ eqsat.transpose(keys, perm=(0, 1, 3, 2)) * 0.25, axis=-1) @ values)
    result = eqsat.optimize(g, device="onnxruntime-cpu", opset=23, measure=False, cache=False, strict=True)
    assert operators(result) == ["attention"]
    assert result.graph.nodes[0].inputs[:3] == ("q", "k", "v")
    assert [node.op_type for node in result.to_onnx().graph.node] == ["Attention"]


def test_the_bias_of_every_step_is_added_to_the_product_of_all_steps() -> None:
    rng = np.random.default_rng(0)
    w, u = (rng.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(2))
    b = rng.standard_normal(64).astype(np.float32)
    g = eqsat.Graph("steps")
    x, h = g.input("x", (6, 1, 64)), g.input("h", (1, 64))
    for t in range(6):
        h = eqsat.tanh((x[t] @ g.constant(w) + h @ g.constant(u)) + g.constant(b))
    g.output("y", h)
    result = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False)
    assert operators(result).count("add") + operators(result).count("gemm") <= 8
    feeds = {"x": rng.standard_normal((6, 1, 64)).astype(np.float32), "h": np.zeros((1, 64), np.float32)}
    wanted = feeds["h"]
    for t in range(6):
        wanted = np.tanh(feeds["x"][t] @ w + wanted @ u + b)
    np.testing.assert_allclose(result.compile("numpy")(**feeds)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_an_input_that_is_added_behind_a_slice_is_an_addend() -> None:
    """What is no operator has no attributes that a term could state."""
    g = eqsat.Graph("inputs")
    w, u, b = (
        g.constant(np.random.default_rng(n).standard_normal(s).astype(np.float32))
        for n, s in enumerate([(16, 16), (16, 16), (16,)])
    )
    x, h, more = g.input("x", (3, 1, 16)), g.input("h", (1, 16)), g.input("more", (1, 16))
    for step in range(3):
        h = eqsat.tanh((x @ w)[step] + h @ u + (more + b))
    g.output("y", h)
    report = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False, strict=True).report
    assert not report.failure


def test_the_gate_of_an_output_is_read_beside_what_rules_made_of_it() -> None:
    """Rules bring other readers of 1 - r: the sum that it was given in is still one polynomial."""
    steps, rng = 2, np.random.default_rng(0)
    g = eqsat.Graph("gates")
    x, cell = g.input("x", (steps, 1, 64)), g.input("c", (1, 64))
    w, wf, wr = (g.constant(rng.standard_normal((64, 64)).astype(np.float32) / 8) for _ in range(3))
    bf, br = (g.constant(rng.standard_normal(64).astype(np.float32)) for _ in range(2))
    outputs = []
    for t in range(steps):
        f, r = eqsat.sigmoid(x[t] @ wf + bf), eqsat.sigmoid(x[t] @ wr + br)
        cell = f * cell + (1.0 - f) * (x[t] @ w)
        outputs.append(r * eqsat.tanh(cell) + (1.0 - r) * x[t])
    g.output("y", eqsat.stack(outputs, axis=0))
    fired = grown(g).saturation.fired
    assert sum(often for name, often in fired.items() if name.startswith("identity-")) == 2 * steps


def test_vectors_are_turned_by_transposes_which_products_take_in() -> None:
    g = eqsat.Graph("weighed")
    x, u, v = g.input("x", (512, 512)), g.input("u", (512, 1)), g.input("v", (1, 512))
    g.output("y", eqsat.reduce_sum(x * (u @ v), [0, 1], keepdims=True))
    result = eqsat.optimize(g, device="onnxruntime-cpu", measure=False, cache=False)
    assert sorted(node.op for node in result.graph.nodes) == ["matmul", "matmul", "transpose", "transpose"]
