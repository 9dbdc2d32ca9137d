"""Linear algebra: sums, diagonals, identities and blocks of matrices."""

from __future__ import annotations

import numpy as np

from benchmarks.expert.case import Maker, Pair, case
from eqsat import concat, conv, cumsum, expand, gather, reduce_mean, reduce_sum, relu, stack, tanh, trilu

_GROUP = "linear algebra"
_BOOK = "Petersen and Pedersen, The Matrix Cookbook"
_XLA = "XLA and MLIR: simplifications of dot products"


@case(_GROUP, "product of transposes", _BOOK)
def _(m: Maker) -> Pair:
    a, b = m.x(512, 256), m.x(256, 512)
    return (a @ b).transpose(1, 0) + (b.transpose(1, 0) @ a.transpose(1, 0)), (a @ b).transpose(1, 0) * 2.0


@case(_GROUP, "trace of a product of three", _BOOK)
def _(m: Maker) -> Pair:
    a, b, c = m.x(64, 256), m.x(256, 256), m.x(256, 64)
    eye = m.c(np.eye(64))
    return reduce_sum(((a @ b) @ c) * eye, [0, 1]), reduce_sum((a @ b) * c.transpose(1, 0), [0, 1])


@case(_GROUP, "diagonal matrix from the left", _XLA)
def _(m: Maker) -> Pair:
    d, a = m.x(256, 1), m.x(256, 512)
    return (d * m.c(np.eye(256))) @ a, d * a


@case(_GROUP, "diagonal matrix from the right", _XLA)
def _(m: Maker) -> Pair:
    a, d = m.x(512, 256), m.x(1, 256)
    return a @ (m.c(np.eye(256)) * d), a * d


@case(_GROUP, "identity matrix", _XLA)
def _(m: Maker) -> Pair:
    a = m.x(512, 256)
    return relu(a @ m.c(np.eye(256))), relu(a)


@case(_GROUP, "scaled identity matrix", _XLA)
def _(m: Maker) -> Pair:
    a = m.x(512, 256)
    return relu(a @ m.c(np.eye(256) * 3.0)), relu(a * 3.0)


@case(_GROUP, "identity added to a weight", "residual connections folded")
def _(m: Maker) -> Pair:
    x, w = m.x(256, 512), m.array(512, 512)
    return x @ m.c(w) + x, x @ m.c(w + np.eye(512))


@case(_GROUP, "residual and its scale folded", "residual connections folded")
def _(m: Maker) -> Pair:
    x, w = m.x(256, 512), m.array(512, 512)
    return (x @ m.c(w)) * 0.5 + x * 2.0, x @ m.c(0.5 * w + 2.0 * np.eye(512))


@case(_GROUP, "permutation matrix", _XLA)
def _(m: Maker) -> Pair:
    a = m.x(256, 512)
    order = np.roll(np.arange(256), 3)
    return m.c(np.eye(256)[order]) @ a, gather(a, m.c(order, "int64"))


@case(_GROUP, "product with a matrix of ones", _XLA)
def _(m: Maker) -> Pair:
    a = m.x(512, 512)
    return a @ m.c(np.ones((512, 1))), reduce_sum(a, 1, keepdims=True)


@case(_GROUP, "mean by a product", _XLA)
def _(m: Maker) -> Pair:
    a = m.x(512, 512)
    return a @ m.c(np.full((512, 1), 1 / 512)), reduce_mean(a, 1, keepdims=True)


@case(_GROUP, "centring matrix", "statistics")
def _(m: Maker) -> Pair:
    a = m.x(256, 512)
    return m.c(np.eye(256) - 1 / 256) @ a, a - reduce_mean(a, 0, keepdims=True)


@case(_GROUP, "product with zeros", _XLA)
def _(m: Maker) -> Pair:
    a, y = m.x(512, 512), m.x(512, 512)
    return relu(a @ m.c(np.zeros((512, 512))) + y), relu(y)


