"""Local functions: bodies put in the place of their calls where onnx can do so."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from onnx import FunctionProto, ModelProto, NodeProto, checker, inliner, shape_inference

from eqsat.errors import ImportModelError
from eqsat.language.onnx.files.protos import subgraphs
from eqsat.language.onnx.files.reader import check_count

#: Bytes that a model may take with its functions inlined, or this many times its own, whichever is more.
_INLINED_BYTES, _GROWTH = 1 << 28, 16

#: The domain and name of a function; nodes, and bytes of their messages.
_Name = tuple[str, str]
_Size = tuple[int, int]


def inlined(model: ModelProto, where: str) -> ModelProto:
    """The model with its local functions inlined; calls that onnx leaves stay, and become opaque nodes.

    ImportModelError where a few functions that call one another would become too many nodes.
    """
    if not model.functions:
        return model
    sizes = _sizes(model.functions)
    if sizes is None:  # recursive
        return model
    nodes, size = _total(model.graph.node, sizes)
    check_count(nodes, where)
    if size > max(_INLINED_BYTES, _GROWTH * model.ByteSize()):
        raise ImportModelError(
            f"the functions of the model take {size} bytes, counted at every call",
            where=where,
            expected=f"at most {max(_INLINED_BYTES, _GROWTH * model.ByteSize())} bytes",
            remedy="keep large tensors out of functions",
        )
    try:
        result: ModelProto = inliner.inline_local_functions(model)
    except (ValueError, RuntimeError, TypeError, checker.ValidationError, shape_inference.InferenceError):
        # onnx refuses ill-formed functions; as opaque calls they are still carried along.
        return model
    # Data kept out of protobuf are found by the index of their initializer.
    same = [t.name for t in result.graph.initializer] == [t.name for t in model.graph.initializer]
    return result if same else model


def _sizes(functions: Iterable[FunctionProto]) -> dict[_Name, _Size] | None:
    """The size of each function's body once all calls are inlined; None where functions call themselves."""
    bodies = {(f.domain, f.name): f.node for f in functions}
    callees = {name: [c for c in _calls(body) if c in bodies] for name, body in bodies.items()}
    known: dict[_Name, _Size] = {}
    try:
        for name in TopologicalSorter(callees).static_order():
            known[name] = _total(bodies[name], known)
    except CycleError:
        return None
    return known


def _calls(nodes: Iterable[NodeProto]) -> Iterable[_Name]:
    for node in nodes:
        yield node.domain, node.op_type
        for graph in subgraphs(node):
            yield from _calls(graph.node)


def _total(nodes: Iterable[NodeProto], sizes: dict[_Name, _Size]) -> _Size:
    """Nodes and bytes once every call of these nodes is inlined."""
    count = size = 0
    for node in nodes:
        inner = [_total(graph.node, sizes) for graph in subgraphs(node)]
        own = sizes.get((node.domain, node.op_type), (1, node.ByteSize()))
        count += own[0] + sum(n for n, _ in inner)
        size += own[1] + sum(s for _, s in inner)
    return count, size
