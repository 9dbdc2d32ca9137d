"""Ranks that suffice, as an instance of a higher one may lose axes: how many, and what that rests on."""

import random

import numpy as np
import pytest

from eqsat.errors import ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration import OpSpec
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import DType, TensorType
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.instances.directed import DirectedSearch
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.instance import Sampler, evaluated, operands
from eqsat.rewrites.instances.ranks import raised
from eqsat.rewrites.proof.ranks import sufficient_rank
from eqsat.rewrites.proof.removal.statements import OF_ONE_RANK
from eqsat.rewrites.proof.sizes import prove_sizes
from eqsat.rewrites.rules.loader import shipped_evidence, shipped_rules
from eqsat.rewrites.rules.term import outputs, right_terms, typed_left
from tests.support.candidates import parsed

#: Rules with the rank that suffices: axes that are named, one of each class, and one in which the sides may differ.
BOUNDS = {
    # One axis is named.
    "softmax(slice(x, **s), axis=k) => slice(softmax(x, axis=k), **s) if k not in s.axes": 2,
    "transpose(softmax(x, axis=k), perm=p) => softmax(transpose(x, perm=p), axis=place(p, k))": 2,
    "hardmax(concat(*xs, axis=j), axis=k) => concat(*[hardmax(x, axis=k) for x in xs], axis=j) if j != k": 3,
    # One stands for all that are summed over.
    "reduce_sum(slice(x, **s), axes=a, keepdims=True) => slice(reduce_sum(x, axes=a, keepdims=True), **s)"
    " if not any(k in a for k in s.axes)": 2,
    "reduce_max(concat(*xs, axis=k), axes=a, keepdims=True)"
    " => concat(*[reduce_max(x, axes=a, keepdims=True) for x in xs], axis=k) if k not in a": 3,
    "reduce_mean(transpose(x, perm=p), axes=a, keepdims=False)"
    " => transpose(reduce_mean(x, axes=mapped(a, p), keepdims=False), perm=dropped_perm(p, a))": 2,
    # Of two sets an axis may be in one, in the other, or in both.
    "reduce_max(reduce_max(x, axes=a, keepdims=True), axes=b, keepdims=True)"
    " => reduce_max(x, axes=union(a, b), keepdims=True)": 4,
    # The last two of a matrix.
    "x @ w => w @ x if rank(x) >= 2, rank(w) >= 2": 3,
    # A vector, or at least a matrix.
    "x @ w => -(x @ w)": 3,
    "x @ w => reduce_sum(x * w, axes=(rank(x) - 1,), keepdims=False) if rank(w) == 1, dim(x, -1) == dim(w, 0)": 3,
    "x @ c => x if is_eye(c), finite(x)": 3,
    # An axis that is named, in place of which there are others.
    "transpose(gather(transpose(x, perm=p), i, axis=k), perm=inverse(p)) => gather(x, i, axis=p[k]) if rank(i) == 1": 2,
    # A permutation that moves nothing.
    "transpose(x, perm=p) => x if p == identity_perm(rank(x))": 1,
    "relu(gather(x, i, axis=k)) => gather(relu(x), i, axis=k)": 2,
    # Conditions keep as many as they ask for.
    "relu(x) => x if rank(x) >= 6": 7,
    "relu(x) => x if 6 <= rank(x)": 7,
    "softmax(x, axis=k) => relu(x) if k > 4": 7,
    "transpose(x, perm=p) => transpose(relu(x), perm=p) if p[4] == 4": 10,
    "expand(x, shape=s) => x if len(s) > 5": 7,
    "reduce_sum(x, axes=a, keepdims=True) => reduce_max(x, axes=a, keepdims=True) if len(a) == 4": 5,
}

