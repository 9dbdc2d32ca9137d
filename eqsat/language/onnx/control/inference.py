"""Types through If, Loop and Scan: by join of branches, and by widening until a loop's state is stable.

Source: the operators' definitions in ONNX; of a loop that does not run at all, the results of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto

from eqsat.errors import EqsatError
from eqsat.language.declaration.symbolic import least
from eqsat.language.graphs.fold import Folder
from eqsat.language.onnx.control.scope import BodyScope, Budget, names_of
from eqsat.language.onnx.files.protos import attributes, free, value_type
from eqsat.language.terms import UNKNOWN, Constant, Dim, DType, Graph, Sym, TensorType, ValueType

#: Reads a body in a scope; EqsatError where something is wrong with it.
Read = Callable[[GraphProto, BodyScope], Graph]

_BOOL, _COUNT = TensorType(DType.BOOL, ()), TensorType(DType.INT64, ())
#: The first opset whose Scan has no axis for the batch.
_SCAN = 9


class _Unknown(Exception):  # noqa: N818  (nothing is wrong)
    """A body was not read, or does not fit the operator: its results have the types that the model states."""


@dataclass(frozen=True)
class Body:
    """A body as a graph, in the scope in which it was read: of a loop that of any of its runs."""

    name: str
    proto: GraphProto
    scope: BodyScope
    graph: Graph

    def results(self) -> list[ValueType]:
        """The types of its outputs, in order."""
        return [self.graph.type(value) for value in self.graph.outputs.values()]


@dataclass(frozen=True)
class Control:
    """A node that holds bodies: these, and the types of its outputs as the graph around it sees them.

    `trips` is how often a loop runs, None where that is not known ahead; `runs` says that it surely runs once.
    """

    bodies: tuple[Body, ...]
    results: tuple[ValueType, ...]
    trips: Dim | None = None
    runs: bool = False


def control(node: NodeProto, opset: int, folder: Folder, budget: Budget, read: Read) -> Control | None:
    """A node of If, Loop or Scan with its bodies; None for other operators, and for bodies that cannot be read."""
    inferences = {"If": _if, "Loop": _loop, "Scan": _scan}
    if node.op_type not in inferences or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Scan" and opset < _SCAN:
        return None
    around = _Around(node, folder, budget, read)
    try:
        inferred = inferences[node.op_type](around)
    except (_Unknown, EqsatError, RecursionError):
        # A fault in a body matters only where it runs, and it may never do.
        return None
    # How often a loop runs is told by dims of the graph around it.
    names = around.names() | (inferred.trips.names() if isinstance(inferred.trips, Sym) else frozenset())
    return Control(
        inferred.bodies,
        tuple(seen_outside(t, names, folder.fresh) for t in inferred.results),
        inferred.trips,
        inferred.runs,
    )


@dataclass
class _Around:
    """The graph around a node, and how its bodies are read in it."""

    node: NodeProto
    folder: Folder
    budget: Budget
    read: Read
    attributes: Mapping[str, object] = field(init=False)

    def __post_init__(self) -> None:
        self.attributes = attributes(self.node)

    def names(self) -> frozenset[str]:
        """The names of dims of the operands and of the values that the bodies capture."""
        graphs = [a.g for a in self.node.attribute if a.HasField("g")]
        values = {*self.node.input, *(name for graph in graphs for name in free(graph))}
        return names_of(self.folder.type(v) for v in values if v)

    def body(
        self,
        name: str,
        types: Mapping[str, ValueType],
        constants: Mapping[str, Constant] | None = None,
        repeated: bool = False,
    ) -> Body:
        """A body whose own inputs have these types."""
        proto = self.graph(name)
        folder = self.folder
        if not self.budget.take(proto):
            raise _Unknown
        outer = [v for v in dict.fromkeys(free(proto)) if v not in types]
        known = {v: folder.constants[folder.resolve(v)] for v in outer if folder.resolve(v) in folder.constants}
        seen = {**{v: folder.type(v) for v in outer}, **types}
        names = names_of(seen.values())
        dims = {v: found for v in outer if v not in known and (found := folder.dims(v)) is not None}
        dims = {v: d for v, d in dims.items() if names_of([TensorType(DType.INT64, tuple(d.ravel()))]) <= names}
        scope = BodyScope(seen, {**known, **(constants or {})}, folder.fresh, self.budget, dims, repeated)
        return Body(name, proto, scope, self.read(proto, scope))

    def graph(self, name: str) -> GraphProto:
        """The graph of an attribute."""
        proto = next((a.g for a in self.node.attribute if a.name == name and a.HasField("g")), None)
        if proto is None:
            raise _Unknown
        return proto

    def type(self, index: int) -> ValueType:
        """The type of an operand."""
        return self.folder.type(self.node.input[index])

    def has(self, index: int) -> bool:
        """True where an operand is given."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def number(self, index: int) -> Dim | None:
        """The one element of an operand, where it is known ahead."""
        elements = self.folder.dims(self.node.input[index])
        return elements.ravel()[0] if elements is not None and elements.size == 1 else None

    def check(self, made: int) -> None:
        """End the inference where a node has more outputs than its bodies make."""
        if len(self.node.output) > made:
            raise _Unknown


