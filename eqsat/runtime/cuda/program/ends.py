"""Operators that libraries for GPUs compute at the ends of products."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from eqsat.language.terms import DType, Graph, Kernel, Node, TensorType
from eqsat.runtime.cuda.libraries.epilogues import epilogue_of, may_follow, takes_addend

_FLOAT8 = DType.FLOAT8E4M3FN.value


class LibraryEnds:
    """The epilogues of cuBLASLt and cuDNN."""

    def take(self, graph: Graph, nodes: Sequence[Node], earlier: Kernel, now: Kernel) -> bool:
        """Return whether a library computes the last of some nodes at the end of a product, after the others."""
        first = nodes[0]
        epilogues: list[str] = []
        byte = any(h.value == first.inputs[0] and h.state.precision == _FLOAT8 for h in earlier.operands)
        for before, node in itertools.pairwise(nodes):
            made = graph.type(node.outputs[0])
            others = [graph.type(v) for v in node.inputs if v is not None and v != before.outputs[0]]
            tensors = [t for t in others if isinstance(t, TensorType)]
            if not isinstance(made, TensorType) or len(tensors) != len(others) or before.outputs[0] not in node.inputs:
                return False
            epilogue = epilogue_of(first.op, node.op, node.attrs, made, tensors)
            if byte and epilogue != "scale":
                return False  # a generated kernel computes it, with what follows
            is_addend = epilogue == "addend"
            if not may_follow(epilogues, epilogue) or (is_addend and not _takes_addend(graph, first, earlier, now)):
                return False
            epilogues.append(epilogue)
        return True


def _takes_addend(graph: Graph, product: Node, earlier: Kernel, now: Kernel) -> bool:
    """Return whether the other operand of the kernel after a convolution can be added at its end, as it is held."""
    image, filters = (graph.type(str(v)) for v in product.inputs[:2])
    read = [h for h in earlier.operands if h.value == product.inputs[0]]
    held = [*read, *now.operands, *now.results]
    types = [(h, graph.type(h.value)) for h in held]
    images = [(h.state.layout, h.state.typed(t).dtype) for h, t in types if isinstance(t, TensorType)]
    if not isinstance(filters, TensorType) or not isinstance(image, TensorType) or len(images) != len(held):
        return False
    return takes_addend(product.attrs, filters, images, earlier.arithmetic)