#: Rules of which no such rank is known: what they ask may be so at high ranks alone, or an axis may not be lost.
UNBOUNDED = (
    "reduce_sum(x, axes=a, keepdims=True) => reduce_max(x, axes=a, keepdims=True) if len(a) > 4",
    "softmax(x, axis=k) => softmax(x, axis=min(k, 4))",
    "softmax(softmax(x, axis=k), axis=j) => softmax(softmax(x, axis=j), axis=k) if k > j + 3",
    "slice(x, **s) => x if len(s.axes) > 4",
    "relu(x) => x if size(x) > 100000",
    "relu(x) => x if rank(x) != 4",
    "relu(x) + y => y + x if rank(x) > rank(y) + 3",
    "relu(x) + y => y + x if rank(x) - rank(y) > 3",
    "relu(x) => x if prod(shape(x)) == 32",
    "relu(x) => x if shape(x)[-3:] == (1, 1)",
    "relu(x) => x if not same_shape(x, x)",
    "reduce_sum(x, axes=a, keepdims=True) => x if prod(dim(x, i) + 1 for i in a) > 30",
    "reduce_sum(x, axes=a, keepdims=True) => reduce_max(x, axes=a, keepdims=True) if all(dim(x, i) < 9 for i in a)",
    "reduce_sum(x, axes=a, keepdims=True) => reduce_max(x, axes=a, keepdims=True) if any(dim(x, i) > 9 for i in a)",
    "softmax(x, axis=k) => x if dim(x, k - 3) == 1",
    "softmax(x, axis=k) => x if k in (4, 5)",
    "layer_norm(x, g, axis=0) => x",
    # Axes in which one operand is cut, and also read as it is.
    "slice(x, **s) @ x => slice(x @ x, **s) if rank(x) >= 2",
    # Sides that have the axes in different orders differ in two axes of an operand.
    "transpose(x, perm=p) => x",
    "transpose(x, perm=p) => x if p[4] == 4",
    "x @ w => w @ x",
    # Sets of axes that are called as movements were.
    "x + reduce_sum(x, axes=first, keepdims=False) => x - reduce_sum(x, axes=first, keepdims=False)",
    # An axis that may be kept, beside one that is not.
    "reduce_sum(x, axes=(-1,), keepdims=d) + reduce_sum(x, axes=(-1,), keepdims=False)"
    " => reduce_sum(x, axes=(-1,), keepdims=d) - reduce_sum(x, axes=(-1,), keepdims=False) if rank(x) >= 1",
    # Indices of which two places are taken.
    "gather(i, i, axis=k) => relu(gather(i, i, axis=k))",
    "gather(gather(x, i, axis=k), i, axis=j) => relu(gather(gather(x, i, axis=k), i, axis=j))",
    # One name of an operand and of members.
    "(concat(*[relu(x) for x in xs], axis=k), softmax(x, axis=j)) => (concat(*[relu(x) for x in xs], axis=k),"
    " softmax(x, axis=k))",
    # Members of a product may be vectors beside a first one that is a matrix.
    "[x @ w for x in xs] => split(concat(*xs, axis=0) @ w, axis=0, sizes=[dim(x, 0) for x in xs])"
    " if all(shape(x)[2:] == shape(xs[0])[2:] for x in xs), rank(xs[0]) >= 2",
    "[relu(x + y) for x in xs] => split(relu(concat(*xs, axis=0) + y), axis=0, sizes=[dim(x, 0) for x in xs])"
    " if all(shape(x)[1:] == shape(xs[0])[1:] for x in xs), rank(xs[0]) == rank(y)",
    # Elements of a vector along all axes of a shape.
    "reshape(g, shape=s) * reshape(g, shape=t) => reshape(g * g, shape=broadcast(s, t)) if rank(g) == 1",
    "(reshape(g, shape=s), relu(x)) => (reshape(g, shape=shape(x)), relu(x)) if rank(g) == 1,"
    " broadcast(s, shape(x)) == shape(x), size(g) == 8",
    # Reshapes take several axes for one, or one for several.
    "reshape(relu(x), shape=s) => reshape(x, shape=s)",
    # Sums along axes that are cut, too.
    "reduce_sum(slice(x, **s), axes=a, keepdims=True) => slice(reduce_sum(x, axes=a, keepdims=True), **s)",
    # One of two operands may have the axes alone.
    "reduce_sum(x * y, axes=a, keepdims=True) => reduce_sum(x, axes=a, keepdims=True) * y"
    " if all(off_axis(y, i, rank(mul(x, y))) for i in a)",
    # Products of vectors are not aligned with what has all axes.
    "x @ w + w => w + x @ w if rank(x) == 1",
    "x @ w => reduce_sum(x * w, axes=(1,), keepdims=False) if rank(w) == 1",
    "reduce_sum(x, axes=a, keepdims=False) @ w => -(reduce_sum(x, axes=a, keepdims=False) @ w)"
    " if rank(x) >= 2, rank(w) == 2",
    # Sums over axes of what is gathered, of which some are of the indices.
    "reduce_sum(gather(x, i, axis=k), axes=a, keepdims=True)"
    " => reduce_max(gather(x, i, axis=k), axes=a, keepdims=True)",
    "softmax(gather(x, i, axis=k), axis=j) => gather(softmax(x, axis=j), i, axis=k)",
    # Statements of which one holds, and not of numbers.
    "relu(x) + y => x + y if same_shape(x, y) or rank(x) > 5",
    "relu(x) => x if not (rank(x) < 6 or rank(x) == 7)",
    # Numbers before ones, where there may be no axis for them.
    "x * reshape(g, shape=(dim(x, 0),) + ones(rank(x) - 2)) => x if rank(g) == 1",
    # An element type, a number or a shape that is another at high ranks.
    "transpose(fill(shape=s, value=v, dtype=d), **a)"
    " => fill(shape=shape(transpose(fill(shape=s, value=v, dtype=d), **a)), value=v,"
    " dtype=d if len(s) < 6 else 'int64')",
    "transpose(fill(shape=s, value=0.0, dtype=d), **a) => fill(shape=shape(transpose(fill(shape=s, value=0.0, dtype=d),"
    " **a)), value=max(len(s) - 6, 0) / 1, dtype=d)",
    "transpose(fill(shape=s, value=v, dtype=d), **a) => fill(shape=shape(transpose(fill(shape=s, value=v, dtype=d),"
    " **a)), value=v, dtype='float32') if (d == 'float32') == (len(s) < 5)",
    "x * c => fill(shape=shape(mul(x, c)), value=0.0, dtype=dtype(x)) if is_zero(c), floating(x if rank(x) < 3 else c)",
    "reshape(fill(shape=s, value=v, dtype=d), shape=t) => fill(shape=shape(reshape(fill(shape=s, value=v, dtype=d),"
    " shape=s)), value=v, dtype=d)",
    "avg_pool(fill(shape=s, value=1.0, dtype=d), **a) => fill(shape=shape(avg_pool(fill(shape=s, value=1.0, dtype=d),"
    " **a)), value=1.0, dtype=d)",
    # A window's attributes have a number for each axis along which it moves.
    "conv(x, w, **a) => relu(conv(x, w, **a)) if all(s == 1 for s in a.strides)",
    "conv(x, w, **a) => relu(conv(x, w, **a)) if a.strides == (1, 1, 1, 1)",
)


