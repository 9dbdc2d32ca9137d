"""Rules that move elements past operators on single ones are proved for every shape at once, and only true ones are."""

import dataclasses

import pytest

from eqsat.language.ops import OPS
from eqsat.rewrites.proof.naturality.claims import copies, is_linear, is_monotone, keeps_rank, keeps_type, spreading
from eqsat.rewrites.proof.naturality.proof import is_natural
from eqsat.rewrites.proof.sizes import prove_paths, prove_sizes
from eqsat.rewrites.rules.parser import parse_rules

ALIGNED = "reshape(c, shape=ones(rank(x) - rank(c)) + shape(c))"
#: True rules, one of each step that a proof takes.
TRUE = (
    "bitwise_and(x, y) => bitwise_and(y, x)",
    "x + relu(y) => relu(y) + x",
    "slice(quantize_linear(x, s, z, axis=j, block=0), **a) "
    "=> quantize_linear(slice(x, **a), s, z, axis=0, block=0) if size(s) == 1, size(z) == 1",
    "relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)",
    "reshape(isnan(x), shape=s) => isnan(reshape(x, shape=s))",
    "tanh(slice(exp(x), **s)) => slice(tanh(exp(x)), **s)",
    "concat(*[relu(x) for x in xs], axis=k) => relu(concat(*xs, axis=k))",
    "concat(*xs, axis=k) * concat(*ys, axis=k) => concat(*[x * y for x, y in zip(xs, ys)], axis=k) "
    "if len(xs) == len(ys), all(same_shape(x, y) for x, y in zip(xs, ys))",
    "concat(*[x - y for x, y in zip(xs, ys)], axis=k) => concat(*xs, axis=k) - concat(*ys, axis=k) "
    "if all(same_shape(x, y) for x, y in zip(xs, ys))",
    "gather(tanh(x), i, axis=k) => tanh(gather(x, i, axis=k))",
    "reshape(x, shape=s) / reshape(y, shape=s) => reshape(x / y, shape=s) if same_shape(x, y)",
    "transpose(x, perm=p) - transpose(y, perm=p) => transpose(x - y, perm=p) if rank(x) == rank(y)",
    "reshape(x, shape=s) - y => reshape(x - y, shape=s) if size(y) == 1, rank(y) <= min(rank(x), len(s))",
    "reshape(x, shape=s) - c => reshape(x - c, shape=s) if rank(c) <= 1, keeps_last(x, s), spans(x, c)",
    "slice(x / c, **s) => slice(x, **s) / c if spans(x, c), all(off_axis(c, k, rank(x)) for k in s.axes)",
    "concat(*[c / x for x in xs], axis=k) => c / concat(*xs, axis=k) "
    "if off_axis(c, k, rank(xs[0])), all(spans(x, c) for x in xs)",
    "pow(expand(x, shape=s), y) => expand(pow(x, y), shape=s)",
    "y / expand(x, shape=s) => y / x if broadcast(shape(x), shape(y)) == broadcast(shape(x), s, shape(y))",
    f"transpose(x / c, perm=p) => transpose(x, perm=p) / transpose({ALIGNED}, perm=p) if rank(c) <= rank(x)",
    f"transpose(x, perm=p) / c => transpose(x / transpose({ALIGNED}, perm=inverse(p)), perm=p) if rank(c) <= rank(x)",
    "x / y => x / reshape(y, shape=without_leading_ones(shape(y))) if 1 <= rank(y) <= rank(x), dim(y, 0) == 1",
    "reduce_max(tanh(x), **a) => tanh(reduce_max(x, **a)) if positive_dims(x, a.axes)",
    "x @ (w - y) => x @ w - x @ y if same_shape(w, y), wide(w)",
    "-x @ w => -(x @ w) if floating(x)",
    "conv(x, w, **a) * c => conv(x * c, w, **a) if a.activation == 'none', size(c) == 1, rank(c) <= rank(x), wide(x)",
    "x * c @ w => x @ w * c if size(c) == 1, rank(c) <= rank(x), rank(c) <= rank(matmul(x, w)), wide(x)",
    "reduce_sum(x / c, **a) => reduce_sum(x, **a) / reshape(c, shape=()) if size(c) == 1, spans(x, c), wide(x), "
    "invertible(c)",
    "resize_nearest(x, **a) + resize_nearest(y, **a) => resize_nearest(x + y, **a) if same_shape(x, y)",
    "reshape(x, shape=s) => x if s == shape(x)",
    "reshape(reshape(x, shape=s), shape=t) => reshape(x, shape=t)",
    "reshape(exp(reshape(x, shape=s)), shape=t) => exp(x) if shape(x) == t",
    "reshape(fill(shape=s, value=v, dtype=d), shape=t) => fill(shape=t, value=v, dtype=d)",
)
#: False rules, most of them true ones without what makes them so.
FALSE = (
    "reshape(x, shape=s) => x if broadcast(shape(x), s) == shape(x)",
    "reshape(reshape(x, shape=s), shape=t) => reshape(x, shape=s)",
    "reshape(reshape(x, shape=s) + y, shape=t) => reshape(x + y, shape=t)",
    "reshape(reshape(x, shape=s) + reshape(y, shape=r), shape=t) => reshape(x + y, shape=t)",
    "reshape(expand(reshape(x, shape=s), shape=r), shape=t) => reshape(x, shape=t)",
    "reshape(transpose(reshape(x, shape=s), perm=p), shape=t) => reshape(x, shape=t)",
    "reshape(softmax(reshape(x, shape=s), axis=k), shape=t) => reshape(softmax(x, axis=k), shape=t)",
    "reshape(cast(reshape(x, shape=s), to=d), shape=t) => reshape(x, shape=t)",
    "expand(reshape(x, shape=t), shape=s) => expand(reshape(reshape(x, shape=s), shape=t), shape=s)",
    "reshape(fill(shape=s, value=v, dtype=d), shape=t) => fill(shape=s, value=v, dtype=d)",
    "reshape(fill(shape=s, value=v, dtype='float32'), shape=t) => fill(shape=t, value=v, dtype='float64')",
    "x + fill(shape=s, value=v, dtype=d) => x + fill(shape=(), value=v, dtype=d)",
    "x + reshape(fill(shape=s, value=v, dtype=d), shape=t) => x + fill(shape=s, value=v, dtype=d)",
    "exp(pad(x, **a)) => pad(exp(x), **a)",
    "relu(transpose(x, perm=p)) => transpose(relu(x), perm=inverse(p))",
    "relu(transpose(x, perm=p)) => transpose(tanh(x), perm=p)",
    "reshape(x, shape=s) / reshape(y, shape=s) => reshape(x / y, shape=s)",
    "reshape(x, shape=s) / reshape(y, shape=s) => reshape(x / y, shape=s) if rank(x) == rank(y)",
    "reshape(x, shape=s) / reshape(y, shape=s) => reshape(y / x, shape=s) if same_shape(x, y)",
    "transpose(x, perm=p) - transpose(y, perm=q) => transpose(x - y, perm=p) if rank(x) == rank(y)",
    "concat(*xs, axis=k) * concat(*ys, axis=k) => concat(*[x * y for x, y in zip(xs, ys)], axis=k) "
    "if len(xs) == len(ys)",
    "concat(*xs, axis=k) * concat(*ys, axis=k) => concat(*[x * y for x, y in zip(xs, ys)], axis=k) "
    "if all(same_shape(x, y) for x, y in zip(xs, ys))",
    "gather(x, i, axis=k) * gather(y, j, axis=k) => gather(x * y, i, axis=k) if same_shape(x, y), same_shape(i, j)",
    "reshape(x, shape=s) - y => reshape(x - y, shape=s) if size(y) == 1, rank(y) <= rank(x)",
    "reshape(x, shape=s) - y => reshape(x - y, shape=s) if size(y) == 1, rank(y) <= len(s)",
    "reshape(x, shape=s) - c => reshape(x - c, shape=s) if rank(c) <= 1, spans(x, c)",
    "reshape(x, shape=s) - c => reshape(x - c, shape=s) if keeps_last(x, s), spans(x, c)",
    "slice(x / c, **s) => slice(x, **s) / c if spans(x, c)",
    "slice(x / c, **s) => slice(x, **s) / c if all(off_axis(c, k, rank(x)) for k in s.axes)",
    "concat(*[c / x for x in xs], axis=k) => c / concat(*xs, axis=k) if all(spans(x, c) for x in xs)",
    "prelu(expand(x, shape=s), y) => expand(prelu(x, y), shape=s)",
    "y / expand(x, shape=s) => y / x",
    f"transpose(x / c, perm=p) => transpose(x, perm=p) / transpose({ALIGNED}, perm=p)",
    f"transpose(x, perm=p) / c => transpose(x / transpose({ALIGNED}, perm=p), perm=p) if rank(c) <= rank(x)",
    "transpose(x / c, perm=p) => transpose(x, perm=p) / c if rank(c) <= rank(x)",
    "x / y => x / reshape(y, shape=without_leading_ones(shape(y))) if dim(y, 0) == 1",
    "reduce_max(abs(x), **a) => abs(reduce_max(x, **a)) if positive_dims(x, a.axes)",
    # Of nothing the largest is -inf, of which tanh is not.
    "reduce_max(tanh(x), **a) => tanh(reduce_max(x, **a))",
    "tanh(reduce_max(x, **a)) * reduce_max(x, **b) => reduce_max(tanh(x), **a) * reduce_max(x, **b) "
    "if positive_dims(x, b.axes)",
    "reduce_max(tanh(x + y), **a) => tanh(reduce_max(x + y, **a)) if positive_dims(x, a.axes)",
    "log(reduce_max(x, **a)) => reduce_max(log(x), **a)",
    "reduce_sum(tanh(x), **a) => tanh(reduce_sum(x, **a))",
    "reshape(x, shape=s) - c => reshape(x - c, shape=s) if is_all(c, 0.5, 0.1), spans(x, c)",
    "x @ (w - y) => x @ w - x @ y if wide(w)",
    "x @ (w - y) => x @ w - y @ x if same_shape(w, y), wide(w)",
    "conv(x, w, **a) * c => conv(x * c, w, **a) if size(c) == 1, rank(c) <= rank(x), wide(x)",
    "conv(x, w, b, **a) * c => conv(x * c, w, b, **a) "
    "if a.activation == 'none', size(c) == 1, rank(c) <= rank(x), wide(x)",
    "conv(x, w, **a) / c => conv(x / c, w, **a) if a.activation == 'none', size(c) == 1, rank(c) <= rank(x), wide(x)",
    "conv(x, w, **a) / c => conv(x / c, w, **a) "
    "if a.activation == 'none', size(c) == 1, rank(c) <= rank(x), invertible(c)",
    "c / (x @ w) => x @ (c / w) if size(c) == 1, rank(c) <= rank(w), rank(c) <= rank(matmul(x, w)), wide(x)",
    "x * c @ w => x @ w * c if size(c) == 1, rank(c) <= rank(matmul(x, w)), wide(x)",
    "x * c @ w => x @ w * c if size(c) == 1, rank(c) <= rank(x), wide(x)",
    # What stands beside another is itself to be aligned, of another rule's length, or no permutation at all.
    "a + b, relu(x) => reshape(a, shape=ones(rank(x) - rank(a)) + shape(a)) "
    "+ reshape(b, shape=ones(rank(x) - rank(b)) + shape(b)), relu(x) if rank(a) <= rank(x), rank(b) <= rank(x)",
    "reshape(x, shape=p) => transpose(transpose(reshape(x, shape=p), perm=p), perm=inverse(p))",
    "concat(*[y - z for y, z in zip(ys, zs)], axis=k), concat(*xs, axis=j) "
    "=> concat(*ys, axis=k) - concat(*zs, axis=k), concat(*xs, axis=j) "
    "if all(same_shape(x, y) for x, y in zip(xs, ys)), all(same_shape(x, z) for x, z in zip(xs, zs))",
    # One name for two things.
    "concat(*xs, axis=k) * concat(*ys, axis=k) => concat(*[x * y for x, y in zip(xs, ys)], axis=k) "
    "if len(xs) == len(ys), all(same_shape(x, x) for x, x in zip(xs, ys))",
    "relu(concat(*ys, axis=k)), concat(*xs, axis=j) "
    "=> concat(*[relu(x) for x, x in zip(xs, ys)], axis=k), concat(*xs, axis=j)",
    "concat(*[tanh(x @ w) * c for w in ws], axis=k), relu(w) "
    "=> concat(*[tanh(x @ w) for w in ws], axis=k) * c, relu(w) "
    "if size(c) == 1, rank(c) <= rank(matmul(x, w))",
    # What is said of one operand is not said of others, and what is close to a number is not it.
    "reduce_mean(x + y, **a), relu(z) => reduce_mean(x, **a) + reduce_mean(y, **a), relu(z) "
    "if same_shape(x, y), floating(z)",
    "y + reshape(x - c, shape=t) => y + (reshape(x, shape=t) - c) if is_all(c, *t), spans(x, c), spans(y, c)",
    "y + reshape(x - c, shape=t) => y + (reshape(x, shape=t) - c) "
    "if is_all(c, 9007199254740992), spans(x, c), spans(y, c)",
    "reduce_prod(x + y, **a) => reduce_prod(x, **a) + reduce_prod(y, **a) if same_shape(x, y), wide(x)",
    "reduce_sum(x, axes=a, keepdims=False) * c => reduce_sum(x * c, axes=a, keepdims=False) "
    "if size(c) == 1, rank(c) <= rank(x), wide(x)",
)
#: What proofs along paths do not follow.
OF_OTHERS = ("reshape(isnan", "resize", "conv", "bitwise", "slice(quantize")


