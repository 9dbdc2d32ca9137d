"""Comprehensions over windows: convolutions of all kinds, pooling and stencils, at borders too."""

import numpy as np

from tests.support.comprehensions.comprehension_cases import right


def correlated(x, w, step=1, spread=1):
    """The correlation of the last axis of x with w, by a sum over the elements of w."""
    length = (x.shape[-1] - spread * (len(w) - 1) - 1) // step + 1
    return sum(w[k] * x[..., spread * k : spread * k + step * (length - 1) + 1 : step] for k in range(len(w)))


def convolved(x, w, step=(1, 1)):
    """A 2-D convolution of NCHW with OIHW, by a sum over the elements of the window."""
    high = (x.shape[2] - w.shape[2]) // step[0] + 1
    wide = (x.shape[3] - w.shape[3]) // step[1] + 1
    made = np.zeros((x.shape[0], w.shape[0], high, wide), x.dtype)
    for i in range(high):
        for j in range(wide):
            part = x[:, :, i * step[0] :, j * step[1] :][:, :, : w.shape[2], : w.shape[3]]
            made[:, :, i, j] = np.tensordot(part, w, ((1, 2, 3), (1, 2, 3)))
    return made


def spread_out(x, w):
    """A transposed convolution of stride 2, by adding each element's window."""
    made = np.zeros((x.shape[0], w.shape[1], 2 * (x.shape[2] - 1) + w.shape[2]), x.dtype)
    for at in range(x.shape[2]):
        made[:, :, 2 * at : 2 * at + w.shape[2]] += np.einsum("nc,cfk->nfk", x[:, :, at], w)
    return made


