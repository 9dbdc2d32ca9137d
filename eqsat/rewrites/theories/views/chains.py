"""Views among chosen e-nodes, and what makes the same with fewer operators."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.ops import OPS
from eqsat.language.terms.dims import Dim, Sym
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.conditions.matrices import strided
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.stating import stated
from eqsat.rewrites.theories.views.arranging import written_views
from eqsat.rewrites.theories.views.naming import DimNames
from eqsat.rewrites.theories.views.pieces import PiecewiseView
from eqsat.rewrites.theories.views.reading import (
    VIEWS,
    Integers,
    gathered,
    is_of_elements,
    states_view,
    view_of,
    written_fields,
)
from eqsat.rewrites.theories.views.writing import steps_of
from eqsat.system.deadline import check

#: The first part of the names of such equations.
VIEW = "view"
#: The most operators that are read as one view.
_MOST_STEPS = 64
#: The most digits of constant indices.
_MOST_DIGITS = 6
#: Beyond this number, floats are not all integers.
_EXACT = 1 << 53


class _RefusedError(Exception):
    """Leaves the reading of a region at an operator that is no view of what it reads."""

    def __init__(self, leader: int) -> None:
        super().__init__(leader)
        self.leader = leader


def view_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between views among chosen e-nodes and terms of fewer operators."""
    nodes = ChosenNodes(egraph, chosen)
    ends = [leader for leader in nodes.made if nodes.op(leader) in VIEWS and _is_end(nodes, leader)]
    begun: set[int] = set()
    while ends:
        check()
        root = ends.pop(0)
        if root in begun:
            continue
        begun.add(root)
        whole: set[int] = set()
        while True:
            try:
                yield from ViewRegion(nodes, root, whole).matches()
                break
            except _RefusedError as refused:
                whole.add(refused.leader)
                if refused.leader == root:
                    break
        # What is no view of its operands may have views among these.
        for leader in sorted(whole):
            ends += [one for one in _viewed(nodes, leader) if nodes.op(one) in VIEWS]


def _viewed(nodes: ChosenNodes, leader: int) -> list[int]:
    """The operands of a view of which elements are in its result."""
    node = nodes.egraph.nodes[nodes.made[leader]]
    return [nodes.egraph.find(one) for one in (node.operands[:1] if node.op == "gather" else node.operands)]


def _is_end(nodes: ChosenNodes, leader: int) -> bool:
    """True if something else than a view, or nothing, reads a class."""
    readers = nodes.readers.get(leader, set())
    views = [nodes.egraph.find(n) for n in readers if nodes.egraph.nodes[n].op in VIEWS]
    return not readers or len(views) < len(readers) or any(leader not in _viewed(nodes, one) for one in views)


