"""Rules as equations of patterns that can be renamed, substituted in and written as text again."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from eqsat.language.declaration.spec import REQUIRED
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import ABSENT, INFIX, App, Expression, Left, Pattern, Siblings, Spread, Var, roots_of
from eqsat.rewrites.conditions.expression import compiled
from eqsat.rewrites.conditions.syntax import substituted as with_trees
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import SPLICE, Rule

Part: TypeAlias = "Pattern | Spread"
#: A substitution: a pattern for each name of a tensor, an expression for each name of an attribute.
Substitution: TypeAlias = "Mapping[str, Pattern | Expression]"

_TIGHT = {"+": 1, "-": 1, "*": 2, "/": 2, "@": 2}


@dataclass(frozen=True)
class RuleStatement:
    """The sides and conditions of a rule, without its name and phase."""

    left: Left
    right: tuple[Pattern, ...]
    conditions: tuple[Expression, ...] = ()

    @classmethod
    def of(cls, rule: Rule) -> RuleStatement:
        """The equation that a rule states."""
        return cls(rule.left, rule.right, rule.conditions)

    @property
    def roots(self) -> tuple[App, ...]:
        """The left side's root patterns; the one form of all siblings for a group."""
        return roots_of(self.left)

    @property
    def text(self) -> str:
        """The equation in the syntax of rules."""
        tail = " if " + ", ".join(c.text for c in self.conditions) if self.conditions else ""
        return f"{left_written(self.left)} => {', '.join(map(written, self.right))}{tail}"

    def rule(self, name: str, phase: str) -> Rule:
        """The rule that states the equation; RuleError where it is not well formed."""
        (rule,) = parse_rules(f"%phase {phase}\n{name}: {self.text}\n", "<made>", origin="candidate")
        return rule

    @property
    def effort(self) -> tuple[int, int, int, int, str]:
        """The sort key of equations: few operators, few literal attributes and conditions, short text first."""
        apps = [a for side in (self.roots, self.right) for p in side for a in parts(p) if isinstance(a, App)]
        literals = sum(not _names(e) for a in apps for e in a.fields.values())
        outputs = max(len(self.roots), len(self.right))
        return len(apps), outputs, literals, len(self.conditions), self.text


def parts(pattern: Part) -> Iterator[Part]:
    """Every part of a pattern, operators before their operands."""
    yield pattern
    if isinstance(pattern, Spread):
        yield from parts(pattern.item)
    elif isinstance(pattern, App):
        for operand in pattern.operands:
            yield from parts(operand)


def names_of(pattern: Part) -> set[str]:
    """Every name that a pattern mentions: tensors, attributes, records and sequences, loops' own variables too."""
    names: set[str] = set()
    for part in parts(pattern):
        if isinstance(part, Var):
            names.add(part.name)
        elif isinstance(part, Spread):
            names |= {n for pair in part.over for n in pair}
            names |= {n for e in part.window or () for n in _names(e)}
        else:
            names |= {part.record} if part.record else set()
            names |= {n for e in part.fields.values() for n in _names(e)}
    return names


def _names(expression: Expression) -> tuple[str, ...]:
    return compiled(expression).names


def is_commutative(app: App) -> bool:
    """Return whether the two operands of an application may change places."""
    declared = OPS.get(app.op)
    return declared is not None and declared.commutative and len(app.operands) == 2


def settings(app: App) -> dict[str, Expression]:
    """The attributes an application states, and the defaults of the others where it names no record."""
    declared = OPS.get(app.op)
    if app.record is not None or SPLICE in app.fields or declared is None:
        return dict(app.fields)
    defaults = {k: v for k, v in declared.attrs.items() if k not in app.fields and v is not REQUIRED}
    return {**{k: expression(repr(v)) for k, v in defaults.items()}, **app.fields}


def written(pattern: Part, tight: float = 0) -> str:
    """A pattern in the syntax of rules; `tight` is the precedence of the context."""
    if isinstance(pattern, Var):
        return pattern.name
    if pattern == ABSENT:
        return "None"
    if isinstance(pattern, Spread):
        window = f"[{':'.join(e.text for e in pattern.window)}]" if pattern.window else ""
        inside = f"[{written(pattern.item)}{_loop(pattern.over)}]" if pattern.over else written(pattern.item)
        return f"*{inside}{window}"
    sign = INFIX.get(pattern.op)
    if sign and len(pattern.operands) == 2 and not pattern.fields and pattern.record is None:
        left, right = pattern.operands
        own = _TIGHT[sign]
        text = f"{written(left, own)} {sign} {written(right, own + 0.5)}"
        return f"({text})" if own < tight or own == 2 <= tight else text
    if pattern.op == "neg" and not pattern.fields and pattern.record is None:
        return f"-{written(pattern.operands[0], 3)}"
    arguments = [written(o) for o in pattern.operands]
    arguments += [f"{k}={e.text}" for k, e in pattern.fields.items() if k != SPLICE]
    arguments += [f"**{pattern.record}"] if pattern.record is not None else []
    arguments += [f"**{pattern.fields[SPLICE].text}"] if SPLICE in pattern.fields else []
    return f"{pattern.op}({', '.join(arguments)})"


