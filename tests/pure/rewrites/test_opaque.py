"""Proofs of which operators with windows, and recurrent layers, are known by what is said of their axes alone."""

from dataclasses import replace

import pytest

from eqsat.language.ops import OPS, spec
from eqsat.rewrites.proof.opaque.claims import follows_form
from eqsat.rewrites.proof.opaque.layout import is_opaque, layout
from eqsat.rewrites.proof.opaque.ranks import own_ranks
from eqsat.rewrites.proof.opaque.recurrent import sees_products
from eqsat.rewrites.proof.opaque.signatures import has_ranks_of_form, keeps_shape, refuses_several_types
from eqsat.rewrites.proof.sizes import prove_sizes
from tests.support.candidates import parsed

#: True rules, and the rank up to which they are proved for every size; None for every rank.
TRUE = {
    "slice(avg_pool(x, **a), axes=(1,), starts=i, ends=j, steps=d)"
    " => avg_pool(slice(x, axes=(1,), starts=i, ends=j, steps=d), **a)": 4,
    "relu(conv(x, w, b, **a)) => conv(x, w, b, activation='relu', **a) if a.activation == 'none'": 4,
    "conv(x, concat(*ws, axis=0), **a) => concat(*[conv(x, w, **a) for w in ws], axis=1)"
    " if a.group == 1, all(without(shape(w), 0) == without(shape(ws[0]), 0) for w in ws)": 4,
    "conv(x, w, **a) + conv(y, w, **a) => conv(x + y, w, **a) if a.activation == 'none', same_shape(x, y)": 4,
    "conv(x * c, w, **a) => conv(x, w * c, **a) if size(c) == 1, rank(c) == 0": 4,
    "reduce_sum(conv_transpose(x, w, **a), axes=(0,), keepdims=True)"
    " => conv_transpose(reduce_sum(x, axes=(0,), keepdims=True), w, **a)": 4,
    "max_pool(x + c, **a) => max_pool(x, **a) + c if rank(c) == 0, wide(x)": 4,
    "lrn(concat(*xs, axis=0), **a) => concat(*[lrn(x, **a) for x in xs], axis=0)"
    " if all(without(shape(x), 0) == without(shape(xs[0]), 0) for x in xs)": 4,
    "hardmax(transpose(x, perm=p), axis=k) => transpose(hardmax(x, axis=p[k]), perm=p)": 4,
    "attention(x, w, concat(*us, axis=3), **a) => concat(*[attention(x, w, u, **a) for u in us], axis=3)"
    " if all(without(shape(u), 3) == without(shape(us[0]), 3) for u in us)": None,
    "lstm(x @ m, w, r, b, **a) => lstm(x, w @ transpose(m, perm=(1, 0)), r, b, **a)"
    " if rank(m) == 2, rank(x) == 3": None,
    "gru(x, w, r, b, None, h, **a) => gru(x, w, r, b, **a) if is_all(h, 0)": None,
    "rnn(x, w, r, **a) => rnn(x, w, r, fill(shape=(dim(w, 0), 2 * dim(w, 1)), value=0.0, dtype=dtype(w)), **a)": None,
}
#: Rules that look like true ones: false along the axis of windows, for groups, with an activation, of other attributes.
FALSE = [
    "slice(avg_pool(x, **a), axes=(2,), starts=i, ends=j, steps=d)"
    " => avg_pool(slice(x, axes=(2,), starts=i, ends=j, steps=d), **a) if rank(x) == 3",
    "avg_pool(x, **a) => avg_pool(x, kernel=a.kernel)",
    "conv(x, w, **a) => conv(x, w, strides=a.dilations, dilations=a.strides, **a)",
    "conv(x, concat(*ws, axis=0), **a) => concat(*[conv(x, w, **a) for w in ws], axis=1)"
    " if all(without(shape(w), 0) == without(shape(ws[0]), 0) for w in ws)",
    "conv(x, w, **a) + conv(y, w, **a) => conv(x + y, w, **a) if same_shape(x, y)",
    "conv(x, w, b, **a) * c => conv(x * c, w, b, **a) if rank(c) == 0, a.activation == 'none'",
    "conv(x, w, b, **a) => conv(x, w, **a) if a.activation == 'none'",
    "max_pool(x * c, **a) => max_pool(x, **a) * c if rank(c) == 0, wide(x)",
    "max_pool(c - x, **a) => c - max_pool(x, **a) if rank(c) == 0, wide(x)",
    "max_pool(x + c, **a) => max_pool(x, **a) + c if same_shape(x, c), wide(x)",
    "max_pool(cast(x, to='int8'), **a) => cast(max_pool(x, **a), to='int8') if dtype(x) == 'int32'",
    "max_pool(x, **a) + max_pool(y, **a) => max_pool(x + y, **a) if same_shape(x, y)",
    "lrn(concat(*xs, axis=1), **a) => concat(*[lrn(x, **a) for x in xs], axis=1)"
    " if all(without(shape(x), 1) == without(shape(xs[0]), 1) for x in xs)",
    "hardmax(transpose(x, perm=p), axis=k) => transpose(hardmax(x, axis=k), perm=p) if rank(x) >= 2",
    "softmax(x, axis=k) => softmax(x, axis=0) if k == 1",
    "group_norm(x, w, b, groups=g, epsilon=e) => group_norm(x, b, w, groups=g, epsilon=e)",
    "attention(x, w, concat(*us, axis=2), **a) => concat(*[attention(x, w, u, **a) for u in us], axis=2)",
    "attention(x, w, u, **a) => attention(w, x, u, **a) if same_shape(x, w)",
    "lstm(x @ m, w, r, b, **a) => lstm(x, w @ m, r, b, **a) if rank(m) == 2, rank(x) == 3, dim(m, 0) == dim(m, 1)",
    "gru(x, w, r, b, None, h, **a) => gru(x, w, r, b, **a) if is_all(h, 1)",
    "rnn(x, w, r, b, **a) => rnn(x, w, r, **a)",
    "rnn(x, w, r, b, n, **a) => rnn(x, w, r, b, **a) if static(x), a.layout == 0, is_all(n, dim(x, 0) - 1)",
    "rnn(x, w, r, b, n, **a) => rnn(x, w, r, b, **a) if static(x)",
    "resize(slice(x, **s), **a) => slice(resize(x, **a), **s)",
    # Of zeros, one operator is not another, nor one element the next.
    "softmax(x, axis=k) - log_softmax(x, axis=k) => log_softmax(x, axis=k) - softmax(x, axis=k) if is_all(x, 0)",
    "slice(hardmax(x, axis=0), axes=(0,), starts=(1,), ends=(2,), steps=(1,))"
    " => slice(hardmax(x, axis=0), axes=(0,), starts=(0,), ends=(1,), steps=(1,)) if is_all(x, 0), dim(x, 0) == 4",
    "rnn(x, w, r, activations=s, alphas=(), betas=(), clip=None, layout=0, direction='forward')"
    " => rnn(x, w, r, activations=('Sigmoid',), alphas=(), betas=(), clip=None, layout=0, direction='forward')"
    " if is_all(x, 0), is_all(r, 0)",
    # An attribute that is computed with has a value, and so has one that is left out.
    "attention(q, k, v, scale=s) => attention(q, k, v, scale=(0.5 if s is None else s))",
    "gru(x, w, r, clip=c) => gru(x, w, r, clip=(0.5 if c is None else c))",
    # Masks of truth values are not numbers.
    "attention(q, k, v, m, **a) => attention(q, k, v, cast(m, to=dtype(q)), **a)",
    # Some operators take no axes that are counted from the right, and ranks without windows.
    "mvn(x, axes=(1,)) => mvn(x, axes=(-1,)) if rank(x) == 2",
    "global_avg_pool(x * y) => global_avg_pool(x) * y if same_shape(x, y)",
    # One scale, whose axis or block does not fit.
    "dequantize_linear(x, s, axis=i, block=b) => dequantize_linear(x, s, axis=7, block=1) if size(s) == 1",
    "quantize_linear(reshape(x, shape=t), s, z, **a) => reshape(quantize_linear(x, s, z, **a), shape=t)"
    " if size(s) == 1, size(z) == 1",
    # What the right side sees beside what the left does may have no value.
    "lrn(exp(x), **a) + (y - y) => lrn(exp(x), **a) + (lrn(y, **a) - lrn(y, **a)) if same_shape(x, y)",
    "cumsum(concat(*xs, axis=k), axis=k) => concat(*[cumsum(x, axis=k) for x in xs], axis=k)",
]


