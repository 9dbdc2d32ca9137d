"""Tensors as the numbers of a scale, in parts or whole."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.language.terms import DType, Scale

SHAPES = [(), (3,), (0, 3), (3, 7), (3, 1 << 19), (1 << 12, 3, 100)]


def stated(scale: Scale, x: np.ndarray) -> np.ndarray:
    """The numbers of a tensor by the definition, in float64 after one division in float32."""
    steps, zeros = (one.astype(np.float64) for one in scale.spread(x.shape))
    with np.errstate(over="ignore"):
        quotients = (x.astype(np.float32) / steps.astype(np.float32)).astype(np.float64)
    return np.clip(np.rint(quotients) + zeros, scale.least, scale.most)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT16, DType.INT32])
def test_parts_hold_the_numbers_of_the_whole(shape: tuple[int, ...], dtype: DType) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 12, shape)).astype(np.float32)
    least, most = (0, 255) if dtype is DType.UINT8 else (-100, 100) if dtype is DType.INT8 else (-30_000, 30_000)
    scale = Scale(dtype, (0.03,), (7,), None, least, most)
    numbers = scale.quantised(x)
    assert numbers.dtype == dtype.numpy and numbers.shape == x.shape
    np.testing.assert_array_equal(numbers, stated(scale, x))
    restored = scale.restored(numbers)
    assert restored.dtype == np.float32 and restored.shape == x.shape
    np.testing.assert_array_equal(restored, ((numbers.astype(np.int64) - 7).astype(np.float32) * np.float32(0.03)))


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_take_the_steps_of_their_channels(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((700, 600)).astype(np.float32)
    count = x.shape[axis]
    scale = Scale(DType.INT8, tuple(np.linspace(0.01, 0.1, count)), tuple(k % 5 for k in range(count)), axis)
    np.testing.assert_array_equal(scale.quantised(x), stated(scale, x))
    spread = [one.astype(np.float32) for one in scale.spread(x.shape)]
    wanted = (scale.quantised(x).astype(np.float32) - spread[1]) * spread[0]
    np.testing.assert_array_equal(scale.restored(scale.quantised(x)), wanted)
