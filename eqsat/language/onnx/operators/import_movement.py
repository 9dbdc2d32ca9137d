"""Import of operators that move elements, whose shapes and axes become attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto

from eqsat.errors import ShapeError
from eqsat.language.declaration import normal_axis
from eqsat.language.declaration.symbolic import at_least, minimum
from eqsat.language.graphs.fold import FOLDED_BYTES
from eqsat.language.onnx.files.tensors import ExternalData, constant_of, dense_of, dtype_of
from eqsat.language.onnx.operators.derived import import_as, import_plain
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported, integer
from eqsat.language.terms import (
    Constant,
    Dim,
    DType,
    Shape,
    Sym,
    broadcast_shapes,
    ceildiv,
    dim_max,
    exact_quotient,
    floordiv,
    polynomial_quotient,
    product,
)

#: From here on a bound means the end of a dim that is known by name only: ONNX recommends the largest int32 for it.
_FAR = (1 << 31) - 1
_GREATEST = (_FAR, (1 << 63) - 1)


def _reshape(call: Call) -> None:
    wanted = list(call.dims(1))
    source = call.type(0).shape
    keep_zero = bool(call.attrs.get("allowzero", 0))
    for i, dim in enumerate(wanted):
        if dim == 0 and not keep_zero:
            if source is None or i >= len(source):
                raise Unsupported("a dim is copied from a shape that is unknown")
            wanted[i] = source[i]
    if -1 in wanted:
        if source is None:
            raise Unsupported("a dim is worked out from a shape that is unknown")
        at = wanted.index(-1)
        others = product(d for i, d in enumerate(wanted) if i != at)
        wanted[at] = _quotient(product(source), others)
    call.emit(call.op, call.value(0), shape=tuple(wanted))


def _quotient(total: Dim, others: Dim) -> Dim:
    if others == 0:
        raise Unsupported("a dim of an empty tensor is left open")
    exact = polynomial_quotient(total, others)
    return floordiv(total, others) if exact is None else exact


def _flatten(call: Call) -> None:
    shape = call.shape(0)
    axis = call.attrs.get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    call.emit("reshape", call.value(0), shape=(product(shape[:axis]), product(shape[axis:])))


def _axes(call: Call, since: int, rank: int) -> tuple[int, ...] | None:
    """Axes that are an attribute before an opset and an operand from it on; None where there are none."""
    axes = call.attrs.get("axes")
    if call.opset >= since:
        axes = call.integers(1) if call.has(1) else None
    return None if axes is None else tuple(normal_axis(a, rank) for a in axes)


def _squeeze(call: Call) -> None:
    shape = call.shape(0)
    axes = _axes(call, 13, len(shape))
    if axes is None:
        if any(isinstance(d, Sym) for d in shape):
            raise Unsupported("which dims are 1 depends on named dims")
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
    if any(isinstance(shape[a], Sym) for a in axes):
        raise Unsupported("a squeezed dim is known by name only")
    call.emit("reshape", call.value(0), shape=tuple(d for i, d in enumerate(shape) if i not in axes))


def _unsqueeze(call: Call) -> None:
    shape = call.shape(0)
    given = call.integers(1) if call.opset >= 13 else call.attrs.get("axes", ())
    rank = len(shape) + len(given)
    axes = {normal_axis(a, rank) for a in given}
    if len(axes) != len(given):
        raise ShapeError(f"axes {list(given)} name one axis twice", expected="different axes")
    rest = iter(shape)
    call.emit("reshape", call.value(0), shape=tuple(1 if i in axes else next(rest) for i in range(rank)))


def _expand(call: Call) -> None:
    call.emit(call.op, call.value(0), shape=broadcast_shapes(call.shape(0), call.dims(1)))


def _tile(call: Call) -> None:
    call.emit(call.op, call.value(0), repeats=call.dims(1))


def _transpose(call: Call) -> None:
    rank = len(call.shape(0)) if "perm" not in call.attrs else 0
    call.emit(call.op, call.value(0), perm=call.attrs.get("perm", tuple(reversed(range(rank)))))


def _split(call: Call) -> None:
    axis = call.axis(0)
    count = len(call.node.output)
    sizes = call.attrs.get("split")
    if call.opset >= 13:
        sizes = call.dims(1) if call.has(1) else None
    if sizes is None:
        sizes = _even_sizes(call.shape(0)[axis], count)
    outputs = [o or call.unused(i) for i, o in enumerate(call.node.output)]
    call.emit(call.op, call.value(0), outputs=outputs, axis=axis, sizes=tuple(sizes))


def _even_sizes(dim: Dim, count: int) -> Shape:
    if isinstance(dim, Sym):
        part = exact_quotient(dim, count)
        if part is None:
            raise Unsupported(f"{dim} in {count} parts")
        return (part,) * count
    part = -(-dim // count)
    return tuple(max(0, min(part, dim - i * part)) for i in range(count))


def _slice(call: Call) -> None:
    shape = call.shape(0)
    if call.opset >= 10:
        starts, ends = call.dims(1), call.dims(2)
        axes: Any = call.integers(3) if call.has(3) else range(len(starts))
        steps = call.integers(4) if call.has(4) else (1,) * len(starts)
    else:
        starts, ends = call.attrs["starts"], call.attrs["ends"]
        axes = call.attrs.get("axes", range(len(starts)))
        steps = (1,) * len(starts)
    cuts: dict[int, tuple[Dim, Dim, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = normal_axis(axis, len(shape))
        cuts[at] = _cut(start, end, step, shape[at])
    cuts = {at: cut for at, cut in sorted(cuts.items()) if cut != (0, shape[at], 1)}
    call.emit(
        call.op,
        call.value(0),
        starts=tuple(c[0] for c in cuts.values()),
        ends=tuple(c[1] for c in cuts.values()),
        axes=tuple(cuts),
        steps=tuple(c[2] for c in cuts.values()),
    )


def _cut(start: Dim, end: Dim, step: int, dim: Dim) -> tuple[Dim, Dim, int]:
    """Bounds counted from the left and clipped to the dim; an end of -1 with a negative step is before the first.

    So is a start of -1, which a negative step has in a dim of 0.
    """
    if step > 0:
        return _clipped(start, dim, 0, dim), _clipped(end, dim, 0, dim), step
    if end in _GREATEST:
        raise Unsupported(f"an end of {end} with a negative step is the end in ONNX, and the begin in ONNX Runtime")
    first = dim - 1 if start == -1 else minimum(_clipped(start, dim, 0, dim - 1), dim - 1)
    return first, _clipped(end, dim, -1, dim - 1), step


def _clipped(bound: Dim, dim: Dim, low: int, high: Dim) -> Dim:
    if isinstance(bound, int):
        if isinstance(dim, Sym) and abs(bound) >= _FAR:
            return high if bound > 0 else low
        if bound < 0:
            counted = dim + bound
            natural = at_least(counted, low)
            return counted if natural else dim_max(counted, low) if natural is None else low
        return minimum(bound, high)
    if at_least(bound, 0):
        return minimum(bound, high)
    if at_least(-bound, 1):
        counted = dim + bound
        return counted if at_least(counted, low) else dim_max(counted, low)
    raise Unsupported(f"whether {bound} counts from the end depends on named dims")


def _pad(call: Call) -> None:
    rank = len(call.shape(0))
    if call.opset >= 11:
        pads: tuple[int, ...] = call.integers(1)
        # An integer stays one: float64 has no room for all of them.
        value = call.scalar(2) if call.has(2) else 0.0
        axes = call.integers(3) if call.has(3) else tuple(range(rank))
    else:
        pads, value, axes = call.attrs["pads"], call.attrs.get("value", 0.0), tuple(range(rank))
    full = [0] * (2 * rank)
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"{len(pads)} pads for {len(axes)} axes")
    for i, axis in enumerate(axes):
        at = normal_axis(axis, rank)
        full[at], full[rank + at] = pads[i], pads[len(axes) + i]
    call.emit(call.op, call.value(0), pads=tuple(full), mode=call.attrs.get("mode", "constant"), value=value)


def _tensor_scatter(call: Call) -> None:
    """Rows of a cache written from a place of each batch on; with mode circular, from its begin again at its end."""
    shape, update = call.shape(0), call.shape(1)
    axis = call.axis(-2)
    if not axis:
        raise Unsupported("TensorScatter along the batch")
    places = call.make("iota", size=update[axis], dtype="int64")
    if call.has(2):
        starts = call.make("reshape", call.value(2), shape=(update[0], 1))
        places = call.make("add", starts, places)
    if call.attrs.get("mode", "linear") == "circular":
        places = call.make("mod", places, call.number(call.size(0, axis), DType.INT64))
    column = (update[0] if call.has(2) else 1, *(update[i] if i == axis else 1 for i in range(1, len(shape))))
    wide = call.make("expand", call.make("reshape", places, shape=column), shape=update)
    call.emit("scatter_elements", call.value(0), wide, call.value(1), axis=axis, reduction="none")


def _space_to_depth(call: Call) -> None:
    if call.attrs.get("mode", "DCR") != "DCR":
        raise Unsupported(f"SpaceToDepth in mode {call.attrs['mode']!r}")
    call.emit(call.op, call.value(0), blocksize=call.attrs["blocksize"])


def _trilu(call: Call) -> None:
    k = call.integers(1)[0] if call.has(1) else 0
    call.emit(call.op, call.value(0), k=k, upper=bool(call.attrs.get("upper", 1)))


def _constant(call: Call) -> None:
    ((name, value),) = call.attrs.items() if len(call.attrs) == 1 else (("none", None),)
    where = f"constant {call.node.output[0]!r}"
    inline = ExternalData(None)
    match name:
        case "value" if isinstance(value, TensorProto):
            constant = constant_of(value, where, inline)
        case "sparse_value" if isinstance(value, SparseTensorProto):
            constant = dense_of(value, where, inline)
        case "value_float" | "value_floats":
            constant = Constant.of(np.asarray(value, np.float32))
        case "value_int" | "value_ints":
            constant = Constant.of(np.asarray(value, np.int64))
        case "value_string" | "value_strings":
            constant = Constant.of(np.asarray(value, object), DType.STRING)
        case _:
            raise Unsupported("a Constant needs exactly one value")
    call.emit_constant(constant)


def _constant_of_shape(call: Call) -> None:
    shape = call.dims(0)
    value, dtype = 0.0, DType.FLOAT32
    if "value" in call.attrs:
        constant = constant_of(call.attrs["value"], f"value of {call.node.name!r}", ExternalData(None))
        if constant.array.size != 1:
            raise Unsupported("ConstantOfShape needs one value")
        value, dtype = constant.array.reshape(()).item(), constant.type.dtype
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise Unsupported(f"shape {list(shape)}")
    call.emit("fill", shape=shape, value=value, dtype=dtype.value)


def _range(call: Call) -> None:
    dtype = call.type(0).dtype
    if not dtype.is_integer:
        start, limit, delta = (call.scalar(i) for i in range(3))
        count = max(int(np.ceil((limit - start) / delta)), 0)
        values = (np.float64(start) + np.arange(count) * np.float64(delta)).astype(dtype.numpy)
        return call.emit_constant(Constant.of(values, dtype))
    (first,), (stop,), (step,) = call.dims(0), call.dims(1), call.dims(2)
    by = integer(step)
    if not by:
        raise Unsupported("Range with a step of 0")
    length = ceildiv(stop - first, by) if by > 0 else ceildiv(first - stop, -by)
    natural = at_least(length, 0)
    size = length if natural else 0 if natural is False else dim_max(length, 0)
    return call.emit("iota", start=first, step=by, size=size, dtype=dtype.value)


def _eye_like(call: Call) -> None:
    rows, columns = (call.size(0, i) for i in range(2))
    dtype = dtype_of(call.attrs["dtype"]) if "dtype" in call.attrs else call.type(0).dtype
    if dtype is None:
        raise Unsupported(f"EyeLike of element type {call.attrs['dtype']}")
    if rows == columns and not call.attrs.get("k", 0):
        return call.emit("eye", n=rows, dtype=dtype.value)
    if rows * columns * dtype.itemsize > FOLDED_BYTES:
        raise Unsupported("a large EyeLike off the main diagonal of a square")
    return call.emit_constant(Constant.of(np.eye(rows, columns, call.attrs.get("k", 0)).astype(dtype.numpy), dtype))


def _one_hot(call: Call) -> None:
    kinds = call.type(0).dtype, call.type(1).dtype
    if kinds != (DType.INT64, DType.INT64):
        # Runtimes have few combinations of element types, and the depth is written as int64.
        raise Unsupported(f"OneHot of {kinds[0].value} with a depth of {kinds[1].value}")
    if not call.shape(0):
        raise Unsupported("OneHot of one number")
    (depth,) = call.dims(1)
    call.emit(call.op, call.value(0), call.value(2), depth=depth, axis=call.attrs.get("axis", -1))


#: Operators with the same operands and attributes, some of them counted axes.
_PLAIN = (
    "Concat", "DepthToSpace", "Gather", "GatherElements", "GatherND", "ReverseSequence", "ScatterElements", "ScatterND",
    "Shape",
)  # fmt: skip

IMPORTS: Mapping[str, Importer] = {
    **dict.fromkeys(_PLAIN, import_plain),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Scatter": import_as("scatter_elements"),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "TensorScatter": _tensor_scatter,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
