"""Finalists from solutions: the graph that each stands for, with its cost and the amounts it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from eqsat.costs.model.cost import TERMS, readable
from eqsat.extract import Solution
from eqsat.extract.problem.limits import PEAK
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.judging import as_given, keeps, plan_cost, price_of
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.lower import lower
from eqsat.language.graphs.operators_on_integers import in_form
from eqsat.language.onnx.read.model import Given
from eqsat.language.terms import Graph
from eqsat.report.finalists import Candidate, with_bodies, written_size
from eqsat.steps import fused
from eqsat.steps.settings import Settings


@dataclass(frozen=True)
class Finalists:
    """Finalists of a problem; `adjusted` says that the costs of the problem are no longer those of the model."""

    settings: Settings
    given: Given
    extraction: TensorProblem
    adjusted: bool = False

    def of(self, solutions: Mapping[str, Solution]) -> list[Candidate]:
        """The original, then the graph of each solution once."""
        given, extraction, original = self.given, self.extraction, self.given.graph
        candidates = [self._as_given()]
        known: dict[Any, Any] = {}
        # Where reading folded nothing away, a choice of the very same nodes is the original itself.
        seen = [original.nodes] if given.nodes == len(original.nodes) and given.before is None else []
        for name, solution in solutions.items():
            assembled = assemble(extraction, solution, original, known)
            if self.settings.contrib:
                assembled = fused.for_onnxruntime(assembled)
            graph = self._formed(lower(assembled.plan))
            if assembled.decoded.graph.nodes in seen and assembled.plan.is_plain:
                continue
            if assembled.plan.is_plain:
                seen.append(assembled.decoded.graph.nodes)
            cost = self.settings.costs.graph(graph) if assembled.plan.is_plain else plan_cost(assembled)
            if not assembled.plan.is_plain or extraction.problem.memory is not None or self.adjusted:
                cost = replace(cost, price=self._price(solution))
            size = written_size(graph, self.settings.options.opset)
            candidates.append(
                Candidate(name, graph, cost, size, assembled=assembled, amounts=readable(solution.amounts))
            )
        return candidates

    def _as_given(self) -> Candidate:
        """The original as it is, or between the states that its inputs and outputs are wanted in."""
        settings, original, problem = self.settings, self.given.graph, self.extraction.problem
        solution = as_given(self.extraction)
        if not settings.is_plain:
            assembled = assemble(self.extraction, solution, original)
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
