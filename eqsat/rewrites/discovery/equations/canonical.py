"""One form for equations that differ in names and order alone, and which of two equations is the more general."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from eqsat.errors import EqsatError
from eqsat.language.terms.pattern import App, Bindings, Expression, Siblings, Spread, Var
from eqsat.rewrites.conditions.expression import compiled, evaluate
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.discovery.equations.sides import (
    Part,
    RuleStatement,
    equation_with,
    expression,
    is_commutative,
    settings,
    written,
)

#: Orders of commutative operands and of outputs that are tried, beyond which the order is that of the text.
MOST_ORDERS = 2048


def canonical(equation: RuleStatement, *, directed: bool = True) -> str:
    """The text that equations have in common which differ in names and order alone.

    Names are those of variables, attributes and records; the orders are those of conditions, of the operands of
    commutative operators and of outputs. Undirected, the two sides may change places too.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> text = "a: relu(x + y) => relu(y + x)\\nb: relu(z + t) => relu(z + t)"
    >>> a, b = (RuleStatement.of(r) for r in parse_rules(text))
    >>> canonical(a) == canonical(b)
    True
    """
    least = min(_texts(equation))
    if directed or isinstance(equation.left, Siblings) or not all(isinstance(p, App) for p in equation.right):
        return least
    if len(equation.right) != len(equation.left):
        return least
    apps = tuple(p for p in equation.right if isinstance(p, App))
    return min(least, *_texts(RuleStatement(apps, tuple(equation.left), equation.conditions)))


def distinct(equations: Iterable[tuple[str, RuleStatement]]) -> tuple[list[str], dict[str, str]]:
    """The names of the first equation of each canonical form, and which of them each other one repeats."""
    first: dict[str, str] = {}
    repeated: dict[str, str] = {}
    for name, equation in equations:
        stands = first.setdefault(canonical(equation), name)
        if stands != name:
            repeated[name] = stands
    return list(first.values()), repeated


def _texts(equation: RuleStatement) -> Iterator[str]:
    for left, right in itertools.islice(_orders(equation), MOST_ORDERS):
        yield _Renderer().equation(left, right, equation)


def _orders(equation: RuleStatement) -> Iterator[tuple[tuple[Part, ...], tuple[Part, ...]]]:
    """Both sides in every order of outputs and of the operands of commutative operators."""
    left: tuple[Part, ...] = equation.roots
    rows: Iterable[tuple[int, ...]] = [tuple(range(len(left)))]
    if len(left) == len(equation.right) > 1:
        rows = itertools.permutations(range(len(left)))
    for row in rows:
        right: Sequence[Part] = equation.right
        if len(left) == len(right):
            right = [right[i] for i in row]
        sides = [list(_arranged(p)) for p in (*(left[i] for i in row), *right)]
        for chosen in itertools.product(*sides):
            yield chosen[: len(left)], chosen[len(left) :]


def _arranged(part: Part) -> Iterator[Part]:
    if isinstance(part, Spread):
        for item in _arranged(part.item):
            if not isinstance(item, Spread):
                yield part if item is part.item else replace(part, item=item)
    elif isinstance(part, App):
        for operands in itertools.product(*(list(_arranged(o)) for o in part.operands)):
            same = all(a is b for a, b in zip(operands, part.operands, strict=True))
            if not is_commutative(part) or operands[0] == operands[1]:
                yield part if same else replace(part, operands=operands)
                continue
            # Operands of different form have one order; of one form, whichever names them first may come first.
            forms = [_form(o) for o in operands]
            if forms[0] <= forms[1]:
                yield part if same else replace(part, operands=operands)
            if forms[1] <= forms[0]:
                yield replace(part, operands=operands[::-1])
    else:
        yield part


@lru_cache(maxsize=4096)
def _form(part: Part) -> str:
    """A pattern's text without names, the operands of commutative operators in alphabetical order."""
    if isinstance(part, Var):
        return "_"
    if isinstance(part, Spread):
        return f"*[{_form(part.item)} {len(part.over)}]"
    operands = [_form(o) for o in part.operands]
    if is_commutative(part):
        operands.sort()
    fields = [f"{k}={''.join('_' if n else t for n, t in _pieces(e.text))}" for k, e in sorted(settings(part).items())]
    return f"{part.op}({', '.join(operands + fields)}, {part.record is not None})"


