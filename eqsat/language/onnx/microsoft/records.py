"""Operators that are read as several of ours, and written as the original one where these came through unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from eqsat.language.ops import OPS
from eqsat.language.ops.nn.endings import with_activations_apart
from eqsat.language.terms import OPAQUE, UNKNOWN, Attrs, Constant, Graph, Names, Node, TensorType, ValueType
from eqsat.language.terms.names import unused

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True)
class FusedRecord:
    """One node of a model, and the nodes that it was read as.

    `inputs` and `outputs` are its values as the graph calls them; `types` are those of the values that `nodes` read and
    do not make, and `constants` those of them, and of the inputs, that are constants. `fixed` are constants that the
    nodes hold for: the reading of the node depends on their elements.
    """

    proto: bytes
    op_type: str
    domain: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    types: Mapping[str, ValueType]
    constants: Mapping[str, Constant]
    fixed: frozenset[str]


def record(
    proto: NodeProto,
    inputs: Sequence[str | None],
    outputs: Sequence[str],
    nodes: Sequence[Node],
    types: Mapping[str, ValueType],
    constants: Mapping[str, Constant],
    looked_at: frozenset[str],
) -> FusedRecord:
    """The record of a node that was translated; `looked_at` are values whose elements its translation read."""
    inner = {o for n in nodes for o in n.outputs}
    read = {v for n in nodes for v in n.inputs if v is not None and v not in inner}
    wanted = {v for v in (*read, *inputs) if v is not None}
    return FusedRecord(
        proto=proto.SerializeToString(deterministic=True),
        op_type=proto.op_type,
        domain=proto.domain,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        nodes=tuple(nodes),
        types={v: types[v] for v in read},
        constants={v: constants[v] for v in wanted if v in constants},
        fixed=looked_at | frozenset(v for v in read if v in constants and (v not in inputs or _is_number(types[v]))),
    )


def _is_number(type: ValueType) -> bool:
    """True for one element: the translation may have added an equal one, which is the same constant then."""
    return isinstance(type, TensorType) and type.is_static and type.elements({}) == 1


def restored(graph: Graph, records: Sequence[FusedRecord]) -> Graph:
    """The graph with every recorded operator in the place of the nodes it was read as, where these are still there.

    A region counts as still there where the same operators with the same attributes make the values that the recorded
    operator made, of operands of the same types, and nothing else reads values inside it.
    """
    if not records:
        return graph
    given, graph = graph, with_activations_apart(graph, _linear(graph))
    matches = [m for m in (_match(graph, r) for r in records) if m is not None]
    closed = _closed(graph, matches)
    if not closed:
        return given
    constants, types = dict(graph.constants), dict(graph.types)
    matched = {o: m for m in closed for o in m.outputs.values()}
    place = {o: i for i, n in enumerate(graph.nodes) for o in n.outputs}
    fused = [(min(place[o] for o in m.outputs.values()), _fused(m, constants, types)) for m in closed]
    left = [(i, n) for i, n in enumerate(graph.nodes) if not any(o in matched for o in n.outputs)]
    try:
        ordered = _ordered([*left, *fused])
    except CycleError:
        return given
    return replace(graph, nodes=tuple(ordered), constants=constants, types=types).without_dead()


@dataclass
class _Match:
    """Where the nodes of a record are in a graph: the values that stand for its own, and the matched nodes."""

    record: FusedRecord
    values: dict[str, str]
    outputs: dict[str, str] = field(default_factory=dict)
    nodes: dict[tuple[str, ...], Node] = field(default_factory=dict)


def _match(graph: Graph, record: FusedRecord) -> _Match | None:
    makers = {o: n for n in record.nodes for o in n.outputs if o}
    matched = _Match(record, {})
    for output in record.outputs:
        if not output or output not in graph.producers:
            continue
        if output not in makers or not _same(graph, record, makers, output, output, matched):
            return None
        matched.outputs[output] = output
    return matched if matched.outputs and _is_bound(graph, matched) else None


def _same(graph: Graph, record: FusedRecord, makers: Mapping[str, Node], old: str, new: str, matched: _Match) -> bool:
    """True if a value of a graph is made as one of a record was; bindings made on the way stay in `matched`."""
    if old in matched.values:
        return matched.values[old] == new
    maker = makers.get(old)
    if maker is None:
        return _same_leaf(graph, record, old, new, matched)
    node = graph.producers.get(new)
    if node is None or (node.op, node.attrs) != (maker.op, maker.attrs) or len(node.inputs) != len(maker.inputs):
        return False
    if len(node.outputs) != len(maker.outputs) or node.outputs.index(new) != maker.outputs.index(old):
        return False
    for operands in _orders(node):
        values, nodes = dict(matched.values), dict(matched.nodes)
        pairs = zip(maker.inputs, operands, strict=True)
        if all((a is None) == (b is None) for a, b in zip(maker.inputs, operands, strict=True)) and all(
            a is None or b is None or _same(graph, record, makers, a, b, matched) for a, b in pairs
        ):
            matched.values[old] = new
            matched.nodes[node.outputs] = node
            return True
        matched.values, matched.nodes = values, nodes
    return False


def _orders(node: Node) -> Iterator[tuple[str | None, ...]]:
    yield node.inputs
    if node.op in OPS and OPS[node.op].commutative:
        yield node.inputs[::-1]


def _same_leaf(graph: Graph, record: FusedRecord, old: str, new: str, matched: _Match) -> bool:
    constant = record.constants.get(old)
    if old in record.fixed:
        other = graph.constants.get(new)
        if constant is None or other is None:
            same = old == new and constant is other
            if same:
                matched.values[old] = new
            return same
        if other.type != constant.type or other.digest != constant.digest:
            return False
    elif graph.type(new) != record.types[old] or (constant is not None and new not in graph.constants):
        return False
    matched.values[old] = new
    return True


def _is_bound(graph: Graph, matched: _Match) -> bool:
    """True if every operand is known: one that the nodes read, a constant that was folded into others, or an input.

    Other values make no difference to their results; an input of the graph is still there to be named.
    """
    record = matched.record
    for value in record.inputs:
        if value is not None and value in graph.inputs:
            matched.values.setdefault(value, value)
    return all(v is None or v in matched.values or v in record.constants for v in record.inputs)


def _closed(graph: Graph, found: Sequence[_Match]) -> list[_Match]:
    """Those of the matches inside which nothing is read by nodes that stay."""
    closed, handed_out = list(found), set(graph.outputs.values())
    while True:
        inside = {outputs for m in closed for outputs in m.nodes}
        left = [m for m in closed if _is_closed(graph, m, inside, handed_out)]
        if len(left) == len(closed):
            return left
        closed = left


def _is_closed(graph: Graph, matched: _Match, inside: set[tuple[str, ...]], handed_out: set[str]) -> bool:
    inner = {o for outputs in matched.nodes for o in outputs if o} - set(matched.outputs.values())
    if inner & handed_out:
        return False
    return all(reader.outputs in inside for value in inner for reader in graph.consumers.get(value, ()))


def _fused(matched: _Match, constants: dict[str, Constant], types: dict[str, ValueType]) -> Node:
    """The recorded operator over the values that stand for its own; adds the constants that were folded away."""
    record = matched.record
    inputs = [
        None if v is None else matched.values.get(v) or _added(v, record, constants, types) for v in record.inputs
    ]
    outputs = tuple(_output(o, matched, types) for o in record.outputs)
    attrs = Attrs(
        op_type=record.op_type, domain=record.domain, reason="written as it was read", proto=record.proto, captures=0
    )
    return Node(OPAQUE, tuple(inputs), outputs, attrs)


def _added(value: str, record: FusedRecord, constants: dict[str, Constant], types: dict[str, ValueType]) -> str:
    constant = record.constants[value]
    known = constants.get(value)
    name = value
    if known is None or known.type != constant.type or known.digest != constant.digest:
        name = unused(value, constants, types)
    constants[name], types[name] = constant, constant.type
    return name


def _output(value: str, matched: _Match, types: dict[str, ValueType]) -> str:
    """The name of an output; one that nothing reads any more keeps its own, where no other value has that."""
    if not value or value in matched.outputs:
        return value
    name = unused(value, types)
    types[name] = UNKNOWN
    return name


def _linear(graph: Graph) -> Callable[[Node], str]:
    """Names for the values of operators before their activation."""
    names = Names({*graph.types, *graph.constants})
    return lambda node: names(f"{node.outputs[0]}/{node.op}")


def _ordered(placed: Sequence[tuple[int, Node]]) -> list[Node]:
    """The nodes with operands first, otherwise in the order of their places; CycleError where there is none such."""
    nodes = [node for _, node in sorted(placed, key=lambda pair: pair[0])]
    makers = {o: i for i, n in enumerate(nodes) for o in n.outputs if o}
    sorter = TopologicalSorter({i: {makers[v] for v in n.inputs if v in makers} for i, n in enumerate(nodes)})
    sorter.prepare()
    ready, ordered = list(sorter.get_ready()), list[Node]()
    heapify(ready)
    while ready:
        index = heappop(ready)
        ordered.append(nodes[index])
        sorter.done(index)
        for other in sorter.get_ready():
            heappush(ready, other)
    return ordered
