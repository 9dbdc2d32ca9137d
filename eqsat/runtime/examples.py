"""Inputs that a model accepts: at sizes that its operators take, with integers in the range that they are used in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias

import ml_dtypes
import numpy as np

from eqsat.errors import BackendError
from eqsat.language.onnx.files.origin import defaults_of
from eqsat.language.ops import OPS
from eqsat.language.sizes.constraints import handed_on
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms import Graph, TensorType, evaluate
from eqsat.system.deadline import current

#: The objective over several sizes: the weighted sum of costs, or the largest share of the original's cost at one.
OverSizes: TypeAlias = Literal["sum", "worst"]
#: Number of assignments that are tried where only a run shows whether a model accepts one, and seconds for that.
TRIES, SECONDS = 120, 5.0
#: Elements that inputs have together at an assignment that is only tried: some hundred megabytes as they are drawn.
MOST_ELEMENTS = 2**24
#: On how many draws of inputs a program is run, and finalists are compared: a difference may not show on one.
DRAWS = 4


class Runnable(Protocol):
    """A program of any backend, on which inputs are tried; backends themselves draw inputs by this file."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name; BackendError for inputs that do not fit."""


@dataclass(frozen=True)
class SizePoint:
    """The sizes at which a model is costed and measured, by named dim, and the share of its cost there.

    `integers` is the value of integer inputs that are no indices, None for 0 and 1 at random. `tried` says that the
    model was run so. `wanted` are the sizes that were asked for.
    """

    sizes: Mapping[str, int]
    weight: float = 1.0
    integers: int | None = None
    tried: bool = False
    wanted: Mapping[str, int] = field(default_factory=dict)

    def inputs(self, graph: Graph, seed: int) -> dict[str, Any]:
        """Random inputs of a graph at these sizes."""
        return example_inputs(graph, self.sizes, seed, self.integers)


def example_inputs(graph: Graph, sizes: Mapping[str, int], seed: int, integers: int | None = None) -> dict[str, Any]:
    """Random inputs of the declared types: normal floats, and integers of 0 and 1, or all `integers`.

    `integers` beyond the range of an input's type are the nearest within it. An input for which the model brings a
    default gets that. Integers that select from an axis are drawn from all places it has. Names without a size get one
    that the graph accepts beside the others. BackendError for an input that is no tensor of known rank.
    """
    rng = np.random.default_rng(seed)
    chosen = sizing_of(graph).completed(sizes)
    bounds = _bounds(graph, chosen)
    feeds: dict[str, Any] = {}
    defaults = defaults_of(graph)
    for name in graph.inputs:
        if name in defaults:
            feeds[name] = defaults[name].array  # the model brings a fitting one
            continue
        type = graph.type(name)
        if not isinstance(type, TensorType) or type.shape is None:
            raise BackendError(f"input {name!r} is {type}, for which no example can be made")
        shape = type.at(chosen).static
        if type.dtype.is_float:
            feeds[name] = rng.standard_normal(shape).astype(type.dtype.numpy)
        elif integers is None or name in bounds or not type.dtype.is_integer:
            feeds[name] = rng.integers(0, bounds.get(name, 2), shape).astype(type.dtype.numpy)
        else:
            limits = ml_dtypes.iinfo(type.dtype.numpy)
            feeds[name] = np.full(shape, min(max(integers, limits.min), limits.max), type.dtype.numpy)
    return feeds


def _bounds(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The number of places to select from, for each input of integers that selects."""
    bounds: dict[str, int] = {}
    for node in graph.nodes:
        indexed = node.op in OPS and OPS[node.op].indexed and "axis" in node.attrs
        source = handed_on(graph, node.inputs[1]) if indexed else ""
        selected = graph.type(node.inputs[0] or "") if indexed else None
        if source in graph.inputs and isinstance(selected, TensorType) and selected.shape:
            places = evaluate(selected.shape[node.attrs["axis"] % selected.rank], sizes)
            bounds[source] = max(min(places, bounds.get(source, places)), 1)
    # No number beyond the range of the element type is drawn.
    for name in bounds:
        type = graph.type(name)
        if isinstance(type, TensorType) and type.dtype.is_integer:
            bounds[name] = min(bounds[name], int(np.iinfo(type.dtype.numpy).max))
    return bounds


def tried(program: Runnable, graph: Graph, point: SizePoint, seed: int = 0) -> SizePoint:
    """The point, or another near it, at which a program of the graph runs; BackendError where none does.

    Where only a run shows whether the model accepts an assignment, a bounded number of them is tried.
    """
    if point.tried:
        return point
    try:
        return _run(program, graph, point, seed)
    except BackendError as refused:
        end = current().part(most=SECONDS)
        most = max(MOST_ELEMENTS, _elements(graph, point.sizes))
        for other in islice(_others(graph, point), TRIES):
            if end.over:
                break
            if _elements(graph, other.sizes) > most:
                continue
            try:
                return _run(program, graph, other, seed)
            except BackendError:
                continue
        raise BackendError(
            f"no sizes were found that the model runs at: {refused.what}",
            where=graph.name,
            expected="sizes of its named dims that it accepts",
            remedy="say them: sizes={...}, or --size NAME=NUMBER",
        ) from refused


def _elements(graph: Graph, sizes: Mapping[str, int]) -> int:
    """The number of elements of all inputs together, those of unknown shape left out."""
    chosen = sizing_of(graph).completed(sizes)
    types = (graph.type(name) for name in graph.inputs)
    return sum(t.elements(chosen) for t in types if isinstance(t, TensorType) and t.shape is not None)


def _others(graph: Graph, point: SizePoint) -> Iterator[SizePoint]:
    """Settings to try after one that was refused: other sizes, then other values of integers."""
    if _has_plain_integers(graph):
        yield from (replace(point, integers=value) for value in _values(point.sizes))
    yield from (replace(point, sizes=sizes) for sizes in sizing_of(graph).trials(point.wanted))
    if not _has_plain_integers(graph):
        return
    for sizes in sizing_of(graph).trials(point.wanted) if sizing_of(graph).labels else (point.sizes,):
        yield from (replace(point, sizes=sizes, integers=value) for value in _values(sizes))


def _values(sizes: Mapping[str, int]) -> Iterable[int]:
    """Values of integer inputs to try: one, as many as the largest dim has, and none."""
    return dict.fromkeys((1, max(sizes.values(), default=1), 0))


def _run(program: Runnable, graph: Graph, point: SizePoint, seed: int) -> SizePoint:
    # One draw of integers says nothing of the next.
    for draw in range(DRAWS if _has_plain_integers(graph) else 1):
        program.run(point.inputs(graph, seed + draw))
    return replace(point, sizes=sizing_of(graph).completed(point.sizes), tried=True)


def _has_plain_integers(graph: Graph) -> bool:
    """True where the model may accept some values of an integer input and refuse others."""
    types = (graph.type(v) for v in graph.inputs)
    return any(isinstance(t, TensorType) and t.dtype.is_integer for t in types)
