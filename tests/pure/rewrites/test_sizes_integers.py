"""Proofs for every size of rules of integers, truth values, zeros, identity matrices and rounded constants."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.language.ops import spec
from eqsat.language.terms import Bindings, TensorType
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.proof.integers.parameters import highest_parameter_rank, partner
from eqsat.rewrites.proof.integers.wrapping import holds_what_fits, keeps_zeros
from eqsat.rewrites.proof.sizes import prove_paths
from tests.support.candidates import parsed as rule

BYTES = "dtype(x) in ('int8', 'uint8'), dtype(w) in ('int8', 'uint8')"
PRODUCT = "cast(matmul_integer(x, w, a), to='float32') => (cast(x, to='float32') - cast(a, to='float32')) @ {}"
W = "cast(w, to='float32')"
SHIFTED = f"({W} - cast(a, to='float32'))"
AGAIN = (
    "quantize_linear(dequantize_linear(q, s, z, axis=j, block=0), s, z, to=t, axis=k, block=0) => {} if dtype(q) == t"
)
LEAST = "relu(dequantize_linear(q, s, z, axis=j, block=0)) => dequantize_linear(q, s, z, axis=j, block=0) if "
EYES = "eye(n=n, dtype=d)"


@pytest.mark.parametrize(
    "text",
    [
        f"{PRODUCT.format(W)} if rank(x) == 2, rank(w) == 2, {BYTES}, size(a) == 1, dim(w, -2) <= 32768",
        f"{AGAIN.format('q')}, t in ('int8', 'uint8'), size(s) == 1, is_positive(s), size(z) == 1",
        f"{LEAST} dtype(q) == 'uint8', is_all(z, 0), is_positive(s), rank(q) == 1",
        "cumsum(fill(shape=s, value=0.0, dtype=d), axis=0) => fill(shape=s, value=0.0, dtype=d) if len(s) == 2",
        f"{EYES} * {EYES} => {EYES}",
        f"reduce_max({EYES}, axes=(0,), keepdims=False) => fill(shape=(n,), value=1.0, dtype=d)",
        "x @ w + x * c => x @ (w + eye(n=dim(w, 0), dtype=dtype(w)) * c) if rank(x) == 2, rank(w) == 2, "
        "dim(w, 0) == dim(w, 1), size(c) == 1, rank(c) <= 2",
        "reduce_mean(x, axes=(0,), keepdims=True) => reduce_sum(x, axes=(0,), keepdims=True) "
        "* fill(shape=(), value=1 / dim(x, 0), dtype=dtype(x)) if rank(x) == 1, is_power_of_two(dim(x, 0))",
        "where(isnan(x), c, x) => x if finite(x), spans(x, c)",
        "x * (erf(x / c) + u) * h => gelu(x) if rounds(c, 1.4142135381698608), is_all(u, 1), is_all(h, 0.5), "
        "spans(x, c), spans(x, u), spans(x, h)",
        "x * e / c => x * (e * e) if spans(x, c), spans(x, e), rounds(c, 3), rounds(e, 1 / 3)",
    ],
)
def test_true_rules_are_proved(text: str) -> None:
    found = prove_paths(rule(text))
    assert found.is_proved, found.open


@pytest.mark.parametrize(
    "text",
    [
        # A type of more than eight bits, one more term than 32 bits hold, another zero point, and no bound at all.
        f"{PRODUCT.format(W)} if rank(x) == 2, rank(w) == 2, size(a) == 1, dim(w, -2) <= 32768",
        f"{PRODUCT.format(W)} if rank(x) == 2, rank(w) == 2, {BYTES}, size(a) == 1, dim(w, -2) <= 65536",
        f"{PRODUCT.format(W)} if rank(x) == 2, rank(w) == 2, {BYTES}, size(a) == 1",
        f"{PRODUCT.format(SHIFTED)} if rank(x) == 2, rank(w) == 2, {BYTES}, size(a) == 1, dim(w, -2) <= 32768",
        # Other scales, zeros or types, and scales that may be 0.
        f"{AGAIN.format('q')}, t in ('int8', 'uint8'), size(s) == 1, size(z) == 1",
        "quantize_linear(dequantize_linear(q, s, z, axis=j, block=0), s, to=t, axis=k, block=0) => q if dtype(q) == t, "
        "t in ('int8', 'uint8'), size(s) == 1, is_positive(s), size(z) == 1",
        "quantize_linear(dequantize_linear(q, s, axis=j, block=0) * h, s, to=t, axis=k, block=0) => q "
        "if dtype(q) == t, t in ('int8', 'uint8'), size(s) == 1, is_positive(s), is_all(h, 0.5), spans(q, h)",
        # Integers below 0, or zero points above it.
        f"{LEAST} dtype(q) == 'int8', is_all(z, 0), is_positive(s), rank(q) == 1",
        f"{LEAST} is_all(z, 0), is_positive(s), rank(q) == 1",
        f"{LEAST} dtype(q) == 'uint8', is_all(z, 1), is_positive(s), rank(q) == 1",
        f"{LEAST} dtype(q) == 'uint8', is_all(z, 0), rank(q) == 1",
        # Sums that wrap around, and of truth values, that do not add up.
        "reduce_sum(fill(shape=(2,), value=100.0, dtype=d), axes=(0,), keepdims=False) => "
        "fill(shape=(), value=200.0, dtype=d)",
        "reduce_sum(fill(shape=(2,), value=1.0, dtype=d), axes=(0,), keepdims=False) => "
        "fill(shape=(), value=2.0, dtype=d)",
        "reduce_sum(fill(shape=s, value=1.0, dtype=d), axes=(0,), keepdims=False) => "
        "fill(shape=(), value=1.0, dtype=d) if len(s) == 1",
        f"{EYES} + {EYES} => {EYES} * fill(shape=(), value=2.0, dtype=d)",
        f"reduce_max({EYES} - {EYES}, axes=(0,), keepdims=False) => fill(shape=(n,), value=1.0, dtype=d)",
        f"reduce_max(-{EYES}, axes=(0,), keepdims=False) => fill(shape=(n,), value=0.0, dtype='float32') "
        "if d == 'float32'",
        # Another diagonal, and one more size.
        "x @ w + x * c => x @ (w + fill(shape=shape(w), value=1.0, dtype=dtype(w)) * c) if rank(x) == 2, rank(w) == 2, "
        "dim(w, 0) == dim(w, 1), size(c) == 1, rank(c) <= 2",
        "reduce_mean(x, axes=(0,), keepdims=True) => reduce_sum(x, axes=(0,), keepdims=True) "
        "* fill(shape=(), value=1 / (dim(x, 0) + 1), dtype=dtype(x)) if rank(x) == 1",
        "where(isnan(x), c, x) => x if spans(x, c)",
        "where(isnan(x * x), c, x) => x if finite(x), spans(x, c)",
        "where(isnan(c), c, x) => x if finite(x), spans(x, c)",
        # Constants that are close to others.
        "x * e / c => x * (e * e) if spans(x, c), spans(x, e), rounds(c, 3), rounds(e, 0.3333333333333333)",
        "x * c / e => x if spans(x, c), spans(x, e), rounds(c, 1.4142135381698608), rounds(e, 1.4142135623730951)",
        "x * c * e => x + x * e if spans(x, c), spans(x, e), rounds(c, 2), rounds(e, 3)",
    ],
)
def test_false_rules_are_not(text: str) -> None:
    assert not prove_paths(rule(text)).is_proved


@pytest.mark.parametrize(
    ("dtype", "number", "holds"),
    [
        ("float32", 2**0.5, True),
        ("float64", 2**0.5, True),
        ("float64", float(np.float32(2**0.5)), True),
        ("float16", 2**0.5, True),
        ("float32", 1.414214, False),
        ("float32", 1.4142, False),
        ("float16", 1.4151, False),
    ],
)
def test_constants_round_to_a_number(dtype: str, number: float, holds: bool) -> None:
    kind = TensorType.of(dtype, (2,))
    operand = Drawn("c", kind, constant=True, array=np.full((2,), number).astype(kind.dtype.numpy))
    one = rule("x * c => x / c if rounds(c, 1.4142135381698608), spans(x, c)")
    x = Drawn("x", kind, array=np.ones((2,), kind.dtype.numpy))
    assert (one.refused(Bindings({"x": x, "c": operand}, {})) is None) is holds


def test_zero_points_are_of_the_type_of_what_they_belong_to() -> None:
    assert [partner(spec("matmul_integer"), place) for place in range(4)] == [None, None, 0, 1]
    assert partner(spec("dequantize_linear"), 2) == 0
    assert highest_parameter_rank(spec("matmul_integer"), 2, {}) == 1
    assert highest_parameter_rank(spec("matmul_integer"), 1, {}) is None
    assert highest_parameter_rank(spec("dequantize_linear"), 2, {"block": 0}) == 1
    assert highest_parameter_rank(spec("dequantize_linear"), 2, {}) is None


def test_operators_whose_results_do_not_wrap_before_they_are_rounded() -> None:
    assert all(holds_what_fits(spec(name)) for name in ("add", "mul", "reduce_sum", "trilu", "reduce_max"))
    assert not any(holds_what_fits(spec(name)) for name in ("reduce_mean", "resize"))
    assert keeps_zeros(spec("resize")) and not keeps_zeros(spec("exp"))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("less(not_(x), not_(y)) => equal(not_(x), not_(y))", False),
        ("less_equal(not_(x), not_(y)) => equal(not_(x), not_(y))", False),
        ("greater_equal(not_(x), not_(y)) => or_(x, not_(y))", False),
        ("less(not_(x), not_(y)) => and_(x, not_(y))", True),
        ("less_equal(not_(x), not_(y)) => or_(x, not_(y))", True),
    ],
)
def test_that_a_truth_value_is_less_than_another_is_not_that_the_two_are_equal(text: str, holds: bool) -> None:
    assert prove_paths(rule(text), highest=1).is_proved == holds
