"""Quantised kernels of a plan, written as float operators between quantisation and dequantisation.

Runtimes recognise an operator whose operands were just dequantised, and whose result is quantised, and run it on the
integers themselves: this is how a quantised model is exchanged (ONNX calls it QDQ).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from eqsat.language.ops import OPS, spec
from eqsat.language.terms import FLOAT8, Attrs, Constant, DType, Held, Kernel, Node, Scale, State, TensorType

#: The arithmetic of kernels that compute on quantised integers, and of those that do on floats of 8 bits.
INTEGER = "int8"
BYTES = (INTEGER, FLOAT8)

#: Bound of a bias in units of the sums it is added to: half of what these can hold.
_LARGEST_SUM = 2**30
#: More steps than any integer type has.
_FAR = 2.0**40


class Draft(Protocol):
    """A graph being written: nodes are emitted once where they are equal, constants named by their stem."""

    def emit(self, op: str, attrs: Attrs, inputs: tuple[str | None, ...], results: Sequence[TensorType]) -> list[str]:
        """The names of the results of a node."""

    def constant(self, stem: str, given: Constant) -> str:
        """The name of a constant."""

    def held(self, held: Held) -> str:
        """The name of what holds a value in a state."""

    def known(self, value: str) -> Constant | None:
        """The constant that a value is, in the plan's graph."""

    def stated(self, value: str) -> TensorType:
        """The type of a value as the plan's graph states it."""


def restored(draft: Draft, name: str, value: str, scale: Scale) -> str:
    """The float32 value that a quantised one stands for: one node for all who read it."""
    if not scale.dtype.is_integer:
        return _from_float8(draft, name, value, scale)
    attrs, parameters = _place(draft, value, scale)
    (float_,) = draft.emit(
        "dequantize_linear",
        Attrs(spec("dequantize_linear").complete(attrs)),
        (name, *parameters),
        [draft.stated(value)],
    )
    return float_


def quantised(draft: Draft, name: str, value: str, scale: Scale) -> str:
    """A float32 value as the numbers that stand for it."""
    if not scale.dtype.is_integer:
        return _to_float8(draft, name, value, scale)
    attrs, parameters = _place(draft, value, scale)
    attrs["to"] = scale.dtype.value
    type = TensorType(scale.dtype, draft.stated(value).shape)
    full = Attrs(spec("quantize_linear").complete(attrs))
    (integers,) = draft.emit("quantize_linear", full, (name, *parameters), [type])
    return integers


def _to_float8(draft: Draft, name: str, value: str, scale: Scale) -> str:
    """A float32 value as floats of 8 bits, by casts: QuantizeLinear to these makes ONNX Runtime fuse what it lacks."""
    type = draft.stated(value)
    _, (step, _) = _place(draft, value, scale)
    bounds = [draft.constant(f"{value}_{side}", Constant.of(np.float32(end))) for side, end in _ends(scale)]
    (units,) = draft.emit("div", Attrs(), (name, step), [type])
    (within,) = draft.emit("clip", Attrs(), (units, *bounds), [type])
    return cast_to(draft, within, TensorType(scale.dtype, type.shape))


def _from_float8(draft: Draft, name: str, value: str, scale: Scale) -> str:
    type = draft.stated(value)
    _, (step, _) = _place(draft, value, scale)
    (result,) = draft.emit("mul", Attrs(), (cast_to(draft, name, type), step), [type])
    return result


def _ends(scale: Scale) -> tuple[tuple[str, int], ...]:
    return ("least", scale.least), ("most", scale.most)


