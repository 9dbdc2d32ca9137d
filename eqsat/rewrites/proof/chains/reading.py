"""The terms and symbols of a proof in one instance of its rule, and whether a law states it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from eqsat.errors import GraphError, ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, TensorType
from eqsat.language.terms.matrices import diagonal_of, rows_attend
from eqsat.language.terms.pattern import Bindings, Expression
from eqsat.rewrites.conditions.expression import evaluate
from eqsat.rewrites.conditions.syntax import conjuncts, loop_parts
from eqsat.rewrites.instances.elements import OF_CONSTANTS, Drawn
from eqsat.rewrites.proof.chains.closure import Closure
from eqsat.rewrites.proof.chains.symbols import Bound, Computed, Literal, Member, Ref, Symbol, SymbolRecord, Thing
from eqsat.rewrites.proof.chains.terms import Equation
from eqsat.rewrites.rules.naming import sides
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import Term, values

#: Conditions that say whether something is known when the program is compiled, which no equation depends on.
_WHEN_KNOWN = frozenset({"constant", "static"})


@dataclass(frozen=True)
class Known:
    """A term in an instance, as conditions see it."""

    type: TensorType
    constant: bool
    finite: bool
    reading: Reading
    term: int

    @property
    def value(self) -> Any | None:
        """The elements of a constant, else None."""
        return self.reading.elements(self.term) if self.constant else None

    @property
    def elements(self) -> Any | None:
        """The elements of a constant, else None."""
        return self.value

    @property
    def attends(self) -> bool:
        """True for a constant mask in which no row hides all keys."""
        return self.constant and rows_attend(self.value)

    @property
    def diagonal(self) -> float | None:
        """The number on the diagonal of a constant matrix with zeros beside it, else None."""
        return diagonal_of(self.value) if self.constant else None


class Reading:
    """Terms and symbols under the bindings of one instance; ShapeError where one has no value there.

    Operands are finite, and constant, only where the rule's conditions say so.
    """

    def __init__(self, closure: Closure, bindings: Bindings, claims: Claims) -> None:
        self.closure, self.bindings, self.claims = closure, bindings, claims
        self._known: dict[int, Known] = {}
        self._built: dict[int, Any] = {}

    def operand(self, term: int) -> Known:
        """A term as conditions see it."""
        if term not in self._known:
            self._known[term] = self._read(term)
        return self._known[term]

    def value(self, thing: Thing) -> Any:
        """The value of a symbol, the operand that a term is."""
        if isinstance(thing, Ref):
            return self.operand(thing.term)
        if isinstance(thing, tuple):
            return tuple(self.value(t) for t in thing)
        if isinstance(thing, Literal):
            return thing.value
        if isinstance(thing, Bound):
            bound = self.bindings.attrs[thing.name]
            return bound if thing.index is None else bound[thing.index]
        if isinstance(thing, Member):
            return self.value(thing.record)[thing.key]
        if isinstance(thing, SymbolRecord):
            return Attrs({k: self.value(s) for k, s in thing.items})
        return self._computed(thing)

    def agree(self, one: Symbol, other: Symbol) -> bool:
        """True if two attributes have the same value."""
        return Attrs(v=self.value(one)) == Attrs(v=self.value(other))

    def holds(self, equation: Equation) -> str | None:
        """Why an equation is no instance of its rule here; None where it is one."""
        try:
            if self.operand(equation.left).type != self.operand(equation.right).type:
                return f"{equation.rule.name} changes the type"
            for condition in equation.rule.conditions:
                if not self.value(Computed(condition, tuple((n, t) for n, t in equation.env))):
                    return f"{equation.rule.name} needs {condition.text}"
            for one, other in equation.agree:
                if not self.agree(one, other):
                    return f"{equation.rule.name} needs other attributes"
        except (GraphError, KeyError, IndexError, TypeError) as error:
            return f"{equation.rule.name}: {error}"
        return None

    def elements(self, term: int) -> Any:
        """The elements of a term whose operands are all constants."""
        arrays = {id(o): o.array for o in self._leaves(term)}
        return values([self._build(term)], Floats(), arrays)[0]

    def _computed(self, thing: Computed) -> Any:
        names = {name: self.value(inner) for name, inner in thing.env}
        return evaluate(thing.expression, Bindings({}, names))

    def _read(self, number: int) -> Known:
        term = self.closure.terms[number]
        if term.leaf is not None:
            name, _ = term.leaf
            drawn = self._drawn(number)
            return Known(drawn.type, name in self.claims.constant, name in self.claims.finite, self, number)
        below = [self.operand(c) for c in term.children]
        declared = spec(term.op)
        attrs = declared.complete({k: self.value(s) for k, s in term.symbols})
        types = [b.type for b in below]
        type = declared.result_types(types, attrs)[0]
        constant = declared.is_foldable and all(b.constant for b in below)
        finite = not declared.is_partial(types, attrs) and all(b.finite for b in below)
        return Known(type, constant, finite, self, number)

    def _drawn(self, number: int) -> Drawn:
        leaf = self.closure.terms[number].leaf
        if leaf is None:
            raise ShapeError("an operator is no operand of the rule")
        thing: Any = self.bindings.tensors[leaf[0]]
        drawn: Drawn = thing if leaf[1] is None else thing[leaf[1]]
        return drawn

    def _leaves(self, number: int) -> Iterable[Drawn]:
        term = self.closure.terms[number]
        if term.leaf is not None:
            yield self._drawn(number)
        for child in term.children:
            yield from self._leaves(child)

    def _build(self, number: int) -> Any:
        if number not in self._built:
            term = self.closure.terms[number]
            if term.leaf is not None:
                self._built[number] = self._drawn(number)
            else:
                attrs = spec(term.op).complete({k: self.value(s) for k, s in term.symbols})
                children = tuple(self._build(c) for c in term.children)
                self._built[number] = Term(term.op, attrs, children, (self.operand(number).type,))
        return self._built[number]


@dataclass(frozen=True)
class Claims:
    """The claims of a rule's conditions about its operands: which are finite, which are constants with values."""

    rule: Rule

    @cached_property
    def finite(self) -> frozenset[str]:
        """Operands, or sequences of them, that a condition says are finite."""
        return frozenset(self._named({"finite"}))

    @cached_property
    def constant(self) -> frozenset[str]:
        """Operands that a condition says are known, or whose elements it reads."""
        return frozenset(self._named(_OF_VALUES))

    def _named(self, functions: Iterable[str]) -> set[str]:
        names: set[str] = set()
        for condition in self.rule.conditions:
            for part in conjuncts(condition.tree):
                names |= _arguments(part, functions)
        return names


