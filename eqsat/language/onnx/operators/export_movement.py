"""Export of operators that move elements, with shapes and axes as attributes or operands as the opset has them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.language.constant import Array, Constant
from eqsat.language.dims import Dim, Sym, evaluate
from eqsat.language.onnx.exporting import Exporter, Target
from eqsat.language.onnx.tensors import number_of, tensor_of
from eqsat.language.symbolic import at_least
from eqsat.language.types import DType, Shape

_TO_THE_END = np.iinfo(np.int64).max
#: From this opset on a reshape may say that a 0 means 0.
ALLOWS_ZERO = 14
#: Names of dims whose sizes are tried, before a reshape is written.
_TRIED = 6
_TO_THE_BEGIN = np.iinfo(np.int64).min + 1


def _reshape(target: Target) -> None:
    emit_reshape(target, target.input(0), target.type(0).shape, target.attrs["shape"])


def emit_reshape(target: Target, x: str, source: Shape | None, wanted: Shape) -> None:
    """Writes a reshape as the node's result."""
    if 0 in wanted and target.opset < ALLOWS_ZERO and _written_dims(source, wanted, target.opset) is None:
        # A 0 copies a dim there; what has no elements is made anew.
        return emit_fill(target, wanted, np.zeros((1,), target.result().dtype.numpy), target.result().dtype)
    op_type, inputs, attrs = _reshape_form(target, x, source, wanted)
    return target.emit(op_type, *inputs, **attrs)


def make_reshape(target: Target, x: str, source: Shape | None, wanted: Shape) -> str:
    """Writes a reshape whose result only this translation uses."""
    op_type, inputs, attrs = _reshape_form(target, x, source, wanted)
    return target.make(op_type, *inputs, **attrs)


def _reshape_form(
    target: Target, x: str, source: Shape | None, wanted: Shape
) -> tuple[str, Sequence[str], Mapping[str, Any]]:
    """The cheapest way to say a reshape: without reading a shape when the model runs wherever that is possible."""
    dynamic = any(isinstance(d, Sym) for d in wanted)
    if dynamic and source is not None:
        for op_type, larger, smaller in (("Unsqueeze", wanted, source), ("Squeeze", source, wanted)):
            axes = _ones_put_in(larger, smaller)
            if axes is not None:
                return op_type, *_with_axes(target, x, axes)
        flat = _flatten_axis(source, wanted)
        if flat is not None:
            return "Flatten", [x], {"axis": flat}
    dims = _written_dims(source, wanted, target.opset)
    if dims is not None:
        return "Reshape", [x, target.ints(dims)], {}
    shape = target.shape(wanted)
    return "Reshape", [x, shape], {"allowzero": 1} if target.opset >= ALLOWS_ZERO else {}


def _written_dims(source: Shape | None, wanted: Shape, opset: int) -> list[int] | None:
    """The shape operand with 0 for dims that stay in place and at most one -1; None where that does not say it.

    A -1 stands only among integers, since beside a dim that turns out to be 0 nobody can work it out. Before opset 14 a
    computed dim of 0 means another, too: of the two that is written which runs at more sizes.
    """
    dims: list[int] = []
    open_dims = 0
    for i, dim in enumerate(wanted):
        stays = source is not None and i < len(source) and source[i] == dim
        if isinstance(dim, Sym):
            dims.append(0 if stays else -1)
            open_dims += not stays
        elif dim == 0 and not stays:
            return None
        else:
            dims.append(dim)
    if open_dims > 1 or (open_dims and 0 in wanted):
        return None
    if open_dims and 0 in dims and (opset >= ALLOWS_ZERO or not _runs_as_often(source or (), wanted, dims)):
        return None
    return dims


def _runs_as_often(source: Shape, wanted: Shape, dims: Sequence[int]) -> bool:
    """Whether a shape operand with 0 and -1 runs at as many of the sizes 0 and 2 as the dims themselves, computed."""
    tried = list(_tried(source, wanted))
    return sum(_open_runs(a, dims) for a, _ in tried) >= sum(_computed_runs(a, b) for a, b in tried)


