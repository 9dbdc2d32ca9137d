"""Arrays of unknown sizes, given by what each element is."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, formula_of
from eqsat.language.parametric.paths import current, followed
from eqsat.language.terms.dims import Dim, broadcast_dims

Indices: TypeAlias = tuple[Any, ...]
Element: TypeAlias = Callable[[Indices], Any]
Function = TypeVar("Function", bound=Callable[..., Any])

#: What functions of NumPy do with such arrays.
_FUNCTIONS: dict[Any, Callable[..., Any]] = {}


def numpy_function(*names: Any) -> Callable[[Function], Function]:
    """Take a function for what some of NumPy's do with arrays of unknown sizes."""

    def note(body: Function) -> Function:
        _FUNCTIONS.update(dict.fromkeys(names, body))
        return body

    return note


class IndexedArray:
    """An array as its shape and the element at given indices, both of unknown integers."""

    dtype = np.dtype(object)

    def __init__(self, shape: Sequence[Any] | Callable[[], Sequence[Any]], element: Element) -> None:
        self._shape, self._element = shape, element
        #: True if all elements are known to be one.
        self.is_uniform = False
        self._path = followed()

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dims; what they ask is asked where they are first needed, on the path that the array was made on."""
        if not isinstance(self._shape, tuple):
            with self._path.resumed() if self._path is not None else nullcontext():
                self._shape = tuple(self._shape() if callable(self._shape) else self._shape)
        return self._shape

    def shaped(self, shape: Sequence[Any]) -> IndexedArray:
        """The same elements, with dims that are known from elsewhere."""
        return IndexedArray(tuple(shape), self._element)

    def at(self, indices: Indices) -> Any:
        """The element at indices that lie within the shape; worked out once on a path."""
        path = current()
        element, needed = self.defined_at(indices)
        path.needed.update((one.get_id(), one) for one in needed)
        return element

    def defined_at(self, indices: Indices) -> tuple[Any, list[Any]]:
        """The element at indices, and the statements by which it is defined."""
        path = current()
        key = (id(self), tuple(map(formula_of, indices)))
        if key not in path.known:
            outside, path.needed = path.needed, {}
            try:
                element = self._element(indices)
                # With the array, so that its identity is not used again.
                path.known[key] = (element, list(path.needed.values()), self)
            finally:
                path.needed = outside
        element, needed, _ = path.known[key]
        return element, needed

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return product_of(self.shape)

    @property
    def flat(self) -> list[Any]:
        """The first element, which code asks for to see of which kind elements are."""
        return [self.at((0,) * self.ndim)]

    @property
    def T(self) -> Any:  # noqa: N802 - as NumPy calls it
        """The axes in reverse."""
        transposed: Any = np.transpose(self)
        return transposed

    def astype(self, dtype: Any) -> IndexedArray:
        """The array itself: elements that are integers stay what they are, and real numbers are held in types."""
        kind = np.dtype(dtype).kind
        if kind not in "iub":
            return self
        return IndexedArray(lambda: self.shape, lambda indices: _held(self.at(indices), dtype))

    def __copy__(self) -> IndexedArray:
        return self

    def __array_function__(self, function: Any, _types: Any, operands: Any, named: Any) -> Any:
        if function not in _FUNCTIONS:
            raise NotParametric(f"numpy.{function.__name__} of an array of unknown size")
        return _FUNCTIONS[function](*operands, **named)

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **named: Any) -> Any:
        if function is np.logical_and and method == "__call__" and not named:
            return elementwise(_both, *operands)
        raise NotParametric(f"numpy.{function.__name__} of an array of unknown size")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotParametric("the elements of an array of unknown size")

    def reshape(self, *shape: Any) -> Any:
        """The elements in order under another shape."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        reshaped: Any = np.reshape(self, given)
        return reshaped

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order."""
        given = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes or None
        transposed: Any = np.transpose(self, given)
        return transposed

    def __eq__(self, other: object) -> Any:
        return elementwise(lambda a, b: a == b, self, other)

    def __lt__(self, other: Any) -> Any:
        return elementwise(lambda a, b: a < b, self, other)

    def __le__(self, other: Any) -> Any:
        return elementwise(lambda a, b: a <= b, self, other)

    def __gt__(self, other: Any) -> Any:
        return elementwise(lambda a, b: a > b, self, other)

    def __ge__(self, other: Any) -> Any:
        return elementwise(lambda a, b: a >= b, self, other)

    def __add__(self, other: Any) -> Any:
        return elementwise(lambda a, b: a + b, self, other)

    def __sub__(self, other: Any) -> Any:
        return elementwise(lambda a, b: a - b, self, other)

    __hash__ = object.__hash__

    def __getitem__(self, key: Any) -> IndexedArray:
        parts = list(key) if isinstance(key, tuple) else [key]
        if builtins.any(part is Ellipsis for part in parts):
            at = next(i for i, part in enumerate(parts) if part is Ellipsis)
            spare = self.ndim - builtins.sum(part is not None for part in parts) + 1
            parts[at : at + 1] = [slice(None)] * spare
        parts += [slice(None)] * (self.ndim - builtins.sum(part is not None for part in parts))
        dims = iter(self.shape)
        #: By axis of this array, the index that it has at the result's indices.
        shape: list[Callable[[], Any]] = []
        sources: list[Callable[[Indices], Any]] = []
        for part in parts:
            if part is None:
                shape.append(lambda: 1)
                continue
            size = next(dims)
            if isinstance(part, slice):
                sources.append(_along(len(shape), part, size))
                shape.append(partial(_length, part, size))
            elif isinstance(part, int):
                sources.append(_fixed(part + size if part < 0 else part))
            else:
                raise NotParametric("an array of unknown size by an array of indices")
        return IndexedArray(
            lambda: [dim() for dim in shape], lambda indices: self.at(tuple(source(indices) for source in sources))
        )


def _held(element: Any, dtype: Any) -> Any:
    """An element in a type of integers: of a real number, what a function of its own makes of it."""
    import z3

    if not z3.is_real(element):
        return element
    name = np.dtype(dtype).name
    if name == "bool":
        raise NotParametric("a real number as a truth value")
    return z3.Function(f"trunc to {name}", z3.RealSort(), z3.RealSort())(element)


class WritableArray(IndexedArray):
    """An array whose parts along the first axis may be replaced as long as nothing was read of it.

    Elements are worked out where they are asked for, which may be later: what is read before a part is written would be
    what was written.
    """

    def __init__(self, filled: IndexedArray) -> None:
        super().__init__(filled.shape, self._part)
        self._filled, self._is_read = filled, False
        self._written: list[tuple[Any, IndexedArray]] = []

    def __setitem__(self, place: Any, part: Any) -> None:
        if self._is_read or not isinstance(place, int) or place < 0 or not isinstance(part, IndexedArray):
            raise NotParametric("elements of an array of unknown size that are written")
        if place >= self._filled.shape[0]:
            raise IndexError("elements behind the last one")
        wanted = self._filled.shape[1:]
        if part.ndim != len(wanted) or not all(bool(a == b) for a, b in zip(part.shape, wanted, strict=True)):
            raise NotParametric("elements of another shape that are written")
        self._written.append((place, part))

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dims, which are asked for by all that reads elements then or later."""
        self._is_read = True
        return super().shape

    def at(self, indices: Indices) -> Any:
        """The element at indices."""
        self._is_read = True
        return super().at(indices)

    def __array_function__(self, function: Any, types: Any, operands: Any, named: Any) -> Any:
        self._is_read = True
        return super().__array_function__(function, types, operands, named)

    def _part(self, indices: Indices) -> Any:
        for place, part in reversed(self._written):
            if indices[0] == place:
                return part.at(indices[1:])
        return self._filled.at(indices)


