"""Operators written out by the laws that define them, for targets that lack them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any, cast

from eqsat.errors import GraphError
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.terms import (
    OPAQUE,
    App,
    Attrs,
    Bindings,
    Expression,
    Graph,
    Node,
    Siblings,
    Spread,
    TensorType,
    ValueType,
    Var,
)
from eqsat.rewrites.conditions.expression import Typed, bound_name
from eqsat.rewrites.rules.derive import stated_laws
from eqsat.rewrites.rules.evidence import recalled
from eqsat.rewrites.rules.parser import parse_rules
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

    A law defines its operator where it states it of any operands and attributes in terms of other operators:
    ``swish_gate(x, y) => x * sigmoid(y)``. Operators stay where there is no such law whose conditions hold of their
    types.
    """
    missing = frozenset(lacking)
    if not any(node.op in missing and definitions(node.op, missing) for node in graph.nodes):
        return graph
    writer = _Writer(graph, missing)
    nodes = [one for node in graph.nodes for one in writer.nodes(node)]
    return replace(graph, nodes=tuple(nodes), types=writer.types)


def definitions(op: str, lacking: frozenset[str]) -> tuple[Rule, ...]:
    """The laws that define an operator in terms of those that are not lacking, or that are themselves defined."""
    return () if op == OPAQUE or spec(op).is_shipped else _definitions(op, spec(op).reference, lacking)


@cache
def _definitions(op: str, reference: Reference, lacking: frozenset[str]) -> tuple[Rule, ...]:
    """The laws that define an operator; its reference tells those apart that had a name one after the other.

    A law that was refuted, as one that was read off a text may be, defines nothing.
    """
    found = []
    laws = stated_laws([spec(op)])
    known = recalled(laws)
    for stated in laws:
        if stated.name in known and known[stated.name].verdict == "refuted":
            continue
        rule = _inverse(stated) if _makes(stated, op) else stated
        if _defines(rule, op):
            used = {app.op for pattern in rule.right for app in applications(pattern)} & lacking
            if op not in used and all(definitions(other, lacking) for other in used):
                found.append(rule)
    return tuple(found)


def is_defined(op: str, attrs: Attrs, types: Sequence[ValueType | None], lacking: frozenset[str]) -> bool:
    """True if a law defines an operator for operands of these types."""
    values = [_Value(one) for one in types if isinstance(one, TensorType)]
    if len(values) < len(types):
        return False
    return any(_bound(rule, attrs, values) is not None for rule in definitions(op, lacking))


def written_out(
    op: str, attrs: Mapping[str, Any], types: Sequence[TensorType | None], results: Sequence[TensorType | None]
) -> Graph | None:
    """The graph of the operators that laws say an operator is, of inputs of these types; None where none says so."""
    inputs = {f"i{place}": one for place, one in enumerate(types) if one is not None}
    outputs = {f"o{place}": one for place, one in enumerate(results) if one is not None}
    if len(inputs) < len(types) or len(outputs) < len(results):
        return None
    node = Node(op, tuple(inputs), tuple(outputs), Attrs(attrs))
    graph = Graph(op, tuple(inputs), {name: name for name in outputs}, (node,), {}, {**inputs, **outputs})
    made = expanded(graph, frozenset({op}))
    return None if made is graph or any(one.op == op for one in made.nodes) else made


def _defines(rule: Rule, op: str) -> bool:
    """True if a law states the operator's result for any operands and attributes, under conditions on these."""
    if isinstance(rule.left, Siblings) or len(rule.left) != 1:
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


def _makes(rule: Rule, op: str) -> bool:
    """True of a law by which the operator stands for a term of others: ``rows(dense(x, w)) => dense_rows(x, w)``."""
    if isinstance(rule.left, Siblings) or len(rule.right) != 1:
        return False
    (made,) = rule.right
    return isinstance(made, App) and made.op == op and all(isinstance(one, Var) for one in made.operands)


def _inverse(rule: Rule) -> Rule:
    """The law from right to left: what the operator stands for."""
    sides, joint, conditions = rule.text.partition(" if ")
    left, _, right = sides.partition(" => ")
    (inverse,) = parse_rules(f"{rule.name}-inv: {right} => {left}{joint}{conditions}", rule.where, origin="axiom")
    return inverse


