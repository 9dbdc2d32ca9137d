"""Instances of rules: operands and attributes drawn for a left side."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from eqsat.errors import BoundsError, GraphError, RuleError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import Interpretation
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import App, Attrs, Bindings, Spread, TensorType, Var
from eqsat.language.terms.pattern import roots_of
from eqsat.rewrites.instances.elements import Drawn, Filler
from eqsat.rewrites.instances.walk import (
    Assignment,
    Cell,
    Key,
    PatternStep,
    PatternWalk,
    operand_name,
    same,
    selects_along_axis,
)
from eqsat.rewrites.rules.naming import renamed
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import Term, distinct, is_defined, left_terms, values

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
#: Values for those that give the axes of operands their meaning, so that shapes are drawn for them.
_AXES: dict[str, tuple[Any, ...]] = {"layout": (0, 0, 1)}

#: Instances that conditions refused are kept up to this number: solving begins at them.
_REFUSED = 24


class Reject(Exception):  # noqa: N818  (a signal, not an error)
    """The operands drawn so far do not fit the rest of the left side."""


class Sampler:
    """A source of instances of a rule's left side, drawn deterministically from a seed, or by the choices of `rng`."""

    def __init__(self, rule: Rule, seed: int = 0, rng: random.Random | None = None) -> None:
        self.rule = rule
        self._rng = random.Random(f"{seed}:{rule.text}") if rng is None else rng
        self._filler = Filler(rule)
        self._dtypes = moved_dtypes(rule)
        #: The reasons for which conditions refused typed bindings, with their counts, and the first of these bindings.
        self.refusals: Counter[str] = Counter()
        self.refused: list[Bindings] = []

    @classmethod
    def unnamed(cls, rule: Rule, seed: int = 0) -> Sampler:
        """A source of the same instances whatever the names of a rule's variables and the order of its conditions."""
        return cls(rule, rng=random.Random(f"{seed}:{renamed(rule)}"))

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
                if len(self.refused) < _REFUSED:
                    self.refused.append(bindings)
            elif is_defined(self.rule, bindings):
                return bindings
        return None

    def _attempt(self) -> Bindings | None:
        bindings = _InstanceDraw(self.rule, self._rng, self._dtypes).bindings()
        for operand in _operands(bindings):
            self._filler.fill(operand, bindings, self._rng)
        try:
            left_terms(self.rule, bindings)  # types once more: fields that were expressions are now known
        except GraphError:
            return None
        return bindings


def draw(rule: Rule, count: int, seed: int = 0, tries: int = 2000) -> list[Bindings]:
    """Instances of a rule, fewer where its conditions are hard to meet."""
    sampler = Sampler(rule, seed)
    return list(islice(iter(lambda: sampler.draw(tries), None), count))


def moved_dtypes(rule: Rule) -> dict[str, str]:
    """The element types of variables that reach, by movement alone, an operand of an operator that has it of one type.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> [rule] = parse_rules("r: gather(x, concat(*at, axis=0), axis=0) => gather(x, concat(*at, axis=0), axis=0)")
    >>> moved_dtypes(rule)
    {'at': 'int64'}
    """
    found: dict[str, str] = {}

    def visit(pattern: Any, dtype: str | None) -> None:
        if isinstance(pattern, Spread):
            visit(pattern.item, dtype)
        elif isinstance(pattern, Var) and dtype is not None:
            found.setdefault(pattern.name, dtype)
        elif isinstance(pattern, App) and pattern.op in OPS:
            declared = OPS[pattern.op]
            for place, operand in enumerate(pattern.operands):
                visit(operand, declared.dtypes.get(place) or (dtype if declared.movement else None))

    for root in roots_of(rule.left):
        visit(root, None)
    return found


