"""Products with weights of a few bits, packed into bytes by blocks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype
from eqsat.language.ops import sampling
from eqsat.language.ops.quantised.quantisation import whole
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType

#: Bits of a number that do not straddle bytes.
BITS = (2, 4, 8)


def unpacked(x: Any, bits: int) -> Any:
    """The numbers that bytes hold along the last axis, those of the lowest bits first."""
    parts = [(whole(x) >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*x.shape[:-1], x.shape[-1] * len(parts))


def packed(numbers: Any, bits: int) -> Any:
    """Bytes that hold numbers of so many bits along the last axis, the first ones in the lowest bits.

    The last byte is filled up with zeros.

    >>> packed(np.uint8([1, 2, 3]), 4).tolist(), unpacked(np.uint8([33, 3]), 4).tolist()
    ([33, 3], [1, 2, 3, 0])
    """
    count = 8 // bits
    missing = -numbers.shape[-1] % count
    filled = np.pad(numbers.astype(np.uint8), [(0, 0)] * (numbers.ndim - 1) + [(0, missing)])
    parts = filled.reshape(*filled.shape[:-1], -1, count) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=-1)


def _blocks(attrs: Mapping[str, Any]) -> int:
    return int(-(-attrs["k"] // attrs["block"]))


def _type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    a, b, scales = (present(operands, i) for i in range(3))
    zeros, bias = (operands[i] if i < len(operands) else None for i in (3, 4))
    k, n, bits, block = (attrs[name] for name in ("k", "n", "bits", "block"))
    same_dtype([t for t in (a, scales, bias) if t is not None])
    if bits not in BITS or block * bits % 8 or b.dtype is not DType.UINT8:
        raise ShapeError(f"{bits} bits in blocks of {block} as {b.dtype.value}", expected="2, 4 or 8 bits, whole bytes")
    packed = block * bits // 8
    count = -(-_blocks(attrs) * bits // 8) if zeros is not None and zeros.dtype is DType.UINT8 else _blocks(attrs)
    wanted = ((b, n * _blocks(attrs) * packed), (scales, n * _blocks(attrs)), (zeros, n * count), (bias, n))
    for operand, size in wanted:
        if operand is not None and operand.is_static and operand.size != size:
            raise ShapeError(f"{operand} of a {k} × {n} weight in blocks of {block}", expected=f"{size} elements")
    if a.shape is None:
        return (a,)
    if not a.shape or (isinstance(a.shape[-1], int) and a.shape[-1] != k):
        raise ShapeError(f"product of {a} with a {k} × {n} weight", expected=f"a last dim of {k}")
    return (a.with_shape((*a.shape[:-1], n)),)


def _flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    return results[0].size * (2 * int(attrs["k"]))


def _sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    full = {"bits": rng.choice(BITS), "block": 4, "n": sampling.dim(rng), **attrs}
    a = known[0]
    if a is not None and not a:
        return None
    full = {"k": a[-1] if a else rng.randint(1, 9), **full}
    count, packed = _blocks(full), full["block"] * full["bits"] // 8
    n = full["n"]
    plain = [a or (2, full["k"]), (n, count, packed), (n, count), (n, -(-count * full["bits"] // 8)), (n,)]
    return [s if s is not None else p for s, p in zip(known, plain, strict=False)], full


@op(
    infer=_type,
    flops=_flops,
    sample=_sample,
    operands=(3, 5),
    dtypes={1: "uint8", 3: "uint8"},
    deferred=True,
    shapes="…, k and weights of n by k packed in blocks become …, n.",
)
def matmul_packed(
    xp: Any,
    a: Any,
    b: Any,
    scales: Any,
    zeros: Any = None,
    bias: Any = None,
    *,
    k: int,
    n: int,
    bits: int,
    block: int,
    level: int = 0,
) -> Any:
    """Product with the transpose of a weight of n rows, each of k numbers of a few bits in blocks of their own scale.

    A number q stands for (q - zero) · scale; the zero is half of the range where none is given. Zeros are packed as the
    numbers are, or are floats. At level 4 a runtime may round the operand to int8, each block by a step of its own; the
    reference does not. Source: MatMulNBits of ONNX Runtime, and its accuracy_level.
    """
    count = -(-k // block)
    numbers = unpacked(b.reshape(n, count, block * bits // 8), bits)
    if zeros is None:
        centred = numbers - (1 << (bits - 1))
    elif zeros.dtype == np.uint8:
        centred = numbers - unpacked(zeros.reshape(n, -1), bits)[:, :count, None]
    else:
        centred = xp.subtract(numbers if xp.exact else numbers.astype(zeros.dtype), zeros.reshape(n, count, 1))
    if not xp.exact:
        centred = centred.astype(scales.dtype)
    weight = xp.multiply(centred, scales.reshape(n, count, 1)).reshape(n, count * block)[:, :k]
    product = xp.matmul(a, np.swapaxes(weight, 0, 1))
    return product if bias is None else xp.add(product, bias)
