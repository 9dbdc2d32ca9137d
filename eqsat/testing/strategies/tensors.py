"""Strategies for types, elements and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from eqsat.errors import GraphError, UsageError
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.ops import spec
from eqsat.language.terms import Array, Attrs, DType, Shape, TensorType
from eqsat.testing.strategies.choices import ChoiceSource, Draw, drawn

#: Element types that every part of eqsat computes with.
PLAIN = ("float32", "float64", "int64", "bool")
#: Elements of floats by simplicity: whole numbers before halves before quarters, small before large.
_FLOATS = np.array(sorted((k / 16 for k in range(-128, 128)), key=lambda v: (v.as_integer_ratio()[1], abs(v), v < 0)))
#: Floats on which laws of the real numbers fail.
_SPECIAL = (np.inf, -np.inf, np.nan, -0.0)
#: Number of elements of a tensor that are drawn; larger tensors repeat them, shifted.
BLOCK = 48


@st.composite
def tensor_types(
    draw: Draw,
    *,
    dtypes: Sequence[str] = ("float32",),
    ranks: tuple[int, int] = (0, 4),
    dims: tuple[int, int] = (1, 3),
) -> TensorType:
    """Types of known shape: a dtype of those named, and rank and dims from the first to the last of a range.

    Lower ranks and smaller dims are simpler; dims of 0 come with ``dims=(0, 3)``. UsageError for a range that is none.
    """
    for name, (low, high) in (("ranks", ranks), ("dims", dims)):
        if not 0 <= low <= high:
            raise UsageError(f"{name} = {(low, high)}", where="tensor_types", expected="(least, most), from 0 on")
    dtype = draw(st.sampled_from([DType.of(d) for d in dtypes]))
    return TensorType(dtype, tuple(draw(st.lists(st.integers(*dims), min_size=ranks[0], max_size=ranks[1]))))


@st.composite
def tensors(
    draw: Draw,
    type: TensorType | st.SearchStrategy[TensorType] | None = None,
    *,
    special: bool = False,
    limit: int | None = None,
) -> Array:
    """Arrays of the element type and shape of a type, or of one drawn from `tensor_types`.

    Floats are exact in every width but the narrowest; `special` adds infinities, NaN and -0. Integers lie in
    [0, limit), or in [-3, 3] without a limit, from 0 on where they have no sign. UsageError for other elements, such as
    strings.
    """
    if type is None:
        type = tensor_types()
    wanted: TensorType = draw(type) if isinstance(type, st.SearchStrategy) else type
    codes = draw(st.binary(min_size=BLOCK, max_size=BLOCK)) if wanted.size else b""
    return array(codes, wanted, special, limit)


def array(codes: bytes, type: TensorType, special: bool = False, limit: int | None = None) -> Array:
    """The array of a type that bytes stand for, 0 being the simplest; as many for small tensors as for large ones."""
    places = np.arange(int(np.prod(type.static, dtype=np.int64)))
    block: Array = np.frombuffer(codes or bytes(1), np.uint8).astype(np.int64)
    spread = (block[places % len(block)] + 89 * (places // len(block))) % 256
    result: Array = elements(spread, type.dtype, special, limit).astype(type.dtype.numpy).reshape(type.static)
    return result


def elements(codes: Array, dtype: DType, special: bool, limit: int | None) -> Any:
    """Decode bytes as elements of a dtype."""
    if dtype is DType.BOOL:
        return codes % 2 == 1
    if dtype.is_integer:
        if limit is not None:
            return codes % max(limit, 1)
        small = codes % 7
        return small % 4 if dtype.value.startswith("u") else np.where(small % 2 == 1, (small + 1) // 2, -(small // 2))
    if not dtype.is_float:
        raise UsageError(
            f"no strategy for elements of {dtype.value}", where="tensors", expected="floats, integers, bool"
        )
    values = _FLOATS[codes]
    if special:
        rare = codes >= 256 - 16 * len(_SPECIAL)
        values = np.where(rare, np.array(_SPECIAL)[codes % len(_SPECIAL)], values)
    return values


@st.composite
def attributes(draw: Draw, op: str, operand_types: Sequence[TensorType]) -> Attrs:
    """Complete attributes that an operator accepts for operands of these types, by its sample rule.

    UsageError for an operator that has none, GraphError for a name that is no operator.
    """
    declared = sampled(op)
    sample = completed(declared, ChoiceSource(drawn(draw)), [t.shape for t in operand_types], {})
    assume(sample is not None and list(sample[0]) == [t.shape for t in operand_types])
    settled = sample[1] if sample is not None else Attrs()
    try:
        declared.result_types(operand_types, settled)
    except GraphError:
        assume(False)
    return settled


def sampled(op: str) -> OpSpec:
    """An operator that has a sample rule; UsageError where it has none."""
    declared = spec(op)
    if declared.sample is None:
        raise UsageError(
            f"operator {op!r} has no sample rule",
            where=op,
            expected="one, to draw operands and attributes",
            remedy="declare it with sample=…",
        )
    return declared


def completed(
    declared: OpSpec, rng: ChoiceSource, shapes: Sequence[Shape | None], attrs: Mapping[str, Any]
) -> tuple[Sequence[Shape], Attrs] | None:
    """Operand shapes and attributes that a sample rule makes of those known; None where it gives up."""
    sample = declared.drawn(rng, shapes, attrs)
    return None if sample is None else (sample[0], declared.complete(sample[1]))
