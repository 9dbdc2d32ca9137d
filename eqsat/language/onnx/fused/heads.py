"""Attention over heads that lie side by side in one axis, which ONNX Runtime's operator takes without moving them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from eqsat.language.terms import Attrs, Graph, Node, TensorType

_HEADS_BEFORE_LENGTH = (0, 2, 1, 3)


@dataclass(frozen=True)
class Joined:
    """An attention with its operands and result as batch, length, heads times width, and the number of heads.

    With `weights`, constants, its operands are products of the first operand and these, plus the `biases`, if any.
    """

    node: Node
    heads: int
    weights: tuple[str, ...] = ()
    biases: tuple[str, ...] = ()


def joined_heads(graph: Graph, is_fused: Callable[[Node], bool]) -> tuple[Mapping[str, Joined], frozenset[str]]:
    """Each attention that can be written so by the value it makes, of those allowed, and values then made by no one.

    Its operands are reshaped and transposed from three axes, and its result is transposed and reshaped to three and
    read in no other way.
    """
    readers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers[value].append(node)
    joined: dict[str, Joined] = {}
    after: set[str] = set()
    for node in graph.nodes:
        if node.op != "attention" or not is_fused(node):
            continue
        sources = [_before_split(graph, value) for value in node.inputs[:3]]
        way = _way_to_join(graph, node, readers)
        if way is None or None in sources:
            continue
        heads = _heads(graph, node.inputs[0])
        operands = (*sources, *node.inputs[3:])
        one = Joined(Node(node.op, operands, way[-1:], node.attrs, node.name), heads)
        joined[node.outputs[0]] = one
        after |= set(way)
    unread = _no_longer_read(graph, joined, readers)
    joined = {value: _packed(graph, one, readers, unread) for value, one in joined.items()}
    return joined, frozenset(after | _no_longer_read(graph, joined, readers))


def _packed(graph: Graph, joined: Joined, readers: Mapping[str, list[Node]], unread: Set[str]) -> Joined:
    """The attention with the products that make its operands, where these are of one tensor and read nowhere else."""
    node = joined.node
    products = [_product(graph, value, readers) for value in node.inputs[:3]]
    known = [product for product in products if product is not None]
    if len(known) < 3 or len({source for source, _, _ in known}) > 1:
        return joined
    if not all(reader.outputs[0] in unread for value in node.inputs[:3] for reader in readers[value or ""]):
        return joined
    biases = tuple(bias for _, _, bias in known if bias is not None)
    if len(biases) not in (0, 3):
        return joined
    packed = Node(node.op, (known[0][0], *(None, None), *node.inputs[3:]), node.outputs, node.attrs, node.name)
    return Joined(packed, joined.heads, tuple(weight for _, weight, _ in known), biases)


def _product(graph: Graph, value: str | None, readers: Mapping[str, list[Node]]) -> tuple[str, str, str | None] | None:
    """A tensor of three axes, a constant matrix and a constant vector, of whose product and sum a value is."""
    last = graph.producers.get(value or "")
    bias: str | None = None
    between = [value]
    if last is not None and last.op == "add":
        first, second = last.inputs
        bias, added = (first, second) if first in graph.constants else (second, first)
        between.append(added)
        last = graph.producers.get(added or "") if _is_constant(graph, bias, 1) else None
    if value is None or last is None or last.op != "matmul" or not _is_constant(graph, last.inputs[1], 2):
        return None
    source, weight = last.inputs
    type, result = graph.type(source or ""), graph.type(last.outputs[0])
    if source is None or weight is None or not isinstance(type, TensorType) or not isinstance(result, TensorType):
        return None
    alone = all(v is not None and _only(readers[v]) is not None for v in between)
    wide = bias is None or graph.constants[bias].type.dims == result.dims[-1:]
    unseen = set(between).isdisjoint(graph.outputs.values())
    return (source, weight, bias) if alone and wide and unseen and type.shape is not None and type.rank == 3 else None


def _is_constant(graph: Graph, value: str | None, rank: int) -> bool:
    return value is not None and value in graph.constants and graph.constants[value].type.rank == rank


def _before_split(graph: Graph, value: str | None) -> str | None:
    """The tensor of three axes whose last was split into heads, which were then moved before the length."""
    moved = graph.producers.get(value or "")
    split = graph.producers.get(moved.inputs[0] or "") if moved is not None and _moves_heads(moved) else None
    if split is None or split.op != "reshape" or split.inputs[0] is None:
        return None
    before, after = graph.type(split.inputs[0]), graph.type(split.outputs[0])
    return split.inputs[0] if splits_heads(before, after) else None


def _way_to_join(graph: Graph, node: Node, readers: Mapping[str, list[Node]]) -> tuple[str, str] | None:
    """The result with its heads moved back, and then joined, where nothing else reads a value on the way."""
    outputs = set(graph.outputs.values())
    moved = _only(readers[node.outputs[0]])
    if moved is None or not _moves_heads(moved) or not outputs.isdisjoint((*node.outputs, *moved.outputs)):
        return None
    join = _only(readers[moved.outputs[0]])
    if (
        join is None
        or join.op != "reshape"
        or not splits_heads(graph.type(join.outputs[0]), graph.type(moved.outputs[0]))
    ):
        return None
    return moved.outputs[0], join.outputs[0]


def _only(nodes: Sequence[Node]) -> Node | None:
    return nodes[0] if len(nodes) == 1 else None


def _moves_heads(node: Node) -> bool:
    return node.op == "transpose" and moves_heads(node.attrs)


def moves_heads(attrs: Attrs) -> bool:
    """True if a transpose with these attributes exchanges length and heads, between batch and width."""
    return tuple(attrs["perm"]) == _HEADS_BEFORE_LENGTH


def splits_heads(joined: object, apart: object) -> bool:
    """True if the last axis of one tensor is the heads and widths of another, both known, the others being the same."""
    if not isinstance(joined, TensorType) or not isinstance(apart, TensorType):
        return False
    if joined.shape is None or apart.shape is None or joined.rank != 3 or apart.rank != 4:
        return False
    known = all(isinstance(dim, int) for dim in apart.shape[2:])
    return known and joined.shape == (*apart.shape[:2], apart.shape[2] * apart.shape[3])


def _heads(graph: Graph, value: str | None) -> int:
    type = graph.type(value or "")
    return int(str(type.dims[1])) if isinstance(type, TensorType) else 0


def _no_longer_read(graph: Graph, found: Mapping[str, Joined], readers: Mapping[str, list[Node]]) -> set[str]:
    """The nodes that split and moved operands that only such attention reads, and not as a mask."""
    needed = {*graph.outputs.values(), *(v for one in found.values() for v in one.node.inputs)}
    unread: set[str] = set()
    for node in reversed(graph.nodes):
        value = node.outputs[0]
        if node.op not in ("reshape", "transpose", "add", "matmul") or value in needed or not readers[value]:
            continue
        if all(r.outputs[0] in unread or _reads_joined(r, value, found) for r in readers[value]):
            unread.add(value)
    return unread


def _reads_joined(reader: Node, value: str, found: Mapping[str, Joined]) -> bool:
    """True if a node is an attention that now reads the tensor that this value was split from."""
    return reader.outputs[0] in found and value not in found[reader.outputs[0]].node.inputs
