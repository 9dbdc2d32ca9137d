"""Export of reshapes, so that they run wherever ONNX's Reshape of the opset can be made to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np

from eqsat.language.onnx.files.tensors import tensor_of
from eqsat.language.onnx.write.exporting import ExportTarget
from eqsat.language.terms import Array, Constant, Dim, DType, Shape, Sym, evaluate

#: From this opset on a reshape may say that a 0 means 0.
ALLOWS_ZERO = 14
#: Names of dims whose sizes are tried, before a reshape is written.
_TRIED = 6
#: The largest rank for which places of ones are looked for.
_PADDED = 8


def export_reshape(target: ExportTarget) -> None:
    """Write a node of the operator reshape."""
    emit_reshape(target, target.input(0), target.type(0).shape, target.attrs["shape"])


def emit_reshape(target: ExportTarget, x: str, source: Shape | None, wanted: Shape) -> None:
    """Write a reshape as the node's result."""
    if 0 in wanted and target.opset < ALLOWS_ZERO and _written_dims(source, wanted, target.opset) is None:
        # A 0 copies a dim there; a tensor without elements is made anew.
        return emit_fill(target, wanted, np.zeros((1,), target.result().dtype.numpy), target.result().dtype)
    op_type, inputs, attrs = _reshape_form(target, x, source, wanted)
    return target.emit(op_type, *inputs, **attrs)


def make_reshape(target: ExportTarget, x: str, source: Shape | None, wanted: Shape) -> str:
    """Write a reshape whose result only this translation uses."""
    op_type, inputs, attrs = _reshape_form(target, x, source, wanted)
    return target.make(op_type, *inputs, **attrs)


def _reshape_form(
    target: ExportTarget, x: str, source: Shape | None, wanted: Shape
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
    if source is not None and target.opset < ALLOWS_ZERO and not _runs_as_written(source, wanted, dims):
        ones = _ones_for_zeros(source, wanted)
        if ones is not None:
            inputs, attrs = _with_axes(target, x, ones)
            return "Reshape", [target.make("Unsqueeze", *inputs, **attrs), target.shape(wanted)], {}
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
    """True if a shape operand with 0 and -1 runs at as many of the sizes 0 and 2 as the dims themselves, computed."""
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
    """True if a -1 can be worked out: nothing beside it is 0."""
    return prod(source[i] if d == 0 else d for i, d in enumerate(dims) if d != -1) > 0


def _computed_runs(source: Sequence[int], wanted: Sequence[int]) -> bool:
    """True if a 0 among computed dims means itself: it copies the dim in its place."""
    return all(d or (i < len(source) and source[i] == 0) for i, d in enumerate(wanted))


def runs_at_every_size(source: Shape, wanted: Shape, opset: int) -> bool:
    """True if a reshape is written so that it runs at every size of the named dims, 0 among them."""
    if opset >= ALLOWS_ZERO or not any(isinstance(d, Sym) for d in wanted):
        return True
    if _ones_put_in(wanted, source) or _ones_put_in(source, wanted) or _flatten_axis(source, wanted) is not None:
        return True
    return (
        _runs_as_written(source, wanted, _written_dims(source, wanted, opset))
        or _ones_for_zeros(source, wanted) is not None
    )


def _runs_as_written(source: Shape, wanted: Shape, dims: Sequence[int] | None) -> bool:
    """True if a shape operand, computed where there is none, runs at all of the sizes 0 and 2."""
    if dims is None:
        return all(_computed_runs(a, b) for a, b in _tried(source, wanted))
    return -1 not in dims or all(_open_runs(a, dims) for a, _ in _tried(source, wanted))


def _ones_for_zeros(source: Shape, wanted: Shape) -> tuple[int, ...] | None:
    """Axes for ones in the operand with which each computed dim of 0 stands under one of 0; None where none do.

    Before opset 14 a 0 copies the dim in its place: to make `[n, 6, n]`, a computed shape runs on `[n, 1, 6*n]` at
    every size, and not on `[n, 6*n]`.
    """
    if len(wanted) <= len(source) or len(wanted) > _PADDED:
        return None
    tried = list(_tried(source, wanted))
    for axes in combinations(range(len(wanted)), len(wanted) - len(source)):
        if all(_computed_runs(_with_ones(a, axes), b) for a, b in tried):
            return axes
    return None


def _with_ones(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    rest = iter(shape)
    return [1 if i in axes else next(rest) for i in range(len(shape) + len(axes))]


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


def _with_axes(target: ExportTarget, x: str, axes: tuple[int, ...]) -> tuple[Sequence[str], Mapping[str, Any]]:
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


def emit_fill(target: ExportTarget, shape: Shape, value: Array, dtype: DType) -> None:
    """Write a tensor of one value as the node's result: opsets before 9 spread a tensor of one element."""
    if target.knows("ConstantOfShape"):
        constant = tensor_of("value", Constant.of(value, dtype))
        return target.emit("ConstantOfShape", target.shape(shape), value=constant)
    one = target.model.parameter(value.reshape((1,) * len(shape)), dtype)
    if target.knows("Expand") or not shape:
        return target.emit("Expand", one, target.shape(shape)) if shape else target.emit("Identity", one)
    return target.emit("Tile", one, target.shape(shape))
