"""Scales and ranges on arbitrary numbers of float32: exact steps, zeros, bounds of errors, sums of products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import OPS
from eqsat.language.terms import DType
from eqsat.quantisation.ranges import Observer
from eqsat.quantisation.scales import activations, asymmetric, symmetric, weights

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
#: Within these a step need not be smaller for all of its numbers to be finite.
INNER = st.floats(-(2.0**127), 2.0**127, width=32)
MODERATE = st.floats(-1e6, 1e6, width=32).map(lambda x: 0.0 if abs(x) < 1e-6 else x)
MATRICES = arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=MODERATE)


@given(arrays.arrays(np.float32, st.integers(1, 20), elements=INNER), st.sampled_from([DType.INT8, DType.UINT8]))
def test_a_symmetric_scale_rounds_to_half_a_step(x: np.ndarray, dtype: DType) -> None:
    scale = symmetric(float(x.min()), float(x.max()), dtype)
    numbers = scale.quantised(x).astype(int) - scale.zeros[0]
    assert np.abs(numbers).max() <= 127
    step = np.float32(scale.steps[0])
    tiny = np.finfo(np.float32).tiny
    largest = float(np.abs(x).max())
    assert step == (np.float32(max(largest / 127, tiny)) if largest else 1)
    assert np.array_equal(numbers, np.rint(x / step))
    assert (np.abs(scale.rounded(x).astype(np.float64) - x) <= (0.5 + 1e-4) * float(step)).all()
    assert not scale.rounded(np.zeros(1, np.float32)).any()


@given(FLOAT32, FLOAT32, st.sampled_from([DType.INT8, DType.UINT8]))
def test_an_asymmetric_scale_has_an_exact_zero_and_reaches_both_ends(a: float, b: float, dtype: DType) -> None:
    low, high = min(a, b), max(a, b)
    scale = asymmetric(low, high, dtype)
    assert not scale.rounded(np.zeros(1, np.float32)).any()
    ends = np.array([min(low, 0.0), max(high, 0.0)], np.float32)
    # Both ends lie at most half a step beyond the numbers, and rounding there takes another half.
    assert (np.abs(scale.rounded(ends).astype(np.float64) - ends) <= (1 + 1e-4) * scale.steps[0]).all()


@given(st.floats(0, 2.0**100, width=32), st.floats(2.0**-100, 2.0**100, width=32))
def test_activations_have_the_least_number_at_zero_if_none_is_negative(a: float, b: float) -> None:
    scale = activations(min(a, b), max(a, b))
    assert scale.quantised(np.array([0.0, max(a, b)], np.float32)).tolist() == [0, 255]


@given(MATRICES, st.sampled_from([7, 8]), st.sampled_from([0, 1, -1]))
def test_weights_by_channel_have_no_larger_step_and_never_minus_128(w: np.ndarray, bits: int, axis: int) -> None:
    whole, by_channel = weights(w, bits=bits), weights(w, axis, bits)
    most = {7: 64, 8: 127}[bits]
    for scale in (whole, by_channel):
        numbers = scale.quantised(w).astype(int)
        assert np.abs(numbers).max() <= most
        assert not numbers[w == 0].any()
    assert len(by_channel.steps) == w.shape[axis]
    assert max(by_channel.steps) <= whole.steps[0]
    # A smaller step bounds the error of each element more tightly, though it may round one of them worse.
    spread = np.expand_dims(np.array(by_channel.steps), tuple({0, 1} - {axis % 2}))
    assert (np.abs(by_channel.rounded(w).astype(np.float64) - w) <= (0.5 + 1e-4) * spread).all()


def test_the_error_by_channel_is_not_larger_on_channels_of_any_sizes() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        w = rng.standard_normal((8, 64)) * np.exp(rng.normal(0, 2, (8, 1)))
        w = w.astype(np.float32)
        errors = [np.mean((scale.rounded(w).astype(np.float64) - w) ** 2) for scale in (weights(w, 0), weights(w))]
        assert errors[0] <= errors[1]


@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_integer_sums_less_their_zero_points_are_the_float_formula(
    m: int, k: int, n: int, seed: int, shifted: bool
) -> None:
    """Σ(qx - zx)(qw - zw) = Σ qx·qw - zw·Σ qx - zx·Σ qw + k·zx·zw, and its steps restore the rounded product."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((m, k)) * 3 + 1).astype(np.float32)
    w = rng.standard_normal((k, n)).astype(np.float32)
    of_x = asymmetric(float(x.min()), float(x.max()))
    of_w = asymmetric(float(w.min()), float(w.max()), DType.INT8) if shifted else weights(w, 1)
    qx, qw = of_x.quantised(x), of_w.quantised(w)
    zx, zw = of_x.zeros[0], of_w.zeros[0]
    sums = OPS["matmul_integer"].reference(FloatNamespace(), qx, qw, np.uint8(zx), np.int8(zw))
    a, b = qx.astype(np.int64), qw.astype(np.int64)
    crossed = a @ b - zw * a.sum(1, keepdims=True) - zx * b.sum(0, keepdims=True) + k * zx * zw
    assert sums.dtype == np.int32
    assert np.array_equal(sums, crossed)
    formula = of_x.rounded(x).astype(np.float64) @ of_w.rounded(w).astype(np.float64)
    restored = sums * of_x.steps[0] * np.array(of_w.steps)
    np.testing.assert_allclose(restored, formula, rtol=1e-5, atol=1e-5 * max(float(np.abs(formula).max()), 1e-3))


