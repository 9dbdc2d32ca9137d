"""The parts of the reference that are made from eqsat itself: operators, rules and commands, as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import click

import eqsat
from eqsat import cli
from eqsat.language.declaration.spec import REQUIRED, OpSpec
from eqsat.language.ops import OPS
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.loader import laws, shipped_evidence, shipped_rules
from eqsat.rewrites.rules.rule import PHASES, Rule

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
#: Columns of the help of a command.
WIDTH = 96


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """A text as code; empty for an empty text."""
    return f"`{text}`" if text else ""


def integer(value: int) -> str:
    """An integer with a space between thousands."""
    return f"{value:,}".replace(",", " ")


@cache
def _ruled() -> tuple[Rule, ...]:
    return shipped_rules()


@cache
def _laws() -> tuple[Rule, ...]:
    return tuple(law for law in laws() if all(OPS[name].is_shipped for name in law.operators()))


def _shipped() -> dict[str, list[OpSpec]]:
    """The operators that ship, by the title of the file that declares them, in the order of declaration."""
    groups: dict[str, list[OpSpec]] = {}
    for one in OPS.values():
        if one.is_shipped:
            text = import_module(one.reference.__module__).__doc__ or ""
            groups.setdefault(re.split(r"[.:]\s", text)[0], []).append(one)
    return groups


def operators() -> str:
    """A table of all operators, by the file that declares them."""
    stated = Counter(name for law in _laws() for name in law.operators())
    parts = []
    for group, declared in _shipped().items():
        rows = [
            [
                f"[`{one.name}`](#eqsat.{one.name})",
                code(one.index) or ("pointwise" if one.pointwise else ""),
                ", ".join(code(_attribute(k, v)) for k, v in one.attrs.items()),
                integer(stated[one.name]),
                code(one.onnx or ""),
                code(_place(one)),
            ]
            for one in declared
        ]
        head = ["operator", "index form", "attributes", "laws", "ONNX", "reference"]
        parts.append(f"### {group}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _place(one: OpSpec) -> str:
    """File and line of an operator's reference."""
    return Path(one.where).name


def _attribute(name: str, default: object) -> str:
    return name if default is REQUIRED else f"{name}={default!r}"


def functions() -> str:
    """The functions of all operators and of forms of several operators, for autodoc."""
    own = [n for n in dir(eqsat) if callable(getattr(eqsat, n)) and n not in eqsat.__all__ and n not in OPS]
    parts = [_autodoc("Forms of several operators", own)]
    parts += [_autodoc(g, [one.name for one in declared]) for g, declared in _shipped().items()]
    return "\n\n".join(parts)


def _autodoc(title: str, names: Iterable[str]) -> str:
    lines = "\n".join(f".. autofunction:: eqsat.{name}" for name in names)
    return f"### {title}: functions\n\n```{{eval-rst}}\n{lines}\n```"


def counts() -> str:
    """The numbers of laws and rules, by origin and phase."""
    ruled, law_names = _ruled(), {law.name for law in _laws()}
    groups = {
        "laws written by hand": [law for law in _laws() if law.origin == "axiom"],
        "laws that declarations imply": [law for law in _laws() if law.origin == "derived"],
        "rules of the library": [rule for rule in ruled if rule.origin == "library"],
        "of these, laws as well": [rule for rule in ruled if rule.origin == "library" and rule.name in law_names],
        "all": list(ruled),
    }
    rows = []
    for title, members in groups.items():
        found = Counter(rule.phase for rule in members)
        rows.append([title, *(integer(found[phase]) for phase in PHASES), integer(len(members))])
    return table(["", *PHASES, "all"], rows)


def axioms() -> str:
    """The laws written by hand, with the evidence of each."""
    return _evidence(law for law in _laws() if law.origin == "axiom")


def derived() -> str:
    """The laws that declarations imply, with the evidence of each."""
    return _evidence(law for law in _laws() if law.origin == "derived")


def library() -> str:
    """The generated rules, with the evidence of each."""
    return _evidence(rule for rule in _ruled() if rule.origin == "library")


def _evidence(rules: Iterable[Rule]) -> str:
    """A table of rules: verdict, the laws that entail the rule, and the instances that agreed in each arithmetic."""
    records = shipped_evidence()
    rows = [[_stated(rule, records), rule.phase, _instances(records.get(rule.name))] for rule in rules]
    return table(["rule", "phase", "instances"], rows)


def _stated(rule: Rule, records: Mapping[str, Evidence]) -> str:
    """The text of a rule, its reason, the verdict, and for one of the library the laws from which it follows."""
    record = records.get(rule.name)
    lines = [f"**{rule.name}** {code(rule.text)}", *([rule.reason] if rule.reason else [])]
    verdict = "no evidence: it does not load" if record is None else record.verdict
    if record is not None and rule.origin == "library" and record.entailed:
        how = {"law": "is the law", "chain": "follows by a chain of", "z3": "follows, by Z3, from"}[record.entailed]
        verdict += f"; {how} " + ", ".join(code(name) for name in record.laws)
    return "<br>".join([*lines, verdict])


def _instances(record: Evidence | None) -> str:
    """Numbers of symbolic, numeric, exact and bounded instances."""
    if record is None:
        return ""
    return " / ".join(map(integer, (record.symbolic, record.numeric, record.exact, record.bounded)))


def tutorials() -> str:
    """The table of contents of the tutorials; the first look comes first."""
    stems = sorted((p.stem for p in NOTEBOOKS.glob("*.py")), key=lambda stem: (stem != "first_look", stem))
    entries = "\n".join(f"tutorials/{stem}" for stem in stems)
    return f"```{{toctree}}\n:caption: Tutorials\n:hidden:\n\n{entries}\n```"


def commands() -> str:
    """Every command with its help text."""
    return "\n\n".join(_helped(cli.commands, click.Context(cli.commands, info_name="eqsat", terminal_width=WIDTH)))


def _helped(command: click.Command, context: click.Context) -> list[str]:
    level = "#" * min(2 + context.command_path.count(" "), 4)
    parts = [f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.commands[name]
            parts += _helped(inner, click.Context(inner, info_name=name, parent=context, terminal_width=WIDTH))
    return parts


#: The functions that replace a comment `<!-- generated: NAME -->` of a page, by name.
TABLES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {one.__name__: one for one in (operators, functions, counts, axioms, derived, library, tutorials, commands)}
)
