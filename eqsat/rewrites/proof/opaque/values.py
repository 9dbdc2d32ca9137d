"""Results of operators by their index form, as terms that no more than the form says is known of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.language.declaration import OpSpec
from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import IndexedArray
from eqsat.language.parametric.definedness import need, seen_by
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.integers import NotParametric, formula_of, integer
from eqsat.language.parametric.namespace import ParametricNamespace
from eqsat.language.parametric.paths import current
from eqsat.language.parametric.sums.weights import selected, weighted
from eqsat.language.terms import Attrs, TensorType
from eqsat.language.terms.dims import Dim
from eqsat.rewrites.proof.opaque.layout import Axis, layout, sizes_of
from eqsat.rewrites.proof.opaque.types import key_of
from eqsat.rewrites.proof.opaque.windows import (
    are_single,
    has_value_everywhere,
    lie_inside,
    selects_by_order,
    selects_elements,
)


class OpaqueResult:
    """The result of an opaque operator: its element at each index.

    What it is linear in is summed with factors that depend on nothing but places along opaque axes, and on the other
    operands, all of whose elements that the form lets it read are in one term. Two such terms are equal where all that
    they read is, at the same places.
    """

    def __init__(
        self,
        declared: OpSpec,
        attrs: Attrs,
        operands: Sequence[Any],
        types: Sequence[TensorType | None],
        elements: Elements,
    ) -> None:
        found = layout(declared, attrs, [None if t is None else t.rank for t in types])
        assert found is not None
        self._declared, self._layout, self._attrs = declared, found, attrs
        self._operands, self._types, self._elements = operands, types, elements
        self._sizes = sizes_of(declared, found, attrs, types)
        self._key = key_of(declared, found, attrs, types)
        # Beside an operand that no term of the form is of, what a factor is may depend on all places.
        terms = declared.form.terms if declared.form is not None else ()
        self._is_whole = any(t is not None for t in types[len(terms) :])
        self._is_single = not self._is_whole and are_single(declared, found, attrs, types)
        self._is_inside = not self._is_whole and lie_inside(declared, found, attrs)

    def element(self, indices: tuple[Any, ...]) -> Any:
        """The element at indices."""
        if self._is_single:  # all that is read is seen
            return self._element(indices)
        numbers = list(map(integer, self._key.numbers))
        if self._layout.linear and not self._layout.others and not has_value_everywhere(self._declared):
            # Whether there is a value depends on the places of windows alone.
            with seen_by(self._elements, self._key.text, [*(indices[k] for k in self._layout.opaque(None)), *numbers]):
                need(self._elements.z3.Bool("a value"))
        with seen_by(self._elements, self._key.text, [*indices, *numbers]):
            return self._element(indices)

    def _element(self, indices: tuple[Any, ...]) -> Any:
        places = self._places(indices)
        opaque = [indices[k] for k in self._layout.opaque(None)]
        at = [formula_of(i) for i in (indices if self._is_whole else opaque)]
        linear = self._layout.linear
        if linear:
            total = self._sum(places, opaque, at)
        elif not self._is_whole and selects_by_order(self._declared, self._layout):
            total = self._selected(at, places)
        else:
            total = self._factor(at, places)
        for place in self._layout.added:
            total = total + self._read(place, places, {})
        return self._activated(total)

    def _sum(self, places: dict[str, Any], opaque: Sequence[Any], at: list[Dim]) -> Any:
        """The sum of products of what the result is linear in, with factors where places in space are not known."""
        linear, elements = self._layout.linear, self._elements
        summed = [self._sizes[name] for name in self._layout.summed]
        own = {place: [(place, axis) for axis in self._layout.opaque(place)] for place in linear}
        space = own[0] if self._is_single or self._is_inside else []
        others = [one for place in linear for one in own[place] if one not in space]

        def walked(inner: tuple[Any, ...]) -> dict[str, Any]:
            return places | dict(zip(self._layout.summed, inner, strict=False))

        def product(inner: tuple[Any, ...], free: dict[tuple[int, int], Any]) -> Any:
            result = elements.algebra.real(1)
            for place in linear:
                result = result * self._read(place, walked(inner), free)
            return result

        def part(inner: tuple[Any, ...]) -> Any:
            free = dict(zip(others, inner[len(summed) :], strict=True))
            if self._is_single:
                return product(inner, free | dict(zip(space, opaque, strict=True)))

            def weight(there: tuple[Any, ...]) -> Any:
                found = free | dict(zip(space, there, strict=True))
                indices = [formula_of(found[one]) for place in linear for one in own[place]]
                return self._factor([*at, *indices], walked(inner))

            if not space:
                return weight(()) * product(inner, free)
            return weighted(
                elements,
                self._dims(space),
                weight,
                lambda there: product(inner, free | dict(zip(space, there, strict=True))),
            )

        sizes = [*summed, *self._dims(others)]
        return elements.folded("sum", sizes, part) if sizes else part(())

    def _dims(self, axes: Sequence[tuple[int, int]]) -> list[Any]:
        """The sizes of axes of operands."""
        return [self._types[place].dims[axis] for place, axis in axes]  # type: ignore[union-attr]

    def _activated(self, total: Any) -> Any:
        name = self._attrs.get("activation", "none")
        if name == "none":
            return total
        if name != "relu":
            raise NotParametric(f"activation {name!r}")
        space = ParametricNamespace(self._elements)
        result = spec(name).reference(space, IndexedArray((), lambda _: self._elements.algebra.real(total)))
        return result.at(())

    def _places(self, indices: tuple[Any, ...]) -> dict[str, Any]:
        """The places along walked axes by their names."""
        places: dict[str, Any] = {}
        for axis, index in zip(self._layout.result, indices, strict=True):
            if axis.group:
                size = self._sizes[axis.name]
                group = index // size
                places[axis.group], places[axis.name] = group, index - group * size
            elif not axis.is_opaque:
                places[axis.name] = index
        return places

    def _read(self, place: int, walked: dict[str, Any], free: dict[tuple[int, int], Any]) -> Any:
        """The element of an operand at places along walked axes and others."""

        def index(number: int, axis: Axis) -> Any:
            if axis.is_opaque:
                return free[place, number]
            if axis.group:
                return walked[axis.group] * self._sizes[axis.name] + walked[axis.name]
            return walked[axis.name]

        axes = self._layout.operands[place]
        element = self._operands[place].at(tuple(index(number, axis) for number, axis in enumerate(axes)))
        return self._elements.algebra.real(element)

    def _factor(self, at: list[Dim], walked: dict[str, Any]) -> Any:
        """The factor at places along opaque axes, by all that the operators' other operands have there."""
        path = current()
        others = self._layout.others
        name, numbers = f"<{self._key.text}>", [path.reduced(n) for n in self._key.numbers]
        if not others:
            return self._elements.read(name, [*map(path.reduced, at), *numbers])
        axes = [(place, axis) for place in others for axis in self._layout.opaque(place)]

        def slices(inner: tuple[Any, ...]) -> Any:
            free = dict(zip(axes, inner, strict=True))
            here = [current().reduced(f) for f in (*at, *map(formula_of, inner), *numbers)]
            total = self._elements.read(name, here)  # of zeros, too, it is not that of another operator
            for place in others:
                total = total + self._elements.read(f"{name}{place}", here) * self._read(place, walked, free)
            return total

        factor = self._elements.whole(self._dims(axes), slices)
        need(factor)  # nothing says that it has a value whatever it sees
        return factor

    def _selected(self, at: list[Dim], walked: dict[str, Any]) -> Any:
        """The element of the only operand, or 0, that is chosen by order for places along opaque axes."""
        name, axes = f"<{self._key.text}>", [(0, axis) for axis in self._layout.opaque(0)]

        def mark(element: Any, inner: Sequence[Dim]) -> Any:
            here = [current().reduced(f) for f in (*at, *inner, *self._key.numbers)]
            return self._elements.read(name, here) + self._elements.read(f"{name}0", here) * element

        return selected(
            self._elements,
            self._dims(axes),
            lambda inner: self._read(0, walked, dict(zip(axes, inner, strict=True))),
            mark,
            is_element=selects_elements(self._declared, self._layout),
        )


def opaque_output(
    elements: Elements,
    op: str,
    attrs: Attrs,
    operands: Sequence[Any],
    types: Sequence[TensorType | None],
    result: TensorType,
) -> IndexedArray:
    """The result of an opaque operator."""
    made = OpaqueResult(spec(op), attrs, operands, types, elements)
    return IndexedArray(result.dims, made.element)
