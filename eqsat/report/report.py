"""Reports of an optimisation: while it runs, and when it is done, as a table for people and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderResult

from eqsat.report.display.html import report_html
from eqsat.report.display.text import sections
from eqsat.report.progress import PHASES as PHASES
from eqsat.report.progress import Phase as Phase
from eqsat.report.progress import Progress as Progress
from eqsat.report.record import Record
from eqsat.system.terminal import WIDTH as WIDTH
from eqsat.system.terminal import captured, shown


@dataclass(kw_only=True, repr=False)
class Report(Record):
    """The record of an optimisation: its steps, its gain, and how the result was checked. All times are in seconds.

    `cost_before`, `cost_after` and `lower_bound` are in units of the objective (seconds for time); `gap` is the share
    of `cost_after` that a better choice from the same e-graph could save at most. `estimated_share`, from 0 to 1, is
    the part of the cost that comes from a roofline and not from a measurement. `growth` lists (phase, e-nodes,
    e-classes, seconds) after each step. `rules_fired` counts by rule, `rules_refused` by rule and reason, and
    `rules_bounded` names those behind the changes that are not proved for every size. `certificate` says how
    the result was checked. `measured_before` and `measured_after` are medians of one interleaved run of
    `rounds` rounds; `measured_ratio` is the median of new/old over its rounds, and `measured_bound` the upper 95 %
    bound of that very ratio; where a finalist has to be faster at every size, both are those of the size where the
    bound is largest. All four are None where nothing ran. `finalists` lists the graphs among which was chosen, the
    original first, each with its predicted cost, its time, and the reason for which it was kept or not. `levels` lists
    the levels of ONNX Runtime's graph optimisation that the result was timed at besides "all", at which finalists are
    compared, and `level` is the one that it runs at. `kept` names
    the one that became the result, `kept_because` why. `opaque` lists the nodes kept as they are, `changes` the
    differences from the original. `amounts` are the amounts that the result uses of terms that were limited or priced,
    in their units, and `limits` the limits. `failure` says which phase failed and how, where the original was kept for
    that; `skipped` lists the work that there was no time for; `refuted` names the rules that a wrong region rested on,
    without which the run began anew. `steps` lists all kernels and conversions that run: operators, states, seconds,
    whether they are estimated. `baselines` are the costs of other searches in the same e-graph, and their seconds.
    `sizes` lists where named dims were costed, each with its sizes and its weight, and `measured_at` says where the
    model was measured; both are empty where every dim of the inputs is a number. `borrowed_share` is the part of the
    cost that was measured in another environment, which `borrowed_from` names with the factors by which its times were
    scaled. `found_again` says when the result was optimised, and how long that took, where it is that of an earlier
    run; all seconds are those of that run then. `blocks` lists the runs of equal blocks of which only a few are in the
    e-graph; `gap`, `lower_bound`, `enodes` and what is told of rules are of that smaller e-graph then, at the costs of
    the whole. `partition` lists the parts of a graph that was cut, whose e-nodes are added up in `enodes`,
    and of whose choice there is no bound.

    `usage_before` and `usage_after` are the launches and the memory of one run of the original and of the
    result, in the order they are written in and at the sizes they are costed at; None where nothing was chosen.

    `input` is the model with its SHA-256, `arguments` the options that differ from their defaults, `versions` those of
    Python and of the packages that a result depends on, `machine` where the run took place; together they say how to
    come to the same result again. `input` is None for the body of a node, which is a part of a model. The JSON has a
    schema, `eqsat/report/schema.json`, and under "schema" its version, which is raised where a field changes its
    meaning or goes; new fields may come without that.
    """

    def __str__(self) -> str:
        return captured(sections(self))

    __repr__ = __str__

    def __rich_console__(self, console: Console, options: Any) -> RenderResult:
        yield from shown(console.render(sections(self), options))

    def _repr_html_(self) -> str:
        return report_html(self, str(self))
