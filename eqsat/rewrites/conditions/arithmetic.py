"""Operations that a rule's expressions may compute, on numbers and tuples of bounded size.

A rule file is data that someone else may have written: what it computes must end, and in little memory. A number that
no dim, size or attribute of a tensor can be is refused, and so is a sequence longer than any attribute.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.language.terms.dims import Sym

#: Integers lie strictly between this and its negative: those of ONNX have 64 bits.
BEYOND = 1 << 63
#: Elements of a sequence that an expression makes.
LONGEST = 1 << 12
#: Terms of a polynomial of named dims before they are gathered, and elements of an array of numbers.
MOST_TERMS, MOST_ELEMENTS = 1 << 10, 1 << 20


class Excess(ValueError):  # noqa: N818  (a state of affairs, told in the words of the rule)
    """A value larger than an expression may have."""


def repeat_count(count: Any) -> Any:
    """The length of a sequence to be made; Excess where no attribute is as long."""
    if isinstance(count, int) and not -BEYOND < count <= LONGEST:
        raise Excess(f"a sequence of {_shown(count)} elements; expected at most {LONGEST}")
    return count


def bounded_range(*bounds: Any) -> tuple[int, ...]:
    """The integers of a range, at most `LONGEST` of them."""
    result = range(*bounds)
    if not -BEYOND < result.start < BEYOND or not -BEYOND < result.stop < BEYOND:
        raise Excess("a range beyond 64 bits")
    # `len` overflows where the bounds are far apart, so the last that is allowed is asked for instead.
    if result[LONGEST : LONGEST + 1]:
        raise Excess(f"a range of more than {LONGEST} elements")
    return tuple(result)


def bounded_sum(items: Iterable[Any], start: Any = 0) -> Any:
    """The sum of the items, each step within the bounds of `add`."""
    total = start
    for item in items:
        total = add(total, item)
    return total


def add(a: Any, b: Any) -> Any:
    """Sum a + b, of numbers, dims or tuples."""
    if type(a) is tuple and type(b) is tuple:
        repeat_count(len(a) + len(b))
        return a + b
    _check_numbers(a, b)
    return _bounded(a + b)


def subtract(a: Any, b: Any) -> Any:
    """Difference a - b, of numbers or dims."""
    _check_numbers(a, b)
    return _bounded(a - b)


def multiply(a: Any, b: Any) -> Any:
    """Product a * b, of numbers or dims, or of a tuple and a count."""
    for items, count in ((a, b), (b, a)):
        if type(items) is tuple and isinstance(count, int):
            repeat_count(len(items) * max(count, 0))
            return items * count
    _check_numbers(a, b)
    if isinstance(a, Sym) and isinstance(b, Sym) and len(a.terms) * len(b.terms) > MOST_TERMS:
        raise Excess(f"a product of {len(a.terms)} by {len(b.terms)} terms of named dims")
    return _bounded(a * b)


def divide(a: Any, b: Any) -> Any:
    """Quotient a / b, of numbers."""
    _check_numbers(a, b)
    return _bounded(a / b)


def floor_divide(a: Any, b: Any) -> Any:
    """Floored quotient a // b, of numbers or dims."""
    _check_numbers(a, b)
    return _bounded(a // b)


def modulo(a: Any, b: Any) -> Any:
    """Remainder a % b, of numbers or dims; of text it would be a format."""
    _check_numbers(a, b)
    return _bounded(a % b)


def power(a: Any, b: Any) -> Any:
    """Power a ** b, of numbers; refused before it is computed where it would be beyond the bounds."""
    _check_numbers(a, b)
    if (
        isinstance(a, int)
        and isinstance(b, int)
        and abs(a) > 1
        and b * (abs(a).bit_length() - 1) >= BEYOND.bit_length()
    ):
        raise Excess(f"{_shown(a)} ** {_shown(b)} is beyond 64 bits")
    return _bounded(a**b)


def negate(a: Any) -> Any:
    """Negative of a number or a dim."""
    _check_numbers(a, a)
    return _bounded(-a)


#: The function of each binary operator.
BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: add,
        ast.Sub: subtract,
        ast.Mult: multiply,
        ast.Div: divide,
        ast.FloorDiv: floor_divide,
        ast.Mod: modulo,
        ast.Pow: power,
    }
)


def _check_numbers(*operands: Any) -> None:
    for operand in operands:
        if type(operand) is int or isinstance(operand, int | float | Sym):
            continue
        if isinstance(operand, np.ndarray | np.generic) and operand.dtype.kind not in "OSU":
            continue
        raise TypeError(f"no arithmetic on a {type(operand).__name__}")


def _bounded(value: Any) -> Any:
    if type(value) is int and not -BEYOND < value < BEYOND:
        raise Excess("an integer beyond 64 bits")
    if isinstance(value, np.ndarray) and value.size > MOST_ELEMENTS:
        raise Excess(f"an array of {value.size} elements")
    return value


def _shown(number: int) -> str:
    return str(number) if abs(number) < BEYOND else "over 2^63"
