"""Values that code makes of unknown integers, as one expression: a choice for each answer that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eqsat.language.comprehension.extents.expressions import extent_expression
from eqsat.language.comprehension.text.syntax import Binary, Conditional, Expression, Number
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric
from eqsat.language.parametric.paths import Path
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Sym

#: The most times that code is run for one expression.
_RUNS = 64


class CasePath(Path):
    """A path that asks no solver: sizes are as they are given, and questions on indices are answered in turn."""

    def __init__(self, sizes: Mapping[str, int], least: Mapping[str, int], answers: Sequence[bool]) -> None:
        super().__init__(sizes, least=least)
        self._sizes, self._answers = {*sizes}, answers
        #: The questions on indices that were answered, and what is said of sizes.
        self.asked: list[Fact] = []
        self.required: dict[Fact, None] = {}

    def decide(self, question: Fact) -> bool:
        """The answer that is known, that of the given sizes, or the next one; True after the last."""
        if isinstance(question.formula, int):
            return question.at({})
        known = self.known_answer(question)
        if known is not None:
            return known
        if question.names() <= self._sizes:
            held = question.at(self.witness)
            self.required[question if held else question.turned] = None
        elif question.names() <= self.witness.keys():
            place = len(self.asked)
            held = self._answers[place] if place < len(self._answers) else True
            self.asked.append(question)
        else:
            raise NotParametric(f"sizes decide whether {question}, and are not known")
        return self.answered(question, held)

    def holds(self, question: Fact) -> bool:
        """True if an answer follows from bounds alone."""
        return question.at({}) if isinstance(question.formula, int) else self.known_answer(question) is True


def by_cases(
    run: Callable[[CasePath], Expression], sizes: Mapping[str, int], least: Mapping[str, int]
) -> tuple[Expression, tuple[Fact, ...]]:
    """The expression that code makes, a choice for each question on indices, and the facts that it asks of sizes.

    NotParametric where it is run too often, or asks what the language has no text for.
    """
    required: dict[Fact, None] = {}
    runs = 0

    def explored(answers: tuple[bool, ...]) -> Expression:
        nonlocal runs
        runs += 1
        if runs > _RUNS:
            raise NotParametric(f"more than {_RUNS} cases")
        path = CasePath(sizes, least, answers)
        with path:
            made = run(path)
        required.update(path.required)
        if len(path.asked) <= len(answers):
            return made
        asked = _condition(path.asked[len(answers)])
        return Conditional(asked, explored((*answers, True)), explored((*answers, False)))

    return explored(()), tuple(required)


def _condition(fact: Fact) -> Expression:
    """A fact as a condition of the language, what is taken away on the other side."""
    more, less = _parted(fact.formula)
    if fact.is_zero:
        return Binary("==" if fact.held else "!=", more, less)
    return Binary(">" if fact.held else "<=", more, less)


def _parted(formula: Dim) -> tuple[Expression, Expression]:
    terms = formula.terms if isinstance(formula, Sym) else (((), formula),)
    more = extent_of(Sym([(monomial, factor) for monomial, factor in terms if factor > 0]))
    less = extent_of(Sym([(monomial, -factor) for monomial, factor in terms if factor < 0]))
    return more, less


def extent_of(formula: Dim) -> Expression:
    """An extent or an index as an expression, with rests in place of what is left by a quotient; NotParametric of one
    that the language has no text for."""
    if not isinstance(formula, Sym):
        formula = int(formula)
    elif not formula.terms:
        return Number(0)
    elif {*formula.terms[0][0]} == set() and len(formula.terms) == 1:
        formula = formula.terms[0][1]
    made = extent_expression(_with_rests(formula))
    if made is None:
        raise NotParametric(f"no text for {formula}")
    return made


def _with_rests(formula: Dim) -> Dim:
    """A formula with a % b in place of a - b * (a // b)."""
    if not isinstance(formula, Sym):
        return formula
    atoms = {atom for monomial, _ in formula.terms for atom, _ in monomial}
    for atom in sorted((one for one in atoms if not isinstance(one, str)), key=repr):
        if atom[0] != "floordiv":
            continue
        _, a, b = atom
        rest = formula - (a - b * Sym.function("floordiv", a, b))
        if _length(rest) < _length(formula):
            return _with_rests(rest) + Sym.function("mod", a, b)
    return formula


def _length(formula: Dim) -> int:
    return len(formula.terms) if isinstance(formula, Sym) else int(bool(formula))
