"""E-nodes and terms as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat.egraph.egraph import ABSENT, CONST, INPUT, OPAQUE, PROJECTION, EGraph
from eqsat.egraph.matching.instance import MatchedTerm
from eqsat.language.ops import OPS


class Notation:
    """Writes e-nodes as calls over the names of their operands' classes.

    A class is called after a value of the original graph that it holds, or as `names` says, or by its number, `#7`. A
    constant of one element is written as its value. Attributes are left out where they have their defaults, and
    operands in the middle where there are many.
    """

    def __init__(self, egraph: EGraph, names: Mapping[int, str] | None = None) -> None:
        self.egraph, self.names = egraph, {} if names is None else names

    def name(self, number: int) -> str:
        """The name of the class of an e-node."""
        egraph, leader = self.egraph, self.egraph.find(number)
        facts = egraph.eclass(leader)
        if facts.constant and (value := egraph.value(leader)) is not None and getattr(value, "size", 0) == 1:
            return f"{value.item():.6g}" if value.dtype.kind == "f" else str(value.item())
        return next(iter(facts.values), None) or self.names.get(leader, f"#{leader}")

    def enode(self, number: int) -> str:
        """An e-node over the names of its operands."""
        return self.term(MatchedTerm(number, ()))

    def term(self, term: MatchedTerm) -> str:
        """A term: operators as deep as it goes, names below."""
        node = self.egraph.nodes[term.enode]
        if term.below is None or node.op in (INPUT, CONST, ABSENT):
            return self.name(term.enode)
        if node.op == PROJECTION:
            whole = self.term(term.below[0]) if term.below else self.name(node.operands[0])
            return f"{whole}[{node.attrs['index']}]"
        below = _few([self.term(t) for t in term.below] or [self.name(k) for k in node.operands])
        if node.op == OPAQUE:
            opaque = self.egraph.opaque[node.attrs["index"]]
            return f"{opaque.attrs['op_type']}({', '.join(below)})"
        return f"{node.op}({', '.join([*below, *stated(node.op, node.attrs)])})"


#: Operators of more operands are written with the first few and the last.
_MOST, _FIRST = 6, 3


def _few(operands: list[str]) -> list[str]:
    if len(operands) <= _MOST:
        return operands
    return [*operands[:_FIRST], f"… {len(operands) - _FIRST - 1} more …", operands[-1]]


def stated(op: str, attrs: Mapping[str, Any]) -> list[str]:
    """The attributes that differ from their defaults, as keywords.

    >>> stated("reduce_sum", {"axes": (1,), "keepdims": True})
    ['axes=(1,)']
    """
    defaults = OPS[op].attrs if op in OPS else {}
    return [f"{k}={_short(v)}" for k, v in attrs.items() if k not in defaults or defaults[k] != v]


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_short, value)) + ("," if len(value) == 1 else "") + ")"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
