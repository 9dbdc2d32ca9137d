"""Proofs of rules about the inside of windows: kernels that are identities or means, borders, filters in groups."""

from random import Random
from typing import Any

import pytest

from eqsat.language.ops import spec
from eqsat.language.parametric.equations.models import multiplied
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.paths import Path, SolverBudget
from eqsat.language.terms.dims import Sym
from eqsat.rewrites.proof.opaque.layout import layout
from eqsat.rewrites.proof.ranks import sufficient_rank
from eqsat.rewrites.proof.sizes import prove_sizes
from eqsat.rewrites.proof.windows.claims import sums_over_windows
from eqsat.rewrites.rules.loader import shipped_rules
from tests.support.candidates import parsed

#: A convolution that has its filters in groups, by what groups, axes and sizes are taken for.
_GROUPED = (
    "conv(x, w, **a) => conv(x, reshape(reduce_sum(reshape(w, shape=({n}, dim(w, 0) // {n}, {n}, dim(w, 1) // {n})"
    " + shape(w)[2:]), axes=({axis},), keepdims=False), shape=(dim(w, 0), dim(w, 1) // {n}) + shape(w)[2:]),"
    " group={group}, **a) if a.group == 1, {said}"
)
_IS_GROUPED: dict[str, Any] = {
    "n": "group_count(w)",
    "axis": 2,
    "group": "group_count(w)",
    "said": "is_grouped(w), finite(x), wide(x)",
}
_IDENTITY = "conv(x, identity_kernel(channels=c, kernel=k, dtype=t), **a) => x"
_MEANS = (
    "conv(x, pool_kernel(channels=c, kernel=k, dtype=t), **a) => avg_pool(x, kernel={kernel}, strides={strides},"
    " pads={pads}, dilations={dilations}, count_include_pad={counted}) if a.group == {group}, a.activation == 'none',"
    " all(d == 1 for d in a.dilations), all(n < m for n, m in zip(a.pads, k + k))"
)
_IS_MEAN: dict[str, Any] = {
    "kernel": "k",
    "strides": "a.strides",
    "pads": "a.pads",
    "dilations": "a.dilations",
    "counted": True,
    "group": "c",
}
_AVERAGE = (
    "avg_pool(x, **a) => conv(x, pool_kernel(channels=dim(x, 1), kernel=a.kernel, dtype=dtype(x)), strides=a.strides,"
    " pads=a.pads, dilations=a.dilations, group=dim(x, 1)) if static(x), floating(x){more}"
)
_ENLARGED = "conv(x, enlarge(w, kernel=k), **a) => conv(x, w, pads={pads}, **a) if static(w), finite(x)"
_BESIDE = (
    "avg_pool(identity_kernel(channels=c, kernel=k, dtype=t), **a) => pool_kernel(channels=c, kernel=k, dtype=t)"
    " * reshape(eye(n=c, dtype=t), shape=(c, c) + ones(len(k)))"
    " if floating(identity_kernel(channels=c, kernel=k, dtype=t)), a.kernel == k, {said}"
)

