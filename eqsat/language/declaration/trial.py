"""The trial of a user's operator on small operands, so that a fault is found before anything rests on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.errors import BoundsError, DeclarationError, GraphError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.arithmetic.residues import Residues
from eqsat.language.graphs.interpret import run_node
from eqsat.language.terms import Attrs, Node, Shape, TensorType

if TYPE_CHECKING:
    from eqsat.language.declaration.spec import OpSpec

#: Instances that are tried, and draws that may fail before them.
_INSTANCES, _DRAWS = 6, 200
#: Shapes of the operands where no sample rule draws them.
_SHAPES: tuple[Shape, ...] = ((), (2,), (2, 3), (3, 3), (2, 3, 4))


def try_out(declared: OpSpec) -> None:
    """DeclarationError where a part of a declaration fails on small operands, or two parts contradict each other.

    Operators of this package are not tried. The sample rule draws the operands; without one, they are of one shape.
    """
    if declared.is_shipped:
        return
    rng, done, refused = Random(0), 0, ""
    for shapes, known in _drawn(declared, rng):
        types = [TensorType.of(declared.dtypes.get(i, "float64"), s) for i, s in enumerate(shapes)]
        try:
            attrs = declared.complete(known)
            results = declared.result_types(types, attrs)
        except GraphError as error:
            refused = error.what
            continue
        with suppress(BoundsError):  # places that are none of a tensor's
            _run(declared, types, attrs, list(results), rng)
        done += 1
        if done == _INSTANCES:
            return
    if not done and declared.sample is not None:
        raise DeclarationError(
            f"operator {declared.name!r}: its sample rule draws no operands that it takes"
            + f": {refused}" * bool(refused),
            where=declared.where,
            expected=f"shapes and attributes that its shape rule accepts, one in {_DRAWS} draws",
            remedy="correct sample=, or infer=",
        )


def _drawn(declared: OpSpec, rng: Random) -> Iterator[tuple[Sequence[Shape], Mapping[str, Any]]]:
    """Shapes and attributes to try."""
    if declared.sample is None:
        attrs = next((i for i in declared.instances if not any(map(callable, i.values()))), {})
        yield from (([shape] * declared.min_operands, attrs) for shape in _SHAPES)
        return
    most = declared.max_operands if declared.max_operands is not None else declared.min_operands + 2
    for _ in range(_DRAWS):
        drawn = declared.drawn(rng, [None] * rng.randint(declared.min_operands, most), {})
        if drawn is not None:
            yield drawn


def _run(declared: OpSpec, types: list[TensorType], attrs: Attrs, results: list[TensorType], rng: Random) -> None:
    """Compute the outputs in floats and modulo a prime."""
    node = Node(declared.name, tuple("x" for _ in types), tuple("y" for _ in results), attrs)
    arrays = [_elements(t, rng) for t in types]
    operands: list[TensorType | None] = list(types)
    interpretations: tuple[Any, ...] = (Floats(wide=True), Residues())
    for interpretation in interpretations:
        given = [interpretation.constant(a, t) for a, t in zip(arrays, types, strict=True)]
        with np.errstate(all="ignore"):
            run_node(interpretation, node, given, operands, results)


def _elements(type: TensorType, rng: Random) -> Any:
    """Small positive numbers; truth values; indices of a first element."""
    generator = np.random.default_rng(rng.getrandbits(32))
    if type.dtype.is_float:
        return generator.uniform(0.5, 2.0, type.static).astype(type.dtype.numpy)
    return generator.integers(0, 2 if type.dtype.value == "bool" else 1, type.static).astype(type.dtype.numpy)
