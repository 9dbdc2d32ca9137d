"""The immutable tensor graph: nodes in topological order over named values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from eqsat.errors import GraphError
from eqsat.language.terms.constant import Constant
from eqsat.language.terms.types import UNKNOWN, ValueType
from eqsat.moved import MovedAttribute
from eqsat.system.markup import html_listing

Derived = TypeVar("Derived")

#: The operator of a node that is kept as it is and never looked into.
OPAQUE = "opaque"


#: The items and the hash of attributes where there are none.
_NONE: tuple[dict[str, Any], int] = ({}, hash(()))


class Attrs(Mapping[str, Any]):
    """Attributes of a node: an immutable, hashable mapping with hashable values.

    >>> Attrs(axis=1) == Attrs({"axis": 1}), Attrs(axis=1) | {"axis": 2}
    (True, Attrs(axis=2))
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        if not values and not more:  # most nodes of a model have none
            self._items, self._hash = _NONE
            return
        merged = {**(values or {}), **more}
        self._items = {k: _frozen(v) for k, v in sorted(merged.items())}
        self._hash = hash(tuple((k, _kind(v)) for k, v in self._items.items()))

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __or__(self, other: Mapping[str, Any]) -> Attrs:
        return Attrs(self._items, **other)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Attrs) or self._hash != other._hash:
            return False
        return {k: _kind(v) for k, v in self.items()} == {k: _kind(v) for k, v in other.items()}

    def __repr__(self) -> str:
        return "Attrs(" + ", ".join(f"{k}={v!r}" for k, v in self._items.items()) + ")"


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple([_frozen(v) for v in value])
    return value


def _kind(value: Any) -> Any:
    """A key that tells 1 from 1.0 and True, which Python holds equal, and compares floats by their text."""
    kind = type(value)
    if kind is int or kind is bool:
        return kind, value
    if kind is str:
        return value
    if isinstance(value, tuple):
        return tuple([_kind(v) for v in value])
    return (kind.__name__, repr(value)) if isinstance(value, int | float) else value


@dataclass(frozen=True, slots=True)
class Node:
    """One operator applied to named values; an input that is None is left out, an output that is "" is unused."""

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attrs: Attrs = field(default_factory=Attrs)
    name: str = ""

    def describe(self) -> str:
        """The name of this node in messages: its own, or the first value it makes, and the operator."""
        name = next((o for o in self.outputs if o), "?")
        return f"node {self.name!r} ({self.op})" if self.name else f"node making {name!r} ({self.op})"


