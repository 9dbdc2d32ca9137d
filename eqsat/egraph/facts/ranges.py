"""Bounds on the results of rules: tensors that a machine holds, and constants in the range of their element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.errors import EqsatError, ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import Interpretation, run_node
from eqsat.language.terms import Node, TensorType, ValueType

#: A rule may make no tensor of more elements than this.
LARGEST = 1 << 40


def check_size(given: Sequence[ValueType], types: Sequence[ValueType], op: str) -> None:
    """Rules that grow tensors could otherwise make some that no machine holds.

    Nor may they reshape to a shape that has as many elements at some sizes of named dims alone: a graph whose channels
    are named by its input and counted by its weights runs at one size, which is not known here.
    """
    source = given[0] if op == "reshape" else None
    if isinstance(source, TensorType) and source.shape is not None:
        (target,) = (t for t in types if isinstance(t, TensorType))
        if source.size != target.size:
            raise ShapeError(
                f"reshape of {source} to {target}", expected="as many elements for all sizes of named dims"
            )
    for type in types:
        if isinstance(type, TensorType) and type.is_static and type.elements({}) > LARGEST:
            raise ShapeError(f"{op} makes {type}", expected=f"at most {LARGEST} elements")


@np.errstate(all="ignore")
def evaluated(
    interpretation: Interpretation,
    node: Node,
    operands: Sequence[Any],
    types: Sequence[TensorType | None],
    result: TensorType,
) -> Any | None:
    """The constant a node makes of constants; None where the program would fail to compute it, too."""
    try:
        return run_node(interpretation, node, list(operands), list(types), [result])[0]
    except (IndexError, ValueError, ZeroDivisionError, EqsatError):
        return None


def leaves_range(node: Node, operands: Sequence[Any], types: Sequence[TensorType | None], result: TensorType) -> bool:
    """Return whether a result overflows or vanishes in its type, or is infinite or NaN of finite operands.

    A number below the normal ones of a type vanishes in part: fewer bits are left than its other elements have.

    Rules regroup constants as if they were real numbers; where they leave the range, the two sides are not equal.
    """
    if not result.dtype.is_float:
        return False
    exact = Floats(wide=True)
    widened = [None if t is None else exact.constant(a, t) for a, t in zip(operands, types, strict=True)]
    wide = evaluated(exact, node, widened, types, result)
    if wide is None:
        return False
    with np.errstate(all="ignore"):
        narrow = wide.astype(result.dtype.numpy).astype(np.float64)
        lost = np.abs(wide - narrow) > float(ml_dtypes.finfo(result.dtype.numpy).eps) * np.abs(wide)
    if ((np.isfinite(wide) != np.isfinite(narrow)) | (np.isfinite(wide) & lost)).any():
        return True
    floats = [a for a in widened if a is not None and a.dtype.kind == "f"]
    return bool(all(np.isfinite(a).all() for a in floats) and not np.isfinite(wide).all())
