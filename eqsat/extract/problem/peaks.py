"""The peak of memory of a graph, or of a plan of it, that runs in the order it is written in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.costs.kernels.implementations import is_view
from eqsat.extract.problem.schedule import Dataflow, simulate
from eqsat.language.ops import OPS
from eqsat.language.terms import PLAIN, Conversion, Graph, Held, Implementation, Plan, State, Step, TensorType


def peak_of_graph(graph: Graph, sizes: Mapping[str, int]) -> float:
    """The most bytes of values that are live at once, node by node; constants do not count, inputs and outputs do.

    A value is live from the node that makes it to the last that reads it, inputs from the start and outputs to the end;
    what only looks at its operand in another shape takes nothing. `sizes` are those of named dims; of what has no shape
    nothing is known, and it counts nothing.
    """
    nodes = [
        ([Held(v, PLAIN) for v in node.inputs if v is not None], [Held(v, PLAIN) for v in node.outputs if v], node.op)
        for node in graph.nodes
    ]
    views = [len(read) > 0 and op in OPS and OPS[op].view for read, _, op in nodes]
    return _peak(graph, {}, [(read, made, view) for (read, made, _), view in zip(nodes, views, strict=True)], sizes)


def peak_of_plan(plan: Plan, sizes: Mapping[str, int]) -> float:
    """The same of a plan, step by step: values in several states are several, what is made inside a kernel is none."""
    return _peak(plan.graph, plan.boundary, [_touched(plan.graph, step) for step in plan.steps], sizes)


def _touched(graph: Graph, step: Step) -> tuple[Sequence[Held], Sequence[Held], bool]:
    """The values that a step reads and makes, and whether the result lies where the operand does."""
    if isinstance(step, Conversion):
        return [Held(step.value, step.source)], [Held(step.value, step.target)], False
    node = graph.producers[step.nodes[-1]]
    if len(step.nodes) > 1 or not step.operands or node.op not in OPS:
        return step.operands, step.results, False
    types = [None if v is None else graph.type(v) for v in node.inputs]
    tensors = [t if isinstance(t, TensorType) else None for t in types]
    held = {one.value: one.state for one in step.operands}
    way = Implementation(tuple(held.get(v or "", PLAIN) for v in node.inputs), step.results[0].state, step.arithmetic)
    return step.operands, step.results, OPS[node.op].view or is_view(node.op, node.attrs, tensors, way)


def _peak(
    graph: Graph,
    boundary: Mapping[str, State],
    steps: Sequence[tuple[Sequence[Held], Sequence[Held], bool]],
    sizes: Mapping[str, int],
) -> float:
    buffers: dict[Held, int] = {}
    held: list[Held] = []

    def buffer(one: Held) -> int:
        if one not in buffers:
            buffers[one] = len(held)
            held.append(one)
        return buffers[one]

    start = frozenset(buffer(Held(v, boundary.get(v, PLAIN))) for v in graph.inputs)
    touches = []
    for read, made, view in steps:
        known = [one for one in read if one.value not in graph.constants]
        if view and known and known[0] in buffers:
            buffers |= dict.fromkeys(made, buffers[known[0]])
        touches.append(tuple({buffer(one) for one in (*known, *made)}))
    ends = [Held(v, boundary.get(name, PLAIN)) for name, v in graph.outputs.items()]
    flow = Dataflow(
        [_bytes(graph, one, sizes) for one in held],
        touches,
        [()] * len(touches),
        start,
        frozenset(buffers[one] for one in ends if one in buffers),
    )
    return simulate(flow, range(len(touches)))


def _bytes(graph: Graph, held: Held, sizes: Mapping[str, int]) -> float:
    type = graph.type(held.value)
    if not isinstance(type, TensorType) or type.shape is None:
        return 0.0
    stored = held.state.typed(type)
    return float(stored.elements(sizes) * stored.dtype.itemsize)