@dataclass(frozen=True, eq=False)
class Graph:
    """A tensor program: inputs, constants, nodes in topological order, and named outputs.

    Values are named by strings, each made once. `outputs` maps what the caller sees to the value it is, so one value
    may serve two outputs, and an output may be an input or a constant. `types` covers every value. `origin` is what the
    front end needs to write the graph back (ONNX: opsets, metadata); no other part reads it.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Constant]
    types: Mapping[str, ValueType]
    origin: Any = None

    def __post_init__(self) -> None:
        for attr in ("outputs", "constants", "types"):
            object.__setattr__(self, attr, MappingProxyType(dict(getattr(self, attr))))
        _check(self)

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that makes each value, for values made by nodes."""
        return MappingProxyType({o: n for n in self.nodes for o in n.outputs if o})

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each value, each node once, in order."""
        readers: dict[str, dict[int, Node]] = {}
        for i, node in enumerate(self.nodes):
            for value in node.inputs:
                if value is not None:
                    readers.setdefault(value, {})[i] = node
        return MappingProxyType({v: tuple(r.values()) for v, r in readers.items()})

    #: The sizes of named dims, deprecated for `sizing_of`.
    sizing = MovedAttribute("eqsat.language.sizes.solve", "sizing_of")

    def derived(self, derive: Callable[[Graph], Derived]) -> Derived:
        """The result of a function of this graph alone, computed once and kept as long as the graph."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        result: Derived = self._derived[derive]
        return result

    @cached_property
    def _derived(self) -> dict[Callable[[Graph], Any], Any]:
        return {}

    def type(self, value: str) -> ValueType:
        """The type of a value; UNKNOWN where nothing is stated."""
        constant = self.constants.get(value)
        return self.types.get(value, UNKNOWN) if constant is None else constant.type

    def restricted(self, outputs: Iterable[str]) -> Graph:
        """The graph that makes only these outputs, without what they do not need; inputs stay.

        GraphError for a name that is no output.
        """
        names = list(outputs)
        for name in names:
            if name not in self.outputs:
                raise GraphError(
                    f"no output {name!r}",
                    where=self.name,
                    expected="one of " + ", ".join(repr(o) for o in self.outputs),
                    remedy="pass names of outputs the graph has",
                )
        return replace(self, outputs={n: self.outputs[n] for n in names}).without_dead()

    def without_dead(self) -> Graph:
        """The graph without nodes and constants that no output needs."""
        needed = set(self.outputs.values())
        living: list[Node] = []
        for node in reversed(self.nodes):
            if any(o in needed for o in node.outputs):
                living.append(node)
                needed |= {v for v in node.inputs if v is not None}
        alive = needed | set(self.inputs) | {o for n in living for o in n.outputs}
        return replace(
            self,
            nodes=tuple(reversed(living)),
            constants={k: c for k, c in self.constants.items() if k in needed},
            types={v: t for v, t in self.types.items() if v in alive},
        )

    def without_dead_inputs(self) -> Graph:
        """The graph without the inputs that no output needs, and without what else is dead; itself where all are."""
        read = {v for node in self.without_dead().nodes for v in node.inputs} | set(self.outputs.values())
        if read.issuperset(self.inputs):
            return self
        return replace(self, inputs=tuple(v for v in self.inputs if v in read)).without_dead()

    def __getitem__(self, value: str) -> ValueType:
        return self.types[value]

    def _repr_html_(self) -> str:
        return listed(self.name, self.inputs, self.outputs, self.nodes, self.type)

    def __repr__(self) -> str:
        return (
            f"Graph({self.name!r}, {len(self.nodes)} nodes, inputs={list(self.inputs)}, outputs={list(self.outputs)})"
        )


def listed(
    name: str,
    inputs: Iterable[str],
    outputs: Mapping[str, str],
    nodes: Sequence[Node],
    type_of: Callable[[str], ValueType],
) -> str:
    """A graph in a cell of a notebook: its inputs and outputs with their types, and its first nodes."""
    ports = [("input", value, type_of(value)) for value in inputs]
    ports += [("output", shown, type_of(value)) for shown, value in outputs.items()]
    rows = (
        (
            operator_name(node),
            ", ".join(v for v in node.inputs if v),
            ", ".join(f"{o}: {type_of(o)}" for o in node.outputs if o),
        )
        for node in nodes
    )
    table = html_listing(f"{name}, inputs and outputs", "value", ("", "name", "type"), ports, len(ports))
    return table + html_listing("", "node", ("operator", "reads", "makes"), rows, len(nodes))


def _check(graph: Graph) -> None:
    """Every value is made once and before it is read."""
    defined: set[str] = set()
    for value in (*graph.inputs, *graph.constants):
        if value in defined:
            raise GraphError(f"value {value!r} is defined twice", where=graph.name, expected="one definition a name")
        defined.add(value)
    for node in graph.nodes:
        for operand in node.inputs:
            if operand is not None and operand not in defined:
                raise GraphError(
                    f"{node.describe()} reads {operand!r}, which nothing before it makes",
                    where=graph.name,
                    expected="nodes in topological order over defined values",
                )
        for output in node.outputs:
            if output and output in defined:
                raise GraphError(
                    f"value {output!r} is defined twice", where=graph.name, expected="one definition a name"
                )
            defined.add(output)
    for name, value in graph.outputs.items():
        if value not in defined:
            raise GraphError(f"output {name!r} is {value!r}, which nothing makes", where=graph.name)


def operator_name(node: Node) -> str:
    """The operator of a node; for one that is kept as it is, what the model calls it."""
    return str(node.attrs["op_type"]) if node.op == OPAQUE else node.op
