"""Conditions on the form of constants: what they say is so of the elements, and they say it where it is so."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays

from eqsat.language.terms.types import DType, TensorType
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.instances.elements import Drawn


def constant(array: Any) -> Drawn:
    array = np.asarray(array, np.float64)
    return Drawn("c", TensorType(DType.FLOAT64, array.shape), constant=True, array=array)


def holds(condition: str, array: Any, *more: Any) -> bool:
    return bool(FUNCTIONS[condition](constant(array), *more))


matrices = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.0, 1.0, -2.0]))
)


@given(matrices, st.integers(0, 1))
@settings(max_examples=300, deadline=None)
def test_a_product_with_a_selection_takes_elements(matrix: Any, axis: int) -> None:
    if holds("is_selection", matrix, axis):
        x = np.random.default_rng(0).standard_normal((matrix.shape[axis], 3))
        chosen = x[matrix.argmax(axis=axis)]
        np.testing.assert_array_equal((matrix if axis == 1 else matrix.T) @ x, chosen)
    else:
        lines = matrix if axis == 1 else matrix.T
        assert any(np.count_nonzero(line) != 1 or line.sum() != 1 for line in lines)


@given(matrices)
@settings(max_examples=300, deadline=None)
def test_two_blocks_have_zeros_beside_them(matrix: Any) -> None:
    cuts = [(r, c) for r in range(1, matrix.shape[0]) for c in range(1, matrix.shape[1])]
    known = [(r, c) for r, c in cuts if not matrix[:r, c:].any() and not matrix[r:, :c].any()]
    if holds("is_in_blocks", matrix):
        assert tuple(FUNCTIONS["block"](constant(matrix), axis) for axis in (0, 1)) in known
    else:
        assert not known or not matrix.any(axis=1).all()


@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.booleans(), st.integers(0, 2**16))
@settings(max_examples=100, deadline=None)
def test_filters_in_groups_are_told_from_others(groups: int, rows: int, columns: int, spoiled: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    filters = np.zeros((groups * rows, groups * columns, 2))
    for n in range(groups):
        filters[n * rows : (n + 1) * rows, n * columns : (n + 1) * columns] = rng.uniform(0.5, 1.0, (rows, columns, 2))
    if spoiled:
        filters[-1, 0] = 1.0
    expected = 1 if spoiled else groups
    assert FUNCTIONS["group_count"](constant(filters)) == expected
    assert holds("is_grouped", filters) is (expected > 1)


@given(st.integers(2, 5), st.booleans(), st.booleans())
def test_a_triangle_of_ones_is_told_from_others(size: int, upper: bool, spoiled: bool) -> None:
    matrix = (np.triu if upper else np.tril)(np.ones((size, size)))
    if spoiled:
        matrix[size - 1, size - 1] = 2.0
    assert holds("is_triangle", matrix) is not spoiled
    assert FUNCTIONS["is_upper"](constant(matrix)) is upper


@given(st.integers(3, 5), st.sampled_from([-1.0, 0.0, 0.25]), st.sampled_from([1.0, 2.0]), st.booleans())
def test_one_number_beside_the_diagonal_is_told_from_others(size: int, beside: float, on: float, spoiled: bool) -> None:
    matrix = np.full((size, size), beside)
    np.fill_diagonal(matrix, on)
    if spoiled:
        matrix[-1, 0] += 1.0
    assert holds("is_even_beside", matrix) is (beside != 0 and not spoiled)


@given(matrices)
def test_zeros_are_told_from_others(matrix: Any) -> None:
    assert holds("is_zero", matrix) is (not matrix.any())
    assert not holds("is_zero", np.full((2, 2), np.nan))
