"""Claims of declarations that proofs without sizes use, each looked at on samples of the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from random import Random
from typing import Any, Literal, TypeAlias

import numpy as np

from eqsat.errors import EqsatError, ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.arithmetic.residues import Residues
from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.parametric.definedness import DOMAINS
from eqsat.language.terms import Attrs, DType, Shape, TensorType, broadcast_shapes
from eqsat.rewrites.rules.term import outputs

#: How many samples of an operator are looked at, and the element types that it has to take.
_SAMPLES = 40
#: How far apart results in float64 may be.
_NEAR = 1e-8
_TYPES = (DType.FLOAT32, DType.FLOAT64, DType.INT64, DType.BOOL)
#: The shapes of two operands that tell how an operator broadcasts them.
_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((2, 3), (2, 1)),
    ((2, 3), ()),
    ((3,), (2, 3)),
    ((1, 3), (2, 1)),
)
#: Those of them that are all that an operator takes whose result is as large as its first operand.
_ONTO_FIRST = 4
#: The attribute by which an operator applies a function to what it makes, and its value where it applies none.
ACTIVATION, NO_ACTIVATION = "activation", "none"
#: How operands come together: all are broadcast, the others onto the first, or another way.
Spreading = Literal["all", "onto the first", "other"]
#: Whether something is so on one sample: of an operator, with shapes and attributes, by a generator for elements.
Claim: TypeAlias = Callable[[OpSpec, Sequence[Shape], Mapping[str, Any], Random], bool]
#: Shapes of the operands of an operator, and attributes.
OperatorInstance: TypeAlias = tuple[Sequence[Shape], Mapping[str, Any]]


def is_monotone(declared: OpSpec) -> bool:
    """True of a shipped function of one number that keeps order, has a value everywhere, and keeps the element type."""
    return declared.monotone and declared.is_shipped and declared.name not in DOMAINS and keeps_type(declared)


def keeps_type(declared: OpSpec) -> bool:
    """True if all results have the element type of the first operand, whatever it is."""
    return _seen_to_keep_type(declared.name, declared.infer)


def copies(declared: OpSpec) -> bool:
    """True if an operator that is declared to move elements does so on samples, of whatever type and value they are.

    Each element of the result has to be one of those given, from a place that does not depend on what they are.
    """
    return declared.movement and _seen_to_copy(declared.name, declared.reference, declared.infer)


def is_linear(declared: OpSpec, place: int) -> bool:
    """True if an operator that is declared to be linear in an operand is so on samples, in exact arithmetic.

    This is of the operands that it needs, and without an activation behind it.
    """
    return place in declared.multilinear and _seen_to_be_linear(
        declared.name, place, declared.reference, declared.infer
    )


def keeps_rank(declared: OpSpec, *, keepdims: bool = False) -> bool:
    """True if the results of an operator have as many axes as its first operand, on samples; of reductions some do."""
    return _seen_to_keep_rank(declared.name, keepdims, declared.infer)


def spreading(declared: OpSpec) -> Spreading:
    """The way in which an operator on single elements brings operands of different shapes together."""
    return _seen_to_spread(declared.name, declared.infer)


def takes_single_parameters(declared: OpSpec) -> bool:
    """True if parameters of one element are those of every element, and along which axis they are does not matter."""
    return declared.parameters == "block" and _seen_to_take_single(declared.name, declared.reference, declared.infer)


#: The attributes that say along which axis parameters go, and how many elements have one.
ALONG = ("axis", "block")
_SINGLES: tuple[tuple[int, ...], ...] = ((), (1,))
#: Shapes of one element that are refused.
_REFUSED: tuple[tuple[int, ...], ...] = ((1, 1), (1, 1, 1))


@cache
def _seen_to_take_single(name: str, _reference: Reference, _infer: InferRule) -> bool:
    declared, rng = spec(name), np.random.default_rng(0)
    for shape in ((), (3,), (2, 3), (2, 1, 3)):
        drawn = (
            rng.integers(0, 9, shape).astype(np.int8)
            if 0 in declared.dtypes
            else rng.normal(size=shape).astype(np.float32)
        )
        made = [
            _parameterised(declared, drawn, one, axis)
            for one in _SINGLES
            for axis in range(-len(shape), max(len(shape), 1))
        ]
        axes = range(-3, 4)
        if any(_parameterised(declared, drawn, one, axis) is not None for one in _REFUSED for axis in axes):
            return False
        parts = [_parameterised(declared, part, (), 0) for part in np.ravel(drawn)]
        for one in made:
            if one is None or one.shape != shape or list(np.ravel(one)) != [float(part) for part in parts]:
                return False
    return True


def _parameterised(declared: OpSpec, given: Any, single: tuple[int, ...], axis: int) -> Any:
    """The result of numbers with a scale and a zero point of one shape; None where they do not go together."""
    operands = [np.asarray(given), np.full(single, 0.37, np.float32), np.full(single, 2, np.int8)]
    types = [TensorType(DType.of(o.dtype), o.shape) for o in operands]
    attributes = declared.complete({"axis": axis, "block": 0, **({"to": "int8"} if "to" in declared.attrs else {})})
    try:
        results = declared.result_types(types, attributes)
    except EqsatError:
        return None
    (result,) = outputs(Floats(), declared.name, attributes, operands, list(types), results)
    return np.asarray(result, np.float64)


@cache
def _seen_to_keep_type(name: str, _infer: InferRule) -> bool:
    declared = spec(name)
    made = []
    for dtype in _TYPES:
        operands = [_type(declared, place, dtype, (2,)) for place in range(declared.min_operands)]
        try:
            (result,) = declared.result_types(operands, declared.complete({}))
        except EqsatError:
            continue
        made.append(result == operands[0])
    return bool(made) and all(made)


@cache
def _seen_to_spread(name: str, _infer: InferRule) -> Spreading:
    declared = spec(name)
    if declared.max_operands not in (2, 3) or declared.min_operands != declared.max_operands:
        return "other"
    seen: list[bool] = []
    for one, other in _SHAPES:
        shapes = [one, other] if declared.max_operands == 2 else [one, other, other]
        types = [_type(declared, place, DType.FLOAT32, shape) for place, shape in enumerate(shapes)]
        try:
            (result,) = declared.result_types(types, declared.complete({}))
        except ShapeError:
            seen.append(False)
        else:
            seen.append(result.shape == broadcast_shapes(one, other))
    if all(seen):
        return "all"
    return "onto the first" if all(seen[:_ONTO_FIRST]) else "other"


def _type(declared: OpSpec, place: int, dtype: DType, shape: Shape) -> TensorType:
    """The type of an operand, indices and truth values in that of their own."""
    return TensorType.of(declared.dtypes.get(place, dtype.value), shape)


@cache
def _seen_to_keep_rank(name: str, keepdims: bool, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        attributes = declared.complete({**drawn, **({"keepdims": True} if keepdims else {})})
        types = [_type(declared, place, DType.FLOAT32, shape) for place, shape in enumerate(shapes)]
        return bool(types) and all(one.rank == types[0].rank for one in declared.result_types(types, attributes))

    return holds_on_samples(spec(name), f"rank {name}", holds)


@cache
def _seen_to_be_linear(name: str, place: int, _reference: Reference, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        attributes = {**drawn, **({ACTIVATION: NO_ACTIVATION} if ACTIVATION in declared.attrs else {})}
        return _is_linear_sample(declared, place, shapes, declared.complete(attributes), rng)

    declared = spec(name)
    needed = declared.max_operands is not None and place < declared.min_operands
    return needed and holds_on_samples(declared, f"linear {name} {place}", holds)


def _is_linear_sample(declared: OpSpec, place: int, shapes: Sequence[Shape], attributes: Attrs, rng: Random) -> bool:
    types = [_type(declared, number, DType.FLOAT64, shape) for number, shape in enumerate(shapes)]
    results = declared.result_types(types, attributes)
    interpretation = Residues()

    def elements() -> list[Any]:
        return [
            interpretation.constant(np.reshape([rng.randrange(1, 99) for _ in range(t.elements({}))], t.static), t)
            for t in types
        ]

    given, other = elements(), elements()[place]
    first, second = rng.randrange(1, 99), rng.randrange(1, 99)

    def computed(one: Any) -> Any:
        arrays = [one if number == place else array for number, array in enumerate(given)]
        return outputs(interpretation, declared.name, attributes, arrays, list(types), results)[0]

    both = (first * given[place] + second * other) % interpretation.prime
    apart = first * computed(given[place]) + second * computed(other)
    return len(results) == 1 and np.array_equal(computed(both), apart % interpretation.prime)


@cache
def _seen_to_copy(name: str, _reference: Reference, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        return _copies_sample(declared, shapes, declared.complete(drawn), rng)

    return holds_on_samples(spec(name), f"copies {name}", holds)


def holds_on_samples(declared: OpSpec, seed: str, holds: Claim) -> bool:
    """True if a claim holds on all samples of the operands that an operator needs, of which there are enough."""
    rng = Random(seed)
    seen = 0
    instances, enough = _SOURCE.get()
    for drawn in instances(declared, rng):
        try:
            if not holds(declared, *drawn, rng):
                return False
        except (EqsatError, ArithmeticError, LookupError, TypeError, ValueError):
            return False
        seen += 1
    return seen > enough


def _samples(declared: OpSpec, rng: Random) -> Iterator[OperatorInstance]:
    for _ in range(_SAMPLES):
        count = declared.min_operands if declared.max_operands is not None else rng.randint(1, 3)
        drawn = declared.drawn(rng, [None] * count, {})
        if drawn is not None:
            yield drawn


#: Where instances of operators come from on which claims are looked at, and how many of them are too few.
_SOURCE: ContextVar[tuple[Callable[[OpSpec, Random], Iterable[OperatorInstance]], int]] = ContextVar(
    "source", default=(_samples, _SAMPLES // 2)
)


@contextmanager
def looked_at_on(instances: Callable[[OpSpec, Random], Iterable[OperatorInstance]]) -> Iterator[None]:
    """Look at claims on all given instances of an operator, in place of samples.

    What was found before is kept, so that this is for a process that has asked for no claim yet.
    """
    token = _SOURCE.set((instances, 0))
    try:
        yield
    finally:
        _SOURCE.reset(token)


def computed_in_floats(declared: OpSpec, attributes: Attrs, arrays: Sequence[Any]) -> Any:
    """The first result of an operator in float64."""
    types = [TensorType(DType.FLOAT64, array.shape) for array in arrays]
    results = declared.result_types(types, attributes)
    return np.asarray(outputs(Floats(wide=True), declared.name, attributes, arrays, list(types), results)[0])


def are_near(one: Any, other: Any) -> bool:
    """True if two results in float64 have one shape, and elements as near as rounding leaves them."""
    return bool(np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=_NEAR, atol=_NEAR))


def _copies_sample(declared: OpSpec, shapes: Sequence[Shape], attributes: Attrs, rng: Random) -> bool:
    if not all(_keeps_sample_type(declared, shapes, attributes, dtype) for dtype in _TYPES):
        return False
    types = [_type(declared, place, DType.FLOAT64, shape) for place, shape in enumerate(shapes)]
    results = declared.result_types(types, attributes)
    least = min((d for t in types for d in t.static), default=1)
    marks = [rng.sample(range(1, 10_000), int(np.prod(t.static))) for t in types]
    indices = {p: [rng.randrange(max(least, 1)) for _ in marks[p]] for p in declared.dtypes if p < len(marks)}

    def computed(change: Callable[[int], float]) -> Any:
        elements = [indices.get(place, [change(mark) for mark in one]) for place, one in enumerate(marks)]
        arrays = [np.reshape(np.asarray(one, t.dtype.numpy), t.static) for one, t in zip(elements, types, strict=True)]
        return outputs(Floats(wide=True), declared.name, attributes, arrays, list(types), results)[0]

    given = {float(mark) for place, one in enumerate(marks) if place not in indices for mark in one}
    plain, changed = computed(float), computed(_another)
    return set(np.ravel(plain).tolist()) <= given and np.array_equal(changed, _another(plain))


def _keeps_sample_type(declared: OpSpec, shapes: Sequence[Shape], attributes: Attrs, dtype: DType) -> bool:
    types = [_type(declared, place, dtype, shape) for place, shape in enumerate(shapes)]
    results = declared.result_types(types, attributes)
    return len(results) == 1 and results[0].dtype is dtype


def _another(mark: Any) -> Any:
    """Another number for each mark, and for 0, in another order."""
    return 0.5 - 0.5 * mark**2
