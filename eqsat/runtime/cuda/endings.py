"""What libraries compute at the end of a product: scales, then a bias, then an activation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.language.types import TensorType


def ending_of(product: str, op: str, attrs: Mapping[str, Any], made: TensorType, others: Sequence[TensorType]) -> str:
    """Which ending of a product an operator is: "scale", "bias", "function", or none, which is empty.

    `others` is what it reads besides the product.

    >>> row, matrix = TensorType.of("float32", (8,)), TensorType.of("float32", (4, 8))
    >>> ending_of("matmul", "add", {}, matrix, [row]), ending_of("matmul", "add", {}, matrix, [matrix])
    ('bias', '')
    """
    if op == "relu" and product in ("matmul", "gemm", "conv"):
        return "function"
    if op == "gelu":
        return "function" if product != "conv" and attrs["approximate"] == "tanh" else ""
    if len(others) != 1 or made.shape is None or not made.shape or not others[0].is_static:
        return ""
    shape = others[0].static
    if op in ("mul", "div"):
        return "scale" if product != "conv" and math.prod(shape) == 1 else ""
    if op != "add":
        return ""
    wanted = made.dims[1] if product == "conv" else made.dims[-1]
    place = made.rank - 2 if product == "conv" else 0
    aligned = math.prod(shape) == wanted and len(shape) > place and shape[len(shape) - 1 - place] == wanted
    return "bias" if aligned else ""


def may_follow(endings: Sequence[str], ending: str) -> bool:
    """Whether an ending may come after those that a product has already."""
    if not ending or "function" in endings:
        return False
    return ending == "function" or "bias" not in endings
