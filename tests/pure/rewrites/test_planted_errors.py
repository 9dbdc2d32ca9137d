"""Errors that rule sets have shipped or that people would make: each false form is refuted, its guarded form proved."""

import pytest

from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.parser import parse_rules

EFFORT = Effort(numeric=40, symbolic=6)

#: What SAME_UPPER pads along each spatial axis, for a kernel of `k` elements and strides `s`.
SAME_UPPER = (
    "tuple(max((-(-n // t) - 1) * t + {k} - n, 0) // 2 for n, t in zip(shape(x)[2:], s))"
    " + tuple((max((-(-n // t) - 1) * t + {k} - n, 0) + 1) // 2 for n, t in zip(shape(x)[2:], s))"
)
SUM_OF_FILTERS = (
    "conv(x, v, **a) + conv(x, w, **a) => conv(x, v + w, **a) if same_shape(v, w), wide(x), finite(x, v, w)"
)
SUM_OF_INPUTS = (
    "conv(x, w, **a) + conv(y, w, **a) => conv(x + y, w, **a) if a.activation == 'none', wide(x), finite(x, y, w)"
)
SUM_OF_CONVS = (
    "conv(x, v, **a) + conv(y, w, **a) => conv(concat(x, y, axis=1), concat(v, w, axis=1), **a) "
    "if a.activation == 'none', wide(x), same_shape(x, y), same_shape(v, w)"
)
OVER_FILTERS = (
    "concat(conv(x, v, **a), conv(x, w, **a), axis=1) => conv(x, concat(v, w, axis=0), **a) "
    "if without(shape(v), 0) == without(shape(w), 0)"
)
GROUPED = (
    "concat(conv(x, v, **a), conv(y, w, **a), axis=1) "
    "=> conv(concat(x, y, axis=1), concat(v, w, axis=0), group=2 * a.group, **a)"
)
ENLARGED = "conv(x, enlarge(w, kernel=k), **a) => conv(x, w, pads={pads}, **a) if static(w), finite(x){guard}"
UNDILATED = (
    "tuple(p - (n - m) // 2 for p, n, m in zip(a.pads or (0,) * (2 * len(k)), k + k, shape(w)[2:] + shape(w)[2:]))"
)
BATCH_NORM = (
    "conv(batch_norm(x, g, b, m, v, epsilon=e), w, **a) => conv(x, "
    "w * reshape(g / sqrt(v + fill(shape=(), value=e, dtype=dtype(v))), shape=(1, dim(x, 1)) + ones(rank(w) - 2)), "
    "reduce_sum(w * reshape(b - m * (g / sqrt(v + fill(shape=(), value=e, dtype=dtype(v)))), "
    "shape=(1, dim(x, 1)) + ones(rank(w) - 2)), axes=shifted(rank(w) - 1, 1), keepdims=False), **a) "
    "if a.group == 1, constant(w, g, b, m, v), wide(x), finite(w, g, b, m, v)"
)
RNN_STEP = (
    "rnn(x, w, r, b, None, h, **a) => reshape(y, shape=(1,) + shape(h)), reshape(y, shape=shape(h)) "
    "where t := reduce_sum(reshape(b, shape=(2, dim(w, 1))), axes=(0,), keepdims=False), "
    "u := reshape(x, shape=shape(x)[1:]) @ transpose(reshape(w, shape=shape(w)[1:]), perm=(1, 0)), "
    "q := reshape(h, shape=shape(h)[1:]) @ transpose(reshape(r, shape=shape(r)[1:]), perm=(1, 0)), "
    "y := tanh(u + q + t) if dim(x, 0) == 1, dim(w, 0) == 1, a.layout == 0, wide(x)"
)
INTERCHANGE = (
    "concat(concat(x, y, axis=a), concat(z, w, axis=a), axis=b) "
    "=> concat(concat(x, z, axis=b), concat(y, w, axis=b), axis=a) if a != b"
)
GROUPS = (
    "reshape(instance_norm(reshape(x, shape=s), g, b, epsilon=e), shape=t) => group_norm(x, "
    "{gains}, {biases}, groups=s[1], epsilon=e) if rank(x) >= 3, t == shape(x), dim(x, 1) % s[1] == 0, constant(g, b)"
)
REPEATED = "reshape(expand(reshape({v}, shape=(s[1], 1)), shape=(s[1], dim(x, 1) // s[1])), shape=(dim(x, 1),))"
OF_GROUPS = GROUPS.format(gains=REPEATED.format(v="g"), biases=REPEATED.format(v="b"))

