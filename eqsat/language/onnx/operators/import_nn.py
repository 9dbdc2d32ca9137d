"""Import of layers: windows, normalisations, softmax and attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import normal_axis
from eqsat.language.onnx.files.tensors import dtype_of
from eqsat.language.onnx.operators.derived import import_plain, stated
from eqsat.language.onnx.operators.export_reshape import runs_at_every_size
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.ops import OPS
from eqsat.language.terms import Dim, DType, Shape, Sym, product


def padding(call: Call, kernel: tuple[Dim, ...]) -> tuple[int, ...]:
    """Explicit pads, all begins, then all ends; `auto_pad` is worked out where the sizes are known."""
    spatial = len(kernel)
    auto = call.attrs.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        return tuple(call.attrs.get("pads", ())) or (0,) * (2 * spatial)
    if auto == "VALID":
        return (0,) * (2 * spatial)
    begins, ends = [], []
    for i in range(spatial):
        stride = each(call, "strides", spatial)[i]
        dilation = each(call, "dilations", spatial)[i]
        window = kernel[i]
        if isinstance(window, Sym):
            raise Unsupported("auto_pad of a kernel whose size is known by name only")
        extent = dilation * (window - 1) + 1
        if stride == 1:
            total = extent - 1
        else:
            size = call.size(0, 2 + i)
            total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        small = total // 2
        begins.append(small if auto == "SAME_UPPER" else total - small)
        ends.append(total - small if auto == "SAME_UPPER" else small)
    return (*begins, *ends)


def each(call: Call, name: str, spatial: int) -> tuple[int, ...]:
    """One number for each spatial axis, 1 where the attribute is left out."""
    return tuple(call.attrs.get(name, ())) or (1,) * spatial


def geometry(call: Call, filters: int = 1) -> dict[str, Any]:
    """The attributes of a convolution whose filters are the operand at an index."""
    spatial = len(call.shape(0)) - 2
    return {
        "strides": each(call, "strides", spatial),
        "dilations": each(call, "dilations", spatial),
        "pads": padding(call, call.shape(filters)[2:]),
        "group": call.attrs.get("group", 1),
    }


def _conv(call: Call) -> None:
    call.emit(call.op, call.value(0), call.value(1), call.optional(2), **geometry(call))


def _conv_transpose(call: Call) -> None:
    shape, filters = call.shape(0), call.shape(1)
    spatial = len(shape) - 2
    strides, dilations = each(call, "strides", spatial), each(call, "dilations", spatial)
    extra = tuple(call.attrs.get("output_padding", ())) or (0,) * spatial
    pads = tuple(call.attrs.get("pads", ())) or (0,) * (2 * spatial)
    wanted = call.attrs.get("output_shape")
    auto = call.attrs.get("auto_pad", "NOTSET")
    if wanted is not None or auto not in ("NOTSET", "", "VALID"):
        pads, extra = _transposed_pads(call, filters[2:], strides, dilations, extra, wanted, auto)
    elif auto == "VALID":
        pads = (0,) * (2 * spatial)
    call.emit(
        call.op,
        call.value(0),
        call.value(1),
        call.optional(2),
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=call.attrs.get("group", 1),
        output_padding=extra,
    )


def _transposed_pads(
    call: Call,
    kernel: tuple[Dim, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extra: tuple[int, ...],
    wanted: tuple[int, ...] | None,
    auto: str,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The pads and output padding that give the output shape asked for, by the formula of ONNX's ConvTranspose."""
    begins, ends, more = [], [], list[int]()
    spatial = len(strides)
    for i in range(spatial):
        window, size = kernel[i], call.size(0, 2 + i)
        if isinstance(window, Sym):
            raise Unsupported("a kernel whose size is known by name only")
        target = wanted[len(wanted) - spatial + i] if wanted is not None else size * strides[i]
        total = strides[i] * (size - 1) + extra[i] + (window - 1) * dilations[i] + 1 - target
        # Places that the operator does not reach are more output padding, at the end.
        more.append(extra[i] + max(-total, 0))
        if total < 0 and more[i] >= max(strides[i], dilations[i]):
            raise Unsupported("an output_shape larger than the operator reaches")
        total = max(total, 0)
        begins.append(total - total // 2 if auto != "SAME_UPPER" else total // 2)
        ends.append(total - begins[-1])
    return (*begins, *ends), tuple(more)


def _check_windows(call: Call, kernel: tuple[int, ...]) -> None:
    """Unsupported where a window is larger than its padded input: ONNX Runtime pools such ones in ceil mode."""
    spatial = len(kernel)
    pads, dilations = padding(call, kernel), each(call, "dilations", spatial)
    for i, size in enumerate(call.shape(0)[2:]):
        extent = dilations[i] * (kernel[i] - 1) + 1
        if isinstance(size, int) and size + pads[i] + pads[spatial + i] < extent:
            raise Unsupported("a window larger than the padded input")


def _pool(call: Call) -> None:
    if call.uses(1):
        raise Unsupported("the indices of MaxPool")
    attrs = pooling(call, call.op)
    try:
        call.emit(call.op, call.value(0), **attrs)
    except ShapeError as fault:
        if max(attrs["dilations"]) == 1:
            raise
        # ONNX Runtime checks pads against windows alone, and means of no elements are zeros there.
        raise Unsupported(fault.what) from fault


def pooling(call: Call, op: str) -> dict[str, Any]:
    """The attributes of a pooling of the first operand by one of our operators."""
    kernel = tuple(call.attrs["kernel_shape"])
    spatial = len(kernel)
    _check_windows(call, kernel)
    windows = {
        "kernel": kernel,
        "strides": each(call, "strides", spatial),
        "dilations": each(call, "dilations", spatial),
        "pads": padding(call, kernel),
    }
    own = {n: default for n, default in OPS[op].attrs.items() if n not in windows}
    return windows | {n: type(v)(call.attrs.get(n, v)) for n, v in own.items()}


def _global_lp_pool(call: Call) -> None:
    order = call.attrs.get("p", 2)
    if order not in (1, 2):
        raise Unsupported(f"GlobalLpPool of order {order}")
    call.emit(f"reduce_l{order}", call.value(0), axes=tuple(range(2, len(call.shape(0)))), keepdims=True)


def _softmax(call: Call) -> None:
    shape = call.shape(0)
    if call.opset >= 13:
        return call.emit(call.op, call.value(0), axis=call.axis(-1))
    axis = normal_axis(call.attrs.get("axis", 1), max(len(shape), 1))
    if all(d == 1 for d in shape[axis + 1 :]) and shape:
        return call.emit(call.op, call.value(0), axis=axis)
    # Before opset 13 everything from the axis on is one distribution.
    rows: Shape = (product(shape[:axis]), product(shape[axis:]))
    if 0 not in shape and not runs_at_every_size(rows, shape, call.opset):
        raise Unsupported("a distribution over many dims, of which no shape of that opset says which is 0")
    flat = call.make("reshape", call.value(0), shape=rows)
    return call.emit("reshape", call.make(call.op, flat, axis=1), shape=shape)


def _epsilon(call: Call) -> float:
    return float(call.attrs.get("epsilon", float(np.float32(1e-5))))


def _batch_norm(call: Call) -> None:
    if call.attrs.get("training_mode", 0) or any(call.uses(i) for i in range(1, 5)):
        raise Unsupported("BatchNormalization in training mode")
    if call.opset < 9 and not call.attrs.get("spatial", 1):
        raise Unsupported("BatchNormalization over every position alone")
    if len(call.shape(0)) < 2:
        raise Unsupported("BatchNormalization of a vector, which ONNX Runtime takes for one channel")
    import_plain(call)


def _layer_norm(call: Call) -> None:
    if call.uses(1) or call.uses(2):
        _statistics(call, call.axis(-1))
    _normalised(call)


def _normalised(call: Call) -> None:
    emit_normalised(call, call.op, call.value(0), call.value(1), call.optional(2), **stated(call, call.op))


def emit_normalised(call: Call, op: str, x: str, scale: str, bias: str | None = None, **attrs: Any) -> None:
    """Emit a normalisation over the last axes, with a scale of ones where scale or bias differs along others."""
    shapes = [call.type_of(one).shape for one in (x, scale, *([bias] if bias else []))]
    last = None if shapes[0] is None else shapes[0][attrs["axis"] :]
    if last is None or all(d == 1 for shape in shapes[1:] if shape is not None for d in shape[: -len(last)]):
        return call.emit(op, x, scale, bias, **attrs)
    ones = call.make("expand", call.number(1.0, call.type_of(scale).dtype), shape=last)
    scaled = call.make(op, x, ones, **attrs)
    if bias is None:
        return call.emit("mul", scaled, scale)
    return call.emit("add", call.make("mul", scaled, scale), bias)


def _statistics(call: Call, axis: int) -> None:
    """Emit the mean and the reciprocal of the deviation that a normalisation of floats of 32 bits divides by."""
    if call.type(0).dtype is not DType.FLOAT32 or call.attrs.get("stash_type", 1) != 1:
        raise Unsupported(f"the mean and deviation of {call.type(0).dtype.value}, in a precision of their own")
    over: dict[str, Any] = {"axes": tuple(range(axis, len(call.shape(0)))), "keepdims": True}
    mean = call.node.output[1] if call.uses(1) else call.unused(1)
    call.emit("reduce_mean", call.value(0), outputs=[mean], **over)
    if not call.uses(2):
        return
    centred = call.make("sub", call.value(0), mean)
    variance = call.make("reduce_mean", call.make("mul", centred, centred), **over)
    deviation = call.make("sqrt", call.make("add", variance, call.number(_epsilon(call), DType.FLOAT32)))
    call.emit("reciprocal", deviation, outputs=[call.node.output[2]])


def _group_norm(call: Call) -> None:
    groups = call.attrs["num_groups"]
    gains = [call.value(1), call.value(2)]
    if any(len(call.shape(i)) != 1 for i in (1, 2)):
        raise Unsupported("ONNX Runtime spreads a gain or bias that is no vector, and ONNX has none")
    dtype = call.type(0).dtype
    precision = dtype_of(call.attrs.get("stash_type", 1)) if call.opset >= 21 else dtype
    if precision is not dtype and DType.FLOAT64 in (precision, dtype):
        raise Unsupported(f"the mean and deviation of {dtype.value}, in a precision of their own")
    if call.opset < 21:
        # Then there was a gain and a bias for each group.
        channels = call.size(0, 1)
        for i, given in enumerate(gains):
            column = call.make("reshape", given, shape=(groups, 1))
            wide = call.make("expand", column, shape=(groups, channels // groups))
            gains[i] = call.make("reshape", wide, shape=(channels,))
    call.emit(call.op, call.value(0), *gains, groups=groups, epsilon=_epsilon(call))


def _mvn(call: Call) -> None:
    rank = len(call.shape(0))
    if not all(-rank <= a < rank for a in call.attrs.get("axes", (0, 2, 3))):
        raise Unsupported("axes that the operand does not have, which ONNX Runtime takes")
    call.emit(call.op, call.value(0), axes=tuple(normal_axis(a, rank) for a in call.attrs.get("axes", (0, 2, 3))))


IMPORTS: Mapping[str, Importer] = {
    **dict.fromkeys(("InstanceNormalization", "LpNormalization", "LRN"), import_plain),
    "RMSNormalization": _normalised,
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalLpPool": _global_lp_pool,
    "GroupNormalization": _group_norm,
    "Hardmax": _softmax,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax,
    "LpPool": _pool,
    "MaxPool": _pool,
    "MeanVarianceNormalization": _mvn,
    "Softmax": _softmax,
}
