"""Normalisations proved for every size: counts of places cancel, and so do common factors of equations."""

from __future__ import annotations

import pytest

from eqsat.rewrites.proof.sizes import prove_paths, prove_sizes
from tests.support.candidates import parsed as rule

_SPREAD = "shape=(s[1], 1)), shape=(s[1], dim(x, 1) // s[1]))"
_GROUPS = (
    "reshape(instance_norm(reshape(x, shape=s), g, b, epsilon=e), shape=t) => group_norm(x, "
    "reshape(expand(reshape(g, shape=(s[1], 1)), shape=(s[1], dim(x, 1) // s[1])), shape=(dim(x, 1),)), "
    "reshape(expand(reshape(b, shape=(s[1], 1)), shape=(s[1], dim(x, 1) // s[1])), shape=(dim(x, 1),)), "
    "groups=s[1], epsilon=e) "
    "if rank(x) == 3, len(s) == 3, t == shape(x), s[0] == dim(x, 0), s[1] > 0, dim(x, 1) % s[1] == 0"
)


@pytest.mark.parametrize(
    "text",
    [
        "reduce_mean(x * c, axes=(0,), keepdims=False) => x * reduce_mean(c, axes=(0,), keepdims=False) "
        "if rank(x) == 0, rank(c) == 1, wide(x)",
        "reduce_mean(expand(x, shape=s), axes=(0,), keepdims=False) => x if rank(x) == 0, len(s) == 1, wide(x)",
        "reduce_mean(expand(x, shape=s), axes=(0, 1), keepdims=False) => x if rank(x) == 0, len(s) == 2, wide(x)",
        "layer_norm(x + c, g, axis=0, epsilon=e) => layer_norm(x, g, axis=0, epsilon=e) "
        "if rank(x) == 1, rank(c) == 0, rank(g) == 0, finite(x, c, g)",
        "batch_norm(reduce_mean(x, axes=(0,), keepdims=True), g, b, m, v, **r) => "
        "reduce_mean(batch_norm(x, g, b, m, v, **r), axes=(0,), keepdims=True) "
        "if rank(x) == 2, wide(x), finite(x, g, b, m, v)",
        "reshape(relu(reshape(x, shape=s)), shape=t) => relu(x) "
        "if rank(x) == 4, len(s) == 3, s[0] == dim(x, 0), s[1] == dim(x, 1), shape(x) == t",
        "layer_norm(x, g, axis=0, epsilon=e) => layer_norm(x, slice(g, axes=(0,), starts=(0,), ends=(1,), steps=(1,)), "
        "axis=0, epsilon=e) if rank(x) == 1, rank(g) == 1, dim(g, 0) == 1",
        "layer_norm(x, g, b, axis=0, epsilon=e) => layer_norm(x, g, axis=0, epsilon=e) + b "
        "if rank(x) == 1, rank(g) == 1, rank(b) == 1, finite(x, g, b)",
        _GROUPS,
    ],
)
def test_counts_and_common_factors_go(text: str) -> None:
    proof = prove_paths(rule(text), highest=4 if "== 4" in text else 3)
    assert proof.is_proved and proof.matches, proof.open