@given(st.lists(arrays.arrays(np.float32, st.integers(0, 30), elements=st.floats(width=32)), min_size=1, max_size=5))
@settings(deadline=None)
def test_counts_and_ranges_do_not_depend_on_the_order_and_are_finite(parts: list[np.ndarray]) -> None:
    one, other = Observer(), Observer()
    for part in parts:
        one.see(part)
    other.see(np.concatenate(parts)[::-1])
    for left, right in zip(one.histogram, other.histogram, strict=True):
        assert np.array_equal(left, right)
    every = np.concatenate(parts)
    finite = every[np.isfinite(every)]
    assert (one.count, one.excluded) == (finite.size, every.size - finite.size)
    assert int(one.histogram.counts.sum()) == finite.size
    for method in ("max", "percentile", "kl", "mse"):
        low, high = one.range(method)
        assert np.isfinite([low, high]).all() and low <= high
        assert (low, high) == other.range(method)
        assert np.isfinite(one.expected_error(activations(low, high)))
    if finite.size:
        assert one.range() == (finite.min(), finite.max())


@given(arrays.arrays(np.float32, st.integers(1, 60), elements=MODERATE), st.floats(0.01, 1.0))
def test_the_expected_error_differs_from_the_measured_one_by_the_width_of_bins(x: np.ndarray, clip: float) -> None:
    """Within a bin the squared error moves by at most twice the largest error times the width of the bin."""
    observer = Observer()
    observer.see(x)
    scale = symmetric(clip * float(x.min()), clip * float(x.max()))
    wide = x.astype(np.float64)
    errors = wide - scale.rounded(x)
    widths = np.abs(wide) / 256
    bound = np.mean(2 * (np.abs(errors) + scale.steps[0] + widths) * widths)
    assert abs(observer.expected_error(scale) - np.mean(errors**2)) <= bound + 1e-9 * np.mean(wide**2) + 1e-30


@given(arrays.arrays(np.float32, st.integers(1, 60), elements=FLOAT32), st.floats(0.1, 100))
def test_a_percentile_keeps_as_many_elements(x: np.ndarray, percentile: float) -> None:
    observer = Observer()
    observer.see(x)
    low, high = observer.range("percentile", percentile=percentile)
    bound = max(abs(low), abs(high))
    exact = float(np.percentile(np.abs(x.astype(np.float64)), percentile, method="inverted_cdf"))
    assert exact * (1 - 1 / 128) <= bound + 1e-40 and bound <= exact * (1 + 1 / 128) + 1e-40


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-40, 3e38])
def test_a_constant_tensor_is_represented_as_exactly_as_its_step_allows(value: float) -> None:
    x = np.full(9, value, np.float32)
    observer = Observer()
    observer.see(x)
    for method in ("max", "percentile", "kl", "mse"):
        scale = activations(*observer.range(method))
        assert float(np.abs(scale.rounded(x).astype(np.float64) - x).max()) <= max(1e-6 * abs(value), 1e-38)
