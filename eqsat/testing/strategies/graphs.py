"""Strategies for graphs and for their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from eqsat.errors import GraphError, UsageError
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.ops import OPS
from eqsat.language.terms import DType, Graph, TensorType
from eqsat.testing.strategies.choices import ChoiceSource, Draw
from eqsat.testing.strategies.tensors import BLOCK, array, completed, sampled, tensors

#: Values with more elements than this are not drawn.
_LARGEST = 4096
#: Choices for the operands and attributes of one node.
_CHOICES = 32
#: Operators of any number of operands get at most so many more than they need.
_MORE = 2


@st.composite
def graphs(
    draw: Draw,
    ops: Sequence[str] | None = None,
    *,
    min_nodes: int = 1,
    max_nodes: int = 5,
    inputs: Mapping[str, TensorType] | None = None,
    dtypes: Sequence[str] = ("float32",),
) -> Graph:
    """Well-typed graphs of operators, of all that have a sample rule unless `ops` names some.

    Values are shared between nodes, and every output of an operator is a value. `inputs` are there from the start, of
    known shapes; others come as operators need them, some as constants. A value without readers is an output, and now
    and then another value is. Few nodes and small operands are simpler; floats are of one of the `dtypes`. UsageError
    for bounds that no graph meets, and for an operator that has no sample rule.
    """
    if not 1 <= min_nodes <= max_nodes:
        raise UsageError(f"{min_nodes} to {max_nodes} nodes", where="graphs", expected="1 ≤ min_nodes ≤ max_nodes")
    names = [n for n, s in OPS.items() if s.sample is not None and not s.random] if ops is None else list(ops)
    declared = [sampled(name) for name in names]
    dtype, extra = draw(st.sampled_from([DType.of(d) for d in dtypes])), draw(st.integers(0, max_nodes))
    plans = draw(st.lists(_plans(declared), min_size=min_nodes, max_size=max_nodes))
    drawing = _GraphDraft(dtype, inputs or {})
    for plan in plans:
        drawing.node(plan)
    assume(drawing.nodes >= min_nodes)
    return drawing.graph(extra)


@st.composite
def feeds(
    draw: Draw, graph: Graph, *, sizes: Mapping[str, int] | None = None, special: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    """An array for every input of a graph, by name, of its element type and shape; named dims of `sizes`, or 1 to 3.

    `special` adds infinities, NaN and -0. UsageError for an input whose rank is unknown.
    """
    types = {name: graph.type(name) for name in graph.inputs}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    known = dict(sizes or {})
    for name, declared in types.items():
        if not isinstance(declared, TensorType) or declared.shape is None:
            raise UsageError(f"input {name!r} is {declared}", where=graph.name, expected="inputs of known rank")
        for dim in declared.shape:
            for free in dim.names() if not isinstance(dim, int) else ():
                known.setdefault(free, draw(st.integers(1, 3)))
        arrays[name] = draw(tensors(declared.at(known), special=special))
    return arrays


@dataclass(frozen=True)
class _NodePlan:
    """The plan of one node: an operator, the choices of its operands and attributes, and elements of constants.

    A plan is as long for every operator, so that one can be left out or made simpler without a change to the others.
    """

    declared: OpSpec
    choices: bytes
    elements: bytes

    def rng(self) -> ChoiceSource:
        """The choices, the simplest ones after the last."""
        steps = iter(self.choices)
        return ChoiceSource(lambda bound: next(steps, 0) % bound)


def _plans(declared: Sequence[OpSpec]) -> st.SearchStrategy[_NodePlan]:
    blocks = (st.binary(min_size=size, max_size=size) for size in (_CHOICES, BLOCK))
    return st.builds(_NodePlan, st.sampled_from(declared), *blocks)


class _GraphDraft:
    """A graph while it is drawn."""

    def __init__(self, dtype: DType, inputs: Mapping[str, TensorType]) -> None:
        self.dtype = dtype
        self.builder = Builder("drawn")
        self.pool = [self.builder.input(n, t.static, t.dtype.value) for n, t in inputs.items()]
        self.fresh = 0
        self.nodes = 0

    def node(self, plan: _NodePlan) -> None:
        """Add an operator on values there are and on new ones, or nothing where none fit."""
        declared, rng = plan.declared, plan.rng()
        most = declared.min_operands + _MORE if declared.max_operands is None else declared.max_operands
        picked = [self._pick(declared, place, rng) for place in range(rng.randint(declared.min_operands, most))]
        first = next((i for i, p in enumerate(picked) if p is not None), len(picked))
        alone = [p if i == first else None for i, p in enumerate(picked)]
        for known in (picked, alone, [None] * len(picked)):
            if self._applied(plan, known, rng):
                self.nodes += 1
                return

    def _pick(self, declared: OpSpec, place: int, rng: ChoiceSource) -> Tensor | None:
        """A value of the right element type, None for a new one."""
        wanted = DType.of(declared.dtypes[place]) if place in declared.dtypes else self.dtype
        if wanted is DType.INT64:  # an index, which must fit the axis
            return None
        fits = [t for t in reversed(self.pool) if t.dtype is wanted]
        chosen = rng.randint(0, len(fits))
        return fits[chosen] if chosen < len(fits) else None

    def _applied(self, plan: _NodePlan, known: Sequence[Tensor | None], rng: ChoiceSource) -> bool:
        declared = plan.declared
        sample = completed(declared, rng, [None if t is None else t.shape for t in known], {})
        if sample is None or len(sample[0]) != len(known):
            return False
        shapes, attrs = sample
        types = [
            TensorType.of(declared.dtypes.get(i, self.dtype), s) if t is None else t.type
            for i, (s, t) in enumerate(zip(shapes, known, strict=True))
        ]
        try:
            results = declared.result_types(types, attrs)
        except GraphError:
            return False
        if any(t.shape is None or t.elements({}) > _LARGEST for t in results):
            return False
        if any(t.dtype is DType.INT64 for t in types[1:]) and 0 in types[0].static:
            return False  # no index fits an axis without elements
        operands = [self._new(t, types, plan, rng) if k is None else k for k, t in zip(known, types, strict=True)]
        values = self.builder.apply(declared.name, *operands, **attrs)
        self.pool += values if isinstance(values, tuple) else (values,)
        return True

    def _new(self, type: TensorType, types: Sequence[TensorType], plan: _NodePlan, rng: ChoiceSource) -> Tensor:
        """A new input or constant; indices are constants that fit every axis of the first operand."""
        if type.dtype is DType.INT64:
            return self.builder.constant(array(plan.elements, type, limit=min(types[0].static, default=1)))
        if rng.randint(0, 2) == 2:
            return self.builder.constant(array(plan.elements, type), type.dtype.value)
        self.fresh += 1
        value = self.builder.input(f"in{self.fresh}", type.static, type.dtype.value)
        self.pool.append(value)
        return value

    def graph(self, extra: int) -> Graph:
        """A graph whose outputs are the values that no node reads, and one more value where `extra` names one."""
        for value in self.pool:
            self.builder.output(value.name, value)
        whole = self.builder.build()
        computed = [v.name for v in self.pool if v.name not in whole.inputs]
        ends = [v for v in computed if v not in whole.consumers]
        inner = [v for v in computed if v in whole.consumers]
        return whole.restricted([*ends, *inner[extra - 1 : extra]] if extra else ends)
