"""A claim of operators on integers: a whole result that its type has is that of floats, which do not wrap around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.parametric.sums.ranges import limits_of
from eqsat.language.terms import DType, Shape, TensorType
from eqsat.rewrites.proof.naturality.claims import holds_on_samples
from eqsat.rewrites.proof.opaque.signatures import dims_of
from eqsat.rewrites.rules.term import outputs

#: How far from a whole number floats may be that were rounded.
_NEAR = 1e-9
#: Narrow types, with the least and the largest number of each.
_NARROW = {DType.INT8: limits_of(DType.INT8), DType.BOOL: (0, 1)}

#: The attribute of recurrent layers that names functions.
_FUNCTIONS = "activations"


def holds_what_fits(declared: OpSpec) -> bool:
    """True if results on integers, and on truth values, are seen to be those on floats where these are whole and fit.

    Not so where an operator compares sums or products that it made: these may have wrapped around before.
    """
    return declared.is_shipped and _seen_to_hold(declared.name, declared.reference, declared.infer)


@cache
def _seen_to_hold(name: str, _reference: Reference, _infer: InferRule) -> bool:
    return holds_on_samples(spec(name), f"wrapping {name}", _holds_on)


def _holds_on(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    values = np.random.default_rng(rng.randrange(1 << 30))
    for kind, (least, most) in _NARROW.items():
        arrays = [values.integers(least, most + 1, dims_of(shape)) for shape in shapes]
        wide = _results(declared, drawn, arrays, DType.FLOAT64)
        narrow = _results(declared, drawn, arrays, kind)
        if narrow is None:
            continue  # it does not take them, so that no graph has it
        if wide is None:
            return False
        for one, other in zip(wide, narrow, strict=True):
            floats = np.nan_to_num(np.asarray(one, np.float64), nan=0.5)
            whole = np.rint(floats)
            fits = (np.abs(floats - whole) < _NEAR) & (whole >= least) & (whole <= most)
            if not (whole[fits] == np.asarray(other)[fits]).all():
                return False
    return True


def keeps_zeros(declared: OpSpec) -> bool:
    """True if an operator is seen to make zeros of zeros alone, of integers and truth values.

    Not so of one whose attributes name functions, or with an operand of a type of its own, as a length: samples seldom
    have those that make something of zeros.
    """
    return (
        declared.is_shipped
        and not (declared.dtypes or _FUNCTIONS in declared.attrs)
        and _seen_to_keep_zeros(declared.name, declared.reference, declared.infer)
    )


@cache
def _seen_to_keep_zeros(name: str, _reference: Reference, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        arrays = [np.zeros(dims_of(shape)) for shape in shapes]
        found = [_results(declared, drawn, arrays, kind) for kind in _NARROW]
        return not any(np.any(one) for results in found for one in results or ())

    return holds_on_samples(spec(name), f"zeros {name}", holds)


def _results(declared: OpSpec, drawn: Mapping[str, Any], arrays: Sequence[Any], kind: DType) -> list[Any] | None:
    """The results on operands of a type; None where they are refused."""
    attrs = declared.complete(drawn)
    kinds = [DType.of(declared.dtypes.get(place, kind)) for place in range(len(arrays))]
    operands = [array.astype(one.numpy) for array, one in zip(arrays, kinds, strict=True)]
    types = [TensorType(one, array.shape) for one, array in zip(kinds, arrays, strict=True)]
    try:
        results = declared.result_types(types, attrs)
        with np.errstate(all="ignore"):
            return list(outputs(Floats(), declared.name, attrs, operands, list(types), results))
    except (GraphError, TypeError):
        return None
