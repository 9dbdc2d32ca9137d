"""Elements of the values of a group: worked out from those of its operands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from eqsat.language.terms import Node, TensorType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.elements import has_parameters, is_pointwise, parameter_place
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, number
from eqsat.runtime.kernels.expressions.scalar import expression
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.movement import REARRANGED, ElementSource

#: Makes an element of a value whose operator is computed apart.
ElementMaker = Callable[[Coords], Expr]


class GroupElements(ABC):
    """The values of a group at coordinates, as expressions of elements in memory."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.makers = {v: (node, place) for node in group.nodes for place, v in enumerate(node.outputs) if v}
        self._producers: dict[str, ElementMaker] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return self.group.types[name].static

    @abstractmethod
    def load(self, name: str, coords: Coords) -> Expr:
        """An element of an operand in memory."""

    def produce(self, name: str, maker: ElementMaker) -> None:
        """Say what makes the elements of a value."""
        self._producers[name] = maker

    def value(self, name: str, coords: Sequence[AffineIndex]) -> Expr:
        """The element of a value at coordinates; UnsupportedError where its operator is none of single elements."""
        coords = tuple(coords)
        constant = self.group.constants.get(name)
        if constant is not None and constant.type.size == 1:
            return number(constant.array.reshape(())[()], computed(constant.type.dtype))
        if name in self._producers:
            return self._producers[name](coords)
        if name not in self.makers:
            return self.load(name, coords)
        node, place = self.makers[name]
        if is_pointwise(node):
            return pointwise(self, self.group, node, name, coords)
        move = REARRANGED.get(node.op)
        if move is None:
            raise UnsupportedError(f"{node.op} within a kernel")
        return move(self, node, place, coords)

    def following(self, name: str) -> list[tuple[Node, bool]]:
        """The nodes made of a value, and whether each is computed element by element."""
        reached, found = {name}, []
        for node in self.group.nodes:
            if reached & {v for v in node.inputs if v}:
                reached |= {v for v in node.outputs if v}
                found.append((node, is_pointwise(node)))
        return found


def pointwise(source: ElementSource, group: Group, node: Node, name: str, coords: Coords) -> Expr:
    """The element of a result that is computed from one element of each operand."""
    values = [None if v is None else source.value(v, _read_at(source, node, i, v, coords)) for i, v in _inputs(node)]
    types = [None if v is None else _type_at(group, node, i, v) for i, v in _inputs(node)]
    made = expression(node, values, types, group.types[name])
    if made is None:
        raise UnsupportedError(f"no C expression for {node.op}")
    return made


def _read_at(source: ElementSource, node: Node, place: int, value: str, coords: Coords) -> Coords:
    """The coordinates at which an operator element by element reads an operand."""
    shape = source.shape(value)
    return parameter_place(node, shape, coords) if _is_parameter(node, place) else broadcast(coords, shape)


def _type_at(group: Group, node: Node, place: int, value: str) -> TensorType:
    """The type of an operand as a reference sees it that computes one element: a parameter is a number."""
    type = group.types[value]
    return type.with_shape(()) if _is_parameter(node, place) and node.op != "batch_norm" else type


def _is_parameter(node: Node, place: int) -> bool:
    """True of an operand that holds numbers that do not broadcast."""
    return place > 0 and has_parameters(node.op)


def _inputs(node: Node) -> list[tuple[int, str | None]]:
    return list(enumerate(node.inputs))
