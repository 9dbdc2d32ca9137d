"""E-nodes, e-classes, and the unions that rules made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.terms import Attrs, TensorType, ValueType


@dataclass(frozen=True, slots=True)
class ENode:
    """An operator over e-classes, the classes named by any e-node in them."""

    op: str
    attrs: Attrs
    operands: tuple[int, ...]
    types: tuple[ValueType, ...]


@dataclass(slots=True)
class EClass:
    """The facts known of every e-node of one e-class.

    `members` are its e-nodes in the order they were made; `values` the names that values of the graph have here;
    `generation` how many merges it took to make the class, at least; `depth` its distance from the inputs.
    """

    members: list[int]
    type: ValueType
    constant: bool
    finite: bool
    generation: int
    depth: int
    values: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Firing:
    """The bindings of a rule when it fired: e-classes (sequences of them for groups) and attributes, by variable.

    It holds no e-graph, unlike a match: egglog's may only be dropped in its own thread, so nothing here may wait for
    the collector.
    """

    rule: Any
    classes: Mapping[str, Any]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RuleUnion:
    """One union that a rule made: the e-node its left side matched and the e-node its right side became.

    `firing` has the bindings, None where they were not recorded, and `root` says which of the rule's roots this is.
    """

    rule: str
    left: int
    right: int
    firing: Firing | None = None
    root: int = 0


def tensor_in(type: ValueType, reader: str) -> TensorType:
    """The type of a class that holds a tensor; ShapeError for another one."""
    if isinstance(type, TensorType):
        return type
    raise ShapeError(f"{reader} reads {type}", expected="a tensor")
