"""Rewrite rules: two patterns, the conditions under which they are equal, and the laws they state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from eqsat.errors import GraphError, RuleError, ShapeError
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.declaration.spec import REQUIRED, OpSpec
from eqsat.language.ops import spec
from eqsat.language.terms.pattern import (
    ABSENT,
    App,
    Bindings,
    Expression,
    Left,
    Pattern,
    Siblings,
    Spread,
    Var,
    roots_of,
    spread_roots,
)
from eqsat.rewrites.conditions.expression import bound_name, compiled, evaluate

#: When a rule runs: always; to grow; once a group of siblings is known; towards fused operators; only on request.
PHASES = ("simplify", "expand", "merge", "fuse", "associate")
#: Whose rule it is: written by hand, implied by a declaration, found by the generator, a user's, a theory's that made
#: it for one use, or nobody's yet: a candidate may become a rule, one that is asked is an equation to prove or refute,
#: whose left side may be a bare variable.
Origin: TypeAlias = Literal["axiom", "derived", "library", "given", "identity", "candidate", "asked"]
#: The least that a user's rule has to be: proved for every size, or true of all that was tried.
Trust: TypeAlias = Literal["proved", "bounded"]
#: The field of a right-side App that holds an expression whose value is a record, ``slice(x, **after(x, s, t))``.
SPLICE = "**"
#: Where errors say they are, until the parser puts file, line and column.
LEFT, RIGHT = "left side", "right side"


@dataclass(frozen=True)
class Rule:
    """A rewrite rule; RuleError at construction where a side is not well formed, or the sides differ in outputs.

    That a given one has the same types on both sides is for its reader to check (`eqsat.rewrites.proof.check`).

    `left` is one App a root, or a group of siblings; `right` has one pattern a root, or is a single App with as many
    outputs (split). Where `left` is a single App and `right` has several patterns, these are its outputs in order, the
    rule's `parts`: ``gru(x, w, r, b) => y, h``. `text` is canonical: evidence is keyed by its hash. `where` is file,
    line and column. `reason` says why a hand-written rule is one.

    What a loop runs over is a sequence of tensors where its variable stands for an operand, and a sequence of
    attributes or records where it names those: ``concat(*[slice(x, **s) for s in ss], axis=k)`` binds the records ss.
    """

    name: str
    phase: str
    left: Left
    right: tuple[Pattern, ...]
    conditions: tuple[Expression, ...] = ()
    laws: tuple[int, ...] = ()
    text: str = ""
    where: str = ""
    origin: Origin = "given"
    reason: str = ""
    #: True for an equation whose left side, as it was asked, is the bare variable on the right side here.
    swapped: bool = False
    #: Those of the conditions that its numbers imply, as text.
    implied: tuple[str, ...] = ()
    #: What the left side binds: tensors, sequences of tensors, fields and records, sequences of fields and records.
    tensors: frozenset[str] = field(init=False, default=frozenset())
    tensor_groups: frozenset[str] = field(init=False, default=frozenset())
    attrs: frozenset[str] = field(init=False, default=frozenset())
    attr_groups: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        names = _Names()
        for app in self.roots:
            names.left(app, dict(self.left.over) if isinstance(self.left, Siblings) else {})
        for kind in ("tensors", "tensor_groups", "attrs", "attr_groups"):
            object.__setattr__(self, kind, frozenset(getattr(names, kind)))
        known = self.tensors | self.tensor_groups | self.attrs | self.attr_groups
        if names.deferred - known - names.elements:
            raise RuleError(f"left side reads unbound {_quoted(names.deferred - known - names.elements)}")
        for condition in self.conditions:
            _check_names(condition, known, "a condition")
        try:
            for pattern in self.right:
                _check_right(pattern, self.tensors, self.tensor_groups, known)
        except RuleError as error:
            raise RuleError(error.what, where=RIGHT, expected=error.expected, remedy=error.remedy) from None
        splits = len(self.right) == 1 and isinstance(self.right[0], App) and self.right[0].op == "split"
        if isinstance(self.left, Siblings) and not splits:
            raise RuleError("a group of siblings needs one split on the right", expected="[…] => split(…)")
        if not isinstance(self.left, Siblings) and not splits and len(self.left) not in (1, self.results):
            raise RuleError(
                f"{len(self.left)} outputs on the left, {self.results} on the right",
                expected="as many outputs on both sides",
            )

    @property
    def roots(self) -> tuple[App, ...]:
        """The left side's root patterns; the one form of all siblings for a group."""
        return roots_of(self.left)

    @property
    def sides(self) -> tuple[Pattern, Pattern] | None:
        """The sides of a rule about one value; None for one about several."""
        if isinstance(self.left, Siblings) or len(self.left) != 1 or len(self.right) != 1:
            return None
        return self.left[0], self.right[0]

    @property
    def results(self) -> int:
        """The outputs of the right side, of a split one: a function of a comprehension may have several."""
        function = function_of(self.right[0].op) if len(self.right) == 1 and isinstance(self.right[0], App) else None
        return len(self.right) if function is None else len(function.results)

    @property
    def parts(self) -> int:
        """The number of outputs of a single root that the right side states one by one; 0 where it states the roots."""
        return len(self.right) if not isinstance(self.left, Siblings) and len(self.left) < len(self.right) else 0

    @cached_property
    def matched(self) -> frozenset[str]:
        """The operators that occur on the left side, which the e-graph must have for the rule to match."""
        return frozenset(p.op for root in self.roots for p in _parts(root) if isinstance(p, App))

    @property
    def is_equation(self) -> bool:
        """True if the sides are terms of one result each that lack no operand: proofs by logic read no others."""
        sides = (*self.roots, *self.right)
        return not self.parts and not any(p == ABSENT for side in sides for p in _parts(side))

    def operators(self) -> frozenset[str]:
        """The operators that occur on either side."""
        return frozenset(app.op for side in (self.roots, self.right) for p in side for app in applications(p))

    def expressions(self) -> Iterator[Expression]:
        """Every expression of the conditions and of the attributes on either side."""
        yield from self.conditions
        for side in (self.roots, self.right):
            for pattern in side:
                for part in _parts(pattern):
                    yield from part.fields.values() if isinstance(part, App) else part.window or ()

    def refused(self, bindings: Bindings) -> str | None:
        """Why the rule does not fire under these bindings; None where all conditions hold."""
        reasons = (self.refused_by(condition, bindings) for condition in self.conditions)
        return next((reason for reason in reasons if reason is not None), None)

    def reads(self, condition: Expression) -> tuple[str, ...]:
        """The names that a condition reads, in order."""
        return compiled(condition).names

    def refused_by(self, condition: Expression, bindings: Bindings) -> str | None:
        """Why a condition does not hold under these bindings; None where it does."""
        try:
            holds = evaluate(condition, bindings)
        except ShapeError as error:
            return error.what
        return None if holds else str(getattr(holds, "reason", "")) or f"not {condition.text}"

    def holds_undefined(self, condition: Expression) -> bool:
        """True of a condition that holds where it has no value: none of a rule does, but for one that is denied."""
        return False

    def attributes(self, app: App, bindings: Bindings) -> Mapping[str, Any]:
        """The attributes of a right-side App: its record, then its fields; Undefined where one has no value."""
        record: Mapping[str, Any] = bindings.attrs[app.record] if app.record is not None else {}
        if not app.fields:
            return record
        values = dict(record)
        for name, expression in app.fields.items():
            if name == SPLICE:
                values.update(evaluate(expression, bindings))
            else:
                values[name] = evaluate(expression, bindings)
        return values

    def window(self, spread: Spread, bindings: Bindings) -> range:
        """The elements of a right-side spread to take; ShapeError where its bounds are not defined."""
        count = length(bindings, spread)
        if spread.window is None:
            return range(count)
        first, last = (int(evaluate(e, bindings)) for e in spread.window)
        return range(count)[first:last]

    def __hash__(self) -> int:
        """By name and text alone: the patterns of two thousand laws, the key of a cache, are long to go through."""
        return hash((self.name, self.text))

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def applications(pattern: Pattern | Spread) -> Iterator[App]:
    """Every App in a pattern, operands before the operators that use them; those left out are none."""
    return (part for part in _parts(pattern) if isinstance(part, App) and part != ABSENT)


