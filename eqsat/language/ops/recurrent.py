"""Recurrent layers: LSTM, GRU and the plain recurrence, over all steps of a sequence at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.declaration import op
from eqsat.language.ops import activations as functions
from eqsat.language.ops.operands import enumeration
from eqsat.language.ops.operands.recurrent import _DTYPES, _OWN, layer_flops, layer_sample, layer_type

#: The new states, from the gates of a step before the state is known, the states, and the direction.
Cell: TypeAlias = Callable[[Any, "tuple[Any, ...]", int], "tuple[Any, ...]"]
Names: TypeAlias = tuple[str, ...]
Numbers: TypeAlias = tuple[float, ...]


def _activated(xp: Any, x: Any, name: str, alpha: float, beta: float) -> Any:
    match name:
        case "Relu":
            return functions.relu.reference(xp, x)
        case "Softsign":
            return functions.softsign.reference(xp, x)
        case "Softplus":
            return functions.softplus.reference(xp, x)
        case "LeakyRelu":
            return functions.leaky_relu.reference(xp, x, alpha=alpha)
        case "ThresholdedRelu":
            return xp.where(xp.less(x, xp.number(alpha, x)), xp.number(0.0, x), x)
        case "HardSigmoid":
            return functions.hard_sigmoid.reference(xp, x, alpha=alpha, beta=beta)
        case "Elu":
            return functions.elu.reference(xp, x, alpha=alpha)
        case "Affine":
            return xp.add(xp.multiply(xp.number(alpha, x), x), xp.number(beta, x))
        case "ScaledTanh":
            return xp.multiply(xp.number(alpha, x), xp.apply("tanh", xp.multiply(xp.number(beta, x), x)))
        case _:
            return xp.apply(name.lower(), x)


class _Layer:
    """A layer's arithmetic, attributes and activations, those of each direction one after the other."""

    def __init__(
        self,
        xp: Any,
        default: Names,
        direction: str,
        activations: Names,
        alphas: Numbers,
        betas: Numbers,
        clip: float | None,
    ) -> None:
        self.xp, self.direction, self.clip = xp, direction, clip
        self.directions = 2 if direction == "bidirectional" else 1
        self.activations = activations or default * self.directions
        self.each = len(default)
        self.alphas = alphas or (0.0,) * len(self.activations)
        self.betas = betas or (0.0,) * len(self.activations)

    def active(self, x: Any, which: int, direction: int) -> Any:
        """An activation of a direction, its operand clipped where asked for."""
        xp, clip = self.xp, self.clip
        if clip is not None:
            x = xp.maximum(xp.minimum(x, xp.number(clip, x)), xp.number(-clip, x))
        return _activated(xp, x, *self.named(which, direction))

    def named(self, which: int, direction: int) -> tuple[str, float, float]:
        """An activation of a direction, with its alpha and beta."""
        at = direction * self.each + which
        return self.activations[at], self.alphas[at], self.betas[at]

    def run(
        self, x: Any, w: Any, bias: Any, lens: Any, states: tuple[Any, ...], size: int, cell: Cell, layout: int
    ) -> tuple[Any, ...]:
        """All hidden states of a size, and the last states, for the first ones; zeros for those that are left out.

        By `layout` 0 the steps come first, by 1 the batch; `cell` sees the steps one by one.
        """
        x = _by_time(x, layout)
        first = tuple(self._first(_by_time(s, layout), x, size) for s in states)
        return _laid_out(self._run(x, w, bias, lens, first, cell), layout)

    def _first(self, state: Any, x: Any, size: int) -> Any:
        if state is not None:
            return state
        return np.full((self.directions, x.shape[1], size), self.xp.number(0.0, x), dtype=x.dtype, like=x)

    def _run(self, x: Any, w: Any, bias: Any, lens: Any, states: tuple[Any, ...], cell: Cell) -> tuple[Any, ...]:
        """All hidden states, of shape (steps, directions, batch, hidden), and the last states."""
        xp = self.xp
        steps, batch, width = x.shape
        rows = x.reshape(steps * batch, width)
        outputs_by_direction, last = [], []
        for d in range(self.directions):
            # The products with the inputs of all steps are one.
            gates = xp.matmul(rows, np.transpose(w[d]))
            gates = (gates if bias is None else xp.add(gates, bias[d])).reshape(steps, batch, w.shape[1])
            backward = self.direction == "reverse" or d == 1
            outputs, final = self._direction(gates, lens, tuple(s[d] for s in states), cell, d, backward)
            outputs_by_direction.append(outputs)
            last.append(final)
        return (np.stack(outputs_by_direction, 1), *(np.stack([f[i] for f in last], 0) for i in range(len(states))))

    def _direction(
        self, gates: Any, lens: Any, states: tuple[Any, ...], cell: Cell, direction: int, backward: bool
    ) -> tuple[Any, tuple[Any, ...]]:
        xp, (steps, batch, _) = self.xp, gates.shape
        result: Any = np.full((steps, *states[0].shape), xp.number(0.0, gates), dtype=gates.dtype, like=gates)
        if lens is None:
            for t in range(steps)[:: -1 if backward else 1]:
                states = cell(gates[t], states, direction)
                result[t] = states[0]
            return result, states
        lens, rows = np.asarray(lens, np.int64), np.arange(batch)
        for step in range(steps):
            going = step < lens
            at = np.clip(lens - 1 - step if backward else np.full(batch, step), 0, steps - 1)
            after = cell(gates[at, rows], states, direction)
            # A sequence that has ended keeps its states.
            states = tuple(np.where(going[:, None], a, s) for a, s in zip(after, states, strict=True))
            result[at[going], rows[going]] = states[0][going]
        # Of a sequence without steps ONNX Runtime makes zeros, whatever the first states are.
        nothing = xp.number(0.0, gates)
        return result, tuple(np.where((lens > 0)[:, None], s, nothing) for s in states)


