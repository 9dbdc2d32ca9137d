"""Conditions on constants that are a number as nearly as floats hold it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.language.terms import Operand
from eqsat.rewrites.conditions.functions import Fail, function

#: Arithmetic of fractions, by the operator that writes it.
_EXACTLY: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@function
def rounds(x: Operand, number: float) -> bool | Fail:
    """True for a constant of floats whose elements are all a number, as nearly as float32 or a narrower type holds it.

    Both are rounded to the element type, or to float32 where that is wider, in which they may be neighbours. In a proof
    over the real numbers such a constant stands for the number itself.
    """
    elements = x.value
    if elements is None or not x.type.dtype.is_float or not np.asarray(elements).size:
        return Fail("not a small constant of floats")
    own = np.dtype(x.type.dtype.numpy)
    kind: Any = own if own.itemsize < np.dtype(np.float32).itemsize else np.float32
    with np.errstate(over="ignore"):
        found, wanted = np.asarray(elements).astype(kind), np.asarray(float(number)).astype(kind)
    if number and not found.all():
        return Fail(f"not all {number}, which is not 0")
    apart = np.spacing(np.abs(wanted)) if kind is np.float32 else 0
    return bool((np.abs(found - wanted) <= apart).all()) or Fail(f"not all {number}, rounded")


def exact_number(tree: ast.expr) -> Fraction | None:
    """The number that sums, products and quotients of written ones are, not rounded; None of another expression."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float):
        return Fraction(tree.value)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        operand = exact_number(tree.operand)
        return None if operand is None else -operand
    if isinstance(tree, ast.BinOp) and type(tree.op) in _EXACTLY:
        left, right = exact_number(tree.left), exact_number(tree.right)
        if left is not None and right is not None and (right or not isinstance(tree.op, ast.Div)):
            return _EXACTLY[type(tree.op)](left, right)
    return None
