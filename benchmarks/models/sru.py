"""Networks of simple recurrent units (SRU; Lei et al., "Simple Recurrent Units for Highly Parallelizable
Recurrence").

    x̃ = x W        f = σ(x W_f + b_f)        r = σ(x W_r + b_r)
    c' = f ⊙ c + (1 − f) ⊙ x̃                 h = r ⊙ tanh(c') + (1 − r) ⊙ x

The graphs follow those that MetaFlow (Jia et al., SysML 2019) calls RNNTC and NMT: unrolled over time,
width 1024, one set of weights for all steps of a layer, and each step multiplying its own x by them.
MetaFlow's code writes f ⊙ c + f ⊙ x̃; here the gates are those of the SRU paper. No product depends on the
recurrence of its own layer, so all steps of an encoder layer can share one: that is the rewrite these
models are here for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import ModelProto

from benchmarks.models.builder import GraphWriter


@dataclass(frozen=True)
class _Layer:
    """The names of one layer's weights, shared by its steps."""

    candidate: str
    forget: str
    forget_bias: str
    reset: str
    reset_bias: str


def sru_text_classifier(
    batch: int = 1, seed: int = 0, *, steps: int = 20, hidden: int = 1024, classes: int = 5
) -> ModelProto:
    """RNNTC: one SRU layer over `steps` words, the mean of its outputs, a linear classifier.

    Input `x` is (steps, batch, hidden); step t takes its slice (1, batch, hidden). Output `logits` is
    (batch, classes).
    """
    writer = GraphWriter("sru_text_classifier", seed)
    x = writer.input("x", (steps, batch, hidden))
    layer = _layer(writer, "sru", hidden)
    one = writer.constant("one", np.array(1.0, np.float32))
    c = writer.bias("c_0", (1, batch, hidden))
    first_axis = writer.constant("first_axis", np.array([0], np.int64))
    bounds = [writer.constant(f"bound_{t}", np.array([t], np.int64)) for t in range(steps + 1)]
    outputs = []
    for t in range(steps):
        x_t = writer.op("Slice", x, bounds[t], bounds[t + 1], first_axis, name=f"x_{t}")
        c, h = _step(writer, layer, one, x_t, c)
        outputs.append(h)
    sequence = writer.op("Concat", *outputs, axis=0, name="h")
    pooled = writer.op("ReduceMean", sequence, axes=[0], keepdims=0, name="pooled")
    weight = writer.weight("classifier", (hidden, classes))
    writer.op("Gemm", pooled, weight, writer.bias("classifier_bias", (classes,)), name="logits")
    return writer.model({"logits": (batch, classes)})


def sru_translation(
    batch: int = 1,
    seed: int = 0,
    *,
    steps: int = 20,
    layers: int = 2,
    hidden: int = 1024,
    vocabulary: int = 1000,
) -> ModelProto:
    """NMT: an SRU encoder and an SRU decoder of `steps` steps each, attention over the encoder, a
    projection to words.

    The decoder's steps really are sequential: each takes the output of the one before, as in MetaFlow's
    graph. Attention is Luong's (dot product, softmax, tanh of a linear map of context and state).

    Input `source` is (steps, batch, hidden); output `words` is (steps, batch, vocabulary).
    """
    writer = GraphWriter("sru_translation", seed)
    source = writer.input("source", (steps, batch, hidden))
    one = writer.constant("one", np.array(1.0, np.float32))
    xs = []
    for t in range(steps):
        index = writer.constant(f"step_{t}", np.array(t, np.int64))
        xs.append(writer.op("Gather", source, index, axis=0, name=f"source_{t}"))
    encoder = [_layer(writer, f"encoder_{i}", hidden) for i in range(layers)]
    decoder = [_layer(writer, f"decoder_{i}", hidden) for i in range(layers)]
    cells = [writer.bias(f"c_{i}", (batch, hidden)) for i in range(layers)]
    encoded = []
    for x in xs:
        for i, layer in enumerate(encoder):
            cells[i], x = _step(writer, layer, one, x, cells[i])
        encoded.append(x)
    keys, values = _memory(writer, encoded)
    combine = writer.weight("combine", (2 * hidden, hidden))
    project = writer.weight("project", (hidden, vocabulary))
    project_bias = writer.bias("project_bias", (vocabulary,))
    x, words = encoded[-1], []
    for _ in range(steps):
        for i, layer in enumerate(decoder):
            cells[i], x = _step(writer, layer, one, x, cells[i])
        attended = _attend(writer, x, keys, values, combine)
        words.append(_unsqueeze_time(writer, writer.op("Gemm", attended, project, project_bias)))
    writer.op("Concat", *words, axis=0, name="words")
    return writer.model({"words": (steps, batch, vocabulary)})


def _layer(writer: GraphWriter, name: str, hidden: int) -> _Layer:
    return _Layer(
        candidate=writer.weight(f"{name}_candidate", (hidden, hidden)),
        forget=writer.weight(f"{name}_forget", (hidden, hidden)),
        forget_bias=writer.bias(f"{name}_forget_bias", (hidden,)),
        reset=writer.weight(f"{name}_reset", (hidden, hidden)),
        reset_bias=writer.bias(f"{name}_reset_bias", (hidden,)),
    )


def _step(writer: GraphWriter, layer: _Layer, one: str, x: str, c: str) -> tuple[str, str]:
    """One step of a layer: the new cell state and the output."""
    candidate = writer.op("MatMul", x, layer.candidate)
    forget = _gate(writer, x, layer.forget, layer.forget_bias)
    reset = _gate(writer, x, layer.reset, layer.reset_bias)
    c = _interpolate(writer, one, forget, c, candidate)
    return c, _interpolate(writer, one, reset, writer.op("Tanh", c), x)


def _gate(writer: GraphWriter, x: str, weight: str, bias: str) -> str:
    return writer.op("Sigmoid", writer.op("Add", writer.op("MatMul", x, weight), bias))


def _interpolate(writer: GraphWriter, one: str, gate: str, opened: str, closed: str) -> str:
    """Gate ⊙ opened + (1 − gate) ⊙ closed."""
    kept = writer.op("Mul", writer.op("Sub", one, gate), closed)
    return writer.op("Add", writer.op("Mul", gate, opened), kept)


def _memory(writer: GraphWriter, encoded: list[str]) -> tuple[str, str]:
    """What attention reads: keys (batch, hidden, steps) and values (batch, steps, hidden)."""
    sequence = writer.op("Concat", *[_unsqueeze_time(writer, h) for h in encoded], axis=0, name="encoded")
    keys = writer.op("Transpose", sequence, perm=[1, 2, 0], name="keys")
    return keys, writer.op("Transpose", sequence, perm=[1, 0, 2], name="values")


def _attend(writer: GraphWriter, state: str, keys: str, values: str, combine: str) -> str:
    """tanh([context, state] W), where the context is the encoder's outputs weighted by softmax(state ·
    keys)."""
    query = writer.op("Unsqueeze", state, _axis(writer, 1))
    weights = writer.op("Softmax", writer.op("MatMul", query, keys), axis=-1)
    context = writer.op("Squeeze", writer.op("MatMul", weights, values), _axis(writer, 1))
    return writer.op("Tanh", writer.op("MatMul", writer.op("Concat", context, state, axis=1), combine))


def _unsqueeze_time(writer: GraphWriter, x: str) -> str:
    return writer.op("Unsqueeze", x, _axis(writer, 0))


def _axis(writer: GraphWriter, axis: int) -> str:
    return writer.shared_constant(f"axis_{axis}", np.array([axis], np.int64))
