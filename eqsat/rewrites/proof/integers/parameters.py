"""Claims of parameters, as zero points are, of operators on integers: ranks and types, looked at on samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.ops import spec
from eqsat.language.terms import DType, TensorType
from eqsat.rewrites.proof.opaque.signatures import dims_of, replaced, takes

#: How many samples are looked at, and how many of them an operator has to have.
_SAMPLES, _ENOUGH = 40, 20
#: The ranks that are looked at, and the highest of an operand that is taken for a parameter.
_RANKS, _HIGHEST = range(6), 1
_EIGHT_BITS = (DType.UINT8, DType.INT8)
_INTEGERS = (*_EIGHT_BITS, DType.INT32, DType.UINT16)


def highest_parameter_rank(declared: OpSpec, place: int, written: Mapping[str, Any]) -> int | None:
    """The highest rank of an operand that is seen to be a number, or a vector; None of one that may be more.

    Attributes that a rule writes are those of the samples, that which says what parameters are like among them.
    """
    if declared.parameters in declared.attrs and declared.parameters not in written:
        return None
    fixed = tuple(sorted((n, v) for n, v in written.items() if isinstance(v, int)))
    return _seen_to_be_parameter(declared.name, place, fixed, declared.infer) if _is_of_integers(declared) else None


def partner(declared: OpSpec, place: int) -> int | None:
    """The operand before one whose element type that is seen to have to have; None without one."""
    return _seen_to_be_alike(declared.name, place, declared.infer) if _is_of_integers(declared) else None


def _is_of_integers(declared: OpSpec) -> bool:
    return declared.is_shipped and any(map(_is_eight_bits, declared.dtypes.values()))


@cache
def _seen_to_be_parameter(name: str, place: int, fixed: tuple[tuple[str, Any], ...], _infer: InferRule) -> int | None:
    declared = spec(name)
    taken: set[int] = set()
    seen = 0
    for types, drawn in _samples(declared, place, dict(fixed)):
        attrs = declared.complete({**drawn, **dict(fixed)})
        ones = [TensorType(types[place].dtype, (1,) * rank) for rank in _RANKS]
        found = {one.rank for one in ones if takes(declared, replaced(types, place, one), attrs)}
        seen += bool(found)
        taken |= found
    return max(taken) if seen >= _ENOUGH and max(taken) <= _HIGHEST else None


@cache
def _seen_to_be_alike(name: str, place: int, _infer: InferRule) -> int | None:
    declared = spec(name)
    stated = [_is_eight_bits(declared.dtypes.get(number, "bool")) for number in range(place + 1)]
    for other in range(place):
        if not (stated[place] and stated[other]):
            continue
        seen = 0
        for types, drawn in _samples(declared, place, {}):
            attrs = declared.complete(drawn)
            taken = {
                (one, two)
                for mixed in _with_types_of_others(declared, types, (other, place))
                for one in _INTEGERS
                for two in _INTEGERS
                if takes(declared, _typed(_typed(mixed, other, one), place, two), attrs)
            }
            if any(one is not two for one, two in taken):
                break
            seen += taken >= {(one, one) for one in _EIGHT_BITS}
        else:
            if seen >= _ENOUGH:
                return other
    return None


def _with_types_of_others(
    declared: OpSpec, types: Sequence[TensorType], places: Sequence[int]
) -> Iterator[list[TensorType]]:
    """Types with all integers of eight bits, in any mixture, at places but for some."""
    others = [p for p in range(len(types)) if p not in places and _is_eight_bits(declared.dtypes.get(p, "bool"))]
    for kinds in itertools.product(_EIGHT_BITS, repeat=len(others)):
        mixed = list(types)
        for place, kind in zip(others, kinds, strict=True):
            mixed = _typed(mixed, place, kind)
        yield mixed


def _is_eight_bits(stated: str) -> bool:
    return DType.of(stated) in _EIGHT_BITS


def _samples(
    declared: OpSpec, place: int, fixed: Mapping[str, Any]
) -> list[tuple[list[TensorType], Mapping[str, Any]]]:
    """Types of operands up to one at least, and the attributes beside them."""
    rng = Random(f"parameter {place} of {declared.name}")
    drawn = [
        declared.drawn(rng, [None] * max(declared.min_operands, place + 1), fixed)
        for _ in range(_SAMPLES)
        if place < (declared.max_operands or 0)
    ]
    return [
        ([_sampled(declared, number, dims_of(shape)) for number, shape in enumerate(one[0])], one[1])
        for one in drawn
        if one is not None and len(one[0]) > place
    ]


def _sampled(declared: OpSpec, place: int, dims: tuple[int, ...]) -> TensorType:
    return TensorType.of(declared.dtypes.get(place, "float32"), dims)


def _typed(types: Sequence[TensorType], place: int, dtype: DType) -> list[TensorType]:
    return replaced(types, place, TensorType(dtype, types[place].shape))
