"""Reading of comprehensions: text to syntax trees, with errors that show the line and a caret."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from eqsat.errors import ComprehensionError, ComprehensionSyntaxError, UsageError
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    ExistsClause,
    Function,
    IndexEquation,
    LetClause,
    Name,
    Number,
    Parameter,
    Position,
    RangeClause,
    Returned,
    Truth,
    Unary,
)

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

#: The most characters of a source, and how deep its parts may be nested.
MOST_CHARACTERS, DEEPEST = 100_000, 150
#: The largest integer that is a literal: that of int64.
LARGEST = 2**63 - 1
#: Terminals by the words that errors have for them.
_WORDS = {
    "NAME": "a name",
    "INTEGER": "a number",
    "FLOAT": "a number",
    "ASSIGNMENT": "= += *= min= or max=, each with ! to begin anew",
    "COMPARED": "a comparison",
    "ADDED": "+ or -",
    "MULTIPLIED": "* / or %",
    "OR": "||",
    "AND": "&&",
    "NOT": "!",
    "_ARROW": "->",
    "$END": "the end",
}


def fault(
    kind: type[ComprehensionError],
    what: str,
    source: str,
    place: Position,
    *,
    function: str = "",
    expected: str = "",
    remedy: str = "",
) -> ComprehensionError:
    """An error at a place of a source, in a function, with the line and a caret below it."""
    lines = source.split("\n")
    text = lines[place.line - 1].rstrip() if 0 < place.line <= len(lines) else ""
    blank = "".join(one if one == "\t" else " " for one in text[: place.column - 1]).ljust(place.column - 1)
    shown = f"{what}\n  {text}\n  {blank}^" if text else what
    where = [function, f"line {place.line}, column {place.column}" if place.line else ""]
    return kind(shown, where=": ".join(filter(None, where)), expected=expected, remedy=remedy)


def parse(source: str) -> tuple[Function, ...]:
    """The functions of a source, in its order; ComprehensionSyntaxError where it does not follow the grammar.

    >>> [f] = parse("def mv(float(M,K) A, float(K) x) -> (C) { C(i) +=! A(i,k) * x(k) }")
    >>> f.name, f.statements[0].assignment
    ('mv', '+=!')
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

    if not isinstance(source, str):
        raise UsageError(f"a source of type {type(source).__name__}", expected="text: a str")
    if len(source) > MOST_CHARACTERS:
        raise ComprehensionSyntaxError(
            f"a source of {len(source)} characters", expected=f"at most {MOST_CHARACTERS}", remedy="parse it in parts"
        )
    try:
        tree = _grammar().parse(source)
    except UnexpectedCharacters as error:
        place, what = Position(error.line, error.column), f"unexpected character {error.char!r}"
        raise fault(
            ComprehensionSyntaxError, what, source, place, expected=_expected(set(error.allowed or ()))
        ) from None
    except UnexpectedToken as error:
        ended = error.token.type == "$END"
        place = _end(source) if ended else Position(error.line, error.column)
        what = "the source ends too early" if ended else f"unexpected {str(error.token)!r}"
        raise fault(ComprehensionSyntaxError, what, source, place, expected=_expected(set(error.expected))) from None
    except UnexpectedInput as error:  # pragma: no cover  (the base of the two above)
        raise ComprehensionSyntaxError(str(error)) from None
    _check_depth(tree, source)
    _check_literals(tree, source)
    if not tree.children:
        raise ComprehensionSyntaxError("no function", expected="def name(parameters) -> (results) { statements }")
    functions: list[Any] = tree.children
    return tuple(map(_function, functions))


@cache
def _grammar() -> Lark:
    from lark import Lark

    text = resources.files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def _check_depth(tree: Tree[Token], source: str) -> None:
    """Refuse what is nested deeper than functions that walk trees can call themselves."""
    pending: list[tuple[Any, int]] = [(tree, 0)]
    while pending:
        part, depth = pending.pop()
        if depth > DEEPEST:
            raise fault(
                ComprehensionSyntaxError,
                "an expression that is too deeply nested",
                source,
                _place(part),
                expected=f"at most {DEEPEST} operators inside each other",
                remedy="name parts of it in where",
            )
        pending += [(child, depth + 1) for child in getattr(part, "children", ()) if hasattr(child, "children")]


