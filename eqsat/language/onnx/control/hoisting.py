"""Nodes that a loop computes alike in every run, moved in front of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from onnx import GraphProto

from eqsat.errors import ExportModelError
from eqsat.language.graphs.fold import holds_symbols, infer_and_fold
from eqsat.language.onnx.control.inference import Body
from eqsat.language.onnx.control.sites import Site, holds_bodies, replaced, sites, written
from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, Constant, Dim, Graph, Names, Node, Shape, Sym, TensorType, ValueType


@dataclass(frozen=True)
class Moved:
    """Nodes that were moved in front of a loop, out of a body that was `before` and is now `after`."""

    place: str
    nodes: tuple[Node, ...]
    before: Graph
    after: Graph
    trips: Dim | None


def hoisted(graph: Graph, fresh: Callable[[], Sym], names: Names, where: str = "") -> tuple[Graph, list[Moved]]:
    """The graph with nodes that its loops compute alike in every run in front of them, inner loops first.

    Where a loop may not run at all, only nodes are moved that cannot fail. A state that no run changes counts as the
    value that it begins with.
    """
    if not holds_bodies(graph):
        return graph, []
    nodes, constants, types = list(graph.nodes), dict(graph.constants), dict(graph.types)
    done: list[Moved] = []
    for site in sites(graph, fresh):
        bodies: dict[str, GraphProto] = {}
        split = None
        for body in site.control.bodies:
            place = f"{where}{body.name} of {site.place}"
            inner, within = hoisted(body.graph, fresh, names, f"{place}: ")
            if site.proto.op_type != "If":
                inner = _with_fixed_states(inner, site, body, graph)
                split = _Split(inner, body, site.control.runs, constants, names)
                inner = split.left
            if not within and (split is None or not split.moved):
                continue
            try:
                bodies[body.name], added = written(inner, body, constants | (split.constants if split else {}), names)
            except ExportModelError:
                split = None
                continue
            done += within
            if split is not None:
                added |= split.constants
                types |= split.types
                if split.moved:
                    done.append(Moved(place, tuple(split.moved), split.whole, split.left, site.control.trips))
            constants |= added
            types |= {name: constant.type for name, constant in added.items()}
        if bodies:
            at = nodes.index(site.node)
            nodes[at : at + 1] = [*(split.moved if split else ()), replaced(site, bodies)]
    if not done:
        return graph, []
    return replace(graph, nodes=tuple(nodes), constants=constants, types=types), done


def _with_fixed_states(inner: Graph, site: Site, body: Body, outer: Graph) -> Graph:
    """The graph of a loop's body with each state that no run changes read from outside the loop."""
    first = 1 if site.proto.op_type == "Loop" else 0
    own, results = [v.name for v in body.proto.input], list(inner.outputs.values())[first:]
    begins = dict(zip(own, site.proto.input, strict=False))
    fixed: dict[str, str] = {}
    for name, value in zip(own[2 * first :], results, strict=False):
        begin = begins.get(name, "")
        known = {*inner.inputs, *inner.constants, *inner.producers} - {*body.scope.types}
        if name == value and name in inner.inputs and begin and begin not in known and begin not in own:
            fixed[name] = begin
    if not any(v in fixed for node in inner.nodes for v in node.inputs):
        return inner
    constants = {v: outer.constants[v] for v in fixed.values() if v in outer.constants}
    more = [v for v in dict.fromkeys(fixed.values()) if v not in inner.inputs and v not in constants]
    nodes = (replace(n, inputs=tuple(fixed.get(v, v) if v else None for v in n.inputs)) for n in inner.nodes)
    return infer_and_fold(
        replace(
            inner,
            inputs=(*inner.inputs, *more),
            nodes=tuple(nodes),
            constants={**inner.constants, **constants},
            types={**inner.types, **{v: outer.type(v) for v in fixed.values()}},
        )
    )


class _Split:
    """The body of a loop as nodes alike in all runs, `moved` with their `constants` and `types`, and those left."""

    def __init__(self, whole: Graph, body: Body, certain: bool, outside: Mapping[str, Constant], names: Names) -> None:
        self.whole = whole
        self.moved: list[Node] = []
        self.constants: dict[str, Constant] = {}
        self.types: dict[str, ValueType] = {}
        self._outside, self._names = outside, names
        self._new: dict[str, str] = {}
        varying = {v.name for v in body.proto.input}
        left: list[Node] = []
        for node in whole.nodes:
            fixed = node.op != OPAQUE and not OPS[node.op].random and varying.isdisjoint(v for v in node.inputs if v)
            if fixed and (certain or is_total(node, whole)):
                self._move(node)
            else:
                varying |= set(node.outputs)
                left.append(node)
        self.left = self._rest(left) if self.moved else whole

    def _move(self, node: Node) -> None:
        for value in node.inputs:
            constant = self.whole.constants.get(value or "")
            if value is not None and constant is not None and value not in self._new:
                shared = self._outside.get(value)
                self._new[value] = value if shared is constant else self._names(value)
                if shared is not constant:
                    self.constants[self._new[value]] = constant
        for output in node.outputs:
            if output:
                self._new[output] = self._names(output)
                self.types[self._new[output]] = self.whole.type(output)
        inputs = tuple(self._new.get(v, v) if v else None for v in node.inputs)
        outputs = tuple(self._new[o] if o else "" for o in node.outputs)
        self.moved.append(replace(node, inputs=inputs, outputs=outputs))

    def _rest(self, left: list[Node]) -> Graph:
        moved = {o: self._new[o] for n in self.whole.nodes for o in n.outputs if o in self._new}
        nodes = tuple(replace(n, inputs=tuple(moved.get(v, v) if v else None for v in n.inputs)) for n in left)
        outputs = {name: moved.get(value, value) for name, value in self.whole.outputs.items()}
        read = {v for n in nodes for v in n.inputs} | set(outputs.values())
        types = {**self.whole.types, **self.types}
        inputs = (*self.whole.inputs, *(v for v in moved.values() if v in read))
        return replace(self.whole, inputs=inputs, outputs=outputs, nodes=nodes, types=types).without_dead()


def is_total(node: Node, graph: Graph) -> bool:
    """True if a node makes its result, and fails on no values of its operands."""
    operands = [graph.type(v) for v in node.inputs if v is not None]
    known = [t for t in operands if isinstance(t, TensorType) and t.shape is not None]
    if len(known) < len(operands) or holds_symbols(node.attrs.values()):
        return False
    declared = OPS[node.op]
    if declared.total == "all":
        return True
    if declared.pointwise:
        floats = all(t.dtype.is_float for t in known)
        return (floats or not declared.fails_on_integers) and _fit([t.dims for t in known])
    return declared.total == "static" and all(t.is_static and 0 not in t.static for t in known)


def _fit(shapes: list[Shape]) -> bool:
    """True if shapes broadcast whatever sizes the named dims have."""
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        dims = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1}
        if len(dims) > 1:
            return False
    return True
