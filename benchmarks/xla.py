"""Proves the rules of XLA's algebraic simplifier for every size: ``python -m benchmarks.xla``.

Those that TensorRight publishes (POPL 2025, Apache-2.0) are restated in `benchmarks/rules/xla.rules`, others of XLA's
own source (openxla/xla, Apache-2.0) in `benchmarks/rules/xla_simplifier.rules`. Either file names rules that the
operators of eqsat cannot state. The two are counted apart.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
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

RULES = Path(__file__).parent / "rules"
#: The files of rules by where these are from.
SOURCES = {"TensorRight": "xla.rules", "algebraic_simplifier.cc": "xla_simplifier.rules"}
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


def told(rules: Sequence[Rule], text: str, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is written of the rules of one source."""
    seconds = [record["seconds"] for record in records]
    return {
        "stated": len(rules),
        "not stated": not_stated(text),
        "scopes": dict(Counter(record["scope"] for record in records).most_common()),
        "seconds": {"median": statistics.median(seconds), "most": max(seconds), "sum": round(sum(seconds), 1)},
        "records": list(records),
    }


@click.command()
@click.option("--questions", default=QUESTIONS, show_default=True, help="Questions to Z3 for one rule.")
@click.option(
    "--source", type=click.Choice(list(SOURCES)), help="Only rules from here, beside what OUTPUT has of others."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, help=f"[{RESULT.name}]")
def main(questions: int, source: str | None, output: Path) -> None:
    """Prints and writes which of XLA's rules are proved, and for which ranks and sizes."""
    sources = json.loads(output.read_text())["sources"] if source and output.exists() else {}
    for one in [source] if source else list(SOURCES):
        name = SOURCES[one]
        text = (RULES / name).read_text(encoding="utf-8")
        rules = parse_rules(text, name, origin="candidate")
        followed = track(rules, f"proving those of {one}", console=Console(stderr=True))
        sources[one] = told(rules, text, [proved(rule, questions) for rule in followed])
    scopes = {one: Counter(of["scopes"]) for one, of in sources.items()}
    total = sum(scopes.values(), Counter[str]())
    written = {"stated": total.total(), "questions": questions, "scopes": dict(total.most_common()), "sources": sources}
    output.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    counts = ", ".join(f"{of['stated']} of {one}" for one, of in sources.items())
    shown = Table("proved for", "rules", *sources, title=f"{total.total()} rules of XLA: {counts}")
    for scope, count in total.most_common():
        shown.add_row(scope, str(count), *(str(scopes[one][scope]) for one in sources))
    Console().print(shown)


if __name__ == "__main__":
    main()