@case(_GROUP, "outer product times a vector", _BOOK)
def _(m: Maker) -> Pair:
    u, v, x = m.x(512, 1), m.x(1, 512), m.x(512, 1)
    return (u @ v) @ x, u @ (v @ x)


@case(_GROUP, "outer product times a matrix", _BOOK)
def _(m: Maker) -> Pair:
    u, v, a = m.x(512, 1), m.x(1, 512), m.x(512, 512)
    return (u @ v) @ a, u @ (v @ a)


@case(_GROUP, "outer product by broadcast, then a product", _BOOK)
def _(m: Maker) -> Pair:
    u, v, a = m.x(512, 1), m.x(1, 512), m.x(512, 64)
    return (u * v) @ a, u * (v @ a)


@case(_GROUP, "rank-one update times a vector", _BOOK)
def _(m: Maker) -> Pair:
    a, u, v, x = m.x(512, 512), m.x(512, 1), m.x(1, 512), m.x(512, 1)
    return (a + u @ v) @ x, a @ x + u @ (v @ x)


@case(_GROUP, "matrix times two vectors", _BOOK)
def _(m: Maker) -> Pair:
    a, x, y = m.x(512, 512), m.x(512, 1), m.x(512, 1)
    return a @ x + a @ y, a @ (x + y)


@case(_GROUP, "quadratic form by a product of matrices", _BOOK)
def _(m: Maker) -> Pair:
    a, x = m.x(256, 256), m.x(64, 256)
    given = reduce_sum(((x @ a) @ x.transpose(1, 0)) * m.c(np.eye(64)), 1)
    return given, reduce_sum((x @ a) * x, 1)


@case(_GROUP, "scale of rows after a product", _BOOK)
def _(m: Maker) -> Pair:
    a, b, s = m.x(512, 256), m.x(256, 512), m.x(512, 1)
    return (a @ b) * s, (a * s) @ b


@case(_GROUP, "scale of columns after a product with a weight", _BOOK)
def _(m: Maker) -> Pair:
    x, w, s = m.x(512, 256), m.w(256, 512), m.w(512)
    return (x @ w) * s, x @ (w * s)


@case(_GROUP, "scale of columns before a product with a weight", _BOOK)
def _(m: Maker) -> Pair:
    x, w, s = m.x(512, 256), m.array(256, 512), m.array(256)
    return (x * m.c(s)) @ m.c(w), x @ m.c(s[:, None] * w)


@case(_GROUP, "shift before a product with a weight", _BOOK)
def _(m: Maker) -> Pair:
    x, w, b = m.x(512, 256), m.array(256, 64), m.array(256)
    return (x + m.c(b)) @ m.c(w), x @ m.c(w) + m.c(b @ w)


@case(_GROUP, "two biases around a product", _BOOK)
def _(m: Maker) -> Pair:
    x, w, b, c = m.x(512, 256), m.array(256, 64), m.array(256), m.array(64)
    return (x + m.c(b)) @ m.c(w) + m.c(c), x @ m.c(w) + m.c(b @ w + c)


@case(_GROUP, "two linear layers without an activation", "factorised layers")
def _(m: Maker) -> Pair:
    x, a, b, c, d = m.x(512, 256), m.array(256, 256), m.array(256), m.array(256, 256), m.array(256)
    return (x @ m.c(a) + m.c(b)) @ m.c(c) + m.c(d), x @ m.c(a @ c) + m.c(b @ c + d)


@case(_GROUP, "squared distances by broadcast", "Euclidean distance matrices")
def _(m: Maker) -> Pair:
    x, y = m.x(128, 64), m.x(128, 64)
    d = x.reshape(128, 1, 64) - y
    squares = reduce_sum(x * x, 1, keepdims=True) + reduce_sum(y * y, 1)
    return reduce_sum(d * d, 2), squares - (x @ y.transpose(1, 0)) * 2.0


