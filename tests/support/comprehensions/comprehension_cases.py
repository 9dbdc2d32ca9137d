"""Programs in the language of tensor comprehensions, each with values by NumPy, or with the error that it ends in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import eqsat
from eqsat.errors import ComprehensionError

#: The element types as NumPy has them, by name.
DTYPES: Mapping[str, Any] = {
    "bool": np.dtype(np.bool_),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "half": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int": np.dtype(np.int32),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
#: How far values may be from those of a reference, by element type; integers are equal.
TOLERANCE = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 2e-5, "float64": 1e-12}

#: The mark in a wrong program at the place that its error names.
MARK = "@"

#: Makes an argument of a shape and an element type from random numbers.
Draw = Callable[[np.random.Generator, tuple[int, ...], Any], Any]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Small numbers, whose sums and products are exact in most types."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(-5 if dtype.kind == "i" else 0, 10, shape).astype(dtype)
    return (rng.integers(-8, 9, shape) / 4).astype(dtype)


def below(end: int) -> Draw:
    """Integers from 0 to below an end, for subscripts."""
    return lambda rng, shape, dtype: rng.integers(0, end, shape).astype(dtype)


def positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Small numbers above 0."""
    return (rng.integers(1, 9, shape) / (1 if dtype.kind in "iu" else 4)).astype(dtype)


@dataclass(frozen=True)
class Right:
    """A program whose last function computes what a reference does."""

    source: str
    reference: Callable[..., Any]
    sizes: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def function(self) -> Any:
        """The last function of the source."""
        functions = eqsat.comprehension(self.source)
        return functions[list(functions)[-1]]

    def arguments(self, function: Any, seed: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """The arguments in their order, and those that are passed by name."""
        rng, parameters = np.random.default_rng(seed), function.scope.function.parameters
        made = []
        for one in parameters:
            value = self.given.get(one.name, drawn)
            if callable(value):
                shape = tuple(self.sizes[extent] if isinstance(extent, str) else extent for extent in one.extents)
                value = value(rng, shape, DTYPES[one.type])
            made.append(value)
        names = {one.name for one in parameters}
        return made, {name: value for name, value in self.given.items() if name not in names}


@dataclass(frozen=True)
class Wrong:
    """A program that is refused, where it is defined or called: the class of the error, and its first line."""

    marked: str
    error: type[ComprehensionError]
    what: str
    sizes: Mapping[str, int] | None = None
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The source without the mark."""
        return self.marked.replace(MARK, "")

    @property
    def place(self) -> str:
        """The line and the column of the mark, as errors write them."""
        before = self.marked[: self.marked.index(MARK)]
        return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def right(source: str, reference: Callable[..., Any], given: Mapping[str, Any] | None = None, **sizes: int) -> Right:
    """A program, its reference, arguments that are not drawn, and the sizes of the others."""
    return Right(source, reference, sizes, given or {})


def wrong(
    marked: str, error: type[ComprehensionError], what: str, given: Mapping[str, Any] | None = None, **sizes: int
) -> Wrong:
    """A program that is refused; where sizes or arguments are given, when it is called with these."""
    return Wrong(marked, error, what, sizes if sizes or given else None, given or {})


def check_equal(made: Any, wanted: Any) -> None:
    """Fail unless results have the element types, shapes and values of a reference."""
    results = made if isinstance(made, tuple) else (made,)
    references = wanted if isinstance(wanted, tuple) else (wanted,)
    assert len(results) == len(references)
    for one, other in zip(results, map(np.asarray, references), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        tolerance = TOLERANCE.get(one.dtype.name, 0.0)
        if tolerance:
            one, other = one.astype(np.float64), other.astype(np.float64)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
