"""Regions of graphs as one function: the statements of their operators, each reading what those before it make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from eqsat.errors import ComprehensionError
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.renaming import Renaming
from eqsat.language.comprehension.graphs.standard import function_of_node
from eqsat.language.comprehension.graphs.substitution import forwarded
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import (
    Expression,
    Function,
    IndexEquation,
    Name,
    Number,
    Parameter,
    Returned,
)
from eqsat.language.terms import Node, Sym, ValueType

#: The extent of an axis: a name for its size, or a number.
Extent = str | int


@dataclass(frozen=True)
class RegionStep:
    """An operator of a region with one result, and the types of its operands and its result."""

    node: Node
    operands: tuple[ValueType, ...]
    result: ValueType


def region_function(
    steps: Sequence[RegionStep], results: Sequence[str]
) -> tuple[TensorFunction, tuple[str, ...]] | None:
    """The function that computes some values of a region, and the values that are its operands.

    Steps are in an order in which they can be run; operands are what none of them makes. None where an operator is not
    written as a function, or sizes do not follow from those of operands.
    """
    functions = [function_of_node(step.node, step.operands, step.result) for step in steps]
    made = [step.node.outputs[0] for step in steps]
    names = _names(steps, results)
    sizes = _JoinedExtents()
    for number, (step, function) in enumerate(zip(steps, functions, strict=True)):
        if function is None or not sizes.meet(number, function, step.node):
            return None
    given = [value for value in names if value not in made]
    shown = sizes.shown(given)
    parameters: dict[str, Parameter] = {}
    statements: list[IndexEquation] = []
    for number, (step, function) in enumerate(zip(steps, functions, strict=True)):
        assert function is not None
        (result,) = function.results
        inputs = dict(zip(function.operands, map(str, step.node.inputs), strict=True))
        own = names[step.node.outputs[0]]
        inner = {one: f"{own}_{one}" for one in function.temporaries}
        renamed = inner | {one: names[value] for one, value in inputs.items()} | {result: own}
        step_text = Renaming(function, "", {one: shown[_local(number, one)] for one in function.scope.sizes}, renamed)
        statements += step_text.statements()
        for operand, value in inputs.items():
            if value in given:
                (parameter,) = step_text.parameters([operand])
                parameters.setdefault(value, parameter)
    # Of scalars all is known without subscripts, and functions of numbers are no tensors.
    tensors = {one.name for one in parameters.values()} | {one.target for one in statements}
    whole = Function(
        "region",
        tuple(parameters[value] for value in given),
        tuple(Returned(names[value]) for value in results),
        forwarded(statements, tensors, [names[value] for value in results]),
    )
    try:
        return TensorFunction(resolve(whole, print_function(whole))), tuple(given)
    except ComprehensionError:
        return None  # sizes that are computed with and that no operand has


def _names(steps: Sequence[RegionStep], results: Sequence[str]) -> dict[str, str]:
    """The names of the values of a region in the text: x0 for the first operand, t0 within it, y0 for a result."""
    made = [step.node.outputs[0] for step in steps]
    read = dict.fromkeys(str(value) for step in steps for value in step.node.inputs)
    given, within = count(), count()
    names = {value: f"x{next(given)}" for value in read if value not in made}
    for value in made:
        is_result = value in results
        names[value] = f"y{results.index(value)}" if is_result else f"t{next(within)}"
    return names


def _local(number: int, size: str) -> str:
    return f"s{number}_{size}"


@dataclass
class _JoinedExtents:
    """The sizes of axes of values, equal ones joined: those of the functions of steps by names of their own."""

    values: dict[str, tuple[Extent, ...]] = field(default_factory=dict)
    _leader: dict[Extent, Extent] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def meet(self, number: int, function: TensorFunction, node: Node) -> bool:
        """Join the sizes of what a step reads with those of its function; False where they contradict each other."""

        def local(extent: Extent) -> Extent:
            return _local(number, extent) if isinstance(extent, str) else extent

        self._names += [_local(number, size) for size in function.scope.sizes]
        for operand, value in zip(function.operands, map(str, node.inputs), strict=True):
            own = tuple(map(local, function.scope.parameters[operand].extents))
            known = self.values.setdefault(value, own)
            if len(known) != len(own) or not all(map(self._join, known, own)):
                return False
        symbolic = function.symbolic
        if symbolic is None:
            return False
        result: list[Extent] = []
        for axis, dim in enumerate(symbolic.shapes[function.results[0]]):
            named = next((one for one in function.scope.sizes if dim == Sym.named(one)), None)
            result.append(dim if isinstance(dim, int) else _local(number, named or f"made{axis}"))
        self.values[node.outputs[0]] = tuple(result)
        return True

    def find(self, extent: Extent) -> Extent:
        """The extent that stands for all that are equal to one: a number where one of them is."""
        while extent in self._leader:
            extent = self._leader[extent]
        return extent

    def _join(self, first: Extent, second: Extent) -> bool:
        one, other = self.find(first), self.find(second)
        if one == other:
            return True
        if isinstance(one, int) and isinstance(other, int):
            return False
        if isinstance(one, int):
            one, other = other, one
        self._leader[one] = other
        return True

    def shown(self, given: Sequence[str]) -> dict[str, Expression]:
        """The size of each name as the text has it, named in the order in which operands have them."""
        order = [self.find(extent) for value in given for extent in self.values[value]]
        order += [self.find(name) for name in self._names]
        names = {
            extent: f"N{place}" for place, extent in enumerate(dict.fromkeys(e for e in order if isinstance(e, str)))
        }
        leaders = {name: self.find(name) for name in self._names}
        return {name: Number(e) if isinstance(e, int) else Name(names[e]) for name, e in leaders.items()}