@case(_GROUP, "products by broadcast and sum", _XLA)
def _(m: Maker) -> Pair:
    a, b = m.x(64, 1, 128), m.x(64, 128)
    return reduce_sum(a * b, 2), a.reshape(64, 128) @ b.transpose(1, 0)


@case(_GROUP, "product with a vector by broadcast and sum", _XLA)
def _(m: Maker) -> Pair:
    a, x = m.x(512, 512), m.x(512)
    return reduce_sum(a * x, 1), (a @ x.reshape(512, 1)).reshape(512)


@case(_GROUP, "running sums by a triangle", _XLA)
def _(m: Maker) -> Pair:
    a = m.x(512, 64)
    return m.c(np.tril(np.ones((512, 512)))) @ a, cumsum(a, axis=0)


@case(_GROUP, "constant of two blocks", "grouped linear layers")
def _(m: Maker) -> Pair:
    x, a, b = m.x(512, 512), m.array(256, 256), m.array(256, 256)
    zeros = np.zeros((256, 256))
    blocks = m.c(np.block([[a, zeros], [zeros, b]]))
    return x @ blocks, concat([x[:, :256] @ m.c(a), x[:, 256:] @ m.c(b)], axis=1)


@case(_GROUP, "convolution whose groups are written as zeros", "grouped convolutions")
def _(m: Maker) -> Pair:
    x, a, b = m.x(1, 64, 28, 28), m.array(32, 32, 3, 3), m.array(32, 32, 3, 3)
    w = np.zeros((64, 64, 3, 3), np.float32)
    w[:32, :32], w[32:, 32:] = a, b
    return conv(x, m.c(w), pads=1), conv(x, m.c(np.concatenate([a, b])), pads=1, group=2)


@case(_GROUP, "batch of products with one weight", _XLA)
def _(m: Maker) -> Pair:
    x, w = [m.x(64, 256) for _ in range(4)], m.x(256, 256)
    y = concat(x, axis=0) @ w
    return tuple(tanh(one @ w) for one in x), tuple(tanh(y[64 * n : 64 * n + 64]) for n in range(4))


@case(_GROUP, "products joined", _XLA)
def _(m: Maker) -> Pair:
    x, w = m.x(128, 256), [m.w(256, 64) for _ in range(4)]
    return concat([x @ one for one in w], axis=1), x @ concat(w, axis=1)


@case(_GROUP, "sum of products of parts", _XLA)
def _(m: Maker) -> Pair:
    x, w = m.x(128, 512), m.array(512, 256)
    return x[:, :256] @ m.c(w[:256]) + x[:, 256:] @ m.c(w[256:]), x @ m.c(w)


@case(_GROUP, "a weight expanded over the batch", _XLA)
def _(m: Maker) -> Pair:
    x, w = m.x(8, 64, 256), m.x(1, 256, 256)
    return x @ expand(w, shape=(8, 256, 256)), x @ w


@case(_GROUP, "rows that are equal", _XLA)
def _(m: Maker) -> Pair:
    x, w = m.x(1, 256), m.w(256, 256)
    return tanh(expand(x, shape=(128, 256)) @ w), expand(tanh(x @ w), shape=(128, 256))


@case(_GROUP, "sum over the batch of products", _BOOK)
def _(m: Maker) -> Pair:
    a, b = m.x(8, 128, 64), m.x(8, 64, 128)
    joined = a.transpose(1, 0, 2).reshape(128, 512) @ b.reshape(512, 128)
    return reduce_sum(a @ b, 0), joined


@case(_GROUP, "column sums of a product", _BOOK)
def _(m: Maker) -> Pair:
    a, b = m.x(512, 256), m.x(256, 512)
    return reduce_sum(a @ b, 0), (reduce_sum(a, 0, keepdims=True) @ b).reshape(512)


