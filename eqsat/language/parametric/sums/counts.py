"""Numbers of places by which sums over them are divided: one that is above 0 has 1 as its quotient by itself."""

from __future__ import annotations

from collections.abc import Sequence
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
    parts, is_changed = [], False
    for coefficient, product in algebra.monomials(term).values():
        factors = algebra.factors(product)
        for divisor in [one for one in factors if one.decl().name() == "inverse"]:
            size = next((one for one in factors if one.eq(divisor.arg(0))), None)
            if size is not None and size.get_id() in asked and path.known_answer(asked[size.get_id()]):
                factors, is_changed = without(without(factors, size), divisor), True
        parts.append((coefficient, reduce(lambda a, b: a * b, factors, elements.z3.RealVal(1))))
    return algebra.total(parts) if is_changed else term


def without(factors: Sequence[Any], factor: Any) -> list[Any]:
    """Factors without one of them, taken once."""
    place = next(k for k, one in enumerate(factors) if one.eq(factor))
    return [*factors[:place], *factors[place + 1 :]]
