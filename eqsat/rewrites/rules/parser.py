"""The text form of rules, one line a rule: ``name (law N): lhs => rhs if condition, condition``.

A line that begins with white space continues the one before; ``#`` begins a comment; ``%phase simplify`` sets the phase
of the rules after it, ``%because …`` says why the next rule is written by hand, of one with ``<=>`` for each way,
``%because … <=> …``, and ``%each f in relu abs`` … ``%end`` makes each line with ``{f}`` between them one rule for each
operator named, and so its reason. Both sides and the conditions are Python expressions. Names stand for what a side
says often: ``lhs => relu(g) * g where g := x @ w if condition``; later ones may use earlier ones. An operand left out
is None, and an operator with several outputs has a right side for each: ``gru(x, w, r, None, n) => y, h``.

A number among operands is a scalar of the element type of what is beside it, ``maximum(x, 0)``: floats where it has a
fraction. The left side of a rule to rewrite with has none, for graphs hold constants: a name and ``is_all(c, 1)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eqsat.errors import RuleError
from eqsat.language.ops import OPS
from eqsat.rewrites.rules.block import sources_of
from eqsat.rewrites.rules.rule import PHASES, Origin, Rule
from eqsat.rewrites.rules.ruleset import RuleSource
from eqsat.system.files import reason_of

_PHASE = re.compile(r"%phase\s+(\w+)\s*$")
_BECAUSE = re.compile(r"%because\s+(\S.*?)\s*$", re.DOTALL)
_EACH = re.compile(r"%each\s+(\w+)\s+in\s+(\w+(?:\s+\w+)*)\s*$")


def parse_rules(text: str, source: str = "<text>", *, origin: Origin = "given") -> tuple[Rule, ...]:
    """Every rule of a text; RuleError with file, line and column for the first that is not well formed.

    `origin` says where the text comes from; a "candidate" is only asked about, and its sides may differ in types. The
    left side of one that is "asked" may be a bare variable: it is read from right to left.

    >>> [r.name for r in parse_rules("twice: relu(relu(x)) => relu(x)")]
    ['twice']
    """
    return tuple(one.rule for one in rule_sources(text, source, origin=origin))


def rule_sources(text: str, source: str = "<text>", *, origin: Origin = "given") -> Iterator[RuleSource]:
    """Every rule of a text, to be read when it is asked for; RuleError without an arrow, or a name of its own."""
    for one in _sources(text, source, origin):
        if isinstance(one, RuleError):
            raise one
        yield one


@dataclass(frozen=True)
class FaultyRule:
    """A line of a text that is no rule, with its name as far as it has one."""

    name: str
    error: RuleError


def parse_each(text: str, source: str = "<text>", *, origin: Origin = "given") -> tuple[Rule | FaultyRule, ...]:
    """Every rule of a text, and for each line that is not well formed its fault; the lines after it are read on.

    >>> [one.name for one in parse_each("bad: relu(x) => y\\ngood: relu(relu(x)) => relu(x)")]
    ['bad', 'good']
    """
    each: list[Rule | FaultyRule] = []
    told: set[str] = set()
    for one in _sources(text, source, origin):
        try:
            if isinstance(one, RuleError):
                raise one
            each.append(one.rule)
        except RuleError as error:
            if str(error) not in told:  # a rule and its inverse have one fault
                each.append(FaultyRule("" if isinstance(one, RuleError) else one.name, error))
            told.add(str(error))
    return tuple(each)


def _sources(text: str, source: str, origin: Origin) -> Iterator[RuleSource | RuleError]:
    """Every rule of a text, to be read when it is asked for, and the errors of lines that are none."""
    state = _State()
    sources: dict[str, RuleSource] = {}
    for number, block in _blocks(text):
        try:
            if block.startswith("%"):
                state.directive(block, f"{source}:{number}:1")
                continue
            instances = state.instances(block)
            made = [
                one for line, why in instances for one in sources_of(line, source, number, origin, why, state.phase)
            ]
        except RuleError as error:
            yield error
            continue
        for one in made:
            if one.name in sources:
                yield RuleError(
                    f"rule {one.name!r} is already there",
                    where=f"{source}:{number}:1",
                    expected=f"names used once; {_place(sources[one.name])} has this one",
                    remedy="choose another name",
                )
                continue
            sources[one.name] = one
            yield one


def _place(one: RuleSource) -> str:
    try:
        return one.rule.where
    except RuleError as error:
        return error.where


def parse_file(path: Path, *, origin: Origin = "given") -> tuple[Rule, ...]:
    """Every rule of a user's file; RuleError where it cannot be read, is no text or is not well formed."""
    return parse_rules(text_of(path), str(path), origin=origin)


def text_of(path: Path) -> str:
    """The text of a user's file of rules; RuleError where it cannot be read, or is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise unreadable_rules(path, f"byte {error.start} is no UTF-8") from None
    except (OSError, ValueError) as error:
        raise unreadable_rules(path, reason_of(error)) from None


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
                + "; or %because and a reason; or %each f in operators; or %end",
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
