"""`eqsat extract`: extraction from an e-graph in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.commands.arguments import DURATION
from eqsat.commands.choices import EXTRACTOR
from eqsat.commands.display import interruptible, progress_bar
from eqsat.commands.output import JSON_FILE, STDOUT, console, output_options, write_json
from eqsat.commands.targets import check_target
from eqsat.report.progress import Progress
from eqsat.report.units import count, percent
from eqsat.system.terminal import standard_error

if TYPE_CHECKING:
    from eqsat.extract import Problem, Solution

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("egraph", metavar="FILE.json", type=_FILE)
@click.option("--extractor", type=EXTRACTOR, default="ilp", show_default=True, help="Way to choose.")
@click.option("--alpha", type=float, help="Factor by which backtracking may exceed the best cost; 1.05 if left out.")
@click.option("--time-limit", type=DURATION, default="30s", show_default=True, help="Time limit of the search.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--json", "target", metavar="OUT", type=JSON_FILE, help="Write JSON there, with the chosen e-nodes; - prints it."
)
@output_options
def extract(
    egraph: Path, extractor: str, alpha: float | None, time_limit: float, seed: int, target: Path | None
) -> None:
    """Choose the cheapest acyclic set of e-nodes of an e-graph in egraph-serialize's JSON.

    Each chosen e-node counts once, however often it is used. Prints the cost, a lower bound that is proven, how the
    search ended (optimal, time_limit, interrupted, or heuristic for one that came to its own end) and its seconds.
    Ctrl-C ends the search with the best so far.
    """
    if target not in (None, STDOUT):
        check_target(target, [egraph])
    from eqsat.extract import solve
    from eqsat.extract.problem.gym import read_gym

    with interruptible() as should_stop, progress_bar(standard_error()) as follow:
        follow(Progress("read", detail=str(egraph)))
        problem = read_gym(egraph)
        size = len(problem.nodes)
        follow(Progress("extract", nodes=size))
        solution = solve(
            problem,
            extractor=extractor,
            time_limit=time_limit,
            seed=seed,
            progress=lambda cost, bound: follow(Progress("extract", nodes=size, detail=_standing(cost, bound))),
            should_stop=should_stop,
            alpha=alpha,
        )
    text = json.dumps(_found(problem, solution, extractor), indent=2) + "\n"
    out = console(target)
    out.print(
        f"{solution.status}: cost {solution.cost:g}, bound {solution.lower_bound:g}, gap {percent(solution.gap)}, "
        f"{count(len(solution.chosen), 'e-node')} of {size}, {solution.seconds:.2f} s"
    )
    if target is not None:
        write_json(target, text)
        out.print(f"wrote {target}", soft_wrap=True)


def _standing(cost: float, bound: float) -> str:
    """The text of the bar during a search; costs have no unit here."""
    gap = (cost - bound) / cost if cost > bound else 0.0
    return f"best {cost:g}, bound {bound:g}, gap {percent(gap)}"


def _found(problem: Problem, solution: Solution, extractor: str) -> dict[str, Any]:
    return {
        "extractor": extractor,
        "status": solution.status,
        "cost": solution.cost,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "seconds": solution.seconds,
        "chosen": [problem.nodes[node].name for node in solution.chosen.values()],
    }