@pytest.mark.parametrize(
    "text",
    [
        # A sum of what does not depend on the place is no mean.
        "reduce_sum(expand(x, shape=s), axes=(0,), keepdims=False) => x if rank(x) == 0, len(s) == 1, wide(x)",
        "reduce_mean(expand(x, shape=s), axes=(0,), keepdims=False) => "
        "x * fill(shape=(s[1],), value=2.0, dtype=dtype(x)) if rank(x) == 0, len(s) == 2, wide(x)",
        # A shift along one of the axes that are normalised, and of what is not centred.
        "layer_norm(x + c, g, axis=0, epsilon=e) => layer_norm(x, g, axis=0, epsilon=e) "
        "if rank(x) == 1, shape(c) == shape(x), rank(g) == 0, finite(x, c, g)",
        "rms_norm(x + c, g, axis=0, epsilon=e) => rms_norm(x, g, axis=0, epsilon=e) "
        "if rank(x) == 1, rank(c) == 0, rank(g) == 0, finite(x, c, g)",
        "layer_norm(x * c, g, axis=0, epsilon=e) => layer_norm(x, g, axis=0, epsilon=e) "
        "if rank(x) == 1, rank(c) == 0, rank(g) == 0, finite(x, c, g)",
        "batch_norm(reduce_sum(x, axes=(0,), keepdims=True), g, b, m, v, **r) => "
        "reduce_sum(batch_norm(x, g, b, m, v, **r), axes=(0,), keepdims=True) "
        "if rank(x) == 2, wide(x), finite(x, g, b, m, v)",
        # The products of sizes are the same, and the sizes are not.
        "reshape(x, shape=s) => reshape(x, shape=shape(x)) if rank(x) == 2, len(s) == 2",
        "reshape(x, shape=s) => reshape(x, shape=shape(x)) if rank(x) == 3, len(s) == 3, s[0] == dim(x, 0)",
        # A shape that is another, or may be, than the one that a condition speaks of.
        "reshape(relu(x), shape=t) => relu(x) if rank(x) == 2, len(t) == 2, t == shape(x) or t[0] == 1",
        "reshape(relu(x), shape=t) => relu(x) if rank(x) == 2, len(t) == 2, t != shape(x)",
        "reshape(relu(x), shape=t) => relu(transpose(x, perm=(1, 0))) "
        "if rank(x) == 2, t == shape(transpose(x, perm=(1, 0)))",
        "reshape(relu(transpose(x, perm=(1, 0))), shape=t) => relu(x) if rank(x) == 2, t == shape(x)",
        # One element of a gain stands for all only where there is one, and a gain along another axis is none.
        "layer_norm(x, g, axis=0, epsilon=e) => layer_norm(x, slice(g, axes=(0,), starts=(0,), ends=(1,), steps=(1,)), "
        "axis=0, epsilon=e) if rank(x) == 1, rank(g) == 1",
        "layer_norm(x, g, axis=1, epsilon=e) => layer_norm(x, transpose(g, perm=(1, 0)), axis=1, epsilon=e) "
        "if rank(x) == 2, rank(g) == 2, dim(x, 0) == dim(x, 1)",
        "layer_norm(x, g, axis=1, epsilon=e) => layer_norm(x, expand(g, shape=(dim(x, 1) + 1,)), axis=1, epsilon=e) "
        "if rank(x) == 2, rank(g) <= 2, is_all(g, 1)",
        "layer_norm(x, g, b, axis=0, epsilon=e) => layer_norm(x, g, axis=0, epsilon=e) + g "
        "if rank(x) == 1, rank(g) == 1, rank(b) == 1, finite(x, g, b)",
        # Other groups, the gain of another one, another epsilon, and a batch that is not kept.
        _GROUPS.replace("groups=s[1]", "groups=1"),
        _GROUPS.replace("groups=s[1]", "groups=dim(x, 1)"),
        _GROUPS.replace(_SPREAD, "shape=(1, s[1])), shape=(dim(x, 1) // s[1], s[1]))"),
        _GROUPS.replace("groups=s[1], epsilon=e)", "groups=s[1], epsilon=e + e)"),
        _GROUPS.replace(", s[0] == dim(x, 0)", ""),
        _GROUPS.replace(", dim(x, 1) % s[1] == 0", ""),
    ],
)  # fmt: skip
def test_what_only_looks_like_that_is_not_proved(text: str) -> None:
    assert not prove_paths(rule(text), highest=3).is_proved


_REST = "slice(x, axes=(0,), starts=(1,), ends=(dim(x, 0),), steps=(1,))"
#: A largest element that is added and taken away again.
_OF_REST = "relu(x) => relu(x) + {reduce}({of}, axes=(0,), keepdims=False) - {reduce}({of}, axes=(0,), keepdims=False)"


@pytest.mark.parametrize("reduce", ["reduce_max", "reduce_min"])
@pytest.mark.parametrize("of", [_REST, f"softmax({_REST}, axis=0)"])
def test_the_largest_of_nothing_is_no_number(reduce: str, of: str) -> None:
    """Of a vector of one element nothing is left behind the first, whose largest less itself is not 0."""
    text = _OF_REST.format(reduce=reduce, of=of)
    assert prove_sizes(rule(f"{text} if rank(x) == 1, dim(x, 0) > 1")).is_proved
    assert not prove_sizes(rule(f"{text} if rank(x) == 1")).is_proved


_TILED = (
    "relu(x) => relu(x) + reduce_sum(tile(x, repeats=(dim(x, 0) - 2,)) - tile(x, repeats=(dim(x, 0) - 2,)), axes=(0,),"
    " keepdims=False) if rank(x) == 1"
)


def test_no_dim_of_a_right_side_is_below_zero() -> None:
    """A shape rule may say of no repeats how long they are, though there is no such result."""
    assert prove_sizes(rule(f"{_TILED}, dim(x, 0) > 1")).is_proved
    assert not prove_sizes(rule(_TILED)).is_proved
    blocks = "depth_to_space(fill(shape=(1, 1, dim(x, 0), 1), value=0.0, dtype=dtype(x)), blocksize=0 - 1)"
    text = f"relu(x) => relu(x) + reduce_sum({blocks}, axes=(0, 1, 2, 3), keepdims=False) if rank(x) == 1"
    assert not prove_sizes(rule(text)).is_proved
