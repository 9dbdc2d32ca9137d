"""Export of layers; those an opset lacks are written by their parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
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


def write_conv(target: ExportTarget, filters: int = 1) -> None:
    """Write a convolution whose filters are the operand at an index."""
    attrs = target.attrs
    values = window_attrs(target, (target.type(filters).shape or ())[2:])
    if attrs["group"] != 1:
        values["group"] = attrs["group"]
    if any(attrs.get("output_padding", ())):
        values["output_padding"] = attrs["output_padding"]
    if attrs.get("activation") == "relu":
        return target.emit("Relu", target.make("Conv", *target.inputs, **values))
    return target.emit(target.onnx, *target.inputs, **values)


#: The opsets from which on pools have dilations, and a number of windows that is rounded up.
_DILATED, _CEILED = {"MaxPool": 10, "LpPool": 18, "AveragePool": 19}, {"MaxPool": 10, "LpPool": 18, "AveragePool": 10}


def _pool(target: ExportTarget) -> None:
    op_type, attrs = target.onnx, target.attrs
    values = window_attrs(target, attrs["kernel"])
    if "dilations" in values:
        target.needs(_DILATED[op_type], "dilations")
    if attrs["ceil_mode"] and not _by_padding(target, values):
        target.needs(_CEILED[op_type], "ceil_mode")
        values["ceil_mode"] = 1
    if op_type == "LpPool":
        values["p"] = attrs["p"]
    if attrs.get("count_include_pad"):
        values["count_include_pad"] = 1
    target.emit(op_type, target.input(0), **values)


def _by_padding(target: ExportTarget, values: dict[str, Any]) -> bool:
    """True if padding alone says how far windows reach, which `pads` then does, where `ceil_mode` would be misread.

    A window that would begin past the operand does not count, neither here nor in ONNX Runtime, while ONNX's shape
    inference counts it: whatever reads the result by its inferred shape, as Split does, would be refused.
    """
    if target.type(0).shape is None or target.result(0).shape is None:
        return False
    attrs, sizes, counts = target.attrs, target.type(0).dims[2:], target.result(0).dims[2:]
    strides, dilations, pads = conv_geometry(attrs, len(sizes))
    begins, ends = pads[: len(sizes)], pads[len(sizes) :]
    misread, further = False, []
    for i, (size, count) in enumerate(zip(sizes, counts, strict=True)):
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
    makers = {o: n for n in graph.nodes for o in n.outputs}
    reads = Counter(v for n in graph.nodes for v in n.inputs) + Counter(graph.outputs.values())
    flat = {id(n): joined for n in graph.nodes if (joined := _flat(graph, n, makers, reads)) is not None}
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


def _softmax(target: ExportTarget) -> None:
    axis, shape = target.attrs["axis"], target.type(0).dims
    axis += len(shape) if axis < 0 else 0
    if target.opset >= 13 or _FLAT in target.attrs or all(d == 1 for d in shape[axis + 1 :]):
        return target.emit(target.onnx, target.input(0), axis=axis)
    # Before opset 13 everything from the axis on is one distribution: bring the axis to the end.
    perm = [*(i for i in range(len(shape)) if i != axis), axis]
    moved = target.make("Transpose", target.input(0), perm=perm)
    shares = target.make(target.onnx, moved, axis=len(shape) - 1)
    return target.emit("Transpose", shares, perm=[int(i) for i in np.argsort(perm)])


def _global_pool(target: ExportTarget) -> None:
    """A pool over all of space, which ONNX Runtime refuses where another dim than the first is 0: a reduction there."""
    dims = target.type(0).shape
    if dims is None or all(at_least(d, 1) for d in dims[1:]):
        return target.emit(target.onnx, target.input(0))
    reduction = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}[target.onnx]
    operands, attrs = _over(target, target.input(0), list(range(2, len(dims))))
    return target.emit(reduction, *operands, **attrs)


def _over(target: ExportTarget, x: str, axes: list[int]) -> tuple[list[str], dict[str, Any]]:
    """The operands and attributes of a reduction over axes, which stay as ones."""
    return ([x, target.ints(axes)], {"keepdims": 1}) if target.opset >= 18 else ([x], {"axes": axes, "keepdims": 1})


def _mean(target: ExportTarget, x: str, axes: list[int]) -> str:
    operands, attrs = _over(target, x, axes)
    return target.make("ReduceMean", *operands, **attrs)


def _normalised(target: ExportTarget) -> None:
    """Layer and RMS normalisation, by their parts where the opset lacks them."""
    rank = target.type(0).rank
    axis = target.attrs["axis"]
    axis += rank if axis < 0 else 0
    if target.knows(target.onnx) and target.keeps(target.attrs["epsilon"]):
        return target.emit(target.onnx, *target.inputs, axis=axis, epsilon=target.attrs["epsilon"])
    axes, dtype = list(range(axis, rank)), target.type(0).dtype
    x = target.input(0)
    if target.onnx == "LayerNormalization":
        x = target.make("Sub", x, _mean(target, x, axes))
    spread = _mean(target, target.make("Mul", x, x), axes)
    root = target.make("Sqrt", target.make("Add", spread, target.number(target.attrs["epsilon"], dtype)))
    x = target.make("Div", x, root)
    if not target.input(2):
        return target.emit("Mul", x, target.input(1))
    return target.emit("Add", target.make("Mul", x, target.input(1)), target.input(2))


def _group_norm(target: ExportTarget) -> None:
    groups, epsilon = target.attrs["groups"], target.attrs["epsilon"]
    x, dtype = target.type(0), target.type(0).dtype
    # ONNX defines the variance as a difference of two means, which cancels where the mean is large; runtimes without a
    # kernel compute that, in ONNX Runtime for 2.6 times as long as the parts. Others have parts in float32 alone.
    if target.opset >= 21 and dtype is not DType.FLOAT32:
        # By default means are float32, whatever the operand is.
        stash = {"stash_type": number_of(dtype)} if dtype is DType.FLOAT64 else {}
        return target.emit("GroupNormalization", *target.inputs, num_groups=groups, epsilon=epsilon, **stash)
    batch, channels, *plane = x.dims
    if isinstance(channels, int):
        grouped: tuple[Any, ...] = (batch, groups, product((channels // groups, *plane)))
        flat = make_reshape(target, target.input(0), x.dims, grouped)
    else:
        grouped = (batch, groups, -1)
        flat = target.make("Reshape", target.input(0), target.ints([0, groups, -1]))
    ones, zeros = (target.model.parameter(np.full(groups, v), dtype) for v in (1.0, 0.0))
    normal = target.make("InstanceNormalization", flat, ones, zeros, epsilon=epsilon)
    whole = make_reshape(target, normal, grouped, x.dims)
    trailing = [-1, *(1 for _ in plane)]
    scale, bias = (target.make("Reshape", target.input(i), target.ints(trailing)) for i in (1, 2))
    return target.emit("Add", target.make("Mul", whole, scale), bias)


def _stated(target: ExportTarget) -> None:
    """Write an operator with all its attributes, those of ONNX's default among them."""
    target.emit(target.onnx, target.input(0), **target.attrs)


EXPORTS: Mapping[str, Exporter] = {
    "Attention": write_attention,
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("Conv", "ConvTranspose"), write_conv),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "GroupNormalization": _group_norm,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalised),
    **dict.fromkeys(("LpNormalization", "MeanVarianceNormalization"), _stated),
    **dict.fromkeys(_FLATTENED, _softmax),
}
