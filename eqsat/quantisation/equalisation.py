"""Chains of products between which channels may be scaled, and the scales that make them round alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.language.ops import OPS
from eqsat.language.terms import Graph, Node, TensorType

Array = np.ndarray[Any, np.dtype[Any]]

#: The exponents of the ranges of values in factors that are tried: all of them, or the root, as M. Nagel et al. (2019,
#: equation 11) share them between the two products.
SHARES = (1.0, 0.5)
#: The least range of a channel that counts, as a share of its range before a relu: other data may show more of it.
_LEAST = 2.0**-3
#: The least reach that counts, in units of the largest one.
_SMALL = 2.0**-16
#: Operators through which factors above 0 of single channels pass.
_PASSED = ("relu", "leaky_relu", "max_pool", "avg_pool")


@dataclass(frozen=True)
class ScalableValue:
    """A value between two products with constant weights, of a rank, with channels along `axis`.

    The value is what the `maker` makes, after operators through which factors above 0 of channels pass.
    """

    value: str
    maker: Node
    reader: Node
    axis: int
    rank: int

    def spread(self, factors: Array) -> Array:
        """Factors for the channels in a shape that broadcasts with the value."""
        return factors.reshape(-1, *(1,) * (self.rank - 1 - self.axis))


def chains(graph: Graph) -> Iterator[ScalableValue]:
    """The chains of a graph, those that read the value of another one included."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            if name is not None:
                readers.setdefault(name, []).append(node)
    outputs = set(graph.outputs.values())
    for node in graph.nodes:
        if not _is_product(graph, node):
            continue
        value = node.outputs[0]
        axis = 1 if OPS[node.op].windowed else _rank(graph, value) - 1
        while value not in outputs and len(readers.get(value, ())) == 1:
            (reader,) = readers[value]
            if reader.inputs[0] != value:
                break
            if _is_product(graph, reader):
                if _channel_axis(graph, reader) == axis:
                    yield ScalableValue(value, node, reader, axis, _rank(graph, value))
                break
            if not _passes(graph, reader, axis):
                break
            value = reader.outputs[0]


def scaled(reader: Node, weights: Array, factors: Array) -> Array:
    """The weights of a product whose operand is divided by a factor for each channel."""
    return np.asarray(_by_channel(reader, weights) * _along(reader, factors, weights.ndim - 2)).reshape(weights.shape)


def reach(reader: Node, weights: Array) -> Array:
    """The largest magnitude of the weights that each channel of the operand meets."""
    by_channel = np.abs(_by_channel(reader, weights))
    if OPS[reader.op].windowed:
        return np.asarray(by_channel.max(axis=(1, *range(3, by_channel.ndim)))).reshape(-1)
    return np.asarray(by_channel.max(axis=0 if _is_turned(reader) else 1))


def likely(ranges: Array, made: Array) -> Array:
    """The ranges of channels, raised where they are small beside those of what their maker `made`, before any relu."""
    return np.maximum(ranges, _LEAST * made)


def factors(ranges: Array, reached: Array, share: float) -> Array:
    """Factors for channels, powers of two: their ranges to the power of a share, over their reach to that of the rest.

    >>> factors(np.array([8.0, 0.5]), np.array([1.0, 1.0]), 1.0)
    array([4.  , 0.25], dtype=float32)
    """
    exponents = share * _octaves(ranges) - (1.0 - share) * _octaves(reached)
    # Only quotients of factors matter: their mean is near 1.
    found: Array = np.exp2(np.rint(exponents - exponents.mean())).astype(np.float32)
    return found


def _octaves(ranges: Array) -> Array:
    most = float(ranges.max(initial=0.0))
    return np.log2(np.maximum(ranges, _SMALL * most if most > 0 else 1.0).astype(np.float64))


def _by_channel(reader: Node, weights: Array) -> Array:
    """The weights of a convolution as groups, outputs of one, channels of one, and space; others as they are."""
    if not OPS[reader.op].windowed:
        return weights
    groups = int(reader.attrs.get("group", 1))
    return weights.reshape(groups, len(weights) // groups, *weights.shape[1:])


def _along(reader: Node, factors: Array, spatial: int) -> Array:
    """Factors in a shape that broadcasts with weights by channel, of so many axes in space."""
    if not OPS[reader.op].windowed:
        return factors if _is_turned(reader) else factors[:, None]
    groups = int(reader.attrs.get("group", 1))
    return factors.reshape(groups, 1, -1, *(1,) * spatial)


def _is_turned(reader: Node) -> bool:
    return bool(reader.attrs.get("trans_b"))


def _is_product(graph: Graph, node: Node) -> bool:
    """Return whether a node is a product of float32 by constant weights, with constants alone besides."""
    declared = OPS.get(node.op)
    if declared is None or not declared.product or len(node.inputs) < 2 or node.op == "conv_transpose":
        return False
    known = all(name in graph.constants for name in node.inputs[1:])
    plain = not node.attrs.get("trans_a") and node.attrs.get("alpha", 1.0) == node.attrs.get("beta", 1.0) == 1.0
    if not known or not plain:
        return False
    weights = graph.constants[node.inputs[1] or ""].array
    return (
        weights.dtype == np.float32 and (declared.windowed or weights.ndim == 2) and _rank(graph, node.outputs[0]) > 1
    )


def _passes(graph: Graph, node: Node, axis: int) -> bool:
    """Return whether factors of channels pass through a node: to a constant that it adds along them, if any."""
    if node.op == "add":
        constant = graph.constants.get(node.inputs[1] or "")
        if constant is None:
            return False
        shape = constant.array.shape
        place = axis - (_rank(graph, node.outputs[0]) - len(shape))
        return all(size == 1 for other, size in enumerate(shape) if other != place)
    return node.op in _PASSED and (axis == 1 or not OPS[node.op].windowed)


def _channel_axis(graph: Graph, reader: Node) -> int:
    """The axis of its operand over which a product sums."""
    return 1 if OPS[reader.op].windowed else _rank(graph, reader.inputs[0] or "") - 1


def _rank(graph: Graph, value: str) -> int:
    type = graph.type(value)
    return type.rank if isinstance(type, TensorType) and type.shape is not None else -1
