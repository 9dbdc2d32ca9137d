"""Terms of proofs as text, in the syntax of rules."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.pattern import INFIX
from eqsat.rewrites.conditions.syntax import substituted
from eqsat.rewrites.proof.chains.closure import Closure, ClosureLink, ClosureTerm
from eqsat.rewrites.proof.chains.symbols import (
    Bound,
    Computed,
    Literal,
    Member,
    Ref,
    Symbol,
    SymbolRecord,
    Thing,
    literal,
)
from eqsat.rewrites.rules.literals import type_beside

#: Longer attributes are written as the values they have in the instance.
_LONGEST = 48


class Printer:
    """A writer of terms, attributes as expressions over the names of the rule.

    `names` and `symbols` are what to call terms and attributes that are not to be written out; `concrete` writes
    attributes as the values that they have in the instance, `numbers` scalars as numbers, as equations to prove may.
    """

    def __init__(
        self,
        closure: Closure,
        names: Mapping[int, str] | None = None,
        symbols: Mapping[Symbol, str] | None = None,
        *,
        concrete: bool = False,
        numbers: bool = True,
    ) -> None:
        self.closure, self.names, self.symbols = closure, names or {}, symbols or {}
        self.concrete, self.numbers = concrete, numbers

    def term(self, number: int, *, inner: bool = False) -> str:
        """One term; in parentheses where it is an operand written with an infix operator."""
        if number in self.names:
            return self.names[number]
        term = self.closure.terms[number]
        if term.leaf is not None:
            return term.label
        infix = INFIX.get(term.op)
        if infix is not None and len(term.children) == 2:
            text = f" {infix} ".join(self._operands(term, inner=True))
            return f"({text})" if inner else text
        operands = self._operands(term)
        return f"{term.op}({', '.join(operands + self._attributes(term.op, term.symbols, term.attrs))})"

    def _operands(self, term: ClosureTerm, *, inner: bool = False) -> list[str]:
        """The operands of a term, as a number each scalar that has the element type of what is beside it."""
        texts = [self.term(c, inner=inner) for c in term.children]
        known = {i: self._number(c) for i, c in enumerate(term.children) if self.numbers and c not in self.names}
        numbers = {i: number for i, number in known.items() if number is not None}
        trees = [ast.Constant(0) if i in numbers else _tree(text) for i, text in enumerate(texts)] if numbers else []
        for place, (value, dtype) in numbers.items():
            beside = type_beside(term.op, place, trees)
            if beside is not None and ast.unparse(beside) == dtype:
                texts[place] = value
        return texts

    def _number(self, number: int) -> tuple[str, str] | None:
        """The number that a scalar is filled with, and its element type, as text; None for any other term."""
        term = self.closure.terms[number]
        if term.op != "fill":
            return None
        shape, value, dtype = (dict(term.symbols)[name] for name in ("shape", "value", "dtype"))
        if shape != literal(()) or not isinstance(value, Literal):
            return None
        return value.text, Printer(self.closure, self.names).symbol(dtype)

    def thing(self, thing: Thing) -> str:
        """A term or a symbol."""
        if isinstance(thing, Ref):
            return self.term(thing.term)
        if isinstance(thing, tuple):
            return "[" + ", ".join(self.thing(t) for t in thing) + "]"
        return self.symbol(thing)

    def symbol(self, symbol: Symbol) -> str:
        """An attribute as an expression over the names of the rule."""
        if symbol in self.symbols:
            return self.symbols[symbol]
        if isinstance(symbol, Literal):
            return symbol.text
        if isinstance(symbol, Bound):
            return symbol.label
        if isinstance(symbol, Member):
            return f"{self.thing(symbol.record)}.{symbol.key}"
        if isinstance(symbol, SymbolRecord):
            return "{" + ", ".join(f"{k}={self.symbol(s)}" for k, s in symbol.items) + "}"
        return self._computed(symbol)

    def _computed(self, symbol: Computed) -> str:
        env: dict[str, Any] = {}
        for name, thing in symbol.env:
            try:
                env[name] = ast.parse(self.thing(thing), mode="eval").body
            except SyntaxError:
                env[name] = ast.Name(name, ast.Load())
        return ast.unparse(substituted(copy.deepcopy(symbol.expression.tree), env))

    def _attributes(self, op: str, symbols: tuple[tuple[str, Symbol], ...], attrs: Attrs) -> list[str]:
        defaults = spec(op).attrs
        if self.concrete:
            return [f"{k}={v!r}" for k, v in attrs.items() if Attrs(v=defaults.get(k)) != Attrs(v=v)]
        sources = [s.record for k, s in symbols if isinstance(s, Member) and s.key == k and isinstance(s.record, Bound)]
        record = max(sources, key=sources.count, default=None)
        shown = []
        for key, symbol in symbols:
            if isinstance(symbol, Member) and symbol.record == record and symbol.key == key:
                continue
            if record is not None or symbol != Literal(repr(defaults.get(key)), None):
                text = self.symbol(symbol)
                shown.append(f"{key}={text if len(text) <= _LONGEST else repr(attrs[key])}")
        return [*shown, f"**{self.symbol(record)}"] if record is not None else shown


def _tree(text: str) -> ast.expr:
    """A term as Python reads it; None as a tree where it is written otherwise."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return ast.Constant(None)


def lines(printer: Printer, links: Iterable[ClosureLink], names: Sequence[str]) -> tuple[str, ...]:
    """A chain as text, a term a line with the rule that leads to it; steps that change nothing visible are left out."""
    texts: list[str] = []
    last = ""
    for link in links:
        if not texts:
            texts.append(last := printer.term(link.before))
        text = printer.term(link.after)
        if link.equation is None and text == last:
            continue
        why = "attributes agree" if link.equation is None else names[link.equation]
        texts.append(f"= {text}  [{why}{', right to left' if link.backwards else ''}]")
        last = text
    return tuple(texts)
