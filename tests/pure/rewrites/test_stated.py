"""Proofs of rules whose operands have ranks that are stated, of attention, and of what is joined along a sum's axis."""

import numpy as np
import pytest

from eqsat.language.parametric.standins import with_stand_ins
from eqsat.rewrites.proof.ranks import stated_operands
from eqsat.rewrites.proof.sizes import prove_sizes
from tests.support.candidates import parsed

FLAT = (
    "softmax(q @ transpose(k, perm=(0, 2, 1)) * c, axis=2) @ v => reshape(attention("
    "reshape(q, shape=inserted(shape(q), 1, 1)), reshape(k, shape=inserted(shape(k), 1, 1)),"
    " reshape(v, shape=inserted(shape(v), 1, 1)), scale={scale}), shape=(dim(q, 0), dim(q, 1), dim(v, 2)))"
    " if {agree}is_uniform(c), rank(c) == 0"
)
CAUSAL = (
    "attention(q * c, k, v, scale=s, causal=f, hidden='none') => attention(q, k, v, scale={scale}, causal={causal},"
    " hidden='none') if s != None, is_uniform(c), rank(c) == 0"
)
MASKED = (
    "softmax(q @ transpose(k, perm=(0, 1, 3, 2)) + m, axis=3) @ v"
    " => attention(q, k, v, {mask}, scale=1.0, hidden='none') if heads_agree(q, k, v), {spans}"
)
TWICE = "concat(rms_norm(x, g, **a), rms_norm({y}, g, **a), axis=k) => rms_norm(concat(x, {y}, axis=k), g, **a)"
#: True rules.
TRUE = [
    FLAT.format(scale="number(c)", agree="stacks_agree(q, k, v), "),
    CAUSAL.format(scale="s * number(c)", causal="f"),
    MASKED.format(mask="m", spans="mask_spans(q, k, m), rank(m) == 2"),
    TWICE.format(y="x") + " if k >= a.axis, off_axis(g, k, rank(x)), rank(x) == 1",
    "reduce_mean(concat(x, x, axis=0), axes=(0,), keepdims=True) => reduce_mean(x, axes=(0,), keepdims=True)"
    " if rank(x) == 1",
    "reduce_sum(x / c, axes=(0,), keepdims=True) => reduce_sum(x, axes=(0,), keepdims=True) / c"
    " if rank(x) == 1, rank(c) == 0",
    "reduce_mean(attention(x, w, u, **a), axes=k, keepdims=True)"
    " => attention(x, w, reduce_mean(u, axes=(3,), keepdims=True), **a) if k == (3,)",
]
#: Rules that look like true ones: one condition less, another scale, another mask, other operands.
FALSE = [
    FLAT.format(scale="1.0", agree="stacks_agree(q, k, v), "),
    FLAT.format(scale="number(c)", agree="rank(q) == 3, rank(k) == 3, rank(v) == 3, "),
    CAUSAL.format(scale="s * number(c)", causal="False"),
    CAUSAL.format(scale="s", causal="f"),
    MASKED.format(mask="m + m", spans="mask_spans(q, k, m), rank(m) == 2"),
    MASKED.format(mask="m", spans="rank(m) == 5"),
    MASKED.format(mask="m", spans="rank(m) == 4"),
    TWICE.format(y="y") + " if k >= a.axis, off_axis(g, k, rank(x)), rank(x) == 1, same_shape(x, y)",
    TWICE.format(y="x") + " if k >= a.axis, rank(x) == 1",
    "reduce_sum(concat(x, x, axis=0), axes=(0,), keepdims=True) => reduce_sum(x, axes=(0,), keepdims=True)"
    " if rank(x) == 1",
    "reduce_mean(concat(x, y, axis=0), axes=(0,), keepdims=True) => reduce_mean(x, axes=(0,), keepdims=True)"
    " if rank(x) == 1, rank(y) == 1",
    "reduce_sum((x - x) * c, axes=(0,), keepdims=True) => reduce_sum((x - x) / c, axes=(0,), keepdims=True)"
    " if rank(x) == 1, rank(c) == 0",
    "reduce_mean(attention(x, w, u, **a), axes=k, keepdims=True)"
    " => attention(x, w, reduce_mean(u, axes=(2,), keepdims=True), **a) if k == (3,)",
]


@pytest.mark.parametrize("text", TRUE)
def test_true_rule_is_proved(text: str) -> None:
    assert prove_sizes(parsed(text)).is_proved


@pytest.mark.parametrize("text", FALSE)
def test_false_rule_is_not_proved(text: str) -> None:
    assert not prove_sizes(parsed(text)).is_proved


@pytest.mark.parametrize(
    "condition", ["dtype(x) == 'float64'", "not (dtype(x) == dtype(y) and wide(x))", "not representable(0.1, dtype(x))"]
)
def test_rule_that_is_false_of_other_floats_alone_is_not_proved(condition: str) -> None:
    """A path with floats of one other type is left out only where a rule tells none apart."""
    assert not prove_sizes(parsed(f"relu(x) * y => x * y if rank(x) == 1, rank(y) == 1, {condition}")).is_proved


def test_operand_has_a_stated_rank_by_conditions_and_operators() -> None:
    found = stated_operands(parsed(FLAT.format(scale="number(c)", agree="stacks_agree(q, k, v), ")))
    assert {name: rank for name, (_, _, rank) in found.items()} == {"q": 3, "k": 3, "v": 3}


def test_operand_of_several_ranks_has_no_stated_one() -> None:
    """What is added to a product may have fewer axes, and a condition may leave several."""
    found = stated_operands(
        parsed("gemm(x, w, c) => gemm(x, w, c) if rank(c) <= 2, shape(c) == shape(x), rank(x) != 1")
    )
    assert "c" not in found


def test_stand_in_is_what_it_stands_for() -> None:
    """Of numbers that are known, NumPy's function is called."""

    def lower(rows: int, columns: int) -> object:
        return np.tri(rows, columns, dtype=bool)

    assert np.array_equal(with_stand_ins(lower)(2, 3), lower(2, 3))  # type: ignore[arg-type]
