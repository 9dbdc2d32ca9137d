"""Rules proved for every size: each on all paths through its types and elements, and none that is false."""

from __future__ import annotations

import pytest

from benchmarks.rules.witnesses import FalseRule, false_rules
from eqsat.language.terms.dims import Sym
from eqsat.rewrites.proof.check import check
from eqsat.rewrites.proof.ranks import sufficient_rank
from eqsat.rewrites.proof.sizes import prove_paths, prove_sizes
from eqsat.rewrites.proof.types import parts_types
from eqsat.rewrites.rules.evidence import Evidence
from tests.support.candidates import parsed as rule

#: False in floating point alone, or of infinities, which proofs over the reals do not speak of: checks on instances do.
ONLY_IN_FLOATS = {"divided-and-multiplied", "through-half", "not-less", "softmax-of-one", "times-zeros"}
QUESTIONS = 600


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=compose(p, q))", 4),
        ("reshape(reshape(x, shape=s), shape=t) => reshape(x, shape=t)", 2),
        ("x @ (y @ z) => (x @ y) @ z if rank(x) >= 2, rank(y) >= 2, rank(z) >= 2, wide(x)", 3),
        ("reduce_sum(concat(x, y, axis=0), axes=(0,), keepdims=False) => "
         "reduce_sum(x, axes=(0,), keepdims=False) + reduce_sum(y, axes=(0,), keepdims=False) if wide(x)", 3),
        ("slice(relu(x), **s) => relu(slice(x, **s))", 2),
        ("concat(x, y, axis=k) @ concat(w, v, axis=0) => x @ w + y @ v "
         "if rank(w) == 1, k == rank(x) - 1, dim(x, -1) == dim(w, 0), wide(x)", 3),
        ("reduce_max(exp(x), axes=a, keepdims=True) => exp(reduce_max(x, axes=a, keepdims=True))", 3),
        ("gather(gather(x, i, axis=k), j, axis=k) => gather(x, gather(i, j, axis=0), axis=k) if rank(i) == 1", 1),
        ("-conv(x, w, **a) => conv(-x, w, **a) if a.activation == 'none', a.group == 1, a.pads == ()", 3),
    ],
)  # fmt: skip
def test_rules_are_proved_for_every_size(text: str, rank: int) -> None:
    proof = prove_paths(rule(text))
    assert (proof.every_rank or proof.rank >= rank) and proof.matches, proof.open


def test_what_is_said_of_each_axis_is_proved_for_every_rank() -> None:
    assert prove_sizes(rule("x + c => x if is_all(c, 0), spans(x, c)")).every_rank
    assert prove_sizes(rule("(x + c) + d => x + (c + d) if constant(c, d), wide(x)")).every_rank
    assert prove_sizes(rule("and_(x, fill(shape=(), value=2.5, dtype='bool')) => x")).every_rank
    assert prove_sizes(rule("less(x, x) => fill(shape=shape(x), value=False, dtype='bool')")).every_rank
    assert not prove_sizes(rule("less(x, x) => fill(shape=shape(x), value=True, dtype='bool')")).is_proved
    # Rows and columns are no axes like others, and neither is the last one.
    assert sufficient_rank(rule("x @ w => x * w if dim(x, -1) == 1, dim(w, -2) == 1")) is None
    assert sufficient_rank(rule("softmax(x, axis=k) => softmax(x, axis=k + 1 - 1)")) is None
    # What does not hold along all axes may hold along each of two: the axis along which it does not has to stay.
    assert sufficient_rank(rule("x * c => x + c if not spans(x, c)")) == 2
    assert sufficient_rank(rule("x * c => x + c if spans(x, c) or spans(c, x)")) is None


def test_ranks_that_conditions_bound_are_all_there_are() -> None:
    text = "x @ w => reduce_sum(x * w, axes=(0,), keepdims=False) if rank(x) == 1, rank(w) <= rank(x), wide(x)"
    assert sufficient_rank(rule(text)) == 1
    assert prove_sizes(rule(text)).every_rank


def _is_of_proved_ranks(false: FalseRule, rank: int) -> bool:
    things = [
        one for thing in false.witness.tensors.values() for one in (thing if isinstance(thing, tuple) else (thing,))
    ]
    return all(one.type.rank <= rank and min(one.type.static, default=1) > 0 for one in things)


