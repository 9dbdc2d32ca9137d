"""`eqsat inspect`: the parts of a model, as eqsat reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from eqsat.commands.arguments import SIZE
from eqsat.commands.opaque import Listing, joined, listing, print_listing
from eqsat.commands.output import PrintsJson, console, debug_option
from eqsat.errors import EqsatError, printable
from eqsat.language.onnx.files.access import check_model_file
from eqsat.report.units import count, integer, quantity

if TYPE_CHECKING:
    from eqsat.language.terms.graph import Graph


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

    summary = inspection(load(models[0]), dict(sizes))
    if as_json:
        click.echo(printable(json.dumps(summary, indent=2, ensure_ascii=False)))
        return 0
    out = console()
    _print_summary(out, summary)
    if show_nodes:
        _print_nodes(out, summary)
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
        click.echo(printable(json.dumps(whole, indent=2, ensure_ascii=False)))
    else:
        print_listing(console(), listings)
    for fault in refused.values():
        click.echo(printable(f"error: {fault}"), err=True)
    return 2 if refused else 0


def inspection(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Any]:
    """A description of a graph as plain dicts and lists; FLOPs and bytes are those at these sizes of named dims."""
    from eqsat.costs.model.model import CostModel
    from eqsat.language.onnx.read.model import dims_of
    from eqsat.language.sizes.solve import sizing_of
    from eqsat.language.terms.graph import OPAQUE
    from eqsat.steps.sizes import check_sizes

    check_sizes(graph, sizes)
    chosen = sizing_of(graph).completed(sizes)
    named = {name: chosen[name] for name in dims_of(graph)}
    costs = CostModel("onnxruntime-cpu", sizes=chosen).graph(graph)
    nodes, opaque = [], []
    operators: dict[str, dict[str, int]] = {}
    for node, cost in costs.nodes:
        name = node.name or next((o for o in node.outputs if o), "")
        op = str(node.attrs["op_type"]) if node.op == OPAQUE else node.op
        types = [str(graph.type(o)) for o in node.outputs if o]
        nodes.append({"name": name, "op": op, "types": types, "flops": cost.flops, "bytes": cost.bytes})
        entry = operators.setdefault(op, {"count": 0, "flops": 0, "bytes": 0})
        for key, value in (("count", 1), ("flops", cost.flops), ("bytes", cost.bytes)):
            entry[key] += value
        if node.op == OPAQUE:
            opaque.append({"name": name, "op": op, "reason": str(node.attrs["reason"])})
    return {
        "name": graph.name,
        "opset": graph.origin.opset,
        "inputs": {v: str(graph.type(v)) for v in graph.inputs},
        "outputs": {name: str(graph.type(value)) for name, value in graph.outputs.items()},
        "constants": {"count": len(graph.constants), "bytes": sum(c.nbytes for c in graph.constants.values())},
        "named_dims": named,
        "flops": costs.total.flops,
        "bytes": costs.total.bytes,
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1]["flops"], item[0]))),
        "opaque": opaque,
        "warnings": list(graph.origin.warnings),
        "nodes": nodes,
    }


def _print_summary(out: Console, summary: Mapping[str, Any]) -> None:
    constants = summary["constants"]
    facts = Table.grid(padding=(0, 2))
    facts.add_row("model", f"{summary['name']}, opset {summary['opset']}")
    facts.add_row("nodes", integer(len(summary["nodes"])))
    facts.add_row("constants", f"{integer(constants['count'])}, {quantity(constants['bytes'], 'B')}")
    for kind in ("inputs", "outputs"):
        for i, (name, type) in enumerate(summary[kind].items()):
            facts.add_row(kind if i == 0 else "", f"{name}: {type}")
    dims = ", ".join(f"{name} (counted as {size})" for name, size in summary["named_dims"].items())
    facts.add_row("named dims", dims or "none")
    facts.add_row("work", f"{quantity(summary['flops'], 'FLOP')}, {quantity(summary['bytes'], 'B')} moved")
    facts.add_row("opaque", count(len(summary["opaque"]), "node") if summary["opaque"] else "none")
    out.print(facts)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("operator")
    for title in ("count", "FLOPs", "bytes"):
        table.add_column(title, justify="right")
    for op, entry in summary["operators"].items():
        table.add_row(op, integer(entry["count"]), quantity(entry["flops"], ""), quantity(entry["bytes"], "B"))
    out.print()
    out.print(table)
    for node in summary["opaque"]:
        out.print(_one_line(f"opaque {node['name']} ({node['op']}): {node['reason']}"))
    for warning in summary["warnings"]:
        out.print(_one_line(f"warning: {warning}"))


def _print_nodes(out: Console, summary: Mapping[str, Any]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("node", "operator", "makes"):
        table.add_column(title, overflow="fold")
    for title in ("FLOPs", "bytes"):
        table.add_column(title, justify="right")
    for node in summary["nodes"]:
        work = quantity(node["flops"], ""), quantity(node["bytes"], "B")
        table.add_row(node["name"], node["op"], ", ".join(node["types"]), *work)
    out.print()
    out.print(table)


def _one_line(text: str) -> str:
    """The text with line ends of names as escapes, since each line says one thing."""
    return text.replace("\n", "\\n")
