"""`eqsat rules build`: the whole of generating, verifying and pruning, and the files of a library."""

from __future__ import annotations

from pathlib import Path

import click

from eqsat.commands.arguments import NAMES
from eqsat.commands.display import stages
from eqsat.commands.output import console, output_options
from eqsat.commands.rules.batch import alone_option, jobs_option, workers
from eqsat.report.units import count


@click.command()
@click.option(
    "--into", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write."
)
@click.option("--ops", "operators", type=NAMES, help="Operators to generate from. [all that take part]")
@click.option("--max-ops", type=int, default=3, show_default=True, help="Operators in a graph.")
@click.option("--domain", "domains", multiple=True, help="Inputs by name, or as 3x3*4+scalar; repeatable. [all names]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random data.")
@click.option(
    "--import", "sources", metavar="MODULE|FILE.py", multiple=True, help="Declarations of operators; repeatable."
)
@alone_option(default=True)
@jobs_option
@output_options
def build(
    folder: Path,
    operators: list[str] | None,
    max_ops: int,
    domains: tuple[str, ...],
    seed: int,
    sources: tuple[str, ...],
    alone: bool,
    jobs: int,
) -> None:
    """Make a library of rules from the declarations of operators and the laws.

    Writes the rules, their evidence, the rules left out with reasons, and the counts of every stage; the same options
    give the same files. Interrupted, the same command continues.
    """
    from eqsat.rewrites.discovery.enumerate.domain import DOMAINS
    from eqsat.rewrites.discovery.enumerate.generate import GenerationSettings
    from eqsat.rewrites.discovery.library import read_usage
    from eqsat.rewrites.discovery.pipeline import build as build_library

    folder.mkdir(parents=True, exist_ok=True)
    settings = GenerationSettings(
        ops=None if operators is None else tuple(operators),
        max_ops=max_ops,
        seed=seed,
        domains=domains or tuple(DOMAINS),
        imports=sources,
    )
    with workers(jobs) as executor, stages() as follow:
        built = build_library(
            settings, folder, beyond_laws=not alone, uses=read_usage(), executor=executor, progress=follow, work=folder
        )
    out = console()
    out.print(f"{count(built.counts['candidates']['all'], 'candidate')}, {count(len(built.rules), 'rule')} kept")
    reduction = built.counts["reduction"]
    if reduction is not None:
        out.print(f"candidates for each rule: {reduction} (published: {built.counts['published_reduction']})")
