"""Several graphs over the same inputs as one ONNX model that chooses among them by the sizes of named dims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from eqsat.errors import ExportModelError
from eqsat.language.onnx.files import writer
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.files.protos import rename_captured
from eqsat.language.onnx.write.exporter import assemble
from eqsat.language.terms import Constant, Graph, Names, Sym, TensorType

#: A half-open range of sizes: above the first, up to the second; None where it has no end.
Range = tuple[int, int | None]
#: The first opset in which integers can be compared.
_INTEGERS_COMPARE = 9


@dataclass(frozen=True)
class SwitchCase:
    """A graph and the ranges of sizes that it is for: it is chosen where every named dim of one of `boxes` fits."""

    graph: Graph
    boxes: Sequence[Mapping[str, Range]]


def switched(cases: Sequence[SwitchCase], opset: int | None = None) -> tuple[ModelProto, dict[str, Constant]]:
    """A model that holds one branch for each case, the last where none of the others is chosen, and its initializers.

    Weights stand once, outside the branches. ExportModelError where the opset cannot express a case, or no input shows
    how large a dim is.
    """
    if len(cases) == 1:
        return assemble(cases[0].graph, opset)
    return _Switch(cases, opset).model()


def save(cases: Sequence[SwitchCase], path: Path, opset: int | None = None) -> None:
    """Write a model that chooses among cases, as `eqsat.language.onnx.write.exporter.save` writes a graph."""
    origin = cases[0].graph.origin
    files, external = (origin.files, origin.external) if isinstance(origin, OnnxOrigin) else ((), False)
    writer.save(*switched(cases, opset), path, sources=files, external=external)


class _Switch:
    def __init__(self, cases: Sequence[SwitchCase], opset: int | None) -> None:
        self.cases = cases
        self.parts = [assemble(case.graph, opset) for case in cases]
        outer = self.parts[0][0].graph
        self._fresh = Names(v.name for v in (*outer.input, *outer.output))
        self.tensors: dict[str, Constant] = {}
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._sizes: dict[str, str] = {}
        self._conditions: dict[tuple[str, int], str] = {}
        domains = [o.version for o in self.parts[0][0].opset_import if o.domain in ("", "ai.onnx")]
        self.opset = domains[0] if domains else 1

    def model(self) -> tuple[ModelProto, dict[str, Constant]]:
        """The whole model."""
        shared = self._shared()
        branches = [
            self._branch(index, part.graph, names)
            for index, ((part, _), names) in enumerate(zip(self.parts, shared, strict=True))
        ]
        conditions = [self._chosen(case) for case in self.cases[:-1]]
        outputs = [v.name for v in self.parts[0][0].graph.output]
        body = branches[-1]
        for index in range(len(conditions) - 1, -1, -1):
            names = outputs if index == 0 else [self._fresh(f"{name}/from case {index}") for name in outputs]
            node = helper.make_node(
                "If", [conditions[index]], names, self._fresh("switch"), then_branch=branches[index], else_branch=body
            )
            body = GraphProto(name=f"case {index} or later", node=[node])
            body.output.extend(ValueInfoProto(name=name) for name in names)
            _type_outputs(body, self.parts[0][0].graph)
        proto = ModelProto()
        proto.CopyFrom(self.parts[0][0])
        self._merge_versions(proto)
        del proto.graph.node[:], proto.graph.value_info[:], proto.graph.initializer[:]
        proto.graph.node.extend([*self.nodes, *body.node])
        proto.graph.initializer.extend(self.initializers)
        return proto, self.tensors

    def _merge_versions(self, proto: ModelProto) -> None:
        """Domains and local functions that any case needs; the cases were written from one model, and agree."""
        domains = {o.domain: o.version for part, _ in self.parts for o in part.opset_import}
        del proto.opset_import[:]
        proto.opset_import.extend(helper.make_opsetid(d, v) for d, v in domains.items())
        known = {(f.domain, f.name) for f in proto.functions}
        for part, _ in self.parts[1:]:
            for function in part.functions:
                if (function.domain, function.name) not in known:
                    known.add((function.domain, function.name))
                    proto.functions.append(function)
        proto.ir_version = max(part.ir_version for part, _ in self.parts)

    def _shared(self) -> list[dict[str, str]]:
        """The names that each case's initializers have in the model, equal ones one name."""
        names: dict[object, str] = {}
        renamed: list[dict[str, str]] = []
        for _, tensors in self.parts:
            mine: dict[str, str] = {}
            for name, constant in tensors.items():
                key = (constant.type, constant.digest)
                if key not in names:
                    names[key] = self._fresh(name)
                    self.tensors[names[key]] = constant
                mine[name] = names[key]
            renamed.append(mine)
        return renamed

    def _branch(self, index: int, graph: GraphProto, names: Mapping[str, str]) -> GraphProto:
        """The nodes of a case as a graph without inputs, whose names hide none of the model's."""
        inputs = {v.name for v in graph.input}
        results = [o for n in graph.node for o in n.output if o]
        local = {name: f"{name}/case {index}" for name in results}
        new = {**names, **{old: self._fresh(text) for old, text in local.items()}}
        branch = GraphProto(name=f"case {index}")
        for node in graph.node:
            copy = NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [new.get(v, v) for v in node.input]
            copy.output[:] = [new.get(v, v) for v in node.output]
            rename_captured(copy, new)
            branch.node.append(copy)
        for output in graph.output:
            name = new.get(output.name, output.name)
            if output.name in inputs or output.name in names:
                name = self._fresh(f"{output.name}/case {index}")
                branch.node.append(helper.make_node("Identity", [new.get(output.name, output.name)], [name]))
            info = ValueInfoProto()
            info.CopyFrom(output)
            info.name = name
            branch.output.append(info)
        return branch

    def _chosen(self, case: SwitchCase) -> str:
        """The name of a truth value: whether sizes lie in one of the boxes of a case."""
        boxes = [self._joined("And", [c for n, r in box.items() for c in self._within(n, r)]) for box in case.boxes]
        return self._joined("Or", boxes)

    def _joined(self, op: str, names: Sequence[str]) -> str:
        total = names[0]
        for name in names[1:]:
            total = self._add(op, [total, name])
        return total

    def _within(self, dim: str, limits: Range) -> Iterator[str]:
        """Truth values that hold where a dim is in a range; at least one."""
        low, high = limits
        if high is not None:
            yield self._less(dim, high)
        if low >= 0 or high is None:
            yield self._add("Not", [self._less(dim, low)])

    def _less(self, dim: str, most: int) -> str:
        """True if a dim is at most a number."""
        key = dim, most
        if key not in self._conditions:
            kind = np.int64 if self.opset >= _INTEGERS_COMPARE else np.float32
            bound = self._fresh(f"{dim} beyond {most}")
            self.initializers.append(numpy_helper.from_array(np.asarray(most + 1, kind), bound))
            self._conditions[key] = self._add("Less", [self._size(dim), bound])
        return self._conditions[key]

    def _size(self, dim: str) -> str:
        """The name of a value that is the size of a named dim."""
        if dim not in self._sizes:
            value, axis = self._shown(dim)
            place = self._fresh(f"place of {dim}")
            self.initializers.append(numpy_helper.from_array(np.asarray(axis, np.int64), place))
            size = self._add("Gather", [self._add("Shape", [value]), place], axis=0)
            if self.opset < _INTEGERS_COMPARE:
                size = self._add("Cast", [size], to=TensorProto.FLOAT)
            self._sizes[dim] = size
        return self._sizes[dim]

    def _shown(self, dim: str) -> tuple[str, int]:
        graph = self.cases[0].graph
        for name in graph.inputs:
            type = graph.type(name)
            if isinstance(type, TensorType) and type.shape is not None:
                for axis, size in enumerate(type.shape):
                    if isinstance(size, Sym) and size == Sym.named(dim):
                        return name, axis
        raise ExportModelError(
            f"no input shows how large dim {dim!r} is",
            where=graph.name,
            expected="an input with an axis of that name alone",
            remedy="write one file for each bucket",
        )

    def _add(self, op: str, inputs: Sequence[str], **attributes: int) -> str:
        name = self._fresh(op.lower())
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name


def _type_outputs(body: GraphProto, typed: GraphProto) -> None:
    """Give the outputs of a branch the types that the model states for its own."""
    for info, output in zip(body.output, typed.output, strict=True):
        info.type.CopyFrom(output.type)
