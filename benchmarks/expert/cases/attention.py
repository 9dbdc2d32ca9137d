"""Attention as exporters write it, and as one operator."""

from __future__ import annotations

import numpy as np

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import attention, concat, div, exp, expand, isnan, reduce_max, reduce_sum, softmax, sqrt, tanh, where

_GROUP = "attention"
_B, _H, _S, _D = 2, 8, 64, 32
_SCALE = _D**-0.5
_TORCH = "torch.onnx.export of scaled_dot_product_attention"


def _heads(m: Maker, count: int = 3, heads: int = _H) -> tuple[Tensor, ...]:
    return tuple(m.x(_B, heads, _S, _D) for _ in range(count))


def _turned(k: Tensor) -> Tensor:
    return k.transpose(0, 1, 3, 2)


@case(_GROUP, "scores divided by the root", "Vaswani et al., NeurIPS 2017")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    return softmax(q @ _turned(k) / float(np.sqrt(_D))) @ v, attention(q, k, v, scale=_SCALE)


@case(_GROUP, "queries scaled", "OpenNMT, fairseq")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    return softmax((q * _SCALE) @ _turned(k)) @ v, attention(q, k, v, scale=_SCALE)


@case(_GROUP, "queries and keys scaled by the fourth root", _TORCH)
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    half = float(np.sqrt(_SCALE))
    return softmax((q * half) @ (_turned(k) * half)) @ v, attention(q, k, v, scale=_SCALE)


@case(_GROUP, "a mask added", "BERT")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    mask = m.x(_B, 1, 1, _S)
    return softmax(q @ _turned(k) * _SCALE + mask) @ v, attention(q, k, v, mask, scale=_SCALE)


@case(_GROUP, "a mask of zeros and ones, made large", "BERT exports: (1 - mask) * -10000")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    mask = (1.0 - m.x(_B, 1, 1, _S)) * -10000.0
    return softmax(q @ _turned(k) / float(np.sqrt(_D)) + mask) @ v, attention(q, k, v, mask, scale=_SCALE)


@case(_GROUP, "a mask by choice", "Hugging Face: masked_fill")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    keep = m.x(_B, 1, 1, _S) > 0.0
    given = softmax(where(keep, q @ _turned(k) * _SCALE, -1e9)) @ v
    return given, attention(q, k, v, where(keep, 0.0, m.c(-1e9)), scale=_SCALE)


@case(_GROUP, "causal by a constant triangle", "GPT-2 exports")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    keep = m.c(np.tril(np.ones((_S, _S), bool)), bool)
    given = softmax(where(keep, q @ _turned(k) * _SCALE, m.c(-np.inf))) @ v
    return given, attention(q, k, v, scale=_SCALE, causal=True)


@case(_GROUP, "causal by a constant added", "nanoGPT exports")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    hidden = np.where(np.tril(np.ones((_S, _S), bool)), 0.0, -np.inf)
    return softmax(q @ _turned(k) * _SCALE + m.c(hidden)) @ v, attention(q, k, v, scale=_SCALE, causal=True)


@case(_GROUP, "softmax spelled out", "hand-written kernels")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    scores = q @ _turned(k) * _SCALE
    e = exp(scores - reduce_max(scores, 3, keepdims=True))
    return div(e, reduce_sum(e, 3, keepdims=True)) @ v, attention(q, k, v, scale=_SCALE)


@case(_GROUP, "divided after the second product", "FlashAttention, NeurIPS 2022")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    scores = q @ _turned(k) * _SCALE
    e = exp(scores - reduce_max(scores, 3, keepdims=True))
    return (e @ v) / reduce_sum(e, 3, keepdims=True), attention(q, k, v, scale=_SCALE)


@case(_GROUP, "keys and values of groups of heads repeated", "Llama: grouped-query attention")
def _(m: Maker) -> Pair:
    q, k, v = m.x(_B, _H, _S, _D), m.x(_B, 2, _S, _D), m.x(_B, 2, _S, _D)

    def repeated(t: Tensor) -> Tensor:
        wide = expand(t.reshape(_B, 2, 1, _S, _D), shape=(_B, 2, 4, _S, _D))
        return wide.reshape(_B, _H, _S, _D)

    return softmax(q @ _turned(repeated(k)) * _SCALE) @ repeated(v), attention(q, k, v, scale=_SCALE)


