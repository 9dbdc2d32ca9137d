"""Syntax that expressions of rules may have, checked before anything is made of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from eqsat.errors import RuleError
from eqsat.rewrites.conditions.arithmetic import BEYOND, BINARY, LONGEST, Excess, negate
from eqsat.rewrites.conditions.interpreter import COMPARISONS

#: Nodes of the syntax tree of a rule's side or condition, and how deep they may be nested; those that ship have at most
#: some 100 and 20.
MOST_NODES, DEEPEST = 4000, 100
TOO_LARGE = "a side or a condition is too large"

_EXPRESSIONS = (
    ast.Constant,
    ast.Name,
    ast.Tuple,
    ast.List,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Starred,
    ast.Call,
    ast.keyword,
    ast.GeneratorExp,
    ast.ListComp,
    ast.comprehension,
)
#: Digits enough for an integer beyond 64 bits in hexadecimal, the shortest way to write one.
_LONG_NUMBER = re.compile(r"\d\w{17}")
#: The value of an expression that is not made of literals alone.
_UNKNOWN = object()
_NODES = (*_EXPRESSIONS, ast.Load, ast.Store, ast.And, ast.Or, ast.Not, ast.USub, *BINARY, *COMPARISONS)


def check_tree(tree: ast.expr, text: str, functions: frozenset[str]) -> None:
    """RuleError where a syntax tree has a part that no rule's expression has, or a number out of bounds.

    `functions` are the names that it calls, which no loop may use for its variables.
    """
    for node in ast.walk(tree):
        _check_node(node, text, functions)
    _literal(tree, text)


def may_exceed(text: str) -> bool:
    """False if an expression is too short to be larger than a rule's may be, which spares going through its tree."""
    return len(text) >= DEEPEST - 2 or _LONG_NUMBER.search(text) is not None


def excess(tree: ast.expr) -> str:
    """Why a syntax tree is larger than a rule's may be, "" where it is not; Python may be unable to go through it."""
    level: list[ast.AST] = [tree]
    count = 0
    for _ in range(DEEPEST):
        count += len(level)
        if any(isinstance(n, ast.Constant) and type(n.value) is int and n.value >= BEYOND for n in level):
            return "an integer beyond 64 bits"
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return ""
        if count > MOST_NODES:
            break
    return TOO_LARGE


def substituted(tree: ast.expr, known: Mapping[str, ast.expr]) -> ast.expr:
    """A syntax tree with other trees, which it shares, in place of names; the tree given is changed."""
    result: ast.expr = _Substitution(known).visit(tree) if known else tree
    return result


class _Substitution(ast.NodeTransformer):
    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.known.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        return node


def with_name(tree: ast.expr, part: str, name: str) -> ast.expr:
    """A syntax tree with a name in place of each part that has this text; the tree given is changed."""
    named: ast.expr = _Naming(part, name).visit(tree)
    return named


class _Naming(ast.NodeTransformer):
    def __init__(self, part: str, name: str) -> None:
        self.part, self.name = part, name

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and ast.unparse(node) == self.part:
            return ast.Name(self.name, ast.Load())
        return self.generic_visit(node)


def loop_parts(loop: ast.comprehension) -> tuple[list[ast.expr], list[ast.expr]]:
    """The variables of a loop, and the sequences that they run over in step, those of a zip where there is one."""
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    if isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "zip":
        return targets, loop.iter.args
    return targets, [loop.iter]


def free_names(node: ast.AST, local: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names that a checked tree reads and does not bind in a loop; functions are not among them."""
    if isinstance(node, ast.Name) and node.id not in local:
        yield node.id
    elif isinstance(node, ast.Call):
        for part in (*node.args, *node.keywords):
            yield from free_names(part, local)
    elif isinstance(node, ast.GeneratorExp | ast.ListComp):
        for loop in node.generators:
            yield from free_names(loop.iter, local)
            local |= frozenset(n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name))
            for test in loop.ifs:
                yield from free_names(test, local)
        yield from free_names(node.elt, local)
    else:
        for child in ast.iter_child_nodes(node):
            yield from free_names(child, local)


def _check_node(node: ast.AST, text: str, functions: frozenset[str]) -> None:
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, bool | int | float | str | type(None)):
            _refuse(f"a literal of type {type(node.value).__name__}", text, "a number, a text, True, False or None")
    elif isinstance(node, ast.comprehension):
        _check_target(node.target, text, functions)
    elif not isinstance(node, _NODES):
        raise RuleError(
            f"{type(node).__name__} is no part of a rule's expressions",
            where=_clipped(text),
            expected="literals, arithmetic, comparisons, indexing, comprehensions, calls of functions",
        )
    if isinstance(node, ast.comprehension) and node.is_async:
        _refuse("an asynchronous loop", text, "for x in xs")
    if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
        _refuse(f"{node.attr!r} is no attribute of an operator", text, "a field of a record that the left side binds")


def _check_target(target: ast.expr, text: str, functions: frozenset[str]) -> None:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            _check_target(element, text, functions)
    elif not isinstance(target, ast.Name):
        _refuse("a loop that assigns to something else than names", text, "for x in xs, or for x, y in zip(xs, ys)")
    elif target.id in functions:
        _refuse(f"a loop variable is named like the function {target.id!r}", text, "another name")


def _literal(node: ast.AST, text: str) -> Any:
    """The value of a literal or of arithmetic on literals, `_UNKNOWN` for anything else; RuleError where there is none.

    What no binding can change is refused when the rule is read, and not whenever it is tried.
    """
    if isinstance(node, ast.Constant):
        return node.value
    values = [
        _literal(child, text) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.keyword)
    ]
    if any(value is _UNKNOWN for value in values):
        return _UNKNOWN
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(values)
    try:
        if isinstance(node, ast.BinOp):
            return BINARY[type(node.op)](*values)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return negate(*values)
    except (Excess, TypeError) as error:
        _refuse(str(error), text, f"numbers below 2^63, sequences of at most {LONGEST} elements")
    except ArithmeticError:
        return _UNKNOWN
    return _UNKNOWN


def _refuse(what: str, text: str, expected: str) -> NoReturn:
    raise RuleError(what, where=_clipped(text), expected=expected)


def _clipped(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"


def conjuncts(tree: ast.expr) -> list[ast.expr]:
    """The conditions that all have to hold for one to hold."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [c for v in tree.values for c in conjuncts(v)]
    return [tree]
