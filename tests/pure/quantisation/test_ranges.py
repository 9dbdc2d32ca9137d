"""Ranges by each method, on distributions of which the best one is known."""

from __future__ import annotations

import re

import numpy as np
import pytest

from eqsat.errors import UsageError
from eqsat.language.terms import DType
from eqsat.quantisation.ranges import Observer
from eqsat.quantisation.scales import activations, asymmetric, symmetric, weights

RNG = np.random.default_rng(5)


def observed(*arrays: np.ndarray) -> Observer:
    observer = Observer()
    for array in arrays:
        observer.see(array)
    return observer


def measured_error(array: np.ndarray, scale) -> float:
    return float(np.mean((array.astype(np.float64) - scale.rounded(array)) ** 2))


NORMAL = RNG.standard_normal(200_000).astype(np.float32)
LAPLACE = RNG.laplace(size=200_000).astype(np.float32)


def test_nothing_seen_and_nothing_but_zeros_have_a_range_of_zero() -> None:
    for observer in (observed(), observed(np.zeros((0, 3))), observed(np.zeros(9)), observed(np.full(3, np.nan))):
        for method in ("max", "percentile", "kl", "mse"):
            assert observer.range(method) == (0.0, 0.0)
        assert observer.mean_square == 0.0
        assert observer.expected_error(symmetric(-1.0, 1.0)) == 0.0


def test_elements_that_are_not_finite_are_left_out_and_counted() -> None:
    observer = observed(np.array([1.0, np.nan, -np.inf, 4.0], np.float32))
    assert (observer.low, observer.high, observer.count, observer.excluded) == (1.0, 4.0, 2, 2)
    assert observer.mean_square == 8.5


def test_the_percentile_is_that_of_magnitudes() -> None:
    low, high = observed(NORMAL).range("percentile", percentile=99.0)
    exact = float(np.percentile(np.abs(NORMAL), 99.0))
    assert high == -low == pytest.approx(exact, rel=1 / 256)
    assert observed(NORMAL).range("percentile", percentile=100) == observed(NORMAL).range("max")


def test_a_tail_that_is_shorter_is_kept() -> None:
    skewed = np.where(NORMAL < 0, NORMAL / 100, NORMAL)
    low, high = observed(skewed).range("percentile", percentile=99.0)
    assert low == skewed.min() and 2.0 < high < skewed.max()


def test_one_sided_elements_have_one_sided_ranges() -> None:
    for method in ("max", "percentile", "kl", "mse"):
        low, high = observed(np.abs(LAPLACE)).range(method)
        assert 0 <= low < high
        low, high = observed(-np.abs(LAPLACE)).range(method)
        assert low < high <= 0


def test_kl_clips_a_far_outlier_and_no_uniform_distribution() -> None:
    outlier = np.append(NORMAL, np.float32(1000.0))
    assert observed(outlier).range("kl")[1] < 100
    uniform = RNG.uniform(-1, 1, 200_000).astype(np.float32)
    assert observed(uniform).range("kl")[1] > 0.98


def test_kl_keeps_a_few_distinct_values() -> None:
    mask = np.repeat(np.array([0.0, 0.1, 1.0], np.float32), [1000, 1, 1000])
    assert observed(mask).range("kl") == (0.0, 1.0)


def test_kl_leaves_zeros_out() -> None:
    sparse = np.concatenate([np.zeros(10_000_000, np.float32), np.abs(NORMAL)])
    assert observed(sparse).range("kl")[1] == pytest.approx(observed(np.abs(NORMAL)).range("kl")[1], rel=0.01)


@pytest.mark.parametrize("scheme", [activations, symmetric, asymmetric])
@pytest.mark.parametrize(
    "array", [NORMAL, LAPLACE, np.abs(LAPLACE), NORMAL + 3], ids=["normal", "laplace", "abs", "far"]
)
def test_mse_has_no_larger_error_than_any_other_method(scheme, array: np.ndarray) -> None:
    observer = observed(array)
    least = measured_error(array, scheme(*observer.range("mse", scheme=scheme)))
    for method in ("max", "percentile", "kl"):
        assert least <= 1.01 * measured_error(array, scheme(*observer.range(method)))


@pytest.mark.parametrize("clip", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("scheme", [symmetric, asymmetric, lambda low, high: symmetric(low, high, DType.INT8)])
@pytest.mark.parametrize(
    "array", [NORMAL, LAPLACE, np.abs(NORMAL) ** 3, NORMAL * 1e-30], ids=["n", "l", "cube", "tiny"]
)
def test_the_expected_error_is_the_measured_one(array: np.ndarray, scheme, clip: float) -> None:
    scale = scheme(clip * float(array.min()), clip * float(array.max()))
    expected = observed(array).expected_error(scale)
    assert expected == pytest.approx(measured_error(array, scale), rel=0.02)


def test_the_mean_square_is_that_of_the_elements() -> None:
    assert observed(NORMAL).mean_square == pytest.approx(float(np.mean(NORMAL.astype(np.float64) ** 2)), rel=1e-12)


def test_other_element_types_are_seen_as_float32() -> None:
    for dtype in (np.float64, np.float16, np.int8, np.bool_):
        observer = observed(np.array([0, 1, 1], dtype))
        assert (observer.low, observer.high, observer.count) == (0.0, 1.0, 3)
    assert observed(np.array([1e300, 1.0])).excluded == 1


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: observed(NORMAL).range("entropy"),  # type: ignore[arg-type]
            "range by 'entropy'\n  expected 'max' or 'percentile' or 'kl' or 'mse'",
        ),
        (lambda: observed(NORMAL).range("percentile", percentile=0), "percentile = 0\n  expected a number above 0, at"),
        (
            lambda: observed(NORMAL).expected_error(weights(np.eye(2, dtype=np.float32), axis=0)),
            "the expected error of a scale by channel\n  expected a scale with one step",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(ask, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        ask()
