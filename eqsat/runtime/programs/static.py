"""Plans with every dim a number: types and attributes computed, and all values known by then folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.fold import infer_and_fold
from eqsat.language.graphs.interpret import concrete, run_node
from eqsat.language.ops import spec
from eqsat.language.terms import (
    OPAQUE,
    PLAIN,
    Attrs,
    Constant,
    Conversion,
    DType,
    Graph,
    Held,
    Kernel,
    Node,
    Plan,
    Step,
    Sym,
    TensorType,
)

#: Operators whose result follows from the shape of their operand.
_OF_SHAPES = ("shape", "size")
#: Remedy for a program that no GPU runs.
_REMEDY = "run it on the CPU: result.compile('onnxruntime')"
#: Element types that no kernel reads or writes.
_UNHELD = frozenset(d for d in DType if d is not DType.BFLOAT16 and (d.numpy.isbuiltin != 1 or d.numpy.kind in "Oc"))
_FLOATS = Floats()


def plain_plan(graph: Graph) -> Plan:
    """The plan that runs every node of a graph by itself, as it stands."""
    steps = []
    for node in graph.nodes:
        operands = dict.fromkeys(Held(v, PLAIN) for v in node.inputs if v is not None)
        results = tuple(Held(v, PLAIN) for v in node.outputs if v)
        steps.append(Kernel((results[0].value,), tuple(operands), results))
    return Plan(graph, tuple(steps))


def whole_sizes(sizes: Mapping[str, int], where: str) -> dict[str, int]:
    """The sizes of named dims as Python's integers; BackendError for an invalid size."""
    if not isinstance(sizes, Mapping):
        raise BackendError(f"sizes are {sizes!r}", where=where, expected="the size of each named dim, by name")
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise BackendError(f"the size of {name!r} is {size!r}", where=where, expected="an integer from 0")
    return {name: int(size) for name, size in sizes.items()}


