"""Equations of the generator as patterns, both ways round, with the operands of the instance it found them at."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.terms import App, Bindings, Expression, Pattern, Spread, TensorType, Var
from eqsat.rewrites.conditions.expression import compiled, evaluate
from eqsat.rewrites.conditions.syntax import free_names
from eqsat.rewrites.discovery.equations.candidate import CandidateEquation
from eqsat.rewrites.discovery.equations.sides import RuleStatement, equation_with, expression
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import applications

_NOTHING = Bindings()
#: Names of tensors in the order in which a left side reads them.
_NAMES = "xyzwvutsrqponml"
Operands: TypeAlias = "Drawn | tuple[Drawn, ...]"


@dataclass(frozen=True)
class LiteralEquation(RuleStatement):
    """Two sides with literal attributes, and the operands of the instance at which they were found equal.

    A sequence of operands that a spread or a group runs over is a tuple.
    """

    operands: Mapping[str, Operands] = field(default_factory=dict)


def equations(candidate: CandidateEquation) -> Iterator[LiteralEquation]:
    """The candidate from left to right and from right to left, where that way round it can be a rule."""
    operands = {
        name: example_operand(name, TensorType.of(candidate.dtypes.get(name, "float32"), shape))
        for name, shape in candidate.shapes.items()
    }
    for left, right in ((candidate.left, candidate.right), (candidate.right, candidate.left)):
        begun = [ast.parse(side, mode="eval").body for side in left]
        if any(isinstance(t, ast.Name) for t in begun) or _reads(right) - _reads(left):
            continue
        if any(isinstance(t, ast.Call) and isinstance(t.func, ast.Name) and t.func.id == "split" for t in begun):
            continue
        (rule,) = parse_rules(f"candidate: {', '.join(left)} => {', '.join(right)}", candidate.name, origin="candidate")
        read = dict.fromkeys(name for root in rule.roots for name in variables(root))
        names = dict(zip(read, _NAMES if len(read) <= len(_NAMES) else read, strict=False))
        renamed = equation_with(RuleStatement.of(rule), {name: Var(new) for name, new in names.items()})
        yield LiteralEquation(
            renamed.left,
            renamed.right,
            operands={names[name]: replace(operands[name], name=names[name]) for name in read},
        )


def example_operand(name: str, type: TensorType) -> Drawn:
    """An operand; the elements of integers and booleans are valid indices into any axis of two."""
    operand = Drawn(name, type)
    if not type.dtype.is_float:
        operand.array = (np.arange(math.prod(type.static)) % 2).reshape(type.static).astype(type.dtype.numpy)
    return operand


def _reads(side: tuple[str, ...]) -> set[str]:
    """The tensors that terms read."""
    return {name for text in side for name in free_names(ast.parse(text, mode="eval"))}


def literal(value: Any) -> Expression:
    """The expression whose value is a literal."""
    return expression(repr(value))


def constant_fields(app: App) -> dict[str, Any]:
    """The values of fields that are literals."""
    return {name: evaluate(e, _NOTHING) for name, e in app.fields.items()}


def variables(pattern: Pattern | Spread) -> Iterator[str]:
    """The tensors that a pattern reads, each as often as it does; sequences by their own name."""
    if isinstance(pattern, Var):
        yield pattern.name
    elif isinstance(pattern, Spread):
        loop = dict(pattern.over)
        yield from (loop.get(name, name) for name in variables(pattern.item))
    else:
        for operand in pattern.operands:
            yield from variables(operand)


def names_read(patterns: Iterable[Pattern | Spread]) -> set[str]:
    """The attributes and tensors that the attributes of patterns are computed from."""
    names: set[str] = set()
    for pattern in patterns:
        for app in applications(pattern):
            names |= {app.record} if app.record is not None else set()
            names |= {name for e in app.fields.values() for name in compiled(e).names}
    return names
