"""Constants that are added behind slices of one tensor, added to that tensor at once.

Steps of a recurrent layer read slices of a product that was computed for all steps, and add a bias each. Here the sum
that each step computes is read from an e-graph, with the products of matrices in it as they are, and the constants are
moved before the slice. The equation has a proof of its own: both sides are the same sum.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.terms.pattern import App, Pattern, Spread, Var
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.identities import argument_of, ranks_of, written
from eqsat.rewrites.theories.polynomials import Polynomial, added, variable
from eqsat.rewrites.theories.stating import literal_fields, stated
from eqsat.system.deadline import check

#: The first part of the names of such equations.
SLICED = "sliced"
#: The operators that make up sums, and the most of them in one.
_SUMS = frozenset({"add", "gemm"})
_MOST_STEPS = 12
#: The attributes of a product of matrices with an addend that is a sum of both.
_PLAIN = {"alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": False}


@dataclass
class _SlicedSum:
    """The addends of a sum as terms: slices with what they are of, products, constants and others."""

    names: dict[int, str] = field(default_factory=dict)
    slices: list[tuple[int, str]] = field(default_factory=list)
    products: list[str] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)

    def name(self, leader: int) -> str:
        """The name of a class."""
        return self.names.setdefault(leader, f"x{len(self.names)}")


def slice_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between sums with slices among chosen e-nodes and the same with constants added before."""
    nodes = ChosenNodes(egraph, chosen)
    sliced: dict[int, int] = {}
    for leader, enode in nodes.made.items():
        if nodes.op(leader) == "slice":
            whole = egraph.find(egraph.nodes[enode].operands[0])
            sliced[whole] = sliced.get(whole, 0) + 1
    shared = {whole for whole, count in sliced.items() if count > 1}
    for root in list(nodes.made) if shared else ():
        check()
        if nodes.op(root) == "add" and nodes.is_wide(root):
            yield from _matches(nodes, root, shared)


def _matches(nodes: ChosenNodes, root: int, shared: Collection[int]) -> Iterator[Match]:
    """The equation of the sum at a class, where it adds constants to slices of a tensor that others read too."""
    read = _SlicedSum()
    text = _read(nodes, root, read, top=True)
    for whole, shown in read.slices:
        moved = [c for c in read.constants if _is_steady(nodes, c, whole, shown)] if whole in shared else []
        if not moved:
            continue
        inner = read.name(whole)
        for constant in moved:
            inner = f"add({inner}, {read.name(constant)})"
        early = f"slice({inner}, {shown})"
        rest = [f"slice({read.name(k)}, {other})" for k, other in read.slices if (k, other) != (whole, shown)]
        rest += [read.name(k) for k in (*read.others, *(c for c in read.constants if c not in moved))]
        conditions = [*_conditions(nodes, read), f"shape({inner}) == shape({read.name(whole)})"]
        for right in _sums(early, rest, read.products):
            asked = ", ".join([*conditions, f"shape({text}) == shape({right})"])
            rule = stated(SLICED, f"{text} => {right} if {asked}", states_sliced_sum)
            if rule is not None:
                named = {name: leader for leader, name in read.names.items()}
                yield nodes.match(rule, root, named, read.uses)
        return


def _sums(early: str, rest: Sequence[str], products: Sequence[str]) -> Iterator[str]:
    """The sum of a slice and the rest, with a product as such, and with one that takes the sum as its addend."""
    attrs = ", ".join(f"{name}={value!r}" for name, value in _PLAIN.items())
    for fused in (True, False) if products else (False,):
        total = early
        for one in (*rest, *(f"matmul({operands})" for operands in products[fused:])):
            total = f"add({total}, {one})"
        yield f"gemm({products[0]}, {total}, {attrs})" if fused else total


def _read(nodes: ChosenNodes, leader: int, read: _SlicedSum, top: bool = False) -> str:
    """The term of a sum; what is no sum, or is read elsewhere too, is an addend."""
    egraph = nodes.egraph
    leader = egraph.find(leader)
    op = nodes.op(leader)
    if egraph.eclass(leader).constant:
        read.constants.append(leader)
        return read.name(leader)
    enode = nodes.made.get(leader)
    node = None if enode is None else egraph.nodes[enode]
    fields = None if node is None else literal_fields(node.op, node.attrs)
    if enode is None or node is None or fields is None or len(read.uses) >= _MOST_STEPS:
        read.others.append(leader)
        return read.name(leader)
    shown = ", ".join(fields)
    if op == "slice":
        read.uses.append(enode)
        whole = egraph.find(node.operands[0])
        read.slices.append((whole, shown))
        return f"slice({read.name(whole)}, {shown})"
    alone = top or len(nodes.readers.get(leader, ())) == 1
    is_product = op == "gemm" and len(node.operands) == 3 and _is_plain(node.attrs)
    if not alone or not (op == "add" or is_product):
        if op == "matmul" and alone:
            read.uses.append(enode)
            operands = ", ".join(read.name(egraph.find(k)) for k in node.operands)
            read.products.append(operands)
            return f"matmul({operands})"
        read.others.append(leader)
        return read.name(leader)
    read.uses.append(enode)
    if op == "add":
        return f"add({', '.join(_read(nodes, k, read) for k in node.operands)})"
    operands = ", ".join(read.name(egraph.find(k)) for k in node.operands[:2])
    read.products.append(operands)
    return f"gemm({operands}, {_read(nodes, node.operands[2], read)}, {shown})"