def _by_time(x: Any, layout: int) -> Any:
    return np.swapaxes(x, 0, 1) if layout and x is not None else x


def _laid_out(made: tuple[Any, ...], layout: int) -> tuple[Any, ...]:
    if not layout:
        return made
    return (np.transpose(made[0], (2, 0, 1, 3)), *(np.swapaxes(s, 0, 1) for s in made[1:]))


#: Recurrent layers.
_layer = partial(op, dtypes=_DTYPES, stepwise=True)


@_layer(
    infer=layer_type(4, 2),
    flops=layer_flops(4),
    sample=layer_sample(4, 8),
    onnx="LSTM",
    shapes="Steps, batch, input becomes steps, directions, batch, hidden; the two last states have no steps.",
    choices={
        ("activations", "alphas", "betas", "clip"): enumeration.activations(3, ("HardSigmoid", "LeakyRelu", "Softsign"))
    },
    beside=enumeration.recurrent(4),
)
def lstm(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lens: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
    *,
    direction: str = "forward",
    activations: Names = (),
    alphas: Numbers = (),
    betas: Numbers = (),
    clip: float | None = None,
    input_forget: bool = False,
    layout: int = 0,
) -> tuple[Any, ...]:
    """Long short-term memory (ONNX LSTM): all hidden states, the last hidden and the last cell states.

    The operand `x` is steps, batch, width (batch first with `layout` 1); `w` and `r` are directions, 4 · hidden, width
    for the gates i, o, f, c; `b` holds both their biases, `lens` the lengths of the sequences, `h` and `c` the first
    states, and `p` the weights of peepholes i, o, f. Empty `activations` are sigmoid, tanh and tanh. Source: Hochreiter
    and Schmidhuber (1997).
    """
    layer = _Layer(xp, _OWN[4], direction, activations, alphas, betas, clip)
    size = r.shape[2]
    bias = None if b is None else xp.add(b[:, : 4 * size], b[:, 4 * size :])

    def cell(gates: Any, states: tuple[Any, ...], d: int) -> tuple[Any, ...]:
        hidden, memory = states
        gates = xp.add(gates, xp.matmul(hidden, np.transpose(r[d])))
        i, o, f, g = (gates[:, k * size : (k + 1) * size] for k in range(4))
        if p is not None:
            i = xp.add(i, xp.multiply(p[d, :size], memory))
            f = xp.add(f, xp.multiply(p[d, 2 * size :], memory))
        i = layer.active(i, 0, d)
        f = xp.subtract(xp.number(1.0, x), i) if input_forget else layer.active(f, 0, d)
        memory = xp.add(xp.multiply(f, memory), xp.multiply(i, layer.active(g, 1, d)))
        if p is not None:
            o = xp.add(o, xp.multiply(p[d, size : 2 * size], memory))
        shown = _activated(xp, memory, *layer.named(2, d))
        return xp.multiply(layer.active(o, 0, d), shown), memory

    return layer.run(x, w, bias, lens, (h, c), size, cell, layout)


