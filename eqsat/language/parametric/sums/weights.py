"""Sums with weights that add up to 1, and selections by order: what does not depend on the place comes out of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from eqsat.language.arithmetic.algebra import fraction, rational
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, formula_of
from eqsat.language.parametric.paths import current
from eqsat.language.terms.dims import Dim, Sym

#: The steps of the solver for whether a factor is positive.
_STEPS = 50_000
#: Functions that keep order, and 0, by the names that the algebra gives them.
_KEEPING_ZERO = frozenset({"tanh", "erf", "atan", "sinh", "asinh", "floor", "ceil", "round", "sign"})
#: A body at indices.
_Body = Callable[[tuple[Any, ...]], Any]


class _Places:
    """The one term that a body has at all indices below some sizes, and the bound unknowns that these are."""

    def __init__(self, at: tuple[Dim, ...], piece: Any, elements: Elements) -> None:
        self.at, (self.bound, self.domain, term, _) = at, piece
        self.term = elements.algebra.real(term)

    @staticmethod
    def of(elements: Elements, sizes: Sequence[Any], body: _Body) -> _Places | None:
        """The term of a body; None where it has several, or may have none."""
        path = current()
        formulas = [path.reduced(formula_of(size)) for size in sizes]
        if not all(path.decide(Fact.positive(formula)) for formula in formulas):
            return None
        at: list[tuple[Dim, ...]] = []

        def noted(indices: tuple[Any, ...]) -> Any:
            at.append(tuple(map(formula_of, indices)))
            return body(indices)

        found = elements.pieces([(formula,) for formula in formulas], path.level, noted)
        if len(found) != 1:
            return None
        elements.need_everywhere(found)
        return _Places(at[-1], found[0], elements)

    def moved(self, elements: Elements, term: Any, indices: tuple[Any, ...]) -> Any:
        """A term at other indices."""
        pairs = zip(self.at, map(formula_of, indices), strict=True)
        return elements.replaced(term, {str(one): other for one, other in pairs if isinstance(one, Sym)})


def weighted(elements: Elements, sizes: Sequence[Any], weight: _Body, body: _Body) -> Any:
    """The sum of a body times weights that add up to 1 over all indices below some sizes."""
    places = _Places.of(elements, sizes, body)
    if places is None:
        return elements.folded("sum", sizes, lambda indices: weight(indices) * body(indices))
    algebra, total = elements.algebra, elements.z3.RealVal(0)
    for coefficient, product in algebra.monomials(places.term).values():
        if elements.names(product).isdisjoint(places.bound):
            part = product
        else:
            part = elements.folded(
                "sum",
                sizes,
                lambda at, one=product: weight(at) * places.moved(elements, one, at),  # type: ignore[misc]
            )
        total = total + rational(elements.z3, coefficient) * part
    return algebra.normal(total)


def selected(
    elements: Elements,
    sizes: Sequence[Any],
    body: _Body,
    mark: Callable[[Any, Sequence[Dim]], Any],
    *,
    is_element: bool = False,
) -> Any:
    """An element of a body, or 0, chosen by the order alone of all that it is at indices below some sizes.

    `mark` makes of an element and its indices what one choice is told from another by. Functions that keep order, and
    0, come out, and factors that are not below 0. If what is chosen `is_element`, never 0 for lack of elements, addends
    and all functions that keep order come out.
    """
    places = _Places.of(elements, sizes, body)
    if places is None:
        raise NotParametric("a choice of what has several parts")
    return _Choice(elements, places, mark, is_element).of(places.term)


class _Choice:
    """One way to choose among places."""

    def __init__(
        self, elements: Elements, places: _Places, mark: Callable[[Any, Sequence[Dim]], Any], is_element: bool
    ) -> None:
        self._elements, self._places, self._mark, self._is_element = elements, places, mark, is_element

    def of(self, term: Any) -> Any:
        """The element of a term that is chosen."""
        algebra, z3 = self._elements.algebra, self._elements.z3
        parts = list(algebra.monomials(term).values())
        inside = [part for part in parts if not (self._is_element and self._is_outside(part[1]))]
        if 0 < len(inside) < len(parts):
            addends = [part for part in parts if self._is_outside(part[1])]
            return algebra.normal(self.of(algebra.total(inside)) + algebra.total(addends))
        scale = max(abs(c) for c, _ in parts)
        if not scale:
            return z3.RealVal(0)
        outside = z3.RealVal(1)
        rest = algebra.total((c / scale, p) for c, p in parts)
        if len(parts) == 1:
            factors = algebra.factors(rest)
            apart = reduce(lambda a, b: a * b, [f for f in factors if self._is_outside(f)], z3.RealVal(1))
            if self._is_not_negative(apart):
                inside = [f for f in factors if not self._is_outside(f)]
                outside, rest = apart, algebra.normal(reduce(lambda a, b: a * b, inside, z3.RealVal(1)))
        return algebra.normal(rational(z3, scale) * outside * self._of_unit(rest))

    def _of_unit(self, term: Any) -> Any:
        algebra = self._elements.algebra
        image = algebra.image(term)
        if image is not None and image[0] == 1 and (self._is_element or image[1] in _KEEPING_ZERO):
            return algebra.monotone(image[1], self.of(algebra.normal(image[2])))
        for sign in (1, -1):  # a maximum with a number that is not above 0, or a minimum with one that is not below
            members = algebra.members(algebra.normal(term * sign))
            is_number = self._elements.z3.is_rational_value
            inside = [one for one in members or () if not is_number(one)]
            numbers = [one for one in members or () if is_number(one)]
            if len(inside) == 1 and (self._is_element or all(fraction(one) <= 0 for one in numbers)):
                chosen = self.of(algebra.normal(inside[0] * sign)) * sign
                return algebra.normal(algebra.maximum(algebra.normal(chosen), *numbers) * sign)
        return self._elements.fold(
            "all", self._places.bound, self._places.domain, algebra.normal(self._mark(term, self._places.at))
        )

    def _is_outside(self, term: Any) -> bool:
        return self._elements.names(term).isdisjoint(self._places.bound)

    def _is_not_negative(self, term: Any) -> bool:
        elements = self._elements
        facts = [*current().statements, *elements.said_of(term), *elements.positive_sizes(term)]
        return elements.algebra.settle(term >= 0, elements.z3.BoolVal(True), _STEPS, facts) == "proved"