#: Functions that hold of constants alone.
_OF_VALUES = OF_CONSTANTS | {"first"}


def _arguments(tree: ast.expr, functions: Iterable[str]) -> set[str]:
    """Names given to calls of these functions that have to hold, or have a value, for the condition to hold."""
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        loops = tree.args[0] if tree.func.id == "all" and len(tree.args) == 1 else None
        if isinstance(loops, ast.GeneratorExp) and len(loops.generators) == 1 and not loops.generators[0].ifs:
            return _over(loops, functions)
        if tree.func.id in functions:
            return {a.id for a in tree.args if isinstance(a, ast.Name)}
    if isinstance(tree, ast.Compare):
        return {n for part in (tree.left, *tree.comparators) for n in _arguments(part, functions)}
    return set()


def _over(loop: ast.GeneratorExp, functions: Iterable[str]) -> set[str]:
    """Sequences whose every element is an argument."""
    generator = loop.generators[0]
    inner = {n for part in conjuncts(loop.elt) for n in _arguments(part, functions)}
    pairs = zip(*loop_parts(generator), strict=False)
    return {s.id for v, s in pairs if isinstance(v, ast.Name) and isinstance(s, ast.Name) and v.id in inner}


@lru_cache(4096)
def general(rule: Rule) -> Rule:
    """The rule without conditions that only say when it is worth firing.

    Whether a tensor is known to the compiler does not change what it is equal to, so a law that was checked for
    constants holds for all tensors; the same goes for dims that are known.
    """
    conditions: list[Expression] = []
    for condition in rule.conditions:
        parts = [p for p in conjuncts(condition.tree) if not _is_when_known(p)]
        conditions += [Expression(ast.unparse(p), p) for p in parts]
    phase = "expand" if rule.phase == "associate" else rule.phase
    return replace(rule, conditions=tuple(conditions), phase=phase, origin="candidate")


def _is_when_known(tree: ast.expr) -> bool:
    inner = tree.operand if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not) else tree
    return isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in _WHEN_KNOWN


def states(law: Rule, rule: Rule) -> bool:
    """True if a law states the equation of the rule, in either direction, under conditions no stronger than the rule's.

    Turned round, a law says that its right side is equal to its left side wherever the left side is well-typed; the
    rule has to be about the same terms, so no more is asked.
    """
    if law.operators() != rule.operators():
        return False
    ours, given = sides(rule)
    for turned in (False, True):
        theirs, asked = sides(law, turned=turned)
        if ours == theirs and asked <= given:
            return True
    return False