#: Rules that ship, and the ranks up to which they are proved.
SHIPPED = {
    "conv-of-grouped-filters": 4,
    "identity-kernel": 3,
    "conv-of-pool-kernel": 3,
    "average-as-conv": 4,
    "enlarged-filter": 3,
    "convs-merge-enlarged": 3,
    "avg-pool-of-identity-kernel": 3,
}
#: Rules beside these that are false: pads, strides, borders and groups that are others, and conditions that are gone.
FALSE = [
    _GROUPED.format(**_IS_GROUPED | {"said": "dim(w, 0) % 2 == 0, dim(w, 1) % 2 == 0", "n": 2, "group": 2}),
    _GROUPED.format(**_IS_GROUPED | {"axis": 0}),
    _GROUPED.format(**_IS_GROUPED | {"group": 1}),
    _GROUPED.format(**_IS_GROUPED).replace("reduce_sum", "reduce_mean"),
    _GROUPED.format(**_IS_GROUPED).replace("(group_count(w), dim(w, 0)", "(dim(w, 0) // group_count(w), dim(w, 0)"),
    "conv(x, w, **a) => conv(slice(x, axes=(1,), starts=(0,), ends=(dim(w, 1) // group_count(w),), steps=(1,)),"
    " slice(w, axes=(1,), starts=(0,), ends=(dim(w, 1) // group_count(w),), steps=(1,)), **a)"
    " if a.group == 1, is_grouped(w)",
    "conv_transpose(x, w, **a) => conv_transpose(x, w * w, **a) if a.group == 1, is_grouped(w)",
    f"{_IDENTITY} if a.group == 1, a.activation == 'none', same_shape(x, conv(x, identity_kernel(channels=c, kernel=k,"
    " dtype=t), **a))",
    f"{_IDENTITY} if a.group == 1, keeps_size(a, k)",
    f"{_IDENTITY} if a.group == 1, a.activation == 'none', all(s == 1 for s in a.strides), len(a.strides) > 0",
    "conv(x, pool_kernel(channels=c, kernel=k, dtype=t), **a) => x if a.group == c, a.activation == 'none',"
    " keeps_size(a, k)",
    f"{_IDENTITY.replace('=> x', '=> relu(x)')} if a.group == 1, a.activation == 'none', keeps_size(a, k)",
    _MEANS.format(**_IS_MEAN | {"counted": False}),
    _MEANS.format(**_IS_MEAN | {"strides": "a.dilations", "dilations": "a.strides"}),
    _MEANS.format(**_IS_MEAN | {"pads": "a.pads[::-1]"}),
    _MEANS.format(**_IS_MEAN | {"group": 1}).replace("avg_pool(x", "avg_pool(x * x"),
    _MEANS.format(**_IS_MEAN).replace(", a.activation == 'none'", ""),
    _AVERAGE.format(more=""),
    _AVERAGE.format(more=", a.count_include_pad"),
    _AVERAGE.format(more=", not a.ceil_mode"),
    _ENLARGED.format(pads="a.pads"),
    _ENLARGED.format(pads="()"),
    _ENLARGED.format(pads="grown_pads(a.pads, a.dilations, shape(w)[2:], k)"),
    _ENLARGED.format(pads="shrunk_pads(a.pads, (), shape(w)[2:], k)"),
    _ENLARGED.format(pads="shrunk_pads(a.pads, a.strides, shape(w)[2:], k)"),
    # What has a pad below 0 has no result, though a sum over windows would be the right one.
    _ENLARGED.format(pads="tuple(p - (k[0] - dim(w, 2)) // 2 for p in a.pads)").replace(
        "if static(w)", "if rank(w) == 3, len(a.pads) == 2, all(d == 1 for d in a.dilations), len(a.dilations) > 0"
    ),
    "avg_pool(x, **a) => avg_pool(pad(x, pads=(0, 0, a.pads[0], 0, 0, a.pads[1])), kernel=a.kernel, strides=a.strides,"
    " dilations=a.dilations) if rank(x) == 3, len(a.pads) == 2, not a.ceil_mode",
    _BESIDE.format(said="a.count_include_pad, not a.ceil_mode, all(s == 1 for s in a.strides)"),
    _BESIDE.format(said="all(d == 1 for d in a.dilations), not a.ceil_mode, keeps_size(a, k), not a.count_include_pad"),
]


#: A rule that is true along one axis of space.
ONE_AXIS = _MEANS.format(**_IS_MEAN | {"kernel": "k[::-1]"})


@pytest.mark.parametrize("name", SHIPPED)
def test_rules_about_the_inside_of_windows_are_proved(name: str) -> None:
    """What a window reads is the sum over its places, and constants are what is at each place."""
    (rule,) = (rule for rule in shipped_rules() if rule.name == name)
    proof = prove_sizes(rule, highest=SHIPPED[name])
    assert proof.rank == SHIPPED[name] and not proof.every_rank, proof.open


@pytest.mark.parametrize("text", FALSE)
def test_rules_beside_these_are_not(text: str) -> None:
    """What is known of windows and of constants is not taken for more."""
    assert not prove_sizes(parsed(text), highest=3).is_proved


