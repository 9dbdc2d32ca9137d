"""Rules up to the names of their variables."""

from __future__ import annotations

import ast
import copy
from typing import Any

from eqsat.language.terms.pattern import Pattern, Spread, Var, spread_roots
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.rules.rule import Rule


class _VariableNames(ast.NodeTransformer):
    """Names in the order in which they are met."""

    def __init__(self) -> None:
        self.order: dict[str, str] = {}

    def name(self, name: str) -> str:
        return self.order.setdefault(name, f"v{len(self.order)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.name(node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        return node

    def expression(self, tree: ast.expr) -> str:
        return ast.unparse(self.visit(copy.deepcopy(tree)))

    def pattern(self, pattern: Pattern | Spread) -> Any:
        if isinstance(pattern, Var):
            return self.name(pattern.name)
        if isinstance(pattern, Spread):
            over = tuple((self.name(s), self.name(v)) for v, s in pattern.over)
            window = tuple(self.expression(e.tree) for e in pattern.window or ())
            return "spread", over, self.pattern(pattern.item), window
        operands = tuple(self.pattern(o) for o in pattern.operands)
        fields = tuple((k, self.expression(e.tree)) for k, e in sorted(pattern.fields.items()))
        return pattern.op, operands, self.name(pattern.record) if pattern.record is not None else None, fields


def sides(rule: Rule, *, turned: bool = False) -> tuple[Any, frozenset[str]]:
    """Both sides with variables named in order, and the single conditions; `turned` takes the right side first."""
    names = _VariableNames()
    left = spread_roots(rule.left)
    first, second = (rule.right, left) if turned else (left, rule.right)
    named = tuple(names.pattern(p) for p in first), tuple(names.pattern(p) for p in second)
    conditions = frozenset(names.expression(part) for c in rule.conditions for part in conjuncts(c.tree))
    return named, conditions


def renamed(rule: Rule) -> str:
    """A text that is equal for rules that differ in names and in the order of conditions alone.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> a, b = parse_rules("a: relu(x + y) => relu(y + x)\\nb: relu(u + a) => relu(a + u)")
    >>> renamed(a) == renamed(b)
    True
    """
    named, conditions = sides(rule)
    return repr((named, sorted(conditions)))
