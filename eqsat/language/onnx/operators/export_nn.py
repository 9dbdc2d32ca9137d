"""Export of layers; those an opset lacks are written by their parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.onnx.files.tensors import number_of
from eqsat.language.onnx.operators.export_attention import write_attention
from eqsat.language.onnx.operators.export_reshape import make_reshape
from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.ops import OPS
from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import Attrs, DType, Graph, Node, TensorType, product


def window_attrs(target: ExportTarget, kernel: tuple[Any, ...]) -> dict[str, Any]:
    """Strides, pads and dilations where they are not the default, and the kernel's size."""
    attrs = target.attrs
    values: dict[str, Any] = {}
    if kernel and all(isinstance(k, int) for k in kernel):
        values["kernel_shape"] = kernel
    for name, default in (("strides", 1), ("dilations", 1), ("pads", 0)):
        if any(v != default for v in attrs[name]):
            values[name] = attrs[name]
    return values


def _conv(target: ExportTarget) -> None:
    values = window_attrs(target, (target.type(1).shape or ())[2:])
    if target.attrs["group"] != 1:
        values["group"] = target.attrs["group"]
    if target.attrs["activation"] == "relu":
        return target.emit("Relu", target.make("Conv", *target.inputs, **values))
    return target.emit("Conv", *target.inputs, **values)


def _conv_transpose(target: ExportTarget) -> None:
    values = window_attrs(target, (target.type(1).shape or ())[2:])
    if target.attrs["group"] != 1:
        values["group"] = target.attrs["group"]
    if any(target.attrs["output_padding"]):
        values["output_padding"] = target.attrs["output_padding"]
    target.emit("ConvTranspose", *target.inputs, **values)


def _pool(op_type: str) -> Exporter:
    dilated = {"MaxPool": 10, "LpPool": 18}.get(op_type, 19)

    def write(target: ExportTarget) -> None:
        values = window_attrs(target, target.attrs["kernel"])
        if "dilations" in values:
            target.needs(dilated, "dilations")
        if target.attrs["ceil_mode"] and not _by_padding(target, values):
            target.needs(18 if op_type == "LpPool" else 10, "ceil_mode")
            values["ceil_mode"] = 1
        if op_type == "LpPool":
            values["p"] = target.attrs["p"]
        if target.attrs.get("count_include_pad"):
            values["count_include_pad"] = 1
        target.emit(op_type, target.input(0), **values)

    return write


