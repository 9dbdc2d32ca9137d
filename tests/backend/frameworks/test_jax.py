"""Functions and modules of JAX and Flax, exported by jax2onnx."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax2onnx = pytest.importorskip("jax2onnx", reason="jax2onnx is not installed: make test-frameworks")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from flax import linen, nnx  # noqa: E402

import eqsat  # noqa: E402
from eqsat.errors import ImportModelError  # noqa: E402

WEIGHTS = [np.asarray(jax.random.normal(jax.random.PRNGKey(i), (64, 64))) / 8 for i in range(3)]


def mlp(x: Any) -> Any:
    for w in WEIGHTS:
        x = jax.nn.relu(x @ w)
    return x


def attention(x: Any) -> Any:
    heads = ((x @ w).reshape(*x.shape[:2], 4, 16).transpose(0, 2, 1, 3) for w in WEIGHTS)
    q, k, v = heads
    return jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / 4.0, axis=-1) @ v


def recurrence(x: Any) -> Any:
    return jax.lax.scan(lambda state, step: (jnp.tanh(state + step), state * step), jnp.zeros(8), x)[1]


class Convolutions(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.first, self.second = nnx.Conv(3, 8, (3, 3), rngs=rngs), nnx.Conv(8, 16, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
        self.head = nnx.Linear(16 * 8 * 8, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.norm(self.first(x)))
        x = nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nnx.max_pool(nnx.relu(self.second(x)), window_shape=(2, 2), strides=(2, 2))
        return self.head(x.reshape(x.shape[0], -1))


class Block(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.norm, self.mix = nnx.LayerNorm(64, rngs=rngs), nnx.MultiHeadAttention(4, 64, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(64, 128, rngs=rngs), nnx.Linear(128, 64, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.mix(self.norm(x))
        return x + self.down(nnx.gelu(self.up(x)))


MODELS: dict[str, tuple[Callable[[], Callable], tuple[int, ...]]] = {
    "mlp": (lambda: mlp, (4, 64)),
    "convolutions": (Convolutions, (2, 32, 32, 3)),
    "attention": (lambda: attention, (2, 16, 64)),
    "block": (Block, (2, 16, 64)),
    "recurrence": (lambda: recurrence, (12, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_jax_and_its_result_agree(name: str) -> None:
    build, shape = MODELS[name]
    function = build()
    model = jax2onnx.to_onnx(function, [shape])
    result = eqsat.optimize(model, measure=False, time_limit=20.0)
    assert not result.report.failure
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (y,) = result.run(in_0=x).values()
    np.testing.assert_allclose(y, np.asarray(function(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (jax.jit(mlp), "of JAX is not read as it is"),
        (Block(), "a Block of Flax"),
        (linen.Dense(3), "a Dense of Flax"),
        (mlp, "a function is no model"),
    ],
    ids=["jit", "nnx", "linen", "function"],
)
def test_a_model_of_jax_is_refused_with_the_way_to_onnx(model: Any, words: str) -> None:
    with pytest.raises(ImportModelError, match=rf"{words}[\s\S]*jax2onnx\.to_onnx\(function, inputs\)"):
        eqsat.optimize(model, np.ones((4, 64), np.float32))
