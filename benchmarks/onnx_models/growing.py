"""A model that grows node by node; every node is run in ONNX Runtime as it is added, and refused with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    defs,
    helper,
    numpy_helper,
)
from onnx import shape_inference as inference

from benchmarks.onnx_models.numbers import Array, Numbers
from benchmarks.onnx_models.sessions import arrays, run

#: Sizes of the named dims while a model grows.
BASE = {"n": 3, "m": 2}
#: Elements that a value may have.
_MOST = 4096

Dims = tuple[int | str | None, ...]


class RefusedError(Exception):
    """A node that ONNX Runtime does not run, or whose results are too large."""


@dataclass(frozen=True)
class Value:
    """A tensor of the model: its value at the base sizes, its dims, and whether it is a constant."""

    name: str
    array: Array
    dims: Dims
    constant: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def rank(self) -> int:
        return int(self.array.ndim)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def kind(self) -> str:
        """One letter: b, i, u, f or O for strings."""
        return "O" if self.dtype.kind in "OU" else self.dtype.kind

    def free(self, axis: int) -> bool:
        """True where the size of a dim is not known before the model runs."""
        return not isinstance(self.dims[axis], int)


class Growing:
    """Nodes, constants and inputs drawn so far, and what is needed to draw more."""

    def __init__(self, rng: np.random.Generator, numbers: Numbers, opset: int, ir_version: int) -> None:
        self.rng, self.numbers, self.opset, self.ir_version = rng, numbers, opset, ir_version
        self.values: list[Value] = []
        self.inputs: list[Value] = []
        self.nodes: list[NodeProto] = []
        self.initializers: dict[str, Array] = {}
        self.sparse: list[SparseTensorProto] = []
        self.constants: dict[str, NodeProto] = {}
        self.functions: list[FunctionProto] = []
        self.last: Value | None = None
        self._count = 0

    # -- drawing

    def flip(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def among(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def fresh(self, base: str = "v") -> str:
        self._count += 1
        return f"{base}{self._count}"

    def has(self, op_type: str, domain: str = "") -> bool:
        return bool(defs.has(op_type, self.opset, domain))

    # -- operands

    def input(self, dtype: Any, dims: Sequence[int | str]) -> Value:
        """A new input of the model."""
        shape = [d if isinstance(d, int) else BASE[d] for d in dims]
        value = Value(self.fresh("x"), self.numbers.array(dtype, shape), tuple(dims))
        self.inputs.append(value)
        self.values.append(value)
        return value

    def constant(self, array: Any, *, plain: bool = False) -> Value:
        """A constant: an initializer, a Constant node, or now and then a sparse one; `plain` for an initializer."""
        array = np.asarray(array)
        value = Value(self.fresh("c"), array, tuple(array.shape), constant=True)
        draw = 1.0 if plain or array.dtype.kind == "O" else self.rng.random()
        if draw < 0.25:
            self.constants[value.name] = self._constant_node(value)
        elif draw < 0.27 and self.opset >= 11 and array.dtype == np.float32 and array.ndim and array.size:
            self.sparse.append(_sparse(value))
        else:
            self.initializers[value.name] = array
        return value

    def integers(self, values: Iterable[int]) -> Value:
        return self.constant(np.array(list(values), np.int64))

    def pick(self, kinds: str = "f", rank: int | None = None, least: int = 0, *, chained: float = 0.6) -> Value:
        """A value of the model, mostly the newest; a new input where there is none of the kind."""
        fitting = [v for v in self.values if v.kind in kinds and v.rank >= least and rank in (None, v.rank)]
        if self.last in fitting and self.flip(chained):
            return self.last  # type: ignore[return-value]
        if fitting and self.flip(0.9):
            return fitting[-1 - min(int(self.rng.geometric(0.4)) - 1, len(fitting) - 1)]
        return self.input(self.dtype(kinds), self.dims(rank if rank is not None else max(least, self.integer(0, 4))))

    def dtype(self, kinds: str) -> Any:
        by_kind = {
            "f": [np.float32] * 8 + [np.float64, np.float16],
            "i": [np.int64] * 3 + [np.int32] * 3 + [np.int8, np.int16],
            "u": [np.uint8, np.uint8, np.uint16, np.uint32, np.uint64],
            "b": [np.bool_],
            "O": [np.object_],
        }
        return self.among(by_kind[self.among(kinds)])

    def dims(self, rank: int) -> list[int | str]:
        options: list[int | str] = [1, 2, 3, 4, 4, 5, 6, "n", "n", "m"]
        if self.flip(0.03):
            options = [0, 2, "n"]
        return [self.among(options) for _ in range(rank)]

    def like(self, value: Value, kinds: str | None = None) -> Value:
        """An operand that is broadcast with a value: another value, or a constant of fewer or equal dims."""
        same = [v for v in self.values if v.dtype == value.dtype and v is not value and _broadcast(v, value)]
        if same and self.flip(0.45):
            return same[-1 - min(int(self.rng.geometric(0.4)) - 1, len(same) - 1)]
        return self.constant(self.numbers.array(value.dtype, self.smaller(value)))

    def smaller(self, value: Value) -> tuple[int, ...]:
        """A static shape that is broadcast to that of a value."""
        keep = self.integer(0, value.rank) if self.flip(0.7) else value.rank
        shape = value.shape[value.rank - keep :]
        axes = range(value.rank - keep, value.rank)
        ones = self.flip(0.4)
        return tuple(1 if value.free(a) or (ones and self.flip(0.5)) else n for a, n in zip(axes, shape, strict=True))

    # -- nodes

    def add(self, op_type: str, inputs: Sequence[Value | None], outputs: int = 1, **attrs: Any) -> list[Value]:
        """Adds one node; RefusedError where ONNX Runtime refuses it."""
        domain = attrs.pop("domain", "")
        if "Conv" in op_type and any(v is not None and 0 in v.shape for v in inputs[:2]):
            raise RefusedError("no channel: ONNX Runtime leaves what was in memory")
        if op_type in ("LSTM", "GRU", "RNN") and any(
            0 in v.shape or any(map(v.free, range(v.rank))) for v in inputs if v
        ):
            raise RefusedError("no element: ONNX Runtime leaves what was in memory, or ends the process")
        made = [self.fresh() for _ in range(outputs)]
        names = ["" if v is None else v.name for v in inputs]
        while names and not names[-1]:
            names.pop()
        given = {k: v for k, v in attrs.items() if v is not None}
        node = helper.make_node(op_type, names, made, domain=domain, **given)
        return self.fragment([node], [v for v in inputs if v is not None], made)

    def fragment(self, nodes: Sequence[NodeProto], operands: Sequence[Value], made: Sequence[str]) -> list[Value]:
        """Adds nodes together, whose results are tensors by the names `made`; the empty name is left out."""
        wanted = [name for name in made if name]
        feeds = {v.name: v.array for v in operands if not v.constant}
        model = self._small(nodes, operands, wanted)
        try:
            found = arrays(run(model, feeds))
        except Exception as error:
            raise RefusedError(str(error)[:200]) from error
        if found is None or any(a.size > _MOST or a.ndim > 7 for a in found):
            raise RefusedError("no tensor, or a large one")
        known = self._dims(model, wanted)
        self.nodes.extend(nodes)
        values = [Value(n, a, _agreed(known.get(n), a)) for n, a in zip(wanted, found, strict=True)]
        self.values.extend(values)
        self.last = values[0]
        return values

    def _small(self, nodes: Sequence[NodeProto], operands: Sequence[Value], wanted: Sequence[str]) -> ModelProto:
        """A model of some nodes alone, its operands as inputs."""
        operands = list({v.name: v for v in operands}.values())
        inputs = [
            helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(_plain(v.dtype)), v.dims)
            for v in operands
            if not v.constant
        ]
        tensors = [numpy_helper.from_array(v.array, v.name) for v in operands if v.constant]
        outputs = [helper.make_empty_tensor_value_info(name) for name in wanted]
        return self.wrapped(helper.make_graph(list(nodes), "part", inputs, outputs, tensors))

    def wrapped(self, graph: GraphProto) -> ModelProto:
        """A model of a graph, with the functions drawn so far."""
        domains = {"": self.opset, "com.microsoft": 1, "ai.onnx.ml": 1} | ({"local": 1} if self.functions else {})
        imports = [helper.make_opsetid(name, version) for name, version in domains.items()]
        ir_version = max(self.ir_version, 8 if self.functions else 3)
        return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=self.functions)

    def _dims(self, model: ModelProto, wanted: Sequence[str]) -> dict[str, Dims]:
        try:
            graph = inference.infer_shapes(model, data_prop=True).graph
        except Exception:  # noqa: BLE001 - what cannot be inferred is not known
            return {}
        found: dict[str, Dims] = {}
        for value in (*graph.output, *graph.value_info):
            shape = value.type.tensor_type
            if value.name in wanted and shape.HasField("shape"):
                found[value.name] = tuple(
                    d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in shape.shape.dim
                )
        return found

    def _constant_node(self, value: Value) -> NodeProto:
        array = value.array
        if self.opset >= 12 and array.ndim <= 1 and self.flip(0.3):
            if array.dtype == np.int64:
                key = "value_ints" if array.ndim else "value_int"
                return helper.make_node("Constant", [], [value.name], **{key: array.tolist()})
            if array.dtype == np.float32 and array.size:
                key = "value_floats" if array.ndim else "value_float"
                return helper.make_node("Constant", [], [value.name], **{key: array.tolist()})
        if self.opset >= 9 and array.ndim and array.size and (array == array.ravel()[0]).all() and self.flip(0.5):
            self.initializers[f"{value.name}s"] = np.array(array.shape, np.int64)
            one = numpy_helper.from_array(array.ravel()[:1])
            return helper.make_node("ConstantOfShape", [f"{value.name}s"], [value.name], value=one)
        return helper.make_node("Constant", [], [value.name], value=numpy_helper.from_array(array, value.name))


def tensor_type(array: Array) -> int:
    """The element type of an array, as ONNX numbers it."""
    return int(helper.np_dtype_to_tensor_dtype(_plain(array.dtype)))


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.object_) if dtype.kind in "OU" else dtype


def _agreed(dims: Dims | None, array: Array) -> Dims:
    """Inferred dims where they are those that the value has at the base sizes."""
    if dims is None or len(dims) != array.ndim:
        return (None,) * array.ndim
    sizes = [d if isinstance(d, int) else BASE.get(d) if d is not None else None for d in dims]
    return tuple(d if s == n else None for d, s, n in zip(dims, sizes, array.shape, strict=True))


def _broadcast(one: Value, other: Value) -> bool:
    try:
        shape = np.broadcast_shapes(one.shape, other.shape)
    except ValueError:
        return False
    if int(np.prod(shape)) > _MOST:
        return False
    pairs = zip(reversed(one.dims), reversed(other.dims), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def _sparse(value: Value) -> SparseTensorProto:
    flat = value.array.ravel()
    at = np.flatnonzero(flat)
    values = helper.make_tensor(value.name, TensorProto.FLOAT, [len(at)], flat[at])
    return helper.make_sparse_tensor(values, numpy_helper.from_array(at.astype(np.int64)), list(value.shape))
