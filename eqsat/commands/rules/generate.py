"""`eqsat rules generate`: candidate rules from the declarations of operators."""

from __future__ import annotations

import json
from pathlib import Path

import click

from eqsat.commands.arguments import NAMES
from eqsat.commands.display import stages
from eqsat.commands.output import console, output_options
from eqsat.commands.rules.batch import jobs_option, workers
from eqsat.commands.targets import check_target
from eqsat.report.units import count, duration
from eqsat.system.files import write_text


@click.command()
@click.option("-o", "--output", "target", required=True, type=click.Path(path_type=Path), help="The file to write.")
@click.option("--ops", "operators", type=NAMES, help="Operators to generate from. [all that take part]")
@click.option("--max-ops", type=int, default=3, show_default=True, help="Operators in a graph.")
@click.option("--domain", "domains", multiple=True, help="Inputs by name, or as 3x3*4+scalar; repeatable. [all names]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random data.")
@click.option(
    "--import", "sources", metavar="MODULE|FILE.py", multiple=True, help="Declarations of operators; repeatable."
)
@click.option("--counts", type=click.Path(dir_okay=False, path_type=Path), help="Write the counts here, as JSON.")
@jobs_option
@output_options
def generate(
    target: Path,
    operators: list[str] | None,
    max_ops: int,
    domains: tuple[str, ...],
    seed: int,
    sources: tuple[str, ...],
    counts: Path | None,
    jobs: int,
) -> None:
    """Find equations between small graphs by enumerating them all, as candidates for rules.

    The same options give the same file, whatever the number of jobs. Interrupted, the same command goes on where it
    stood.
    """
    from eqsat.rewrites.discovery.enumerate.domain import DOMAINS
    from eqsat.rewrites.discovery.enumerate.generate import GenerationSettings, generate
    from eqsat.rewrites.discovery.equations.candidate import write_candidates

    for path in (target, counts):
        if path is not None:
            check_target(path, ())
    settings = GenerationSettings(
        ops=None if operators is None else tuple(operators),
        max_ops=max_ops,
        seed=seed,
        domains=domains or tuple(DOMAINS),
        imports=sources,
    )
    with workers(jobs) as executor, stages() as follow:
        generated = generate(
            settings,
            executor=executor,
            progress=follow,
            resume=target.with_name(f"{target.name}.partial"),
        )
    write_candidates(generated.candidates, target)
    if counts is not None:
        write_text(counts, json.dumps(generated.counts, indent=1) + "\n")
    out = console()
    totals = generated.counts
    out.print(
        f"{count(totals['graphs'], 'graph')}, {count(totals['terms'], 'term')}, {count(totals['pairs'], 'equal pair')}"
    )
    out.print(f"{count(len(generated.candidates), 'candidate')}, {totals['several']} of several outputs")
    out.print(", ".join(f"{stage} {duration(seconds)}" for stage, seconds in generated.seconds.items()))
