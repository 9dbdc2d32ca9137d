"""Rows of masks of attention, and the least float that may stand in them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from eqsat.language.terms.types import DType


def rows_attend(mask: Any) -> bool:
    """True where each row of a mask along its last axis lets its query look at something.

    A row of numbers has to hold one above half the least float: ONNX Runtime's Attention takes what lies about the
    least float for minus infinity, and makes 0 of a row of it, where ONNX makes equal shares.

    >>> [rows_attend(np.float32(m)) for m in ([[0, -np.inf], [1, 0]], [[0, 0], [-np.inf, -np.inf]])]
    [True, False]
    """
    rows = np.atleast_1d(mask)
    if rows.dtype != bool:
        rows = rows > 0.5 * lowest(DType.of(rows.dtype))
    return bool(rows.any(axis=-1).all())


def lowest(dtype: DType) -> float:
    """The least finite number of a type of floats."""
    return float(ml_dtypes.finfo(dtype.numpy).min)
