"""`eqsat rules build`: the whole of generating, verifying and pruning, and the files of a library."""

from __future__ import annotations

from pathlib import Path

import click

from eqsat.commands.arguments import NAMES, debug_option
from eqsat.commands.batch import jobs_option, neutral_option, stages, workers
from eqsat.commands.display import console
from eqsat.report import count


@click.command()
@click.option("--into", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder.")
@click.option("--ops", "operators", type=NAMES, default=None, help="Operators to generate from. [all that take part]")
@click.option("--max-ops", type=click.IntRange(1, 4), default=3, show_default=True, help="Operators in a graph.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random data.")
@neutral_option
@jobs_option
@debug_option
def build(folder: Path, operators: tuple[str, ...] | None, max_ops: int, seed: int, neutral: bool, jobs: int) -> None:
    """Make a library of rules from the declarations of operators and the laws.

    Writes the rules, their evidence, what was left out and why, and the counts of every stage; the same options give
    the same files. Interrupted, the same command goes on where it stood.
    """
    from eqsat.rewrites.factory.generate import Settings
    from eqsat.rewrites.factory.library import read_usage
    from eqsat.rewrites.factory.pipeline import build as build_library

    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(ops=operators, max_ops=max_ops, seed=seed)
    with workers(jobs) as executor, stages() as follow:
        built = build_library(
            settings, folder, neutral=neutral, uses=read_usage(), executor=executor, progress=follow, work=folder
        )
    out = console()
    out.print(f"{count(built.counts['candidates']['all'], 'candidate')}, {count(len(built.rules), 'rule')} kept")
    reduction = built.counts["reduction"]
    if reduction is not None:
        out.print(f"pairs for each rule: {reduction} (published: {built.counts['published_reduction']})")
