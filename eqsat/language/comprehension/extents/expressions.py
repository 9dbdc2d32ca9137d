"""Extents as expressions of the language."""

from __future__ import annotations

from eqsat.language.comprehension.extents.affine import is_never_negative
from eqsat.language.comprehension.text.syntax import Applied, Binary, Expression, Name, Number, Unary
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Atom, Sym, dim_max

#: Functions of sizes that the language has operators for, and those that it has under the same names.
_OPERATORS = {"floordiv": "/", "mod": "%"}
_FUNCTIONS = ("max", "min")


def extent_expression(dim: Dim) -> Expression | None:
    """An extent as an expression of sizes; None of one that the language has no text for.

    Quotients of extents are rounded down, and those of the language towards 0. Of an extent that is one quotient and a
    number, what is below 0 is nothing: it is written as 0. Elsewhere a quotient of what may be negative is that of what
    is above 0, without that of what is below, rounded up.

    >>> from eqsat.language.comprehension.text.printer import print_expression
    >>> from eqsat.language.terms.dims import Sym, floordiv
    >>> print_expression(extent_expression(floordiv(Sym.named("N") - Sym.named("K"), 2) + 1))
    'max(N - K + 2, 0) / 2'
    """
    if isinstance(dim, int):
        return Number(dim) if dim >= 0 else Unary("-", Number(-dim))
    quotient = _one_quotient(dim)
    if quotient is not None:
        return _quotient(*quotient)
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
        case [((((("floordiv", a, b)), 1),), 1)] if isinstance(b, int) and (added >= 0 or not is_never_negative(a)):
            return a + added * b, b
    return None


def _quotient(a: Dim, b: Dim) -> Expression | None:
    """A quotient that is not negative, of numbers that are written as 0 where they are below."""
    shown, by = extent_expression(a if is_never_negative(a) else dim_max(a, 0)), extent_expression(b)
    return None if shown is None or by is None else Binary("/", shown, by)


def _atom(atom: Atom) -> Expression | None:
    if isinstance(atom, str):
        return Name(atom)
    name, *operands = atom
    first, second = operands
    a, b = extent_expression(first), extent_expression(second)
    if a is None or b is None:
        return None
    if name in _FUNCTIONS:
        return Applied(name, (a, b))
    if name not in _OPERATORS:
        return None
    if second != 0 and is_never_negative(first) and is_never_negative(second):
        return Binary(_OPERATORS[name], a, b)
    if not isinstance(second, int) or second <= 0:
        return None
    above, below = _quotient(first, second), _quotient(second - 1 - first, second)
    if above is None or below is None:
        return None
    floor = Binary("-", above, below)
    return floor if name == "floordiv" else Binary("-", a, Binary("*", b, floor))
