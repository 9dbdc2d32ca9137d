"""Agreement of results: candidates that compute something else are not chosen, however fast they are."""

from __future__ import annotations

import numpy as np

from eqsat.language.terms import Array

#: Differences of floats by rounding: of an element by its own size, and by the largest of all.
_RELATIVE, _OF_LARGEST = 1e-3, 1e-4


def agrees(made: Array, wanted: Array) -> bool:
    """True of arrays that are the same, but for what sums in another order round.

    >>> agrees(np.array([1.0, 2.0]), np.array([1.0, 2.00001])), agrees(np.array([1, 2]), np.array([1, 3]))
    (True, False)
    """
    if made.dtype.kind not in "fV":
        return bool(np.array_equal(made, wanted))
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    largest = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
    return bool(np.allclose(a, b, rtol=_RELATIVE, atol=_OF_LARGEST * largest, equal_nan=True))
