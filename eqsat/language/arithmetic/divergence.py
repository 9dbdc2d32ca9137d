"""Where machines and runtimes agree on what an operator makes of given elements, most of them integers.

Arithmetic on integers wraps around, on ONNX Runtime as in NumPy. What C leaves undefined (a division by zero, a float
cast to an integer that cannot hold it) differs between processors, and ONNX Runtime computes some operators on integers
in floating point. Each rule is true of attributes and operands whose result is the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from eqsat.language.terms import Array, Attrs, DType

#: Integers up to this one are exact in float64.
_EXACT = 1 << 53

Operands = Sequence[Array | None]


def _is_integral(array: Array | None) -> bool:
    return array is not None and array.dtype.kind in "iu"


def quotient(attrs: Attrs, operands: Operands) -> bool:
    """Division of integers by zero, and of the least one by -1, ends the process or not, as the processor has it."""
    a, b = operands
    if a is None or b is None or not _is_integral(a) or not _is_integral(b):
        return True
    if not b.all():
        return False
    return a.dtype.kind == "u" or not bool(((a == np.iinfo(a.dtype).min) & (b == -1)).any())


def remainder(attrs: Attrs, operands: Operands) -> bool:
    """As division; with `fmod`, ONNX Runtime computes in float64."""
    if not quotient(attrs, operands):
        return False
    return not attrs["fmod"] or all(_largest(x) <= _EXACT for x in operands if _is_integral(x))


def _largest(array: Array | None) -> int:
    """The largest magnitude of integers."""
    return 0 if array is None or not array.size else max(-int(array.min()), int(array.max()))


def power(attrs: Attrs, operands: Operands) -> bool:
    """ONNX Runtime computes powers of integers in float64."""
    base, exponent = operands
    if base is None or exponent is None or not _is_integral(base):
        return True
    if any(_largest(x) > _EXACT for x in operands if _is_integral(x)):
        return False
    wide = np.broadcast_arrays(base.astype(np.float64), exponent.astype(np.float64))
    with np.errstate(all="ignore"):
        powers = np.power(*wide)
    limit = min(np.iinfo(base.dtype).max, _EXACT)
    return bool((np.abs(powers) <= limit).all())


def shift(attrs: Attrs, operands: Operands) -> bool:
    """Shifting by all bits or more is undefined in C."""
    a, b = operands
    return a is None or b is None or bool((b < 8 * a.dtype.itemsize).all())


def conversion(attrs: Attrs, operands: Operands) -> bool:
    """Floats to integers that hold them, and to halves that are rounded alike at once or by way of float32."""
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


def reduction(bound: Callable[[Array], Array]) -> Callable[[Attrs, Operands], bool]:
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


def no_integers(attrs: Attrs, operands: Operands) -> bool:
    """Floats, whatever they are."""
    return not any(_is_integral(x) for x in operands)


def totals(lines: Array) -> Array:
    """The sums of magnitudes."""
    return np.asarray(lines.sum(axis=0))


def products(lines: Array) -> Array:
    """The products of magnitudes."""
    return np.asarray(np.maximum(lines, 1.0).prod(axis=0))


def squares(lines: Array) -> Array:
    """The sums of squares."""
    return np.asarray((lines * lines).sum(axis=0))
