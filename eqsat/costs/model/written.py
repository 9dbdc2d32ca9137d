"""The cost of an operator that is written out by the law that defines it before a program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from eqsat.costs.model.cost import Cost, added
from eqsat.language.terms import Graph, TensorType

Types: TypeAlias = Sequence[TensorType | None]
#: The graph of the operators that laws say an operator is, by its name, attributes, operands and results, if any.
WrittenOut: TypeAlias = Callable[[str, Mapping[str, Any], Types, Types], Graph | None]


#: By how much an operator costs less than what it is written as: of equals a graph keeps the operator that it names.
_BESIDE = 1e-6


def cost_written(price: Callable[..., Cost], graph: Graph, const: Sequence[bool]) -> Cost:
    """The cost of what an operator is written as, each at its `price`; inputs that are `const` are known before."""
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
        costs.append(price(node.op, node.attrs, types[: len(given)], types[len(given) :], flags))
    total = added(costs)
    return replace(total, seconds=total.seconds * (1 - _BESIDE))
