"""The attributes that an operator can have on operands of given types, all of them up to a bound."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias

from eqsat.errors import GraphError
from eqsat.language.declaration.spec import REQUIRED
from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.instances.fitting import Bounds, Sizes, broadcasts, shapes

#: Values of one attribute for operands of known types.
Choices: TypeAlias = Callable[[Bounds, Sequence[Sizes]], Iterable[Any]]


@cache
def settings(
    op: str, types: tuple[TensorType | None, ...], fixed: Attrs, bounds: Bounds
) -> tuple[tuple[Attrs, tuple[TensorType, ...]], ...]:
    """The attributes, `fixed` ones given, that an operator takes for operands of these types, and what it returns."""
    declared = spec(op)
    dims = [t.static for t in types if t is not None]
    free = [n for n in declared.attrs if n not in fixed]
    found = []
    try:
        candidates = list(_attributes(op, free, fixed, dims, bounds))
    except (IndexError, ValueError):  # operands of a rank that the operator does not take
        return ()
    for chosen in candidates:
        attrs = completed(op, {**fixed, **chosen})
        try:
            results = declared.result_types(types, attrs)
        except (GraphError, IndexError, TypeError, ValueError):
            continue
        if all(t.is_static for t in results):
            found.append((attrs, results))
    return tuple(found)


def completed(op: str, attrs: Mapping[str, Any]) -> Attrs:
    """The attributes with defaults filled in, one object for equal ones."""
    return _completed(op, tuple((n, type(v).__name__, v) for n, v in attrs.items()))


@lru_cache(maxsize=200_000)
def _completed(op: str, attrs: tuple[tuple[str, str, Any], ...]) -> Attrs:
    return spec(op).complete({name: value for name, _, value in attrs})


def is_complete(op: str, names: Iterable[str]) -> bool:
    """Whether the grid knows every value of these attributes of an operator, rather than those of its instances."""
    return all(n in _JOINT.get(op, ((), None))[0] or (op, n) in _CHOICES or ("", n) in _CHOICES for n in names)


def _attributes(
    op: str, free: Sequence[str], fixed: Mapping[str, Any], dims: Sequence[Sizes], bounds: Bounds
) -> Iterator[dict[str, Any]]:
    joint, values = _JOINT.get(op, ((), None))
    given = [n for n in joint if n in fixed]
    together: list[dict[str, Any]] = [{}]
    if values is not None and len(given) < len(joint):
        together = [dict(zip(joint, v, strict=True)) for v in values(bounds, dims)]
        together = [t for t in together if all(t[n] == fixed[n] for n in given)]
    rest = [n for n in free if n not in joint]
    declared = spec(op)
    columns = []
    for name in rest:
        choices = _CHOICES.get((op, name)) or _CHOICES.get(("", name))
        if choices is not None:
            columns.append(list(choices(bounds, dims)))
        else:
            stated = [i[name] for i in declared.instances if name in i and not callable(i[name])]
            columns.append(list(dict.fromkeys(stated)) or [declared.attrs[name]])
    for first in together:
        for row in itertools.product(*columns):
            if REQUIRED not in row:
                yield {**{k: v for k, v in first.items() if k not in fixed}, **dict(zip(rest, row, strict=True))}


# --- attributes ----------------------------------------------------------------------------------------------------


def _along(size: int, kernel: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Stride, dilation and both pads along one axis, wherever a window fits."""
    for stride, dilation, begin, end in itertools.product((1, 2), (1, 2), range(most + 1), range(most + 1)):
        if dilation * (kernel - 1) < size + begin + end:
            yield stride, dilation, begin, end


@cache
def _geometry(sizes: Sizes, kernel: Sizes, most: int) -> tuple[tuple[Sizes, Sizes, Sizes], ...]:
    """Strides, dilations and pads of windows over the spatial axes."""
    found = []
    for axes in itertools.product(*(list(_along(n, k, most)) for n, k in zip(sizes, kernel, strict=True))):
        strides, dilations, begins, ends = zip(*axes, strict=True)
        found.append((strides, dilations, (*begins, *ends)))
    return tuple(found)


