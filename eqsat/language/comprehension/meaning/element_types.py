"""Element types of comprehensions: their names, and the type of an operator's result.

Of two types the one that holds more wins: floats over integers over bool, wide over narrow. What has no winner (float16
with bfloat16, unsigned with signed integers) becomes the narrowest type that holds both. Integers beside floats take
their type, as in C. A literal takes the type of what it meets.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal, TypeAlias

from eqsat.language.terms import DType

#: The type of an integer or a float literal that has met no tensor yet.
Weak: TypeAlias = Literal["integer", "float"]
ElementType: TypeAlias = "DType | Weak"

#: The element types by their names.
NAMED = MappingProxyType(
    {
        "bool": DType.BOOL,
        "uint8": DType.UINT8,
        "uint16": DType.UINT16,
        "uint32": DType.UINT32,
        "uint64": DType.UINT64,
        "int8": DType.INT8,
        "int16": DType.INT16,
        "int32": DType.INT32,
        "int64": DType.INT64,
        "bfloat16": DType.BFLOAT16,
        "float16": DType.FLOAT16,
        "float": DType.FLOAT32,
        "double": DType.FLOAT64,
        "int": DType.INT32,
        "half": DType.FLOAT16,
        "float32": DType.FLOAT32,
        "float64": DType.FLOAT64,
    }
)
#: The name that is printed for each type: the first of those it has.
NAME_OF = MappingProxyType({dtype: name for name, dtype in reversed(tuple(NAMED.items()))})
#: The types that literals have where they meet nothing.
_DEFAULTS = {"integer": DType.INT32, "float": DType.FLOAT32}
_SIGNED = (DType.INT8, DType.INT16, DType.INT32, DType.INT64)
#: The integers without a sign.
UNSIGNED = (DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64)
_FLOATS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)


def promoted(a: ElementType, b: ElementType) -> ElementType | None:
    """The type of a sum of two types; None of uint64 with a signed one, which no integer type holds.

    >>> promoted(DType.UINT8, DType.INT8), promoted(DType.FLOAT16, DType.INT64), promoted("float", DType.FLOAT16)
    (<DType.INT16: 'int16'>, <DType.FLOAT16: 'float16'>, <DType.FLOAT16: 'float16'>)
    """
    if a == b:
        return a
    if isinstance(a, str) or isinstance(b, str):
        return _with_literal(a, b)
    floats = [one for one in (a, b) if one.is_float]
    if len(floats) == 1:
        return floats[0]
    if floats:
        return DType.FLOAT32 if {a, b} == {DType.FLOAT16, DType.BFLOAT16} else max(a, b, key=_FLOATS.index)
    if DType.BOOL in (a, b):
        return b if a is DType.BOOL else a
    for kind in (_SIGNED, UNSIGNED):
        if a in kind and b in kind:
            return max(a, b, key=kind.index)
    signed, unsigned = (a, b) if a in _SIGNED else (b, a)
    rank = max(_SIGNED.index(signed), UNSIGNED.index(unsigned) + 1)
    return _SIGNED[rank] if rank < len(_SIGNED) else None


def _with_literal(a: ElementType, b: ElementType) -> ElementType:
    if isinstance(a, str) and isinstance(b, str):
        return "float"
    literal, dtype = (a, b) if isinstance(a, str) else (b, a)
    assert isinstance(dtype, DType)
    if dtype.is_float or (literal == "integer" and dtype is not DType.BOOL):
        return dtype
    return literal if dtype is DType.BOOL else DType.FLOAT32


def settled(element_type: ElementType) -> DType:
    """A type that is not a literal's: int32 and float for these."""
    return _DEFAULTS[element_type] if isinstance(element_type, str) else element_type


def shown(element_type: ElementType) -> str:
    """The name of a type in messages."""
    return f"a literal {element_type}" if isinstance(element_type, str) else NAME_OF[element_type]


def is_float(element_type: ElementType) -> bool:
    """True of floats of any width, literals included."""
    return element_type == "float" or (isinstance(element_type, DType) and element_type.is_float)


def is_integer(element_type: ElementType) -> bool:
    """True of integers of any width, literals included; bool is none."""
    return element_type == "integer" or element_type in (*_SIGNED, *UNSIGNED)
