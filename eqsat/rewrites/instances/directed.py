"""Instances of a rule on both sides of every bound that its types and conditions ask about: solved for, not drawn.

The dims and whole numbers of an instance are traced through the types of both sides and the conditions. Z3 then turns
one answer at a time, the others before it kept: a slice that ends at 224 is the whole of an axis of three, and the
question whether it is leads to an axis of 225 (compare directed automated random testing: P. Godefroid and others,
DART, 2005). What solving finds is run like any other instance: no verdict rests on the trace.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from eqsat.errors import GraphError
from eqsat.language.terms import Attrs, Bindings, TensorType
from eqsat.rewrites.instances.edges import EdgeElements
from eqsat.rewrites.instances.elements import Drawn, Filler
from eqsat.rewrites.instances.traced import Formula, Question, Trace, Traced
from eqsat.rewrites.rules.naming import renamed
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import is_defined, left_terms, output_types, right_terms

#: The questions turned for one rule, the answers looked for to one, and the steps of the solver for each.
TURNS, ANSWERS, STEPS = 120, 3, 20_000
#: The sizes that dims may take, small ones first, and the most elements of an instance.
_SIZES, _ELEMENTS = (8, 40, 1100), 200_000
#: The axes that are put before those of all operands, where a rule's numbers speak of higher ranks than are drawn.
RAISED = 3
#: The forms of instances that solving begins at.
_FORMS = 6
#: The forms that more axes are put before.
_HIGHER = 3


class DirectedSearch:
    """The instances that solving finds from some seeds, each of another path through types and conditions."""

    def __init__(self, rule: Rule, seed: int = 0, most: int = TURNS) -> None:
        import z3

        self.rule, self._most = rule, most
        self._context = z3.Context()
        self._filler = Filler(rule)
        self._rng = random.Random(f"{seed}:directed:{renamed(rule)}")
        self._turned: Counter[tuple[Question, Any, bool]] = Counter()
        self._seen: set[Any] = set()
        self.turns = 0

    def instances(self, seeds: Iterable[Bindings]) -> Iterator[Bindings]:
        """The instances on paths that no seed is on, until all questions were turned, or as many as there may be.

        Seeds need not meet the conditions: these are questions like others.
        """
        queue = deque(seeds)
        while queue and self.turns < self._most:
            bindings = queue.popleft()
            path, source = _Path(self._context, bindings), (_form(bindings), self.meets(bindings))
            for question in self._questions(bindings):
                if self.turns >= self._most:
                    return
                if question.unknowns() and self._turned[question.turned, *source] < ANSWERS:
                    self.turns += 1
                    answer = path.answer(question.turned)
                    found = None if answer is None else self._filled(answer)
                    if found is not None:
                        self._turned[question.turned, *source] += 1
                        queue.append(found)
                        if self.meets(found):
                            yield found
                path.keep(question)

    def raised(self, bindings: Bindings) -> Iterator[Bindings]:
        """The instance with more axes before those of each operand, and in attributes that speak of each axis."""
        for axes in range(1, RAISED + 1):
            for whole in (False, True):
                found = self._filled(_raised(bindings, axes, whole=whole))
                if found is not None:
                    yield found

    def _questions(self, bindings: Bindings) -> list[Question]:
        """What the types of both sides and the conditions ask of an instance's numbers, in order."""
        trace = Trace()
        traced = _Numbers(trace=trace).bindings(bindings)
        try:
            left = output_types(left_terms(self.rule, traced))
            if self.rule.refused(traced) is None:
                _ = left == output_types(right_terms(self.rule, traced))  # asks whether the dims are equal
        except (GraphError, ArithmeticError):
            pass
        return list(trace.asked)

    def _filled(self, bindings: Bindings) -> Bindings | None:
        """The instance with elements; None where it has too many, or is one that was found before."""
        drawn = list({id(o): o for o in _operands(bindings)}.values())
        shapes = [o.type.static for o in drawn]
        if sum(math.prod(shape) for shape in shapes) > _ELEMENTS:
            return None
        key = (tuple(shapes), repr(sorted(bindings.attrs.items(), key=lambda item: item[0])))
        if key in self._seen:
            return None
        self._seen.add(key)
        least = max(min((size for shape in shapes for size in shape), default=1), 1)
        for operand in drawn:
            if operand.type.dtype.is_integer:
                operand.limit = min(operand.limit or least, least)  # indices select of the smallest axis there is
            self._filler.fill(operand, bindings, self._rng)
        return bindings

    def meets(self, bindings: Bindings) -> bool:
        """Return whether the left side types, the conditions hold, and the right side's attributes have values."""
        try:
            left_terms(self.rule, bindings)
        except (GraphError, ArithmeticError):  # such as a quotient by a stride
            return False
        return self.rule.refused(bindings) is None and is_defined(self.rule, bindings)


