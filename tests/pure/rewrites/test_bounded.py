"""Bounded execution: the grid is complete, its counts are right, and what is false within it is found."""

import itertools
import math
from dataclasses import replace

from eqsat.language.declaration.bounds import Bounds
from eqsat.rewrites.instances.typings import Typings
from eqsat.rewrites.proof.bounded import LEVELS, run_bounded
from eqsat.rewrites.proof.check import EXHAUSTIVE, Effort, check
from eqsat.rewrites.rules.parser import parse_rules

SMALL = Bounds(side=2, deep=1, length=2, pad=1)


def rule(text: str):
    return parse_rules(f"r: {text}", origin="candidate")[0]


def windows(sizes: range, kernels: range, pads: range) -> int:
    """How many ways there are to run a window over one axis."""
    ways = itertools.product(sizes, kernels, (1, 2), (1, 2), pads, pads)
    return sum(d * (k - 1) < n + p + q for n, k, _, d, p, q in ways)


def test_the_grid_of_a_pointwise_rule_is_every_shape() -> None:
    every = [s for r in range(5) for s in itertools.product(range(1, 5), repeat=r)]
    found = [b.tensors["x"].type.shape for b, _ in Typings(rule("relu(relu(x)) => relu(x)"), LEVELS[-1])]
    assert sorted(found) == sorted(every)


def test_the_grid_of_a_transpose_is_every_permutation_of_every_shape() -> None:
    found = {
        (b.tensors["x"].type.shape, b.attrs["p"])
        for b, _ in Typings(rule("transpose(relu(x), perm=p) => relu(transpose(x, perm=p))"), replace(SMALL, side=3))
    }
    wanted = {
        (s, p)
        for r in range(5)
        for s in itertools.product(range(1, 4 if r < 4 else 2), repeat=r)
        for p in itertools.permutations(range(r))
    }
    assert found == wanted


def test_the_grid_of_a_convolution_has_as_many_instances_as_are_counted_by_hand() -> None:
    flat = replace(SMALL, deep=0)
    found = list(Typings(rule("relu(conv(x, w, **a)) => conv(x, w, activation='relu', **a)"), flat))
    # Input channels, filter channels and outputs up to 2 of which groups can be made.
    channels = sum(c % i == 0 and o % (c // i) == 0 for c, i, o in itertools.product((1, 2), repeat=3))
    batches, activations = 2, 2
    assert len(found) == batches * channels * activations * windows(range(1, 3), range(1, 3), range(2))
    keys = {(b.tensors["x"].type, b.tensors["w"].type, b.attrs["a"]) for b, _ in found}
    assert len(keys) == len(found)
    assert {b.attrs["a"]["group"] for b, _ in found} == {1, 2}


def test_conditions_prune_the_grid_as_they_refuse_instances() -> None:
    text = "conv(x, v, **a) + conv(x, w, **a) => conv(x, v + w, **a)"
    condition = "a.activation == 'none', same_shape(v, w), a.group == 2"
    pruned = [b for b, _ in Typings(rule(f"{text} if {condition}"), SMALL)]
    guarded = rule(f"{text} if {condition}")
    kept = [b for b, _ in Typings(rule(text), SMALL) if guarded.refused(b) is None]
    assert len(pruned) == len(kept) > 100


def test_members_of_a_sequence_are_each_of_every_fitting_shape() -> None:
    found = [b for b, _ in Typings(rule("concat(*[relu(x) for x in xs], axis=k) => relu(concat(*xs, axis=k))"), SMALL)]
    lengths = [len(b.tensors["xs"]) for b in found]
    # Ranks 1 to 3 with dims up to 2, and rank 4 of ones: the second member is as the first, or differs along the axis.
    alone = sum(r * 2**r for r in (1, 2, 3)) + 4
    assert lengths.count(1) == alone
    assert lengths.count(2) == sum(r * 2**r * 2 for r in (1, 2, 3)) + 4


def test_a_small_grid_is_run_in_full() -> None:
    found = run_bounded(rule("tanh(transpose(x, perm=p)) => transpose(tanh(x), perm=p)"), 500_000)
    assert found.exhaustive and found.level == LEVELS[-1] and not found.reason
    assert found.exact == sum(4**r * math.factorial(r) for r in range(5)) == 6565


def test_a_budget_stops_the_climb_and_says_where() -> None:
    found = run_bounded(rule("x + y => y + x"), 4000)
    assert (found.exhaustive, found.level) == (False, LEVELS[0])
    assert found.exact > 1000


def test_what_draws_miss_the_grid_finds() -> None:
    """A rule that is false on one shape in many: drawn instances can miss it, all of them together cannot."""
    text = "transpose(x, perm=p) => x if shape(x) != (1, 1, 1) and p == identity_perm(rank(x)) or shape(x) == (1, 3, 4)"
    found = run_bounded(rule(text), 20_000)
    assert "types differ" in found.reason or "elements differ" in found.reason
    assert found.bindings is not None and found.bindings.tensors["x"].type.shape == (1, 3, 4)


def test_rules_that_rest_on_a_function_are_run_in_floats() -> None:
    found = run_bounded(rule("relu(x * c) => relu(x) * c if is_positive(c), floating(x)"), 4000)
    assert found.exact == 0 and found.floats > 100 and not found.reason


def test_evidence_says_how_far_the_grid_is_complete() -> None:
    record = check(rule("relu(relu(x)) => relu(x)"), replace(EXHAUSTIVE, numeric=6, symbolic=4))
    assert (record.verdict, record.bounded, record.exhaustive, record.side, record.deep) == ("proved", 341, True, 4, 4)
    record = check(rule("relu(relu(x)) => relu(x)"), Effort(numeric=6, symbolic=4))
    assert (record.bounded, record.exhaustive, record.side) == (0, False, 0)


def test_a_sum_of_products_with_a_vector_of_one_is_refuted() -> None:
    """Shapes without an axis counted from the right are equal for a matrix of one row and a vector of one element."""
    text = (
        "x @ w + y @ v => concat(x, y, axis=rank(x) - 1) @ concat(w, v, axis=rank(w) - 2) if wide(x), rank(x) >= 2, "
        "rank(w) >= 2, without(shape(x), rank(x) - 1) == without(shape(y), rank(y) - 1), "
        "without(shape(w), rank(w) - 2) == without(shape(v), rank(v) - 2)"
    )
    assert "the right side does not type" in run_bounded(rule(text), 4000).reason
    assert not run_bounded(rule(text + ", rank(x) == rank(y), rank(w) == rank(v)"), 4000).reason
