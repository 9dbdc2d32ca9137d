"""Placement of values so that readers need not copy: parts within a concatenation, axes in the order read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.language.ops import OPS
from eqsat.language.terms import Held, Node, Plan, TensorType
from eqsat.runtime.kernels.view import WIDEST_ACCESS, View


@dataclass(frozen=True)
class Home:
    """The part of a concatenation that a value is, `size` elements along an axis, seen in the value's own shape."""

    whole: Held
    axis: int
    start: int
    size: int


@dataclass(frozen=True)
class Placement:
    """Wishes for values by name: the part of a concatenation they are stored as, or the order of their axes."""

    homes: Mapping[str, Home] = field(default_factory=dict)
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def placement(plan: Plan, types: Mapping[str, TensorType]) -> Placement:
    """The wishes that a plan's steps give rise to."""
    return _Wishes(plan, types).found()


def is_strided(op: str) -> bool:
    """True if results of an operator are its operand seen with other strides, where those allow it."""
    return op in OPS and OPS[op].strided


def seen_as(node: Node, view: View, results: list[TensorType]) -> list[View] | None:
    """The views of a view operator's results, from its operand's view; None where that takes a copy."""
    attrs = node.attrs
    if node.op == "identity":
        return [view]
    if node.op == "transpose":
        return [view.permuted(attrs["perm"])]
    if node.op == "reshape":
        reshaped = view.reshaped(results[0].static)
        return None if reshaped is None else [reshaped]
    if node.op == "expand":
        return [view.broadcast_to(results[0].static)]
    if node.op == "slice":
        steps = attrs["steps"] or (1,) * len(attrs["axes"])
        for axis, start, end, step in zip(attrs["axes"], attrs["starts"], attrs["ends"], steps, strict=True):
            # An end of -1 lies before the first element and belongs to a negative step.
            stop = None if step < 0 and end < 0 else max(end, 0)
            taken = range(*slice(max(start, 0), stop, step).indices(view.shape[axis]))
            view = view.sliced(axis, taken.start, len(taken), step)
        return [view]
    if node.op == "split":
        starts = (sum(attrs["sizes"][:i]) for i in range(len(attrs["sizes"])))
        return [view.sliced(attrs["axis"], s, n) for s, n in zip(starts, attrs["sizes"], strict=True)]
    return None


class _Wishes:
    def __init__(self, plan: Plan, types: Mapping[str, TensorType]) -> None:
        self.plan, self.graph, self.types = plan, plan.graph, types
        self.kernels = {v: k for k in plan.kernels for v in k.nodes}
        self.wanted = set(plan.graph.outputs.values())

    def found(self) -> Placement:
        homes: dict[str, Home] = {}
        for node in self.graph.nodes:
            if node.op == "concat":
                homes |= self._parts(node, homes)
        orders = {}
        for node in self.graph.nodes:
            if node.op == "transpose" and (order := self._order(node, homes)) is not None:
                orders[str(node.inputs[0])] = order
        return Placement(homes, orders)

    def _made(self, value: str) -> Held | None:
        """A value as a kernel writes it in memory, by rows; None where none does."""
        node = self.graph.producers.get(value)
        kernel = None if node is None else self.kernels.get(next(o for o in node.outputs if o))
        if node is None or kernel is None or (len(kernel.nodes) == 1 and (is_strided(node.op) or node.op == "concat")):
            return None
        return next((h for h in kernel.results if h.value == value and h.state.layout == "row"), None)

    def _beneath(self, value: str) -> str:
        """The value that holds the elements of another in the same order, under another shape."""
        node = self.graph.producers.get(value)
        while node is not None and node.op in ("reshape", "identity") and self.kernels[value].nodes == (value,):
            value = str(node.inputs[0])
            node = self.graph.producers.get(value)
        return value

    def _parts(self, node: Node, taken: Mapping[str, Home]) -> dict[str, Home]:
        """The operands of a concatenation that can be written where they belong at once."""
        whole = node.outputs[0]
        kernel = self.kernels.get(whole)
        if kernel is None or kernel.nodes != (whole,) or kernel.results[0].state.layout != "row":
            return {}
        state = kernel.results[0].state
        if any(h.state != state for h in kernel.operands):
            return {}
        type = self.types[whole]
        axis = node.attrs["axis"] % type.rank
        row = math.prod(type.static[axis + 1 :]) * state.typed(type).dtype.itemsize
        start = 0
        homes: dict[str, Home] = {}
        stored = View.of("", state.typed(type).dtype, type.static)
        for value in node.inputs:
            name = self._beneath(str(value))
            size = self.types[str(value)].static[axis]
            aligned = start * row % WIDEST_ACCESS == 0 and type.static[axis] * row % WIDEST_ACCESS == 0
            once = node.inputs.count(value) == 1 and name not in {*taken, *homes} and name not in self.wanted
            fits = stored.sliced(axis, start, size).reshaped(self.types[name].static) is not None
            if aligned and once and fits and self._made(name) == Held(name, state):
                homes[name] = Home(Held(whole, state), axis, start, size)
            start += size
        return homes

    def _order(self, node: Node, homes: Mapping[str, Home]) -> tuple[int, ...] | None:
        """The order to store a value in whose only reader transposes it for one who needs the result in order."""
        value, transposed = str(node.inputs[0]), node.outputs[0]
        readers = self.graph.consumers.get(transposed, ())
        in_order = transposed in self.wanted or (len(readers) == 1 and readers[0].op == "reshape")
        alone = len(self.graph.consumers.get(value, ())) == 1 and value not in self.wanted and value not in homes
        if not in_order or not alone or self._made(value) is None:
            return None
        perm: tuple[int, ...] = node.attrs["perm"]
        return perm
