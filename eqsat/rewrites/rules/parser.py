"""The text form of rules, one line a rule: ``name (law N): lhs => rhs if condition, condition``.

A line that begins with white space continues the one before; ``#`` begins a comment; ``%phase simplify`` sets the phase
of the rules after it, ``%because …`` says why the next rule is written by hand, of one with ``<=>`` for each way,
``%because … <=> …``, and ``%each f in relu abs`` … ``%end`` makes each line with ``{f}`` between them one rule for each
operator named, and so its reason. Both sides and the conditions are Python expressions. Names stand for what a side
says often: ``lhs => relu(g) * g where g := x @ w if condition``; later ones may use earlier ones. An operand left out
is None, and an operator with several outputs has a right side for each: ``gru(x, w, r, None, n) => y, h``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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

    `origin` says where the text comes from; a "candidate" is only asked about, and its sides may differ in types.

    >>> [r.name for r in parse_rules("twice: relu(relu(x)) => relu(x)")]
    ['twice']
    """
    return tuple(one.rule for one in rule_sources(text, source, origin=origin))


def rule_sources(text: str, source: str = "<text>", *, origin: Origin = "given") -> Iterator[RuleSource]:
    """Every rule of a text, to be read when it is asked for; RuleError without an arrow, or a name of its own."""
    state = _State()
    sources: dict[str, RuleSource] = {}
    for number, block in _blocks(text):
        if block.startswith("%"):
            state.directive(block, f"{source}:{number}:1")
            continue
        for instance, reason in state.instances(block):
            for one in sources_of(instance, source, number, origin, reason, state.phase):
                if one.name in sources:
                    raise RuleError(
                        f"rule {one.name!r} is already there",
                        where=f"{source}:{number}:1",
                        expected=f"names used once; {sources[one.name].rule.where} has this one",
                        remedy="choose another name",
                    )
                sources[one.name] = one
                yield one


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
