"""Attributes as formulas of the sizes of operands: numbers that a node has for the shapes that it has.

A reshape to 2 by 58 of an axis of 116 is one to 2 by its half. Formulas are those that fit other sizes as well, by the
operator's own shape rule; the law that they are part of is checked where it is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.errors import GraphError
from eqsat.language.declaration.registry import OPS
from eqsat.language.parametric.facts import Fact
from eqsat.language.terms import Attrs, Dim, Node, TensorType, evaluate, product
from eqsat.language.terms.dims import Sym

#: Numbers below it stand for themselves, as do those below the rank; the largest divisor, the most that is taken off,
#: and how many axes in a row are counted together.
_SMALL, _DIVISOR, _LESS, _RUN = 5, 8, 4, 3
#: The cost where axes of one element have to be such.
_ONES = 2
#: The most ways to write the attributes of a node that are looked at.
_WAYS = 600
#: Factors by which other sizes are larger, one for each name of a size.
_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


@dataclass(frozen=True)
class SizedNode:
    """The shapes of operands by the names of sizes, attributes as formulas of these, and parts of sizes.

    `parts` gives the size and the divisor of each name of a part; shapes are in sizes, attributes in parts as well.
    `numbers` are the sizes and parts that are known.
    """

    shapes: tuple[tuple[Dim, ...], ...]
    attrs: Mapping[str, Any]
    parts: Mapping[str, tuple[str, int]]
    numbers: Mapping[str, int]

    @property
    def whole(self) -> Mapping[str, Dim]:
        """The quotient that each part is."""
        return {part: Sym.function("floordiv", Sym.named(size), by) for part, (size, by) in self.parts.items()}

    @property
    def by_parts(self) -> Mapping[str, Dim]:
        """The product of part and divisor that each size with a part is."""
        return {size: by * Sym.named(part) for part, (size, by) in self.parts.items()}

    @property
    def conditions(self) -> tuple[Fact, ...]:
        """The facts that sizes are multiples of their divisors."""
        return tuple(
            Fact.equal(Sym.function("mod", Sym.named(size), by), 0) for _, (size, by) in sorted(self.parts.items())
        )


def sized(node: Node, operands: Sequence[TensorType], result: TensorType) -> SizedNode | None:
    """A node by the sizes of its operands, written the simplest way; None where no formulas are found.

    Axes of one element may be of other sizes too, unless that takes longer formulas.
    """
    best: tuple[int, SizedNode] | None = None
    for ones in (False, True):
        shapes, numbers = _named(operands, result, ones)
        found = _attributes(node, operands, shapes, numbers)
        if found is None:
            continue
        cost, attrs, parts = found
        numbers = numbers | {part: numbers[size] // by for part, (size, by) in parts.items()}
        if best is None or cost + _ONES < best[0]:
            best = cost, SizedNode(shapes, attrs, parts, numbers)
    return None if best is None else best[1]


def _named(
    operands: Sequence[TensorType], result: TensorType, ones: bool
) -> tuple[tuple[tuple[Dim, ...], ...], dict[str, int]]:
    """The shapes by names, one for axes at the same place that are as long as the result; and the known sizes."""
    numbers: dict[str, int] = {}
    shapes = []
    for number, operand in enumerate(operands):
        shape: list[Dim] = []
        for axis, dim in enumerate(operand.dims):
            if ones and dim == 1:
                shape.append(1)
                continue
            along = operand.rank == result.rank and dim == result.dims[axis]
            name = f"D{axis}" if along else f"E{number}_{axis}"
            shape.append(Sym.named(name))
            if isinstance(dim, int):
                numbers[name] = dim
        shapes.append(tuple(shape))
    return tuple(shapes), numbers


def _attributes(
    node: Node, operands: Sequence[TensorType], shapes: Sequence[Sequence[Dim]], numbers: Mapping[str, int]
) -> tuple[int, Mapping[str, Any], Mapping[str, tuple[str, int]]] | None:
    """The simplest way to write the attributes that fits other sizes, its cost, and the parts of sizes in it."""
    spec = OPS[node.op]
    given = spec.complete(node.attrs)
    flat = [(name, place, one) for name, value in given.items() for place, one in _numbers_in(value)]
    axes = given.get("axes")
    writer = _AttributeWriter(operands, shapes, numbers)
    if len(writer.names) > len(_PRIMES):
        return None
    ways = []
    for name, place, one in flat:
        along = axes[place or 0] if isinstance(axes, tuple) and name != "axes" and (place or 0) < len(axes) else place
        ways.append([*writer.ways(one, along)])
    others = {name: prime * numbers.get(name, 1) for name, prime in zip(writer.names, _PRIMES, strict=False)}
    best: tuple[int, Mapping[str, Any], Mapping[str, tuple[str, int]]] | None = None
    for chosen in itertools.islice(itertools.product(*ways), _WAYS):
        cost = sum(one.cost for one in chosen)
        cost += sum(one.axis > other.axis for one, other in itertools.pairwise(c for c in chosen if c.axis >= 0))
        if best is not None and cost >= best[0]:
            continue
        attrs = dict(given)
        for (name, place, _), way in zip(flat, chosen, strict=True):
            attrs[name] = way.formula if place is None else _with(attrs[name], place, way.formula)
        parts = writer.parts_in(attrs)
        if parts is not None and _fits(node, operands, shapes, attrs, _whole_numbers(others, parts)):
            best = cost, attrs, parts
    return best


def _whole_numbers(sizes: Mapping[str, int], parts: Mapping[str, tuple[str, int]]) -> Mapping[str, int]:
    return {**sizes, **{part: sizes[size] // by for part, (size, by) in parts.items()}}


def _fits(
    node: Node,
    operands: Sequence[TensorType],
    shapes: Sequence[Sequence[Dim]],
    attrs: Mapping[str, Any],
    numbers: Mapping[str, int],
) -> bool:
    """True if an operator takes operands of these sizes with its attributes."""
    types = [
        TensorType(operand.dtype, tuple(evaluate(dim, numbers) for dim in shape))
        for operand, shape in zip(operands, shapes, strict=True)
    ]
    try:
        OPS[node.op].result_types(types, Attrs(formulas_at(attrs, lambda dim: evaluate(dim, numbers))))
    except GraphError:
        return False
    return True


def _numbers_in(value: Any) -> Iterator[tuple[int | None, Dim]]:
    """The whole numbers of an attribute, with their places in a tuple."""
    if isinstance(value, tuple):
        yield from ((place, one) for place, one in enumerate(value) if _is_number(one))
    elif _is_number(value):
        yield None, value


def _is_number(value: Any) -> bool:
    return isinstance(value, Sym) or (isinstance(value, int) and not isinstance(value, bool))


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def formulas_at(attrs: Mapping[str, Any], change: Callable[[Sym], Any]) -> dict[str, Any]:
    """Attributes with something else in place of each formula."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return change(value) if isinstance(value, Sym) else value

    return {name: changed(value) for name, value in attrs.items()}