def _along(axis: int, part: slice, size: Any) -> Callable[[Indices], Any]:
    step = 1 if part.step is None else part.step
    return lambda indices: _first(part, size) + indices[axis] * step


def _fixed(place: Any) -> Callable[[Indices], Any]:
    return lambda indices: place


def _first(part: slice, size: Any) -> Any:
    """The first element that a slice takes, by Python's rule."""
    if part.step is None or part.step > 0:
        return 0 if part.start is None else _clipped(part.start, size, 0, size)
    return size - 1 if part.start is None else _clipped(part.start, size, -1, size - 1)


def _length(part: slice, size: Any) -> Any:
    """The number of elements that a slice takes."""
    step, first = 1 if part.step is None else part.step, _first(part, size)
    if step > 0:
        return _count((size if part.stop is None else _clipped(part.stop, size, 0, size)) - first, step)
    return _count(first - (-1 if part.stop is None else _clipped(part.stop, size, -1, size - 1)), -step)


def _clipped(place: Any, size: Any, least: Any, most: Any) -> Any:
    place = place + size if place < 0 else place
    return least if place < least else most if place > most else place


def _count(length: Any, step: Any) -> Any:
    return 0 if length <= 0 else length if step == 1 else (length + step - 1) // step


def product_of(dims: Sequence[Any]) -> Any:
    """The product of dims."""
    total: Any = 1
    for dim in dims:
        total = total * dim
    return total


