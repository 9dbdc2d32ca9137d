"""Regions of graphs as one function: the statements of their operators, each reading what those before it make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from eqsat.errors import ComprehensionError
from eqsat.language.comprehension.extents.expressions import extent_expression
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.nodes.stated import StatedNode
from eqsat.language.comprehension.graphs.renaming import Renaming
from eqsat.language.comprehension.graphs.substitution import forwarded
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import (
    Function,
    IndexEquation,
    Parameter,
    RangeClause,
    Returned,
)
from eqsat.language.parametric.facts import Fact, substituted
from eqsat.language.terms import Dim, Node, TensorType, ValueType
from eqsat.language.terms.dims import Sym

#: The extent of an axis: a name for its size, or a number.
Extent = str | int


@dataclass(frozen=True)
class RegionStep:
    """An operator of a region with one result, the types of its operands and its result, and what states it."""

    node: Node
    operands: tuple[ValueType, ...]
    result: TensorType
    stated: StatedNode


@dataclass(frozen=True)
class RegionFunction:
    """The function of a region, the values that are its operands, and by their sizes what it asks and has.

    `attrs` are the attributes of each step that has formulas in place of numbers, by its result.
    """

    function: TensorFunction
    operands: tuple[str, ...]
    conditions: tuple[Fact, ...]
    attrs: Mapping[str, Mapping[str, Any]]


def region_function(steps: Sequence[RegionStep], results: Sequence[str]) -> RegionFunction | None:
    """The function that computes some values of a region.

    Steps are in an order in which they can be run; operands are what none of them makes. None where sizes contradict
    each other, or do not follow from those of operands.
    """
    made = [step.node.outputs[0] for step in steps]
    names = _names(steps, results)
    sizes = _JoinedExtents()
    if not all(sizes.meet(number, step.stated, step.node) for number, step in enumerate(steps)):
        return None
    given = [value for value in names if value not in made]
    shown = sizes.shown(given)
    texts = {} if shown is None else {name: extent_expression(dim) for name, dim in shown.items()}
    known = {name: text for name, text in texts.items() if text is not None}
    conditions = None if shown is None else sizes.conditions(steps, shown)
    if shown is None or conditions is None or len(known) < len(shown):
        return None
    parameters: dict[str, Parameter] = {}
    statements: list[IndexEquation] = []
    ranges: list[Mapping[str, RangeClause] | None] = []
    for number, step in enumerate(steps):
        function = step.stated.function
        (result,) = function.results
        inputs = list(zip(function.operands, map(str, step.node.inputs), strict=True))
        own = names[step.node.outputs[0]]
        inner = {one: f"{own}_{one}" for one in function.temporaries}
        renamed = inner | {one: names[value] for one, value in inputs} | {result: own}
        step_text = Renaming(function, "", {one: known[_local(number, one)] for one in function.scope.sizes}, renamed)
        statements += step_text.statements()
        ranges += _ranges(function, {one: shown[_local(number, one)] for one in function.scope.sizes})
        for operand, value in inputs:
            if value in given:
                (parameter,) = step_text.parameters([operand])
                parameters.setdefault(value, parameter)
    # Of scalars all is known without subscripts, and functions of numbers are no tensors.
    tensors = {one.name for one in parameters.values()} | {one.target for one in statements}
    kept = [names[value] for value in results]
    attrs = {
        step.node.outputs[0]: _attributes(step.stated.attrs, _by_name(number, step.stated, shown))
        for number, step in enumerate(steps)
        if step.stated.attrs is not None
    }
    # Where ranges are no formulas once movements went in, they stay.
    for moved in (True, False):
        whole = Function(
            "region",
            tuple(parameters[value] for value in given),
            tuple(Returned(one) for one in kept),
            forwarded(statements, tensors, kept, ranges if moved else None),
        )
        try:
            function = TensorFunction(resolve(whole, print_function(whole)))
        except ComprehensionError:
            continue
        if function.symbolic is not None:
            return RegionFunction(function, tuple(given), conditions, attrs)
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


def _ranges(function: TensorFunction, sizes: Mapping[str, Dim]) -> Iterator[Mapping[str, RangeClause] | None]:
    """The ranges of the indices of each statement by the sizes of a region; None where one has no text."""
    symbolic = function.symbolic
    for number in range(len(function.scope.statements)):
        found: dict[str, RangeClause] | None = {}
        for index, ends in () if symbolic is None else symbolic.ranges[number].items():
            low, high = (extent_expression(substituted(end, sizes)) for end in ends)
            if low is None or high is None:
                found = None
                break
            assert found is not None
            found[index] = RangeClause(index, low, high)
        yield None if symbolic is None else found


def _by_name(number: int, stated: StatedNode, shown: Mapping[str, Dim]) -> dict[str, Dim]:
    return {one: shown[_local(number, one)] for one in stated.function.scope.sizes}


def _attributes(attrs: Mapping[str, Any], sizes: Mapping[str, Dim]) -> Mapping[str, Any]:
    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return substituted(value, sizes) if isinstance(value, Sym) else value

    return {name: changed(value) for name, value in attrs.items()}


def _local(number: int, size: str) -> str:
    return f"s{number}_{size}"


@dataclass
class _JoinedExtents:
    """The sizes of axes of values, equal ones joined: those of the functions of steps by names of their own."""

    values: dict[str, tuple[Extent, ...]] = field(default_factory=dict)
    _leader: dict[Extent, Extent] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    #: The sizes that functions compute, by those of their operands.
    _made: dict[str, Dim] = field(default_factory=dict)

    def meet(self, number: int, stated: StatedNode, node: Node) -> bool:
        """Join the sizes of what a step reads with those of its function; False where they contradict each other."""
        function = stated.function

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
        renamed = {one: Sym.named(_local(number, one)) for one in function.scope.sizes}
        for axis, dim in enumerate(symbolic.shapes[function.results[0]]):
            named = next((one for one in function.scope.sizes if dim == Sym.named(one)), None)
            if isinstance(dim, Sym) and named is None:
                self._made[_local(number, f"made{axis}")] = substituted(dim, renamed)
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

    def shown(self, given: Sequence[str]) -> dict[str, Dim] | None:
        """The size of each name by those that the text names, in the order in which operands have them.

        None where one follows from none of these.
        """
        order = [self.find(extent) for value in given for extent in self.values[value]]
        leaders: dict[Extent, Dim] = {}
        for extent in dict.fromkeys(one for one in order if isinstance(one, str)):
            leaders[extent] = Sym.named(f"N{len(leaders)}")
        # What is computed may be computed from again: its names are in the order of the steps.
        for name, dim in self._made.items():
            leader = self.find(name)
            if isinstance(leader, str) and leader not in leaders:
                found = self._by_leaders(dim, leaders)
                if found is None:
                    return None
                leaders[leader] = found
        shown: dict[str, Dim] = {}
        for name in (*self._names, *self._made):
            leader = self.find(name)
            if isinstance(leader, str) and leader not in leaders:
                return None
            shown[name] = leader if isinstance(leader, int) else leaders[leader]
        return shown

    def _by_leaders(self, dim: Dim, leaders: Mapping[Extent, Dim]) -> Dim | None:
        values: dict[str, Dim] = {}
        for name in dim.names() if isinstance(dim, Sym) else ():
            leader = self.find(name)
            if isinstance(leader, str) and leader not in leaders:
                return None
            values[name] = leader if isinstance(leader, int) else leaders[leader]
        return substituted(dim, values)

    def conditions(self, steps: Sequence[RegionStep], shown: Mapping[str, Dim]) -> tuple[Fact, ...] | None:
        """The facts that steps ask of sizes, and that those that are computed are equal to what they are joined with.

        None where one of it does not hold of any sizes.
        """
        asked = [Fact.equal(substituted(dim, shown), shown[name]) for name, dim in self._made.items()]
        for number, step in enumerate(steps):
            own = _by_name(number, step.stated, shown)
            asked += [Fact(substituted(one.formula, own), one.is_zero, one.held) for one in step.stated.conditions]
        if any(isinstance(one.formula, int) and not one.at({}) for one in asked):
            return None
        return tuple(dict.fromkeys(one for one in asked if not isinstance(one.formula, int)))
