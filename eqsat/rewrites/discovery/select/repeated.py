"""Candidates apart from those that say nothing new."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eqsat.language.terms.pattern import App, Var
from eqsat.rewrites.discovery.equations.candidate import Candidate
from eqsat.rewrites.discovery.equations.canonical import canonical
from eqsat.rewrites.discovery.equations.equation import equations
from eqsat.rewrites.discovery.equations.outcome import CONSTANT, REPEATED, Outcome
from eqsat.rewrites.discovery.equations.sides import Statement, parts
from eqsat.rewrites.discovery.equations.subgraph import lifted


class Repeated:
    """Candidates apart from those that say nothing new: on constants alone, the same in other names, or with a common
    subgraph. `forms` are the texts of those that are kept, without numbers."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.kept: list[Candidate] = []
        self.forms: dict[str, str] = {}
        self._apart: list[Outcome] = []
        self._first: dict[str, str] = {}
        for candidate in candidates:
            statement = _statement(candidate)
            if statement is not None and _computes_constants(statement):
                self._apart.append(Outcome(candidate.name, candidate.text, CONSTANT))
            elif statement is None or not self._repeats(candidate, statement):
                self.kept.append(candidate)
                self.forms.setdefault(candidate.name, candidate.name)

    def _repeats(self, candidate: Candidate, statement: Statement) -> bool:
        key = canonical(statement, directed=False)
        self.forms[candidate.name] = re.sub(r"\b\d+\b", "#", key)
        without = (canonical(e, directed=False) for e in lifted(statement))
        stands = self._first.get(key) or next((self._first[k] for k in without if k in self._first), None)
        self._first.setdefault(key, stands or candidate.name)
        if stands is not None:
            self._apart.append(Outcome(candidate.name, candidate.text, REPEATED, (stands,)))
        return stands is not None

    def outcomes(self) -> Iterator[Outcome]:
        """What became of those that were set apart."""
        yield from self._apart


def _computes_constants(statement: Statement) -> bool:
    """Whether an operator is applied to constants alone; one such operator by itself states a fact about constants."""
    sides = (*statement.roots, *statement.right)
    apps = [part for side in sides for part in parts(side) if isinstance(part, App)]
    closed = [a for a in apps if a.operands and not any(isinstance(p, Var) for p in parts(a))]
    return bool(closed) and not (len(closed) == 1 and closed[0] in sides)


def _statement(candidate: Candidate) -> Statement | None:
    for equation in equations(candidate):
        return Statement(equation.left, equation.right)
    return None
