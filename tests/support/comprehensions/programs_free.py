"""Programs that are called with sizes that their kernels leave free."""

from __future__ import annotations

from typing import Any

import numpy as np

BATCHES = (1, 7, 32, 33, 128)
#: Programs, the sizes that are free, and the shapes of arguments for a batch.
PROGRAMS: dict[str, tuple[str, tuple[str, ...], Any]] = {
    "layer": (
        """def mlp1(float(B,M) I, float(N,M) W, float(N) bias) -> (O) {
             O(b,n) +=! I(b,m) * W(n,m)
             O(b,n) = fmax(O(b,n) + bias(n), 0) }""",
        ("B",),
        lambda n: [(n, 19), (21, 19), (21,)],
    ),
    "batched product": (
        "def tbmm(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }",
        ("B",),
        lambda n: [(n, 6, 5), (n, 9, 5)],
    ),
    "batched product, every size": (
        "def tbmm(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }",
        ("B", "N", "M", "K"),
        lambda n: [(1 + n % 3, n, 1 + n % 5), (1 + n % 3, 1 + n % 7, 1 + n % 5)],
    ),
    "grouped convolution": (
        """def conv(float(B,G,C,H,W) x, float(G,F,C,P,Q) w) -> (y) {
             y(b,g,f,i,j) +=! x(b,g,c,i + p,j + q) * w(g,f,c,p,q) }""",
        ("B", "W"),
        lambda n: [(n, 2, 2, 5, 3 + n % 9), (2, 3, 2, 3, 3)],
    ),
    "pooling in steps": (
        "def pool(float(B,H) x) -> (y) { y(b,i) max=! x(b,2 * i + a) where a in 0:2 }",
        ("B", "H"),
        lambda n: [(3, n + 1)],
    ),
    "pooling over as many windows as a quotient says": (
        "def pool(float(B,H) x) -> (y) { y(b,i) max=! x(b,2 * i + a) where a in 0:3, i in 0:(H - 3) / 2 + 1 }",
        ("B", "H"),
        lambda n: [(3, n + 2)],
    ),
    "softmax by rows": (
        """def softmax(float(B,D) x) -> (y) {
             most(b) max=! x(b,d)
             e(b,d) = exp(x(b,d) - most(b))
             total(b) +=! e(b,d)
             y(b,d) = e(b,d) / total(b) }""",
        ("B",),
        lambda n: [(n, 21)],
    ),
    "softmax along the free axis": (
        """def softmax(float(B,D) x) -> (y) {
             most(b) max=! x(b,d)
             e(b,d) = exp(x(b,d) - most(b))
             total(b) +=! e(b,d)
             y(b,d) = e(b,d) / total(b) }""",
        ("D",),
        lambda n: [(5, n)],
    ),
    "mean, whose size is a number too": (
        "def mean(float(B,D) x) -> (y) { s(d) +=! x(b,d) y(d) = s(d) / B }",
        ("B",),
        lambda n: [(n, 11)],
    ),
    "padding": (
        "def pad(float(N) x) -> (y) { y(i) = i > 0 && i <= N ? x(i - 1) : 0 where i in 0:N + 2 }",
        ("N",),
        lambda n: [(n,)],
    ),
    "differences of neighbours": (
        "def differences(float(N) x) -> (d) { d(i) = x(i + 1) - x(i) }",
        ("N",),
        lambda n: [(n + 1,)],
    ),
    "backwards": (
        "def backwards(float(N,K) x) -> (y) { y(i,k) = x(N - 1 - i,k) where i in 0:N }",
        ("N",),
        lambda n: [(n, 3)],
    ),
}  # fmt: skip


def drawn(shapes: list[tuple[int, ...]]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
