"""Operators that PyTorch has a word for, as functions of attributes, the shapes that are made, and operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.bench.words import Word, plain_words

#: What PyTorch calls functions of NumPy that it has under another name; its `equal` compares whole tensors.
_RENAMED = {"equal": "eq", "power": "pow"}
_REDUCTIONS = {"mean": "mean", "sum": "sum", "max": "amax", "min": "amin"}


def torch_words(torch: Any) -> Mapping[str, Word]:
    """The words by operator: each the function a person would call for it."""
    return _TorchWords(torch).found()


class _TorchWords:
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.functional = torch.nn.functional

    def found(self) -> dict[str, Word]:
        words = plain_words((self.torch,), _RENAMED)
        words |= {f"reduce_{name}": self._reduction(theirs) for name, theirs in _REDUCTIONS.items()}
        own = (n.removeprefix("op_") for n in dir(self) if n.startswith("op_"))
        return words | {name: getattr(self, f"op_{name}") for name in own}

    def _reduction(self, name: str) -> Word:
        function = getattr(self.torch, name)

        def reduce(attrs: Mapping[str, Any], _shapes: Sequence[Any], x: Any) -> Any:
            axes = attrs["axes"] if attrs["axes"] is not None else tuple(range(x.dim()))
            return function(x, dim=axes, keepdim=attrs["keepdims"]) if axes else x

        return reduce

    def op_div(self, _attrs: Any, _shapes: Any, a: Any, b: Any) -> Any:
        return a / b if a.is_floating_point() else self.torch.div(a, b, rounding_mode="trunc")

    def op_identity(self, _attrs: Any, _shapes: Any, x: Any) -> Any:
        return x

    def op_clip(self, _attrs: Any, _shapes: Any, x: Any, low: Any = None, high: Any = None) -> Any:
        return self.torch.clamp(x, low, high)

    def op_cast(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return x.to(dtype_of(self.torch, attrs["to"]))

    def op_gemm(self, attrs: Any, _shapes: Any, a: Any, b: Any, c: Any = None) -> Any:
        a = a.t() if attrs["trans_a"] else a
        b = b.t() if attrs["trans_b"] else b
        if c is not None:
            return self.torch.addmm(c, a, b, beta=attrs["beta"], alpha=attrs["alpha"])
        product = self.torch.mm(a, b)
        return product if attrs["alpha"] == 1.0 else product * attrs["alpha"]

    def op_conv(self, attrs: Any, _shapes: Any, x: Any, w: Any, b: Any = None) -> Any:
        spatial = x.dim() - 2
        strides, dilations = attrs["strides"] or (1,) * spatial, attrs["dilations"] or (1,) * spatial
        x, pads = self._padded(x, attrs["pads"] or (0,) * (2 * spatial))
        convolve = (self.torch.conv1d, self.torch.conv2d, self.torch.conv3d)[spatial - 1]
        convolved = convolve(x, w, b, strides, pads, dilations, attrs["group"])
        return self.torch.relu(convolved) if attrs["activation"] == "relu" else convolved

    def _padded(self, x: Any, pads: Sequence[int], value: float = 0.0) -> tuple[Any, tuple[int, ...]]:
        """The operand and the padding left for the window: the same on both sides, or applied here."""
        half = len(pads) // 2
        begin, end = tuple(pads[:half]), tuple(pads[half:])
        if begin == end:
            return x, begin
        pairs = [size for pair in zip(reversed(begin), reversed(end), strict=True) for size in pair]
        return self.functional.pad(x, pairs, value=value), (0,) * half

    def op_batch_norm(self, attrs: Any, _shapes: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
        return self.functional.batch_norm(x, mean, var, scale, bias, False, 0.0, attrs["epsilon"])

    def op_layer_norm(self, attrs: Any, _shapes: Any, x: Any, scale: Any, bias: Any = None) -> Any:
        trailing = tuple(x.shape[attrs["axis"] % x.dim() :])
        if tuple(scale.shape) != trailing:
            normal = self.functional.layer_norm(x, trailing, None, None, attrs["epsilon"]) * scale
            return normal if bias is None else normal + bias
        return self.functional.layer_norm(x, trailing, scale, bias, attrs["epsilon"])

    def op_rms_norm(self, attrs: Any, _shapes: Any, x: Any, scale: Any) -> Any:
        return self.functional.rms_norm(x, tuple(x.shape[attrs["axis"] % x.dim() :]), scale, attrs["epsilon"])

    def op_softmax(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.torch.softmax(x, attrs["axis"])

    def op_log_softmax(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.torch.log_softmax(x, attrs["axis"])

    def op_gelu(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.functional.gelu(x, approximate=attrs["approximate"])

    def op_silu(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.functional.silu(x) if attrs["alpha"] == 1.0 else x * self.torch.sigmoid(attrs["alpha"] * x)

    def op_leaky_relu(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.functional.leaky_relu(x, attrs["alpha"])

    def op_hard_swish(self, _attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.functional.hardswish(x)

    def op_hard_sigmoid(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return self.torch.clamp(attrs["alpha"] * x + attrs["beta"], 0.0, 1.0)

    def op_attention(self, attrs: Any, _shapes: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return self.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=attrs["causal"], scale=attrs["scale"], enable_gqa=True
        )

    def op_reshape(self, _attrs: Any, shapes: Any, x: Any) -> Any:
        return x.reshape(shapes[0])

    def op_expand(self, _attrs: Any, shapes: Any, x: Any) -> Any:
        return x.expand(shapes[0])

    def op_transpose(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        return x.permute(attrs["perm"])

    def op_concat(self, attrs: Any, _shapes: Any, *parts: Any) -> Any:
        return self.torch.cat(parts, attrs["axis"])

    def op_split(self, attrs: Any, shapes: Any, x: Any) -> Any:
        return self.torch.split(x, [shape[attrs["axis"]] for shape in shapes], attrs["axis"])

    def op_slice(self, attrs: Any, shapes: Any, x: Any) -> Any:
        steps = attrs["steps"] or (1,) * len(attrs["axes"])
        for axis, start, step in zip(attrs["axes"], attrs["starts"], steps, strict=True):
            size = shapes[0][axis]
            if step < 0:
                places = [start + step * i for i in range(size)]
                x = self.torch.index_select(x, axis, self.torch.tensor(places, device=x.device))
            else:
                x = x[(slice(None),) * axis + (slice(start, start + step * (size - 1) + 1 if size else start, step),)]
        return x

    def op_pad(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        half = x.dim()
        pads = attrs["pads"]
        pairs = [size for i in reversed(range(half)) for size in (pads[i], pads[half + i])]
        if attrs["mode"] == "constant":
            return self.functional.pad(x, pairs, value=attrs["value"])
        raise LookupError(f"pad by {attrs['mode']}")

    def op_gather(self, attrs: Any, shapes: Any, x: Any, indices: Any) -> Any:
        axis = attrs["axis"] % x.dim()
        if axis == 0 and x.dim() == 2:
            return self.functional.embedding(self._wrapped(indices, x.shape[0]), x)
        flat = self.torch.index_select(x, axis, self._wrapped(indices, x.shape[axis]).reshape(-1))
        return flat.reshape(shapes[0])

    def op_gather_elements(self, attrs: Any, _shapes: Any, x: Any, indices: Any) -> Any:
        return self.torch.gather(x, attrs["axis"], self._wrapped(indices, x.shape[attrs["axis"]]))

    def op_gather_nd(self, attrs: Any, _shapes: Any, x: Any, indices: Any) -> Any:
        if attrs["batch_dims"]:
            raise LookupError("gather_nd with batch dims")
        return x[tuple(indices.unbind(-1))]

    def _wrapped(self, indices: Any, size: int) -> Any:
        return self.torch.where(indices < 0, indices + size, indices)

    def op_max_pool(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        spatial = x.dim() - 2
        x, pads = self._padded(x, attrs["pads"] or (0,) * (2 * spatial), float("-inf"))
        pool = (self.functional.max_pool1d, self.functional.max_pool2d, self.functional.max_pool3d)[spatial - 1]
        strides, dilations = attrs["strides"] or (1,) * spatial, attrs["dilations"] or (1,) * spatial
        return pool(x, attrs["kernel"], strides, pads, dilations, attrs["ceil_mode"])

    def op_avg_pool(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        spatial = x.dim() - 2
        given = attrs["pads"] or (0,) * (2 * spatial)
        if any(d != 1 for d in attrs["dilations"] or ()):
            raise LookupError("avg_pool with dilations")
        pool = (self.functional.avg_pool1d, self.functional.avg_pool2d, self.functional.avg_pool3d)[spatial - 1]
        strides = attrs["strides"] or (1,) * spatial
        padded, pads = self._padded(x, given)
        pooled = pool(padded, attrs["kernel"], strides, pads, attrs["ceil_mode"], attrs["count_include_pad"])
        if padded is x or attrs["count_include_pad"]:
            return pooled
        ones, _ = self._padded(self.torch.ones_like(x), given)
        return pooled / pool(ones, attrs["kernel"], strides, pads, attrs["ceil_mode"], True)

    def op_global_avg_pool(self, _attrs: Any, _shapes: Any, x: Any) -> Any:
        return x.mean(tuple(range(2, x.dim())), keepdim=True)

    def op_global_max_pool(self, _attrs: Any, _shapes: Any, x: Any) -> Any:
        return x.amax(tuple(range(2, x.dim())), keepdim=True)

    def op_lrn(self, attrs: Any, _shapes: Any, x: Any) -> Any:
        if attrs["size"] % 2 == 0:
            raise LookupError("lrn over an even number of channels")
        return self.functional.local_response_norm(x, attrs["size"], attrs["alpha"], attrs["beta"], attrs["bias"])

    def op_fill(self, attrs: Any, shapes: Any) -> Any:
        return self.torch.full(shapes[0], attrs["value"], dtype=dtype_of(self.torch, attrs["dtype"]))


def dtype_of(torch: Any, name: str) -> Any:
    """PyTorch's element type of ours."""
    return getattr(torch, name)
