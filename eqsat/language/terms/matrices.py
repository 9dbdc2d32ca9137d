"""Constants of which rules ask for their form: masks of attention, and matrices with nothing beside a diagonal."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from eqsat.language.terms.types import DType


def rows_attend(mask: Any) -> bool:
    """True where each row of a mask along its last axis lets its query look at something.

    A row of numbers has to hold one above half the least float: ONNX Runtime's Attention takes what lies about the
    least float for minus infinity, and makes 0 of a row of it, where ONNX makes equal shares. With an infinity or what
    is no number a row makes no shares at all.

    >>> [rows_attend(np.float32(m)) for m in ([[0, -np.inf], [1, 0]], [[0, 0], [-np.inf, -np.inf]])]
    [True, False]
    """
    rows = np.atleast_1d(mask)
    if rows.dtype != bool:
        if not (rows < np.inf).all():
            return False
        rows = rows > 0.5 * lowest(DType.of(rows.dtype))
    return bool(rows.any(axis=-1).all())


def lowest(dtype: DType) -> float:
    """The least finite number of a type of floats."""
    return float(ml_dtypes.finfo(dtype.numpy).min)


def diagonal_of(array: Any) -> float | None:
    """The number on the diagonal of a square matrix that has zeros beside it; None where there is none.

    >>> diagonal_of(3 * np.eye(4)), diagonal_of(np.ones((2, 2))), diagonal_of(np.ones((1, 1)))
    (3.0, None, None)
    """
    matrix = np.asarray(array)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2 or matrix.dtype.kind != "f":
        return None
    first = matrix[0, 0]
    if matrix[0, 1] != 0 or not np.isfinite(first) or (np.diagonal(matrix) != first).any():
        return None
    return float(first) if np.count_nonzero(matrix) == (len(matrix) if first else 0) else None