@case(_GROUP, "one head of keys for all", "multi-query attention, Shazeer 2019")
def _(m: Maker) -> Pair:
    q, k, v = m.x(_B, _H, _S, _D), m.x(_B, 1, _S, _D), m.x(_B, 1, _S, _D)
    return softmax(q @ _turned(k) * _SCALE) @ v, attention(q, k, v, scale=_SCALE)


@case(_GROUP, "heads in the batch", "fairseq: batched heads")
def _(m: Maker) -> Pair:
    q, k, v = (m.x(_B * _H, _S, _D) for _ in range(3))
    given = softmax((q * _SCALE) @ k.transpose(0, 2, 1)) @ v
    shape = (_B, _H, _S, _D)
    return given, attention(*(t.reshape(*shape) for t in (q, k, v)), scale=_SCALE).reshape(_B * _H, _S, _D)


@case(_GROUP, "whole layer of tokens", "ViT exports")
def _(m: Maker) -> Pair:
    x, w = m.x(_B, _S, _H * _D), [m.w(_H * _D, _H * _D) for _ in range(4)]

    def split(t: Tensor) -> Tensor:
        return t.reshape(_B, _S, _H, _D).transpose(0, 2, 1, 3)

    def merged(t: Tensor) -> Tensor:
        return t.transpose(0, 2, 1, 3).reshape(_B, _S, _H * _D)

    q, k, v = (split(x @ one) for one in w[:3])
    every = x @ concat(w[:3], axis=1)
    width = _H * _D
    parts = [split(every[:, :, n * width : (n + 1) * width]) for n in range(3)]
    given = merged(softmax(q @ _turned(k) * _SCALE) @ v) @ w[3]
    return given, merged(attention(*parts, scale=_SCALE)) @ w[3]


@case(_GROUP, "keys transposed by exporters in one step", "torch exports: transpose (0, 2, 3, 1) of the projection")
def _(m: Maker) -> Pair:
    q, k, v = (m.x(_B, _S, _H, _D) for _ in range(3))
    heads = (0, 2, 1, 3)
    given = softmax(q.transpose(*heads) @ k.transpose(0, 2, 3, 1) * _SCALE) @ v.transpose(*heads)
    return given, attention(*(t.transpose(*heads) for t in (q, k, v)), scale=_SCALE)


@case(_GROUP, "rows without a key made zero", "torch 2.13: isnan and where behind the softmax")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    mask = m.x(_B, 1, _S, _S)
    p = softmax(q @ _turned(k) * _SCALE + mask)
    given = where(isnan(p), 0.0, p) @ v
    return given, attention(q, k, v, mask, scale=_SCALE)


@case(_GROUP, "scores capped", "Gemma 2")
def _(m: Maker) -> Pair:
    q, k, v = _heads(m)
    capped = tanh((q * _SCALE) @ _turned(k) / 30.0) * 30.0
    return softmax(capped) @ v, softmax(tanh(q @ _turned(k) * (_SCALE / 30.0)) * 30.0) @ v


@case(_GROUP, "cached keys before new ones", "Llama exports: past and present")
def _(m: Maker) -> Pair:
    q, k, v = m.x(_B, _H, 1, _D), m.x(_B, _H, 1, _D), m.x(_B, _H, 1, _D)
    past_k, past_v = m.x(_B, _H, 63, _D), m.x(_B, _H, 63, _D)
    keys, values = concat([past_k, k], axis=2), concat([past_v, v], axis=2)
    return softmax(q @ _turned(keys) / sqrt(m.c(float(_D)))) @ values, attention(q, keys, values, scale=_SCALE)


@case(_GROUP, "a relative bias added, scaled before", "T5, Swin")
def _(m: Maker) -> Pair:
    q, k, v, bias = *_heads(m), m.w(1, _H, _S, _S)
    return softmax((q * _SCALE) @ _turned(k) + bias) @ v, attention(q, k, v, bias, scale=_SCALE)


@case(_GROUP, "two masks added one after the other", "Swin: a bias, then the mask of windows")
def _(m: Maker) -> Pair:
    q, k, v, bias = *_heads(m), m.w(1, _H, _S, _S)
    mask = m.x(_B, 1, _S, _S)
    return softmax((q @ _turned(k) * _SCALE + bias) + mask) @ v, attention(q, k, v, bias + mask, scale=_SCALE)
