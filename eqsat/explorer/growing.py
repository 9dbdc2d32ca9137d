"""Steps of growth: the rules that fired, where, and refusals with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat.egraph.saturation import SaturationStep
from eqsat.report.units import count, duration
from eqsat.system.markup import html_table
from eqsat.system.terminal import text_table

#: Places and reasons that one row of a table names.
_PLACES, _REASONS = 4, 2
#: Rules that a table shows, and how many where none fired.
_ROWS, _IDLE = 25, 8
_COLUMNS = ("rule", "matched", "fired", "where", "refused")
_ENDS = {
    "saturated": "saturated: no rule finds anything new",
    "radius_limit": "saturated within the radius: what is left lies too many firings from the original",
    "node_limit": "stopped by the node limit; grow(node_limit=...) goes on",
    "time_limit": "stopped by the time limit; grow(time_limit=...) goes on",
    "round_limit": "stopped by the limit of rounds; grow() goes on",
    "interrupted": "interrupted; grow() goes on",
    "paused": "",
}


@dataclass(frozen=True)
class Growth:
    """Steps of growth that were taken together.

    `steps` are the events of each, `stopped_by` says why growth ended, "paused" where it did not. `places` names the
    value of an e-node: the values of the graph that its e-class holds, or the e-class.
    """

    steps: tuple[SaturationStep, ...]
    stopped_by: str
    size: tuple[int, int]
    places: Callable[[int], str]

    @property
    def before(self) -> tuple[int, int]:
        """E-nodes and e-classes before."""
        return self.steps[0].before if self.steps else self.size

    @property
    def after(self) -> tuple[int, int]:
        """E-nodes and e-classes after it, equal ones joined."""
        return self.size

    @cached_property
    def fired(self) -> Counter[str]:
        """The firings of each rule."""
        return sum((s.fired for s in self.steps), Counter())

    @cached_property
    def matched(self) -> Counter[str]:
        """The new matches of each rule."""
        return sum((s.matched for s in self.steps), Counter())

    @cached_property
    def refused(self) -> dict[str, dict[str, int]]:
        """The refusals of each rule by reason."""
        by_rule: dict[str, dict[str, int]] = {}
        for (rule, reason), times in sum((s.refused for s in self.steps), Counter()).items():
            by_rule.setdefault(rule, {})[reason] = times
        return by_rule

    @cached_property
    def where(self) -> dict[str, list[str]]:
        """For each rule that fired the values, or else e-classes, where it did, in order."""
        by_rule: dict[str, dict[str, None]] = {}
        for step in self.steps:
            for rule, enodes in step.firings:
                by_rule.setdefault(rule, {}).update(dict.fromkeys(map(self.places, enodes)))
        return {rule: list(places) for rule, places in by_rule.items()}

    def rows(self) -> list[tuple[Any, ...]]:
        """The rules that matched, most firings first: rule, matches, firings, where, refusals with reasons."""
        names = sorted({*self.matched, *self.fired}, key=lambda rule: (-self.fired[rule], -self.matched[rule], rule))
        return [
            (
                rule,
                self.matched[rule],
                self.fired[rule],
                _some(self.where.get(rule, []), _PLACES),
                _some([f"{n} × {why}" for why, n in _most(self.refused.get(rule, {}))], _REASONS),
            )
            for rule in names
        ]

    @property
    def title(self) -> str:
        """A summary of the steps in a line or two."""
        end = _ENDS.get(self.stopped_by, self.stopped_by)
        if not self.steps:
            return f"no step: {end or 'nothing to do'}"
        phases = Counter(s.phase for s in self.steps)
        named = ", ".join(phase if n == 1 else f"{phase} × {n}" for phase, n in phases.items())
        (nodes, classes), (more, now) = self.before, self.after
        spent = self.steps[-1].seconds
        line = (
            f"{named}: {nodes} -> {count(more, 'e-node')}, {classes} -> {count(now, 'e-class', 'e-classes')}; "
            f"{count(len(self.fired), 'rule')} fired {count(self.fired.total(), 'time')}; {duration(spent)} in all"
        )
        return f"{line}\n{end}" if end else line

    def shown(self) -> tuple[str, list[tuple[Any, ...]]]:
        """The title, with a line on rules left out, and the rules that fired most."""
        rows = self.rows()
        fired = [row for row in rows if row[2]] or sorted(rows, key=lambda row: -row[1])[:_IDLE]
        visible = fired[:_ROWS]
        idle = sum(not row[2] for row in rows) - sum(not row[2] for row in visible)
        more = [f"{count(len(fired) - len(visible), 'more rule')} fired"] if len(fired) > len(visible) else []
        more += [f"{count(idle, 'rule')} matched and did not fire"] if idle else []
        return f"{self.title}\n{'; '.join(more)} (all in .rows())" if more else self.title, visible

    def __str__(self) -> str:
        title, rows = self.shown()
        return text_table(title, _COLUMNS, rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        title, rows = self.shown()
        return html_table(title, _COLUMNS, rows)


def _most(reasons: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda item: -item[1])


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
