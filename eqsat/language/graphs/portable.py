"""Results that are the same on every machine, so that they may be computed before the program runs."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.language.ops import OPS
from eqsat.language.terms import Array, Attrs


def is_portable(op: str, attrs: Attrs, operands: Sequence[Array | None]) -> bool:
    """False where the results of an operator on these elements differ between machines or runtimes.

    >>> import numpy as np
    >>> is_portable("div", Attrs(), [np.int64([1]), np.int64([0])])
    False
    """
    test = OPS[op].portable
    return test is None or test(attrs, operands)
