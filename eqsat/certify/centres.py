"""The inputs that a graph is made for, as far as the constants show that it takes off them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.language.terms import Graph, Node, TensorType

#: Constants of at most this many elements are looked at.
_LARGEST = 1 << 20
#: A mean of fewer standard deviations than this is nothing that ordinary inputs do not show.
_FAR = 8.0


@dataclass(frozen=True)
class _Affine:
    """A value that is slope · input + offset, element by element."""

    input: str
    slope: Any
    offset: Any


def centres(graph: Graph) -> Mapping[str, tuple[Any, Any]]:
    """For each input that a graph shifts by large constants the mean and the scale that make ordinary numbers of it.

    A model that begins with (x - mean) / std is fed numbers around `mean`. Followed are sums, differences, products and
    quotients with constants, casts and copies that keep the shape; both results broadcast against the input.
    """
    known: dict[str, _Affine] = {name: _Affine(name, 1.0, 0.0) for name in graph.inputs if _is_number(graph, name)}
    last: dict[str, _Affine] = {}
    for node in graph.nodes:
        applied = _applied(graph, node, known)
        if applied is None:
            continue
        known[node.outputs[0]] = applied
        if np.any(applied.offset):
            last[applied.input] = applied
    by_input: dict[str, tuple[Any, Any]] = {}
    with np.errstate(all="ignore"):
        for name, value in last.items():
            centre, spread = -value.offset / np.asarray(value.slope), 1.0 / np.abs(value.slope)
            ratio = np.abs(centre) / spread
            if np.isfinite(ratio).all() and ratio.size and ratio.max() >= _FAR:
                by_input[name] = centre, spread
    return by_input


def _applied(graph: Graph, node: Node, known: Mapping[str, _Affine]) -> _Affine | None:
    """The affine function that a node's first result is, or None."""
    tracked = [v for v in node.inputs if v in known]
    if len(tracked) != 1 or tracked[0] is None:
        return None
    value, result = known[tracked[0]], graph.type(node.outputs[0])
    if not isinstance(result, TensorType) or result.shape is None or result.shape != _shape(graph, value.input):
        return None
    if node.op in ("identity", "cast"):
        return value if _is_number(graph, node.outputs[0]) else None
    if node.op == "neg":
        return _Affine(value.input, -value.slope, -value.offset)
    others = [v for v in node.inputs if v is not None and v not in known]
    constant = graph.constants.get(others[0]) if len(others) == 1 and len(node.inputs) == 2 else None
    if constant is None or not _is_number(graph, others[0]) or constant.nbytes > _LARGEST * 8:
        return None
    c, first = constant.array.astype(np.float64), node.inputs[0] == tracked[0]
    with np.errstate(all="ignore"):
        if node.op == "add":
            return _Affine(value.input, value.slope, value.offset + c)
        if node.op == "sub":
            sign = 1.0 if first else -1.0
            return _Affine(value.input, sign * value.slope, sign * (value.offset - c))
        if node.op == "mul":
            return _Affine(value.input, value.slope * c, value.offset * c)
        if node.op == "div" and first:
            return _Affine(value.input, value.slope / c, value.offset / c)
    return None


def _shape(graph: Graph, name: str) -> Any:
    type = graph.type(name)
    return type.shape if isinstance(type, TensorType) else None


def _is_number(graph: Graph, name: str) -> bool:
    type = graph.type(name)
    return isinstance(type, TensorType) and (type.dtype.is_float or type.dtype.is_integer)
