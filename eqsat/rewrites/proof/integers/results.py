"""Integers and truth values among terms of real numbers: what element types hold of results.

Arithmetic of integers wraps around. Of operators that are seen to have the result of real numbers wherever the type has
that number, it is that where it is a whole one within limits; where it may be another, a proof ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import IndexedArray
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.integers import NotParametric
from eqsat.language.parametric.numbers import UnknownNumber
from eqsat.language.parametric.sums.ranges import limits_of
from eqsat.language.terms import Attrs, DType, TensorType
from eqsat.rewrites.proof.constants.operands import ParametricOperand
from eqsat.rewrites.proof.integers.wrapping import holds_what_fits, keeps_zeros
from eqsat.rewrites.proof.opaque.windows import NUMBERS, selects_of_any_type
from eqsat.rewrites.proof.types import whole_limits
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import Term, distinct, types_of

#: Operators that tell apart what real numbers do not.
_OF_NO_REALS = frozenset({"isnan", "isinf"})
#: Operators that take numbers and truth values of any type for what they are.
_OF_ANY_TYPE = frozenset({"cast", "equal"})


class StoredResults:
    """The results of the operators of both sides of a rule as their element types hold them."""

    def __init__(self, rule: Rule, left: Sequence[Any], right: Sequence[Any], elements: Elements) -> None:
        self._rule, self._elements = rule, elements
        self._terms = [one for one in distinct([*left, *right]) if isinstance(one, Term)]
        # A fill rounds its number to the type: where it is only moved, it is the same on both sides.
        self._is_moved = all(spec(one.op).movement or one.op == "fill" for one in self._terms)
        #: Types that may stand for others: those that are chosen for operands and attributes.
        self._chosen = {one.type.dtype for one in distinct(left) if isinstance(one, ParametricOperand)}
        attributes = [one.attrs.get(name) for one in self._terms for name in ("to", "dtype")]
        self._chosen |= {DType.of(one) for one in attributes if isinstance(one, str)}

    def refuse_unfollowed(self) -> None:
        """NotParametric where operators calculate with truth values, or ask for infinities: terms are reals."""
        for one in self._terms:
            declared = spec(one.op)
            if one.op in _OF_NO_REALS and not _is_finite(one.operands[0]):
                raise NotParametric(f"{one.op} of real numbers")
            if self._is_moved or (declared.movement and one.op != "pad") or one.op in _OF_ANY_TYPE:
                continue
            of_zeros = all(map(_is_zero, one.operands)) and keeps_zeros(declared)
            if self._takes(one) and not holds_what_fits(declared) and not of_zeros:
                raise NotParametric(f"{one.op} of other numbers than floats")
            made = one.op in ("fill", "pad") and one.types[0].dtype is DType.BOOL and not _is_written(one)
            if made or (self._takes(one, DType.BOOL) and any(t.dtype is not DType.BOOL for t in one.types)):
                raise NotParametric(f"{one.op} of truth values")

    def _takes(self, one: Term, *kinds: DType) -> bool:
        """True if an operator takes elements of some types, or of integers, where its declaration does not say so."""
        stated = spec(one.op).dtypes
        types = [t for place, t in enumerate(types_of(one.operands)) if t is not None and place not in stated]
        return any(t.dtype in kinds if kinds else not t.dtype.is_float for t in types)

    def written(self, one: Term) -> Attrs:
        """The attributes with which an operator that makes constants makes the numbers that they are.

        Each number is written in the operator, and is of any type that has it: that is looked at in the result.
        """
        declared = spec(one.op)
        if not (declared.generated and declared.is_shipped and "dtype" in one.attrs) or one.types[0].dtype.is_float:
            return one.attrs
        if one.op == "fill" and one.types[0].dtype is DType.BOOL:
            if not _is_written(one):
                return one.attrs
            # Arrays of unknown sizes hold terms, and NumPy's do not.
            truth = self._elements.z3.BoolVal(bool(one.attrs["value"]))
            return Attrs({**one.attrs, "value": UnknownNumber(truth)})
        return Attrs({**one.attrs, "dtype": DType.FLOAT64.value})

    def held(self, one: Term, arrays: Sequence[Any]) -> list[Any]:
        """The outputs of an operator as their types hold them; NotParametric, once read, where that may differ."""
        declared = spec(one.op)
        # What is chosen among numbers is one of them; a truth value is read as one below.
        chooses = one.types[0].dtype in NUMBERS and selects_of_any_type(declared)
        if self._is_moved or (declared.movement and one.op != "pad") or chooses:
            return list(arrays)
        made = one.op in ("fill", "pad") or (self._takes(one) and one.op not in _OF_ANY_TYPE)
        return [
            array if type.dtype.is_float else self._array(array, type, f"{one.op} of other numbers than floats", made)
            for array, type in zip(arrays, one.types, strict=True)
        ]

    def _array(self, array: IndexedArray, type: TensorType, reason: str, made: bool) -> IndexedArray:
        return IndexedArray(
            lambda: array.shape, lambda indices: self._element(array.at(indices), type.dtype, reason, made)
        )

    def _element(self, element: Any, dtype: DType, reason: str, made: bool) -> Any:
        z3, ranges = self._elements.z3, self._elements.ranges
        if dtype is DType.BOOL:
            if z3.is_real(element) and not ranges.fits(element, (0, 1)):
                raise NotParametric(reason)
            return z3.simplify(element == 1) if z3.is_real(element) else element
        if not z3.is_real(element):
            if made:
                raise NotParametric(reason)
            return element
        name = element.decl().name()
        while name.startswith("trunc to ") and ranges.fits(
            element.arg(0), limits_of(DType.of(name.removeprefix("trunc to ")))
        ):
            element = element.arg(0)
            name = element.decl().name()
        if name == f"trunc to {dtype.value}":
            return element  # whatever type it stands for
        narrowest = dtype in self._chosen
        limits = whole_limits(self._rule, dtype.value, narrowest=True) if narrowest else limits_of(dtype)
        if not ranges.fits(element, limits):
            raise NotParametric(reason)
        return element


def _is_finite(operand: Any) -> bool:
    return isinstance(operand, ParametricOperand) and (operand.is_finite or operand.type.dtype.is_integer)


def _is_zero(operand: Any) -> bool:
    return isinstance(operand, Term) and _is_written(operand) and not operand.attrs["value"]


def _is_written(one: Term) -> bool:
    """True for a fill with a number that is written."""
    return one.op == "fill" and type(one.attrs["value"]) in (bool, int, float)
