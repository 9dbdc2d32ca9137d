"""Laws of operators with a scale and a zero point, and of products of integers.

Each element is rounded, or restored, by itself, so both commute with what moves elements: numbers of a byte are moved
at a quarter of the time. A positive scale keeps their order. Numbers that are restored and rounded by one scale are
whole and stay as they are; a tensor that is rounded and restored is another one, of which there is no law. A sum of
products of integers, cast to float32, is a product of floats that hold the integers.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.language.declaration.spec import OpSpec
from eqsat.rewrites.schemas.operator import Statement, law

#: Operators that move elements and add none.
_MOVEMENTS = ("transpose", "reshape", "slice", "expand")
_WHOLE = ("size(s) == 1", "size(z) == 1")
#: A scale by which numbers of a byte are restored to finite floats, and are so far apart that they are told apart.
_TELLS = ("size(s) == 1", "wide(s)", "is_positive(s)", "1e-30 < number(s) < 1e30")
#: Windows of a pool that no pads fill.
_MEETS_ELEMENTS = "all(p < k for p, k in zip(a.pads, a.kernel + a.kernel))"
#: Numbers whose products, and as many terms of sums of these as 32 bits hold.
_OF_BYTES = tuple(f'dtype({name}) in ("int8", "uint8")' for name in "xw")
_MOST_TERMS = 32768


def quantised_laws(spec: OpSpec) -> Iterator[Statement]:
    """Laws of quantisation, dequantisation and products of integers."""
    if spec.name == "quantize_linear":
        yield from _rounding()
    elif spec.name == "dequantize_linear":
        yield from _restoring()
    elif spec.name == "matmul_integer":
        yield from _integer_products()
    elif spec.name == "conv_integer":
        yield from _integer_convolutions()


def _rounding() -> Iterator[Statement]:
    for f in _MOVEMENTS:
        yield from law(
            f"quantised-of-{f}",
            f"quantize_linear({f}(x, **a), s, z, to=t, axis=j, block=0)",
            f"{f}(quantize_linear(x, s, z, to=t, axis=0, block=0), **a)",
            _WHOLE,
        )
    same = ("dtype(q) == t", 't in ("int8", "uint8")', *_TELLS)
    for name, zero, one in (("quantised-again", ", z", ("size(z) == 1",)), ("quantised-again-from-zero", "", ())):
        restored = f"dequantize_linear(q, s{zero}, axis=j, block=0)"
        again = f"quantize_linear({restored}, s{zero}, to=t, axis=k, block=0)"
        yield from law(name, again, "q", (*same, *one), phase="simplify")


def _restoring() -> Iterator[Statement]:
    restored, joined = "dequantize_linear(q, s, z, axis=j, block=0)", "dequantize_linear({}, s, z, axis=0, block=0)"
    for f in _MOVEMENTS:
        yield from law(f"{f}-of-dequantised", f"{f}({restored}, **a)", joined.format(f"{f}(q, **a)"), _WHOLE)
    parts = f"concat(*[{restored} for q in qs], axis=k)"
    yield from law("concat-of-dequantised", parts, joined.format("concat(*qs, axis=k)"), _WHOLE)
    yield from law(
        "max_pool-of-dequantised",
        f"max_pool({restored}, **a)",
        joined.format("max_pool(q, **a)"),
        # A window between elements, or in the pads, holds none, of which the least integer is no minus infinity.
        (*_WHOLE, "is_positive(s)", "all(d == 1 for d in a.dilations)", "not a.ceil_mode", _MEETS_ELEMENTS),
    )
    least = ('dtype(q) == "uint8"', "is_all(z, 0)", "is_positive(s)")
    yield from law("relu-of-least-zero", f"relu({restored})", restored, least, phase="simplify")


def _integer_products() -> Iterator[Statement]:
    fits = ("rank(x) >= 2", "rank(w) >= 2", *_OF_BYTES, "size(a) == 1", f"dim(w, -2) <= {_MOST_TERMS}")
    for name, zero in (("matmul-of-integers", ", b"), ("matmul-of-integers-and-zero", "")):
        right = _floats("w", "b") if zero else _floats("w")
        yield from law(name, _sums(f"matmul_integer(x, w, a{zero})"), f"{_floats('x', 'a')} @ {right}", fits)


def _integer_convolutions() -> Iterator[Statement]:
    fits = (*_OF_BYTES, "size(a) == 1", "static(w)", f"prod(shape(w)[1:]) <= {_MOST_TERMS}")
    x = _floats("x", "a", number=True)
    for name, zero, one in (("conv-of-integers", ", b", ("size(b) == 1",)), ("conv-of-integers-and-zero", "", ())):
        w = _floats("w", "b", number=True) if zero else _floats("w")
        made = f'conv({x}, {w}, activation="none", **k)'
        yield from law(name, _sums(f"conv_integer(x, w, a{zero}, **k)"), made, (*fits, *one))


def _sums(product: str) -> str:
    return f'cast({product}, to="float32")'


def _floats(numbers: str, zero: str = "", *, number: bool = False) -> str:
    """Integers as floats, less a zero point, which is a single number where that is said."""
    floats = f'cast({numbers}, to="float32")'
    if not zero:
        return floats
    less = f'cast({zero}, to="float32")'
    return f"({floats} - {f'reshape({less}, shape=())' if number else less})"