#: Rules that are false at a rank, and true, or not matched, at lower ones.
FALSE_FROM = {
    # An axis that is left out is the one that is meant.
    "transpose(softmax(x), perm=p) => softmax(transpose(x, perm=p))": 2,
    "transpose(cumsum(x), perm=p) => cumsum(transpose(x, perm=p))": 2,
    # So many axes are cut, or summed over.
    "reduce_sum(slice(x, **s), axes=a, keepdims=True) => slice(x, **s)"
    " if not any(k in a for k in s.axes), len(s.axes) == 2": 3,
    "transpose(reduce_max(x, axes=a, keepdims=True), perm=p) => reduce_max(x, axes=a, keepdims=True)"
    " if len(a) == 4, len(tuple(i for i in a if dim(x, i) != 1)) == 1": 5,
    # A shape that is put together has other axes.
    "leaky_relu(-softmax(x, axis=k), alpha=0.0) => leaky_relu(-softmax(x, axis=k), alpha="
    "((0,) + without(((0,) + without(((0,) + without(shape(x), k)), k)), k))[k])": 4,
    # Ranks and axes of one operand are numbers of another.
    "softmax(x, axis=0) * y => softmax(x, axis=rank(x) - 2) * y if shape(y) == (rank(x),), dim(y, 0) in (2, 5)": 5,
    "(softmax(x, axis=k), relu(y)) => (softmax(x, axis=rank(x) - 1), relu(y))"
    " if shape(y) == (1, 1, 1, 2), dim(y, k) == 2": 5,
    "(softmax(x, axis=1), relu(y)) => (softmax(x, axis=rank(x) - 1), relu(y))"
    " if shape(y) == (2, 1, 1, 2), dim(y, rank(x) - 2) == 2": 5,
    "(transpose(x, perm=p), softmax(y, axis=3)) => (transpose(x, perm=p), softmax(y, axis=rank(y) - 1))"
    " if rank(x) == 4, p[1] == 1, p[2] == 2, p[3] == 3": 5,
    # Two axes taken for one have as many places as both.
    "(transpose(reduce_max(x, axes=a, keepdims=True), perm=p), relu(y))"
    " => (reduce_max(x, axes=a, keepdims=True), relu(y))"
    " if rank(y) == 1, all(dim(x, i) == dim(y, 0) for i in a), prod(dim(x, i) for i in a) == 8, dim(y, 0) == 2": 4,
    # Sequences are compared from the first on.
    "slice(slice(x, starts=a, ends=b, axes=c, steps=()), starts=a, ends=f, axes=c, steps=())"
    " => slice(slice(x, starts=a, ends=b, axes=c, steps=()), starts=a, ends=b, axes=c, steps=()) if b <= f": 2,
    # What is made of axes is not these.
    "reduce_sum(transpose(x, perm=p), axes=a, keepdims=True)"
    " => reduce_sum(transpose(x, perm=p), axes=tuple(p[j] for j in tuple(p[i] for i in a)), keepdims=True)": 3,
    # An axis of what is turned is another before.
    "softmax(transpose(x, perm=p), axis=k) => softmax(transpose(x, perm=p), axis="
    "place(p, lowered((place(p, lowered((k,), len(p) - rank(x))[0]),), len(p) - rank(x))[0]))": 3,
    # A shape that is spanned keeps its axes, and so does one along which alone something varies.
    "(leaky_relu(-softmax(x, axis=k), alpha=0.0), relu(y)) => (leaky_relu(-softmax(x, axis=k), alpha=dim(x, k) - 2),"
    " relu(y)) if shape(y) == (2, 2), spans(x, y)": 3,
    "relu(b) => b if along_only(b, 0, 9, 3), dim(b, 0) == 3": 9,
    # As many numbers as axes say how many these are.
    "softmax(-slice(x, starts=(0, 0), ends=(1, 1), axes=c, steps=()), axis=k)"
    " => softmax(slice(x, starts=(0, 0), ends=(1, 1), axes=c, steps=()), axis=k)": 3,
    "(slice(softmax(x, axis=k), starts=a, ends=e, axes=c, steps=()), slice(y, starts=a, ends=b, axes=(0, 1, 2, 3),"
    " steps=())) => (slice(relu(x), starts=a, ends=e, axes=c, steps=()), slice(y, starts=a, ends=b, axes=(0, 1, 2, 3),"
    " steps=())) if k not in c, rank(y) == 4": 5,
    "slice(slice(softmax(x, axis=k), **s), **t) => slice(slice(relu(x), **s), **t) if k not in s.axes, k not in t.axes,"
    " len(s.axes) > 0, len(t.axes) > 0, not any(i in s.axes for i in t.axes)": 3,
    "slice(transpose(-x, perm=p), **s) => slice(transpose(relu(x), perm=p), **s) if prod(dim(x, p[i]) for i in s.axes)"
    " == 1024, without(shape(x), p[0]) == without(shape(x), p[1]), p[0] == 0, p[1] == rank(x) - 1, dim(x, 0) == 2": 10,
    "conv(relu(x), w, strides=(1, 1, 1, 1)) => conv(x, w, strides=(1, 1, 1, 1))": 6,
    # Numbers that a function makes, one for each axis.
    "slice(relu(x), starts=zeros(3), ends=b, axes=c, steps=())"
    " => slice(x, starts=zeros(3), ends=b, axes=c, steps=())": 3,
    # Axes of a permutation that moves nothing are the same before and after.
    "transpose(relu(x), perm=p) => x if p == identity_perm(rank(x)), p[3] == 3, p[4] == 4": 5,
    # A rank that is none of some.
    "(x - x) + (z - z) => x - x if size(z) == 1, rank(x) not in (0, 1, 2, 3, 4, 5)": 7,
    # A vector beside one that may be a number.
    "((x + y) @ w) * z => (x + y) @ (w * relu(z)) if rank(y) <= 2, rank(w) >= 2, rank(z) == 0, rank(x) >= 5": 5,
    # Products of a vector have an axis less.
    "x @ w => relu(x @ w) if rank(x) == 1, rank(w) >= 5": 5,
    "x @ w => relu(x @ w) if rank(matmul(x, w)) >= 5, rank(x) == 1": 6,
    "x @ w => relu(x @ w) if rank(matmul(x, w)) >= 5, rank(w) == 1": 6,
    "x @ w => relu(x @ w) if len(shape(matmul(x, w))) >= 5": 5,
    "(x @ w) * y => (x @ w) * relu(y) if rank(x) == 1, rank(w) >= 5, rank(y) == 1": 5,
    "reduce_sum(x * w, axes=(rank(x) - 1,), keepdims=False) => x @ relu(w) if rank(w) == 1, rank(x) >= 5,"
    " dim(x, -1) == dim(w, 0)": 5,
    "reduce_sum(x, axes=(-1,), keepdims=False) => reduce_max(x, axes=(-1,), keepdims=False) if rank(x) >= 6": 6,
    "reduce_sum(x, axes=(-1,), keepdims=False) * y => reduce_max(x, axes=(-1,), keepdims=False) * y"
    " if rank(y) == 6, dim(y, 0) == 2, dim(y, 5) == 1, rank(x) >= 2": 6,
    "x @ w => reduce_max(x * w, axes=(rank(x) - 1,), keepdims=False) if rank(w) == 1, shape(x)[:-1] == (2, 2, 2, 2)": 5,
    # One of several statements about ranks.
    "relu(x) => x if rank(x) >= 6 or rank(x) == 9": 6,
    "relu(x) => x if rank(x) == 7 or rank(x) == 9": 7,
    # Axes that one operand has alone, or along which it has more elements.
    "relu(x) + c => x + c if not spans(x, c), not spans(c, x)": 2,
    "relu(x) + c => x + c if not spans(x, c), rank(x) >= 4, rank(c) == 1": 4,
    "softmax(x, axis=k) + c => softmax(x, axis=k) - c if not spans(x, c), k == 4": 5,
    # So many axes, one of which is named.
    "reduce_sum(x, axes=a, keepdims=True) => reduce_max(x, axes=a, keepdims=True) if len(a) == 3, a[0] == 2": 5,
    "reduce_sum(x, axes=a, keepdims=True) => softmax(x, axis=a[3]) if len(a) == 5": 5,
    # Indices have axes of their own.
    "gather(x, i, axis=k) => -gather(x, i, axis=k) if rank(i) >= 5": 5,
    "gather(x, i, axis=k) => -gather(x, i, axis=k) if rank(i) == 1, rank(x) >= 6": 6,
    "gather(relu(x), i, axis=k) => gather(x, i, axis=k) if rank(i) == 3, rank(x) >= 6, k == 5": 6,
    "gather(x, i, axis=k) => slice(x, **cut(k, first(i), last(i) + 1)) if is_progression(i), k >= 4": 5,
    # A shape of ones that has an axis less.
    "relu(x) * reshape(g, shape=(dim(x, 1),) + ones(rank(x) - 2)) => x * reshape(g, shape=(dim(x, 1),)"
    " + ones(rank(x) - 2)) if rank(g) == 1, rank(x) >= 5": 5,
    # A shape of which a part has so many sizes, and windows with so many strides.
    "relu(x) => x if shape(x)[3:] == (1, 1)": 5,
    "relu(x) => x if shape(x)[:-3] == (1, 1)": 5,
    "conv(relu(x), w, **a) => conv(x, w, **a) if shape(w)[2:] == (1, 1, 1, 1)": 6,
    "expand(relu(x), shape=s) => expand(x, shape=s) if s == (2, 2, 2, 2, 2)": 5,
    "conv(relu(x), w, dilations=(1, 1, 1)) => conv(x, w, dilations=(1, 1, 1))": 5,
    # What is made of a number of axes alone.
    "conv(x, identity_kernel(channels=c, kernel=k), **a) => relu(x) if len(k) == 5": 7,
}