def emit_kernel(draft: Draft, kernel: Kernel, nodes: Sequence[Node], scales: Any) -> str:
    """The operators of a quantised kernel; return the name of its last result, a float32 value not yet rounded.

    Operands held in integers are restored first. A product with a float32 operand and quantised weights is computed on
    numbers that its operand is quantised to when it runs.
    """
    states = {held.value: held.state for held in kernel.operands}
    inside: dict[str, str] = {}
    last = ""
    for node in nodes:
        first = node.inputs[0]
        end = scales.get((node.outputs[0], kernel.results[-1].state.precision)) if node is nodes[-1] else None
        online = first is not None and first not in inside and _is_float(states, first) and OPS[node.op].product
        if online:
            last = _online_product(draft, node, states, scales)
        elif first is not None and _is_spared(draft, node.op, node.inputs[1:], end):
            last = inside.get(first) or _float(draft, first, states, scales)
        else:
            inputs = [None if v is None else inside.get(v) or _float(draft, v, states, scales) for v in node.inputs]
            if OPS[node.op].product and len(inputs) > 2 and (bias := node.inputs[2]) is not None:
                inputs[2] = _bias(draft, node, bias, states, scales) or inputs[2]
            result = draft.stated(node.outputs[0])
            activation = node.attrs.get("activation", "none")
            attrs = node.attrs if activation == "none" else Attrs({**node.attrs, "activation": "none"})
            (last,) = draft.emit(node.op, attrs, tuple(inputs), [result])
            if activation != "none" and not _is_spared(draft, activation, (), end):
                (last,) = draft.emit(activation, Attrs(spec(activation).complete({})), (last,), [result])
        inside[node.outputs[0]] = last
    return last


def _is_spared(draft: Draft, op: str, bounds: Sequence[str | None], scale: Scale | None) -> bool:
    """Return whether an operator that holds values between bounds does nothing that quantising its result does not.

    Both bounds are then the least and the largest number of the scale, or beyond, and so is all beyond them.
    """
    if scale is None or not OPS[op].clamps or scale.axis is not None:
        return False
    low, high = (0.0, math.inf) if op == "relu" else clip_bounds(bounds, draft.known)
    step, zero = scale.steps[0], scale.zeros[0]
    return round(max(low / step, -_FAR)) + zero <= scale.least and round(min(high / step, _FAR)) + zero >= scale.most


def clip_bounds(operands: Sequence[str | None], known: Callable[[str], Constant | None]) -> tuple[float, float]:
    """The constant bounds of a clip, of which `known` gives the constants; inf and -inf where one is none."""
    constants = [None if v is None else known(v) for v in operands]
    if any(v is not None and one is None for v, one in zip(operands, constants, strict=True)):
        return math.inf, -math.inf
    low, high, *_ = (*constants, None, None)
    return -math.inf if low is None else float(low.array), math.inf if high is None else float(high.array)


def _bias(draft: Draft, node: Node, bias: str, states: Any, scales: Any) -> str | None:
    """The bias of a product with quantised weights, where it is a constant that is written in another way than it is.

    It makes up for what rounding of the weights shifts, and is in the unit of sums where it can be.
    """
    given, w = draft.known(bias), node.inputs[1]
    if given is None or w is None or w not in states or node.attrs.get("beta", 1.0) != 1.0:
        return None
    array = scales[w, states[w].precision].corrected(given.array) if states[w].is_quantised else given.array
    whole = _sums_bias(draft, node, bias, array, states, scales)
    if whole is not None or array is given.array:
        return whole
    return draft.constant(f"{bias}_corrected", Constant.of(array, given.type.dtype))


def _sums_bias(draft: Draft, node: Node, bias: str, array: Any, states: Any, scales: Any) -> str | None:
    """A bias as 32-bit numbers in the unit of the sums it is added to; None where it cannot be.

    Integer kernels add it to their sums; with a bias of floats some runtimes leave a product in float32.
    """
    x, w = node.inputs[:2]
    if x is None or w is None:
        return None
    parts = [scales.get((v, states[v].precision)) if v in states else None for v in (x, w)]
    if parts[0] is None or parts[1] is None or parts[0].axis is not None or array.ndim != 1:
        return None
    if not parts[0].dtype.is_integer:
        return None  # floats of 8 bits have no unit of sums
    alpha = float(node.attrs.get("alpha", 1.0))
    steps = np.array(parts[1].steps, np.float64) * parts[0].steps[0] * alpha
    steps = np.broadcast_to(steps, array.shape)
    if not np.all(steps > 0) or np.any(np.abs(array) / steps >= _LARGEST_SUM):
        return None
    scale = Scale(DType.INT32, tuple(map(float, steps)), (0,) * len(steps), 0, -_LARGEST_SUM, _LARGEST_SUM)
    numbers = draft.constant(f"{bias}_sums", Constant.of(scale.quantised(array), DType.INT32))
    attrs, (step, _) = _place(draft, f"{bias}_sums", scale)
    full = Attrs(spec("dequantize_linear").complete(attrs))
    (name,) = draft.emit("dequantize_linear", full, (numbers, step), [draft.stated(bias)])
    return name


