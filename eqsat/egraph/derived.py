"""Constants that rules derive from others, evaluated in a graph that was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.egraph.facts.ranges import evaluated
from eqsat.egraph.snapshot import may_derive
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.portable import is_portable
from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE, Constant, Graph, Node, TensorType
from eqsat.system.deadline import check

_EXACT = Floats(wide=True)


def fold_derived(graph: Graph, known: DerivedConstants | None = None) -> Graph:
    """The graph with its nodes over constants evaluated, in float64 and rounded once, unless that takes too much.

    `known` has those of earlier graphs that were derived from the same constants, and gets those of this one.
    """
    return (known or DerivedConstants()).folded(graph)


class DerivedConstants:
    """Constants by the operators and the given constants that they are computed from, each computed once."""

    def __init__(self) -> None:
        #: By their identity, which no other constant has as long as they are kept here.
        self._given: dict[int, Constant] = {}
        #: None for those that the program would fail to compute, too.
        self._computed: dict[Any, Constant | None] = {}

    def folded(self, graph: Graph) -> Graph:
        """The graph with its nodes over constants evaluated."""
        for constant in graph.constants.values():
            self._given.setdefault(id(constant), constant)
        keys: dict[str, Any] = {v: id(c) for v, c in graph.constants.items()}
        for node in (foldable := _foldable(graph)):
            keys[node.outputs[0]] = (node.op, node.attrs, tuple(v and keys[v] for v in node.inputs))
        arithmetic = _WideArithmetic(graph, self._last_reads(foldable, keys))
        constants = dict(graph.constants)
        names = {node.outputs[0] for node in foldable}
        left = []
        for node in graph.nodes:
            name = node.outputs[0]
            # An operand that could not be computed is none.
            if name not in names or not all(v is None or v in constants for v in node.inputs):
                left.append(node)
                continue
            if keys[name] not in self._computed or name in arithmetic.last:
                made = arithmetic.constant(node, constants)
                self._computed.setdefault(keys[name], made)
            computed = self._computed[keys[name]]
            if computed is None:
                left.append(node)
            else:
                constants[name] = computed
        return replace(graph, nodes=tuple(left), constants=constants).without_dead()

    def _last_reads(self, foldable: Sequence[Node], keys: Mapping[str, Any]) -> dict[str, str]:
        """The values that are read where constants have yet to be computed, by the result of the last node to do so."""
        last: dict[str, str] = {}
        for node in reversed(foldable):
            name = node.outputs[0]
            if keys[name] not in self._computed or (name in last and self._computed[keys[name]] is not None):
                for value in node.inputs:
                    if value is not None:
                        last.setdefault(value, name)
        return last


def _foldable(graph: Graph) -> list[Node]:
    """The nodes over constants alone whose results may be constants themselves, in order."""
    # Each constant counts once, or a few nodes that each double one would allow any size.
    sources = {v: frozenset((v,)) for v in graph.constants}
    foldable = []
    for node in graph.nodes:
        result = graph.type(node.outputs[0])
        if node.op == OPAQUE or not spec(node.op).is_foldable or len(node.outputs) != 1:
            continue
        if not isinstance(result, TensorType) or not result.is_static:
            continue
        if not all(v is None or v in sources for v in node.inputs):
            continue
        given = frozenset[str]().union(*(sources[v] for v in node.inputs if v is not None))
        size = result.elements({}) * result.dtype.itemsize
        if may_derive(size, sum(graph.constants[v].nbytes for v in given)):
            sources[node.outputs[0]] = given
            foldable.append(node)
    return foldable


class _WideArithmetic:
    """Evaluation of nodes over constants in float64, where values are kept until the last node read them.

    `last` are the values that more nodes read, each by the result of the last of these.
    """

    def __init__(self, graph: Graph, last: Mapping[str, str]) -> None:
        self.graph, self.last = graph, last
        self._arrays: dict[str, Any] = {}

    def constant(self, node: Node, constants: Mapping[str, Constant]) -> Constant | None:
        """The constant that a node makes of constants, rounded once; None where the program would fail, too."""
        (name,) = node.outputs
        result = self.graph.type(name)
        assert isinstance(result, TensorType)
        read = [None if v is None else constants[v] for v in node.inputs]
        operands = [None if v is None else self._array(v, constants[v]) for v in node.inputs]
        array = None
        if result.dtype.is_float or is_portable(node.op, node.attrs, [None if c is None else c.array for c in read]):
            array = evaluated(_EXACT, node, operands, [None if c is None else c.type for c in read], result)
        check(0)
        if array is not None and name in self.last:
            self._arrays[name] = array
        for value in node.inputs:
            if value is not None and self.last.get(value) == name:
                self._arrays.pop(value, None)
        if array is None:
            return None
        # The certificate names values outside their type's range.
        with np.errstate(over="ignore", invalid="ignore"):
            return Constant.of(array, result.dtype)

    def _array(self, value: str, constant: Constant) -> Any:
        if value not in self._arrays:
            check(0)
            self._arrays[value] = _EXACT.constant(constant.array, constant.type)
            constant.release()
        return self._arrays[value]
