"""The search for a proof in one instance: both sides in an e-graph, saturated until they meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from eqsat.egraph.egraph import CONST, INPUT, EGraph
from eqsat.egraph.matching.match import bindings_of
from eqsat.egraph.nodes import Firing
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.errors import GraphError, RuleError
from eqsat.language.terms import App, Attrs, Bindings, Constant, Siblings
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.proof.chains.closure import Closure, ClosureTerm
from eqsat.rewrites.proof.chains.reading import Claims
from eqsat.rewrites.proof.chains.symbols import Bound, Env, Ref, Thing, literal
from eqsat.rewrites.proof.chains.terms import Equation, Matcher, NoMatchError, Writer
from eqsat.rewrites.rules.rule import Rule


@dataclass(frozen=True)
class Goal:
    """An instance of a rule, both sides as terms: one of each an output."""

    rule: Rule
    bindings: Bindings
    closure: Closure
    env: Env
    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The two sides of each output."""
        return list(zip(self.left, self.right, strict=True))

    def is_met(self, closure: Closure) -> bool:
        """True if a closure makes the two sides of every output equal."""
        return all(closure.find(a) == closure.find(b) for a, b in self.pairs)


def goal(rule: Rule, bindings: Bindings) -> Goal:
    """Both sides of a rule over leaves that are named after its variables."""
    closure = Closure()
    env = variables(rule, bindings, closure)
    writer = Writer(closure, rule, bindings, env)
    left = writer.left_roots()
    return Goal(rule, bindings, closure, env, tuple(left), tuple(writer.roots(rule.right, len(left))))


def variables(rule: Rule, bindings: Bindings, closure: Closure) -> Env:
    """The meaning of the names of a rule: leaves, bound attributes, and sequences of them."""
    env: dict[str, Thing] = {}
    for name, thing in bindings.tensors.items():
        if name in rule.tensors or name in rule.tensor_groups:
            if isinstance(thing, tuple):
                env[name] = tuple(_leaf(closure, name, i) for i in range(len(thing)))
            else:
                env[name] = _leaf(closure, name, None)
    for name in rule.attrs:
        env[name] = Bound(name)
    for name in rule.attr_groups:
        env[name] = tuple(Bound(name, i) for i in range(len(bindings.attrs[name])))
    return env


def _leaf(closure: Closure, name: str, index: int | None) -> Ref:
    return Ref(closure.add(ClosureTerm("", Attrs(), (), (), (name, index))))