def _if(around: _Around) -> Control:
    taken, other = around.body("then_branch", {}), around.body("else_branch", {})
    fresh, pairs = around.folder.fresh, list(zip(taken.results(), other.results(), strict=False))
    around.check(len(pairs))
    return Control((taken, other), tuple(join(a, b, fresh) for a, b in pairs))


def _loop(around: _Around) -> Control:
    proto = around.graph("body")
    count = len(around.node.input) - 2
    if count < 0 or len(proto.input) != count + 2 or len(proto.output) < count + 1:
        raise _Unknown
    initial = [around.type(i + 2) for i in range(count)]
    turn, going, *states = proto.input
    own = {turn.name: _one(turn, _COUNT), going.name: _one(going, _BOOL)}
    # A body runs only while the condition holds. Where none is given, that is what the body says.
    true = {going.name: Constant.of(np.ones(own[going.name].static, np.bool_))}
    body, types = _stable(around, own, states, initial, true, 1)
    always = _is_true(body.graph)
    if not around.has(1) and not always:
        body, types = _stable(around, own, states, initial, {}, 1)
        always = _is_true(body.graph)
    starts = not around.has(1) or around.number(1) == 1
    most = around.number(0) if around.has(0) else None
    low = least(most) if most is not None else 0 if around.has(0) else 1
    runs = starts and low is not None and low >= 1
    trips = None
    if most is not None and starts and always:
        trips = max(most, 0) if isinstance(most, int) else most if low is not None and low >= 0 else None
    results = body.results()[1:]
    around.check(len(results))
    stacked = [
        _stacked(type, stated, 0, trips, runs, around.folder.fresh)
        for type, stated in zip(results[count:], proto.output[count + 1 :], strict=True)
    ]
    return Control((body,), (*(results[:count] if runs else types), *stacked), trips, runs)


def _scan(around: _Around) -> Control:
    proto, attrs = around.graph("body"), around.attributes
    scanned = attrs.get("num_scan_inputs")
    if not isinstance(scanned, int) or not 0 < scanned <= len(proto.input) == len(around.node.input):
        raise _Unknown
    count = len(proto.input) - scanned
    if len(proto.output) < count:
        raise _Unknown
    axes = _axes(attrs.get("scan_input_axes"), scanned)
    slices: dict[str, ValueType] = {}
    trips: Dim | None = None
    for index, (value, axis) in enumerate(zip(proto.input[count:], axes, strict=True)):
        type = around.type(count + index)
        if not isinstance(type, TensorType) or type.shape is None or not -type.rank <= axis < type.rank:
            slices[value.name] = type.with_shape(None) if isinstance(type, TensorType) else UNKNOWN
            continue
        at = axis % type.rank
        length = type.shape[at]
        trips = length if trips is None or isinstance(length, int) else trips
        slices[value.name] = type.with_shape(type.shape[:at] + type.shape[at + 1 :])
    initial = [around.type(i) for i in range(count)]
    body, types = _stable(around, slices, proto.input[:count], initial, {}, 0)
    results = body.results()
    around.check(len(results))
    runs = trips is not None and (least(trips) or 0) >= 1
    places = _axes(attrs.get("scan_output_axes"), len(results) - count)
    stacked = [
        _stacked(type, stated, axis, trips, runs, around.folder.fresh)
        for type, stated, axis in zip(results[count:], proto.output[count:], places, strict=True)
    ]
    return Control((body,), (*(results[:count] if runs else types), *stacked), trips, runs)


def _axes(given: object, count: int) -> list[int]:
    if given is None:
        return [0] * count
    if not isinstance(given, tuple) or len(given) != count:
        raise _Unknown
    return [int(axis) for axis in given]


