"""The kernels of a solution on integers, on packed weights, and in other precisions than that of the model."""

from __future__ import annotations

from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.quantised import is_on_integers
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.quantised import INTEGER
from eqsat.language.terms import PACKINGS


def positions_of(extraction: TensorProblem, solution: Solution, *, integers: bool) -> set[int]:
    """The e-nodes of the kernels of a solution, those on integers or the others."""
    chosen = (extraction.options[index] for index in solution.chosen.values())
    return {p for option in chosen if is_on_integers(option) is integers and not option.fetch for p in option.positions}


def narrow_of(extraction: TensorProblem, solution: Solution) -> dict[int, str]:
    """The e-nodes of a solution that run in other precisions than their own, with these."""
    chosen = (extraction.options[index] for index in solution.chosen.values())
    return {
        position: precision
        for option in chosen
        if not option.fetch and not is_on_integers(option)
        for way in option.implementations
        for precision in {way.arithmetic, way.result.precision, *(state.precision for state in way.operands)} - {""}
        for position in option.positions
    }


def packed_of(extraction: TensorProblem, solution: Solution) -> dict[int, str]:
    """The e-nodes of a solution whose weights are packed, each with the type of their numbers."""
    chosen = (extraction.options[index] for index in solution.chosen.values())
    return {
        position: PACKINGS[way.arithmetic].kind
        for option in chosen
        for position, way in zip(option.positions, option.implementations, strict=False)
        if way.arithmetic in PACKINGS
    }


def name_of(extraction: TensorProblem, solution: Solution) -> str:
    """The name of a choice: the integers that it computes on, or holds weights in."""
    packed = packed_of(extraction, solution)
    kinds = dict.fromkeys(packed.values())
    computes = positions_of(extraction, solution, integers=True) - packed.keys()
    return " + ".join((*((INTEGER,) if computes else ()), *kinds))