def _is_float(states: Any, value: str) -> bool:
    return not states.get(value, State()).is_quantised


def _float(draft: Draft, value: str, states: Any, scales: Any) -> str:
    """An operand as float32: as it is held, or restored from its integers."""
    state: State = states.get(value, State())
    name = draft.held(Held(value, state))
    if state.is_quantised:
        return restored(draft, name, value, scales[value, state.precision])
    return cast_to(draft, name, draft.stated(value)) if state.precision else name


def cast_to(draft: Draft, name: str, type: TensorType) -> str:
    """A value in the element type of a type."""
    attrs = Attrs(spec("cast").complete({"to": type.dtype.value}))
    (result,) = draft.emit("cast", attrs, (name,), [type])
    return result


def _online_product(draft: Draft, node: Node, states: Any, scales: Any) -> str:
    """A product whose left operand is quantised by its least and largest element when it runs."""
    x, w = node.inputs[0], node.inputs[1]
    if x is None or w is None or not states[w].is_quantised:
        raise TypeError(f"{node.op} has no quantised weights")
    type, result = draft.stated(x), draft.stated(node.outputs[0])
    scalar = TensorType.of("float32", ())
    name = draft.held(Held(x, State()))
    integers, step, zero = draft.emit(
        "dynamic_quantize_linear",
        Attrs(),
        (name,),
        [TensorType(DType.UINT8, type.shape), scalar, TensorType.of("uint8", ())],
    )
    scale: Scale = scales[w, states[w].precision]
    weights, zeros = draft.held(Held(w, states[w])), draft.constant(f"{w}_zero", _numbers(scale.zeros, scale.dtype))
    sums = TensorType(DType.INT32, result.shape)
    integer = "conv_integer" if OPS[node.op].windowed else "matmul_integer"
    kept = {k: v for k, v in node.attrs.items() if k in spec(integer).attrs}
    operands: tuple[str | None, ...] = (integers, weights, zero, zeros if any(scale.zeros) else None)
    if operands[-1] is None:
        operands = operands[:-1]
    (product,) = draft.emit(integer, Attrs(spec(integer).complete(kept)), operands, [sums])
    (floats,) = draft.emit("cast", Attrs(spec("cast").complete({"to": "float32"})), (product,), [result])
    steps = np.array(scale.steps, np.float32)
    shaped = (
        steps.reshape(())
        if scale.axis is None
        else steps.reshape(-1, *(1,) * (type.rank - 2 if OPS[node.op].windowed else 0))
    )
    factor = draft.constant(f"{w}_steps", Constant.of(shaped, DType.FLOAT32))
    (unit,) = draft.emit("mul", Attrs(), (step, factor), [TensorType.of("float32", shaped.shape)])
    (scaled,) = draft.emit("mul", Attrs(), (floats, unit), [result])
    if node.attrs.get("activation", "none") != "none":
        raise TypeError(f"{node.op} with an activation is not quantised online")
    if len(node.inputs) > 2 and (bias := node.inputs[2]) is not None:
        added = _bias(draft, node, bias, states, scales) or draft.held(Held(bias, State()))
        if OPS[node.op].windowed:
            shape = (*draft.stated(bias).dims, *(1,) * (type.rank - 2))
            to = draft.stated(bias).with_shape(shape)
            (added,) = draft.emit("reshape", Attrs(spec("reshape").complete({"shape": shape})), (added,), [to])
        (scaled,) = draft.emit("add", Attrs(), (scaled, added), [result])
    return scaled


def _place(draft: Draft, value: str, scale: Scale) -> tuple[dict[str, Any], tuple[str, str]]:
    """The attributes that place a scale along its axis, and the names of its steps and zeros."""
    steps = np.array(scale.steps, np.float32)
    shaped = steps.reshape(()) if scale.axis is None else steps
    step = draft.constant(f"{value}_step", Constant.of(shaped, DType.FLOAT32))
    zero = draft.constant(f"{value}_zero", _numbers(scale.zeros, scale.dtype, scalar=scale.axis is None))
    return {"axis": scale.axis or 0, "block": 0}, (step, zero)


def _numbers(numbers: Sequence[int], dtype: DType, *, scalar: bool = False) -> Constant:
    array = np.array(numbers, dtype.numpy)
    return Constant.of(array.reshape(()) if scalar else array, dtype)
