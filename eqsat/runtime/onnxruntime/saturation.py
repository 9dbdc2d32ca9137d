"""Overflow of sums of products in ONNX Runtime's kernels on integers, as some processors have it."""

from __future__ import annotations

from functools import cache

import numpy as np

#: Rows of a product long enough that kernels add products in pairs.
_LONG = 64


@cache
def saturates() -> bool:
    """Return whether a product of uint8 by int8 is wrong where pairs of products pass 16 bits: tried on this machine.

    Processors without instructions for sums of four products add two in 16 bits, which hold no 2 · 255 · 127. Weights
    of 7 bits, up to 64, never come to that.
    """
    from eqsat.language.graphs.builder import Builder
    from eqsat.runtime.onnxruntime.session import SessionBackend

    draft = Builder("saturation")
    a = draft.input("a", (4, _LONG), "uint8")
    weights = draft.constant(np.full((_LONG, _LONG), 127, np.int8))
    draft.output("y", draft.apply("matmul_integer", a, weights))
    sums = SessionBackend().compile(draft.build(), threads=1).run({"a": np.full((4, _LONG), 255, np.uint8)})["y"]
    return bool(np.any(sums != _LONG * 255 * 127))
