"""Chains of views among chosen e-nodes, and what makes the same map with fewer operators."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

import numpy as np

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.terms import Attrs
from eqsat.language.terms.dims import Dim
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.conditions.matrices import strided
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.stating import literal_fields, stated, term_of
from eqsat.rewrites.theories.views.strides import ViewReading, states_view
from eqsat.rewrites.theories.views.writing import in_dims_of, size_text, written_views
from eqsat.system.deadline import check

#: The first part of the names of such equations.
VIEW = "view"
#: The operators of which chains are made, those that cost as much as several, and the most of them in one.
_VIEWS = frozenset({"reshape", "transpose", "slice", "expand", "gather"})
_DEAR = {"gather": 4}
_MOST_STEPS = 64
#: The most digits of constant indices.
_MOST_DIGITS = 6


def view_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between chains of views among chosen e-nodes and shorter ones."""
    nodes = ChosenNodes(egraph, chosen)
    ends = [leader for leader in nodes.made if nodes.op(leader) in _VIEWS and _is_end(nodes, leader)]
    for root in ends:
        check()
        yield from _matches(nodes, root)


def _is_end(nodes: ChosenNodes, leader: int) -> bool:
    """True if something else than a view, or nothing, reads a class."""
    readers = nodes.readers.get(leader, set())
    egraph = nodes.egraph
    return not readers or any(
        egraph.nodes[n].op not in _VIEWS or egraph.find(egraph.nodes[n].operands[0]) != leader for n in readers
    )


def _matches(nodes: ChosenNodes, root: int) -> Iterator[Match]:
    """The equations of the chain that ends at a class."""
    egraph, leader = nodes.egraph, root
    uses: list[int] = []
    seen: set[int] = set()
    while nodes.op(leader) in _VIEWS and leader not in seen and len(uses) < _MOST_STEPS:
        if nodes.op(leader) == "gather" and _integers(nodes, nodes.made[leader]) is None:
            break
        seen.add(leader)
        uses.append(nodes.made[leader])
        leader = egraph.find(egraph.nodes[uses[-1]].operands[0])
    type = egraph.type(leader)
    steps = sum(_DEAR.get(egraph.nodes[n].op, 1) for n in uses)
    if steps < 2 or not isinstance(type, TensorType) or type.shape is None:
        return
    names: dict[Dim, str] = {}
    for axis, dim in enumerate(type.dims):
        names.setdefault(dim, f"dim(x0, {axis})")
    text, named, conditions = "x0", {leader: "x0"}, []
    try:
        for enode in reversed(uses):
            node = egraph.nodes[enode]
            operands = [text]
            if node.op == "gather":
                indices = egraph.find(node.operands[1])
                operands.append(named.setdefault(indices, f"x{len(named)}"))
                start, sizes, strides = _integers(nodes, enode) or (0, (), ())
                conditions.append(f"is_strided({operands[1]}, {start}, {sizes!r}, {strides!r})")
            text = f"{node.op}({', '.join([*operands, _fields(node.op, node.attrs, names)])})"
    except ValueError:
        return
    conditions += [one for stated in nodes.about_shapes(named).values() for one in stated]
    for rule in _rules(text, tuple(dict.fromkeys(conditions)), steps):
        yield nodes.match(rule, root, {name: k for k, name in named.items()}, uses)


def _integers(nodes: ChosenNodes, enode: int) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """The first of the constant indices of a gather, and the sizes and strides by which they go on."""
    view = nodes.egraph.view(nodes.egraph.find(nodes.egraph.nodes[enode].operands[1]))
    if view.value is None or not (left := np.asarray(view.value).ravel()).size or left.dtype.kind not in "iu":
        return None
    whole, sizes, strides = left, list[int](), list[int]()
    while len(left) > 1 and len(sizes) < _MOST_DIGITS:
        step = int(left[1]) - int(left[0])
        others = np.flatnonzero(np.diff(left) != step)
        count = int(others[0]) + 1 if len(others) else len(left)
        if len(left) % count:
            return None
        sizes.insert(0, count)
        strides.insert(0, step)
        left = left[::count]
    start = int(whole[0])
    is_map = len(left) == 1 and np.array_equal(whole, strided(start, sizes, strides))
    return (start, tuple(sizes), tuple(strides)) if is_map else None


def _fields(op: str, attrs: Attrs, names: Mapping[Dim, str]) -> str:
    """The attributes of a view as rules write them; ValueError where a dim is none of the operand's."""
    if op in ("reshape", "expand"):
        sizes = (size_text(in_dims_of(size, dict(names))) for size in attrs["shape"])
        return f"shape=({''.join(f'{size}, ' for size in sizes)})"
    fields = literal_fields(op, attrs)
    if fields is None:
        raise ValueError(f"{op} with bounds that are no numbers")
    return ", ".join(fields)


@lru_cache(4096)
def _rules(text: str, conditions: tuple[str, ...], steps: int) -> list[Rule]:
    """The equations of a chain with terms of fewer operators that are proved."""
    term = term_of(text, conditions)
    if term is None:
        return []
    reading = ViewReading(frozenset(term[1]))
    try:
        view, whole = reading.map_of(term[0]), reading.operand("x0")
        forms = [form for form in dict.fromkeys(written_views(view, whole)) if _steps(form) < steps]
    except (UnreadError, ValueError, KeyError, StopIteration):
        return []
    asked = ", ".join(conditions)
    found = (stated(VIEW, f"{text} => {form} if {asked}", states_view) for form in forms)
    return [rule for rule in found if rule is not None]


def _steps(form: str) -> int:
    return sum(form.count(f"{op}(") * _DEAR.get(op, 1) for op in _VIEWS)
