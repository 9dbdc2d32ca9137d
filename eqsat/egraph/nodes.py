"""E-nodes, e-classes, and the unions that rules made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from eqsat.errors import ShapeError, UnsoundRuleError
from eqsat.language.terms import Attrs, TensorType, ValueType

Key: TypeAlias = tuple[str, int, tuple[int, ...]]
"""The key of an e-node: operator, number of the attributes, leaders of the operands' classes."""
Member: TypeAlias = tuple[int, tuple[int, ...], int]
"""An e-node of a class and an operator: number of the attributes, operands, its own number."""

_NONE: dict[str, list[Member]] = {}


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


class ENodeTable:
    """The distinct e-nodes: of those with one operator, equal attributes and equal operand classes, the first stands.

    Between two calls of `rebuild`, e-nodes are found by what they were then, and those added since by what they are.
    """

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        #: The key of each e-node, None where another stands for it; the classes and what was changed since `rebuild`.
        self._keys: list[Key | None] = []
        self._readers: dict[int, list[int]] = {}
        self._members: dict[int, dict[str, list[Member]]] = {}
        self._moved: list[int] = []
        self._dropped: list[int] = []
        self._touched: set[int] = set()
        #: How often the table was rebuilt, and when each class was last something else after it.
        self.age = 0
        self._changed: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def get(self, key: Key) -> int | None:
        """The number of an e-node, None if there is none."""
        return self._numbers.get(key)

    def add(self, key: Key) -> int:
        """The number of an e-node that there was none of."""
        number = self._numbers[key] = len(self._keys)
        self._keys.append(key)
        self._touched.add(number)
        for operand in dict.fromkeys(key[2]):
            self._readers.setdefault(operand, []).append(number)
        return number

    def join(self, keep: int, drop: int) -> None:
        """Take two classes for one, by their leaders."""
        moved = self._readers.pop(drop, None)
        if moved is not None:
            self._moved += moved
            self._readers.setdefault(keep, []).extend(moved)
        self._dropped.append(drop)
        self._touched.add(keep)

    def rebuild(self, find: Callable[[int], int], members: Callable[[int], Sequence[int]]) -> None:
        """Key e-nodes by the leaders of their operands; `members` are all numbers of a class."""
        keys, numbers = self._keys, self._numbers
        for number in dict.fromkeys(self._moved):
            key = keys[number]
            if key is None:
                continue
            del numbers[key]
            keys[number] = key = (key[0], key[1], tuple([find(operand) for operand in key[2]]))
            other = numbers.get(key)
            if other is not None:
                keys[max(number, other)] = None
                self._touched.add(other)
            numbers[key] = number if other is None else min(number, other)
            self._touched.add(number)
        self._moved.clear()
        self.age += 1
        for leader in self._dropped:
            self._members.pop(leader, None)
            self._changed[leader] = self.age
        self._dropped.clear()
        for leader in {find(number) for number in self._touched}:
            self._changed[leader] = self.age
            own = self._members[leader] = {}
            for number in members(leader):
                if (key := keys[number]) is not None:
                    own.setdefault(key[0], []).append((key[1], key[2], number))
        self._touched.clear()

    def members(self, leader: int, op: str) -> Sequence[Member]:
        """The e-nodes of a class with this operator, as of when the table was last rebuilt."""
        return self._members.get(leader, _NONE).get(op, ())

    def is_older(self, leader: int, age: int) -> bool:
        """True if the e-nodes of a class are those that it had when the table was of this age."""
        return self._changed.get(leader, age + 1) <= age

    def readers(self, leader: int) -> Iterator[int]:
        """The e-nodes with an operand in a class."""
        return (number for number in self._readers.get(leader, ()) if self._keys[number] is not None)

    def distinct(self) -> list[tuple[str, int, tuple[int, ...], int]]:
        """Each e-node once: operator, attributes, operand classes, number; in the order they were made."""
        return [(*key, number) for number, key in enumerate(self._keys) if key is not None]


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


def check_types(a: ValueType, b: ValueType, rule: str) -> None:
    """Refuse an equality of tensors that are not provably of one type; UnsoundRuleError where they are provably not."""
    if a == b:
        return
    tensors = isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype == b.dtype
    if tensors and not (a.is_static and b.is_static):  # type: ignore[union-attr]
        raise ShapeError(f"{a} and {b} are not provably one type", where=f"rule {rule}")
    raise UnsoundRuleError(
        f"rule {rule} made {a} equal to {b}",
        expected="two tensors of one type",
        remedy="leave the rule out with rules=… and report it: its conditions are too weak",
        rules=(rule,),
    )