class ViewRegion:
    """The views that end at a class, read as one; classes in `whole` are taken as they are."""

    def __init__(self, nodes: ChosenNodes, root: int, whole: Collection[int]) -> None:
        self.nodes, self.egraph, self.root, self._whole = nodes, nodes.egraph, root, whole
        self._inner: dict[int, int] = {}
        self._named: dict[int, str] = {}
        self._stated: list[str] = []
        self._known: dict[int, tuple[str, PiecewiseView]] = {}
        self._collect(root, frozenset())
        self._types = {leader: self._type(leader) for leader in self._named}
        types = {name: self._types[leader] for leader, name in self._named.items()}
        given = {leader: self.egraph.nodes[enode] for leader, enode in self._inner.items()}
        shapes = {
            leader: node.attrs["shape"] for leader, node in given.items() if node.op in ("reshape", "expand", "fill")
        }
        self._names = DimNames(types, shapes)

    def matches(self) -> Iterator[Match]:
        """The equations of the region; _RefusedError for an operator that is to be taken as it is."""
        if len(self._inner) < 2:
            return
        text, view = self._read(self.root)
        about = self.nodes.about_shapes(self._named).values()
        conditions = [*self._stated, *(one for its in about for one in its), *self._names.conditions]
        sizes = [(name, self._sizes(leader)) for leader, name in self._named.items()]
        named = {name: leader for leader, name in self._named.items()}
        called = self._names.called
        bound = {name: self.egraph.nodes[self._inner[leader]].attrs["shape"] for leader, name in called.items()}
        for rule in _rules(text, tuple(dict.fromkeys(conditions)), view, tuple(sizes)):
            yield self.nodes.match(rule, self.root, named, tuple(self._inner.values()), bound)

    def _collect(self, leader: int, above: frozenset[int]) -> None:
        """Number the operators that are read, and name what they read, in the order of operands."""
        if leader in self._inner or leader in self._named:
            return
        if not self._is_read(leader) or leader in above or leader in self._whole or len(self._inner) >= _MOST_STEPS:
            self._named[leader] = f"x{len(self._named)}"
            return
        self._inner[leader] = self.nodes.made[leader]
        for operand in self.egraph.nodes[self.nodes.made[leader]].operands:
            self._collect(self.egraph.find(operand), above | {leader})

    def _is_read(self, leader: int) -> bool:
        op = self.nodes.op(leader)
        if is_of_elements(op):  # between views
            below = self.nodes.op(_viewed(self.nodes, leader)[0])
            return below in VIEWS or is_of_elements(below)
        return op == "fill" or (op in VIEWS and (op != "gather" or self._integers(leader) is not None))

    def _type(self, leader: int) -> TensorType:
        type = self.egraph.type(leader)
        if not isinstance(type, TensorType) or type.shape is None:
            raise _RefusedError(self.root)
        return type

    def _sizes(self, leader: int) -> tuple[Dim, ...]:
        return tuple(map(self._names.size, self._types[leader].dims))

    def _read(self, leader: int) -> tuple[str, PiecewiseView]:
        """The term of a class and the view that it is."""
        if leader not in self._known:
            try:
                self._known[leader] = self._left(leader) if leader in self._named else self._made(leader)
            except (UnreadError, ValueError):
                raise _RefusedError(leader) from None
        return self._known[leader]

    def _left(self, leader: int) -> tuple[str, PiecewiseView]:
        """An operand of the region: one number, or a tensor as it is."""
        name, sizes = self._named[leader], self._sizes(leader)
        number = self._number(leader)
        if number is None:
            return name, PiecewiseView.of_operand(name, sizes)
        self._stated.append(f"is_all({name}, {number!r})")
        return name, PiecewiseView.of_number(number, sizes)

    def _made(self, leader: int) -> tuple[str, PiecewiseView]:
        node = self.egraph.nodes[self.nodes.made[leader]]
        fields = {name: self._value(value) for name, value in OPS[node.op].complete(node.attrs).items()}
        called = self._names.called.get(leader)
        stated = written_fields({name: value for name, value in fields.items() if called is None or name != "shape"})
        written = ", ".join([*stated, *([f"shape={called}"] if called is not None else [])])
        if node.op == "fill":
            return f"fill({written})", PiecewiseView.of_number(fields["value"], fields["shape"])
        operands = [self.egraph.find(one) for one in node.operands]
        read = [self._read(one) for one in _viewed(self.nodes, leader)]
        views, parts = [view for _, view in read], [text for text, _ in read]
        if node.op != "gather":
            return f"{node.op}({', '.join([*parts, *([written] if written else [])])})", view_of(node.op, views, fields)
        integers, name = self._integers(leader), self._named[operands[1]]
        if integers is None:
            raise UnreadError
        start, sizes, strides = integers
        self._stated.append(f"is_strided({name}, {start}, {sizes!r}, {strides!r})")
        return f"gather({parts[0]}, {name}, {written})", gathered(
            views[0], fields["axis"], integers, self._sizes(operands[1])
        )

    def _value(self, value: Any) -> Any:
        """An attribute with its dims in those of the operands; ValueError where it has others."""
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        return self._names.size(value) if isinstance(value, Sym) else value

    def _number(self, leader: int) -> float | None:
        """The number that all elements of a small constant are, bit for bit; None where there is none such."""
        number = self.nodes.uniform(leader)
        if number is None or number:
            return None if number is None or abs(number) > _EXACT else number
        elements = np.asarray(self.egraph.view(leader).value)
        return None if np.signbit(elements).any() else number

    def _integers(self, leader: int) -> Integers | None:
        """The first of the constant indices of a gather, and the sizes and strides by which they go on."""
        view = self.egraph.view(self.egraph.find(self.egraph.nodes[self.nodes.made[leader]].operands[1]))
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


@lru_cache(4096)
def _rules(
    text: str,
    conditions: tuple[str, ...],
    view: PiecewiseView,
    shapes: tuple[tuple[str, tuple[Dim, ...]], ...],
) -> list[Rule]:
    """The equations of a term that is a view with terms of fewer operators that are proved."""
    steps, asked = steps_of(text), f" if {', '.join(conditions)}"
    try:
        forms = [form for form in dict.fromkeys(written_views(view, dict(shapes))) if steps_of(form) < steps]
    except (UnreadError, ValueError):
        return []
    found = (stated(VIEW, f"{text} => {form}{asked}", states_view) for form in forms)
    return [rule for rule in found if rule is not None]
