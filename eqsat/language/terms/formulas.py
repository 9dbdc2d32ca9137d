"""Dims as text: formulas over named dims, as exporters and shape inference write them into a model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from eqsat.language.terms.dims import Dim, Sym, broadcast_dims, dim_max, dim_min, exact_quotient, floordiv

#: Longer texts, deeper ones and higher powers are no dims that anybody wrote.
_LONGEST, _DEEPEST, _HIGHEST = 2000, 60, 8

_TOKEN = re.compile(r"\s*(?:(?P<number>\d{1,18})(?![\w.])|(?P<name>[A-Za-z_][\w.]*)|(?P<sign>\*\*|//|[-+*/%(),]))")
_TORCH = re.compile(r"[su]\d{1,4}")
_TRAILING = re.compile(r"\s*\Z")


class _Malformed(Exception):  # noqa: N818  (a name may be any text)
    """The text is no formula."""


@dataclass(frozen=True)
class _Fraction:
    """One dim over another; texts divide first and round afterwards."""

    top: Dim
    bottom: Dim = 1

    def whole(self) -> Dim:
        quotient = exact_quotient(self.top, self.bottom)
        if quotient is None:
            raise _Malformed
        return quotient

    def rounded_down(self) -> Dim:
        common = math.gcd(*(c for d in (self.top, self.bottom) for c in _coefficients(d))) or 1
        top, bottom = exact_quotient(self.top, common), exact_quotient(self.bottom, common)
        if top is None or bottom is None or bottom == 0 or (isinstance(bottom, int) and bottom < 0):
            raise _Malformed
        return floordiv(top, bottom)


def _coefficients(dim: Dim) -> list[int]:
    return [c for _, c in dim.terms] if isinstance(dim, Sym) else [dim]


def dim_of(text: str, known: Callable[[str], bool]) -> Dim:
    """The dim that a text says: a formula over names that are `known`, else a name of its own.

    >>> dim_of("floor(height/2 - 1/2) + 1", lambda name: name == "height")
    Sym('floordiv(height - 1, 2) + 1')
    >>> dim_of("batch-size", lambda name: False)
    Sym('batch-size')
    """
    try:
        return _Parser(text, known).parsed()
    except _Malformed:
        return Sym.named(text)


def reader(shapes: Iterable[Iterable[str]]) -> Callable[[str], Dim]:
    """The function that reads the texts of a model's dims, given the texts in the shapes of its inputs.

    A formula is one over names that inputs show as they are, or over those that PyTorch gives: s0, s1, u0 …
    """
    shown = {text for shape in shapes for text in shape}

    def known(name: str) -> bool:
        return name in shown or _TORCH.fullmatch(name) is not None

    return lambda text: dim_of(text, known)


def text_of(dim: Dim) -> str:
    """A formula that `dim_of` reads back, in the operators and functions that SymPy knows.

    >>> text_of(Sym.named("n") // 2 + 1)
    'floor((n)/(2)) + 1'
    """
    if not isinstance(dim, Sym):
        return str(dim)
    parts = []
    for monomial, coefficient in dim.terms:
        factors = [str(coefficient)] if coefficient != 1 or not monomial else []
        for atom, power in monomial:
            factor = atom if isinstance(atom, str) else _function_text(*atom)
            factors.append(factor if power == 1 else f"{factor}**{power}")
        parts.append("*".join(factors))
    return " + ".join(parts).replace("+ -", "- ")


def _function_text(name: str, a: Dim, b: Dim) -> str:
    if name == "floordiv":
        return f"floor(({text_of(a)})/({text_of(b)}))"
    return f"{_WRITTEN[name]}({text_of(a)}, {text_of(b)})"


_WRITTEN = {"mod": "Mod", "max": "Max", "min": "Min", "broadcast": "broadcast"}


@dataclass
class _Parser:
    """A parser by recursive descent; it evaluates nothing but sums, products, quotients and six functions."""

    text: str
    known: Callable[[str], bool]
    tokens: list[tuple[str, str]] = field(default_factory=list)
    at: int = 0
    depth: int = 0

    def parsed(self) -> Dim:
        if len(self.text) > _LONGEST:
            raise _Malformed
        place = 0
        while not _TRAILING.match(self.text, place):
            match = _TOKEN.match(self.text, place)
            if match is None or match.lastgroup is None:
                raise _Malformed
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            place = match.end()
        # A text that is one name is that name, known or not.
        if len(self.tokens) < 2:
            raise _Malformed
        dim = self._sum().whole()
        if self.at != len(self.tokens) or not isinstance(dim, Sym):
            raise _Malformed
        return dim

    def _next(self, *signs: str) -> str | None:
        """The next token if it is one of these signs, which is then read."""
        if self.at < len(self.tokens) and self.tokens[self.at] in [("sign", s) for s in signs]:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return None

    def _expect(self, sign: str) -> None:
        if self._next(sign) is None:
            raise _Malformed

    def _sum(self) -> _Fraction:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _Malformed
        total = self._term()
        while (sign := self._next("+", "-")) is not None:
            one, two = total, self._term()
            right = two.top * one.bottom
            total = _Fraction(one.top * two.bottom + (right if sign == "+" else -right), one.bottom * two.bottom)
        self.depth -= 1
        return total

    def _term(self) -> _Fraction:
        value = self._factor()
        while (sign := self._next("*", "/", "//", "%")) is not None:
            other = self._factor()
            match sign:
                case "*":
                    value = _Fraction(value.top * other.top, value.bottom * other.bottom)
                case "/" | "//":
                    value = _divided(value, other)
                    value = _Fraction(value.rounded_down()) if sign == "//" else value
                case _:
                    value = _Fraction(_mod(value.whole(), other.whole()))
        return value

    def _factor(self) -> _Fraction:
        if self._next("-") is not None:
            value = self._factor()
            return _Fraction(-value.top, value.bottom)
        value = self._atom()
        if self._next("**") is None:
            return value
        kind, text = self._read()
        if kind != "number" or int(text) > _HIGHEST:
            raise _Malformed
        top: Dim = 1
        for _ in range(int(text)):
            top = top * value.whole()
        return _Fraction(top)

    def _read(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise _Malformed
        self.at += 1
        return self.tokens[self.at - 1]

    def _atom(self) -> _Fraction:
        kind, text = self._read()
        if kind == "number":
            return _Fraction(int(text))
        if (kind, text) == ("sign", "("):
            value = self._sum()
            self._expect(")")
            return value
        if kind != "name":
            raise _Malformed
        if text.lower() in _FUNCTIONS and self._next("(") is not None:
            arguments = [self._sum()]
            while self._next(",") is not None:
                arguments.append(self._sum())
            self._expect(")")
            return _Fraction(_FUNCTIONS[text.lower()](*arguments)) if len(arguments) == _ARITY[text.lower()] else _no()
        if not self.known(text):
            raise _Malformed
        return _Fraction(Sym.named(text))


def _no() -> _Fraction:
    raise _Malformed


def _divided(a: _Fraction, b: _Fraction) -> _Fraction:
    if b.top == 0:
        raise _Malformed
    return _Fraction(a.top * b.bottom, a.bottom * b.top)


def _mod(a: Dim, b: Dim) -> Dim:
    if isinstance(b, int) and b < 1:
        raise _Malformed
    return a % b if isinstance(a, Sym) else Sym.function("mod", a, b)


def _broadcast(a: _Fraction, b: _Fraction) -> Dim:
    joined = broadcast_dims(a.whole(), b.whole())
    if joined is None:
        raise _Malformed
    return joined


_FUNCTIONS: Mapping[str, Callable[..., Dim]] = {
    "floor": lambda a: a.rounded_down(),
    "ceiling": lambda a: -_Fraction(-a.top, a.bottom).rounded_down(),
    "ceil": lambda a: -_Fraction(-a.top, a.bottom).rounded_down(),
    "floordiv": lambda a, b: _divided(a, b).rounded_down(),
    "mod": lambda a, b: _mod(a.whole(), b.whole()),
    "max": lambda a, b: dim_max(a.whole(), b.whole()),
    "min": lambda a, b: dim_min(a.whole(), b.whole()),
    "broadcast": _broadcast,
}
_ARITY: Mapping[str, int] = {name: 1 if name in ("floor", "ceiling", "ceil") else 2 for name in _FUNCTIONS}
