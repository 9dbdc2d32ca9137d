"""Activations that operators end in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eqsat.language.declaration.registry import spec
from eqsat.language.terms import Graph, Node


def with_activations_apart(graph: Graph, inner: Callable[[Node], str]) -> Graph:
    """The graph with each fused activation as a node of its own, as such an operator is defined.

    `inner` names the value that the activation is applied to, by the node that has both.
    """
    if all(n.attrs.get("activation", "none") == "none" for n in graph.nodes):
        return graph
    nodes: list[Node] = []
    types = dict(graph.types)
    for node in graph.nodes:
        activation = node.attrs.get("activation", "none")
        if activation == "none":
            nodes.append(node)
            continue
        (output,) = node.outputs
        linear = inner(node)
        types[linear] = graph.type(output)
        nodes.append(replace(node, outputs=(linear,), attrs=node.attrs | {"activation": "none"}))
        nodes.append(Node(activation, (linear,), (output,), spec(activation).complete({}), node.name))
    return replace(graph, nodes=tuple(nodes), types=types)
