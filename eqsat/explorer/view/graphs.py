"""The two graphs of a run as views: the original and the result, with costs, changes and blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.costs.model.cost import Cost
from eqsat.explorer.naming import attributes, node_name
from eqsat.explorer.view.blocks import Path, inherited
from eqsat.explorer.view.run import ViewedRun
from eqsat.explorer.view.views import GraphView, NodeView
from eqsat.extract.tensors.assembly import Assembled
from eqsat.language.terms import PLAIN, Conversion, Kernel, State
from eqsat.language.terms.graph import OPAQUE, Graph, Node, operator_name


@dataclass
class _Drawing:
    """Nodes and edges as they are added; a value that is held in several states has a producer for each."""

    graph: Graph
    nodes: list[NodeView] = field(default_factory=list)
    edges: dict[tuple[str, str, str], None] = field(default_factory=dict)
    producers: dict[tuple[str, State], str] = field(default_factory=dict)

    def producer(self, value: str, state: State = PLAIN) -> str:
        """The key of the producer of a value in a state, or in any."""
        return self.producers.get((value, state)) or self.producers[value, PLAIN]

    def link(self, value: str, reader: str, state: State = PLAIN) -> None:
        """Draws that a node reads a value."""
        self.edges.setdefault((self.producer(value, state), reader, str(self.graph.type(value))))

    def leaves(self, eclasses: Mapping[str, int], blocks: Mapping[str, Path]) -> None:
        """Draws inputs, and the constants that are read."""
        for name in self.graph.inputs:
            self._leaf("input", name, eclasses.get(name), ())
        for name in self.graph.constants:
            self._leaf("constant", name, eclasses.get(name), blocks.get(name, ()))

    def _leaf(self, kind: str, name: str, eclass: int | None, block: Path) -> None:
        key = f"{kind}:{name}"
        detail = str(self.graph.type(name))
        self.nodes.append(NodeView(key, kind, name, detail, (name,), block, eclass=eclass))
        self.producers[name, PLAIN] = key

    def outputs(self, eclasses: Mapping[str, int], boundary: Mapping[str, State]) -> None:
        """Draws outputs."""
        for name, value in self.graph.outputs.items():
            state = boundary.get(name, PLAIN)
            detail = str(self.graph.type(value)) + ("" if state.is_plain else f" held {state}")
            key = f"output:{name}"
            self.nodes.append(NodeView(key, "output", name, detail, (name, value), eclass=eclasses.get(value)))
            self.link(value, key, state)

    def view(self) -> GraphView:
        """The drawing as a view."""
        return GraphView(self.graph.name, tuple(self.nodes), tuple(self.edges))


def original_view(run: ViewedRun) -> GraphView:
    """The graph as it was given, each node with its cost, its e-class and the change that it goes in."""
    graph = run.given.graph
    drawing = _Drawing(graph)
    eclasses = {value: run.leader(value) for value in run.encoding.values}
    drawing.leaves(eclasses, _constant_blocks(graph, run.blocks))
    changes = {v: number for number, c in enumerate(run.explained.changes, start=1) for v in c.replaced}
    costs = _given_costs(run)
    for index, node in enumerate(graph.nodes):
        values = tuple(v for v in node.outputs if v)
        cost = costs[index]
        view = _node_view(
            node,
            str(graph.type(values[0])),
            block=run.blocks[values[0]],
            cost=cost,
            change=changes.get(values[0]),
            eclass=eclasses.get(values[0]),
        )
        drawing.nodes.append(view)
        drawing.producers |= {(value, PLAIN): view.key for value in values}
        for value in node.inputs:
            if value is not None:
                drawing.link(value, view.key)
    drawing.outputs(eclasses, {})
    return drawing.view()


def result_view(run: ViewedRun) -> GraphView:
    """The nodes and conversions between states that run now, each with its cost."""
    assembled = run.kept.assembled
    if assembled is None:
        return original_view(run)
    return _Result(run, assembled).view()


class _Result:
    def __init__(self, run: ViewedRun, assembled: Assembled) -> None:
        self.run, self.assembled, self.graph = run, assembled, assembled.graph
        self.drawing = _Drawing(self.graph)
        self.eclasses = _result_classes(run, assembled)
        self.known = _known_blocks(run, assembled)
        self.blocks = inherited(self.graph, self.known)
        self.place = {v: index for index, node in enumerate(self.graph.nodes) for v in node.outputs if v}
        self.changes = {v: number for number, c in enumerate(run.explained.changes, start=1) for v in c.made}

    def view(self) -> GraphView:
        by_value = {v: b for n, b in zip(self.graph.nodes, self.blocks, strict=True) for v in n.outputs if v}
        self.drawing.leaves(self.eclasses, _constant_blocks(self.graph, by_value))
        drawn: set[int] = set()
        for step, cost in zip(self.assembled.plan.steps, self.assembled.costs, strict=True):
            if isinstance(step, Conversion):
                self._convert(step, cost)
            else:
                self._kernel(step, cost, drawn)
        self.drawing.outputs(self.eclasses, self.assembled.plan.boundary)
        return self.drawing.view()

    def _convert(self, step: Conversion, cost: Cost) -> None:
        kind = "cast" if step.source.precision != step.target.precision else "copy"
        key = f"convert:{step.value}:{step.target}"
        index = self.place.get(step.value)
        self.drawing.nodes.append(
            NodeView(
                key,
                "conversion",
                kind,
                f"{step.source} -> {step.target}",
                (step.value,),
                self.blocks[index] if index is not None else (),
                cost.seconds,
                cost.estimated,
                self.changes.get(step.value),
                self.eclasses.get(step.value),
            )
        )
        self.drawing.link(step.value, key, step.source)
        self.drawing.producers[step.value, step.target] = key

    def _kernel(self, step: Kernel, cost: Cost, drawn: set[int]) -> None:
        """Draws the nodes of a kernel; its cost stands at the last."""
        computed = (*step.nodes, *(result.value for result in step.results))
        places = dict.fromkeys(self.place[v] for v in computed if v in self.place)
        indices = [i for i in places if i not in drawn]
        states = {operand.value: operand.state for operand in step.operands}
        names = [operator_name(self.graph.nodes[i]) for i in indices]
        for order, index in enumerate(indices):
            drawn.add(index)
            node, last = self.graph.nodes[index], order == len(indices) - 1
            value = next(v for v in node.outputs if v)
            state = next((result.state for result in step.results if result.value in node.outputs), PLAIN)
            detail = str(self.graph.type(value))
            detail += "" if state.is_plain else f" held {state}"
            detail += f", by {step.arithmetic}" if step.arithmetic else ""
            detail += f", one kernel: {' + '.join(names)}" if len(indices) > 1 else ""
            view = _node_view(
                node,
                detail,
                block=self.blocks[index],
                cost=cost if last else None,
                change=self.changes.get(value),
                eclass=self.eclasses.get(value),
            )
            self.drawing.nodes.append(view)
            for read in node.inputs:
                if read is not None:
                    self.drawing.link(read, view.key, states.get(read, PLAIN))
            for output in filter(None, node.outputs):
                self.drawing.producers |= {(output, PLAIN): view.key, (output, state): view.key}


def _node_view(
    node: Node, detail: str, *, block: Path, cost: Cost | None, change: int | None, eclass: int | None
) -> NodeView:
    values = tuple(v for v in node.outputs if v)
    attrs = attributes(node.op, node.attrs)
    name = node_name(node)
    return NodeView(
        key=values[0],
        kind="opaque" if node.op == OPAQUE else "operator",
        label=operator_name(node),
        detail=", ".join(filter(None, (attrs, detail))),
        names=tuple(dict.fromkeys((name, *values))),
        block=block,
        seconds=cost.seconds if cost is not None and (cost.seconds or cost.launches) else None,
        estimated=cost is not None and cost.estimated,
        change=change,
        eclass=eclass,
    )


def _given_costs(run: ViewedRun) -> Sequence[Cost]:
    """The cost of each node of the original, also under changed costs."""
    choice, egraph = run.choice, run.encoding.egraph
    extraction, given = choice.extraction, choice.given
    paid: dict[int, float] = {}
    if choice.in_seconds:
        for option in given.chosen.values():
            way = extraction.options[option]
            if len(way.positions) == 1 and way.split is None and extraction.problem.nodes[option].operands:
                leader = extraction.snapshot.nodes[way.positions[0]].eclass
                paid[leader] = extraction.problem.nodes[option].cost
    costs = []
    for node, cost in run.costs.nodes:
        value = next((v for v in node.outputs if v in run.encoding.values), None)
        seconds = None if value is None or node.op == "split" else paid.get(egraph.find(run.encoding.values[value]))
        changed = seconds is not None and len(node.outputs) == 1 and abs(seconds - cost.seconds) > 1e-12
        costs.append(Cost(seconds or 0.0, launches=1, estimated=cost.estimated) if changed else cost)
    return costs


def _result_classes(run: ViewedRun, assembled: Assembled) -> dict[str, int]:
    """The e-class of each value of the result."""
    egraph, snapshot = run.encoding.egraph, assembled.snapshot
    eclasses = {}
    for leader, name in assembled.decoded.names.items():
        if leader in assembled.choice:
            eclasses[name] = egraph.find(snapshot.nodes[assembled.choice[leader]].number)
    return eclasses


def _known_blocks(run: ViewedRun, assembled: Assembled) -> dict[str, Path]:
    """The blocks of the values of the result that the original had too."""
    shared = assembled.decoded.shared
    return {
        name: block
        for name, values in shared.items()
        if (block := next((run.blocks[v] for v in (name, *values) if v in run.blocks), None)) is not None
    }


def _constant_blocks(graph: Graph, blocks: Mapping[str, Path]) -> dict[str, Path]:
    """The block of each constant: that of its first reader."""
    block_of: dict[str, Path] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value in graph.constants:
                block_of.setdefault(value, next((blocks[v] for v in node.outputs if v in blocks), ()))
    return block_of
