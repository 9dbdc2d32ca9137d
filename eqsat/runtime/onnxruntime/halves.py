"""Tensors of float16 on which a fusion of ONNX Runtime ends the process."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.language.terms import DType, Graph, TensorType

#: Fusions of ONNX Runtime 1.31 that end the process as a session is made, on a product of transposed halves by weights.
FATAL = ("MatmulTransposeFusion",)


def has_halves(graph: Graph) -> bool:
    """True where some tensor of a graph has elements of float16."""
    types = (*graph.types.values(), *(c.type for c in graph.constants.values()))
    return any(isinstance(t, TensorType) and t.dtype is DType.FLOAT16 for t in types)


def fatal_product(graph: Graph) -> str | None:
    """The first product on which making a session ends the process if no fusion is left out, by the value it makes."""
    for node in graph.nodes:
        for value, other in (node.inputs, node.inputs[::-1]) if node.op == "matmul" else ():
            made_by = graph.producers.get(value or "")
            if made_by is not None and made_by.op == "transpose" and other in graph.constants:
                type = graph.type(made_by.outputs[0])
                if isinstance(type, TensorType) and ends_the_process(made_by.attrs["perm"], type):
                    return node.outputs[0]
    return None


def ends_the_process(perm: Sequence[int], type: TensorType | None) -> bool:
    """True for halves whose first axis goes behind all others but the last.

    With a product by constant weights behind it, ONNX Runtime 1.31 ends the process as it makes the session
    (MatmulTransposeFusion, with the cast between them that it puts in). The original's own products stay.
    """
    turned = len(perm) > 2 and tuple(perm) == (*range(1, len(perm) - 1), 0, len(perm) - 1)
    return turned and type is not None and type.dtype is DType.FLOAT16
