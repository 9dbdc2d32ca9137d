"""Examples that papers on graph rewriting print."""

from __future__ import annotations

import numpy as np

from benchmarks.expert.case import Maker, Pair, case
from eqsat import (
    avg_pool,
    batch_norm,
    concat,
    conv,
    einsum,
    expand,
    gather,
    max_pool,
    one_hot,
    reduce_mean,
    reduce_sum,
    relu,
    sigmoid,
    split,
    tanh,
)

_GROUP = "published"


@case(_GROUP, "two products of one operand", "TASO, SOSP 2019")
def _(m: Maker) -> Pair:
    x, a, b = m.x(128, 512), m.w(512, 512), m.w(512, 512)
    y = x @ concat([a, b], axis=1)
    return (relu(x @ a), tanh(x @ b)), (relu(y[:, :512]), tanh(y[:, 512:]))


@case(_GROUP, "sum of two products of one operand", "TASO, SOSP 2019")
def _(m: Maker) -> Pair:
    x, a, b = m.x(128, 512), m.w(512, 512), m.w(512, 512)
    return x @ a + x @ b, x @ (a + b)


@case(_GROUP, "sum of products, as a recurrent cell has it", "TASO, SOSP 2019: NasRNN")
def _(m: Maker) -> Pair:
    x, h, a, b = m.x(1, 512), m.x(1, 512), m.w(512, 512), m.w(512, 512)
    return tanh(x @ a + h @ b), tanh(concat([x, h], axis=1) @ concat([a, b], axis=0))


@case(_GROUP, "product of products with a vector", "TASO, SOSP 2019: associativity")
def _(m: Maker) -> Pair:
    a, b, x = m.x(512, 512), m.x(512, 512), m.x(512, 1)
    return (a @ b) @ x, a @ (b @ x)


@case(_GROUP, "convolutions of 3 x 3 and 1 x 1 on one image", "MetaFlow, MLSys 2019: enlarged kernels")
def _(m: Maker) -> Pair:
    x, a, b = m.x(1, 64, 28, 28), m.array(64, 64, 3, 3), m.array(64, 64, 1, 1)
    both = np.concatenate([a, np.pad(b, ((0, 0), (0, 0), (1, 1), (1, 1)))])
    y = relu(conv(x, m.c(both), pads=1))
    return concat([relu(conv(x, m.c(a), pads=1)), relu(conv(x, m.c(b)))], axis=1), y


