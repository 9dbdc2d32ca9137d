"""A graph as applications of operators: their types, which of them are free, and the keys they are measured by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from eqsat.costs.kernels.key import OpKey
from eqsat.language.ops import OPS
from eqsat.language.sizes.solve import DEFAULT_SIZE
from eqsat.language.terms import OPAQUE, Graph, Node, TensorType
from eqsat.system.deadline import check


class Sizes(dict[str, int]):
    """Sizes of named dims; DEFAULT_SIZE for a name that is not given."""

    def __missing__(self, name: str) -> int:
        return DEFAULT_SIZE


def is_free(op: str, operands: Sequence[TensorType | None], const_operands: Sequence[bool]) -> bool:
    """True for a term without data: a constant, or a value of constants alone, computed before the program runs."""
    declared = OPS.get(op)
    if op == OPAQUE or (declared is not None and not declared.is_foldable):
        return False
    if operands and True not in const_operands:
        return False
    settled = all(const or t is None for t, const in zip(operands, const_operands, strict=True))
    return settled and (any(const_operands) or not operands)


Applied: TypeAlias = "tuple[Node, tuple[TensorType | None, ...], tuple[TensorType | None, ...], tuple[bool, ...]]"


def applications(graph: Graph) -> list[Applied]:
    """Every node with the types of its operands and results, and which operands constants alone decide."""
    const = set(graph.constants)
    applied: list[Applied] = []
    for node in graph.nodes:
        check()
        operands = tuple(tensor_type(graph, v) for v in node.inputs)
        flags = tuple(v in const for v in node.inputs)
        results = tuple(tensor_type(graph, v) for v in node.outputs if v)
        applied.append((node, operands, results, flags))
        if is_free(node.op, operands, flags):
            const |= {o for o in node.outputs if o}
    return applied


def keys_of(graph: Graph, sizes: Mapping[str, int] | None = None) -> tuple[OpKey, ...]:
    """The distinct keys of a graph's operators that can be measured, in the order of first use."""
    chosen = Sizes(sizes or {})
    keys: dict[OpKey, None] = {}
    for node, operands, _, const in applications(graph):
        if node.op == OPAQUE or is_free(node.op, operands, const) or OPS[node.op].view:
            continue
        unknown = any(v is not None and t is None for v, t in zip(node.inputs, operands, strict=True))
        key = OpKey.of(node.op, node.attrs, operands, const, chosen)
        if not unknown and key.is_measurable:
            keys.setdefault(key)
    return tuple(keys)


def tensor_type(graph: Graph, value: str | None) -> TensorType | None:
    """The type of a value that is a tensor, else None."""
    type = None if value is None else graph.type(value)
    return type if isinstance(type, TensorType) else None