def static_graph(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A graph for inputs of known sizes, with their consequences computed; BackendError for other values."""
    types = dict(graph.types)
    for name in graph.inputs:
        declared = graph.type(name)
        if not isinstance(declared, TensorType):
            raise _refused(graph, f"input {name!r} is no tensor but {declared}", "tensors alone")
        types[name] = _sized(declared, sizes, name, graph)
    if types == dict(graph.types):
        return graph
    fixed = replace(graph, types={v: types[v] for v in graph.inputs})
    return infer_and_fold(fixed)


def static_plan(plan: Plan, sizes: Mapping[str, int] | None = None) -> Plan:
    """The plan for inputs of known sizes.

    Nodes that only shapes and constants decide become constants. BackendError for a dim that `sizes` leaves open, a
    shape that depends on data, an opaque node and for values that are no tensors.
    """
    return _Fixing(plan, dict(sizes or {})).fixed()


def _sized(declared: TensorType, sizes: Mapping[str, int], name: str, graph: Graph) -> TensorType:
    if declared.shape is None:
        remedy = f"give the model a shape for it, or {_REMEDY}"
        raise _refused(graph, f"input {name!r} is {declared}, of any rank", "inputs of known ranks", remedy)
    names = {n for d in declared.shape if isinstance(d, Sym) for n in d.names()}
    if names - sizes.keys():
        remedy = "pass inputs, or sizes such as " + ", ".join(f"{n}=1" for n in sorted(names - sizes.keys()))
        raise _refused(graph, f"input {name!r} is {declared}", "a size for every named dim", remedy)
    return declared.at(sizes)


def _refused(graph: Graph, fault: str, expected: str, remedy: str = _REMEDY) -> BackendError:
    return BackendError(fault, where=graph.name, expected=expected, remedy=remedy)


class _Fixing:
    def __init__(self, plan: Plan, sizes: dict[str, int]) -> None:
        self.plan, self.graph, self.sizes = plan, plan.graph, sizes
        self.types: dict[str, TensorType] = {}
        self.constants = dict(plan.graph.constants)
        self.nodes: list[Node] = []

    def fixed(self) -> Plan:
        for name in self.graph.inputs:
            self.types[name] = _sized(self._tensor(name), self.sizes, name, self.graph)
        for name, constant in self.graph.constants.items():
            self.types[name] = constant.type
        for node in self.graph.nodes:
            self._node(node)
        self._check_elements()
        graph = replace(
            self.graph,
            nodes=tuple(self.nodes),
            constants={n: c for n, c in self.constants.items() if n in self.types},
            types=dict(self.types),
        )
        steps = tuple(s for s in map(self._step, self.plan.steps) if s is not None)
        return Plan(graph, steps, self.plan.boundary)

    def _check_elements(self) -> None:
        """BackendError for a value in memory when the plan runs whose element type no GPU holds."""
        within = (v for n in self.nodes for v in (*n.inputs, *n.outputs) if v)
        for value in (*self.graph.inputs, *within, *self.graph.outputs.values()):
            if self.types[value].dtype in _UNHELD:
                raise _refused(
                    self.graph,
                    f"{value!r} is {self.types[value]}, which no kernel reads or writes",
                    "floats of 16 to 64 bits, integers of 8 to 64 bits, or bool",
                )

    def _tensor(self, value: str) -> TensorType:
        type = self.graph.type(value)
        if not isinstance(type, TensorType):
            raise _refused(self.graph, f"{value!r} is no tensor but {type}", "tensors alone")
        return type

    def _node(self, node: Node) -> None:
        if node.op == OPAQUE:
            operator = node.attrs.get("op_type", "opaque")
            fault = f"{node.describe()} is {operator}, which no kernel computes"
            raise _refused(self.graph, fault, "operators that eqsat declares")
        attrs = Attrs({k: concrete(v, self.sizes) for k, v in node.attrs.items()})
        operands = [None if v is None else self.types[v] for v in node.inputs]
        results = spec(node.op).result_types(operands, attrs)
        if not all(r.is_static for r in results):
            fault = f"the shape that {node.describe()} makes depends on data"
            raise _refused(self.graph, fault, "shapes that follow from those of the inputs")
        fixed = replace(node, attrs=attrs)
        self.types |= {v: t for v, t in zip(node.outputs, results, strict=False) if v}
        if self._is_known(node):
            self._compute(fixed, operands, results)
        else:
            self.nodes.append(fixed)

    def _is_known(self, node: Node) -> bool:
        if spec(node.op).random:
            return False
        return node.op in _OF_SHAPES or all(v is None or v in self.constants for v in node.inputs)

    def _compute(self, node: Node, operands: list[TensorType | None], results: tuple[TensorType, ...]) -> None:
        def array(value: str | None, type: TensorType | None) -> Any:
            if value is None or type is None:
                return None
            known = self.constants.get(value)
            return np.broadcast_to(np.zeros((), type.dtype.numpy), type.static) if known is None else known.array

        arrays = [array(v, t) for v, t in zip(node.inputs, operands, strict=True)]
        computed = run_node(_FLOATS, node, arrays, operands, list(results))
        for value, elements, type in zip(node.outputs, computed, results, strict=False):
            if value:
                self.constants[value] = Constant.of(elements, type.dtype)

    def _step(self, step: Step) -> Step | None:
        """The step without nodes that are constants by now; None where nothing is left of it."""
        producers = {n.outputs[0] or next(o for o in n.outputs if o): n for n in self.nodes}
        if isinstance(step, Conversion):
            return None if step.value in self.constants else step
        values = tuple(v for v in step.nodes if v in producers)
        if not values:
            return None
        if values == step.nodes:
            return step
        within = {o for v in values for o in producers[v].outputs}
        known = {held.value: held for held in step.operands}
        state = step.results[0].state
        read = dict.fromkeys(v for n in values for v in producers[n].inputs if v is not None and v not in within)
        operands = tuple(known.get(v, Held(v, state)) for v in read)
        return replace(step, nodes=values, operands=operands)
