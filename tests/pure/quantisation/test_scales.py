"""Scales at the ends of float32, and what they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest

from eqsat.errors import UsageError
from eqsat.language.terms import DType
from eqsat.quantisation.scales import activations, asymmetric, symmetric, weights

HUGE, TINY = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


def test_a_symmetric_step_is_the_largest_magnitude_by_127() -> None:
    assert symmetric(-127.0, 3.0, DType.INT8).steps == (1.0,)
    assert symmetric(-3.0, 63.5).steps == (0.5,)
    assert symmetric(-3.0, 63.5).zeros == (128,)


def test_activations_that_are_never_negative_use_all_numbers() -> None:
    scale = activations(0.0, 255.0)
    assert (scale.steps, scale.zeros, scale.least, scale.most) == ((1.0,), (0,), 0, 255)
    assert activations(2.0, 255.0) == scale
    assert activations(-1.0, 127.0).zeros == (128,)


@pytest.mark.parametrize("make", [symmetric, asymmetric, activations])
@pytest.mark.parametrize(("low", "high"), [(-HUGE, HUGE), (-HUGE, 0.0), (0.0, HUGE), (-1.0, HUGE), (-1e-45, 1e-45)])
def test_steps_are_normal_and_restore_finite_elements(make, low: float, high: float) -> None:
    scale = make(low, high)
    assert TINY <= scale.steps[0] <= HUGE
    every = np.arange(scale.least, scale.most + 1).astype(scale.dtype.numpy)
    assert np.isfinite(scale.restored(every)).all()
    assert scale.rounded(np.zeros(1, np.float32))[0] == 0


def test_nothing_but_zeros_has_a_step_of_one() -> None:
    for scale in (symmetric(0.0, 0.0), asymmetric(0.0, 0.0), activations(0.0, 0.0), weights(np.zeros(3, np.float32))):
        assert scale.steps == (1.0,)
        assert not scale.rounded(np.zeros(3, np.float32)).any()


def test_a_channel_of_zeros_has_the_largest_step_of_the_others() -> None:
    array = np.array([[0, 0], [12.7, 1], [-1.27, 0]], np.float32)
    scale = weights(array, axis=0)
    assert scale.steps[0] == scale.steps[1] == pytest.approx(0.1)
    assert not scale.quantised(array)[0].any()
    assert weights(np.zeros((2, 3), np.float32), axis=-1).steps == (1.0, 1.0, 1.0)
    assert weights(np.zeros((0, 3), np.float32), axis=0).steps == (1.0,)


def test_weights_of_7_bits_keep_pairs_of_products_within_16_bits() -> None:
    array = np.array([[-3.0, 1.5], [2.0, 0.25]], np.float32)
    scale = weights(array, axis=1, bits=7)
    numbers = scale.quantised(array)
    assert numbers.tolist() == [[-64, 64], [43, 11]]
    assert 2 * 255 * int(np.abs(numbers.astype(int)).max()) < 2**15


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: weights(np.ones(3, np.float32), bits=6), "weights of 6 bits\n  expected 7 or 8"),
        (
            lambda: weights(np.ones(3, np.float32), axis=1),
            "axis 1 of weights with rank 1\n  expected an axis of theirs",
        ),
        (lambda: weights(np.array([np.nan], np.float32)), "weights that are not finite\n  expected finite numbers"),
        (lambda: weights(np.array([1e39])), "weights that are not finite"),
        (lambda: symmetric(-1.0, 1.0, DType.INT16), "a symmetric scale of int16\n  expected int8 or uint8"),
        (lambda: symmetric(1.0, -1.0), "a range from 1.0 to -1.0\n  expected finite numbers of float32, the lower one"),
        (lambda: asymmetric(0.0, float("nan")), "a range from 0.0 to nan"),
        (lambda: activations(0.0, 1e39), "a range from 0.0 to 1e+39"),
    ],
)
def test_what_has_no_scale_is_refused(made, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        made()
