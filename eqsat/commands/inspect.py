"""`eqsat inspect`: the parts of a model, as eqsat reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from eqsat.commands.arguments import SIZE
from eqsat.commands.opaque import Listing, joined, listing, print_listing
from eqsat.commands.output import PrintsJson, console, debug_option, print_json
from eqsat.errors import EqsatError, printable
from eqsat.language.onnx.files.access import check_model_file


@click.command(cls=PrintsJson)
@click.argument("models", metavar="IN.onnx...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--size", "sizes", type=SIZE, multiple=True, help="Size of a named dim; may be repeated.")
@click.option("--nodes", "show_nodes", is_flag=True, help="List every node with the types of its results.")
@click.option("--opaque", "only_opaque", is_flag=True, help="List opaque operators and why, of several models too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every node.")
@debug_option
def inspect(
    models: tuple[Path, ...], sizes: tuple[tuple[str, int], ...], show_nodes: bool, only_opaque: bool, as_json: bool
) -> int:
    """Show operators, shapes, FLOPs, bytes, named dims, and opaque nodes with reasons.

    Operators are counted after shapes were inferred and constants folded. --opaque lists of one model or several which
    operators have no counterpart here, how many nodes that is, and the reason of each; a model that cannot be read is
    named, the others are listed, and the exit code is 2.
    """
    if only_opaque:
        if sizes or show_nodes:
            raise click.UsageError("--opaque lists operators by their number, with which --size and --nodes do not go.")
        return _opaque(models, as_json)
    if len(models) > 1:
        raise click.UsageError(f"{len(models)} models, and one is shown at a time; several go with --opaque.")
    check_model_file(models[0])
    from eqsat.language.onnx.read.importer import load
    from eqsat.report.inspection import Inspection

    content = Inspection.of(load(models[0]), dict(sizes))
    if as_json:
        print_json(content.to_json())
        return 0
    out = console()
    for part in content.parts(nodes=show_nodes):
        out.print(part)
    return 0


def _opaque(models: Sequence[Path], as_json: bool) -> int:
    """List the opaque operators of models, and the reasons why some cannot be read."""
    from eqsat.language.onnx.read.importer import load

    listings: dict[str, Listing] = {}
    refused: dict[str, str] = {}
    for model in dict.fromkeys(map(str, models)):
        try:
            listings[model] = listing(load(model))
        except EqsatError as error:
            refused[model] = str(error)
    if as_json:
        documents = [{"model": model, **listed.document()} for model, listed in listings.items()]
        whole = {"models": documents, "all": joined(list(listings.values())).document(), "refused": refused}
        print_json(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        print_listing(console(), listings)
    for fault in refused.values():
        click.echo(printable(f"error: {fault}"), err=True)
    return 2 if refused else 0
