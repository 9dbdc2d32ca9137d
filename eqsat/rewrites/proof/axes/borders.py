"""Elements inside of borders, of which nothing but the mode says what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.language.declaration import OpSpec
from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import IndexedArray, Indices
from eqsat.language.parametric.integers import NotParametric
from eqsat.language.parametric.namespace import Parametric
from eqsat.language.parametric.numbers import UnknownNumber
from eqsat.language.terms import Attrs, TensorType
from eqsat.rewrites.proof.axes.claims import FILLED, FILLER, MODE, keeps_inside
from eqsat.rewrites.rules.term import outputs


def outputs_inside(
    interpretation: Parametric,
    op: str,
    attributes: Attrs,
    operands: Sequence[Any],
    types: Sequence[TensorType | None],
    results: Sequence[TensorType],
    declared: OpSpec,
) -> list[Any]:
    """The outputs of an operator as declared; what a border holds by another mode than a number ends the proof."""
    if MODE not in attributes or attributes[MODE] == FILLED or not keeps_inside(spec(op)):
        return outputs(interpretation, op, attributes, operands, types, results, declared)
    border = UnknownNumber.named(f"border of {op}")
    plain = Attrs({**attributes, MODE: FILLED, FILLER: border})
    made = outputs(interpretation, op, plain, operands, types, results, declared)
    return [_inside(one, border.term) for one in made]


def _inside(array: IndexedArray, border: Any) -> IndexedArray:
    def element(indices: Indices) -> Any:
        found = array.at(indices)
        if isinstance(found, type(border)) and border.eq(found):
            raise NotParametric("what a border holds by its mode")
        return found

    return IndexedArray(lambda: array.shape, element)
