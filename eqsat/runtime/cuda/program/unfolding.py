"""Operators that no kernel computes as a whole, by operators that have kernels of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Constant, DType, Node, TensorType
from eqsat.language.terms.masks import lowest

#: Operators with which a kernel begins.
_ALONE = frozenset({"gemm", "matmul", "transpose", "reshape", "expand"})


@dataclass
class Unfolded:
    """Nodes in place of one, the last with its result, and the types and constants that they bring."""

    fresh: Callable[[str], str]
    types: dict[str, TensorType]
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)

    def add(self, op: str, *inputs: str, name: str | None = None, **attrs: Any) -> str:
        """Add a node and return the name of its result."""
        result = self.fresh(op) if name is None else name
        complete = spec(op).complete(attrs)
        (self.types[result],) = spec(op).result_types([self.types[v] for v in inputs], complete)
        self.nodes.append(Node(op, inputs, (result,), Attrs(complete)))
        return result

    def groups(self) -> list[tuple[Node, ...]]:
        """The nodes that are run as one kernel: a product with its scale, a softmax with its neighbours."""
        found: list[list[Node]] = []
        for node in self.nodes:
            ends = node.op == "mul" and self.nodes[0].op != "gemm"
            begins = node.op in _ALONE or (not ends and found[-1][0].op in _ALONE)
            if begins:
                found.append([])
            found[-1].append(node)
        return [tuple(group) for group in found]

    def constant(self, array: Any, dtype: DType) -> str:
        """One more constant; its name."""
        name = self.fresh("constant")
        self.constants[name] = Constant.of(np.asarray(array), dtype)
        self.types[name] = self.constants[name].type
        return name


def unfolded(node: Node, types: dict[str, TensorType], fresh: Callable[[str], str]) -> Unfolded | None:
    """The operators in place of one that no kernel computes as a whole; None for one that stays."""
    if node.op == "attention":
        return unfold_attention(node, types, fresh)
    if node.op == "gemm" and len(node.inputs) > 2 and node.inputs[2] is not None:
        return unfold_gemm(node, types, fresh)
    return None


def unfold_gemm(node: Node, types: dict[str, TensorType], fresh: Callable[[str], str]) -> Unfolded:
    """Alpha · a' b' + beta · c as a product, and a sum with it."""
    parts = Unfolded(fresh, types)
    a, b, c = (str(v) for v in node.inputs)
    attrs = {name: node.attrs[name] for name in ("alpha", "trans_a", "trans_b")}
    product = parts.add("gemm", a, b, **attrs)
    if node.attrs["beta"] != 1.0:
        c = parts.add("mul", c, parts.constant(node.attrs["beta"], types[c].dtype))
    parts.add("add", product, c, name=node.outputs[0])
    return parts


def unfold_attention(node: Node, types: dict[str, TensorType], fresh: Callable[[str], str]) -> Unfolded:
    """softmax(q kᵀ · scale + mask) v by products and a softmax; `types` are those of its operands.

    Where a mask keeps no key at all, the result is 0 or NaN, as the operator says.
    """
    parts = Unfolded(fresh, types)
    q, k, v = (str(x) for x in node.inputs[:3])
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    heads, width = types[q].static[1], types[q].static[3]
    k, v = (_repeated(parts, x, heads) for x in (k, v))
    scale = node.attrs["scale"] if node.attrs["scale"] is not None else 1.0 / math.sqrt(max(width, 1))
    scores = parts.add("matmul", q, parts.add("transpose", k, perm=(0, 1, 3, 2)))
    if scale != 1.0:
        scores = parts.add("mul", scores, parts.constant(scale, types[q].dtype))
    seen = None
    if node.attrs["causal"]:
        seen = parts.constant(np.tri(types[q].static[2], types[k].static[2], dtype=bool), DType.BOOL)
    if mask is not None and types[mask].dtype is DType.BOOL:
        seen = mask if seen is None else parts.add("and_", mask, seen)
    elif mask is not None:
        scores = parts.add("add", scores, mask)
    if seen is not None:
        scores = parts.add("where", seen, scores, parts.constant(-np.inf, types[q].dtype))
    shares = parts.add("softmax", scores, axis=3)
    if mask is not None and node.attrs["hidden"] == "zero":
        # Shares of a query that may look at nothing are NaN.
        shown = seen if seen is not None and types[mask].dtype is DType.BOOL else _shown(parts, mask, seen)
        shares = parts.add("where", shown, shares, parts.constant(0.0, types[q].dtype))
    parts.add("matmul", shares, v, name=node.outputs[0])
    return parts


def _shown(parts: Unfolded, mask: str, seen: str | None) -> str:
    """A mask of booleans: the keys that a mask of numbers does not hide, among those that are kept."""
    dtype = parts.types[mask].dtype
    shown = parts.add("not_", parts.add("less", mask, parts.constant(lowest(dtype), dtype)))
    return shown if seen is None else parts.add("and_", shown, seen)


def _repeated(parts: Unfolded, value: str, heads: int) -> str:
    """Keys or values with each head as often as queries share it."""
    batch, own, length, width = parts.types[value].static
    if own == heads or not own:
        return value
    apart = parts.add("reshape", value, shape=(batch, own, 1, length, width))
    shared = parts.add("expand", apart, shape=(batch, own, heads // own, length, width))
    return parts.add("reshape", shared, shape=(batch, heads, length, width))