def _tried(source: Shape, wanted: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Both shapes at sizes 0 and 2 of the named dims, at which they have a value."""
    names = sorted({name for d in (*source, *wanted) if isinstance(d, Sym) for name in d.names()})
    for sizes in product((0, 2), repeat=min(len(names), _TRIED)):
        known = dict(zip(names, sizes, strict=False)) | dict.fromkeys(names[_TRIED:], 2)
        with contextlib.suppress(ZeroDivisionError):  # a dim divided by one that is 0
            yield [evaluate(d, known) for d in source], [evaluate(d, known) for d in wanted]


def _open_runs(source: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether a -1 can be worked out: nothing beside it is 0."""
    return prod(source[i] if d == 0 else d for i, d in enumerate(dims) if d != -1) > 0


def _computed_runs(source: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a 0 among computed dims means itself: it copies the dim in its place."""
    return all(d or (i < len(source) and source[i] == 0) for i, d in enumerate(wanted))


def runs_at_every_size(source: Shape, wanted: Shape, opset: int) -> bool:
    """Whether a reshape is written so that it runs at every size of the named dims, 0 among them."""
    if opset >= ALLOWS_ZERO or not any(isinstance(d, Sym) for d in wanted):
        return True
    if _ones_put_in(wanted, source) or _ones_put_in(source, wanted) or _flatten_axis(source, wanted) is not None:
        return True
    dims = _written_dims(source, wanted, opset)
    if dims is None:
        return all(_computed_runs(a, b) for a, b in _tried(source, wanted))
    return -1 not in dims or all(_open_runs(a, dims) for a, _ in _tried(source, wanted))


def _ones_put_in(larger: Shape, smaller: Shape) -> tuple[int, ...] | None:
    """The axes of `larger` that are ones beyond `smaller`, or None where that is not the difference."""
    axes: list[int] = []
    at = 0
    for axis, dim in enumerate(larger):
        if at < len(smaller) and smaller[at] == dim:
            at += 1
        elif dim == 1:
            axes.append(axis)
        else:
            return None
    return tuple(axes) if at == len(smaller) and axes else None


def _with_axes(target: Target, x: str, axes: tuple[int, ...]) -> tuple[Sequence[str], Mapping[str, Any]]:
    return ([x, target.ints(axes)], {}) if target.opset >= 13 else ([x], {"axes": axes})


def _flatten_axis(source: Shape, wanted: Shape) -> int | None:
    if len(wanted) != 2 or len(source) < 2:
        return None
    lead: Dim = 1
    for axis, dim in enumerate(source):
        if lead == wanted[0] and axis:
            rest: Dim = 1
            for other in source[axis:]:
                rest = rest * other
            return axis if rest == wanted[1] else None
        lead = lead * dim
    return None


def _transpose(target: Target) -> None:
    target.emit("Transpose", target.input(0), perm=target.attrs["perm"])


def _concat(target: Target) -> None:
    target.emit("Concat", *target.inputs, axis=_axis(target))


def _axis(target: Target) -> int:
    axis: int = target.attrs["axis"]
    return axis + target.type(0).rank if axis < 0 else axis


def _split(target: Target) -> None:
    sizes, axis = target.attrs["sizes"], _axis(target)
    if target.opset >= 13:
        return target.emit("Split", target.input(0), target.shape(sizes), axis=axis)
    if any(isinstance(s, Sym) for s in sizes):
        target.needs(13, "sizes known by name only")
    return target.emit("Split", target.input(0), axis=axis, split=sizes)


def _slice(target: Target) -> None:
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
    """An end as ONNX wants it, which clips what lies beyond the dim."""
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


def _pad(target: Target) -> None:
    attrs = target.attrs
    pads, mode, value = attrs["pads"], attrs["mode"], attrs["value"]
    if mode == "wrap":
        target.needs(19, "wrapping")
    emit_pad(target, pads, value, mode)


def emit_pad(target: Target, pads: Sequence[int], value: float, mode: str = "constant") -> None:
    """Writes a pad of the first operand as the node's result."""
    extra = {"mode": mode} if mode != "constant" else {}
    if target.opset < 11:
        return target.emit("Pad", target.input(0), pads=list(pads), **extra, **({"value": value} if value else {}))
    operands = [target.input(0), target.ints(pads)]
    if value and mode == "constant":
        operands.append(target.number(value, target.type(0).dtype))
    return target.emit("Pad", *operands, **extra)


def _tile(target: Target) -> None:
    target.emit("Tile", target.input(0), target.shape(target.attrs["repeats"]))


def _expand(target: Target) -> None:
    source, wanted = target.type(0).shape, target.attrs["shape"]
    lead = len(wanted) - len(source or ())
    # A dim that stays needs no size of its own: Expand broadcasts with 1.
    dims = [
        1 if source is not None and i >= lead and source[i - lead] == d and isinstance(d, Sym) else d
        for i, d in enumerate(wanted)
    ]
    target.emit("Expand", target.input(0), target.shape(dims))


def _gather(op_type: str) -> Exporter:
    def write(target: Target) -> None:
        target.emit(op_type, *target.inputs, axis=_axis(target))

    return write


def _gather_nd(target: Target) -> None:
    batch = target.attrs["batch_dims"]
    if batch:
        target.needs(12, "batch_dims")
    target.emit("GatherND", *target.inputs, **({"batch_dims": batch} if batch else {}))


def _scatter(op_type: str) -> Exporter:
    def write(target: Target) -> None:
        reduction = target.attrs["reduction"]
        attrs: dict[str, Any] = {"axis": _axis(target)} if "axis" in target.attrs else {}
        if reduction != "none":
            target.needs(16 if reduction in ("add", "mul") else 18, f"reduction {reduction!r}")
            attrs["reduction"] = reduction
        older = op_type == "ScatterElements" and not target.knows(op_type)
        target.emit("Scatter" if older else op_type, *target.inputs, **attrs)

    return write


def _depth_to_space(target: Target) -> None:
    mode = target.attrs["mode"]
    if mode != "DCR":
        target.needs(11, f"mode {mode}")
    extra = {"mode": mode} if mode != "DCR" else {}
    target.emit("DepthToSpace", target.input(0), blocksize=target.attrs["blocksize"], **extra)


def _space_to_depth(target: Target) -> None:
    target.emit("SpaceToDepth", target.input(0), blocksize=target.attrs["blocksize"])


def _trilu(target: Target) -> None:
    k = target.attrs["k"]
    operands = [target.input(0), *([target.number(k, DType.INT64)] if k else [])]
    target.emit("Trilu", *operands, upper=int(target.attrs["upper"]))


def _shape(target: Target) -> None:
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


def _fill(target: Target) -> None:
    attrs = target.attrs
    dtype = DType.of(attrs["dtype"])
    emit_fill(target, attrs["shape"], np.full((1,), attrs["value"]).astype(dtype.numpy), dtype)


def emit_fill(target: Target, shape: Shape, value: Array, dtype: DType) -> None:
    """Writes a tensor of one value as the node's result: opsets before 9 spread a tensor of one element."""
    if target.knows("ConstantOfShape"):
        constant = tensor_of("value", Constant.of(value, dtype))
        return target.emit("ConstantOfShape", target.shape(shape), value=constant)
    one = target.model.parameter(value.reshape((1,) * len(shape)), dtype)
    if target.knows("Expand") or not shape:
        return target.emit("Expand", one, target.shape(shape)) if shape else target.emit("Identity", one)
    return target.emit("Tile", one, target.shape(shape))


def _iota(target: Target) -> None:
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


def _enlarge(target: Target) -> None:
    sizes = [int(str(d)) for d in target.type(0).dims[2:]]
    borders = [(k - n) // 2 for k, n in zip(target.attrs["kernel"], sizes, strict=True)]
    emit_pad(target, [0, 0, *borders, 0, 0, *borders], 0.0)


EXPORTS: Mapping[str, Exporter] = MappingProxyType(
    {
        "concat": _concat,
        "depth_to_space": _depth_to_space,
        "enlarge": _enlarge,
        "expand": _expand,
        "fill": _fill,
        "gather": _gather("Gather"),
        "gather_elements": _gather("GatherElements"),
        "gather_nd": _gather_nd,
        "iota": _iota,
        "pad": _pad,
        "reshape": _reshape,
        "scatter_elements": _scatter("ScatterElements"),
        "scatter_nd": _scatter("ScatterND"),
        "shape": _shape,
        "slice": _slice,
        "space_to_depth": _space_to_depth,
        "split": _split,
        "tile": _tile,
        "transpose": _transpose,
        "trilu": _trilu,
    }
)