def _convolved(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Sizes, Sizes, Sizes]]:
    x, w = dims[:2]
    if len(x) == len(w) > 2:
        yield from _geometry(x[2:], w[2:], bounds.pad if len(x) == 3 else 1)


def _deconvolved(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Any, ...]]:
    """Strides, dilations, pads and output padding of a transposed convolution; what it cuts off is checked later."""
    count = max(len(dims[0]) - 2, 0)
    ones = list(itertools.product((1, 2), repeat=count))
    yield from itertools.product(
        ones, ones, itertools.product((0, 1), repeat=2 * count), itertools.product((0, 1), repeat=count)
    )


def _pooled(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Sizes, Sizes, Sizes, Sizes]]:
    for kernel in _kernels(bounds, dims) if len(dims[0]) > 2 else ():
        most = min(bounds.pad if len(dims[0]) == 3 else 1, max(kernel, default=0) // 2)
        yield from ((kernel, *rest) for rest in _geometry(dims[0][2:], kernel, most))


def _groups(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[int]:
    """The groups into which the input's channels fall for a filter."""
    x, w = dims[:2]
    if w[1] and not x[1] % w[1] and not w[0] % (x[1] // w[1]):
        yield x[1] // w[1]


def _divisors(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[int]:
    yield from (g for g in range(1, dims[0][1] + 1) if not dims[0][1] % g)


def _kernels(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    yield from itertools.product(range(1, bounds.most(len(dims[0])) + 1), repeat=max(len(dims[0]) - 2, 0))


def _any_kernel(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    for rank in (1, 2):
        yield from itertools.product(range(1, bounds.most(rank + 2) + 1), repeat=rank)


def _axes(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    for count in range(len(dims[0]) + 1):
        yield from itertools.combinations(range(len(dims[0])), count)


def _regrouped(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    """Every shape of as many elements."""
    size = 1
    for d in dims[0]:
        size *= d
    for rank in range(max(bounds.rank - 1, len(dims[0])) + 1):
        yield from _factored(size, rank)


def _factored(size: int, rank: int) -> Iterator[Sizes]:
    if rank == 0:
        yield from ((),) if size == 1 else ()
        return
    for d in range(1, size + 1):
        if size % d == 0:
            yield from ((d, *rest) for rest in _factored(size // d, rank - 1))


def _broadcast_to(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[Sizes]:
    yield from (s for s in shapes(bounds) if broadcasts(s, dims[0]))


def _slices(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Any, ...]]:
    """Axes, starts, ends and steps: none, any of one axis, of two axes those that drop the first or last element."""
    x = dims[0]
    yield (), (), (), ()
    for axis, d in enumerate(x):
        for start, end in itertools.combinations_with_replacement(range(d + 1), 2):
            yield (axis,), (start,), (end,), ()
            if end - start > 1:
                yield (axis,), (start,), (end,), (2,)
        for start in range(d):
            yield (axis,), (start,), (-1,), (-1,)
    for i, j in itertools.combinations(range(len(x)), 2):
        for a, b in itertools.product(((0, x[i] - 1), (1, x[i])), ((0, x[j] - 1), (1, x[j]))):
            yield (i, j), (a[0], b[0]), (a[1], b[1]), ()


def _pads(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Any, ...]]:
    """Pads, mode and value: up to one element on every side, and one element cut off a side."""
    count = 2 * len(dims[0])
    for pads in itertools.product((0, 1), repeat=count):
        yield pads, "constant", 0.0
        if sum(pads) <= 2:
            yield from ((pads, "constant", 1.5), (pads, "edge", 0.0))
    for place in range(count):
        yield tuple(-int(i == place) for i in range(count)), "constant", 0.0


def _activations(count: int, other: tuple[str, ...]) -> Callable[[Bounds, Sequence[Sizes]], Iterator[tuple[Any, ...]]]:
    """Activations of a layer with so many for each direction: none, its own by name, others, their operands clipped."""
    own = {3: ("Sigmoid", "Tanh", "Tanh"), 2: ("Sigmoid", "Tanh"), 1: ("Tanh",)}[count]

    def choices(bounds: Bounds, dims: Sequence[Sizes]) -> Iterator[tuple[Any, ...]]:
        yield (), (), (), None
        many = count * dims[1][0]
        yield own * dims[1][0], (0.0,) * many, (0.0,) * many, None
        yield other * dims[1][0], (0.5,) * many, (0.25,) * many, 0.5

    return choices


def _of(*values: Any) -> Choices:
    return lambda bounds, dims: values


def _axis(bounds: Bounds, dims: Sequence[Sizes]) -> Iterable[int]:
    return range(len(dims[0]))


def _sides(bounds: Bounds, dims: Sequence[Sizes]) -> Iterable[int]:
    return range(1, bounds.side + 1)


#: Attributes that only make sense together, by operator.
_JOINT: dict[str, tuple[tuple[str, ...], Callable[[Bounds, Sequence[Sizes]], Iterator[tuple[Any, ...]]] | None]] = {
    "slice": (("axes", "starts", "ends", "steps"), _slices),
    "pad": (("pads", "mode", "value"), _pads),
    "conv": (("strides", "dilations", "pads"), _convolved),
    "conv_transpose": (("strides", "dilations", "pads", "output_padding"), _deconvolved),
    "max_pool": (("kernel", "strides", "dilations", "pads"), _pooled),
    "avg_pool": (("kernel", "strides", "dilations", "pads"), _pooled),
    "lstm": (("activations", "alphas", "betas", "clip"), _activations(3, ("HardSigmoid", "LeakyRelu", "Softsign"))),
    "gru": (("activations", "alphas", "betas", "clip"), _activations(2, ("HardSigmoid", "Relu"))),
    "rnn": (("activations", "alphas", "betas", "clip"), _activations(1, ("Affine",))),
}
#: The values of one attribute, by operator and name, or by name alone.
_CHOICES: dict[tuple[str, str], Choices] = {
    ("", "axis"): _axis,
    ("", "axes"): _axes,
    ("", "perm"): lambda bounds, dims: itertools.permutations(range(len(dims[0]))),
    ("", "keepdims"): _of(False, True),
    ("conv", "group"): _groups,
    ("conv_transpose", "group"): _divisors,
    ("group_norm", "groups"): _divisors,
    ("", "activation"): _of("none", "relu"),
    ("", "direction"): _of("forward", "reverse", "bidirectional"),
    ("", "layout"): _of(0, 1),
    ("", "input_forget"): _of(False, True),
    ("", "linear_before_reset"): _of(False, True),
    ("", "ceil_mode"): _of(False, True),
    ("", "count_include_pad"): _of(False, True),
    ("", "trans_a"): _of(False, True),
    ("", "trans_b"): _of(False, True),
    ("", "alpha"): _of(1.0, 0.5),
    ("", "beta"): _of(1.0, 0.25),
    ("", "epsilon"): _of(0.25),
    ("", "dtype"): _of("float64"),
    ("", "to"): _of("float64", "float32"),
    ("", "approximate"): _of("none", "tanh"),
    ("", "upper"): _of(False, True),
    ("", "exclusive"): _of(False, True),
    ("", "reverse"): _of(False, True),
    ("", "fmod"): _of(True),
    ("", "detect_negative"): _of(False, True),
    ("", "detect_positive"): _of(False, True),
    ("trilu", "k"): _of(-1, 0, 1),
    ("reshape", "shape"): _regrouped,
    ("expand", "shape"): _broadcast_to,
    ("fill", "shape"): lambda bounds, dims: shapes(bounds),
    ("fill", "value"): _of(1.0, 0.5),
    ("tile", "repeats"): lambda bounds, dims: itertools.product((1, 2), repeat=len(dims[0])),
    ("eye", "n"): _sides,
    ("identity_kernel", "channels"): _sides,
    ("identity_kernel", "kernel"): _any_kernel,
    ("pool_kernel", "channels"): _sides,
    ("pool_kernel", "kernel"): _any_kernel,
    ("enlarge", "kernel"): _kernels,
}