class _Renderer:
    """A writer of an equation that names things v0, v1, … in the order in which it comes upon them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def equation(self, left: Sequence[Part], right: Sequence[Part], equation: RuleStatement) -> str:
        """The whole text; conditions come after the sides, in alphabetical order."""
        text = ", ".join(self.part(p) for p in left)
        if isinstance(equation.left, Siblings):
            text = f"[{text}{self._over(equation.left.over)}]"
        text += " => " + ", ".join(self.part(p) for p in right)
        conditions = sorted({self.expression(c) for c in _split_up(equation.conditions)})
        return text + (" if " + ", ".join(conditions) if conditions else "")

    def part(self, part: Part) -> str:
        """One pattern."""
        if isinstance(part, Var):
            return self.name(part.name)
        if isinstance(part, Spread):
            window = ":".join(self.expression(e) for e in part.window or ())
            return f"*[{self.part(part.item)}{self._over(part.over)}][{window}]"
        arguments = [self.part(o) for o in part.operands]
        arguments += [f"{k}={self.expression(e)}" for k, e in sorted(settings(part).items())]
        arguments += [f"**{self.name(part.record)}"] if part.record is not None else []
        return f"{part.op}({', '.join(arguments)})"

    def _over(self, over: tuple[tuple[str, str], ...]) -> str:
        return "".join(f" {self.name(v)} in {self.name(s)}" for v, s in over)

    def name(self, old: str) -> str:
        """The new name of a thing."""
        return self._names.setdefault(old, f"v{len(self._names)}")

    def expression(self, one: Expression) -> str:
        """An expression in the new names."""
        text = "".join(self.name(t) if named else t for named, t in _pieces(one.text))
        return _ordered(text) if "=" in text else text


@lru_cache(maxsize=4096)
def _pieces(text: str) -> tuple[tuple[bool, str], ...]:
    """An expression's text in pieces, those that are names of something outside it marked.

    The variables of its own loops are e0, e1, … in all of them.
    """
    tree = ast.parse(text, mode="eval")
    targets = [c.target for c in ast.walk(tree) if isinstance(c, ast.comprehension)]
    local = {n.id: f"e{i}" for i, n in enumerate(n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))}
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]
    pieces: list[tuple[bool, str]] = []
    at = 0
    for node in sorted(names, key=lambda n: n.col_offset):
        pieces.append((False, text[at : node.col_offset]))
        pieces.append((node.id not in local, local.get(node.id, node.id)))
        at = node.end_col_offset or at
    return (*pieces, (False, text[at:]))


@lru_cache(maxsize=4096)
def _ordered(text: str) -> str:
    """An expression's text with the sides of equalities in alphabetical order."""
    return ast.unparse(_InOrder().visit(ast.parse(text, mode="eval")))


