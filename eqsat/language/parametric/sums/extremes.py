"""Extremes and products over unknown bounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from eqsat.language.arithmetic.algebra import rational
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.sums.pieces import Piece, with_largest_number


def extreme(elements: Any, kind: str, pieces: Sequence[Piece]) -> Any:
    """The largest, or the product, of a body by the terms that it has in pieces."""
    terms = [(bound, domain, elements.algebra.normal(elements.algebra.real(term))) for bound, domain, term, _ in pieces]
    if kind == "max" and len(terms) == 1:
        return _largest(elements, *terms[0])
    terms = with_largest_number(elements, terms) if kind == "max" else terms
    folds = [elements.fold(kind, *one) if one[0] else one[2] for one in terms]
    if kind == "product":
        return elements.algebra.normal(reduce(lambda a, b: a * b, folds))
    # One of several domains may be empty, and then its largest is below all numbers, whatever is made of it.
    return elements.algebra.maximum(*folds)


def _largest(elements: Any, bound: tuple[str, ...], domain: tuple[Fact, ...], term: Any) -> Any:
    """The largest of a term: what does not depend on bound unknowns comes out, and so does a monotone function."""
    algebra = elements.algebra
    parts = list(algebra.monomials(term).values())
    outside = [(c, p) for c, p in parts if elements.names(p).isdisjoint(bound)]
    inside = [(c, p) for c, p in parts if not elements.names(p).isdisjoint(bound)]
    if not inside:
        return algebra.normal(term)
    scale = max(abs(c) for c, _ in inside)
    rest = algebra.total((c / scale, p) for c, p in inside)
    image = algebra.image(rest)
    if image is None:
        largest = _largest_of_members(elements, bound, domain, rest)
    else:
        sign, name, argument = image
        inner = _largest(elements, bound, domain, algebra.normal(argument * sign)) * sign
        largest = algebra.monotone(name, inner) * sign
    return algebra.normal(algebra.total(outside) + rational(elements.z3, scale) * largest)


def _largest_of_members(elements: Any, bound: tuple[str, ...], domain: tuple[Fact, ...], term: Any) -> Any:
    """The largest of a maximum, that of its members' largest; or of minus one, of which one member is bound."""
    algebra = elements.algebra
    members = algebra.members(term)
    if members is not None:
        return algebra.maximum(*(_largest(elements, bound, domain, one) for one in members))
    members = algebra.members(algebra.normal(-term))
    inside = [one for one in members or () if not elements.names(one).isdisjoint(bound)]
    if members is None or len(inside) != 1:
        return elements.fold("max", bound, domain, term)
    outside = [one for one in members if one is not inside[0]]
    least = -_largest(elements, bound, domain, algebra.normal(-inside[0]))
    return algebra.normal(-algebra.maximum(*outside, least))