def test_what_is_true_along_one_axis_is_not_proved_along_two() -> None:
    """With one axis of space, sizes are the same in either order."""
    assert prove_sizes(parsed(ONE_AXIS)).rank == 3


def test_a_kernel_that_a_rule_names_has_any_number_of_axes() -> None:
    """Two axes of space say nothing of three: no rank suffices for a constant that has as many as its kernel."""
    (rule,) = (rule for rule in shipped_rules() if rule.name == "avg-pool-of-identity-kernel")
    assert sufficient_rank(rule) is None


@pytest.mark.parametrize(
    ("op", "attrs", "is_sum"),
    [
        ("conv", {"pads": (1, 0)}, True),
        ("avg_pool", {"kernel": (2,), "pads": (1, 0), "count_include_pad": True}, True),
        ("avg_pool", {"kernel": (2,)}, True),
        ("avg_pool", {"kernel": (2,), "pads": (1, 0)}, False),
        ("avg_pool", {"kernel": (2,), "ceil_mode": True}, False),
        ("max_pool", {"kernel": (2,)}, False),
        ("conv_transpose", {}, False),
    ],
)
def test_operators_are_seen_to_sum_over_their_windows(op: str, attrs: dict[str, Any], is_sum: bool) -> None:
    """A mean that leaves out pads, or reaches over the end, is no sum over all places, nor is a maximum."""
    declared = spec(op)
    complete = declared.complete(attrs)
    with SolverBudget(1), Path({}):
        found = layout(declared, complete, [3] * declared.min_operands)
        assert found is not None
        assert sums_over_windows(declared, complete, found) is is_sum


def test_what_is_fixed_leaves_no_product() -> None:
    """Of a product one factor is fixed, and all of a divisor."""
    a, b, c = map(Sym.named, "abc")
    rng = Random(0)
    for _ in range(20):
        factors = [
            rng.choice([a, b, c, Sym.function("floordiv", a + b, c), Sym.function("min", a, b)]) for _ in range(3)
        ]
        fixed = multiplied([Fact.positive(factors[0] * factors[1] + factors[2] * a)])
        assert {"a", "b", "c"} > {*fixed} or len(fixed) == 3
    assert multiplied([Fact.positive(Sym.function("floordiv", a, b) + a)]) == ["b"]
    assert multiplied([Fact.positive(a + b)]) == []


#: A convolution with a filter that may have no size, added and taken away again.
_SHORT = "conv(x, slice(w, axes=(2,), starts=(0,), ends=(dim(w, 0) - 1,), steps=(1,)), dilations=(2,), group=a.group)"
_WITH_SHORT = (
    f"conv(x, w, **a) => conv(x, w, **a) + reduce_sum({_SHORT} - {_SHORT}, axes=(0, 1, 2), keepdims=False)"
    " if rank(x) == 3, dim(x, 2) > 9, dim(w, 0) < 3"
)
_WITH_PLACED = (
    "conv(x, w, **a) => conv(x, w, **a) + reduce_sum(conv(x, w, {0}, group=a.group) - conv(x, w, {0}, group=a.group),"
    " axes=(0, 1, 2), keepdims=False) if rank(x) == 3, dim(w, 2) < 3, dim(x, 2) > 9, dim(x, 0) < 3"
)


def test_filters_of_no_size_are_refused() -> None:
    """Shape rules say how many windows there are of no size, but with dilations none can be placed."""
    assert prove_sizes(parsed(f"{_WITH_SHORT}, dim(w, 0) > 1")).is_proved
    assert not prove_sizes(parsed(_WITH_SHORT)).is_proved


@pytest.mark.parametrize("placed", ["dilations=(dim(x, 0) - 1,)", "pads=(dim(x, 0) - 2, 3)"])
def test_windows_that_are_taken_away_again_have_to_be_placed(placed: str) -> None:
    """What has no result is none less itself."""
    assert not prove_sizes(parsed(_WITH_PLACED.format(placed))).is_proved
    assert prove_sizes(parsed(f"{_WITH_PLACED.format(placed)}, dim(x, 0) > 1")).is_proved
