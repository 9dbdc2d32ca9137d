"""Where a condition does not hold its rule is proved or refuted apart, and no condition that is needed is redundant."""

import pytest

from benchmarks.conditions import DROPPED
from benchmarks.rules.dropping import DeniedRule, dropped, prove_denied
from benchmarks.rules.mutation import mutants
from benchmarks.rules.needed import verdict
from eqsat.rewrites.proof.check import size_mismatch
from eqsat.rewrites.proof.sizes import NO_MATCH, followed, prove_paths
from eqsat.rewrites.rules.parser import parse_rules

#: Conditions that are true or have no value.
UNDEFINED = "(1,)[0 if s == shape(x) else 1] == 1"


def without(text, place=0):
    """A rule, what is left of it without the condition at a place, and that condition."""
    (rule,) = parse_rules(f"rule: {text}", origin="candidate")
    lacking = rule.conditions[place]
    found = (m.rule for m in mutants([rule]) if m.kind == DROPPED and dropped(rule, m.rule) == lacking)
    return rule, next(found), lacking


@pytest.mark.parametrize(
    "text",
    [
        "relu(x) => abs(x) if is_nonnegative(x)",
        "sqrt(x * x) => x if is_nonnegative(x)",
        "x * c => x + x if is_all(c, 2), spans(x, c)",
        "reshape(x, shape=s) => relu(x) - relu(-x) if s == shape(x)",
        f"reshape(x, shape=s) => relu(x) - relu(-x) if {UNDEFINED}",
        "transpose(x, perm=p) => relu(x) - relu(-x) if p == identity_perm(rank(x))",
        "slice(x, **s) => relu(x) - relu(-x) if shape(slice(x, **s)) == shape(x)",
        "reshape(x * y, shape=s) => reshape(x, shape=s) * reshape(y, shape=s) if same_shape(x, y)",
        "reshape(x * y, shape=s) => reshape(x, shape=s) * reshape(y, shape=s)"
        " if broadcast(shape(x), shape(y)) == shape(x), broadcast(shape(x), shape(y)) == shape(y)",
        "reduce_sum(x + y, axes=a, keepdims=True) => reduce_sum(x, axes=a, keepdims=True)"
        " + reduce_sum(y, axes=a, keepdims=True) if same_shape(x, y)",
        "softmax(x + c, axis=k) => softmax(x, axis=k) if off_axis(c, k, rank(x)), spans(x, c)",
        "x / y * y => x + y - y if invertible(y)",
        "reduce_max(x * c, axes=a, keepdims=True) => reduce_max(x, axes=a, keepdims=True) * c"
        " if is_positive(c), size(c) == 1, rank(c) == 0",
        "x - x => fill(shape=shape(x), value=0.0, dtype=dtype(x)) if finite(x)",
        # Equal up to rank 1, and different of matrices whose elements are seldom drawn.
        "relu(transpose(x, perm=p) - c) => relu(x - c) if p == identity_perm(rank(x)) and dim(x, 0) != 2, "
        "is_all(c, 1000), rank(c) == 0, all(d == dim(x, 0) for d in shape(x))",
        "relu(transpose(x, perm=p) - c) => relu(x - c) if rank(x) != 1 and p == identity_perm(rank(x)), "
        "is_all(c, 1000), rank(c) == 0, all(d == dim(x, 0) for d in shape(x))",
        # What no proof looks at: sums of nothing are 0, and the largest of nothing is less than all that tanh makes.
        "reduce_sum(x, axes=a, keepdims=True) => reduce_sum(x, axes=a, keepdims=True)"
        " / reduce_sum(exp(x), axes=a, keepdims=True) * reduce_sum(exp(x), axes=a, keepdims=True) if size(x) > 0",
        "reduce_max(tanh(x), **a) => tanh(reduce_max(x, **a)) if positive_dims(x, a.axes)",
        # Of integers products wrap around below 0, and differences of those without a sign above it.
        "relu(x * x) => x * x if floating(x)",
        "abs(x * y) => abs(x) * abs(y) if floating(x)",
        "abs(x - y) => abs(y - x) if floating(x)",
    ],
)
def test_a_condition_that_is_needed_is_refuted_or_undecided(text):
    rule, mutant, _ = without(text)
    assert verdict(rule, mutant)[0] != "redundant"


def test_a_condition_without_a_value_does_not_hold():
    _, mutant, lacking = without(f"reshape(x, shape=s) => relu(x) - relu(-x) if {UNDEFINED}")
    rank, proof = prove_denied(DeniedRule.of(mutant, lacking))
    assert rank < 0 and proof.open != NO_MATCH


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("concat(relu(x), relu(y), axis=k) => relu(concat(x, y, axis=k)) if rank(x) == rank(y)", "imply"),
        ("relu(x) * c => relu(x * c) if constant(c), is_positive(c)", "known before"),
        ("x + y => y + x if spans(x, y)", "every rank and size"),
        (
            "reduce_max(x + c, axes=a, keepdims=True) => reduce_max(x, axes=a, keepdims=True) + c "
            "if size(x) > 0, rank(c) == 0",
            "imply",
        ),
        ("gather(relu(x), i, axis=k) => relu(gather(x, i, axis=k)) if size(x) > 0", "every rank and size"),
        ("abs(abs(x)) => abs(x) if floating(x)", "over real numbers"),
    ],
)
def test_a_condition_that_is_implied_or_about_cost_is_redundant(text, why):
    rule, mutant, _ = without(text)
    found, reason = verdict(rule, mutant)
    assert found == "redundant" and why in reason


def test_a_path_of_opaque_operators_that_ends_a_proof_is_an_instance_to_run():
    (rule,) = parse_rules("rule: gru(x * s, w, r, b, **a) => gru(x, w, r, b, **a)", origin="candidate")
    found = prove_paths(rule, 100, opaque=followed(rule))
    assert found.instance is not None and found.instance.attrs["a"]["activations"] == ()
    assert size_mismatch(rule, found) is not None
