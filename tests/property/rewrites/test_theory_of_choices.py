"""Choices of minus infinity as sums with a mask: true ones are proved, false ones are not, and attention is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.choices.cases import states_choice
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.runtime.backend import select

ZERO = "fill(shape=(), value=0.0, dtype=dtype(x))"
MASKED = f"shape(where(c, x, n)) == shape(add(x, where(c, {ZERO}, n)))"
ADDED = f"where(c, x, n) => x + where(c, {ZERO}, n)"
APART = "where(c, x + y, x + z) => x + where(c, y, z)"


@pytest.mark.parametrize(
    ("text", "true"),
    [
        (f"{ADDED} if finite(x), is_minus_infinity(n), {MASKED}", True),
        (f"{ADDED} if finite(x), is_all(n, 0.0), {MASKED}", False),
        (f"{ADDED} if finite(x), is_all(n, -1e9), {MASKED}", False),
        (f"{ADDED} if is_minus_infinity(n), {MASKED}", False),
        (f"{ADDED} if finite(x), {MASKED}", False),
        (f"{ADDED} if finite(x), is_minus_infinity(n)", False),
        (f"where(c, x, n) => x + where(c, n, {ZERO}) if finite(x), is_minus_infinity(n), "
         f"shape(where(c, x, n)) == shape(add(x, where(c, n, {ZERO})))", False),
        (f"where(c, x, n) => x - where(c, {ZERO}, n) if finite(x), is_minus_infinity(n), "
         f"shape(where(c, x, n)) == shape(sub(x, where(c, {ZERO}, n)))", False),
        ("where(c, n, n) => n - n if is_minus_infinity(n), shape(where(c, n, n)) == shape(sub(n, n))", False),
        (f"{APART} if finite(x, y, z), shape(where(c, add(x, y), add(x, z))) == shape(add(x, where(c, y, z)))", True),
        (f"{APART} if finite(x, y), shape(where(c, add(x, y), add(x, z))) == shape(add(x, where(c, y, z)))", False),
        ("where(not_(c), x, y) => where(c, y, x) if finite(x, y), "
         "shape(where(not_(c), x, y)) == shape(where(c, y, x))", True),
        ("where(not_(c), x, y) => where(c, x, y) if finite(x, y), "
         "shape(where(not_(c), x, y)) == shape(where(c, x, y))", False),
    ],
)  # fmt: skip
def test_an_equation_is_proved_only_where_every_case_is_the_same(text: str, true: bool) -> None:
    (rule,) = parse_rules(f"%phase expand\none: {text}", "a test", origin="identity")
    assert states_choice(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


@pytest.mark.parametrize("kept_if_true", [True, False])
@pytest.mark.parametrize("number", [-np.inf, -1e9])
def test_scores_hidden_by_choice_are_attention_only_where_they_are_hidden_by_minus_infinity(
    number: float, kept_if_true: bool
) -> None:
    builder = eqsat.Graph("masked")
    q, k, v = (builder.input(name, (2, 4, 16, 8), "float32") for name in "qkv")
    keep = builder.constant(np.tril(np.ones((16, 16), bool)) == kept_if_true)
    scores, hidden = q @ k.transpose(0, 1, 3, 2) * 0.25, builder.constant(np.float32(number))
    masked = eqsat.where(keep, scores, hidden) if kept_if_true else eqsat.where(keep, hidden, scores)
    builder.output("y", eqsat.softmax(masked, axis=3) @ v)
    graph = builder.build()
    result = eqsat.optimize(graph, device="onnxruntime-cpu", measure=False, cache=False, opset=23)
    assert ("attention" in {node.op for node in result.graph.nodes}) is bool(np.isinf(number))
    random = np.random.default_rng(0)
    inputs: dict[str, Any] = {name: random.standard_normal((2, 4, 16, 8), np.float32) for name in "qkv"}
    first, second = (select("numpy").compile(g).run(inputs)["y"] for g in (graph, result.graph))
    assert np.allclose(first, second, rtol=1e-4, atol=1e-5)