def _by_padding(target: ExportTarget, values: dict[str, Any]) -> bool:
    """True if padding alone says how far windows reach, which `pads` then does, where `ceil_mode` would be misread.

    A window that would begin past the operand does not count, neither here nor in ONNX Runtime, while ONNX's shape
    inference counts it: whatever reads the result by its inferred shape, as Split does, would be refused.
    """
    if target.type(0).shape is None or target.result(0).shape is None:
        return False
    attrs, sizes, made = target.attrs, target.type(0).dims[2:], target.result(0).dims[2:]
    strides, dilations, pads = conv_geometry(attrs, len(sizes))
    begins, ends = pads[: len(sizes)], pads[len(sizes) :]
    misread, further = False, []
    for i, (size, count) in enumerate(zip(sizes, made, strict=True)):
        if not isinstance(size, int) or not isinstance(count, int):
            return False
        room = size + begins[i] - dilations[i] * (attrs["kernel"][i] - 1) - 1
        misread |= -(-(room + ends[i]) // strides[i]) + 1 != count
        further.append(max(ends[i], (count - 1) * strides[i] - room))
        if further[i] >= attrs["kernel"][i] or (room + further[i]) // strides[i] + 1 != count:
            return False
    if not misread or (attrs.get("count_include_pad") and further != [*ends]):
        return False
    values["pads"] = (*begins, *further)
    return True


#: Marks a distribution over all axes from one on, as opsets before 13 mean it.
_FLAT = "flat"
_FLATTENED = ("Softmax", "LogSoftmax", "Hardmax")


def with_flat_distributions(graph: Graph, opset: int) -> Graph:
    """The graph with a softmax between two reshapes, to a matrix and back, as one node where an opset means that by it.

    Such an opset has no reshape to named dims one of which may be 0.
    """
    if opset >= 13:
        return graph
    made = {o: n for n in graph.nodes for o in n.outputs}
    reads = Counter(v for n in graph.nodes for v in n.inputs) + Counter(graph.outputs.values())
    flat = {id(n): found for n in graph.nodes if (found := _flat(graph, n, made, reads)) is not None}
    if not flat:
        return graph
    return replace(graph, nodes=tuple(flat.get(id(n), n) for n in graph.nodes)).without_dead()


def _flat(graph: Graph, back: Node, made: Mapping[str, Node], reads: Mapping[str | None, int]) -> Node | None:
    """The one node that a reshape back from a matrix of distributions stands for, or None."""
    inner = made.get(back.inputs[0] or "") if back.op == "reshape" else None
    there = (
        made.get(inner.inputs[0] or "")
        if inner is not None and inner.op in OPS and OPS[inner.op].onnx in _FLATTENED
        else None
    )
    if inner is None or there is None or there.op != "reshape" or reads[inner.outputs[0]] > 1:
        return None
    types = [graph.type(v or "") for v in (there.inputs[0], there.outputs[0], back.outputs[0])]
    shapes = [t.shape for t in types if isinstance(t, TensorType) and t.shape is not None]
    if len(shapes) < 3 or shapes[0] != shapes[2] or len(shapes[1]) != 2 or inner.attrs["axis"] not in (1, -1):
        return None
    for axis in range(len(shapes[0])):
        if shapes[1] == (product(shapes[0][:axis]), product(shapes[0][axis:])):
            attrs = Attrs(dict(inner.attrs) | {"axis": axis, _FLAT: True})
            return replace(inner, inputs=there.inputs, outputs=back.outputs, attrs=attrs)
    return None


def _softmax(op_type: str) -> Exporter:
    def write(target: ExportTarget) -> None:
        axis, shape = target.attrs["axis"], target.type(0).dims
        axis += len(shape) if axis < 0 else 0
        if target.opset >= 13 or _FLAT in target.attrs or all(d == 1 for d in shape[axis + 1 :]):
            return target.emit(op_type, target.input(0), axis=axis)
        # Before opset 13 everything from the axis on is one distribution: bring the axis to the end.
        perm = [*(i for i in range(len(shape)) if i != axis), axis]
        moved = target.make("Transpose", target.input(0), perm=perm)
        made = target.make(op_type, moved, axis=len(shape) - 1)
        return target.emit("Transpose", made, perm=[int(i) for i in np.argsort(perm)])

    return write


def _global_pool(op_type: str, reduction: str) -> Exporter:
    """A pool over all of space, which ONNX Runtime refuses where another dim than the first is 0: a reduction there."""

    def write(target: ExportTarget) -> None:
        dims = target.type(0).shape
        if dims is None or all(at_least(d, 1) for d in dims[1:]):
            return target.emit(op_type, target.input(0))
        axes = list(range(2, len(dims)))
        if target.opset >= 18:
            return target.emit(reduction, target.input(0), target.ints(axes), keepdims=1)
        return target.emit(reduction, target.input(0), axes=axes, keepdims=1)

    return write


def _by_epsilon(op_type: str) -> Exporter:
    def write(target: ExportTarget) -> None:
        target.emit(op_type, *target.inputs, epsilon=target.attrs["epsilon"])

    return write


def make_mean(target: ExportTarget, x: str, axes: list[int]) -> str:
    """The mean over axes, which stay as ones."""
    if target.opset >= 18:
        return target.make("ReduceMean", x, target.ints(axes), keepdims=1)
    return target.make("ReduceMean", x, axes=axes, keepdims=1)


def _normalised(target: ExportTarget, op_type: str, *, centred: bool) -> None:
    rank = target.type(0).rank
    axis = target.attrs["axis"]
    axis += rank if axis < 0 else 0
    if target.knows(op_type) and target.keeps(target.attrs["epsilon"]):
        return target.emit(op_type, *target.inputs, axis=axis, epsilon=target.attrs["epsilon"])
    axes, dtype = list(range(axis, rank)), target.type(0).dtype
    x = target.input(0)
    if centred:
        x = target.make("Sub", x, make_mean(target, x, axes))
    spread = make_mean(target, target.make("Mul", x, x), axes)
    root = target.make("Sqrt", target.make("Add", spread, target.number(target.attrs["epsilon"], dtype)))
    x = target.make("Div", x, root)
    if not target.input(2):
        return target.emit("Mul", x, target.input(1))
    return target.emit("Add", target.make("Mul", x, target.input(1)), target.input(2))


def _layer_norm(target: ExportTarget) -> None:
    _normalised(target, "LayerNormalization", centred=True)


def _rms_norm(target: ExportTarget) -> None:
    _normalised(target, "RMSNormalization", centred=False)


def _group_norm(target: ExportTarget) -> None:
    groups, epsilon = target.attrs["groups"], target.attrs["epsilon"]
    x, dtype = target.type(0), target.type(0).dtype
    if target.opset >= 21:
        # By default means are float32, whatever the operand is.
        stash = {"stash_type": number_of(dtype)} if dtype is DType.FLOAT64 else {}
        return target.emit("GroupNormalization", *target.inputs, num_groups=groups, epsilon=epsilon, **stash)
    grouped = (x.dims[0], groups, -1)
    flat = target.make("Reshape", target.input(0), target.ints([0, groups, -1]))
    ones, zeros = (target.model.parameter(np.full(groups, v), dtype) for v in (1.0, 0.0))
    made = target.make("InstanceNormalization", flat, ones, zeros, epsilon=epsilon)
    whole = make_reshape(target, made, grouped, x.dims)
    trailing = [-1, *(1 for _ in x.dims[2:])]
    scale, bias = (target.make("Reshape", target.input(i), target.ints(trailing)) for i in (1, 2))
    return target.emit("Add", target.make("Mul", whole, scale), bias)


def _lrn(target: ExportTarget) -> None:
    attrs = {k: target.attrs[k] for k in ("size", "alpha", "beta", "bias")}
    target.emit("LRN", target.input(0), **attrs)


def _lp_norm(target: ExportTarget) -> None:
    target.emit("LpNormalization", target.input(0), axis=target.attrs["axis"], p=target.attrs["p"])


def _mvn(target: ExportTarget) -> None:
    target.emit("MeanVarianceNormalization", target.input(0), axes=target.attrs["axes"])


EXPORTS: Mapping[str, Exporter] = MappingProxyType(
    {
        "Attention": write_attention,
        "AveragePool": _pool("AveragePool"),
        "BatchNormalization": _by_epsilon("BatchNormalization"),
        "Conv": _conv,
        "ConvTranspose": _conv_transpose,
        "GlobalAveragePool": _global_pool("GlobalAveragePool", "ReduceMean"),
        "GlobalMaxPool": _global_pool("GlobalMaxPool", "ReduceMax"),
        "GroupNormalization": _group_norm,
        "Hardmax": _softmax("Hardmax"),
        "InstanceNormalization": _by_epsilon("InstanceNormalization"),
        "LayerNormalization": _layer_norm,
        "LogSoftmax": _softmax("LogSoftmax"),
        "LpNormalization": _lp_norm,
        "LpPool": _pool("LpPool"),
        "LRN": _lrn,
        "MaxPool": _pool("MaxPool"),
        "MeanVarianceNormalization": _mvn,
        "RMSNormalization": _rms_norm,
        "Softmax": _softmax("Softmax"),
    }
)
