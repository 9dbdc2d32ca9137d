"""Makes the evidence of the shipped rules: ``python -m eqsat.rewrites.verify``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from eqsat.rewrites.evidence import SHIPPED, Evidence, is_current, write_evidence
from eqsat.rewrites.loader import LIBRARY, shipped_evidence, shipped_rules
from eqsat.rewrites.rule import Rule


def verify(rules: Sequence[Rule], known: dict[str, Evidence] | None = None) -> Iterable[Evidence]:
    """Evidence for each rule in turn; a current record in `known` is taken over without checking again."""
    from eqsat.rewrites.check import check

    for rule in rules:
        record = (known or {}).get(rule.name)
        yield record if record is not None and is_current(rule, record) else check(rule)


def verify_rule(rule: Rule, laws: Sequence[Rule]) -> Evidence:
    """Both kinds of evidence: the checks on instances and, where these hold, whether laws entail the rule."""
    from eqsat.rewrites.check import check
    from eqsat.rewrites.entail import entail

    evidence = check(rule)
    if evidence.verdict != "proved":
        return evidence
    found = entail(rule, laws)
    if found.verdict != "proved":
        return replace(evidence, missing=found.missing)
    return replace(evidence, entailed=found.method, laws=found.laws, chain=found.chain)


def write_shipped(rules: Sequence[Rule], records: Mapping[str, Evidence]) -> None:
    """Writes what is known of the shipped rules: the library's beside it, that of all other rules beside the axioms."""
    for path, library in ((SHIPPED, False), (LIBRARY / "evidence.jsonl", True)):
        group = [records[r.name] for r in rules if (r.origin == "library") == library and r.name in records]
        if group:
            write_evidence(group, path)


def main(arguments: Sequence[str] = ()) -> int:
    """Checks the shipped rules and writes the record; with ``--stale`` only those whose record is out of date.

    Returns 1 where a rule is refuted or undecided, after saying which and why.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console()
    rules = shipped_rules()
    known = shipped_evidence() if "--stale" in arguments else None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    records: list[Evidence] = []
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("checking rules", total=len(rules))
        for record in verify(rules, known):
            records.append(record)
            progress.update(task, advance=1, description=record.name[:40])
            if record.verdict != "proved":
                console.print(f"{record.name}: {record.verdict}: {record.detail}", markup=False)
    write_shipped(rules, {r.name: r for r in records})
    proved = sum(r.verdict == "proved" for r in records)
    instances = sum(r.symbolic for r in records), sum(r.numeric for r in records)
    console.print(
        f"{proved} of {len(records)} rules proved: {instances[0]} instances by Z3, {instances[1]} in float64, "
        f"{sum(r.exact for r in records)} of them modulo a prime as well"
    )
    return int(proved < len(records))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
