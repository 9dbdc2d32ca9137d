"""Tries what every condition of the shipped rules is for: ``python -m benchmarks.conditions --jobs 2``.

Each rule is judged without one of its conditions: refuted, so that the condition is needed, or shown to say no more
that is not true, so that it is not: the other conditions imply it, or the sides are proved equal for every size where
it does not hold. Conditions about constants say where a rule pays and change no element. Those about kinds of numbers
keep out infinities, integers and types that are not tried exhaustively: "redundant" is said there of real numbers.
What is found is kept line by line beside the result until all have been tried, so that an interrupted run goes on.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.rules.dropping import dropped
from benchmarks.rules.journal import journalled
from benchmarks.rules.mutation import Mutant, mutants, sample
from benchmarks.rules.needed import subject, verdict
from eqsat.rewrites.rules.loader import shipped_rules

RESULT = Path(__file__).parent / "results" / "conditions.json"
DROPPED = "condition dropped"
VERDICTS = ("refuted", "redundant", "undecided")


def judged(mutant: Mutant) -> dict[str, Any]:
    """The verdict on one rule that lacks a condition, and the processor seconds that it took."""
    (rule,) = (one for one in shipped_rules() if one.name == mutant.origin)
    began = time.process_time()
    found, why = verdict(rule, mutant.rule)
    return {
        "text": mutant.rule.text,
        "origin": mutant.origin,
        "subject": subject(dropped(rule, mutant.rule)),
        "verdict": found,
        "why": why,
        "seconds": round(time.process_time() - began, 2),
    }


@click.command()
@click.option("--count", type=int, help="How many conditions, spread over all there are.  [default: all]")
@click.option("--seed", default=1, show_default=True, help="Which of them.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--so-far", is_flag=True, help="Only those that an interrupted run has judged, which can still go on.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, show_default=True)
def main(count: int | None, seed: int, jobs: int, so_far: bool, output: Path) -> None:
    """Prints and writes which conditions of shipped rules are needed, by what they are about."""
    found = [mutant for mutant in mutants(shipped_rules()) if mutant.kind == DROPPED]
    chosen = found if count is None else sample(found, count, seed)
    journal = output.with_suffix(".jsonl")
    if so_far:
        known = {json.loads(line)["text"] for line in journal.read_text(encoding="utf-8").splitlines()}
        chosen = [mutant for mutant in chosen if mutant.rule.text in known]
    records = journalled(chosen, judged, journal, jobs)
    counts = Counter((record["subject"], record["verdict"]) for record in records)
    subjects = sorted({record["subject"] for record in records})
    table = {name: {verdict: counts[name, verdict] for verdict in VERDICTS} for name in subjects}
    result = {
        "conditions": len(found),
        "tried": len(records),
        "seed": seed,
        "table": table,
        "seconds": round(sum(record["seconds"] for record in records), 1),
        "undecided": [record for record in records if record["verdict"] == "undecided"],
        "redundant": [record for record in records if record["verdict"] == "redundant"],
    }
    output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if not so_far:
        journal.unlink()
    shown = Table("a condition about", *VERDICTS, title=f"{len(records)} of {len(found)} conditions, each left out")
    for name, row in table.items():
        shown.add_row(name, *(str(row[verdict]) for verdict in VERDICTS))
    Console().print(shown)


if __name__ == "__main__":
    main()