@pytest.mark.parametrize("false", list(false_rules()), ids=lambda false: false.rule.name)
def test_no_false_rule_is_proved_at_the_ranks_of_its_witness(false: FalseRule) -> None:
    proof = prove_sizes(false.rule, QUESTIONS)
    if false.rule.name in ONLY_IN_FLOATS:
        return
    assert not proof.is_proved or not _is_of_proved_ranks(false, proof.rank)


def test_the_path_on_which_a_proof_ends_refutes() -> None:
    """More elements along a joined axis than any drawn operand has."""
    evidence = check(rule("slice(x, axes=(0,), starts=(0,), ends=(300,), steps=(1,)) => x"))
    assert evidence.verdict == "refuted"
    proof = prove_sizes(rule("slice(x, axes=(0,), starts=(0,), ends=(300,), steps=(1,)) => x"))
    assert proof.instance is not None
    ((operand,),) = [(one,) for one in proof.instance.tensors.values()]
    assert operand.type.static[0] > 300  # type: ignore[union-attr]


def test_evidence_says_for_which_sizes() -> None:
    known = Evidence("law", "", "proved", ranks=2, every_rank=True)
    assert known.scope == "proved for every rank and size" and known.is_for_every_size
    tried = Evidence("law", "", "proved")
    assert tried.scope == "tried" and not tried.is_for_every_size
    assert Evidence("law", "", "refuted", ranks=2).scope == "refuted"
    assert check(rule("relu(relu(x)) => relu(x)")).scope == "proved for every rank and size"


def test_what_is_not_understood_is_open_and_says_why() -> None:
    proof = prove_sizes(rule("lp_pool(abs(x), **a) => lp_pool(x, **a)"))
    assert not proof.is_proved and proof.open and proof.instance is None
    assert not prove_sizes(rule("cast(cast(x, to='int32'), to='float32') => x")).is_proved


def test_a_proof_ends_where_questions_do() -> None:
    text = "slice(slice(x, **s), **t) => slice(x, **after(x, s, t)) if forward(s, t)"
    proof = prove_sizes(rule(text), 40)
    # Of a rule for which one axis suffices there are four times as many.
    assert proof.rank <= 0 and "more than 160 questions to Z3" in proof.open


def test_names_do_not_matter() -> None:
    a, b = (prove_sizes(rule(f"{x} @ {w} + {x} @ {v} => {x} @ ({w} + {v}) if same_shape({w}, {v}), wide({w})"))
            for x, w, v in (("x", "w", "v"), ("second", "first", "k0")))  # fmt: skip
    assert (a.rank, a.matches, a.every_rank) == (b.rank, b.matches, b.every_rank)
    assert Sym.named("k0") != Sym.named("k1")