def spread(array: Any, shape: Sequence[Any]) -> Element:
    """The element of an array at the indices of a shape that it broadcasts to."""
    if not isinstance(array, IndexedArray):
        single = np.asarray(array, object)
        if single.ndim:
            raise NotParametric("an array of known size beside one of unknown size")
        return lambda indices: single[()]
    if array.is_uniform:
        return lambda indices: array.at((0,) * array.ndim)
    lead = len(shape) - array.ndim
    ones = [_is_repeated(formula_of(d), formula_of(n)) for d, n in zip(array.shape, shape[lead:], strict=True)]
    return lambda indices: array.at(
        tuple([0 if one else index for one, index in zip(ones, indices[lead:], strict=True)])
    )


def _is_repeated(dim: Dim, size: Dim) -> bool:
    """True if a dim is 1 on this path, so that its one element is repeated; else it is the size that it broadcasts to.

    Nothing is asked of one that is known to be that size. Where it is known to be 1 or that size, without which, and is
    not 1, its size is noted.
    """
    path = current()
    dim, size = path.reduced(dim), path.reduced(size)
    if dim == size:
        return False
    if path.decide(Fact.equal(dim, 1)):
        return True
    if not path.is_inner and path.known_answer(broadcasts(size, dim)):
        path.assume(Fact.equal(size, dim))
    return False


def broadcasts(size: Dim, dim: Dim) -> Fact:
    """The statement that a dim is 1 or a size, so that broadcasting it onto that changes nothing."""
    path = current()
    size, dim = path.reduced(size), path.reduced(dim)
    return Fact.equal(dim, 1) if size == 1 else Fact.equal((dim - 1) * (dim - size), 0)


def broadcast(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The broadcast of shapes by NumPy's rule; nothing is asked of dims that are the same formula, or known to be 1."""
    path = current()
    rank = max(map(len, shapes), default=0)
    result: list[Any] = []
    for axis in range(rank):
        dims = [shape[axis - rank + len(shape)] for shape in shapes if axis >= rank - len(shape)]
        found = dims[0]
        for dim in dims[1:]:
            one, other = path.reduced(formula_of(found)), path.reduced(formula_of(dim))
            if one == 1:
                found = dim
            elif other not in (1, one) and not path.known_answer(broadcasts(one, other)):
                joined = broadcast_dims(found, dim)
                if joined is None:
                    raise ShapeError(f"dims {one} and {other} do not broadcast")
                found = joined
        result.append(found)
    return tuple(result)


def elementwise(function: Callable[..., Any], *operands: Any) -> IndexedArray:
    """A function of the elements of broadcast operands."""
    shape = broadcast(*(np.shape(o) if not isinstance(o, IndexedArray) else o.shape for o in operands))
    elements = [spread(o, shape) for o in operands]
    return IndexedArray(shape, lambda indices: function(*[element(indices) for element in elements]))


def _both(one: Any, other: Any) -> Any:
    """The conjunction of two truth values, each a term or known."""
    if isinstance(one, bool | np.bool_):
        return other if one else False
    if isinstance(other, bool | np.bool_):
        return one if other else False
    import z3

    return z3.And(one, other)


def variable(shape: Sequence[Any], read: Callable[[Sequence[Dim]], Any]) -> IndexedArray:
    """An array whose elements are read by their indices, as short as equations of the path make those."""
    return IndexedArray(shape, lambda indices: read([current().reduced(formula_of(i)) for i in indices]))
