"""Rules that are false beyond what is drawn: solving finds the sizes, ranks and elements where they are."""

import itertools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.errors import UnsoundRuleError
from eqsat.language.terms import Attrs
from eqsat.rewrites.conditions.cuts import adjacent
from eqsat.rewrites.instances.directed import DirectedSearch, beyond
from eqsat.rewrites.instances.edges import edges
from eqsat.rewrites.instances.instance import Sampler
from eqsat.rewrites.instances.traced import Trace, TracedInteger
from eqsat.rewrites.proof.check import Effort, check, mismatch
from eqsat.rewrites.proof.prove import prove
from eqsat.rewrites.rules.loader import laws, load_rules
from eqsat.rewrites.rules.naming import renamed
from eqsat.rewrites.rules.parser import parse_rules

#: False only beyond small sizes, at higher ranks, for unequal groups, where operands broadcast, and for large elements.
FALSE = {
    "whole of 5": "slice(x, axes=(0,), starts=(0,), ends=(5,)) => x",
    "whole of 9": "slice(x, axes=(1,), starts=(0,), ends=(9,)) => x if rank(x) == 2",
    "whole of 224": "slice(x, axes=(2,), starts=(0,), ends=(224,)) => x",
    "whole of 224 in images": "slice(x, axes=(2,), starts=(0,), ends=(224,)) => x if rank(x) == 4",
    "whole of 512": "slice(x, axes=(1,), starts=(0,), ends=(512,)) => x if rank(x) == 2",
    "whole of 12 in 12": "slice(x, axes=(1,), starts=(0,), ends=(12,)) => x if dim(x, 0) == 12, rank(x) == 2",
    "shuffled channels": (
        "reshape(transpose(reshape(x, shape=s), perm=(0, 2, 1, 3)), shape=t) => x if t == shape(x), len(s) == 4"
    ),
    "four axes of all": (
        "reduce_sum(x, axes=k, keepdims=True) => reduce_sum(x, axes=tuple(range(min(rank(x), 4))), keepdims=True) "
        "if k == tuple(range(rank(x)))"
    ),
    "the last of four axes": "softmax(x, axis=3) => softmax(x, axis=rank(x) - 1)",
    "relu6": "clip(x, a, b) => relu(x) if is_all(a, 0), is_all(b, 6)",
    "groups doubled": (
        "concat(conv(x, w, group=g), conv(y, v, group=g), axis=1) "
        "=> conv(concat(x, y, axis=1), concat(w, v, axis=0), group=2 * g) if g == 1, "
        "without(shape(x), 1) == without(shape(y), 1), without(shape(w), 0) == without(shape(v), 0)"
    ),
    "reshaped factors": "reshape(x * y, shape=s) => reshape(x, shape=s) * reshape(y, shape=s) if rank(x) == rank(y)",
}


@pytest.mark.parametrize("text", FALSE.values(), ids=FALSE)
def test_a_rule_that_is_false_beyond_what_is_drawn_is_refuted_and_does_not_load(text):
    (rule,) = parse_rules(f"wrong: {text}", origin="candidate")
    proof = prove(rule, laws())
    assert proof.verdict == "refuted"
    assert proof.counterexample
    with pytest.raises(UnsoundRuleError, match="is false"):
        load_rules([f"wrong: {text}"])


def renamings(count: int) -> list[str]:
    """The same false equation under other names, its condition written either way."""
    made = []
    for (x, y, s), turned in itertools.islice(
        itertools.product(itertools.permutations(("a", "b", "x", "q", "zz", "input"), 3), (False, True)), count
    ):
        equal = f"rank({y}) == rank({x})" if turned else f"rank({x}) == rank({y})"
        made.append(
            f"wrong: reshape({x} * {y}, shape={s}) => reshape({x}, shape={s}) * reshape({y}, shape={s}) if {equal}"
        )
    return made


@pytest.mark.parametrize("text", renamings(60))
def test_no_verdict_hangs_on_names(text):
    (rule,) = parse_rules(text, origin="candidate")
    assert check(rule, Effort(symbolic=0)).verdict == "refuted"


def test_names_and_the_order_of_conditions_change_no_instance():
    one, other = parse_rules(
        "one: relu(x + y) => relu(y + x) if rank(x) == 2, same_shape(x, y)\n"
        "other: relu(b + a) => relu(a + b) if same_shape(b, a), rank(b) == 2"
    )
    assert renamed(one) == renamed(other)
    for _ in range(5):
        a, b = Sampler.unnamed(one).draw(500), Sampler.unnamed(other).draw(500)
        assert a is not None and b is not None
        assert a.tensors["x"].type == b.tensors["b"].type
        np.testing.assert_array_equal(a.tensors["y"].array, b.tensors["a"].array)


def test_the_smallest_size_behind_a_bound_is_found():
    (rule,) = parse_rules("wrong: slice(x, axes=(0,), starts=(0,), ends=(224,)) => x if rank(x) == 1")
    sampler = Sampler.unnamed(rule)
    drawn = [b for b in (sampler.draw(500) for _ in range(8)) if b is not None]
    found = [b.tensors["x"].type.static for b in beyond(rule, drawn) if mismatch(rule, b) is not None]
    assert found[0] == (225,)


