"""Tries whether the verifier refuses false rules: ``python -m benchmarks.mutants --count 2500 --jobs 2``.

Every shipped rule is changed in one place; ONNX's reference evaluator, which shares no operator reference with the
verifier, says which of these mutants are false on instances that the verifier has not seen, and the verifier must prove
none of them. What is found is kept line by line beside the result until all mutants have been tried, so that an
interrupted run goes on where it stood.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.rules.falsity import falsity
from benchmarks.rules.journal import journalled
from benchmarks.rules.mutation import Mutant, mutants, sample
from eqsat.rewrites.proof.check import THOROUGH, Effort, check
from eqsat.rewrites.rules.loader import shipped_rules

RESULT = Path(__file__).parent / "results" / "mutants.json"
#: What the verifier does first, and for mutants that nobody found false; most are refuted on their first instances.
LIGHT = Effort(symbolic=4)
#: The seed of the instances on which falsity is decided, which is not the verifier's.
SEED = 20
COLUMNS = ("false, refused", "false, undecided", "false, proved", "not shown false, refused", "undecided", "proved")


def judged(mutant: Mutant, instances: int = 9) -> dict[str, Any]:
    """What the evaluator and the verifier say of one mutant."""
    false = falsity(mutant.rule, instances, SEED)
    verdict = check(mutant.rule, LIGHT).verdict
    if verdict != "refuted" and false is not None:
        verdict = check(mutant.rule, THOROUGH).verdict
    return {"text": mutant.rule.text, "origin": mutant.origin, "kind": mutant.kind, "false": false, "verdict": verdict}


def column(record: dict[str, Any]) -> str:
    """In which column of the table a mutant counts."""
    verdict: str = record["verdict"]
    if record["false"] is not None:
        return f"false, {'refused' if verdict == 'refuted' else verdict}"
    return "not shown false, refused" if verdict == "refuted" else verdict


def table(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts by kind of change and column, and of all."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        for kind in (record["kind"], "all"):
            counts.setdefault(kind, Counter())[column(record)] += 1
    kinds = sorted(counts, key=lambda k: (k == "all", k))
    return {kind: {name: counts[kind][name] for name in COLUMNS} for kind in kinds}


@click.command()
@click.option("--count", type=int, default=2500, show_default=True, help="How many mutants, spread over all there are.")
@click.option("--seed", default=1, show_default=True, help="Which of them.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, show_default=True)
def main(count: int, seed: int, jobs: int, output: Path) -> None:
    """Judges mutants of the shipped rules; fails where a false one is proved."""
    journal = output.with_suffix(".jsonl")
    found = list(mutants(shipped_rules()))
    chosen = sample(found, count, seed)
    records = journalled(chosen, judged, journal, jobs)
    wrong = [r for r in records if column(r) == "false, proved"]
    unsettled = [r for r in records if r["verdict"] == "undecided"]
    counts = table(records)
    result = {
        "mutants": len(found),
        "tried": len(records),
        "seed": seed,
        "table": counts,
        "wrong": wrong,
        "undecided": unsettled,
    }
    output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    journal.unlink()
    _show(counts)
    if wrong:
        raise click.ClickException(f"{len(wrong)} false mutants are proved; see {output}")


def _show(counts: dict[str, dict[str, int]]) -> None:
    shown = Table("change", *COLUMNS)
    for kind, row in counts.items():
        shown.add_row(kind, *(str(row[name]) for name in COLUMNS))
    Console().print(shown)


if __name__ == "__main__":
    main()
