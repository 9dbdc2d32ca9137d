"""A graph with the way each part of it is run: kernels over one node or several, states, and conversions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eqsat.errors import GraphError
from eqsat.language.terms.blocks import BlockScale
from eqsat.language.terms.graph import Graph, operator_name
from eqsat.language.terms.scale import Scale
from eqsat.language.terms.state import PLAIN, State
from eqsat.system.markup import html_listing


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to run an operator: the state it takes each operand in, the state of its results, and its arithmetic.

    `arithmetic` is the element type products are formed in where that is not the operands' own, such as "tf32"; sums
    of products are always kept in float32 or wider. With "int8" or "float8" it is computed on quantised numbers: those
    that its operands are held in, or, of operands of float32, such as are quantised when it runs. With the name of a
    packing, such as "int4_32", weights are packed in blocks, and the other operand is rounded to int8 by such blocks.
    """

    operands: tuple[State, ...]
    result: State
    arithmetic: str = ""

    @property
    def is_plain(self) -> bool:
        """True if it is what the graph states: everything row-major, in the element types stated."""
        return not self.arithmetic and self.result.is_plain and all(s.is_plain for s in self.operands)

    def __str__(self) -> str:
        taken = ", ".join(str(s) for s in self.operands)
        return f"({taken}) -> {self.result}" + (f" by {self.arithmetic}" if self.arithmetic else "")


@dataclass(frozen=True, slots=True)
class Held:
    """A value of a graph in a state."""

    value: str
    state: State


@dataclass(frozen=True, slots=True)
class Kernel:
    """Nodes of a graph, by their first outputs, that are run as one: operands first, the last makes the results.

    `operands` are what is read from memory, in the order of first use; values made and used within are in neither.
    """

    nodes: tuple[str, ...]
    operands: tuple[Held, ...]
    results: tuple[Held, ...]
    arithmetic: str = ""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A value brought from one state to another: once, for all who read it there."""

    value: str
    source: State
    target: State


Step = Kernel | Conversion


@dataclass(frozen=True, repr=False)
class Plan:
    """A graph and the steps that compute it, in order; constants are held in any state without a step.

    `boundary` are the states of inputs and outputs, by name, that are not plain; `scales` are those of values held in
    integers, by value and precision. Raises GraphError where a step reads what no earlier one has made, an output is
    not made in its state, or a value is held in integers without a scale.
    """

    graph: Graph
    steps: tuple[Step, ...]
    boundary: Mapping[str, State] = field(default_factory=dict)
    scales: Mapping[tuple[str, str], Scale | BlockScale] = field(default_factory=dict)

    def __post_init__(self) -> None:
        available = {Held(value, self.boundary.get(value, PLAIN)) for value in self.graph.inputs}
        for step in self.steps:
            read = [Held(step.value, step.source)] if isinstance(step, Conversion) else list(step.operands)
            for held in read:
                if held not in available and held.value not in self.graph.constants:
                    raise GraphError(
                        f"{held.value!r} is read in state {held.state}, in which nothing has made it",
                        where=self.graph.name,
                        expected="steps in an order that makes what they read",
                    )
            made = {Held(step.value, step.target)} if isinstance(step, Conversion) else set(step.results)
            for held in (*read, *made):
                if held.state.is_quantised and (held.value, held.state.precision) not in self.scales:
                    raise GraphError(
                        f"{held.value!r} is held as {held.state} without a scale",
                        where=self.graph.name,
                        expected="a scale of each value that is held in integers",
                    )
            available |= made
        for name, value in self.graph.outputs.items():
            state = self.boundary.get(name, PLAIN)
            if Held(value, state) not in available and value not in self.graph.constants:
                raise GraphError(f"no step makes output {name!r} in state {state}", where=self.graph.name)

    @property
    def conversions(self) -> tuple[Conversion, ...]:
        """The conversions among the steps."""
        return tuple(step for step in self.steps if isinstance(step, Conversion))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels among the steps."""
        return tuple(step for step in self.steps if isinstance(step, Kernel))

    @property
    def is_plain(self) -> bool:
        """True if every node is a kernel of its own and every value row-major in the element type stated."""
        return all(
            isinstance(step, Kernel)
            and len(step.nodes) == 1
            and not step.arithmetic
            and all(held.state.is_plain for held in (*step.operands, *step.results))
            for step in self.steps
        )

    def __repr__(self) -> str:
        counts = f"{len(self.kernels)} kernels, {len(self.conversions)} conversions"
        return f"Plan({self.graph.name!r}, {counts}, boundary={dict(self.boundary)})"

    def _repr_html_(self) -> str:
        columns = ("what runs", "reads", "makes", "arithmetic")
        return html_listing(f"Plan of {self.graph.name}", "step", columns, self._rows(), len(self.steps))

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """The steps in order: operators, values read and made with the states they are held in, and the arithmetic."""
        for step in self.steps:
            if isinstance(step, Conversion):
                yield "convert", f"{step.value} as {step.source}", f"{step.value} as {step.target}", ""
                continue
            operators = (operator_name(self.graph.producers[value]) for value in step.nodes)
            reads, makes = (
                ", ".join(f"{h.value} as {h.state}" for h in group) for group in (step.operands, step.results)
            )
            yield " + ".join(operators), reads, makes, step.arithmetic
