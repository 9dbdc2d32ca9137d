"""The discovery pipeline: generate, verify, prune, write; and its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.rewrites.discovery.equations.candidate import STATUSES, CandidateEquation, CandidateOutcome, verified_rules
from eqsat.rewrites.discovery.equations.canonical import canonical
from eqsat.rewrites.discovery.equations.sides import RuleStatement
from eqsat.rewrites.discovery.journal import Follow, Journal, subject_of
from eqsat.rewrites.discovery.library import PUBLISHED_REDUCTION, Use, write_library
from eqsat.rewrites.discovery.prune import Pruned, entailed, prune
from eqsat.rewrites.discovery.verification import verify_candidates
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.rule import Rule

if TYPE_CHECKING:
    from eqsat.rewrites.discovery.enumerate.generate import GenerationSettings


@dataclass(frozen=True)
class Built:
    """A library as it was made: its rules in order, those dropped, and the counts of each stage."""

    rules: tuple[Rule, ...]
    pruned: Pruned
    counts: Mapping[str, Any]


def build(
    settings: GenerationSettings,
    folder: Path,
    *,
    laws: Sequence[Rule] | None = None,
    beyond_laws: bool = False,
    uses: Iterable[Use] = (),
    executor: Executor | None = None,
    progress: Follow | None = None,
    work: Path | None = None,
) -> Built:
    """Make a library and write it into a folder; the same settings give the same files.

    `laws` are those that rules must follow from, by default the derived and hand-written ones. A library stands alone:
    what it leaves out follows from what it keeps; `beyond_laws` makes one of what laws, run as rules, do not reach.
    Under `work`, an existing folder, finished steps are kept until all is done, so that the same call goes on where one
    was interrupted.
    """
    from eqsat.rewrites.discovery.enumerate.generate import generate
    from eqsat.rewrites.rules.loader import laws as shipped_laws

    known = tuple(shipped_laws() if laws is None else laws)
    resume = None if work is None else work / "generate"
    generated = generate(settings, executor=executor, progress=progress, resume=resume)
    subject = subject_of(
        [str(beyond_laws), *(c.text for c in generated.candidates), *(f"{r.name}: {r.text}" for r in known)]
    )
    with Journal(None if work is None else work / "verify.partial", subject) as journal:
        return assemble(
            generated.candidates,
            generated.counts,
            known,
            folder,
            beyond_laws=beyond_laws,
            uses=uses,
            executor=executor,
            journal=journal,
            progress=progress,
        )


def assemble(
    candidates: Iterable[CandidateEquation],
    generated: Mapping[str, Any],
    laws: Sequence[Rule],
    folder: Path,
    *,
    beyond_laws: bool = False,
    uses: Iterable[Use] = (),
    executor: Executor | None = None,
    journal: Journal | None = None,
    progress: Follow | None = None,
) -> Built:
    """Verify and prune candidates, and write the remaining rules into a folder."""
    known = laws if beyond_laws else ()
    outcomes = list(
        verify_candidates(candidates, laws, known=known, executor=executor, journal=journal, progress=progress)
    )
    verified = verified_rules(outcomes, on_request=not beyond_laws)
    evidence = {name: record for name, (_, record) in verified.items()}
    check = entailed(laws)

    def proved(rule: Rule) -> Evidence:
        evidence[rule.name] = check(rule)
        return evidence[rule.name]

    pruned = prune([r for r, _ in verified.values()], known, verify=proved, journal=journal, progress=progress)
    for rule in pruned.kept:
        if rule.name not in evidence:  # its verdict came out of the journal
            proved(rule)
    counts = {"generated": dict(generated), **stage_counts(outcomes, pruned, generated)}
    rules = write_library(pruned, evidence, counts, plausible(outcomes), folder, uses)
    return Built(tuple(rules), pruned, counts)


def stage_counts(outcomes: Sequence[CandidateOutcome], pruned: Pruned, generated: Mapping[str, Any]) -> dict[str, Any]:
    """The number of candidates and rules that each stage was given and let through."""
    statuses = Counter(o.status for o in outcomes)
    verdicts = Counter(_verdict(e) for o in outcomes for e in o.evidence)
    remaining = len(pruned.kept)
    return {
        "candidates": {"all": len(outcomes), **{s: statuses[s] for s in STATUSES}},
        "rules": {v: verdicts[v] for v in ("proved", "not entailed", "undecided", "refuted")},
        "pruned": pruned.counts(),
        "reduction": round(generated["candidates"] / remaining, 1) if remaining else None,
        "published_reduction": PUBLISHED_REDUCTION,
    }


def _verdict(evidence: Evidence) -> str:
    if evidence.verdict == "proved" and not evidence.entailed:
        return "not entailed"
    return evidence.verdict


def plausible(outcomes: Iterable[CandidateOutcome]) -> list[dict[str, str]]:
    """Rules that hold wherever they were tried but follow from no laws, each with the law that would prove it.

    Of a rule and its inverse the first stands for both.
    """
    records: dict[str, dict[str, str]] = {}
    for outcome in outcomes:
        for rule, evidence in outcome.as_rules():
            if _verdict(evidence) == "not entailed":
                key = canonical(replace(RuleStatement.of(rule), conditions=()), directed=False)
                record = {"name": rule.name, "phase": rule.phase, "text": rule.text, "missing": evidence.missing}
                records.setdefault(key, record)
    return sorted(records.values(), key=lambda record: record["text"])
