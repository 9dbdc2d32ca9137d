"""Unknowns that equations say what they are."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from eqsat.language.parametric.equations.bounds import FormulaBounds
from eqsat.language.parametric.facts import Fact, least_of, substituted
from eqsat.language.terms.dims import Dim, Sym, evaluate, exact_quotient, linear_in


class Solutions(ABC):
    """Facts with a witness, and the unknowns that equations among them say what they are."""

    def __init__(
        self,
        witness: Mapping[str, int],
        given: Sequence[Fact],
        least: Mapping[str, int] | None,
        solved: Mapping[str, Dim],
    ) -> None:
        self.witness = dict(witness)
        self.given = dict.fromkeys(given)
        #: Each question with its answer, and whether the other answer is to be looked at.
        self.facts: dict[Fact, bool] = {}
        #: The least that unknowns may be.
        self.least: dict[str, int] = dict(least or {})
        #: Unknowns that are what others make, by the equations that held.
        self.solved: dict[str, Dim] = dict(solved)
        self._equations: list[Dim] = []
        self.bounds = FormulaBounds()

    @property
    @abstractmethod
    def is_inner(self) -> bool:
        """True if unknowns of a fold are among these."""

    @abstractmethod
    def known_answer(self, question: Fact) -> bool | None:
        """The answer of a question that needs no solver; None of any other."""

    def reduced(self, formula: Dim) -> Dim:
        """The formula without the unknowns that equations of this path say what they are."""
        return substituted(formula, self.solved)

    def solve(self, question: Fact) -> None:
        """Note what an equation says that one of its unknowns is."""
        if question.is_zero:
            equations = [question.formula] if question.held else odd(question.formula)
        else:
            equations = self._pinned(question)
        if not equations:
            return
        self._equations += equations
        while any(self._solve_one(formula) for formula in self._equations):
            pass

    def _pinned(self, question: Fact) -> list[Dim]:
        """The equation of what a fact is about with a number, where other facts say that it is no less, or no more."""
        self.bounds.tell(itertools.chain(self.given, self.facts), self.solved)
        equation = self.bounds.equation(self.reduced(question.formula))
        return [] if equation is None else [equation]

    def _solve_one(self, equation: Dim) -> bool:
        """True if an equation says what one more of its unknowns is."""
        whole = self.reduced(equation)
        formula = self._without_positive_factors(whole)
        if not (self._solve_sum(formula) or self._solve_linear(formula)):
            return self._solve_unit(formula) or self._solve_multiple(formula)
        if formula != whole and not self.is_inner:
            # Z3 does not always divide: it is told of what follows.
            self.facts.setdefault(Fact.equal(formula, 0), False)
        return True

    def _without_positive_factors(self, formula: Dim) -> Dim:
        """A formula without the factors that all of its terms have and that are above 0: both are 0, or neither is."""
        terms = formula.terms if isinstance(formula, Sym) else ()
        if len(terms) < 2:
            return formula
        shared = {atom for atom, _ in terms[0][0]}.intersection(*({atom for atom, _ in one} for one, _ in terms[1:]))
        for atom in sorted(shared, key=str):
            factor = Sym([(((atom, 1),), 1)])
            while self._is_positive(factor) and (rest := exact_quotient(formula, factor)) is not None:
                formula = rest
        return formula

    def _is_positive(self, factor: Sym) -> bool:
        if least_of(factor, self.least) > 0:
            return True
        return bool(self.known_answer(Fact.positive(factor)))

    def _solve_linear(self, formula: Dim) -> bool:
        """True if an equation says what one of its unknowns is by a factor of 1 or -1."""
        for name in sorted(formula.names() if isinstance(formula, Sym) else (), reverse=True):
            parts = linear_in(formula, name)
            if parts is not None and abs(parts[0]) == 1:
                self._set(name, -parts[0] * parts[1])
                return True
        return False

    def _solve_sum(self, formula: Dim) -> bool:
        """True if an equation says that a sum of what is not below 0 is 0: each of it is, and so some unknown is."""
        terms = formula.terms if isinstance(formula, Sym) else ()
        if len({factor > 0 for _, factor in terms}) != 1:
            return False
        least = [[self.least.get(atom, -1) if isinstance(atom, str) else -1 for atom, _ in one] for one, _ in terms]
        if any(below < 0 for one in least for below in one):
            return False
        for (monomial, _), below in zip(terms, least, strict=True):
            open_names = [atom for (atom, _power), bound in zip(monomial, below, strict=True) if bound == 0]
            if len(open_names) == 1:
                self._set(str(open_names[0]), 0)
                if not self.is_inner:
                    self.facts.setdefault(Fact.equal(Sym.named(str(open_names[0])), 0), False)
                return True
        return False

    def _set(self, name: str, value: Dim) -> None:
        """Note what an unknown is."""
        self.solved = {known: substituted(said, {name: value}) for known, said in self.solved.items()}
        self.solved[name] = value

    def _solve_unit(self, formula: Dim) -> bool:
        """True if an equation says that a product is 1, of which one more factor is not below 0: it is 1."""
        terms = dict(formula.terms) if isinstance(formula, Sym) else {}
        if len(terms) != 2 or sum(terms.values()) != 0 or abs(terms.get((), 0)) != 1:
            return False
        (product,) = (monomial for monomial in terms if monomial)
        for atom, _power in product:
            if isinstance(atom, str) and self.least.get(atom, -1) >= 0:
                self._set(atom, 1)
                return True
        return False

    def _solve_multiple(self, formula: Dim) -> bool:
        """True if an equation says of which multiple of others one of its unknowns is: then how often is an unknown.

        Only of unknowns that are not below 0, and outside folds, whose bound unknowns would depend on a free one.
        """
        if self.is_inner:
            return False
        for whole, part in quotients(formula):
            left = whole - part * Sym.function("floordiv", whole, part)
            # What is left of a number of ones, twos and so on: nothing, or less than that number.
            rest = left - formula
            rest = rest if isinstance(rest, int) else left + formula
            if not isinstance(rest, int) or (rest and not (isinstance(part, int) and 0 < rest < part)):
                continue
            name = self._multiplied(whole, part)
            if name is None:
                continue
            first = Sym.named(name)
            times = f"{name}/({part})" if whole == first else f"({whole})/({part})"
            self.witness[times] = (evaluate(whole, self.witness) - rest) // max(evaluate(part, self.witness), 1)
            self.least[times] = min(self.least[name], 1) if whole == first and not rest else 0
            value = first - whole + part * Sym.named(times) + rest
            self.facts.setdefault(Fact.equal(first, value), False)
            self.facts.setdefault(Fact.positive(Sym.named(times) - self.least[times] + 1), False)
            self._set(name, value)
            return True
        return False

    def _multiplied(self, whole: Dim, part: Dim) -> str | None:
        """An unknown that a formula says to be a multiple, and others, if the formula is not below 0."""
        if not isinstance(whole, Sym) or not (
            least_of(whole, self.least) >= 0 or self.known_answer(Fact.positive(whole + 1))
        ):
            return None
        for name in sorted(whole.names()):
            parts = linear_in(whole, name)
            inside = part.names() if isinstance(part, Sym) else frozenset()
            if parts is not None and parts[0] == 1 and self.least.get(name, -1) >= 0 and name not in inside:
                return name
        return None


def quotients(formula: Dim) -> list[tuple[Dim, Dim]]:
    """The numbers that a formula has whole quotients of, with what they are divided by."""
    terms = formula.terms if isinstance(formula, Sym) else ()
    atoms = [atom for monomial, _ in terms for atom, _ in monomial]
    return [(atom[1], atom[2]) for atom in atoms if not isinstance(atom, str) and atom[0] == "floordiv"]


def odd(formula: Dim) -> list[Dim]:
    """The equation with 0 that says that a number is odd, if a formula is the rest of its half, which is not 0."""
    for whole, part in quotients(formula):
        left = whole - part * Sym.function("floordiv", whole, part)
        if part == 2 and formula in (left, -left):
            return [left - 1]
    return []
