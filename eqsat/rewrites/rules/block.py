"""One rule of a rule file, or a rule and its inverse, as patterns and expressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from eqsat.errors import RuleError
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import ABSENT, INFIX, App, Expression, Left, Pattern, Siblings, Spread, Var, roots_of
from eqsat.rewrites.conditions.syntax import DEEPEST, MOST_NODES, TOO_LARGE, excess, loop_parts, may_exceed, substituted
from eqsat.rewrites.rules.literals import (
    alone,
    attribute,
    constant,
    everywhere,
    implied,
    number_in,
    type_beside,
    unmatched,
)
from eqsat.rewrites.rules.rule import LEFT, RIGHT, SPLICE, Origin, Rule, applications
from eqsat.rewrites.rules.ruleset import RuleSource

_HEAD = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)\s*(?:\(laws?\s+(?P<laws>[0-9,\s]+)\))?\s*:(?!=)")
_ARROW = re.compile(r"<?=>")
_IF, _WHERE = re.compile(r"\sif\s"), re.compile(r"\swhere\s")
_SIZES = f"at most {MOST_NODES} names, numbers and signs, nested at most {DEEPEST} deep; integers of 64 bits"
_OPERATORS: dict[type[ast.operator], str] = {
    type(tree.op): name
    for name, sign in INFIX.items()
    if isinstance(tree := ast.parse(f"x {sign} y", mode="eval").body, ast.BinOp)
} | {ast.Pow: "pow"}
#: Where a side may have more than patterns: attributes begin at the first of these, conditions and names at the others.
_NOT_PATTERNS = re.compile(r"=|\sif\s|\swhere\s")
_CALL, _SIGN = re.compile(r"\b([a-z_]\w*)\("), re.compile(r"[\w)\]]\s+(\*\*|[-+*/@])\s")
_SIGNS = {sign: name for name, sign in INFIX.items()} | {"**": "pow"}


def sources_of(text: str, source: str, line: int, origin: Origin, reason: str, phase: str) -> list[RuleSource]:
    """The rule of one logical line, and its inverse where there is one, to be read when one of them is asked for.

    `line` is where the text begins in its source; RuleError if it has no name or no arrow.
    """
    return _Block(text, source, line, origin, reason).sources(phase)


@dataclass(frozen=True, slots=True)
class _Head:
    """The parts of a block that are told without reading its sides: the name, and where the sides begin and end."""

    name: str
    laws: tuple[int, ...]
    left: int
    arrow: tuple[int, int]
    both: bool


@dataclass(frozen=True, slots=True)
class _Block:
    """One logical line of a rule file."""

    text: str
    source: str
    line: int
    origin: Origin
    reason: str
    #: The patterns of calls, by the identities of their trees: a name stands for one tree wherever it is.
    made: dict[int, App] = field(default_factory=dict)
    #: The constants that numbers stand for, by their identities, with the trees of the numbers.
    numbers: dict[int, tuple[App, ast.expr]] = field(default_factory=dict)
    #: Conditions that numbers with a fraction imply.
    implied: list[Expression] = field(default_factory=list)

    def sources(self, phase: str) -> list[RuleSource]:
        head = self.head()
        read = cache(lambda: self.rules(phase, head))
        left = _certain_operators(self.text[head.left : head.arrow[0]])
        sources = [RuleSource(head.name, phase, left, lambda: read()[0])]
        if head.both:
            right = _certain_operators(self.text[head.arrow[1] :])
            sources.append(RuleSource(f"{head.name}-inv", phase, right, lambda: read()[1]))
        return sources

    def head(self) -> _Head:
        head = _HEAD.match(self.text)
        if head is None:
            raise self.error("a rule has no name", 0, "name: lhs => rhs", "put a name and a colon before it")
        arrow = _ARROW.search(self.text, head.end())
        if arrow is None:
            raise self.error(f"rule {head['name']!r} has no arrow", head.end(), "lhs => rhs, or lhs <=> rhs")
        laws = tuple(int(n) for n in (head["laws"] or "").replace(",", " ").split())
        return _Head(head["name"], laws, head.end(), arrow.span(), arrow[0] == "<=>")

    def rules(self, phase: str, head: _Head) -> list[Rule]:
        start, end = head.arrow
        conditions_at = self.top_level(_IF, end)
        conditions = self.conditions(conditions_at + 2) if conditions_at < len(self.text) else ()
        right_end = min(self.top_level(_WHERE, end), conditions_at)
        left, right = self.tree(head.left, start), self.tree(end, right_end)
        left_text, right_text = _text(left), _text(right)
        shown = right_text
        if right_end < conditions_at:
            right, named = self.named(right, right_end + 5, conditions_at)
            shown, right_text = f"{right_text} where {named}", _text(right)
        there, _, back = self.reason.partition(" <=> ") if head.both else (self.reason, "", "")
        forth, inverse = f"{left_text} => {shown}", f"{right_text} => {left_text}"
        rules = [self.rule(head.name, phase, head.laws, left, right, conditions, there, forth, inverse)]
        if head.both:
            name, reason = f"{head.name}-inv", back or there
            rules.append(self.rule(name, phase, head.laws, right, left, conditions, reason, inverse, forth))
        return rules

    def rule(
        self,
        name: str,
        phase: str,
        laws: tuple[int, ...],
        left: ast.expr,
        right: ast.expr,
        conditions: tuple[Expression, ...],
        reason: str,
        sides: str,
        inverse: str,
    ) -> Rule:
        """A rule; `sides` are its sides as its text has them, the right one with names for terms that it repeats.

        An equation that is only asked is read as its `inverse` where its left side is a bare variable.
        """
        swapped = self.origin == "asked" and isinstance(left, ast.Name)
        if swapped:
            self.is_swappable(left, right)
            left, right, sides = right, left, inverse
        for tree in (*_elements(left), *_elements(right)):
            if isinstance(tree, ast.Constant) and number_in(tree) is None:
                raise self.fault(f"{ast.unparse(tree)!r} is no pattern", tree, "a variable or an operator of patterns")
        where = self.place(left)
        first, second = self.left(left), tuple(self.pattern(e) for e in _elements(right))
        self.no_numbers(first)
        more = [c for c in dict.fromkeys(self.implied) if c not in conditions]
        conditions = (*conditions, *more)
        tail = " if " + ", ".join(c.text for c in conditions) if conditions else ""
        try:
            rule = Rule(
                name=name,
                phase=phase,
                left=first,
                right=second,
                conditions=conditions,
                laws=laws,
                text=f"{sides}{tail}",
                where=where,
                origin=self.origin,
                reason=reason,
                swapped=swapped,
                implied=tuple(c.text for c in more),
            )
            if self.origin == "given":
                from eqsat.rewrites.instances.mismatch import check_types  # which loads the checks of rules

                check_types(rule)
        except RuleError as error:
            if error.where.startswith(f"{self.source}:"):
                raise
            places = {LEFT: where, RIGHT: self.place(right), **{c.text: self.place(c.tree) for c in conditions}}
            place = places.get(error.where, where)
            raise RuleError(error.what, where=place, expected=error.expected, remedy=error.remedy) from None
        return rule

    def left(self, tree: ast.expr) -> Left:
        if isinstance(tree, ast.ListComp):
            item, over = self.looped(tree)
            if not isinstance(item, App):
                raise self.fault("the siblings' form is a bare variable", tree.elt, "an operator")
            return Siblings(item, over)
        items = [self.pattern(e) for e in _elements(tree)]
        for element in (e for item, e in zip(items, _elements(tree), strict=True) if not isinstance(item, App)):
            raise self.fault("the left side is a bare variable", element, "an operator")
        return tuple(i for i in items if isinstance(i, App))

    def is_swappable(self, variable: ast.expr, side: ast.expr) -> None:
        """RuleError unless a variable occurs in an operator on the other side."""
        name = ast.unparse(variable)
        if isinstance(side, ast.Name):
            raise self.fault("both sides are bare variables", variable, "an operator on one side")
        if not any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(side)):
            what = f"the variable {name!r} alone is the left side, and not on the right"
            raise self.fault(what, variable, "an operator")

    def no_numbers(self, left: Left) -> None:
        """RuleError where the left side of a rule to rewrite with has a number: graphs hold numbers as constants."""
        trees = [self.numbers[id(a)][1] for root in roots_of(left) for a in applications(root) if id(a) in self.numbers]
        if trees and self.origin not in ("candidate", "asked"):
            raise unmatched(trees[0], self.place(trees[0]))

    def operands(self, op: str, trees: Sequence[ast.expr]) -> tuple[Pattern | Spread, ...]:
        """The operands of an operator; a number stands for a constant of the element type of what is beside it."""
        return tuple(
            self.number(tree, type_beside(op, place, trees))
            if number_in(tree) is not None
            else (self.spread(tree) if isinstance(tree, ast.Starred) else self.pattern(tree))
            for place, tree in enumerate(trees)
        )

    def number(self, tree: ast.expr, dtype: ast.expr | None) -> App:
        app = constant(tree, dtype, self.place(tree))
        self.implied.extend(implied(tree, dtype))
        self.numbers[id(app)] = app, tree
        return app

    def pattern(self, tree: ast.expr) -> Pattern:
        if isinstance(tree, ast.Name):
            return Var(tree.id)
        if number_in(tree) is not None:
            raise alone(tree, self.place(tree))
        if isinstance(tree, ast.Constant) and tree.value is None:
            return ABSENT
        if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
            return App(op := _OPERATORS[type(tree.op)], self.operands(op, (tree.left, tree.right)))
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return App("neg", (self.pattern(tree.operand),))
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            if id(tree) not in self.made:
                self.made[id(tree)] = self.application(tree, tree.func.id)
            return self.made[id(tree)]
        raise self.fault(f"{ast.unparse(tree)!r} is no pattern", tree, "a variable or an operator applied to patterns")

    def application(self, call: ast.Call, op: str) -> App:
        if op == ABSENT.op:
            raise self.fault(f"no operator {op!r}", call, "None for an operand that is left out")
        operands = self.operands(op, call.args)
        fields: dict[str, Expression] = {}
        record: str | None = None
        for keyword in call.keywords:
            if keyword.arg is not None:
                fields[keyword.arg] = _expression(attribute(op, keyword.arg, keyword.value))
            elif isinstance(keyword.value, ast.Name) and record is None:
                record = keyword.value.id
            elif SPLICE not in fields:
                fields[SPLICE] = _expression(keyword.value)
            else:
                raise self.fault(f"{op} has two records", keyword.value, "one record, **a")
        return App(op, operands, fields, record)

    def spread(self, tree: ast.Starred) -> Spread:
        value, window = tree.value, None
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
            lower, upper = value.slice.lower, value.slice.upper
            if lower is None or upper is None or value.slice.step is not None:
                raise self.fault("a window without both bounds, or with a step", tree, "*xs[i:j]")
            window = (_expression(lower), _expression(upper))
            value = value.value
        if isinstance(value, ast.Name):
            return Spread(Var(value.id), (), window)
        if isinstance(value, ast.ListComp):
            return Spread(*self.looped(value), window)
        raise self.fault("a spread of neither a name nor a list", tree, "*xs or *[relu(x) for x in xs]")

    def looped(self, tree: ast.ListComp) -> tuple[Pattern, tuple[tuple[str, str], ...]]:
        before = len(self.implied)
        item, over = self.pattern(tree.elt), self.over(tree)
        self.implied[before:] = [everywhere(c, tree.generators[0]) for c in self.implied[before:]]
        return item, over

    def over(self, tree: ast.ListComp) -> tuple[tuple[str, str], ...]:
        if len(tree.generators) != 1 or tree.generators[0].ifs:
            raise self.fault("a list with several loops or a filter", tree, "[… for x in xs]")
        targets, sequences = loop_parts(tree.generators[0])
        names = [n.id for n in (*targets, *sequences) if isinstance(n, ast.Name)]
        if len(targets) != len(sequences) or len(names) != 2 * len(targets):
            raise self.fault("a loop over something else than named sequences", tree, "for x, w in zip(xs, ws)")
        return tuple(zip(names[: len(targets)], names[len(targets) :], strict=True))

    def conditions(self, start: int) -> tuple[Expression, ...]:
        trees = _elements(self.tree(start, len(self.text)))
        for one in trees:
            if isinstance(one, ast.Starred):
                raise self.fault("a condition with a star", one, "an expression that holds or does not")
        return tuple(map(_expression, trees))

    def named(self, side: ast.expr, start: int, end: int) -> tuple[ast.expr, str]:
        """A side with terms in place of names, by the definitions in a span of the text; and these as text."""
        known: dict[str, ast.expr] = {}
        said: list[str] = []
        for one in _elements(self.tree(start, end)):
            if not isinstance(one, ast.NamedExpr):
                raise self.fault(
                    f"{ast.unparse(one)!r} names nothing", one, "a name for what it stands for, g := x @ w"
                )
            said.append(f"{one.target.id} := {ast.unparse(one.value)}")
            known[one.target.id] = self.replaced(one.value, known)
        return self.replaced(side, known), ", ".join(said)

    def replaced(self, tree: ast.expr, known: Mapping[str, ast.expr]) -> ast.expr:
        result = substituted(tree, known)
        if reason := excess(result):
            raise RuleError(reason, where=self.place(tree), expected=_SIZES)
        return result

    def top_level(self, word: re.Pattern[str], start: int) -> int:
        """Where a word stands that is in no parenthesis, or the end of the text."""
        depth, quote = 0, ""
        for i in range(start, len(self.text)):
            c = self.text[i]
            if quote:
                quote = "" if c == quote else quote
            elif c in "'\"":
                quote = c
            elif c in "([{":
                depth += 1
            elif c in ")]}":
                depth -= 1
            elif depth == 0 and c.isspace() and word.match(self.text, i):
                return i + 1
        return len(self.text)

    def tree(self, start: int, end: int) -> ast.expr:
        """The expression in a span of the text, its positions those in the text."""
        before, inside = self.text[:start], self.text[start:end].rstrip()
        if not inside:
            raise self.error("an expression is missing", start, "an expression")
        lines = before.count("\n")
        column = start - (before.rfind("\n") + 1)
        # Python reads it where it stands, in a parenthesis one column before it: the line is filled up to there,
        # since no expression is indented, by the head of a lambda, or by signs where that is too long.
        width = column - 1
        head = "lambda " + "_" * (width - 8) + ":" if width > 8 else "-" * width
        try:
            tree = ast.parse("\n" * lines + f"{head}({inside})", mode="eval").body
        except SyntaxError as error:
            raise RuleError(
                f"syntax: {error.msg}",
                where=f"{self.source}:{self.line - 1 + (error.lineno or 1)}:{max(error.offset or 1, 1)}",
                expected="Python expression syntax",
            ) from None
        except (RecursionError, MemoryError):
            raise self.too_large(start, TOO_LARGE) from None
        for _ in range(1 if width > 8 else width):
            if isinstance(tree, ast.Lambda):
                tree = tree.body
            elif isinstance(tree, ast.UnaryOp):
                tree = tree.operand
            else:  # the parenthesis was closed within
                raise self.error("syntax: unmatched ')'", start, "Python expression syntax")
        if may_exceed(inside) and (reason := excess(tree)):
            raise self.too_large(start, reason)
        return tree

    def too_large(self, start: int, reason: str) -> RuleError:
        return self.error(reason, start, _SIZES)

    def fault(self, what: str, tree: ast.expr, expected: str) -> RuleError:
        return RuleError(what, where=self.place(tree), expected=expected)

    def place(self, tree: ast.expr) -> str:
        first = _elements(tree)[0]  # a tuple begins at the parenthesis put around it
        return f"{self.source}:{self.line - 1 + first.lineno}:{first.col_offset + 1}"

    def error(self, what: str, offset: int, expected: str, remedy: str = "") -> RuleError:
        lines = self.text[:offset].count("\n")
        column = offset - (self.text[:offset].rfind("\n") + 1) + 1
        return RuleError(what, where=f"{self.source}:{self.line + lines}:{column}", expected=expected, remedy=remedy)


def _elements(tree: ast.expr) -> list[ast.expr]:
    return list(tree.elts) if isinstance(tree, ast.Tuple) else [tree]


def _expression(tree: ast.expr) -> Expression:
    return Expression(written(tree), tree)


def _text(tree: ast.expr) -> str:
    return ", ".join(map(written, _elements(tree)))


def written(tree: ast.expr) -> str:
    """The text of a tree, that of `ast.unparse`, whose writer takes several times as long for names and calls.

    A rule's sides are calls of calls: text within their parentheses is the same as on its own.
    """
    if isinstance(tree, ast.Name):
        return tree.id
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        given = [written(operand) for operand in tree.args]
        given += [f"{'**' if k.arg is None else k.arg + '='}{written(k.value)}" for k in tree.keywords]
        return f"{tree.func.id}({', '.join(given)})"
    return ast.unparse(tree)


def _certain_operators(side: str) -> frozenset[str]:
    """Operators that a side's patterns have, of those that stand before any attribute, condition or name for a term."""
    end = _NOT_PATTERNS.search(side)
    patterns = side if end is None else side[: end.start()]
    called = (name for name in _CALL.findall(patterns) if name in OPS)
    return frozenset((*called, *(_SIGNS[sign] for sign in _SIGN.findall(patterns))))
