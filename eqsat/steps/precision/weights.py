"""The numbers of quantised weights, chosen for data within a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from eqsat.language.ops import OPS
from eqsat.language.terms import Attrs, Graph
from eqsat.quantisation.adjustment import Moments, Weights, adjusted
from eqsat.quantisation.sensitivity import RoundedWeights, recorder
from eqsat.system.deadline import check

Batch = Mapping[str, Any]
Key = TypeVar("Key", bound=Hashable)

#: Seconds that weights may be adjusted for: those that are left are rounded one by one.
SECONDS = 60.0
#: Bytes of moments that are held at once.
_HELD = 1 << 30

#: The terms of products: an operand, and how convolutions read it.
_Source: TypeAlias = tuple[str, str, Attrs, tuple[int, ...]]


def adjusted_weights(
    graph: Graph,
    products: Mapping[Key, RoundedWeights],
    calibrate: Sequence[Batch],
    tighten: Sequence[Batch],
    say: Callable[[str], None],
) -> dict[Key, RoundedWeights]:
    """The products with the numbers of their weights chosen for data, as far as there is time."""
    begun = time.monotonic()
    found = dict(products)
    layouts = {key: one for key, given in products.items() if (one := _layout(given)).is_adjustable}
    sources: dict[_Source, list[Key]] = {}
    for key, one in layouts.items():
        sources.setdefault(_source(products[key], one), []).append(key)
    done = 0
    for some in _parts(sources, layouts):
        sizes = {source: (layouts[sources[source][0]].groups, layouts[sources[source][0]].terms) for source in some}
        sums = [{source: Moments.of(*size) for source, size in sizes.items()} for _ in range(2)]
        read = recorder(graph, tuple(dict.fromkeys(source[0] for source in some)))
        for batches, moments in zip((calibrate, tighten), sums, strict=True):
            for batch in batches:
                if time.monotonic() - begun > SECONDS:
                    return found
                values = read(batch)
                for source, seen in moments.items():
                    check()
                    seen.see(layouts[sources[source][0]].read(np.asarray(values[source[0]], np.float32)))
        for source in some:
            for key in sources[source]:
                check()
                if time.monotonic() - begun > SECONDS:
                    return found
                say(f"weights {done + 1} of {len(layouts)}")
                scale = adjusted(layouts[key], sums[0][source], sums[1][source])
                found[key] = replace(products[key], scale=scale)
                done += 1
    return found


def _layout(given: RoundedWeights) -> Weights:
    bias = given.constants[1].array if len(given.constants) > 1 else None
    shifts = bias is not None and bias.ndim == 1 and given.node.attrs.get("beta", 1.0) == 1.0
    return Weights(given.node, given.constants[0].array, given.scale, shifts)


def _source(given: RoundedWeights, layout: Weights) -> _Source:
    windowed = OPS[given.node.op].windowed
    kept = ("strides", "pads", "dilations", "group") if windowed else ("trans_a",)
    attrs = Attrs({name: value for name, value in given.node.attrs.items() if name in kept})
    return given.operand, given.node.op, attrs, tuple(layout.array.shape[1:]) if windowed else ()


def _parts(sources: Mapping[_Source, list[Key]], layouts: Mapping[Key, Weights]) -> Iterator[list[_Source]]:
    """The sources in groups whose moments fit into memory together."""
    part: list[_Source] = []
    held = 0
    for source, keys in sources.items():
        one = layouts[keys[0]]
        size = 2 * 8 * one.groups * one.terms**2
        if part and held + size > _HELD:
            yield part
            part, held = [], 0
        part.append(source)
        held += size
    if part:
        yield part