@pytest.mark.parametrize(("text", "rank"), FALSE_FROM.items())
def test_no_rank_suffices_below_one_at_which_a_rule_is_false(text: str, rank: int) -> None:
    bound = sufficient_rank(parsed(text))
    assert bound is None or bound >= rank


@pytest.mark.parametrize(("text", "rank"), BOUNDS.items())
def test_ranks_that_suffice(text: str, rank: int) -> None:
    assert sufficient_rank(parsed(text)) == rank


@pytest.mark.parametrize("text", UNBOUNDED)
def test_no_rank_is_known_to_suffice(text: str) -> None:
    assert sufficient_rank(parsed(text)) is None


def test_windows_may_lose_axes_in_proofs_that_do_not_look_at_these() -> None:
    rule = parsed("conv(relu(x), w, **a) => relu(conv(x, w, **a))")
    assert sufficient_rank(rule) is None
    assert sufficient_rank(rule, frozenset({"conv"})) == 4
    assert sufficient_rank(parsed("global_max_pool(relu(x)) => relu(global_max_pool(x))")) == 4
    of_six = parsed("conv(relu(x), w, strides=shifted(4, 1)) => conv(x, w, strides=shifted(4, 1))")
    assert sufficient_rank(of_six, frozenset({"conv"})) is None