def left_written(left: Left) -> str:
    """A left side in the syntax of rules."""
    if isinstance(left, Siblings):
        return f"[{written(left.item)}{_loop(left.over)}]"
    return ", ".join(map(written, left))


def _loop(over: tuple[tuple[str, str], ...]) -> str:
    variables, sequences = [v for v, _ in over], [s for _, s in over]
    if len(over) == 1:
        return f" for {variables[0]} in {sequences[0]}"
    return f" for {', '.join(variables)} in zip({', '.join(sequences)})"


@cache
def expression(text: str) -> Expression:
    """An expression of the rule syntax from its text.

    >>> expression("rank(x)-1").text
    'rank(x) - 1'
    """
    tree = ast.parse(text, mode="eval").body
    return Expression(ast.unparse(tree), tree)


def as_expression(pattern: Pattern) -> Expression:
    """A pattern as the expressions of conditions write it, ``shape(matmul(x, w))``."""
    return expression(pattern.name if isinstance(pattern, Var) else _called(pattern))


def _called(app: App) -> str:
    arguments = [_called(o) if isinstance(o, App) else written(o) for o in app.operands]
    arguments += [f"{k}={e.text}" for k, e in app.fields.items()]
    arguments += [f"**{app.record}"] if app.record is not None else []
    return f"{app.op}({', '.join(arguments)})"


def substituted(pattern: Part, by: Substitution) -> Part:
    """The pattern with patterns put for tensors, and expressions for attributes and the names of records."""
    if isinstance(pattern, Var):
        new = by.get(pattern.name)
        return pattern if new is None else Var(new.text) if isinstance(new, Expression) else new
    if isinstance(pattern, Spread):
        item = substituted(pattern.item, by)
        over = tuple((_name(v, by), _name(s, by)) for v, s in pattern.over)
        window = pattern.window
        if window is not None:
            window = (read_with(window[0], by), read_with(window[1], by))
        return Spread(item, over, window) if not isinstance(item, Spread) else item
    operands = tuple(substituted(o, by) for o in pattern.operands)
    fields = {k: read_with(e, by) for k, e in pattern.fields.items()}
    record = _name(pattern.record, by) if pattern.record is not None else None
    return App(pattern.op, operands, fields, record)


def _name(name: str, by: Substitution) -> str:
    new = by.get(name)
    return name if new is None else new.name if isinstance(new, Var) else getattr(new, "text", name)


def read_with(read: Expression, by: Substitution) -> Expression:
    """An expression with the names substituted."""
    trees: dict[str, ast.expr] = {}
    for name in _names(read):
        new = by.get(name)
        if new is not None:
            trees[name] = new.tree if isinstance(new, Expression) else as_expression(new).tree
    if not trees:
        return read
    tree = with_trees(copy.deepcopy(read.tree), trees)
    return Expression(ast.unparse(tree), tree)


def equation_with(equation: RuleStatement, by: Substitution) -> RuleStatement:
    """The equation under a substitution; its left side must stay one."""
    right = tuple(_pattern(substituted(p, by)) for p in equation.right)
    conditions = tuple(read_with(c, by) for c in equation.conditions)
    if isinstance(equation.left, Siblings):
        over = tuple((_name(v, by), _name(s, by)) for v, s in equation.left.over)
        return RuleStatement(Siblings(_app(substituted(equation.left.item, by)), over), right, conditions)
    return RuleStatement(tuple(_app(substituted(p, by)) for p in equation.left), right, conditions)


def _pattern(part: Part) -> Pattern:
    if isinstance(part, Spread):
        raise TypeError("a spread is no side of an equation")
    return part


def _app(part: Part) -> App:
    if not isinstance(part, App):
        raise TypeError("a side of an equation is a bare variable")
    return part


def replaced(pattern: Part, old: Part, new: Pattern) -> Part:
    """The pattern with every occurrence of a part replaced."""
    if pattern == old:
        return new
    if isinstance(pattern, Spread):
        item = replaced(pattern.item, old, new)
        return replace(pattern, item=item) if not isinstance(item, Spread) else item
    if isinstance(pattern, App):
        return replace(pattern, operands=tuple(replaced(o, old, new) for o in pattern.operands))
    return pattern