@pytest.mark.parametrize(
    "text",
    [
        # Arithmetic that unknown integers do not have is no reason for a path to be left out.
        "trilu(x, k=k, upper=True) => trilu(x, k=0, upper=True) if k == 0 or k / 2 > 0",
        # A multiple of something may be below 0.
        "trilu(x, k=k, upper=True) => trilu(x, k=max(k, 0), upper=True) if k % 2 == 0",
        # A size may be a product of factors that are below 0.
        "trilu(x, k=k, upper=True) => x - trilu(x, k=-1, upper=False) if k + dim(x, 0) == 0, rank(x) == 2",
        # What conditions say of elements that are one number.
        "reduce_sum(c, axes=a, keepdims=True) => c if is_uniform(c), rank(c) == 0 or is_positive(c)",
        "x * c => x + x if is_all(c, 2, tolerance=0.5), spans(x, c)",
        # A quotient of nothing by nothing is no number.
        "relu(x) => relu(x) / relu(x) * relu(x)",
        "x - x => log(x) - log(x)",
        "reduce_sum(x * 0, axes=a, keepdims=True) => reduce_sum(0 * (x / x), axes=a, keepdims=True)",
        # Types of floats differ.
        "cast(x, to='float32') => x",
        "cast(cast(x, to=t), to='float32') => x if dtype(x) == 'float32'",
        "x - x, y - y => y - y, x - x if same_shape(x, y)",
        # Integers are no real numbers, and not all of one width.
        "cast(cast(x, to='int32') / 2, to='float32') => cast(cast(x, to='int32'), to='float32') / 2",
        "cast(cast(x, to='uint8'), to='float32') => cast(cast(x, to='int32'), to='float32')",
        "cast(fill(shape=s, value=v, dtype=d), to='float32') => fill(shape=s, value=v, dtype='float32')",
        # A bound unknown has the name of another.
        "reduce_sum(w * reduce_max(z * einsum(y, equation='ii->'), axes=(0,), keepdims=True), axes=(0,), "
        "keepdims=True) => reduce_sum(w, axes=(0,), keepdims=True) * "
        "reduce_max(z * reduce_sum(y, axes=(1,), keepdims=False), axes=(0,), keepdims=True) "
        "if rank(w) == 1, rank(z) == 1, rank(y) == 2, dim(z, 0) == dim(y, 0), dim(w, 0) > 1",
        # Axes come in any order.
        "reduce_sum(x, axes=a, keepdims=False) => "
        "reduce_sum(reduce_sum(x, axes=(a[1],), keepdims=False), axes=(a[0],), keepdims=False) if len(a) == 2",
        # One pad cuts off more than there is.
        "pad(pad(x, pads=p), pads=q) => pad(x, pads=added(p, q)) if all(i >= 0 for i in p)",
        # Numbers and operands are equal, and not the same object.
        "trilu(x, k=k, upper=True) => trilu(x, k=1, upper=True) if k is 0 or k == 1",
        "reduce_sum(x * y, axes=(0,), keepdims=True) => x * y "
        "if rank(x) == 1, same_shape(x, y), dim(x, 0) == 1 or x is y",
        "reduce_sum(x * y, axes=(0,), keepdims=True) => x * y "
        "if rank(x) == 1, same_shape(x, y), dim(x, 0) == 1 or x == y",
        # What is said of numbers is said of no truth values.
        "where(c, x, y) => y if is_all(c, 1), same_shape(c, x, y)",
        "isnan(x / y) => less(x, x) if same_shape(x, y)",
    ],
)
def test_no_false_rule_is_proved(text: str) -> None:
    assert not prove_sizes(rule(text)).is_proved


@pytest.mark.parametrize(
    "text",
    [
        # Truth values are no numbers that are added up, and what fills or pads them is one of them.
        "cast(add(less(x, y), less(x, y)), to='float32') => "
        "add(cast(less(x, y), to='float32'), cast(less(x, y), to='float32')) if wide(x)",
        "cast(not_(b) @ not_(c), to='float32') => cast(not_(b), to='float32') @ cast(not_(c), to='float32') "
        "if rank(b) == 2, rank(c) == 2",
        "cast(pad(not_(x), pads=p, value=v), to='float32') => pad(cast(not_(x), to='float32'), pads=p, value=v) "
        "if rank(x) == 1",
        "cast(fill(shape=s, value=v, dtype='bool'), to='float32') => fill(shape=s, value=v, dtype='float32')",
        "cast(fill(shape=s, value=2.5, dtype='bool'), to='float32') => fill(shape=s, value=2.5, dtype='float32')",
        # Types that a rule does not name are some of those that there are.
        "cast(x, to=t) => x if t == dtype(x) or t == 'bool'",
        "cast(cast(x, to=t), to='float32') => cast(x, to='float32') if t != 'int32', dtype(x) == 'float32'",
        "eye(n=n, dtype=d) => eye(n=n, dtype='float32') if d not in ('float64', 'float16', 'int32')",
        "cast(x, to='float32') => x if dtype(x) != 'float64', dtype(x) != 'float16'",
        "reduce_sum(gather(x, i, axis=0), axes=(0,), keepdims=True) => gather(x, i, axis=0) "
        "if rank(x) == 1, rank(i) == 1, dim(i, 0) == 1 or dtype(i) == 'int32'",
        "where(less(x, x), y - y, y - y) => x - x if same_shape(x, y)",
        "x - x, y - y => x - x, reshape(y - y, shape=(3,)) if dtype(x) != dtype(y), rank(y) == 1, rank(x) == 1",
        # A whole float is an integer, close is not equal, and infinities follow no law of numbers.
        "reduce_sum(x, axes=(0,), keepdims=True) => x if rank(x) == 1, dim(x, 0) == 1 or dim(x, 0) == 2.0",
        "reduce_sum(x, axes=(0,), keepdims=True) => x if rank(x) == 1, dim(x, 0) in (1, 4 / 2)",
        "x - x => (x * 1.4142135 - x * 1.41421358) * 1000000000 if wide(x)",
        "x - x => x * fill(shape=(), value=1e309, dtype=dtype(x)) * 0 if wide(x)",
        # A gather fails as a whole, also where what it does not find is not used.
        "gather(y, i, axis=0), gather(x, slice(i, axes=(0,), starts=(0,), ends=(1,), steps=(1,)), axis=0) => "
        "gather(y, i, axis=0), slice(gather(x, i, axis=0), axes=(0,), starts=(0,), ends=(1,), steps=(1,)) "
        "if rank(i) == 1, rank(x) == 1, rank(y) == 1",
    ],
)
def test_no_claim_goes_beyond_types_numbers_and_indices(text: str) -> None:
    assert not prove_sizes(rule(text), QUESTIONS).is_proved


