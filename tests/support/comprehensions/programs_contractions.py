"""Comprehensions that sum products: of matrices, vectors and more axes."""

import numpy as np

from tests.support.comprehensions.comprehension_cases import right

PROGRAMS = (
    right(
        "def matvec(float(R,S) A, float(S) v) -> (u) { u(r) +=! A(r,s) * v(s) }",
        lambda A, v: A @ v,
        R=3,
        S=4,
    ),
    right(
        "def product(double(R,S) A, double(S,T) B) -> (C) { C(r,t) +=! A(r,s) * B(s,t) }",
        lambda A, B: A @ B,
        R=2,
        S=5,
        T=3,
    ),
    right(
        "def transposed(float(S,R) A, float(T,S) B) -> (C) { C(r,t) +=! A(s,r) * B(t,s) }",
        lambda A, B: A.T @ B.T,
        R=3,
        S=2,
        T=4,
    ),
    right(
        "def batched(float(G,R,S) A, float(G,S,T) B) -> (C) { C(g,r,t) +=! A(g,r,s) * B(g,s,t) }",
        lambda A, B: A @ B,
        G=2,
        R=3,
        S=4,
        T=2,
    ),
    right(
        "def dot(float(S) a, float(S) b) -> (c) { c +=! a(s) * b(s) }",
        lambda a, b: np.float32(a @ b),
        S=7,
    ),
    right(
        "def outer(float(R) a, float(T) b) -> (C) { C(r,t) = a(r) * b(t) }",
        lambda a, b: np.outer(a, b),
        R=3,
        T=4,
    ),
    right(
        "def trace(float(R,R) A) -> (t) { t +=! A(r,r) }",
        lambda A: np.trace(A),
        R=4,
    ),
    right(
        "def diagonal(float(R,S) A) -> (d) { d(r) = A(r,r) }  # the shorter of both axes",
        lambda A: np.diagonal(A),
        R=3,
        S=5,
    ),
    right(
        "def gram(float(R,S) A) -> (G) { G(r,q) +=! A(r,s) * A(q,s) }",
        lambda A: A @ A.T,
        R=4,
        S=3,
    ),
    right(
        "def bilinear(float(R) a, float(R,S) M, float(S) b) -> (v) { v +=! a(r) * M(r,s) * b(s) }",
        lambda a, M, b: a @ M @ b,
        R=3,
        S=2,
    ),
    right(
        """
        def kronecker(float(R,S) A, float(P,Q) B) -> (K) {
          K(i,j) = A(i / P, j / Q) * B(i % P, j % Q) where i in 0:R*P, j in 0:S*Q
        }
        """,
        np.kron,
        R=2,
        S=3,
        P=4,
        Q=2,
    ),
    right(
        "def blocks(float(R,S) A, float(P,Q) B) -> (K) { K(r,p,s,q) = A(r,s) * B(p,q) }",
        lambda A, B: np.kron(A, B).reshape(2, 4, 3, 2),
        R=2,
        S=3,
        P=4,
        Q=2,
    ),
    right(
        """
        def tucker(float(A,B,C) core, float(I,A) u, float(J,B) v, float(K,C) w) -> (t) {
          t(i,j,k) +=! core(a,b,c) * u(i,a) * v(j,b) * w(k,c)
        }
        """,
        lambda core, u, v, w: np.einsum("abc,ia,jb,kc->ijk", core, u, v, w),
        A=2,
        B=3,
        C=2,
        I=3,
        J=2,
        K=4,
    ),
    right(
        """
        def khatri_rao(float(I,R) A, float(J,R) B) -> (K) {
          K(i,j,r) = A(i,r) * B(j,r)
        }
        """,
        lambda A, B: np.einsum("ir,jr->ijr", A, B),
        I=3,
        J=2,
        R=4,
    ),
    right(
        """
        # The squared distance of all pairs of rows.
        def distances(double(R,D) a, double(S,D) b) -> (d) {
          d(r,s) +=! (a(r,k) - b(s,k)) * (a(r,k) - b(s,k))
        }
        """,
        lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1),
        R=3,
        S=4,
        D=2,
    ),
    right(
        """
        def polynomial(double(N) c, double(M) x) -> (y) {
          y(m) +=! c(n) * pow(x(m), float64(n))
        }
        """,
        lambda c, x: np.polynomial.polynomial.polyval(x, c),
        N=4,
        M=5,
    ),
    right(
        """
        def chain(float(I,J) A, float(J,K) B, float(K,L) C) -> (AB, ABC) {
          AB(i,k) +=! A(i,j) * B(j,k)
          ABC(i,l) +=! AB(i,k) * C(k,l)
        }
        """,
        lambda A, B, C: (A @ B, A @ B @ C),
        I=2,
        J=3,
        K=4,
        L=2,
    ),
    right(
        "def quadratic(float(S) x, float(S,S) Q) -> (v) { v +=! 0.5 * x(i) * Q(i,j) * x(j) }",
        lambda x, Q: np.float32(0.5) * (x @ Q @ x),
        S=4,
    ),
)
