"""Resources that each part of a tensor problem uses: the limits on it, and the bytes that its values occupy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from eqsat.costs.kernels.implementations import is_view
from eqsat.costs.model.cost import PEAK_MEMORY, TERMS, additive
from eqsat.costs.model.model import CostModel
from eqsat.egraph.egraph import PROJECTION
from eqsat.extract.problem.limits import Limit, Memory
from eqsat.extract.problem.problem import Problem
from eqsat.extract.tensors.pricing import KernelOption
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.ops import OPS
from eqsat.language.terms import State, TensorType


def limited(
    extraction: TensorProblem, model: CostModel, bounds: Mapping[str, float], counted: Iterable[str] = ()
) -> TensorProblem:
    """The problem with at most `bounds` of each term named there, and the objective's price of peak memory.

    Amounts are in the units of the terms: seconds, operations, bytes, kernels, squares of relative errors. `counted`
    are terms that are only added up.
    """
    weight = model.objective.get(PEAK_MEMORY, 0.0) if model.cost is None else 0.0
    wanted = dict.fromkeys(counted, math.inf) | dict(bounds)
    limits = [
        Limit(
            term,
            additive(term, wanted[term]),
            [additive(term, float(getattr(option.cost, TERMS[term]))) for option in extraction.options],
            [additive(term, float(getattr(cost, TERMS[term]))) for cost in extraction.conversions],
        )
        for term in TERMS
        if term in wanted
    ]
    memory = None
    if PEAK_MEMORY in wanted or weight:
        memory = Memory(_sizes(extraction, model), _aliases(extraction), wanted.get(PEAK_MEMORY, math.inf), weight)
    if not limits and memory is None:
        return extraction
    given = extraction.problem
    problem = Problem(given.nodes, given.roots, given.conversions, given.states, limits, memory)
    return replace(extraction, problem=problem)


def _sizes(extraction: TensorProblem, model: CostModel) -> dict[tuple[int, int], float]:
    """The bytes of every value that is computed or comes in, in every state; constants are weight memory."""
    sizes: dict[tuple[int, int], float] = {}
    problem, snapshot = extraction.problem, extraction.snapshot
    goals = {(n.eclass, n.state) for n in problem.nodes}
    goals |= {(c.eclass, s) for c in problem.conversions for s in (c.source, c.target)}
    splits = {
        n.eclass: option.split
        for n, option in zip(problem.nodes, extraction.options, strict=True)
        if option.split is not None
    }
    fetches = {n.eclass for n, option in zip(problem.nodes, extraction.options, strict=True) if option.fetch}
    for eclass, state in goals:
        if eclass in fetches:
            continue
        split = splits.get(eclass)
        leader = extraction.leaders[eclass] if split is None else split.source
        eclass_facts = snapshot.classes[leader]
        if eclass_facts.constant:
            continue
        types = snapshot.nodes[eclass_facts.nodes[0]].types
        sizes[eclass, state] = float(sum(_bytes(t, extraction.states[state], model) for t in types))
    return sizes


def _bytes(type: object, state: State, model: CostModel) -> int:
    if not isinstance(type, TensorType) or type.shape is None:
        return 0
    stored = state.typed(type)
    return stored.elements(model.sizes) * stored.dtype.itemsize


def _aliases(extraction: TensorProblem) -> dict[int, tuple[int, int]]:
    """The nodes of the problem whose result lies where their operand does."""
    aliases: dict[int, tuple[int, int]] = {}
    for index, (node, option) in enumerate(zip(extraction.problem.nodes, extraction.options, strict=True)):
        piece = bool(node.operands) and node.operands[0][0] >= len(extraction.leaders)
        if piece or (node.operands and _shares(extraction, option)):
            aliases[index] = node.operands[0]
    return aliases


def _shares(extraction: TensorProblem, option: KernelOption) -> bool:
    node = extraction.snapshot.nodes[option.positions[0]]
    if option.split is not None:
        return False
    if len(option.positions) > 1 or extraction.snapshot.classes[node.operands[0]].constant:
        return False
    if node.op == PROJECTION:
        return True
    if node.op not in OPS:
        return False
    types = [extraction.snapshot.classes[k].type for k in node.operands]
    tensors = [t if isinstance(t, TensorType) else None for t in types]
    return OPS[node.op].view or bool(
        option.implementations and is_view(node.op, node.attrs, tensors, option.implementations[0])
    )
