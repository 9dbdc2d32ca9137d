"""Products, convolutions, pools, normalisations and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, RefusedError, Value

_WIDE = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")


def weight(g: Growing, x: Value, *shape: int) -> Value:
    return g.constant(g.numbers.array(x.dtype, shape))


def matmul(g: Growing) -> None:
    x = g.pick("f" if g.flip(0.9) or g.opset < 9 else "i", least=1)
    if g.flip(0.3):
        partners = [v for v in g.values if v.dtype == x.dtype and v.rank >= 1 and v.shape[-2:][0] == x.shape[-1]]
        if partners:
            y = g.among(partners)
            g.add("MatMul", [x, y])
            return
    left = g.flip(0.2) and x.rank >= 2 and not x.free(-2)
    if (x.free(-2) if left else x.free(-1)) or x.dtype.name in ("int8", "int16"):
        raise RefusedError("a product over a free dim with a constant")
    size = x.shape[-2] if left else x.shape[-1]
    other = g.integer(1, 6)
    batch = g.smaller(x)[:-2] if x.rank > 2 and g.flip(0.25) else ()
    shape = (size,) if g.flip(0.05) else (*batch, other, size) if left else (*batch, size, other)
    y = weight(g, x, *shape)
    g.add("MatMul", [y, x] if left else [x, y])


def gemm(g: Growing) -> None:
    x = g.pick("f" if g.flip(0.85) or g.opset < 9 else "i", 2)
    turned = g.flip(0.3)
    if x.free(0 if turned else 1):
        raise RefusedError("a product over a free dim with a constant")
    size, other, turned_too = x.shape[0 if turned else 1], g.integer(1, 5), g.flip()
    y = weight(g, x, *((other, size) if turned_too else (size, other)))
    shape = g.among([(other,), (1, other), (), (1,), None])
    added = None if shape is None and g.opset >= 11 else weight(g, x, *(shape or (other,)))
    scale = {k: g.among([None, 1.0, 0.5, 2.0, 0.0, -1.0]) for k in ("alpha", "beta")}
    flags = {"transA": 1 if turned else None, "transB": 1 if turned_too else None}
    g.add("Gemm", [x, y, added], **scale, **flags)


def conv(g: Growing) -> Value:
    """A convolution with constant filters, now and then grouped, strided, dilated or padded."""
    spatial = g.among([1, 2, 2, 2, 3])
    x = _image(g, spatial)
    group = x.shape[1] if g.flip(0.2) else 1
    filters = group * g.integer(1, 3) if group > 1 else g.integer(1, 4)
    kernel = [g.among([1, 1, 2, 3]) for _ in range(spatial)]
    operands: list[Value | None] = [x, weight(g, x, filters, x.shape[1] // group, *kernel)]
    if g.flip(0.5):
        operands.append(weight(g, x, filters))
    if g.flip(0.15):
        shape = (x.shape[1], filters, *kernel)
        return g.add("ConvTranspose", [x, weight(g, x, *shape)], **_windows(g, spatial, transposed=True))[0]
    more = {"group": group} if group > 1 else {}
    return g.add("Conv", operands, **_windows(g, spatial), **more)[0]


def _conv(g: Growing) -> None:
    conv(g)


def _image(g: Growing, spatial: int) -> Value:
    """A value of images with a known number of channels."""
    x = g.pick("f", spatial + 2)
    if x.free(1) or x.shape[1] == 0 or x.dtype == np.float16:
        sizes: list[int | str] = [
            g.among([1, 2, "n"]),
            g.integer(1, 4),
            *(g.among([3, 4, 5, 6]) for _ in range(spatial)),
        ]
        x = g.input(np.float32, sizes)
    return x


def _windows(g: Growing, spatial: int, *, transposed: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if g.flip(0.4):
        found["strides"] = [g.among([1, 2]) for _ in range(spatial)]
    if g.flip(0.2):
        found["dilations"] = [g.among([1, 2]) for _ in range(spatial)]
    draw = g.integer(0, 3)
    if draw == 0:
        found["pads"] = [g.among([0, 1]) for _ in range(2 * spatial)]
    elif draw == 1 and not transposed:
        found["auto_pad"] = g.among(["SAME_UPPER", "SAME_LOWER", "VALID"])
        found.pop("dilations", None)
    return found


def _pool(g: Growing) -> None:
    spatial = g.among([1, 2, 2, 3])
    x = _image(g, spatial)
    op_type = g.among(
        ["MaxPool", "AveragePool", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"]
    )
    if op_type.startswith("Global"):
        g.add(op_type, [x])
        return
    attrs = {k: v for k, v in _windows(g, spatial).items() if k != "dilations"}
    attrs["kernel_shape"] = [g.among([1, 2, 2, 3]) for _ in range(spatial)]
    if op_type == "AveragePool":
        attrs["count_include_pad"] = g.among([None, 0, 1])
    if g.opset >= 10 and op_type != "LpPool":
        attrs["ceil_mode"] = g.among([None, 0, 1])
    outputs = 2 if op_type == "MaxPool" and g.opset >= 8 and g.flip(0.1) else 1
    g.add(op_type, [x], outputs=outputs, **attrs)


def batch_norm(g: Growing, x: Value | None = None) -> None:
    """Batch normalisation by constants."""
    x = x or _image(g, 2)
    gain, bias, mean = (weight(g, x, x.shape[1]) for _ in range(3))
    variance = g.constant(g.numbers.positive(x.dtype, (x.shape[1],)))
    g.add("BatchNormalization", [x, gain, bias, mean, variance], epsilon=g.among([None, 1e-3]))


def conv_and_batch_norm(g: Growing) -> None:
    y = conv(g)
    batch_norm(g, y)
    if g.flip(0.4):
        g.add("Relu", [g.values[-1]])


def _normalisation(g: Growing) -> None:
    op_type = g.among(["InstanceNormalization", "LRN", "LpNormalization", "LayerNormalization", "GroupNormalization",
                       "RMSNormalization", "MeanVarianceNormalization"])  # fmt: skip
    if not g.has(op_type):
        raise RefusedError(op_type)
    if op_type in ("LayerNormalization", "RMSNormalization"):
        x = g.pick("f", least=1)
        if x.free(-1):
            raise RefusedError("a gain over a free dim")
        more = [weight(g, x, x.shape[-1]) for _ in range(2 if op_type[0] == "L" and g.flip(0.7) else 1)]
        outputs = 3 if op_type[0] == "L" and g.flip(0.1) else 1
        g.add(op_type, [x, *more], outputs=outputs, axis=g.among([None, -1]), epsilon=g.among([None, 1e-3]))
        return
    if op_type == "LpNormalization":
        g.add(op_type, [g.pick("f", least=1)], axis=g.among([None, -1, 0]), p=g.among([None, 1, 2]))
        return
    x = _image(g, 2)
    if op_type == "LRN":
        g.add(op_type, [x], size=g.among([1, 3]), alpha=g.among([None, 0.1]), beta=g.among([None, 0.5]))
    elif op_type == "MeanVarianceNormalization":
        g.add(op_type, [x], axes=g.among([None, [0, 2, 3], [1]]))
    elif op_type == "GroupNormalization":
        size = x.shape[1] if g.opset >= 21 else 1
        g.add(
            op_type,
            [x, weight(g, x, size), weight(g, x, size)],
            num_groups=1 if g.opset < 21 else g.among([1, x.shape[1]]),
        )
    else:
        g.add(op_type, [x, weight(g, x, x.shape[1]), weight(g, x, x.shape[1])])


def axes_of(g: Growing, x: Value) -> list[int] | None:
    found = sorted({g.integer(0, x.rank - 1) for _ in range(g.integer(1, 2))}) if x.rank and g.flip(0.85) else None
    return [a - x.rank for a in found] if found and g.flip(0.2) and g.opset >= 11 else found


def reduce(g: Growing, op_type: str | None = None, x: Value | None = None) -> Value:
    op_type = op_type or f"Reduce{g.among(_WIDE if g.flip(0.5) else ('Sum', 'Mean', 'Max', 'Min'))}"
    integers = op_type in (
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceMean",
        "ReduceProd",
        "ReduceL1",
        "ReduceSumSquare",
    )
    x = x or g.pick("i" if integers and g.flip(0.2) else "f")
    axes, keep = axes_of(g, x), g.among([None, 0, 1])
    if g.opset < (13 if op_type == "ReduceSum" else 18):
        return g.add(op_type, [x], axes=axes, keepdims=keep)[0]
    noop = 1 if axes is None and g.flip(0.3) else None
    return g.add(op_type, [x, *([g.integers(axes)] if axes else [])], keepdims=keep, noop_with_empty_axes=noop)[0]


def _reduce(g: Growing) -> None:
    reduce(g)


def _softmax(g: Growing) -> None:
    x = g.pick("f", least=1)
    axis = None if g.flip(0.4) else g.integer(0 if g.opset < 11 else -x.rank, x.rank - 1)
    g.add(g.among(["Softmax", "Softmax", "LogSoftmax", "Hardmax"]), [x], axis=axis)


def _chosen(g: Growing) -> None:
    """ArgMax, TopK and running sums."""
    x = g.pick("f" if g.flip(0.8) else "i", least=1)
    axis = g.integer(0, x.rank - 1)
    match g.integer(0, 2):
        case 0:
            last = g.among([None, 0, 1]) if g.opset >= 12 else None
            g.add(g.among(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=g.among([None, 0, 1]), select_last_index=last)
        case 1:
            size = 1 if x.free(axis) else g.integer(0 if g.flip(0.1) else min(1, x.shape[axis]), x.shape[axis])
            if g.opset < 10:
                g.add("TopK", [x], outputs=2, axis=axis, k=max(size, 1))
            else:
                extra = {"largest": g.among([None, 0, 1])} if g.opset >= 11 else {}
                g.add("TopK", [x, g.integers([size])], outputs=2, axis=axis, **extra)
        case _:
            if g.opset < 11:
                raise RefusedError("opset")
            flags = {k: g.among([None, 1]) for k in ("exclusive", "reverse")}
            g.add("CumSum", [x, g.constant(np.array(axis, np.int64))], **flags)


def _einsum(g: Growing) -> None:
    if g.opset < 12:
        raise RefusedError("opset")
    x = g.pick("f", g.among([2, 3]))
    if x.rank == 2:
        equation, size = g.among(
            [("ij,jk->ik", 1), ("ij,jk->ki", 1), ("ij->ji", None), ("ij->i", None), ("ij,kj->ik", -1)]
        )
    else:
        equation, size = g.among([("bij,jk->bik", 1), ("bij->bji", None), ("bij->b", None), ("bij,kj->bik", -1)])
    if size is None:
        g.add("Einsum", [x], equation=equation)
        return
    if x.free(-1):
        raise RefusedError("a product over a free dim with a constant")
    shape = (x.shape[-1], 3) if size == 1 else (3, x.shape[-1])
    g.add("Einsum", [x, weight(g, x, *shape)], equation=equation)


STEPS: Mapping[Step, float] = {
    matmul: 7,
    gemm: 3,
    _conv: 4,
    _pool: 2.5,
    batch_norm: 1,
    conv_and_batch_norm: 1.5,
    _normalisation: 2,
    _reduce: 6,
    _softmax: 3,
    _chosen: 2.5,
    _einsum: 0.8,
}
