"""Matches of a left side of which nothing is fixed but what a path through its types and conditions says."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from eqsat.errors import GraphError
from eqsat.language.declaration import OpSpec
from eqsat.language.ops import spec
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, formula_of
from eqsat.language.parametric.numbers import UnknownNumber
from eqsat.language.parametric.paths import current
from eqsat.language.terms import Attrs, Bindings, DType, Expression, TensorType
from eqsat.language.terms.pattern import Siblings, Spread, Var
from eqsat.rewrites.conditions.expression import Undefined, compiled, evaluate
from eqsat.rewrites.conditions.roundings import exact_number
from eqsat.rewrites.instances.walk import Key, PatternStep, PatternWalk
from eqsat.rewrites.proof.attributes import (
    MEMBERS,
    FreeAttributes,
    NoMatch,
    chosen,
    lacks_axes,
    refuse_empty,
    size,
    stated_formulas,
    stated_values,
)
from eqsat.rewrites.proof.constants.operands import ElementsAsked, ParametricOperand
from eqsat.rewrites.proof.constants.patterns import PATTERNS
from eqsat.rewrites.proof.integers.parameters import highest_parameter_rank, partner
from eqsat.rewrites.proof.opaque.asked import asked_attributes, asked_by_name, asked_of, computed_names
from eqsat.rewrites.proof.opaque.ranks import has_other_rank, possible_ranks
from eqsat.rewrites.proof.opaque.signatures import refuses_several_types
from eqsat.rewrites.proof.opaque.types import OpaqueTypes, OpaqueValue
from eqsat.rewrites.proof.ranks import stated_operands
from eqsat.rewrites.proof.types import (
    EIGHT_BITS,
    element_types,
    index_types,
    names_of_type,
    tells_integers,
    told_apart,
    whole_limits,
)
from eqsat.rewrites.rules.rule import Rule, applications
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
        #: Attributes that are true or false, of records that are bound later, which others are made of before.
        self._switches: dict[Key | None, dict[str, Any]] = {}
        self._ranks: list[int] = []

    def left(self) -> list[Any]:
        """The roots of the left side; NoMatch where this path has none."""
        least = 2 if isinstance(self.rule.left, Siblings) else 1
        for names in _together(self.rule):
            length = chosen(range(least, max(MEMBERS, least) + 1), f"members of {names[0]}")
            self._lengths |= dict.fromkeys(names, length)
        for name, (app, place, rank) in stated_operands(self.rule).items():
            # What is said of these has fewer paths than operators of whatever sizes.
            ranks = [rank] if rank <= self.most_rank else []
            self._operand((name, None), spec(app.op), place, ranks, [None] * len(app.operands))
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
            most = highest_parameter_rank(declared, place, step.fixed)
            ranks = ranks if most is None else [rank for rank in ranks if rank <= most]
            operands.append(self._operand(source, declared, place, ranks, types_of(operands)))
            if place == 0 and operands[0] is not None:
                self._refuse_scalars(step, declared, types_of(operands)[0].rank)  # type: ignore[union-attr]
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
        types = self._typing(op, attrs, types_of(operands))
        if refuse_empty(types):  # what was asked makes dims shorter
            types = self._typing(op, attrs, types_of(operands))
        return Term(op, attrs, tuple(operands), types)

    def _refuse_scalars(self, step: PatternStep, declared: OpSpec, rank: int) -> None:
        """NoMatch where attributes would be of axes that there are not, before there are paths for all else."""
        if declared.name in self._typing.opaque or (step.record is not None and step.record in self.bound):
            return
        open_names = [n for n in declared.attrs if n not in step.fixed and n not in step.asked]
        open_names = [n for n in open_names if n not in step.names or step.names[n] not in self.bound]
        if lacks_axes(declared, open_names, rank):
            raise NoMatch(f"{declared.name} without axes")

    def _operand(
        self, source: Any, declared: OpSpec, place: int, ranks: Sequence[int], before: Sequence[TensorType | None]
    ) -> Any:
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
            other = partner(declared, place)
            if other is not None and (alike := before[other]) is not None:
                kinds = (alike.dtype.value,)
            elif stated is None and place < declared.min_operands and refuses_several_types(declared):
                # Of another type than those before it there is no match.
                there = dict.fromkeys(t.dtype.value for t in before if t is not None)
                kinds = tuple(kind for kind in there if kind in self._floats) or kinds
            kind = DType.of(str(chosen(kinds, f"type of {name}")))
            operand = ParametricOperand(name, TensorType(kind, dims))
            operand.is_number = stated is not None and DType.of(stated) in EIGHT_BITS
            if operand.is_number and tells_integers(self.rule):
                operand.limits = whole_limits(self.rule, kind.value, narrowest=False)
            self._bind(source, operand)
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
        for other in names_of_type(self.rule, name) if index is None and isinstance(thing, ParametricOperand) else ():
            if (other, None) not in self.bound:
                self._bind((other, None), thing.type.dtype.value)
        self._check()

    def _attributes(self, step: PatternStep, declared: OpSpec, types: Sequence[TensorType]) -> Attrs:
        record = self.bound.get(step.record) if step.record is not None else None
        known: dict[str, Any] = {**(record or self._switches.get(step.record, {})), **step.fixed}
        for name, key in step.names.items():
            if key in self.bound:
                known[name] = self.bound[key]
            elif name == "shape" and key[1] is None and (stated := self._stated_shape(key[0])) is not None:
                known[name] = stated
        for name, expression in step.asked.items():
            try:
                known[name] = self._value(expression, self._inside(step))
            except Undefined as error:
                raise NoMatch(error.what) from None
            except ElementsAsked:
                raise NotParametric(f"attribute {name} of elements") from None
            except KeyError:
                known[name] = self._value(expression, self._with_switches(expression, self._inside(step)))
        computed = computed_names(self.rule)
        read = {name for name, key in step.names.items() if key[0] in computed} | asked_by_name(self.rule)
        is_read = step.record is not None and step.record[0] in computed
        free = FreeAttributes(
            declared,
            types,
            known,
            f"{step.app.op} {len(self._applied)}",
            self.most_rank,
            self._kinds,
            stated_values(self.rule, step.record[0]) if step.record is not None and step.record[1] is None else {},
            () if is_read else declared.attrs.keys() - read,
        )
        looked = set(declared.attrs)
        if declared.name in self._typing.opaque:
            looked = asked_attributes(self.rule, declared) | (read & declared.attrs.keys())
            if is_read:
                looked = set(declared.attrs)
        attrs = declared.complete(
            {
                name: free.value(name)
                if name in looked or name in known
                else OpaqueValue(f"{free.name} {name}", default)
                for name, default in declared.attrs.items()
            }
        )
        if step.record is not None and step.record not in self.bound:
            self._bind(step.record, attrs)
        for name, key in step.names.items():
            if key not in self.bound:
                self._bind(key, attrs[name])
        return attrs

    def _stated_shape(self, name: str) -> tuple[Any, ...] | None:
        """The dims that a condition says a shape is equal to, if it does of what is bound already.

        On a path on which the condition holds the shape is that one, and there is none for each rank, and for each dim,
        on which it does not.
        """
        known = {**self.bindings.tensors, **self.bindings.attrs}
        for tree in stated_formulas(self.rule, name):
            said = Expression(ast.unparse(tree), tree)
            if name not in known and known.keys() >= set(compiled(said).names):
                earlier = current().left
                try:
                    value = self._value(said, self.bindings)
                except (NotParametric, Undefined, ElementsAsked):
                    current().left = earlier
                    continue
                if isinstance(value, tuple) and all(isinstance(dim, int) for dim in value):
                    if not all(current().decide(Fact.positive(formula_of(dim))) for dim in value):
                        raise NoMatch(f"no elements along some axis of {name}")
                    return value
        return None

    def _with_switches(self, expression: Expression, known: Bindings) -> Bindings:
        """Bindings with what an expression asks of records that are bound later, where that is true or false."""
        here = Bindings(dict(known.tensors), dict(known.attrs))
        for app in (app for root in self.rule.roots for app in applications(root)):
            key: Key = (str(app.record), None)
            if app.record is None or key in self.bound or app.record not in compiled(expression).names:
                continue
            defaults = {name: spec(app.op).attrs.get(name) for name in asked_of(expression, app.record)}
            chosen_here = self._switches.setdefault(key, {})
            for name, default in defaults.items():
                if name not in chosen_here and isinstance(default, bool) and name not in app.fields:
                    chosen_here[name] = chosen([False, True], f"{app.record} {name}")
            here.attrs[app.record] = Attrs(chosen_here)
        if not all(name in here.tensors or name in here.attrs for name in compiled(expression).names):
            raise NotParametric(f"{expression.text} of what is bound later")
        return here

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
            earlier = current().left
            try:
                holds = bool(self._value(condition, bindings))
            except Undefined as error:
                if self.rule.holds_undefined(condition):
                    continue
                raise NoMatch(error.what) from None
            except ElementsAsked:
                self._without(condition)
                continue
            except NotParametric:
                # It asks for numbers: without it less is assumed, and its refusal leaves nothing behind.
                current().left = earlier
                self.dropped.append(condition)
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
        first = operands[0] if operands and isinstance(tree.args[0], ast.Name) else None
        if tree.func.id in PATTERNS and isinstance(first, ParametricOperand):
            rest = [self._value(Expression(ast.unparse(a), a), self.bindings) for a in tree.args[1:]]
            first.pattern = first.pattern or PATTERNS[tree.func.id](first.name, first.type, *rest)
            return
        known = [one for one in operands if isinstance(one, ParametricOperand)]
        if tree.func.id == "is_all" and len(tree.args) == 2 and len(known) == 1 and not known[0].type.dtype.is_float:
            known[0].everywhere = self._value(Expression(ast.unparse(tree.args[1]), tree.args[1]), self.bindings)
        if not all(one.type.dtype.is_float for one in known):
            return  # what is said of numbers is not said of truth values and indices
        if tree.func.id == "finite":
            for one in known:
                one.is_finite = True
        if tree.func.id == "is_all" and len(tree.args) == 2 and len(known) == 1:
            number = self._value(Expression(ast.unparse(tree.args[1]), tree.args[1]), self.bindings)
            if type(number) in (int, float, UnknownNumber):
                known[0].uniform = number
        elif tree.func.id == "rounds" and len(known) == 1:
            known[0].uniform, known[0].is_rounded = exact_number(tree.args[1]), True
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


def _together(rule: Rule) -> list[tuple[str, ...]]:
    """The sequences of the left side, those that a loop runs over in step together."""
    from eqsat.rewrites.instances.typings import tied

    return tied(rule, sorted(rule.tensor_groups | rule.attr_groups))