def loops(left: Left) -> list[tuple[tuple[str, str], ...]]:
    """The variables and sequences of every loop of a left side, inner ones first."""
    parts = (part for root in spread_roots(left) for part in _parts(root))
    return [part.over for part in parts if isinstance(part, Spread)]


def _parts(pattern: Pattern | Spread) -> Iterator[App | Spread]:
    if isinstance(pattern, Spread):
        yield from _parts(pattern.item)
        yield pattern
    elif isinstance(pattern, App):
        for operand in pattern.operands:
            yield from _parts(operand)
        yield pattern


def pattern_fields(app: App) -> dict[str, Any]:
    """The demand of a left-side App on each attribute: an Expression, or the default that one left out must have."""
    if app.record is not None:
        return dict(app.fields)
    return {**spec(app.op).attrs, **app.fields}


def length(bindings: Bindings, spread: Spread | Siblings) -> int:
    """The number of elements a spread or a group has."""
    if isinstance(spread, Spread) and not spread.over and isinstance(spread.item, Var):
        names = [spread.item.name]
    else:
        names = [sequence for _, sequence in spread.over]
    group = bindings.tensors.get(names[0]) or bindings.attrs[names[0]]
    return len(group) if isinstance(group, tuple) else 1


class _Names:
    """A collector of the names that a left side binds."""

    def __init__(self) -> None:
        self.tensors: set[str] = set()
        self.tensor_groups: set[str] = set()
        self.attrs: set[str] = set()
        self.attr_groups: set[str] = set()
        self.deferred: set[str] = set()
        self.elements: set[str] = set()

    def left(self, pattern: Pattern | Spread, loop: Mapping[str, str]) -> None:
        if isinstance(pattern, Var):
            self._add(pattern.name, loop, self.tensors, self.tensor_groups)
        elif pattern == ABSENT:
            return
        elif isinstance(pattern, Spread):
            if pattern.window is not None:
                raise RuleError("a window of a sequence on a left side", expected="the whole sequence, *xs")
            if loop and pattern.over:
                raise RuleError("a loop inside a loop on the left side", expected="one loop")
            if isinstance(pattern.item, Var) and not pattern.over:
                self._add(pattern.item.name, {pattern.item.name: pattern.item.name}, self.tensors, self.tensor_groups)
            else:
                self.left(pattern.item, dict(pattern.over))
                self._all_used(pattern.over)
        else:
            self._application(pattern, loop)

    def _application(self, app: App, loop: Mapping[str, str]) -> None:
        declared = _declared(app)
        if SPLICE in app.fields:
            raise RuleError(f"{app.op} has a record that is no name", expected="one record, **a")
        if app.op == "split":
            raise RuleError("split on a left side", expected="slice: the e-graph holds slices")
        if any(isinstance(o, Spread) for o in app.operands) and len(app.operands) > 1:
            raise RuleError(f"{app.op} of a spread and more on a left side", expected="the spread alone")
        if app.record is not None:
            self._add(app.record, loop, self.attrs, self.attr_groups)
        for name, expected in pattern_fields(app).items():
            if expected is REQUIRED:
                raise RuleError(f"{app.op} needs attribute {name!r}", expected=f"{app.op}({name}=…) or **a")
            if isinstance(expected, Expression):
                variable = bound_name(expected)
                if variable is None:
                    self.deferred |= set(compiled(expected).names)
                else:
                    self._add(variable, loop, self.attrs, self.attr_groups)
        for operand in app.operands:
            self.left(operand, loop)
        _check_arity(app, declared)

    def _add(self, name: str, loop: Mapping[str, str], single: set[str], groups: set[str]) -> None:
        if name in loop:
            self.elements.add(name)
            groups.add(loop[name])
        else:
            single.add(name)
        kinds = (self.tensors, self.tensor_groups, self.attrs, self.attr_groups)
        if sum((loop.get(name, name)) in kind for kind in kinds) > 1:
            raise RuleError(f"{loop.get(name, name)!r} stands for two kinds of thing", expected="one meaning a name")

    def _all_used(self, over: tuple[tuple[str, str], ...]) -> None:
        for variable, _ in over:
            if variable not in self.elements:
                raise RuleError(f"the loop variable {variable!r} is not used", expected="a variable of the pattern")


