"""Candidate equations, equal at one choice of shapes and attributes, the outcomes of their checks, and their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eqsat.rewrites.rules.evidence import Evidence, json_lines, read_json_lines, write_json_lines
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class CandidateEquation:
    """Two graphs with equal outputs on random data, at the shapes in `shapes` and with the attributes written out.

    `left` and `right` hold one term an output, in the syntax of rules with literal attributes, such as
    ``transpose(x, perm=(1, 0))``; the right side may be a single ``split(…)`` that yields every output in order. A part
    of a split that stands alone is written as a ``slice``. Variables are named x, y, z, … in the order in which the
    left side meets them, and the right side uses no others. `left_ops` and `right_ops` count distinct operators.
    `lossy` says by how much the two differ in float32 beyond rounding, 0.0 where they do not.
    """

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    left_ops: int
    right_ops: int
    fingerprint: str = ""
    lossy: float = 0.0
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, record: dict[str, Any]) -> CandidateEquation:
        """The candidate of a record of JSON; KeyError or TypeError where it is of none."""
        sides = {side: tuple(record[side]) for side in ("left", "right")}
        return cls(**record | sides | {"shapes": {name: tuple(shape) for name, shape in record["shapes"].items()}})

    @property
    def text(self) -> str:
        """The equation as one line in the syntax of rules, without conditions."""
        return f"{self.name}: {', '.join(self.left)} => {', '.join(self.right)}"


def read_candidates(path: Path) -> Iterator[CandidateEquation]:
    """The candidates of a file of JSON lines; RuleError with the line for one that is none."""
    return read_json_lines(path, CandidateEquation.of, "candidate", "the generator", "run `eqsat rules generate` again")


def write_candidates(candidates: Iterable[CandidateEquation], path: Path) -> None:
    """Write the candidates, in order, in place of the file."""
    write_json_lines(candidates, path)


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

    @classmethod
    def of(cls, record: dict[str, Any]) -> CandidateOutcome:
        """The outcome of a record of JSON; KeyError or TypeError where it is of none."""
        return cls(
            name=record["name"],
            text=record["text"],
            status=record["status"],
            by=tuple(record["by"]),
            rules=tuple((str(n), str(p), str(t)) for n, p, t in record["rules"]),
            evidence=tuple(Evidence.of(e) for e in record["evidence"]),
        )

    def as_rules(self) -> Iterator[tuple[Rule, Evidence]]:
        """The rules that generalise it, with their evidence."""
        for (name, phase, text), evidence in zip(self.rules, self.evidence, strict=True):
            (rule,) = parse_rules(f"%phase {phase}\n{name}: {text}", self.name, origin="candidate")
            yield rule, evidence


def verified_rules(outcomes: Iterable[CandidateOutcome], on_request: bool = True) -> dict[str, tuple[Rule, Evidence]]:
    """The proved rules of all candidates by name, each once; `on_request` with those that only run on request."""
    pairs = (pair for outcome in outcomes for pair in outcome.as_rules())
    return {
        rule.name: (rule, evidence)
        for rule, evidence in pairs
        if is_proved(evidence) and (on_request or rule.phase != "associate")
    }


def is_proved(evidence: Evidence) -> bool:
    """Return whether a rule holds on every instance and follows from the laws."""
    return evidence.verdict == "proved" and bool(evidence.entailed)


def read_outcomes(path: Path) -> Iterator[CandidateOutcome]:
    """The outcomes of a file of JSON lines; RuleError with the line for one that is none."""
    remedy = "run `eqsat rules verify CANDIDATES.jsonl -o VERIFIED.jsonl`"
    return read_json_lines(path, CandidateOutcome.of, "verified candidate", "the verifier", remedy)


def written_outcomes(outcomes: Iterable[CandidateOutcome]) -> str:
    """The outcomes as JSON lines."""
    return json_lines(outcomes)
