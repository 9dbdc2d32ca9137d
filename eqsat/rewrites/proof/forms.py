"""Matches of a left side of which nothing is fixed but what a path through its types and conditions says."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from eqsat.errors import GraphError
from eqsat.language.declaration import OpSpec
from eqsat.language.ops import spec
from eqsat.language.parametric.integers import NotParametric
from eqsat.language.parametric.numbers import UnknownNumber
from eqsat.language.terms import Attrs, Bindings, DType, Expression, TensorType
from eqsat.language.terms.pattern import Siblings, Spread, Var
from eqsat.rewrites.conditions.expression import Undefined, compiled, evaluate
from eqsat.rewrites.instances.walk import Key, PatternStep, PatternWalk
from eqsat.rewrites.proof.attributes import MEMBERS, FreeAttributes, NoMatch, chosen, size
from eqsat.rewrites.proof.opaque.ranks import has_other_rank, possible_ranks
from eqsat.rewrites.proof.opaque.signatures import refuses_several_types
from eqsat.rewrites.proof.opaque.types import OpaqueTypes, OpaqueValue
from eqsat.rewrites.proof.ranks import stated_operands
from eqsat.rewrites.proof.types import element_types, index_types, told_apart
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import Term, Terms, types_of

#: What a condition on an operand says of each of its elements.
SIGNS: dict[str, Callable[[Any], Any]] = {
    "is_positive": lambda element: element > 0,
    "is_nonnegative": lambda element: element >= 0,
    "invertible": lambda element: element != 0,
}


def refuse_identities(rule: Rule) -> None:
    """NotParametric where an expression asks whether something is the very same object as another than None."""
    for expression in rule.expressions():
        for node in ast.walk(expression.tree):
            if isinstance(node, ast.Compare) and any(isinstance(o, ast.Is | ast.IsNot) for o in node.ops):
                sides = (node.left, *node.comparators)
                if not any(isinstance(side, ast.Constant) and side.value is None for side in sides):
                    raise NotParametric("whether one object is another")


def refuse_unsure(error: Undefined) -> None:
    """NotParametric where an expression may have no value only because some numbers in it are unknown."""
    if isinstance(error.__cause__, TypeError | AttributeError):
        raise NotParametric(error.what) from None


class ElementsAsked(Exception):  # noqa: N818 - nothing is wrong
    """Leaves a condition that asks for elements, which have no numbers here."""


@dataclass(eq=False)
class ParametricOperand:
    """An operand of unknown size and elements; what is asked of those raises ElementsAsked."""

    name: str
    type: TensorType
    uniform: Any = None
    is_identity: bool = False
    is_matched: bool = False
    #: The number that all are, of integers.
    everywhere: Any = None

    def __eq__(self, other: object) -> bool:
        raise NotParametric("whether operands are the same")

    __hash__ = object.__hash__

    def _asked(self) -> NoReturn:
        raise ElementsAsked(self.name)

    def _either(self, name: str) -> bool:
        """Not known; where the right side's attributes ask, there is a path for either answer."""
        if not self.is_matched:
            self._asked()
        return bool(chosen([True, False], f"{self.name} {name}"))

    @property
    def constant(self) -> bool:
        """Not known."""
        self._asked()

    @property
    def number(self) -> Any:
        """The one number that all elements are, where a condition says that they are one; else not known."""
        if self.uniform is None:
            self._asked()
        return self.uniform

    @property
    def value(self) -> Any:
        """Not known."""
        self._asked()

    @property
    def elements(self) -> Any:
        """Not known."""
        self._asked()

    @property
    def finite(self) -> bool:
        """Not known."""
        return self._either("finite")

    @property
    def attends(self) -> bool:
        """Not known."""
        return self._either("attends")

    @property
    def diagonal(self) -> float | None:
        """Not known."""
        self._asked()


