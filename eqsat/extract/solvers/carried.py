"""A solution of an e-graph's problem as one of the problem after the e-graph has grown."""

from __future__ import annotations

from collections.abc import Hashable

from eqsat.egraph.egraph import EGraph
from eqsat.errors import ExtractionError
from eqsat.extract.problem.program import Choice
from eqsat.extract.problem.solution import Solution, decode
from eqsat.extract.tensors.tensors import TensorProblem


def carried(solution: Solution, before: TensorProblem, after: TensorProblem, egraph: EGraph) -> Solution | None:
    """The solution in a problem of the same e-graph with more e-nodes; None where that lacks a kernel of it.

    Kernels are found again by the numbers of their e-nodes, or of those that are equal to them by now; of classes that
    became one the first kernel counts. What has no operands, as a constant has none, is taken where it is cheapest. The
    bound of the solution holds no longer.
    """
    program, natives = after.problem.program, len(after.problem.nodes)
    places: dict[Hashable, int] = {}
    sources: dict[int, int] = {}
    for index, node in enumerate(after.problem.nodes):
        places.setdefault(_kernel(after, index, egraph), index)
        goal = program.provides[index]
        if not node.operands and (goal not in sources or program.costs[index] < program.costs[sources[goal]]):
            sources[goal] = index
    for index in range(len(after.problem.conversions)):
        places.setdefault(_conversion(after, index, egraph), natives + index)
    keys = [_kernel(before, index, egraph) for index in solution.chosen.values()]
    keys += [_conversion(before, index, egraph) for index in sorted(solution.conversions)]
    choice: Choice = {}
    for option in (places[key] for key in keys if key in places):
        choice.setdefault(program.provides[option], option)
    try:
        found = decode(after.problem, sources | choice, lower_bound=0.0, status="heuristic", seconds=0.0)
        found.check(after.problem)
    except (ExtractionError, KeyError):  # a kernel is gone, or classes that became one read each other now
        return None
    return found


def _kernel(extraction: TensorProblem, index: int, egraph: EGraph) -> Hashable:
    """A key of a kernel that is equal in all problems of an e-graph."""
    option, node = extraction.options[index], extraction.problem.nodes[index]
    numbers = tuple(egraph.representative(extraction.snapshot.nodes[p].number) for p in option.positions)
    is_part = node.name == "slice" and not option.implementations and option.split is None and not node.cost
    kind = (option.split is not None, option.fetch, is_part)
    return numbers, option.implementations, option.links, kind, extraction.states[node.state]


def _conversion(extraction: TensorProblem, index: int, egraph: EGraph) -> Hashable:
    one, states = extraction.problem.conversions[index], extraction.states
    return egraph.find(extraction.leaders[one.eclass]), states[one.source], states[one.target]
