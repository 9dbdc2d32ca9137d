"""Facts that hold of roots, logarithms, powers and inverses of real terms.

At arguments where a function has no value it may be taken for anything, since nothing is claimed of what is not defined
(`parametric/definedness.py`). All facts hold of one choice, so that none contradicts another: the logarithm of |x|, the
root of |x| with the sign of x, the power of |x| where x is below 0 and the exponent is not whole, and 0 for what these
leave: the logarithm and the inverse of 0, and powers of 0 below 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, islice
from typing import Any

#: The most terms of one function of which each pair is looked at, and terms that facts may bring in.
_FEW, _MOST = 4, 40
_OF_PAIRS = frozenset({"log", "power", "has power"})


def inside(z3: Any, pending: list[Any]) -> Iterator[tuple[str, Any]]:
    """Each term inside those that are pending, once, with the name of its function; more may be added on the way."""
    seen = set[int]()
    while pending:
        term = pending.pop()
        if term.get_id() not in seen:
            seen.add(term.get_id())
            pending += term.children()
            yield term.decl().name() if z3.is_app(term) else "", term


def facts_of_roots(z3: Any, terms: Iterable[Any]) -> list[Any]:
    """The facts of the roots, logarithms and powers inside terms, and of those that these facts are about."""
    found: dict[str, list[Any]] = {"sqrt": [], "log": [], "power": [], "has power": [], "inverse": []}
    facts: list[Any] = []
    pending = list(terms)
    for name, term in islice(inside(z3, pending), 100 * _MOST):
        if name in found and term.num_args():
            found[name].append(term)
            about = list(_facts_of(z3, name, term)) if len(facts) < _MOST else []
            facts += about
            pending += about
    if not any(found[name] for name in ("sqrt", "log", "power")):
        return []
    for name in _OF_PAIRS:
        for one, other in combinations(found[name][:_FEW], 2):
            facts += _facts_of_pair(z3, name, one, other)
    return facts


def _facts_of(z3: Any, name: str, term: Any) -> Iterator[Any]:
    of = term.arg(0)
    if name == "sqrt":
        yield z3.Implies(of >= 0, z3.And(term >= 0, term * term == of))
    elif name == "inverse":
        yield z3.If(of == 0, term == 0, term * of == 1)
    elif name == "power":
        exponent = term.arg(1)
        yield z3.Implies(of > 0, term > 0)
        yield z3.Implies(exponent == 0, term == 1)
        yield z3.Implies(z3.And(of == 0, exponent != 0), term == 0)
        if z3.is_app(of) and of.decl().name() == "exp":
            yield term == of.decl()(z3.simplify(of.arg(0) * exponent, som=True, sort_sums=True))
    elif name == "log" and z3.is_app(of):
        inner = of.decl().name()
        if inner == "sqrt":
            yield 2 * term == term.decl()(of.arg(0))
        elif inner == "inverse":
            yield term == -term.decl()(of.arg(0))
        elif inner == "power":
            yield term == of.arg(1) * term.decl()(of.arg(0))


def _facts_of_pair(z3: Any, name: str, one: Any, other: Any) -> Iterator[Any]:
    if name == "log":
        yield z3.Implies(z3.Or(one.arg(0) == other.arg(0), one.arg(0) == -other.arg(0)), one == other)
        return
    turned = z3.And(one.arg(0) == other.arg(0), one.arg(1) == -other.arg(1))
    if name == "power":
        inverse = z3.Function("inverse", z3.RealSort(), z3.RealSort())
        yield z3.Implies(turned, z3.And(one == inverse(other), other == inverse(one)))
        return
    # 0 has a power and its inverse to the exponent 0 alone, and a number below 0 to whole ones, which both are.
    power = z3.Function("power", *(z3.RealSort() for _ in range(3)))
    for this, that in ((one, other), (other, one)):
        yield z3.Implies(z3.And(turned, this, power(this.arg(0), this.arg(1)) != 0), that)
