"""Products between dequantisation and quantisation, written as the operators on integers that ONNX has for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.errors import UsageError, nearest
from eqsat.language.graphs.quantised import clip_bounds
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import Array, Attrs, Constant, DType, Graph, Names, Node, TensorType

#: The element types of numbers that operators on integers multiply.
_BYTES = (DType.UINT8, DType.INT8)
#: The largest difference of the unit of a bias from that of the sums it is added to, relative to it.
_SAME_UNIT = 1e-5


#: The forms of operators on integers: float operators between dequantisation and quantisation, and those of ONNX.
FORMS = ("qdq", "operators")


def check_form(name: str, form: object) -> None:
    """UsageError for a form that operators on integers have not."""
    if form not in FORMS:
        raise UsageError(f"{name} = {form!r}", expected=" or ".join(map(repr, FORMS)), remedy=nearest(str(form), FORMS))


def in_form(graph: Graph, form: str, backend: str) -> Graph:
    """The graph in a form of operators on integers that a backend runs on integers; UsageError for no form."""
    check_form("quantised", form)
    return graph if form == "qdq" else with_operators_on_integers(graph, everywhere=backend == "openvino")


def with_operators_on_integers(graph: Graph, *, everywhere: bool = False) -> Graph:
    """The graph with QLinearConv, QLinearMatMul and MatMulInteger in the place of float products on restored numbers.

    A product is replaced where its operands are dequantised by constant scales, of whole tensors or of the channels of
    its result, and where its result is quantised at once, or used as it is. Sums are exact and rescaled once, so a
    result differs from that of the float product by one step of its scale at most. ONNX has no other quantised
    operators: what else there is stays between dequantisation and quantisation. Itself where nothing is replaced.

    With `everywhere` only QLinearConv and QLinearMatMul with one scale for all weights are written. OpenVINO 2026.4
    reads other scales along another axis, or refuses them, and computes MatMulInteger and ConvInteger in float32.
    """
    return _Rewriting(graph, everywhere).rewritten()


@dataclass(frozen=True)
class _Numbers:
    """A value that a dequantisation restores, or the result of a quantisation, with scale and zero point."""

    value: str
    type: TensorType
    scale: Array
    zero: Array
    axis: int

    @property
    def is_whole(self) -> bool:
        """True for one scale of the whole tensor."""
        return self.scale.size == 1


class _Rewriting:
    def __init__(self, graph: Graph, everywhere: bool) -> None:
        self.graph, self.everywhere = graph, everywhere
        self.constants, self.types = dict(graph.constants), dict(graph.types)
        self.names = Names({*graph.types, *graph.constants, *graph.inputs})
        self.own: dict[tuple[str, bytes], str] = {}
        self.handed_out = set(graph.outputs.values())
        self.nodes: list[Node] = []

    def rewritten(self) -> Graph:
        """The whole graph with its products replaced."""
        places = {outputs: i for i, outputs in enumerate(n.outputs for n in self.graph.nodes)}
        inserted: dict[int, list[Node]] = {}
        for node in self.graph.nodes:
            if node.op not in OPS or not OPS[node.op].product:
                continue
            self.nodes = []
            last = self._replaced(node)
            if last is not None:
                inserted[places[last.outputs]] = self.nodes
        if not inserted:
            return self.graph
        nodes = tuple(new for i, node in enumerate(self.graph.nodes) for new in inserted.get(i, [node]))
        return replace(self.graph, nodes=nodes, constants=self.constants, types=self.types).without_dead()

    def _replaced(self, node: Node) -> Node | None:
        """Write a product on integers; return the node whose result it makes, None where it stays as it is."""
        factors = self._factors(node)
        if factors is None:
            return None
        x, w = factors
        last, result = self._ending(node)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if result is not None and _has_kernel(x, w, result):
            sums = self._sums_bias(node, bias, x, w)
            if OPS[node.op].windowed and (bias is None or sums is not None):
                self._conv(node, x, w, result, sums, last)
                return last
            if not OPS[node.op].windowed and bias is None:
                self._product(node, x, w, result, last)
                return last
        if OPS[node.op].windowed or self.everywhere:
            return None
        if result is None or last.op != "quantize_linear":
            last, result = node, None
        self._scaled(node, x, w, bias, last, result)
        return last

    def _factors(self, node: Node) -> tuple[_Numbers, _Numbers] | None:
        """Both operands as numbers, where a product of them has an operator."""
        if node.op not in ("conv", "gemm", "matmul") or node.attrs.get("trans_a", False):
            return None
        if node.attrs.get("beta", 1.0) != 1.0 and len(node.inputs) > 2:
            return None
        x, w = (self._restored(value) for value in node.inputs[:2])
        if x is None or w is None or not x.is_whole or x.type.rank < 2 or w.type.rank < 2:
            return None
        if node.attrs.get("trans_b", False):
            w = self._turned(w)
        if w is None or not (w.is_whole or (self._by_channel(node, w) and not self.everywhere)):
            return None
        return x, w

    def _by_channel(self, node: Node, w: _Numbers) -> bool:
        """Return whether the scales of weights are those of the channels of the result."""
        return w.axis == 0 if OPS[node.op].windowed else w.type.rank == 2 and w.axis == 1

    def _restored(self, value: str | None) -> _Numbers | None:
        """The numbers that a value is restored from."""
        node = self.graph.producers.get(value) if value is not None else None
        if node is None or node.op != "dequantize_linear" or node.attrs["block"] or node.inputs[0] is None:
            return None
        return self._placed(node, node.inputs[0], node.inputs[0])

    def _placed(self, node: Node, numbers: str, value: str) -> _Numbers | None:
        """Numbers with the constant scale and zero point of a node."""
        type, scale = self.graph.type(numbers), self.graph.constants.get(node.inputs[1] or "")
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        known = None if zero is None else self.graph.constants.get(zero)
        if not isinstance(type, TensorType) or type.shape is None or type.dtype not in _BYTES:
            return None
        if scale is None or scale.type.dtype is not DType.FLOAT32 or (zero is not None and known is None):
            return None
        array = np.zeros(scale.array.shape, type.dtype.numpy) if known is None else known.array
        if scale.array.ndim > 1 or array.size not in (1, scale.array.size):
            return None
        return _Numbers(value, type, scale.array, array, node.attrs["axis"] % max(type.rank, 1))

    def _turned(self, w: _Numbers) -> _Numbers | None:
        """Constant weights transposed; None for others."""
        given = self.graph.constants.get(w.value)
        if given is None or w.type.rank != 2:
            return None
        name = self._constant(f"{w.value}_turned", given.array.T)
        return replace(w, value=name, type=w.type.with_shape(w.type.dims[::-1]), axis=1 - w.axis)

    def _ending(self, node: Node) -> tuple[Node, _Numbers | None]:
        """The quantisation of a product's result, and its numbers; the product itself where it has none.

        Bounds between the two that quantising holds by itself make no difference.
        """
        activation = node.attrs.get("activation", "none")
        bounds: list[tuple[str, tuple[str | None, ...]]] = [] if activation == "none" else [(activation, ())]
        value = node.outputs[0]
        while True:
            readers = self.graph.consumers.get(value, ())
            if len(readers) != 1 or value in self.handed_out:
                return node, None
            (reader,) = readers
            if reader.op == "quantize_linear" and reader.inputs[0] == value and not reader.attrs["block"]:
                result = self._placed(reader, reader.outputs[0], reader.outputs[0])
                held = result is not None and result.is_whole and all(self._holds(result, *one) for one in bounds)
                return (reader, result) if held else (node, None)
            if reader.op not in OPS or not OPS[reader.op].clamps or reader.inputs[0] != value:
                return node, None
            bounds.append((reader.op, reader.inputs[1:]))
            value = reader.outputs[0]

    def _holds(self, result: _Numbers, op: str, operands: Sequence[str | None]) -> bool:
        """Return whether numbers of a scale are between the bounds of an operator, whatever they are rounded from."""
        if not OPS[op].clamps or op not in ("relu", "clip"):
            return False
        low, high = (0.0, math.inf) if op == "relu" else clip_bounds(operands, self.graph.constants.get)
        limits = np.iinfo(result.zero.dtype)
        step, zero = float(result.scale.reshape(())), int(result.zero.reshape(-1)[0])
        return low <= (limits.min - zero) * step and high >= (limits.max - zero) * step

    def _sums_bias(self, node: Node, bias: str | None, x: _Numbers, w: _Numbers) -> str | None:
        """A bias in units of the sums of a product; None where it is in another unit, or varies along other axes."""
        made = self.graph.producers.get(bias) if bias is not None else None
        if made is None or made.op != "dequantize_linear" or made.attrs["block"] or made.inputs[0] is None:
            return None
        numbers, scale = made.inputs[0], self.graph.constants.get(made.inputs[1] or "")
        zero = self.graph.constants.get(made.inputs[2]) if len(made.inputs) > 2 and made.inputs[2] else None
        type = self.graph.type(numbers)
        if scale is None or not isinstance(type, TensorType) or type.dtype is not DType.INT32 or type.rank != 1:
            return None
        unit = self._unit(node, x, w)
        wanted = np.broadcast_to(unit, (type.static[0],)) if type.is_static else unit
        if zero is not None and zero.array.any():
            return None
        return numbers if np.allclose(scale.array, wanted, rtol=_SAME_UNIT, atol=0) else None

    def _unit(self, node: Node, x: _Numbers, w: _Numbers) -> Array:
        """The unit of the sums of a product."""
        return np.float32(node.attrs.get("alpha", 1.0)) * x.scale.reshape(()) * w.scale

    def _operands(self, x: _Numbers) -> tuple[str, str, str]:
        """Numbers with the names of their scale and zero point."""
        scale = x.scale.reshape(()) if x.is_whole else x.scale
        zero = x.zero.reshape(()) if x.is_whole else np.broadcast_to(x.zero, x.scale.shape)
        return x.value, self._constant(f"{x.value}_scale", scale), self._constant(f"{x.value}_zero", zero)

    def _conv(self, node: Node, x: _Numbers, w: _Numbers, result: _Numbers, bias: str | None, last: Node) -> None:
        attrs = {k: node.attrs[k] for k in spec("qlinear_conv").attrs if k in node.attrs}
        inputs = (*self._operands(x), *self._operands(w), *self._operands(result)[1:])
        self._emit("qlinear_conv", inputs if bias is None else (*inputs, bias), last, attrs)

    def _product(self, node: Node, x: _Numbers, w: _Numbers, result: _Numbers, last: Node) -> None:
        factor = np.float32(node.attrs.get("alpha", 1.0))
        scaled = w if factor == 1 else replace(w, scale=(w.scale * factor).astype(np.float32))
        inputs = (*self._operands(x), *self._operands(scaled), *self._operands(result)[1:])
        self._emit("qlinear_matmul", inputs, last)

    def _scaled(
        self, node: Node, x: _Numbers, w: _Numbers, bias: str | None, last: Node, result: _Numbers | None
    ) -> None:
        """Sums of products of numbers with their bias, times their unit, quantised where they were."""
        made = self.graph.type(node.outputs[0])
        assert isinstance(made, TensorType)
        zeros = [self._operands(x)[2], self._operands(w)[2] if w.zero.any() else None]
        sums = self._made(
            "matmul_integer",
            (x.value, w.value, *(zeros if zeros[1] is not None else zeros[:1])),
            node,
            replace(made, dtype=DType.INT32),
        )
        whole = self._sums_bias(node, bias, x, w)
        if whole is not None:
            sums = self._made("add", (sums, whole), node, replace(made, dtype=DType.INT32))
        floats = self._made("cast", (sums,), node, made, {"to": "float32"})
        unit = self._constant(f"{w.value}_unit", np.float32(self._unit(node, x, w)))
        added, ends = bias is not None and whole is None, node.attrs.get("activation", "none")
        steps: list[tuple[str, tuple[str, ...]]] = [("mul", (unit,))]
        steps += [("add", (bias,))] if added and bias is not None else []
        steps += [(ends, ())] if ends != "none" and result is None else []
        if result is None:
            for op, more in steps[:-1]:
                floats = self._made(op, (floats, *more), node, made)
            self._emit(steps[-1][0], (floats, *steps[-1][1]), last)
            return
        for op, more in steps:
            floats = self._made(op, (floats, *more), node, made)
        self._emit("quantize_linear", (floats, *last.inputs[1:]), last, last.attrs)

    def _made(
        self, op: str, inputs: tuple[str | None, ...], node: Node, type: TensorType, attrs: dict[str, Any] | None = None
    ) -> str:
        """The result of a node of our own, between others."""
        name = self.names(f"{node.outputs[0]}/{op}")
        self.types[name] = type
        self.nodes.append(Node(op, inputs, (name,), Attrs(spec(op).complete(attrs or {}))))
        return name

    def _emit(self, op: str, inputs: tuple[str | None, ...], last: Node, attrs: Any = None) -> None:
        """The node that makes what another one made."""
        self.nodes.append(Node(op, inputs, last.outputs, Attrs(spec(op).complete(attrs or {})), last.name))

    def _constant(self, stem: str, array: Any) -> str:
        """The name of a constant, once for equal ones of a stem."""
        held = np.ascontiguousarray(array).reshape(np.shape(array))
        key = stem, held.tobytes()
        if key not in self.own:
            name = self.own[key] = self.names(stem)
            self.constants[name] = Constant.of(held)
            self.types[name] = self.constants[name].type
        return self.own[key]


def _has_kernel(x: _Numbers, w: _Numbers, result: _Numbers) -> bool:
    """Return whether runtimes multiply numbers of these types into numbers of that one."""
    return x.type.dtype is result.type.dtype and (x.type.dtype is DType.UINT8 or w.type.dtype is DType.INT8)
