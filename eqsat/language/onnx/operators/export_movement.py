"""Export of operators that move elements, with shapes and axes as attributes or operands as the opset has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.onnx.files.tensors import number_of
from eqsat.language.onnx.operators.derived import export_same
from eqsat.language.onnx.operators.export_reshape import emit_fill, export_reshape, make_reshape
from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.terms import Dim, DType, Sym

_TO_THE_END = np.iinfo(np.int64).max
_TO_THE_BEGIN = np.iinfo(np.int64).min + 1


def _along_axis(target: ExportTarget) -> None:
    target.emit(target.onnx, *target.inputs, axis=_axis(target))


def _axis(target: ExportTarget) -> int:
    axis: int = target.attrs["axis"]
    return axis + target.type(0).rank if axis < 0 else axis


def _split(target: ExportTarget) -> None:
    sizes, axis = target.attrs["sizes"], _axis(target)
    if target.opset >= 13:
        return target.emit("Split", target.input(0), target.shape(sizes), axis=axis)
    if any(isinstance(s, Sym) for s in sizes):
        target.needs(13, "sizes known by name only")
    return target.emit("Split", target.input(0), axis=axis, split=sizes)


def _slice(target: ExportTarget) -> None:
    attrs = target.attrs
    axes = attrs["axes"]
    steps = attrs["steps"] or (1,) * len(axes)
    shape = target.type(0).shape
    whole = [None if shape is None else shape[a] for a in axes]
    ends = [_end(e, d, s) for e, d, s in zip(attrs["ends"], whole, steps, strict=True)]
    starts = [
        _from_right(_uncapped(b, d), d) if s > 0 else b for b, d, s in zip(attrs["starts"], whole, steps, strict=True)
    ]
    symbolic = any(isinstance(b, Sym) for b in (*starts, *ends))
    if target.opset < 10:
        if symbolic or any(s != 1 for s in steps):
            target.needs(10, "steps or named bounds")
        return target.emit("Slice", target.input(0), starts=starts, ends=ends, axes=axes)
    operands = [target.input(0), target.shape(starts), target.shape(ends), target.ints(axes)]
    if any(s != 1 for s in steps):
        operands.append(target.ints(steps))
    return target.emit("Slice", *operands)


def _end(end: Dim, dim: Dim | None, step: int) -> Dim:
    """An end as ONNX wants it, which clips to the dim."""
    if step < 0:
        return _before(end, dim)
    if dim is not None and end == dim and isinstance(end, Sym):
        return _TO_THE_END
    return _from_right(_uncapped(end, dim), dim)


def _before(end: Dim, dim: Dim | None) -> Dim:
    """An end of a negative step, where -1 lies before the first element; for ONNX it is the last one.

    Where it may be -1 it is counted from the right, which is never taken for a place counted from the left.
    """
    if isinstance(end, int):
        return _TO_THE_BEGIN if end < 0 else end
    return end if dim is None or at_least(end, 0) else end - dim


def _uncapped(end: Dim, dim: Dim | None) -> Dim:
    """min(n, dim) is as good as n."""
    if dim is not None and (pair := _operands("min", end)) is not None and dim in pair:
        return pair[0] if pair[1] == dim else pair[1]
    return end


def _from_right(bound: Dim, dim: Dim | None) -> Dim:
    """Dim - n and max(dim - n, 0) as -n, which ONNX counts from the right and clips: no size has to be worked out."""
    if dim is None or not isinstance(bound, Sym) or not at_least(bound, 0):
        return bound
    pair = _operands("max", bound) or (bound, 0)
    gap = dim - (pair[0] if pair[1] == 0 else pair[1]) if 0 in pair else 0
    return -gap if isinstance(gap, int) and gap > 0 else bound


def _operands(function: str, bound: Dim) -> tuple[Dim, Dim] | None:
    """The two operands of the minimum or maximum that a bound is; None where it is none."""
    if isinstance(bound, Sym) and len(bound.terms) == 1:
        monomial, coefficient = bound.terms[0]
        atom, power = monomial[0]
        if coefficient == power == len(monomial) == 1 and not isinstance(atom, str) and atom[0] == function:
            return atom[1], atom[2]
    return None


def _pad(target: ExportTarget) -> None:
    attrs = target.attrs
    pads, mode, value = attrs["pads"], attrs["mode"], attrs["value"]
    if mode == "wrap":
        target.needs(19, "wrapping")
    emit_pad(target, pads, value, mode)


def emit_pad(target: ExportTarget, pads: Sequence[int], value: float, mode: str = "constant") -> None:
    """Write a pad of the first operand as the node's result."""
    extra = {"mode": mode} if mode != "constant" else {}
    if target.opset < 11:
        return target.emit("Pad", target.input(0), pads=list(pads), **extra, **({"value": value} if value else {}))
    operands = [target.input(0), target.ints(pads)]
    if value and mode == "constant":
        operands.append(target.number(value, target.type(0).dtype))
    return target.emit("Pad", *operands, **extra)