def parsed(text):
    (rule,) = parse_rules(f"r: {text}", origin="candidate")
    return rule


@pytest.mark.parametrize("text", TRUE)
def test_a_rule_that_only_moves_elements_is_proved_for_every_rank_size_and_length(text):
    proof = prove_sizes(parsed(text))
    assert (proof.every_rank, proof.any_length, proof.open) == (True, True, "")


@pytest.mark.parametrize("text", [text for text in TRUE if not text.startswith(OF_OTHERS)])
def test_proofs_along_paths_agree_at_low_ranks(text):
    assert prove_paths(parsed(text), 400).rank >= 1


@pytest.mark.parametrize("text", FALSE)
def test_a_false_rule_is_not_proved_so(text):
    assert not is_natural(parsed(text))


def test_what_copies_is_seen_to_copy_elements_of_every_type():
    assert {name for name, declared in OPS.items() if declared.movement and not copies(declared)} == {"pad", "split"}
    assert not any(copies(OPS[name]) for name in ("relu", "cumsum", "trilu", "one_hot"))


def test_what_is_linear_is_seen_to_be_so():
    assert all(is_linear(OPS[name], 0) for name in ("matmul", "conv", "avg_pool", "resize", "reduce_mean"))
    assert is_linear(OPS["attention"], 2) and not is_linear(OPS["attention"], 0)
    assert not is_linear(dataclasses.replace(OPS["max_pool"], name="max_pool", multilinear=frozenset({0})), 0)


def test_what_has_as_many_axes_as_its_operand():
    assert all(keeps_rank(OPS[name]) for name in ("conv", "trilu", "slice", "resize_nearest"))
    assert keeps_rank(OPS["reduce_sum"], keepdims=True) and not keeps_rank(OPS["reduce_sum"])
    assert not any(keeps_rank(OPS[name]) for name in ("matmul", "reshape", "gather", "fill"))


def test_how_operators_on_single_elements_bring_operands_together():
    assert {name: spreading(OPS[name]) for name in ("add", "pow", "where", "prelu", "clip")} == {
        "add": "all",
        "pow": "all",
        "where": "all",
        "prelu": "onto the first",
        "clip": "other",
    }


def test_element_types_that_operators_keep():
    assert all(keeps_type(OPS[name]) for name in ("relu", "add", "pow"))
    assert not any(keeps_type(OPS[name]) for name in ("where", "isnan", "equal", "cast"))


def test_functions_that_keep_order_and_have_a_value_everywhere():
    assert is_monotone(OPS["tanh"]) and is_monotone(OPS["relu"])
    assert not any(is_monotone(OPS[name]) for name in ("abs", "log", "sqrt", "neg"))