@_layer(
    infer=layer_type(3, 1),
    flops=layer_flops(3),
    sample=layer_sample(3, 6),
    onnx="GRU",
    shapes="Steps, batch, input becomes steps, directions, batch, hidden; the last state has no steps.",
    choices={("activations", "alphas", "betas", "clip"): enumeration.activations(2, ("HardSigmoid", "Relu"))},
    beside=enumeration.recurrent(3),
)
def gru(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lens: Any = None,
    h: Any = None,
    *,
    direction: str = "forward",
    activations: Names = (),
    alphas: Numbers = (),
    betas: Numbers = (),
    clip: float | None = None,
    linear_before_reset: bool = False,
    layout: int = 0,
) -> tuple[Any, ...]:
    """Gated recurrent units (ONNX GRU): all hidden states, and the last.

    Operands are as those of `lstm`, with the gates z, r, h. `linear_before_reset` multiplies by the reset gate behind
    the product with the state. Empty `activations` are sigmoid and tanh. Source: Cho et al. (2014).
    """
    layer = _Layer(xp, _OWN[3], direction, activations, alphas, betas, clip)
    size = r.shape[2]
    inner = None if b is None else b[:, 3 * size :]

    def cell(gates: Any, states: tuple[Any, ...], d: int) -> tuple[Any, ...]:
        (hidden,) = states
        recur = np.transpose(r[d])
        both = xp.matmul(hidden, recur[:, : 2 * size])
        both = both if inner is None else xp.add(both, inner[d, : 2 * size])
        both = xp.add(gates[:, : 2 * size], both)
        z, reset = layer.active(both[:, :size], 0, d), layer.active(both[:, size:], 0, d)
        state = hidden if linear_before_reset else xp.multiply(reset, hidden)
        new = xp.matmul(state, recur[:, 2 * size :])
        new = new if inner is None else xp.add(new, inner[d, 2 * size :])
        new = xp.multiply(reset, new) if linear_before_reset else new
        new = layer.active(xp.add(gates[:, 2 * size :], new), 1, d)
        old = xp.multiply(z, hidden)
        return (xp.add(xp.multiply(xp.subtract(xp.number(1.0, x), z), new), old),)

    bias = None if b is None else b[:, : 3 * size]
    return layer.run(x, w, bias, lens, (h,), size, cell, layout)


@_layer(
    infer=layer_type(1, 1),
    flops=layer_flops(1),
    sample=layer_sample(1, 6),
    onnx="RNN",
    shapes="Steps, batch, input becomes steps, directions, batch, hidden; the last state has no steps.",
    choices={("activations", "alphas", "betas", "clip"): enumeration.activations(1, ("Affine",))},
    beside=enumeration.recurrent(1),
)
def rnn(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lens: Any = None,
    h: Any = None,
    *,
    direction: str = "forward",
    activations: Names = (),
    alphas: Numbers = (),
    betas: Numbers = (),
    clip: float | None = None,
    layout: int = 0,
) -> tuple[Any, ...]:
    """The plain recurrence h' = f(x @ w' + h @ r' + b) (ONNX RNN): all hidden states, and the last.

    Operands are as those of `lstm`, with one gate. Empty `activations` are tanh.
    """
    layer = _Layer(xp, _OWN[1], direction, activations, alphas, betas, clip)
    size = r.shape[2]

    def cell(gates: Any, states: tuple[Any, ...], d: int) -> tuple[Any, ...]:
        return (layer.active(xp.add(gates, xp.matmul(states[0], np.transpose(r[d]))), 0, d),)

    bias = None if b is None else xp.add(b[:, :size], b[:, size:])
    return layer.run(x, w, bias, lens, (h,), size, cell, layout)


class LayerActivations:
    """The activations of a layer with so many gates, by direction, as the references compute them."""

    def __init__(self, xp: Any, gates: int, attrs: Mapping[str, Any]) -> None:
        own = (attrs[name] for name in ("direction", "activations", "alphas", "betas", "clip"))
        self._xp, self._layer = xp, _Layer(xp, _OWN[gates], *own)
        #: The number of directions.
        self.directions = self._layer.directions

    def active(self, x: Any, which: int, direction: int) -> Any:
        """An activation of a direction, its operand clipped where asked for."""
        return self._layer.active(x, which, direction)

    def shown(self, x: Any, which: int, direction: int) -> Any:
        """An activation of a direction whose operand is never clipped."""
        return _activated(self._xp, x, *self._layer.named(which, direction))
