"""The library of generated rules: its files, its order, and the laws that it rests on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqsat.rewrites.discovery.equations.sides import RuleStatement
from eqsat.rewrites.discovery.prune import Drop, Pruned
from eqsat.rewrites.rules.evidence import Evidence, json_lines, read_evidence, read_json_lines, write_json_lines
from eqsat.rewrites.rules.loader import LIBRARY, shipped_evidence, shipped_rules
from eqsat.rewrites.rules.rule import PHASES, Rule
from eqsat.system.files import write_text

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
    if not path.exists():
        return []
    return list(read_json_lines(path, lambda r: Use(**r), "record of use", "", "run `python -m benchmarks.usage`"))


def write_usage(uses: Iterable[Use], path: Path = LIBRARY / USAGE) -> None:
    """Write uses, by rule and model."""
    write_json_lines(sorted(uses, key=lambda u: (u.rule, u.model)), path)


def read_dropped(path: Path = LIBRARY / DROPPED) -> list[Drop]:
    """The rules that pruning left out, none if there is no file; RuleError with the line of a faulty record."""
    if not path.exists():
        return []

    def make(record: dict[str, Any]) -> Drop:
        return Drop(**{**record, "by": tuple(record["by"])})

    return list(read_json_lines(path, make, "record of drop", "", "run `eqsat rules build`"))


def read_counts(path: Path = LIBRARY / COUNTS) -> dict[str, Any]:
    """The counts of each stage; empty where there is no file."""
    counts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return counts


def read_missing(path: Path = LIBRARY / MISSING) -> list[dict[str, str]]:
    """The rules that hold wherever they were tried but lack a law; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ordered(rules: Sequence[Rule], uses: Iterable[Use] = ()) -> list[Rule]:
    """Rules by phase; within one, those first that results owe most to, then those that fire most, then small ones."""
    chosen, fired = Counter[str](), Counter[str]()
    for use in uses:
        chosen[use.rule] += use.chosen
        fired[use.rule] += use.fired

    def worth(rule: Rule) -> tuple[Any, ...]:
        pays = -chosen[rule.name], -fired[rule.name]
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
    return json_lines(sorted(pruned.dropped.values(), key=lambda d: d.name))


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
    write_json_lines((evidence[r.name] for r in rules), folder / EVIDENCE)
    write_text(folder / DROPPED, dropped_text(pruned))
    write_json_lines(missing, folder / MISSING)
    write_text(folder / COUNTS, json.dumps(counts, indent=1) + "\n")
    write_text(folder / RULES, rules_text(rules))
    return rules


def account(folder: Path = LIBRARY) -> dict[str, Any]:
    """The counts of each stage, laws by how many rules rest on them, rules without a law, and those written by hand."""
    evidence = read_evidence(folder / EVIDENCE)
    shipped = shipped_evidence()
    laws = Counter(law for e in evidence.values() for law in e.laws)
    rules = shipped_rules()
    axioms = [r for r in rules if r.origin == "axiom"]
    return {
        "counts": read_counts(folder / COUNTS),
        "library": len(evidence),
        "methods": dict(sorted(Counter(e.entailed or "none" for e in evidence.values()).items())),
        "instances": {
            "symbolic": sum(e.symbolic for e in evidence.values()),
            "numeric": sum(e.numeric for e in evidence.values()),
            "bounded": sum(e.bounded for e in evidence.values()),
            "exhaustive": sum(e.exhaustive for e in evidence.values()),
        },
        "scopes": dict(Counter(shipped[r.name].scope for r in rules if r.name in shipped).most_common()),
        "numbers": dict(Counter(shipped[r.name].bits for r in rules if r.name in shipped).most_common()),
        "laws_used": dict(sorted(laws.items(), key=lambda item: (-item[1], item[0]))),
        "missing": read_missing(folder / MISSING),
        "by_hand": [{"name": r.name, "text": r.text, "reason": r.reason} for r in axioms],
        "derived": sum(r.origin == "derived" for r in rules),
    }
