"""The parts of a model as eqsat reads it: operators, types, work, and opaque nodes with their reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from io import StringIO
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from eqsat.costs.model.model import CostModel
from eqsat.errors import printable
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.read.model import dims_of
from eqsat.language.sizes.asked import check_sizes
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms.graph import OPAQUE, Graph, operator_name
from eqsat.report.parts import OpaqueNode
from eqsat.report.report import WIDTH
from eqsat.report.units import count, integer, quantity
from eqsat.system.terminal import plain

#: The device whose kernels the work of a model is counted for: FLOPs and bytes are the same on every CPU.
_DEVICE = "onnxruntime-cpu"
#: Operators and opaque nodes that a cell of a notebook shows.
_SHOWN = 12


@dataclass(frozen=True)
class InspectedNode:
    """A node with its operator, the types of its results, and the work of one run: FLOPs, and bytes moved."""

    name: str
    op: str
    types: tuple[str, ...]
    flops: int
    bytes: int


@dataclass(frozen=True)
class OperatorTotal:
    """The nodes of one operator: their number, and the work of all of them in FLOPs and bytes moved."""

    count: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class Inspection:
    """The content of a model after shapes were inferred and constants folded.

    `flops` and `bytes` (moved) are those of one run at the sizes in `named_dims`. `operators` has the most FLOPs
    first. `opset` is None for a graph that was built in Python. `constants` is their number, `constant_bytes` their
    size. `print` shows the text, `to_json` gives the same as JSON.
    """

    name: str
    opset: int | None
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    constants: int
    constant_bytes: int
    named_dims: Mapping[str, int]
    flops: int
    bytes: int
    operators: Mapping[str, OperatorTotal]
    opaque: Sequence[OpaqueNode]
    warnings: Sequence[str]
    nodes: Sequence[InspectedNode]

    @classmethod
    def of(cls, graph: Graph, sizes: Mapping[str, int] | None = None) -> Inspection:
        """The content of a graph at sizes of named dims; UsageError for a dim that it does not have."""
        sizes = sizes or {}
        check_sizes(graph, sizes)
        chosen = sizing_of(graph).completed(sizes)
        costs = CostModel(_DEVICE, sizes=chosen).graph(graph)
        nodes, opaque = [], []
        for node, cost in costs.nodes:
            name = node.name or next((o for o in node.outputs if o), "")
            types = tuple(str(graph.type(o)) for o in node.outputs if o)
            nodes.append(InspectedNode(name, operator_name(node), types, cost.flops, cost.bytes))
            if node.op == OPAQUE:
                opaque.append(OpaqueNode(name, operator_name(node), str(node.attrs["reason"])))
        origin = graph.origin if isinstance(graph.origin, OnnxOrigin) else None
        return cls(
            name=graph.name,
            opset=origin.opset if origin else None,
            inputs={v: str(graph.type(v)) for v in graph.inputs},
            outputs={name: str(graph.type(value)) for name, value in graph.outputs.items()},
            constants=len(graph.constants),
            constant_bytes=sum(c.nbytes for c in graph.constants.values()),
            named_dims={name: chosen[name] for name in dims_of(graph)},
            flops=costs.total.flops,
            bytes=costs.total.bytes,
            operators=_totals(nodes),
            opaque=opaque,
            warnings=list(origin.warnings) if origin else [],
            nodes=nodes,
        )

    def document(self) -> dict[str, Any]:
        """The content as plain dicts and lists."""
        return {
            **{name: getattr(self, name) for name in ("name", "opset", "inputs", "outputs")},
            "constants": {"count": self.constants, "bytes": self.constant_bytes},
            **{name: getattr(self, name) for name in ("named_dims", "flops", "bytes")},
            "operators": {op: asdict(total) for op, total in self.operators.items()},
            "opaque": [asdict(node) for node in self.opaque],
            "warnings": list(self.warnings),
            "nodes": [{**asdict(node), "types": list(node.types)} for node in self.nodes],
        }

    def to_json(self) -> str:
        """The content as JSON, with every node."""
        return printable(json.dumps(self.document(), indent=2, ensure_ascii=False))

    def parts(self, nodes: bool = False, most: int | None = None) -> Iterator[RenderableType]:
        """The text in parts that a console prints one after the other; `nodes` adds a table of every node.

        No more than `most` operators and as many opaque nodes are listed, all if left out.
        """
        yield self._facts()
        yield ""
        yield self._operators(most)
        if most is not None and len(self.operators) > most:
            yield f"and {count(len(self.operators) - most, 'more operator')}"
        for node in self.opaque[:most]:
            yield _one_line(f"opaque {node.name} ({node.op}): {node.reason}")
        if most is not None and len(self.opaque) > most:
            yield f"and {count(len(self.opaque) - most, 'more opaque node')}"
        for warning in self.warnings:
            yield _one_line(f"warning: {warning}")
        if nodes:
            yield ""
            yield self._nodes()

    def _facts(self) -> Table:
        facts = Table.grid(padding=(0, 2))
        facts.add_row("model", f"{self.name}, opset {self.opset}" if self.opset else self.name)
        facts.add_row("nodes", integer(len(self.nodes)))
        facts.add_row("constants", f"{integer(self.constants)}, {quantity(self.constant_bytes, 'B')}")
        for kind, values in (("inputs", self.inputs), ("outputs", self.outputs)):
            for i, (name, type) in enumerate(values.items()):
                facts.add_row(kind if i == 0 else "", f"{name}: {type}")
        dims = ", ".join(f"{name} (counted as {size})" for name, size in self.named_dims.items())
        facts.add_row("named dims", dims or "none")
        facts.add_row("work", f"{quantity(self.flops, 'FLOP')}, {quantity(self.bytes, 'B')} moved")
        facts.add_row("opaque", count(len(self.opaque), "node") if self.opaque else "none")
        return facts

    def _operators(self, most: int | None) -> Table:
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("operator")
        for title in ("count", "FLOPs", "bytes"):
            table.add_column(title, justify="right")
        for op, total in list(self.operators.items())[:most]:
            table.add_row(op, integer(total.count), quantity(total.flops, ""), quantity(total.bytes, "B"))
        return table

    def _nodes(self) -> Table:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for title in ("node", "operator", "makes"):
            table.add_column(title, overflow="fold")
        for title in ("FLOPs", "bytes"):
            table.add_column(title, justify="right")
        for node in self.nodes:
            table.add_row(
                node.name, node.op, ", ".join(node.types), quantity(node.flops, ""), quantity(node.bytes, "B")
            )
        return table

    def _text(self, most: int | None = None) -> str:
        text = StringIO()
        console = plain(WIDTH, file=text)
        for part in self.parts(most=most):
            console.print(part)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        operators = count(len(self.operators), "operator")
        return f"Inspection({self.name!r}, {count(len(self.nodes), 'node')}, {operators}, {len(self.opaque)} opaque)"

    def _repr_html_(self) -> str:
        return f'<pre style="white-space:pre-wrap">{escape(self._text(_SHOWN))}</pre>'


def _totals(nodes: Sequence[InspectedNode]) -> dict[str, OperatorTotal]:
    totals: dict[str, OperatorTotal] = {}
    for node in nodes:
        sofar = totals.get(node.op, OperatorTotal(0, 0, 0))
        totals[node.op] = OperatorTotal(sofar.count + 1, sofar.flops + node.flops, sofar.bytes + node.bytes)
    return dict(sorted(totals.items(), key=lambda item: (-item[1].flops, item[0])))


def _one_line(text: str) -> str:
    """The text with line ends of names as escapes, since each line says one thing."""
    return text.replace("\n", "\\n")
