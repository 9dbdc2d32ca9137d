"""Comprehensions about subscripts: ranges, lets, strides, tables, layouts, and what depends on data."""

import numpy as np

from tests.support.comprehensions.comprehension_cases import below, right

F4, I4 = np.float32, np.int32

PROGRAMS = (
    right("def reversed(float(N) x) -> (y) { y(i) = x(N - 1 - i) }", lambda x: x[::-1], N=6),
    right(
        "def half_turn(float(R,S) A) -> (B) { B(r,s) = A(R - 1 - r,S - 1 - s) }",
        lambda A: A[::-1, ::-1],
        R=3,
        S=4,
    ),
    right("def turned(float(R,S) A) -> (B) { B(s,r) = A(r,s) }", np.transpose, R=3, S=4),
    right(
        "def permuted(float(A,B,C,D) x) -> (y) { y(d,b,a,c) = x(a,b,c,d) }",
        lambda x: x.transpose(3, 1, 0, 2),
        A=2,
        B=3,
        C=4,
        D=2,
    ),
    right("def every_third(float(N) x) -> (y) { y(i) = x(3 * i + 1) }", lambda x: x[1::3], N=11),
    right(
        "def with_a_step(float(N) x, int s, int at) -> (y) { y(i) = x(s * i + at) }",
        lambda x, s, at: x[at::s],
        {"s": 3, "at": 2},
        N=12,
    ),
    right(
        "def backwards(float(N) x, int s) -> (y) { y(i) = x(N - 1 + s * i) }",
        lambda x, s: x[::s],
        {"s": -2},
        N=7,
    ),
    right(
        "def rotated(float(N) x, int k) -> (y) { y(i) = x((i + k) % N) where i in 0:N }",
        lambda x, k: np.roll(x, -k),
        {"k": 2},
        N=7,
    ),
    right("def shifted(float(N) x) -> (y) { y(i) = x(i + 2) }", lambda x: x[2:], N=7),
    right("def part(float(N) x) -> (y) { y(i) = x(i) where i in 0:N / 2 }", lambda x: x[:3], N=7),
    right(
        "def from_one(float(N) x) -> (y) { y +=! x(i) where i in 1:N - 1 }",
        lambda x: x[1:-1].sum(),
        N=7,
    ),
    right(
        "def below_zero(float(N) x) -> (y) { y +=! x(i + 2) where i in -2:1 }",
        lambda x: x[:3].sum(),
        N=7,
    ),
    right(
        "def named(double(N) x) -> (y) { y(i) = b * b + a where c = 2, a = x(i), b = a + c }",
        lambda x: (x + 2) ** 2 + x,
        N=5,
    ),
    right(
        "def named_place(float(N) x) -> (y) { y(i) = x(at) where at = 2 * i + 1 }",
        lambda x: x[1::2],
        N=8,
    ),
    right(
        "def like(float(N) x, float(M) z) -> (y) { y(i) = x(i) where exists z(i) }",
        lambda x, z: x[:3],
        N=8,
        M=3,
    ),
    right(
        "def ramp(float(R,S) A) -> (y) { y(i,j) = 10 * i + j where exists A(i,j) }",
        lambda A: np.add.outer(10 * np.arange(3), np.arange(4)).astype(I4),
        R=3,
        S=4,
    ),
    right(
        "def pick(float(N) x, int(A,B) at) -> (y) { y(a,b) = x(at(a,b)) }",
        lambda x, at: x[at],
        {"at": below(6)},
        N=6,
        A=2,
        B=3,
    ),
    right(
        "def rows(float(N,D) table, uint8(B) at) -> (y) { y(b,d) = table(at(b),d) }",
        lambda table, at: table[at],
        {"at": below(5)},
        N=5,
        D=3,
        B=4,
    ),
    right(
        "def twice_removed(float(N) x, int(N) p, int64(M) q) -> (y) { y(i) = x(p(q(i))) }",
        lambda x, p, q: x[p[q]],
        {"p": below(6), "q": below(6)},
        N=6,
        M=4,
    ),
    right(
        "def near(float(N) x, int(M) at) -> (y) { y(i,k) = x(max(0, min(at(i) + k - 1, N - 1))) where k in 0:3 }",
        lambda x, at: x[np.clip(at[:, None] + np.arange(-1, 2), 0, 5)],
        {"at": below(6)},
        N=6,
        M=4,
    ),
    right(
        "def where_valid(float(N) x, int(M) at) -> (y) { y(i) = at(i) >= 0 && at(i) < N ? x(at(i)) : -1 }",
        lambda x, at: np.where((at >= 0) & (at < 4), x[np.clip(at, 0, 3)], F4(-1)),
        N=4,
        M=12,
    ),
    right(
        "def small_integers(float(N) x, uint8 s, uint8(M) at) -> (y, z) {"
        " y = x((s - 1) / 2) z(i) = x((at(i) + 200) % 3 + s) }",
        lambda x, s, at: (x[0], x[(at.astype(int) + 200) % 3]),
        {"s": 0},
        N=4,
        M=5,
    ),
    right(
        "def perforated(float(N) x, int(P) at, float(K) w) -> (y) { y(p) +=! x(at(p) + k) * w(k) }",
        lambda x, at, w: np.correlate(x, w, "valid")[at],
        {"at": below(4)},
        N=6,
        P=5,
        K=3,
    ),
    right(
        "def tiles(float(M,N) A) -> (T) {"
        " T(a,b,i,j) = A(4 * a + i,2 * b + j) where i in 0:4, j in 0:2, a in 0:M / 4, b in 0:N / 2 }",
        lambda A: A.reshape(2, 4, 3, 2).transpose(0, 2, 1, 3),
        M=8,
        N=6,
    ),
    right(
        "def untiled(float(P,Q,I,J) T) -> (A) { A(m,n) = T(m / I,n / J,m % I,n % J) where m in 0:P * I, n in 0:Q * J }",
        lambda T: T.transpose(0, 2, 1, 3).reshape(8, 6),
        P=2,
        Q=3,
        I=4,
        J=2,
    ),
    right(
        "def structures(float(N) x, float(N) y, float(N) z) -> (a) {"
        " a(n,c) = c == 0 ? x(n) : c == 1 ? y(n) : z(n) where c in 0:3 }",
        lambda x, y, z: np.stack([x, y, z], 1),
        N=5,
    ),
    right(
        "def fields(float(N,3) a) -> (x, y, z) { x(n) = a(n,0) y(n) = a(n,1) z(n) = a(n,2) }",
        lambda a: tuple(a.T),
        N=5,
    ),
    right(
        "def together(float(N) x, float(M) y) -> (z) { z(i) = i < N ? x(i) : y(i - N) where i in 0:N + M }",
        lambda x, y: np.concatenate([x, y]),
        N=5,
        M=3,
    ),
    right(
        "def triangle(float(R,R) A) -> (L) { L(i,j) = j <= i ? A(i,j) : 0 }",
        np.tril,
        R=5,
    ),
    right("def first(float(N) x) -> (y) { y = x(0) }", lambda x: x[0], N=3),
    right("def scaled(float a, float(N) x) -> (y) { y(i) = a * x(i) }", lambda a, x: F4(a) * x, {"a": 2.5}, N=3),
    right(
        "def repeated(float(N) x, int t) -> (y) { y(i) = x(i / t) where i in 0:N * t }",
        lambda x, t: np.repeat(x, t),
        {"t": 3},
        N=4,
    ),
    right(
        "def the_shorter(float(N) x, float(M) y) -> (z) { z(i) = x(i) + y(i) }",
        lambda x, y: x[:3] + y,
        N=5,
        M=3,
    ),
    right(
        "def computed(float(N) x, int(M) p) -> (y, z) { t max=! p(m) y = x(t) z(i) = x(i + t - 2) where i in 0:2 }",
        lambda x, p: (x[3], x[1:3]),
        {"p": np.array([2, 3, 1], I4)},
        N=4,
    ),
)
