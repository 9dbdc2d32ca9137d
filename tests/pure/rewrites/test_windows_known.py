"""Proofs with windows of which more is known: of one element, without pads, or of which the largest is chosen."""

import pytest

from eqsat.language.ops import spec
from eqsat.rewrites.proof.opaque.windows import has_usual
from eqsat.rewrites.proof.sizes import prove_sizes
from tests.support.candidates import parsed

_SINGLE = "all(k == 1 for k in shape(w)[2:])"
_BATCH_NORM = (
    "conv(batch_norm(x, g, b, m, v, epsilon=e), w, strides=(), pads={pads}, dilations=(), group=1, activation='none')"
    " => conv(x, w * reshape(g / sqrt(v + fill(shape=(), value=e, dtype=dtype(v))), shape=(1, dim(x, 1), 1)),"
    " reduce_sum(w * reshape(b - m * (g / sqrt(v + fill(shape=(), value=e, dtype=dtype(v)))),"
    " shape=(1, dim(x, 1), 1)), axes={axes}, keepdims=False),"
    " strides=(), pads={pads}, dilations=(), group=1, activation='none')"
    " if rank(x) == 3, is_nonnegative(v), e > 0, wide(x)"
)


#: True rules, and the rank up to which they are proved for every size at least.
TRUE = {
    "relu(max_pool(x, **a)) => max_pool(relu(x), **a)": 4,
    "max_pool(tanh(x), **a) => tanh(max_pool(x, **a))": 4,
    "max_pool(x * c, **a) => max_pool(x, **a) * c if is_nonnegative(c), along_only(c, 1, rank(x), dim(x, 1))": 4,
    "max_pool(x + c, **a) => max_pool(x, **a) + c if along_only(c, 1, rank(x), dim(x, 1))": 4,
    "sigmoid(max_pool(x, **a)) => max_pool(sigmoid(x), **a)": 4,
    "exp(max_pool(x, **a)) => max_pool(exp(x), **a)": 4,
    "max_pool(maximum(x, fill(shape=(), value=1.0, dtype='float32')), **a)"
    " => maximum(max_pool(x, **a), fill(shape=(), value=1.0, dtype='float32'))": 4,
    "global_max_pool(relu(x)) => relu(global_max_pool(x))": 4,
    "avg_pool(x, **a) => x if all(k == 1 for k in a.kernel), all(s == 1 for s in a.strides), unpadded(a)": 4,
    "avg_pool(x + c, **a) => avg_pool(x, **a) + c"
    " if unpadded(a), along_only(c, 1, rank(x), dim(x, 1)), rank(c) == 3": 3,
    "avg_pool(conv(x, w, **a), **b) => conv(avg_pool(x, **b), w, **a)"
    f" if a.group == 1, a.activation == 'none', {_SINGLE}, all(s == 1 for s in a.strides), unpadded(a)": 4,
    "max_pool(x, kernel=k, strides=s) => max_pool(x, kernel=k) if len(s) == 0": 4,
    _BATCH_NORM.format(pads="()", axes="(1, 2)"): 3,
}
#: Rules next to these that are false: without a condition, in another order.
FALSE = [
    "max_pool(x, kernel=k, strides=s) => max_pool(x, kernel=k)",
    "conv(x, w, strides=s, dilations=d) => conv(x, w, strides=d, dilations=s) if rank(x) == 3, dim(w, 2) > 1",
    "max_pool(x * c, **a) => max_pool(x, **a) * c if along_only(c, 1, rank(x), dim(x, 1))",
    "max_pool(x * c, **a) => max_pool(x, **a) * c if is_positive(c), same_shape(x, max_pool(x, **a)), same_shape(x, c)",
    "max_pool(-x, **a) => -max_pool(x, **a)",
    "max_pool(relu(x), **a) => relu(max_pool(x, kernel=a.kernel))",
    "relu(avg_pool(x, **a)) => avg_pool(relu(x), **a)",
    "avg_pool(x, **a) => x if all(k == 1 for k in a.kernel), all(s == 1 for s in a.strides)",
    "avg_pool(x, **a) => x if all(k == 1 for k in a.kernel), unpadded(a)",
    "avg_pool(x, **a) => x if all(s == 1 for s in a.strides), unpadded(a)",
    "avg_pool(x, **a) => avg_pool(x, kernel=(1,)) if all(k == 1 for k in a.kernel), all(s == 1 for s in a.strides),"
    " unpadded(a), rank(x) == 4",
    "avg_pool(x + c, **a) => avg_pool(x, **a) + c if along_only(c, 1, rank(x), dim(x, 1)), rank(c) == 3",
    "avg_pool(x + c, **a) => avg_pool(x, **a) + c if unpadded(a), along_only(c, 2, rank(x), dim(x, 2)), rank(c) == 3",
    "avg_pool(conv(x, w, **a), **b) => conv(avg_pool(x, **b), w, **a)"
    " if a.group == 1, a.activation == 'none', all(s == 1 for s in a.strides), unpadded(a)",
    "avg_pool(conv(x, w, **a), **b) => conv(avg_pool(x, **b), w, **a)"
    f" if a.group == 1, a.activation == 'none', {_SINGLE}, unpadded(a)",
    "avg_pool(conv(x, w, **a), **b) => conv(avg_pool(x, **b), w, **a)"
    f" if a.group == 1, a.activation == 'none', {_SINGLE}, all(s == 1 for s in a.strides)",
    "avg_pool(conv(x, w, **a), **b) => conv(avg_pool(x, **b), w, **a)"
    f" if a.group == 1, {_SINGLE}, all(s == 1 for s in a.strides), unpadded(a)",
    "conv(resize(x, **r), w, strides=(1,), pads=(0, 0), dilations=d, group=g, activation='none')"
    " => resize(conv(x, w, strides=(1,), pads=(0, 0), dilations=d, group=g, activation='none'), **r)"
    " if shape(w)[2:] == (1,)",
    _BATCH_NORM.format(pads="(1, 0)", axes="(1, 2)"),
    _BATCH_NORM.format(pads="()", axes="(0, 2)"),
    _BATCH_NORM.format(pads="()", axes="(1, 2)").replace("b - m", "b + m"),
]


def test_what_is_left_out_of_windows_is_the_usual() -> None:
    """Strides, pads and dilations have defaults; a window has none."""
    assert all(has_usual(spec("conv"), name) for name in ("strides", "pads", "dilations"))
    assert not has_usual(spec("max_pool"), "kernel")
    assert not has_usual(spec("conv"), "group")


@pytest.mark.parametrize("text", TRUE)
def test_true_rules_are_proved(text: str) -> None:
    """What is known of windows proves these rules."""
    proof = prove_sizes(parsed(text))
    assert proof.rank >= TRUE[text], proof.open


@pytest.mark.parametrize("text", FALSE)
def test_false_rules_are_not(text: str) -> None:
    """What is known of windows is not taken for more."""
    assert not prove_sizes(parsed(text)).is_proved
