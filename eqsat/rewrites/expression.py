"""Expressions of rules: a safe subset of Python over bound attributes and tensors."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from eqsat.errors import GraphError, RuleError, ShapeError
from eqsat.language import ops as _ops  # noqa: F401  (importing it registers the operators)
from eqsat.language.graph import Attrs
from eqsat.language.pattern import Bindings, Expression
from eqsat.language.spec import OPS, spec
from eqsat.language.types import TensorType
from eqsat.rewrites import axes as _axes  # noqa: F401  (importing them registers their functions)
from eqsat.rewrites import cuts as _cuts  # noqa: F401
from eqsat.rewrites import windows as _windows  # noqa: F401
from eqsat.rewrites.functions import FUNCTIONS

_NODES = (
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Store,
    ast.Tuple,
    ast.List,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.UnaryOp,
    ast.USub,
    ast.Not,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.Is,
    ast.IsNot,
    ast.IfExp,
    ast.Subscript,
    ast.Slice,
    ast.Starred,
    ast.Call,
    ast.keyword,
    ast.Attribute,
    ast.GeneratorExp,
    ast.ListComp,
    ast.comprehension,
)
_BUILTINS = {
    name: getattr(builtins, name)
    for name in ("len", "range", "sum", "min", "max", "tuple", "all", "any", "zip", "sorted", "enumerate", "reversed")
}


class Undefined(ShapeError):  # noqa: N818  (a state of affairs, not a fault)
    """An expression that has no value under some bindings: the rule does not fire there."""


@dataclass(frozen=True, slots=True)
class Typed:
    """The type of an operator's result inside an expression, as in ``shape(matmul(x, w))``."""

    type: TensorType
    constant: bool = False
    value: None = None
    finite: bool = False


@dataclass(frozen=True)
class Compiled:
    """An expression as a function of the names it reads."""

    expression: Expression
    names: tuple[str, ...]
    called: tuple[str, ...]

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Its value from those of its names; made when first asked for, since most rules never match in a process."""
        return _function(self.expression, self.names, self.called)


def bound_name(expression: Expression) -> str | None:
    """The name that a left-side field binds, None where it is an expression that the field must equal."""
    return expression.tree.id if isinstance(expression.tree, ast.Name) else None


@cache
def compiled(expression: Expression) -> Compiled:
    """The expression as a function; RuleError for syntax outside the subset or an unknown function."""
    nodes = tuple(ast.walk(expression.tree))
    called: set[str] = set()
    for node in nodes:
        if not isinstance(node, _NODES):
            raise RuleError(
                f"{type(node).__name__} is no part of a rule's expressions",
                where=expression.text,
                expected="literals, arithmetic, comparisons, indexing, comprehensions, calls of functions",
            )
        if isinstance(node, ast.Call):
            called.add(_function_name(node, expression.text))
    local = set(_comprehension_names(nodes))
    functions = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    names = {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in functions} - local
    return Compiled(expression, tuple(sorted(names)), tuple(sorted(called)))


def evaluate(expression: Expression, bindings: Bindings) -> Any:
    """The value under these bindings; Undefined where there is none, as for a dim known by name only."""
    code = compiled(expression)
    tensors, attrs = bindings.tensors, bindings.attrs
    arguments = [tensors[n] if n in tensors else attrs[n] for n in code.names]
    try:
        return code.function(*arguments)
    except GraphError as error:
        raise Undefined(error.what) from error
    except (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError) as error:
        raise Undefined(f"{expression.text}: {error}") from error


def _function_name(call: ast.Call, text: str) -> str:
    if not isinstance(call.func, ast.Name):
        raise RuleError(f"a call of an expression in {text!r}", expected="a call of a function by its name")
    name = call.func.id
    keywords = [k.arg for k in call.keywords if k.arg is not None]
    if len(set(keywords)) < len(keywords):
        raise RuleError(f"{name} is given an argument twice", where=text, expected="each keyword once")
    if name not in FUNCTIONS and name not in _BUILTINS and name not in OPS:
        import difflib

        close = difflib.get_close_matches(name, [*FUNCTIONS, *_BUILTINS, *OPS], n=3)
        raise RuleError(
            f"no function {name!r}",
            where=text,
            expected="a function of eqsat.rewrites.functions, or an operator",
            remedy="did you mean " + " or ".join(close) + "?" if close else "",
        )
    return name


def _comprehension_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.comprehension):
            yield from (n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))


class _Rewriter(ast.NodeTransformer):
    """Turns lists into tuples and fields of records into subscripts."""

    def visit_List(self, node: ast.List) -> ast.AST:
        return ast.Tuple([self.visit(e) for e in node.elts], ast.Load())

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        generator = ast.GeneratorExp(node.elt, node.generators)
        return ast.Call(ast.Name("tuple", ast.Load()), [generator], [])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Subscript(node.value, ast.Constant(node.attr), ast.Load())


def _function(expression: Expression, names: tuple[str, ...], called: Iterable[str]) -> Callable[..., Any]:
    import copy

    parameters = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
    body = _Rewriter().visit(copy.deepcopy(expression.tree))
    tree = ast.fix_missing_locations(ast.Expression(ast.Lambda(parameters, body)))
    namespace: dict[str, Any] = {"__builtins__": {}, "tuple": tuple}
    for name in called:
        namespace[name] = FUNCTIONS.get(name) or _BUILTINS.get(name) or _typed(name)
    try:
        function: Callable[..., Any] = eval(compile(tree, f"<{expression.text}>", "eval"), namespace)
    except SyntaxError as error:  # what Python parses and does not compile, such as a name that it keeps
        raise RuleError(f"syntax: {error.msg}", where=expression.text, expected="an expression of Python") from None
    return function


def _typed(op: str) -> Callable[..., Typed]:
    """A function that gives the type of the operator's result."""

    def result(*operands: Any, **attrs: Any) -> Typed:
        declared = spec(op)
        types = [o.type for o in operands]
        return Typed(declared.result_types(types, declared.complete(Attrs(attrs)))[0])

    return result
