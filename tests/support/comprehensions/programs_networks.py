"""Comprehensions of several statements: layers of networks, temporaries, updates, and more than one function."""

import ml_dtypes
import numpy as np
import scipy.special

from tests.support.comprehensions.comprehension_cases import below, positive, right

F4 = np.float32


def relu(x):
    """The larger of a number and 0."""
    return np.maximum(x, 0)


def softmax(x, axis):
    """The softmax over an axis."""
    return scipy.special.softmax(x, axis=axis)


PROGRAMS = (
    right(
        """
        def softmax_of_rows(double(R,S) x) -> (y) {
          most(r) max=! x(r,s)
          e(r,s) = exp(x(r,s) - most(r))
          total(r) +=! e(r,s)
          y(r,s) = e(r,s) / total(r)
        }
        """,
        lambda x: softmax(x, 1),
        R=3,
        S=4,
    ),
    right(
        """
        def softmax_within(double(A,B,C) x) -> (y) {
          most(a,c) max=! x(a,b,c)
          y(a,b,c) = exp(x(a,b,c) - most(a,c))
          total(a,c) +=! y(a,b,c)
          y(a,b,c) = y(a,b,c) / total(a,c)
        }
        """,
        lambda x: softmax(x, 1),
        A=2,
        B=5,
        C=3,
    ),
    right(
        """
        def layer_norm(double(R,S) x, double(S) g, double(S) b, double eps) -> (y) {
          mean(r) +=! x(r,s) / S
          var(r) +=! d * d / S where d = x(r,s) - mean(r)
          y(r,s) = (x(r,s) - mean(r)) * rsqrt(var(r) + eps) * g(s) + b(s)
        }
        """,
        lambda x, g, b, eps: (x - x.mean(1)[:, None]) / np.sqrt(x.var(1)[:, None] + eps) * g + b,
        {"eps": 1e-3},
        R=3,
        S=6,
    ),
    right(
        """
        def rms_norm(float(R,S) x, float(S) g) -> (y) {
          square(r) +=! x(r,s) * x(r,s)
          y(r,s) = x(r,s) * rsqrt(square(r) / S + 1e-5) * g(s)
        }
        """,
        lambda x, g: x / np.sqrt((x * x).mean(1, keepdims=True) + F4(1e-5)) * g,
        R=3,
        S=6,
    ),
    right(
        """
        def batch_norm(double(N,C,H) x, double(C) mean, double(C) var) -> (y) {
          y(n,c,h) = (x(n,c,h) - mean(c)) / sqrt(var(c) + 0.5)
        }
        """,
        lambda x, mean, var: (x - mean[:, None]) / np.sqrt(var[:, None] + 0.5),
        {"var": positive},
        N=2,
        C=3,
        H=4,
    ),
    right(
        """
        def two_tables(float(E,D) t, int(B,L) i, float(F,D) u, int(B,M) j) -> (a, b) {
          a(n,d) +=! t(i(n,l),d)
          b(n,d) +=! u(j(n,m),d)
        }
        """,
        lambda t, i, u, j: (t[i].sum(1), u[j].sum(1)),
        {"i": below(5), "j": below(4)},
        E=5,
        D=3,
        B=2,
        L=4,
        F=4,
        M=3,
    ),
    right(
        """
        def perceptron(double(B,I) x, double(H,I) v, double(H) c, double(O,H) w, double(O) d) -> (y) {
          h(b,k) = c(k)
          h(b,k) += x(b,i) * v(k,i)
          h(b,k) = fmax(h(b,k), 0)
          y(b,o) = d(o)
          y(b,o) += h(b,k) * w(o,k)
          y(b,o) = fmax(y(b,o), 0)
        }
        """,
        lambda x, v, c, w, d: relu(relu(x @ v.T + c) @ w.T + d),
        B=3,
        I=4,
        H=5,
        O=2,
    ),
    right(
        """
        def attention(double(S,D) q, double(T,D) k, double(T,E) v) -> (o) {
          z(s,t) +=! q(s,d) * k(t,d)
          z(s,t) = z(s,t) / sqrt(double(D))
          m(s) max=! z(s,t)
          p(s,t) = exp(z(s,t) - m(s))
          n(s) +=! p(s,t)
          o(s,e) +=! p(s,t) / n(s) * v(t,e)
        }
        """,
        lambda q, k, v: softmax(q @ k.T / 2, 1) @ v,
        S=3,
        T=5,
        D=4,
        E=2,
    ),
    right(
        """
        def cross_entropy(double(B,C) x, int(B) label) -> (loss) {
          m(b) max=! x(b,c)
          s(b) +=! exp(x(b,c) - m(b))
          loss +=! (log(s(b)) + m(b) - x(b,label(b))) / B
        }
        """,
        lambda x, label: np.mean(scipy.special.logsumexp(x, 1) - x[np.arange(4), label]),
        {"label": below(3)},
        B=4,
        C=3,
    ),
    right(
        """
        def gate(double(B,H) x, double(B,H) h, double(B,H) z) -> (y) {
          y(b,k) = s * h(b,k) + (1 - s) * tanh(x(b,k)) where s = 1 / (1 + exp(-z(b,k)))
        }
        """,
        lambda x, h, z: scipy.special.expit(z) * h + (1 - scipy.special.expit(z)) * np.tanh(x),
        B=2,
        H=3,
    ),
    right(
        "def gelu(double(N) x) -> (y) { y(i) = 0.5 * x(i) * (1 + erf(x(i) * sqrt(0.5))) }",
        lambda x: x * scipy.special.ndtr(x),
        N=9,
    ),
    right(
        """
        def first(float(N) x) -> (y) { y(i) = x(i) }
        # Names of one function mean nothing in another one.
        def second(float(N,M) y) -> (x) { x(i) max=! 2 * y(i,k) }
        """,
        lambda y: 2 * y.max(1),
        N=3,
        M=4,
    ),
    right(
        "def twice_over(float(N) x) -> (y) { y(i) = x(i) y(i) = y(i) * y(i) + y(i) }",
        lambda x: x * x + x,
        N=5,
    ),
    right(
        "def in_place(double(R,R) A) -> (y) { y(i,j) = A(i,j) y(i,j) +=! y(i,k) * A(k,j) }",
        lambda A: A @ A,
        R=3,
    ),
    right(
        "def onto_itself(double(R,R) A) -> (y) { y(i,j) = A(i,j) y(i,j) += y(k,j) }  # reads all, then writes",
        lambda A: A + A.sum(0),
        R=3,
    ),
    right(
        """
        def update(float a, float b, float(R,S) A, float(S,T) B) -> (C) {
          C(r,t) = b * C(r,t)
          C(r,t) += a * A(r,s) * B(s,t)
        }
        """,
        lambda a, b, A, B, C: F4(a) * (A @ B) + F4(b) * C,
        {"a": 2.0, "b": 0.5, "C": np.arange(6, dtype=F4).reshape(2, 3)},
        R=2,
        S=4,
        T=3,
    ),
    right(
        "def from_zero(float a, float(R,S) A) -> (C) { C(r,s) += a * A(r,s) }",
        lambda a, A: F4(a) * A,
        {"a": 2.0},
        R=2,
        S=4,
    ),
    right(
        "def running(float(N) x) -> (m) { m(i) max= x(i) }",
        lambda x, m: np.maximum(x, m),
        {"m": np.array([0, 9, -9], F4)},
        N=3,
    ),
    right(
        "def a_part(float(N) x) -> (y) { y(i) = x(i) y(i) = 7 where i in 1:3 }",
        lambda x: np.concatenate([x[:1], [7, 7], x[3:]]).astype(F4),
        N=5,
    ),
    right(
        "def borders(float(N) x) -> (float(N) y) { y(i) = 0 y(i) = 2 * x(i) where i in 1:N - 1 }",
        lambda x: np.concatenate([[0], 2 * x[1:-1], [0]]).astype(F4),
        N=5,
    ),
    right(
        "def before_its_range(float(N) x, float(M) z) -> (y) { y(i) = 0 y(i) += x(i) * z(k) }",
        lambda x, z: x * z.sum(),
        N=5,
        M=3,
    ),
    right(
        """
        def narrow_layer(bfloat16(B,I) x, bfloat16(O,I) w) -> (y) {
          y(b,o) +=! x(b,i) * w(o,i)
        }
        """,
        lambda x, w: (x.astype(F4) @ w.astype(F4).T).astype(ml_dtypes.bfloat16),
        B=2,
        I=8,
        O=3,
    ),
    right(
        """
        def quantised(uint8(B,I) x, int8(O,I) w, float scale) -> (y) {
          sum(b,o) +=! int32(x(b,i)) * int32(w(o,i))
          y(b,o) = sum(b,o) * scale
        }
        """,
        lambda x, w, scale: (x.astype(int) @ w.astype(int).T).astype(F4) * F4(scale),
        {"scale": 0.125},
        B=2,
        I=8,
        O=3,
    ),
)
