"""Proof that elements beyond the end of an axis leave those before it as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from eqsat.buckets.axes import Walk, walk
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run_node
from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE, Dim, Graph, Node, Sym, TensorType


@dataclass(frozen=True)
class Leak:
    """A value of which a padded run computes other elements than the exact run does, and why that may be."""

    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.value!r}: {self.reason}"


def leak_of(graph: Graph, names: Collection[str]) -> Leak | None:
    """Why outputs might change if inputs were padded with zeros along axes of these named dims; None where none does.

    Padded are the ends of axes, from the size that a dim has to a larger one. Each output then has, up to the size of
    its dims, the values it has without padding. By induction over the nodes: of every value either that is shown, from
    the index form of its operator or from the way it moves elements, or the value is the leak. Known besides is along
    which axes all that lies beyond the end is zero, which is what a sum over such an axis needs.
    """
    return _Proof(graph, frozenset(names)).leak()


class _Proof:
    def __init__(self, graph: Graph, names: frozenset[str]) -> None:
        self.graph, self.names = graph, names
        #: The axes of each value beyond whose ends everything is zero.
        self.zero: dict[str, frozenset[int]] = {}

    def leak(self) -> Leak | None:
        """The first value that the proof fails at."""
        for name in self.graph.inputs:
            type = self.graph.type(name)
            if not isinstance(type, TensorType) or type.shape is None:
                return Leak(name, "nothing is known of its shape")
            for dim in type.shape:
                if self.depends(dim) and str(dim) not in self.names:
                    return Leak(name, f"its dim {dim} is no name alone")
            self.zero[name] = self.padded(name)
        for node in self.graph.nodes:
            reason = self.reason(node)
            if reason is not None:
                return Leak(next(o for o in node.outputs if o), reason)
        return None

    def depends(self, dim: object) -> bool:
        """Return whether a dim, or an attribute, changes when inputs are padded."""
        if isinstance(dim, Sym):
            return not dim.names().isdisjoint(self.names)
        return isinstance(dim, tuple) and any(map(self.depends, dim))

    def padded(self, value: str) -> frozenset[int]:
        """The axes of a value that are longer in a padded run."""
        return frozenset(k for k, dim in enumerate(self.shape(value)) if self.depends(dim))

    def shape(self, value: str) -> tuple[Dim, ...]:
        type = self.graph.type(value)
        return type.shape if isinstance(type, TensorType) and type.shape is not None else ()

    def reason(self, node: Node) -> str | None:
        """The reason why a node leaks padding, or None; records which results are zero beyond their ends."""
        values = [v for v in (*node.inputs, *node.outputs) if v]
        types = [self.graph.type(v) for v in values]
        if any(not isinstance(t, TensorType) or t.shape is None for t in types):
            return "nothing is known of its shape"
        changed = any(self.padded(v) for v in values) or any(self.depends(a) for a in node.attrs.values())
        for output in node.outputs:
            self.zero[output] = frozenset()
        if not changed:
            return None
        if node.op == OPAQUE:
            return f"{node.attrs['op_type']} is kept as it is and nothing is known of it"
        if node.op in _MOVES:
            return _MOVES[node.op](self, node)
        if any(self.depends(a) for a in node.attrs.values()):
            return f"an attribute of {node.op} is a size that padding changes"
        ranks = [None if v is None else len(self.shape(v)) for v in node.inputs]
        walked = walk(node, ranks, len(self.shape(node.outputs[0]))) if len(node.outputs) == 1 else None
        if walked is None:
            return f"nothing is known of how {node.op} walks its axes"
        return self._walked(node, walked)

    def _walked(self, node: Node, walked: Walk) -> str | None:
        (output,) = node.outputs
        declared = spec(node.op)
        places = {label: k for k, label in enumerate(walked.result) if label is not None}
        padded = self.padded(output)
        for value, labels in zip(node.inputs, walked.operands, strict=False):
            if value is None or labels is None:
                continue
            for axis in self.padded(value):
                label = labels[axis]
                if label is None or label in walked.read:
                    return f"{node.op} computes elements along axis {axis} of {value!r} from one another"
                if label in places:
                    if self.shape(output)[places[label]] != self.shape(value)[axis]:
                        return f"{node.op} broadcasts axis {axis} of {value!r}"
                    continue
                why = self._summed(node, walked, label)
                if why is not None:
                    return why
        if any(walked.result[axis] is None for axis in padded):
            return f"{node.op} makes an axis whose size padding changes"
        if declared.pointwise:
            self.zero[output] = self._pointwise_zero(node, walked)
        elif declared.multilinear and not any(node.inputs[k] for k in walked.added if k < len(node.inputs)):
            self.zero[output] = frozenset(a for a in padded if self._multilinear_zero(node, walked, a))
        return None

    def _summed(self, node: Node, walked: Walk, label: str) -> str | None:
        """Why a sum over a padded axis may change, or None: every operand that has the axis is zero beyond its end."""
        declared = spec(node.op)
        if not declared.ignores_zeros and not declared.multilinear:
            return f"{node.op} reduces an axis that padding makes longer"
        for value, labels in zip(node.inputs, walked.operands, strict=False):
            if value is None or labels is None or label not in labels:
                continue
            axis = labels.index(label)
            if axis not in self.zero.get(value, frozenset()):
                return f"{node.op} sums over axis {axis} of {value!r}, which is not zero where it is padded"
        return None

    def _pointwise_zero(self, node: Node, walked: Walk) -> frozenset[int]:
        """The axes beyond whose ends an operator of single elements makes zeros of zeros."""
        (output,) = node.outputs
        axes: set[int] = set()
        for axis in self.padded(output):
            label = walked.result[axis]
            zeros = True
            for value, labels in zip(node.inputs, walked.operands, strict=False):
                if value is None or labels is None:
                    continue
                zeros &= label in labels and labels.index(label) in self.zero.get(value, frozenset())
            if (zeros and self._keeps_zero(node)) or self._scales(node, walked, label):
                axes.add(axis)
        return frozenset(axes)

    def _scales(self, node: Node, walked: Walk, label: str | None) -> bool:
        """Return whether a product with, or a quotient by, finite constants other than zero keeps zeros."""
        if node.op not in ("mul", "div") or len(node.inputs) != 2:
            return False
        for k, value in enumerate(node.inputs[: 1 if node.op == "div" else 2]):
            labels, other = walked.operands[k], node.inputs[1 - k]
            constant = self.graph.constants.get(other) if other is not None else None
            if value is None or labels is None or constant is None or label not in labels:
                continue
            if labels.index(label) in self.zero.get(value, frozenset()) and constant.is_finite:
                return node.op == "mul" or bool((constant.array != 0).all())
        return False

    def _keeps_zero(self, node: Node) -> bool:
        """Return whether a pointwise operator makes zero of zeros, by its reference."""
        types = [None if v is None else self.graph.type(v) for v in node.inputs]
        scalars = [t.with_shape((1,)) if isinstance(t, TensorType) else None for t in types]
        result = self.graph.type(node.outputs[0])
        if not isinstance(result, TensorType):
            return False
        operands = [None if t is None else np.zeros((1,), t.dtype.numpy) for t in scalars]
        with np.errstate(all="ignore"):
            (image,) = run_node(Floats(), node, operands, scalars, [result.with_shape((1,))])
        return bool((np.asarray(image) == 0).all())

    def _multilinear_zero(self, node: Node, walked: Walk, axis: int) -> bool:
        """Return whether the result is zero beyond an end where one operand is: no other operand is padded anywhere."""
        label = walked.result[axis]
        for k in spec(node.op).multilinear:
            labels = walked.operands[k] if k < len(walked.operands) else None
            value = node.inputs[k] if k < len(node.inputs) else None
            if labels is None or value is None or label not in labels:
                continue
            others = [v for i, v in enumerate(node.inputs) if v is not None and i != k]
            calm = all(not self.padded(v) and self._finite(v) for v in others)
            if calm and labels.index(label) in self.zero.get(value, frozenset()):
                return True
        return False

    def _finite(self, value: str) -> bool:
        constant = self.graph.constants.get(value)
        return constant is not None and constant.is_finite

    # -- operators that move elements ---------------------------------------------------------------------------------

    def transpose(self, node: Node) -> str | None:
        """Axes change places."""
        (value,), (output,) = node.inputs, node.outputs
        perm = node.attrs["perm"]
        zero = self.zero.get(str(value), frozenset())
        self.zero[output] = frozenset(k for k, axis in enumerate(perm) if axis in zero)
        return None

    def reshape(self, node: Node) -> str | None:
        """Elements keep their order: the padded axis must be the slowest of those that are joined or split."""
        value, (output,) = str(node.inputs[0]), node.outputs
        before, after = self.shape(value), self.shape(output)
        groups = _groups(before, after)
        if groups is None:
            return f"how reshape joins the axes of {value!r} is not known"
        zero: set[int] = set()
        for one, two in groups:
            depending = [k for k in one if self.depends(before[k])], [k for k in two if self.depends(after[k])]
            solid = [k for k in one if before[k] != 1], [k for k in two if after[k] != 1]
            for axes, first in zip(depending, solid, strict=True):
                if axes and (len(axes) > 1 or axes[0] != first[0]):
                    return f"reshape moves elements of {value!r} past those of axis {axes[0]}"
            if depending[0] and depending[1] and depending[0][0] in self.zero.get(value, frozenset()):
                zero.add(depending[1][0])
        self.zero[output] = frozenset(zero)
        return None

    def slice(self, node: Node) -> str | None:
        """Pieces that begin at a place counted from the start, of axes that may be padded."""
        value, (output,) = str(node.inputs[0]), node.outputs
        steps = node.attrs["steps"] or (1,) * len(node.attrs["axes"])
        for axis, start, step in zip(node.attrs["axes"], node.attrs["starts"], steps, strict=True):
            counted = isinstance(start, int) and start >= 0 and isinstance(step, int) and step > 0
            if axis in self.padded(value) and not counted:
                return f"slice counts from the end of axis {axis} of {value!r}"
        zero = self.zero.get(value, frozenset())
        cut = {a for a in node.attrs["axes"] if self.shape(value)[a] != self.shape(output)[a]}
        self.zero[output] = frozenset((zero - cut) & self.padded(output))
        return None

    def concat(self, node: Node) -> str | None:
        """Operands side by side: only the last may be padded along the axis they are joined at."""
        axis, (output,) = node.attrs["axis"], node.outputs
        given = [str(v) for v in node.inputs]
        if any(axis in self.padded(v) for v in given[:-1]):
            return f"concat moves what follows an axis that padding makes longer: axis {axis}"
        zero = {a for a in self.padded(output) - {axis} if all(a in self.zero.get(v, frozenset()) for v in given)}
        if axis in self.zero.get(given[-1], frozenset()):
            zero.add(axis)
        self.zero[output] = frozenset(zero)
        return None

    def expand(self, node: Node) -> str | None:
        """One element, or a whole axis, repeated."""
        value, (output,) = str(node.inputs[0]), node.outputs
        offset = len(self.shape(output)) - len(self.shape(value))
        for axis in self.padded(value):
            if self.shape(output)[axis + offset] != self.shape(value)[axis]:
                return f"expand changes axis {axis} of {value!r}"
        self.zero[output] = frozenset(a + offset for a in self.zero.get(value, frozenset()))
        return None

    def gather(self, node: Node) -> str | None:
        """Elements at places that an operand names; the places lie before the end, but may be counted from it."""
        data, places = str(node.inputs[0]), str(node.inputs[1])
        axis = node.attrs["axis"]
        if axis in self.padded(data):
            constant = self.graph.constants.get(places)
            if constant is None or not bool((constant.array >= 0).all()):
                return f"gather may count from the end of axis {axis} of {data!r}"
        return None

    def plain(self, node: Node) -> str | None:
        """The same elements, or one number everywhere."""
        value = node.inputs[0] if node.inputs else None
        self.zero[node.outputs[0]] = self.zero.get(value, frozenset()) if value is not None else frozenset()
        return None


def _groups(before: tuple[Dim, ...], after: tuple[Dim, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """Groups of axes of two shapes that hold the same elements, as small as possible; None if unknown."""
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        one: list[int] = []
        two: list[int] = []
        left: Dim = 1
        right: Dim = 1
        while True:
            if one and two and left == right:
                break
            if i < len(before) and (not one or (isinstance(left, int) and isinstance(right, int) and left < right)):
                left, i = left * before[i], _taken(one, i)
            elif j < len(after) and (not two or (isinstance(left, int) and isinstance(right, int) and right < left)):
                right, j = right * after[j], _taken(two, j)
            elif i < len(before):
                left, i = left * before[i], _taken(one, i)
            elif j < len(after):
                right, j = right * after[j], _taken(two, j)
            else:
                break
        if left != right:
            return None
        groups.append((tuple(one), tuple(two)))
    return groups


def _taken(taken: list[int], axis: int) -> int:
    taken.append(axis)
    return axis + 1


#: Operators that copy elements, each with what it shows of them.
_MOVES: Mapping[str, Callable[[_Proof, Node], str | None]] = {
    "transpose": _Proof.transpose,
    "reshape": _Proof.reshape,
    "slice": _Proof.slice,
    "concat": _Proof.concat,
    "expand": _Proof.expand,
    "gather": _Proof.gather,
    "identity": _Proof.plain,
    "fill": _Proof.plain,
}
