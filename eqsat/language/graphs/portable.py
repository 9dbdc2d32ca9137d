"""Which results are the same on every machine, so that they may be computed before the program runs.

Arithmetic on integers wraps around, on ONNX Runtime as in NumPy. What C leaves undefined (a division by zero, a float
cast to an integer that cannot hold it) differs between processors, and ONNX Runtime computes some operators on integers
in floating point: what that could change is left to the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eqsat.language.terms.constant import Array
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.types import DType

#: Integers up to this one are exact in float64.
_EXACT = 1 << 53

Operands = Sequence[Array | None]


def is_portable(op: str, attrs: Attrs, operands: Operands) -> bool:
    """False where machines or runtimes differ in what an operator makes of these elements.

    >>> is_portable("div", Attrs(), [np.int64([1]), np.int64([0])])
    False
    """
    test = _TESTS.get(op)
    return test is None or test(attrs, operands)


def _is_integral(array: Array | None) -> bool:
    return array is not None and array.dtype.kind in "iu"


def _quotient(attrs: Attrs, operands: Operands) -> bool:
    """Division of integers by zero, and of the least one by -1, ends the process or not, as the processor has it."""
    a, b = operands
    if a is None or b is None or not _is_integral(a) or not _is_integral(b):
        return True
    if not b.all():
        return False
    return a.dtype.kind == "u" or not bool(((a == np.iinfo(a.dtype).min) & (b == -1)).any())


def _remainder(attrs: Attrs, operands: Operands) -> bool:
    """As division; with `fmod`, ONNX Runtime computes in float64."""
    if not _quotient(attrs, operands):
        return False
    return not attrs["fmod"] or all(_largest(x) <= _EXACT for x in operands if _is_integral(x))


def _largest(array: Array | None) -> int:
    """The largest magnitude of integers."""
    return 0 if array is None or not array.size else max(-int(array.min()), int(array.max()))


def _power(attrs: Attrs, operands: Operands) -> bool:
    """ONNX Runtime computes powers of integers in float64."""
    base, exponent = operands
    if base is None or exponent is None or not _is_integral(base):
        return True
    if any(_largest(x) > _EXACT for x in operands if _is_integral(x)):
        return False
    wide = np.broadcast_arrays(base.astype(np.float64), exponent.astype(np.float64))
    with np.errstate(all="ignore"):
        made = np.power(*wide)
    limit = min(np.iinfo(base.dtype).max, _EXACT)
    return bool((np.abs(made) <= limit).all())


def _shift(attrs: Attrs, operands: Operands) -> bool:
    """Shifting by all bits or more is undefined in C."""
    a, b = operands
    return a is None or b is None or bool((b < 8 * a.dtype.itemsize).all())


def _conversion(attrs: Attrs, operands: Operands) -> bool:
    (x,) = operands
    to = DType.of(attrs["to"])
    if x is None or x.dtype.kind == "b":
        return True
    if DType.of(x.dtype).is_float and to.is_integer:
        return _fits(x, to)
    if to in (DType.FLOAT16, DType.BFLOAT16) and x.dtype.itemsize > 2:
        # By way of float32, as ONNX Runtime converts, or at once: the first rounds twice.
        with np.errstate(all="ignore"):
            once, twice = x.astype(to.numpy), x.astype(np.float32).astype(to.numpy)
        return bool(((once == twice) | (once != once)).all())
    return True


def _fits(x: Array, to: DType) -> bool:
    """True where each float, cut to an integer, is one that the type holds."""
    wide = np.trunc(x.astype(np.float64))
    limits = np.iinfo(to.numpy) if to.numpy.kind in "iu" else None
    if limits is None:
        return False
    return bool((np.isfinite(wide) & (wide >= float(limits.min)) & (wide < float(limits.max) + 1)).all())


def _reduction(bound: Callable[[Array], Array]) -> Callable[[Attrs, Operands], bool]:
    """A reduction of integers, which ONNX Runtime adds up without wrapping around: `bound` is of partial results."""

    def test(attrs: Attrs, operands: Operands) -> bool:
        x = operands[0]
        if x is None or not _is_integral(x) or not x.size:
            return True
        lines = np.abs(np.moveaxis(x.astype(np.float64), attrs["axes"], range(len(attrs["axes"]))))
        flat = lines.reshape(math.prod(lines.shape[: len(attrs["axes"])]), -1)
        with np.errstate(all="ignore"):
            return bool((bound(flat) <= min(np.iinfo(x.dtype).max, _EXACT)).all())

    return test


def _no_integers(attrs: Attrs, operands: Operands) -> bool:
    return not any(_is_integral(x) for x in operands)


def _totals(lines: Array) -> Array:
    return np.asarray(lines.sum(axis=0))


def _products(lines: Array) -> Array:
    return np.asarray(np.maximum(lines, 1.0).prod(axis=0))


def _squares(lines: Array) -> Array:
    return np.asarray((lines * lines).sum(axis=0))


_TESTS: Mapping[str, Callable[[Attrs, Operands], bool]] = {
    "bit_shift": _shift,
    "cast": _conversion,
    "div": _quotient,
    "mod": _remainder,
    "pow": _power,
    "reduce_l1": _reduction(_totals),
    "reduce_l2": _no_integers,
    "reduce_log_sum": _no_integers,
    "reduce_log_sum_exp": _no_integers,
    "reduce_mean": _reduction(_totals),
    "reduce_prod": _reduction(_products),
    "reduce_sum": _reduction(_totals),
    "reduce_sum_square": _reduction(_squares),
}
