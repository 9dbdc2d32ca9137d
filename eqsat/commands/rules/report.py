"""`eqsat rules report`: the sources of the library, its evidence, and its open cases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from eqsat.commands.output import PrintsJson, console, debug_option, print_json
from eqsat.report.units import count, integer


@click.command(cls=PrintsJson)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def report(as_json: bool) -> None:
    """Show the counts of every stage, laws in use, rules without a law, and rules written by hand with reasons."""
    from eqsat.rewrites.discovery.library import account

    figures = account()
    if as_json:
        print_json(json.dumps(figures, indent=2, ensure_ascii=False))
        return
    out = console()
    for line in lines(figures):
        out.print(line, soft_wrap=True)


def lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """The report in lines of text."""
    yield from _stages(figures["counts"])
    instances = figures["instances"]
    methods = ", ".join(f"{n} by {method}" for method, n in figures["methods"].items())
    yield f"library: {count(figures['library'], 'rule')}; entailed: {methods or 'none'}"
    bounded = f"{integer(instances['bounded'])} modulo a prime, all there are for {instances['exhaustive']} rules"
    yield f"  {integer(instances['symbolic'])} instances by Z3, {integer(instances['numeric'])} in float64, {bounded}"
    yield "all shipped rules:"
    yield from (f"  {scope}: {count(n, 'rule')}" for scope, n in figures["scopes"].items())
    yield from (f"  {bits}: {count(n, 'rule')}" for bits, n in figures["numbers"].items())
    used = list(figures["laws_used"].items())
    yield f"laws in use: {len(used)}"
    yield from (f"  {name}: {count(n, 'rule')}" for name, n in used)
    yield f"true as far as tried, but without a law: {count(len(figures['missing']), 'rule')}"
    for rule in figures["missing"]:
        yield f"  {rule['name']}: {rule['text']}"
        if rule["missing"] != rule["text"]:  # else it is the law itself that is missing
            yield f"    would follow from {rule['missing'] or 'no single equation that was found'}"
    yield f"written by hand: {count(len(figures['by_hand']), 'rule')}; derived from declarations: {figures['derived']}"
    yield from (f"  {r['name']}: {r['reason']}" for r in figures["by_hand"])


def _stages(counts: Mapping[str, Any]) -> Iterator[str]:
    if not counts:
        yield "no library has been built: run `eqsat rules build --into FOLDER`"
        return
    for stage in ("generated", "candidates", "rules", "pruned"):
        numbers = {name: n for name, n in counts[stage].items() if isinstance(n, int)}
        shown = ", ".join(f"{integer(n)} {name.replace('_', ' ')}" for name, n in numbers.items())
        yield f"{stage}: {shown}"
    yield f"candidates for each rule kept: {counts['reduction']} (published: {counts['published_reduction']})"
