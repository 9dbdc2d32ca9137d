"""Exact arithmetic modulo a prime for operator references."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.terms import DType, TensorType

#: A safe prime near 2^20: (P - 1) / 2 is prime as well. Centred residues are at most 2^19, so float64 holds a sum of
#: 2^53 / 2^38 = 32768 products exactly.
PRIME = 1048343
_CHUNK = 32768


class ResidueNamespace:
    """Arithmetic on int64 arrays of residues; functions that are no polynomials become fixed random functions.

    A law of every function (relu of a concat) holds here; one that rests on a property of one function
    (relu(2x) = 2 relu(x)) does not, and such a region is checked in float64 instead.
    """

    exact = True
    where = staticmethod(np.where)
    equal = staticmethod(np.equal)

    def __init__(self, prime: int = PRIME) -> None:
        self.prime = prime

    def add(self, a: Any, b: Any) -> Any:
        """Sum."""
        return np.add(a, b) % self.prime

    def subtract(self, a: Any, b: Any) -> Any:
        """Difference."""
        return np.subtract(a, b) % self.prime

    def multiply(self, a: Any, b: Any) -> Any:
        """Product."""
        return np.multiply(a, b) % self.prime

    def negative(self, a: Any) -> Any:
        """Negation."""
        return np.negative(a) % self.prime

    def divide(self, a: Any, b: Any) -> Any:
        """Quotient: product with the inverse; the inverse of zero is a fixed random number."""
        return np.multiply(a, self._inverse(b)) % self.prime

    def power(self, a: Any, b: Any) -> Any:
        """Power: repeated product where every exponent is one small natural number, a random function otherwise."""
        exponents = np.unique(np.asarray(b))
        if exponents.size == 1 and 0 <= int(exponents[0]) <= 16:
            result = np.ones(np.broadcast_shapes(np.shape(a), np.shape(b)), np.int64)
            for _ in range(int(exponents[0])):
                result = result * a % self.prime
            return result
        return self._random("power", a, b)

    def matmul(self, a: Any, b: Any) -> Any:
        """Matrix product, exact through float64 on centred residues, in chunks of the summed axis."""
        a, b = np.asarray(a), np.asarray(b)
        depth = a.shape[-1]
        if depth <= _CHUNK:
            return self._product(a, b)
        total: Any = 0
        for start in range(0, depth, _CHUNK):
            rows = b[start : start + _CHUNK] if b.ndim == 1 else b[..., start : start + _CHUNK, :]
            total = (total + self._product(a[..., start : start + _CHUNK], rows)) % self.prime
        return total

    def einsum(self, equation: str, *operands: Any) -> Any:
        """Sum of products by index notation, two operands at a time through matrix products."""
        if len(operands) == 1:
            return np.einsum(equation, operands[0]) % self.prime
        if len(operands) == 2:
            return (
                np.einsum(equation, *(self._centred(o) for o in operands), optimize=True).astype(np.int64) % self.prime
            )
        left, out = equation.replace(" ", "").split("->")
        first, second, *rest = left.split(",")
        remaining = "".join(sorted({c for c in first + second if c in "".join(rest) + out}))
        pair = self.einsum(f"{first},{second}->{remaining}", *operands[:2])
        return self.einsum(",".join([remaining, *rest]) + "->" + out, pair, *operands[2:])

    def sum(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Sum over axes."""
        return np.sum(x, axis=axis, keepdims=keepdims, dtype=np.int64) % self.prime

    def prod(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Product over axes."""
        x = np.asarray(x)
        axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
        for one in sorted((a % x.ndim for a in axes), reverse=True):
            total = (
                np.ones_like(np.take(x, 0, axis=one)) if x.shape[one] else np.ones(np.delete(x.shape, one), np.int64)
            )
            for index in range(x.shape[one]):
                total = total * np.take(x, index, axis=one) % self.prime
            x = np.expand_dims(total, one) if keepdims else total
        return x

    # Order has no meaning modulo a prime, but max and min are still one associative, commutative, idempotent function
    # of the elements under any fixed order; the order of a random relabelling serves.
    def maximum(self, a: Any, b: Any) -> Any:
        """The later of two elements in a fixed random order."""
        return np.where(self._rank(a) >= self._rank(b), a, b)

    def minimum(self, a: Any, b: Any) -> Any:
        """The earlier of two elements in a fixed random order."""
        return np.where(self._rank(a) <= self._rank(b), a, b)

    def max(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """The last element over axes in a fixed random order."""
        return self._fold(self.maximum, x, axis, keepdims)

    def min(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """The first element over axes in a fixed random order."""
        return self._fold(self.minimum, x, axis, keepdims)

    def argsort(self, x: Any, axis: int) -> Any:
        """The stable order of the elements along an axis, in a fixed random order."""
        return np.argsort(self._rank(x), axis=axis, kind="stable")

    def less(self, a: Any, b: Any) -> Any:
        """Comparison in a fixed random order."""
        return self._rank(a) < self._rank(b)

    def less_equal(self, a: Any, b: Any) -> Any:
        """Comparison in a fixed random order."""
        return self._rank(a) <= self._rank(b)

    def apply(self, name: str, x: Any) -> Any:
        """A fixed random function of one residue, one for each name."""
        return self._random(name, x)

    def number(self, value: float, like: Any) -> Any:
        """The residue of a rational number; infinities and NaN become fixed random residues."""
        if not np.isfinite(value):
            return np.int64(_seed(str(value)) % self.prime)
        exact = Fraction(value)
        if exact.denominator % self.prime == 0:
            return np.int64(_seed(str(value)) % self.prime)
        return np.int64(exact.numerator * pow(exact.denominator, -1, self.prime) % self.prime)

    def cast(self, x: Any, dtype: DType) -> Any:
        """Floats of any width are one field; integers and booleans become residues."""
        return (
            self._random(f"cast-{dtype.value}", x)
            if not dtype.is_float
            else np.asarray(x).astype(np.int64) % self.prime
        )

    def _centred(self, x: Any) -> Any:
        centred = np.asarray(x).astype(np.float64)
        centred -= self.prime * (centred > self.prime // 2)
        return centred

    def _product(self, a: Any, b: Any) -> Any:
        return self._reduced(np.matmul(self._centred(a), self._centred(b)))

    def _reduced(self, x: Any) -> Any:
        """Integers below 2^53 held as floats, reduced: some times faster than the remainder of int64."""
        rest = x - np.floor(x * (1.0 / self.prime)) * self.prime
        rest += self.prime * (rest < 0)
        rest -= self.prime * (rest >= self.prime)
        return rest.astype(np.int64)

    def _inverse(self, x: Any) -> Any:
        return _inverses(self.prime)[np.asarray(x) % self.prime]

    def _rank(self, x: Any) -> Any:
        return np.take(_ranks(self.prime), x)

    def _random(self, name: str, *operands: Any) -> Any:
        mixed: Any = np.uint64(_seed(name))
        for operand in np.broadcast_arrays(*operands):
            mixed = _mix(np.asarray(operand) % self.prime, mixed)
        return (mixed % np.uint64(self.prime)).astype(np.int64)

    def _fold(self, binary: Any, x: Any, axis: int | tuple[int, ...] | None, keepdims: bool) -> Any:
        x = np.asarray(x)
        axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
        for one in sorted((a % x.ndim for a in axes), reverse=True):
            if not x.shape[one]:
                shape = [1 if keepdims and i == one else n for i, n in enumerate(x.shape) if keepdims or i != one]
                x = np.full(shape, _seed("extreme of nothing") % self.prime, np.int64)
                continue
            total = np.take(x, 0, axis=one)
            for index in range(1, x.shape[one]):
                total = binary(total, np.take(x, index, axis=one))
            x = np.expand_dims(total, one) if keepdims else total
        return x


@cache
def _ranks(prime: int) -> Any:
    """The rank of every residue in an order of all: mixing is one to one, so no two tie."""
    ranks = _mix(np.arange(prime), _seed("order"))
    ranks.flags.writeable = False
    return ranks


@cache
def _inverses(prime: int) -> Any:
    """The inverse of every residue: that of g^i is g^(p-1-i) for a primitive root g; that of 0 is a random number."""
    factors = [q for q in range(2, math.isqrt(prime) + 1) if (prime - 1) % q == 0]
    factors += [(prime - 1) // q for q in factors]
    root = next(g for g in range(2, prime) if all(pow(g, (prime - 1) // q, prime) != 1 for q in factors if q > 1))
    powers = np.ones(1, np.int64)
    while powers.size < prime - 1:
        powers = np.concatenate([powers, powers * pow(root, powers.size, prime) % prime])
    powers = powers[: prime - 1]
    table = np.empty(prime, np.int64)
    table[0] = _seed("inverse of zero") % prime
    table[powers] = np.concatenate([powers[:1], powers[:0:-1]])
    table.flags.writeable = False
    return table


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(x: Any, seed: Any) -> Any:
    """A 64-bit finaliser (the constants of SplitMix64) of x and a seed."""
    with np.errstate(over="ignore"):
        z = (np.asarray(x).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) ^ np.asarray(seed, np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Residues:
    """The interpretation modulo a prime: floats are residues, integers and booleans stay what they are."""

    def __init__(self, prime: int = PRIME) -> None:
        self.prime = prime
        self._residues = ResidueNamespace(prime)
        self._plain = FloatNamespace()

    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> Any:
        """Residue arithmetic for nodes that read or make floats, plain arithmetic for the rest."""
        floats = any(t is not None and t.dtype.is_float for t in (*operands, *results))
        return self._residues if floats else self._plain

    def constant(self, array: Any, type: TensorType) -> Any:
        """The residues of the exact rational values; those of non-finite elements are random but fixed."""
        if not type.dtype.is_float:
            return np.asarray(array)
        array = np.asarray(array, np.float64)
        values, index = np.unique(array, return_inverse=True)
        residues = np.array([self._residues.number(float(v), array) for v in values], np.int64)
        return residues[index].reshape(array.shape) if array.size else np.zeros(array.shape, np.int64)

    def finish(self, array: Any, type: TensorType) -> Any:
        """Residues for floats; the declared element type for the rest."""
        if type.dtype.is_float:
            return np.asarray(array, np.int64)
        return np.asarray(array, type.dtype.numpy)