class ProofSearch:
    """An e-graph that holds both sides of a goal, and its record of firings as equations between terms."""

    def __init__(self, goal: Goal, claims: Claims) -> None:
        self.goal, self.claims = goal, claims
        self.egraph = EGraph()
        self.equations: list[Equation] = []
        self.stopped_by = ""
        self.rules: dict[str, Rule] = {}
        self._numbers: dict[int, int] = {}
        self._terms: dict[int, int] = {}
        self._replayed = 0
        self.left = [self.encode(t) for t in goal.left]
        self.right = [self.encode(t) for t in goal.right]

    def run(self, rules: Sequence[Rule], limits: Limits, *, until_proved: bool = True) -> bool:
        """Saturate until each output's two sides are in one class, or, if asked to, on from there.

        False where a limit or saturation comes before.
        """
        self.rules = {r.name: r for r in rules}
        stop = self.is_proved if until_proved else None
        saturator = Saturator(self.egraph, rules, limits, should_stop=stop)
        try:
            self.stopped_by = saturator.run().stopped_by
        finally:
            # What is recorded refers back to the e-graph, so the collector may drop it in any thread; egglog's may not.
            self.egraph.engine.close()
        return self.is_proved()

    def is_proved(self) -> bool:
        """True if both sides of every output are in one class."""
        find = self.egraph.find
        return all(find(a) == find(b) for a, b in zip(self.left, self.right, strict=True))

    def replay(self) -> None:
        """Bring the firings since the last time into the goal's closure, in order."""
        applications = self.egraph.applications
        for applied in applications[self._replayed :]:
            equation = None if applied.firing is None else self._equation(applied.firing, applied.root)
            if equation is not None:
                self.goal.closure.equate(equation.left, equation.right, len(self.equations))
                self.equations.append(equation)
        self._replayed = len(applications)

    def term(self, number: int) -> int:
        """A term of the closure that an e-node stands for."""
        if number not in self._terms:
            node, closure = self.egraph.nodes[number], self.goal.closure
            children = tuple(self.term(k) for k in node.operands)
            known = closure.lookup(node.op, node.attrs, children)
            if known is None:
                symbols = tuple((k, literal(v)) for k, v in node.attrs.items())
                known = closure.add(ClosureTerm(node.op, node.attrs, symbols, children))
            self._terms[number] = known
        return self._terms[number]

    def encode(self, number: int) -> int:
        """The e-node of a term, made if it is new."""
        if number not in self._numbers:
            term = self.goal.closure.terms[number]
            node = self._leaf(number) if term.leaf is not None else self._apply(term)
            self._numbers[number] = node
            self._terms.setdefault(node, number)
        return self._numbers[number]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _apply(self, term: ClosureTerm) -> int:
        return self.egraph.add(term.op, term.attrs, [self.encode(c) for c in term.children])

    def _leaf(self, number: int) -> int:
        name, index = self.goal.closure.terms[number].leaf or ("", None)
        thing: Any = self.goal.bindings.tensors[name]
        drawn: Drawn = thing if index is None else thing[index]
        egraph = self.egraph
        if drawn.read and name in self.claims.constant:
            # By its place, not by its elements: two variables are two tensors even where an instance has them equal.
            egraph.constants.append(Constant.of(drawn.array))
            node = egraph.add(CONST, Attrs(index=len(egraph.constants) - 1), (), types=(drawn.type,))
        else:
            node = egraph.add(INPUT, Attrs(name=self.goal.closure.terms[number].label), (), types=(drawn.type,))
        egraph.eclass(node).finite = name in self.claims.finite
        return node

    def _equation(self, firing: Firing, root: int) -> Equation | None:
        """The equation that a firing states; None where it rests on a term that no firing explains."""
        rule = self.rules[firing.rule.name]
        bindings = bindings_of(self.egraph, firing.classes, firing.attrs)
        try:
            tensors = {name: self._thing(classes) for name, classes in firing.classes.items()}
            matcher = Matcher(self.goal.closure, rule, bindings, tensors)
            left = matcher.roots()
            writer = Writer(self.goal.closure, rule, bindings, matcher.env)
            right = writer.roots(rule.right, len(left))
        except (NoMatchError, GraphError):
            return None
        env = tuple(sorted(matcher.env.items(), key=lambda item: item[0]))
        whole = self.rules.get(rule.name.removesuffix(TURNED))
        if whole is not None and whole is not rule and turned(whole) is rule:
            return Equation(whole, right[root], left[root], env, tuple(matcher.agree), root)
        return Equation(rule, left[root], right[root], env, tuple(matcher.agree), root)

    def _thing(self, classes: Any) -> Thing:
        if isinstance(classes, tuple):
            return tuple(Ref(self.term(c)) for c in classes)
        return Ref(self.term(classes))


def minimal(goal: Goal, equations: Sequence[Equation]) -> list[Equation]:
    """The equations that a proof of the goal needs: those its chain uses, without the ones it can do without."""
    closure = goal.closure
    used = sorted({e for a, b in goal.pairs for e in closure.used(a, b)})
    needed = [equations[i] for i in used]
    if len(needed) > _MOST_MINIMISED:
        return needed
    for one in reversed(list(needed)):
        rest = [e for e in needed if e is not one]
        if proves(goal, rest) is not None:
            needed = rest
    return needed


#: Proofs of more equations are taken as they are.
_MOST_MINIMISED = 24


def proves(goal: Goal, equations: Sequence[Equation]) -> Closure | None:
    """A closure of these equations alone, where they prove the goal; its terms have the numbers of the goal's."""
    closure = Closure()
    for term in goal.closure.terms:
        closure.intern(term)
    for number in (*goal.left, *goal.right):
        closure.revive(number)
    for index, equation in enumerate(equations):
        for number in (equation.left, equation.right):
            closure.revive(number)
        closure.equate(equation.left, equation.right, index)
    return closure if goal.is_met(closure) else None


#: What the name of a rule read from right to left ends in.
TURNED = "-turned"


@lru_cache(4096)
def turned(rule: Rule) -> Rule | None:
    """The rule with its sides exchanged; None where its right side cannot be a left side, or leaves a name unbound.

    It is no rule to rewrite with blindly: the rule says that its sides are equal where its own left side is well-typed.
    """
    if isinstance(rule.left, Siblings) or not all(isinstance(p, App) for p in rule.right):
        return None
    left, arrow, rest = rule.text.partition(" => ")
    right, word, conditions = rest.partition(" if ")
    try:
        return replace(
            rule,
            name=rule.name + TURNED,
            phase="expand",
            left=tuple(p for p in rule.right if isinstance(p, App)),
            right=rule.left,
            text=f"{right}{arrow}{left}{word}{conditions}",
            origin="candidate",
        )
    except RuleError:
        return None


def both_ways(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules as equations: each also from right to left, where that is a rule.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> [r.name for r in both_ways(parse_rules("law: relu(-(-x)) => relu(x)"))]
    ['law', 'law-turned']
    """
    return tuple(r for rule in rules for r in (rule, turned(rule)) if r is not None)
