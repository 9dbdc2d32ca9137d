"""Proves the rules of XLA's algebraic simplifier for every size: ``python -m benchmarks.xla``.

They are those that TensorRight publishes (POPL 2025, Apache-2.0), restated in `benchmarks/rules/xla.rules`, where those
that the operators of eqsat cannot state are named as well.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from eqsat.rewrites.proof.sizes import QUESTIONS, prove_sizes
from eqsat.rewrites.rules.evidence import sizes_proved
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule

RULES = Path(__file__).parent / "rules" / "xla.rules"
RESULT = Path(__file__).parent / "results" / "xla.json"
NOT_PROVED = "not proved"
_NOT_STATED = "# not stated: "


def proved(rule: Rule, questions: int) -> dict[str, Any]:
    """The sizes that a rule is proved for, why no more, and the processor seconds that this took."""
    began = time.process_time()
    proof = prove_sizes(rule, questions)
    return {
        "name": rule.name,
        "scope": sizes_proved(proof.rank, proof.every_rank) if proof.is_proved else NOT_PROVED,
        "open": proof.open,
        "seconds": round(time.process_time() - began, 2),
    }


def not_stated(text: str) -> list[str]:
    """The rules, with reasons, that a file of rules says it does not state."""
    return [line.removeprefix(_NOT_STATED) for line in text.splitlines() if line.startswith(_NOT_STATED)]


@click.command()
@click.option("--questions", default=QUESTIONS, show_default=True, help="Questions to Z3 for one rule.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, help=f"[{RESULT.name}]")
def main(questions: int, output: Path) -> None:
    """Prints and writes which of XLA's rules are proved, and for which ranks and sizes."""
    text = RULES.read_text(encoding="utf-8")
    rules = parse_rules(text, RULES.name, origin="candidate")
    records = [proved(rule, questions) for rule in track(rules, "proving", console=Console(stderr=True))]
    scopes = Counter(record["scope"] for record in records)
    seconds = [record["seconds"] for record in records]
    told = {
        "stated": len(rules),
        "not stated": not_stated(text),
        "questions": questions,
        "scopes": dict(scopes.most_common()),
        "seconds": {"median": statistics.median(seconds), "most": max(seconds), "sum": round(sum(seconds), 1)},
    }
    output.write_text(json.dumps({**told, "records": records}, indent=1, ensure_ascii=False) + "\n")
    shown = Table("proved for", "rules", title=f"{len(rules)} rules of XLA, {len(not_stated(text))} not stated")
    for scope, count in scopes.most_common():
        shown.add_row(scope, str(count))
    Console().print(shown)


if __name__ == "__main__":
    main()
