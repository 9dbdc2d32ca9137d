"""Reports of an optimisation: while it runs, and when it is done, as a table for people and as JSON."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

from rich.console import Console, Group, RenderResult
from rich.table import Table
from rich.text import Text

from eqsat.moved import FormerDict
from eqsat.report import parts
from eqsat.report.explanation import Change
from eqsat.report.units import count, duration, integer, number, percent, quantity
from eqsat.system.terminal import plain, shown

Phase: TypeAlias = Literal["read", "bodies", "saturate", "extract", "measure", "certify", "write"]

#: The phases of an optimisation, in order.
PHASES: tuple[Phase, ...] = ("read", "bodies", "saturate", "extract", "measure", "certify", "write")

#: Rows of kernels that a report shows; its JSON has all.
MOST_RUNS = 12

#: Columns of a report where no terminal says otherwise.
WIDTH = 110

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


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an optimisation: its phase, e-nodes so far, the best cost and the proven bound, in seconds."""

    phase: Phase
    nodes: int = 0
    best: float | None = None
    bound: float | None = None
    detail: str = ""

    @property
    def gap(self) -> float | None:
        """The largest distance of the best from the optimum, as a share of the best; None before both are known."""
        if self.best is None or self.bound is None or not math.isfinite(self.best):
            return None
        return max(0.0, (self.best - self.bound) / self.best) if self.best else 0.0


@dataclass(kw_only=True)
class Report:
    """The record of an optimisation: its steps, its gain, and how the result was checked. All times are in seconds.

    `cost_before`, `cost_after` and `lower_bound` are in units of the objective (seconds for time); `gap` is the share
    of `cost_after` that a better choice from the same e-graph could save at most. `estimated_share`, from 0 to 1, is
    the part of the cost that comes from a roofline and not from a measurement. `growth` lists (phase, e-nodes,
    e-classes, seconds) after each step. `rules_fired` counts by rule, `rules_refused` by rule and reason. `certificate`
    says how the result was checked. `measured_before` and `measured_after` are medians of one interleaved run of
    `rounds` rounds, and `measured_bound` the upper 95 % bound of new/old; all None where nothing ran. `kept` names the
    finalist that became the result, `kept_because` why. `opaque` lists the nodes kept as they are, `changes` the
    differences from the original. `amounts` are the amounts that the result uses of terms that were limited or priced,
    in their units, and `limits` the limits. `failure` says which phase failed and how, where the original was kept for
    that; `skipped` lists the work that there was no time for; `refuted` names the rules that a wrong region rested on,
    without which the run began anew. `steps` lists all kernels and conversions that run: operators, states, seconds,
    whether they are estimated. `baselines` are the costs of other searches in the same e-graph, and their seconds.
    `sizes` lists where named dims were costed, each with its sizes and its weight, and `measured_at` says where the
    model was measured; both are empty where every dim of the inputs is a number. `found_again` says when the result
    was optimised, and how long that took, where it is that of an earlier run; all seconds are those of that run then.
    """

    name: str
    device: str
    nodes_before: int
    nodes_after: int
    cost_before: float
    cost_after: float
    lower_bound: float
    gap: float
    stopped_by: str
    extraction: str
    objective: Mapping[str, Any] = field(default_factory=dict)
    enodes: int = 0
    eclasses: int = 0
    rounds: int = 0
    growth: Sequence[tuple[str, int, int, float]] = ()
    estimated_share: float = 0.0
    rules_fired: Mapping[str, int] = field(default_factory=dict)
    rules_refused: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    certificate: parts.CertificateSummary
    seconds: Mapping[str, float] = field(default_factory=dict)
    measured_before: float | None = None
    measured_after: float | None = None
    measured_bound: float | None = None
    kept: str = "original"
    kept_because: str = ""
    opaque: Sequence[parts.OpaqueNode] = ()
    operators_before: Mapping[str, int] = field(default_factory=dict)
    operators_after: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    changes: Sequence[Change | parts.ControlChange] = ()
    amounts: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    steps: Sequence[parts.StepCost] = ()
    baselines: Sequence[parts.Baseline] = ()
    failure: str = ""
    skipped: Sequence[str] = ()
    refuted: Sequence[str] = ()
    sizes: Sequence[parts.CostedSizes] = ()
    measured_at: str = ""
    found_again: str = ""

    def to_json(self) -> dict[str, Any]:
        """The report as plain dicts, lists, strings and numbers; a number that is not finite becomes None."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def json(self) -> str:
        """The report as JSON text that any parser takes."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def __str__(self) -> str:
        text = io.StringIO()
        plain(WIDTH, file=text).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __rich_console__(self, console: Console, options: Any) -> RenderResult:
        sections: list[Any] = [_phases(self), Text(), _changes(self), Text()]
        if self.steps:
            sections += [_runs(self), Text()]
        yield from shown(console.render(Group(*sections, *_notes(self)), options))


def _plain(value: Any) -> Any:
    if isinstance(value, FormerDict):
        value = value.as_dict()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):  # NumPy's numbers too
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)


