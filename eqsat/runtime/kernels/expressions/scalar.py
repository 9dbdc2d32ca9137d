"""The C expression of every pointwise operator, derived from its reference.

A reference computes with whatever arithmetic it is given; here it is given typed C expressions instead of arrays. So an
operator is declared once, and one that a user declares has a kernel without more ado.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.language.ops import spec
from eqsat.language.terms import DType, Node, TensorType
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, cast, computed, convert, lifted, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS, SPECIAL


class ScalarArithmetic:
    """The namespace that references compute with: C expressions instead of arrays."""

    exact = False

    def __getattr__(self, name: str) -> Callable[..., Expr]:
        function = FUNCTIONS.get(name)
        if function is None:
            raise AttributeError(f"no C expression for {name}")
        return lambda *values: function(*lifted(values))

    def apply(self, name: str, x: Expr) -> Expr:
        """A function of one variable by its NumPy name."""
        result: Expr = getattr(self, name)(x)
        return result

    def number(self, value: Any, like: Expr) -> Expr:
        """A number of the same element type as `like`; a fraction stays one beside integers, results being cut."""
        fraction = like.dtype.is_integer and np.isfinite(value) and not float(value).is_integer()
        return number(value, DType.FLOAT64 if fraction else like.dtype)

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """Conversion of the element type."""
        return cast(x, dtype)


ARITHMETIC = ScalarArithmetic()


def traced(node: Node, operands: Sequence[Expr | None]) -> Expr | None:
    """The expression of an operator's reference on expressions; None where it does more than arithmetic."""
    special = SPECIAL.get(node.op)
    reference = spec(node.op).reference if special is None else special
    try:
        result = reference(ARITHMETIC, *operands, **node.attrs)
    except (TypeError, AttributeError, ValueError, IndexError, KeyError, UnsupportedError):
        # NumPy and Python refuse expressions by these, wherever a reference wants the elements themselves.
        return None
    if isinstance(result, np.ndarray) and not result.ndim:
        result = result[()]
    return lifted([result])[0] if isinstance(result, Expr | bool | int | float | np.generic) else None


def expression(
    node: Node, operands: Sequence[Expr | None], types: Sequence[TensorType | None], result: TensorType
) -> Expr | None:
    """The C expression of a pointwise operator, in the type that its result is computed in.

    Operands are those of one element of the result, in the types they are computed in; None for one left out. None
    where the operator has no expression.
    """
    ranked = [None if x is None or t is None else replace(x, ndim=t.rank) for x, t in zip(operands, types, strict=True)]
    value = traced(node, ranked)
    return None if value is None else convert(value, computed(result.dtype))


def operand(node: Node, place: int) -> str | None:
    """The name of an operand; None for an optional one left out."""
    return node.inputs[place] if place < len(node.inputs) else None


def given(node: Node, place: int = 0) -> str:
    """The name of an operand that kernels cannot do without."""
    value = operand(node, place)
    if value is None:
        raise UnsupportedError(f"operand {place} of {node.op} is left out")
    return value
