"""Constants that ONNX Runtime computes as it makes a session."""

from __future__ import annotations

import math

from eqsat.errors import BackendError
from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, DType, Graph, Node, TensorType
from eqsat.system.heap import machine_memory


def check_constants(graph: Graph) -> None:
    """Raise BackendError for a graph whose computed constants take more than the memory of the machine.

    ONNX Runtime computes them one after another until no memory is left, and a small file can ask for that.
    """
    computed: set[str] = set()
    taken, most = 0, machine_memory()
    for node in graph.nodes:
        if not _is_computed(node, graph, computed):
            continue
        computed.update(node.outputs)
        taken += sum(_bytes(graph, value) for value in node.outputs)
        if taken > most:
            raise BackendError(
                f"constants take more than the memory of this machine, {most / 1e9:.1f} GB",
                where=f"{node.op} {node.outputs[0]!r} in {graph.name}",
                expected="constants that fit into memory together",
                remedy="compute them from inputs, or make them smaller",
            )


def _is_computed(node: Node, graph: Graph, computed: set[str]) -> bool:
    if node.op == OPAQUE or node.op not in OPS or not OPS[node.op].is_foldable:
        return False
    return all(v is None or v in graph.constants or v in computed for v in node.inputs)


def _bytes(graph: Graph, value: str) -> int:
    """The bytes of a value; 0 where its size is not known."""
    type = graph.type(value)
    if not isinstance(type, TensorType) or not type.is_static or type.dtype is DType.STRING:
        return 0
    return math.prod(type.static) * type.dtype.itemsize
