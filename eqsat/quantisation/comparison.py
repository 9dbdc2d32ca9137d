"""Scales of channels compared by data: how far outputs move when scaled values, and weights that read them, round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.language.ops.nn.endings import with_activations_apart
from eqsat.language.terms import Constant, DType, Graph, Node
from eqsat.quantisation.equalisation import SHARES, ScalableValue, factors, likely, reach, scaled
from eqsat.quantisation.ranges import Observer, best_scale
from eqsat.quantisation.scales import channel_axis, processor_weights
from eqsat.quantisation.sensitivity import ChangeableGraph, RoundedWeights, output_error, recorder, rounded_products
from eqsat.system.deadline import check

Array = np.ndarray[Any, np.dtype[Any]]
Batch = Mapping[str, Any]

#: Seconds after which no further batch decides between scales, and batches that they are compared on, at most.
SECONDS, MOST_BATCHES = 20.0, 4
#: The share of the error without factors below which factors have to bring it to be used.
_PAYS = 0.9


@dataclass(frozen=True)
class _Offer:
    """Factors for the channels of a chain, in a shape that broadcasts with its value, and its reader scaled by them."""

    chain: ScalableValue
    factors: Array
    product: RoundedWeights
    observer: Observer = field(default_factory=Observer)

    def divided(self, values: Mapping[str, Any]) -> Array:
        """The value of the chain divided by the factors."""
        return np.asarray(values[self.chain.value], np.float32) / self.factors


def best_factors(
    graph: Graph,
    usable: Sequence[ScalableValue],
    calibrate: Sequence[Batch],
    tighten: Sequence[Batch],
    say: Callable[[str], None] = lambda detail: None,
) -> dict[ScalableValue, Array]:
    """The factors of those chains that are better off with some, each by itself.

    Ranges are those of the batches `calibrate`. The batches `tighten` decide by how far outputs move when the value of
    a chain is rounded, and the weights of its reader: the first of them in any case, others while there is time.
    """
    begun = time.monotonic()
    wanted = tuple(dict.fromkeys(name for chain in usable for name in (chain.value, chain.reader.outputs[0])))
    read = recorder(graph, wanted)
    ranges = _observed(graph, usable, calibrate)
    finite = [chain for chain in usable if chain.value in ranges and np.isfinite(ranges[chain.value]).all()]
    offers = [one for chain in finite for one in _offers(graph, chain, ranges[chain.value])]
    if not offers:
        return {}
    for batch in calibrate[:MOST_BATCHES]:
        values = read(batch)
        for one in offers:
            check()
            one.observer.see(one.divided(values))
    scales = [best_scale(one.observer) for one in offers]
    # One product at a time: their results together may not fit into memory.
    products = [rounded_products(graph, [one.product], None) for one in offers]
    network = ChangeableGraph(graph, tuple(dict.fromkeys(one.product.product for one in offers)))
    errors: list[list[float]] = [[] for _ in offers]
    for seen, batch in enumerate(tighten[:MOST_BATCHES]):
        values, reference = read(batch), network.outputs(batch)
        for place, one in enumerate(offers):
            check()
            if seen and time.monotonic() - begun > SECONDS:
                return _chosen(offers, errors)
            say(f"scales {place + 1} of {len(offers)}")
            (made,) = products[place]([scales[place].rounded(one.divided(values))], values)
            change = {one.product.product: made - values[one.product.product]}
            errors[place].append(output_error(network.outputs(batch, change), reference))
    return _chosen(offers, errors)


def _observed(graph: Graph, usable: Sequence[ScalableValue], batches: Sequence[Batch]) -> dict[str, Array]:
    """The ranges of the channels of each chain's value."""
    makers = {chain.value: _linear(chain.maker) for chain in usable}
    apart = with_activations_apart(graph, _linear)
    read = recorder(apart, tuple(dict.fromkeys((*makers, *makers.values()))))
    ranges: dict[str, Array] = {}
    for batch in batches:
        check()
        values = read(batch)
        for chain in usable:
            made = _ranges(values[makers[chain.value]], chain.axis)
            seen = likely(_ranges(values[chain.value], chain.axis), made)
            ranges[chain.value] = np.maximum(ranges.get(chain.value, seen), seen)
    return ranges


def _linear(node: Node) -> str:
    """The name of what a product makes before its activation."""
    (made,) = node.outputs
    return made if node.attrs.get("activation", "none") == "none" else f"{made} before its activation"


def _chosen(offers: Sequence[_Offer], errors: Sequence[Sequence[float]]) -> dict[ScalableValue, Array]:
    """The factors with the least mean square of errors, of chains where that is enough below the one without any."""
    chosen: dict[ScalableValue, tuple[float, Array]] = {}
    plain: dict[ScalableValue, Sequence[float]] = {}
    for one, seen in zip(offers, errors, strict=True):
        if one.chain not in plain:
            plain[one.chain] = seen
            continue
        before = plain[one.chain][: len(seen)]
        error, known = float(np.linalg.norm(seen)), chosen.get(one.chain)
        if seen and error < _PAYS * float(np.linalg.norm(before)) and (known is None or error < known[0]):
            chosen[one.chain] = error, one.factors
    return {chain: found for chain, (_, found) in chosen.items()}


def _offers(graph: Graph, chain: ScalableValue, ranges: Array) -> Iterator[_Offer]:
    """The chain as it is, then with factors by each share of the ranges."""
    reader = chain.reader
    constants = tuple(graph.constants[name] for name in reader.inputs[1:] if name is not None)
    weights = constants[0].array
    tried = [np.ones(len(ranges), np.float32)]
    tried += [factors(ranges, reach(reader, weights), share) for share in SHARES]
    for found in {one.tobytes(): one for one in tried}.values():
        own = Constant.of(scaled(reader, weights, found), DType.FLOAT32)
        product = Node(reader.op, (), (), reader.attrs)
        scale = processor_weights(own.array, channel_axis(reader.op, reader.attrs, own.array.ndim))
        rounded = RoundedWeights(reader.outputs[0], chain.value, product, (own, *constants[1:]), scale)
        yield _Offer(chain, chain.spread(found), rounded)


def _ranges(value: Any, axis: int) -> Array:
    """The largest magnitude of each channel."""
    array = np.abs(np.asarray(value, np.float32))
    found: Array = array.max(axis=tuple(k for k in range(array.ndim) if k != axis % array.ndim), initial=0.0)
    return found
