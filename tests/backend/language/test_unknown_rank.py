"""Values of known element type and unknown rank, as loops and dynamic branches make them: costed, and kept."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import ModelProto, parser

import eqsat

SOURCES = {
    "a loop": """r = Loop(m, cond, x)<body = b (int64 i, bool c, float[?] v) => (bool d, float[?] u) {
        d = Identity(c) \n e = Add(v, v) \n u = Unsqueeze(e, zero) }>""",
    "a branch": """r = If(cond)<then_branch = t() => (float[a, b] o) { o = Neg(x) },
        else_branch = e() => (float[f] p) { p = ReduceSum<keepdims = 0>(x) }>""",
}
CHAINS = {
    "two of one operand": "a = Relu(r) \n y = Sigmoid(a)",
    "two that cancel": "a = Neg(r) \n y = Neg(a)",
    "the same operand twice": "a = Relu(r) \n y = Max(a, a)",
    "a normalisation": "a = BatchNormalization(r, c, c, c, c) \n y = Max(a, a)",
    "windows": "a = Neg(r) \n b = Neg(a) \n e = MaxPool<kernel_shape = [2, 2], ceil_mode = 1>(b) \n y = Relu(e)",
    "one of ONNX Runtime's own": "y = com.microsoft.SkipLayerNormalization(r, r, c)",
    "rows of a quantised table": "a = Cast<to = 2>(r) \n y = com.microsoft.GatherBlockQuantized(a, zero, c)",
    "a product": "a = Add(r, r) \n b = MatMul(a, w) \n y = Mul(b, c)",
}


def model(source: str, chain: str) -> ModelProto:
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g
        (float[2, 4] x, bool cond, int64 m, float[4, 5] w, float[4, 5, 4] p, float[4, 5, 4] q)
        => (float[?] y, float[4, 5, 5] z) <float[1] c = {{2}}, int64[1] zero = {{0}}> {{
            {SOURCES[source]} \n {CHAINS[chain]} \n t = Transpose<perm = [0, 2, 1]>(q) \n z = MatMul(p, t) }}"""
    )


@pytest.mark.parametrize("device", ["onnxruntime-cpu", "nvidia-h200"])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("source", SOURCES)
def test_operators_on_values_of_unknown_rank_stay(source: str, chain: str, device: str) -> None:
    """Nothing is known of what they cost, and nothing can be drawn to check them by."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = eqsat.optimize(model(source, chain), measure=False, device=device)
    kinds = [n.op_type for n in result.to_onnx().graph.node]
    assert source.split()[1] in [{"Loop": "loop", "If": "branch"}.get(k) for k in kinds]


def test_what_follows_a_loop_of_unknown_rank_runs_as_before() -> None:
    given = model("a loop", "two of one operand")
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 4), "w": (4, 5), "p": (4, 5, 4), "q": (4, 5, 4)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds |= {"cond": np.array(True), "m": np.array(3)}
    made = eqsat.optimize(given, measure=False).run(**feeds)
    assert np.allclose(made["y"], 1 / (1 + np.exp(-np.maximum(8 * feeds["x"], 0))), atol=1e-6)
    assert np.allclose(made["z"], feeds["p"] @ feeds["q"].transpose(0, 2, 1), atol=1e-5)


def test_a_rank_that_the_model_states_further_on_is_not_asked_for_before() -> None:
    """A reduction moves before the transpose whose result alone is declared; a rule then asks for the rank there."""
    source = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 7]> g (float[5, 4, 4] x) => (float[5, 4, 4] y, float[a, b, c] z)
        <float[p, q, r] t> { y, k = Dropout(x) \n l = Abs(k) \n t = Transpose<perm = [2, 0, 1]>(l)
            z = ReduceMean<axes = [0, 2], keepdims = 1>(t) }"""
    )
    result = eqsat.optimize(source, measure=False)
    assert not result.report.failure
    assert [n.op for n in result.graph.nodes][-1] in ("reduce_mean", "transpose")
