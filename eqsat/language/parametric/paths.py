"""Paths through code: the answers to all that it asks of unknown integers, and every other path that there is.

A path is followed with a witness, numbers that give each question its answer (compare concolic testing: K. Sen and
others, CUTE, 2005). Z3 looks for a witness of every answer that was not met. Once none is left, what held on all paths
holds for all numbers; where Z3 does not know, or paths are too many, it is open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, TypeVar

from eqsat.language.parametric.equations.models import model_beside
from eqsat.language.parametric.equations.products import contradicts
from eqsat.language.parametric.equations.solutions import Solutions
from eqsat.language.parametric.facts import Fact, least_of, term
from eqsat.language.terms.dims import Dim, Sym

Result = TypeVar("Result")
#: The steps of the solver for one question.
STEPS = 400_000
#: The sizes up to which small witnesses are looked for.
_SMALL = (8, 40, 300, 1100)
#: The statements that were missed which one is to be of.
_MISSED = 4


class Restart(Exception):  # noqa: N818 - nothing is wrong
    """Leaves a path whose witness is not one of the path that it is inside, as that has been decided since."""


class TooManyQuestions(Exception):  # noqa: N818 - nothing is wrong
    """Leaves an exploration with paths, or answers, that were not looked at."""


class SolverBudget:
    """The questions that Z3 may be asked inside a block, so many at most, and the count of those that it was asked."""

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        #: Whether a question is answered so, by all that is given and was asked before.
        self.answers: dict[tuple[Fact, ...], bool] = {}
        self._token: Token[SolverBudget] | None = None

    def __enter__(self) -> SolverBudget:
        self._token = _ASKED.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _ASKED.reset(self._token)

    def check(self, solver: Any, *statements: Any) -> Any:
        """The answer of a solver; TooManyQuestions where it was asked often enough."""
        self.spend()
        return solver.check(*statements)

    def spend(self) -> None:
        """Count a question; TooManyQuestions where enough were asked."""
        self.count += 1
        if self.count > self.most:
            raise TooManyQuestions(f"more than {self.most} questions to Z3")


_ASKED: ContextVar[SolverBudget] = ContextVar("asked")


_CURRENT: ContextVar[Path] = ContextVar("path")


def current() -> Path:
    """The path that is followed."""
    return _CURRENT.get()


def followed() -> Path | None:
    """The path that is followed; None outside one."""
    return _CURRENT.get(None)


class Path(Solutions):
    """The questions that were asked so far, answered by a witness; `given` hold whatever is asked.

    A path inside an `outer` one has unknowns of its `own`, and leaves it to decide what is not about these.
    """

    def __init__(
        self,
        witness: Mapping[str, int],
        given: Sequence[Fact] = (),
        least: Mapping[str, int] | None = None,
        outer: Path | None = None,
        own: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(witness, given, least, {} if outer is None else outer.solved)
        self.outer, self.own = outer, own
        #: Why this path is left without a result.
        self.left: Exception | None = None
        for question in given:
            self.solve(question)
        #: Results of work on this path, by what they are of.
        self.known: dict[Any, Any] = {}
        #: Statements of Z3 on real numbers that hold here.
        self.statements: list[Any] = []
        #: Statements of Z3 that would have had to hold for the sides to be shown equal, and do not everywhere.
        self.missed: list[Any] = []
        #: Statements by which the elements that are worked out are defined, by their identities.
        self.needed: dict[Any, Any] = {}
        #: How many folds this path lies in.
        self.level = 0
        self._token: Token[Path] | None = None
        self._solver: Any = None
        self._told = 0

    @property
    def is_inner(self) -> bool:
        """True of a path inside another."""
        return self.outer is not None

    def __enter__(self) -> Path:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _CURRENT.reset(self._token)

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Follow this path inside the block, whichever inside it is followed."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def unknown(self, name: str, least: int, below: Dim | None = None) -> Sym:
        """A new unknown of at least some number, and below a formula."""
        found = Sym.named(name)
        self.witness.setdefault(name, least)
        self.least[name] = least
        self.assume(Fact.positive(found - least + 1))
        if below is not None:
            self.assume(Fact.positive(below - found))
        return found

    def anywhere(self, name: str) -> None:
        """A new unknown that may be any integer, on the paths that this one is inside too."""
        self.witness.setdefault(name, 0 if self.outer is None else self.outer.witness.get(name, 0))
        if self.outer is not None:
            self.outer.anywhere(name)

    def assume(self, question: Fact) -> None:
        """Take an answer for given from here on."""
        if isinstance(question.formula, Sym):
            self.facts.setdefault(question, False)
            self.solve(question)

    def decide(self, question: Fact) -> bool:
        """The answer that the witness gives, recorded where it is not plain."""
        if isinstance(question.formula, int):
            return question.at({})
        known = self.known_answer(question)
        if known is not None:
            return known
        if self.outer is not None and question.names().isdisjoint(self.own):
            held = self.outer.decide(question)
            if question.at(self.witness) is not held:
                raise Restart
            return held
        return self.answered(question, question.at(self.witness))

    def answered(self, question: Fact, held: bool) -> bool:
        """An answer, recorded as one that could be another."""
        fact = question if held else question.turned
        self.facts[fact] = True
        self.solve(fact)
        return held

    def known_answer(self, question: Fact) -> bool | None:
        """The answer that was given before, or that bounds of the unknowns give; None where there is none yet."""
        for known in (self.facts, self.given):
            for same in question.forms:
                if same in known or same.turned in known:
                    return same in known
        formula = self.reduced(question.formula)
        if isinstance(formula, int):
            return Fact(formula, question.is_zero, question.held).at({})
        self.bounds.tell(itertools.chain(self.given, self.facts), self.solved)
        bounded = self.bounds.answer(formula, is_zero=question.is_zero)
        if bounded is not None:
            return bounded is question.held
        if least_of(formula, self.least) > 0:
            return question.is_zero is not question.held
        if least_of(-formula, self.least) >= (1 if question.is_zero else 0):
            return not question.held
        return None

    def holds(self, question: Fact) -> bool:
        """True if an answer follows from what is known on this path, by Z3; nothing is recorded."""
        if isinstance(question.formula, int):
            return question.at({})
        known = self.known_answer(question)
        if known is not None:
            return known
        if question.names() <= self.witness.keys() and not question.at(self.witness):
            return False
        # Paths that begin alike ask the same.
        key = (question, *self.given, *self.facts)
        answers = _ASKED.get().answers
        if key not in answers:
            answers[key] = self.follows(term(question))
        return answers[key]

    def follows(self, statement: Any) -> bool:
        """True if a statement of Z3 follows from what is known on this path."""
        import z3

        if self._solver is None:
            self._solver = z3.Solver()
            self._solver.set("rlimit", STEPS)
            self._solver.add(*map(term, self.given))
        facts = list(self.facts)
        self._solver.add(*map(term, facts[self._told :]))
        self._told = len(facts)
        return bool(_ASKED.get().check(self._solver, z3.Not(statement)) == z3.unsat)


def explored(
    run: Callable[[], Result],
    witness: Mapping[str, int],
    given: Sequence[Fact] = (),
    least: Mapping[str, int] | None = None,
    most: int | None = None,
    outer: Path | None = None,
    own: frozenset[str] = frozenset(),
) -> Iterator[tuple[Path, Result]]:
    """Every path through a run with what it returned; TooManyQuestions where they are more than `most`, or Z3 does not
    know an answer.

    `given` hold on every path; `outer` is one that all lie inside, with `own` as the unknowns of these. A
    run has to ask the same questions wherever the same answers are given.
    """
    import z3

    solver = z3.Solver()
    solver.set("rlimit", STEPS)
    solver.add(*map(term, given))
    #: Numbers, and what is to be asked first on their path, with the answers.
    pending: list[tuple[Mapping[str, int], list[Fact]]] = [(witness, [])]
    count = 0
    while pending:
        numbers, before = pending.pop()
        count += 1
        if most is not None and count > most:
            raise TooManyQuestions(f"more than {most} paths")
        with Path(numbers, given, least, outer, own) as path:
            result = run()
        if path.left is not None:
            raise path.left
        facts = list(path.facts)
        if facts[: len(before)] != before:
            raise TooManyQuestions("other questions were asked where the answers were the same")
        yield path, result
        solver.push()
        for place, (question, is_open) in enumerate(path.facts.items()):
            if is_open and place >= len(before):
                solver.push()
                solver.add(term(question.turned))
                answer = _ASKED.get().check(solver)
                if answer == z3.sat:
                    pending.append((_numbers(solver.model()), [*facts[:place], question.turned]))
                elif answer == z3.unknown:
                    _ASKED.get().spend()
                    asked = [*given, *facts[:place], question.turned]
                    if (model := model_beside(solver, asked, path.witness)) is not None:
                        pending.append((_numbers(model), [*facts[:place], question.turned]))
                    elif not contradicts(asked):
                        raise TooManyQuestions(f"Z3 does not know whether {question.turned}")
                solver.pop()
            solver.add(term(question))
        solver.pop()


def small_witness(path: Path) -> Mapping[str, int]:
    """Small numbers with which the same path is followed; its witness where Z3 finds none."""
    import z3

    facts = [*path.given, *path.facts]
    names = sorted(frozenset[str]().union(*(fact.names() for fact in facts)))
    # With numbers for which a statement does not hold, elements are likelier to differ.
    for missed, most in itertools.product([*path.missed[:_MISSED], z3.BoolVal(False)], _SMALL):
        solver = z3.Solver()
        solver.set("rlimit", STEPS)
        bounds = (z3.And(z3.Int(name) <= most, z3.Int(name) >= -most) for name in names)
        solver.add(*map(term, facts), z3.Not(missed), *bounds)
        if solver.check() == z3.sat:
            return {**path.witness, **_numbers(solver.model())}
    return path.witness


def _numbers(model: Any) -> dict[str, int]:
    return {one.name(): model[one].as_long() for one in model.decls() if one.arity() == 0}