def _phases(report: Report) -> Table:
    table = Table.grid(padding=(0, 2), expand=True, pad_edge=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    lines = {
        "read": f"{count(report.nodes_before, 'node')}",
        "saturate": _saturation(report),
        "extract": _extraction(report),
        "certify": report.certificate.text or report.certificate.kind,
        "measure": _measurement(report),
    }
    if "bodies" in report.seconds:
        changed = report.certificate.bodies or ()
        lines["bodies"] = f"{count(len(changed), 'body', 'bodies')} of If, Loop and Scan changed"
    for phase in PHASES:
        seconds = report.seconds.get(phase)
        if phase not in lines and seconds is None:
            continue
        line = lines.get(phase, count(report.nodes_after, "node"))
        table.add_row(phase, Text(line), "" if seconds is None else f"{seconds:.2f} s")
    return table


def _saturation(report: Report) -> str:
    fired = sum(report.rules_fired.values())
    rules = f"{count(len(report.rules_fired), 'rule')} fired {count(fired, 'time')}" if fired else "no rule fired"
    stopped = _NOT_SATURATED.get(report.stopped_by, report.stopped_by)
    grown = f"{integer(report.nodes_before)} -> {count(report.enodes, 'e-node')}"
    return f"{grown} in {count(report.eclasses, 'e-class', 'e-classes')}, {rules}, {stopped}"


def _extraction(report: Report) -> str:
    how = _NOT_OPTIMAL.get(report.extraction, report.extraction)
    ratio = f" ({report.cost_before / report.cost_after:.2f}x)" if report.cost_after else ""
    unit = duration if set(report.objective) <= {"time"} else number
    return f"{how} (gap {percent(report.gap)}), cost {unit(report.cost_before)} -> {unit(report.cost_after)}{ratio}"


def _measurement(report: Report) -> str:
    if report.measured_before is None or report.measured_after is None:
        return "not measured"
    ratio = report.measured_before / report.measured_after if report.measured_after else math.inf
    line = f"{duration(report.measured_before)} -> {duration(report.measured_after)} ({ratio:.2f}x) on {report.device}"
    if report.measured_bound is not None:
        line += f", new/old at most {report.measured_bound:.3f} (95 %)"
    if report.rounds:
        line += f", {count(report.rounds, 'round')}"
    return f"{line}, measured at {report.measured_at}" if report.measured_at else line


def _changes(report: Report) -> Table | Text:
    if report.kept == "original":
        return Text(f"nothing changed: {report.kept_because or 'no cheaper graph was found'}")
    columns = [
        (k, *c) for k, c in _OPTIONAL.items() if any(getattr(change, k) is not None for change in report.changes)
    ]
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
    table.add_column("what", ratio=3)
    for _, title, _show in columns:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("why", ratio=2)
    for change in report.changes:
        values = [(getattr(change, key), show) for key, _, show in columns]
        middle = ["" if value is None else show(value) for value, show in values]
        table.add_row(Text(change.what), *middle, Text(", ".join(change.rules)))
    return table


def _runs(report: Report) -> Table:
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


def _used(report: Report, term: str) -> str:
    """The amount of a term that the result uses, and its limit."""
    show = {"time": duration, "error": number, "launches": number}.get(term)
    if show is None:
        unit = "FLOP" if term == "flops" else "B"
        return _used_of(report, term, lambda value: quantity(value, unit))
    return _used_of(report, term, show)


def _used_of(report: Report, term: str, show: Callable[[float], str]) -> str:
    most = report.limits.get(term)
    return f"{term} {show(report.amounts[term])}" + (f" of at most {show(most)}" if most is not None else "")


def _compared(report: Report) -> str:
    """The costs by other extractors, next to the bound."""
    unit = duration if set(report.objective) <= {"time"} and report.objective else number
    costs = {"chosen": report.cost_after} | {b.name: b.cost for b in report.baselines}
    chosen, *others = [f"{name} {unit(cost)}" for name, cost in costs.items()]
    return "; ".join([f"{chosen}, bound {unit(report.lower_bound)}", *others])


def _notes(report: Report) -> list[Text]:
    names = [f"{o.name} ({o.reason})" for o in report.opaque]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    notes = [Text(f"found again: {report.found_again}")] if report.found_again else []
    notes += [Text(f"kept as opaque: {shown or 'none'}; estimated share of cost: {percent(report.estimated_share)}")]
    if report.amounts:
        notes.append(Text("uses " + ", ".join(_used(report, term) for term in report.amounts)))
    if report.baselines:
        notes.append(Text(_compared(report)))
    if report.kept != "original":
        notes.append(Text(f"result: {report.kept}, {report.kept_because}"))
    if report.failure:
        left = "the original was kept" if report.kept == "original" else "that was kept as it was"
        notes.append(Text(f"failed: {report.failure}; {left}", style="red"))
    notes += [Text(f"skipped: {s}", style="yellow") for s in report.skipped]
    return notes + [Text(f"warning: {w}", style="yellow") for w in report.warnings]


#: Optional fields of a change, besides its kind and its cause, with the title and the form each is shown in.
_OPTIONAL: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "nodes": ("nodes", lambda nodes: f"{nodes:+d}"),
    "predicted": ("predicted to save", duration),
    "measured": ("measured", duration),
}
