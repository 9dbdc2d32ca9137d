"""Functions of rules about the form of constant matrices and filters, of whatever size.

Of most constants the first elements tell that they have no such form, so that none of these reads a large one in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.terms import Operand
from eqsat.rewrites.conditions.functions import Fail, function


def _matrix(x: Operand) -> Any | None:
    """The elements of a constant matrix of floats with rows and columns, else None."""
    if x.type.rank != 2 or not x.type.dtype.is_float or x.elements is None:
        return None
    matrix = np.asarray(x.elements)
    return matrix if matrix.size else None


@function
def is_zero(x: Operand) -> bool | Fail:
    """True for a constant of floats, with elements, all of which are zeros."""
    if not x.type.dtype.is_float or x.elements is None:
        return Fail("not a constant whose elements are known")
    elements = np.asarray(x.elements)
    zero = elements.size and elements.flat[0] == 0 and not elements.any()
    return bool(zero) or Fail("not all zeros")


@function
def is_selection(x: Operand, axis: int) -> bool | Fail:
    """True for a constant matrix each of whose lines along an axis has a single one, and zeros beside it."""
    matrix = _matrix(x)
    if matrix is None:
        return Fail("not a matrix whose elements are known")
    lines = matrix if axis == 1 else matrix.T
    one = np.count_nonzero(lines[0]) == 1 and ((lines != 0).sum(axis=1) == 1).all() and (lines.max(axis=1) == 1).all()
    return bool(one) or Fail("a line has not a single one")


@function
def is_triangle(x: Operand) -> bool | Fail:
    """True for a constant square matrix with ones on its diagonal and on one side of it, and zeros on the other."""
    matrix = _matrix(x)
    if matrix is None or len(matrix) != matrix.shape[1] or len(matrix) < 2:
        return Fail("not a square matrix whose elements are known")
    if {float(matrix[0, -1]), float(matrix[-1, 0])} != {0.0, 1.0}:
        return Fail("not a triangle of ones")
    whole = np.ones_like(matrix)
    return bool((matrix == (np.triu if is_upper(x) else np.tril)(whole)).all()) or Fail("not a triangle of ones")


@function
def is_upper(x: Operand) -> bool:
    """True if the last element of the first row of a constant matrix is not zero."""
    matrix = _matrix(x)
    if matrix is None:
        raise ShapeError("the elements are not known", expected="a constant matrix")
    return bool(matrix[0, -1] != 0)


@function
def is_even_beside(x: Operand) -> bool | Fail:
    """True for a constant square matrix with a number on its diagonal and another beside it."""
    matrix = _matrix(x)
    if matrix is None or len(matrix) != matrix.shape[1] or len(matrix) < 3:
        return Fail("not a square matrix whose elements are known")
    on, beside = matrix[0, 0], matrix[0, 1]
    if beside == 0 or matrix[0, 2] != beside or matrix[1, 0] != beside or not np.isfinite(matrix[0, :2]).all():
        return Fail("more numbers, or zeros, beside the diagonal")
    whole = np.full_like(matrix, beside)
    np.fill_diagonal(whole, on)
    return bool((matrix == whole).all()) or Fail("more numbers on the diagonal, or beside it")


@function
def entry(x: Operand, row: int, column: int) -> float:
    """An element of a constant matrix."""
    matrix = _matrix(x)
    if matrix is None:
        raise ShapeError("the elements are not known", expected="a constant matrix")
    return float(matrix[row, column])


@function
def is_in_blocks(x: Operand) -> bool | Fail:
    """True for a constant matrix of two blocks along its diagonal, with zeros beside them."""
    return _corner(x) is not None or Fail("not two blocks with zeros beside them")


@function
def block(x: Operand, axis: int) -> int:
    """The rows, or columns, of the first of the two blocks that a constant matrix is."""
    corner = _corner(x)
    if corner is None:
        raise ShapeError("not two blocks with zeros beside them")
    return corner[axis]


def _corner(x: Operand) -> tuple[int, int] | None:
    """The size of the first of two blocks, of which the larger one is as small as can be."""
    matrix = _matrix(x)
    if matrix is None or matrix[0, -1] != 0 or matrix[-1, 0] != 0 or min(matrix.shape) < 2:
        return None
    filled = matrix != 0
    if not filled.any(axis=1).all():
        return None
    columns = matrix.shape[1]
    first, last = filled.argmax(axis=1), columns - filled[:, ::-1].argmax(axis=1)
    reach, begin = np.maximum.accumulate(last)[:-1], np.minimum.accumulate(first[::-1])[::-1][1:]
    rows = np.flatnonzero(reach <= begin)
    if not rows.size:
        return None
    row = int(rows[np.abs(rows + 1 - len(matrix) / 2).argmin()])
    return row + 1, int(reach[row])


@function
def is_grouped(x: Operand) -> bool | Fail:
    """True for constant filters that read a part of the channels each, as those of a convolution in groups do."""
    return _group_count(x) > 1 or Fail("filters read all channels")


@function
def is_strided(x: Operand, start: int, sizes: Sequence[int], strides: Sequence[int]) -> bool | Fail:
    """True for constant integers that begin with one and go on by strides, in the mixed radix of sizes."""
    elements = x.value
    if elements is None or np.asarray(elements).dtype.kind not in "iu":
        return Fail("not a small constant of integers")
    return bool(np.array_equal(np.asarray(elements).ravel(), strided(start, sizes, strides))) or Fail("other integers")


def strided(start: int, sizes: Sequence[int], strides: Sequence[int]) -> Any:
    """The integers that begin with one and go on by strides, in the mixed radix of sizes."""
    found = np.array([start], dtype=np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        found = (found[:, None] + np.arange(size) * stride).ravel()
    return found


@function
def group_count(x: Operand) -> int:
    """The largest number of equal groups of constant filters of which each reads channels of its own."""
    return _group_count(x)


def _group_count(x: Operand) -> int:
    if x.type.rank < 3 or not x.type.dtype.is_float or x.elements is None:
        return 1
    filters = np.asarray(x.elements)
    if not filters.size or filters[0, -1].any() or filters[-1, 0].any():
        return 1
    filled = filters.reshape(*filters.shape[:2], -1).any(axis=2)
    most = int(np.gcd(*filled.shape))
    for count in range(most, 1, -1):
        if most % count == 0:
            blocks = filled.reshape(count, filled.shape[0] // count, count, filled.shape[1] // count).any(axis=(1, 3))
            if np.count_nonzero(blocks) == np.count_nonzero(np.diagonal(blocks)):
                return count
    return 1
