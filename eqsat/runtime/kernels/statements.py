"""The statements of a kernel under construction, as operators within it write them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from eqsat.language.terms.types import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr, convert
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.writer import CodeWriter, bare


class Statements(ABC):
    """The statements written so far, to which each element that is asked for by name and coordinates adds its own."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.writer = CodeWriter()
        #: The conditions under which the next statement runs, the outermost first.
        self.conditions: list[str] = []

    @abstractmethod
    def value(self, name: str, coords: Sequence[AffineIndex]) -> Expr:
        """The element of a value at coordinates, in the type it is computed in: a name of C, or a number."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return self.group.types[name].static

    def named(self, expr: Expr, stem: str, comment: str = "") -> Expr:
        """The value under a name of C that begins with the stem; numbers and names stay."""
        if not expr.operands and expr.template.replace("_", "a").isalnum():
            return expr
        if expr.value is not None:
            return expr
        if comment:
            self.writer.comment(comment)
        stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem).strip("_") or "value"
        text = bare(self.writer.render(expr, stem))
        return Expr(expr.dtype, self.writer.define(expr.c_type, stem, text))

    def choose(self, dtype: DType, stem: str, cases: Sequence[tuple[str, Callable[[], Expr]]]) -> Expr:
        """One of several values, by the first condition that holds; the last one has none."""
        if len(cases) == 1:
            return cases[0][1]()
        variable = Expr(dtype, self.writer.name(stem))
        self.writer.line(f"{variable.c_type} {variable.template};")
        for place, (condition, make) in enumerate(cases):
            head = "else" if not condition else f"{'else ' if place else ''}if ({condition})"
            others = [f"!({other})" for other, _ in cases[:place]]
            self.conditions.append(" && ".join([*others, *([condition] if condition else [])]))
            with self.writer.case(head):
                value = bare(self.writer.render(convert(make(), dtype), stem))
                self.writer.line(f"{variable.template} = {value};")
            self.conditions.pop()
        return variable

    def below(self, index: AffineIndex, bound: int) -> str:
        """The condition that a coordinate is less than a bound."""
        index, bound = index.compared(bound)
        return f"{self.writer.index(index)} < {bound}"

    def least(self, index: AffineIndex, bound: int = 0) -> str:
        """The condition that a coordinate is no less than a bound."""
        index, bound = index.compared(bound)
        return f"{self.writer.index(index)} >= {bound}"

    def within(self, places: Sequence[AffineIndex], sizes: Sequence[int]) -> str:
        """The condition that coordinates lie within axes of these sizes; nothing where they always do."""
        conditions = [self.least(p) for p in places if p.low < 0]
        conditions += [self.below(p, n) for p, n in zip(places, sizes, strict=True) if p.high >= n]
        return " && ".join(conditions)
