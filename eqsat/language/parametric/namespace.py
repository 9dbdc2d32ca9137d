"""The arithmetic that references of operators run with on arrays of unknown sizes."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.language.arithmetic.reals import TermNamespace
from eqsat.language.parametric import functions as _functions  # noqa: F401  (importing them registers them)
from eqsat.language.parametric.arrays import IndexedArray, broadcast, elementwise, spread, variable
from eqsat.language.parametric.definedness import need_argument, need_divisor, need_places, need_power
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.integers import NotParametric, Ratio, Unknown, integer
from eqsat.language.parametric.numbers import UnknownNumber
from eqsat.language.parametric.paths import current
from eqsat.language.parametric.sums.counts import without_counts
from eqsat.language.terms import DType, TensorType


class ParametricNamespace(TermNamespace):
    """Arithmetic of the reals on arrays of unknown sizes, with the methods of FloatNamespace."""

    def __init__(self, elements: Elements) -> None:
        super().__init__()
        self.elements = elements
        self._algebra = elements.algebra

    def _map(self, function: Any, *operands: Any) -> Any:
        if not any(isinstance(o, IndexedArray) for o in operands):
            return super()._map(function, *operands)
        return elementwise(function, *operands)

    def _each(self, function: Callable[..., Any], *operands: Any) -> Any:
        """A function of real elements."""
        return self._map(lambda *elements: function(*map(self._algebra.real, elements)), *operands)

    def _reals(self, x: Any) -> Any:
        return self._map(self._algebra.real, x) if isinstance(x, IndexedArray) else super()._reals(x)

    def add(self, a: Any, b: Any) -> Any:
        """Sum."""
        return self._each(lambda x, y: x + y, a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        """Difference."""
        return self._each(lambda x, y: x - y, a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        """Product."""
        return self._each(lambda x, y: x * y, a, b)

    def negative(self, a: Any) -> Any:
        """Negation."""
        return self._each(lambda x: -x, a)

    def divide(self, a: Any, b: Any) -> Any:
        """Quotient, defined where the divisor is not 0."""

        def quotient(x: Any, y: Any) -> Any:
            need_divisor(self.elements, y)
            return without_counts(self.elements, x * self._algebra.inverse(y))

        return self._each(quotient, a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """The element of one or the other, defined where the one that is chosen is."""
        if not any(isinstance(o, IndexedArray) for o in (condition, a, b)):
            return super().where(condition, a, b)
        shape = broadcast(*(np.shape(o) for o in (condition, a, b)))
        holds, one, other = (spread(o, shape) for o in (condition, a, b))

        def element(indices: Any) -> Any:
            path = current()
            asked = holds(indices)
            if isinstance(asked, bool):
                return (one if asked else other)(indices)
            outside, chosen = path.needed, []
            for side, branch in ((self._algebra.z3.Not(asked), one), (asked, other)):
                path.needed = {}
                chosen.append(branch(indices))
                for statement in path.needed.values():
                    if not self._algebra.z3.is_bool(statement):
                        raise NotParametric("a choice of what may not be defined")
                    guarded = self._algebra.z3.Or(side, statement)
                    outside[guarded.get_id()] = guarded
            path.needed = outside
            return self._algebra.choice(asked, *chosen)

        return IndexedArray(shape, element)

    def _power(self, a: Any, b: Any) -> Any:
        need_power(self.elements, a, b)
        return super()._power(a, b)

    def _apply(self, name: str, x: Any) -> Any:
        need_argument(self.elements, name, x)
        unrounded = self.elements.ranges.unrounded(name, x)
        return super()._apply(name, x) if unrounded is None else unrounded

    def number(self, value: Any, like: Any) -> Any:
        """A number that combines with terms, an unknown integer among them."""
        if type(value) is Unknown:
            return IndexedArray((), lambda _: self.elements.number(value.formula))
        if type(value) is Ratio:
            return self.divide(self.number(integer(value.number), like), self.number(integer(value.divisor), like))
        real = value.term if type(value) is UnknownNumber else self._algebra.real(value)
        return IndexedArray((), lambda _: real)

    def matmul(self, a: Any, b: Any) -> Any:
        """Matrix product."""
        if not isinstance(a, IndexedArray) or not isinstance(b, IndexedArray):
            raise NotParametric("a product with an array of known size")
        left = a if a.ndim > 1 else a.reshape(1, *a.shape)
        right = b if b.ndim > 1 else b.reshape(*b.shape, 1)
        batch = broadcast(left.shape[:-2], right.shape[:-2])
        rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
        wide_left = spread(left, (*batch, rows, inner))
        wide_right = spread(right, (*batch, inner, columns))

        def element(indices: tuple[Any, ...]) -> Any:
            *lead, row, column = indices
            return self.elements.folded(
                "sum", [inner], lambda k: wide_left((*lead, row, k[0])) * wide_right((*lead, k[0], column))
            )

        result = IndexedArray((*batch, rows, columns), element)
        if a.ndim == 1:
            result = result[..., 0, :]
        return result if b.ndim > 1 else result[..., 0]

    def einsum(self, equation: str, *operands: Any) -> Any:
        """Sum of products by index notation."""
        terms, target = _spelled_out(equation, [operand.ndim for operand in operands])
        if any(c not in string.ascii_letters for term in (*terms, target) for c in term):
            raise NotParametric(f"einsum {equation}")
        sizes: dict[str, Any] = {}
        for term, operand in zip(terms, operands, strict=True):
            for letter, size in zip(term, operand.shape, strict=True):
                sizes[letter] = size if letter not in sizes or sizes[letter] == 1 else sizes[letter]
        summed = [letter for letter in sizes if letter not in target]

        def element(indices: tuple[Any, ...]) -> Any:
            outer = dict(zip(target, indices, strict=True))

            def product(inner: tuple[Any, ...]) -> Any:
                places = outer | dict(zip(summed, inner, strict=True))
                result = self._algebra.real(1)
                for term, operand in zip(terms, operands, strict=True):
                    result = result * spread(operand, [sizes[c] for c in term])(tuple(places[c] for c in term))
                return result

            return self.elements.folded("sum", [sizes[c] for c in summed], product)

        return IndexedArray([sizes[c] for c in target], element)

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Sum over axes."""
        return self._folded("sum", x, axis, keepdims) if isinstance(x, IndexedArray) else super().sum(x, axis, keepdims)

    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Maximum over axes."""
        return self._folded("max", x, axis, keepdims) if isinstance(x, IndexedArray) else super().max(x, axis, keepdims)

    def prod(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Product over axes."""
        return (
            self._folded("product", x, axis, keepdims)
            if isinstance(x, IndexedArray)
            else super().prod(x, axis, keepdims)
        )

    def _folded(self, kind: str, x: IndexedArray, axis: Any, keepdims: bool) -> IndexedArray:
        axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        axes = tuple(sorted(a % x.ndim for a in axes))
        shape = [1 if a in axes else size for a, size in enumerate(x.shape) if keepdims or a not in axes]

        def element(indices: tuple[Any, ...]) -> Any:
            kept = list(indices) if not keepdims else [i for a, i in enumerate(indices) if a not in axes]

            def body(inner: tuple[Any, ...]) -> Any:
                outer, within = iter(kept), iter(inner)
                return x.at(tuple([next(within) if a in axes else next(outer) for a in range(x.ndim)]))

            if kind == "max":
                need_places(self.elements, [x.shape[a] for a in axes])
            return self.elements.folded(kind, [x.shape[a] for a in axes], body) if axes else body(())

        return IndexedArray(shape, element)

    def cast(self, x: Any, dtype: DType) -> Any:
        """Conversion: exact between floats, and to each type of integers a function of its own."""
        if dtype.is_float:
            return self._each(lambda e: e, x)
        return super().cast(x, dtype) if dtype is DType.BOOL else self.apply(f"trunc to {dtype.value}", x)