class _Path:
    """The numbers of an instance as unknowns of a solver, which the answers that are kept hold of."""

    def __init__(self, context: Any, bindings: Bindings) -> None:
        import z3

        self._z3, self._context, self._bindings = z3, context, bindings
        numbers = _Numbers()
        numbers.bindings(bindings)
        self._values = numbers.values
        self._solver = z3.SolverFor("QF_NIA", ctx=context)
        self._solver.set("rlimit", STEPS)
        self._unknowns = {name: z3.Int(name, context) for name in self._values}
        self._within = {most: z3.Bool(f"within {most}", context) for most in _SIZES}
        self._as_before = {name: z3.Bool(f"as before: {name}", context) for name in self._values}
        for name, value in self._values.items():
            unknown = self._unknowns[name]
            # Axes that count from the end and strides of zero are in no graph: numbers keep their sign.
            least = 1 if value > 0 or name.startswith(_DIM) else 0 if value == 0 else -max(_SIZES)
            self._solver.add(unknown >= least, z3.Implies(self._as_before[name], unknown == value))
            self._solver.add(*(z3.Implies(mark, unknown <= most) for most, mark in self._within.items()))

    def keep(self, question: Question) -> None:
        """Hold on to an answer."""
        if question.unknowns():
            self._solver.add(self._formula(question))

    def answer(self, question: Question) -> Bindings | None:
        """An instance, without elements, that answers a question so; as much as can be is as it was, and sizes are
        small."""
        z3, near = self._z3, question.unknowns()
        others = [mark for name, mark in self._as_before.items() if name not in near]
        self._solver.push()
        self._solver.add(self._formula(question))
        found = None
        # Where there is none at all, as for most questions about signs, one query says so.
        for most, fixed in ((_SIZES[-1], []), *((most, kept) for most in _SIZES for kept in (others, []))):
            if self._solver.check(self._within[most], *fixed) == z3.sat:
                model = self._solver.model()
                found = {name: model.eval(one, True).as_long() for name, one in self._unknowns.items()}
                if most != _SIZES[-1] or fixed:
                    break
            elif found is None:
                break
        self._solver.pop()
        return None if found is None else _Numbers(found).bindings(self._bindings)

    def _formula(self, question: Question) -> Any:
        left, right = self._term(question.left), self._term(question.right)
        held = left < right if question.comparison == "<" else left <= right
        held = left == right if question.comparison == "==" else held
        return held if question.held else self._z3.Not(held)

    def _term(self, formula: Formula) -> Any:
        if isinstance(formula, str):
            return self._unknowns[formula]
        if isinstance(formula, int):
            return self._z3.IntVal(formula, self._context)
        operation, a, b = formula[0], self._term(formula[1]), self._term(formula[2])
        if operation in ("//", "%"):
            return a / b if operation == "//" else a % b
        return a + b if operation == "+" else a - b if operation == "-" else a * b


#: The beginning of the names of dims; those of attributes begin otherwise.
_DIM = "dim "