class _InstanceDraw(PatternWalk):
    """One walk over a left side that draws an operand's type, or an attribute, where none is known yet."""

    def __init__(self, rule: Rule, rng: random.Random, dtypes: Mapping[str, str]) -> None:
        self.rule, self._rng, self._chosen, self._dtypes = rule, rng, Assignment(), dtypes
        #: The sequences of the loop that is walked which nothing was bound to before.
        self._fresh: list[str] = []

    def bindings(self) -> Bindings:
        """The bindings of the whole left side, operands without elements yet, single names before sequences."""
        self.roots(self.rule.left)
        here = self._chosen.here
        tensors = sorted(here.tensors, key=lambda name: name in self.rule.tensor_groups)
        attrs = sorted(here.attrs, key=lambda name: name in self.rule.attr_groups)
        return Bindings({n: here.tensors[n] for n in tensors}, {n: here.attrs[n] for n in attrs})

    def length(self, spread: Spread) -> int:
        """The length of a sequence that is bound, else one that is drawn."""
        sequences = self._sequences()
        if not spread.over and isinstance(spread.item, Var):
            name = spread.item.name
            return len(sequences.get(name, ())) or self._like_another(name) or self._rng.choice((1, 2, 2, 2, 3, 3, 4))
        known = [len(sequences[s]) for _, s in spread.over if s in sequences]
        count = known[0] if known else self._rng.choice((2, 2, 2, 3, 3, 4))
        if not isinstance(spread.item, App):
            raise RuleError(f"a loop over a bare variable in {self.rule.name}", expected="an operator")
        self._fresh = [s for _, s in spread.over if s not in sequences]
        return count

    def _sequences(self) -> dict[str, list[Any]]:
        """The sequences of operands and attributes so far."""
        sequences: dict[str, list[Any]] = {}
        for (name, index), thing in self._chosen.bound.items():
            if index is not None:
                sequences.setdefault(name, []).append(thing)
        return sequences

    def _like_another(self, name: str) -> int:
        """Often a fresh sequence has the types of one drawn before; its length then, else 0."""
        known = [s for s in self._sequences().values() if isinstance(s[0], Drawn)]
        if not known or self._rng.random() >= 0.5:
            return 0
        other = self._rng.choice(known)
        for index, operand in enumerate(other):
            self._bind_new((name, index), operand.type)
        return len(other)

    def element(self, spread: Spread, index: int) -> None:
        """Later elements of a loop often begin with the shapes and attributes of the first."""
        for sequence in self._fresh if index else ():
            self._repeat((sequence, index))

    def _repeat(self, key: Key) -> None:
        sequence = self._sequences()[key[0]]
        first = sequence[0]
        share = self._rng.random()
        if len(sequence) != key[1] or share < 0.2:
            return
        if isinstance(first, Drawn):
            shape = list(first.type.dims)
            if share < 0.5 and shape:
                shape[self._rng.randrange(len(shape))] = self._rng.randint(1, 3)
            self._bind_new(key, first.type.with_shape(tuple(shape)))
        elif isinstance(first, Attrs) and "starts" in first and "ends" in first:
            before = sequence[-1]
            width = self._rng.randint(1, 2)
            if len(before["axes"]) == 1:
                self._chosen.bind(key, Attrs(before, starts=before["ends"], ends=(before["ends"][0] + width,)))
        elif share < 0.8:
            self._chosen.bind(key, first)

    def begin(self, step: PatternStep) -> dict[str, Any]:
        """The attributes that are known before the operands are drawn."""
        record = self._chosen.bound.get(step.record) if step.record is not None else None
        named = {n: v for n, v in self._chosen.named(step).items() if v is not None}
        return dict(Attrs({**(record or {}), **step.fixed, **named, **self._chosen.computed(step)}))

    def apply(self, step: PatternStep, begun: dict[str, Any]) -> int:
        """Draw the operands and attributes of an application that are open; Reject where they do not fit the others."""
        declared = spec(step.app.op)
        types = self._known_types(step)
        if declared.sample is None:
            raise RuleError(
                f"operator {step.app.op!r} has no sample rule",
                where=declared.where,
                expected="one, to draw instances of its rules",
                remedy="declare it with sample=…, with an index form, or as pointwise",
            )
        known = begun | {n: self._rng.choice(v) for n, v in _AXES.items() if n in declared.attrs and n not in begun}
        drawn = declared.drawn(self._rng, [t.shape if t is not None else None for t in types], known)
        if drawn is None:
            raise Reject
        said = {*known, *drawn[1]} if "to" in drawn[1] else {*known}
        left_open = {n: self._rng.choice(v) for n, v in _OPEN.items() if n in declared.attrs and n not in said}
        attrs = declared.complete({**drawn[1], **left_open})
        self._bind_operands(step, drawn[0], types, attrs)
        self._bind_attributes(step, attrs)
        self._chosen.cells.append(Cell(step.app.op, attrs, (), declared.result_types(types, attrs)))
        return len(self._chosen.cells) - 1

    def _known_types(self, step: PatternStep) -> list[TensorType | None]:
        """The types of operands, None for one to draw; now and then a fresh variable has the type of another."""
        types: list[TensorType | None] = []
        single = not any(isinstance(o, Spread) for o in step.app.operands)
        for place, source in enumerate(step.operands):
            type = self._chosen.type(source)
            if type is None and isinstance(source, tuple) and single and place not in spec(step.app.op).dtypes:
                type = self._another_type()
                if type is not None:
                    self._bind_new(source, type)
            types.append(type)
        return types

    def _another_type(self) -> TensorType | None:
        """Now and then the type of an operand drawn before, for rules that need equal shapes."""
        drawn = {key: thing.type for key, thing in self._chosen.bound.items() if isinstance(thing, Drawn)}
        known = [type for (_, index), type in drawn.items() if index is None and type.dtype.is_float]
        known += [type for (_, index), type in drawn.items() if index == 0]
        return None if not known or self._rng.random() > 0.25 else self._rng.choice(known)

    def _bind_new(self, key: Key, type: TensorType) -> None:
        self._chosen.bind(key, Drawn(operand_name(key), type))

    def _bind_operands(self, step: PatternStep, shapes: Any, types: list[TensorType | None], attrs: Attrs) -> None:
        if len(shapes) != len(types):
            raise Reject
        bound, dtypes = self._chosen.bound, spec(step.app.op).dtypes
        for place, (source, shape) in enumerate(zip(step.operands, shapes, strict=True)):
            if types[place] is not None or not isinstance(source, tuple):
                continue
            dtype = dtypes.get(place) or self._dtypes.get(source[0], _FLOAT)
            type = types[place] = TensorType.of(dtype, shape)
            if source not in bound:
                self._bind_new(source, type)
            elif bound[source].type != type:
                raise Reject
        if selects_along_axis(step.app.op) and isinstance(step.operands[1], tuple):
            axis, whole = attrs["axis"], shapes[0]
            if not -len(whole) <= axis < len(whole):
                raise Reject
            indices, size = bound[step.operands[1]], whole[axis]
            if isinstance(size, int):
                indices.limit = min(size, indices.limit or size)

    def _bind_attributes(self, step: PatternStep, attrs: Attrs) -> None:
        bound = self._chosen.bound
        if step.record is not None:
            if step.record not in bound:
                self._chosen.bind(step.record, attrs)
            elif bound[step.record] != attrs:
                raise Reject
        for name, expected in step.fixed.items():
            if not same(expected, attrs[name]):
                raise Reject
        for name, key in step.names.items():
            if bound.get(key) is None:
                self._chosen.bind(key, attrs[name])
            elif not same(bound[key], attrs[name]):
                raise Reject
        if any(not same(value, attrs[name]) for name, value in self._chosen.computed(step).items()):
            raise Reject


