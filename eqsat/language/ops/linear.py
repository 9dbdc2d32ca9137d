"""Matrix products and convolutions."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype
from eqsat.language.ops.elementwise import broadcasts_to
from eqsat.language.ops.operands import demands, enumeration
from eqsat.language.ops.windows import conv_geometry, pad_spatial, window_count, windows
from eqsat.language.terms import Attrs, Dim, Shape, TensorType, broadcast_shapes, evaluate, product


def _matmul_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    a, b = present(operands, 0), present(operands, 1)
    same_dtype([a, b])
    if a.shape is None or b.shape is None:
        return (TensorType(a.dtype, None),)
    if not a.shape or not b.shape:
        raise ShapeError("matmul of a scalar", expected="tensors of rank 1 or more", remedy="use mul")
    inner = b.shape[0] if len(b.shape) == 1 else b.shape[-2]
    if isinstance(inner, int) and isinstance(a.shape[-1], int) and inner != a.shape[-1]:
        raise ShapeError(
            f"matmul of {a} and {b} sums over dims {a.shape[-1]} and {inner}",
            expected="the last dim of the left operand to equal the second-last of the right one",
        )
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if len(a.shape) > 1 else ()
    columns = b.shape[-1:] if len(b.shape) > 1 else ()
    return (TensorType(a.dtype, (*batch, *rows, *columns)),)


def _matmul_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    return results[0].size * present(operands, 0).dims[-1] * 2


#: How often an operand that is drawn for matmul is a vector.
_VECTORS = 0.15


def _matmul_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    a, b = known
    batch: Shape = tuple(rng.randint(1, 3) for _ in range(rng.choice((0, 0, 1, 2))))
    if a is None:
        inner = b[-2] if b is not None and len(b) > 1 else b[0] if b else rng.randint(1, 3)
        a = (inner,) if rng.random() < _VECTORS else (*batch, rng.randint(1, 3), inner)
    if not a:
        return None
    if b is None:
        matrix = (*(a[:-2] if rng.random() < 0.5 else ()), a[-1], rng.randint(1, 3))
        b = (a[-1],) if rng.random() < _VECTORS else matrix
    return (a, b), attrs


@op(
    infer=_matmul_type,
    flops=_matmul_flops,
    sample=_matmul_sample,
    multilinear=(0, 1),
    index="... m k, ... k n -> ... m n",
    onnx="MatMul",
    instances=({},),
    product=True,
    total="static",
    beside=enumeration.beside_matmul,
    demands=demands.product_dims,
)
def matmul(xp: Any, a: Any, b: Any) -> Any:
    """Matrix product over the last two dimensions, broadcast over the rest (ONNX MatMul)."""
    return xp.matmul(a, b)


def _gemm_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    a, b = present(operands, 0), present(operands, 1)
    same_dtype([t for t in operands if t is not None])
    if not a.dtype.is_float and not (float(attrs["alpha"]).is_integer() and float(attrs["beta"]).is_integer()):
        raise ShapeError(
            f"alpha {attrs['alpha']} and beta {attrs['beta']} of a gemm of {a}", expected="whole numbers for integers"
        )
    if a.shape is None or b.shape is None:
        return (TensorType(a.dtype, None),)
    if a.rank != 2 or b.rank != 2:
        raise ShapeError(f"gemm of {a} and {b}", expected="two matrices", remedy="use matmul")
    left = a.dims[::-1] if attrs["trans_a"] else a.dims
    right = b.dims[::-1] if attrs["trans_b"] else b.dims
    (result,) = _matmul_type((a.with_shape(left), b.with_shape(right)), attrs)
    if len(operands) > 2 and operands[2] is not None and operands[2].shape is not None:
        addend = operands[2].dims
        if not broadcasts_to(addend, result.dims):
            raise ShapeError(
                f"gemm of {a} and {b} makes {list(result.dims)}, to which {list(addend)} does not broadcast",
                expected="a third operand no larger than the product along every axis",
                remedy="use matmul and add",
            )
    return (result,)


def _gemm_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    inner = present(operands, 0).dims[0 if attrs["trans_a"] else 1]
    return results[0].size * inner * 2


def _gemm_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    full = {"trans_a": rng.random() < 0.3, "trans_b": rng.random() < 0.3, **attrs}
    if any(s is not None and len(s) != 2 for s in known[:2]):
        return None
    a = _turned(known[0], full["trans_a"])
    b = _turned(known[1], full["trans_b"])
    inner = a[1] if a is not None else b[0] if b is not None else rng.randint(1, 3)
    a = a or (rng.randint(1, 3), inner)
    b = b or (inner, rng.randint(1, 3))
    shapes = [s for s in (_turned(a, full["trans_a"]), _turned(b, full["trans_b"])) if s is not None]
    return [*shapes, *(s if s is not None else rng.choice(((b[1],), (a[0], b[1]))) for s in known[2:])], full


def _turned(shape: Shape | None, turn: bool) -> Shape | None:
    return shape[::-1] if turn and shape is not None else shape


@op(
    infer=_gemm_type,
    flops=_gemm_flops,
    sample=_gemm_sample,
    multilinear=(0, 1),
    index="m k ^trans_a, k n ^trans_b, + m n -> m n",
    onnx="Gemm",
    product=True,
    total="static",
    beside=enumeration.beside_gemm,
    demands=demands.product_dims,
    family="matmul",
)
def gemm(
    xp: Any,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Any:
    """Alpha · a' @ b' + beta · c of matrices, a' and b' transposed where said, c broadcast (ONNX Gemm); linear in `a`
    and `b` only without `c`."""
    result = xp.matmul(np.transpose(a) if trans_a else a, np.transpose(b) if trans_b else b)
    if alpha != 1.0:
        result = xp.multiply(result, xp.number(alpha, result))
    if c is None:
        return result
    return xp.add(result, c if beta == 1.0 else xp.multiply(c, xp.number(beta, result)))


def _conv_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, w = present(operands, 0), present(operands, 1)
    same_dtype([t for t in operands if t is not None])
    if x.shape is None or w.shape is None:
        return (TensorType(x.dtype, None),)
    spatial = x.rank - 2
    if spatial < 1 or w.rank != x.rank:
        raise ShapeError(f"conv of {x} with {w}", expected="input N,C,spatial… and filter O,I,spatial… of one rank")
    group = attrs["group"]
    strides, dilations, pads = conv_geometry(attrs, spatial)
    if w.dims[1] * group != x.dims[1] and isinstance(x.dims[1], int) and isinstance(w.dims[1], int):
        raise ShapeError(
            f"weight has {w.dims[1]} input channels a group, the input has {x.dims[1]} in {group} groups",
            expected="C_in / group = weight.shape[1]",
            remedy="set group, or fix the weight",
        )
    if isinstance(w.dims[0], int) and w.dims[0] % group:
        raise ShapeError(f"{w.dims[0]} output channels in {group} groups", expected="a multiple of group")
    bias = operands[2] if len(operands) > 2 else None
    if bias is not None and bias.shape is not None and (bias.rank != 1 or _differ(bias.dims[0], w.dims[0])):
        raise ShapeError(f"bias {bias} for {w.dims[0]} output channels", expected=f"a vector of {w.dims[0]}")
    sizes = [
        window_count(x.dims[2 + i], w.dims[2 + i], strides[i], pads[i], pads[spatial + i], dilations[i])
        for i in range(spatial)
    ]
    return (TensorType(x.dtype, (x.dims[0], w.dims[0], *sizes)),)


def _conv_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    return results[0].size * product(present(operands, 1).dims[1:]) * 2


def _conv_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    x, w = known[0], known[1]
    group = attrs.get("group") or rng.choice((1, 1, 2))
    if x is None:
        per_group = w[1] if w is not None else rng.randint(1, 2)
        x = (rng.randint(1, 2), per_group * group, rng.randint(1, 3), rng.randint(1, 3))
    if len(x) != 4 or not isinstance(x[1], int):
        return None
    pads = attrs["pads"] if "pads" in attrs else tuple(rng.randint(0, 1) for _ in range(4))
    if len(pads) not in (0, 4):
        return None
    rooms: list[Any] = [evaluate(x[2 + i], {}) + sum(pads[i::2]) for i in range(2)]
    if w is None:
        if x[1] % group:
            return None
        w = (group * rng.randint(1, 2), x[1] // group, *(rng.randint(1, min(3, max(room, 1))) for room in rooms))
    drawn = {
        "strides": tuple(rng.randint(1, 2) for _ in range(2)),
        "dilations": tuple(rng.choice((1, 1, 2)) if 2 * (w[2 + i] - 1) < rooms[i] else 1 for i in range(2)),
        "activation": rng.choice(("none", "none", "relu")),
    }
    full = {**drawn, **attrs, "group": group, "pads": pads}
    shapes: list[Shape] = [x, w]
    if len(known) > 2:
        shapes.append(known[2] or (w[0],))
    return shapes, full


def _groups(x: tuple[int, ...], w: tuple[int, ...]) -> int:
    """The groups into which a filter's shape cuts the channels."""
    return x[1] // w[1]


