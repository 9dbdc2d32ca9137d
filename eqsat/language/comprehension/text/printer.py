"""Syntax trees back to text: what is printed is read as the same tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Clause,
    Conditional,
    ExistsClause,
    Expression,
    Function,
    IndexEquation,
    LetClause,
    Name,
    Number,
    Parameter,
    RangeClause,
    Returned,
    Truth,
    Unary,
)

#: How tightly operators bind, the loosest first.
_LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"?:"}),
    frozenset({"||"}),
    frozenset({"&&"}),
    frozenset({"<", "<=", ">", ">=", "==", "!="}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)
_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
_UNARY, _ATOM = len(_LEVELS), len(_LEVELS) + 1


def print_functions(functions: Iterable[Function]) -> str:
    """The text of functions, one below the other."""
    return "\n\n".join(map(print_function, functions)) + "\n"


def print_function(function: Function) -> str:
    """The text of a function, a line for each statement."""
    parameters = ", ".join(map(_parameter, function.parameters))
    results = ", ".join(map(_returned, function.results))
    body = "".join(f"  {print_statement(statement)}\n" for statement in function.statements)
    return f"def {function.name}({parameters}) -> ({results}) {{\n{body}}}"


def print_statement(statement: IndexEquation) -> str:
    """The text of a statement."""
    subscripts = f"({_listed(statement.subscripts)})" if statement.subscripts else ""
    text = f"{statement.target}{subscripts} {statement.assignment} {print_expression(statement.value)}"
    return f"{text} where {', '.join(map(_clause, statement.clauses))}" if statement.clauses else text


def print_expression(expression: Expression) -> str:
    """The text of an expression, with no more parentheses than its reading asks for.

    >>> print_expression(Binary("*", Binary("+", Name("a"), Name("b")), Unary("-", Number(2))))
    '(a + b) * -2'
    """
    return _printed(expression, 0)


def shown(expression: Expression) -> str:
    """The text of an expression in messages: scalars are names there, elements though they are."""
    return print_expression(expression).replace("()", "")


def _printed(expression: Expression, least: int) -> str:
    """The text of an expression where operators that bind less tightly than a level need parentheses."""
    text, level = _with_level(expression)
    return text if level >= least else f"({text})"


def _with_level(expression: Expression) -> tuple[str, int]:
    match expression:
        case Number(value=value):
            return _number(value), _ATOM
        case Truth(value=value):
            return "true" if value else "false", _ATOM
        case Name(name=name):
            return name, _ATOM
        case Applied(name=name, arguments=arguments):
            return f"{name}({_listed(arguments)})", _ATOM
        case Unary(operator=operator, operand=operand):
            return operator + _printed(operand, _UNARY), _UNARY
        case Binary(operator=operator, left=left, right=right):
            level = _LEVEL[operator]
            return f"{_printed(left, level)} {operator} {_printed(right, level + 1)}", level
        case Conditional(condition=condition, yes=yes, no=no):
            return f"{_printed(condition, 1)} ? {_printed(yes, 0)} : {_printed(no, 0)}", 0
    raise AssertionError(expression)


def _number(value: int | float) -> str:
    if isinstance(value, int):
        return str(value)
    text = repr(value)
    return "1e999" if text == "inf" else text


def _listed(expressions: Sequence[Expression]) -> str:
    return ", ".join(map(print_expression, expressions))


def _typed(type_: str, extents: Sequence[str | int] | None, name: str) -> str:
    return f"{type_}({', '.join(map(str, extents))}) {name}" if extents else f"{type_} {name}"


def _parameter(parameter: Parameter) -> str:
    return _typed(parameter.type, parameter.extents, parameter.name)


def _returned(returned: Returned) -> str:
    if returned.type is None:
        return returned.name
    if returned.extents == ():
        return f"{returned.type}() {returned.name}"
    return _typed(returned.type, returned.extents, returned.name)


def _clause(clause: Clause) -> str:
    match clause:
        case RangeClause(index=index, low=low, high=high):
            least = _LEVEL["+"]
            return f"{index} in {_printed(low, least)}:{_printed(high, least)}"
        case LetClause(name=name, value=value):
            return f"{name} = {print_expression(value)}"
        case ExistsClause(access=access):
            return f"exists {print_expression(access)}"
    raise AssertionError(clause)
