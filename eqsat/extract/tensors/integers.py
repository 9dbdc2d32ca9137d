"""Kernels that may run on integers or read packed weights, of the e-nodes on what a solution computes, and the
roundings that they need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat.costs.kernels.groups import Groups
from eqsat.costs.kernels.precision import INTEGERS
from eqsat.egraph.snapshot import Snapshot, SnapshotNode
from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.packed import outputs_axis, packs
from eqsat.language.ops import OPS
from eqsat.language.terms import PACKINGS, BlockScale, DType, Implementation, Packing, Scale, TensorType


@dataclass(frozen=True, slots=True)
class IntegerKernel:
    """E-nodes that may run as one kernel on integers: positions, operands first, each read by the next.

    `reads` are the operand classes held in uint8, `weights` the position whose weights are held in int8, if any. Where
    it is `online`, the operand is quantised when the kernel runs; where `floats`, the result is float32. `precision` is
    that of operands, weights and result where it is another than of integers, `ways` and `links` the implementations of
    its e-nodes, and which earlier one makes each operand, where these do not follow. With a `packing` the weights are
    packed in its blocks instead.
    """

    positions: tuple[int, ...]
    reads: tuple[int, ...]
    eclass: int
    weights: int | None = None
    online: bool = False
    floats: bool = False
    precision: str = INTEGERS
    ways: tuple[Implementation, ...] = ()
    links: tuple[tuple[int | None, ...], ...] = ()
    packing: str = ""


@dataclass(frozen=True)
class Roundings:
    """The scales of classes and weights held in integers, and how far each rounding moves the outputs.

    `values` belong to classes held in uint8, `weights` to the products whose weights are held in int8, by position,
    `online` to products whose operand is quantised when they run, `packed` to products with packed weights, by position
    and packing. `copied` are classes that only hold elements of another one, by the same scale: they are not rounded
    again. `others` are those in other precisions than of integers.
    """

    values: Mapping[int, tuple[Scale, float]] = field(default_factory=dict)
    weights: Mapping[int, tuple[Scale, float]] = field(default_factory=dict)
    online: Mapping[int, float] = field(default_factory=dict)
    copied: frozenset[int] = frozenset()
    packed: Mapping[tuple[int, str], tuple[BlockScale, float]] = field(default_factory=dict)
    others: Mapping[str, Roundings] = field(default_factory=dict)

    def of(self, precision: str) -> Roundings:
        """The roundings in a precision, of integers or another one."""
        return self if precision == INTEGERS else self.others.get(precision, Roundings())

    @staticmethod
    def free(kernels: Iterable[IntegerKernel]) -> Roundings:
        """Roundings that move nothing, by a scale of no meaning: to see which kernels would pay."""
        alike: dict[str, list[IntegerKernel]] = {INTEGERS: []}
        for kernel in kernels:
            alike.setdefault(kernel.precision, []).append(kernel)
        free = {precision: Roundings._free(some) for precision, some in alike.items()}
        return replace(free.pop(INTEGERS), others=free)

    @staticmethod
    def _free(kernels: Iterable[IntegerKernel]) -> Roundings:
        nothing = Scale(DType.UINT8, (1.0,), least=0, most=255), 0.0
        values, products = dict[int, tuple[Scale, float]](), dict[int, tuple[Scale, float]]()
        packed: dict[tuple[int, str], tuple[BlockScale, float]] = {}
        for kernel in kernels:
            if kernel.packing and kernel.weights is not None:
                packed[kernel.weights, kernel.packing] = BlockScale.even(PACKINGS[kernel.packing], 0, (1, 1)), 0.0
                continue
            values |= dict.fromkeys((*kernel.reads, kernel.eclass), nothing)
            products |= {} if kernel.weights is None else {kernel.weights: nothing}
        return Roundings(values, products, dict.fromkeys(products, 0.0), packed=packed)

    def scaled(self, factor: float) -> Roundings:
        """The same roundings with every error a factor larger."""
        return replace(
            self,
            values={k: (scale, error * factor) for k, (scale, error) in self.values.items()},
            weights={k: (scale, error * factor) for k, (scale, error) in self.weights.items()},
            online={k: error * factor for k, error in self.online.items()},
            packed={k: (scale, error * factor) for k, (scale, error) in self.packed.items()},
            others={precision: one.scaled(factor) for precision, one in self.others.items()},
        )


def integer_kernels(
    extraction: TensorProblem, solution: Solution, allowed: Iterable[str], *, static: bool = True
) -> Iterator[IntegerKernel]:
    """The kernels that may run on integers: e-nodes on classes of a solution, whose operators are `allowed`.

    They make a class that the solution computes from classes that it computes, or constants: what those hold is known
    where the solution is run. Without `static` scales of values there are those alone whose operand is quantised when
    they run.
    """
    snapshot, names = extraction.snapshot, frozenset(allowed)
    known = computed_classes(extraction, solution)
    offered = [
        position
        for leader in sorted(known)
        for position in snapshot.classes[leader].nodes
        if (node := snapshot.nodes[position]).op in names
        and makes_float32(snapshot, node)
        and all(k in known or snapshot.classes[k].constant for k in node.operands)
    ]
    readers: dict[int, list[int]] = {}
    for position in offered:
        for operand in dict.fromkeys(snapshot.nodes[position].operands):
            readers.setdefault(operand, []).append(position)
    for position in offered:
        node = snapshot.nodes[position]
        for reads, weights in _operands(snapshot, position):
            if weights is not None and not OPS[node.op].windowed and node.attrs.get("activation", "none") == "none":
                yield IntegerKernel((position,), (), node.eclass, weights, online=True, floats=True)
            if not static:
                continue
            yield IntegerKernel((position,), reads, node.eclass, weights)
            if OPS[node.op].product and not OPS[node.op].windowed:
                yield IntegerKernel((position,), reads, node.eclass, weights, floats=True)
            for reader in readers.get(node.eclass, ()):
                after = snapshot.nodes[reader]
                rest = after.operands[1:]
                ends = OPS[after.op].clamps and after.operands[0] == node.eclass != after.eclass
                if ends and all(snapshot.classes[k].constant for k in rest):
                    yield IntegerKernel((position, reader), reads, after.eclass, weights)


def computed_classes(extraction: TensorProblem, solution: Solution) -> set[int]:
    """The classes that a solution computes, those within its kernels included."""
    options = (extraction.options[index] for index in solution.chosen.values())
    nodes = extraction.snapshot.nodes
    return {
        nodes[position].eclass
        for option in options
        if not option.fetch and option.split is None
        for position in option.positions
    }


def makes_float32(snapshot: Snapshot, node: SnapshotNode) -> bool:
    """Return whether an e-node makes one tensor of float32, of a known rank, when the program runs."""
    type = node.types[0] if len(node.types) == 1 else None
    known = isinstance(type, TensorType) and type.dtype is DType.FLOAT32 and type.shape is not None
    return known and not snapshot.classes[node.eclass].constant


def _operands(snapshot: Snapshot, position: int) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """The classes that a kernel reads in uint8, and the position of its e-node where it has weights in int8."""
    node, classes = snapshot.nodes[position], snapshot.classes
    declared = OPS[node.op]
    if declared.product:
        data = node.operands[:2]
        weights = classes[data[1]].constant
        if classes[data[0]].constant or any(not classes[k].constant for k in node.operands[2:]):
            return
        yield ((data[0],) if weights else tuple(data)), (position if weights else None)
        return
    kept = 1 if declared.clamps else len(node.operands)
    floats = [k for k in node.operands[:kept] if _holds_floats(classes[k].type)]
    if len(floats) == kept:
        yield tuple(dict.fromkeys(floats)), None


def _holds_floats(type: object) -> bool:
    return isinstance(type, TensorType) and type.dtype is DType.FLOAT32 and type.shape is not None


def images(snapshot: Snapshot, kernels: Sequence[IntegerKernel]) -> frozenset[int]:
    """The classes of four axes that operators on images read or make, and what is computed of those by elements."""
    groups = Groups[int]()
    seeds: set[int] = set()
    for kernel in kernels:
        declared = OPS[snapshot.nodes[kernel.positions[0]].op]
        ends = [k for k in (*kernel.reads, *(() if kernel.floats else (kernel.eclass,))) if _rank(snapshot, k) == 4]
        if declared.windowed:
            seeds.update(ends)
        elif not declared.product and not (declared.movement and declared.name != "concat"):
            for other in ends[1:]:
                groups.join(ends[0], other)
    return groups.beside(seeds)


def _rank(snapshot: Snapshot, leader: int) -> int:
    type = snapshot.classes[leader].type
    return type.rank if isinstance(type, TensorType) and type.shape is not None else -1


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
