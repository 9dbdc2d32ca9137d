"""Runs of comprehensions by the scalar interpreter, and texts that are changed by other names and other orders."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.language.comprehension.meaning.element_types import NAMED
from eqsat.language.comprehension.meaning.mathematics import CHOOSING, function
from eqsat.language.comprehension.text.syntax import Binary, Expression, IndexEquation, rebuilt
from tests.support.comprehensions.comprehension_cases import DTYPES
from tests.support.comprehensions.scalar_interpreter import Interpreter

TOKEN = re.compile(
    r"#[^\n]*|(?:min|max)\s*=!?(?!=)|[A-Za-z_]\w*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?"
    r"|[+*]?=!?(?!=)|->|&&|\|\||[<>=!]=|\S"
)
KEYWORDS = frozenset({"def", "where", "in", "exists", "true", "false"})


def tokens(source: str) -> list[str]:
    """The tokens of a source, without its comments."""
    return [token for token in TOKEN.findall(source.replace("→", "->")) if not token.startswith("#")]


def is_name(token: str) -> bool:
    """True of names that a program chooses itself."""
    is_word = token.isidentifier() and token not in KEYWORDS
    return is_word and token not in NAMED and token not in CHOOSING and function(token) is None


def renamed(source: str) -> tuple[str, dict[str, str]]:
    """A source with every name that it chooses replaced, and the new names by the old ones."""
    made: dict[str, str] = {}
    words = []
    for token in tokens(source):
        words.append(made.setdefault(token, f"v_{9 - len(made) % 10}{len(made)}") if is_name(token) else token)
    return " ".join(words), made


def turned(expression: Expression) -> Expression:
    """An expression with the operands of all sums and products the other way round."""
    made = rebuilt(expression, turned)
    is_even = isinstance(made, Binary) and made.operator in ("+", "*", "==", "!=")
    return Binary(made.operator, made.right, made.left) if is_even and isinstance(made, Binary) else made


def turned_statement(statement: IndexEquation) -> IndexEquation:
    """A statement whose value has its operands the other way round."""
    return IndexEquation(
        statement.target,
        statement.subscripts,
        statement.reduction,
        statement.fresh,
        turned(statement.value),
        tuple(reversed(statement.clauses))
        if all(hasattr(one, "index") for one in statement.clauses)
        else statement.clauses,
    )


def bound(function: Any, arguments: list[Any]) -> dict[str, Any]:
    """Arguments as arrays by name."""
    parameters = function.scope.function.parameters
    return {
        one.name: value if isinstance(value, np.ndarray) else np.asarray(value).astype(DTYPES[one.type])
        for one, value in zip(parameters, arguments, strict=True)
    }


def interpreted(function: Any, arguments: list[Any], more: Mapping[str, Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """The results of a function by the scalar interpreter, and its ranges; eqsat gives the shapes alone."""
    tensors = bound(function, arguments)
    interpreter = Interpreter(function.scope.function, {**tensors, **more}, inferred(function, arguments).shapes)
    made = interpreter.run()
    return tuple(made[name] for name in function.results), interpreter.ranges


def inferred(function: Any, arguments: list[Any]) -> Any:
    """The ranges and shapes that eqsat infers for arguments."""
    tensors = bound(function, arguments)
    shapes = {name: array.shape for name, array in tensors.items()}
    return function.inferred(shapes, {name: int(tensors[name]) for name in function.needs})


def size_of_run(function: Any, arguments: list[Any]) -> int:
    """The number of points of all statements."""
    boxes = inferred(function, arguments).ranges
    return sum(math.prod(high - low for low, high in box.values()) for box in boxes)
