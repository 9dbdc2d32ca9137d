"""`eqsat rules check-laws`: whether laws hold, are consistent, and which of them follow from the others."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eqsat.commands.display import followed
from eqsat.commands.output import JSON_FILE, STDOUT, console, output_options, write_json
from eqsat.commands.rules.batch import jobs_option, workers
from eqsat.commands.rules.prove import read
from eqsat.commands.targets import check_target
from eqsat.errors import UnsoundRuleError
from eqsat.report.units import count

if TYPE_CHECKING:
    from eqsat.rewrites.proof.consistency import LawCheck


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--redundancy/--no-redundancy", default=True, help="Test whether the other laws entail each law.")
@click.option("--json", "target", type=JSON_FILE, help="Write the outcomes as JSON; - prints it.")
@jobs_option
@output_options
def check_laws(files: tuple[Path, ...], redundancy: bool, target: Path | None, jobs: int) -> None:
    """Check the laws that entailment rests on, or those of files.

    Each law is compared with the operators' references on instances, which are a model of the laws where all hold;
    e-graphs and Z3 look for two variables that the laws make equal; laws that the others entail are listed. Fails where
    a law is false or makes variables equal.
    """
    from eqsat.rewrites.proof.consistency import check_laws as check_all
    from eqsat.rewrites.rules.loader import laws

    given = [law for path in files for law in read(path, origin="candidate")] if files else list(laws())
    if target not in (None, STDOUT):
        check_target(target, files)
    out = console(target)
    outcomes: list[LawCheck] = []
    try:
        with workers(jobs) as executor:
            checks = check_all(given, redundancy=redundancy, executor=executor)
            for one in followed(checks, "checking laws", len(given)):
                outcomes.append(one)
                text = describe(one)
                if text:
                    out.print(text, soft_wrap=True)
    finally:
        if target is not None:
            write_json(target, json.dumps([asdict(c) for c in outcomes], ensure_ascii=False, indent=1) + "\n")
    counts = Counter(c.verdict for c in outcomes)
    parts = [f"{n} {verdict}" for verdict, n in counts.items()]
    parts.append(f"{sum(bool(c.redundant) for c in outcomes)} redundant")
    out.print(count(len(outcomes), "law") + ": " + ", ".join(parts))
    wrong = [c.name for c in outcomes if c.verdict in ("false", "inconsistent")]
    if wrong:
        raise UnsoundRuleError(
            f"{count(len(wrong), 'law')} false or inconsistent: {', '.join(wrong)}", expected="laws with a common model"
        )


def describe(check: LawCheck) -> str:
    """The remarks on a law; none for one that holds and is independent of the others."""
    because = f" by {', '.join(check.because)}" if check.because else ""
    if check.verdict != "holds":
        return f"{check.verdict:<12} {check.name}: {check.detail}{because}"
    if check.redundant:
        return f"{'redundant':<12} {check.name}: follows from {', '.join(check.redundant)} ({check.method})"
    return ""
