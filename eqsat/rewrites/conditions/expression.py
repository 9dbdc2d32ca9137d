"""Expressions of rules: a safe subset of Python over bound attributes and tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from eqsat.errors import GraphError, RuleError, ShapeError
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import Attrs, Bindings, Expression, TensorType
from eqsat.rewrites.conditions import axes as _axes  # noqa: F401  (importing them registers their functions)
from eqsat.rewrites.conditions import cuts as _cuts  # noqa: F401
from eqsat.rewrites.conditions import matrices as _matrices  # noqa: F401
from eqsat.rewrites.conditions import roundings as _roundings  # noqa: F401
from eqsat.rewrites.conditions.arithmetic import bounded_range, bounded_sum, repeat_count
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.conditions.interpreter import interpreted
from eqsat.rewrites.conditions.syntax import check_tree, free_names

#: A rule for the types that an operator with attributes returns for types of operands.
Typing: TypeAlias = Callable[[str, Attrs, Sequence[TensorType | None]], tuple[TensorType, ...]]
_TYPING: ContextVar[Typing | None] = ContextVar("typing", default=None)
#: Functions of operands, which a proof works out in another way, and what stands in their places.
_OF_SHAPES = frozenset({"broadcast", "hidden", "mask_spans", "spans"})
REPLACEABLE = _OF_SHAPES | {"first", "last", "index", "entry", "block", "is_upper", "group_count"}
_REPLACED: ContextVar[Mapping[str, Callable[..., Any]]] = ContextVar("replaced", default=MappingProxyType({}))
_BUILTINS: dict[str, Callable[..., Any]] = {
    "len": len,
    "range": bounded_range,
    "sum": bounded_sum,
    "min": min,
    "max": max,
    "tuple": tuple,
    "all": all,
    "any": any,
    "zip": zip,
    "sorted": sorted,
    "enumerate": enumerate,
    "reversed": reversed,
}
#: Functions that make a sequence as long as an argument says, and which.
_COUNTS = {"ones": 0, "zeros": 0, "shifted": 0, "identity_perm": 0, "swapped": 0, "spatial_axes": 0} | {
    "place_of": 1,
    "tail_axes": 0,
    "gathered_perm": 2,
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
        return interpreted(self.expression.tree, self.names, {name: _callable(name) for name in self.called})


def bound_name(expression: Expression) -> str | None:
    """The name that a left-side field binds, None where it is an expression that the field must equal."""
    return expression.tree.id if isinstance(expression.tree, ast.Name) else None


@cache
def compiled(expression: Expression) -> Compiled:
    """The expression as a function; RuleError for syntax outside the subset or an unknown function."""
    nodes = tuple(ast.walk(expression.tree))
    called = {_function_name(node, expression.text) for node in nodes if isinstance(node, ast.Call)}
    check_tree(expression.tree, expression.text, frozenset(called))
    return Compiled(expression, tuple(sorted(set(free_names(expression.tree)))), tuple(sorted(called)))


def evaluate(expression: Expression, bindings: Bindings) -> Any:
    """The value under these bindings; Undefined where there is none, as for a dim known by name only."""
    code = compiled(expression)
    tensors, attrs = bindings.tensors, bindings.attrs
    arguments = [tensors[n] if n in tensors else attrs[n] for n in code.names]
    try:
        return code.function(*arguments)
    except GraphError as error:
        raise Undefined(error.what) from error
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise Undefined(f"{expression.text}: {error}") from error


def _function_name(call: ast.Call, text: str) -> str:
    if not isinstance(call.func, ast.Name):
        raise RuleError("a call of an expression", where=text, expected="a call of a function by its name")
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
            expected="a function of eqsat.rewrites.conditions.functions, or an operator",
            remedy="did you mean " + " or ".join(close) + "?" if close else "",
        )
    return name


def _callable(name: str) -> Callable[..., Any]:
    body = FUNCTIONS.get(name) or _BUILTINS.get(name) or _typed(name)
    if name in REPLACEABLE:
        return _replaceable(name, body)
    return _sized(body, _COUNTS[name]) if name in _COUNTS else body


def _replaceable(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    def result(*operands: Any, **named: Any) -> Any:
        return _REPLACED.get().get(name, body)(*operands, **named)

    return result


def _sized(body: Callable[..., Any], place: int) -> Callable[..., Any]:
    """A function that makes a sequence as long as one of its arguments says, within the bounds of expressions."""

    def result(*operands: Any) -> Any:
        for operand in operands[place : place + 1]:
            repeat_count(operand)
        return body(*operands)

    return result


def _typed(op: str) -> Callable[..., Typed]:
    """A function that gives the type of the operator's result."""

    def result(*operands: Any, **attrs: Any) -> Typed:
        declared = spec(op)
        types = [o.type for o in operands]
        complete, typing = declared.complete(Attrs(attrs)), _TYPING.get()
        return Typed(typing(op, complete, types)[0] if typing else declared.result_types(types, complete)[0])

    return result


@contextmanager
def typed_by(typing: Typing, functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Take result types from another rule inside the block, and values of replaceable functions from others."""
    tokens = _TYPING.set(typing), _REPLACED.set(functions)
    try:
        yield
    finally:
        _TYPING.reset(tokens[0])
        _REPLACED.reset(tokens[1])