def _spelled_out(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The indices of operands and of a result, with a letter for each axis that an ellipsis stands for."""
    sources, target = equation.replace(" ", "").split("->")
    terms = sources.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    counts = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term]
    letters = "".join(free[: max(counts, default=0)])
    spelled = []
    for term, rank in zip(terms, ranks, strict=True):
        count = rank - len(term.replace("...", ""))
        spelled.append(term.replace("...", letters[len(letters) - count :]))
    return spelled, target.replace("...", letters)


class Parametric:
    """The interpretation in real terms over parameters."""

    def __init__(self) -> None:
        self.elements = Elements()
        self._namespace = ParametricNamespace(self.elements)

    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> ParametricNamespace:
        """The arithmetic; of elements that are integers it has none, but moves them."""
        return self._namespace

    def constant(self, array: Any, type: TensorType) -> Any:
        """Refused: elements that are known have a known size."""
        raise NotParametric("elements that are known")

    def variable(self, name: str, type: TensorType) -> IndexedArray:
        """An operand whose elements are unknown."""
        boolean = type.dtype is DType.BOOL
        if type.dtype.is_integer:
            return variable(type.dims, lambda indices: self.elements.integer(name, indices))
        return variable(type.dims, lambda indices: self.elements.read(name, indices, boolean))

    def whole(self, name: str, type: TensorType) -> IndexedArray:
        """An operand whose elements are unknown integers that are calculated with, as real numbers."""
        return variable(type.dims, lambda indices: self.elements.read(name, indices))

    def uniform(self, value: Any, type: TensorType) -> IndexedArray:
        """An operand all of whose elements are one number."""
        number = value.term if isinstance(value, UnknownNumber) else self.elements.algebra.real(value)
        array = IndexedArray(type.dims, lambda _: number)
        array.is_uniform = True
        return array

    def finish(self, array: Any, type: TensorType) -> Any:
        """The array with the dims of its type, spread over nothing where it is one number."""
        if isinstance(array, IndexedArray):
            return array.shaped(type.dims)
        single = np.asarray(array, object)
        if single.ndim:
            raise NotParametric("a result of known size")
        return IndexedArray((), lambda _: single[()])
