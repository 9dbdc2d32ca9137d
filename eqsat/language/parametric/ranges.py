"""Ranges of unknowns, by the questions of a domain that say what they are not below or above."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.paths import current
from eqsat.language.terms.dims import Dim, Sym, linear_in


def limits(name: str, domain: Sequence[Fact]) -> tuple[list[Dim], list[Dim]]:
    """The numbers that an unknown is not below, and those that it is not above, by the questions that say one."""
    least, most = [], []
    for question in domain:
        formula = question.formula if question.held else 1 - question.formula
        parts = None if question.is_zero else linear_in(formula, name)
        if parts is not None and parts[0] == 1:
            least.append(1 - parts[1])
        elif parts is not None and parts[0] == -1:
            most.append(parts[1] - 1)
    return least, most


def innermost(bounds: Sequence[Dim]) -> Dim | None:
    """The bound that no other is above, on all sizes of this path; None where none is known to be."""
    path = current()
    return next((a for a in bounds if all(a == b or path.holds(Fact.positive(a - b + 1)) for b in bounds)), None)


def pinned(bound: Sequence[str], domain: Sequence[Fact]) -> list[Fact]:
    """Equations of bound unknowns whose least value is their largest."""
    found = []
    for name in bound:
        least, most = limits(name, domain)
        one, path = Sym.named(name), current()
        found += [Fact.equal(one, low) for low in least for high in most if path.reduced(high - low) == 0]
    return found
