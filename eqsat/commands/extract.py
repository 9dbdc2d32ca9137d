"""`eqsat extract`: extraction from an e-graph in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.commands.arguments import DURATION, debug_option
from eqsat.commands.display import console, interruptible, progress_bar
from eqsat.commands.targets import check_target
from eqsat.errors import printable
from eqsat.report.report import Progress
from eqsat.report.units import count, percent
from eqsat.system.files import write_text
from eqsat.system.terminal import standard_error

if TYPE_CHECKING:
    from eqsat.extract import Problem, Solution

_FILE = click.Path(path_type=Path)
_STDOUT = Path("-")


@click.command()
@click.argument("egraph", metavar="FILE.json", type=_FILE)
@click.option("--extractor", default="ilp", show_default=True, help="Extractor: ilp, greedy or backtracking.")
@click.option("--alpha", type=float, help="Factor by which backtracking may exceed the best cost; 1.05 if left out.")
@click.option("--time-limit", type=DURATION, default="30s", show_default=True, help="Time limit of the search.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--json", "target", metavar="OUT", type=_FILE, help="Write JSON there, with the chosen e-nodes; - prints it."
)
@debug_option
def extract(
    egraph: Path, extractor: str, alpha: float | None, time_limit: float, seed: int, target: Path | None
) -> None:
    """Choose the cheapest acyclic set of e-nodes of an e-graph in egraph-serialize's JSON.

    Each chosen e-node counts once, however often it is used. Prints the cost, a lower bound that is proven, how the
    search ended (optimal, time_limit, interrupted, or heuristic for one that came to its own end) and its seconds.
    Ctrl-C ends the search with the best so far.
    """
    if target not in (None, _STDOUT):
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
    if target == _STDOUT:
        click.echo(printable(text), nl=False)
        return
    out = console()
    out.print(
        f"{solution.status}: cost {solution.cost:g}, bound {solution.lower_bound:g}, gap {percent(solution.gap)}, "
        f"{count(len(solution.chosen), 'e-node')} of {size}, {solution.seconds:.2f} s"
    )
    if target is not None:
        write_text(target, text)
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