def _bound(rule: Rule, attrs: Attrs, values: Sequence[_Value]) -> Bindings | None:
    """The bindings of a law's left side to operands; None where they do not fit, or a condition does not hold."""
    (app,) = rule.roots
    bound = Bindings()
    if any(isinstance(o, Spread) for o in app.operands):
        bound.tensors[_name(app.operands[0])] = tuple(values)
    elif len(values) == len(app.operands):
        bound.tensors.update({_name(o): v for o, v in zip(app.operands, values, strict=True)})
    else:
        return None
    if app.record is not None:
        bound.attrs[app.record] = attrs
    bound.attrs.update({f.text: attrs[n] for n, f in pattern_fields(app).items()})
    return bound if rule.refused(bound) is None else None


class _Writer:
    """A writer of nodes by the laws that define them, with values under names that nothing else has."""

    def __init__(self, graph: Graph, lacking: frozenset[str]) -> None:
        self.lacking = lacking
        self.types: dict[str, ValueType] = {**graph.types, **{v: graph.type(v) for v in graph.constants}}

    def nodes(self, node: Node) -> list[Node]:
        """The nodes that make the outputs of one, itself where no law defines its operator for these operands."""
        for rule in definitions(node.op, self.lacking) if node.op in self.lacking else ():
            bindings = self.bindings(rule, node)
            try:
                terms = [] if bindings is None else right_terms(rule, bindings)
            except GraphError:
                continue
            if terms:
                return self.written(node, terms)
        return [node]

    def written(self, node: Node, terms: Sequence[Any]) -> list[Node]:
        """The nodes that make the outputs of one by terms."""
        written: list[Node] = []
        outputs = iter(node.outputs)
        made: dict[int, tuple[str, ...]] = {}
        for term in terms:
            own = tuple(next(outputs) for _ in (term.types if isinstance(term, Term) else (term.type,)))
            self.emit(term, own, node, written, made)
        return [one for each in written for one in self.nodes(each)]

    def bindings(self, rule: Rule, node: Node) -> Bindings | None:
        """The bindings of the law's left side to a node; None where an operand is left out, or no tensor."""
        values: list[_Value] = []
        for name in node.inputs:
            type = self.types.get(name) if name is not None else None
            if name is None or not isinstance(type, TensorType):
                return None
            values.append(_Value(type, name=name))
        return _bound(rule, node.attrs, values)

    def emit(
        self,
        term: Term | _Value,
        outputs: tuple[str, ...],
        source: Node,
        written: list[Node],
        made: dict[int, tuple[str, ...]],
    ) -> None:
        """Add the nodes of a term, the last of which makes these outputs; a term that was `made` is there already."""
        known = made.get(id(term))
        if not isinstance(term, Term) or known is not None:
            names = known if known is not None else (cast("_Value", term).name,)
            for one, output in zip(names, outputs, strict=True):
                written.append(Node("identity", (one,), (output,), name=f"{source.name}.{len(written)}"))
            return
        inputs: list[str | None] = []
        for operand in term.operands:
            if operand is None:
                inputs.append(None)
            elif isinstance(operand, Term):
                names = made.get(id(operand)) or tuple(self.fresh(source, t) for t in operand.types)
                if id(operand) not in made:
                    self.emit(operand, names, source, written, made)
                inputs.append(names[0])
            else:
                inputs.append(cast("_Value", operand).name)
        written.append(Node(term.op, tuple(inputs), outputs, term.attrs, f"{source.name}.{len(written)}"))
        made[id(term)] = outputs

    def fresh(self, source: Node, type: TensorType) -> str:
        """A name for a value that only the writing out has."""
        stem = next(o for o in source.outputs if o)
        name = next(n for k in count() if (n := f"{stem}.{k}") not in self.types)
        self.types[name] = type
        return name


def _name(operand: object) -> str:
    item = operand.item if isinstance(operand, Spread) else operand
    return item.name if isinstance(item, Var) else ""
