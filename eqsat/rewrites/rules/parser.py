"""The text form of rules, one line a rule: ``name (law N): lhs => rhs if condition, condition``.

A line that begins with white space continues the one before; ``#`` begins a comment; ``%phase simplify`` sets the phase
of the rules after it, ``%because …`` says why the next rule is written by hand, of one with ``<=>`` for each way,
``%because … <=> …``, and ``%each f in relu abs`` … ``%end`` makes each line with ``{f}`` between them one rule for each
operator named, and so its reason. Both sides and the conditions are Python expressions. Names stand for what a side
says often: ``lhs => relu(g) * g where g := x @ w if condition``; later ones may use earlier ones. An operand left out
is None, and an operator with several outputs has a right side for each: ``gru(x, w, r, None, n) => y, h``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eqsat.errors import RuleError
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import ABSENT, INFIX, App, Expression, Left, Pattern, Siblings, Spread, Var
from eqsat.rewrites.conditions.syntax import DEEPEST, MOST_NODES, TOO_LARGE, excess, loop_parts, may_exceed, substituted
from eqsat.rewrites.rules.rule import LEFT, PHASES, RIGHT, SPLICE, Origin, Rule
from eqsat.system.files import reason_of

_HEAD = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)\s*(?:\(laws?\s+(?P<laws>[0-9,\s]+)\))?\s*:(?!=)")
_IF, _WHERE = re.compile(r"\sif\s"), re.compile(r"\swhere\s")
_PHASE = re.compile(r"%phase\s+(\w+)\s*$")
_BECAUSE = re.compile(r"%because\s+(\S.*?)\s*$", re.DOTALL)
_EACH = re.compile(r"%each\s+(\w+)\s+in\s+(\w+(?:\s+\w+)*)\s*$")
_SIZES = f"at most {MOST_NODES} names, numbers and signs, nested at most {DEEPEST} deep; integers of 64 bits"
_OPERATORS: dict[type[ast.operator], str] = {
    type(tree.op): name
    for name, sign in INFIX.items()
    if isinstance(tree := ast.parse(f"x {sign} y", mode="eval").body, ast.BinOp)
} | {ast.Pow: "pow"}


def parse_rules(text: str, source: str = "<text>", *, origin: Origin = "given") -> tuple[Rule, ...]:
    """Every rule of a text; RuleError with file, line and column for the first that is not well formed.

    `origin` says where the text comes from; a "candidate" is only asked about, and its sides may differ in types.

    >>> [r.name for r in parse_rules("twice: relu(relu(x)) => relu(x)")]
    ['twice']
    """
    state = _State()
    rules: dict[str, Rule] = {}
    for number, block in _blocks(text):
        if block.startswith("%"):
            state.directive(block, f"{source}:{number}:1")
            continue
        for instance, reason in state.instances(block):
            for rule in _Block(instance, source, number, origin, reason).rules(state.phase):
                if rule.name in rules:
                    raise RuleError(
                        f"rule {rule.name!r} is already there",
                        where=f"{source}:{number}:1",
                        expected=f"names used once; {rules[rule.name].where} has this one",
                        remedy="choose another name",
                    )
                rules[rule.name] = rule
    return tuple(rules.values())


def parse_file(path: Path, *, origin: Origin = "given") -> tuple[Rule, ...]:
    """Every rule of a user's file; RuleError where it cannot be read, is no text or is not well formed."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is no UTF-8"
    except (OSError, ValueError) as error:
        reason = reason_of(error)
    else:
        return parse_rules(text, str(path), origin=origin)
    raise unreadable_rules(path, reason)


def unreadable_rules(path: Path, reason: str) -> RuleError:
    """The error for a file of rules that cannot be read."""
    return RuleError(f"cannot be read: {reason}", where=str(path), expected="a text file of rules, in UTF-8")


class _State:
    """The settings that the directives so far have made."""

    def __init__(self) -> None:
        self.phase = "simplify"
        self.reason = ""
        self.variable = ""
        self.members: tuple[str, ...] = ()

    def directive(self, line: str, where: str) -> None:
        phase, each, because = _PHASE.match(line), _EACH.match(line), _BECAUSE.match(line)
        if phase is not None and phase[1] in PHASES:
            self.phase = phase[1]
        elif because is not None:
            self.reason = " ".join(because[1].split())
        elif each is not None:
            self.variable = each[1]
            self.members = tuple(_operator(word, where) for word in each[2].split())
        elif line.strip() == "%end":
            self.variable, self.members = "", ()
        else:
            raise RuleError(
                f"{line.strip()!r} is no directive",
                where=where,
                expected="%phase and one of "
                + ", ".join(PHASES)
                + "; ; or %because and a reason; or %each f in operators; or %end",
            )

    def instances(self, block: str) -> list[tuple[str, str]]:
        """The rule for each member of the family that is open, its name put for the variable in braces, and the reason.

        The reason is told once: the next rule has its own.
        """
        mark, reason, self.reason = "{" + self.variable + "}", self.reason, ""
        if not self.members or mark not in block:
            return [(block, reason)]
        return [(block.replace(mark, m), reason.replace(mark, m)) for m in self.members]