class FormWalk(PatternWalk):
    """A walk over a left side that gives its names operands of unknown sizes, of at most some rank.

    `dropped` are the conditions on elements, of which only what `said` and the operands hold is used.
    """

    def __init__(self, rule: Rule, most_rank: int, typing: OpaqueTypes) -> None:
        self.rule, self.most_rank, self._typing = rule, most_rank, typing
        self.bindings = Bindings()
        self.bound: dict[Key, Any] = {}
        self.dropped: list[Expression] = []
        #: What conditions say of the elements of operands.
        self.said: list[tuple[str, Callable[[Any], Any]]] = []
        self._lengths: dict[str, int] = {}
        self._floats, self._kinds = told_apart(rule), element_types(rule)
        # What is said of one operand alone is asked first, as it leaves fewer paths for what is said of several.
        self._pending = sorted(rule.conditions, key=lambda condition: len(compiled(condition).names))
        self._terms = Terms(rule)
        self._applied: list[Any] = []
        self._ranks: list[int] = []

    def left(self) -> list[Any]:
        """The roots of the left side; NoMatch where this path has none."""
        least = 2 if isinstance(self.rule.left, Siblings) else 1
        for names in _together(self.rule):
            length = chosen(range(least, max(MEMBERS, least) + 1), f"members of {names[0]}")
            self._lengths |= dict.fromkeys(names, length)
        for name, (app, place, rank) in stated_operands(self.rule).items():
            # What is said of these has fewer paths than operators of whatever sizes.
            self._operand((name, None), spec(app.op), place, [rank] if rank <= self.most_rank else [])
        roots = self.roots(self.rule.left)
        self._check(everything=True)
        for operand in self.operands:
            operand.is_matched = True
        return [self._applied[number] for number in roots]

    @property
    def operands(self) -> list[ParametricOperand]:
        """The operands, each once."""
        return [thing for thing in self.bound.values() if isinstance(thing, ParametricOperand)]

    def length(self, spread: Spread) -> int:
        """The number of elements of a sequence."""
        name = spread.item.name if isinstance(spread.item, Var) and not spread.over else spread.over[0][1]
        return self._lengths[name]

    def element(self, spread: Spread, index: int) -> None:
        """Nothing is chosen before the elements of a loop."""

    def begin(self, step: PatternStep) -> None:
        """Nothing is chosen before an application's operands."""

    def apply(self, step: PatternStep, begun: None) -> int:
        """The term of an operator, its open operands and attributes chosen."""
        declared = spec(step.app.op)
        operands: list[Any] = []
        for place, source in enumerate(step.operands):
            # Before there are paths for all else.
            if isinstance(source, int) and has_other_rank(declared, place, self._applied[source].type.rank):
                raise NoMatch(f"{declared.name} of another rank")
        for place, source in enumerate(step.operands):
            known = [None if t is None else t.rank for t in types_of(operands)]
            ranks = possible_ranks(declared, place, known, self.most_rank)
            operands.append(self._operand(source, declared, place, ranks))
        types = types_of(operands)
        needed = types[: declared.min_operands]
        if len({t.dtype for t in needed if t is not None}) > 1 and refuses_several_types(declared):
            raise NoMatch(f"{declared.name} of several element types")
        attrs = self._attributes(step, declared, [t for t in types if t is not None])
        try:
            made = self._made(step.app.op, attrs, operands)
        except GraphError as error:
            if isinstance(error.__context__, TypeError | AttributeError):
                raise NotParametric(error.what) from None
            raise NoMatch(error.what) from None
        self._applied.append(made)
        self._check()
        return len(self._applied) - 1

    def _made(self, op: str, attrs: Attrs, operands: Sequence[Any]) -> Any:
        return Term(op, attrs, tuple(operands), self._typing(op, attrs, types_of(operands)))

    def _operand(self, source: Any, declared: OpSpec, place: int, ranks: Sequence[int]) -> Any:
        if source is None or isinstance(source, int):
            return None if source is None else self._applied[source]
        if source not in self.bound:
            name = source[0] if source[1] is None else f"{source[0]}#{source[1]}"  # xs0 may be another operand
            if not ranks:
                raise NoMatch(f"{declared.name} of a rank above {self.most_rank}")
            rank = chosen(ranks, f"rank of {name}")
            dims = tuple(size(f"{name}.{axis}") for axis in range(rank))
            stated = declared.dtypes.get(place)
            if declared.form is not None and place >= len(declared.form.terms) and stated is None:
                raise NotParametric(f"an operand of {declared.name} of any element type")
            kinds = self._floats if stated is None else index_types(self.rule, stated)
            kind = DType.of(str(chosen(kinds, f"type of {name}")))
            self._bind(source, ParametricOperand(name, TensorType(kind, dims)))
        return self.bound[source]

    @property
    def is_mixed(self) -> bool:
        """True if operands are floats of several types."""
        return len({one.type.dtype for one in self.operands if one.type.dtype.is_float}) > 1

    def _bind(self, key: Key, thing: Any) -> None:
        self.bound[key] = thing
        name, index = key
        where: dict[str, Any] = self.bindings.tensors if isinstance(thing, ParametricOperand) else self.bindings.attrs
        if index is None:
            where[name] = thing
        elif all((name, i) in self.bound for i in range(self._lengths[name])):
            where[name] = tuple(self.bound[(name, i)] for i in range(self._lengths[name]))
        self._check()

    def _attributes(self, step: PatternStep, declared: OpSpec, types: Sequence[TensorType]) -> Attrs:
        record = self.bound.get(step.record) if step.record is not None else None
        known: dict[str, Any] = {**(record or {}), **step.fixed}
        for name, key in step.names.items():
            if key in self.bound:
                known[name] = self.bound[key]
        for name, expression in step.asked.items():
            try:
                known[name] = self._value(expression, self._inside(step))
            except Undefined as error:
                raise NoMatch(error.what) from None
            except ElementsAsked:
                raise NotParametric(f"attribute {name} of elements") from None
            except KeyError:
                raise NotParametric(f"attribute {name} of what is bound later") from None
        free = FreeAttributes(
            declared, types, known, f"{step.app.op} {len(self._applied)}", self.most_rank, self._kinds
        )
        looked = set(declared.attrs)
        if declared.name in self._typing.opaque:
            looked = asked_attributes(self.rule, declared)
            computed = computed_names(self.rule)
            looked |= {name for name, key in step.names.items() if key[0] in computed}
            if step.record is not None and step.record[0] in computed:
                looked = set(declared.attrs)
        attrs = declared.complete(
            {
                name: free.value(name) if name in looked or name in known else OpaqueValue(f"{free.name} {name}")
                for name in declared.attrs
            }
        )
        if step.record is not None and step.record not in self.bound:
            self._bind(step.record, attrs)
        for name, key in step.names.items():
            if key not in self.bound:
                self._bind(key, attrs[name])
        return attrs

    def _inside(self, step: PatternStep) -> Bindings:
        here = Bindings(dict(self.bindings.tensors), dict(self.bindings.attrs))
        for variable, key in step.loop.items():
            if key in self.bound:
                thing = self.bound[key]
                (here.tensors if isinstance(thing, ParametricOperand) else here.attrs)[variable] = thing
        return here

    def _check(self, *, everything: bool = False) -> None:
        """NoMatch where a condition does not hold whose names are all bound."""
        bindings = self.bindings
        for condition in list(self._pending):
            if not everything and not all(
                name in bindings.tensors or name in bindings.attrs for name in compiled(condition).names
            ):
                continue
            self._pending.remove(condition)
            try:
                holds = bool(self._value(condition, bindings))
            except Undefined as error:
                raise NoMatch(error.what) from None
            except ElementsAsked:
                self._without(condition)
                continue
            if not holds:
                raise NoMatch(condition.text)

    def _value(self, expression: Expression, bindings: Bindings) -> Any:
        """The value of an expression; Undefined only where it has none whatever unknown numbers are."""
        try:
            return evaluate(expression, bindings)
        except Undefined as error:
            refuse_unsure(error)
            raise

    def _without(self, condition: Expression) -> None:
        """Leave out a condition on elements, but for the number that it says they are."""
        self.dropped.append(condition)
        tree = condition.tree
        if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.args) or tree.keywords:
            return
        operands = [self.bindings.tensors.get(a.id) for a in tree.args if isinstance(a, ast.Name)]
        known = [one for one in operands if isinstance(one, ParametricOperand)]
        if tree.func.id == "is_all" and len(tree.args) == 2 and len(known) == 1 and not known[0].type.dtype.is_float:
            known[0].everywhere = self._value(Expression(ast.unparse(tree.args[1]), tree.args[1]), self.bindings)
        if not all(one.type.dtype.is_float for one in known):
            return  # what is said of numbers is not said of truth values and indices
        if tree.func.id == "is_all" and len(tree.args) == 2 and len(known) == 1:
            number = self._value(Expression(ast.unparse(tree.args[1]), tree.args[1]), self.bindings)
            if type(number) in (int, float, UnknownNumber):
                known[0].uniform = number
        elif tree.func.id == "is_zero" and len(known) == 1:
            known[0].uniform = 0
        elif tree.func.id == "is_uniform" and len(known) == 1:
            known[0].uniform = UnknownNumber.named(f"number of {known[0].name}")
        elif tree.func.id == "is_eye" and len(known) == 1:
            dims = known[0].type.dims
            if len(dims) != 2 or dims[0] != dims[1]:
                raise NoMatch(condition.text)
            known[0].is_identity = True
        elif tree.func.id in SIGNS:
            self.said += [(one.name, SIGNS[tree.func.id]) for one in known]


