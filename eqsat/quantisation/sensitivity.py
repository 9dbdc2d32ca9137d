"""Errors of the outputs of a graph by rounding one of its values, or weights, at a time: measured on data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, BlockScale, Constant, DType, Graph, Node, Scale, Sym, TensorType, ValueType
from eqsat.runtime.backend import select
from eqsat.system.deadline import check

Array = np.ndarray[Any, np.dtype[Any]]
Batch = Mapping[str, Any]
Key = TypeVar("Key", bound=Hashable)

#: Batches that every rounding is measured on, at most.
MOST_BATCHES = 8
#: The batches from which on errors are foreseen by their logarithms.
_BY_LOGARITHMS = 6


@dataclass(frozen=True)
class RoundedWeights:
    """A product whose constant weights are rounded: the value it makes, from which operand, by which scale.

    `node` is the product with its constants, weights first, in the place of those operands. Where the operand is
    rounded as well, it is by its own least and largest element, or beside weights in blocks by such blocks. `addend` is
    the value that is added to the products where that is no constant.
    """

    product: str
    operand: str
    node: Node
    constants: tuple[Constant, ...]
    scale: Scale | BlockScale
    addend: str = ""


@dataclass(frozen=True)
class Sensitivities(Generic[Key]):
    """The relative change of the outputs by each rounding, the largest over `batches` of the data.

    `interaction` is the factor by which all roundings together move the outputs farther than the root of the sum of
    their squares, at least 1: roundings that are independent add up so. `unmeasured` are those there was no time for;
    those that move the outputs too far by themselves are in neither.
    """

    errors: Mapping[Key, float]
    interaction: float
    batches: int
    unmeasured: frozenset[Key] = frozenset()


def output_error(outputs: Mapping[str, Any], reference: Mapping[str, Any]) -> float:
    """‖out − ref‖ / ‖ref‖ in float64, of the output where it is largest.

    Of outputs that are no floats, the share of elements that differ. An infinity or NaN that the reference has not is
    an infinite error, and so is a reference of zeros that is missed.

    >>> output_error({"y": np.array([3.0, 4.5])}, {"y": np.array([3.0, 4.0])})
    0.1
    """
    return max((array_error(outputs[name], expected) for name, expected in reference.items()), default=0.0)


def array_error(given: Any, expected: Any) -> float:
    """The error of one output, as `output_error` has it."""
    out, ref = np.asarray(given), np.asarray(expected)
    if out.shape != ref.shape:
        return math.inf
    if ref.dtype.kind not in "fV":
        return float(np.mean(out != ref)) if ref.size else 0.0
    wide, exact = out.astype(np.float64), ref.astype(np.float64)
    finite = np.isfinite(exact)
    if not np.array_equal(finite, np.isfinite(wide)):
        return math.inf
    difference = float(np.linalg.norm(wide[finite] - exact[finite]))
    norm = float(np.linalg.norm(exact[finite]))
    return difference / norm if norm else (math.inf if difference else 0.0)


class ChangeableGraph:
    """A graph that runs on data, whose values can be read and changed on the way."""

    def __init__(self, graph: Graph, places: Collection[str] = (), *, threads: int | None = None) -> None:
        self.graph = graph
        self.places = {value: f"change of {value}" for value in places}
        self._program = _compiled(_changeable(graph, self.places), threads)
        self._still = {name: np.zeros((1,) * _rank(graph, value), np.float32) for value, name in self.places.items()}

    def outputs(self, batch: Batch, changes: Mapping[str, Array] | None = None) -> dict[str, Any]:
        """The outputs on a batch where arrays are added to values."""
        added = {self.places[value]: array for value, array in (changes or {}).items()}
        outputs: dict[str, Any] = self._program.run({**batch, **self._still, **added})
        return outputs


def recorder(graph: Graph, values: Collection[str], *, threads: int | None = None) -> Callable[[Batch], dict[str, Any]]:
    """A function from a batch to values of a graph by name; those that are inputs or constants included."""
    given = {v: graph.constants[v].array for v in values if v in graph.constants}
    computed = [v for v in values if v not in given and v not in graph.inputs]
    program = _compiled(replace(graph, outputs={v: v for v in computed}).without_dead(), threads) if computed else None

    def read(batch: Batch) -> dict[str, Any]:
        found: dict[str, Any] = {} if program is None else program.run({k: batch[k] for k in program.graph.inputs})
        return found | given | {v: batch[v] for v in values if v in graph.inputs}

    return read


def sensitivities(
    graph: Graph,
    values: Mapping[Key, tuple[str, Scale]],
    weights: Mapping[Key, RoundedWeights],
    online: Mapping[Key, RoundedWeights],
    batches: Sequence[Batch],
    *,
    order: Iterable[Key] = (),
    threads: int | None = None,
    seconds: float = 60.0,
    most: float = math.inf,
    apart: Collection[Key] = (),
    follow: Callable[[int, int], object] = lambda done, count: None,
    should_stop: Callable[[], bool] | None = None,
) -> Sensitivities[Key]:
    """Round values, weights, and operands that are quantised online, one at a time, and measure the outputs.

    A rounding is added to the value where it arises: that of a value to itself, that of weights to what their product
    makes. `seconds` bound the time: there are as many batches as it holds, one at least; roundings that it holds no
    run for are `unmeasured`, the last ones of `order`. Those that move the outputs farther than `most` are left out of
    all that follows, and those `apart`, which stand in the place of others, out of all roundings at once.
    """
    places = {key: value for key, (value, _) in values.items()}
    places |= {key: one.product for key, one in (*weights.items(), *online.items())}
    ordered = [key for key in dict.fromkeys((*order, *places)) if key in places]
    network = ChangeableGraph(graph, tuple(dict.fromkeys(places.values())), threads=threads)
    products = [*weights.values(), *online.values()]
    sources = [value for one in products for value in (one.operand, one.addend) if value]
    read = recorder(graph, tuple(dict.fromkeys((*places.values(), *sources))), threads=threads)
    rounding = _WeightRoundings(graph, weights, online, threads)
    errors: dict[Key, float] = {}
    alone = frozenset(apart)
    refused: set[Key] = set()
    interaction, used, begun = 1.0, 0, time.monotonic()
    for batch in batches[:MOST_BATCHES]:
        if used and time.monotonic() - begun + (time.monotonic() - begun) / used > seconds:
            break
        reference = network.outputs(batch)
        recorded = read(batch)
        every: dict[str, Array] = {}
        for key, change in _changes(ordered, values, rounding, recorded):
            check()
            if key in refused:
                continue
            if (should_stop is not None and should_stop()) or (not used and time.monotonic() - begun > seconds):
                break
            error = output_error(network.outputs(batch, {places[key]: change}), reference)
            if not error <= most:
                refused.add(key)
                errors.pop(key, None)
                continue
            errors[key] = max(errors.get(key, 0.0), error)
            follow(len(errors) + used * len(places), len(places))
            if key in alone:
                continue
            every[places[key]] = every[places[key]] + change if places[key] in every else change
        together = output_error(network.outputs(batch, every), reference)
        independent = math.hypot(*(error for key, error in errors.items() if key not in alone))
        if independent > 0 and math.isfinite(together):
            interaction = max(interaction, together / independent)
        used += 1
        if should_stop is not None and should_stop():
            break
    return Sensitivities(errors, interaction, used, frozenset(places) - frozenset(errors) - refused)


def _changes(
    order: Sequence[Key],
    values: Mapping[Key, tuple[str, Scale]],
    rounding: _WeightRoundings[Key],
    recorded: Mapping[str, Any],
) -> Iterator[tuple[Key, Array]]:
    products = dict(rounding.of(recorded))
    for key in order:
        if key in products:
            yield key, products.pop(key)
            continue
        value, scale = values[key]
        array = np.asarray(recorded[value], np.float32)
        yield key, scale.rounded(array) - array


class _WeightRoundings(Generic[Key]):
    """The change of what products make by rounding their weights, or their weights and operand."""

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[Key, RoundedWeights],
        online: Mapping[Key, RoundedWeights],
        threads: int | None,
    ) -> None:
        self.weights, self.online = weights, online
        self._run = rounded_products(graph, (*weights.values(), *online.values()), threads)

    def of(self, recorded: Mapping[str, Any]) -> Iterator[tuple[Key, Array]]:
        """The changes, from the operands and results as they were recorded."""
        operands = [recorded[one.operand] for one in self.weights.values()]
        operands += [_online(recorded[one.operand], one.scale) for one in self.online.values()]
        made = self._run(operands, recorded)
        every = (*self.weights.items(), *self.online.items())
        for (key, one), result in zip(every, made, strict=True):
            yield key, result - recorded[one.product]


def rounded_products(
    graph: Graph, products: Sequence[RoundedWeights], threads: int | None
) -> Callable[[Sequence[Array], Mapping[str, Any]], list[Array]]:
    """A function from left operands, and recorded values, to what products make of them with their weights rounded."""
    if not products:
        return lambda operands, recorded: []
    nodes: list[Node] = []
    inputs: list[str] = []
    added: dict[str, str] = {}
    constants: dict[str, Constant] = {}
    types: dict[str, ValueType] = {}
    for place, one in enumerate(products):
        x, y = f"x{place}", f"y{place}"
        weights, *rest = one.constants
        own = [Constant.of(one.scale.rounded(weights.array), DType.FLOAT32), *rest]
        if rest:
            own[1] = Constant.of(one.scale.corrected(rest[0].array), DType.FLOAT32)
        names = [f"c{place}_{number}" for number in range(len(own))]
        constants |= dict(zip(names, own, strict=True))
        types |= {name: constants[name].type for name in names}
        types |= {x: graph.type(one.operand), y: graph.type(one.product)}
        inputs.append(x)
        if one.addend:
            added[f"a{place}"] = one.addend
            names.append(f"a{place}")
            types[f"a{place}"] = graph.type(one.addend)
        nodes.append(Node(one.node.op, (x, *names), (y,), one.node.attrs))
    outputs = {f"y{place}": f"y{place}" for place in range(len(products))}
    program = _compiled(Graph("roundings", (*inputs, *added), outputs, tuple(nodes), constants, types), threads)

    def run(operands: Sequence[Array], recorded: Mapping[str, Any]) -> list[Array]:
        addends = {name: recorded[value] for name, value in added.items()}
        made = program.run(dict(zip(inputs, operands, strict=True)) | addends)
        return [np.asarray(made[f"y{place}"]) for place in range(len(products))]

    return run


def _online(x: Any, scale: Scale | BlockScale) -> Array:
    """A tensor rounded as it is where runtimes quantise it beside weights of a scale."""
    array = np.asarray(x, np.float32)
    if isinstance(scale, BlockScale):
        return _by_blocks(array, scale.packing.block)
    low, high = min(float(array.min(initial=0.0)), 0.0), max(float(array.max(initial=0.0)), 0.0)
    step = np.float32((high - low) / 255 or 1.0)
    zero = float(np.clip(np.rint(-low / step), 0, 255))
    restored: Array = (np.clip(np.rint(array / step) + zero, 0, 255) - zero).astype(np.float32) * step
    return restored


def _by_blocks(array: Array, block: int) -> Array:
    """A tensor rounded to int8 in blocks along its last axis, each by its largest magnitude."""
    missing = -array.shape[-1] % block
    filled = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])
    parts = filled.reshape(*array.shape[:-1], -1, block)
    steps = np.abs(parts).max(axis=-1, keepdims=True) / np.float32(127)
    numbers = np.rint(np.divide(parts, steps, out=np.zeros_like(parts), where=steps > 0))
    restored: Array = (numbers * steps).reshape(filled.shape)[..., : array.shape[-1]]
    return restored


def _changeable(graph: Graph, places: Mapping[str, str]) -> Graph:
    """The graph with an input added to each of some values, before all who read it."""
    renamed = {value: f"{value} changed" for value in places}
    types = dict(graph.types)
    added: dict[str, Node] = {}
    for value, name in places.items():
        type = graph.type(value)
        assert isinstance(type, TensorType)
        types[renamed[value]] = type
        dims = tuple(Sym.named(f"{name} {axis}") for axis in range(type.rank))
        types[name] = TensorType(DType.FLOAT32, dims)
        added[value] = Node("add", (value, name), (renamed[value],), Attrs(spec("add").complete({})))
    nodes = [added[v] for v in places if v in graph.inputs or v in graph.constants]
    for node in graph.nodes:
        nodes.append(replace(node, inputs=tuple(v if v is None else renamed.get(v, v) for v in node.inputs)))
        nodes += [added[v] for v in node.outputs if v in added]
    outputs = {name: renamed.get(value, value) for name, value in graph.outputs.items()}
    return replace(
        graph, inputs=(*graph.inputs, *places.values()), outputs=outputs, nodes=tuple(nodes), types=types, origin=None
    )


def foreseen(errors: Sequence[float], share: float = 0.99) -> float:
    """The error that a further batch stays below with a probability of `share`, given those of some batches.

    The one-sided prediction interval of a normal distribution whose mean and deviation are estimates (G. J. Hahn,
    1969). From six batches on it is that of the errors' logarithms: errors are ratios, of which more lie far above the
    median than below; the deviation of fewer logarithms is too uncertain to be an exponent. Nothing is foreseen from a
    single batch.

    >>> round(foreseen([0.1, 0.1, 0.1]), 3), round(foreseen([0.09, 0.1, 0.11]), 3)
    (0.1, 0.18)
    >>> round(foreseen([0.08, 0.09, 0.1, 0.1, 0.11, 0.12]), 3)
    0.167
    """
    if len(errors) < 2:
        return max(errors, default=0.0)
    if len(errors) < _BY_LOGARITHMS or min(errors) <= 0:
        return _upper_end(np.asarray(errors), share)
    return math.exp(_upper_end(np.log(errors), share))


def _upper_end(samples: Array, share: float) -> float:
    """The upper end of the prediction interval of a normal distribution, given two samples at least."""
    from scipy.special import stdtrit

    count = len(samples)
    deviation = float(np.std(samples, ddof=1))
    return float(np.mean(samples)) + float(stdtrit(count - 1, share)) * deviation * math.sqrt(1 + 1 / count)


def _rank(graph: Graph, value: str) -> int:
    type = graph.type(value)
    return type.rank if isinstance(type, TensorType) else 0


def _compiled(graph: Graph, threads: int | None) -> Any:
    return select().compile(replace(graph, origin=None), threads=threads)
