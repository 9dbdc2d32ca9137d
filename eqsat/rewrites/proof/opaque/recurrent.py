"""Recurrent layers in proofs: of inputs they see products with weights alone, and what is left out is zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import IndexedArray
from eqsat.language.parametric.definedness import need, seen_by
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, formula_of, integer
from eqsat.language.parametric.paths import current
from eqsat.language.terms import Attrs, DType, Shape, TensorType, evaluate
from eqsat.rewrites.proof.naturality.claims import holds_on_samples
from eqsat.rewrites.proof.opaque.signatures import replaced, takes
from eqsat.rewrites.proof.opaque.types import attribute_key
from eqsat.rewrites.rules.term import outputs

#: The places of operands: inputs, weights of these and of states, biases, lengths, states, and peepholes.
_INPUTS, _WEIGHTS, _INNER, _BIASES, LENGTHS, _STATE, _CELL, _PEEPHOLES = range(8)
#: The ranks of these.
RANKS = (3, 3, 3, 2, 1, 3, 3, 2)
#: Ranks below this are looked at for whether they are refused.
_HIGHEST = 6
_NEAR = 1e-9


def sees_products(declared: OpSpec) -> bool:
    """True if a recurrent layer is seen to depend on inputs through products alone, and to take zeros for nothing."""
    stepwise = declared.stepwise and declared.is_shipped
    return stepwise and _seen(declared.name, declared.reference, declared.infer)


@cache
def _seen(name: str, _reference: Reference, _infer: InferRule) -> bool:
    return holds_on_samples(spec(name), f"recurrent {name}", _holds_on)


def _holds_on(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    attrs = declared.complete(drawn)
    values = np.random.default_rng(rng.randrange(1 << 30))
    x, w, r = (values.normal(size=tuple(evaluate(dim, {}) for dim in shape)) for shape in shapes)
    directions, rows, _ = w.shape
    hidden = r.shape[2]
    batch, steps = (x.shape[0], x.shape[1]) if attrs["layout"] else (x.shape[1], x.shape[0])
    biases = values.normal(size=(directions, 2 * rows))

    def made(*operands: Any) -> list[Any]:
        types = [None if o is None else TensorType(DType.of(o.dtype), o.shape) for o in operands]
        results = declared.result_types(types, attrs)
        return list(outputs(Floats(wide=True), declared.name, attrs, operands, types, results))

    products = np.concatenate([x @ np.swapaxes(w[d], 0, 1) + biases[d, :rows] for d in range(directions)], axis=-1)
    ones = np.stack([np.eye(rows, directions * rows, d * rows) for d in range(directions)])
    inner = np.concatenate([np.zeros((directions, rows)), biases[:, rows:]], axis=1)
    if not _near(made(x, w, r, biases), made(products, ones, r, inner)):
        return False
    state = np.zeros((batch, directions, hidden) if attrs["layout"] else (directions, batch, hidden))
    nothing = {
        _BIASES: np.zeros((directions, 2 * rows)),
        LENGTHS: np.full(batch, steps, np.int32),
        _STATE: state,
        _CELL: state,
        _PEEPHOLES: np.zeros((directions, 3 * hidden)),
    }
    most = declared.max_operands or 0
    plain = made(x, w, r)
    for place, zeros in nothing.items():
        if place < most and not _near(plain, made(x, w, r, *(None,) * (place - _BIASES), zeros)):
            return False
    given = [x, w, r, *(nothing[place] for place in range(_BIASES, most))]
    types = [TensorType(DType.of(one.dtype), one.shape) for one in given]
    return not any(
        takes(declared, replaced(types, place, types[place].with_shape(types[place].static[:1] * rank)), attrs)
        for place in range(most)
        for rank in range(_HIGHEST)
        if rank != RANKS[place]
    )


def _near(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=_NEAR, atol=_NEAR) for a, b in zip(one, other, strict=True)
    )


class RecurrentResults:
    """The results of a recurrent layer: each element is a term of all that the layer sees."""

    def __init__(
        self, declared: OpSpec, attrs: Attrs, operands: Sequence[Any], results: Sequence[TensorType], elements: Elements
    ) -> None:
        self._operands = [*operands, *(None,) * (_PEEPHOLES + 1 - len(operands))]
        self._elements, self._results = elements, results
        self._by_batch = bool(attrs["layout"])
        text, numbers = attribute_key(attrs, ())
        self._directions, self._rows, self._width = operands[_WEIGHTS].shape
        self._hidden = operands[_INNER].shape[2]
        first, second = operands[_INPUTS].shape[:2]
        self._steps, self._batch = (second, first) if self._by_batch else (first, second)
        sizes = (self._steps, self._batch, self._directions, self._rows, self._hidden)
        self._name = f"<{declared.name} {text}>"
        self._numbers = [*numbers, *map(formula_of, sizes)]

    def arrays(self) -> list[IndexedArray]:
        """The results."""
        return [IndexedArray(one.dims, partial(self._element, number)) for number, one in enumerate(self._results)]

    def _element(self, number: int, indices: tuple[Any, ...]) -> Any:
        sizes = [self._steps, self._batch, self._directions, self._rows, self._hidden]

        def seen(inner: tuple[Any, ...]) -> Any:
            here = [current().reduced(formula_of(i)) for i in (*indices, *inner)]
            at = [*here, *map(current().reduced, self._numbers)]
            total = self._elements.read(f"{self._name}{number}", at)
            for part, element in self._parts(inner):
                total = total + element * self._elements.read(f"{self._name}{number} {part}", at)
            return total

        with seen_by(self._elements, f"{self._name}{number}", (*indices, *map(integer, self._numbers))):
            result = self._elements.whole(sizes, seen)
            need(result)
        return result

    def _parts(self, inner: tuple[Any, ...]) -> list[tuple[str, Any]]:
        """The sum that the layer sees before the state is known, and all else; what is left out is zero."""
        step, batch, direction, row, hidden = inner
        real = self._elements.algebra.real
        place = (batch, step) if self._by_batch else (step, batch)
        x, w = self._operands[_INPUTS], self._operands[_WEIGHTS]
        gates = self._elements.folded(
            "sum", [self._width], lambda k: real(x.at((*place, k[0]))) * real(w.at((direction, row, k[0])))
        )
        state = (batch, direction, hidden) if self._by_batch else (direction, batch, hidden)
        asked = {
            "inner": (_INNER, (direction, row, hidden)),
            "inner bias": (_BIASES, (direction, self._rows + row)),
            "state": (_STATE, state),
            "cell": (_CELL, state),
        }
        bias = self._operands[_BIASES]
        if bias is not None:
            gates = gates + real(bias.at((direction, row)))
        parts = [("gates", gates)]
        for part, (number, at) in asked.items():
            operand = self._operands[number]
            if operand is not None:
                parts.append((part, real(operand.at(at))))
        peepholes = self._operands[_PEEPHOLES]
        if peepholes is not None:
            parts += [(f"peephole {k}", real(peepholes.at((direction, k * self._hidden + hidden)))) for k in range(3)]
        return parts


def recurrent_outputs(
    elements: Elements,
    op: str,
    attrs: Attrs,
    operands: Sequence[Any],
    results: Sequence[TensorType],
    lengths: Any,
) -> list[IndexedArray]:
    """The results of a recurrent layer; `lengths` is the number that all lengths are, where they are given.

    Lengths that are not all the number of steps are not followed.
    """
    given = list(operands)
    if len(given) > LENGTHS and given[LENGTHS] is not None:
        steps = given[_INPUTS].shape[1 if attrs["layout"] else 0]
        if lengths is None or not current().holds(Fact.equal(formula_of(lengths), formula_of(steps))):
            raise NotParametric("lengths of sequences")
        given[LENGTHS] = None
    return RecurrentResults(spec(op), attrs, given, results, elements).arrays()
