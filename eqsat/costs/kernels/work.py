"""The work of one operator, counted from its types: arithmetic, bytes, elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, Attrs, TensorType, evaluate

#: Channels in one block of the layout that ONNX Runtime convolves in on processors with AVX-512.
BLOCK_CHANNELS = 16


@dataclass(frozen=True, slots=True)
class Work:
    """Operations, bytes read and written, those of constant operands among them, and elements gone through.

    `variant` is the operator, with the case of it that has a speed of its own, such as "conv/depthwise"; `dtype` is the
    element type the arithmetic is done in. `inner` is the innermost dim of the first operand, `spread` how many times
    the smallest operand fits into the largest, which is more than 1 where one is broadcast. It takes so many launches,
    in kernels that reach a `share` of the arithmetic that others of the device do.
    """

    variant: str
    dtype: str
    flops: int = 0
    bytes: int = 0
    weight_bytes: int = 0
    elements: int = 0
    inner: int = 0
    spread: float = 1.0
    launches: int = 1
    share: float = 1.0


def work_of(
    op: str,
    attrs: Mapping[str, Any],
    operands: Sequence[TensorType | None],
    results: Sequence[TensorType | None],
    const_operands: Sequence[bool],
) -> Work:
    """The work of one operator on static types; tensors of unknown shape count as nothing.

    An operator that only moves elements reads no more of a tensor than it writes, so a gather from a large table costs
    the elements gathered.
    """
    declared = OPS.get(op)
    written = sum(_bytes(t) for t in results)
    reads = [_bytes(t) for t in operands]
    produced = sum(_elements(t) for t in results)
    if declared is not None and declared.movement:
        reads = [min(r, written) for r in reads]
        elements = produced
    else:
        data = [_elements(t) for t, const in zip(operands, const_operands, strict=True) if not const]
        elements = max([produced, *data])
    weights = sum(r for r, const in zip(reads, const_operands, strict=True) if const)
    first = next((t for t in (*operands, *results) if t is not None), None)
    return Work(
        variant=_variant(op, attrs, operands, const_operands),
        dtype="float32" if first is None else first.dtype.value,
        flops=_flops(declared, attrs, operands, results, elements),
        bytes=sum(reads) + written,
        weight_bytes=weights,
        elements=elements,
        inner=_inner(operands),
        spread=_spread(operands),
    )


def family(op: str) -> str:
    """The operator under whose name `work_of` puts the variants of this one; gemm runs at the speed of matmul.

    >>> family("gemm"), family("conv")
    ('matmul', 'conv')
    """
    declared = OPS.get(op)
    return (declared.family if declared is not None else "") or op


def _known(type: TensorType | None) -> bool:
    return type is not None and type.is_static


def _elements(type: TensorType | None) -> int:
    return evaluate(type.size, {}) if type is not None and type.is_static else 0


def _inner(operands: Sequence[TensorType | None]) -> int:
    first = operands[0] if operands else None
    return first.static[-1] if first is not None and first.is_static and first.static else 1


def _spread(operands: Sequence[TensorType | None]) -> float:
    sizes = [max(1, _elements(t)) for t in operands if t is not None]
    return max(sizes) / min(sizes) if sizes else 1.0


def _bytes(type: TensorType | None) -> int:
    return _elements(type) * (type.dtype.itemsize if type is not None else 0)


def _flops(
    declared: OpSpec | None,
    attrs: Mapping[str, Any],
    operands: Sequence[TensorType | None],
    results: Sequence[TensorType | None],
    elements: int,
) -> int:
    """The operator's own count, or one an element for an operator that computes and states none."""
    if declared is None or declared.name == OPAQUE or declared.movement:
        return 0
    typed = [t for t in results if t is not None and t.is_static]
    if declared.flops is None or len(typed) < len(results) or not all(t is None or _known(t) for t in operands):
        return elements
    try:
        return evaluate(declared.flops(operands, typed, Attrs(attrs)), {})
    except (ShapeError, KeyError):
        return elements


def _variant(
    op: str, attrs: Mapping[str, Any], operands: Sequence[TensorType | None], const_operands: Sequence[bool]
) -> str:
    """The operator or case of it whose speed this is, under the name of its family."""
    if op == "conv" and attrs.get("group", 1) > 1:
        filters = operands[1]
        per_group = filters.dims[1] if filters is not None and filters.shape else 1
        if per_group == 1:
            return "conv/depthwise"
        # Blocked layouts hold this many channels together; narrower groups fall back to another kernel.
        return "conv/narrow" if isinstance(per_group, int) and per_group < BLOCK_CHANNELS else "conv"
    if family(op) == "matmul":
        return "matmul" if const_operands[1] else "matmul/dynamic"
    if op == "pow" and const_operands[1] and _elements(operands[1]) == 1:
        return "pow/constant"
    return op
