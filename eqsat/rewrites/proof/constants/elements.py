"""Elements of operands by what conditions say of them, and what functions of expressions find in such operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from eqsat.errors import EqsatError, ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration import InferRule
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import IndexedArray, product_of
from eqsat.language.parametric.elements import integer_read
from eqsat.language.parametric.integers import integer
from eqsat.language.parametric.namespace import Parametric
from eqsat.language.terms import DType, TensorType
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.proof.constants.operands import ParametricOperand
from eqsat.rewrites.rules.term import Term, outputs

#: How many matrices an operator is looked at with.
_SAMPLES = 40
#: Integers below this are floats of 64 bits, in which conditions compare them.
_EXACT = 1 << 53
#: The attributes of operators that find extreme elements.
_LOOKED_AT = {"axis", "keepdims", "select_last"}


def elements_of(operand: ParametricOperand, interpretation: Parametric) -> IndexedArray:
    """The elements of an operand."""
    elements, pattern = interpretation.elements, operand.pattern
    if pattern is not None:
        return IndexedArray(operand.type.dims, lambda at: pattern.element(elements, at))
    if operand.is_identity:
        real = elements.algebra.real
        return IndexedArray(operand.type.dims, lambda indices: real(1 if indices[0] == indices[1] else 0))
    if operand.uniform is not None:
        return interpretation.uniform(operand.uniform, operand.type)
    if operand.is_number:
        whole = type(operand.everywhere) is int and abs(operand.everywhere) < _EXACT
        if whole:
            return interpretation.uniform(operand.everywhere, operand.type)
        return interpretation.whole(operand.name, operand.type)
    return interpretation.variable(operand.name, operand.type)


def place_found(interpretation: Parametric, one: Term) -> IndexedArray | None:
    """The places of the ones of a selection, where an operator is asked for these; else None."""
    operand = one.operands[0] if one.operands else None
    if not isinstance(operand, ParametricOperand) or operand.pattern is None or len(one.operands) != 1:
        return None
    pattern, declared = operand.pattern, spec(one.op)
    place = pattern.place
    if place is None or one.attrs.get("axis") != pattern.axis or one.attrs.get("keepdims") is not False:
        return None
    if (
        not declared.is_shipped
        or not declared.attrs.keys() <= _LOOKED_AT
        or not _seen_to_find_ones(declared.name, declared.reference, declared.infer)
    ):
        return None
    return IndexedArray(one.types[0].dims, lambda at: place(at[0]))


@cache
def _seen_to_find_ones(name: str, _reference: Reference, _infer: InferRule) -> bool:
    """True if an operator finds the single ones among zeros along an axis, on samples."""
    declared, rng = spec(name), np.random.default_rng(0)
    for _ in range(_SAMPLES):
        count, lines, axis = int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(2))
        places = rng.integers(0, count, lines)
        matrix = np.eye(count)[places] if axis == 1 else np.eye(count)[places].T
        types = [TensorType(DType.FLOAT64, matrix.shape)]
        for attributes in ({}, {"select_last": True}):
            given = {key: value for key, value in attributes.items() if key in declared.attrs}
            try:
                complete = declared.complete({"axis": axis, "keepdims": False, **given})
                results = declared.result_types(types, complete)
                found = outputs(Floats(wide=True), name, complete, [matrix], list(types), results)
            except (EqsatError, ArithmeticError, LookupError, TypeError, ValueError):
                return False
            if len(found) != 1 or not np.array_equal(np.asarray(found[0]), places):
                return False
    return True


def _answered(function: str) -> Callable[..., Any]:
    """A function of expressions, of a constant of which a condition says what it is, or of any other."""

    def result(x: Any, *rest: Any) -> Any:
        pattern = x.pattern if isinstance(x, ParametricOperand) else None
        if pattern is not None and function in pattern.answers:
            return pattern.answers[function](*rest)
        return FUNCTIONS[function](x, *rest)

    return result


def _index(x: Any, size: Any) -> Any:
    """The one index that an operand holds, counted from the left; ShapeError out of range."""
    if not isinstance(x, ParametricOperand) or not x.type.dtype.is_integer or x.pattern is not None:
        return FUNCTIONS["index"](x, size)
    if product_of(x.type.dims) != 1:
        raise ShapeError("not one index into an axis")
    at = integer(integer_read(x.name, (0,) * x.type.rank))
    if at < -size or at >= size:
        raise ShapeError(f"index {at} of {size}")
    return at + size if at < 0 else at


#: Functions of the elements of constants, by what conditions say of these.
OF_ELEMENTS: dict[str, Callable[..., Any]] = {
    **{name: _answered(name) for name in ("first", "last", "entry", "block", "is_upper", "group_count")},
    "index": _index,
}