PROGRAMS = (
    right(
        "def correlate(float(M) x, float(K) w) -> (y) { y(i) +=! w(k) * x(i + k) }",
        lambda x, w: np.correlate(x, w, "valid"),
        M=9,
        K=3,
    ),
    right(
        "def convolve(float(M) x, float(K) w) -> (y) { y(i) +=! w(K - 1 - k) * x(i + k) }",
        lambda x, w: np.convolve(x, w, "valid"),
        M=9,
        K=3,
    ),
    right(
        "def dilated(float(M) x, float(K) w) -> (y) { y(i) +=! w(k) * x(i + 2 * k) }",
        lambda x, w: correlated(x, w, spread=2),
        M=9,
        K=3,
    ),
    right(
        "def strided(float(M) x, float(K) w) -> (y) { y(i) +=! w(k) * x(3 * i + k) }",
        lambda x, w: correlated(x, w, step=3),
        M=10,
        K=2,
    ),
    right(
        "def stepped(int s, int d, float(M) x, float(K) w) -> (y) { y(i) +=! w(k) * x(s * i + d * k) }",
        lambda s, d, x, w: correlated(x, w, s, d),
        {"s": 2, "d": 3},
        M=12,
        K=3,
    ),
    right(
        """
        def padded(float(M) x, float(K) w) -> (y) {
          y(i) +=! i + k >= 1 && i + k - 1 < M ? x(i + k - 1) * w(k) : 0 where i in 0:M, k in 0:K
        }
        """,
        lambda x, w: np.correlate(np.pad(x, 1), w, "valid"),
        M=6,
        K=3,
    ),
    right(
        """
        def mirrored(double(M) x, double(K) w) -> (y) {
          y(i) +=! w(k) * x(at < 0 ? -at : at >= M ? 2 * M - 2 - at : at) where at = i + k - 1, i in 0:M
        }
        """,
        lambda x, w: np.correlate(np.pad(x, 1, mode="reflect"), w, "valid"),
        M=6,
        K=3,
    ),
    right(
        """
        def clipped(double(M) x, double(K) w) -> (y) {
          y(i) +=! w(k) * x(max(min(i + k - 1, M - 1), 0)) where i in 0:M
        }
        """,
        lambda x, w: np.correlate(np.pad(x, 1, mode="edge"), w, "valid"),
        M=6,
        K=3,
    ),
    right(
        """
        def around(double(M) x, double(K) w) -> (y) {
          y(i) +=! w(k) * x((i + k + M - 1) % M) where i in 0:M
        }
        """,
        lambda x, w: np.correlate(np.pad(x, 1, mode="wrap"), w, "valid"),
        M=6,
        K=3,
    ),
    right(
        """
        def image(float(B,C,H,W) x, float(F,C,P,Q) w) -> (y) {
          y(b,f,h,v) +=! x(b,c,h + p,v + q) * w(f,c,p,q)
        }
        """,
        convolved,
        B=2,
        C=2,
        H=5,
        W=4,
        F=3,
        P=2,
        Q=3,
    ),
    right(
        """
        def image_with_strides(int sh, int sw, float(B,C,H,W) x, float(F,C,P,Q) w, float(F) bias) -> (y) {
          y(b,f,h,v) = bias(f)
          y(b,f,h,v) += x(b,c,sh * h + p,sw * v + q) * w(f,c,p,q)
        }
        """,
        lambda sh, sw, x, w, bias: convolved(x, w, (sh, sw)) + bias[:, None, None],
        {"sh": 2, "sw": 3},
        B=1,
        C=2,
        H=6,
        W=8,
        F=2,
        P=2,
        Q=2,
    ),
    right(
        """
        def grouped(float(B,G,C,M) x, float(G,F,C,K) w) -> (y) {
          y(b,g,f,i) +=! x(b,g,c,i + k) * w(g,f,c,k)
        }
        """,
        lambda x, w: sum(np.einsum("bgci,gfc->bgfi", x[..., k : k + 5], w[..., k]) for k in range(3)),
        B=2,
        G=2,
        C=2,
        F=3,
        M=7,
        K=3,
    ),
    right(
        "def depthwise(float(C,M) x, float(C,K) w) -> (y) { y(c,i) +=! x(c,i + k) * w(c,k) }",
        lambda x, w: np.stack([np.correlate(a, b, "valid") for a, b in zip(x, w, strict=True)]),
        C=3,
        M=6,
        K=2,
    ),
    right(
        """
        def transposed_convolution(float(B,C,M) x, float(C,F,K) w) -> (y) {
          y(b,f,o) +=! o >= k && (o - k) % 2 == 0 && (o - k) / 2 < M ? x(b,c,(o - k) / 2) * w(c,f,k) : 0
            where o in 0:2 * (M - 1) + K
        }
        """,
        spread_out,
        B=2,
        C=2,
        M=4,
        F=3,
        K=3,
    ),
    right(
        "def volume(float(A,B,C) x, float(P,Q,R) w) -> (y) { y(a,b,c) +=! x(a + p,b + q,c + r) * w(p,q,r) }",
        lambda x, w: np.array(
            [[[(x[a : a + 2, b : b + 2, c : c + 2] * w).sum() for c in range(2)] for b in range(3)] for a in range(2)],
            np.float32,
        ),
        A=3,
        B=4,
        C=3,
        P=2,
        Q=2,
        R=2,
    ),
    right(
        "def windowed(float(C,H,W) x) -> (y) { y(c,i,j) max=! x(c,2 * i + a,2 * j + b) where a in 0:2, b in 0:2 }",
        lambda x: x[:, :4, :6].reshape(2, 2, 2, 3, 2).max((2, 4)),
        C=2,
        H=5,
        W=6,
    ),
    right(
        """
        def mean_of_window(double(H,W) x) -> (y) {
          y(i,j) +=! x(i + a,j + b) / 9 where a in 0:3, b in 0:3
        }
        """,
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 3)).mean((2, 3)),
        H=5,
        W=4,
    ),
    right(
        "def unfold(float(M) x, int K) -> (u) { u(i,k) = x(i + k) where k in 0:K }",
        lambda x, K: np.lib.stride_tricks.sliding_window_view(x, K),
        {"K": 3},
        M=7,
    ),
    right(
        "def laplace(double(H,W) x) -> (y) {"
        " y(i,j) = x(i,j + 1) + x(i + 2,j + 1) + x(i + 1,j) + x(i + 1,j + 2) - 4 * x(i + 1,j + 1) }",
        lambda x: x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * x[1:-1, 1:-1],
        H=5,
        W=6,
    ),
    right(
        "def differences(float(N) x) -> (d) { d(i) = x(i + 1) - x(i) }",
        np.diff,
        N=6,
    ),
    right(
        "def prefix(double(N) x) -> (y) { y(i) +=! k <= i ? x(k) : 0 where i in 0:N }",
        np.cumsum,
        N=6,
    ),
)
