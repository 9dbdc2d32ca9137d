"""Shape arithmetic: small integer tensors whose elements are dims, evaluated while types are inferred.

An exporter computes shapes by operators (Shape, Gather, Mul, Concat, Equal, Where …). Here such a tensor is an object
array of integers and `Sym`, booleans counting as integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.language.terms.constant import Array
from eqsat.language.terms.dims import Dim, Sym, dim_max, dim_min, exact_quotient, floordiv, product
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.types import DType, TensorType

#: Larger tensors are no shapes.
MOST_ELEMENTS = 1024

_INTEGERS = (DType.INT64, DType.INT32, DType.BOOL)


class Undecided(Exception):  # noqa: N818  (nothing is wrong)
    """The names of dims decide the result."""


def is_shape_like(type: TensorType) -> bool:
    """True for small tensors of integers or booleans with a known shape."""
    return type.dtype in _INTEGERS and type.is_static and math.prod(type.static) <= MOST_ELEMENTS


def least(dim: Dim) -> int | None:
    """A number the dimension is never below, named dims being 0 or more; None where none is known.

    >>> least(Sym.named("n") + 2)
    2
    """
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coefficient in dim.terms:
        if not monomial:
            total += coefficient
        elif coefficient < 0 or not all(_atom_is_natural(atom) for atom, _ in monomial):
            return None
    return total


def _atom_is_natural(atom: Any) -> bool:
    if isinstance(atom, str):
        return True
    name, a, b = atom
    natural = [low is not None and low >= 0 for low in (least(a), least(b))]
    if name == "max":
        return any(natural)
    return natural[1] if name == "mod" else all(natural)


def at_least(a: Dim, b: Dim) -> bool | None:
    """Whether a >= b for every size of the named dims; None where the sizes decide."""
    low, high = least(a - b), least(b - a)
    if low is not None and low >= 0:
        return True
    return False if high is not None and high > 0 else None


def _decide(value: bool | None) -> int:
    if value is None:
        raise Undecided
    return int(value)


def _equal(a: Dim, b: Dim) -> int:
    if a == b:
        return 1
    low, high = least(a - b), least(b - a)
    if (low is not None and low > 0) or (high is not None and high > 0):
        return 0
    raise Undecided


def _divide(a: Dim, b: Dim) -> Dim:
    """Rounded toward zero, as ONNX divides integers."""
    if b == 0:
        raise Undecided
    quotient = exact_quotient(a, b)
    if quotient is not None:
        return quotient
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if _decide(at_least(a, 0)) and _decide(at_least(b, 1)):
        return floordiv(a, b)
    raise Undecided


def _mod(a: Dim, b: Dim) -> Dim:
    """With the sign of the divisor, as ONNX has it of integers."""
    if b == 0:
        raise Undecided
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    return 0 if exact_quotient(a, b) is not None else Sym.function("mod", a, b)


def _fmod(a: Dim, b: Dim) -> Dim:
    """With the sign of the dividend: the same where neither is negative."""
    if not (_decide(at_least(a, 0)) and _decide(at_least(b, 1))):
        raise Undecided
    return _mod(a, b)


def _maximum(a: Dim, b: Dim) -> Dim:
    return a if at_least(a, b) else b if at_least(b, a) else dim_max(a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two dims, decided where it can be."""
    return b if at_least(a, b) else a if at_least(b, a) else dim_min(a, b)


def _where(c: Dim, x: Dim, y: Dim) -> Dim:
    if x == y:
        return x
    if isinstance(c, Sym):
        raise Undecided
    return x if c else y


def _power(a: Dim, b: Dim) -> Dim:
    if isinstance(b, int) and 0 <= b <= 8:
        return product([a] * b)
    raise Undecided


def _boolean(a: Dim) -> int:
    return _decide(None) if isinstance(a, Sym) else int(bool(a))


_POINTWISE: Mapping[str, Callable[..., Dim]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divide,
    "mod": _mod,
    "pow": _power,
    "neg": lambda a: -a,
    "abs": lambda a: a if _decide(at_least(a, 0)) else -a,
    "relu": lambda a: _maximum(a, 0),
    "maximum": _maximum,
    "minimum": minimum,
    "equal": _equal,
    "greater_equal": lambda a, b: _decide(at_least(a, b)),
    "less_equal": lambda a, b: _decide(at_least(b, a)),
    "less": lambda a, b: 1 - _decide(at_least(a, b)),
    "greater": lambda a, b: 1 - _decide(at_least(b, a)),
    "and_": lambda a, b: _boolean(a) & _boolean(b),
    "or_": lambda a, b: _boolean(a) | _boolean(b),
    "xor": lambda a, b: _boolean(a) ^ _boolean(b),
    "not_": lambda a: 1 - _boolean(a),
    "where": _where,
    "identity": lambda a: a,
}


