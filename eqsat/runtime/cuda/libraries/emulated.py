"""Calls of libraries computed in NumPy: the reference where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import spec
from eqsat.language.terms.constant import Array
from eqsat.runtime.cuda.libraries.calls import Call
from eqsat.runtime.cuda.libraries.substitute import group_of
from eqsat.runtime.kernels.view import View

_XP = FloatNamespace()
#: Bits of a float32's mantissa that TF32 leaves out.
_TF32_DROPPED = 13


def compute(call: Call, array: Callable[[View], Array]) -> None:
    """Run a call on the arrays that `array` finds for its views, and write its result there.

    Each operator is computed in float64 and rounded to float32, but for operands of float64: in float32 the order of a
    sum, and with it the last digits, would be those of this processor. The result is rounded once, to its element type.
    Sums of products of int8 are exact so far as int32 holds them.
    """
    group = group_of(call)
    values = {
        name: group.constants[name].array if name in group.constants else array(view)
        for name, view in group.operands.items()
    }
    if getattr(call, "arithmetic", "") == "tf32":
        values |= {name: tf32(values[name]) for name in map(str, group.nodes[0].inputs[:2])}
    with np.errstate(all="ignore"):
        for node in group.nodes:
            declared, result = spec(node.op), node.outputs[0]
            operands = [_wide(values[str(value)]) for value in node.inputs]
            wide = declared.reference(_XP, *operands, **declared.complete(node.attrs))
            values[result] = np.asarray(wide).astype(group.types[result].dtype.numpy)
        array(call.result)[...] = values[result].astype(call.result.dtype.numpy)


def tf32(x: Array) -> Array:
    """Elements of float32 rounded to TF32: 10 bits of mantissa, to nearest, ties away from zero.

    >>> tf32(np.float32([1 + 2**-11, 1 + 2**-12]))
    array([1.0009766, 1.       ], dtype=float32)
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    half = np.uint32(1 << (_TF32_DROPPED - 1))
    rounded = (bits + half) & np.uint32(~((1 << _TF32_DROPPED) - 1) & 0xFFFFFFFF)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def _wide(x: Array) -> Array:
    """Numbers in float64; truth values as they are."""
    return x if x.dtype.kind == "b" else x.astype(np.float64)
