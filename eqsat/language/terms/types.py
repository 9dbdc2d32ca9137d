"""Types of values: element types, shapes, tensors, and what is not a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.terms.dims import Dim, Sym, broadcast_dims, evaluate, product

_ML_NAMES = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
    "int4": "int4",
    "uint4": "uint4",
    "int2": "int2",
    "uint2": "uint2",
}


class DType(Enum):
    """An element type; the value is its name, the same as in NumPy and, in capitals, in ONNX."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    STRING = "string"
    FLOAT8E4M3FN = "float8e4m3fn"
    FLOAT8E4M3FNUZ = "float8e4m3fnuz"
    FLOAT8E5M2 = "float8e5m2"
    FLOAT8E5M2FNUZ = "float8e5m2fnuz"
    FLOAT8E8M0 = "float8e8m0"
    FLOAT4E2M1 = "float4e2m1"
    INT4 = "int4"
    UINT4 = "uint4"
    INT2 = "int2"
    UINT2 = "uint2"

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds this element type (object for strings)."""
        if self is DType.STRING:
            return np.dtype(object)
        name = _ML_NAMES.get(self.value)
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name) if name else self.value)
        return dtype

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """True for real floating-point types of any width."""
        return "float" in self.value

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers."""
        return "int" in self.value

    @staticmethod
    def of(dtype: Any) -> DType:
        """The element type of a NumPy dtype, a name, or a DType.

        >>> DType.of("float32")
        <DType.FLOAT32: 'float32'>
        """
        if isinstance(dtype, DType):
            return dtype
        if isinstance(dtype, str) and dtype in _BY_NAME:
            return _BY_NAME[dtype]
        try:
            known = np.dtype(dtype)
        except TypeError:
            known = np.dtype(np.void)
        found: DType | None = _BY_NUMPY.get(known)
        if found is None and known.kind in "OUS":
            found = DType.STRING
        if found is None:
            raise ShapeError(f"no element type {dtype!r}", expected="one of " + ", ".join(_BY_NAME))
        return found


_BY_NAME = {d.value: d for d in DType}
_BY_NUMPY = {d.numpy: d for d in DType if d is not DType.STRING}

Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's element type and shape; `shape` is None where even the rank is unknown.

    >>> TensorType.of("float32", ("batch", 3)).elements({"batch": 4})
    12
    """

    dtype: DType
    shape: Shape | None

    @staticmethod
    def of(dtype: Any, shape: Iterable[int | str | Sym] | None) -> TensorType:
        """A type from a dtype and dims, where a string is a named dim; ShapeError for a negative dim."""
        dims = None if shape is None else tuple(Sym.named(d) if isinstance(d, str) else d for d in shape)
        if dims is not None and any(isinstance(d, int) and d < 0 for d in dims):
            raise ShapeError(f"shape {dims} has a negative dim", expected="dims of 0 or more")
        return TensorType(DType.of(dtype), dims)

    @property
    def dims(self) -> Shape:
        """The shape; ShapeError where the rank is unknown."""
        if self.shape is None:
            raise ShapeError("the rank is not known here", expected="a tensor of known rank")
        return self.shape

    @property
    def rank(self) -> int:
        """The number of dims; ShapeError where it is unknown."""
        return len(self.dims)

    @property
    def is_static(self) -> bool:
        """True where every dim is an integer."""
        if self.shape is None:
            return False
        for dim in self.shape:  # noqa: SIM110 - asked of every value of a model, several times
            if not isinstance(dim, int):
                return False
        return True

    @property
    def static(self) -> tuple[int, ...]:
        """The shape as integers; ShapeError where a dim is known by name only."""
        shape = self.dims
        for dim in shape:
            if not isinstance(dim, int):
                raise ShapeError(f"dim {dim} is known by name only", expected="an integer dim")
        return shape  # type: ignore[return-value]

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return product(self.dims)

    def elements(self, sizes: Mapping[str, int]) -> int:
        """The number of elements when named dims have the sizes given."""
        return evaluate(self.size, sizes)

    def at(self, sizes: Mapping[str, int]) -> TensorType:
        """The same type with named dims replaced by their sizes."""
        return TensorType(self.dtype, None if self.shape is None else tuple(evaluate(d, sizes) for d in self.shape))

    def with_shape(self, shape: Shape | None) -> TensorType:
        """The same element type with another shape."""
        return TensorType(self.dtype, shape)

    def __str__(self) -> str:
        shape = "?" if self.shape is None else ", ".join(str(d) for d in self.shape)
        return f"{self.dtype.value}[{shape}]"


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """The type of a value that is no tensor, or whose type nobody states: `text` says what is known of it.

    `proto` holds the serialised ONNX TypeProto, so that it is written back as it was read.
    """

    text: str
    proto: bytes = b""

    def __str__(self) -> str:
        return self.text


ValueType: TypeAlias = TensorType | OpaqueType

#: The type of a value of which nothing is known.
UNKNOWN = OpaqueType("unknown")


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The broadcast of shapes by NumPy's rule; ShapeError where two dims conflict.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for i, dim in enumerate(shape, start=rank - len(shape)):
            joined = broadcast_dims(result[i], dim)
            if joined is None:
                text = " and ".join(str(list(s)) for s in shapes)
                raise ShapeError(f"shapes {text} do not broadcast", expected="equal dims, or 1, counted from the right")
            result[i] = joined
    return tuple(result)


def merge_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape that two descriptions of one tensor give: unknown rank yields to any shape, a name to an integer.

    >>> merge_shapes((Sym.named("?0"), 3), (Sym.named("n"), 3))
    (Sym('n'), 3)
    """
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise ShapeError(f"shapes {list(a)} and {list(b)} of one tensor differ in rank", expected="one shape a tensor")
    return tuple(_merge_dims(x, y, a, b) for x, y in zip(a, b, strict=True))


def _merge_dims(x: Dim, y: Dim, a: Shape, b: Shape) -> Dim:
    if isinstance(x, int) and isinstance(y, int):
        if x != y:
            raise ShapeError(f"shapes {list(a)} and {list(b)} of one tensor differ", expected="one shape a tensor")
        return x
    if isinstance(x, int) or isinstance(y, int):
        return x if isinstance(x, int) else y
    return y if x.is_anonymous else x
