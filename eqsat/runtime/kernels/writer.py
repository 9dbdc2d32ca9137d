"""Text of a kernel under construction: one statement a line, nothing computed twice within a block."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, IndexVariable
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError

#: Longer expressions are cut where they are read, and the parts get names.
LONGEST = 80
#: More statements than these are no kernel; a value that is reached in many ways makes them.
MOST_LINES = 3000

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass
class _CodeBlock:
    """A block: its lines, the facts known in it, and for a loop the names that may differ between rounds."""

    lines: list[str] = field(default_factory=list)
    known: dict[Hashable, Any] = field(default_factory=dict)
    varying: set[str] | None = None
    is_case: bool = False


class CodeWriter:
    """Statements, and the names they define. Definitions that are the same in every round of a loop stand before it.

    >>> w = CodeWriter()
    >>> with w.loop("for (int k = 0; k < 4; ++k)", "k"):
    ...     row = w.define("int", "row", "t * 8")
    ...     name = w.define("int", "place", f"{row} + k")
    >>> print(w.text())
    const int row_0 = t * 8;
    for (int k = 0; k < 4; ++k) {
      const int place_0 = row_0 + k;
    }
    """

    def __init__(self) -> None:
        self._scopes = [_CodeBlock()]
        self._taken: dict[str, int] = {}
        self._written = 0

    def line(self, text: str) -> None:
        """Write a line as it is."""
        self._add(self._scopes[-1], text)

    def _add(self, scope: _CodeBlock, text: str) -> None:
        self._written += 1
        if self._written > MOST_LINES:
            raise UnsupportedError("too many statements")
        scope.lines.append(text)

    def comment(self, text: str) -> None:
        """Write a comment."""
        self.line(f"// {text}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces after `head`; their definitions end with them."""
        with self._scope(head, _CodeBlock()):
            yield

    @contextmanager
    def case(self, head: str) -> Iterator[None]:
        """A block that is run under a condition: coordinates that it defines may be worked out without it as well."""
        with self._scope(head, _CodeBlock(is_case=True)):
            yield

    @contextmanager
    def loop(self, head: str, *variables: str, unroll: bool = False) -> Iterator[None]:
        """A block that is run many times: definitions that read no varying name are put before it.

        The names that vary are those given, those that the block assigns to, and those that it defines by them.
        """
        with self._scope(head, _CodeBlock(varying=set(variables)), "#pragma unroll" if unroll else ""):
            yield

    @contextmanager
    def _scope(self, head: str, scope: _CodeBlock, before: str = "") -> Iterator[None]:
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.pop()
        lines = self._scopes[-1].lines
        lines += [before] * bool(before)
        lines += [f"{head} {{".lstrip(), *(f"  {line}" for line in scope.lines), "}"]

    @property
    def depth(self) -> int:
        """In how many blocks the next line stands."""
        return len(self._scopes) - 1

    def name(self, stem: str) -> str:
        """A new name for a variable that is assigned to: the stem with a number."""
        name = self._fresh(stem)
        for scope in self._scopes:
            if scope.varying is not None:
                scope.varying.add(name)
        return name

    def _fresh(self, stem: str) -> str:
        count = self._taken.get(stem, 0)
        self._taken[stem] = count + 1
        return f"{stem}_{count}"

    def define(self, type: str, stem: str, text: str, *, safe: bool = False) -> str:
        """The name of a constant of C that holds the value of a text, defined here unless one is known.

        A `safe` text can be worked out whatever the conditions around it, and is so before a loop that leaves it alone.
        """
        key = (type, text)
        name: str | None = self.recall(key)
        if name is None:
            name = self._fresh(stem)
            place = len(self._scopes) - 1
            while (loop := self._loop_of(place, safe)) and self._is_constant(text, self._scopes[loop]):
                place = loop - 1
            scope = self._scopes[place]
            self._add(scope, f"const {type} {name} = {text};")
            scope.known[key] = name
            loops = [s.varying for s in self._scopes[: place + 1] if s.varying is not None]
            if loops:  # no name of a block within a loop is known before it
                loops[-1].add(name)
        return name

    def _loop_of(self, place: int, safe: bool) -> int:
        """The scope of the loop whose rounds a scope is part of, conditions in between passed over; 0 for none."""
        while safe and self._scopes[place].is_case:
            place -= 1
        return place if self._scopes[place].varying is not None else 0

    def _is_constant(self, text: str, scope: _CodeBlock) -> bool:
        """Return whether a scope is a loop, and a text has the same value in all its rounds."""
        return scope.varying is not None and scope.varying.isdisjoint(_WORD.findall(text))

    def is_constant(self, text: str) -> bool:
        """Return whether a text has the same, known value in all rounds of the loop around the next line."""
        loop = self._loop_of(len(self._scopes) - 1, True)
        return bool(loop) and self._is_constant(text, self._scopes[loop])

    def remember(self, key: Hashable, value: Any) -> None:
        """Store a fact that holds until the block ends."""
        self._scopes[-1].known[key] = value

    def recall(self, key: Hashable) -> Any:
        """The object stored under a key in this block or one around it; None where there is none."""
        return next((scope.known[key] for scope in reversed(self._scopes) if key in scope.known), None)

    def index(self, index: AffineIndex) -> str:
        """A coordinate as an operand of C: quotients and remainders are defined on the way."""
        return index.text(self._variable)

    def _variable(self, variable: IndexVariable) -> str:
        if variable.of is None:
            return variable.name
        of = self.index(variable.of)
        if not of.isidentifier():
            of = f"({of})"
        type = "long long" if variable.size > 2**31 else "int"
        text = f"{of} {variable.kind} {variable.by}"
        if variable.of.is_wide and type == "int":
            text = f"(int)({text})"
        return self.define(type, "quotient" if variable.kind == "/" else "rest", text, safe=True)

    def render(self, expr: Expr, stem: str) -> str:
        """A value as an operand of C; one that is read twice, or is long, gets a name that begins with the stem."""
        uses: dict[int, int] = {}
        _count(expr, uses)
        return self._rendered(expr, stem, uses, {})

    def _rendered(self, expr: Expr, stem: str, uses: dict[int, int], done: dict[int, str]) -> str:
        if id(expr) not in done:
            parts = [self._rendered(o, stem, uses, done) for o in expr.operands]
            text = expr.template.format(*parts) if expr.operands else expr.template
            if expr.operands and (uses.get(id(expr), 1) > 1 or len(text) > LONGEST):
                text = self.define(expr.c_type, f"{stem}_part", bare(text))
            done[id(expr)] = text
        return done[id(expr)]

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._scopes[0].lines)


def _count(expr: Expr, uses: dict[int, int]) -> None:
    """Count the reads of each part of an expression."""
    for place, operand in enumerate(expr.operands):
        seen = id(operand) in uses
        uses[id(operand)] = uses.get(id(operand), 0) + expr.template.count(f"{{{place}}}")
        if not seen:
            _count(operand, uses)


def bare(text: str) -> str:
    """An expression without brackets around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return text[1:-1] if place == len(text) - 1 else text
    return text
