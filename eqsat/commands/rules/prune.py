"""`eqsat rules prune`: the few rules of many that derive the rest."""

from __future__ import annotations

from pathlib import Path

import click

from eqsat.commands.arguments import import_option
from eqsat.commands.display import stages
from eqsat.commands.output import console, output_options
from eqsat.commands.rules.batch import alone_option
from eqsat.commands.targets import check_target
from eqsat.report.units import count
from eqsat.system.files import write_text


@click.command()
@click.argument("verified", metavar="VERIFIED.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", "target", required=True, type=click.Path(path_type=Path), help="The file to write.")
@alone_option(default=False)
@import_option
@output_options
def prune(verified: Path, target: Path, alone: bool) -> None:
    """Leave out the rules that the other rules, or laws, derive.

    The rules that stay are written in the order in which they pay on the benchmark models; a file beside it that ends
    in .dropped.jsonl has the rules that were left out, the reasons, and the rules that derive them. Interrupted, the
    same command continues.
    """
    from eqsat.rewrites.discovery.equations.candidate import read_outcomes, verified_rules
    from eqsat.rewrites.discovery.journal import Journal, subject_of
    from eqsat.rewrites.discovery.library import dropped_text, ordered, read_usage, rules_text
    from eqsat.rewrites.discovery.prune import entailed
    from eqsat.rewrites.discovery.prune import prune as prune_rules
    from eqsat.rewrites.rules.loader import laws

    check_target(target, [verified])
    dropped = target.with_name(f"{target.name.removesuffix('.rules')}.dropped.jsonl")
    check_target(dropped, [verified, target])
    rules = [rule for rule, _ in verified_rules(read_outcomes(verified), on_request=alone).values()]
    known = laws()
    subject = subject_of([str(alone), *(f"{r.name}: {r.text}" for r in (*rules, *known))])
    with Journal(target.with_name(f"{target.name}.partial"), subject) as journal, stages() as follow:
        base = () if alone else known
        pruned = prune_rules(rules, base, verify=entailed(known), journal=journal, progress=follow)
        write_text(target, rules_text(ordered(pruned.kept, read_usage())))
        write_text(dropped, dropped_text(pruned))
    out = console()
    out.print(f"{count(len(rules), 'rule')}, {len(pruned.kept)} kept")
    for why, number in pruned.counts().items():
        if why != "kept":
            out.print(f"  {number} dropped: {why}")