def _object(value: Any) -> Array:
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value
    boxed = np.empty((), object)
    boxed[()] = value
    return boxed


def _reduced(fold: Callable[[Any], Dim]) -> Callable[..., Array]:
    def reduce(attrs: Attrs, x: Array) -> Array:
        axes, keep = attrs["axes"], attrs["keepdims"]
        moved = np.moveaxis(x, axes, range(-len(axes), 0)) if axes else x
        outer = moved.shape[: x.ndim - len(axes)]
        rows = moved.reshape(*outer, -1)
        result = np.empty(outer, object)
        for index in np.ndindex(*outer):
            result[index] = fold(rows[index].tolist())
        return result.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keep else result

    return reduce


def _gather(attrs: Attrs, x: Array, indices: Array) -> Array:
    if any(isinstance(i, Sym) for i in indices.ravel()):
        raise Undecided
    return np.asarray(np.take(x, indices.astype(np.int64), axis=attrs["axis"]), object)


def _slice(attrs: Attrs, x: Array) -> Array:
    index = [slice(None)] * x.ndim
    steps = attrs["steps"] or (1,) * len(attrs["axes"])
    for start, end, axis, step in zip(attrs["starts"], attrs["ends"], attrs["axes"], steps, strict=True):
        if isinstance(start, Sym) or isinstance(end, Sym):
            raise Undecided
        index[axis] = slice(start, None if end < 0 else end, step)
    return x[tuple(index)]


def _cast(attrs: Attrs, x: Array) -> Array:
    to = DType.of(attrs["to"])
    if to not in _INTEGERS:
        raise Undecided
    return _object(np.frompyfunc(_boolean, 1, 1)(x)) if to is DType.BOOL else x


def _fill(attrs: Attrs) -> Array:
    result = np.empty(attrs["shape"], object)
    result[...] = int(attrs["value"])
    return result


def _iota(attrs: Attrs) -> Array:
    values = [attrs["start"] + attrs["step"] * i for i in range(attrs["size"])]
    result = np.empty(len(values), object)
    result[:] = values
    return result


_MOVEMENT: Mapping[str, Callable[..., Array]] = {
    "reshape": lambda attrs, x: x.reshape(attrs["shape"]),
    "transpose": lambda attrs, x: np.transpose(x, attrs["perm"]),
    "expand": lambda attrs, x: np.broadcast_to(x, np.broadcast_shapes(x.shape, attrs["shape"])),
    "concat": lambda attrs, *xs: np.concatenate(xs, axis=attrs["axis"]),
    "tile": lambda attrs, x: np.tile(x, attrs["repeats"]),
    "gather": _gather,
    "slice": _slice,
    "cast": _cast,
    "fill": _fill,
    "iota": _iota,
    "reduce_prod": _reduced(product),
    "reduce_sum": _reduced(lambda dims: sum(dims)),
}


def evaluate_dims(op: str, attrs: Attrs, operands: Sequence[Array | None]) -> Array | None:
    """The result of a shape computation on known operands, or None where it is not decided by what is known."""
    if any(x is None for x in operands):
        return None
    try:
        if op in _POINTWISE:
            rule = _fmod if op == "mod" and attrs["fmod"] else _POINTWISE[op]
            pointwise: Any = np.frompyfunc(rule, len(operands), 1)
            return _object(pointwise(*operands))
        if op in _MOVEMENT:
            return _object(_MOVEMENT[op](attrs, *operands))
    except (Undecided, IndexError, ValueError):
        return None
    return None


def shape_elements(type: TensorType, start: int, end: int | None) -> Array | None:
    """What `shape` of a tensor of this type makes, or None where the rank is unknown."""
    if type.shape is None:
        return None
    dims = type.shape[slice(start, end)]
    result = np.empty(len(dims), object)
    result[:] = dims
    return result


def fits(known: Array, dtype: DType) -> bool:
    """False where a number among dims, or one that a named dim is multiplied by, is beyond an element type's range.

    Such arithmetic wraps around when the program runs, which that on dims does not.
    """
    if dtype is DType.BOOL:
        return True
    limits = np.iinfo(dtype.numpy)
    numbers = (n for d in known.ravel() for n in ([c for _, c in d.terms] if isinstance(d, Sym) else [d]))
    return all(limits.min <= n <= limits.max for n in numbers)


def as_integers(known: Array, dtype: DType) -> Array | None:
    """The elements as an ordinary array, or None where one is symbolic; they lie within the range of the type."""
    return None if any(isinstance(d, Sym) for d in known.ravel()) else known.astype(dtype.numpy)
