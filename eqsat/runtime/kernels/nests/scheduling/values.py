"""Values that schedules need beside those of statements."""

from __future__ import annotations

import numpy as np

from eqsat.language.comprehension.evaluation import neutral as neutral_element
from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.expression import Expr, number
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelStatement


def neutral(reduction: str, dtype: DType) -> Expr:
    """The number, or the truth, with which a reduction begins."""
    if dtype is DType.BOOL and reduction in ("min", "max"):
        return number(reduction == "min", dtype)
    return number(np.asarray(neutral_element(reduction, dtype)), dtype)


def own_element(statement: KernelStatement) -> ElementRead:
    """The element that a statement writes, as one that is read."""
    return ElementRead.of(statement.target, statement.value.dtype, statement.place)
