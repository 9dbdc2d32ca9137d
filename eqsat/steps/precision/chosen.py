"""The kernels of a solution on numbers of a byte, on packed weights, and in other precisions than the model's."""

from __future__ import annotations

from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.quantised import is_on_integers
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.quantised import BYTES, INTEGER
from eqsat.language.terms import PACKINGS


def positions_of(extraction: TensorProblem, solution: Solution, *, integers: bool) -> set[int]:
    """The e-nodes of the kernels of a solution, those on integers or the others."""
    chosen = (extraction.options[index] for index in solution.chosen.values())
    return {p for option in chosen if is_on_integers(option) is integers and not option.fetch for p in option.positions}


def narrow_of(extraction: TensorProblem, solution: Solution) -> dict[int, str]:
    """The e-nodes of a solution that run in other precisions than their own, or than integers of a byte, with these."""
    chosen = (extraction.options[index] for index in solution.chosen.values())
    return {
        position: PACKINGS[precision].kind if precision in PACKINGS else precision
        for option in chosen
        if not option.fetch and not any(way.arithmetic == INTEGER for way in option.implementations)
        for way in option.implementations
        for precision in {way.arithmetic, way.result.precision, *(state.precision for state in way.operands)} - {""}
        for position in option.positions
    }


def name_of(extraction: TensorProblem, solution: Solution) -> str:
    """The name of a choice: the numbers of a byte that it computes on, and those of fewer bits that it holds."""
    options = [extraction.options[index] for index in solution.chosen.values()]
    used = {way.arithmetic for option in options for way in option.implementations}
    packed = dict.fromkeys(one.kind for name, one in PACKINGS.items() if name in used)
    return " and ".join((*(precision for precision in BYTES if precision in used), *packed))
