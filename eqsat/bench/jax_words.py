"""Operators that JAX has a word for, as functions of attributes, the shapes that are made, and operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.bench.words import Word, plain_words


def jax_words(jax: Any) -> Mapping[str, Word]:
    """The words by operator: each the function a person would call for it."""
    return _JaxWords(jax).found()


class _JaxWords:
    def __init__(self, jax: Any) -> None:
        self.jax, self.jnp, self.lax = jax, jax.numpy, jax.lax

    def found(self) -> dict[str, Word]:
        jnp = self.jnp
        words = plain_words((jnp, self.jax.nn, self.lax), {})
        words |= {f"reduce_{name}": self._reduction(getattr(jnp, name)) for name in ("mean", "sum", "max", "min")}
        own = (n.removeprefix("op_") for n in dir(self) if n.startswith("op_"))
        return words | {name: getattr(self, f"op_{name}") for name in own}

    def _reduction(self, function: Callable[..., Any]) -> Word:
        def reduce(attrs: Mapping[str, Any], _shapes: Sequence[Any], x: Any) -> Any:
            return function(x, axis=attrs["axes"], keepdims=attrs["keepdims"])

        return reduce

    def op_identity(self, _attrs: Any, _shapes: Any, x: Any) -> Any:
        return x

    def op_div(self, _attrs: Any, _shapes: Any, a: Any, b: Any) -> Any:
        # The quotient of integers is rounded toward zero.
        return self.lax.div(*self.jnp.broadcast_arrays(a, b))

    def op_clip(self, _attrs: Any, _shapes: Any, x: Any, low: Any = None, high: Any = None) -> Any:
        return self.jnp.clip(x, low, high)

    def op_cast(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return x.astype(attrs["to"])

    def op_gemm(self, attrs: Any, _shapes: Any, a: Any, b: Any, c: Any = None) -> Any:
        product = self.jnp.matmul(a.T if attrs["trans_a"] else a, b.T if attrs["trans_b"] else b)
        product = product if attrs["alpha"] == 1.0 else product * attrs["alpha"]
        return product if c is None else product + (c if attrs["beta"] == 1.0 else c * attrs["beta"])

    def op_conv(self, attrs: Any, _shapes: Any, x: Any, w: Any, b: Any = None) -> Any:
        spatial = x.ndim - 2
        plane = "HWD"[:spatial]
        convolved = self.lax.conv_general_dilated(
            x,
            w,
            attrs["strides"] or (1,) * spatial,
            _pairs(attrs["pads"] or (0,) * (2 * spatial)),
            rhs_dilation=attrs["dilations"] or (1,) * spatial,
            dimension_numbers=(f"NC{plane}", f"OI{plane}", f"NC{plane}"),
            feature_group_count=attrs["group"],
        )
        convolved = convolved if b is None else convolved + self._channels(b, x.ndim)
        return self.jax.nn.relu(convolved) if attrs["activation"] == "relu" else convolved

    def _channels(self, vector: Any, rank: int) -> Any:
        return vector.reshape((1, -1) + (1,) * (rank - 2))

    def op_batch_norm(self, attrs: Any, _shapes: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
        factor = scale * self.lax.rsqrt(var + attrs["epsilon"])
        return (x - self._channels(mean, x.ndim)) * self._channels(factor, x.ndim) + self._channels(bias, x.ndim)

    def _normalised(self, x: Any, axis: int, epsilon: float, *, centred: bool) -> Any:
        """Sums in float32, as the other frameworks keep them."""
        axes = tuple(range(axis % x.ndim, x.ndim))
        wide = x.astype("float32") if x.dtype.itemsize == 2 else x
        wide = wide - self.jnp.mean(wide, axes, keepdims=True) if centred else wide
        normal = wide * self.lax.rsqrt(self.jnp.mean(wide * wide, axes, keepdims=True) + epsilon)
        return normal.astype(x.dtype)

    def op_layer_norm(self, attrs: Any, _shapes: Any, x: Any, scale: Any, bias: Any = None) -> Any:
        normal = self._normalised(x, attrs["axis"], attrs["epsilon"], centred=True) * scale
        return normal if bias is None else normal + bias

    def op_rms_norm(self, attrs: Any, _shapes: Any, x: Any, scale: Any) -> Any:
        return self._normalised(x, attrs["axis"], attrs["epsilon"], centred=False) * scale

    def op_softmax(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.jax.nn.softmax(x, attrs["axis"])

    def op_log_softmax(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.jax.nn.log_softmax(x, attrs["axis"])

    def op_gelu(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.jax.nn.gelu(x, approximate=attrs["approximate"] == "tanh")

    def op_silu(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return x * self.jax.nn.sigmoid(attrs["alpha"] * x)

    def op_leaky_relu(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.jax.nn.leaky_relu(x, attrs["alpha"])

    def op_hard_sigmoid(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.jnp.clip(attrs["alpha"] * x + attrs["beta"], 0.0, 1.0)

    def op_reshape(self, _attrs: Any, shapes: Any, x: Any) -> Any:
        return x.reshape(shapes[0])

    def op_expand(self, _attrs: Any, shapes: Any, x: Any) -> Any:
        return self.jnp.broadcast_to(x, shapes[0])

    def op_transpose(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.jnp.transpose(x, attrs["perm"])

    def op_concat(self, attrs: Any, _shapes: Any, *parts: Any) -> Any:
        return self.jnp.concatenate(parts, attrs["axis"])

    def op_split(self, attrs: Any, shapes: Any, x: Any) -> Any:
        axis, places, total = attrs["axis"], [], 0
        for shape in shapes[:-1]:
            total += shape[axis]
            places.append(total)
        return tuple(self.jnp.split(x, places, axis))

    def op_slice(self, attrs: Any, shapes: Any, x: Any) -> Any:
        steps = attrs["steps"] or (1,) * len(attrs["axes"])
        for axis, start, step in zip(attrs["axes"], attrs["starts"], steps, strict=True):
            size = shapes[0][axis]
            end = start + step * size
            x = x[(slice(None),) * axis + (slice(start, None if end < 0 else end, step),)]
        return x

    def op_pad(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        if attrs["mode"] != "constant":
            raise LookupError(f"pad by {attrs['mode']}")
        return self.jnp.pad(x, _pairs(attrs["pads"]), constant_values=attrs["value"])

    def op_gather(self, attrs: Any, _shapes: Any, x: Any, indices: Any) -> Any:
        return self.jnp.take(x, indices, axis=attrs["axis"], mode="wrap")

    def op_gather_elements(self, attrs: Any, _shapes: Any, x: Any, indices: Any) -> Any:
        return self.jnp.take_along_axis(x, indices, attrs["axis"], mode="promise_in_bounds")

    def op_gather_nd(self, attrs: Any, _shapes: Any, x: Any, indices: Any) -> Any:
        if attrs["batch_dims"]:
            raise LookupError("gather_nd with batch dims")
        return x[tuple(indices[..., i] for i in range(indices.shape[-1]))]

    def _pooled(self, attrs: Any, shape: Sequence[int], x: Any, start: float, function: Any) -> Any:
        spatial = x.ndim - 2
        kernel, strides = attrs["kernel"], attrs["strides"] or (1,) * spatial
        dilations = attrs["dilations"] or (1,) * spatial
        pads = list(_pairs(attrs["pads"] or (0,) * (2 * spatial)))
        for i in range(spatial):
            # A last window that is cut off reads beyond the end.
            reach = (shape[2 + i] - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1
            pads[i] = (pads[i][0], max(reach - x.shape[2 + i] - pads[i][0], 0))
        full = ((0, 0), (0, 0), *pads)
        ends = (1, 1)
        initial = self.jnp.asarray(start, x.dtype)
        return self.lax.reduce_window(
            x, initial, function, (*ends, *kernel), (*ends, *strides), full, window_dilation=(*ends, *dilations)
        )

    def op_max_pool(self, attrs: Any, shapes: Any, x: Any) -> Any:
        return self._pooled(attrs, shapes[0], x, -math.inf, self.lax.max)

    def op_avg_pool(self, attrs: Any, shapes: Any, x: Any) -> Any:
        total = self._pooled(attrs, shapes[0], x, 0.0, self.lax.add)
        if attrs["count_include_pad"] and not attrs["ceil_mode"]:
            return total / math.prod(attrs["kernel"])
        if attrs["count_include_pad"]:
            raise LookupError("avg_pool that counts pads and rounds up")
        return total / self.jnp.asarray(_counts(attrs, x.shape, shapes[0]), x.dtype)

    def op_global_avg_pool(self, _attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.jnp.mean(x, tuple(range(2, x.ndim)), keepdims=True)

    def op_global_max_pool(self, _attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.jnp.max(x, tuple(range(2, x.ndim)), keepdims=True)

    def op_lrn(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        size = attrs["size"]
        window = (1, size, *(1,) * (x.ndim - 2))
        pads = ((0, 0), ((size - 1) // 2, size // 2), *((0, 0),) * (x.ndim - 2))
        zero = self.jnp.zeros((), x.dtype)
        squares = self.lax.reduce_window(x * x, zero, self.lax.add, window, (1,) * x.ndim, pads)
        return x / (attrs["bias"] + attrs["alpha"] / size * squares) ** attrs["beta"]

    def op_fill(self, attrs: Any, shapes: Any) -> Any:
        return self.jnp.full(shapes[0], attrs["value"], attrs["dtype"])


def _counts(attrs: Mapping[str, Any], given: Sequence[int], results: Sequence[int]) -> Any:
    """The number of elements of each window that are not pads: a product over the axes of the plane."""
    counts: Any = np.ones((1, 1))
    for i, (size, windows) in enumerate(zip(given[2:], results[2:], strict=True)):
        step, dilation = (attrs[name][i] if attrs[name] else 1 for name in ("strides", "dilations"))
        begin = attrs["pads"][i] if attrs["pads"] else 0
        places = np.arange(windows)[:, None] * step - begin + np.arange(attrs["kernel"][i]) * dilation
        counts = counts[..., None] * ((places >= 0) & (places < size)).sum(axis=1)
    return counts


def _pairs(pads: Sequence[int]) -> tuple[tuple[int, int], ...]:
    half = len(pads) // 2
    return tuple(zip(pads[:half], pads[half:], strict=True))
