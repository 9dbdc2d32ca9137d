"""Recurrent layers unrolled over time, whose input products an expert computes at once."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import concat, relu, sigmoid, stack, tanh

_GROUP = "recurrences"
_WIDTH = 64


def _step(x: Tensor, number: int) -> Tensor:
    return x[number]


def _simple(steps: int, activation: Callable[[Tensor], Tensor]) -> Callable[[Maker], Pair]:
    def make(m: Maker) -> Pair:
        x, h = m.x(steps, 1, _WIDTH), m.x(1, _WIDTH)
        w, u, b = m.w(_WIDTH, _WIDTH), m.w(_WIDTH, _WIDTH), m.w(_WIDTH)
        first, second = h, h
        at_once = x.reshape(steps, _WIDTH) @ w + b
        for t in range(steps):
            first = activation((_step(x, t) @ w + first @ u) + b)
            second = activation(at_once[t : t + 1] + second @ u)
        return first, second

    return make


def _sru(steps: int) -> Callable[[Maker], Pair]:
    def make(m: Maker) -> Pair:
        x, c = m.x(steps, 1, _WIDTH), m.x(1, _WIDTH)
        w, wf, wr = (m.w(_WIDTH, _WIDTH) for _ in range(3))
        bf, br = m.w(_WIDTH), m.w(_WIDTH)
        first, second, given, expert = c, c, [], []
        at_once = x.reshape(steps, _WIDTH) @ concat([w, wf, wr], axis=1)
        gates_f = sigmoid(at_once[:, _WIDTH : 2 * _WIDTH] + bf)
        gates_r = sigmoid(at_once[:, 2 * _WIDTH :] + br)
        for t in range(steps):
            now = _step(x, t)
            f, r = sigmoid(now @ wf + bf), sigmoid(now @ wr + br)
            first = f * first + (1.0 - f) * (now @ w)
            given.append(r * tanh(first) + (1.0 - r) * now)
            fresh, gf, gr = at_once[t : t + 1, :_WIDTH], gates_f[t : t + 1], gates_r[t : t + 1]
            second = fresh + gf * (second - fresh)
            expert.append(now + gr * (tanh(second) - now))
        return stack(given, axis=0), stack(expert, axis=0)

    return make


def _lstm(steps: int) -> Callable[[Maker], Pair]:
    def make(m: Maker) -> Pair:
        x, h, c = m.x(steps, 1, _WIDTH), m.x(1, _WIDTH), m.x(1, _WIDTH)
        w, u, b = ([m.w(*shape) for _ in range(4)] for shape in ((_WIDTH, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH,)))
        at_once = x.reshape(steps, _WIDTH) @ concat(w, axis=1) + concat(b, axis=0)
        hidden = concat(u, axis=1)
        h1, c1, h2, c2 = h, c, h, c
        for t in range(steps):
            now = _step(x, t)
            i, f, o, g = (now @ w[k] + h1 @ u[k] + b[k] for k in range(4))
            c1 = sigmoid(f) * c1 + sigmoid(i) * tanh(g)
            h1 = sigmoid(o) * tanh(c1)
            every = at_once[t : t + 1] + h2 @ hidden
            i, f, o, g = (every[:, k * _WIDTH : (k + 1) * _WIDTH] for k in range(4))
            c2 = sigmoid(f) * c2 + sigmoid(i) * tanh(g)
            h2 = sigmoid(o) * tanh(c2)
        return h1, h2

    return make


def _gru(steps: int) -> Callable[[Maker], Pair]:
    def make(m: Maker) -> Pair:
        x, h = m.x(steps, 1, _WIDTH), m.x(1, _WIDTH)
        w, u = ([m.w(_WIDTH, _WIDTH) for _ in range(3)] for _ in range(2))
        at_once, hidden = x.reshape(steps, _WIDTH) @ concat(w, axis=1), concat(u[:2], axis=1)
        h1 = h2 = h
        for t in range(steps):
            now = _step(x, t)
            z, r = sigmoid(now @ w[0] + h1 @ u[0]), sigmoid(now @ w[1] + h1 @ u[1])
            h1 = (1.0 - z) * tanh(now @ w[2] + (r * h1) @ u[2]) + z * h1
            row = at_once[t : t + 1]
            both = sigmoid(row[:, : 2 * _WIDTH] + h2 @ hidden)
            z, r = both[:, :_WIDTH], both[:, _WIDTH:]
            new = tanh(row[:, 2 * _WIDTH :] + (r * h2) @ u[2])
            h2 = new + z * (h2 - new)
        return h1, h2

    return make


for _steps in (10, 20, 50):
    case(_GROUP, f"simple recurrence of {_steps} steps", "Elman 1990")(_simple(_steps, tanh))
    case(_GROUP, f"simple recurrence with relu of {_steps} steps", "IRNN, Le et al. 2015")(_simple(_steps, relu))
    case(_GROUP, f"SRU of {_steps} steps", "Lei et al., EMNLP 2018")(_sru(_steps))
    case(_GROUP, f"LSTM of {_steps} steps", "Hochreiter and Schmidhuber 1997")(_lstm(_steps))
    case(_GROUP, f"GRU of {_steps} steps", "Cho et al., EMNLP 2014")(_gru(_steps))