@dataclass(frozen=True)
class _Way:
    """A formula for a number, the cost of it, and the first axis that it reads, -1 for none."""

    formula: Dim
    cost: int = 0
    axis: int = -1


class _AttributeWriter:
    """Formulas that numbers may stand for, by the sizes of operands."""

    def __init__(
        self, operands: Sequence[TensorType], shapes: Sequence[Sequence[Dim]], numbers: Mapping[str, int]
    ) -> None:
        self._operands, self._shapes, self._numbers = operands, shapes, numbers
        self._rank = max((len(shape) for shape in shapes), default=0)
        self.names = sorted({name for shape in shapes for dim in shape if isinstance(dim, Sym) for name in dim.names()})

    def ways(self, number: Dim, along: int | None) -> Iterator[_Way]:
        """A number as itself where it is small, as sizes, products of these, parts, and what is less by a few."""
        if isinstance(number, int) and number < max(_SMALL, self._rank):
            yield _Way(number)
        sizes = [
            (axis, named, dim)
            for operand, shape in zip(self._operands, self._shapes, strict=True)
            for axis, (named, dim) in enumerate(zip(shape, operand.dims, strict=True))
            if isinstance(named, Sym)
        ]
        sizes.sort(key=lambda one: abs(one[0] - (along or 0)))
        same = [_Way(named, 0, axis) for axis, named, dim in sizes if dim == number]
        yield from dict.fromkeys(same)
        if not isinstance(number, int) or number < 2:
            return
        for axis, named, dim in sizes:
            if not isinstance(dim, int) or dim in (1, number):
                continue
            shared = math.gcd(dim, number)
            if 1 < dim // shared <= _DIVISOR:
                yield _Way(number // shared * Sym.named(_part(named, dim // shared)), 1, axis)
            elif shared == dim and number // dim < _SMALL:
                yield _Way(number // dim * named, 1, axis)
        yield from self._products(number)
        if not same:
            yield from (
                _Way(named - (dim - number), 1, axis)
                for axis, named, dim in sizes
                if isinstance(dim, int) and 0 < dim - number <= _LESS
            )

    def _products(self, number: int) -> Iterator[_Way]:
        for operand, shape in zip(self._operands, self._shapes, strict=True):
            for count in range(2, _RUN + 1):
                for first in range(len(shape) - count + 1):
                    if product(operand.dims[first : first + count]) == number:
                        yield _Way(product(shape[first : first + count]), count * count, first)

    def parts_in(self, attrs: Mapping[str, Any]) -> Mapping[str, tuple[str, int]] | None:
        """The parts of sizes in attributes; None where one size is cut into parts of two lengths."""
        found: dict[str, tuple[str, int]] = {}

        def note(formula: Sym) -> Sym:
            for name in formula.names():
                size, _, by = name.partition("_by_")
                if by:
                    found[name] = size, int(by)
            return formula

        formulas_at(attrs, note)
        sizes = [size for size, _ in found.values()]
        return None if len({*sizes}) < len(sizes) else found


def _part(size: Sym, by: int) -> str:
    return f"{size}_by_{by}"
