"""Results of operators that sum over the places of windows: what each window reads, by its place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from eqsat.language.declaration import OpSpec
from eqsat.language.parametric.arrays import IndexedArray, product_of
from eqsat.language.parametric.definedness import need_divisor
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.integers import NotParametric, formula_of
from eqsat.language.terms import Attrs, TensorType
from eqsat.language.terms.dims import Dim
from eqsat.rewrites.proof.opaque.layout import OperatorAxes, layout
from eqsat.rewrites.proof.opaque.values import OpaqueResult
from eqsat.rewrites.proof.windows.claims import KERNEL, is_zero, sums_over_windows


class WindowSums(OpaqueResult):
    """The result of an operator that sums over the places of its windows: its element at each index.

    Windows lie within the operand and its pads, as shape rules say how many there are, so that only where there are
    pads something outside the operand may be read.
    """

    def element(self, indices: tuple[Any, ...]) -> Any:
        """The element at indices."""
        return self._element(indices)

    def _sum(self, places: dict[str, Any], opaque: Sequence[Any], at: list[Dim]) -> Any:
        """The sum over places of windows, and what else is summed, of products of what is read there."""
        found, elements = self._layout, self._elements
        space, first = found.opaque(0), self._types[0]
        assert first is not None
        filters = [(place, axis) for place in found.linear if place for axis in found.opaque(place)]
        kernel = self._dims(filters) if filters else list(self._attrs[KERNEL])
        strides, dilations = (self._attrs[name] or (1,) * len(space) for name in ("strides", "dilations"))
        pads = self._attrs["pads"] or (0,) * (2 * len(space))
        summed = [self._sizes[name] for name in found.summed]

        def part(inner: tuple[Any, ...]) -> Any:
            within = inner[len(summed) :]
            free = dict(zip(filters, within, strict=False))
            for number, axis in enumerate(space):
                before, behind = pads[number], pads[len(space) + number]
                place = opaque[number] * strides[number] + within[number] * dilations[number] - before
                if (not is_zero(before) and place < 0) or (not is_zero(behind) and place >= first.dims[axis]):
                    return elements.algebra.real(0)
                free[0, axis] = place
            walked = places | dict(zip(found.summed, inner, strict=False))
            result = elements.algebra.real(1)
            for place in found.linear:
                result = result * self._read(place, walked, free)
            return result

        total = elements.folded("sum", [*summed, *kernel], part)
        if filters:
            return total
        count = elements.number(formula_of(product_of(kernel)))
        need_divisor(elements, count)
        return elements.algebra.normal(total * elements.algebra.inverse(count))


def refuse_unplaced(declared: OpSpec, attrs: Attrs, types: Sequence[TensorType | None]) -> None:
    """NotParametric for windows that may be placed as no operator places them, of which a proof would say something.

    Windows have a size, which is that of a filter where there is one: shape rules do not ask that it is above 0.
    """
    if not declared.windowed or declared.form is None:
        return
    found = layout(declared, attrs, [None if t is None else t.rank for t in types])
    filters = () if found is None else tuple(_filter_sizes(found, types))
    numbers = [_known(attrs, name) for name in ("strides", "dilations", KERNEL)]
    if not all(pad >= 0 for pad in _known(attrs, "pads")):
        raise NotParametric("pads below 0")
    if not all(number > 0 for number in (*filters, *itertools.chain(*numbers))):
        raise NotParametric("strides, dilations or windows of no size")


def _known(attrs: Attrs, name: str) -> tuple[Any, ...]:
    """The numbers of an attribute, if there is one that is looked at."""
    value = attrs.get(name, ())
    return value if isinstance(value, tuple) else ()


def _filter_sizes(found: OperatorAxes, types: Sequence[TensorType | None]) -> Iterator[Any]:
    """The sizes of filters along the axes that windows are moved over."""
    for place in found.linear:
        filters = types[place] if place else None
        if filters is not None:
            yield from (filters.dims[axis] for axis in found.opaque(place))


def window_output(
    elements: Elements,
    declared: OpSpec,
    attrs: Attrs,
    operands: Sequence[Any],
    types: Sequence[TensorType | None],
    result: TensorType,
) -> IndexedArray | None:
    """The result of an operator that is seen to sum over the places of its windows; None for any other."""
    if not declared.windowed or declared.form is None or any(t is not None and not t.dtype.is_float for t in types):
        return None
    found = layout(declared, attrs, [None if t is None else t.rank for t in types])
    if found is None or not sums_over_windows(declared, attrs, found):
        return None
    made = WindowSums(declared, attrs, operands, types, elements)
    return IndexedArray(result.dims, made.element)
