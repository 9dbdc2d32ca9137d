"""Claims of what an operator takes and gives: ranks, sizes and element types, each looked at on samples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

from eqsat.errors import EqsatError
from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, DType, Shape, TensorType, evaluate
from eqsat.rewrites.proof.naturality.claims import holds_on_samples
from eqsat.rewrites.proof.opaque.layout import layout

#: The ranks that are looked at for whether an operator refuses them.
_RANKS = range(6)
#: How many samples show the ranks that an operand may have.
_TRIES = 10


def keeps_shape(declared: OpSpec) -> bool:
    """True if the result is as large as the first operand along every axis."""
    return _seen_to_keep_shape(declared.name, declared.infer)


@cache
def _seen_to_keep_shape(name: str, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        types = [TensorType(DType.FLOAT64, dims_of(shape)) for shape in shapes]
        return declared.result_types(types, declared.complete(drawn)) == (types[0],)

    return holds_on_samples(spec(name), f"shape {name}", holds)


def has_ranks_of_form(declared: OpSpec) -> bool:
    """True if an operator is seen to refuse operands of all ranks that its index form does not have."""
    form = declared.form
    return (
        form is not None
        and not declared.pointwise
        and _seen_to_refuse_ranks(declared.name, declared.infer, declared.index)
    )


@cache
def _seen_to_refuse_ranks(name: str, _infer: InferRule, _index: str) -> bool:
    refused: dict[tuple[int, str], bool] = {}

    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        attrs = declared.complete(drawn)
        key = (len(shapes), repr(attrs))  # of sizes it asks nothing
        if key not in refused:
            refused[key] = refuses_ranks(declared, len(shapes), attrs)
        return refused[key] and _refuses_high_ranks(declared, shapes, attrs)

    return holds_on_samples(spec(name), f"ranks {name}", holds)


def refuses_ranks(declared: OpSpec, count: int, attrs: Attrs) -> bool:
    """True if no ranks are taken that the index form does not have."""
    return all(
        layout(declared, attrs, ranks) is not None
        or not takes(declared, [TensorType(DType.FLOAT64, (1,) * rank) for rank in ranks], attrs)
        for ranks in itertools.product(_RANKS, repeat=count)
    )


def highest_rank(declared: OpSpec, place: int) -> int | None:
    """The highest rank that an operator is seen to take of an operand without a term in its form; None without one."""
    taken = _seen_to_take_ranks(declared.name, place, declared.infer)
    return max(taken) if taken and max(taken) < _RANKS[-1] else None


@cache
def _seen_to_take_ranks(name: str, place: int, _infer: InferRule) -> frozenset[int]:
    declared, rng = spec(name), Random(name)
    taken: set[int] = set()
    for _ in range(_TRIES):
        drawn = declared.drawn(rng, [None] * declared.min_operands, {})
        if drawn is None or place != declared.min_operands:
            return frozenset()
        types = [TensorType(DType.FLOAT64, dims_of(shape)) for shape in drawn[0]]
        attrs = declared.complete(drawn[1])
        taken |= {r for r in _RANKS if takes(declared, [*types, TensorType(DType.FLOAT64, (1,) * r)], attrs)}
    return frozenset(taken)


def _refuses_high_ranks(declared: OpSpec, shapes: Sequence[Shape], attrs: Attrs) -> bool:
    """True if what is added to the result may have no more axes than its term of the form."""
    form = declared.form
    assert form is not None
    types = [TensorType(DType.FLOAT64, (1,) * len(shape)) for shape in shapes]
    return not any(
        term.added and term.indices and takes(declared, [*types, TensorType(DType.FLOAT64, (1,) * rank)], attrs)
        for term in form.terms
        for rank in _RANKS
        if rank > term.fixed
    )


def takes_several_types(declared: OpSpec) -> bool:
    """True if operands may differ in element type, the result being of that of the first."""
    return _seen_to_mix(declared.name, declared.infer)


def refuses_several_types(declared: OpSpec) -> bool:
    """True if no operand may differ in element type from the others."""
    return declared.is_shipped and not declared.dtypes and _seen_to_refuse_mixed(declared.name, declared.infer)


@cache
def _seen_to_refuse_mixed(name: str, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        return not any(may_differ(declared, shapes, drawn))

    return holds_on_samples(spec(name), f"mixed {name}", holds)


@cache
def _seen_to_mix(name: str, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        return all(may_differ(declared, shapes, drawn))

    return holds_on_samples(spec(name), f"mixed {name}", holds)


def may_differ(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any]) -> list[bool]:
    """For each operand, whether it may be of another type than the others without changing that of the result."""
    attrs = declared.complete(drawn)
    types = [TensorType(DType.FLOAT64, dims_of(shape)) for shape in shapes]
    found = []
    for place, one in enumerate(types) if len(types) > 1 else ():
        mixed = replaced(types, place, TensorType(DType.FLOAT32, one.shape))
        found.append(takes(declared, mixed, attrs) and declared.result_types(mixed, attrs)[0].dtype is mixed[0].dtype)
    return found


def dims_of(shape: Shape) -> tuple[int, ...]:
    """The dims of a sample."""
    return tuple(evaluate(dim, {}) for dim in shape)


def replaced(types: Sequence[TensorType], place: int, other: TensorType) -> list[TensorType]:
    """Types with another at one place."""
    return [*types[:place], other, *types[place + 1 :]]


def takes(declared: OpSpec, types: Sequence[TensorType], attrs: Attrs) -> bool:
    """True if an operator has a result type for these."""
    try:
        declared.result_types(types, attrs)
    except (EqsatError, ArithmeticError, LookupError, TypeError, ValueError):
        return False
    return True
