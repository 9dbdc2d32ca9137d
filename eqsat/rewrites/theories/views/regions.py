"""Regions of views among chosen e-nodes, read as one view of what they read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from eqsat.egraph.matching.match import Match
from eqsat.language.ops import OPS
from eqsat.language.terms.dims import Dim, Sym
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.conditions.matrices import strided
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.views.naming import DimNames
from eqsat.rewrites.theories.views.operators import GATHERS, VIEWS, is_of_elements, view_of, written_fields
from eqsat.rewrites.theories.views.pieces import PiecewiseView
from eqsat.rewrites.theories.views.positions import POSITIONS, Integers, counted, gathered, position_of, size_at

#: The most operators that are read as one view.
_MOST_STEPS = 64
#: The most operators, one after the other, that compute positions.
_MOST_POSITIONS = 12
#: The most digits of constant indices.
_MOST_DIGITS = 6
#: Beyond this number, floats are not all integers.
_EXACT = 1 << 53


class RefusedError(Exception):
    """Leaves the reading of a region at an operator that is no view of what it reads."""

    def __init__(self, leader: int) -> None:
        super().__init__(leader)
        self.leader = leader


def viewed(nodes: ChosenNodes, leader: int) -> list[int]:
    """The operands of a view of which elements are in its result."""
    node = nodes.egraph.nodes[nodes.made[leader]]
    return [nodes.egraph.find(one) for one in (node.operands[:1] if node.op in GATHERS else node.operands)]


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

    @property
    def steps(self) -> int:
        """The number of operators that are read."""
        return len(self._inner)

    def conditions(self) -> tuple[str, ...]:
        """The conditions on the operands of a region that was read."""
        about = self.nodes.about_shapes(self._named).values()
        found = [*self._stated, *(one for its in about for one in its), *self._names.conditions]
        return tuple(dict.fromkeys(found))

    def shapes(self) -> tuple[tuple[str, tuple[Dim, ...]], ...]:
        """The operands with their shapes."""
        return tuple((name, self._sizes(leader)) for leader, name in self._named.items())

    def match(self, rule: Rule) -> Match:
        """The match of an equation of the region."""
        named = {name: leader for leader, name in self._named.items()}
        called = self._names.called.items()
        attrs = {name: self.egraph.nodes[self._inner[leader]].attrs["shape"] for leader, name in called}
        return self.nodes.match(rule, self.root, named, tuple(self._inner.values()), attrs)

    def read(self, leader: int) -> tuple[str, PiecewiseView]:
        """The term of a class and the view that it is; RefusedError for an operator that is to be taken as it is."""
        if leader not in self._known:
            try:
                self._known[leader] = self._left(leader) if leader in self._named else self._made(leader)
            except (UnreadError, ValueError):
                raise RefusedError(leader) from None
        return self._known[leader]

    def _collect(self, leader: int, above: frozenset[int]) -> None:
        """Number the operators that are read, and name what they read, in the order of operands."""
        if leader in self._inner or leader in self._named:
            return
        is_inner = self._is_read(leader) and leader not in above and leader not in self._whole
        if is_inner and len(self._inner) < _MOST_STEPS:
            self._take(leader, above)
        else:
            self._named[leader] = f"x{len(self._named)}"

    def _take(self, leader: int, above: frozenset[int]) -> None:
        self._inner[leader] = self._enode(leader)
        operands = self._operands(leader)
        for operand in viewed(self.nodes, leader):
            self._collect(operand, above | {leader})
        if self.nodes.op(leader) in GATHERS:
            self._collect_positions(operands[1], above | {leader})

    def _collect_positions(self, leader: int, above: frozenset[int]) -> None:
        """Number the operators that compute integers from where they stand, and name the constants that they read."""
        if leader in self._inner or leader in self._named:
            return
        if self._integers(leader) is not None:
            self._named[leader] = f"x{len(self._named)}"
            return
        self._inner[leader] = self._enode(leader)
        operands = self._operands(leader)
        if self._is_size(leader):
            (shape,) = self._operands(operands[0])
            self._inner[operands[0]] = self._enode(operands[0])
            self._collect(shape, above | {leader})
            operands = operands[1:]
        for operand in operands:
            self._collect_positions(operand, above | {leader})

    def _enode(self, leader: int) -> int:
        """The e-node that was chosen for a class; the first of one that is computed ahead."""
        return self.nodes.made.get(leader, leader)

    def _op(self, leader: int) -> str:
        return self.egraph.nodes[self._enode(leader)].op

    def _operands(self, leader: int) -> list[int]:
        return [self.egraph.find(one) for one in self.egraph.nodes[self._enode(leader)].operands]

    def _is_read(self, leader: int) -> bool:
        """True for an operator that may be a view of its operands."""
        op = self.nodes.op(leader)
        if is_of_elements(op):  # between views
            below = self.nodes.op(viewed(self.nodes, leader)[0])
            return below in VIEWS or is_of_elements(below)
        if op in GATHERS:
            return self._are_positions(self._operands(leader)[1], _MOST_POSITIONS)
        return op == "fill" or op in VIEWS

    def _are_positions(self, leader: int, most: int) -> bool:
        """True for integers that so many operators at most, one after the other, compute from where they stand."""
        if self._integers(leader) is not None:
            return True
        op = self._op(leader)
        if not most or (op not in POSITIONS and not self._is_size(leader)):
            return False
        below = self._operands(leader)[1:] if op == "gather" else self._operands(leader)
        return all(self._are_positions(one, most - 1) for one in below)

    def _is_size(self, leader: int) -> bool:
        """True for sizes that are chosen from a shape."""
        return self._op(leader) == "gather" and self._op(self._operands(leader)[0]) == "shape"

    def _type(self, leader: int) -> TensorType:
        type = self.egraph.type(leader)
        if not isinstance(type, TensorType) or type.shape is None:
            raise RefusedError(self.root)
        return type

    def _sizes(self, leader: int) -> tuple[Dim, ...]:
        return tuple(map(self._names.size, self._types[leader].dims))

    def _left(self, leader: int) -> tuple[str, PiecewiseView]:
        """An operand of the region: one number, or a tensor as it is."""
        name, sizes = self._named[leader], self._sizes(leader)
        number = self._number(leader)
        if number is None:
            return name, PiecewiseView.of_operand(name, sizes)
        self._stated.append(f"is_all({name}, {number!r})")
        return name, PiecewiseView.of_number(number, sizes)

    def _made(self, leader: int) -> tuple[str, PiecewiseView]:
        op, fields, written = self._stated_fields(leader)
        if op == "fill":
            return f"fill({', '.join(written)})", PiecewiseView.of_number(fields["value"], fields["shape"])
        read = [self.read(one) for one in viewed(self.nodes, leader)]
        texts, views = [text for text, _ in read], [view for _, view in read]
        if op not in GATHERS:
            return f"{op}({', '.join([*texts, *written])})", view_of(op, views, fields)
        text, positions = self._positions(self._operands(leader)[1])
        return f"{op}({', '.join([texts[0], text, *written])})", gathered(op, views[0], positions, fields)

    def _positions(self, leader: int) -> tuple[str, PiecewiseView]:
        """The term of integers that are computed from where they stand, and these."""
        if leader in self._named:
            name, integers = self._named[leader], self._integers(leader)
            if integers is None:
                raise UnreadError
            self._stated.append(f"is_strided({name}, {', '.join(map(repr, integers))})")
            return name, counted(*integers, self._sizes(leader))
        op, fields, written = self._stated_fields(leader)
        operands = self._operands(leader)
        if self._is_size(leader):
            text, index = self._positions(operands[1])
            (whole,) = self._operands(operands[0])
            below, view = self.read(whole)
            _, bounds, stated = self._stated_fields(operands[0])
            shape = f"shape({', '.join([below, *stated])})"
            sizes = view.shape[bounds["start"] : bounds["end"]]
            return f"gather({', '.join([shape, text, *written])})", size_at(sizes, index)
        read = [self._positions(one) for one in operands]
        texts = [text for text, _ in read]
        return f"{op}({', '.join([*texts, *written])})", position_of(op, [view for _, view in read], fields)

    def _stated_fields(self, leader: int) -> tuple[str, dict[str, Any], list[str]]:
        """The operator of a class, its attributes in the dims of the operands, and these as rules write them."""
        node = self.egraph.nodes[self._enode(leader)]
        fields = {name: self._value(value) for name, value in OPS[node.op].complete(node.attrs).items()}
        called = self._names.called.get(leader)
        if called is None:
            return node.op, fields, written_fields(fields)
        others = {name: value for name, value in fields.items() if name != "shape"}
        return node.op, fields, [*written_fields(others), f"shape={called}"]

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
        """The first of constant integers, and the sizes and strides by which they go on; None for others."""
        view = self.egraph.view(leader)
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
