"""Packing of numbers of few bits, and steps of weights in blocks, on arbitrary numbers."""

from __future__ import annotations

from random import Random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from eqsat.errors import UsageError
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import OPS
from eqsat.language.ops.quantised.packed import packed, unpacked
from eqsat.language.terms import PACKINGS, BlockScale, Constant, DType, Packing
from eqsat.quantisation.blocks import block_scale

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 20))
MODERATE = st.floats(-1e6, 1e6, width=32).map(lambda x: 0.0 if abs(x) < 1e-6 else x)
MATRICES = arrays.arrays(np.float32, SHAPES, elements=MODERATE)


def numbers(bits: int) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.uint8, SHAPES, elements=st.integers(0, 2**bits - 1))


@given(st.sampled_from([1, 2, 4, 8]).flatmap(lambda bits: st.tuples(st.just(bits), numbers(bits))))
def test_numbers_are_unpacked_as_they_were_packed(drawn: tuple[int, np.ndarray]) -> None:
    bits, given_ = drawn
    bytes_ = packed(given_, bits)
    assert bytes_.dtype == np.uint8
    assert bytes_.shape == (len(given_), -(-given_.shape[1] * bits // 8))
    back = unpacked(bytes_, bits)
    np.testing.assert_array_equal(back[:, : given_.shape[1]], given_)
    assert not back[:, given_.shape[1] :].any()


@given(numbers(1))
def test_bits_are_packed_as_numpy_packs_them(given_: np.ndarray) -> None:
    np.testing.assert_array_equal(packed(given_, 1), np.packbits(given_, axis=-1, bitorder="little"))


@given(numbers(4))
def test_halves_of_bytes_are_packed_as_an_integer_of_sixteenths(given_: np.ndarray) -> None:
    for row, bytes_ in zip(given_, packed(given_, 4), strict=True):
        whole = sum(int(q) << (4 * place) for place, q in enumerate(row))
        assert int.from_bytes(bytes_.tobytes(), "little") == whole


@given(numbers(4))
def test_numbers_of_four_bits_are_packed_as_onnx_packs_them(given_: np.ndarray) -> None:
    from onnx import TensorProto, helper

    flat = given_.reshape(-1)
    tensor = helper.make_tensor("q", TensorProto.UINT4, flat.shape, flat.astype(ml_dtypes.uint4).tolist())
    stored = tensor.raw_data or bytes(tensor.int32_data)
    assert packed(flat, 4).tobytes() == stored


@given(
    st.sampled_from([2, 4, 8]).flatmap(lambda bits: st.tuples(st.just(bits), numbers(bits))),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_a_product_with_packed_numbers_is_that_of_the_numbers(
    drawn: tuple[int, np.ndarray], rows: int, random: Random
) -> None:
    bits, q = drawn
    n, k = q.shape
    count = -(-k // 4)
    zeros = np.array([[random.randrange(1 << bits) for _ in range(count)] for _ in range(n)], np.uint8)
    a = np.array([[random.randrange(-9, 10) for _ in range(k)] for _ in range(rows)], np.float32)
    filled = np.pad(q, ((0, 0), (0, count * 4 - k))).reshape(n, count, 4)
    ones = np.ones((n, count), np.float32)
    attrs = {"k": k, "n": n, "bits": bits, "block": 4}
    found = OPS["matmul_packed"].reference(
        FloatNamespace(), a, packed(filled, bits), ones, packed(zeros, bits), None, level=0, **attrs
    )
    centred = q.astype(np.int64) - np.repeat(zeros.astype(np.int64), 4, axis=1)[:, :k]
    np.testing.assert_array_equal(found, a.astype(np.int64) @ centred.T)


@given(MATRICES, st.booleans(), st.sampled_from([0, 1]))
def test_steps_of_blocks_are_those_of_no_larger_error_than_the_plain_ones(
    w: np.ndarray, zeros: bool, axis: int
) -> None:
    packing = Packing(4, 4, zeros)
    scale = block_scale(w, axis, packing)
    assert scale.quantised(w).max(initial=0) <= packing.most
    rows, restored = (one if axis == 0 else one.T for one in (w.astype(np.float64), scale.rounded(w)))
    whole = rows[:, : rows.shape[1] // 4 * 4].reshape(len(rows), -1, 4)
    got = restored.astype(np.float64)[:, : whole.shape[1] * 4].reshape(whole.shape)
    steps = np.abs(whole).max(axis=-1, keepdims=True) / 7
    plain = np.rint(np.divide(whole, steps, out=np.zeros_like(whole), where=steps > 0)) * steps
    losses = [np.square(one - whole).sum(axis=-1) for one in (got, plain)]
    assert (losses[0] <= 1.001 * losses[1] + 1e-10 * steps[..., 0] ** 2).all()
    np.testing.assert_array_equal(scale.rounded(np.zeros_like(w)), 0)


def test_zero_points_of_their_own_lower_the_error_of_blocks_that_are_not_even() -> None:
    w = np.random.default_rng(0).exponential(size=(16, 256)).astype(np.float32)
    even, free = (block_scale(w, 0, PACKINGS[name]) for name in ("int4_32", "int4_32_zeros"))
    losses = [np.square(scale.rounded(w) - w).sum() for scale in (even, free)]
    assert losses[1] < 0.5 * losses[0]


def test_weights_and_steps_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match="weights that are not finite"):
        block_scale(np.float32([[np.inf]]), 0, PACKINGS["int4_32"])
    none = Constant.of(np.zeros((1, 1), np.float32), DType.FLOAT32)
    with pytest.raises(UsageError, match="finite numbers other than 0"):
        BlockScale(PACKINGS["int4_32"], 0, none)
    ones = Constant.of(np.ones((1, 1), np.float32), DType.FLOAT32)
    with pytest.raises(UsageError, match="zero points of blocks packed as int4_32_zeros\n  expected one of each block"):
        BlockScale(PACKINGS["int4_32_zeros"], 0, ones)
    scale = BlockScale(PACKINGS["int4_32"], 0, ones).adjusted(np.zeros((1, 2), np.uint8), None)
    with pytest.raises(UsageError, match=r"numbers of shape \(1, 2\) for weights of shape \(1, 3\)"):
        scale.quantised(np.zeros((1, 3), np.float32))
