"""Numbers of places by which sums over them are divided: one that is above 0 has 1 as its quotient by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from eqsat.language.parametric.atoms import SizeAtom
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.paths import current


def without_counts(elements: Any, term: Any) -> Any:
    """A term in which no product has a size and its inverse, of sizes that are above 0 on this path.

    n · (1 / n) is 1 for each n but 0: no more is used than answers that the path has, so that a size of which nothing
    is known stays. The term is equal to the one that was given wherever the path is followed.
    """
    consts, algebra = elements.consts(term), elements.algebra
    sizes = [const for name, const in consts.items() if isinstance(elements.atoms[name], SizeAtom)]
    if not sizes:
        return term
    path = current()
    asked = {const.get_id(): Fact.positive(path.reduced(elements.atoms[const.decl().name()].atom)) for const in sizes}

    def is_above_nothing(size: Any) -> bool:
        return size.get_id() in asked and path.known_answer(asked[size.get_id()]) is True

    return without_divisors(algebra, term, is_above_nothing)


def without_divisors(algebra: Any, term: Any, is_never_zero: Callable[[Any], bool]) -> Any:
    """A term in which no product has a factor that is never 0 and its inverse; the term itself where none had."""
    parts, is_changed = [], False
    for coefficient, product in algebra.monomials(term).values():
        factors = list(algebra.factors(product))
        for divisor in [one for one in factors if algebra.z3.is_app(one) and one.decl().name() == "inverse"]:
            place = next((k for k, one in enumerate(factors) if one.eq(divisor.arg(0))), None)
            if place is not None and is_never_zero(factors[place]):
                del factors[place]
                del factors[next(k for k, one in enumerate(factors) if one.eq(divisor))]
                is_changed = True
        parts.append((coefficient, reduce(lambda a, b: a * b, factors, algebra.z3.RealVal(1))))
    return algebra.total(parts) if is_changed else term
