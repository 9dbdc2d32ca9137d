"""Products of a plan whose weights are packed in blocks, written as the operator that reads such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.language.graphs.quantised import Draft
from eqsat.language.ops import spec
from eqsat.language.ops.quantised.packed import packed
from eqsat.language.terms import PACKINGS, Array, Attrs, BlockScale, Constant, DType, Held, Kernel, Node, State

#: The operators that the one on packed weights may stand for.
PACKED_PRODUCTS = ("matmul", "gemm")
#: The level at which kernels round the other operand to int8, each block of a row by a step of its own.
_LEVEL = 4


def is_packed(kernel: Kernel) -> bool:
    """Return whether a kernel reads weights that are packed in blocks."""
    return kernel.arithmetic in PACKINGS


def packs(op: str, attrs: Mapping[str, Any], bias: bool) -> bool:
    """Return whether the operator on packed weights computes a product with these attributes.

    >>> packs("matmul", {}, False), packs("gemm", {"alpha": 2.0, "trans_a": False}, False), packs("conv", {}, False)
    (True, False, False)
    """
    if op == "matmul":
        return True
    scaled = attrs.get("alpha", 1.0) != 1.0 or (bias and attrs.get("beta", 1.0) != 1.0)
    return op == "gemm" and not attrs["trans_a"] and not scaled and attrs.get("activation", "none") == "none"


def outputs_axis(attrs: Mapping[str, Any]) -> int:
    """The axis of the weights of a product along which its outputs lie."""
    return 0 if attrs.get("trans_b") else 1


def emit_packed(draft: Draft, kernel: Kernel, node: Node, scales: Mapping[tuple[str, str], Any]) -> str:
    """The product with packed weights; return the name of its result."""
    x, w = node.inputs[:2]
    given = None if w is None else draft.known(w)
    if x is None or w is None or given is None:
        raise TypeError(f"{node.op} has no constant weights to pack")
    scale: BlockScale = scales[w, kernel.arithmetic]
    outputs, terms = scale.steps.type.static[0], given.array.shape[1 - scale.axis]
    stem = f"{w}_{kernel.arithmetic}"
    operands: list[str | None] = [
        draft.held(Held(x, State())),
        draft.constant(stem, Constant.of(_packed_rows(scale, given.array), DType.UINT8)),
        draft.constant(f"{stem}_steps", Constant.of(scale.steps.array.astype(np.float32), DType.FLOAT32)),
    ]
    if scale.zeros is not None:
        zeros = packed(scale.zeros.array, scale.packing.bits)
        operands.append(draft.constant(f"{stem}_zeros", Constant.of(zeros, DType.UINT8)))
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    added = None if bias is None else _bias(draft, bias, scale)
    within = added is not None and bias is not None and draft.stated(bias).dims == (outputs,)
    if within:
        operands += [None] * (4 - len(operands)) + [added]
    attrs = {"k": terms, "n": outputs, "bits": scale.packing.bits, "block": scale.packing.block, "level": _LEVEL}
    result = draft.stated(node.outputs[0])
    full = Attrs(spec("matmul_packed").complete(attrs))
    (product,) = draft.emit("matmul_packed", full, tuple(operands), [result])
    if added is not None and not within:
        (product,) = draft.emit("add", Attrs(), (product, added), [result])
    return product


def _bias(draft: Draft, bias: str, scale: BlockScale) -> str:
    """The addend of a product, with what it makes up for where it is a constant."""
    given = draft.known(bias)
    if given is None or scale.shift is None:
        return draft.held(Held(bias, State()))
    return draft.constant(f"{bias}_corrected", Constant.of(scale.corrected(given.array), given.type.dtype))


def _packed_rows(scale: BlockScale, array: Array) -> Array:
    """The numbers of weights, an output after the other, each in blocks of whole bytes: (outputs, blocks, bytes)."""
    numbers = scale.quantised(array)
    rows = numbers if scale.axis == 0 else numbers.T
    packing = scale.packing
    blocks = packing.blocks(rows.shape[1])
    missing = blocks * packing.block - rows.shape[1]
    filled = np.pad(rows, ((0, 0), (0, missing)), constant_values=packing.middle)
    return np.asarray(packed(filled.reshape(len(rows), blocks, packing.block), packing.bits))
