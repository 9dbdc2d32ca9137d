"""Choices of minus infinity as sums with a mask: true ones are proved, false ones are not, and attention is found."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import eqsat
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.choices.cases import states_choice
from eqsat.rewrites.theories.choices.products import states_hidden_product
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


PRODUCT = "mul(matmul(q, transpose({keys}, perm=(0, 1, 3, 2))), s)"
KEYS = "where(reshape(c, shape=(dim(c, 0), 1, dim(c, 3), 1)), k, fill(shape=(), value=0.0, dtype=dtype(k)))"
LEFT, NONE = f"where(c, {PRODUCT.format(keys='k')}, n)", "fill(shape=(), value=0.0, dtype=dtype(k))"
RIGHT = f"add({PRODUCT.format(keys=KEYS)}, where(c, {NONE}, n))"
RANKS = "rank(q) == 4, rank(k) == 4, rank(c) == 4, rank(s) == 0, rank(n) == 0, dim(c, 1) == 1, dim(c, 2) == 1"
SPREADS_NOTHING = f"shape({KEYS}) == shape(k), shape({LEFT}) == shape({RIGHT})"
HIDES = f"{LEFT} => {RIGHT} if {RANKS}, is_all(s, 0.25), finite(q), {SPREADS_NOTHING}"


@pytest.mark.parametrize(
    ("old", "new", "true"),
    [
        ("", "", True),
        ("finite(q), ", "", False),  # of infinities times 0
        ("finite(q), ", "finite(k), ", False),
        (f"shape({KEYS}) == shape(k), ", "", False),  # keys that are spread over batches
        ("dim(c, 2) == 1", "dim(c, 0) == 1", False),  # other keys for each query
        ("dim(c, 1) == 1, ", "", False),
        ("is_all(s, 0.25)", "is_all(s, 0.0)", False),
        ("is_all(s, 0.25), ", "", False),
        ("dim(c, 3), 1)), k", "1, dim(c, 3))), k", False),  # of widths in the place of keys
        ("shape=(dim(c, 0), 1, dim(c, 3), 1)", "shape=(1, dim(c, 0), dim(c, 3), 1)", False),
        ("value=0.0", "value=1.0", False),
        (f"where(c, {NONE}, n)) if", f"where(c, n, {NONE})) if", False),
        (f", k, {NONE})", f", {NONE}, k)", False),
        ("=> add(", "=> sub(", False),
        ("rank(c) == 4", "rank(c) == 3", False),
    ],
)  # fmt: skip
def test_a_choice_of_scores_is_one_of_keys_only_where_it_varies_along_keys(old: str, new: str, true: bool) -> None:
    text = HIDES if not old else HIDES.replace(old, new)
    assert (text == HIDES) is (not old)
    (rule,) = parse_rules(f"%phase expand\none: {text}", "a test", origin="identity")
    assert states_hidden_product(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


@given(
    number=st.sampled_from([-1e9, float(np.finfo(np.float32).min), -5.0, 3.0]),
    kept_if_true=st.booleans(),
    turned=st.booleans(),
    batch=st.sampled_from([1, 2]),
    heads=st.sampled_from([1, 4]),
    seed=st.integers(0, 99),
)
@settings(max_examples=8, deadline=None)
def test_keys_hidden_by_a_large_number_are_attention_of_other_keys_that_is_the_same_where_all_are_hidden(
    number: float, kept_if_true: bool, turned: bool, batch: int, heads: int, seed: int
) -> None:
    builder, random = eqsat.Graph("hidden"), np.random.default_rng(seed)
    q, v = (builder.input(name, (batch, 4, 48, 16), "float32") for name in "qv")
    k = builder.input("k", (batch, 48, 4, 16) if turned else (batch, 4, 48, 16), "float32")
    # Heads come before keys in the choice: where keys come first, it is no reshape of the same order.
    keep = builder.input("keep", (batch, 1 if turned else heads, 1, 48), "float32") > 0.0
    scores = (q @ k.transpose(*((0, 2, 3, 1) if turned else (0, 1, 3, 2)))) * 0.25
    hidden = builder.constant(np.float32(number))
    masked = eqsat.where(keep, scores, hidden) if kept_if_true else eqsat.where(keep, hidden, scores)
    builder.output("y", eqsat.softmax(masked, axis=3) @ v)
    graph = builder.build()
    result = eqsat.optimize(graph, device="onnxruntime-cpu", measure=False, cache=False, opset=23)
    assert "attention" in {node.op for node in result.graph.nodes}
    inputs: dict[str, Any] = {
        name: random.standard_normal(tuple(map(int, graph.type(name).shape))).astype(np.float32)  # type: ignore[union-attr, arg-type]
        for name in graph.inputs
    }
    inputs["keep"][0, 0] = -1.0 if kept_if_true else 1.0  # no key is left
    wanted, found = (select("numpy").compile(g).run(inputs)["y"] for g in (graph, result.graph))
    assert np.allclose(wanted, found, rtol=1e-4, atol=1e-5)
    assert np.allclose(wanted, result.run(**inputs)["y"], rtol=1e-4, atol=1e-5)