def test_conditions_that_drawing_does_not_meet_are_solved_for():
    (rule,) = parse_rules("rare: relu(x) => maximum(x, x * x) if dim(x, 0) == 37, dim(x, 1) == 2 * dim(x, 0) - 70")
    sampler = Sampler.unnamed(rule)
    assert sampler.draw(500) is None
    found = list(DirectedSearch(rule).instances(sampler.refused))
    assert found
    assert all(b.tensors["x"].type.static[:2] == (37, 4) for b in found)


def test_instances_are_the_same_in_every_run():
    (rule,) = parse_rules(f"wrong: {FALSE['whole of 5']}")
    drawn = [b for b in (Sampler.unnamed(rule).draw(500) for _ in range(3)) if b is not None]
    first, second = (
        [(b.tensors["x"].type.static, b.tensors["x"].array.tolist()) for b in beyond(rule, drawn)] for _ in range(2)
    )
    assert first == second != []


@pytest.mark.parametrize(
    ("false", "true"),
    [
        (  # was shipped: windows of a dilated pool meet the middle of the filter at some places only
            "avg_pool(identity_kernel(channels=c, kernel=k, dtype=t), **a) "
            "=> pool_kernel(channels=c, kernel=k, dtype=t) * reshape(eye(n=c, dtype=t), shape=(c, c) + ones(len(k))) "
            "if a.kernel == k, a.count_include_pad, not a.ceil_mode, keeps_size(a, k)",
            "avg-pool-of-identity-kernel",
        ),
        (  # was shipped under a weaker `adjacent`: a slice that begins behind its end is empty
            "concat(*[slice(x, **s) for s in ss], axis=k) => slice(x, **joined(ss, k)) "
            "if all(a.ends == b.starts for a, b in zip(ss[:-1], ss[1:])), all(only_cuts(s, k) for s in ss)",
            "concat-of-slices",
        ),
        (  # a negative scale turns order round
            "max_pool(dequantize_linear(q, s, z, axis=j, block=0), **a) "
            "=> dequantize_linear(max_pool(q, **a), s, z, axis=0, block=0) if size(s) == 1, size(z) == 1, "
            "all(d == 1 for d in a.dilations), not a.ceil_mode",
            "max_pool-of-dequantised",
        ),
    ],
)
def test_laws_that_solving_refuted_hold_under_what_they_ask_now(false, true):
    (rule,) = parse_rules(f"wrong: {false}", origin="candidate")
    assert check(rule, Effort(symbolic=0)).verdict == "refuted"
    (law,) = (one for one in laws() if one.name == true)
    assert check(law, Effort(symbolic=2)).verdict == "proved"


@pytest.mark.parametrize(
    ("bounds", "joins"),
    [
        (((0, 2), (2, 5)), True),
        (((1, 0), (0, 2)), False),
        (((0, -1), (-1, 5)), False),
        (((0, -1), (-1, 2**63 - 1)), True),
        (((3, -1), (-1, 2**63 - 1)), False),
        (((-3, -2), (-2, -1)), True),
        (((-2, -3), (-3, -1)), False),
    ],
)
def test_slices_join_only_where_none_begins_behind_its_end_for_any_size(bounds, joins):
    records = [Attrs(axes=(0,), starts=(a,), ends=(b,), steps=(1,)) for a, b in bounds]
    assert bool(adjacent(records, 0)) == joins


numbers = st.integers(-20, 20)


@given(a=numbers, b=numbers, c=numbers)
def test_traced_integers_are_integers_and_record_what_held(a, b, c):
    trace = Trace()
    x, y = TracedInteger(a, "x", trace), TracedInteger(b, "y", trace)
    results = [(x + y, a + b), (x - c, a - c), (c - x, c - a), (x * y, a * b), (-x, -a), (abs(y), abs(b))]
    if b:
        results += [(x // y, a // b), (x % y, a % b), (c // y, c // b)]
    for traced, plain in results:
        assert int(traced) == plain
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        assert compare(x, y) == compare(a, b)
        assert compare(x + c, 3) == compare(a + c, 3)
    known = {"x": a, "y": b}
    for question in trace.asked:
        left, right = (value(side, known) for side in (question.left, question.right))
        assert {"<": left < right, "<=": left <= right, "==": left == right}[question.comparison] == question.held


def value(formula, known):
    """The value of a formula."""
    if isinstance(formula, tuple):
        a, b = value(formula[1], known), value(formula[2], known)
        return (
            {"+": a + b, "-": a - b, "*": a * b}.get(formula[0])
            if formula[0] in "+-*"
            else (a // b if formula[0] == "//" else a % b)
        )
    return known.get(formula, formula)


def test_elements_lie_beside_every_number_of_a_rule():
    (rule,) = parse_rules("six: clip(x, a, b) => relu(x) if is_all(a, 0), is_all(b, 6.0)")
    assert {6.0, 5.5, 6.5, 12.0, 0.0, 1.0, -1.0} <= set(edges(rule))
