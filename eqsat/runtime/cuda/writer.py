"""Text of a kernel under construction: one statement a line, nothing computed twice within a block."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from eqsat.runtime.cuda.coordinates import Index, Variable
from eqsat.runtime.cuda.expression import Expr, UnsupportedError

#: Longer expressions are cut where they are read, and the parts get names.
LONGEST = 80
#: More statements than these are no kernel; a value that is reached in many ways makes them.
MOST_LINES = 3000


class Writer:
    """Statements, and the names of what they define.

    >>> w = Writer()
    >>> with w.block("for (int k = 0; k < 4; ++k)"):
    ...     name = w.define("int", "place", "k * 8")
    >>> print(w.text())
    for (int k = 0; k < 4; ++k) {
      const int place_0 = k * 8;
    }
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._scopes: list[dict[Hashable, Any]] = [{}]
        self._taken: dict[str, int] = {}

    def line(self, text: str) -> None:
        """Writes a line as it is."""
        if len(self._lines) >= MOST_LINES:
            raise UnsupportedError("too many statements")
        self._lines.append("  " * (len(self._scopes) - 1) + text)

    def comment(self, text: str) -> None:
        """Writes a comment."""
        self.line(f"// {text}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces after `head`; what they define is gone after them."""
        self.line(f"{head} {{" if head else "{")
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()
        self.line("}")

    @property
    def depth(self) -> int:
        """In how many blocks the next line stands."""
        return len(self._scopes) - 1

    def name(self, stem: str) -> str:
        """A name that nothing else has: the stem with a number."""
        count = self._taken.get(stem, 0)
        self._taken[stem] = count + 1
        return f"{stem}_{count}"

    def define(self, type: str, stem: str, text: str) -> str:
        """The name of a constant of C that holds the value of a text, defined here unless one is known."""
        key = (type, text)
        found: str | None = self.recall(key)
        if found is None:
            found = self.name(stem)
            self.line(f"const {type} {found} = {text};")
            self.remember(key, found)
        return found

    def remember(self, key: Hashable, value: Any) -> None:
        """Keeps what holds until the block ends."""
        self._scopes[-1][key] = value

    def recall(self, key: Hashable) -> Any:
        """What was kept under a key in this block or one around it; None where nothing was."""
        return next((scope[key] for scope in reversed(self._scopes) if key in scope), None)

    def index(self, index: Index) -> str:
        """A coordinate as an operand of C: quotients and remainders are defined on the way."""
        return index.text(self._variable)

    def _variable(self, variable: Variable) -> str:
        if variable.of is None:
            return variable.name
        of = self.index(variable.of)
        if not of.isidentifier():
            of = f"({of})"
        type = "long long" if variable.size > 2**31 else "int"
        text = f"{of} {variable.kind} {variable.by}"
        if variable.of.is_wide and type == "int":
            text = f"(int)({text})"
        return self.define(type, "quotient" if variable.kind == "/" else "rest", text)

    def render(self, expr: Expr, stem: str) -> str:
        """A value as an operand of C; what is read twice, or is long, gets a name that begins with the stem."""
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
        return "\n".join(self._lines)


def _count(expr: Expr, uses: dict[int, int]) -> None:
    """How often each part of an expression is read."""
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
