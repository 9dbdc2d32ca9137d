"""Operators that are seen to work along each axis by itself, and to leave what lies inside of a border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np

from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, DType, Shape, TensorType
from eqsat.rewrites.proof.naturality.claims import computed_in_floats, holds_on_samples

#: The attribute that is a number for elements which are none of the operand's, and that which says where else to look.
FILLER, MODE, FILLED = "value", "mode", "constant"
#: The values of the other attributes that a claim is looked at with.
_FILLERS = (-0.5, -1.5)


def works_along_axes(declared: OpSpec) -> bool:
    """True if an operator of one operand does along each axis what it does to a vector that is as long, on samples.

    Then its result at an index is a number that fills in, if along some axis that is what the result of the vector has
    there, and else the element of the operand whose index has the places that the vectors' results have.
    """
    return (
        declared.along_axes
        and declared.is_shipped
        and declared.min_operands == declared.max_operands == 1
        and _seen_along_axes(declared.name, declared.reference, declared.infer)
    )


def keeps_inside(declared: OpSpec) -> bool:
    """True if a mode says what an operator fills a border with, and leaves the elements inside, on samples."""
    return (
        {FILLER, MODE} <= declared.attrs.keys()
        and declared.is_shipped
        and _seen_to_keep_inside(declared.name, declared.reference, declared.infer)
    )


def along(attributes: Mapping[str, Any], rank: int, axis: int) -> dict[str, Any] | None:
    """The attributes for one axis of so many: what is said of axes by name, or by one or two values an axis."""
    found: dict[str, Any] = {}
    named = attributes.get("axes")
    for name, value in attributes.items():
        if not isinstance(value, tuple):
            found[name] = value
        elif named is not None:
            if value and len(value) != len(named):
                return None
            one = [part for part, at in zip(value, named, strict=False) if at == axis]
            found[name] = (0,) * len(one) if name == "axes" else tuple(one)
        elif len(value) in (rank, 2 * rank):
            found[name] = tuple(value[axis::rank])
        else:
            return None
    return found


@cache
def _seen_along_axes(name: str, _reference: Reference, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        attributes, (shape,) = declared.complete(drawn), shapes
        sizes = TensorType(DType.FLOAT64, shape).static
        result = computed_in_floats(declared, attributes, [np.reshape(np.arange(1.0, np.prod(sizes) + 1), sizes)])
        places, filled = [], []
        for axis, dim in enumerate(sizes):
            one = along(attributes, len(sizes), axis)
            if one is None:
                return False
            marks = computed_in_floats(declared, declared.complete(one), [np.arange(1.0, dim + 1)])
            filled.append(~np.isin(marks, np.arange(1.0, dim + 1)))
            places.append(np.where(filled[-1], 0, marks - 1).astype(int))
        if result.shape != tuple(map(len, places)):
            return False
        of_filler = np.zeros(result.shape, bool)
        for axis, there in enumerate(filled):
            of_filler |= np.reshape(there, [-1 if a == axis else 1 for a in range(len(sizes))])
        if of_filler.any() and FILLER not in attributes:
            return False
        taken = np.zeros(result.shape)
        if not of_filler.all():
            taken = np.reshape(np.arange(1.0, np.prod(sizes) + 1), sizes)[np.ix_(*places)]
        return bool((result == np.where(of_filler, attributes.get(FILLER, 0), taken)).all())

    return holds_on_samples(spec(name), f"along axes {name}", holds)


@cache
def _seen_to_keep_inside(name: str, _reference: Reference, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        attributes, (shape,) = declared.complete(drawn), shapes
        sizes = TensorType(DType.FLOAT64, shape).static
        given = np.reshape(np.arange(1.0, np.prod(sizes) + 1), sizes)
        one, other = (
            computed_in_floats(declared, Attrs({**attributes, MODE: FILLED, FILLER: filler}), [given])
            for filler in _FILLERS
        )
        inside = one == other
        result = computed_in_floats(declared, attributes, [given])
        return bool(result.shape == one.shape and (result == one)[inside].all() and (one == _FILLERS[0])[~inside].all())

    return holds_on_samples(spec(name), f"keeps inside {name}", holds)