#: The false form and the true one.
PLANTED = {
    "groups of channels of several images": (OF_GROUPS, OF_GROUPS + ", s[0] == dim(x, 0), s[1] > 0"),
    "a factor of channels that leaves the bias": (
        "group_norm(x, g, b, **a) * s => group_norm(x, g * reshape(s, shape=shape(g)), b, **a) "
        "if constant(g, b, s), along_only(s, 1, rank(x), dim(x, 1)), wide(x), finite(g, b, s)",
        "group_norm(x, g, b, **a) * s => group_norm(x, g * reshape(s, shape=shape(g)), b * reshape(s, shape=shape(b)), "
        "**a) if constant(g, b, s), along_only(s, 1, rank(x), dim(x, 1)), wide(x), finite(g, b, s)",
    ),
    "relu of a border below zero": (
        "pad(relu(x), **a) => relu(pad(x, **a))",
        "pad(relu(x), **a) => relu(pad(x, **a)) if a.value >= 0.0",
    ),
    "concat of grouped convolutions over output channels": (OVER_FILTERS, OVER_FILTERS + ", a.group == 1"),
    "sum of grouped convolutions": (SUM_OF_CONVS, SUM_OF_CONVS + ", a.group == 1"),
    "an even kernel enlarged": (
        "conv(x, w, **a) => conv(x, pad(w, pads=(0, 0, 0, 0, 0, 0, 1, 1), mode='constant', value=0.0), "
        "pads=tuple(p + 1 for p in a.pads[:2]) + a.pads[2:], **a) if finite(x), len(a.pads) == 4",
        "conv(x, w, **a) => conv(x, pad(w, pads=(0, 0, 0, 0, 0, 0, 1, 1), mode='constant', value=0.0), "
        "pads=a.pads[:2] + added(a.pads[2:], a.dilations), **a) if finite(x), len(a.pads) == 4",
    ),
    "a kernel enlarged under SAME_UPPER at stride 2": (
        f"conv(x, w, strides=s) => conv(x, enlarge(w, kernel=(3, 3)), strides=s, pads={SAME_UPPER.format(k=3)}) "
        "if shape(w)[2:] == (1, 1), finite(x)",
        f"conv(x, w, strides=s) => conv(x, enlarge(w, kernel=(3, 3)), strides=s, pads={SAME_UPPER.format(k=3)}) "
        "if shape(w)[2:] == (1, 1), finite(x), len(s) == 2, "
        "all(t == 1 or t == 2 and n % 2 for n, t in zip(shape(x)[2:], s))",
    ),
    "a convolution with relu taken as linear": (SUM_OF_FILTERS, SUM_OF_FILTERS + ", a.activation == 'none'"),
    "concat interchange with unequal split points": (
        INTERCHANGE + ", dim(x, b) == dim(y, b)",
        INTERCHANGE + ", dim(x, a) == dim(z, a)",
    ),
    "grouped convolutions merged unguarded": (GROUPED, GROUPED + " if same_shape(x, y), same_shape(v, w)"),
    "a factor dropped": (
        "conv(x, w, **a) * y => conv(x, w, **a) if same_shape(conv(x, w, **a), y)",
        "conv(x, w, **a) * y => conv(x, w, **a) if same_shape(conv(x, w, **a), y), is_all(y, 1)",
    ),
    "relu through a negative scale": (
        "relu(x * c) => relu(x) * c if is_uniform(c), floating(x)",
        "relu(x * c) => relu(x) * c if is_uniform(c), floating(x), is_positive(c)",
    ),
    "softmax over the wrong axis after a transpose": (
        "softmax(transpose(x, perm=p), axis=k) => transpose(softmax(x, axis=k), perm=p)",
        "softmax(transpose(x, perm=p), axis=k) => transpose(softmax(x, axis=p[k]), perm=p)",
    ),
    "batch-norm folded past a padding": (BATCH_NORM, BATCH_NORM + ", unpadded(a)"),
    "integer division taken as linear": (
        "x / c + y / c => (x + y) / c if same_shape(x, y), finite(x, y, c)",
        "x / c + y / c => (x + y) / c if same_shape(x, y), finite(x, y, c), floating(x)",
    ),
    "a mean of integers taken as linear": (
        "reduce_mean(x, **a) - reduce_mean(y, **a) => reduce_mean(x - y, **a) if same_shape(x, y), finite(x, y)",
        "reduce_mean(x, **a) - reduce_mean(y, **a) => reduce_mean(x - y, **a)"
        " if same_shape(x, y), finite(x, y), wide(x)",
    ),
    "a product with zero without finiteness": (
        "x * c => expand(c, shape=shape(mul(x, c))) if is_all(c, 0), floating(x)",
        "x * c => expand(c, shape=shape(mul(x, c))) if is_all(c, 0), floating(x), finite(x)",
    ),
    "sum of convolutions with a broadcast operand under padding": (SUM_OF_INPUTS, SUM_OF_INPUTS + ", same_shape(x, y)"),
    "zeros for queries that look at nothing": (
        'attention(q, k, v, scale=s, causal=f, hidden="nan") => attention(q, k, v, scale=s, causal=f, hidden="zero")',
        'attention(q, k, v, scale=s, causal=f, hidden="nan") => attention(q, k, v, scale=s, causal=f, hidden="zero") '
        "if finite(q, k)",
    ),
    "zeros for queries from which a mask may hide all keys": (
        'attention(q, k, v, m, scale=s, hidden="nan") => attention(q, k, v, m, scale=s, hidden="zero") if finite(q, k)',
        'attention(q, k, v, m, scale=s, hidden="nan") => attention(q, k, v, m, scale=s, hidden="zero") '
        'if hidden(q, k, m) == "none"',
    ),
    "attention as ONNX has it for a softmax that may be NaN": (
        "softmax(q @ transpose(k, perm=(0, 1, 3, 2)), axis=3) @ v => attention(q, k, v, scale=1.0) "
        "if heads_agree(q, k, v)",
        "softmax(q @ transpose(k, perm=(0, 1, 3, 2)), axis=3) @ v => attention(q, k, v, scale=1.0) "
        "if heads_agree(q, k, v), finite(q, k)",
    ),
    "softmax shifted by a vector along its axis": (
        "softmax(x + c, axis=k) => softmax(x, axis=k) if spans(x, c), finite(x, c)",
        "softmax(x + c, axis=k) => softmax(x, axis=k) if spans(x, c), finite(x, c), off_axis(c, k, rank(x))",
    ),
    "a kernel enlarged at dilation 2 with undilated pads": (
        ENLARGED.format(pads=UNDILATED, guard=f", min({UNDILATED}) >= 0, grows_evenly(shape(w)[2:], k)"),
        ENLARGED.format(pads="shrunk_pads(a.pads, a.dilations, shape(w)[2:], k)", guard=""),
    ),
    "a difference of equals without finiteness": (
        "x - x => fill(shape=shape(x), value=0.0, dtype=dtype(x)) if floating(x), static(x)",
        "x - x => fill(shape=shape(x), value=0.0, dtype=dtype(x)) if floating(x), static(x), finite(x)",
    ),
    "a product with an identity matrix without finiteness": (
        "x @ c => x if is_eye(c)",
        "x @ c => x if is_eye(c), finite(x)",
    ),
    "a state of a layer forgotten": (
        "rnn(x, w, r, b, None, h, **a) => rnn(x, w, r, b, **a)",
        "rnn(x, w, r, b, None, h, **a) => rnn(x, w, r, b, **a) if is_all(h, 0)",
    ),
    "clipped gates of a layer of one step": (
        RNN_STEP + ", a.activations in ((), ('Tanh',))",
        RNN_STEP + ", a.clip is None, a.activations in ((), ('Tanh',))",
    ),
}


@pytest.mark.parametrize("false, true", PLANTED.values(), ids=PLANTED.keys())
def test_the_false_form_is_refuted_and_the_guarded_one_proved(false: str, true: str) -> None:
    wrong, right = parse_rules(f"wrong: {false}\nright: {true}\n", origin="candidate")
    record = check(wrong, EFFORT)
    assert record.verdict == "refuted"
    assert any(kind in record.detail for kind in ("float64[", "float32[", "int64[")), "no counterexample is shown"
    record = check(right, EFFORT)
    assert record.verdict == "proved", record.detail
