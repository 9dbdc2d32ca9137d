"""Activations as frameworks spell them, and as one operator."""

from __future__ import annotations

import math
from collections.abc import Callable

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import (
    clip,
    concat,
    elu,
    erf,
    exp,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    log,
    log_softmax,
    maximum,
    minimum,
    mish,
    reciprocal,
    reduce_log_sum_exp,
    reduce_max,
    reduce_sum,
    relu,
    sigmoid,
    sign,
    silu,
    softmax,
    softplus,
    softsign,
    split,
    sqrt,
    tanh,
    where,
)

_GROUP = "spellings"


def _register(name: str, source: str, make: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
    @case(_GROUP, name, source)
    def _(m: Maker) -> Pair:
        return make(m.x(256, 1024))


_ROOT = math.sqrt(2.0)
_TANH = math.sqrt(2.0 / math.pi)

_register("gelu: x / 2 (1 + erf(x / sqrt 2))", "BERT", lambda x: (x * 0.5 * (1.0 + erf(x / _ROOT)), gelu(x)))
_register("gelu: x (1 + erf(x / sqrt 2)) / 2", "torch exports", lambda x: (x * (erf(x / _ROOT) + 1.0) * 0.5, gelu(x)))
_register("gelu: x times half of it", "TensorFlow", lambda x: (x * (0.5 * (1.0 + erf(x * (1 / _ROOT)))), gelu(x)))
_register("gelu: 0.5 + 0.5 erf", "JAX", lambda x: (x * (0.5 + 0.5 * erf(x / _ROOT)), gelu(x)))
_register(
    "gelu by tanh, cube by pow",
    "GPT-2 exports",
    lambda x: (0.5 * x * (1.0 + tanh(_TANH * (x + 0.044715 * x**3.0))), gelu(x, approximate="tanh")),
)
_register(
    "gelu by tanh, cube by products",
    "Megatron",
    lambda x: (x * 0.5 * (1.0 + tanh(_TANH * x * (1.0 + 0.044715 * x * x))), gelu(x, approximate="tanh")),
)
_register("silu: x sigmoid(x)", "torch exports", lambda x: (x * sigmoid(x), silu(x)))
_register("silu: x / (1 + exp(-x))", "llama.cpp", lambda x: (x / (1.0 + exp(-x)), silu(x)))
_register("silu by tanh", "hand-written", lambda x: (x * 0.5 * (1.0 + tanh(x * 0.5)), silu(x)))
_register("sigmoid: 1 / (1 + exp(-x))", "textbooks", lambda x: (1.0 / (1.0 + exp(-x)), sigmoid(x)))
_register("sigmoid: the reciprocal", "Keras exports", lambda x: (reciprocal(exp(-x) + 1.0), sigmoid(x)))
_register("sigmoid: exp(x) / (1 + exp(x))", "textbooks", lambda x: (exp(x) / (1.0 + exp(x)), sigmoid(x)))
_register("sigmoid by tanh", "textbooks", lambda x: (0.5 * tanh(0.5 * x) + 0.5, sigmoid(x)))
_register("tanh by sigmoid", "textbooks", lambda x: (2.0 * sigmoid(2.0 * x) - 1.0, tanh(x)))
_register("tanh by exponentials", "textbooks", lambda x: ((exp(x) - exp(-x)) / (exp(x) + exp(-x)), tanh(x)))
_register(
    "tanh: (exp(2 x) - 1) / (exp(2 x) + 1)",
    "textbooks",
    lambda x: ((exp(2.0 * x) - 1.0) / (exp(2.0 * x) + 1.0), tanh(x)),
)
_register("softplus: log(1 + exp(x))", "textbooks", lambda x: (log(1.0 + exp(x)), softplus(x)))
_register("softplus, stable", "Keras", lambda x: (maximum(x, 0.0) + log(1.0 + exp(-abs(x))), softplus(x)))
_register("mish: x tanh(softplus(x))", "YOLOv4", lambda x: (x * tanh(softplus(x)), mish(x)))
_register("mish, spelled out", "YOLOv4", lambda x: (x * tanh(log(1.0 + exp(x))), mish(x)))
_register("softsign: x / (1 + |x|)", "textbooks", lambda x: (x / (1.0 + abs(x)), softsign(x)))
_register("relu: max(x, 0)", "JAX", lambda x: (maximum(x, 0.0), relu(x)))
_register("relu: chosen", "hand-written", lambda x: (where(x > 0.0, x, 0.0), relu(x)))
_register("relu: (x + |x|) / 2", "hand-written", lambda x: ((x + abs(x)) * 0.5, relu(x)))
_register("relu by products with the condition", "hand-written", lambda x: (x * (x > 0.0).cast("float32"), relu(x)))
_register("relu by a clip", "ONNX from TensorFlow Lite", lambda x: (clip(x, 0.0, 3.4e38), relu(x)))
_register("relu of a relu", "carelessness", lambda x: (relu(relu(x) * 2.0), relu(x) * 2.0))
_register("relu6: min(max(x, 0), 6)", "MobileNet", lambda x: (minimum(relu(x), 6.0), clip(x, 0.0, 6.0)))
_register("relu6 of a relu", "MobileNet", lambda x: (clip(relu(x), 0.0, 6.0), clip(x, 0.0, 6.0)))
_register("leaky relu: max(x, a x)", "YOLO", lambda x: (maximum(x, 0.1 * x), leaky_relu(x, alpha=0.1)))
_register("leaky relu: chosen", "JAX", lambda x: (where(x >= 0.0, x, 0.1 * x), leaky_relu(x, alpha=0.1)))
_register(
    "leaky relu: relu(x) - a relu(-x)", "Caffe exports", lambda x: (relu(x) - 0.1 * relu(-x), leaky_relu(x, alpha=0.1))
)
_register("elu: chosen", "JAX", lambda x: (where(x > 0.0, x, exp(x) - 1.0), elu(x)))
_register("elu by parts", "Keras", lambda x: (relu(x) + minimum(exp(x) - 1.0, 0.0), elu(x)))
_register(
    "hard sigmoid: relu6(x + 3) / 6",
    "MobileNetV3",
    lambda x: (clip(x + 3.0, 0.0, 6.0) / 6.0, hard_sigmoid(x, alpha=1 / 6, beta=0.5)),
)
_register(
    "hard sigmoid: clip(x / 6 + 1 / 2)",
    "Keras",
    lambda x: (clip(x * (1 / 6) + 0.5, 0.0, 1.0), hard_sigmoid(x, alpha=1 / 6, beta=0.5)),
)
_register("hard swish: x relu6(x + 3) / 6", "MobileNetV3", lambda x: (x * clip(x + 3.0, 0.0, 6.0) / 6.0, hard_swish(x)))
_register(
    "hard swish: x times a sixth", "MobileNetV3", lambda x: (x * (clip(x + 3.0, 0.0, 6.0) * (1 / 6)), hard_swish(x))
)
_register(
    "hard swish by hard sigmoid", "MobileNetV3", lambda x: (x * hard_sigmoid(x, alpha=1 / 6, beta=0.5), hard_swish(x))
)
_register("absolute value: sign(x) x", "textbooks", lambda x: (sign(x) * x, abs(x)))
_register("absolute value: relu(x) + relu(-x)", "hand-written", lambda x: (relu(x) + relu(-x), abs(x)))
_register("absolute value: max(x, -x)", "hand-written", lambda x: (maximum(x, -x), abs(x)))
_register("squared relu", "Primer, NeurIPS 2021", lambda x: (relu(x) ** 2.0, relu(x) * relu(x)))
_register("square by pow", "exports", lambda x: (x**2.0 + 1.0, x * x + 1.0))
_register("root by pow", "exports", lambda x: ((x * x + 1.0) ** 0.5, sqrt(x * x + 1.0)))
_register("division by the root by pow", "exports", lambda x: (x * (x * x + 1.0) ** -0.5, x / sqrt(x * x + 1.0)))
_register("division by a constant", "exports", lambda x: (x / 8.0 + 1.0, x * 0.125 + 1.0))
_register("softmax by parts", "textbooks", lambda x: (exp(x) / reduce_sum(exp(x), 1, keepdims=True), softmax(x)))


def _stable(x: Tensor) -> Tensor:
    return exp(x - reduce_max(x, 1, keepdims=True))


_register(
    "softmax by stable parts",
    "textbooks",
    lambda x: (_stable(x) / reduce_sum(_stable(x), 1, keepdims=True), softmax(x)),
)
_register(
    "softmax by the reciprocal",
    "kernels",
    lambda x: (exp(x) * reciprocal(reduce_sum(exp(x), 1, keepdims=True)), softmax(x)),
)
_register("softmax of a shifted row", "textbooks", lambda x: (softmax(x - reduce_max(x, 1, keepdims=True)), softmax(x)))
_register("softmax of a row and a constant", "textbooks", lambda x: (softmax(x + 2.5), softmax(x)))
_register("logarithm of a softmax", "torch", lambda x: (log(softmax(x)), log_softmax(x)))
_register("exponential of a log-softmax", "torch", lambda x: (exp(log_softmax(x)), softmax(x)))
_register("log-softmax by the log of the sum", "JAX", lambda x: (x - reduce_log_sum_exp(x, axes=(1,)), log_softmax(x)))
_register(
    "log of the sum of exponentials",
    "textbooks",
    lambda x: (log(reduce_sum(exp(x), 1, keepdims=True)), reduce_log_sum_exp(x, axes=(1,))),
)
_register(
    "log of the sum, stable",
    "JAX",
    lambda x: (
        log(reduce_sum(_stable(x), 1, keepdims=True)) + reduce_max(x, 1, keepdims=True),
        reduce_log_sum_exp(x, axes=(1,)),
    ),
)


@case(_GROUP, "gated linear unit, products apart", "SwiGLU, Shazeer 2020")
def _(m: Maker) -> Pair:
    x, w, v = m.x(128, 512), m.w(512, 512), m.w(512, 512)
    y = x @ concat([w, v], axis=1)
    a, b = split(y, 2, axis=1)
    return (x @ w) * sigmoid(x @ w) * (x @ v), silu(a) * b


@case(_GROUP, "gated linear unit of one product", "GLU, Dauphin et al. 2017")
def _(m: Maker) -> Pair:
    x = m.x(256, 1024)
    a, b = x[:, :512], x[:, 512:]
    return a * (1.0 / (1.0 + exp(-b))), a * sigmoid(b)
