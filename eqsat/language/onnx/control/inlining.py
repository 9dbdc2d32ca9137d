"""Bodies in the place of their nodes: the branch of an `If` that is known to run, and every run of a short loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto, helper

from eqsat.language.onnx.control.inference import Control
from eqsat.language.onnx.control.scope import count
from eqsat.language.onnx.files.protos import attributes, rename_captured, subgraphs
from eqsat.language.onnx.files.tensors import ExternalData, constant_of, dense_of
from eqsat.language.terms import Array, Constant

#: Nodes that a loop may become, those of bodies within it counted.
MOST_UNROLLED = 64
#: The opset from which on Unsqueeze takes its axes as an operand.
_AXES_ARE_INPUTS = 13
_RANDOM = (
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
)  # fmt: skip


@dataclass(frozen=True)
class Inlined:
    """Nodes in the place of one that holds bodies, and the tensors that those hold."""

    nodes: list[NodeProto]
    constants: Mapping[str, Constant]


def taken_branch(node: NodeProto, condition: bool, fresh: Callable[[str], str], where: str) -> Inlined | None:
    """The branch that a condition chooses, writing the outputs of the `If`; None where it is malformed.

    Values the branch defines get fresh names, since two branches may use one name for different things.
    """
    wanted = "then_branch" if condition else "else_branch"
    branch: GraphProto | None = next((a.g for a in node.attribute if a.name == wanted and a.HasField("g")), None)
    if branch is None or branch.input or len(node.output) > len(branch.output):
        return None
    names, body = inlined(branch, {}, fresh, where)
    for ours, inner_output in zip(node.output, branch.output, strict=False):
        if ours:
            source = names.get(inner_output.name, inner_output.name)
            body.nodes.append(NodeProto(op_type="Identity", input=[source], output=[ours]))
    return body


def unrolled(node: NodeProto, trips: int, opset: int, fresh: Callable[[str], str], where: str) -> Inlined | None:
    """Every run of a Loop or Scan that runs so often, one after the other; None where that is not to be done.

    Not for more than `MOST_UNROLLED` nodes, for random operators, which draw on from run to run, for those of other
    domains, which may, and for outputs that hold a row for each run where there is none.
    """
    body: GraphProto | None = next((a.g for a in node.attribute if a.name == "body" and a.HasField("g")), None)
    if body is None or trips * count(body) > MOST_UNROLLED or not _repeats(body):
        return None
    return _Unrolled(node, body, trips, opset, fresh, where).made()


def _repeats(body: GraphProto) -> bool:
    """True if runs of a body do not depend on those before but through its state."""
    for node in body.node:
        if node.domain not in ("", "ai.onnx") or node.op_type in _RANDOM or not all(map(_repeats, subgraphs(node))):
            return False
    return True


class _Unrolled:
    def __init__(
        self, node: NodeProto, body: GraphProto, trips: int, opset: int, fresh: Callable[[str], str], where: str
    ) -> None:
        self.node, self.body, self.trips, self.opset = node, body, trips, opset
        self.fresh, self.where = fresh, where
        self.attrs = attributes(node)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Constant] = {}
        self.is_loop = node.op_type == "Loop"
        self.scanned = 0 if self.is_loop else int(self.attrs["num_scan_inputs"])
        #: The number of values before the states among the inputs and outputs of the body, and inputs of the node.
        self.own, self.first, self.given = (2, 1, 2) if self.is_loop else (0, 0, 0)
        self.states = len(body.input) - self.own - self.scanned

    def made(self) -> Inlined | None:
        """The nodes and constants; None for rows of no run."""
        stacked = self.node.output[self.states :]
        if not self.trips and any(stacked):
            return None
        values = list(self.node.input[self.given : self.given + self.states])
        rows: list[list[str]] = [[] for _ in self.body.output[self.first + self.states :]]
        for run in range(self.trips):
            given = self._inputs(run, values)
            names, part = inlined(self.body, given, self.fresh, self.where)
            self.nodes += part.nodes
            self.constants |= part.constants
            results = [names.get(o.name, o.name) for o in self.body.output[self.first :]]
            values = results[: self.states]
            for row, value in zip(rows, results[self.states :], strict=True):
                row.append(value)
        for value, output in zip(values, self.node.output, strict=False):
            if output:
                self.nodes.append(helper.make_node("Identity", [value], [output]))
        axes = self._numbers("scan_output_axes", len(rows))
        backwards = self._numbers("scan_output_directions", len(rows))
        for row, output, axis, back in zip(rows, stacked, axes, backwards, strict=False):
            if output:
                self._stack(row[::-1] if back else row, output, axis)
        return Inlined(self.nodes, self.constants)

    def _inputs(self, run: int, values: Sequence[str]) -> dict[str, str]:
        """The values that one run reads as the inputs of the body."""
        own = self.body.input
        given = dict(zip((v.name for v in own[self.own :]), values, strict=False))
        if self.is_loop:
            for value, number in ((own[0], np.int64(run)), (own[1], np.bool_(True))):
                rank = len(value.type.tensor_type.shape.dim)
                given[value.name] = self._constant(value.name, np.full((1,) * rank, number))
        axes = self._numbers("scan_input_axes", self.scanned)
        backwards = self._numbers("scan_input_directions", self.scanned)
        for j, (axis, back) in enumerate(zip(axes, backwards, strict=True)):
            place = self._constant("place", np.array(self.trips - 1 - run if back else run))
            name = own[self.states + j].name
            given[name] = self.fresh(name)
            operands = [self.node.input[self.states + j], place]
            self.nodes.append(helper.make_node("Gather", operands, [given[name]], axis=axis))
        return given

    def _stack(self, row: Sequence[str], output: str, axis: int) -> None:
        """Put the results of all runs together along a new axis."""
        parts = [self.fresh(output) for _ in row]
        axes = [] if self.opset < _AXES_ARE_INPUTS else [self._constant("axis", np.array([axis]))]
        more = {} if axes else {"axes": [axis]}
        for value, part in zip(row, parts, strict=True):
            self.nodes.append(helper.make_node("Unsqueeze", [value, *axes], [part], **more))
        self.nodes.append(helper.make_node("Concat", parts, [output], axis=axis))

    def _numbers(self, name: str, count: int) -> list[int]:
        stated = self.attrs.get(name)
        return [0] * count if stated is None else [int(n) for n in stated]

    def _constant(self, base: str, array: Array) -> str:
        name = self.fresh(base)
        self.constants[name] = Constant.of(array)
        return name


def inlined(
    body: GraphProto, given: Mapping[str, str], fresh: Callable[[str], str], where: str
) -> tuple[dict[str, str], Inlined]:
    """The nodes of a body with its inputs replaced by values `given`, and the new names of its values."""
    external = ExternalData(None)
    tensors = {t.name: constant_of(t, f"{where}: initializer {t.name!r}", external) for t in body.initializer}
    for sparse in body.sparse_initializer:
        name = sparse.values.name
        tensors[name] = dense_of(sparse, f"{where}: sparse initializer {name!r}", external)
    local = {name for inner in body.node for name in inner.output if name} | set(tensors)
    names = {**{name: fresh(name) for name in sorted(local)}, **given}
    nodes = [_renamed(inner, names) for inner in body.node]
    return names, Inlined(nodes, {names[name]: constant for name, constant in tensors.items()})


def _renamed(node: NodeProto, names: dict[str, str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(v, v) for v in node.input]
    copy.output[:] = [names.get(v, v) for v in node.output]
    rename_captured(copy, names)
    return copy


def reason_to_stay(node: NodeProto, found: Control | None) -> str | None:
    """Why an If, Loop or Scan is not replaced by its bodies; None for other operators.

    `found` is what was read of its bodies, which are then optimised as graphs of their own.
    """
    if node.op_type not in ("If", "Loop", "Scan") or node.domain not in ("", "ai.onnx"):
        return None
    if found is None:
        return "holds bodies that cannot be typed as graphs of their own"
    if node.op_type == "If":
        return "which branch runs is known at run time; each is a graph of its own"
    nodes = sum(count(body) for body in subgraphs(node))
    if not isinstance(found.trips, int):
        return "how often it runs is known at run time; its body is a graph of its own"
    if found.trips * nodes > MOST_UNROLLED:
        return (
            f"more than the {MOST_UNROLLED} nodes that runs may be one after the other; its body is a graph of its own"
        )
    return "runs that cannot be one after the other; its body is a graph of its own"
