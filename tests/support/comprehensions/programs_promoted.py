"""Programs, no products of matrices, of which blocks read elements again that lie apart or are found by others."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.comprehensions.comprehension_cases import Right, below, right


def _depthwise(i: Any, w: Any) -> Any:
    height, width = (i.shape[axis] - w.shape[axis - 1] + 1 for axis in (2, 3))
    return sum(i[..., y : y + height, x : x + width] * w[:, y, x, None, None] for y, x in np.ndindex(w.shape[1:]))


#: Neighbours along the last index lie apart, those along the one before side by side; each element is read three times.
TURNED = right(
    "def turned(float(N,M) A) -> (O) { O(i,j) = A(j,i) + A(j,i + 1) * A(j,i + 2) where i in 0:M-2, j in 0:N }",
    lambda a: (a[:, :-2] + a[:, 1:-1] * a[:, 2:]).T,
    N=37, M=45,
)  # fmt: skip
#: The same, but each element is read once.
TURNED_ONCE = right("def turned_once(float(N,M) A) -> (O) { O(i,j) = A(j,i) + 1.0 }", lambda a: a.T + 1, N=37, M=45)
#: Neighbours are read side by side, three times each.
STENCIL = right(
    "def stencil(float(N,M) A) -> (O) { O(i,j) = A(i,j) + A(i + 1,j) + A(i + 2,j) where i in 0:N-2, j in 0:M }",
    lambda a: a[:-2] + a[1:-1] + a[2:],
    N=37, M=45,
)  # fmt: skip
#: All threads of a row read an element of the filter at a time; no index but the last reads images again.
DEPTHWISE = right(
    "def depthwise(float(N,C,H,W) I, float(C,KH,KW) W1) -> (O) { O(n,c,h,w) +=! I(n,c,h + r,w + s) * W1(c,r,s) }",
    _depthwise,
    N=2, C=3, H=22, W=35, KH=3, KW=5,
)  # fmt: skip
#: A reduction that is no sum, of which one operand lies apart along the last index.
FARTHEST = right(
    "def farthest(float(M,K) A, float(N,K) B) -> (O) { O(i,j) max=! fabs(A(i,k) - B(j,k)) }",
    lambda a, b: np.abs(a[:, None] - b).max(2),
    M=21, N=37, K=19,
)  # fmt: skip
#: What is updated begins with what it holds.
ADDED = right(
    "def added(int32(N,M) A, int32(M,N) D) -> (C) { C(i,j) = D(i,j)  C(i,j) += A(j,i) * A(j,0) }",
    lambda a, d: d + a.T * a[:, 0],
    N=37, M=45,
)  # fmt: skip
#: Rows that an index array names are read for every column.
LOOKED = right(
    "def looked(float(V,K) T, int32(B,2) I, float(K,N) W1) -> (O) { O(b,n) +=! T(I(b,1),k) * W1(k,n) }",
    lambda t, i, w: t[i[:, 1]] @ w,
    {"I": below(23)},
    V=23, B=37, K=19, N=41,
)  # fmt: skip
#: An index array that another one names elements of, in a sum with an index.
NESTED = right(
    "def nested(float(V) T, int32(U) J, int32(B) I, float(L,N) W1) -> (O) "
    "{ O(b,n) +=! T(J(I(b)) + l) * W1(l,n) where l in 0:9 }",
    lambda t, j, i, w: t[j[i][:, None] + np.arange(9)] @ w[:9],
    {"J": below(14), "I": below(11)},
    V=23, U=11, B=37, L=9, N=41,
)  # fmt: skip
#: As `LOOKED`, but a condition keeps elements that do not exist from being read.
LOOKED_IF = right(
    "def looked_if(float(V,K) T, int32(B) I, float(K,N) W1) -> (O) "
    "{ O(b,n) +=! (I(b) < V ? T(I(b),k) : 0.5) * W1(k,n) }",
    lambda t, i, w: np.where((i < len(t))[:, None], t[np.minimum(i, len(t) - 1)], np.float32(0.5)) @ w,
    {"I": below(40)},
    V=23, B=37, K=19, N=41,
)  # fmt: skip
#: An element that an index array names is read once for every term.
POINTS = right(
    "def points(int32(V) T, int32(B,N) I, int32(K) A) -> (O) { O(b,n) +=! T(I(b,n)) * A(k) }",
    lambda t, i, a: t[i] * a.sum(dtype=np.int32),
    {"I": below(23)},
    V=23, B=21, N=37, K=5,
)  # fmt: skip
#: All that have something promoted, where options ask for it.
PROMOTED: tuple[Right, ...] = (TURNED, STENCIL, DEPTHWISE, FARTHEST, ADDED, LOOKED, NESTED, POINTS)
#: All that have nothing promoted in any way.
UNPROMOTED: tuple[Right, ...] = (TURNED_ONCE, LOOKED_IF)
