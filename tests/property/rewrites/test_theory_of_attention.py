"""Attention in random spellings: what is proved computes the same, and what computes something else is not proved."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.attention.proof import states_attention
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.spelled import in_float64
from eqsat.runtime.backend import select

COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))
B, G, R, Q, K, D, E = 2, 3, 2, 5, 7, 4, 6


def parsed(body: str) -> Rule:
    (rule,) = parse_rules(f"%phase expand\nspelled: {body}", "a test", origin="identity")
    return rule


def about(**shapes: tuple[int, ...]) -> str:
    ranks = [f"rank({name}) == {len(shape)}" for name, shape in shapes.items()]
    return ", ".join([*ranks, *(f"dim({n}, {a}) == {d}" for n, s in shapes.items() for a, d in enumerate(s))])


#: Spellings that are attention, with their operands' shapes.
GROUPED = {"q": (B, G * R, Q, D), "k": (B, G, K, D), "v": (B, G, K, E)}
REPEATED = "reshape(expand(reshape({0}, shape=(2, 3, 1, 7, {1})), shape=(2, 3, 2, 7, {1})), shape=(2, 6, 7, {1}))"
LEFT = (
    f"matmul(softmax(matmul(q, transpose({REPEATED.format('k', D)}, perm=(0, 1, 3, 2))), axis=3), "
    f"{REPEATED.format('v', E)})"
)
RIGHT = "attention(q, k, v, scale=1.0, causal=False, hidden='nan')"


def test_repeated_heads_are_shared_ones():
    rule = parsed(f"{LEFT} => {RIGHT} if {about(**GROUPED)}")
    assert states_attention(rule)
    evidence = theory_evidence(rule)
    assert evidence.verdict == "proved"
    assert evidence.entailed == "both sides are one average of values by shares of the same scores"


@pytest.mark.parametrize(
    "wrong",
    [
        "attention(q, k, v, scale=0.5, causal=False, hidden='nan')",
        "attention(q, k, v, scale=1.0, causal=True, hidden='nan')",
        "attention(q, k, v, scale=1.0, causal=False, hidden='zero')",
        "attention(q, k, v, scale=1.0, causal=False, hidden='none')",
        "attention(q, reshape(transpose(k, perm=(0, 2, 1, 3)), shape=(2, 3, 7, 4)), v, scale=1.0, hidden='nan')",
        "attention(reshape(q, shape=(2, 2, 3, 20)), k, v, scale=1.0, hidden='nan')",
        # Heads that are repeated all after each other, not each by itself.
        "attention(reshape(transpose(reshape(q, shape=(2, 3, 2, 5, 4)), perm=(0, 2, 1, 3, 4)), shape=(2, 6, 5, 4)), k, "
        "v, scale=1.0, causal=False, hidden='nan')",
    ],
)
def test_another_attention_is_not_proved(wrong):
    try:
        rule = parsed(f"{LEFT} => {wrong} if {about(**GROUPED)}")
    except eqsat.EqsatError:
        return
    assert not states_attention(rule)


def test_that_no_query_is_without_keys_has_to_be_known():
    shapes = about(q=(2, 3, 5, 4), k=(2, 3, 7, 4), v=(2, 3, 7, 4), m=(2, 1, 1, 7))
    left = "matmul(softmax(add(matmul(q, transpose(k, perm=(0, 1, 3, 2))), m), axis=3), v)"
    guarded = left.replace("softmax", "where(isnan(softmax").replace(", axis=3), v)", ", axis=3)), z, SOFT), v)")
    soft = left.removeprefix("matmul(").removesuffix(", v)")
    guarded = guarded.replace("SOFT", soft)
    number = "rank(z) == 0, is_all(z, 0.0)"
    right = "attention(q, k, v, m, scale=1.0, causal=False, hidden={!r})"

    def proved(one: str, hidden: str, *more: str) -> bool:
        return states_attention(parsed(f"{one} => {right.format(hidden)} if {', '.join([shapes, *more])}"))

    assert proved(left, "nan")
    assert not proved(left, "zero")
    assert not proved(left, "none")
    # Inputs count as finite, and may hide all keys with the least float all the same.
    assert not proved(left, "none", "finite(q, k, m)")
    assert not proved(left, "none", "hidden(k, q, m) == 'none'")
    assert proved(left, "none", "finite(q, k)", "hidden(k, q, m) == 'none'")
    # Of scores that are no numbers for another reason, the guard makes 0, and attention does not.
    for hidden in ("nan", "zero", "none"):
        assert not proved(guarded, hidden, number)
        assert not proved(guarded, hidden, number, "finite(q, k)")
        assert proved(guarded, hidden, number, "finite(q, k, m)") == (hidden == "nan")
    assert proved(guarded, "none", number, "finite(q, k)", "hidden(k, q, m) == 'none'")
    assert not proved(guarded, "nan", number.replace("0.0", "1.0"), "finite(q, k, m)")


@st.composite
def spelled(draw: st.DrawFn) -> tuple[eqsat.Graph, dict[str, np.ndarray]]:
    """A model of one attention, and inputs: with heads apart, joined to others or in the batch, scaled somewhere."""
    seed, batch, groups = draw(st.integers(0, 999)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    shared, tokens, keys = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(2, 5))
    depth, width, layout = (
        draw(st.integers(2, 3)),
        draw(st.integers(2, 3)),
        draw(st.sampled_from(["heads", "tokens", "batch"])),
    )
    heads, g, rng = groups * shared, eqsat.Graph("spelled"), np.random.default_rng(seed)
    inputs: dict[str, np.ndarray] = {}

    def given(name: str, count: int, length: int, size: int) -> eqsat.Tensor:
        shapes = {
            "heads": (batch, count, length, size),
            "tokens": (batch, length, count * size),
            "batch": (batch * count, length, size),
        }
        inputs[name] = rng.standard_normal(shapes[layout]).astype(np.float32)
        x = g.input(name, shapes[layout])
        if layout == "tokens":
            return eqsat.transpose(eqsat.reshape(x, shape=(batch, length, count, size)), perm=(0, 2, 1, 3))
        return eqsat.reshape(x, shape=(batch, count, length, size)) if layout == "batch" else x

    def repeated(x: eqsat.Tensor, size: int) -> eqsat.Tensor:
        if shared == 1:
            return x
        wide = eqsat.expand(
            eqsat.reshape(x, shape=(batch, groups, 1, keys, size)), shape=(batch, groups, shared, keys, size)
        )
        return eqsat.reshape(wide, shape=(batch, heads, keys, size))

    q = given("q", heads, tokens, depth)
    k, v = repeated(given("k", groups, keys, depth), depth), repeated(given("v", groups, keys, width), width)
    turned = eqsat.transpose(k, perm=(0, 1, 3, 2))
    if draw(st.booleans()):  # as exporters do that know products of three axes alone
        flat = eqsat.transpose(eqsat.reshape(k, shape=(batch * heads, keys, depth)), perm=(0, 2, 1))
        turned = eqsat.reshape(flat, shape=(batch, heads, depth, keys))
    where = draw(st.sampled_from(["queries", "keys", "both", "scores", "divided", "nowhere"]))
    q = q * 0.75 if where in ("queries", "both") else q
    turned = turned * 0.5 if where in ("keys", "both") else turned
    scores = q @ turned
    scores = scores * 0.25 if where == "scores" else scores / 3.0 if where == "divided" else scores
    for number in range(draw(st.integers(0, 2))):
        shape = draw(
            st.sampled_from(
                [(batch, 1, 1, keys), (1, heads, tokens, keys), (tokens, keys), (keys,), (batch, 1, tokens, keys)]
            )
        )
        inputs[f"m{number}"] = rng.standard_normal(shape).astype(np.float32)
        scores = scores + g.input(f"m{number}", shape)
    shares = eqsat.softmax(scores, axis=draw(st.sampled_from([3, -1])))
    if draw(st.booleans()):
        shares = eqsat.where(eqsat.isnan(shares), 0.0, shares)
    g.output("y", shares @ v)
    return g, inputs


@settings(COMMON, max_examples=20)
@given(spelled())
def test_any_spelling_is_one_attention_that_computes_the_same(model):
    g, inputs = model
    graph = g.build()
    result = eqsat.optimize(graph, device="onnxruntime-cpu", opset=23, measure=False, cache=False, strict=True)
    assert not result.report.failure
    before, after = (select("numpy").compile(one).run(inputs)["y"] for one in (graph, result.graph))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    fired = [name for name in result.report.rules_fired if name.startswith(("attention", "norm"))]
    assert any(name.startswith("attention") for name in fired), graph


def texts() -> list[str]:
    """Right sides by small changes of a true one: orders of axes, sizes, operands and numbers."""
    rng, found = random.Random(0), []
    turned = ", ".join(f"transpose({name}, perm=(0, 2, 1, 3))" for name in "qkv")
    base = f"attention({turned}, m, scale=0.5, causal=False, hidden='nan')"
    for _ in range(60):
        text = base
        for _ in range(rng.randint(0, 2)):
            kind = rng.choice(["perm", "swap", "scale", "mask"])
            if kind == "perm":
                perms = list(re.finditer(r"perm=\([^)]*\)", text))
                one, order = rng.choice(perms), rng.sample(range(4), 4)
                text = text[: one.start()] + f"perm={tuple(order)}" + text[one.end() :]
            elif kind == "swap":
                a, b = rng.sample("qkv", 2)
                text = text.replace(f"({a},", "(other,").replace(f"({b},", f"({a},").replace("(other,", f"({b},")
            elif kind == "scale":
                text = text.replace("scale=0.5", rng.choice(["scale=0.5", "scale=0.25", "scale=1.0"]))
            else:
                text = text.replace(", m,", rng.choice([", m,", ", transpose(m, perm=(1, 0, 2, 3)),", ", "]))
        found.append(text)
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("right", texts())
def test_whatever_is_proved_computes_the_same(right):
    """All sizes are the same, so nothing but the proof tells axes apart."""
    shape = (3, 3, 3, 3)
    scores = "mul(matmul(transpose(q, perm=(0, 2, 1, 3)), transpose(k, perm=(0, 2, 3, 1))), c)"
    left = f"matmul(softmax(add({scores}, m), axis=3), transpose(v, perm=(0, 2, 1, 3)))"
    conditions = f"{about(q=shape, k=shape, v=shape, m=shape)}, rank(c) == 0, is_all(c, 0.5)"
    rule = parsed(f"{left} => {right} if {conditions}")
    rng = np.random.default_rng(1)
    values = {name: rng.standard_normal(shape) for name in "qkvm"} | {"c": np.float64(0.5)}
    one, other = (in_float64(side, values) for side in (rule.left[0], rule.right[0]))
    assert one is not None
    assert other is not None
    assert states_attention(rule) == bool(np.allclose(one, other, rtol=1e-9))