def test_proofs_up_to_that_rank_are_of_every_rank() -> None:
    assert prove_sizes(parsed(next(iter(BOUNDS)))).every_rank
    assert prove_sizes(
        parsed("-reduce_sum(x, axes=a, keepdims=True) => reduce_sum(-x, axes=a, keepdims=True)")
    ).every_rank
    # True at all ranks up to 4, where a proof looks: it is none of every rank.
    found = prove_sizes(parsed("softmax(x, axis=k) => softmax(x, axis=min(k, 3))"))
    assert found.rank >= 3 and not found.every_rank
    assert not prove_sizes(parsed("relu(x) => x if rank(x) >= 6")).is_proved
    assert not prove_sizes(parsed("transpose(x, perm=p) => x")).every_rank


def _result(declared: OpSpec, arrays: list[np.ndarray], **attrs: object) -> np.ndarray:
    types = [TensorType(DType.FLOAT64, array.shape) for array in arrays]
    complete = declared.complete(attrs)
    (made,) = declared.result_types(types, complete)
    (result,) = outputs(Floats(wide=True), declared.name, complete, arrays, list(types), [made])
    return np.asarray(result)


ALONG_ONE = [
    n for n, one in OPS.items() if one.form and one.form.result.attribute == "axis" and not one.form.result.tail
]
ALONG_SOME = [
    n for n, one in OPS.items() if one.form and "{axes}" in one.index.partition("->")[0] and "keepdims" in one.attrs
]