def _is_plain(attrs: Mapping[str, object]) -> bool:
    return all(attrs.get(name, value) == value for name, value in _PLAIN.items())


def _is_steady(nodes: ChosenNodes, constant: int, whole: int, shown: str) -> bool:
    """True if a constant does not vary along the axes of a slice."""
    one, other = nodes.egraph.type(constant), nodes.egraph.type(whole)
    if not all(isinstance(t, TensorType) and t.shape is not None for t in (one, other)):
        return False
    sizes, rank = nodes.sizes(constant), len(nodes.sizes(whole))
    places = [axis % rank - rank for axis in _axes(shown)]
    return len(sizes) <= rank and all(-place > len(sizes) or sizes[place] == 1 for place in places)


def _axes(shown: str) -> tuple[int, ...]:
    """The axes that the attributes of a slice name."""
    call = ast.parse(f"f({shown})", mode="eval").body
    found = {k.arg: k.value for k in call.keywords} if isinstance(call, ast.Call) else {}
    axes: tuple[int, ...] = ast.literal_eval(found["axes"])
    return axes


def _conditions(nodes: ChosenNodes, read: _SlicedSum) -> list[str]:
    """The conditions on the operands: their ranks, and the axes of one element of constants."""
    found = [f"wide({', '.join(read.names.values())})"]
    for leader, name in read.names.items():
        type = nodes.egraph.type(leader)
        dims = type.dims if isinstance(type, TensorType) and type.shape is not None else ()
        found.append(f"rank({name}) == {len(dims)}")
        found += [f"dim({name}, {axis}) == 1" for axis, d in enumerate(dims) if d == 1 and leader in read.constants]
    return found


class _UnreadError(Exception):
    """Leaves the reading of a term that is no such sum."""


def states_sliced_sum(rule: Rule) -> bool:
    """True if both sides of a rule are the same sum of variables, their slices and products of matrices.

    A slice of a sum is the sum of one slice and of tensors that do not vary along its axes, which conditions have to
    state, as they have to state that the sum is no larger than the tensor sliced. Infinities add up in any order.
    """
    sides = rule.sides
    if sides is None:
        return False
    conditions = {condition.text for condition in rule.conditions}
    trees = {ast.unparse(condition.tree) for condition in rule.conditions}
    wide = {name for text in conditions for name in argument_of(text, "wide").split(", ")}
    try:
        shapes = [f"shape({written(side)})" for side in sides]
        left, right = (_SumReading(conditions, trees).sum_of(side) for side in sides)
    except (_UnreadError, ValueError, KeyError):
        return False
    return left == right and rule.tensors <= wide and " == ".join(shapes) in trees


@dataclass
class _SumReading:
    """Reads terms as sums under conditions, as written and as trees."""

    conditions: set[str]
    trees: set[str]

    def sum_of(self, pattern: Pattern | Spread) -> Polynomial:
        """The addends of a term, each a variable, a product of matrices or the slice of a variable."""
        match pattern:
            case Var(name):
                return variable(name)
            case App("add", (x, y)):
                return added(self.sum_of(x), self.sum_of(y))
            case App("matmul", (Var(x), Var(y))):
                return variable(f"matmul({x}, {y})")
            case App("gemm", (Var(x), Var(y), z)) if _is_plain(_literals(pattern)):
                return added(variable(f"matmul({x}, {y})"), self.sum_of(z))
            case App("slice", (x,)):
                return self._slice_of(pattern, x)
        raise _UnreadError

    def _slice_of(self, pattern: App, operand: Pattern | Spread) -> Polynomial:
        """A slice of a sum with a single addend that varies along its axes, and is as large as the sum."""
        total, ranks = self.sum_of(operand), ranks_of(self.conditions)
        fields = {name: expression.text for name, expression in sorted(pattern.fields.items())}
        axes = ast.literal_eval(fields["axes"])
        names = [name for monomial in total for name, _ in monomial]
        if any(name not in ranks or len(monomial) != 1 for monomial in total for name, _ in monomial):
            raise _UnreadError
        rank = max(ranks[name] for name in names)
        varying = [name for name in names if not self._is_steady(name, [a % rank - rank for a in axes], ranks[name])]
        if len(varying) != 1 or ranks[varying[0]] != rank:
            raise _UnreadError
        whole = varying[0]
        if not isinstance(operand, Var) and f"shape({written(operand)}) == shape({whole})" not in self.trees:
            raise _UnreadError
        shown = f"slice({whole}, {', '.join(f'{k}={v}' for k, v in fields.items())})"
        found: Polynomial = {}
        for monomial, factor in total.items():
            ((name, _),) = monomial
            found = added(found, variable(shown if name == whole else name), factor)
        return found

    def _is_steady(self, name: str, places: Sequence[int], rank: int) -> bool:
        """True if conditions say that a tensor does not vary along axes, counted from the right."""
        return all(-place > rank or f"dim({name}, {rank + place}) == 1" in self.conditions for place in places)


def _literals(pattern: App) -> dict[str, object]:
    return {name: ast.literal_eval(expression.text) for name, expression in pattern.fields.items()}
