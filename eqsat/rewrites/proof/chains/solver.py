"""Z3's verdict on a proof: the whole from laws and premises, or each step of a chain from the one law it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from eqsat.language.ops import spec
from eqsat.language.terms.pattern import App
from eqsat.rewrites.proof.chains.axioms import Axiom, Ground, WindowError
from eqsat.rewrites.proof.chains.cases import ProofCase
from eqsat.rewrites.proof.chains.closure import Closure, ClosureLink
from eqsat.rewrites.proof.chains.logic import Logic, general_facts
from eqsat.rewrites.proof.chains.search import Goal
from eqsat.rewrites.proof.chains.symbols import Computed, Symbol, SymbolRecord, is_closed
from eqsat.rewrites.proof.chains.terms import Equation
from eqsat.rewrites.rules.rule import Rule, applications, loops

#: Conditions about element types, which instances do not vary.
_OF_TYPES = re.compile(r"\b(wide|floating|numeric|dtype)\b")


@dataclass
class ChainVerdict:
    """The verdict on a chain: whether Z3 confirms each step, and the side conditions that rest on instances alone.

    `untyped` are those about element types, of which instances say nothing: they are all drawn in one type.
    """

    confirmed: bool
    follow: int = 0
    closed: int = 0
    bounded: list[str] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)
    steps: int = 0
    why: str = ""


class PremiseSolver:
    """A rule's premises in logic, and questions about them; `steps` bounds the solver's work on each question."""

    def __init__(self, goal: Goal, closure: Closure, steps: int, equations: Sequence[Equation] = ()) -> None:
        self.goal, self.closure, self.steps = goal, closure, steps
        self.logic = Logic()
        self.ground = Ground(self.logic, closure, record_fields(goal.rule))
        self.premises = self.ground.conditions(goal.rule, goal.env.items())
        self.premises += [self.logic.typed(self.ground.term(t)) for t in (*goal.left, *goal.right)]
        spoken_of = [*goal.left, *goal.right, *(t for e in equations for t in (e.left, e.right))]
        self.facts = self.ground.facts(spoken_of)

    @classmethod
    def of(cls, case: ProofCase, steps: int) -> PremiseSolver:
        """The premises of the rule that a case proves."""
        return cls(case.goal, case.closure, steps, case.equations)

    def entailed(self, laws: Sequence[Rule]) -> tuple[str, ...] | None:
        """The laws that first-order logic derives the goal from, premises given; None where Z3 does not say so."""
        z3 = self.logic.z3
        solver = self._solver()
        marks = self._track(solver, laws)
        self._assume(solver)
        if solver.check() == z3.unsat:
            return None  # whatever follows from a contradiction is no proof
        equal = (self.ground.term(a) == self.ground.term(b) for a, b in self.goal.pairs)
        solver.add(z3.Not(z3.And(*equal)))
        if solver.check() != z3.unsat:
            return None
        return tuple(dict.fromkeys(marks[str(m)] for m in solver.unsat_core()))

    def collapses(self, laws: Sequence[Rule], terms: Sequence[int], leaves: Sequence[int]) -> tuple[str, ...] | None:
        """The laws that make two different operands of one type equal, given that some terms are well-typed."""
        z3, logic = self.logic.z3, self.logic
        solver = self._solver()
        marks = self._track(solver, laws)
        self._assume(solver)
        solver.add(*self.ground.facts(terms), *(logic.typed(self.ground.term(t)) for t in terms))
        solver.add(z3.Distinct(*(self.ground.term(leaf) for leaf in leaves)))
        if solver.check() != z3.unsat:
            return None
        return tuple(dict.fromkeys(marks[str(m)] for m in solver.unsat_core()))

    def verdict(self, case: ProofCase) -> ChainVerdict:
        """Z3's verdict on each step of a chain.

        A step's side conditions follow from the premises, or are about values written out, or hold in every instance
        looked at, which the caller has checked; these are reported.
        """
        result, granted = self.side_conditions(case)
        if not result.confirmed:
            return result
        for chain in case.chains:
            for link in chain:
                result.steps += 1
                if not self._confirms(case, link, granted):
                    name = "attributes" if link.equation is None else case.equations[link.equation].rule.name
                    return ChainVerdict(False, why=f"Z3 does not confirm the step by {name}", steps=result.steps)
            if any(a.after != b.before for a, b in pairwise(chain)):
                return ChainVerdict(False, why="the chain has a gap")
        return result if self._meets(case) else ChainVerdict(False, why="the chain does not lead from side to side")

    def side_conditions(self, case: ProofCase) -> tuple[ChainVerdict, list[Any]]:
        """A chain's side conditions and their verdict: not confirmed where one about types does not follow."""
        result = ChainVerdict(True)
        granted: list[Any] = []
        solver = self._solver()
        self._assume(solver)
        for equation in case.equations:
            for text, formula, closed in self._conditions_of(equation):
                self._grant(solver, text, formula, closed, result)
                granted.append(formula)
            solver.add(self.ground.equality(equation), self.logic.typed(self.ground.term(equation.right)))
        for one, other in case.attribute_steps():
            text = f"{_text(one)} == {_text(other)}"
            here, there = self.ground.value(one), self.ground.value(other)
            if here.sort() != there.sort():
                return ChainVerdict(False, why=f"{text} compares what is of different kinds"), granted
            formula = here == there
            self._grant(solver, text, formula, is_closed(one) and is_closed(other), result)
            granted.append(formula)
        if solver.check() == self.logic.z3.unsat:
            return ChainVerdict(False, why="the side conditions contradict one another"), granted
        if result.untyped:
            why = f"its conditions do not imply {result.untyped[0]}"
            return ChainVerdict(False, untyped=result.untyped, why=why), granted
        return result, granted

    # -- inside -------------------------------------------------------------------------------------------------------

    def _track(self, solver: Any, laws: Sequence[Rule]) -> dict[str, str]:
        """Assert laws so that a proof says which it used; return the law of each mark."""
        z3, logic = self.logic.z3, self.logic
        marks: dict[str, str] = {}
        for law in laws:
            for arity in _arities(law, self.goal):
                try:
                    formulas = Axiom(logic, law, arity).formulas()
                except WindowError:
                    continue
                for formula in formulas:
                    mark = z3.Bool(f"law {len(marks)}", logic.context)
                    marks[str(mark)] = law.name
                    solver.assert_and_track(formula, mark)
        return marks

    def _meets(self, case: ProofCase) -> bool:
        ends = [(c[0].before, c[-1].after) if c else None for c in case.chains]
        return all(
            e == pair or (e is None and pair[0] == pair[1]) for e, pair in zip(ends, self.goal.pairs, strict=True)
        )

    def _solver(self) -> Any:
        z3 = self.logic.z3
        solver = z3.SolverFor("UF", ctx=self.logic.context)
        solver.set("rlimit", self.steps)
        solver.set("random_seed", 0)
        solver.set("mbqi", False)
        return solver

    def _assume(self, solver: Any) -> None:
        solver.add(*self.premises, *self.facts, *general_facts(self.logic))
        solver.add(*self.logic.distinct())

    def _conditions_of(self, equation: Equation) -> Iterable[tuple[str, Any, bool]]:
        """Text and formula of each, and whether it is about values written out."""
        for condition, formula in zip(
            equation.rule.conditions, self.ground.conditions(equation.rule, equation.env), strict=True
        ):
            env = dict(equation.env)
            names = [n for n in env if n in condition.text]
            closed = all(is_closed(env[n]) for n in names)
            yield f"{equation.rule.name}: {condition.text}", formula, closed
        for one, other in equation.agree:
            text = f"{equation.rule.name}: {_text(one)} == {_text(other)}"
            yield text, self.ground.value(one) == self.ground.value(other), is_closed(one) and is_closed(other)
        typed = self.logic.typed(self.ground.term(equation.left))
        yield f"{equation.rule.name}: its left side is well-typed", typed, False

    def _grant(self, solver: Any, text: str, formula: Any, closed: bool, result: ChainVerdict) -> None:
        z3 = self.logic.z3
        if closed:
            result.closed += 1
        else:
            solver.push()
            solver.add(z3.Not(formula))
            follows = solver.check() == z3.unsat
            solver.pop()
            result.follow += follows
            reported = result.untyped if _OF_TYPES.search(text) else result.bounded
            if not follows and text not in reported:
                reported.append(text)
        solver.add(formula)

    def _confirms(self, case: ProofCase, link: ClosureLink, granted: list[Any]) -> bool:
        """True if a step follows from the one law it uses, or, without a law, from attributes being equal."""
        z3, logic, ground = self.logic.z3, self.logic, self.ground
        solver = self._solver()
        if link.equation is not None:
            equation = case.equations[link.equation]
            formulas = self._law(equation)
            solver.add(*formulas)
        solver.add(*granted, *logic.distinct())
        solver.add(ground.term(link.before) != ground.term(link.after))
        return bool(solver.check() == z3.unsat)

    def _law(self, equation: Equation) -> list[Any]:
        """The law of a step: for all tensors and attributes, or, where it takes some elements of a sequence, here."""
        lengths = [len(t) for _, t in equation.env if isinstance(t, tuple)]
        try:
            if len(set(lengths)) <= 1:
                return Axiom(self.logic, equation.rule, lengths[0] if lengths else 1).formulas()
        except WindowError:
            pass
        premises = [f for _, f, _ in self._conditions_of(equation)]
        return [self.logic.z3.Implies(self.logic.z3.And(*premises), self.ground.equality(equation))]


def record_fields(rule: Rule) -> dict[str, tuple[str, ...]]:
    """The fields of each record that a rule's left side binds."""
    records: dict[str, tuple[str, ...]] = {}
    for root in rule.roots:
        for app in applications(root):
            if isinstance(app, App) and app.record is not None:
                fields = tuple(sorted(spec(app.op).attrs))
                records[app.record] = fields
    pairs = (pair for over in loops(rule.left) for pair in over)
    return records | {sequence: records[variable] for variable, sequence in pairs if variable in records}


def _arities(law: Rule, goal: Goal) -> list[int]:
    """In which lengths a law's sequences are stated, for a goal."""
    if not law.tensor_groups and not law.attr_groups:
        return [1]
    lengths = {len(t.children) for t in goal.closure.terms if t.op and spec(t.op).max_operands is None}
    lengths |= {len(t) for t in goal.env.values() if isinstance(t, tuple)}
    return sorted(lengths - {0, 1}) or [2]


def _text(one: Symbol) -> str:
    if isinstance(one, Computed):
        return one.expression.text
    if isinstance(one, SymbolRecord):
        return "record"
    return next(text for name in ("text", "key", "label") if (text := str(getattr(one, name, ""))))
