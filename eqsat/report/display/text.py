"""A report as text: phases, changes, finalists and kernels as tables, and notes below them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from eqsat.costs.devices.fields import MAKER
from eqsat.report import parts
from eqsat.report.precision import RoundingReport
from eqsat.report.progress import PHASES
from eqsat.report.record import Record
from eqsat.report.units import amount, count, duration, integer, number, percent
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL, VARIABLE

#: Rows of kernels that a report shows; its JSON has all.
MOST_RUNS = 12

_NOT_SATURATED = {
    "node_limit": "stopped by the node limit",
    "radius_limit": "saturated to its radius",
    "round_limit": "stopped by the limit of rounds",
    "time_limit": "stopped by the time limit",
    "step_limit": "stopped by the limit of steps",
    "interrupted": "interrupted",
    "paused": "grown step by step, not to its end",
    "failed": "not to its end",
}
_NOT_OPTIMAL = {
    "time_limit": "best within the time limit",
    "step_limit": "best within the limit of steps",
    "interrupted": "best when interrupted",
    "heuristic": "heuristic",
}


def sections(report: Record) -> Group:
    """All of a report, to be printed."""
    tables: list[Any] = [_phases(report), Text(), _changes(report), Text()]
    if has_finalists(report):
        tables += [_finalists(report), Text()]
    if report.steps:
        tables += [_runs(report), Text()]
    return Group(*tables, *(Text(line, style=style) for line, style in notes(report)))


def _calibration(report: Record) -> str:
    """The measurements made before choosing, in words."""
    planned = report.device.startswith(MAKER)
    if report.rounding is not None and planned:
        return "errors of roundings measured on data"
    if report.rounding is not None and report.rounding.integers:
        return "kernels measured, and errors of their roundings on data"
    if report.borrowed_share or report.borrowed_from:
        return "a few operators measured, to scale the costs of another machine"
    return "ranges of values read from data" if planned else "kernels measured"


def phase_rows(report: Record) -> Iterator[tuple[str, str, str]]:
    """The phases in order: the outcome of each in a line, and its seconds."""
    lines = {
        "read": f"{count(report.nodes_before, 'node')}",
        "saturate": _saturation(report),
        "extract": _extraction(report),
        "certify": report.certificate.text or report.certificate.kind,
        "measure": _measurement(report),
    }
    if "calibrate" in report.seconds:
        lines["calibrate"] = _calibration(report)
    if "bodies" in report.seconds:
        changed = report.certificate.bodies or ()
        lines["bodies"] = f"{count(len(changed), 'body', 'bodies')} of If, Loop and Scan changed"
    if report.partition:
        cut = sum(one.name.startswith("cut") for one in report.partition)
        lines["parts"] = f"{count(len(report.partition) - cut, 'part')}, {cut} more around the cuts"
    for phase in PHASES:
        seconds = report.seconds.get(phase)
        if phase in lines or seconds is not None:
            line = lines.get(phase, count(report.nodes_after, "node"))
            yield phase, line, "" if seconds is None else f"{seconds:.2f} s"


def _phases(report: Record) -> Table:
    table = Table.grid(padding=(0, 2), expand=True, pad_edge=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    for phase, line, seconds in phase_rows(report):
        table.add_row(phase, Text(line), seconds)
    return table


def _saturation(report: Record) -> str:
    fired = sum(report.rules_fired.values())
    rules = f"{count(len(report.rules_fired), 'rule')} fired {count(fired, 'time')}" if fired else "no rule fired"
    stopped = _NOT_SATURATED.get(report.stopped_by, report.stopped_by)
    if not report.enodes:  # of a run that chose nothing, no e-graph is told of
        return stopped
    if report.partition:
        return f"{count(report.enodes, 'e-node')} of {count(len(report.partition), 'part')}, {rules}"
    blocks = "".join(f"{one.grown} of {one.count} equal blocks of {one.nodes} nodes, " for one in report.blocks)
    grown = f"{blocks}{integer(report.nodes_grown)} -> {count(report.enodes, 'e-node')}"
    return f"{grown} in {count(report.eclasses, 'e-class', 'e-classes')}, {rules}, {stopped}"


def _extraction(report: Record) -> str:
    if report.extraction == "none":
        return "nothing was chosen"
    if report.partition:
        show, left = cost_of(report), sum(bool(one.why) for one in report.partition)
        stay = f", {count(left, 'part')} left as given" if left else ""
        return f"part by part{stay}, cost {show(report.cost_before)} -> {show(report.cost_after)}"
    how = _NOT_OPTIMAL.get(report.extraction, report.extraction)
    ratio = f" ({report.cost_before / report.cost_after:.2f}x)" if report.cost_after else ""
    show = cost_of(report)
    return f"{how} (gap {percent(report.gap)}), cost {show(report.cost_before)} -> {show(report.cost_after)}{ratio}"


def cost_of(report: Record) -> Callable[[float], str]:
    """The form that costs of a report are shown in: seconds where time alone counts."""
    return duration if report.objective and set(report.objective) <= {"time"} else number


def _measurement(report: Record) -> str:
    if report.measured_before is None or report.measured_after is None:
        return "not measured"
    changed = f" -> {duration(report.measured_after)}" if report.kept != "original" else ""
    line = f"{duration(report.measured_before)}{changed} on {report.device}"
    if report.measured_ratio is not None and changed:
        line += f", new/old {report.measured_ratio:.3f}"
        if report.measured_bound is not None:
            line += f", at most {report.measured_bound:.3f} (95 %)"
    if report.rounds:
        line += f", {count(report.rounds, 'round')}"
    return f"{line}, measured at {report.measured_at}" if report.measured_at else line


def change_columns(report: Record) -> tuple[list[str], list[tuple[str, ...]]]:
    """The changes as a table: titles of columns and rows. Columns that no change fills are left out."""
    known = [
        (key, *column)
        for key, column in _OPTIONAL.items()
        if any(getattr(change, key) is not None for change in report.changes)
    ]
    rows = []
    for change in report.changes:
        values = [(getattr(change, key), show) for key, _, show in known]
        middle = ("" if value is None else show(value) for value, show in values)
        rows.append((change.what, *middle, ", ".join(change.rules)))
    return ["what", *(title for _, title, _ in known), "why"], rows


def nothing_changed(report: Record) -> str:
    """The reason for which the original was kept, as a sentence."""
    return f"nothing changed: {report.kept_because or 'no cheaper graph was found'}"


def _changes(report: Record) -> Table | Text:
    if report.kept == "original":
        return Text(nothing_changed(report))
    (first, *middle, last), rows = change_columns(report)
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
    table.add_column(first, ratio=3)
    for title in middle:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(last, ratio=2)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def has_finalists(report: Record) -> bool:
    """True if there are finalists that were not kept, besides the original."""
    return any(not finalist.kept for finalist in report.finalists[1:])


#: Titles of the columns of finalists.
FINALIST_COLUMNS = ("finalist", "nodes", "predicted", "measured", "new/old", "at most", "why")


def finalist_rows(report: Record) -> Iterator[tuple[str, ...]]:
    """The finalists, the original first: costs, times, the ratio to the original's time with its bound, and why."""
    show = cost_of(report)
    for one in report.finalists:
        ratio, bound = ("" if value is None else f"{value:.3f}" for value in (one.ratio, one.bound))
        measured = "" if one.measured is None else duration(one.measured)
        why = "kept" if one.kept else one.why
        yield one.name, integer(one.nodes), show(one.predicted), measured, ratio, bound, why


