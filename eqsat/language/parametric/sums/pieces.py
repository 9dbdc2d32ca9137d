"""Pieces of sums and extremes: domains in each of which a body has one term, and what such terms share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from eqsat.language.arithmetic.algebra import fraction, rational
from eqsat.language.parametric.facts import Fact, substituted
from eqsat.language.parametric.sums.domains import solution
from eqsat.language.terms.dims import Dim

#: Bound unknowns, the domain in which a body has one term, that term, and the statements by which it is defined.
Piece: TypeAlias = tuple[tuple[str, ...], tuple[Fact, ...], Any, list[Any]]


def with_shared_terms(elements: Any, pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces of a sum with what all of them add as one piece, over all places that there are."""
    widest = next((one for one in pieces if not _values(one)), None)
    if widest is None or len(pieces) < 2:
        return list(pieces)
    algebra = elements.algebra
    bound, domain, _, _ = widest
    values = [_values(piece) for piece in pieces]
    forms = [_form(elements, piece, known) for piece, known in zip(pieces, values, strict=True)]
    shared = []
    for coefficient, product in list(forms[list(pieces).index(widest)].values()):
        keys = [algebra.normal(elements.replaced(product, known)) for known in values]
        found = [form.get(one, (None, None))[0] for form, one in zip(forms, keys, strict=True)]
        if coefficient and all(one == coefficient for one in found):
            shared.append((coefficient, product))
            for form, one in zip(forms, keys, strict=True):
                del form[one]
    if not shared:
        return list(pieces)
    # The domains make up the ranges of the bound unknowns, which come first, and no two have a place in common.
    ranges = domain[: 2 * len(bound)]
    rest = [(*piece[:2], algebra.total(form.values()), piece[3]) for piece, form in zip(pieces, forms, strict=True)]
    return [*rest, (bound, ranges, algebra.total(shared), [])]


def _form(elements: Any, piece: Piece, values: Mapping[str, Dim]) -> dict[Any, tuple[Fraction, Any]]:
    """Coefficients and products of the term of a piece, by what each product is where equations of its domain hold."""
    algebra = elements.algebra
    form: dict[Any, tuple[Fraction, Any]] = {}
    for coefficient, product in algebra.monomials(algebra.real(piece[2])).values():
        key = algebra.normal(elements.replaced(product, values))
        before = form.get(key, (Fraction(0), product))[0]
        form[key] = (before + coefficient, product)
    return form


def _values(piece: Piece) -> dict[str, Dim]:
    """Formulas of bound unknowns by the equations of a domain."""
    values: dict[str, Dim] = {}
    bound, domain, _, _ = piece
    for question in domain:
        if question.is_zero and question.held:
            formula = substituted(question.formula, values)
            found = next(((n, s) for n in bound if (s := solution(formula, n)) is not None), None)
            if found is not None:
                values = {name: substituted(value, dict([found])) for name, value in values.items()} | dict([found])
    return values


def with_largest_number(
    elements: Any, parts: Sequence[tuple[tuple[str, ...], tuple[Fact, ...], Any]]
) -> list[tuple[tuple[str, ...], tuple[Fact, ...], Any]]:
    """The parts of a maximum, numbers among them without those that are no larger than one that there is."""
    numbers = {k: fraction(term) for k, (_, _, term) in enumerate(parts) if elements.z3.is_rational_value(term)}
    there = [numbers[k] for k in numbers if elements.is_somewhere(*parts[k][:2])]
    if not there:
        return list(parts)
    most = max(there)
    larger = [part for k, part in enumerate(parts) if k not in numbers or numbers[k] > most]
    return [*larger, ((), (), rational(elements.z3, most))]
