"""Puts 200 false rules that people write to the prover: ``python -m benchmarks.false_rules``.

Each rule of `benchmarks/rules/false` has a witness on which ONNX's reference evaluator finds its sides different, so
that none may be proved, under whatever names. `prove` is what `eqsat rules prove` says of a rule, by the shipped rules;
`check` is what a user's rule must pass before `load_rules` takes it.
"""

from __future__ import annotations

import json
import re
import statistics
import string
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rules.witnesses import FalseRule, false_rules
from eqsat.errors import RuleError
from eqsat.rewrites.instances.mismatch import check_types
from eqsat.rewrites.proof.check import check
from eqsat.rewrites.proof.prove import LIMITS, Proof, prove
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule

RESULT = Path(__file__).parent / "results" / "false_rules.json"
#: From the one that a false rule should have to the one that it never may.
VERDICTS = ("refuted", "undecided", "failed", "proved")


def judged(false: FalseRule, rules: Sequence[Rule], seconds: float, renamings: int = 0) -> dict[str, Any]:
    """What `prove` and `check` say of one false rule, the worst that they say of it under other names as well."""
    limits = replace(LIMITS, seconds=seconds)
    forms = [false.rule, *(renamed(false.rule, index) for index in range(renamings))]
    checked = _worst([_verdict(partial(check, rule)) for rule in forms])
    return {
        "name": false.rule.name,
        "kind": false.kind,
        "text": false.rule.text,
        "differs": false.difference(),
        "prove": _worst([_verdict(partial(prove, rule, rules, limits)) for rule in forms]),
        "check": checked,
        "loads": checked["verdict"] == "proved" and _types_agree(false.rule),
    }


def renamed(rule: Rule, index: int) -> Rule:
    """The rule with other names for all that it binds: instances are drawn by its text, and may be luckier or not."""
    bound = "|".join(sorted(rule.tensors | rule.tensor_groups | rule.attrs | rule.attr_groups))
    name = re.compile(rf"(?<![\w.])({bound})(?!\w|=[^=]|\()")
    text = name.sub(rf"\1_{string.ascii_lowercase[index]}", rule.text)
    (other,) = parse_rules(f"{rule.name}: {text}", rule.where, origin=rule.origin)
    return other


def _verdict(judge: Callable[[], Proof | Evidence]) -> dict[str, Any]:
    """A verdict with its reason; "failed" where there is none but an error, which is not to hide the other rules."""
    start = time.process_time()
    try:
        said = judge()
        verdict, detail = said.verdict, said.detail
        if isinstance(said, Proof):
            detail = detail or said.counterexample
    except Exception as error:  # noqa: BLE001  (whatever it is, it is a finding)
        verdict, detail = "failed", f"{type(error).__name__}: {error}"
    return {"verdict": verdict, "detail": detail, "seconds": time.process_time() - start}


def _worst(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The verdict that is the least wanted of a false rule; all of them, and the mean of their seconds."""
    worst = max(verdicts, key=lambda v: VERDICTS.index(v["verdict"]))
    counts = dict(Counter(v["verdict"] for v in verdicts))
    return {**worst, "seconds": round(statistics.mean(v["seconds"] for v in verdicts), 3), "by names": counts}


def _types_agree(rule: Rule) -> bool:
    """What a rule must pass before it is checked, when it is read as a user's own."""
    try:
        check_types(rule)
    except RuleError:
        return False
    return True


def table(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind and of all: how many have each verdict of `prove` and of `check`, in what time, and how many load."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        for kind in (record["kind"], "all"):
            groups.setdefault(kind, []).append(record)
    kinds = sorted(groups, key=lambda kind: (kind == "all", kind))
    return {
        kind: {
            "prove": _counts([r["prove"] for r in groups[kind]]),
            "check": _counts([r["check"] for r in groups[kind]]),
            "load": sum(r["loads"] for r in groups[kind]),
        }
        for kind in kinds
    }


def _counts(judged: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counts = Counter(one["verdict"] for one in judged)
    seconds = [one["seconds"] for one in judged]
    times = {"seconds": round(sum(seconds), 1), "median": round(statistics.median(seconds), 3)}
    return {verdict: counts[verdict] for verdict in VERDICTS} | times


@click.command()
@click.option("--kind", "kinds", multiple=True, help="One kind, a file of benchmarks/rules/false. [all]")
@click.option("--time-limit", default=10.0, show_default=True, help="Seconds that `prove` may take for one rule.")
@click.option("--renamings", type=click.IntRange(0, 26), default=3, show_default=True, help="Other names to try.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"[{RESULT.name} for all kinds]")
def main(kinds: tuple[str, ...], time_limit: float, renamings: int, output: Path | None) -> None:
    """Prints and writes what becomes of false rules; fails where one is proved."""
    chosen = [one for one in false_rules() if not kinds or one.kind in kinds]
    rules = list(load_rules())
    steps = track(chosen, "judging false rules", console=Console(stderr=True))
    records = [judged(one, rules, time_limit, renamings) for one in steps]
    counts = table(records)
    wrong = [r["name"] for r in records if "proved" in (r["prove"]["verdict"], r["check"]["verdict"])]
    if output is not None or not kinds:
        told = {"rules": len(records), "time limit": time_limit, "renamings": renamings}
        result = {**told, "table": counts, "proved": wrong, "records": records}
        (output or RESULT).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    _show(counts)
    if wrong:
        raise click.ClickException(f"{len(wrong)} false rules are proved: {', '.join(wrong)}")


def _show(counts: dict[str, dict[str, Any]]) -> None:
    shown = Table("kind", "prove", "check", "load", title="refuted / undecided / failed / proved, seconds")
    for kind, row in counts.items():
        shown.add_row(kind, _cell(row["prove"]), _cell(row["check"]), str(row["load"]))
    Console().print(shown)


def _cell(door: dict[str, Any]) -> str:
    return " / ".join(str(door[verdict]) for verdict in VERDICTS) + f", {door['seconds']} s"


if __name__ == "__main__":
    main()
