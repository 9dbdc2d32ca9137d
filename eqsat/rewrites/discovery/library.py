"""The library of generated rules: its files, its order, and how they are made from nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eqsat.errors import RuleError
from eqsat.rewrites.discovery.equations.sides import RuleStatement
from eqsat.rewrites.discovery.select.prune import Drop, Pruned
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.rule import PHASES, Rule

#: The library that is loaded by default.
LIBRARY = Path(__file__).parent.parent / "library"
RULES, EVIDENCE, COUNTS = "generated.rules", "evidence.jsonl", "counts.json"
DROPPED, MISSING, USAGE = "dropped.jsonl", "missing.jsonl", "usage.jsonl"
#: Number of candidates for each rule that pruning leaves, in the published generator: 28 744 graphs' pairs to 743
#: rules.
PUBLISHED_REDUCTION = 39

_HEAD = """\
# Rewrites that `eqsat rules build` generated, verified and pruned; written by it, in the order in which they pay on the
# benchmark models. Their evidence is in evidence.jsonl, what was left out and why in dropped.jsonl.
"""


@dataclass(frozen=True, slots=True)
class Use:
    """The number of times a rule fired on one model, and of changes of the result it had a part in."""

    rule: str
    model: str
    fired: int
    chosen: int


def read_usage(path: Path = LIBRARY / USAGE) -> list[Use]:
    """The uses of a file, none where there is no file; RuleError with the line for one that is none."""
    return [Use(**r) for r in _records(path, "python -m benchmarks.usage", Use)] if path.exists() else []


def write_usage(uses: Iterable[Use], path: Path = LIBRARY / USAGE) -> None:
    """Write uses, by rule and model."""
    _write(path, "".join(json.dumps(asdict(u)) + "\n" for u in sorted(uses, key=lambda u: (u.rule, u.model))))


def read_dropped(path: Path = LIBRARY / DROPPED) -> list[Drop]:
    """The rules that pruning left out, none if there is no file; RuleError with the line of a faulty record."""
    records = _records(path, "eqsat rules build", Drop) if path.exists() else []
    return [Drop(r["name"], r["text"], r["why"], tuple(r["by"]), r["phase"]) for r in records]


def read_counts(path: Path = LIBRARY / COUNTS) -> dict[str, Any]:
    """The counts of each stage; empty where there is no file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def read_missing(path: Path = LIBRARY / MISSING) -> list[dict[str, str]]:
    """The rules that hold wherever they were tried but lack a law; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ordered(rules: Sequence[Rule], uses: Iterable[Use] = ()) -> list[Rule]:
    """Rules by phase; within one, those first that results owe most to, then those that fire most, then small ones."""
    chosen: dict[str, int] = {}
    fired: dict[str, int] = {}
    for use in uses:
        chosen[use.rule] = chosen.get(use.rule, 0) + use.chosen
        fired[use.rule] = fired.get(use.rule, 0) + use.fired

    def worth(rule: Rule) -> tuple[Any, ...]:
        pays = -chosen.get(rule.name, 0), -fired.get(rule.name, 0)
        return PHASES.index(rule.phase), *pays, RuleStatement.of(rule).effort, rule.name

    return sorted(rules, key=worth)


def rules_text(rules: Sequence[Rule], head: str = _HEAD) -> str:
    """The rules as a file of rules, in this order."""
    lines = [head.rstrip()]
    phase = ""
    for rule in rules:
        if rule.phase != phase:
            phase = rule.phase
            lines += ["", f"%phase {phase}"]
        laws = f" (law {', '.join(map(str, rule.laws))})" if rule.laws else ""
        lines.append(f"{rule.name}{laws}: {rule.text}")
    return "\n".join(lines) + "\n"


def dropped_text(pruned: Pruned) -> str:
    """The rules that were dropped, by name, as JSON lines."""
    drops = sorted(pruned.dropped.values(), key=lambda d: d.name)
    return "".join(json.dumps(asdict(d), ensure_ascii=False) + "\n" for d in drops)


def write_library(
    pruned: Pruned,
    evidence: Mapping[str, Evidence],
    counts: Mapping[str, Any],
    missing: Iterable[Mapping[str, str]],
    folder: Path,
    uses: Iterable[Use] = (),
) -> list[Rule]:
    """Write the rules that stay, in order, their evidence, the dropped ones, the counts, and rules that lack a law."""
    rules = ordered(pruned.kept, uses)
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(asdict(evidence[r.name]), ensure_ascii=False) + "\n" for r in rules)
    _write(folder / EVIDENCE, "".join(lines))
    _write(folder / DROPPED, dropped_text(pruned))
    _write(folder / MISSING, "".join(json.dumps(m, ensure_ascii=False) + "\n" for m in missing))
    _write(folder / COUNTS, json.dumps(counts, indent=1) + "\n")
    _write(folder / RULES, rules_text(rules))
    return rules


def _records(path: Path, command: str, kind: type[Any]) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            kind(**record)
        except (TypeError, ValueError) as error:
            raise RuleError(
                f"no record of {kind.__name__.lower()}: {error}",
                where=f"{path}:{number}",
                expected="one JSON object a line",
                remedy=f"run `{command}`",
            ) from None
        found.append(record)
    return found


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
