"""An operator as the schemas see it: how to write its application, and where the axes of its index form stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.errors import ShapeError
from eqsat.language.declaration.indices import Index, IndexForm, IndexTerm
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.terms.types import DType, TensorType

#: Variables for the operands by position; an added operand is `b`, the record of attributes `a`.
VARIABLES = ("x", "w", "u", "v", "t", "p", "q")
ADDED = "b"
_INFIX = {"matmul": "@"}


@dataclass(frozen=True, slots=True)
class Statement:
    """A law in the syntax of rules: sides and conditions, the phase it runs in, the published laws it states."""

    name: str
    text: str
    phase: str = "expand"
    laws: tuple[int, ...] = ()


def law(
    name: str,
    left: str,
    right: str,
    conditions: Iterable[str] = (),
    *,
    phase: str = "expand",
    back: str | None = None,
    back_name: str = "",
    laws: tuple[int, ...] = (),
) -> list[Statement]:
    """An equation as rules: left to right in `phase`, and right to left in `back`, where that is given."""
    distinct = list(dict.fromkeys(c for c in conditions if c))
    tail = " if " + ", ".join(distinct) if distinct else ""
    if back == phase and not back_name:
        return [Statement(name, f"{left} <=> {right}{tail}", phase, laws)]
    statements = [Statement(name, f"{left} => {right}{tail}", phase, laws)]
    if back is not None:
        statements.append(Statement(back_name or f"{name}-inv", f"{right} => {left}{tail}", back, laws))
    return statements


@dataclass(frozen=True)
class Operator:
    """An operator with an index form and a fixed number of operands."""

    spec: OpSpec
    form: IndexForm

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.spec.name

    @property
    def variables(self) -> tuple[str, ...]:
        """A variable for each operand that is not merely added."""
        return VARIABLES[: len(self.form.operands)]

    @cached_property
    def guards(self) -> tuple[str, ...]:
        """The conditions on attributes under which the operator is linear."""
        return tuple(f"a.{name} == {value!r}" for name, value in self.form.linear_if.items())

    @property
    def linear(self) -> tuple[int, ...]:
        """The operands in which it is linear, in order."""
        return tuple(sorted(k for k in self.spec.multilinear if k < len(self.form.operands)))

    def applied(self, *operands: str, fields: Mapping[str, str] | None = None) -> str:
        """The application to operands, with the attributes a but for some fields."""
        infix = _INFIX.get(self.name)
        if infix is not None:
            return f"({f' {infix} '.join(f'({o})' if ' ' in o else o for o in operands)})"
        given = [f"{name}={value}" for name, value in (fields or {}).items()]
        record = ["**a"] if self.spec.attrs else []
        return f"{self.name}({', '.join([*operands, *given, *record])})"

    def called(self, changed: Mapping[str, str]) -> str:
        """The application in an expression, where operators are functions and there are no attributes to give."""
        return f"{self.name}({', '.join(changed.get(v, v) for v in self.variables)})"

    def with_operands(self, changed: Mapping[str, str], *more: str) -> str:
        """The application to its variables, some of them replaced."""
        return self.applied(*(changed.get(v, v) for v in self.variables), *more)

    def ranks(self, names: Mapping[str, str] | None = None) -> list[str]:
        """Conditions that give operands with broadcast axes all the axes that are named."""
        shown = names or {}
        pairs = zip(self.form.operands, self.variables, strict=True)
        return [f"rank({shown.get(v, v)}) >= {t.fixed}" for t, v in pairs if t.broadcasts and t.fixed]

    def group_guard(self, index: Index) -> str:
        """The condition under which a grouped axis is a plain one; empty where it is one anyway."""
        counted = self.form.sizes.get(index.group)
        return f"a.{counted} == 1" if counted else ""

    def is_ungrouped(self, index: Index) -> bool:
        """True where a grouped axis can be told to be one of a single group."""
        return not index.group or index.group in self.form.sizes


def axis(term: IndexTerm, name: str, rank: str) -> str:
    """Where an index stands among the axes of a term, counted from the left; `rank` says how many axes there are."""
    position = term.position(name)
    if position is None:
        raise KeyError(name)
    if any(i.many for i in term.indices[:position]):
        return f"{rank} - {len(term.indices) - position}"
    if term.turned:
        return f"({len(term.indices) - 1 - position} if a.{term.turned} else {position})"
    return str(position)


def axis_of(term: IndexTerm, name: str, variable: str) -> str:
    """Where an index stands among the axes of a variable."""
    return axis(term, name, f"rank({variable})")


def alike(variable: str, sequence: str, term: IndexTerm, name: str) -> str:
    """The condition that the tensors of a sequence have equal shapes but for one axis."""
    here, there = axis_of(term, name, variable), axis_of(term, name, f"{sequence}[0]")
    same = f"without(shape({variable}), {here}) == without(shape({sequence}[0]), {there})"
    return f"all({same} for {variable} in {sequence})"


def loop(variables: Sequence[str]) -> str:
    """The loop over sequences in step, each named by its variable with an s."""
    if len(variables) == 1:
        return f"for {variables[0]} in {variables[0]}s"
    return f"for {', '.join(variables)} in zip({', '.join(v + 's' for v in variables)})"


def vector(term: IndexTerm, name: str, count: str, variable: str) -> str:
    """The shape that spreads a vector along one axis of a term: ones elsewhere, for any number of axes too."""
    parts: list[str] = []
    plain: list[str] = []
    for index in term.indices:
        if not index.many:
            plain.append(count if index.name == name else "1")
            continue
        if index.name == "...":
            continue  # leading axes broadcast
        parts += ["(" + ", ".join(plain) + ",)"] if plain else []
        parts.append(f"ones(rank({variable}) - {term.fixed})")
        plain = []
    while term.broadcasts and plain[:1] == ["1"]:
        plain.pop(0)
    if plain:
        parts.append("(" + ", ".join(plain) + ",)")
    return " + ".join(parts)


def takes(spec: OpSpec, *shapes: tuple[int, ...]) -> bool:
    """True if the operator takes operands of these shapes."""
    try:
        spec.result_types([TensorType(DType.FLOAT32, s) for s in shapes], spec.complete({}))
    except ShapeError:
        return False
    return True