def test_operators_that_make_no_floats_of_floats_leave_types_apart() -> None:
    assert all(map(parts_types, ("less", "argmax", "isnan", "topk")))
    assert not any(map(parts_types, ("add", "where", "slice", "gather", "conv", "softmax")))


@pytest.mark.parametrize(
    "text",
    [
        "x - x => fill(shape=shape(x), value=(0 if rank(x) <= 2 else 1), dtype=dtype(x))",
        "relu(x) => relu(x) * fill(shape=(), value=(1 if rank(x) <= 2 else 2), dtype=dtype(x)) if wide(x)",
        "relu(x) * transpose(y, perm=(*identity_perm(rank(x) + 1),)) => relu(x) * reshape(y, shape=(dim(y, -1),)) "
        "if rank(x) <= 1",
        "expand(x, **a) => expand(x, shape=(a.shape[-1],)) if rank(x) == 1, len(a) == 1, len(a.shape) >= 1",
    ],
)
def test_no_rank_is_taken_for_all_by_what_is_only_like_a_bound(text: str) -> None:
    assert sufficient_rank(rule(text)) is None


def test_the_length_of_a_sequence_is_no_rank() -> None:
    text = (
        "concat(*[transpose(x, perm=p) for x in xs], axis=k) => transpose(concat(*xs, axis=k), perm=p) if len(xs) == 2"
    )
    assert sufficient_rank(rule(text)) is None


def test_true_rules_are_proved_whose_sides_may_be_undefined() -> None:
    for text in (
        "x / (y * z) => x / y / z if wide(x)",
        "x / y => x * (1 / y) if wide(x)",
        "log(x) + log(x) => 2 * log(x)",
        "reduce_sum(x / y, axes=a, keepdims=True) => reduce_sum(x * (1 / y), axes=a, keepdims=True) if wide(x)",
        "exp(x) / reduce_sum(exp(x), axes=a, keepdims=True) => softmax(x, axis=a[0]) if len(a) == 1",
    ):
        proof = prove_sizes(rule(text))
        assert proof.is_proved, (text, proof.open)


def test_ranks_of_shapes_count_among_ranks() -> None:
    proof = prove_sizes(rule("expand(x, shape=s) => x if rank(x) == 0"))
    assert not proof.every_rank and not proof.is_proved
    assert sufficient_rank(rule("expand(relu(x), shape=s) => relu(expand(x, shape=s)) if rank(x) == 3")) == 4
    assert (
        sufficient_rank(rule("expand(relu(x), shape=s) => relu(expand(x, shape=s)) if rank(x) == 1, len(s) == 2")) == 2
    )
    assert sufficient_rank(rule("x @ w => x @ w if shape(x) <= (2, 2), rank(w) == 2")) is None
    assert sufficient_rank(rule("x @ w => x @ w if shape(x) == (2, 2), rank(w) == 2")) == 2


@pytest.mark.parametrize(
    "condition",
    [
        "spans(x, c) != True",
        "spans(x, c) + spans(c, x)",
        "spans(x, c) * 1 >= 0",
        "spans(x, c) >= same_shape(x, c)",
        "len([1 for d in shape(x) if d == 1]) == 1",
    ],
)
def test_what_is_made_of_statements_about_axes_is_none(condition: str) -> None:
    assert sufficient_rank(rule(f"x * c => x * c + 0 * c if {condition}")) is None


def test_numbers_and_types_are_no_matter_of_axes() -> None:
    assert sufficient_rank(rule("x * c => x * c if is_uniform(c), number(c) > 0 or number(c) < -1, spans(x, c)")) == 2
    assert sufficient_rank(rule("x * y => y * x if dtype(x) == dtype(y)")) == 2
