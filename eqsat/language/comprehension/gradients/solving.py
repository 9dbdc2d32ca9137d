"""Subscripts solved for what gives an element: indices of sums, and quotients that leave nothing over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eqsat.language.comprehension.extents.affine import Affine
from eqsat.language.comprehension.extents.expressions import extent_expression
from eqsat.language.comprehension.gradients.derivatives import ZERO
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Name,
    Number,
    Unary,
    rebuilt,
)
from eqsat.language.terms.types import DType


def undivided(
    value: Expression, subscripts: Sequence[Expression], axes: Sequence[tuple[str, Expression]]
) -> tuple[Expression, list[tuple[Expression, Expression]]]:
    """A value over indices, and the pairs that are equal where subscripts give the element at a place.

    `axes` are the index and the number of places along each axis. Where the value is 0 unless a number divides what a
    subscript divides by it, that is as many times the place: the condition holds then, and so do those of the range.

    >>> p, two = Name("p"), Number(2)
    >>> even = Binary("==", Binary("%", p, two), Number(0))
    >>> value, pairs = undivided(Conditional(even, Name("x"), ZERO), [Binary("/", p, two)], [("i", Name("N"))])
    >>> value == Name("x"), pairs == [(p, Binary("*", two, Name("i")))]
    (True, True)
    """
    pairs: list[tuple[Expression, Expression]] = []
    for subscript, (index, extent) in zip(subscripts, axes, strict=True):
        place = Name(index)
        match subscript:
            case Binary(operator="/", left=dividend, right=Number(value=int(by))) if by > 1:
                divides = Binary("==", Binary("%", dividend, Number(by)), Number(0))
                if divides in _asked(value):
                    known = [divides, Binary(">=", place, Number(0)), Binary("<", place, extent)]
                    value = _without(_exchanged(value, subscript, place), known)
                    pairs.append((dividend, Binary("*", Number(by), place)))
                    continue
        pairs.append((subscript, place))
    return value, pairs


def without_index(form: Affine, index: str) -> Expression | None:
    """The rest of a subscript beside a multiple of an index; None where the language has no text for it."""
    made = extent_expression(form.constant)
    if made is None:
        return None
    for name, factor in form.factors.items():
        if name != index:
            size = abs(factor)
            term: Expression = Name(name) if size == 1 else Binary("*", Number(size), Name(name))
            if made == Number(0):
                made = term if factor > 0 else Unary("-", term)
            else:
                made = Binary("+" if factor > 0 else "-", made, term)
    return made


def _asked(value: Expression) -> Iterator[Expression]:
    """The conditions that all have to hold for a value not to be 0."""
    if isinstance(value, Conditional) and value.no == ZERO:
        yield from _all_of(value.condition)
        yield from _asked(value.yes)


def _all_of(condition: Expression) -> Iterator[Expression]:
    if isinstance(condition, Binary) and condition.operator == "&&":
        yield from _all_of(condition.left)
        yield from _all_of(condition.right)
    else:
        yield condition


def _without(value: Expression, known: Sequence[Expression]) -> Expression:
    """A value that is 0 unless conditions hold, without those that are known to."""
    if not isinstance(value, Conditional) or value.no != ZERO:
        return value
    left = [one for one in _all_of(value.condition) if one not in known]
    yes = _without(value.yes, known)
    if not left:
        return yes
    condition, *more = left
    for one in more:
        condition = Binary("&&", condition, one)
    return Conditional(condition, yes, ZERO)


def _exchanged(value: Expression, old: Expression, new: Expression) -> Expression:
    """A value with one expression in place of another one."""
    return new if value == old else rebuilt(value, lambda part: _exchanged(part, old, new))


def in_wide_integers(expression: Expression, types: Mapping[str, DType]) -> Expression:
    """A condition on subscripts with the integers that it reads in 64 bits, as subscripts are computed.

    >>> from eqsat.language.comprehension.text.printer import print_expression
    >>> sum_ = Binary("+", Applied("at", (Name("i"),)), Number(200))
    >>> print_expression(in_wide_integers(sum_, {"at": DType.UINT8}))
    'int64(at(i)) + 200'
    """
    dtype = types.get(expression.name) if isinstance(expression, Applied | Name) else None
    if dtype is None:
        return rebuilt(expression, lambda one: in_wide_integers(one, types))
    is_narrow = dtype.is_integer and dtype.itemsize < DType.INT64.itemsize
    return Applied(DType.INT64.value, (expression,)) if is_narrow else expression
