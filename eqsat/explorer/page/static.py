"""Pictures and tables that need no script: the cell of a notebook where scripts do not run."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise

from eqsat.explorer.naming import TREE_COST, TREE_COST_NOTE
from eqsat.explorer.page.layout import layered
from eqsat.explorer.view.views import ClassView, GraphView, NodeView, RunView
from eqsat.report.units import duration
from eqsat.system.markup import html_table

#: A graph with more nodes is drawn with its blocks folded.
MOST_NODES = 60
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _TOP = 164, 40, 184, 70, 52
#: Numbers of changes that a folded block shows.
_BADGES = 4
#: Okabe and Ito's colours, which colour-blind people tell apart.
_HUES = ("#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
_STYLE = """
text{font:11px system-ui,sans-serif;fill:#1c2430}
.n{font-weight:600;font-size:12px}.m{fill:#5c6675}.h{font:600 14px system-ui,sans-serif}
.f{fill:#fff;stroke:#c6ced9}.l{fill:#e3eefb;stroke:#8fb4dc}.b{fill:#f0f3f7;stroke:#c6ced9}
.e{fill:none;stroke:#a3adba;stroke-width:1.3}.p{fill:#f6f7f9}
@media(prefers-color-scheme:dark){text{fill:#e4e9f0}.m{fill:#9aa5b4}.f{fill:#1b212a;stroke:#3d4857}.l{fill:#1d3350;stroke:#3f6ea8}
.b{fill:#232b36;stroke:#3d4857}.e{stroke:#657183}.p{fill:#12161c}}
"""


def diff_svg(view: RunView) -> str:
    """Original and result side by side as one SVG picture: changed nodes coloured and numbered, costs on the nodes."""
    drawn, left, tallest = [], 0.0, 0.0
    for role, graph in (("Original", view.original), ("Result", view.result)):
        if graph is None:
            continue
        body, width, height = _drawing(folded(graph))
        facts = f'<text class="h" x="16" y="26">{role}</text><text class="m" x="90" y="26">{_facts(graph.nodes)}</text>'
        drawn.append(
            f'<g transform="translate({left:.0f} 0)">{facts}<g transform="translate(16 {_TOP})">{body}</g></g>'
        )
        left += max(width, 230) + 48
        tallest = max(tallest, height)
    width, height = max(left, 1), tallest + _TOP + 16
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><style>{_STYLE}</style>'
        f'<rect class="p" width="100%" height="100%"/>{"".join(drawn)}</svg>'
    )


def image(svg: str, text: str) -> str:
    """An SVG picture as an HTML image, which no page lets run scripts and no notebook strips."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escape(text, quote=True)}" src="data:image/svg+xml;base64,{data}" style="max-width:100%">'


def eclass_table(of: ClassView) -> str:
    """All forms of an e-class as an HTML table, cheapest first, the chosen one bold."""
    forms = sorted(of.forms, key=lambda form: (form.total is None, form.total or 0.0))
    rows = [
        (
            ", ".join(mark for mark, holds in (("chosen", form.chosen), ("original", form.original)) if holds),
            f"{form.op} {form.attrs}".strip(),
            ", ".join(map(str, form.operands)),
            _cost(form.seconds, form.estimated),
            _cost(form.total, form.estimated),
            form.rule,
        )
        for form in forms
    ]
    marked = [number for number, form in enumerate(forms) if form.chosen]
    title = f"class {of.eclass}: {', '.join(of.values)} {of.type}\n{TREE_COST_NOTE}"
    return html_table(title, ("", "form", "of classes", "own cost", TREE_COST, "by rule"), rows, marked)


def folded(graph: GraphView, most: int = MOST_NODES) -> GraphView:
    """The graph without the constants that operators read, its blocks folded as deep as keeps it at `most` nodes."""
    read_by = defaultdict(set)
    kinds = {node.key: node.kind for node in graph.nodes}
    for start, end, _ in graph.edges:
        read_by[start].add(kinds[end])
    nodes = [n for n in graph.nodes if n.kind != "constant" or read_by[n.key] & {"output"} or not read_by[n.key]]
    if len(nodes) <= most:
        return _merged(graph, nodes, {node.key: node.key for node in nodes})
    return _merged(graph, nodes, _folded_keys(nodes, most))


def _folded_keys(nodes: Sequence[NodeView], most: int) -> dict[str, str]:
    """The key that each node is drawn as: its own, or that of its folded block; outer blocks are opened first."""
    shown = {node.key: node.block[:1] for node in nodes}
    blocks = {node.key: node.block for node in nodes}
    waiting = list(dict.fromkeys(path for path in shown.values() if path))
    while waiting:
        path = waiting.pop(0)
        opened = {key: blocks[key][: len(path) + 1] for key, now in shown.items() if now == path}
        inside = {key if deeper == path else deeper for key, deeper in opened.items()}
        if _drawn(shown) - 1 + len(inside) > most:
            continue
        shown.update({key: () if deeper == path else deeper for key, deeper in opened.items()})
        waiting.extend(deeper for deeper in dict.fromkeys(opened.values()) if deeper != path)
    return {key: "/".join(path) if path else key for key, path in shown.items()}


def _drawn(shown: dict[str, tuple[str, ...]]) -> int:
    return len({path or key for key, path in shown.items()})


def _merged(graph: GraphView, nodes: Sequence[NodeView], keys: dict[str, str]) -> GraphView:
    members = defaultdict(list)
    for node in nodes:
        members[keys[node.key]].append(node)
    merged = [group[0] if key == group[0].key else _block(key, group) for key, group in members.items()]
    edges = dict.fromkeys(
        (keys[a], keys[b], "") for a, b, _ in graph.edges if a in keys and b in keys and keys[a] != keys[b]
    )
    return replace(graph, nodes=tuple(merged), edges=tuple(edges))


def _block(key: str, members: Sequence[NodeView]) -> NodeView:
    changes = sorted({node.change for node in members if node.change is not None})
    label = key.rpartition("/")[2]
    return NodeView(key, "block", label, _facts(members), tuple(map(str, changes)), change=min(changes, default=None))


def _facts(nodes: Sequence[NodeView]) -> str:
    operators = [node for node in nodes if node.kind not in ("input", "constant", "output")]
    seconds = sum(node.seconds or 0.0 for node in operators)
    cost = _cost(seconds, any(node.estimated for node in operators)) if seconds else ""
    return " · ".join(part for part in (f"{len(operators)} op{'s' * (len(operators) != 1)}", cost) if part)


def _cost(seconds: float | None, estimated: bool) -> str:
    return "" if seconds is None else f"{'est. ' if estimated else ''}{duration(seconds)}"


def _drawing(graph: GraphView) -> tuple[str, float, float]:
    """A graph's nodes and edges as SVG, with its width and height."""
    index = {node.key: number for number, node in enumerate(graph.nodes)}
    edges = list(dict.fromkeys((index[a], index[b]) for a, b, _ in graph.edges))
    layers = layered(len(graph.nodes), edges)
    least = min((*layers.across, *(x for bends in layers.bends for _, x in bends)), default=0.0)
    most = max((*layers.across, *(x for bends in layers.bends for _, x in bends)), default=0.0)

    def middle(x: float) -> float:
        return (x - least) * _ACROSS + _WIDTH / 2

    paths = []
    for (a, b), bends in zip(edges, layers.bends, strict=True):
        points = [
            (middle(layers.across[a]), layers.layer[a] * _DOWN + _HEIGHT),
            *((middle(x), layer * _DOWN + _HEIGHT / 2) for layer, x in bends),
            (middle(layers.across[b]), layers.layer[b] * _DOWN),
        ]
        paths.append(f'<path class="e" d="{_curve(points)}"/>')
    boxes = [
        _box(node, middle(layers.across[number]) - _WIDTH / 2, layers.layer[number] * _DOWN)
        for number, node in enumerate(graph.nodes)
    ]
    height = (max(layers.layer, default=0)) * _DOWN + _HEIGHT
    return "".join(paths + boxes), (most - least) * _ACROSS + _WIDTH, height


def _curve(points: Sequence[tuple[float, float]]) -> str:
    parts = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        half = (y0 + y1) / 2
        parts.append(f"C{x0:.0f} {half:.0f} {x1:.0f} {half:.0f} {x1:.0f} {y1:.0f}")
    return "".join(parts)


def _box(node: NodeView, x: float, y: float) -> str:
    kind = {"input": "l", "output": "l", "constant": "l", "block": "b"}.get(node.kind, "f")
    frame = f'x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}"'
    parts = [f'<rect class="{kind}" {frame} rx="{14 if kind == "l" else 6}"/>']
    changes = node.names if node.kind == "block" else () if node.change is None else (str(node.change),)
    if node.change is not None:
        hue = _HUES[(node.change - 1) % len(_HUES)]
        parts.append(f'<rect {frame} rx="6" fill="{hue}" fill-opacity=".2" stroke="{hue}" stroke-width="1.5"/>')
    cost = _cost(node.seconds, node.estimated)
    name = _cut(node.label, 20 - len(cost) * 4 // 5, keep_end=kind in "lb")
    parts.append(f'<text class="n" x="{x + 10:.0f}" y="{y + 17:.0f}">{name}</text>')
    if cost:
        parts.append(f'<text text-anchor="end" x="{x + _WIDTH - 9:.0f}" y="{y + 17:.0f}">{escape(cost)}</text>')
    parts.append(f'<text class="m" x="{x + 10:.0f}" y="{y + 32:.0f}">{_cut(node.detail, 24)}</text>')
    parts.append(_badges(changes, x + _WIDTH - 6, y - 8))
    return f"<g><title>{escape(f'{node.label} {node.detail}'.strip())}</title>{''.join(parts)}</g>"


def _badges(changes: Sequence[str], right: float, y: float) -> str:
    """The numbers of changes in their colours, as many as have room, from the right."""
    drawn = []
    for change in reversed(changes[:_BADGES]):
        number, width = int(change), 9 + 7 * len(change)
        hue, ink = _HUES[(number - 1) % len(_HUES)], "#fff" if number % len(_HUES) == 2 else "#111"
        right -= width + 3
        drawn.append(f'<rect x="{right:.0f}" y="{y:.0f}" width="{width}" height="15" rx="7.5" fill="{hue}"/>')
        at = f'text-anchor="middle" x="{right + width / 2:.1f}" y="{y + 11.5:.1f}"'
        drawn.append(f'<text {at} style="fill:{ink};font-weight:700">{change}</text>')
    if len(changes) > _BADGES:
        more = f"+{len(changes) - _BADGES}"
        drawn.append(f'<text class="m" text-anchor="end" x="{right - 2:.0f}" y="{y + 7:.0f}">{more}</text>')
    return "".join(drawn)


def _cut(text: str, most: int, keep_end: bool = False) -> str:
    if len(text) <= most:
        return escape(text)
    return escape(f"…{text[1 - most :]}" if keep_end else f"{text[: most - 1]}…")