def _check_literals(tree: Tree[Token], source: str) -> None:
    """Refuse integers that no signed type holds."""
    for token in tree.scan_values(lambda part: getattr(part, "type", "") == "INTEGER"):
        if len(token) > len(str(LARGEST)) or int(token) > LARGEST:
            raise fault(
                ComprehensionSyntaxError,
                "an integer that is too large",
                source,
                _place(token),
                expected=f"at most {LARGEST}",
                remedy="write it as a float: 1e30",
            )


def _expected(terminals: set[str]) -> str:
    from lark.lexer import PatternStr

    patterns = {one.name: one.pattern for one in _grammar().terminals}
    words = set()
    for name in terminals:
        pattern = patterns.get(name)
        literal = repr(pattern.value) if isinstance(pattern, PatternStr) else name
        words.add(_WORDS.get(name, literal))
    return " or ".join(sorted(words)) if words else ""


def _end(source: str) -> Position:
    lines = source.rstrip().split("\n")
    return Position(len(lines), len(lines[-1]) + 1)


def _place(part: Tree[Token] | Token) -> Position:
    if hasattr(part, "meta"):
        return Position(getattr(part.meta, "line", 0), getattr(part.meta, "column", 0))
    return Position(part.line or 0, part.column or 0)


def _parts(tree: Any) -> list[Any]:
    """The children of a tree that are there; none of a tree that is not."""
    return [] if tree is None else [child for child in tree.children if child is not None]


def _function(tree: Tree[Any]) -> Function:
    name, parameters, results, *statements = tree.children
    return Function(
        str(name),
        tuple(_parameter(one) for one in _parts(parameters)),
        tuple(_returned(one) for one in _parts(results)),
        tuple(_statement(one) for one in statements),
        _place(name),
    )


def _extents(tree: Any) -> tuple[str | int, ...]:
    tokens = [part.children[0] for part in _parts(tree)]
    return tuple(int(token) if token.type == "INTEGER" else str(token) for token in tokens)


def _parameter(tree: Tree[Any]) -> Parameter:
    type_, extents, name = tree.children
    return Parameter(str(type_), str(name), _extents(extents), _place(name))


def _returned(tree: Tree[Any]) -> Returned:
    *stated, name = tree.children
    type_ = str(stated[0]) if stated else None
    extents = _extents(stated[1]) if len(stated) > 1 else None
    return Returned(str(name), type_, extents, _place(name))


def _statement(tree: Tree[Any]) -> IndexEquation:
    target, subscripts, sign, value, where = tree.children
    text = "".join(str(sign).split())
    return IndexEquation(
        str(target),
        tuple(_expression(one) for one in _parts(subscripts)),
        text.rstrip("!").removesuffix("="),
        text.endswith("!"),
        _expression(value),
        tuple(_clause(one) for one in _parts(where)),
        _place(target),
    )


def _clause(tree: Tree[Any]) -> RangeClause | LetClause | ExistsClause:
    parts, place = tree.children, _place(tree)
    if tree.data == "range":
        return RangeClause(str(parts[0]), _expression(parts[1]), _expression(parts[2]), _place(parts[0]))
    if tree.data == "let":
        return LetClause(str(parts[0]), _expression(parts[1]), _place(parts[0]))
    access = _expression(parts[0])
    assert isinstance(access, Applied)
    return ExistsClause(access, place)


def _expression(tree: Tree[Any]) -> Any:
    place = _place(tree)
    parts: list[Any] = tree.children
    match tree.data:
        case "integer":
            return Number(int(parts[0]), place)
        case "float":
            return Number(float(str(parts[0]).rstrip("fF")), place)
        case "true" | "false":
            return Truth(tree.data == "true", place)
        case "name":
            return Name(str(parts[0]), place)
        case "call":
            arguments = [one for one in parts[1:] if one is not None]
            return Applied(str(parts[0]), tuple(map(_expression, arguments)), place)
        case "binary":
            left = _expression(parts[0])
            return Binary(str(parts[1]), left, _expression(parts[2]), _place(parts[1]))
        case "choice":
            condition, yes, no = map(_expression, parts)
            return Conditional(condition, yes, no, place)
    operator, operand = parts
    inner = _expression(operand)
    return inner if str(operator) == "+" else Unary(str(operator), inner, place)