@case(_GROUP, "sum of convolutions of 3 x 3 and 1 x 1", "RepVGG, CVPR 2021")
def _(m: Maker) -> Pair:
    x, a, b = m.x(1, 64, 28, 28), m.array(64, 64, 3, 3), m.array(64, 64, 1, 1)
    one = a + np.pad(b, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return relu(conv(x, m.c(a), pads=1) + conv(x, m.c(b))), relu(conv(x, m.c(one), pads=1))


@case(_GROUP, "sum of convolutions of 3 x 3 and 1 x 1 and the image", "RepVGG, CVPR 2021")
def _(m: Maker) -> Pair:
    x, a, b = m.x(1, 64, 28, 28), m.array(64, 64, 3, 3), m.array(64, 64, 1, 1)
    one = a + np.pad(b + np.eye(64, dtype=np.float32)[:, :, None, None], ((0, 0), (0, 0), (1, 1), (1, 1)))
    return relu(conv(x, m.c(a), pads=1) + conv(x, m.c(b)) + x), relu(conv(x, m.c(one), pads=1))


@case(_GROUP, "two convolutions of one image", "TASO, SOSP 2019: Inception")
def _(m: Maker) -> Pair:
    x, a, b = m.x(1, 64, 28, 28), m.w(32, 64, 1, 1), m.w(32, 64, 1, 1)
    y = relu(conv(x, concat([a, b], axis=0)))
    return (relu(conv(x, a)), relu(conv(x, b))), (y[:, :32], y[:, 32:])


@case(_GROUP, "convolution, then scale and shift of channels", "TASO, SOSP 2019: batch normalisation folded")
def _(m: Maker) -> Pair:
    x, w = m.x(1, 32, 28, 28), m.array(32, 32, 3, 3)
    scale, bias, mean, variance = m.array(32), m.array(32), m.array(32), np.square(m.array(32)) + 1
    factor = scale / np.sqrt(variance + 1e-5)
    given = batch_norm(conv(x, m.c(w), pads=1), m.c(scale), m.c(bias), m.c(mean), m.c(variance))
    return given, conv(x, m.c(w * factor[:, None, None, None]), m.c(bias - mean * factor), pads=1)


@case(_GROUP, "groups of channels convolved apart", "ResNeXt, CVPR 2017")
def _(m: Maker) -> Pair:
    x, w = m.x(1, 64, 28, 28), [m.array(16, 16, 3, 3) for _ in range(4)]
    parts = split(x, 4, axis=1)
    given = concat([conv(part, m.c(one), pads=1) for part, one in zip(parts, w, strict=True)], axis=1)
    return given, conv(x, m.c(np.concatenate(w)), pads=1, group=4)


@case(_GROUP, "convolutions of two images by the same kernel", "PET, OSDI 2021: merged along the batch")
def _(m: Maker) -> Pair:
    x, y, w = m.x(1, 128, 14, 14), m.x(1, 128, 14, 14), m.w(128, 128, 3, 3)
    both = conv(concat([x, y], axis=0), w, pads=1)
    return (conv(x, w, pads=1), conv(y, w, pads=1)), (both[:1], both[1:])


@case(_GROUP, "product of a transposed product", "Tensat, MLSys 2021")
def _(m: Maker) -> Pair:
    a, b = m.x(256, 512), m.x(512, 256)
    return (b.transpose(1, 0) @ a.transpose(1, 0)).transpose(1, 0), a @ b


@case(_GROUP, "doubled and halved", "egg, POPL 2021")
def _(m: Maker) -> Pair:
    x = m.x(512, 512)
    return relu((x * 2.0) / 2.0), relu(x)


@case(_GROUP, "residual of an outer product times a vector, summed", "SPORES, VLDB 2020: alternating least squares")
def _(m: Maker) -> Pair:
    x, u, v = m.x(512, 512), m.x(512, 1), m.x(512, 1)
    vt = v.transpose(1, 0)
    given = reduce_sum((u @ vt - x) @ v, [0, 1], keepdims=True)
    ones = m.c(np.ones((1, 512)))
    return given, (ones @ u) @ (vt @ v) - (ones @ x) @ v


@case(_GROUP, "sum of a product", "SPORES, VLDB 2020: sum of a matrix product")
def _(m: Maker) -> Pair:
    a, b = m.x(256, 512), m.x(512, 256)
    return reduce_sum(a @ b, [0, 1]), reduce_sum(reduce_sum(a, 0) * reduce_sum(b, 1), 0)


@case(_GROUP, "sum weighed by an outer product", "SPORES, VLDB 2020")
def _(m: Maker) -> Pair:
    x, u, v = m.x(512, 512), m.x(512, 1), m.x(1, 512)
    return reduce_sum(x * (u @ v), [0, 1], keepdims=True), u.transpose(1, 0) @ (x @ v.transpose(1, 0))


@case(_GROUP, "row sums of a product", "SystemML, VLDB 2016")
def _(m: Maker) -> Pair:
    a, b = m.x(256, 512), m.x(512, 512)
    return reduce_sum(a @ b, 1, keepdims=True), a @ reduce_sum(b, 1, keepdims=True)


@case(_GROUP, "trace of a product", "SystemML, VLDB 2016")
def _(m: Maker) -> Pair:
    a, b = m.x(256, 256), m.x(256, 256)
    given = reduce_sum((a @ b) * m.c(np.eye(256)), [0, 1])
    return given, reduce_sum(a * b.transpose(1, 0), [0, 1])


@case(_GROUP, "attention without softmax", "Katharopoulos et al., ICML 2020: linear attention")
def _(m: Maker) -> Pair:
    q, k, v = m.x(8, 512, 64), m.x(8, 512, 64), m.x(8, 512, 64)
    return (q @ k.transpose(0, 2, 1)) @ v, q @ (k.transpose(0, 2, 1) @ v)


@case(_GROUP, "low-rank update merged into its weight", "LoRA, ICLR 2022")
def _(m: Maker) -> Pair:
    x, w, a, b = m.x(128, 512), m.w(512, 512), m.w(512, 8), m.w(8, 512)
    return x @ w + (x @ a) @ b * 0.5, x @ (w + a @ b * 0.5)


@case(_GROUP, "queries, keys and values of one input", "FasterTransformer: merged projections")
def _(m: Maker) -> Pair:
    x = m.x(128, 256)
    w, b = [m.w(256, 256) for _ in range(3)], [m.w(256) for _ in range(3)]
    y = x @ concat(w, axis=1) + concat(b, axis=0)
    given = tuple(x @ one + bias for one, bias in zip(w, b, strict=True))
    return given, (y[:, :256], y[:, 256:512], y[:, 512:])


@case(_GROUP, "scale before a convolution", "MetaFlow, MLSys 2019")
def _(m: Maker) -> Pair:
    x, w = m.x(1, 32, 56, 56), m.w(32, 32, 3, 3)
    return conv(x * 0.5, w, pads=1), conv(x, w * 0.5, pads=1)


@case(_GROUP, "two linear convolutions of 1 x 1", "ExpandNets, NeurIPS 2020")
def _(m: Maker) -> Pair:
    x, a, b = m.x(1, 32, 28, 28), m.array(128, 32, 1, 1), m.array(32, 128, 1, 1)
    one = (b[:, :, 0, 0] @ a[:, :, 0, 0])[:, :, None, None]
    return conv(conv(x, m.c(a)), m.c(b)), conv(x, m.c(one))


@case(_GROUP, "mean over tokens after a linear layer", "Tolstikhin et al., NeurIPS 2021: heads of mixers")
def _(m: Maker) -> Pair:
    x, w = m.x(8, 196, 512), m.w(512, 512)
    return reduce_mean(x @ w, 1), reduce_mean(x, 1) @ w


@case(_GROUP, "product with an expanded part", "PointNet, CVPR 2017: global features beside local ones")
def _(m: Maker) -> Pair:
    x, c, w = m.x(1024, 64), m.x(1, 512), m.array(576, 256)
    given = concat([x, expand(c, shape=(1024, 512))], axis=1) @ m.c(w)
    return given, x @ m.c(w[:64]) + c @ m.c(w[64:])


@case(_GROUP, "embedding, then a linear layer", "ALBERT, ICLR 2020: factorised embeddings")
def _(m: Maker) -> Pair:
    ids, table, w = m.x(128, dtype="int64"), m.w(64, 128), m.w(128, 512)
    return gather(table, ids) @ w, gather(table @ w, ids)


@case(_GROUP, "one-hot rows times a table", "XLA: one-hot products become gathers")
def _(m: Maker) -> Pair:
    ids, table = m.x(128, dtype="int64"), m.w(256, 256)
    rows = one_hot(ids, np.array([0.0, 1.0], np.float32), depth=256)
    return rows @ table, gather(table, ids)


@case(_GROUP, "highway gate", "Lei et al., EMNLP 2018: SRU")
def _(m: Maker) -> Pair:
    x, h, r = m.x(128, 512), m.x(128, 512), m.x(128, 512)
    g = sigmoid(r)
    return g * h + (1.0 - g) * x, x + g * (h - x)


@case(_GROUP, "mean pooling, then a convolution of 1 x 1", "TASO, SOSP 2019: pooling as convolution")
def _(m: Maker) -> Pair:
    x, w = m.x(1, 256, 28, 28), m.w(512, 256, 1, 1)
    pooled = {"kernel": (2, 2), "strides": (2, 2)}
    return avg_pool(conv(x, w), **pooled), conv(avg_pool(x, **pooled), w)


@case(_GROUP, "pooling of two images joined after", "Jia et al., TASO, appendix: concat and pooling")
def _(m: Maker) -> Pair:
    x, y = m.x(1, 64, 28, 28), m.x(1, 64, 28, 28)
    pooled = {"kernel": (2, 2), "strides": (2, 2)}
    return concat([max_pool(x, **pooled), max_pool(y, **pooled)], axis=1), max_pool(concat([x, y], axis=1), **pooled)


@case(_GROUP, "chain of three as index notation", "opt_einsum, JOSS 2018")
def _(m: Maker) -> Pair:
    a, b, c = m.x(256, 16), m.x(16, 256), m.x(256, 16)
    return einsum("ij,jk,kl->il", a, b, c), a @ (b @ c)
