"""Epilogues of a product that libraries compute: scales, then a bias, then a tensor, then an activation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eqsat.language.ops import OPS
from eqsat.language.terms.types import DType, TensorType

#: Bytes that libraries read at once where they add a tensor: so many of the channels and filters there must be.
_ALIGNMENT = 16


def epilogue_of(product: str, op: str, attrs: Mapping[str, Any], made: TensorType, others: Sequence[TensorType]) -> str:
    """The kind of epilogue of a product that an operator is: "scale", "bias", "addend", "function", or "" for none.

    `others` are its operands besides the product; an addend is as large as the result.

    >>> row, matrix = TensorType.of("float32", (8,)), TensorType.of("float32", (4, 8))
    >>> epilogue_of("matmul", "add", {}, matrix, [row]), epilogue_of("matmul", "add", {}, matrix, [matrix])
    ('bias', '')
    """
    convolution = product == "conv"
    if op == "relu" and OPS[product].product:
        return "function"
    if op == "gelu":
        return "function" if not convolution and attrs["approximate"] == "tanh" else ""
    if len(others) != 1 or made.shape is None or not made.shape:
        return ""
    whole = "addend" if convolution and op == "add" and others[0].shape == made.shape else ""
    if not others[0].is_static:
        return whole
    shape = others[0].static
    if op in ("mul", "div"):
        return "scale" if not convolution and math.prod(shape) == 1 else ""
    if op != "add":
        return ""
    wanted = made.dims[1] if convolution else made.dims[-1]
    place = made.rank - 2 if convolution else 0
    aligned = math.prod(shape) == wanted and len(shape) > place and shape[len(shape) - 1 - place] == wanted
    return "bias" if aligned else whole


def may_follow(epilogues: Sequence[str], epilogue: str) -> bool:
    """Return whether an epilogue may follow those that a product has already."""
    if not epilogue or "function" in epilogues:
        return False
    return epilogue == "function" or ("addend" not in epilogues and (epilogue == "addend" or "bias" not in epilogues))


def takes_addend(
    attrs: Mapping[str, Any], filters: TensorType, images: Iterable[tuple[str, DType]], arithmetic: str
) -> bool:
    """Return whether libraries add a tensor at the end of a convolution: channels last, on tensor cores.

    `images` are the layouts and element types of the operand, the addend and the result.

    >>> from eqsat.language.terms.types import DType
    >>> attrs, filters = {"group": 1, "activation": "none"}, TensorType.of("float32", (64, 32, 3, 3))
    >>> [takes_addend(attrs, filters, [(layout, DType.FLOAT16)], "") for layout in ("nhwc", "row")]
    [True, False]
    """
    (layout, dtype), *rest = dict.fromkeys(images)
    if rest or layout != "nhwc" or attrs["group"] != 1 or attrs["activation"] != "none" or not filters.is_static:
        return False
    return forms_addend(dtype, arithmetic) and all(n * dtype.itemsize % _ALIGNMENT == 0 for n in filters.static[:2])


def forms_addend(dtype: DType, arithmetic: str) -> bool:
    """Return whether tensor cores form products of a type in an arithmetic, after which a tensor may be added."""
    return dtype in (DType.FLOAT16, DType.BFLOAT16) or (dtype is DType.FLOAT32 and arithmetic == "tf32")
