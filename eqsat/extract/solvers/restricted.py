"""A problem with fewer choices, solved first: its solution is one of the whole problem."""

from __future__ import annotations

from dataclasses import replace

from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.tensors import TensorProblem


class Restricted:
    """The choices of a tensor problem in which everything is row-major."""

    def __init__(self, extraction: TensorProblem) -> None:
        whole = extraction.problem
        row = [state.layout == "row" for state in extraction.states]
        self.nodes = [
            i for i, n in enumerate(whole.nodes) if row[n.state] and all(row[state] for _, state in n.operands)
        ]
        provided = {whole.nodes[i].eclass for i in self.nodes}
        self.conversions = [
            i for i, c in enumerate(whole.conversions) if row[c.source] and row[c.target] and c.eclass in provided
        ]
        boundary_fits = all(state.layout == "row" for state in extraction.boundary.values())
        self.is_smaller = boundary_fits and len(self.nodes) < len(whole.nodes)
        self._whole = whole

    @property
    def problem(self) -> Problem:
        """The problem of these choices; limits are left out."""
        whole = self._whole
        nodes, conversions = [whole.nodes[i] for i in self.nodes], [whole.conversions[i] for i in self.conversions]
        return Problem(nodes, whole.roots, conversions, whole.states)

    def lifted(self, solution: Solution) -> Solution:
        """A solution of the restricted problem as one of the whole; its bound holds no longer."""
        return replace(
            solution,
            chosen={goal: self.nodes[index] for goal, index in solution.chosen.items()},
            conversions=frozenset(self.conversions[index] for index in solution.conversions),
            lower_bound=0.0,
        )
