"""Lines of specification of each operator and each law, and the number of laws that follow from them."""

from __future__ import annotations

import inspect
import linecache
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from rich.console import Console
from rich.table import Table

from eqsat.language.declaration.spec import OpSpec
from eqsat.language.ops import OPS
from eqsat.rewrites import schemas
from eqsat.rewrites.rules.derive import derived_laws
from eqsat.rewrites.rules.loader import AXIOMS, is_shipped
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule

#: Lines of the published specification of operators and laws for a generator of the same kind, TASO's, in all.
PUBLISHED_LINES = 1400
SCHEMAS = Path(schemas.__file__).parent


@dataclass(frozen=True, slots=True)
class OperatorLines:
    """What is written of one operator, in lines, and the laws that follow from it.

    `declaration` is the reference with its declaration, `shape` the shape rule, `sample` what draws operands, `index`
    the index form, one of the declaration's, `stated` the laws that the declaration states, `written` the lines of
    hand-written rules whose outermost operator it is; `derived` counts laws. A function that operators share counts for
    each of them, one that these call for none.
    """

    name: str
    declaration: int
    shape: int
    sample: int
    index: int
    stated: int
    written: int
    derived: int

    @property
    def lines(self) -> int:
        """Everything written of it."""
        return self.declaration + self.shape + self.sample + self.stated + self.written


@dataclass(frozen=True, slots=True)
class Specification:
    """What is written of all operators; functions that they share count once here.

    `written` counts the hand-written rules, `written_lines` their lines, `reasons` those that say why; `laws` has the
    lines of each, those of one line under the first's name; `schemas` counts the lines of the code that derives laws.
    """

    operators: tuple[OperatorLines, ...]
    laws: Mapping[str, int]
    operator_lines: int
    written: int
    written_lines: int
    reasons: int
    schemas: int
    derived: int
    published: int = PUBLISHED_LINES

    @property
    def lines(self) -> int:
        """Operators and hand-written rules together, what the published figure counts."""
        return self.operator_lines + self.written_lines


def specification(specs: Iterable[OpSpec] | None = None, folder: Path = AXIOMS) -> Specification:
    """Lines of specification per operator and in all, of every operator that ships or of those given."""
    chosen = tuple(one for one in OPS.values() if is_shipped(one)) if specs is None else tuple(specs)
    laws = _law_lines(folder)
    written: Counter[str] = Counter()
    for _, operator, count in laws:
        written[operator] += count
    rows = tuple(_row(one, written) for one in chosen)
    functions = {code: _count(code) for one in chosen for code in _codes(one)}
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.rules"))]
    return Specification(
        operators=rows,
        laws={name: count for name, _, count in laws},
        operator_lines=sum(functions.values()) + sum(r.stated for r in rows),
        written=sum(len(parse_rules(t, origin="axiom")) for t in texts),
        written_lines=sum(_is_rule(line) for t in texts for line in t.splitlines()),
        reasons=sum(line.startswith("%because") for t in texts for line in t.splitlines()),
        schemas=sum(_filled(p.read_text(encoding="utf-8").splitlines()) for p in sorted(SCHEMAS.glob("*.py"))),
        derived=sum(r.derived for r in rows),
    )


def _row(one: OpSpec, written: Counter[str]) -> OperatorLines:
    return OperatorLines(
        name=one.name,
        declaration=_lines(one.reference),
        shape=_lines(one.infer),
        sample=_lines(one.sample),
        index=int(bool(one.index)),
        stated=len(one.laws),
        written=written[one.name],
        derived=len(derived_laws([one])),
    )


def _law_lines(folder: Path) -> list[tuple[str, str, int]]:
    """Each hand-written line of rules: its first rule, the operator outermost on the left side, and its lines."""
    counted: list[tuple[str, str, int]] = []
    for path in sorted(folder.glob("*.rules")):
        lines = path.read_text(encoding="utf-8").splitlines()
        firsts: dict[int, Rule] = {}
        for rule in parse_rules("\n".join(lines), origin="axiom"):
            firsts.setdefault(int(rule.where.split(":")[1]), rule)
        for place, rule in firsts.items():
            tail = next((k for k, line in enumerate(lines[place:]) if not line[:1].isspace()), len(lines) - place)
            counted.append((rule.name, rule.roots[0].op, 1 + tail))
    return counted


def _codes(one: OpSpec) -> set[CodeType]:
    functions = (one.reference, one.infer, one.sample, one.flops)
    return {code for f in functions if (code := getattr(f, "__code__", None)) is not None}


def _lines(function: Callable[..., Any] | None) -> int:
    code = getattr(function, "__code__", None)
    return _count(code) if code is not None else 0


def _count(code: CodeType) -> int:
    """The lines of a function that are not blank, its decorators among them."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    return _filled(inspect.getblock(lines)) if lines else 0


def _filled(lines: Iterable[str]) -> int:
    return sum(bool(line.strip()) for line in lines)


def _is_rule(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(("#", "%"))


def main() -> None:
    """Print the lines of each operator and law, and the published number for all."""
    stated = specification()
    table = Table("operator or law", "lines", box=None)
    for name, lines in [*((row.name, row.lines) for row in stated.operators), *stated.laws.items()]:
        table.add_row(name, str(lines))
    table.add_row("schemas, from which the other laws derive", str(stated.schemas))
    table.add_row("all but schemas", str(stated.lines))
    table.add_row("published, for a generator of the same kind", str(stated.published))
    Console().print(table)


if __name__ == "__main__":
    main()
