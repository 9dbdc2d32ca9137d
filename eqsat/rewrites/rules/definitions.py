"""Operators written out by the laws that define them, for targets that lack them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any, cast

from eqsat.errors import GraphError
from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE, Bindings, Expression, Graph, Node, Siblings, Spread, TensorType, ValueType, Var
from eqsat.rewrites.conditions.expression import Typed, bound_name
from eqsat.rewrites.rules.derive import stated_laws
from eqsat.rewrites.rules.rule import Rule, applications, pattern_fields
from eqsat.rewrites.rules.term import Term, right_terms


@dataclass(frozen=True)
class _Value(Typed):
    """A value of the graph as a law binds it."""

    name: str = ""
    attends: bool = False
    diagonal: float | None = None
    elements: Any | None = None


def expanded(graph: Graph, lacking: Iterable[str]) -> Graph:
    """The graph without the operators that a target lacks, as far as laws of their declarations define them.

    A law defines its operator where it states it of any operands and attributes, without a condition, in terms of
    other operators: ``swish_gate(x, y) => x * sigmoid(y)``. Operators without such a law stay.
    """
    missing = frozenset(lacking)
    if not any(node.op in missing and definition(node.op, missing) for node in graph.nodes):
        return graph
    writer = _Writer(graph, missing)
    nodes = [one for node in graph.nodes for one in writer.nodes(node)]
    return replace(graph, nodes=tuple(nodes), types=writer.types)


@cache
def definition(op: str, lacking: frozenset[str]) -> Rule | None:
    """The law that defines an operator in terms of those that are not lacking, or that are themselves defined."""
    if op == OPAQUE or spec(op).is_shipped:
        return None
    for rule in stated_laws([spec(op)]):
        if _defines(rule, op):
            used = {app.op for pattern in rule.right for app in applications(pattern)} & lacking
            if op not in used and all(definition(other, lacking) for other in used):
                return rule
    return None


def _defines(rule: Rule, op: str) -> bool:
    """True if a law states the operator's result for any operands and attributes."""
    if isinstance(rule.left, Siblings) or len(rule.left) != 1 or rule.conditions:
        return False
    (app,) = rule.left
    operands = [o.item if isinstance(o, Spread) and not o.over else o for o in app.operands]
    fields = pattern_fields(app)
    return (
        app.op == op
        and all(isinstance(o, Var) for o in operands)
        and len(set(operands)) == len(operands)
        and all(isinstance(f, Expression) and bound_name(f) is not None for f in fields.values())
        and len({f.text for f in fields.values()}) == len(fields)
    )


class _Writer:
    """A writer of nodes by the laws that define them, with values under names that nothing else has."""

    def __init__(self, graph: Graph, lacking: frozenset[str]) -> None:
        self.lacking = lacking
        self.types: dict[str, ValueType] = {**graph.types, **{v: graph.type(v) for v in graph.constants}}

    def nodes(self, node: Node) -> list[Node]:
        """The nodes that make the outputs of one, itself where no law defines its operator for these operands."""
        rule = definition(node.op, self.lacking) if node.op in self.lacking else None
        bindings = None if rule is None else self.bindings(rule, node)
        if rule is None or bindings is None:
            return [node]
        try:
            terms = right_terms(rule, bindings)
        except GraphError:
            return [node]
        written: list[Node] = []
        outputs = iter(node.outputs)
        for term in terms:
            own = tuple(next(outputs) for _ in (term.types if isinstance(term, Term) else (term.type,)))
            self.emit(term, own, node, written)
        return [one for each in written for one in self.nodes(each)]

    def bindings(self, rule: Rule, node: Node) -> Bindings | None:
        """The bindings of the law's left side to a node; None where an operand is left out, or no tensor."""
        values: list[_Value] = []
        for name in node.inputs:
            type = self.types.get(name) if name is not None else None
            if name is None or not isinstance(type, TensorType):
                return None
            values.append(_Value(type, name=name))
        (app,) = rule.roots
        bound = Bindings()
        if any(isinstance(o, Spread) for o in app.operands):
            bound.tensors[_name(app.operands[0])] = tuple(values)
        elif len(values) == len(app.operands):
            bound.tensors.update({_name(o): v for o, v in zip(app.operands, values, strict=True)})
        else:
            return None
        if app.record is not None:
            bound.attrs[app.record] = node.attrs
        bound.attrs.update({f.text: node.attrs[n] for n, f in pattern_fields(app).items()})
        return bound

    def emit(self, term: Term | _Value, outputs: tuple[str, ...], source: Node, written: list[Node]) -> None:
        """Add the nodes of a term, the last of which makes these outputs."""
        if not isinstance(term, Term):
            written.append(Node("identity", (term.name,), outputs, name=f"{source.name}.{len(written)}"))
            return
        inputs: list[str | None] = []
        for operand in term.operands:
            if operand is None:
                inputs.append(None)
            elif isinstance(operand, Term):
                names = tuple(self.fresh(source, t) for t in operand.types)
                self.emit(operand, names, source, written)
                inputs.append(names[0])
            else:
                inputs.append(cast("_Value", operand).name)
        written.append(Node(term.op, tuple(inputs), outputs, term.attrs, f"{source.name}.{len(written)}"))

    def fresh(self, source: Node, type: TensorType) -> str:
        """A name for a value that only the writing out has."""
        stem = next(o for o in source.outputs if o)
        name = next(n for k in count() if (n := f"{stem}.{k}") not in self.types)
        self.types[name] = type
        return name


def _name(operand: object) -> str:
    item = operand.item if isinstance(operand, Spread) else operand
    return item.name if isinstance(item, Var) else ""
