"""A run as its views read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from eqsat.costs.model.cost import GraphCost
from eqsat.egraph.encode import Encoding
from eqsat.egraph.saturation import Saturation
from eqsat.explorer.choosing import Choice, computed
from eqsat.explorer.view.blocks import Path, by_value
from eqsat.explorer.view.views import ChangeView
from eqsat.language.onnx.read.model import Given
from eqsat.report.explanation import Explanation
from eqsat.report.finalists import Candidate
from eqsat.rewrites.rules.ruleset import RuleSet


@dataclass(frozen=True)
class ViewedRun:
    """A run as far as it got: the model, its e-graph, the choice from it, and the candidate that was kept.

    `kept` is that of a result where there is one, else the choice's; `costs` are the original's node by node, `explain`
    gives the changes, when they are asked for.
    """

    given: Given
    encoding: Encoding
    grown: Saturation
    rules: RuleSet
    choice: Choice
    kept: Candidate
    costs: GraphCost
    explain: Callable[[], Explanation]
    report: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def explained(self) -> Explanation:
        """The changes, with reasons."""
        return self.explain()

    @cached_property
    def chosen(self) -> dict[int, str]:
        """The numbers of the e-nodes of the kept candidate, and the states they are chosen in."""
        if self.kept is self.choice.candidate:
            return self.choice.chosen
        return dict.fromkeys(computed(self.kept, self.choice.extraction), "")

    @cached_property
    def blocks(self) -> dict[str, Path]:
        """The block of each value of the original graph."""
        return by_value(self.given.graph)

    @cached_property
    def changes(self) -> tuple[ChangeView, ...]:
        """The changes, numbered from 1."""
        return tuple(
            ChangeView(
                number=number,
                what=change.what,
                values=change.values,
                rules=change.rules,
                steps=tuple(map(str, change.steps)),
                predicted=change.predicted,
                measured=change.measured,
                gaps=change.gaps,
            )
            for number, change in enumerate(self.explained.changes, start=1)
        )

    def leader(self, value: str) -> int:
        """The e-class of a value of the original graph."""
        return self.encoding.egraph.find(self.encoding.values[value])