def _tile(target: ExportTarget) -> None:
    target.emit("Tile", target.input(0), target.shape(target.attrs["repeats"]))


def _expand(target: ExportTarget) -> None:
    source, wanted = target.type(0).shape, target.attrs["shape"]
    lead = len(wanted) - len(source or ())
    # A dim that stays needs no size of its own: Expand broadcasts with 1.
    dims = [
        1 if source is not None and i >= lead and source[i - lead] == d and isinstance(d, Sym) else d
        for i, d in enumerate(wanted)
    ]
    target.emit("Expand", target.input(0), target.shape(dims))


def _gather_nd(target: ExportTarget) -> None:
    if target.attrs["batch_dims"]:
        target.needs(12, "batch_dims")
    export_same(target)


def _scatter(target: ExportTarget) -> None:
    reduction = target.attrs["reduction"]
    attrs: dict[str, Any] = {"axis": _axis(target)} if "axis" in target.attrs else {}
    if reduction != "none":
        target.needs(16 if reduction in ("add", "mul") else 18, f"reduction {reduction!r}")
        attrs["reduction"] = reduction
    older = target.onnx == "ScatterElements" and not target.knows("ScatterElements")
    target.emit("Scatter" if older else target.onnx, *target.inputs, **attrs)


def _depth_to_space(target: ExportTarget) -> None:
    if target.attrs["mode"] != "DCR":
        target.needs(11, f"mode {target.attrs['mode']}")
    export_same(target)


def _trilu(target: ExportTarget) -> None:
    k = target.attrs["k"]
    operands = [target.input(0), *([target.number(k, DType.INT64)] if k else [])]
    target.emit("Trilu", *operands, upper=int(target.attrs["upper"]))


def _shape(target: ExportTarget) -> None:
    start, end = target.attrs["start"], target.attrs["end"]
    if start == 0 and end is None:
        return target.emit("Shape", target.input(0))
    if target.opset >= 15:
        return target.emit("Shape", target.input(0), start=start, **({} if end is None else {"end": end}))
    whole = target.make("Shape", target.input(0))
    stop = _TO_THE_END if end is None else end
    if target.opset < 10:
        return target.emit("Slice", whole, starts=[start], ends=[stop], axes=[0])
    return target.emit("Slice", whole, target.ints([start]), target.ints([stop]), target.ints([0]))


def _fill(target: ExportTarget) -> None:
    attrs = target.attrs
    dtype = DType.of(attrs["dtype"])
    emit_fill(target, attrs["shape"], np.full((1,), attrs["value"]).astype(dtype.numpy), dtype)


def _iota(target: ExportTarget) -> None:
    attrs = target.attrs
    dtype = DType.of(attrs["dtype"])
    start, step, size = attrs["start"], attrs["step"], attrs["size"]
    scalars = [
        target.number(b, DType.INT64) if isinstance(b, int) else make_reshape(target, target.shape([b]), (1,), ())
        for b in (start, start + size * step)
    ]
    operands = [*scalars, target.number(step, DType.INT64)]
    if dtype is DType.INT64:
        return target.emit("Range", *operands)
    return target.emit("Cast", target.make("Range", *operands), to=number_of(dtype))


def _enlarge(target: ExportTarget) -> None:
    sizes = [int(str(d)) for d in target.type(0).dims[2:]]
    borders = [(k - n) // 2 for k, n in zip(target.attrs["kernel"], sizes, strict=True)]
    emit_pad(target, [0, 0, *borders, 0, 0, *borders], 0.0)


EXPORTS: Mapping[str, Exporter] = {
    "Concat": _along_axis,
    "DepthToSpace": _depth_to_space,
    "enlarge": _enlarge,
    "Expand": _expand,
    "fill": _fill,
    "Gather": _along_axis,
    "GatherElements": _along_axis,
    "GatherND": _gather_nd,
    "iota": _iota,
    "Pad": _pad,
    "Reshape": export_reshape,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "Trilu": _trilu,
}
