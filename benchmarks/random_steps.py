"""The steps that random graphs are made of: operators, the ways models compose them, and left sides of rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

import eqsat
from eqsat.language.graphs.builder import Tensor
from eqsat.rewrites.instances.instance import Sampler
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import Term, left_terms

if TYPE_CHECKING:
    from benchmarks.random_graphs import RandomGraph

_UNARY = ("relu", "tanh", "sigmoid", "abs", "neg", "identity", "erf", "sqrt", "exp", "reciprocal", "silu", "gelu")
_UNARY += ("leaky_relu", "elu", "softplus", "hard_sigmoid", "hard_swish", "sign", "cos", "log", "selu", "atan")
_BINARY = ("add", "mul", "sub", "div", "maximum", "minimum", "add", "mul", "sub")
_REDUCTIONS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_l2", "reduce_sum_square")
_PADS = ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0))


def _axis(r: RandomGraph, x: Tensor) -> int:
    return r.rng.randrange(x.rank)


def _unary(r: RandomGraph) -> Any:
    x = r.any()
    return x.graph.apply(r.rng.choice(_UNARY), x)


def _binary(r: RandomGraph) -> Any:
    x = r.any()
    pair = [x, r.mate(x)]
    r.rng.shuffle(pair)
    return r.graph.apply(r.rng.choice(_BINARY), *pair)


def _power(r: RandomGraph) -> Any:
    x = r.any()
    return r.graph.apply("pow", x, r.graph.constant(np.float64(r.rng.choice((0, 1, 2, 3, 0.5, -1))), x.dtype.value))


def _chain(r: RandomGraph) -> Any:
    """Sums, scales and quotients by constants, one after the other."""
    x = r.any()
    made = []
    for _ in range(r.rng.randint(2, 3)):
        x = r.graph.apply(r.rng.choice(("add", "mul", "sub", "div")), x, r.mate(x))
        made.append(x)
    return made


def _matmul(r: RandomGraph) -> Any:
    x = r.any(least=2)
    w = r.weight((x.shape[-1], r.size()))
    y = x @ w
    return y + r.weight((w.shape[1],)) if r.rng.random() < 0.5 else y


def _batched(r: RandomGraph) -> Any:
    x = r.any(rank=r.rng.choice((3, 4)))
    y = r.like((*x.shape[:-2], x.shape[-1], r.size()))
    return x @ y


def _products(r: RandomGraph) -> Any:
    x = r.any(least=2)
    y = r.weight((x.shape[-1], 4))
    z = r.weight((4, r.size()))
    return (x @ y) @ z if r.rng.random() < 0.5 else x @ (y @ z)


def _siblings(r: RandomGraph) -> Any:
    x = r.any(least=2)
    sizes = [r.size() for _ in range(r.rng.randint(2, 3))]
    made = [x @ r.weight((x.shape[-1], s)) for s in sizes]
    if r.rng.random() < 0.5:
        made = [m + r.weight((s,)) for m, s in zip(made, sizes, strict=True)]
    form = r.rng.random()
    if form < 0.3:
        return eqsat.concat(made, axis=x.rank - 1)
    if form < 0.5 and len(set(sizes)) == 1:
        return made[0] + made[1]
    return made


def _over_time(r: RandomGraph) -> Any:
    x = r.any(least=2)
    axis = _axis(r, x)
    if not isinstance(x.shape[axis], int) or x.shape[axis] < 2 or axis == x.rank - 1:
        return None
    w = r.weight((x.shape[-1], r.size()))
    parts = [x[(slice(None),) * axis + (slice(i, i + 1),)] for i in range(x.shape[axis])]
    f = r.rng.choice(("tanh", "relu", "identity"))
    made = [r.graph.apply(f, p @ w) for p in parts]
    return eqsat.concat(made, axis=axis) if r.rng.random() < 0.6 else made


def _sum_of_products(r: RandomGraph) -> Any:
    x = r.any(rank=2)
    y = r.like((x.shape[0], r.size()))
    n = r.size()
    return x @ r.weight((x.shape[1], n)) + y @ r.weight((y.shape[1], n))


def _gemm(r: RandomGraph) -> Any:
    x = r.any(rank=2)
    ta, tb = r.rng.random() < 0.4, r.rng.random() < 0.4
    k, m = (x.shape[0], x.shape[1]) if ta else (x.shape[1], x.shape[0])
    n = r.size()
    w = r.weight((n, k) if tb else (k, n))
    attrs = {"trans_a": ta, "trans_b": tb, "alpha": r.rng.choice((1.0, 1.0, 0.5)), "beta": r.rng.choice((1.0, 2.0))}
    if r.rng.random() < 0.3:
        return r.graph.apply("gemm", x, w, **attrs | {"beta": 1.0})
    return r.graph.apply("gemm", x, w, r.weight(r.rng.choice(((n,), (1, n), (m, n), (1,)))), **attrs)


def _concat(r: RandomGraph) -> Any:
    x = r.any(least=1)
    axis = _axis(r, x)
    others = []
    for _ in range(r.rng.randint(1, 2)):
        size = x.shape[axis] if r.rng.random() < 0.6 else r.size()
        others.append(r.like((*x.shape[:axis], size, *x.shape[axis + 1 :])))
    return eqsat.concat([x, *others], axis=axis)


def _concat_of_calls(r: RandomGraph) -> Any:
    x = r.any(least=1)
    axis, f = _axis(r, x), r.rng.choice((*_UNARY[:8], "softmax"))
    parts = [x, *(r.like(x.shape) for _ in range(r.rng.randint(1, 2)))]
    attrs = {"axis": x.rank - 1} if f == "softmax" else {}
    return eqsat.concat([r.graph.apply(f, p, **attrs) for p in parts], axis=axis)


def _slice(r: RandomGraph) -> Any:
    x = r.any(dtype=r.rng.choice([t.dtype.value for t in r.pool]), least=1)
    axis = _axis(r, x)
    size = x.shape[axis] if isinstance(x.shape[axis], int) else 3
    a, b = sorted((r.rng.randint(0, size), r.rng.randint(0, size)))
    step = r.rng.choice((1, 1, 1, 2))
    index = slice(size - 1, None, -1) if r.rng.random() < 0.1 and isinstance(x.shape[axis], int) else slice(a, b, step)
    return x[(slice(None),) * axis + (index,)]


def _split(r: RandomGraph) -> Any:
    x = r.any(least=1)
    axis = _axis(r, x)
    size = x.shape[axis]
    if not isinstance(size, int):
        return None
    cut = r.rng.randint(0, size)
    parts = [*eqsat.split(x, [cut, size - cut], axis=axis)]
    if r.rng.random() < 0.4:
        return eqsat.concat(parts[:: r.rng.choice((1, -1))], axis=axis)
    return parts


def _reshape(r: RandomGraph) -> Any:
    x = r.any()
    dims = list(x.shape)
    form = r.rng.random()
    if form < 0.3:
        dims.insert(r.rng.randint(0, x.rank), 1)
    elif form < 0.7 and x.rank >= 2:
        at = r.rng.randrange(x.rank - 1)
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    elif x.rank:
        at = _axis(r, x)
        if isinstance(dims[at], int) and dims[at] and dims[at] % 2 == 0:
            dims[at : at + 1] = [2, dims[at] // 2]
    return x.reshape(*dims)


def _transpose(r: RandomGraph) -> Any:
    x = r.any(least=2)
    perm = list(range(x.rank))
    r.rng.shuffle(perm)
    y = x.transpose(*perm)
    if r.rng.random() < 0.3:
        w = r.weight((y.shape[-1], r.size()))
        return (y @ w).transpose(*np.argsort(perm).tolist())
    return y


def _gather(r: RandomGraph) -> Any:
    x = r.any(least=1)
    axis = _axis(r, x)
    size = x.shape[axis]
    if not isinstance(size, int) or not size:
        return None
    shape = r.rng.choice(((), (1,), (2,), (3,), (2, 2)))
    indices: Any = r.data.integers(-size, size, shape)
    if shape == (2,) and size > 2:
        start = r.rng.randint(0, size - 2)
        indices = np.array([start, start + 1])
    elif r.rng.random() < 0.2:
        return x.graph.apply("gather", x, r.input(shape, "int64"), axis=axis)
    return x.graph.apply("gather", x, r.graph.constant(indices), axis=axis)


def _expand(r: RandomGraph) -> Any:
    x = r.any()
    dims = tuple(r.size() if d == 1 else d for d in x.shape)
    return r.graph.apply("expand", x, shape=((2, *dims) if r.rng.random() < 0.3 else dims))


def _tile(r: RandomGraph) -> Any:
    x = r.any(least=1)
    return r.graph.apply("tile", x, repeats=tuple(r.rng.choice((1, 1, 2)) for _ in x.shape))


def _pad(r: RandomGraph) -> Any:
    x = r.any(least=1)
    pads = tuple(r.rng.choice((0, 0, 1, 2)) for _ in range(2 * x.rank))
    y = r.graph.apply("pad", x, pads=pads, value=r.rng.choice((0.0, 0.0, 1.5)))
    return r.graph.apply("pad", y, pads=pads) if r.rng.random() < 0.3 else y


def _reduce(r: RandomGraph) -> Any:
    x = r.any(least=1)
    axes = tuple(sorted(r.rng.sample(range(x.rank), r.rng.randint(0 if r.rng.random() < 0.1 else 1, x.rank))))
    op, keep = r.rng.choice(_REDUCTIONS), r.rng.random() < 0.6
    y = r.graph.apply(op, x, axes=axes, keepdims=keep)
    if keep and r.rng.random() < 0.3:
        return r.graph.apply(op, y, axes=(_axis(r, x),), keepdims=True)
    return y


def _softmax(r: RandomGraph) -> Any:
    x = r.any(least=1)
    if r.rng.random() < 0.3:
        x = x + r.mate(x)
    return r.graph.apply(r.rng.choice(("softmax", "softmax", "log_softmax")), x, axis=_axis(r, x))


def _softmax_parts(r: RandomGraph) -> Any:
    x = r.any(least=1)
    axes = (_axis(r, x),)
    if r.rng.random() < 0.5:
        x = x - eqsat.reduce_max(x, axes, keepdims=True)
    e = r.graph.apply("exp", x)
    return e / eqsat.reduce_sum(e, axes, keepdims=True)


def _normalisation(r: RandomGraph) -> Any:
    x = r.any(least=2)
    if not isinstance(x.shape[-1], int):
        return None
    axes = (x.rank - 1,)
    centred = x - eqsat.reduce_mean(x, axes, keepdims=True)
    y = centred / r.graph.apply("sqrt", eqsat.reduce_mean(centred * centred, axes, keepdims=True) + 1e-3)
    if r.rng.random() < 0.4:
        y = x / r.graph.apply("sqrt", eqsat.reduce_mean(x * x, axes, keepdims=True) + 1e-3)
    if r.rng.random() < 0.7:
        y = y * r.weight((x.shape[-1],))
        y = y + r.weight((x.shape[-1],)) if r.rng.random() < 0.7 else y
    return y @ r.weight((x.shape[-1], r.size())) if r.rng.random() < 0.5 else y


def _attention(r: RandomGraph) -> Any:
    x = r.any(rank=3)
    if not isinstance(x.shape[-1], int) or x.shape[-1] % 2:
        return None
    width = x.shape[-1]
    perm = (0, 2, 1, 3)
    q, k, v = (
        (x @ r.weight((width, width)) + r.weight((width,))).reshape(*x.shape[:2], 2, width // 2).transpose(*perm)
        for _ in range(3)
    )
    scores = (q @ k.transpose(0, 1, 3, 2)) * 0.5
    if r.rng.random() < 0.3:
        scores = scores + r.mate(scores)
    y = r.graph.apply("softmax", scores, axis=3) @ v
    return y.transpose(*perm).reshape(*x.shape[:2], width)


def _gelu(r: RandomGraph) -> Any:
    x = r.any()
    return x * (r.graph.apply("erf", x / 1.4142135381698608) + 1.0) * 0.5


def _conv(r: RandomGraph) -> Any:
    x = r.any(rank=4)
    channels = x.shape[1]
    if not isinstance(channels, int) or not channels:
        return None
    group = r.rng.choice([g for g in (1, 1, 1, 2, channels) if channels % g == 0])
    kernel, pads = r.rng.choice(((1, 1), (3, 3), (1, 3), (2, 2))), r.rng.choice(_PADS)
    count = group * r.rng.randint(1, 3)
    attrs = {"strides": r.rng.choice(((1, 1), (1, 1), (2, 1))), "group": group}

    def made(operand: Tensor, kernel: tuple[int, int], pads: tuple[int, ...]) -> Any:
        w = r.weight((count, channels // group, *kernel))
        bias = [r.weight((count,))] if r.rng.random() < 0.5 else []
        return eqsat.conv(operand, w, *bias, pads=pads, **attrs)

    first = made(x, kernel, pads)
    form = r.rng.random()
    if form < 0.15:
        return [first, made(x, kernel, pads)]
    if form < 0.3:
        return first + made(x if r.rng.random() < 0.5 else r.like(x.shape), kernel, pads)
    if form < 0.4:
        return eqsat.concat([first, made(x, kernel, pads)], axis=1)
    if form < 0.5 and kernel == (3, 3) and pads == (1, 1, 1, 1):
        return [first, made(x, (1, 1), (0, 0, 0, 0))]
    if form < 0.6:
        return r.graph.apply("relu", first)
    return first


def _batch_norm(r: RandomGraph) -> Any:
    x = _conv(r) if r.rng.random() < 0.6 else r.any(least=2)
    if not isinstance(x, Tensor) or not isinstance(x.shape[1], int):
        return None
    scale, bias, mean = (r.constant((x.shape[1],)) for _ in range(3))
    variance = r.graph.constant(1 + r.data.random(x.shape[1]), x.dtype.value)
    y = r.graph.apply("batch_norm", x, scale, bias, mean, variance, epsilon=1e-3)
    return r.graph.apply("relu", y) if r.rng.random() < 0.5 else y


def _pool(r: RandomGraph) -> Any:
    x = r.any(rank=4)
    form = r.rng.random()
    if form < 0.2:
        return r.graph.apply(r.rng.choice(("global_avg_pool", "global_max_pool")), x)
    kernel, strides = r.rng.choice(((2, 2), (3, 3), (1, 1))), r.rng.choice(((1, 1), (2, 2)))
    pads = r.rng.choice(_PADS) if kernel != (1, 1) else (0, 0, 0, 0)
    attrs: dict[str, Any] = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": (1, 1)}
    attrs["ceil_mode"] = r.rng.random() < 0.15
    if form < 0.6:
        return r.graph.apply("max_pool", x, **attrs)
    return r.graph.apply("avg_pool", x, **attrs, count_include_pad=r.rng.random() < 0.5)


def _where(r: RandomGraph) -> Any:
    x = r.any()
    condition = r.graph.apply(r.rng.choice(("less", "greater", "less_equal")), x, r.mate(x))
    if r.rng.random() < 0.3:
        condition = r.graph.apply("not_", condition)
    return [condition, r.graph.apply("where", condition, x, r.mate(x))]


def _logic(r: RandomGraph) -> Any:
    x = r.any(dtype="bool")
    op = r.rng.choice(("and_", "or_", "xor", "not_"))
    return r.graph.apply(op, x) if op == "not_" else r.graph.apply(op, x, r.mate(x))


def _integers(r: RandomGraph) -> Any:
    x = r.any(dtype=r.rng.choice(("int64", "int64", "int32", "uint8")))
    op = r.rng.choice(("add", "mul", "sub", "maximum", "minimum", "add", "mul", "abs", "relu", "reduce_sum", "cast"))
    if op in ("abs", "relu"):
        return r.graph.apply(op, x)
    if op == "cast":
        return x.cast(r.rng.choice((r.dtype, "int64")))
    if op == "reduce_sum":
        return r.graph.apply(op, x, axes=(0,), keepdims=True)
    pair = [x, r.mate(x)]
    r.rng.shuffle(pair)
    return r.graph.apply(op, *pair)


def _cast(r: RandomGraph) -> Any:
    x = r.any()
    other = r.rng.choice(("float32", "float64", "float16", r.dtype))
    return x.cast(other).cast(r.dtype) if r.rng.random() < 0.7 else x.cast(other)


def _clip(r: RandomGraph) -> Any:
    x = r.any()
    low, high = sorted((r.rng.choice((-1.0, 0.0, 0.5, 6.0)), r.rng.choice((-1.0, 0.0, 1.0, 6.0))))
    bounds = [r.graph.constant(np.float64(b), x.dtype.value) for b in (low, high)]
    if r.rng.random() < 0.5:
        return r.graph.apply("clip", r.graph.apply("relu", x), *bounds)
    return r.graph.apply("clip", x, *(r.rng.choice((b, b, None)) for b in bounds))


def _scan(r: RandomGraph) -> Any:
    x = r.any(least=1)
    form, axis = r.rng.choice(("cumsum", "argmax", "topk", "hardmax", "trilu", "shape")), _axis(r, x)
    if form == "topk":
        return list(r.graph.apply("topk", x, k=1, axis=axis))
    if form == "trilu":
        return r.graph.apply("trilu", x) if x.rank >= 2 else None
    if form == "shape":
        return r.graph.apply("shape", x).cast(r.dtype)
    return r.graph.apply(form, x, axis=axis)


def _einsum(r: RandomGraph) -> Any:
    x = r.any(rank=2)
    return eqsat.einsum(r.rng.choice(("ij,jk->ik", "ij,jk->ki")), x, r.weight((x.shape[1], r.size())))


@cache
def _rules() -> tuple[Rule, ...]:
    return tuple(rule for rule in load_rules() if rule.phase != "associate")


def _left_side(r: RandomGraph) -> Any:
    """What a rule of the library matches, over tensors that are there where they fit."""
    rule = r.rng.choice(_rules())
    drawn = Sampler(rule, seed=r.rng.randrange(1 << 30)).draw(60)
    if drawn is None:
        return None
    made: dict[int, Tensor] = {}

    def operand(drawn: Any) -> Tensor:
        dtype = r.dtype if drawn.type.dtype.value == "float64" else drawn.type.dtype.value
        if drawn.constant and drawn.array is not None and (drawn.read or r.rng.random() < 0.6):
            return r.graph.constant(drawn.array, dtype)
        return r.like(drawn.type.dims, dtype, 0.1)

    def built(term: Any) -> Tensor:
        if id(term) not in made:
            if isinstance(term, Term):
                made[id(term)] = r.graph.apply(term.op, *(built(o) for o in term.operands), **term.attrs)
            else:
                made[id(term)] = operand(term)
        return made[id(term)]

    return [built(term) for term in left_terms(rule, drawn) if isinstance(term, Term) and len(term.types) == 1]


#: What a graph is made of, each as often as it stands here.
STEPS: tuple[Callable[[RandomGraph], Any], ...] = (
    *(_unary, _binary, _chain, _matmul, _siblings, _conv, _concat, _slice, _reshape, _transpose, _over_time) * 2,
    *(_power, _batched, _products, _sum_of_products, _gemm, _concat_of_calls, _split, _gather, _expand, _tile, _pad),
    *(_reduce, _softmax, _softmax_parts, _normalisation, _attention, _gelu, _batch_norm, _pool, _where, _logic),
    *(_left_side,) * 12,
    *(_integers, _cast, _clip, _scan, _einsum),
)
