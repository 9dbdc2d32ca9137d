"""Sums of two products side by side, read from an e-graph and brought back as one sum of two products.

Rotary embeddings turn pairs of elements: x cos - y sin lies beside y cos + x sin. What lies side by side there is all
of a tensor in the first product, and its two parts the other way around in the second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.ops import OPS
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.joins.labels import JOINED, MOST_ELEMENTS, LabelArray, states_joined
from eqsat.rewrites.theories.stating import literal_fields, stated
from eqsat.system.deadline import check


@dataclass(frozen=True)
class _Product:
    """A product of data and a constant in a part: the data as a term and as elements of a base, and the sign."""

    text: str
    base: int
    places: LabelArray
    constant: int
    is_negative: bool


@dataclass
class _Joined:
    """The names of the classes that a region reads, and the e-nodes that it is made of."""

    named: dict[int, str] = field(default_factory=dict)
    uses: list[int] = field(default_factory=list)

    def name(self, leader: int) -> str:
        """The name of a class."""
        return self.named.setdefault(leader, f"x{len(self.named)}")


def joined_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between sums of two products side by side and one such sum."""
    nodes = ChosenNodes(egraph, chosen)
    for root in [leader for leader in nodes.made if nodes.op(leader) == "concat" and _is_float(egraph, leader)]:
        check()
        reader = _JoinReader(nodes)
        try:
            left, right = reader.equation(root)
        except UnreadError:
            continue
        conditions = [one for stated in nodes.about_shapes(reader.region.named).values() for one in stated]
        rule = stated(JOINED, f"{left} => {right} if {', '.join(conditions)}", states_joined)
        if rule is not None:
            named = {name: leader for leader, name in reader.region.named.items()}
            yield nodes.match(rule, root, named, reader.region.uses)


def _is_float(egraph: EGraph, leader: int) -> bool:
    type = egraph.type(leader)
    return isinstance(type, TensorType) and type.dtype.is_float