def _operands(bindings: Bindings) -> Iterator[Drawn]:
    for thing in bindings.tensors.values():
        for one in thing if isinstance(thing, tuple) else (thing,):
            if isinstance(one, Drawn):
                yield one


def operands(bindings: Bindings) -> list[Drawn]:
    """Every drawn operand, each once."""
    return list({id(o): o for o in _operands(bindings)}.values())


def arrays_of(bindings: Bindings, interpretation: Interpretation) -> dict[int, Any]:
    """The elements of every drawn operand in an interpretation, by the operand's identity."""
    return {id(o): interpretation.constant(o.array, o.type) for o in operands(bindings)}


def evaluated(bindings: Bindings, interpretation: Interpretation, *sides: list[Any]) -> list[list[Any]]:
    """All outputs of sides in an interpretation."""
    arrays = arrays_of(bindings, interpretation)
    with np.errstate(all="ignore"):
        return [values(side, interpretation, arrays) for side in sides]


def refuses(left: list[Any], bindings: Bindings) -> bool:
    """True where an operator that is declared elsewhere takes no such elements: places that are none of a tensor's."""
    if all(spec(one.op).is_shipped for one in distinct(left) if isinstance(one, Term)):
        return False
    try:
        evaluated(bindings, Floats(wide=True), left)
    except BoundsError:
        return True
    return False