def _one(stated: ValueInfoProto, type: TensorType) -> TensorType:
    """The type of a number of turns or a condition, which is a vector of one element where the body says so."""
    shape = stated.type.tensor_type.shape.dim
    return type.with_shape((1,)) if len(shape) == 1 else type


def _stable(
    around: _Around,
    own: Mapping[str, ValueType],
    states: Sequence[ValueInfoProto],
    initial: Sequence[ValueType],
    constants: Mapping[str, Constant],
    first: int,
) -> tuple[Body, list[ValueType]]:
    """A loop's body once the types of its states no longer change, and those; its outputs from `first` on are states.

    Each dim and each rank is widened once at most, so this ends.
    """
    types, wide = [_known(t, v) for t, v in zip(initial, states, strict=True)], set[str]()
    while True:
        given = {**own, **{v.name: t for v, t in zip(states, types, strict=True)}}
        body = around.body("body", given, constants, repeated=True)
        pairs = zip(types, body.results()[first:], strict=False)
        after = [widened(before, made, wide, around.folder.fresh) for before, made in pairs]
        if after == types:
            return body, types
        types = after


def _known(type: ValueType, stated: ValueInfoProto) -> ValueType:
    """The type of a state; where nothing is known of it, the type that the body states, without the shape."""
    if type is not UNKNOWN:
        return type
    declared = value_type(stated.type, lambda: Sym.named("?"))
    return declared.with_shape(None) if isinstance(declared, TensorType) else declared


def _is_true(graph: Graph) -> bool:
    """True if the first output is known to be true."""
    constant = graph.constants.get(next(iter(graph.outputs.values())))
    return constant is not None and constant.type.dtype is DType.BOOL and bool(constant.array.all())


def _stacked(
    made: ValueType, stated: ValueInfoProto, axis: int, trips: Dim | None, runs: bool, fresh: Callable[[], Sym]
) -> ValueType:
    """The type of the results of all runs, put together along an axis.

    Where none may run, ONNX Runtime goes by the shape that the body states: what it does not state may be anything.
    """
    if not isinstance(made, TensorType):
        return UNKNOWN
    if made.shape is None:
        return made
    shape = made.shape
    if not runs:
        proto = stated.type.tensor_type
        if not proto.HasField("shape") or len(proto.shape.dim) != len(shape):
            return made.with_shape(None)
        shape = tuple(
            d if isinstance(d, int) and s.HasField("dim_value") and s.dim_value == d else fresh()
            for d, s in zip(shape, proto.shape.dim, strict=True)
        )
    if not -len(shape) - 1 <= axis <= len(shape):
        raise _Unknown
    at = axis % (len(shape) + 1)
    return made.with_shape((*shape[:at], fresh() if trips is None else trips, *shape[at:]))


def join(a: ValueType, b: ValueType, fresh: Callable[[], Sym]) -> ValueType:
    """The type of a value that has either of two types: a dim in which they differ is a new one.

    Unknown rank where the ranks differ, unknown where the element types do.
    """
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a if a == b else UNKNOWN
    if a.dtype is not b.dtype:
        return UNKNOWN
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return a.with_shape(None)
    return a.with_shape(tuple(x if x == y else fresh() for x, y in zip(a.shape, b.shape, strict=True)))


def widened(state: ValueType, made: ValueType, wide: set[str], fresh: Callable[[], Sym]) -> ValueType:
    """The type of a state before any run, given its type before one run and after that.

    A dim that changes becomes a new one, whose name is added to `wide`; one in `wide` stays, being any dim already. So
    each dim changes once at most, and then the rank, and repeating this ends.
    """
    if not isinstance(state, TensorType) or not isinstance(made, TensorType):
        return state if state == made else UNKNOWN
    if state.dtype is not made.dtype:
        return UNKNOWN
    if state.shape is None or made.shape is None or len(state.shape) != len(made.shape):
        return state.with_shape(None)
    dims: list[Dim] = []
    for before, after in zip(state.shape, made.shape, strict=True):
        if before == after or (isinstance(before, Sym) and before.names() & wide):
            dims.append(before)
        else:
            new = fresh()
            wide |= new.names()
            dims.append(new)
    return state.with_shape(tuple(dims))


def seen_outside(type: ValueType, names: Collection[str], fresh: Callable[[], Sym]) -> ValueType:
    """The type as the graph around a body sees it: dims of names that it does not have become new ones."""
    if not isinstance(type, TensorType) or type.shape is None:
        return type
    known = frozenset(names)
    return type.with_shape(tuple(d if isinstance(d, int) or d.names() <= known else fresh() for d in type.shape))
