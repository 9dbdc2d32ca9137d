"""A run's view as the compact JSON that a page and a widget draw: columns of numbers, and one table of texts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from eqsat.explorer.page.layout import BlockLayout, arrange, layered
from eqsat.explorer.view.views import ClassView, GraphView, RunView

#: The largest e-graph that is drawn whole, in e-nodes.
MOST_WHOLE = 300
_KINDS = {"node": 0, "block": 1, "in": 2, "out": 3}


class _Texts:
    """The table of texts: each is stored once and named by its place."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    def many(self, texts: Iterable[str]) -> list[int]:
        return [self(text) for text in texts]

    def table(self) -> list[str]:
        return list(self._places)


def payload(view: RunView) -> dict[str, Any]:
    """Everything of a view that the scripts draw, laid out."""
    texts = _Texts()
    document = {
        "title": view.title,
        "report": view.report,
        "notes": list(view.notes),
        "graphs": [
            {"role": role, **_graph(graph, texts)}
            for role, graph in (("original", view.original), ("result", view.result))
            if graph is not None
        ],
        "classes": _classes(view.classes, texts),
        "changes": [
            [c.number, c.what, list(c.values), list(c.rules), list(c.steps), c.predicted, c.measured, c.gaps]
            for c in view.changes
        ],
        "rules": [[r.name, r.text, r.fired, r.origin, r.evidence] for r in view.rules],
        "growth": [[g.phase, g.nodes, g.classes, g.seconds, _counts(g.fired)] for g in view.growth],
        "whole": _whole(view.classes),
    }
    return {**document, "texts": texts.table()}


def embedded(document: Mapping[str, Any]) -> str:
    """The JSON, fit to stand in a script element: pure ASCII, without a character that HTML reads as markup.

    >>> embedded({"a": "</script><!--"})
    '{"a":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _counts(counts: Mapping[str, int]) -> list[list[Any]]:
    return [[name, count] for name, count in counts.items() if count]


def _seconds(seconds: float | None) -> float | None:
    """Four digits are more than a page shows; JSON has no infinity, the cost of a form without a tree."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return float(f"{seconds:.4g}")


def _graph(graph: GraphView, texts: _Texts) -> dict[str, Any]:
    nodes = graph.nodes
    index = {node.key: number for number, node in enumerate(nodes)}
    leaving: dict[int, dict[str, None]] = {}
    for start, _, kind in graph.edges:
        leaving.setdefault(index[start], {})[kind] = None
    layout = arrange(graph)
    return {
        "name": graph.name,
        "kind": [texts(node.kind) for node in nodes],
        "label": [texts(node.label) for node in nodes],
        "detail": [texts(node.detail) for node in nodes],
        "names": [texts.many(node.names) for node in nodes],
        "seconds": [_seconds(node.seconds) for node in nodes],
        "estimated": [int(node.estimated) for node in nodes],
        "change": [node.change for node in nodes],
        "eclass": [node.eclass for node in nodes],
        "type": [texts(" | ".join(leaving.get(number, ()))) for number in range(len(nodes))],
        "blocks": [_block(block, texts) for block in layout.blocks],
        "tucked": [[reader, *constants] for reader, constants in layout.tucked.items()],
    }


def _block(block: BlockLayout, texts: _Texts) -> dict[str, Any]:
    return {
        "name": texts(block.path[-1]) if block.path else None,
        "parent": block.parent,
        "kind": [_KINDS[item.kind] for item in block.items],
        "index": [item.index for item in block.items],
        "layer": list(block.layer),
        "across": [round(x, 2) for x in block.across],
        "lines": [[line.start, line.end, line.source, *_flat(line.bends)] for line in block.lines],
    }


def _flat(bends: Iterable[tuple[int, float]]) -> list[float]:
    return [number for layer, x in bends for number in (layer, round(x, 2))]


def _classes(classes: tuple[ClassView, ...], texts: _Texts) -> dict[str, Any]:
    forms = [form for each in classes for form in each.forms]
    return {
        "id": [each.eclass for each in classes],
        "type": [texts(each.type) for each in classes],
        "constant": [int(each.constant) for each in classes],
        "values": [texts.many(each.values) for each in classes],
        "block": [texts("/".join(each.block)) for each in classes],
        "forms": [len(each.forms) for each in classes],
        "op": [texts(form.op) for form in forms],
        "attrs": [texts(form.attrs) for form in forms],
        "operands": [list(form.operands) for form in forms],
        "seconds": [_seconds(form.seconds) for form in forms],
        "total": [_seconds(form.total) for form in forms],
        "marks": [form.chosen + 2 * form.original + 4 * form.estimated for form in forms],
        "rule": [texts(form.rule) for form in forms],
    }


def _whole(classes: tuple[ClassView, ...]) -> dict[str, Any] | None:
    """Places of the classes of a small e-graph, operands above those that read them; None for a larger one."""
    if not classes or sum(len(each.forms) for each in classes) > MOST_WHOLE:
        return None
    place = {each.eclass: number for number, each in enumerate(classes)}
    reads = dict.fromkeys(
        (place[operand], number)
        for number, each in enumerate(classes)
        for form in each.forms
        for operand in form.operands
        if operand in place
    )
    layers = layered(len(classes), list(reads))
    return {
        "layer": list(layers.layer),
        "across": [round(x, 2) for x in layers.across],
        "lines": [[a, b, *_flat(bends)] for (a, b), bends in zip(reads, layers.bends, strict=True)],
    }
