"""The evaluation of a solution of a tensor problem: its price, the cost of its plan, and its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping

from eqsat.costs.model.cost import Cost, GraphCost, additive
from eqsat.costs.model.model import CostModel
from eqsat.extract.problem.limits import PEAK, exceeds
from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.program import cheapest_trees
from eqsat.extract.problem.solution import Solution, decode
from eqsat.extract.tensors.assembly import Assembled
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.terms.plan import Conversion


def as_given(extraction: TensorProblem) -> Solution:
    """The original graph, run as it says, as a solution; of nodes that are proved equal the cheaper one counts."""
    program = extraction.problem.program
    others = set(range(program.natives)).difference(extraction.original())
    costs = [math.inf if option in others else cost for option, cost in enumerate(program.costs)]
    choice = cheapest_trees(program, costs)[0]
    return decode(extraction.problem, choice, lower_bound=0.0, status="heuristic", seconds=0.0)


def keeps(problem: Problem, amounts: Mapping[str, float]) -> bool:
    """Return whether amounts are within the limits."""
    bounds = {limit.name: limit.most for limit in problem.limits}
    if problem.memory is not None:
        bounds[PEAK] = problem.memory.most
    return not any(exceeds(additive(name, amounts[name]), most) for name, most in bounds.items())


def is_lowered(assembled: Assembled) -> bool:
    """Return whether anything is held, or computed, in a lower precision."""
    steps, boundary = assembled.plan.steps, assembled.plan.boundary
    return any(state.precision for state in boundary.values()) or any(
        step.target.precision or step.source.precision
        if isinstance(step, Conversion)
        else step.arithmetic or any(held.state.precision for held in (*step.operands, *step.results))
        for step in steps
    )


def price_of(extraction: TensorProblem, solution: Solution, costs: CostModel) -> float:
    """The price of a solution under the objective, without the amounts that only break ties."""
    if costs.cost is not None:
        return solution.cost
    terms = [costs.weigh(extraction.options[node].cost) for node in solution.chosen.values()]
    terms += [costs.weigh(extraction.conversions[index]) for index in solution.conversions]
    if extraction.problem.memory is not None:
        terms.append(extraction.problem.memory.weight * solution.amounts[PEAK])
    return math.fsum(terms)


def plan_cost(assembled: Assembled) -> GraphCost:
    """The seconds of a plan, step by step: conversions count for the node whose value they convert,
    those of inputs for one that reads them."""
    producers = {v: node for node in assembled.graph.nodes for v in node.outputs if v}
    total = Cost()
    nodes = []
    for step, cost in zip(assembled.plan.steps, assembled.costs, strict=True):
        total += cost
        value = step.value if isinstance(step, Conversion) else step.nodes[-1]
        reader = next(iter(assembled.graph.consumers.get(value, ())), None)
        node = producers.get(value, reader)  # an input is converted for a node that reads it
        if node is not None:
            nodes.append((node, cost))
    return GraphCost(total, total.seconds, tuple(nodes))