class _JoinReader:
    """Reads one region, from what joins its parts."""

    def __init__(self, nodes: ChosenNodes) -> None:
        self.nodes, self.egraph, self.region = nodes, nodes.egraph, _Joined()

    def equation(self, root: int) -> tuple[str, str]:
        """Both sides of the equation of a region; UnreadError where it is none, or nothing is whole on the right."""
        axis = int(self.egraph.nodes[self.nodes.made[root]].attrs["axis"]) % len(self._shape(root))
        texts: list[str] = []
        parts: list[list[_Product]] = []
        shapes: list[tuple[int, ...]] = []
        for operand in self._used(root):
            text, products = self._part(operand)
            texts.append(text)
            parts.append(products if not parts or products[0].constant != parts[0][1].constant else products[::-1])
            shapes.append(self._shape(operand))
        sums = [self._product([part[place] for part in parts], shapes, axis) for place in (0, 1)]
        if not any(is_whole for _, is_whole in sums):
            raise UnreadError
        return f"concat({', '.join(texts)}, axis={axis})", f"add({sums[0][0]}, {sums[1][0]})"

    def _shape(self, leader: int) -> tuple[int, ...]:
        type = self.egraph.type(leader)
        if not isinstance(type, TensorType) or not type.is_static or not 0 < np.prod(type.static) <= MOST_ELEMENTS:
            raise UnreadError
        return type.static

    def _used(self, leader: int) -> list[int]:
        if leader not in self.nodes.made:
            raise UnreadError
        enode = self.nodes.made[leader]
        self.region.uses.append(enode)
        return [self.egraph.find(k) for k in self.egraph.nodes[enode].operands]

    def _part(self, leader: int) -> tuple[str, list[_Product]]:
        """A sum or difference of two products, behind a reshape or none."""
        op = self.nodes.op(leader)
        if op == "reshape":
            shape = self._shape(leader)
            (operand,) = self._used(leader)
            text, products = self._part(operand)
            return f"reshape({text}, shape={shape!r})", products
        if op not in ("add", "sub"):
            raise UnreadError
        shown = [self._factors(k, n == 1 and op == "sub") for n, k in enumerate(self._used(leader))]
        return f"{op}({', '.join(text for text, _ in shown)})", [product for _, product in shown]

    def _factors(self, leader: int, is_negative: bool) -> tuple[str, _Product]:
        """A product of what is computed and a constant, of the shape of the former."""
        if self.nodes.op(leader) != "mul":
            raise UnreadError
        operands = self._used(leader)
        constants = [k for k in operands if self.egraph.eclass(k).constant]
        moving = [k for k in operands if k not in constants]
        if len(constants) != 1 or len(moving) != 1 or self._shape(moving[0]) != self._shape(leader):
            raise UnreadError
        (data,), (constant,) = moving, constants
        text, base, places = self._data(data)
        self._shape(constant)
        shown = f"mul({', '.join(self.region.name(constant) if k == constant else text for k in operands)})"
        return shown, _Product(text, base, places, constant, is_negative)

    def _data(self, leader: int) -> tuple[str, int, LabelArray]:
        """A tensor as a slice of another, or by itself, with the places of its elements there."""
        if self.nodes.op(leader) == "slice":
            node = self.egraph.nodes[self.nodes.made[leader]]
            fields = literal_fields(node.op, node.attrs)
            (base,) = self._used(leader)
            shape = self._shape(base)
            if fields is None:
                raise UnreadError
            every = np.arange(int(np.prod(shape))).reshape(shape)
            places = OPS["slice"].reference(None, every, **OPS["slice"].complete(node.attrs))
            return f"slice({self.region.name(base)}, {', '.join(fields)})", base, places
        shape = self._shape(leader)
        return self.region.name(leader), leader, np.arange(int(np.prod(shape))).reshape(shape)

    def _product(self, products: Sequence[_Product], shapes: Sequence[tuple[int, ...]], axis: int) -> tuple[str, bool]:
        """A product of data side by side and constants side by side, and whether the data are all of a tensor."""
        data, is_whole = self._data_joined(products, shapes, axis)
        constants = [self._constant(one, shape, axis) for one, shape in zip(products, shapes, strict=True)]
        return f"mul({data}, concat({', '.join(constants)}, axis={axis}))", is_whole

    def _data_joined(
        self, products: Sequence[_Product], shapes: Sequence[tuple[int, ...]], axis: int
    ) -> tuple[str, bool]:
        parts = [one.places.reshape(shape) for one, shape in zip(products, shapes, strict=True)]
        base, joined = products[0].base, np.concatenate(parts, axis)
        if len({one.base for one in products}) > 1 or np.prod(self._shape(base)) != joined.size:
            raise UnreadError
        whole, every = self.region.name(base), np.arange(joined.size).reshape(joined.shape)
        if self._shape(base) != joined.shape:
            whole = f"reshape({whole}, shape={joined.shape!r})"
        if np.array_equal(joined, every):
            return whole, True
        ends = np.cumsum([shape[axis] for shape in shapes])
        blocks = dict(zip([0, *map(int, ends)], np.split(every, ends[:-1], axis), strict=False))
        moved = [self._block(whole, part, blocks, axis) for part in parts]
        return f"concat({', '.join(moved)}, axis={axis})", False

    def _block(self, whole: str, part: LabelArray, blocks: Mapping[int, LabelArray], axis: int) -> str:
        """A part of a tensor that lies between two places of an axis; UnreadError for another one."""
        for start, block in blocks.items():
            if np.array_equal(block, part):
                end = start + part.shape[axis]
                return f"slice({whole}, axes=({axis},), starts=({start},), ends=({end},), steps=(1,))"
        raise UnreadError

    def _constant(self, product: _Product, shape: tuple[int, ...], axis: int) -> str:
        """The constant of a part, negated where the product is taken away, with axes as the part has them."""
        text, own = self.region.name(product.constant), self._shape(product.constant)
        if product.is_negative:
            text = f"neg({text})"
        given = (1,) * (len(product.places.shape) - len(own)) + own
        inserted = _inserted(given, product.places.shape, shape)
        if inserted != own:
            text = f"reshape({text}, shape={inserted!r})"
        wide = (*inserted[:axis], shape[axis], *inserted[axis + 1 :])
        return text if wide == inserted else f"expand({text}, shape={wide!r})"


def _inserted(given: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Dims that broadcast to those before a reshape, with an axis of size 1 where the reshape puts one in."""
    if before == after:
        return given
    for place in range(len(before) + 1):
        if (*before[:place], 1, *before[place:]) == after:
            return (*given[:place], 1, *given[place:])
    raise UnreadError
