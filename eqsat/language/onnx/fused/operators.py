"""ONNX Runtime's operators that ONNX writes as several: the operands they take, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.language.onnx.write.exporting import ExportTarget
from eqsat.language.terms import Attrs, Constant, DType, TensorType

#: The domain of ONNX Runtime's own operators, and its version.
DOMAIN, VERSION = "com.microsoft", 1

_HEADS_BEFORE_LENGTH = (0, 2, 1, 3)


@dataclass(frozen=True)
class Fused:
    """An operator of ONNX Runtime's own: its name, where it stands for one of ours, and how it is written."""

    name: str
    takes: Callable[[Attrs, Sequence[TensorType | None]], bool]
    write: Callable[[ExportTarget], None]


def _takes_heads(attrs: Attrs, operands: Sequence[TensorType | None]) -> bool:
    """As many heads of keys as of queries, all as wide, in float32, and a mask of numbers if any.

    A mask of truth values would have to be turned into one of numbers. A scale of 0 stands for the default there, and
    what may look at nothing is NaN, as softmax makes it. Where queries look at no later key, there are as many of both:
    of others ONNX Runtime makes something else than ONNX.
    """
    query, key, value = operands[:3]
    if (
        attrs["scale"] == 0
        or attrs["hidden"] == "zero"
        or (attrs["causal"] and any(t is not None for t in operands[3:]))
    ):
        return False
    if query is None or key is None or value is None or any(t is None or t.shape is None for t in (query, key, value)):
        return False
    if not all(t is None or (t.dtype is DType.FLOAT32 and t.shape is not None) for t in operands):
        return False
    heads, width = query.dims[1], query.dims[3]
    if attrs["causal"] and query.dims[2] != key.dims[2]:
        return False
    known = isinstance(heads, int) and isinstance(width, int) and heads > 0 and width > 0
    return known and key.dims[1] == value.dims[1] == heads and key.dims[3] == value.dims[3] == width


def _write_heads(target: ExportTarget) -> None:
    """Attention of heads that are an axis of their own: queries and result are brought to three axes."""
    query = target.type(0)
    heads, width = int(str(query.dims[1])), int(str(query.dims[3]))
    moved = target.make("Transpose", target.input(0), perm=_HEADS_BEFORE_LENGTH)
    others = (*target.inputs[1:3], *_mask(target, ("", "")))
    joined = target.make("Reshape", moved, target.shape((query.dims[0], query.dims[2], heads * width)))
    attended = target.make_fused(DOMAIN, "MultiHeadAttention", joined, *others, **_attributes(target, heads))
    apart = target.make("Reshape", attended, target.shape((query.dims[0], query.dims[2], heads, width)))
    target.emit("Transpose", apart, perm=_HEADS_BEFORE_LENGTH)


def write_joined(target: ExportTarget, heads: int, weights: Sequence[Constant], biases: Sequence[Constant]) -> None:
    """Attention of heads that lie side by side in the last of three axes.

    With `weights`, of products of the first operand and these, plus the biases, if any: by one product with all three.
    """
    if not weights:
        operands = (target.input(0), *target.inputs[1:3], *_mask(target, ("", "")))
        target.emit_fused(DOMAIN, "MultiHeadAttention", *operands, **_attributes(target, heads))
        return
    sizes = [int(str(w.type.dims[1])) for w in weights]
    weight = target.model.parameter(np.concatenate([w.array for w in weights], axis=1), DType.FLOAT32)
    added = np.concatenate([b.array for b in biases]) if biases else np.zeros(sum(sizes), np.float32)
    bias = target.model.parameter(added, DType.FLOAT32)
    values = {**_attributes(target, heads), "qkv_hidden_sizes": sizes}
    target.emit_fused(DOMAIN, "Attention", target.input(0), weight, bias, *_mask(target, ("", "")), **values)


def _attributes(target: ExportTarget, heads: int) -> dict[str, object]:
    scale = target.attrs["scale"]
    values: dict[str, object] = {"num_heads": heads, **({} if scale is None else {"scale": scale})}
    return {**values, "unidirectional": 1} if target.attrs["causal"] else values


def _mask(target: ExportTarget, before: tuple[str, ...]) -> tuple[str, ...]:
    """The mask, if there is one, after operands left out: with four axes, the last two being queries and keys."""
    if not target.input(3):
        return ()
    queries = target.type(0)
    keys = target.type(1) if target.input(1) else queries
    length = -2 if queries.rank == 4 else 1
    dims = target.type(3).dims
    batch, heads = ((1,) * 4 + dims)[-4:-2]
    wanted = (batch, heads, queries.dims[length], keys.dims[length])
    mask = target.input(3)
    return (*before, mask if dims == wanted else target.make("Expand", mask, target.shape(wanted)))


def _is_float32(attrs: Attrs, operands: Sequence[TensorType | None]) -> bool:
    return all(t is not None and t.dtype is DType.FLOAT32 for t in operands)


def _write_silu(target: ExportTarget) -> None:
    """A product with a sigmoid, where the opset has no operator for both."""
    x, alpha = target.input(0), target.attrs["alpha"]
    if target.knows("Swish"):
        target.emit("Swish", x, **({"alpha": alpha} if alpha != 1.0 else {}))
    else:
        target.emit_fused(DOMAIN, "QuickGelu", x, alpha=alpha)


FUSED: Mapping[str, Fused] = {
    "attention": Fused("MultiHeadAttention", _takes_heads, _write_heads),
    "silu": Fused("QuickGelu", _is_float32, _write_silu),
}