@pytest.mark.parametrize("name", ALONG_ONE + ALONG_SOME)
def test_operators_take_each_place_of_other_axes_by_itself(name: str) -> None:
    declared = spec(name)
    array = np.random.default_rng(0).uniform(0.5, 2, (3, 4, 5))
    named = (lambda axis: {"axis": axis}) if name in ALONG_ONE else (lambda axis: {"axes": (axis,), "keepdims": True})
    whole = _result(declared, [array], **named(1))
    for place in range(3):
        assert np.allclose(_result(declared, [array[place]], **named(0)), whole[place])
    for place in range(5):
        assert np.allclose(_result(declared, [array[:, :, place]], **named(1)), whole[:, :, place])


@pytest.mark.parametrize("name", ALONG_SOME)
def test_two_axes_of_one_sum_are_as_one(name: str) -> None:
    declared = spec(name)
    array = np.random.default_rng(0).uniform(0.5, 2, (3, 4, 5))
    both = _result(declared, [array], axes=(1, 2), keepdims=True)
    assert np.allclose(_result(declared, [array.reshape(3, 20)], axes=(1,), keepdims=True), both[:, :, 0])
    turned = _result(declared, [np.transpose(array, (0, 2, 1)).reshape(3, 20)], axes=(1,), keepdims=True)
    assert np.allclose(turned, both[:, :, 0])


