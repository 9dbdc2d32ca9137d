"""Graphs of copies of one operator, with data to run them on, for measuring it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.costs.key import OpKey
from eqsat.errors import CostError, EqsatError
from eqsat.language.constant import Constant
from eqsat.language.graph import Attrs, Graph, Node
from eqsat.language.spec import OPS, spec
from eqsat.language.types import DType, TensorType

Array = np.ndarray[Any, np.dtype[Any]]

#: Operators that read one operand as indices into an axis of another: (indices, indexed).
_INDEXED: Mapping[str, tuple[int, int]] = {
    "gather": (1, 0),
    "gather_elements": (1, 0),
    "gather_nd": (1, 0),
    "scatter_elements": (1, 0),
    "scatter_nd": (1, 0),
}


@dataclass(frozen=True)
class Specimen:
    """A graph of independent copies of an operator, the inputs it runs on, and the types of its outputs.

    `tail` is True where each copy ends in a pooling, which is no part of the operator.
    """

    graph: Graph
    inputs: Mapping[str, Array]
    outputs: Mapping[str, TensorType]
    tail: bool


class Data:
    """Random nonzero data: overlapping windows of one pool an element type, so that no two are equal and few are made.

    Floats lie between 0.9 and 1, where nearly every function is finite and no long product becomes a denormal number.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._pools: dict[DType, Array] = {}
        self._drawn = 0

    def tensor(self, type: TensorType) -> Array:
        """The next tensor of a type."""
        count = int(np.prod(type.static, dtype=np.int64))
        self._drawn += 1
        begin = self._drawn * 16
        pool = self._pools.get(type.dtype)
        if pool is None or len(pool) < begin + count:
            pool = self._pools[type.dtype] = self._pool(type.dtype, begin + count + 4096)
        return pool[begin : begin + count].reshape(type.static)

    def indices(self, type: TensorType, bound: int) -> Array:
        """Indices from 0 to below a bound."""
        return self._rng.integers(0, max(bound, 1), type.static).astype(type.dtype.numpy)

    def _pool(self, dtype: DType, count: int) -> Array:
        if dtype is DType.BOOL:
            return self._rng.random(count) < 0.5
        if dtype.is_integer:
            return self._rng.integers(1, 4, count).astype(dtype.numpy)
        if not dtype.is_float:
            raise CostError(f"no data of {dtype.value} to measure with", expected="numbers or booleans")
        return (self._rng.random(count, np.float32) * np.float32(0.1) + np.float32(0.9)).astype(dtype.numpy)


def specimen(key: OpKey, copies: int, seed: int = 0) -> Specimen:
    """`copies` independent applications of an operator, each to data and constants of its own; all results are outputs.

    Equal applications would be merged by the backend, results that nobody reads removed. A convolution by constant
    filters reads one input in all copies and ends in a pooling that keeps one element a channel: between convolutions
    ONNX Runtime keeps a blocked layout, and so the conversions into it and out of it are no part of the measured time.
    """
    data = Data(seed)
    results = result_types(key)
    tail = key.op == "conv" and len(key.const_operands) > 1 and key.const_operands[1]
    draft = _Draft(key, results, data)
    for copy in range(copies):
        draft.add(copy, tail)
    graph = Graph(
        f"{copies} x {key.op}",
        tuple(draft.inputs),
        {v: v for v in draft.outputs},
        tuple(draft.nodes),
        draft.constants,
        draft.types,
    )
    return Specimen(graph, draft.inputs, {v: draft.types[v] for v in draft.outputs}, tail)


def result_types(key: OpKey) -> tuple[TensorType, ...]:
    """The static types an operator makes; CostError where they are not known from its key."""
    declared = OPS.get(key.op)
    if declared is None or not key.is_measurable:
        raise CostError(f"{key.op} cannot be measured alone", where=key.text, expected="an operator on known shapes")
    try:
        results = declared.result_types(key.operands, key.attrs)
    except EqsatError as error:
        raise CostError(f"no such application: {error.what}", where=key.text, expected=error.expected) from error
    if not all(r.is_static for r in results):
        raise CostError(f"the shape {key.op} makes depends on its data", where=key.text, expected="known shapes")
    return results


class _Draft:
    """A graph being built copy by copy."""

    def __init__(self, key: OpKey, results: tuple[TensorType, ...], data: Data) -> None:
        self.key, self.results, self.data = key, results, data
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Constant] = {}
        self.types: dict[str, TensorType] = {}
        self.nodes: list[Node] = []
        self.outputs: list[str] = []

    def add(self, copy: int, tail: bool) -> None:
        """One more application."""
        operands = tuple(self._operand(copy, i, tail) for i in range(len(self.key.operands)))
        made = tuple(f"y{copy}_{i}" for i in range(len(self.results)))
        self.types.update(zip(made, self.results, strict=True))
        self.nodes.append(Node(self.key.op, operands, made, self.key.attrs))
        self.outputs += [self._pooled(made[0])] if tail else made

    def _operand(self, copy: int, index: int, tail: bool) -> str | None:
        type = self.key.operands[index]
        if type is None:
            return None
        const = self.key.const_operands[index]
        # What is only indexed need not differ between copies: the indices do.
        shared = (tail and not const) or (const and OPS[self.key.op].movement)
        name = f"{'w' if const else 'x'}{index}" + ("" if shared else f"_{copy}")
        if name not in self.types:
            self.types[name] = type
            array = self._array(index, type)
            if const:
                self.constants[name] = Constant.of(array, type.dtype)
            else:
                self.inputs[name] = array
        return name

    def _array(self, index: int, type: TensorType) -> Array:
        key = self.key
        if key.op in _INDEXED and index == _INDEXED[key.op][0]:
            indexed = key.operands[_INDEXED[key.op][1]]
            dims = indexed.static if indexed is not None else ()
            axis = key.attrs.get("axis")
            return self.data.indices(type, dims[axis] if axis is not None and dims else min(dims, default=1))
        if key.op == "pow" and index == 1 and key.const_operands[1] and type.size == 1:
            # Squares are what models raise to a constant power, and what ONNX Runtime has a case for.
            return np.full(type.static, 2, type.dtype.numpy)
        return self.data.tensor(type)

    def _pooled(self, value: str) -> str:
        """One element of each channel, by a pooling whose stride is the whole plane."""
        (made,) = self.results
        spatial = made.static[2:]
        attrs = {"kernel": (1,) * len(spatial), "strides": spatial}
        pool = spec("max_pool")
        full = pool.complete({k: v for k, v in attrs.items() if k in pool.attrs})
        name = f"{value}_p"
        self.types[name] = pool.result_types((made,), full)[0]
        self.nodes.append(Node("max_pool", (value,), (name,), Attrs(full)))
        return name
