"""Numbers that expressions of literals alone are."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.text.syntax import Applied, Binary, Expression, Number, Unary


def constant(expression: Expression) -> Any:
    """The number that an expression of literals is, in Python's integers and floats; None of another one.

    >>> from eqsat.language.comprehension.text.parser import parse
    >>> [f] = parse("def f() -> (y) { y = 7 / 2 + sqrt(4.0) }")
    >>> constant(f.statements[0].value)
    5.0
    """
    match expression:
        case Number(value=number):
            return number
        case Unary(operator="-", operand=operand):
            inner = constant(operand)
            return None if inner is None else -inner
        case Binary(operator=("+" | "-" | "*" | "/" | "%") as operator, left=left, right=right):
            a, b = constant(left), constant(right)
            return None if a is None or b is None else _joined(operator, a, b)
        case Applied(name=name, arguments=arguments):
            given = [constant(one) for one in arguments]
            known = mathematics.function(name)
            if any(one is None for one in given):
                return None
            if name in mathematics.CHOOSING:
                return (min if name == "min" else max)(given)
            if known is not None:
                with np.errstate(all="ignore"):
                    return float(known.compute(*map(np.float64, given)))
    return None


def _joined(operator: str, a: Any, b: Any) -> Any:
    whole = isinstance(a, int) and isinstance(b, int)
    if operator in ("/", "%") and not b:
        return None
    if operator == "/":
        return int(np.sign(a) * np.sign(b)) * (abs(a) // abs(b)) if whole else a / b
    if operator == "%":
        return int(np.fmod(a, b)) if whole else float(np.fmod(a, b))
    return a + b if operator == "+" else a - b if operator == "-" else a * b
