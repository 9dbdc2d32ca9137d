"""Weights of several sizes under which the cheapest choice is best where it is worst."""

from __future__ import annotations

import math
from collections.abc import Callable

from eqsat.costs.model.model import CostModel
from eqsat.extract import Solution
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.terms.graph import Graph

#: How often the weights are changed, and how strongly a size that is worse than another draws them.
ROUNDS, _STEP = 4, 4.0


def balanced(
    original: Graph,
    costs: CostModel,
    frame: Callable[[], TensorProblem],
    solved: Callable[[TensorProblem], Solution],
) -> TensorProblem:
    """The problem under the weights whose cheapest choice has the least largest share of the original's cost at a size.

    The smallest maximum over the sizes is the largest minimum over weights of them (von Neumann's minimax theorem), to
    which multiplicative weights converge (Arora, Hazan and Kale, 2012); integral choices may leave a gap. `costs` keep
    the weights.
    """
    before = [max(model.graph(original).price, 1e-30) for _, model in costs.parts]
    weights = [1.0] * len(before)
    best: tuple[float, list[float], TensorProblem] | None = None
    for _ in range(ROUNDS):
        costs.weighed([weight / cost for weight, cost in zip(weights, before, strict=True)])
        extraction = frame()
        chosen = assemble(extraction, solved(extraction), original).graph
        shares = [model.graph(chosen).price / cost for (_, model), cost in zip(costs.parts, before, strict=True)]
        if best is None or max(shares) < best[0]:
            best = max(shares), list(weights), extraction
        if max(shares) - min(shares) < 1e-3:
            break
        weights = [w * math.exp(_STEP * (s - max(shares))) for w, s in zip(weights, shares, strict=True)]
    assert best is not None
    costs.weighed([weight / cost for weight, cost in zip(best[1], before, strict=True)])
    return best[2]
