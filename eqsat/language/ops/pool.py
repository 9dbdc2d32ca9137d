"""Operators on sliding windows: pooling and local response normalisation."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present
from eqsat.language.ops import sampling
from eqsat.language.ops.movement import smaller
from eqsat.language.ops.operands import demands, enumeration
from eqsat.language.ops.reduce import flops_per_input, mean
from eqsat.language.ops.windows import conv_geometry, pad_spatial, window_count, windows
from eqsat.language.terms import Attrs, Dim, Shape, Sym, TensorType, ceildiv, evaluate, product

Ints: TypeAlias = tuple[int, ...]


def _pool_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, kernel = present(operands, 0), attrs["kernel"]
    if x.shape is None:
        return (x,)
    spatial = x.rank - 2
    if spatial < 1 or len(kernel) != spatial:
        raise ShapeError(f"windows {list(kernel)} in {x}", expected="N,C,spatial… and one size for each spatial dim")
    strides, dilations, pads = conv_geometry(attrs, spatial)
    count = _ceil_count if attrs["ceil_mode"] else window_count
    sizes = tuple(
        count(x.shape[2 + i], kernel[i], strides[i], pads[i], pads[spatial + i], dilations[i]) for i in range(spatial)
    )
    for i, made in enumerate(sizes):
        border = pads[i], pads[spatial + i]
        if _sees_padding_alone(x.shape[2 + i], made, kernel[i], strides[i], border, dilations[i]):
            raise ShapeError(
                f"a window lies in the padding of axis {2 + i} alone",
                expected="pads smaller than windows, and an element for each window",
            )
    return (x.with_shape((*x.shape[:2], *sizes)),)


def _sees_padding_alone(
    size: Dim, count: Dim, kernel: int, stride: int, border: tuple[int, int], dilation: int
) -> bool:
    """True if a window along an axis may have no element of the operand; of unknown sizes, if a pad holds all of it."""
    begin, end = border
    if begin > dilation * (kernel - 1) or end > dilation * (kernel - 1):
        return True
    if isinstance(size, Sym) or isinstance(count, Sym):
        return False
    # A window that begins before the operand has an element among the first `dilation` places.
    return (count - 1) * stride - begin >= size or (begin > 0 and size < dilation)


def _ceil_count(size: Dim, kernel: Dim, stride: int, begin: int, end: int, dilation: int) -> Dim:
    """The number of windows there are when the last may reach over the end, but none starts past the operand."""
    window_count(size, kernel, 1, begin, end + stride - 1, dilation)
    room = size + (begin + end - 1) - dilation * (kernel - 1)
    return smaller(ceildiv(room, stride) + 1, ceildiv(size + begin, stride))


def _pool_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    return results[0].size * product(attrs["kernel"])


def _pool_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    kernel = attrs.get("kernel")
    spatial = len(kernel) if kernel is not None else rng.choice((1, 2, 2))
    x = known[0]
    if x is None:
        x = (rng.randint(1, 2), rng.randint(1, 3), *(rng.randint(2, 4) for _ in range(spatial)))
    if len(x) < 3 or not all(isinstance(d, int) for d in x):
        return None
    spatial = len(x) - 2
    full = {"kernel": tuple(rng.randint(1, min(3, max(evaluate(d, {}), 1))) for d in x[2:]), **attrs}
    drawn = {
        "strides": tuple(rng.randint(1, 2) for _ in range(spatial)),
        "dilations": (1,) * spatial,
        # A pad is smaller than its window, or a window would hold nothing but padding.
        "pads": tuple(rng.randint(0, min(1, k - 1)) for k in (*full["kernel"], *full["kernel"])),
        "ceil_mode": rng.random() < 0.3,
    }
    return (x,), {**drawn, **full}


def _avg_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    drawn = _pool_sample(rng, known, attrs)
    return None if drawn is None else (drawn[0], {"count_include_pad": rng.random() < 0.5, **drawn[1]})


class _Windows:
    """All windows of an operand as its last axis, and which of their positions lie in it or in its padding."""

    def __init__(self, x: Any, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints, ceil: bool) -> None:
        spatial = x.ndim - 2
        self.kernel = kernel
        self.strides, self.dilations, pads = conv_geometry(
            {"strides": strides, "dilations": dilations, "pads": pads}, spatial
        )
        count = _ceil_count if ceil else window_count
        over = []
        for i in range(spatial):
            begin, end, extent = pads[i], pads[spatial + i], self.dilations[i] * (kernel[i] - 1) + 1
            out = count(x.shape[2 + i], kernel[i], self.strides[i], begin, end, self.dilations[i])
            reach = (evaluate(out, {}) - 1) * self.strides[i] + extent
            over.append(max(reach - (x.shape[2 + i] + begin + end), 0))
        self.pads = pads
        self.over = (0,) * spatial + tuple(over)
        self.inside = np.ones((1, 1, *x.shape[2:]), np.int64)

    def of(self, x: Any) -> Any:
        """The windows of a padded array: shape (N, C, out…, positions)."""
        view = windows(x, self.kernel, self.strides, self.dilations)
        return view.reshape(*view.shape[: 2 + len(self.kernel)], int(np.prod(self.kernel)))

    def padded(self, xp: Any, x: Any, value: float = 0.0) -> Any:
        """The array with its padding and the border that the last window reaches over."""
        total = [p + o for p, o in zip(self.pads, self.over, strict=True)]
        return pad_spatial(xp, x, total, value)

    def mask(self, *, padding: bool) -> Any:
        """1 where a position lies in the operand, or with `padding` in it or its padding."""
        ones = _border(self.inside, self.pads, int(padding))
        return self.of(_border(ones, self.over, 0))


def _border(x: Any, pads: Sequence[int], value: int) -> Any:
    spatial = len(pads) // 2
    widths = [(0, 0), (0, 0), *((pads[i], pads[spatial + i]) for i in range(spatial))]
    return np.pad(x, widths, constant_values=value)


_POOL_INSTANCES: tuple[Mapping[str, Any], ...] = (
    {"kernel": (3, 3), "pads": (1, 1, 1, 1)},
    {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
)


#: Operators on windows of a size.
_pool = partial(op, infer=_pool_type, flops=_pool_flops, demands=demands.windows, windowed=True)


@_pool(
    sample=_pool_sample,
    index="n c h@kernel... -> n c h...",
    onnx="MaxPool",
    instances=_POOL_INSTANCES,
    selects=True,
    choices={("kernel", "strides", "dilations", "pads"): enumeration.pooled},
    beside=enumeration.windowed,
)
def max_pool(
    xp: Any,
    x: Any,
    *,
    kernel: Ints,
    strides: Ints = (),
    pads: Ints = (),
    dilations: Ints = (),
    ceil_mode: bool = False,
) -> Any:
    """Maximum of every window of N,C,spatial…; padding never counts."""
    placed = _Windows(x, kernel, strides, pads, dilations, ceil_mode)
    inside = placed.mask(padding=False).astype(bool)
    view = placed.of(placed.padded(xp, x))
    # Position by position, since there is no least element among residues to pad with.
    result, known = view[..., 0], inside[..., 0]
    for i in range(1, view.shape[-1]):
        here = inside[..., i]
        joined = np.where(known, xp.maximum(result, view[..., i]), view[..., i])
        result, known = np.where(here, joined, result), known | here
    return result


@_pool(
    sample=_avg_sample,
    multilinear=(0,),
    index="n c h@kernel... -> n c h...",
    onnx="AveragePool",
    instances=[{**i, "count_include_pad": True} for i in _POOL_INSTANCES],
    accumulates=True,
    sensitive=True,
    choices={("kernel", "strides", "dilations", "pads"): enumeration.pooled},
    beside=enumeration.windowed,
)
def avg_pool(
    xp: Any,
    x: Any,
    *,
    kernel: Ints,
    strides: Ints = (),
    pads: Ints = (),
    dilations: Ints = (),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Any:
    """Mean of every window of N,C,spatial…; padding counts as zeros where asked for, and not at all otherwise."""
    placed = _Windows(x, kernel, strides, pads, dilations, ceil_mode)
    total = xp.sum(placed.of(placed.padded(xp, x)), axis=-1)
    counts = np.broadcast_to(placed.mask(padding=count_include_pad).sum(axis=-1), total.shape)
    result = total
    for count in np.unique(counts):
        result = np.where(counts == count, xp.divide(total, xp.number(int(count), x)), result)
    return result


def _lp_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    drawn = _pool_sample(rng, known, {"ceil_mode": False, **attrs})
    return None if drawn is None else (drawn[0], {"p": rng.choice((1, 2, 3)), **drawn[1]})


@_pool(sample=_lp_sample, onnx="LpPool", shapes="n, c, spatial… becomes n, c, windows….")
def lp_pool(
    xp: Any,
    x: Any,
    *,
    kernel: Ints,
    p: int = 2,
    strides: Ints = (),
    pads: Ints = (),
    dilations: Ints = (),
    ceil_mode: bool = False,
) -> Any:
    """The p-norm of every window of N,C,spatial…, where padding counts as zeros (ONNX LpPool)."""
    placed = _Windows(x, kernel, strides, pads, dilations, ceil_mode)
    sizes = xp.apply("abs", placed.of(placed.padded(xp, x)))
    if p == 1:
        return xp.sum(sizes, axis=-1)
    total = xp.sum(xp.power(sizes, xp.number(float(p), x)), axis=-1)
    return xp.power(total, xp.number(1.0 / p, x))


def _global_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    if x.shape is None:
        return (x,)
    if x.rank < 3:
        raise ShapeError(f"global pooling of {x}", expected="N,C,spatial…")
    return (x.with_shape((*x.shape[:2], *(1 for _ in x.shape[2:]))),)


_GLOBAL_SAMPLE = sampling.one_operand(3)


#: Operators on one window over all of space.
_global_pool = partial(
    op,
    infer=_global_type,
    flops=flops_per_input(1),
    sample=_GLOBAL_SAMPLE,
    partial=True,
    beside=enumeration.windowed,
    windowed=True,
)


@_global_pool(
    multilinear=(0,),
    index="n c h... -> n c 1...; reads h",
    onnx="GlobalAveragePool",
    instances=({},),
    accumulates=True,
    sensitive=True,
)
def global_avg_pool(xp: Any, x: Any) -> Any:
    """Mean over all spatial axes of N,C,spatial…, which stay as ones."""
    return mean(xp, x, tuple(range(2, x.ndim)))


@_global_pool(index="n c h... -> n c 1...", onnx="GlobalMaxPool", selects=True)
def global_max_pool(xp: Any, x: Any) -> Any:
    """Maximum over all spatial axes of N,C,spatial…, which stay as ones."""
    return xp.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _lrn_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    if x.shape is not None and x.rank < 3:
        raise ShapeError(f"lrn of {x}", expected="N,C,spatial…")
    return (x,)


def _lrn_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    return results[0].size * (2 * int(attrs["size"]) + 6)


@op(
    infer=_lrn_type,
    flops=_lrn_flops,
    sample=sampling.one_operand(4, size=sampling.choice(1, 3)),
    index="n [c] h... -> n [c] h...",
    onnx="LRN",
    sensitive=True,
)
def lrn(xp: Any, x: Any, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0) -> Any:
    """The operand over (bias + alpha / size · sum of squares over `size` neighbouring channels) ** beta."""
    squares = np.moveaxis(xp.multiply(x, x), 1, -1)
    padded = pad_spatial(xp, squares, [(size - 1) // 2, size - 1 - (size - 1) // 2])
    total = xp.sum(windows(padded, (size,), (1,), (1,)), axis=-1)
    scaled = xp.multiply(xp.divide(xp.number(alpha, x), xp.number(size, x)), np.moveaxis(total, -1, 1))
    return xp.divide(x, xp.power(xp.add(xp.number(bias, x), scaled), xp.number(beta, x)))
