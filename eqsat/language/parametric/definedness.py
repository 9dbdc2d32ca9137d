"""Statements by which elements are defined: no divisor is 0, and functions have values at their arguments.

Real terms have a value everywhere, 0 / 0 too. A rule may only put a side in another's place where that is defined
wherever the other is, so that what one side asks has to follow from what the other asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from eqsat.language.arithmetic.algebra import fraction
from eqsat.language.parametric.atoms import Fold, Seen, SizeAtom
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import formula_of
from eqsat.language.parametric.paths import current
from eqsat.language.terms.dims import Dim, Sym

#: The arguments at which functions of one number have a value, by their names; the others have one everywhere.
DOMAINS: dict[str, Callable[[Any, Any], Any]] = {
    "log": lambda z3, x: x > 0,
    "sqrt": lambda z3, x: x >= 0,
    "tan": lambda z3, x: z3.Function("cos", z3.RealSort(), z3.RealSort())(x) != 0,
    "asin": lambda z3, x: z3.And(x >= -1, x <= 1),
    "acos": lambda z3, x: z3.And(x >= -1, x <= 1),
    "acosh": lambda z3, x: x >= 1,
    "atanh": lambda z3, x: z3.And(x > -1, x < 1),
}


def need(statement: Any) -> None:
    """Note on the path that is followed what its elements are defined by."""
    current().needed[statement.get_id()] = statement


@contextmanager
def seen_by(elements: Elements, operator: str, places: Sequence[Any]) -> Iterator[None]:
    """Note what is needed inside as seen by an operator at places, which may see less of it.

    That all it sees makes a value says itself which operator sees it, and where.
    """
    path = current()
    outside, path.needed = path.needed, {}
    try:
        yield
    finally:
        inside, path.needed = path.needed, outside
    formulas = [path.reduced(formula_of(place)) for place in places]
    tag = (operator, *map(str, formulas))
    names = frozenset[str]().union(*(one.names() for one in formulas if isinstance(one, Sym)))
    for one in inside.values():
        if not isinstance(one, Seen) and _is_of_all(elements, one):
            need(one)
            continue
        inner = one if isinstance(one, Seen) else Seen((), one)
        need(Seen((*tag, *inner.tag), inner.statement, names | inner.names))


def _is_of_all(elements: Elements, statement: Any) -> bool:
    """True of the one term of all that an operator may see."""
    atom = None if elements.z3.is_bool(statement) else elements.atoms.get(statement.decl().name())
    if not isinstance(atom, Fold):
        return False
    return atom.kind == "all" or (atom.kind == "every" and _is_of_all(elements, atom.term))


def need_divisor(elements: Elements, term: Any) -> None:
    """Note that a divisor is not 0, unless it never is."""
    term = elements.algebra.normal(term)
    if not is_positive(elements, term) and not is_positive(elements, elements.algebra.normal(-term)):
        need(elements.z3.simplify(term != 0))


def need_places(elements: Elements, sizes: Sequence[Any]) -> None:
    """Note that there is something to take the largest of: of nothing that is below all numbers, and no number."""
    path = current()
    for formula in (path.reduced(formula_of(size)) for size in sizes):
        if not _is_above_nothing(formula):
            need(elements.z3.simplify(elements.number(formula) > 0))


def need_argument(elements: Elements, name: str, term: Any) -> None:
    """Note that a function has a value at an argument, unless it always has."""
    term = elements.algebra.normal(term)
    if name in DOMAINS and not (name in ("log", "sqrt") and is_positive(elements, term)):
        statement = elements.z3.simplify(DOMAINS[name](elements.z3, term))
        if not elements.z3.is_true(statement):
            need(statement)


def need_power(elements: Elements, base: Any, exponent: Any) -> None:
    """Note that a power is defined: below 0 of no base that is 0, and not whole of none below 0."""
    z3 = elements.z3
    base, exponent = elements.algebra.normal(base), elements.algebra.normal(exponent)
    if is_positive(elements, base):
        return
    if not z3.is_rational_value(exponent):
        real = z3.RealSort()
        need(z3.Function("has power", real, real, z3.BoolSort())(base, exponent))
        return
    power = fraction(exponent)
    if power.denominator != 1:
        need(z3.simplify(base >= 0 if power > 0 else base > 0))
    elif power < 0:
        need(z3.simplify(base != 0))


def is_positive(elements: Elements, term: Any) -> bool:
    """True for a term whose parts are all positive: exponentials, sizes, sums, and what is made of them."""
    algebra = elements.algebra
    parts = list(algebra.monomials(term).values())
    return bool(parts) and all(
        coefficient > 0 and all(_is_positive_factor(elements, factor) for factor in algebra.factors(product))
        for coefficient, product in parts
    )


def _is_positive_factor(elements: Elements, factor: Any) -> bool:
    z3 = elements.z3
    if z3.is_rational_value(factor):
        return fraction(factor) > 0
    name = factor.decl().name()
    if name in ("exp", "inverse"):
        return name == "exp" or is_positive(elements, factor.arg(0))
    atom = elements.atoms.get(name) if z3.is_const(factor) else None
    if isinstance(atom, SizeAtom):
        return _is_above_nothing(atom.atom)
    if isinstance(atom, Fold) and atom.kind in ("sum", "max", "product") and atom.bound:
        count = elements.count(atom.bound, atom.domain)
        return count is not None and _is_above_nothing(count) and is_positive(elements, atom.term)
    return False


def _is_above_nothing(formula: Dim) -> bool:
    path, asked = current(), Fact.positive(current().reduced(formula))
    return bool(path.known_answer(asked)) or path.holds(asked)
