"""`eqsat extract`: extraction from an e-graph in a file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from eqsat.commands.arguments import DURATION, debug_option
from eqsat.commands.display import console, interruptible
from eqsat.report import count, percent


@click.command()
@click.argument("egraph", metavar="FILE.json", type=click.Path(path_type=Path))
@click.option("--extractor", default="ilp", show_default=True, help="How to choose: ilp or greedy.")
@click.option("--time-limit", type=DURATION, default="30s", show_default=True, help="For the search.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the search.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the chosen e-nodes.")
@debug_option
def extract(egraph: Path, extractor: str, time_limit: float, seed: int, as_json: bool) -> None:
    """Choose the cheapest acyclic set of e-nodes of an e-graph in egraph-serialize's JSON.

    Each chosen e-node counts once, however often it is used. Ctrl-C ends the search with the best so far.
    """
    from eqsat.extract import solve
    from eqsat.extract.gym import read_gym

    problem = read_gym(egraph)
    with interruptible() as should_stop:
        solution = solve(problem, extractor=extractor, time_limit=time_limit, seed=seed, should_stop=should_stop)
    if as_json:
        chosen = [problem.nodes[n].name for n in solution.chosen.values()]
        found = {
            "cost": solution.cost,
            "lower_bound": solution.lower_bound,
            "status": solution.status,
            "seconds": solution.seconds,
            "chosen": chosen,
        }
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    console().print(
        f"{solution.status}: cost {solution.cost:g}, bound {solution.lower_bound:g}, gap {percent(solution.gap)}, "
        f"{count(len(solution.chosen), 'e-node')} of {len(problem.nodes)}, {solution.seconds:.2f} s"
    )