def _finalists(report: Record) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
    first, *middle, last = FINALIST_COLUMNS
    table.add_column(first, no_wrap=True)
    for title in middle:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(last, ratio=1)
    for row in finalist_rows(report):
        table.add_row(*map(Text, row))
    return table


def _runs(report: Record) -> Table:
    """The kernels that run, by operators and states, the dearest first; conversions are rows like others."""
    groups: dict[tuple[str, str], list[parts.StepCost]] = {}
    for step in report.steps:
        operands = ", ".join(step.operands)
        states = step.result if operands == step.result else f"{operands} -> {step.result}"
        by = f" by {step.arithmetic}" if step.arithmetic else ""
        groups.setdefault((step.op, states + by), []).append(step)
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
    table.add_column("what runs", ratio=3)
    table.add_column("kernels", justify="right", no_wrap=True)
    table.add_column("held as", ratio=2)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    ranked = sorted(groups.items(), key=lambda item: -sum(s.seconds for s in item[1]))
    for (op, states), steps in ranked[:MOST_RUNS]:
        table.add_row(Text(op), integer(len(steps)), Text(states), *_spent(steps))
    rest = [step for _, steps in ranked[MOST_RUNS:] for step in steps]
    if rest:
        table.add_row(f"{count(len(ranked) - MOST_RUNS, 'kind')} more", integer(len(rest)), "", *_spent(rest))
    return table


def _spent(steps: Sequence[parts.StepCost]) -> tuple[str, str]:
    """The seconds of steps together, and the share of them that was measured."""
    total = math.fsum(s.seconds for s in steps)
    known = math.fsum(s.seconds for s in steps if not s.estimated)
    return duration(total), percent(known / total) if total else ""


def _usage(before: parts.Usage, after: parts.Usage) -> str:
    """The launches and the memory of the original and of the result."""
    terms = {"launches": "launches", "peak memory": "peak_memory", "weights": "weights"}
    pairs = {title: (getattr(before, field), getattr(after, field), field) for title, field in terms.items()}
    return ", ".join(f"{t} {amount(field, a)} -> {amount(field, b)}" for t, (a, b, field) in pairs.items())


def _used(report: Record, term: str) -> str:
    """The amount of a term that the result uses, and its limit."""
    most = report.limits.get(term)
    limit = "" if most is None else f" of at most {amount(term, most)}"
    return f"{term} {amount(term, report.amounts[term])}{limit}"


