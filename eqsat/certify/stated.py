"""The check that a graph with values in other layouts and precisions computes what the graph it stands for does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.certify.certificate import LARGEST
from eqsat.certify.compare import relative_difference
from eqsat.errors import UncheckedError
from eqsat.language.arithmetic.floats import FloatNamespace, Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import LAYOUTS, OPAQUE, PLAIN, Graph, Node, State, TensorType, ValueType, evaluate
from eqsat.system.deadline import check


class NarrowNamespace(FloatNamespace):
    """Arithmetic as devices have it in 16 bits: sums of products are kept in float32 and rounded once."""

    def matmul(self, a: Any, b: Any) -> Any:  # type: ignore[override]
        """A product of matrices."""
        if a.dtype.itemsize > 2 or a.dtype.kind in "iub":
            return np.matmul(a, b)
        with np.errstate(over="ignore", invalid="ignore"):  # an infinity is seen where outputs are compared
            return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)

    def einsum(self, equation: str, *operands: Any) -> Any:
        """A sum of products over indices."""
        if operands[0].dtype.itemsize > 2 or operands[0].dtype.kind in "iub":
            return super().einsum(equation, *operands)
        wide = [x.astype(np.float32) for x in operands]
        return super().einsum(equation, *wide).astype(operands[0].dtype)


class Narrow(Floats):
    """The reference in the element types that a graph states."""

    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> FloatNamespace:
        """The arithmetic of 16-bit devices."""
        return NarrowNamespace()


class _Boxes:
    """Opaque nodes of a graph: the results of each are drawn once, and the operands of each are kept."""

    def __init__(self, graph: Graph, sizes: Mapping[str, int], seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        self.made: dict[tuple[str, ...], list[Any]] = {}
        for node in graph.nodes:
            if node.op == OPAQUE:
                self.made[node.outputs] = [_drawn(graph.type(v), sizes, rng) if v else None for v in node.outputs]
        drawn = (pair for outputs, arrays in self.made.items() for pair in zip(outputs, arrays, strict=True))
        self.unknown = {value for value, array in drawn if array is None}

    def run(self, graph: Graph, feeds: Mapping[str, Any], arithmetic: Floats) -> list[tuple[str, Any]]:
        """The outputs of a graph by name, then the operands of its opaque nodes."""
        read: dict[tuple[str, ...], list[Any]] = {}

        def opaque(node: Node, operands: list[Any]) -> list[Any]:
            read[node.outputs] = operands
            return self.made[node.outputs]

        for node in graph.nodes:
            check()
            if node.op != OPAQUE and (missing := self.unknown.intersection(v for v in node.inputs if v)):
                what = f"no data can be drawn for {min(missing)!r}, whose shape is unknown"
                raise UncheckedError(what, where=graph.name)
        try:
            outputs = run(graph, feeds, arithmetic, opaque=opaque)
        except (IndexError, ValueError) as error:  # of NumPy, for an index or a size that no caller would pass
            raise UncheckedError(f"random inputs are none that it takes: {error}", where=graph.name) from error
        taken = [("", array) for _, operands in sorted(read.items()) for array in operands if array is not None]
        return [*outputs.items(), *taken]


def stated_difference(
    graph: Graph,
    stated: Graph,
    boundary: Mapping[str, State],
    sizes: Mapping[str, int],
    seed: int,
    arithmetic: Floats | None = None,
) -> float:
    """The largest relative difference of an output of `stated` from that of `graph`, on one draw of random inputs.

    Both run on the reference, in the element types they state unless another `arithmetic` is given; inputs and outputs
    named in `boundary` are held so in `stated`. Opaque nodes make the same random values in both, and their operands
    are compared as outputs are. UncheckedError where the inputs or values are not such that they can be run here.
    """
    feeds = _inputs(graph, sizes, seed)
    arithmetic, boxes = arithmetic or Narrow(), _Boxes(graph, sizes, seed)
    stored = {name: _held(array, boundary.get(name, PLAIN)) for name, array in feeds.items()}
    ones, others = boxes.run(graph, feeds, arithmetic), boxes.run(stated, stored, arithmetic)
    if [name for name, _ in ones] != [name for name, _ in others]:
        return float("inf")
    worst = 0.0
    for (name, one), (_, other) in zip(ones, others, strict=True):
        if one is other:
            continue
        reference, result = np.asarray(one), _plain(np.asarray(other), boundary.get(name, PLAIN))
        if reference.dtype.kind not in "fV" and reference.dtype != result.dtype:
            return float("inf")
        wide = result.astype(np.float64) if reference.dtype.kind in "fV" else result
        expected = reference.astype(np.float64) if reference.dtype.kind in "fV" else reference
        worst = max(worst, relative_difference(expected, wide))
    return worst


def _inputs(graph: Graph, sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Normal floats, and integers of 0 and 1, of the declared types."""
    rng = np.random.default_rng(seed)
    for value, type in graph.types.items():
        if isinstance(type, TensorType) and type.shape is not None and evaluate(type.size, sizes) > LARGEST:
            raise UncheckedError(f"{value!r} is too large to be run as a check", where=graph.name)
    feeds: dict[str, Any] = {}
    for name in graph.inputs:
        feeds[name] = _drawn(graph.type(name), sizes, rng)
        if feeds[name] is None:
            declared = graph.type(name)
            raise UncheckedError(f"input {name!r} is {declared}, for which no data can be drawn", where=graph.name)
    return feeds


def _drawn(declared: ValueType, sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    """Random data of a type; None where none can be drawn."""
    if not isinstance(declared, TensorType) or declared.shape is None:
        return None
    shape = declared.at(sizes).static
    kind = declared.dtype
    drawn = rng.standard_normal(shape) if kind.is_float else rng.integers(0, 2, shape)
    return drawn.astype(kind.numpy)


def _held(array: Any, state: State) -> Any:
    """An array as it is stored in a state."""
    order = LAYOUTS[state.layout].order(array.ndim)
    typed = array.astype(np.dtype(state.typed(TensorType.of(array.dtype, array.shape)).dtype.numpy))
    return typed if order is None else np.transpose(typed, order)


def _plain(array: Any, state: State) -> Any:
    """The array that is stored in a state."""
    order = LAYOUTS[state.layout].order(array.ndim)
    return array if order is None else np.transpose(array, np.argsort(order))
