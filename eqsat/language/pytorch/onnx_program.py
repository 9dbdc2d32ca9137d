"""Graphs of torch.onnx.ONNXProgram, whose weights stay where torch holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir

from eqsat.language.onnx.files.reader import Source
from eqsat.language.onnx.read.importer import load_source
from eqsat.language.terms.constant import Array
from eqsat.language.terms.graph import Graph
from eqsat.system.mapped import FilePart

#: Tensors from this size on are not written into the protobuf message.
_SHARED_BYTES = 1 << 12
#: The metadata of nodes that have files and lines of the program, and counters of the process.
_TRACE = "pkg.torch.onnx.stack_trace"


def graph_of(program: Any, name: str) -> Graph:
    """The graph of an ONNXProgram; ImportModelError where it cannot be read.

    Its constants share memory with the tensors of the module: who changes these in place changes the graph.
    """
    model = program.model
    with _without_data(model) as arrays:
        proto = onnx_ir.to_proto(model)
    proto.graph.name = name
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        _without_traces(nodes)
    raw: dict[int, Array | FilePart] = {
        i: arrays[t.name] for i, t in enumerate(proto.graph.initializer) if t.name in arrays
    }
    return load_source(Source(proto, name, raw=raw))


def _without_traces(nodes: Iterable[Any]) -> None:
    """Leave out where in a program each node was traced, or a model would be another one once a line is added above."""
    for node in nodes:
        kept = [each for each in node.metadata_props if each.key != _TRACE]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                _without_traces(graph.node)


class _Stub(onnx_ir.Tensor):  # type: ignore[misc]  # onnx_ir is no dependency of the type checker
    """A tensor of the type and shape of another, written without data."""

    def tobytes(self) -> bytes:
        return b""


@contextmanager
def _without_data(model: Any) -> Iterator[dict[str, Array]]:
    """Large initializers of a model of onnx_ir without data meanwhile; gives their bytes by name, in place."""
    initializers = model.graph.initializers
    before = {n: v.const_value for n, v in initializers.items() if v.const_value.nbytes >= _SHARED_BYTES}
    arrays: dict[str, Array] = {}
    try:
        for name, tensor in before.items():
            array = np.ascontiguousarray(tensor.numpy())
            arrays[name] = array.reshape(-1).view(np.uint8)
            initializers[name].const_value = _Stub(array, dtype=tensor.dtype, shape=tensor.shape, name=name)
        yield arrays
    finally:
        for name, tensor in before.items():
            initializers[name].const_value = tensor