def _compared(report: Record) -> str:
    """The costs by other extractors, next to the bound."""
    unit = cost_of(report)
    costs = {"chosen": report.cost_after} | {b.name: b.cost for b in report.baselines}
    chosen, *others = [f"{name} {unit(cost)}" for name, cost in costs.items()]
    return "; ".join([f"{chosen}, bound {unit(report.lower_bound)}", *others])


def _roundings(rounding: RoundingReport) -> list[str]:
    """The operators on integers, those that stay in float32 with the reasons, and the errors."""
    integers = ", ".join(f"{n} {op}" for op, n in sorted(rounding.integers.items(), key=lambda item: -item[1]))
    kept = [
        f"{n} {op} ({reason})" for op, reasons in sorted(rounding.kept.items()) for reason, n in sorted(reasons.items())
    ]
    most = "" if rounding.budget is None else f" of at most {percent(rounding.budget)}"
    narrow = [
        f"in {precision}: {', '.join(f'{n} {op}' for op, n in counts.items())}"
        for precision, counts in rounding.narrow.items()
    ]
    scaled = f"; {count(rounding.equalised, 'value')} with scaled channels" if rounding.equalised else ""
    whole = [f"on integers: {integers}{scaled}"] if integers else []
    lines = [*whole, *narrow, f"in float32: {', '.join(kept) or 'nothing'}"]
    if not rounding.outputs:
        lines.append(f"error: predicted {percent(rounding.predicted)}{most}")
    data = rounding.data
    held = "held back of" if data.calibrate else "of"
    batches = f"{count(data.report, 'batch', 'batches')} {held} {data.source}"
    for name, one in rounding.outputs.items():
        agrees = "" if one.agreement is None else f"; largest elements agree in {percent(one.agreement)} of rows"
        measured = f"measured {percent(one.worst)} at most, {percent(one.mean)} on average"
        lines.append(f"error of {name}: predicted {percent(rounding.predicted)}{most}, {measured} on {batches}{agrees}")
    return [*lines, *rounding.notes]


def _levels(levels: Sequence[parts.SessionLevel]) -> str:
    """The level of ONNX Runtime's graph optimisation, with the ratio to the time at "all", and the others."""
    others = [
        f"{one.name} {one.why}" if one.ratio is None else f"{one.name} at {one.ratio:.3f} of its time, {one.why}"
        for one in levels
        if not one.kept
    ]
    chosen = next((one for one in levels if one.kept), None)
    if chosen is None:
        return f"ONNX Runtime's level: {DEFAULT_LEVEL}; {'; '.join(others)}"
    against = (
        f"{chosen.why}, over {count(chosen.sessions, 'pair')} of sessions; {chosen.new_old:.3f} of the original's at "
        f'"{DEFAULT_LEVEL}", at most {chosen.new_old_bound:.3f}'
    )
    told = f"other sessions need graph_optimization_level = ORT_ENABLE_{chosen.name.upper()}, or {VARIABLE}=1"
    return "; ".join([f"ONNX Runtime's level: {chosen.name}, {against}", *others, told])


def notes(report: Record) -> list[tuple[str, str]]:
    """The lines below the tables, each with its colour."""
    names = [f"{o.name} ({o.reason})" for o in report.opaque]
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    lines = [(f"found again: {report.found_again}", "")] if report.found_again else []
    if report.extraction != "none":
        share = f"estimated share of cost: {percent(report.estimated_share)}"
        lines += [(f"kept as opaque: {listed or 'none'}; {share}", "")]
    if report.borrowed_share:
        lines.append((f"borrowed share of cost: {percent(report.borrowed_share)}, from {report.borrowed_from}", ""))
    if report.usage_before is not None and report.usage_after is not None:
        lines.append((_usage(report.usage_before, report.usage_after), ""))
    if report.amounts:
        lines.append(("uses " + ", ".join(_used(report, term) for term in report.amounts), ""))
    if report.rounding is not None:
        lines += [(line, "") for line in _roundings(report.rounding)]
    if report.baselines:
        lines.append((_compared(report), ""))
    if report.kept != "original":
        lines.append((f"result: {report.kept}, {report.kept_because}", ""))
    if report.rules_bounded:
        shown, more = report.rules_bounded[:4], len(report.rules_bounded) - 4
        tail = f" and {more} more" if more > 0 else ""
        lines.append((f"rules not proved for every size, but true of what was tried: {', '.join(shown)}{tail}", ""))
    if report.levels:
        lines.append((_levels(report.levels), ""))
    if report.failure:
        left = "the original was kept" if report.kept == "original" else "that was kept as it was"
        lines.append((f"failed: {report.failure}; {left}", "red"))
    lines += [(f"skipped: {s}", "yellow") for s in report.skipped]
    return lines + [(f"warning: {w}", "yellow") for w in report.warnings]


#: Optional fields of a change, besides its kind and its cause, with the title and the form each is shown in.
_OPTIONAL: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "nodes": ("nodes", lambda nodes: f"{nodes:+d}"),
    "predicted": ("predicted to save", duration),
    "measured": ("measured", duration),
}
