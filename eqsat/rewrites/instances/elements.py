"""Elements for the operands of a rule: as its conditions ask, else random ones."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from eqsat.language.terms import Bindings, Expression, TensorType
from eqsat.language.terms.matrices import diagonal_of, rows_attend
from eqsat.rewrites.conditions.expression import evaluate
from eqsat.rewrites.rules.naming import renamed
from eqsat.rewrites.rules.rule import Rule

_POOL = (1.0, 2.0, 0.5, -1.0, 0.0, 3.0, -0.5, 4.0)
#: Functions of conditions that look at a tensor's elements, or ask whether they are known.
OF_CONSTANTS = frozenset(
    {
        "constant",
        "value",
        "is_all",
        "rounds",
        "is_uniform",
        "number",
        "integer",
        "invertible",
        "is_positive",
        "is_nonnegative",
        "is_eye",
        "is_range",
        "is_progression",
        "is_zero",
        "is_selection",
        "is_triangle",
        "is_even_beside",
        "is_in_blocks",
        "is_grouped",
    }
)


@dataclass(eq=False)
class Drawn:
    """A drawn operand; `read` says that a condition or attribute looked at the elements."""

    name: str
    type: TensorType
    constant: bool = False
    finite: bool = True
    array: Any = None
    read: bool = False
    limit: int | None = None

    @property
    def value(self) -> Any | None:
        """The elements of a constant."""
        if not self.constant:
            return None
        self.read = True
        return self.array

    @property
    def elements(self) -> Any | None:
        """The elements of a constant."""
        return self.value

    @property
    def attends(self) -> bool:
        """True for a constant mask in which no row hides all keys."""
        return self.constant and rows_attend(self.value)

    @property
    def diagonal(self) -> float | None:
        """The number on the diagonal of a constant matrix with zeros beside it, else None."""
        return diagonal_of(self.value) if self.constant else None


class Filler:
    """A source of elements for the operands of one rule."""

    def __init__(self, rule: Rule) -> None:
        self._hints = _hints(rule)

    def asked(self, name: str) -> list[tuple[str, ast.Call]]:
        """The functions of elements that the rule calls on an operand, or on the sequence it is a member of."""
        return self._hints.get(name) or self._hints.get(name.rstrip("0123456789"), [])

    def fill(self, operand: Drawn, bindings: Bindings, rng: random.Random) -> None:
        """Draw the elements, those that conditions ask for where they do."""
        hints = self.asked(operand.name)
        operand.constant = bool(hints) or rng.random() < 0.2
        shape = operand.type.static
        kind = operand.type.dtype
        seeded = np.random.default_rng(rng.getrandbits(32))
        if kind.value == "bool":
            operand.array = seeded.integers(0, 2, shape).astype(bool)
        elif kind.is_integer:
            limit = operand.limit or 3
            array = seeded.integers(-limit if seeded.random() < 0.3 else 0, limit, shape)
            if any(h == "is_range" for h, _ in hints) and len(shape) == 1:
                array = seeded.integers(0, limit) + np.arange(shape[0])
            if any(h == "is_progression" for h, _ in hints) and len(shape) == 1:
                array = seeded.integers(0, 2) + np.arange(shape[0]) * seeded.integers(1, 3)
            for number in (call.args[1] for hint, call in hints if hint == "is_all"):
                array = np.full(shape, int(evaluate(Expression(ast.unparse(number), number), bindings)))
            operand.array = array.astype(kind.numpy)
        else:
            operand.array = _floats(seeded, shape, hints, bindings)


class Stock:
    """Operands by name and type, made once and used again, for the many instances of one rule."""

    #: How many operands a name and type have in turn where conditions look at elements.
    TURNS = 3

    def __init__(self, rule: Rule, seed: int = 0) -> None:
        self._filler = Filler(rule)
        self._rng = random.Random(f"{seed}:{renamed(rule)}")
        self._made: dict[tuple[str, TensorType, int], Drawn] = {}
        self._turn = 0

    def take(self, name: str, type: TensorType, bindings: Callable[[], Bindings]) -> list[Drawn]:
        """The operands to try: of indices, some within one, two and four elements; else a single one."""
        asked = self._filler.asked(name)
        if any(hint == "is_all" and _reads(call) for hint, call in asked):
            return [self._fresh(name, type, 0, bindings())]
        if type.dtype.is_integer:
            return [self._one(name, type, limit, Bindings) for limit in (1, 2, 4)]
        self._turn += 1
        return [self._one(name, type, self._turn % self.TURNS if asked else 0, bindings)]

    def _one(self, name: str, type: TensorType, variant: int, bindings: Callable[[], Bindings]) -> Drawn:
        key = (name, type, variant)
        if key not in self._made:
            self._made[key] = self._fresh(name, type, variant, bindings())
        return self._made[key]

    def _fresh(self, name: str, type: TensorType, limit: int, bindings: Bindings) -> Drawn:
        drawn = Drawn(name, type, limit=limit or None)
        self._filler.fill(drawn, bindings, self._rng)
        drawn.constant = bool(self._filler.asked(name))
        return drawn


def _reads(call: ast.Call) -> bool:
    """True if the number that elements shall equal is computed from bound names."""
    return any(isinstance(n, ast.Name) for n in ast.walk(call.args[1]))


def _floats(rng: np.random.Generator, shape: Any, hints: list[tuple[str, ast.Call]], b: Bindings) -> Any:
    array = rng.uniform(-1.0, 1.0, shape) if rng.random() < 0.5 else rng.uniform(0.1, 1.0, shape)
    for hint, call in hints:
        if hint in ("is_all", "rounds"):
            text = ast.unparse(call.args[1])
            array = np.full(shape, float(evaluate(Expression(text, call.args[1]), b)))
        elif hint in ("is_uniform", "number"):
            array = np.full(shape, _POOL[int(rng.integers(len(_POOL)))])
        elif hint == "is_positive":
            array = np.abs(array) + 0.25
        elif hint == "is_nonnegative":
            array = np.abs(array) * (array > 0.3)
        elif hint == "is_eye" and len(shape) == 2:
            array = np.eye(*shape)
        elif hint == "is_zero":
            array = np.zeros(shape)
        elif hint in _FORMED and 0 not in shape:
            array = _FORMED[hint](rng, array, call)
    return array


def _selection(rng: np.random.Generator, array: Any, call: ast.Call) -> Any:
    """A matrix with a single one in each row, or column, as the rule asks."""
    rows, columns = array.shape if len(array.shape) == 2 else (0, 0)
    if not rows:
        return array
    along = ast.literal_eval(call.args[1])
    return (
        np.eye(columns)[rng.integers(0, columns, rows)]
        if along == 1
        else np.eye(rows)[rng.integers(0, rows, columns)].T
    )


def _triangle(rng: np.random.Generator, array: Any, call: ast.Call) -> Any:
    return (np.triu if rng.random() < 0.5 else np.tril)(np.ones_like(array)) if array.ndim >= 2 else array


def _even_beside(rng: np.random.Generator, array: Any, call: ast.Call) -> Any:
    """A square matrix with a number on its diagonal and another beside it."""
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        return array
    return array[0, 0] * np.eye(len(array)) + _POOL[int(rng.integers(4))]


def _in_blocks(rng: np.random.Generator, array: Any, call: ast.Call) -> Any:
    """A matrix with zeros beside two blocks."""
    if array.ndim != 2 or min(array.shape) < 2:
        return array
    row, column = (int(rng.integers(1, n)) for n in array.shape)
    blocks = np.abs(array) + 0.25
    blocks[:row, column:], blocks[row:, :column] = 0, 0
    return blocks


def _grouped(rng: np.random.Generator, array: Any, call: ast.Call) -> Any:
    """Filters that read a part of the channels each."""
    count = max((n for n in (2, 3, 4) if array.ndim > 2 and not any(d % n for d in array.shape[:2])), default=1)
    for group in range(count if array.ndim > 2 else 0):
        rows, columns = (slice(group * n // count, (group + 1) * n // count) for n in array.shape[:2])
        kept = array[rows, columns].copy()
        array[rows] = 0
        array[rows, columns] = kept
    return array


#: Arrays of a form that rules ask constants for, from a random one.
_FORMED: dict[str, Callable[[np.random.Generator, Any, ast.Call], Any]] = {
    "is_selection": _selection,
    "is_triangle": _triangle,
    "is_even_beside": _even_beside,
    "is_in_blocks": _in_blocks,
    "is_grouped": _grouped,
}


def _hints(rule: Rule) -> dict[str, list[tuple[str, ast.Call]]]:
    """By tensor or sequence, the functions of elements that the rule calls on it."""
    hints: dict[str, list[tuple[str, ast.Call]]] = {}
    for expression in rule.expressions():
        for name, call, node in _calls(expression):
            hints.setdefault(name, []).append((call, node))
    return hints


@cache
def _calls(expression: Expression) -> tuple[tuple[str, str, ast.Call], ...]:
    """The functions of elements that an expression calls, each with the tensor or sequence it is called on."""
    nodes = tuple(ast.walk(expression.tree))
    alias = {
        n.target.id: n.iter.id
        for n in nodes
        if isinstance(n, ast.comprehension) and isinstance(n.target, ast.Name) and isinstance(n.iter, ast.Name)
    }
    denied = {id(n.operand) for n in nodes if isinstance(n, ast.UnaryOp)}
    return tuple(
        (alias.get(argument.id, argument.id), node.func.id, node)
        for node in nodes
        if id(node) not in denied
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OF_CONSTANTS
        for argument in node.args
        if isinstance(argument, ast.Name)
    )