def asked_attributes(rule: Rule, declared: OpSpec) -> set[str]:
    """The attributes of an operator that its index form speaks of, or a rule asks for by their names."""
    form = declared.form
    named = {"direction", "layout"} if form is None else {form.result.attribute, *form.sizes.values(), *form.linear_if}
    return (named | _asked_by_name(rule)) & set(declared.attrs)


@cache
def _asked_by_name(rule: Rule) -> frozenset[str]:
    trees = (expression.tree for expression in rule.expressions())
    return frozenset(node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute))


@cache
def computed_names(rule: Rule) -> frozenset[str]:
    """The names that expressions of a rule compute with, more than to hand them on or to ask for an attribute."""
    found: set[str] = set()
    for expression in rule.expressions():
        if not isinstance(expression.tree, ast.Name):
            asked = {id(n.value) for n in ast.walk(expression.tree) if isinstance(n, ast.Attribute)}
            found |= {n.id for n in ast.walk(expression.tree) if isinstance(n, ast.Name) and id(n) not in asked}
    return frozenset(found)


def _together(rule: Rule) -> list[tuple[str, ...]]:
    """The sequences of the left side, those that a loop runs over in step together."""
    from eqsat.rewrites.instances.typings import tied

    return tied(rule, sorted(rule.tensor_groups | rule.attr_groups))
