"""Outcomes of candidates, and their file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.json_lines import json_lines, read_json_lines
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule

#: Statuses of a candidate: it computes with constants alone, which no program does when it runs; it is another but for
#: names and order, or a case of another at its shapes; known rules derive it; it saves work in neither direction, so
#: that a rule of it would only grow graphs; it is large, and laws do not derive it even on request, mostly because they
#: lack something small; rules that generalise it are proved; they hold wherever they were tried, but no law entails
#: them; no rule that generalises it holds, or none generalises it.
CONSTANT, REPEATED, DERIVED, NEUTRAL, OPEN = "constant", "repeated", "derived", "neutral", "open"
PROVED, PLAUSIBLE, FAILED = "proved", "plausible", "failed"
STATUSES = (CONSTANT, REPEATED, DERIVED, NEUTRAL, OPEN, PROVED, PLAUSIBLE, FAILED)


@dataclass(frozen=True)
class CandidateOutcome:
    """The result for one candidate.

    `by` names the rules or the candidate that stand for it; `rules` are name, phase and text of those that generalise
    it, `evidence` what was found out about each.
    """

    name: str
    text: str
    status: str
    by: tuple[str, ...] = ()
    rules: tuple[tuple[str, str, str], ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def as_rules(self) -> Iterator[tuple[Rule, Evidence]]:
        """The rules that generalise it, with their evidence."""
        for (name, phase, text), evidence in zip(self.rules, self.evidence, strict=True):
            (rule,) = parse_rules(f"%phase {phase}\n{name}: {text}", self.name, origin="candidate")
            yield rule, evidence


def verified_rules(outcomes: Iterable[CandidateOutcome], on_request: bool = True) -> dict[str, tuple[Rule, Evidence]]:
    """The proved rules of all candidates by name, each once; `on_request` with those that only run on request."""
    found = (pair for outcome in outcomes for pair in outcome.as_rules())
    return {
        rule.name: (rule, evidence)
        for rule, evidence in found
        if is_proved(evidence) and (on_request or rule.phase != "associate")
    }


def is_proved(evidence: Evidence) -> bool:
    """Return whether a rule holds on every instance and follows from the laws."""
    return evidence.verdict == "proved" and bool(evidence.entailed)


def as_record(outcome: CandidateOutcome) -> dict[str, Any]:
    """The outcome as plain values."""
    return asdict(outcome)


def from_record(record: dict[str, Any]) -> CandidateOutcome:
    """The outcome of plain values; KeyError or TypeError where they are of none."""
    return CandidateOutcome(
        name=record["name"],
        text=record["text"],
        status=record["status"],
        by=tuple(record["by"]),
        rules=tuple((str(n), str(p), str(t)) for n, p, t in record["rules"]),
        evidence=tuple(Evidence.of(e) for e in record["evidence"]),
    )


def read_outcomes(path: Path) -> Iterator[CandidateOutcome]:
    """The outcomes of a file of JSON lines; RuleError with the line for one that is none."""
    remedy = "run `eqsat rules verify CANDIDATES.jsonl -o VERIFIED.jsonl`"
    return read_json_lines(path, from_record, "verified candidate", "the verifier", remedy)


def written_outcomes(outcomes: Iterable[CandidateOutcome]) -> str:
    """The outcomes as JSON lines."""
    return json_lines(outcomes)