def _operator(word: str, where: str) -> str:
    if word not in OPS:
        raise RuleError(f"no operator {word!r}", where=where, expected="names of operators")
    return word


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with their numbers; comments become blanks, so that columns stay true."""
    number, block = 0, ""
    for index, line in enumerate(text.splitlines(), start=1):
        bare = line.split("#", 1)[0].rstrip()
        if bare and not bare[0].isspace():
            if block:
                yield number, block
            number, block = index, bare
        elif block:
            block += "\n" + bare
        elif bare:
            number, block = index, bare.lstrip()
    if block:
        yield number, block.rstrip()


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

    def rules(self, phase: str) -> list[Rule]:
        head = _HEAD.match(self.text)
        if head is None:
            raise self.error("a rule has no name", 0, "name: lhs => rhs", "put a name and a colon before it")
        laws = tuple(int(n) for n in (head["laws"] or "").replace(",", " ").split())
        arrow = re.search(r"<?=>", self.text[head.end() :])
        if arrow is None:
            raise self.error(f"rule {head['name']!r} has no arrow", head.end(), "lhs => rhs, or lhs <=> rhs")
        start, end = head.end() + arrow.start(), head.end() + arrow.end()
        conditions_at = self.top_level(_IF, end)
        conditions = self.conditions(conditions_at + 2) if conditions_at < len(self.text) else ()
        right_end = min(self.top_level(_WHERE, end), conditions_at)
        left, right = self.tree(head.end(), start), self.tree(end, right_end)
        left_text, right_text = _text(left), _text(right)
        shown = right_text
        if right_end < conditions_at:
            right, named = self.named(right, right_end + 5, conditions_at)
            shown, right_text = f"{right_text} where {named}", _text(right)
        both = arrow[0] == "<=>"
        there, _, back = self.reason.partition(" <=> ") if both else (self.reason, "", "")
        rules = [self.rule(head["name"], phase, laws, left, right, conditions, there, f"{left_text} => {shown}")]
        if both:
            text = f"{right_text} => {left_text}"
            rules.append(self.rule(head["name"] + "-inv", phase, laws, right, left, conditions, back or there, text))
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
    ) -> Rule:
        """A rule; `sides` are its sides as its text has them, the right one with names for terms that it repeats."""
        for tree in (*_elements(left), *_elements(right)):
            if isinstance(tree, ast.Constant):
                raise self.fault(f"{ast.unparse(tree)!r} is no pattern", tree, "a variable or an operator of patterns")
        tail = " if " + ", ".join(c.text for c in conditions) if conditions else ""
        where = self.place(left)
        try:
            rule = Rule(
                name=name,
                phase=phase,
                left=self.left(left),
                right=tuple(self.pattern(e) for e in _elements(right)),
                conditions=conditions,
                laws=laws,
                text=f"{sides}{tail}",
                where=where,
                origin=self.origin,
                reason=reason,
            )
            if self.origin == "given":
                from eqsat.rewrites.proof.check import check_types  # which loads the checks of rules

                check_types(rule)
        except RuleError as error:
            if error.where.startswith(self.source):
                raise
            places = {LEFT: where, RIGHT: self.place(right), **{c.text: self.place(c.tree) for c in conditions}}
            place = places.get(error.where, where)
            raise RuleError(error.what, where=place, expected=error.expected, remedy=error.remedy) from None
        return rule

    def left(self, tree: ast.expr) -> Left:
        if isinstance(tree, ast.ListComp):
            item = self.pattern(tree.elt)
            if not isinstance(item, App):
                raise self.fault("the siblings' form is a bare variable", tree.elt, "an operator")
            return Siblings(item, self.over(tree))
        items = [self.pattern(e) for e in _elements(tree)]
        for item, element in zip(items, _elements(tree), strict=True):
            if not isinstance(item, App):
                raise self.fault("the left side is a bare variable", element, "an operator")
        return tuple(i for i in items if isinstance(i, App))

    def pattern(self, tree: ast.expr) -> Pattern:
        if isinstance(tree, ast.Name):
            return Var(tree.id)
        if isinstance(tree, ast.Constant) and tree.value is None:
            return ABSENT
        if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
            return App(_OPERATORS[type(tree.op)], (self.pattern(tree.left), self.pattern(tree.right)))
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
        operands = tuple(self.spread(a) if isinstance(a, ast.Starred) else self.pattern(a) for a in call.args)
        fields: dict[str, Expression] = {}
        record: str | None = None
        for keyword in call.keywords:
            if keyword.arg is not None:
                fields[keyword.arg] = _expression(keyword.value)
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
            return Spread(self.pattern(value.elt), self.over(value), window)
        raise self.fault("a spread of neither a name nor a list", tree, "*xs or *[relu(x) for x in xs]")

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
    """An expression with its text; most are names, which need no writer of Python."""
    return Expression(tree.id if isinstance(tree, ast.Name) else ast.unparse(tree), tree)


def _text(tree: ast.expr) -> str:
    return ", ".join(ast.unparse(e) for e in _elements(tree))
