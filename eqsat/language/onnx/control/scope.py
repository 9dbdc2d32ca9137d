"""The scope of a body: all that it sees of the graph around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from onnx import GraphProto, ModelProto, ValueInfoProto, helper

from eqsat.language.onnx.files.protos import free, subgraphs
from eqsat.language.terms import Array, Constant, Dim, Names, Sym, TensorType, ValueType
from eqsat.language.terms.formulas import dim_of

#: Nodes of bodies that may be read to type one model: so many, or so many times those that it has. Bodies within bodies
#: are read as often as each of those around them; bodies beyond that have the types that the model states.
_NODES, _TIMES = 10_000, 8


@dataclass
class Budget:
    """The number of nodes of bodies may still be read, those within bodies counted each time."""

    left: int

    @staticmethod
    def of(graph: GraphProto) -> Budget:
        """The budget of the bodies within a graph."""
        return Budget(max(_NODES, _TIMES * (count(graph) - len(graph.node))))

    def take(self, body: GraphProto) -> bool:
        """True if there is room for a body; it is then taken."""
        needed = 1 + count(body)
        if needed > self.left:
            return False
        self.left -= needed
        return True


def count(graph: GraphProto) -> int:
    """The nodes of a graph and of all bodies within it."""
    return sum(1 + sum(count(inner) for inner in subgraphs(node)) for node in graph.node)


@dataclass(frozen=True)
class BodyScope:
    """The graph around a body as it sees it: the types of its own inputs and of the values that it captures, and the
    constants and dims among them.

    A body that is `repeated` runs any number of times: shapes that the model states in it may hold of one run alone.
    """

    types: Mapping[str, ValueType]
    constants: Mapping[str, Constant]
    fresh: Callable[[], Sym]
    budget: Budget
    dims: Mapping[str, Array] = field(default_factory=dict)
    repeated: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The names of dims that mean the same inside as outside."""
        return names_of(self.types.values())

    def reader(self) -> Callable[[str], Dim]:
        """The function that reads texts of dims inside: a name that nothing outside has is a dim of the body alone."""
        names, local = self.names, dict[str, Dim]()

        def read(text: str) -> Dim:
            dim = dim_of(text, names.__contains__)
            if isinstance(dim, Sym) and not dim.names() <= names:
                return local.setdefault(text, self.fresh())
            return dim

        return read


def names_of(types: Iterable[ValueType]) -> frozenset[str]:
    """The names of dims in the shapes of types."""
    names: set[str] = set()
    for type in types:
        if isinstance(type, TensorType):
            for dim in type.shape or ():
                names |= dim.names() if isinstance(dim, Sym) else set()
    return frozenset(names)


def as_model(body: GraphProto, around: ModelProto) -> ModelProto:
    """A body as a model of its own: captured values come after its own inputs, and every output has its own name."""
    model = ModelProto(ir_version=around.ir_version, opset_import=around.opset_import)
    graph = model.graph
    graph.CopyFrom(body)
    graph.input.extend(ValueInfoProto(name=name) for name in dict.fromkeys(free(body)))
    names = Names({n for node in body.node for n in node.output} | {v.name for v in (*graph.input, *body.output)})
    seen: set[str] = set()
    for output in graph.output:
        if output.name in seen:
            name = names.numbered(output.name)
            graph.node.append(helper.make_node("Identity", [output.name], [name]))
            output.name = name
        seen.add(output.name)
    return model
