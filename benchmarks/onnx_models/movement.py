"""Operators that move elements: shapes, slices, transposes, gathers and scatters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, RefusedError, Value

_ANY = "fffffiub"
_FAR = (2**63 - 1, 2**31 - 1)


def _reshape(g: Growing) -> None:
    x = g.pick(g.among(_ANY))
    if g.flip(0.15):
        return _reshape_by_shape(g, x)
    g.add("Reshape", [x, g.integers(_written(g, x))])
    return None


def _written(g: Growing, x: Value) -> list[int]:
    """A shape with the elements of a value: free dims stay, or are left open."""
    free = [a for a in range(x.rank) if x.free(a)]
    if not free:
        shape = _regrouped(g, x.shape)
        at = g.integer(0, max(len(shape) - 1, 0))
        others = int(np.prod([d for i, d in enumerate(shape) if i != at]))
        return [-1 if i == at and others and g.flip(0.4) else d for i, d in enumerate(shape)]
    kept = free[0]
    if kept and g.flip(0.3):
        return [-1, *(x.shape[kept + 1 :] if len(free) == 1 else [])]
    lead = [0] * (kept + 1)  # a 0 copies the dim in its place
    rest = [-1] if len(free) > 1 or g.flip(0.4) else _regrouped(g, x.shape[kept + 1 :])
    return [*lead, *rest]


def _regrouped(g: Growing, shape: Sequence[int]) -> list[int]:
    """The same number of elements in other dims."""
    if 0 in shape:
        return list(shape)
    total, found = int(np.prod(shape)), []
    while total > 1 and len(found) < 4 and g.flip(0.75):
        part = g.among([d for d in range(1, min(total, 12) + 1) if total % d == 0])
        found.append(part)
        total //= part
    found.append(total)
    if g.flip(0.5):
        g.rng.shuffle(found)
    return found


def _reshape_by_shape(g: Growing, x: Value) -> None:
    """A reshape to a shape that is worked out: that of another value, or parts of its own."""
    (shape,) = g.add("Shape", [x])
    if x.rank < 2:
        g.add("Reshape", [x, shape])
        return
    (first,) = g.add("Gather", [shape, g.integers([0])], axis=0)
    (wanted,) = g.add("Concat", [first, g.integers([-1])], axis=0)
    g.add("Reshape", [x, wanted])


def _transpose(g: Growing) -> None:
    x = g.pick(g.among(_ANY), least=1)
    perm = [int(p) for p in g.rng.permutation(x.rank)]
    g.add("Transpose", [x], perm=None if g.flip(0.15) else perm)


def _flatten(g: Growing) -> None:
    x = g.pick("f" if g.opset < 9 else g.among(_ANY))
    g.add("Flatten", [x], axis=None if g.flip(0.3) and x.rank else g.integer(0 if g.opset < 11 else -x.rank, x.rank))


def _squeeze(g: Growing) -> None:
    x = g.pick(g.among(_ANY), least=1)
    ones = [a for a in range(x.rank) if x.shape[a] == 1 and not x.free(a)]
    if not ones:
        return _unsqueeze(g)
    axes = [a for a in ones if g.flip(0.7)] or ones[:1]
    if g.opset < 13:
        g.add("Squeeze", [x], axes=axes if g.flip(0.8) else None)
    else:
        g.add("Squeeze", [x, *([g.integers(axes)] if g.flip(0.8) else [])])
    return None


def _unsqueeze(g: Growing) -> None:
    x = g.pick(g.among(_ANY))
    axes = sorted({g.integer(0, x.rank) for _ in range(g.integer(1, 2))})
    if g.opset < 13:
        g.add("Unsqueeze", [x], axes=axes)
    else:
        g.add("Unsqueeze", [x, g.integers(axes)])


def _slice(g: Growing) -> None:
    x = g.pick(g.among(_ANY), least=1)
    axes = sorted({g.integer(0, x.rank - 1) for _ in range(g.integer(1, 2))})
    bounds = [_cut(g, x.shape[a]) for a in axes]
    starts, ends, steps = ([b[i] for b in bounds] for i in range(3))
    written = [a - x.rank if g.flip(0.2) else a for a in axes]
    if g.opset < 10:
        g.add("Slice", [x], starts=starts, ends=ends, axes=axes)
        return
    more = [g.integers(steps)] if any(s != 1 for s in steps) or g.flip(0.2) else []
    g.add("Slice", [x, g.integers(starts), g.integers(ends), g.integers(written), *more])


def _cut(g: Growing, size: int) -> tuple[int, int, int]:
    step = 1 if g.opset < 10 or g.flip(0.7) else g.among([2, 3, -1, -1, -2])
    if step < 0:
        start, end = g.among([-1, size - 1, size]), g.among([-(2**63) + 1, -(2**31), 0, -size - 1])
        return start, end, step
    start = g.among([0, 0, 1, -1, -2, g.integer(0, size)])
    end = g.among([*_FAR, size, -1, g.integer(0, size), size + 3])
    return start, end, step


def concat(g: Growing) -> None:
    """A value beside others of its shape, constants, or parts of itself."""
    x = g.pick(g.among(_ANY), least=1)
    axis = g.integer(0, x.rank - 1)
    parts = [x]
    for _ in range(g.integer(0, 2)):
        same = [v for v in g.values if v.dtype == x.dtype and _beside(v, x, axis)]
        if same and g.flip(0.6):
            parts.append(g.among(same))
        elif not any(x.free(a) for a in range(x.rank) if a != axis):
            shape = [g.integer(0 if g.flip(0.1) else 1, 3) if a == axis else n for a, n in enumerate(x.shape)]
            parts.append(g.constant(g.numbers.array(x.dtype, shape)))
    g.rng.shuffle(parts)  # type: ignore[arg-type]
    g.add("Concat", parts, axis=axis if g.opset < 11 or g.flip() else axis - x.rank)


def _beside(one: Value, other: Value, axis: int) -> bool:
    dims = [(a, b) for i, (a, b) in enumerate(zip(one.dims, other.dims, strict=False)) if i != axis]
    return one.rank == other.rank and all(a == b and a is not None for a, b in dims)


def split(g: Growing) -> list[Value]:
    """Parts of a value, not all of which are used."""
    x = g.pick(g.among(_ANY), least=1)
    axes = [a for a in range(x.rank) if not x.free(a) and x.shape[a] > 1]
    if not axes:
        raise RefusedError("nothing to split")
    axis = g.among(axes)
    size = x.shape[axis]
    if g.flip(0.3) and size % 2 == 0:
        attrs = {"num_outputs": 2} if g.opset >= 18 else {}
        return g.add("Split", [x], outputs=2, axis=axis, **attrs)
    first = g.integer(0 if g.flip(0.1) else 1, size - 1)
    sizes = [first, size - first]
    if g.opset < 13:
        return g.add("Split", [x], outputs=2, axis=axis, split=sizes)
    return g.add("Split", [x, g.integers(sizes)], outputs=2, axis=axis)


def _split(g: Growing) -> None:
    parts = split(g)
    if len({p.dims for p in parts}) == 1 and parts[0].kind == "f" and g.flip(0.5):
        g.add(g.among(["Add", "Mul", "Sub"]), parts)
    elif g.flip(0.4):
        g.add("Concat", parts[::-1] if g.flip(0.3) else parts, axis=g.integer(0, parts[0].rank - 1))


def _gather(g: Growing) -> None:
    x = g.pick(g.among(_ANY), least=1)
    axis = g.integer(0, x.rank - 1)
    # An index that fits at the base size may not at another: the model is then not run there.
    low, high = (0, 0) if x.free(axis) else (-x.shape[axis] if g.opset >= 11 else 0, x.shape[axis] - 1)
    if high < low:
        raise RefusedError("nothing to gather")
    dtype = g.among([np.int64, np.int32])
    shape = g.among([(), (1,), (2,), (3, 2)])
    at = np.asarray(g.rng.integers(low, high + 1, shape), dtype)
    g.add("Gather", [x, g.constant(at)], axis=axis if g.flip(0.8) else axis - x.rank)


def _gather_elements(g: Growing) -> None:
    if g.opset < 11:
        raise RefusedError("opset")
    x = g.pick("f", least=1)
    axis = g.integer(0, x.rank - 1)
    at = g.rng.integers(0, max(x.shape[axis], 1), x.shape).astype(np.int64)
    if g.flip(0.6):
        g.add("GatherElements", [x, g.constant(at)], axis=axis)
        return
    at = np.argsort(g.rng.random(x.shape), axis)  # no element twice: which one wins is not defined
    op_type = "ScatterElements" if g.opset >= 11 else "Scatter"
    reduction = g.among(["add", "mul"]) if g.opset >= 16 and g.flip(0.4) else None
    updates = g.constant(g.numbers.array(x.dtype, x.shape))
    g.add(op_type, [x, g.constant(at.astype(np.int64)), updates], axis=axis, reduction=reduction)


def _gather_nd(g: Growing) -> None:
    if g.opset < 11:
        raise RefusedError("opset")
    x = g.pick("fi", least=1)
    depth = g.integer(1, x.rank)
    if 0 in x.shape:
        raise RefusedError("nothing to gather")
    rows = 2 if x.shape[0] > 1 else 1
    at = np.stack([g.rng.permutation(max(n, rows))[:rows] % n for n in x.shape[:depth]], axis=-1).astype(np.int64)
    if g.flip(0.6):
        g.add("GatherND", [x, g.constant(at)])
        return
    if rows > 1 and (at[0] == at[1]).all():
        at, rows = at[:1], 1
    g.add("ScatterND", [x, g.constant(at), g.constant(g.numbers.array(x.dtype, (rows, *x.shape[depth:])))])


def _expand(g: Growing) -> None:
    if g.opset < 8:
        raise RefusedError("opset")
    x = g.pick(g.among(_ANY))
    shape = [g.integer(1, 3) if n == 1 and not x.free(a) and g.flip(0.7) else 1 if x.free(a) or g.flip(0.3) else n
             for a, n in enumerate(x.shape)]  # fmt: skip
    g.add("Expand", [x, g.integers([*([2] if g.flip(0.4) else []), *shape])])


def _tile(g: Growing) -> None:
    x = g.pick(g.among(_ANY), least=1)
    g.add("Tile", [x, g.integers(g.among([1, 1, 2, 3, 0]) for _ in range(x.rank))])


def pads(g: Growing, x: Value, least: int = 0) -> list[int]:
    """Pads of all axes, negative ones now and then."""
    options = [0, 0, 1, 2] + ([-1] if least < 0 else [])
    return [g.among(options) for _ in range(2 * x.rank)]


def _pad(g: Growing) -> None:
    x = g.pick("f" if g.opset < 11 or g.flip(0.7) else "i", least=1)
    mode = g.among(["constant", "constant", "reflect", "edge"])
    amounts = pads(g, x, -1 if mode == "constant" and g.flip(0.2) else 0)
    if g.opset < 11:
        g.add("Pad", [x], pads=amounts, mode=mode, value=float(g.among([0.0, 1.5])) if mode == "constant" else None)
        return
    value = [g.constant(g.numbers.array(x.dtype, ()))] if mode == "constant" and g.flip(0.6) else []
    g.add("Pad", [x, g.integers(amounts), *value], mode=mode)


def _blocks(g: Growing) -> None:
    x = g.pick("f", 4)
    if g.flip():
        mode = g.among([None, "DCR", "CRD"]) if g.opset >= 11 else None
        g.add("DepthToSpace", [x], blocksize=g.among([1, 2]), mode=mode)
    else:
        g.add("SpaceToDepth", [x], blocksize=g.among([1, 2]))


def _trilu(g: Growing) -> None:
    if g.opset < 14:
        raise RefusedError("opset")
    x = g.pick("f", least=2)
    k = [g.constant(np.array(g.integer(-2, 2), np.int64))] if g.flip(0.6) else []
    g.add("Trilu", [x, *k], upper=g.among([None, 0, 1]))


def _shape(g: Growing) -> None:
    x = g.pick("fiub")
    if g.flip(0.3):
        g.add("Size", [x])
        return
    bounds = {"start": g.among([None, 1, -1]), "end": g.among([None, -1, 1])} if g.opset >= 15 else {}
    (shape,) = g.add("Shape", [x], **bounds)
    if shape.array.size and g.flip(0.4):
        g.add("ConstantOfShape", [shape], **_filled(g))


def _filled(g: Growing) -> dict[str, Any]:
    if g.opset < 9 or g.flip(0.3):
        return {}
    return {"value": helper.make_tensor("value", TensorProto.FLOAT, [1], [g.among([1.0, -0.5, 3.0])])}


def _range(g: Growing) -> None:
    if g.opset < 11:
        raise RefusedError("opset")
    dtype = g.among([np.int64, np.int32, np.float32])
    numbers = g.among([(0, 4, 1), (5, 0, -1), (1, 8, 3), (0, 0, 1), (3, 1, 2)])
    g.add("Range", [g.constant(np.array(n, dtype)) for n in numbers])


def _eye(g: Growing) -> None:
    if g.opset < 9:
        raise RefusedError("opset")
    x = g.pick("fi", 2)
    g.add("EyeLike", [x], k=g.among([None, 1, -1]))


STEPS: Mapping[Step, float] = {
    _reshape: 5,
    _transpose: 6,
    _flatten: 2,
    _squeeze: 1.5,
    _unsqueeze: 1.5,
    _slice: 4,
    concat: 4,
    _split: 2.5,
    _gather: 2,
    _gather_elements: 0.8,
    _gather_nd: 0.8,
    _expand: 1.5,
    _tile: 1,
    _pad: 1.5,
    _blocks: 0.5,
    _trilu: 0.5,
    _shape: 1,
    _range: 0.4,
    _eye: 0.3,
}
