"""Shape arithmetic: small integer tensors whose elements are dims, evaluated while types are inferred.

An exporter computes shapes by operators (Shape, Gather, Mul, Concat, Equal, Where …). Here such a tensor is an object
array of integers and `Sym`, booleans counting as integers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.language.terms import Array, Attrs, Dim, DType, Sym, TensorType, dim_max, floordiv, product
from eqsat.language.terms.dims import dim_min, polynomial_quotient

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
    """True if a >= b for every size of the named dims; None where the sizes decide."""
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


def _quotient(a: Dim, b: Dim) -> Dim:
    """Rounded toward zero, as ONNX divides integers."""
    if b == 0:
        raise Undecided
    quotient = polynomial_quotient(a, b)
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
    return 0 if polynomial_quotient(a, b) is not None else Sym.function("mod", a, b)


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


def as_dims(value: Any) -> Array:
    """A result as an array of dims."""
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


def gather(attrs: Attrs, x: Array, indices: Array) -> Array:
    """Elements, or slices, at indices."""
    if any(isinstance(i, Sym) for i in indices.ravel()):
        raise Undecided
    return np.asarray(np.take(x, indices.astype(np.int64), axis=attrs["axis"]), object)


def slice_(attrs: Attrs, x: Array) -> Array:
    """Every so many elements between two ends."""
    index = [slice(None)] * x.ndim
    steps = attrs["steps"] or (1,) * len(attrs["axes"])
    for start, end, axis, step in zip(attrs["starts"], attrs["ends"], attrs["axes"], steps, strict=True):
        if isinstance(start, Sym) or isinstance(end, Sym):
            raise Undecided
        index[axis] = slice(start, None if end < 0 else end, step)
    return x[tuple(index)]


def cast(attrs: Attrs, x: Array) -> Array:
    """Dims as integers, or as truth values."""
    to = DType.of(attrs["to"])
    if to not in _INTEGERS:
        raise Undecided
    return as_dims(np.frompyfunc(_boolean, 1, 1)(x)) if to is DType.BOOL else x


def fill(attrs: Attrs) -> Array:
    """One number everywhere."""
    result = np.empty(attrs["shape"], object)
    result[...] = int(attrs["value"])
    return result


def iota(attrs: Attrs) -> Array:
    """Numbers at equal distances."""
    values = [attrs["start"] + attrs["step"] * i for i in range(attrs["size"])]
    result = np.empty(len(values), object)
    result[:] = values
    return result


def each(rule: Callable[..., Dim]) -> Callable[..., Array]:
    """A rule for elements as one for arrays, whatever the attributes are."""

    def apply(_attrs: Attrs, *operands: Array) -> Array:
        return as_dims(np.frompyfunc(rule, len(operands), 1)(*operands))

    return apply


def modulo(attrs: Attrs, a: Array, b: Array) -> Array:
    """Remainders with the sign of the divisor, or of the dividend."""
    return each(_fmod if attrs["fmod"] else _mod)(attrs, a, b)


add, subtract, multiply = each(operator.add), each(operator.sub), each(operator.mul)
divide, power, negative = each(_quotient), each(_power), each(operator.neg)
absolute = each(lambda a: a if _decide(at_least(a, 0)) else -a)
relu = each(lambda a: _maximum(a, 0))
maximum, least_of = each(_maximum), each(minimum)
equal = each(_equal)
greater_equal = each(lambda a, b: _decide(at_least(a, b)))
less_equal = each(lambda a, b: _decide(at_least(b, a)))
less = each(lambda a, b: 1 - _decide(at_least(a, b)))
greater = each(lambda a, b: 1 - _decide(at_least(b, a)))
both = each(lambda a, b: _boolean(a) & _boolean(b))
either = each(lambda a, b: _boolean(a) | _boolean(b))
one_of = each(lambda a, b: _boolean(a) ^ _boolean(b))
inverse = each(lambda a: 1 - _boolean(a))
where = each(_where)
same = each(lambda a: a)
product_of, sum_of = _reduced(product), _reduced(lambda dims: sum(dims))


def reshape(attrs: Attrs, x: Array) -> Array:
    """The elements in another shape."""
    return x.reshape(attrs["shape"])


def transpose(attrs: Attrs, x: Array) -> Array:
    """The axes in another order."""
    return np.transpose(x, attrs["perm"])


def expand(attrs: Attrs, x: Array) -> Array:
    """Axes repeated to the shape that is broadcast to."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, attrs["shape"]))


def concat(attrs: Attrs, *xs: Array) -> Array:
    """Arrays joined along an axis."""
    return np.concatenate(xs, axis=attrs["axis"])


def split(attrs: Attrs, x: Array) -> tuple[Array, ...]:
    """Parts of arrays along an axis."""
    if any(isinstance(size, Sym) for size in attrs["sizes"]):
        raise Undecided
    return tuple(np.split(x, np.cumsum(attrs["sizes"])[:-1], axis=attrs["axis"]))


def tile(attrs: Attrs, x: Array) -> Array:
    """Axes repeated."""
    return np.tile(x, attrs["repeats"])


def shape_elements(type: TensorType, start: int, end: int | None) -> Array | None:
    """The elements that `shape` of a tensor of this type makes, or None where the rank is unknown."""
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