def _declared(app: App) -> OpSpec:
    try:
        declared = spec(app.op)
    except GraphError as error:
        raise RuleError(error.what, expected=error.expected, remedy=error.remedy) from None
    for name in app.fields:
        if name not in declared.attrs and name != SPLICE:
            raise RuleError(
                f"{app.op} has no attribute {name!r}", expected="one of " + (", ".join(declared.attrs) or "none")
            )
    return declared


def _check_arity(app: App, declared: OpSpec) -> None:
    if app.operands[-1:] == (ABSENT,) or ABSENT in app.operands[: declared.min_operands]:
        raise RuleError(
            f"{app.op} leaves out an operand that it needs, or its last",
            expected="None for an optional operand before others",
            remedy="leave away what is left out at the end",
        )
    if any(isinstance(o, Spread) for o in app.operands):
        if declared.max_operands is not None:
            raise RuleError(f"{app.op} does not take any number of operands", expected="a variadic operator")
        return
    most = declared.max_operands
    if len(app.operands) < declared.min_operands or (most is not None and len(app.operands) > most):
        raise RuleError(
            f"{app.op} got {len(app.operands)} operands",
            expected=f"{declared.min_operands} to {'any number' if most is None else most}",
        )


def _check_right(
    pattern: Pattern | Spread, single: frozenset[str], groups: frozenset[str], known: frozenset[str]
) -> None:
    if isinstance(pattern, Var):
        if pattern.name not in single:
            raise RuleError(f"right side uses unbound variable {pattern.name!r}", expected=f"one of {_quoted(single)}")
    elif isinstance(pattern, Spread):
        for bound in pattern.window or ():
            _check_names(bound, known, "the window of a spread")
        if not pattern.over and isinstance(pattern.item, Var):
            if pattern.item.name not in groups:
                raise RuleError(
                    f"right side spreads unbound {pattern.item.name!r}", expected=f"one of {_quoted(groups)}"
                )
            return
        for _, sequence in pattern.over:
            if sequence not in known:
                raise RuleError(f"right side loops over unbound {sequence!r}", expected=f"one of {_quoted(known)}")
        inside = frozenset(v for v, _ in pattern.over)
        _check_right(pattern.item, single | inside, groups, known | inside)
    elif pattern != ABSENT:
        declared = _declared(pattern)
        if pattern.record is not None and pattern.record not in known:
            raise RuleError(f"right side uses unbound record {pattern.record!r}", expected=f"one of {_quoted(known)}")
        for name, default in declared.attrs.items():
            stated = name in pattern.fields or SPLICE in pattern.fields or pattern.record is not None
            if default is REQUIRED and not stated:
                raise RuleError(f"{pattern.op} needs attribute {name!r}", expected=f"{pattern.op}({name}=…)")
        for expression in pattern.fields.values():
            _check_names(expression, known, f"an attribute of {pattern.op}")
        _check_arity(pattern, declared)
        for operand in pattern.operands:
            _check_right(operand, single, groups, known)


def _check_names(expression: Expression, known: frozenset[str], place: str) -> None:
    unbound = [n for n in compiled(expression).names if n not in known]
    if unbound:
        raise RuleError(f"{place} reads unbound {_quoted(unbound)}", where=expression.text, expected=_quoted(known))


def _quoted(names: Any) -> str:
    return ", ".join(repr(n) for n in sorted(names)) or "none"