class _Numbers:
    """The dims and whole numbers of an instance by their places, traced, or replaced by others."""

    def __init__(self, replaced: Mapping[str, int] | None = None, *, trace: Trace | None = None) -> None:
        self._replaced, self._trace = replaced or {}, trace
        self.values: dict[str, int] = {}
        self._made: dict[int, Drawn] = {}

    def bindings(self, bindings: Bindings) -> Bindings:
        """The instance with its numbers told apart; equal operands stay one."""
        tensors = {
            name: tuple(self._operand(f"{place} {i}", one) for i, one in enumerate(thing))
            if isinstance(thing, tuple)
            else self._operand(str(place), thing)
            for place, (name, thing) in enumerate(bindings.tensors.items())
        }
        attrs = {name: self._attribute(str(i), value) for i, (name, value) in enumerate(bindings.attrs.items())}
        return Bindings(tensors, attrs)

    def _operand(self, name: str, operand: Any) -> Any:
        if not isinstance(operand, Drawn) or not operand.type.is_static:
            return operand
        if id(operand) not in self._made:
            dims = tuple(self._number(f"{_DIM}{name} {axis}", size) for axis, size in enumerate(operand.type.static))
            self._made[id(operand)] = dataclasses.replace(operand, type=TensorType(operand.type.dtype, dims))
        return self._made[id(operand)]

    def _attribute(self, name: str, value: Any) -> Any:
        if isinstance(value, Attrs):
            return Attrs({key: self._attribute(f"{name}.{key}", one) for key, one in value.items()})
        if isinstance(value, tuple):
            return tuple(self._attribute(f"{name} {place}", one) for place, one in enumerate(value))
        return self._number(f"attribute {name}", value) if type(value) is int else value

    def _number(self, name: str, value: int) -> int:
        self.values[name] = value
        found = self._replaced.get(name, value)
        return found if self._trace is None else Traced(found, name, self._trace)


def beyond(rule: Rule, drawn: Sequence[Bindings], seed: int = 0, most: int = TURNS) -> Iterator[Bindings]:
    """The instances that solving finds from drawn ones, each also with elements at edges; those drawn with these first.

    Seeds are the smallest instances of each form, by ranks and lengths of sequences, and these with more axes; `most`
    questions are turned.
    """
    search = DirectedSearch(rule, seed, most)
    elements = EdgeElements(rule, random.Random(f"{seed}:edges:{renamed(rule)}"))
    forms: dict[Any, Bindings] = {}
    by_size = sorted(drawn, key=_size)
    for bindings in by_size:
        forms.setdefault(_form(bindings), bindings)
    seeds = list(forms.values())[:_FORMS]
    highest = {_form(bindings): bindings for bindings in by_size}  # the largest of each form: dims of one hide much
    higher = [one for bindings in list(highest.values())[-_HIGHER:] for one in search.raised(bindings)]
    for bindings in (*seeds, *drawn[:_FORMS], *higher):
        if search.meets(bindings):
            yield elements.of(bindings)
    for bindings in search.instances([*seeds, *higher]):
        yield bindings
        yield elements.of(bindings)


def _size(bindings: Bindings) -> int:
    return sum(math.prod(o.type.static) for o in _operands(bindings))


def _form(bindings: Bindings) -> Any:
    """A key of the ranks of an instance and of the lengths of its sequences."""
    return tuple(
        (name, tuple(o.type.rank if isinstance(o, Drawn) else 0 for o in (t if isinstance(t, tuple) else (t,))))
        for name, t in bindings.tensors.items()
    )


def _raised(bindings: Bindings, axes: int, *, whole: bool) -> Bindings:
    """The instance with more axes before those of each operand, without elements: it may not type.

    With `whole`, attributes that have a number for each axis of an operand get numbers for the new ones.
    """
    made: dict[int, Any] = {}
    new = tuple(range(2, 2 + axes))
    ranks = {one.type.rank for one in _operands(bindings)}

    def operand(one: Any) -> Any:
        if not isinstance(one, Drawn):
            return one
        if id(one) not in made:
            made[id(one)] = dataclasses.replace(one, type=one.type.with_shape((*new, *one.type.dims)))
        return made[id(one)]

    def attribute(value: Any) -> Any:
        if isinstance(value, Attrs):
            return Attrs({key: attribute(one) for key, one in value.items()})
        if isinstance(value, tuple) and not all(isinstance(one, int) for one in value):
            return tuple(map(attribute, value))
        if not whole or not isinstance(value, tuple) or len(value) not in ranks:
            return value
        if sorted(value) == list(range(len(value))):
            return (*range(axes), *(place + axes for place in value))
        return (*new, *value)

    tensors = {n: tuple(map(operand, t)) if isinstance(t, tuple) else operand(t) for n, t in bindings.tensors.items()}
    return Bindings(tensors, {name: attribute(value) for name, value in bindings.attrs.items()})


def _operands(bindings: Bindings) -> Iterator[Drawn]:
    for thing in bindings.tensors.values():
        yield from (one for one in (thing if isinstance(thing, tuple) else (thing,)) if isinstance(one, Drawn))