@case(_GROUP, "mean of rows of a linear layer", _BOOK)
def _(m: Maker) -> Pair:
    x, w, b = m.x(512, 256), m.w(256, 512), m.w(512)
    return reduce_mean(x @ w + b, 0), (reduce_mean(x, 0, keepdims=True) @ w).reshape(512) + b


@case(_GROUP, "Kronecker product times a vector", "the vec trick")
def _(m: Maker) -> Pair:
    a, b, x = m.x(32, 32), m.x(32, 32), m.x(1024, 1)
    kron = (a.reshape(32, 1, 32, 1) * b.reshape(1, 32, 1, 32)).reshape(1024, 1024)
    return kron @ x, ((a @ x.reshape(32, 32)) @ b.transpose(1, 0)).reshape(1024, 1)


@case(_GROUP, "covariance with the mean taken twice", "statistics")
def _(m: Maker) -> Pair:
    x = m.x(512, 64)
    centred = x - reduce_mean(x, 0, keepdims=True)
    again = centred - reduce_mean(centred, 0, keepdims=True)
    return again.transpose(1, 0) @ again, centred.transpose(1, 0) @ centred


@case(_GROUP, "difference of products with one matrix", _BOOK)
def _(m: Maker) -> Pair:
    a, b, c = m.x(256, 512), m.x(512, 256), m.x(512, 256)
    return a @ b - a @ c, a @ (b - c)


@case(_GROUP, "product, transposed, of a transpose", _BOOK)
def _(m: Maker) -> Pair:
    a, x = m.x(512, 512), m.x(512, 8)
    return (x.transpose(1, 0) @ a.transpose(1, 0)).transpose(1, 0), a @ x


@case(_GROUP, "mean squared error by parts", "statistics")
def _(m: Maker) -> Pair:
    x, y = m.x(512, 512), m.x(512, 512)
    d = x - y
    return reduce_mean(x * x - 2.0 * (x * y) + y * y, [0, 1]), reduce_mean(d * d, [0, 1])


@case(_GROUP, "scores of all pairs, one by one", "loops that were unrolled")
def _(m: Maker) -> Pair:
    x, w = m.x(8, 256), m.w(256, 64)
    return concat([x[n : n + 1] @ w for n in range(8)], axis=0), x @ w


@case(_GROUP, "products of a stack, one by one", "loops that were unrolled")
def _(m: Maker) -> Pair:
    a, b = m.x(4, 64, 128), m.x(4, 128, 64)
    return stack([a[n] @ b[n] for n in range(4)], axis=0), a @ b


@case(_GROUP, "triangle of a product, cut twice", _XLA)
def _(m: Maker) -> Pair:
    a, b = m.x(256, 256), m.x(256, 256)
    lower = trilu(trilu(a @ b, upper=False), upper=False)
    return relu(lower), relu(trilu(a @ b, upper=False))


@case(_GROUP, "sum of a transpose", _XLA)
def _(m: Maker) -> Pair:
    a, y = m.x(512, 256), m.x(512)
    return reduce_sum(a.transpose(1, 0), 0) + y, reduce_sum(a, 1) + y


@case(_GROUP, "sum of a sum", _XLA)
def _(m: Maker) -> Pair:
    a = m.x(64, 128, 128)
    return reduce_sum(reduce_sum(a, 2), 1), reduce_sum(a, [1, 2])


@case(_GROUP, "sum of a scaled matrix", _BOOK)
def _(m: Maker) -> Pair:
    a, s = m.x(512, 512), m.x(512, 1)
    return reduce_sum(a * s, 1, keepdims=True), reduce_sum(a, 1, keepdims=True) * s


@case(_GROUP, "sum of a sum of matrices with a broadcast row", _BOOK)
def _(m: Maker) -> Pair:
    a, b = m.x(512, 512), m.x(1, 512)
    return reduce_sum(a + b, 0, keepdims=True), reduce_sum(a, 0, keepdims=True) + b * 512.0
