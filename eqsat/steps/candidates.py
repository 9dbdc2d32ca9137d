"""Finalists from solutions: the graph that each stands for, with its cost and the amounts it uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eqsat.costs.model.cost import TERMS, GraphCost, readable
from eqsat.egraph.derived import DerivedConstants
from eqsat.extract import Solution
from eqsat.extract.problem.limits import PEAK
from eqsat.extract.tensors.assembly import Assembled, assemble
from eqsat.extract.tensors.judging import as_given, keeps, plan_cost, price_of
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.lower import lower
from eqsat.language.graphs.operators_on_integers import in_form
from eqsat.language.onnx.read.model import Given
from eqsat.language.terms import Graph
from eqsat.report.finalists import Candidate, Pattern, with_bodies, written_size
from eqsat.steps import fused
from eqsat.steps.blocks.whole import BlocksError, whole_choice
from eqsat.steps.settings import Settings


@dataclass(frozen=True)
class Finalists:
    """Finalists of a problem; `adjusted` says that the costs of the problem are no longer those of the model.

    `derived` has the constants that earlier finalists of the model derived from its own. Where equal blocks of the
    model stand for each other, those of the problem are the `pattern` of ones of the whole.
    """

    settings: Settings
    given: Given
    extraction: TensorProblem
    adjusted: bool = False
    derived: DerivedConstants = field(default_factory=DerivedConstants)
    _prices: dict[int, float] = field(default_factory=dict)

    def of(self, solutions: Mapping[str, Solution]) -> list[Candidate]:
        """The original, then the graph of each solution once; BlocksError where one cannot be made one of the whole."""
        given, original = self.given, self.given.grown
        candidates = [self._as_given()]
        # Where reading folded nothing away, a choice of the very same nodes is the original itself.
        seen = [original.nodes] if given.nodes == len(given.graph.nodes) and given.before is None else []
        for name, solution in solutions.items():
            assembled = self._assembled(solution)
            if assembled.decoded.graph.nodes in seen and assembled.plan.is_plain:
                continue
            if assembled.plan.is_plain:
                seen.append(assembled.decoded.graph.nodes)
            candidate = self._candidate(name, solution, assembled)
            if given.condensed is not None:
                whole = whole_choice(assembled, given.condensed, self.derived)
                pattern = Pattern(candidate, whole.copies)
                candidate = replace(self._candidate(name, solution, whole.assembled), pattern=pattern)
            self._prices[id(solution)] = candidate.cost.price
            candidates.append(candidate)
        return candidates

    def whole(self, solution: Solution) -> Solution | None:
        """A solution at the cost of the whole model, and the bound as far below it; None for one that has no whole."""
        if self.given.condensed is None:
            return solution
        price = self._prices.get(id(solution))
        if price is None:  # of one that is no finalist
            try:
                assembled = whole_choice(self._assembled(solution), self.given.condensed, self.derived).assembled
            except BlocksError:
                return None
            price = self._priced(assembled, self._formed(lower(assembled.plan)), solution).price
        bound = price * min(1.0, solution.lower_bound / solution.cost) if solution.cost > 0 else 0.0
        return replace(solution, cost=price, lower_bound=bound)

    def _assembled(self, solution: Solution) -> Assembled:
        assembled = assemble(self.extraction, solution, self.given.grown, self.derived)
        return fused.for_onnxruntime(assembled) if self.settings.contrib else assembled

    def _candidate(self, name: str, solution: Solution, assembled: Assembled) -> Candidate:
        graph = self._formed(lower(assembled.plan))
        cost = self._priced(assembled, graph, solution)
        size = written_size(graph, self.settings.options.opset)
        return Candidate(name, graph, cost, size, assembled=assembled, amounts=readable(solution.amounts))

    def _priced(self, assembled: Assembled, graph: Graph, solution: Solution) -> GraphCost:
        plain, problem = assembled.plan.is_plain, self.extraction.problem
        cost = self.settings.costs.graph(graph) if plain else plan_cost(assembled)
        if plain and problem.memory is None and not self.adjusted:
            return cost
        if self.given.condensed is not None:
            return replace(cost, price=math.fsum(map(self.settings.costs.weigh, assembled.costs)))
        return replace(cost, price=self._price(solution))

    def _as_given(self) -> Candidate:
        """The original as it is, or between the states that its inputs and outputs are wanted in."""
        settings, original, problem = self.settings, self.given.grown, self.extraction.problem
        solution = as_given(self.extraction)
        if not settings.is_plain:
            assembled = assemble(self.extraction, solution, original, self.derived)
            graph = self._formed(lower(assembled.plan))
            cost = replace(plan_cost(assembled), price=self._price(solution))
            size = written_size(graph, settings.options.opset)
            candidate = Candidate("original", graph, cost, size, assembled=assembled)
            candidate.amounts = readable(solution.amounts)
        else:
            given = self.given
            cost = with_bodies(self.settings.costs.graph(given.original), given, self.settings.costs)
            size = given.nodes + sum(i.nodes[0] - i.nodes[1] for i in given.inside)
            candidate = Candidate("original", given.original, cost, size)
            if given.condensed is not None:
                pattern = Candidate("original", original, settings.costs.graph(original), len(original.nodes))
                candidate.pattern = Pattern(pattern, given.condensed.copies)
            candidate.amounts = {limit.name: float(getattr(cost.total, TERMS[limit.name])) for limit in problem.limits}
            if problem.memory is not None:
                candidate.amounts[PEAK] = solution.amounts[PEAK]
                candidate.cost = replace(cost, price=cost.price + problem.memory.weight * candidate.amounts[PEAK])
            if self.adjusted:
                candidate.cost = replace(cost, price=solution.cost)
        candidate.within = keeps(problem, candidate.amounts)
        return candidate

    def _formed(self, graph: Graph) -> Graph:
        return in_form(graph, self.settings.options.quantised, self.settings.backend)

    def _price(self, solution: Solution) -> float:
        return solution.cost if self.adjusted else price_of(self.extraction, solution, self.settings.costs)
