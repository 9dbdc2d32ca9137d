"""A choice among the forms of an e-graph: its graph, its cost, how far it may be from the best, and the baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.costs.model.cost import readable
from eqsat.egraph.egraph import CONST, INPUT, PROJECTION, EGraph
from eqsat.explorer.naming import amount
from eqsat.explorer.pricing import Price, prices
from eqsat.extract import Solution
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.terms.plan import Conversion
from eqsat.report.finalists import Candidate
from eqsat.report.parts import Baseline
from eqsat.report.units import count, duration, percent
from eqsat.system.markup import html_block

#: A gap that is none but the rounding of sums.
_ROUNDING = 1e-9
_HOW = {
    "optimal": "proved to be the best",
    "time_limit": "the best within the time limit",
    "interrupted": "the best when interrupted",
    "heuristic": "found by a heuristic",
}


@dataclass(frozen=True)
class Choice:
    """A choice from an e-graph: its extractor, its cost, and its graph.

    `cost` and `bound` are in units of the objective, seconds where that is time. `given` is the original as it was
    given, `others` are the baselines' solutions of the same problem. `candidate` has the graph, and how it is run where
    that is not as it was given; `original` is the candidate it is compared with.
    """

    extractor: str
    extraction: TensorProblem
    solution: Solution
    candidate: Candidate
    original: Candidate
    given: Solution
    others: Sequence[Baseline]
    in_seconds: bool

    @property
    def cost(self) -> float:
        """The cost by the objective."""
        return self.solution.cost

    @property
    def bound(self) -> float:
        """A proven lower bound of the cost of every choice from this e-graph."""
        return self.solution.lower_bound

    @property
    def gap(self) -> float:
        """The largest possible distance of the cost from the best, as a share of it."""
        return 0.0 if self.solution.gap < _ROUNDING else self.solution.gap

    @property
    def status(self) -> str:
        """The end of the search: "optimal", "time_limit", "interrupted" or "heuristic"."""
        return self.solution.status

    @cached_property
    def prices(self) -> dict[int, Price]:
        """The price of each e-node by its position."""
        return prices(self.extraction)

    @cached_property
    def chosen(self) -> dict[int, str]:
        """The numbers of the e-nodes that are chosen, and the states that each was chosen in."""
        nodes = self.extraction.snapshot.nodes
        by_number: dict[int, dict[str, None]] = {number: {} for number in computed(self.candidate, self.extraction)}
        for (_, state), option in self.solution.chosen.items():
            for position in self.extraction.options[option].positions:
                if (number := nodes[position].number) in by_number:
                    by_number[number].setdefault(str(self.extraction.states[state]))
        return {number: ", ".join(states) for number, states in by_number.items()}

    def names(self, egraph: EGraph) -> dict[int, str]:
        """The names of e-classes in the chosen graph."""
        assembled = self.candidate.assembled
        if assembled is None:
            return {}
        nodes, choice = assembled.snapshot.nodes, assembled.choice
        named = assembled.decoded.names.items()
        return {egraph.find(nodes[choice[leader]].number): name for leader, name in named if leader in choice}

    @property
    def states(self) -> Counter[str]:
        """In how many kernels' results each state occurs; "row" alone where nothing else was chosen."""
        return Counter(str(self.extraction.states[state]) for (_, state) in self.solution.chosen)

    def amount(self, cost: float) -> str:
        """A cost as text."""
        return amount(cost, self.in_seconds)

    def __str__(self) -> str:
        before, after = self.original.cost.price, self.cost
        ratio = f" ({before / after:.2f}x)" if after else ""
        lines = [
            f"{self.extractor}: {self.amount(before)} -> {self.amount(after)}{ratio}, "
            f"{_HOW.get(self.status, self.status)}; bound {self.amount(self.bound)}, gap {percent(self.gap)}, "
            f"{duration(self.solution.seconds)}"
        ]
        lines += [f"{other.name}: {self.amount(other.cost)} in {duration(other.seconds)}" for other in self.others]
        assembled = self.candidate.assembled
        if assembled is not None:
            steps = assembled.plan.steps
            moved = sum(isinstance(step, Conversion) for step in steps)
            values = ", ".join(f"{n} in {state}" for state, n in self.states.most_common())
            lines.append(f"{count(len(steps) - moved, 'kernel')}, {count(moved, 'conversion')}; values: {values}")
        else:
            lines.append("the original, as it was given")
        if amounts := readable(self.solution.amounts):
            lines.append("uses " + ", ".join(f"{term} {value:.6g}" for term, value in amounts.items()))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_block(str(self))


def computed(candidate: Candidate, extraction: TensorProblem) -> set[int]:
    """The numbers of the e-nodes that a candidate computes its values by."""
    assembled = candidate.assembled
    if assembled is None:
        nodes = extraction.snapshot.nodes
        return {n.number for n in nodes if n.original is not None or n.op in (INPUT, CONST, PROJECTION)}
    return {assembled.snapshot.nodes[position].number for position in assembled.choice.values()}
