"""Lifting of equations over two operands to any number: concatenations become spreads, pairs of outputs siblings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eqsat.language.terms.pattern import App, Left, Pattern, Siblings, Spread, Var
from eqsat.rewrites.discovery.equations.equation import LiteralEquation, variables
from eqsat.rewrites.instances.elements import Drawn

#: The second variable by the first, where two patterns have one form.
Pairs = dict[str, str]


def lifted(equation: LiteralEquation) -> LiteralEquation | None:
    """The equation over sequences of operands; None where its pairs of operands do not run in step on both sides."""
    left = equation.left
    if isinstance(left, Siblings):
        return None
    pairs = _pairs(equation)
    if not pairs:
        return None
    try:
        item: Left
        if _merges(equation):
            item = Siblings(left[0], _over(left[0], pairs))
        else:
            item = tuple(_app(app, pairs) for app in left)
        right = tuple(_spread(pattern, pairs) for pattern in equation.right)
    except _Apart:
        return None
    operands = dict(equation.operands)
    for first, second in pairs.items():
        here, there = operands.pop(first), operands.pop(second)
        if not isinstance(here, Drawn) or not isinstance(there, Drawn):
            return None
        operands[sequence(first)] = (here, there)
    return LiteralEquation(item, right, operands=operands)


def sequence(variable: str) -> str:
    """The name of the sequence whose elements a variable stands for."""
    return variable + "s"


class _Apart(Exception):  # noqa: N818  (a signal, not an error)
    """A pair of operands that does not run in step with the others."""


def _merges(equation: LiteralEquation) -> bool:
    """Two outputs of one form that one split yields."""
    right = equation.right
    return len(equation.roots) == 2 and len(right) == 1 and isinstance(right[0], App) and right[0].op == "split"


def _pairs(equation: LiteralEquation) -> Pairs:
    """Pairs of variables at the same places: of two outputs, or of the operands of every concatenation of two."""
    pairs: Pairs = {}
    if _merges(equation):
        pairs = {a: b for a, b in (unify(*equation.roots) or {}).items() if a != b}
        return {} if set(pairs) & set(pairs.values()) or len(set(pairs.values())) < len(pairs) else pairs
    for side in (equation.roots, equation.right):
        for pattern in side:
            for first, second in _joined(pattern):
                for a, b in (unify(first, second) or {}).items():
                    if a != b and pairs.setdefault(a, b) != b:
                        return {}
    return {} if set(pairs) & set(pairs.values()) or len(set(pairs.values())) < len(pairs) else pairs


def _joined(pattern: Pattern | Spread) -> Iterator[tuple[Pattern, Pattern]]:
    """The operands of every concatenation of two."""
    if not isinstance(pattern, App):
        return
    if _is_pair(pattern):
        first, second = pattern.operands
        if not isinstance(first, Spread) and not isinstance(second, Spread):
            yield first, second
    for operand in pattern.operands:
        yield from _joined(operand)


def _is_pair(app: App) -> bool:
    return app.op == "concat" and len(app.operands) == 2


def unify(first: Pattern | Spread, second: Pattern | Spread) -> Pairs | None:
    """The variable of the second pattern for each of the first; None where the two have different forms."""
    if isinstance(first, Var) and isinstance(second, Var):
        return {first.name: second.name}
    if not isinstance(first, App) or not isinstance(second, App):
        return None
    if first.op != second.op or len(first.operands) != len(second.operands) or first.fields != second.fields:
        return None
    pairs: Pairs = {}
    for a, b in zip(first.operands, second.operands, strict=True):
        inner = unify(a, b)
        if inner is None or any(pairs.setdefault(v, w) != w for v, w in inner.items()):
            return None
    return pairs


def _over(item: App, pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    names = dict.fromkeys(name for name in variables(item) if name in pairs)
    return tuple((name, sequence(name)) for name in names)


def _app(app: App, pairs: Pairs) -> App:
    spread = _spread(app, pairs)
    if not isinstance(spread, App):
        raise _Apart
    return spread


def _spread(pattern: Pattern | Spread, pairs: Pairs) -> Pattern:
    """The pattern with each concatenation of a pair as one of a spread; outside those no paired variable may occur."""
    if isinstance(pattern, Var):
        if pattern.name in pairs or pattern.name in pairs.values():
            raise _Apart
        return pattern
    if isinstance(pattern, Spread):
        raise _Apart
    if _is_pair(pattern):
        first, second = pattern.operands
        inner = unify(first, second)
        if inner and all((a == b and a not in pairs) or pairs.get(a) == b for a, b in inner.items()):
            over = _over(pattern, pairs)
            if over and isinstance(first, Var):
                return App("concat", (Spread(Var(sequence(first.name)), ()),), pattern.fields)
            if over and isinstance(first, App):
                return App("concat", (Spread(first, over),), pattern.fields)
    return App(pattern.op, tuple(_spread(o, pairs) for o in pattern.operands), pattern.fields, pattern.record)