_SAME_3 = (1, 1, 1, 1)


_CONV_INSTANCES: tuple[Mapping[str, Any], ...] = (
    {"group": _groups},
    {"group": _groups, "pads": _SAME_3},
    {"group": _groups, "strides": (2, 2), "pads": _SAME_3},
    {"group": _groups, "pads": _SAME_3, "activation": "relu"},
)


@op(
    infer=_conv_type,
    flops=_conv_flops,
    sample=_conv_sample,
    multilinear=(0, 1),
    index="n g*c h@r..., g*o c r..., + g*o -> n g*o h...; g = group; linear if activation = none",
    onnx="Conv",
    instances=_CONV_INSTANCES,
    product=True,
    total="static",
    choices={("strides", "dilations", "pads"): enumeration.convolved, "group": enumeration.groups},
    beside=enumeration.beside_conv,
    demands=demands.channels,
    windowed=True,
)
def conv(
    xp: Any,
    x: Any,
    w: Any,
    b: Any = None,
    *,
    strides: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    group: int = 1,
    activation: str = "none",
) -> Any:
    """Convolution of N,C,spatial… with filters O,C/group,spatial… (ONNX Conv); `activation` is "none" or "relu".

    Pads are explicit: all begins, then all ends. Linear in each operand only without activation and bias.
    """
    spatial = x.ndim - 2
    strides, dilations, pads = conv_geometry({"strides": strides, "dilations": dilations, "pads": pads}, spatial)
    view = windows(pad_spatial(xp, x, pads), w.shape[2:], strides, dilations)
    batch, out, depth = x.shape[0], view.shape[2 : 2 + spatial], math.prod(w.shape[1:])
    # (N, G, C/G, out…, kernel…) -> (G, N·out, C/G·kernel) @ (G, C/G·kernel, O/G)
    grouped = view.reshape(batch, group, x.shape[1] // group, *view.shape[2:])
    order = (1, 0, *range(3, 3 + spatial), 2, *range(3 + spatial, 3 + 2 * spatial))
    columns = grouped.transpose(order).reshape(group, batch * math.prod(out), depth)
    filters = w.reshape(group, w.shape[0] // group, depth).transpose(0, 2, 1)
    result = xp.matmul(columns, filters).reshape(group, batch, *out, w.shape[0] // group)
    result = np.moveaxis(np.moveaxis(result, -1, 1), 2, 0)
    result = result.reshape(batch, w.shape[0], *out)
    if b is not None:
        result = xp.add(result, b.reshape(-1, *(1,) * spatial))
    return xp.maximum(result, xp.number(0.0, result)) if activation == "relu" else result


def _differ(a: Dim, b: Dim) -> bool:
    """True if two dims are known to be of different size."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def _transposed_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, w = present(operands, 0), present(operands, 1)
    same_dtype([t for t in operands if t is not None])
    if x.shape is None or w.shape is None:
        return (TensorType(x.dtype, None),)
    spatial = x.rank - 2
    if spatial < 1 or w.rank != x.rank:
        raise ShapeError(f"conv_transpose of {x} with {w}", expected="input N,C,spatial… and filter C,O/group,spatial…")
    channels, inputs = w.dims[0], x.dims[1]
    if isinstance(channels, int) and isinstance(inputs, int) and channels != inputs:
        raise ShapeError(
            f"weight has {channels} input channels, the input has {inputs}", expected="C = weight.shape[0]"
        )
    if isinstance(channels, int) and channels % attrs["group"]:
        raise ShapeError(f"{channels} input channels in {attrs['group']} groups", expected="a multiple of group")
    outputs = w.dims[1] * attrs["group"]
    bias = operands[2] if len(operands) > 2 else None
    if bias is not None and bias.shape is not None and (bias.rank != 1 or _differ(bias.dims[0], outputs)):
        raise ShapeError(f"bias {bias} for {outputs} output channels", expected=f"a vector of {outputs}")
    strides, dilations, pads = conv_geometry(attrs, spatial)
    more = attrs["output_padding"] or (0,) * spatial
    sizes = [
        (x.dims[2 + i] - 1) * strides[i]
        + (w.dims[2 + i] - 1) * dilations[i]
        + (1 + more[i] - pads[i] - pads[spatial + i])
        for i in range(spatial)
    ]
    if any(isinstance(s, int) and s < 1 for s in sizes):
        raise ShapeError(f"pads {list(pads)} cut more off than there is", expected="a result with dims of 1 or more")
    return (TensorType(x.dtype, (x.dims[0], outputs, *sizes)),)


def _transposed_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    return present(operands, 0).size * product(present(operands, 1).dims[1:]) * 2


def _transposed_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    x, w = known[0], known[1]
    group = attrs.get("group") or rng.choice((1, 1, 2))
    channels = x[1] if x is not None else w[0] if w is not None else group * rng.randint(1, 2)
    x = x or (rng.randint(1, 2), channels, rng.randint(1, 3), rng.randint(1, 3))
    w = w or (channels, rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 3))
    if len(x) != 4 or len(w) != 4 or not isinstance(channels, int) or channels % group:
        return None
    strides = attrs.get("strides") or tuple(rng.randint(1, 2) for _ in range(2))
    drawn = {
        "pads": (0, 0, rng.randint(0, int(w[2] != 1)), 0),
        "output_padding": tuple(rng.randrange(s) for s in strides),
    }
    shapes = [x, w, *(s if s is not None else (w[1] * group,) for s in known[2:])]
    return shapes, {**drawn, **attrs, "strides": strides, "group": group}


@op(
    infer=_transposed_type,
    flops=_transposed_flops,
    sample=_transposed_sample,
    multilinear=(0, 1),
    index="n g*c h@r..., g*c o r..., + g*o -> n g*o h...; g = group",
    onnx="ConvTranspose",
    choices={
        ("strides", "dilations", "pads", "output_padding"): enumeration.deconvolved,
        "group": enumeration.divisors,
    },
    beside=enumeration.beside_conv_transpose,
    windowed=True,
)
def conv_transpose(
    xp: Any,
    x: Any,
    w: Any,
    b: Any = None,
    *,
    strides: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    group: int = 1,
    output_padding: tuple[int, ...] = (),
) -> Any:
    """The adjoint of a convolution: N,C,spatial… with filters C,O/group,spatial… (ONNX ConvTranspose).

    Each element of a filter adds its multiple of the operand where it falls: nothing is multiplied by zeros in between,
    which would make NaN of infinities.
    """
    spatial = x.ndim - 2
    strides, dilations, pads = conv_geometry({"strides": strides, "dilations": dilations, "pads": pads}, spatial)
    more = output_padding or (0,) * spatial
    sizes, kernel = x.shape[2:], w.shape[2:]
    full = [max((n - 1) * s + d * (k - 1) + 1, 0) for n, s, d, k in zip(sizes, strides, dilations, kernel, strict=True)]
    # (N, G·C/G, size…) -> (G, N·size, C/G), to be multiplied by the (G, C/G, O/G) at each place of the kernel
    grouped = np.moveaxis(x.reshape(x.shape[0], group, x.shape[1] // group, *sizes), (1, 2), (0, -1))
    rows = grouped.reshape(group, x.shape[0] * int(np.prod(sizes)), x.shape[1] // group)
    filters = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    result: Any = np.full((x.shape[0], group * w.shape[1], *full), xp.number(0.0, x), dtype=x.dtype)
    for place in np.ndindex(*kernel) if all(sizes) else ():
        product = xp.matmul(rows, filters[(..., *place)]).reshape(group, x.shape[0], *sizes, w.shape[1])
        product = np.moveaxis(product, (0, -1), (1, 2)).reshape(x.shape[0], group * w.shape[1], *sizes)
        steps = zip(place, sizes, strides, dilations, strict=True)
        at = (..., *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, n, s, d in steps))
        result[at] = xp.add(result[at], product)
    ends = [pads[spatial + i] - more[i] for i in range(spatial)]
    inner = (slice(pads[i], full[i] - max(ends[i], 0)) for i in range(spatial))
    result = pad_spatial(xp, result[(..., *inner)], [0] * spatial + [max(-e, 0) for e in ends])
    return result if b is None else xp.add(result, b.reshape(-1, *(1,) * spatial))
