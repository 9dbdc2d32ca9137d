"""Programs at sizes that are no multiples of tiles, of the forms that kernels for a GPU have."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.comprehensions.comprehension_cases import Right, below, right


def _convolved(i: Any, w: Any) -> Any:
    height, width = (i.shape[axis] - w.shape[axis] + 1 for axis in (3, 4))
    total = np.zeros((*i.shape[:2], w.shape[1], height, width), i.dtype)
    for y, x in np.ndindex(w.shape[3:]):
        total += np.einsum("ngchw,gfc->ngfhw", i[..., y : y + height, x : x + width], w[..., y, x])
    return total


def _softmax(x: Any) -> Any:
    top = x.max(1)
    powers = np.exp(x - top[:, None])
    total = powers.sum(1)
    return top, total, powers / total[:, None]


def _flipped(i: Any, w: Any) -> Any:
    at = np.arange(17)
    return sum(np.einsum("xc,fc->fx", i[2 * at + 7 - k], w[:, :, k]) for k in range(w.shape[2]))


MATMUL = right("def mm(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }", np.matmul, M=70, N=90, K=50)
TBMM = right(
    "def tbmm(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }",
    lambda x, y: np.einsum("bnm,bkm->bnk", x, y),
    B=3, N=26, M=35, K=33,
)  # fmt: skip
GROUPED = right(
    "def grouped(float(N,G,C,H,W) I, float(G,F,C,KH,KW) W1) -> (O) "
    "{ O(n,g,f,h,w) +=! I(n,g,r_c,h + r_kh,w + r_kw) * W1(g,f,r_c,r_kh,r_kw) }",
    _convolved,
    N=2, G=2, C=3, H=12, W=21, F=5, KH=3, KW=3,
)  # fmt: skip
ROWS = right(
    "def rows(float(N,M) X) -> (m,s,Y) "
    "{ m(i) max=! X(i,j)  s(i) +=! exp(X(i,j) - m(i))  Y(i,j) = exp(X(i,j) - m(i)) / s(i) }",
    _softmax,
    N=7, M=300,
)  # fmt: skip
GATHER = right(
    "def gather(float(V,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }",
    lambda t, i: t[i].sum(1),
    given={"I": below(23)},
    V=23, D=40, B=9, L=6,
)  # fmt: skip
#: An output is read by the sum that updates it.
READ_BACK = right(
    "def read_back(float(M,K) A, float(K,N) B, float(M,N) D) -> (C) "
    "{ C(i,j) = D(i,j)  C(i,j) += A(i,k) * B(k,j) * C(i,j) }",
    lambda a, b, d: d + (a @ b) * d,
    M=21, N=37, K=19,
)  # fmt: skip
#: The rows that are read have numbers that the function itself computes.
COMPUTED_ROWS = right(
    "def computed_rows(float(M,K) A, float(K,N) B, int32(M) J) -> (C) "
    "{ I(i) = J(i) / 2  C(i,j) +=! A(I(i),k) * B(k,j) where i in 0:M }",
    lambda a, b, j: a[j // 2] @ b,
    given={"J": below(42)},
    M=21, N=37, K=19,
)  # fmt: skip
TILED: tuple[Right, ...] = (
    MATMUL,
    TBMM,
    GROUPED,
    ROWS,
    GATHER,
    READ_BACK,
    COMPUTED_ROWS,
    right(
        "def halves(half(M,K) A, half(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }",
        lambda a, b: (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16),
        M=37, N=41, K=19,
    ),
    right(
        "def bytes(int8(M,K) A, int8(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }",
        lambda a, b: a @ b,
        M=37, N=41, K=19,
    ),
    right(
        "def chained(double(M,K) A, double(N,K) B, double(M,N) D) -> (C) "
        "{ C(i,j) = D(i,j)  C(i,j) += A(i,k) * B(j,k)  C(i,j) = max(C(i,j), D(i,j)) + 1 }",
        lambda a, b, d: np.maximum(a @ b.T + d, d) + 1,
        M=37, N=41, K=19,
    ),
    right(
        "def flipped(float(W,C) I, float(F,C,K) W1) -> (O) "
        "{ O(f,x) +=! I(2 * x + 7 - k,c) * W1(f,c,k) where x in 0:17, k in 0:8 }",
        _flipped,
        W=41, C=3, F=9, K=8,
    ),
    right("def gram(float(N,M) A) -> (O) { O(i,j) +=! A(i,k) * A(j,k) }", lambda a: a @ a.T, N=40, M=33),
    right(
        "def twice(float(N,M) A, float(M,K) B, float(K,L) C) -> (O) "
        "{ T(i,k) +=! A(i,j) * B(j,k)  O(i,l) +=! T(i,k) * C(k,l) }",
        lambda a, b, c: a @ b @ c,
        N=20, M=21, K=22, L=23,
    ),
    right(
        "def totals(double(N,M) X) -> (s,t,m) { s(i) +=! X(i,j)  t +=! X(i,j)  m(j) min=! X(i,j) }",
        lambda x: (x.sum(1), x.sum(), x.min(0)),
        N=130, M=131,
    ),
    right(
        "def integers(int16(N,M) X, int8(N,M) Y) -> (a,b,c,d) "
        "{ a(i) max=! X(i,j)  b(i) min=! X(i,j)  c(i) +=! Y(i,j)  d(i) *=! Y(i,j) }",
        lambda x, y: (x.max(1), x.min(1), y.sum(1, dtype=np.int8), y.prod(1, dtype=np.int8)),
        N=5, M=170,
    ),
)  # fmt: skip
