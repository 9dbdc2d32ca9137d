"""Results of operators by their index form, as terms that no more than the form says is known of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.language.declaration import OpSpec
from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import IndexedArray
from eqsat.language.parametric.definedness import need
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.integers import NotParametric, formula_of
from eqsat.language.parametric.namespace import ParametricNamespace
from eqsat.language.parametric.paths import current
from eqsat.language.terms import Attrs, TensorType
from eqsat.language.terms.dims import Dim
from eqsat.rewrites.proof.opaque.layout import Axis, layout, sizes_of
from eqsat.rewrites.proof.opaque.types import key_of


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

    def element(self, indices: tuple[Any, ...]) -> Any:
        """The element at indices."""
        places = self._places(indices)
        opaque = [indices[k] for k in self._layout.opaque(None)]
        at = [formula_of(i) for i in (indices if self._is_whole else opaque)]
        linear = self._layout.linear
        if linear:
            axes = [(place, axis) for place in linear for axis in self._layout.opaque(place)]
            sizes = [self._types[place].dims[axis] for place, axis in axes]  # type: ignore[union-attr]
            summed = [self._sizes[name] for name in self._layout.summed]

            def product(inner: tuple[Any, ...]) -> Any:
                walked = places | dict(zip(self._layout.summed, inner, strict=False))
                free = dict(zip(axes, inner[len(summed) :], strict=True))
                result = self._factor([*at, *(formula_of(i) for i in inner[len(summed) :])], walked)
                for place in linear:
                    result = result * self._read(place, walked, free)
                return result

            total = self._elements.folded("sum", [*summed, *sizes], product) if summed or sizes else product(())
        else:
            total = self._factor(at, places)
        for place in self._layout.added:
            total = total + self._read(place, places, {})
        return self._activated(total)

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
        sizes = [self._types[place].dims[axis] for place, axis in axes]  # type: ignore[union-attr]

        def slices(inner: tuple[Any, ...]) -> Any:
            free = dict(zip(axes, inner, strict=True))
            here = [current().reduced(f) for f in (*at, *map(formula_of, inner), *numbers)]
            total = self._elements.read(name, here)  # of zeros, too, it is not that of another operator
            for place in others:
                total = total + self._elements.read(f"{name}{place}", here) * self._read(place, walked, free)
            return total

        factor = self._elements.whole(sizes, slices)
        need(factor)  # nothing says that it has a value whatever it sees
        return factor


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