@pytest.mark.parametrize("text", TRUE)
def test_true_rules_are_proved_for_every_size(text: str) -> None:
    proof = prove_sizes(parsed(text))
    assert proof.every_rank or (TRUE[text] is not None and proof.rank >= TRUE[text]), proof.open


@pytest.mark.parametrize("text", FALSE)
def test_false_rules_are_not(text: str) -> None:
    assert not prove_sizes(parsed(text), 400).is_proved


@pytest.mark.parametrize("name", sorted(name for name, declared in OPS.items() if is_opaque(declared)))
def test_shipped_operators_do_what_their_index_forms_say(name: str) -> None:
    assert follows_form(spec(name))


#: Index forms that say more than an operator does, or something else.
WRONG = {
    "avg_pool": "n c h... -> n c h...",
    "lrn": "n c [h...] -> n c [h...]",
    "softmax": "n [c...] -> n [c...]",
    "group_norm": "[n] c h..., c, c -> [n] c h...",
    "conv": "n g*c h@r..., g*o c r..., + g*o -> n h... g*o; g = group",
    "attention": "b h [q d], b h [k d], b h [k] v -> b h [q] v",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_form_that_says_something_else_is_not_followed(name: str) -> None:
    assert not follows_form(replace(spec(name), index=WRONG[name]))


def test_recurrent_layers_see_products() -> None:
    assert all(sees_products(spec(name)) for name in ("rnn", "gru", "lstm"))
    assert not sees_products(spec("conv"))


def test_operators_that_take_other_ranks_or_types_are_known() -> None:
    assert own_ranks(spec("gemm")) == [2, 2, 2]
    assert own_ranks(spec("batch_norm")) == [None, 1, 1, 1, 1]
    assert not has_ranks_of_form(spec("matmul"))  # it takes vectors as well
    assert refuses_several_types(spec("conv"))
    assert not refuses_several_types(spec("layer_norm"))
    assert keeps_shape(spec("cumsum"))
    assert not keeps_shape(spec("avg_pool"))


def test_a_layout_names_the_axes_that_are_walked() -> None:
    conv = spec("conv")
    found = layout(conv, conv.complete({}), [4, 4])
    assert found is not None
    assert [axis.name for axis in found.result] == ["n", "o", "", ""]
    assert [axis.group for axis in found.operands[0]] == ["", "g", "", ""]
    assert found.linear == (0, 1) and found.summed == ("c",)
    assert layout(conv, conv.complete({}), [4, 3]) is None