@pytest.mark.parametrize("name", ["global_avg_pool", "global_max_pool"])
def test_all_axes_of_space_are_as_one(name: str) -> None:
    array = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    whole = _result(spec(name), [array])
    assert np.allclose(_result(spec(name), [array.reshape(2, 3, 20)])[..., 0], whole[..., 0, 0])


def test_shipped_rules_of_every_rank_hold_at_ranks_where_no_proof_looked() -> None:
    evidence, seen = shipped_evidence(), 0
    rules = [r for r in shipped_rules() if evidence[r.name].every_rank and sufficient_rank(r) is not None]
    for rule in random.Random(7).sample(rules, 30):
        drawn = Sampler(rule, 3).draw(200)
        search = DirectedSearch(rule, 3, 1)
        for bindings in [] if drawn is None else list(search.filled(raised(rule, drawn)))[:6]:
            if not search.meets(bindings):
                continue
            left = typed_left(rule, bindings)
            assert left is not None
            ours, theirs = evaluated(bindings, Floats(wide=True), left, right_terms(rule, bindings))
            for one, other in zip(ours, theirs, strict=True):
                assert np.allclose(one, other, rtol=1e-6, atol=1e-6, equal_nan=True), rule.name
            seen += max(one.type.rank for one in operands(bindings)) > sufficient_rank(rule)
    assert seen > 20


@pytest.mark.parametrize(("name", "rank"), OF_ONE_RANK.items())
def test_constants_of_which_a_condition_holds_have_one_rank(name: str, rank: int) -> None:
    more = (0,) if name == "is_selection" else ()
    vector, matrices = (
        np.arange(3),
        (np.eye(3), np.tril(np.ones((3, 3))), np.eye(3) + 1, np.kron(np.eye(2), np.ones((2, 2)))),
    )
    holds = set()
    for array in (vector, *matrices):
        for shape in (array.shape, (1, *array.shape), (*array.shape, 1), array.shape[1:], (*array.shape, 1, 1)):
            one = np.resize(array, shape)
            dtype = DType.INT64 if rank == 1 else DType.FLOAT64
            drawn = Drawn("c", TensorType(dtype, one.shape), constant=True, array=one.astype(dtype.numpy))
            if FUNCTIONS[name](drawn, *more) is True:
                holds.add(one.ndim)
    assert holds == {rank}


@pytest.mark.parametrize("attribute", ["kernel", "strides", "dilations"])
def test_windows_have_as_many_strides_as_axes_of_space(attribute: str) -> None:
    declared = [one for one in OPS.values() if one.windowed and one.form and attribute in one.attrs]
    assert declared
    for one in declared:
        for rank in range(1, 6):
            types = [
                TensorType(DType.FLOAT32, (2, 2, 4, 4, 4)[:rank]),
                TensorType(DType.FLOAT32, (2, 2, 1, 1, 1)[:rank]),
            ]
            attrs = {"kernel": (1,) * max(rank - 2, 0)} if "kernel" in one.attrs else {}
            complete = one.complete({**attrs, attribute: (1, 1)})
            try:
                one.result_types(types[: one.min_operands], complete)
            except ShapeError:
                continue
            assert rank == 4, one.name
