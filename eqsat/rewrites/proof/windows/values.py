"""Results of operators that sum over the places of windows: what each window reads, by its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.language.declaration import OpSpec
from eqsat.language.parametric.arrays import IndexedArray, product_of
from eqsat.language.parametric.definedness import need_divisor
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.integers import NotParametric, formula_of
from eqsat.language.terms import Attrs, TensorType
from eqsat.language.terms.dims import Dim
from eqsat.rewrites.proof.opaque.layout import layout
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


def _refuse_unplaced(attrs: Attrs) -> None:
    """NotParametric for windows that may be placed as no operator places them, of which a sum would be something."""
    if not all(pad >= 0 for pad in attrs["pads"]):
        raise NotParametric("pads below 0")
    if not all(number > 0 for name in ("strides", "dilations", KERNEL) for number in attrs.get(name, ())):
        raise NotParametric("strides, dilations or windows of no size")


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
    _refuse_unplaced(attrs)
    made = WindowSums(declared, attrs, operands, types, elements)
    return IndexedArray(result.dims, made.element)
