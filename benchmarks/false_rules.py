"""Puts 200 false rules that people write to the prover: ``python -m benchmarks.false_rules``.

Each rule of `benchmarks/rules/false` has a witness on which ONNX's reference evaluator finds its sides different, so
that none may be proved. `prove` is what `eqsat rules prove` says of a rule, by the shipped rules; `check` is what a
user's rule must pass before `load_rules` takes it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rules.witnesses import FalseRule, false_rules
from eqsat.errors import RuleError
from eqsat.rewrites.proof.check import check, check_types
from eqsat.rewrites.proof.prove import LIMITS, Proof, prove
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.rule import Rule

RESULT = Path(__file__).parent / "results" / "false_rules.json"
VERDICTS = ("refuted", "undecided", "proved", "failed")


def judged(false: FalseRule, rules: Sequence[Rule], seconds: float) -> dict[str, Any]:
    """What `prove` and `check` say of one false rule, in how many seconds of the processor."""
    limits = replace(LIMITS, seconds=seconds)
    checked = _verdict(lambda: check(false.rule))
    return {
        "name": false.rule.name,
        "kind": false.kind,
        "text": false.rule.text,
        "differs": false.difference(),
        "prove": _verdict(lambda: prove(false.rule, rules, limits)),
        "check": checked,
        "loads": checked["verdict"] == "proved" and _types_agree(false.rule),
    }


def _verdict(judge: Callable[[], Proof | Evidence]) -> dict[str, Any]:
    """A verdict with its reason; "failed" where there is none but an error, which is not to hide the other rules."""
    start = time.process_time()
    try:
        said = judge()
        verdict, detail = said.verdict, said.detail
        if isinstance(said, Proof):
            detail = detail or said.counterexample
    except Exception as error:
        verdict, detail = "failed", f"{type(error).__name__}: {error}"
    return {"verdict": verdict, "detail": detail, "seconds": round(time.process_time() - start, 3)}


def _types_agree(rule: Rule) -> bool:
    """What a rule must pass before it is checked, when it is read as a user's own."""
    try:
        check_types(rule)
    except RuleError:
        return False
    return True


def table(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind and of all: verdicts of `prove` and `check` with their seconds, and how many rules load."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        for kind in (record["kind"], "all"):
            groups.setdefault(kind, []).append(record)
    kinds = sorted(groups, key=lambda kind: (kind == "all", kind))
    return {kind: {**_verdicts(groups[kind]), "load": sum(r["loads"] for r in groups[kind])} for kind in kinds}


def _verdicts(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for door in ("prove", "check"):
        counts = Counter(r[door]["verdict"] for r in records)
        columns |= {f"{door}: {verdict}": counts[verdict] for verdict in VERDICTS}
        columns[f"{door}: s"] = round(sum(r[door]["seconds"] for r in records), 1)
    return columns


@click.command()
@click.option("--kind", "kinds", multiple=True, help="One kind, a file of benchmarks/rules/false. [all]")
@click.option("--time-limit", default=10.0, show_default=True, help="Seconds that `prove` may take for one rule.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"[{RESULT.name} for all kinds]")
def main(kinds: tuple[str, ...], time_limit: float, output: Path | None) -> None:
    """Prints and writes what becomes of false rules; fails where one is proved."""
    chosen = [one for one in false_rules() if not kinds or one.kind in kinds]
    rules = list(load_rules())
    steps = track(chosen, "judging false rules", console=Console(stderr=True))
    records = [judged(one, rules, time_limit) for one in steps]
    counts = table(records)
    wrong = [r["name"] for r in records if "proved" in (r["prove"]["verdict"], r["check"]["verdict"])]
    if output is not None or not kinds:
        result = {"rules": len(records), "time limit": time_limit, "table": counts, "proved": wrong, "records": records}
        (output or RESULT).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    _show(counts)
    if wrong:
        raise click.ClickException(f"{len(wrong)} false rules are proved: {', '.join(wrong)}")


def _show(counts: dict[str, dict[str, Any]]) -> None:
    shown = Table("kind", *next(iter(counts.values()), {}))
    for kind, row in counts.items():
        shown.add_row(kind, *map(str, row.values()))
    Console().print(shown)


if __name__ == "__main__":
    main()
