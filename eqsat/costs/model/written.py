"""The cost of an operator that is written out by the law that defines it before a program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from eqsat.costs.model.cost import Cost, added
from eqsat.language.terms import Graph, TensorType

Types: TypeAlias = Sequence[TensorType | None]
#: The graph of the operators that laws say an operator is, by its name, attributes, operands and results, if any.
WrittenOut: TypeAlias = Callable[[str, Mapping[str, Any], Types, Types], Graph | None]


class NodePrices(Protocol):
    """The prices of single operators."""

    def node(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operand_types: Types,
        result_types: Types,
        const_operands: Sequence[bool],
        /,
    ) -> Cost:
        """The cost of one operator."""


#: How much more an operator costs than what it is written as: of equals the operators themselves are chosen.
_BESIDE = 1e-6


def cost_written(model: NodePrices, graph: Graph, const: Sequence[bool]) -> Cost:
    """The cost of the operators that one is written as; of its inputs those that are `const` are known before."""
    known = {name for name, is_known in zip(graph.inputs, const, strict=True) if is_known}
    costs: list[Cost] = []
    for node in graph.nodes:
        given = [name or "" for name in node.inputs]
        flags = [name in known for name in given]
        if all(flags):
            known.update(node.outputs)
            continue
        found = [graph.type(name) for name in (*given, *node.outputs)]
        types = [one if isinstance(one, TensorType) else None for one in found]
        costs.append(model.node(node.op, node.attrs, types[: len(given)], types[len(given) :], flags))
    total = added(costs)
    return replace(total, seconds=total.seconds * (1 + _BESIDE))
