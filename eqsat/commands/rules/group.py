"""`eqsat rules`: evidence for rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eqsat.commands.arguments import import_option
from eqsat.commands.display import followed
from eqsat.commands.output import HelpfulGroup, console, output_options
from eqsat.commands.rules.batch import alone_option, everything_option, jobs_option, workers
from eqsat.commands.rules.build import build
from eqsat.commands.rules.candidates import verify_candidates
from eqsat.commands.rules.generate import generate
from eqsat.commands.rules.laws import check_laws
from eqsat.commands.rules.prove import prove
from eqsat.commands.rules.prune import prune
from eqsat.commands.rules.report import report
from eqsat.commands.rules.show import show
from eqsat.commands.targets import check_target
from eqsat.errors import UnsoundRuleError, UsageError
from eqsat.report.units import count

if TYPE_CHECKING:
    from eqsat.rewrites.rules.evidence import Evidence


#: After how many rules the record is written.
_FLUSH = 50


@click.group(cls=HelpfulGroup)
def rules() -> None:
    """Generate, verify, prune and show rules."""


for _command in (generate, build, prune, report, show, prove, check_laws):
    rules.add_command(_command)


@rules.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--all", "again", is_flag=True, help="Check shipped rules whose evidence is current too.")
@click.option("--exhaustive", is_flag=True, help="Run every instance of the bounded grid of shipped rules.")
@click.option("--library", is_flag=True, help="Check the shipped library alone.")
@click.option("--budget", type=click.IntRange(min=1), help="Most choices of the bounded grid to try.")
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), help="File of candidates to write.")
@everything_option
@alone_option(default=False)
@jobs_option
@import_option
@output_options
def verify(
    files: tuple[Path, ...],
    again: bool,
    exhaustive: bool,
    library: bool,
    budget: int | None,
    target: Path | None,
    everything: bool,
    alone: bool,
    jobs: int,
) -> None:
    """Check rules with Z3, in float64 and modulo a prime.

    Without a file, the shipped rules whose evidence is missing or out of date, and write the record of evidence. With
    files of rules, these; nothing is written. Fails unless every rule is proved. With files of candidates, .jsonl,
    generalise and verify each one that known rules do not derive, and write the outcome; interrupted, the same
    command goes on where it stood.
    """
    candidates = [path.suffix == ".jsonl" for path in files]
    if any(candidates):
        if not all(candidates):
            raise UsageError("files of rules and of candidates together", expected="files of one kind")
        verify_candidates(files, target, everything, alone, jobs)
        return
    if target is not None:
        raise UsageError("-o is for verified candidates", expected="files of candidates, .jsonl, or no -o")
    checked = _verify_files(files) if files else _verify_shipped(again, exhaustive, library, budget, jobs)
    wrong = [e for e in checked if e.verdict != "proved"]
    out = console()
    for evidence in wrong:
        text = f"{evidence.verdict} {evidence.name}: {evidence.detail}"
        out.print(text, soft_wrap=True)
    out.print(f"{count(len(checked), 'rule')} checked, {len(checked) - len(wrong)} proved")
    if wrong:
        names = ", ".join(e.name for e in wrong)
        raise UnsoundRuleError(f"{count(len(wrong), 'rule')} not proved: {names}", expected="rules that are proved")


def _verify_files(files: tuple[Path, ...]) -> list[Evidence]:
    from eqsat.rewrites.proof.verify import verify as check_all
    from eqsat.rewrites.rules.parser import parse_file

    given = [rule for path in files for rule in parse_file(path)]
    return list(followed(check_all(given), "checking", len(given)))


def _verify_shipped(again: bool, exhaustive: bool, library: bool, budget: int | None, jobs: int) -> list[Evidence]:
    from eqsat.rewrites.proof.verify import verify as check_all
    from eqsat.rewrites.proof.verify import write_shipped
    from eqsat.rewrites.rules.evidence import SHIPPED
    from eqsat.rewrites.rules.loader import shipped_evidence, shipped_rules

    check_target(SHIPPED, ())
    shipped, known = shipped_rules(), shipped_evidence()
    chosen = [rule for rule in shipped if rule.origin == "library" or not library]
    records: dict[str, Evidence] = {}
    try:
        with workers(jobs) as executor:
            checked = check_all(
                chosen, None if again else known, exhaustive=exhaustive, budget=budget, executor=executor
            )
            for number, evidence in enumerate(followed(checked, "checking", len(chosen)), start=1):
                records[evidence.name] = evidence
                if number % _FLUSH == 0:
                    write_shipped(shipped, known | records)
    finally:
        # Outcomes known before an interruption need not be computed again.
        write_shipped(shipped, known | records)
    return list(records.values())