class _InOrder(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        sides = [self.visit(e) for e in (node.left, *node.comparators)]
        if all(isinstance(o, ast.Eq | ast.NotEq) for o in node.ops) and len(set(map(type, node.ops))) == 1:
            sides.sort(key=ast.unparse)
        return ast.Compare(sides[0], node.ops, sides[1:])


#: Conditions that hold of several tensors where they hold of each.
_OF_EACH = frozenset({"finite", "constant", "wide", "floating", "static"})


def _split_up(conditions: Iterable[Expression]) -> Iterator[Expression]:
    """The conditions, those of several tensors as one of each."""
    for condition in conditions:
        tree = condition.tree
        if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
            yield from _split_up(Expression(ast.unparse(v), v) for v in tree.values)
        elif (
            isinstance(tree, ast.Call)
            and isinstance(tree.func, ast.Name)
            and tree.func.id in _OF_EACH
            and len(tree.args) > 1
        ):
            yield from (expression(f"{tree.func.id}({ast.unparse(a)})") for a in tree.args)
        else:
            yield condition


def generalises(general: RuleStatement, special: RuleStatement) -> bool:
    """Return whether a substitution makes the general equation the special one, or one with fewer conditions.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> text = "a: (x + y) * z => x * z + y * z\\nb: (x + x) * z => x * z + x * z"
    >>> a, b = (RuleStatement.of(r) for r in parse_rules(text))
    >>> generalises(a, b), generalises(b, a)
    (True, False)
    """
    if isinstance(general.left, Siblings) != isinstance(special.left, Siblings):
        return False
    if isinstance(general.left, Siblings) and isinstance(special.left, Siblings):
        pairs = zip(general.left.over, special.left.over, strict=False)
        start: dict[str, Any] = {n: Var(m) for g, s in pairs for n, m in zip(g, s, strict=True)}
        if len(general.left.over) != len(special.left.over):
            return False
    else:
        start = {}
    if len(general.roots) != len(special.roots) or len(general.right) != len(special.right):
        return False
    wanted = {_ordered(c.text) for c in _split_up(special.conditions)}
    target = [_sorted(p) for p in (*special.roots, *special.right)]
    for substitution in itertools.islice(_matches(general.roots, special.roots, start), 64):
        try:
            case = equation_with(general, substitution)
        except (TypeError, EqsatError):
            continue
        sides = [_sorted(p) for p in (*case.roots, *case.right)]
        if sides == target and all(_holds(c, wanted) for c in _split_up(case.conditions)):
            return True
    return False


def _holds(condition: Expression, wanted: set[str]) -> bool:
    if _ordered(condition.text) in wanted:
        return True
    try:
        return not compiled(condition).names and bool(evaluate(condition, Bindings()))
    except EqsatError:
        return False


def _sorted(part: Part) -> str:
    """A pattern's text with the operands of commutative operators in alphabetical order."""
    if isinstance(part, Spread):
        return written(replace(part, item=Var("_"))) + _sorted(part.item)
    if isinstance(part, Var):
        return part.name
    operands = [_sorted(o) for o in part.operands]
    if is_commutative(part):
        operands.sort()
    fields = [f"{k}={_ordered(e.text)}" for k, e in sorted(settings(part).items())]
    return f"{part.op}({', '.join(operands + fields)}, **{part.record})"


def _matches(general: Sequence[Part], special: Sequence[Part], known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The substitutions that extend one and make patterns others, side by side."""
    if not general:
        yield known
        return
    for extended in _match(general[0], special[0], known):
        yield from _matches(general[1:], special[1:], extended)


def _match(general: Part, special: Part, known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if isinstance(general, Var):
        if isinstance(special, Spread):
            return
        if known.get(general.name, special) == special:
            yield {**known, general.name: special}
    elif isinstance(general, Spread):
        if isinstance(special, Spread) and len(general.over) == len(special.over):
            pairs = [(n, m) for g, s in zip(general.over, special.over, strict=True) for n, m in zip(g, s, strict=True)]
            joined = _joined(known, {n: Var(m) for n, m in pairs})
            if joined is not None:
                yield from _match(general.item, special.item, joined)
    elif isinstance(special, App) and general.op == special.op and len(general.operands) == len(special.operands):
        bound = _fields(general, special)
        joined = None if bound is None else _joined(known, bound)
        if joined is None:
            return
        yield from _matches(general.operands, special.operands, joined)
        if is_commutative(general):
            yield from _matches(general.operands, special.operands[::-1], joined)


def _joined(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any] | None:
    return None if any(known.get(k, v) != v for k, v in more.items()) else {**known, **more}


def _fields(general: App, special: App) -> dict[str, Any] | None:
    """The values that the attributes of one application give to the names in another; None where they differ."""
    bound: dict[str, Any] = {}
    if general.record is not None:
        if special.record is None:
            return None
        bound[general.record] = Var(special.record)
    elif special.record is not None:
        return None
    ours, theirs = settings(general), settings(special)
    if set(ours) != set(theirs):
        return None
    for name, one in ours.items():
        is_name = isinstance(one.tree, ast.Name) and one.tree.id not in FUNCTIONS
        if is_name and bound.setdefault(one.text, theirs[name]) != theirs[name]:
            return None
    return bound
