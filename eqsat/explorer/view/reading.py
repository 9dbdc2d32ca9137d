"""A run read as views: its graphs, e-classes, changes, growth and rules, as plain data."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping

from eqsat.egraph.egraph import ABSENT, CONST, INPUT, PROJECTION
from eqsat.egraph.saturation import Saturation
from eqsat.egraph.snapshot import SnapshotNode
from eqsat.explorer.naming import attributes, is_absent, seen_attrs, shown_operator
from eqsat.explorer.pricing import Price
from eqsat.explorer.view.blocks import Path
from eqsat.explorer.view.graphs import original_view, result_view
from eqsat.explorer.view.run import ViewedRun
from eqsat.explorer.view.views import ClassView, FormView, GrowthView, RuleView, RunView
from eqsat.report.changes import fired_rules, grounds

#: E-nodes that run nothing, and so have no cost of their own.
_FREE = (INPUT, CONST, PROJECTION, ABSENT)


def run_view(run: ViewedRun) -> RunView:
    """The whole run as a page shows it."""
    return RunView(
        title=run.given.title,
        report=run.report,
        original=original_view(run),
        result=result_view(run),
        classes=tuple(class_views(run)),
        changes=run.changes,
        rules=tuple(rule_views(run)),
        growth=growth_views(run.grown),
        notes=run.notes,
    )


def class_views(run: ViewedRun) -> Iterator[ClassView]:
    """Every e-class but that of operands left out."""
    placed = _class_blocks(run)
    for leader in sorted(run.choice.extraction.snapshot.classes):
        if not is_absent(run.choice.extraction.snapshot, leader):
            yield class_view(run, leader, placed.get(leader, ()))


def class_view(run: ViewedRun, leader: int, block: Path = ()) -> ClassView:
    """One e-class with its forms: the chosen one first, then by cost with operands."""
    snapshot, chosen, prices = run.choice.extraction.snapshot, run.chosen, run.choice.prices
    eclass = snapshot.classes[leader]
    forms = []
    for position in eclass.nodes:
        node = snapshot.nodes[position]
        free = eclass.constant or node.op in _FREE
        own, total = shown_price(prices.get(position, Price()), run.choice.in_seconds, free)
        forms.append(
            FormView(
                enode=node.number,
                op=shown_operator(snapshot, node),
                attrs=attributes(node.op, seen_attrs(snapshot, node)),
                operands=tuple(k for k in node.operands if not is_absent(snapshot, k)),
                seconds=own,
                total=total,
                estimated=prices.get(position, Price()).estimated,
                chosen=node.number in chosen,
                original=is_original(run, node),
                rule=rule_of(run.grown, node.number),
            )
        )
    forms.sort(key=lambda f: (not f.chosen, f.total is None, f.total or 0.0, not f.original, f.enode))
    return ClassView(leader, str(eclass.type), eclass.constant, eclass.values, block, tuple(forms))


def shown_price(price: Price, in_seconds: bool, free: bool) -> tuple[float | None, float | None]:
    """The seconds of an e-node, alone and with its operands, as views have them; the latter where time is the aim."""
    if in_seconds:
        return None if free else price.own, price.total
    return None if free else price.seconds, None


def is_original(run: ViewedRun, node: SnapshotNode) -> bool:
    """True if the graph as it was read has an e-node."""
    return node.number < _first_made(run.grown, len(run.encoding.egraph.nodes))


def rule_of(grown: Saturation, number: int) -> str:
    """The rule that made an e-node; "" for one of the original graph."""
    place = bisect_right(grown.made, number, key=lambda entry: entry[0])
    return grown.made[place - 1][1] if place else ""


def _first_made(grown: Saturation, count: int) -> int:
    return grown.made[0][0] if grown.made else count


def rule_views(run: ViewedRun) -> Iterator[RuleView]:
    """The rules that fired, those made for one use among them, most firings first."""
    firings = run.grown.fired
    known = {r.name: r for r in (*fired_rules(run.encoding.egraph, firings), *run.rules.named(firings))}
    ranked = sorted(firings.items(), key=lambda item: (-item[1], item[0]))
    reasons = grounds(known[name] for name, _ in ranked)
    for name, fired in ranked:
        said = reasons[name]
        laws = [f"published law {', '.join(map(str, said.published))}"] if said.published else []
        laws += [f"from {', '.join(said.laws)}"] if said.laws else []
        evidence = "; ".join([said.evidence or "checked when it was loaded", *laws])
        yield RuleView(name, said.text, fired, said.origin, evidence)


def growth_views(grown: Saturation) -> tuple[GrowthView, ...]:
    """The steps of growth."""
    return tuple(
        GrowthView(step.phase, *step.after, step.seconds, dict(step.fired), dict(step.matched)) for step in grown.steps
    )


def _class_blocks(run: ViewedRun) -> Mapping[int, Path]:
    """The block of each e-class: that of the values it holds, else of its readers."""
    snapshot = run.choice.extraction.snapshot
    placed: dict[int, Path] = {}
    for leader, eclass in snapshot.classes.items():
        block = next((run.blocks[value] for value in eclass.values if value in run.blocks), None)
        if block is not None:
            placed[leader] = block
    queue = deque(sorted(placed))
    while queue:
        leader = queue.popleft()
        for position in snapshot.classes[leader].nodes:
            for operand in snapshot.nodes[position].operands:
                if operand not in placed:
                    placed[operand] = placed[leader]
                    queue.append(operand)
    return placed
