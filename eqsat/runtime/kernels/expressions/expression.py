"""Values as typed C expressions, which NumPy's functions take for arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from eqsat.language.terms.types import DType

#: The C type of elements that are computed with as they are.
C_TYPES: Mapping[DType, str] = {
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
    DType.INT8: "i8",
    DType.INT16: "i16",
    DType.INT32: "i32",
    DType.INT64: "i64",
    DType.UINT8: "u8",
    DType.UINT16: "u16",
    DType.UINT32: "u32",
    DType.UINT64: "u64",
    DType.BOOL: "bool",
}
#: The C type of elements in memory.
STORED: Mapping[DType, str] = {**C_TYPES, DType.FLOAT16: "f16", DType.BFLOAT16: "bf16", DType.FLOAT8E4M3FN: "f8"}
#: The floats that are computed in float32.
NARROW = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN})


#: Functions of expressions by the names that NumPy has for them; those that are worked out filled in by `operations`.
NUMPY: dict[str, Callable[..., Expr]] = {}


class UnsupportedError(Exception):
    """A request that has no C expression, or none in this way; the generator of kernels tries another template."""


def held_in_fewer_bits(stated: DType, held: DType) -> bool:
    """True of a float of 32 bits or more that a plan holds as one of 16, whose range has to suffice.

    >>> held_in_fewer_bits(DType.FLOAT32, DType.BFLOAT16), held_in_fewer_bits(DType.FLOAT16, DType.FLOAT16)
    (True, False)
    """
    return stated in (DType.FLOAT32, DType.FLOAT64) and held in (DType.FLOAT16, DType.BFLOAT16)


def narrowing(dtype: DType, text: str, *, is_held: bool = False) -> str:
    """The text of CUDA C++ for a float32 as an element of fewer bits; one that `is_held` so stays finite where it is.

    >>> narrowing(DType.FLOAT16, "x", is_held=True)
    'narrow_finite<f16>(x)'
    """
    return f"narrow{'_finite' if is_held else ''}<{STORED[dtype]}>({text})"


def computed(dtype: DType) -> DType:
    """The element type that values of a type are computed in; UnsupportedError for those that kernels do not know."""
    if dtype in NARROW:
        return DType.FLOAT32
    if dtype not in C_TYPES:
        raise UnsupportedError(dtype.value)
    return dtype


@dataclass(frozen=True, eq=False, slots=True)
class Expr(NDArrayOperatorsMixin):
    """A value in C: a template over other values, or a number. NumPy's functions take it for an array of one element.

    An operand that a template reads more than once, or that several read, gets a name where the text is written.
    """

    dtype: DType
    template: str
    operands: tuple[Expr, ...] = ()
    value: float | int | bool | None = None
    ndim: int = 0

    __hash__ = object.__hash__

    @property
    def c_type(self) -> str:
        """The type that C holds it in."""
        return C_TYPES[self.dtype]

    def __bool__(self) -> bool:
        raise TypeError("the value is known when the kernel runs")

    def reshape(self, *shape: Any) -> Expr:
        """The value itself, whatever shape it is one element of."""
        return self

    def astype(self, dtype: Any) -> Expr:
        """The value in an element type, as `cast` has it."""
        return cast(self, DType.of(dtype))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        function = NUMPY.get(ufunc.__name__)
        if method != "__call__" or options or function is None:
            return NotImplemented
        return function(*lifted(inputs))

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        name = function.__name__
        if name in ("reshape", "broadcast_to"):
            return inputs[0]
        known = NUMPY.get(name)
        return NotImplemented if known is None or options else known(*lifted(inputs))


def number(value: Any, dtype: DType) -> Expr:
    """A number of an element type that is computed with, written so that C reads exactly the same one."""
    value = np.asarray(value).astype(dtype.numpy).item()
    return Expr(dtype, _literal(value, dtype), (), value)


def _literal(value: Any, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        suffix = "f" if dtype is DType.FLOAT32 else ""
        wide = "" if dtype is DType.FLOAT32 else "(double)"
        if value != value:
            return f"{wide}NAN"
        if value in (float("inf"), -float("inf")):
            return f"{wide}INFINITY" if value > 0 else f"{wide}-INFINITY"
        # NumPy writes the shortest decimal that is read back as the same number.
        return (
            np.format_float_positional(dtype.numpy.type(value), trim="0") + suffix
            if _is_short(value)
            else (np.format_float_scientific(dtype.numpy.type(value), trim="0") + suffix)
        )
    if dtype.numpy.itemsize < 4:  # C has no literals of so few bits
        return f"({C_TYPES[dtype]}){value}"
    suffix = {DType.INT64: "LL", DType.UINT32: "u", DType.UINT64: "ULL"}.get(dtype, "")
    if value == np.iinfo(dtype.numpy).min and value < 0:  # C has no literal for it, only for its opposite
        return f"({value + 1}{suffix} - 1)"
    return f"{value}{suffix}"


def _is_short(value: float) -> bool:
    return value == 0 or 1e-4 <= abs(value) < 1e6


def lifted(values: Sequence[Any]) -> list[Expr]:
    """Expressions, where numbers of Python take the element type of the other operands."""
    given = [v for v in values if isinstance(v, Expr)]
    return [v if isinstance(v, Expr) else _lift(v, given) for v in values]


def _lift(value: Any, given: Sequence[Expr]) -> Expr:
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf":
        raise TypeError(f"{value!r} among expressions")
    if not isinstance(value, bool | int | float):  # a NumPy number keeps its own element type
        return number(value, computed(DType.of(array.dtype)))
    like = next((g.dtype for g in given), DType.FLOAT32)
    if isinstance(value, bool):
        return number(value, DType.BOOL)
    if isinstance(value, float) and not like.is_float:
        return number(value, DType.FLOAT64)
    return number(value, DType.INT64 if like is DType.BOOL else like)


def convert(x: Expr, dtype: DType) -> Expr:
    """The value in another element type that is computed in; floats are cut toward zero to become integers."""
    if x.dtype is dtype:
        return x
    if x.value is not None and not (x.dtype.is_float and dtype.is_integer):
        return number(x.value, dtype)
    if dtype is DType.BOOL:
        return Expr(dtype, "({0} != 0)", (x,))
    if x.dtype.is_float and dtype.is_integer:
        return Expr(dtype, f"truncated<{C_TYPES[dtype]}>({{0}})", (x,))
    return Expr(dtype, f"({C_TYPES[dtype]}){{0}}", (x,))


def cast(x: Expr, dtype: DType) -> Expr:
    """The result of the operator `cast`: the value in an element type, rounded to it where it has 16 bits or less."""
    value = convert(x, computed(dtype))
    narrow = STORED[dtype]
    return value if narrow in C_TYPES.values() else Expr(value.dtype, f"widen(narrow<{narrow}>({{0}}))", (value,))


def joined(*values: Expr) -> tuple[Expr, ...]:
    """The values in the element type that NumPy computes them in together."""
    dtype = DType.of(np.result_type(*(v.dtype.numpy for v in values)))
    return tuple(convert(v, computed(dtype)) for v in values)
