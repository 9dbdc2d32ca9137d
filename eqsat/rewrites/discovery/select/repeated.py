"""Candidates apart from those that say nothing new."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eqsat.language.terms.pattern import App, Var
from eqsat.rewrites.discovery.equations.candidate import CandidateEquation
from eqsat.rewrites.discovery.equations.canonical import canonical
from eqsat.rewrites.discovery.equations.equation import equations
from eqsat.rewrites.discovery.equations.outcome import CONSTANT, REPEATED, CandidateOutcome
from eqsat.rewrites.discovery.equations.sides import RuleStatement, parts
from eqsat.rewrites.discovery.equations.subgraph import lifted


class Repeated:
    """Candidates apart from those that say nothing new: on constants alone, the same in other names, or with a common
    subgraph. `forms` are the texts of those that are kept, without numbers."""

    def __init__(self, candidates: Sequence[CandidateEquation]) -> None:
        self.kept: list[CandidateEquation] = []
        self.forms: dict[str, str] = {}
        self._apart: list[CandidateOutcome] = []
        self._first: dict[str, str] = {}
        for candidate in candidates:
            statement = _statement(candidate)
            if statement is not None and _computes_constants(statement):
                self._apart.append(CandidateOutcome(candidate.name, candidate.text, CONSTANT))
            elif statement is None or not self._repeats(candidate, statement):
                self.kept.append(candidate)
                self.forms.setdefault(candidate.name, candidate.name)

    def _repeats(self, candidate: CandidateEquation, statement: RuleStatement) -> bool:
        key = canonical(statement, directed=False)
        self.forms[candidate.name] = re.sub(r"\b\d+\b", "#", key)
        without = (canonical(e, directed=False) for e in lifted(statement))
        stands = self._first.get(key) or next((self._first[k] for k in without if k in self._first), None)
        self._first.setdefault(key, stands or candidate.name)
        if stands is not None:
            self._apart.append(CandidateOutcome(candidate.name, candidate.text, REPEATED, (stands,)))
        return stands is not None

    def outcomes(self) -> Iterator[CandidateOutcome]:
        """The outcomes of the candidates that were set apart."""
        yield from self._apart


def _computes_constants(statement: RuleStatement) -> bool:
    """Return whether an operator is applied to constants alone; one such operator states a fact about constants."""
    sides = (*statement.roots, *statement.right)
    apps = [part for side in sides for part in parts(side) if isinstance(part, App)]
    closed = [a for a in apps if a.operands and not any(isinstance(p, Var) for p in parts(a))]
    return bool(closed) and not (len(closed) == 1 and closed[0] in sides)


def _statement(candidate: CandidateEquation) -> RuleStatement | None:
    for equation in equations(candidate):
        return RuleStatement(equation.left, equation.right)
    return None
