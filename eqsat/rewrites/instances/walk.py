"""The walk over a left side that gives its names operands and attributes, whether these are drawn or listed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, TensorType
from eqsat.language.terms.pattern import ABSENT, App, Bindings, Expression, Left, Pattern, Siblings, Spread, Var
from eqsat.rewrites.conditions.expression import bound_name, compiled, evaluate
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.rules.rule import pattern_fields

#: A name of the left side, and which element where it stands for a sequence.
Key: TypeAlias = tuple[str, int | None]
#: The source of an operand: a name, an application by its number, or nothing where the operand is left out.
Source: TypeAlias = "Key | int | None"
#: The elements that the variables of a loop stand for.
Loop: TypeAlias = Mapping[str, Key]


@dataclass
class PatternStep:
    """One application of the left side with the loops unrolled: where its operands and attributes come from.

    `fixed` are the attributes that have one value, `names` those that bind a name, `asked` those that must equal an
    expression.
    """

    app: App
    record: Key | None
    fixed: dict[str, Any]
    names: dict[str, Key]
    asked: dict[str, Expression]
    loop: Loop
    operands: tuple[Source, ...] = ()

    @property
    def leaves(self) -> list[Key]:
        """The names among the operands."""
        return [o for o in self.operands if isinstance(o, tuple)]

    @property
    def attributes(self) -> list[Key]:
        """The names that the attributes bind."""
        return [*([self.record] if self.record is not None else []), *self.names.values()]


class Cell:
    """An operator over cells and operands, typed; its values are computed once."""

    __slots__ = ("attrs", "op", "operands", "types", "values")

    def __init__(self, op: str, attrs: Attrs, operands: tuple[Any, ...], types: tuple[TensorType, ...]) -> None:
        self.op, self.attrs, self.operands, self.types = op, attrs, operands, types
        self.values: list[Any] | None = None

    @property
    def type(self) -> TensorType:
        """The type of the first output."""
        return self.types[0]


class PatternWalk(ABC):
    """A walk over the applications of a left side, operands before the operators that take them."""

    def roots(self, left: Left) -> list[int]:
        """The numbers of the root applications."""
        if isinstance(left, Siblings):
            return [n for n in self._operands(Spread(left.item, left.over), {}) if isinstance(n, int)]
        return [self._application(app, {}) for app in left]

    @abstractmethod
    def length(self, spread: Spread) -> int:
        """The number of elements of the sequences that a spread takes or runs over."""

    @abstractmethod
    def element(self, spread: Spread, index: int) -> None:
        """Begin an element of a loop."""

    @abstractmethod
    def begin(self, step: PatternStep) -> Any:
        """Begin an application, before its operands; the result is handed to `apply`."""

    @abstractmethod
    def apply(self, step: PatternStep, begun: Any) -> int:
        """Apply an operator to operands that the walk has been to; return the number of the application."""

    def _application(self, app: App, loop: Loop) -> int:
        names, fixed, asked = {}, {}, {}
        for name, expected in pattern_fields(app).items():
            if not isinstance(expected, Expression):
                fixed[name] = expected
            elif (bound := bound_name(expected)) is not None:
                names[name] = loop.get(bound, (bound, None))
            else:
                asked[name] = expected
        record = None if app.record is None else loop.get(app.record, (app.record, None))
        step = PatternStep(app, record, fixed, names, asked, loop)
        begun = self.begin(step)
        step.operands = tuple(source for operand in app.operands for source in self._operands(operand, loop))
        return self.apply(step, begun)

    def _operands(self, operand: Pattern | Spread, loop: Loop) -> Sequence[Source]:
        if isinstance(operand, Var):
            return [loop.get(operand.name, (operand.name, None))]
        if operand == ABSENT:
            return [None]
        if isinstance(operand, App):
            return [self._application(operand, loop)]
        if isinstance(operand.item, Var) and not operand.over:
            return [(operand.item.name, index) for index in range(self.length(operand))]
        sources: list[Source] = []
        for index in range(self.length(operand)):
            self.element(operand, index)
            sources += self._operands(operand.item, {**loop, **{v: (s, index) for v, s in operand.over}})
        return sources


class Assignment:
    """The operands and attributes that names have so far, and the applications made of them."""

    def __init__(self) -> None:
        self.bound: dict[Key, Any] = {}
        #: The same by name, of sequences the elements so far.
        self.here = Bindings()
        #: By the number of an application.
        self.cells: list[Any] = []

    def bind(self, key: Key, thing: Any) -> None:
        """Give a name an operand or an attribute."""
        self.bound[key] = thing
        name, index = key
        where: dict[str, Any] = self.here.tensors if isinstance(thing, Drawn) else self.here.attrs
        if index is None:
            where[name] = thing
        else:
            where[name] = tuple(self.bound[(name, i)] for i in range(index + 1) if (name, i) in self.bound)

    def unbind(self, key: Key) -> None:
        """Take back the last operand or attribute of a name."""
        thing = self.bound.pop(key)
        name, index = key
        where: dict[str, Any] = self.here.tensors if isinstance(thing, Drawn) else self.here.attrs
        rest = tuple(self.bound[(name, i)] for i in range(index) if (name, i) in self.bound) if index else ()
        if rest:
            where[name] = rest
        else:
            del where[name]

    def thing(self, source: Source) -> Any:
        """An operand: a cell, or that which a name is bound to; None where it is left out, or not there yet."""
        if source is None:
            return None
        return self.cells[source] if isinstance(source, int) else self.bound.get(source)

    def type(self, source: Source) -> TensorType | None:
        """The type of an operand; None where it is left out, or has none yet."""
        thing = self.thing(source)
        return None if thing is None else thing.type

    def named(self, step: PatternStep) -> dict[str, Any]:
        """The attributes of an application whose names are bound."""
        return {name: self.bound[key] for name, key in step.names.items() if key in self.bound}

    def computed(self, step: PatternStep) -> dict[str, Any]:
        """The attributes that must equal expressions of names all of which are bound; Undefined where one has none."""
        if not step.asked:
            return {}
        here = self.inside(step)
        return {
            name: evaluate(expression, here)
            for name, expression in step.asked.items()
            if all(n in here.tensors or n in here.attrs for n in compiled(expression).names)
        }

    def inside(self, step: PatternStep) -> Bindings:
        """The bindings so far, the variables of loops among them."""
        if not step.loop:
            return self.here
        here = Bindings(dict(self.here.tensors), dict(self.here.attrs))
        for variable, key in step.loop.items():
            if key in self.bound:
                thing = self.bound[key]
                (here.tensors if isinstance(thing, Drawn) else here.attrs)[variable] = thing
        return here


def operand_name(key: Key) -> str:
    """The name of an operand: that of its variable, or of its sequence with its place."""
    name, index = key
    return name if index is None else f"{name}{index}"


def same(a: Any, b: Any) -> bool:
    """True if two attributes are equal as attributes are, which tell 1 from 1.0 and True."""
    return a is b or Attrs(v=a) == Attrs(v=b)


def selects_along_axis(op: str) -> bool:
    """True if the second operand of an operator selects elements along an axis of its first.

    >>> selects_along_axis("gather"), selects_along_axis("scatter_elements")
    (True, False)
    """
    declared = spec(op)
    return declared.indexed and "axis" in declared.attrs and declared.max_operands == 2
