"""Extraction problems without the states in which some classes cannot be held."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from eqsat.extract.problem.problem import Problem
from eqsat.extract.tensors.pricing import KernelOption
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.system.deadline import watched


def without_precision(extraction: TensorProblem, leaders: Collection[int], precision: str) -> TensorProblem:
    """The problem in which no kernel makes or reads some classes in a precision, on the way within it included.

    Inputs and outputs that are wanted in it stay so.
    """
    snapshot, problem = extraction.snapshot, extraction.problem
    narrow = {number for number, state in enumerate(extraction.states) if state.precision == precision}
    barred = {number for number, leader in enumerate(extraction.leaders) if leader in leaders}
    wanted = {
        snapshot.roots.get(name) or next(n.eclass for n in snapshot.nodes if n.attrs.get("name") == name)
        for name, state in extraction.boundary.items()
        if state.precision == precision
    }
    barred -= {number for number, leader in enumerate(extraction.leaders) if leader in wanted}
    leaders = {extraction.leaders[number] for number in barred}

    def passes(option: KernelOption) -> bool:
        ways = zip(option.positions, option.implementations, strict=False)
        return any(snapshot.nodes[at].eclass in leaders and way.result.precision == precision for at, way in ways)

    kept = [
        index
        for index, (node, option) in enumerate(watched(zip(problem.nodes, extraction.options, strict=True)))
        if not any(
            eclass in barred and state in narrow for eclass, state in ((node.eclass, node.state), *node.operands)
        )
        and not passes(option)
    ]
    changed = [
        index
        for index, one in enumerate(problem.conversions)
        if one.eclass not in barred or not {one.source, one.target} & narrow
    ]
    nodes, conversions = [problem.nodes[i] for i in kept], [problem.conversions[i] for i in changed]
    return replace(
        extraction,
        problem=Problem(nodes, problem.roots, conversions, problem.states),
        options=tuple(extraction.options[i] for i in kept),
        conversions=tuple(extraction.conversions[i] for i in changed),
    )
