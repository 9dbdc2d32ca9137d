"""Models without their weights: what is committed as a fixture, and how it gets weights again.

A stripped tensor keeps its name, element type and dims. Its data are declared external, at location "stripped"
with their true length and SHA-1, a file that never exists: `onnx.load(path, load_external_data=False)` and shape
inference work, whatever wants the values fails at once instead of reading zeros, and tensors that were equal can be
made equal again. Only large floating-point tensors are stripped. Integers and booleans stay, because shapes are
computed from them, and so do masks, because their infinities decide what a model means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

LOCATION = "stripped"
KEPT_ELEMENTS = 64
_FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
_RENAMING = {"Transpose", "Reshape", "Identity", "Cast", "Unsqueeze", "Squeeze"}
_RECTIFIERS = {"Relu", "Clip", "LeakyRelu"}


def strip(model: ModelProto) -> ModelProto:
    """A copy of `model` whose floating-point initializers of more than 64 elements have no data, masks apart."""
    result = ModelProto()
    result.CopyFrom(model)
    for graph in _graphs(result.graph):
        for tensor in graph.initializer:
            if tensor.data_type not in _FLOATS or _elements(tensor) <= KEPT_ELEMENTS or is_stripped(tensor):
                continue
            if not _is_mask(tensor):
                _mark(tensor)
    return result


def is_stripped(tensor: TensorProto) -> bool:
    """Whether `strip` took the data of this tensor."""
    return tensor.data_location == TensorProto.EXTERNAL and any(
        entry.key == "location" and entry.value == LOCATION for entry in tensor.external_data
    )


def refill(model: ModelProto, seed: int = 0) -> ModelProto:
    """A copy of `model` with seeded random weights in place of the stripped ones.

    Weights have no structure a simplifier could use and are scaled by the operator that reads them, so that
    activations keep the order of magnitude of the input: filters and matrices by 1/√fan_in (√2 more in
    front of a rectifier), gains near 1, biases and means near 0, variances between 1/2 and 3/2. The values
    of a tensor depend on the seed and the tensors before it; tensors that had equal data get equal data again.
    """
    result = ModelProto()
    result.CopyFrom(model)
    rng = np.random.Generator(np.random.SFC64(seed))
    filled: dict[tuple[object, ...], TensorProto] = {}
    for graph in _graphs(result.graph):
        readers = _readers(graph)
        for tensor in graph.initializer:
            if not is_stripped(tensor):
                continue
            same = filled.setdefault((_checksum(tensor), tensor.data_type, *tensor.dims), tensor)
            values = _weight(tensor, readers, rng) if same is tensor else numpy_helper.to_array(same)
            _fill(tensor, values)
    return result


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _graphs(inner)


def _elements(tensor: TensorProto) -> int:
    return int(np.prod(tensor.dims, dtype=np.int64))


def _is_mask(tensor: TensorProto) -> bool:
    values = numpy_helper.to_array(tensor).astype(np.float64)
    return not bool((np.abs(values) < float(np.finfo(np.float16).max)).all())


def _mark(tensor: TensorProto) -> None:
    data = numpy_helper.to_array(tensor).tobytes()
    for field in ("raw_data", "float_data", "double_data", "int32_data"):
        tensor.ClearField(field)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=LOCATION)
    tensor.external_data.add(key="length", value=str(len(data)))
    tensor.external_data.add(key="checksum", value=hashlib.sha1(data).hexdigest())


def _checksum(tensor: TensorProto) -> str:
    return next(str(entry.value) for entry in tensor.external_data if entry.key == "checksum")


def _fill(tensor: TensorProto, values: NDArray[Any]) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    tensor.CopyFrom(numpy_helper.from_array(values.astype(dtype, copy=False), tensor.name))


def _readers(graph: GraphProto) -> dict[str, list[tuple[NodeProto, int]]]:
    """For each value, the nodes that read it and at which input."""
    readers: dict[str, list[tuple[NodeProto, int]]] = {}
    for node in graph.node:
        for i, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, i))
    return readers


def _weight(
    tensor: TensorProto, readers: dict[str, list[tuple[NodeProto, int]]], rng: np.random.Generator
) -> NDArray[np.float32]:
    dims = tuple(tensor.dims)
    centred = (rng.random(dims, dtype=np.float32) - np.float32(0.5)) * np.float32(np.sqrt(12))
    node, position, transposed = _reader(tensor.name, readers)
    if node is None:
        return centred
    match node.op_type, position:
        case ("Conv", 1):
            return centred * _scale(np.prod(dims[1:]), node, readers)
        case ("ConvTranspose", 1):
            return centred * _scale(dims[0] * np.prod(dims[2:]), node, readers)
        case ("MatMul" | "Gemm", 0 | 1) if len(dims) >= 2:
            flip = any(a.name == ("transA", "transB")[position] and a.i for a in node.attribute)
            rows = (position == 1) ^ flip ^ transposed
            return centred * _scale(dims[-2] if rows else dims[-1], node, readers)
        case ("BatchNormalization", 4):
            return np.float32(1) + centred * np.float32(0.5 / np.sqrt(3))
        case ("BatchNormalization" | "LayerNormalization" | "InstanceNormalization", 1) | ("Mul", _):
            return np.float32(1) + centred * np.float32(0.1)
        case ("Gather", 0) | ("Concat", _):
            return centred
    return centred * np.float32(0.1)


def _reader(name: str, readers: dict[str, list[tuple[NodeProto, int]]]) -> tuple[NodeProto | None, int, bool]:
    """The first node that computes with a tensor, the input it is, and whether its last two dims were
    swapped."""
    transposed = False
    while name in readers:
        node, position = readers[name][0]
        if node.op_type not in _RENAMING:
            return node, position, transposed
        if node.op_type == "Transpose":
            perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), [1, 0])
            transposed ^= len(perm) >= 2 and perm[-1] < perm[-2]
        name = node.output[0]
    return None, 0, transposed


def _scale(fan_in: int, node: NodeProto, readers: dict[str, list[tuple[NodeProto, int]]]) -> np.float32:
    after, _, _ = _reader(node.output[0], readers)
    if after is not None and after.op_type == "BatchNormalization":
        after, _, _ = _reader(after.output[0], readers)
    rectified = after is not None and after.op_type in _RECTIFIERS
    return np.float32(np.sqrt((2.0 if rectified else 1.0) / float(fan_in)))
