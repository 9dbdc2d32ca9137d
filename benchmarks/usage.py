"""Where rules pay: `python -m benchmarks.usage [MODEL …]` counts firings and chosen changes on the benchmark models."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.progress import track

from benchmarks.models import MODELS
from benchmarks.rows import DEFAULT, row
from eqsat.rewrites.discovery.library import LIBRARY, USAGE, Use, read_usage, write_usage


@click.command()
@click.argument("models", nargs=-1)
@click.option("--into", type=click.Path(path_type=Path), default=LIBRARY / USAGE, show_default=False)
def main(models: tuple[str, ...], into: Path) -> None:
    """Optimises models, each in a process of its own, and writes which rules fired and which results owe to them.

    What the file says of other models stays.
    """
    unknown = [m for m in models if m not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(MODELS)}")
    uses = {(u.rule, u.model): u for u in read_usage(into)}
    with tempfile.TemporaryDirectory(prefix="eqsat-usage-") as folder:
        for name in track(models or DEFAULT, description="models"):
            uses = {key: use for key, use in uses.items() if key[1] != name}
            uses |= {(u.rule, u.model): u for u in _uses(name, Path(folder))}
            write_usage(uses.values(), into)


def _uses(name: str, folder: Path) -> list[Use]:
    found = row(name, folder, ("build", "usage"))
    if "failed" in found:
        raise click.ClickException(f"{name}: {found['failed']}")
    return [Use(**use) for use in found["uses"]]


if __name__ == "__main__":
    main()
