"""The recurrent cell found by neural architecture search (Zoph and Le, 2017), as in TASO's repository.

Five steps of width 512. Every combination of input and state has matrices of its own in every step: 80 pairs.
"""

from __future__ import annotations

from functools import partial

from onnx import ModelProto

from benchmarks.models.builder import GraphWriter


def nasrnn(batch: int = 1, seed: int = 0, *, steps: int = 5, hidden: int = 512) -> ModelProto:
    """NasRNN; inputs `x_0` … and output `state` are (batch, hidden)."""
    writer = GraphWriter("nasrnn", seed)
    xs = [writer.input(f"x_{t}", (batch, hidden)) for t in range(steps)]
    state = writer.bias("state_0", (batch, hidden))
    for t, x in enumerate(xs):
        sums = [_combine(writer, x, state, f"{t}_{i}", hidden) for i in range(8)]
        state = _cell(writer, sums, "state" if t == steps - 1 else None)
    return writer.model({state: (batch, hidden)})


def _combine(writer: GraphWriter, x: str, state: str, name: str, hidden: int) -> str:
    of_x = writer.op("MatMul", x, writer.weight(f"input_{name}", (hidden, hidden)))
    of_state = writer.op("MatMul", state, writer.weight(f"recurrent_{name}", (hidden, hidden)))
    return writer.op("Add", of_x, of_state)


def _cell(writer: GraphWriter, sums: list[str], name: str | None) -> str:
    """The tree of the searched cell over its eight sums."""
    relu, sigmoid, tanh = (partial(writer.op, kind) for kind in ("Relu", "Sigmoid", "Tanh"))
    first = writer.op("Add", relu(sums[0]), sigmoid(sums[3]))
    second = writer.op("Add", sigmoid(sums[1]), tanh(sums[2]))
    third = writer.op("Mul", sigmoid(sums[4]), tanh(sums[5]))
    fourth = writer.op("Mul", sigmoid(sums[6]), relu(sums[7]))
    left = writer.op("Add", sigmoid(second), tanh(third))
    right = writer.op("Mul", tanh(first), tanh(fourth))
    return writer.op("Tanh", writer.op("Mul", tanh(left), tanh(right)), name=name)
