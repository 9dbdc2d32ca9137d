"""Extents as expressions of the language."""

from __future__ import annotations

from eqsat.language.comprehension.text.syntax import Applied, Binary, Expression, Name, Number, Unary
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Atom, Sym

#: Functions of sizes that the language has operators for, and those that it has under the same names.
_OPERATORS = {"floordiv": "/", "mod": "%"}
_FUNCTIONS = ("max", "min")


def extent_expression(dim: Dim) -> Expression | None:
    """An extent as an expression of sizes; None of one that the language has no text for.

    Quotients of extents are rounded down, and those of the language towards 0. What is added to a quotient goes into
    it: both are then the same but where there is nothing, which is where none of them is positive.

    >>> from eqsat.language.comprehension.text.printer import print_expression
    >>> from eqsat.language.terms.dims import Sym, floordiv
    >>> print_expression(extent_expression(floordiv(Sym.named("N") - Sym.named("K"), 2) + 1))
    '(N - K + 2) / 2'
    """
    if isinstance(dim, int):
        return Number(dim) if dim >= 0 else Unary("-", Number(-dim))
    quotient = _one_quotient(dim)
    if quotient is not None:
        a, b = (extent_expression(one) for one in quotient)
        return None if a is None or b is None else Binary("/", a, b)
    if any(_may_be_negative(atom) for monomial, _ in dim.terms for atom, _ in monomial):
        return None
    made: Expression | None = None
    for monomial, coefficient in sorted(dim.terms, key=lambda term: (not term[0], term[1] < 0)):
        product: Expression | None = None
        for atom, power in monomial:
            factor = _atom(atom)
            if factor is None:
                return None
            for _ in range(power):
                product = factor if product is None else Binary("*", product, factor)
        size = Number(abs(coefficient))
        product = size if product is None else product if size == Number(1) else Binary("*", size, product)
        if made is None:
            made = product if coefficient > 0 else Unary("-", product)
        else:
            made = Binary("+" if coefficient > 0 else "-", made, product)
    return Number(0) if made is None else made


def _one_quotient(dim: Sym) -> tuple[Dim, Dim] | None:
    """The number that is divided, and that by which it is, of an extent that is one quotient and a number."""
    added = sum(coefficient for monomial, coefficient in dim.terms if not monomial)
    others = [term for term in dim.terms if term[0]]
    match others:
        case [((((("floordiv", a, b)), 1),), 1)] if added >= 0:
            return a + added * b, b
    return None


def _may_be_negative(atom: Atom) -> bool:
    """True of quotients and rests of differences."""
    if isinstance(atom, str):
        return False
    return atom[0] in _OPERATORS and isinstance(atom[1], Sym) and any(factor < 0 for _, factor in atom[1].terms)


def _atom(atom: Atom) -> Expression | None:
    if isinstance(atom, str):
        return Name(atom)
    name, *operands = atom
    a, b = (extent_expression(one) for one in operands)
    if a is None or b is None:
        return None
    if name in _OPERATORS:
        return Binary(_OPERATORS[name], a, b)
    return Applied(name, (a, b)) if name in _FUNCTIONS else None
