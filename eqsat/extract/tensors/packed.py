"""Products that may read their constant weights packed in blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from eqsat.egraph.snapshot import Snapshot, SnapshotNode
from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.integers import IntegerKernel, computed_classes, makes_float32
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.packed import outputs_axis, packs
from eqsat.language.terms import PACKINGS, Packing, TensorType


def packed_kernels(
    extraction: TensorProblem, solution: Solution, allowed: Mapping[str, Collection[str]]
) -> Iterator[IntegerKernel]:
    """The kernels that may read packed weights, on classes of a solution: `allowed` are operators of each packing."""
    snapshot, known = extraction.snapshot, computed_classes(extraction, solution)
    operators = frozenset(op for ops in allowed.values() for op in ops)
    for leader in sorted(known):
        for position in snapshot.classes[leader].nodes:
            node = snapshot.nodes[position]
            if node.op not in operators or not makes_float32(snapshot, node) or not _reads(snapshot, node, known):
                continue
            shape = weights_shape(snapshot, position)
            for name, ops in allowed.items():
                if node.op in ops and shape is not None and shape[1] >= PACKINGS[name].block:
                    yield IntegerKernel((position,), (), node.eclass, position, online=True, floats=True, packing=name)


def _reads(snapshot: Snapshot, node: SnapshotNode, known: Collection[int]) -> bool:
    """Return whether a product has constant weights, a matrix or more on its left, and reads what is computed."""
    left, weights = (snapshot.classes[k] for k in node.operands[:2])
    matrix = isinstance(left.type, TensorType) and left.type.shape is not None and left.type.rank >= 2
    given = all(k in known or snapshot.classes[k].constant for k in node.operands)
    fitting = matrix and weights.constant and not left.constant
    return fitting and given and packs(node.op, node.attrs, len(node.operands) > 2)


def weights_shape(snapshot: Snapshot, position: int) -> tuple[int, int] | None:
    """The outputs and terms of the weights of a product; None where they are no matrix of known dims."""
    node = snapshot.nodes[position]
    type = snapshot.classes[node.operands[1]].type
    if not isinstance(type, TensorType) or not type.is_static or type.rank != 2:
        return None
    axis = outputs_axis(node.attrs)
    return type.static[axis], type.static[1 - axis]


def packed_bytes(snapshot: Snapshot, position: int, packing: Packing) -> int:
    """The bytes of the weights of a product in a packing; 0 where they are no matrix of known dims."""
    shape = weights_shape(snapshot, position)
    return 0 if shape is None else packing.nbytes(*shape)
