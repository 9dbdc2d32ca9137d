"""Results with and without rules that are not proved for every size: `python -m benchmarks.trust [MODEL …]`.

Both calls of a model end by counted steps, so that a difference is that of the rules; costs are estimates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsat
from benchmarks.models import MODELS
from benchmarks.rows import DEFAULT, document
from eqsat.rewrites.rules.loader import load_rules

RESULTS = Path(__file__).parent / "results" / "trust.json"


@click.command()
@click.argument("models", nargs=-1)
@click.option("--steps", default=2_000_000, show_default=True, help="Steps after which each call ends.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS, show_default=False)
def main(models: tuple[str, ...], steps: int, target: Path) -> None:
    """Optimises models with the rules that are proved for every size, and with all that ship."""
    unknown = [m for m in models if m not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(MODELS)}")
    left_out = sorted({one.name for one in load_rules(trust="bounded")} - {one.name for one in load_rules()})
    rows = [_row(name, steps) for name in track(models or DEFAULT, description="models")]
    table = Table("model", "as given", "proved", "all", "proved over all", "behind changes of all, not proved")
    for row in rows:
        costs = [f"{row[key]:.4g}" for key in ("given", "proved", "bounded")]
        ratio = row["proved"] / row["bounded"]
        table.add_row(row["model"], *costs, f"{ratio:.4f}", ", ".join(row["rules"]) or "none")
    Console().print(table, f"{len(left_out)} rules that ship are not proved for every size: {', '.join(left_out)}")
    found = document(rows) | {"steps": steps, "left out": left_out}
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _row(name: str, steps: int) -> dict[str, Any]:
    """The predicted costs of one model, and the rules behind its changes that are not proved."""
    graph = MODELS[name]()
    proved, every = (
        eqsat.optimize(graph, measure=False, steps=steps, trust=trust).report for trust in ("proved", "bounded")
    )
    return {
        "model": name,
        "given": proved.cost_before,
        "proved": proved.cost_after,
        "bounded": every.cost_after,
        "rules": list(every.rules_bounded),
    }


if __name__ == "__main__":
    main()
