"""Comprehensions that were wrongly accepted, wrongly refused, or ended in an exception of Python."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.errors import BoundsError, RangeError
from eqsat.language.terms import Array


def _counted(*shape: int, dtype: str = "float32") -> Array:
    made: Array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return made


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(float(N) A, float(M) B) -> (n, o) { n = 1  o(i) = A(i + n) where i in 0:M }", [1, 2]),
        ("def f(float(N) A, float(M) B) -> (n, o) { n = true  o(i) = A(i + n) + B(i) }", [1, 3]),
        ("def f(float(N) A, float(M) B) -> (n, o) { n = 3  o = A(n) }", 3),
    ],
)
def test_scalars_that_are_computed_are_no_indices(source: str, expected: object) -> None:
    _, found = eqsat.comprehension(source).f(_counted(5), _counted(2))
    assert found.tolist() == expected


def test_a_computed_scalar_is_held_against_the_bounds_where_it_is_used() -> None:
    f = eqsat.comprehension("def f(float(N) A) -> (n, o) { n = -1  o = A(n) }").f
    with pytest.raises(BoundsError, match="it is -1"):
        f(_counted(5))
    with pytest.raises(RangeError, match="depends on elements of n"):
        eqsat.comprehension("def f(float(N) A) -> (n, o) { n = 2  o(i) = A(i) where i in 0:n }")
