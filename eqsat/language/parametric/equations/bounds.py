"""Bounds of formulas by facts: what differs from what a fact is about in a number alone needs no question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsat.language.parametric.facts import Fact, substituted
from eqsat.language.terms.dims import Dim, Sym


class FormulaBounds:
    """The least that formulas without a number of their own are, by the facts of a path with its equations put in."""

    def __init__(self) -> None:
        self._least: dict[Sym, int] = {}
        self._told: dict[Fact, None] = {}
        self._solved: Mapping[str, Dim] = {}

    def tell(self, facts: Iterable[Fact], solved: Mapping[str, Dim]) -> None:
        """Take note of facts; of all that are known anew, where equations say more of unknowns than before."""
        new = [fact for fact in facts if fact not in self._told]
        self._told.update(dict.fromkeys(new))
        if solved != self._solved:
            self._solved, self._least, new = dict(solved), {}, list(self._told)
        for fact in new:
            formula = substituted(fact.formula, solved)
            if fact.is_zero and fact.held:
                self._note(formula)
                self._note(-formula)
            elif not fact.is_zero:
                self._note(formula - 1 if fact.held else -formula)

    def _note(self, formula: Dim) -> None:
        """Take note that a formula is not below 0."""
        part, number = _split(formula)
        if part is not None:
            self._least[part] = max(-number, self._least.get(part, -number))

    def equation(self, formula: Dim) -> Dim | None:
        """The formula that is 0 where the least that one may be is the most, but for its number; else None."""
        part, _ = _split(formula)
        negative, _ = _split(-formula)
        if part is None or negative is None or part not in self._least or negative not in self._least:
            return None
        return part - self._least[part] if self._least[part] == -self._least[negative] else None

    def answer(self, formula: Dim, *, is_zero: bool) -> bool | None:
        """True if a formula is 0, or above it; None where bounds do not say."""
        part, number = _split(formula)
        negative, _ = _split(-formula)
        if part is None or negative is None:
            return number == 0 if is_zero else number > 0
        least, most = self._least.get(part), self._least.get(negative)
        if (least is not None and least + number > 0) or (is_zero and most is not None and number < most):
            return not is_zero
        if is_zero:
            return True if least is not None and most is not None and least + number == 0 == number - most else None
        return False if most is not None and number <= most else None


def _split(formula: Dim) -> tuple[Sym | None, int]:
    """A formula without its number, and that."""
    if isinstance(formula, int):
        return None, formula
    number = dict(formula.terms).get((), 0)
    part = formula - number
    return (part if isinstance(part, Sym) else None), number
