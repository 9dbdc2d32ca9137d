"""Attributes as expressions over the names of a rule, so that a step of a proof is stated for every instance."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from eqsat.language.terms import Attrs, Expression
from eqsat.rewrites.conditions.expression import compiled


def indexed(name: str, index: int | None) -> str:
    """A name as text, with its place where it is an element of a sequence."""
    return name if index is None else f"{name}[{index}]"


@dataclass(frozen=True, slots=True)
class Ref:
    """A term, by its number in a closure."""

    term: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written out; told apart by its text, for 1 and 1.0 and True are equal in Python."""

    text: str
    value: Any = field(compare=False)


@dataclass(frozen=True, slots=True)
class Bound:
    """An attribute or record that the rule's left side binds, or one element of a sequence of them."""

    name: str
    index: int | None = None

    @property
    def label(self) -> str:
        """The name as text, with its place where it is an element of a sequence."""
        return indexed(self.name, self.index)


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a record."""

    record: Symbol
    key: str


@dataclass(frozen=True, slots=True)
class SymbolRecord:
    """All attributes of a term."""

    items: tuple[tuple[str, Symbol], ...]

    def get(self, key: str) -> Symbol:
        """The field of this name."""
        return dict(self.items)[key]


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression over terms and other symbols."""

    expression: Expression
    env: tuple[tuple[str, Thing], ...]


Symbol: TypeAlias = "Literal | Bound | Member | SymbolRecord | Computed"
Thing: TypeAlias = "Ref | Symbol | tuple[Thing, ...]"
Env: TypeAlias = "dict[str, Thing]"


def literal(value: Any) -> Literal:
    """The symbol of a value.

    >>> literal(1) == literal(True)
    False
    """
    frozen = Attrs(v=value)["v"]
    return Literal(repr(frozen), frozen)


def symbol(expression: Expression, env: Mapping[str, Thing]) -> Thing:
    """The meaning of an expression where `env` gives the meaning of its names."""
    tree = expression.tree
    if isinstance(tree, ast.Name):
        return env[tree.id]
    if isinstance(tree, ast.Constant):
        return literal(tree.value)
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        record = env[tree.value.id]
        return record.get(tree.attr) if isinstance(record, SymbolRecord) else Member(_symbol(record), tree.attr)
    names = compiled(expression).names
    if not names and _is_written_out(tree):
        return literal(ast.literal_eval(tree))
    return Computed(expression, tuple((n, env[n]) for n in names))


def is_closed(thing: Thing) -> bool:
    """True if the value depends on nothing that a rule binds."""
    if isinstance(thing, Literal):
        return True
    if isinstance(thing, Ref | Bound):
        return False
    if isinstance(thing, Member):
        return is_closed(thing.record)
    if isinstance(thing, SymbolRecord):
        return all(is_closed(s) for _, s in thing.items)
    if isinstance(thing, Computed):
        return all(is_closed(t) for _, t in thing.env)
    return all(is_closed(t) for t in thing)


def _symbol(thing: Thing) -> Symbol:
    if isinstance(thing, Ref | tuple):
        raise TypeError(f"{thing} is no record")
    return thing


def _is_written_out(tree: ast.expr) -> bool:
    try:
        ast.literal_eval(tree)
    except ValueError:
        return False
    return True
