"""The inputs and outputs of a plan as its caller holds them, and constants as they are stored in states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.terms import LAYOUTS, PLAIN, Constant, Graph, Node, Plan, State, TensorType, ValueType, stored_shape
from eqsat.language.terms.constant import narrowed


def interface(plan: Plan) -> Graph:
    """The graph of a plan with inputs and outputs of the types their caller holds them in.

    >>> from eqsat.language.graphs.builder import Builder
    >>> g = Builder("g"); g.output("y", g.input("x", (2, 3)))
    >>> interface(Plan(g.build(), (), {"x": State("column"), "y": State("column")})).type("x").shape
    (3, 2)
    """
    if all(state.is_plain for state in plan.boundary.values()):
        return plan.graph
    graph, types, outputs = plan.graph, dict(plan.graph.types), dict(plan.graph.outputs)
    nodes = list(graph.nodes)
    for name, state in plan.boundary.items():
        if state.is_plain or name not in outputs:
            continue
        # The value itself may be another output, in another state.
        outputs[name] = f"{name} as {state}"
        nodes.append(Node("identity", (graph.outputs[name],), (outputs[name],)))
        types[outputs[name]] = _held_type(graph.type(graph.outputs[name]), state)
    for name in graph.inputs:
        types[name] = _held_type(graph.type(name), plan.boundary.get(name, PLAIN))
    return replace(graph, nodes=tuple(nodes), outputs=outputs, types=types, origin=origin_of(plan))


def _held_type(type: ValueType, state: State) -> ValueType:
    """The type of a value as it is held in a state: the axes as they are stored."""
    if state.is_plain or not isinstance(type, TensorType):
        return type
    return state.typed(type).with_shape(stored_shape(type.dims, state.layout))


def origin_of(plan: Plan) -> Any:
    """The origin of a plan's graph, without the types stated of inputs and outputs that are held otherwise now."""
    origin = plan.graph.origin
    changed = {name: state for name, state in plan.boundary.items() if not state.is_plain}
    if not isinstance(origin, OnnxOrigin) or not changed:
        return origin
    return replace(
        origin,
        inputs={name: data for name, data in origin.inputs.items() if name not in changed},
        outputs={name: data for name, data in origin.outputs.items() if name not in changed},
        defaults={name: stored_constant(given, changed.get(name, PLAIN)) for name, given in origin.defaults.items()},
    )


def stored_constant(given: Constant, state: State) -> Constant:
    """A constant with its elements stored in a state."""
    if state.is_plain:
        return given
    array = given.array
    order = LAYOUTS[state.layout].order(array.ndim)
    if order is not None:
        array = np.transpose(array, order)
    stored = state.typed(given.type)
    return Constant.of(np.array(narrowed(array, stored.dtype), order="C"), stored.dtype)
