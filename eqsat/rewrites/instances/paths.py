"""The numbers of an instance as unknowns of a solver, and the answers to questions about them that lead elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eqsat.language.terms import Attrs, Bindings, TensorType
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.traced import Formula, Question, Trace, TracedInteger

#: The sizes that dims may take, small ones first, and the steps of the solver for one question.
SIZES, STEPS = (8, 40, 1100), 20_000
#: The most that an attribute may be, unless it was more: pads of a thousand make images of a million.
_MOST_ATTRIBUTE = 16
#: The beginning of the names of dims; those of attributes begin otherwise.
_DIM = "dim "


class InstanceNumbers:
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
        return found if self._trace is None else TracedInteger(found, name, self._trace)


class SolverPath:
    """The numbers of an instance as unknowns of a solver, which the answers that are kept hold of."""

    def __init__(self, context: Any, bindings: Bindings) -> None:
        import z3

        self._z3, self._context, self._bindings = z3, context, bindings
        numbers = InstanceNumbers()
        numbers.bindings(bindings)
        self._values = numbers.values
        self._solver = z3.SolverFor("QF_NIA", ctx=context)
        self._solver.set("rlimit", STEPS)
        self._unknowns = {name: z3.Int(name, context) for name in self._values}
        self._within = {most: z3.Bool(f"within {most}", context) for most in SIZES}
        self._as_before = {name: z3.Bool(f"as before: {name}", context) for name in self._values}
        for name, value in self._values.items():
            unknown = self._unknowns[name]
            # Axes that count from the end, strides of zero and bounds before the first element are in no graph.
            least = 1 if value > 0 or name.startswith(_DIM) else value
            if not name.startswith(_DIM):
                self._solver.add(unknown <= max(_MOST_ATTRIBUTE, value))
            self._solver.add(unknown >= least, z3.Implies(self._as_before[name], unknown == value))
            self._solver.add(*(z3.Implies(mark, unknown <= most) for most, mark in self._within.items()))

    def keep(self, question: Question) -> None:
        """Hold on to an answer."""
        if question.unknowns():
            self._solver.add(self._formula(question))

    def others(self, sizes: Sequence[int]) -> Iterator[Question]:
        """Questions that give each dim some other sizes, and one that is not the one before."""
        for name, value in self._values.items():
            if name.startswith(_DIM):
                yield from (Question("==", name, size, True) for size in sizes if size != value)
                yield Question("==", name, value, False)

    def answer(self, question: Question) -> Bindings | None:
        """An instance, without elements, that answers a question so; as much as can be is as it was, and sizes are
        small."""
        z3, near = self._z3, question.unknowns()
        others = [mark for name, mark in self._as_before.items() if name not in near]
        self._solver.push()
        self._solver.add(self._formula(question))
        found = None
        # Where there is none at all, as for most questions about signs, one query says so.
        for most, fixed in ((SIZES[-1], []), *((most, kept) for most in SIZES for kept in (others, []))):
            if self._solver.check(self._within[most], *fixed) == z3.sat:
                model = self._solver.model()
                found = {name: model.eval(one, True).as_long() for name, one in self._unknowns.items()}
                if most != SIZES[-1] or fixed:
                    break
            elif found is None:
                break
        self._solver.pop()
        return None if found is None else InstanceNumbers(found).bindings(self._bindings)

    def _formula(self, question: Question) -> Any:
        left, right = self._term(question.left), self._term(question.right)
        if question.comparison == "==":
            return left == right if question.held else left != right
        if question.comparison == "<":
            return left < right if question.held else left >= right
        return left <= right if question.held else left > right

    def _term(self, formula: Formula) -> Any:
        if isinstance(formula, str):
            return self._unknowns[formula]
        if isinstance(formula, int):
            return self._z3.IntVal(formula, self._context)
        operation, a, b = formula[0], self._term(formula[1]), self._term(formula[2])
        if operation in ("//", "%"):
            return a / b if operation == "//" else a % b
        return a + b if operation == "+" else a - b if operation == "-" else a * b
