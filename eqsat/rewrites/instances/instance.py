"""Instances of rules: operands and attributes drawn for a left side."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from eqsat.errors import GraphError, RuleError
from eqsat.language.declaration.spec import REQUIRED, OpSpec
from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.pattern import ABSENT, App, Bindings, Expression, Pattern, Siblings, Spread, Var
from eqsat.language.terms.types import Shape, TensorType
from eqsat.rewrites.conditions.expression import Undefined, bound_name, compiled, evaluate
from eqsat.rewrites.instances.elements import Drawn, Filler
from eqsat.rewrites.instances.fitting import selects_along_axis
from eqsat.rewrites.rules.rule import Rule, pattern_fields
from eqsat.rewrites.rules.term import left_terms, right_terms

#: The element type of operands, wide enough for attributes to be exact in it.
_FLOAT = "float64"
#: Values for attributes that sample rules leave open; all are exact in any float.
_OPEN: dict[str, tuple[Any, ...]] = {
    "to": ("float32", "float64"),
    "dtype": (_FLOAT,),
    "alpha": (1.0, 0.5, 2.0),
    "beta": (1.0, 0.5, 0.25),
    "epsilon": (0.25, 0.5),
    "approximate": ("none", "tanh"),
    "clip": (None, 0.5),
    "input_forget": (False, True),
    "linear_before_reset": (False, True),
}
#: Values for those that say what the axes of operands are, so that shapes are drawn for them.
_AXES: dict[str, tuple[Any, ...]] = {"layout": (0, 0, 1)}


class Reject(Exception):  # noqa: N818  (a signal, not an error)
    """The operands drawn so far do not fit the rest of the left side."""


@dataclass
class _DrawnScope:
    """The bindings so far; inside a loop, those of the element that an index stands at."""

    tensors: dict[str, Drawn] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, list[Any]] = field(default_factory=dict)
    loop: dict[str, str] = field(default_factory=dict)
    index: int = 0

    def get(self, kind: dict[str, Any], name: str) -> Any:
        if name in self.loop:
            group = self.groups.get(self.loop[name], [])
            return group[self.index] if self.index < len(group) else None
        return kind.get(name)

    def set(self, kind: dict[str, Any], name: str, thing: Any) -> None:
        if name in self.loop:
            self.groups.setdefault(self.loop[name], []).append(thing)
        else:
            kind[name] = thing

    def bindings(self) -> Bindings:
        tensors: dict[str, Any] = dict(self.tensors)
        attrs = dict(self.attrs)
        items = [(s, tuple(g)) for s, g in self.groups.items()]
        items += [(v, self.get({}, v)) for v in self.loop]
        for name, thing in items:
            if thing is None or thing == ():
                continue
            first = thing[0] if isinstance(thing, tuple) and name in self.groups else thing
            (tensors if isinstance(first, Drawn) else attrs)[name] = thing
        return Bindings(tensors, attrs)


class Sampler:
    """A source of instances of a rule's left side, drawn deterministically from a seed, or by the choices of `rng`."""

    def __init__(self, rule: Rule, seed: int = 0, rng: random.Random | None = None) -> None:
        self.rule = rule
        self._rng = random.Random(f"{seed}:{rule.text}") if rng is None else rng
        self._filler = Filler(rule)
        #: Why the conditions refused what typed, each reason as often as it was given.
        self.refusals: Counter[str] = Counter()

    def draw(self, tries: int) -> Bindings | None:
        """Bindings whose left side types and whose conditions hold, or None after so many tries."""
        for _ in range(tries):
            try:
                bindings = self._attempt()
            except (Reject, GraphError):
                continue
            if bindings is None:
                continue
            reason = self.rule.refused(bindings)
            if reason is not None:
                self.refusals[reason] += 1
            elif self._defined(bindings):
                return bindings
        return None

    def _defined(self, bindings: Bindings) -> bool:
        """True if the right side's attributes have values; whether it types is for the check to say."""
        try:
            right_terms(self.rule, bindings)
        except Undefined:
            return False
        except GraphError:
            return True
        return True

    def _attempt(self) -> Bindings | None:
        scope = _DrawnScope()
        if isinstance(self.rule.left, Siblings):
            self._loop(self.rule.left.item, self.rule.left.over, scope)
        else:
            for app in self.rule.left:
                self._application(app, scope)
        bindings = scope.bindings()
        for operand in _operands(bindings):
            self._filler.fill(operand, bindings, self._rng)
        try:
            left_terms(self.rule, bindings)  # types once more: fields that were expressions are now known
        except GraphError:
            return None
        return bindings

    def _application(self, app: App, scope: _DrawnScope) -> TensorType:
        declared = spec(app.op)
        known = self._known_attributes(app, scope)
        operands = self._operand_types(app, scope)
        shapes: list[Shape | None] = [t.shape if t is not None else None for t in operands]
        if declared.sample is None:
            raise RuleError(
                f"operator {app.op!r} has no sample rule",
                where=declared.where,
                expected="one, to draw instances of its rules",
                remedy="declare it with sample=…, with an index form, or as pointwise",
            )
        known |= {n: self._rng.choice(v) for n, v in _AXES.items() if n in declared.attrs and n not in known}
        drawn = declared.drawn(self._rng, shapes, known)
        if drawn is None:
            raise Reject
        left_open = {n: self._rng.choice(v) for n, v in _OPEN.items() if n in declared.attrs and n not in known}
        attrs = declared.complete({**drawn[1], **left_open})
        self._bind_operands(app, declared, drawn[0], operands, scope, attrs)
        self._bind_attributes(app, attrs, scope)
        return declared.result_types(operands, attrs)[0]

    def _known_attributes(self, app: App, scope: _DrawnScope) -> dict[str, Any]:
        known: dict[str, Any] = {}
        if app.record is not None:
            known.update(scope.get(scope.attrs, app.record) or {})
        here = scope.bindings()
        for name, expected in pattern_fields(app).items():
            if not isinstance(expected, Expression):
                if expected is not REQUIRED:
                    known[name] = expected
            elif bound_name(expected) is not None:
                found = scope.get(scope.attrs, expected.text)
                if found is not None:
                    known[name] = found
            elif all(n in here.tensors or n in here.attrs for n in compiled(expected).names):
                known[name] = Attrs(v=evaluate(expected, here))["v"]
        return known

    def _operand_types(self, app: App, scope: _DrawnScope) -> list[TensorType | None]:
        groups: list[list[TensorType | None]] = [[] for _ in app.operands]
        # Operators before variables, so that these can take the shapes drawn for those.
        for place in sorted(range(len(groups)), key=lambda i: isinstance(app.operands[i], Var)):
            operand = app.operands[place]
            if isinstance(operand, Var):
                bound = scope.get(scope.tensors, operand.name)
                if bound is None and place not in spec(app.op).dtypes:
                    bound = self._like(operand.name, scope)
                groups[place] = [bound.type if bound is not None else None]
            elif operand == ABSENT:
                groups[place] = [None]
            elif isinstance(operand, App):
                groups[place] = [self._application(operand, scope)]
            elif isinstance(operand.item, Var) and not operand.over:
                group = scope.groups.get(operand.item.name) or self._group_like(operand.item.name, scope)
                groups[place] = [o.type for o in group] or [None] * self._rng.choice((1, 2, 2, 2, 3, 3, 4))
            else:
                groups[place] = list(self._loop(operand.item, operand.over, scope))
        return [t for group in groups for t in group]

    def _like(self, name: str, scope: _DrawnScope) -> Drawn | None:
        """Now and then a fresh variable has the type of one drawn before, for rules that need equal shapes."""
        known = [t.type for t in scope.tensors.values() if t.type.dtype.is_float]
        known += [g[0].type for g in scope.groups.values() if g and isinstance(g[0], Drawn)]
        if not known or self._rng.random() > 0.25:
            return None
        made = Drawn(f"{scope.loop[name]}{scope.index}" if name in scope.loop else name, self._rng.choice(known))
        scope.set(scope.tensors, name, made)
        return made

    def _group_like(self, name: str, scope: _DrawnScope) -> list[Drawn]:
        """Often a fresh sequence has the types of one drawn before."""
        known = [g for g in scope.groups.values() if g and isinstance(g[0], Drawn)]
        if known and self._rng.random() < 0.5:
            scope.groups[name] = [Drawn(f"{name}{i}", d.type) for i, d in enumerate(self._rng.choice(known))]
        return scope.groups.get(name, [])

    def _loop(self, item: Pattern, over: tuple[tuple[str, str], ...], scope: _DrawnScope) -> list[TensorType]:
        """Draw the elements one by one; later ones often begin with the shapes and attributes of the first."""
        known = [len(scope.groups[s]) for _, s in over if s in scope.groups]
        count = known[0] if known else self._rng.choice((2, 2, 2, 3, 3, 4))
        types: list[TensorType] = []
        fresh = [s for _, s in over if s not in scope.groups]
        outer = scope.loop, scope.index
        scope.loop = dict(over)
        for scope.index in range(count):
            if scope.index:
                for sequence in fresh:
                    self._repeat(scope, sequence, types)
            if not isinstance(item, App):
                raise RuleError(f"a loop over a bare variable in {self.rule.name}", expected="an operator")
            types.append(self._application(item, scope))
        scope.loop, scope.index = outer
        return types

    def _repeat(self, scope: _DrawnScope, sequence: str, types: list[TensorType]) -> None:
        first = scope.groups[sequence][0]
        how = self._rng.random()
        if len(scope.groups[sequence]) != scope.index or how < 0.2:
            return
        if isinstance(first, Drawn):
            shape = list(first.type.dims)
            if how < 0.5 and shape:
                shape[self._rng.randrange(len(shape))] = self._rng.randint(1, 3)
            name = f"{sequence}{scope.index}"
            scope.groups[sequence].append(Drawn(name, first.type.with_shape(tuple(shape))))
        elif isinstance(first, Attrs) and "starts" in first and "ends" in first and types:
            before = scope.groups[sequence][-1]
            width = self._rng.randint(1, 2)
            if len(before["axes"]) == 1:
                moved = Attrs(before, starts=before["ends"], ends=(before["ends"][0] + width,))
                scope.groups[sequence].append(moved)
        elif how < 0.8:
            scope.groups[sequence].append(first)

    def _bind_operands(
        self,
        app: App,
        declared: OpSpec,
        shapes: Any,
        operands: list[TensorType | None],
        scope: _DrawnScope,
        attrs: Attrs,
    ) -> None:
        names = [
            o.item.name if isinstance(o, Spread) and isinstance(o.item, Var) else o.name if isinstance(o, Var) else ""
            for o in app.operands
        ]
        spread = any(isinstance(o, Spread) for o in app.operands)
        if len(shapes) != len(operands):
            raise Reject
        for place, shape in enumerate(shapes):
            if operands[place] is not None or (not spread and app.operands[place] == ABSENT):
                continue
            name = names[0] if spread else names[place]
            dtype = declared.dtypes.get(place, _FLOAT)
            made = Drawn(name, TensorType.of(dtype, shape))
            operands[place] = made.type
            if spread:
                group = scope.groups.setdefault(name, [])
                made.name = f"{name}{len(group)}"
                group.append(made)
            else:
                if name in scope.loop:
                    made.name = f"{scope.loop[name]}{scope.index}"
                bound = scope.get(scope.tensors, name)
                if bound is None:
                    scope.set(scope.tensors, name, made)
                elif bound.type != made.type:
                    raise Reject
        indices = scope.get(scope.tensors, names[1]) if selects_along_axis(app.op) else None
        size = shapes[0][attrs["axis"]] if indices is not None else None
        if isinstance(indices, Drawn) and isinstance(size, int):
            indices.limit = min(size, indices.limit or size)

    def _bind_attributes(self, app: App, attrs: Attrs, scope: _DrawnScope) -> None:
        if app.record is not None:
            bound = scope.get(scope.attrs, app.record)
            if bound is None:
                scope.set(scope.attrs, app.record, attrs)
            elif bound != attrs:
                raise Reject
        here: Bindings | None = None
        for name, expected in pattern_fields(app).items():
            if not isinstance(expected, Expression):
                if Attrs(v=expected) != Attrs(v=attrs[name]):
                    raise Reject
            elif bound_name(expected) is not None:
                bound = scope.get(scope.attrs, expected.text)
                if bound is None:
                    scope.set(scope.attrs, expected.text, attrs[name])
                elif Attrs(v=bound) != Attrs(v=attrs[name]):
                    raise Reject
            else:
                here = here or scope.bindings()
                names = compiled(expected).names
                if all(n in here.tensors or n in here.attrs for n in names) and Attrs(
                    v=evaluate(expected, here)
                ) != Attrs(v=attrs[name]):
                    raise Reject


def _operands(bindings: Bindings) -> Iterator[Drawn]:
    for thing in bindings.tensors.values():
        for one in thing if isinstance(thing, tuple) else (thing,):
            if isinstance(one, Drawn):
                yield one


def operands(bindings: Bindings) -> list[Drawn]:
    """Every drawn operand, each once."""
    return list({id(o): o for o in _operands(bindings)}.values())
