"""Operators that no kernel computes as a whole, by operators that have kernels of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Constant, DType, Node, TensorType
from eqsat.language.terms.matrices import lowest

#: Operators with which a kernel begins.
_ALONE = frozenset({"gemm", "matmul", "transpose", "reshape", "expand"})
#: Rows of a product with packed weights below which a thread for each element leaves most of a GPU without work.
_FEW_ROWS = 24


@dataclass
class Unfolded:
    """Nodes in place of one, the last with its result, and the types and constants that they bring.

    Where they are `whole` one kernel computes them all.
    """

    fresh: Callable[[str], str]
    types: dict[str, TensorType]
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    whole: bool = False

    def add(self, op: str, *inputs: str, name: str | None = None, **attrs: Any) -> str:
        """Add a node and return the name of its result."""
        result = self.fresh(op) if name is None else name
        complete = spec(op).complete(attrs)
        (self.types[result],) = spec(op).result_types([self.types[v] for v in inputs], complete)
        self.nodes.append(Node(op, inputs, (result,), Attrs(complete)))
        return result

    def groups(self) -> list[tuple[Node, ...]]:
        """The nodes that are run as one kernel: a product with its scale, a softmax with its neighbours."""
        if self.whole:
            return [tuple(self.nodes)]
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
    return unfold_packed(node, types, fresh) if node.op == "matmul_packed" else None


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


def unfold_packed(node: Node, types: dict[str, TensorType], fresh: Callable[[str], str]) -> Unfolded:
    """A product with packed weights, whose numbers are taken out of their bytes where the kernel reads them.

    Threads share the sum of an element where rows are few, since there the time is that of reading weights.
    """
    parts = Unfolded(fresh, types, whole=True)
    a, b, scales, zeros, bias = (*node.inputs, None, None)[:5]
    k, n, bits, block = (node.attrs[name] for name in ("k", "n", "bits", "block"))
    type, count = types[str(a)], -(-k // block)
    numbers = parts.add("reshape", _numbers(parts, str(b), n, bits), shape=(n, count, block))
    centred = parts.add("cast", numbers, to=type.dtype.value)
    if zeros is None:
        middle = parts.constant(1 << (bits - 1), type.dtype)
    else:
        packed = types[zeros].dtype is DType.UINT8
        taken = _first(parts, _numbers(parts, zeros, n, bits), count) if packed else zeros
        middle = parts.add("reshape", taken, shape=(n, count, 1))
        middle = parts.add("cast", middle, to=type.dtype.value) if packed else middle
    centred = parts.add("sub", centred, middle)
    steps = parts.add("reshape", str(scales), shape=(n, count, 1))
    weights = parts.add("reshape", parts.add("mul", centred, steps), shape=(n, count * block))
    weights = _first(parts, weights, k)
    rows = type.elements({}) // max(k, 1)
    if rows < _FEW_ROWS:
        terms = parts.add("mul", parts.add("reshape", str(a), shape=(rows, 1, k)), weights)
        product = parts.add("reduce_sum", terms, axes=(2,), keepdims=False)
        product = parts.add("reshape", product, shape=(*type.static[:-1], n))
    else:
        product = parts.add("matmul", str(a), parts.add("transpose", weights, perm=(1, 0)))
    if bias is not None:
        product = parts.add("add", product, bias)
    last = parts.nodes[-1]
    parts.nodes[-1] = Node(last.op, last.inputs, (node.outputs[0],), last.attrs)
    parts.types[node.outputs[0]] = parts.types[product]
    return parts


def _numbers(parts: Unfolded, value: str, rows: int, bits: int) -> str:
    """The numbers in the bytes of each row, those of the lowest bits first."""
    size = parts.types[value].elements({}) // max(rows, 1)
    if bits == 8:
        return parts.add("reshape", value, shape=(rows, size))
    shifts = parts.constant(np.arange(0, 8, bits), DType.UINT8)
    bytes_ = parts.add("reshape", value, shape=(rows, size, 1))
    shifted = parts.add("bit_shift", bytes_, shifts, direction="RIGHT")
    numbers = parts.add("bitwise_and", shifted, parts.constant((1 << bits) - 1, DType.UINT8))
    return parts.add("reshape", numbers, shape=(rows, size * (8 // bits)))


def _first(parts: Unfolded, value: str, count: int) -> str:
    """The first elements of each row of a matrix."""
    if parts.types[value].static[1] == count:
        return value
    return parts.add("slice", value, axes=(1,), starts=(0,), ends=(count,), steps=(1,))


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
