"""Comprehensions that reduce: by each operator, anew and onto what is there, of each kind of number, and of nothing."""

import ml_dtypes
import numpy as np

from tests.support.comprehensions.comprehension_cases import right

INT8 = np.iinfo(np.int8)


def special(rng, shape, dtype):
    """Numbers with a NaN in the first row and infinities in the second."""
    made = (rng.integers(-8, 9, shape) / 4).astype(dtype)
    made[0, 1], made[1, 0], made[1, 2] = np.nan, np.inf, -np.inf
    return made


def squashed(A):
    """The product of each row in int8, which wraps."""
    return np.multiply.reduce(A, axis=1, dtype=np.int8)


PROGRAMS = (
    right("def sum(float(R,S) A) -> (y) { y(r) +=! A(r,s) }", lambda A: A.sum(1), R=3, S=4),
    right("def prod(double(R,S) A) -> (y) { y(r) *=! A(r,s) }", lambda A: A.prod(1), R=3, S=4),
    right("def least(float(R,S) A) -> (y) { y(r) min=! A(r,s) }", lambda A: A.min(1), R=3, S=4),
    right("def most(float(R,S) A) -> (y) { y(s) max=! A(r,s) }", lambda A: A.max(0), R=3, S=4),
    right("def everything(float(R,S) A) -> (m) { m max=! A(r,s) }", lambda A: A.max(), R=3, S=4),
    right(
        "def onto(float(R,S) A) -> (y) { y(r) = 1.5 y(r) += A(r,s) }",
        lambda A: np.float32(1.5) + A.sum(1),
        R=3,
        S=4,
    ),
    right(
        "def times(double(R,S) A) -> (y) { y(r) = 0.5 y(r) *= A(r,s) }",
        lambda A: np.float32(0.5) * A.prod(1),
        R=3,
        S=3,
    ),
    right(
        "def capped(float(R,S) A) -> (y) { y(r) = 0.25 y(r) min = A(r,s) }",
        lambda A: np.minimum(np.float32(0.25), A.min(1)),
        R=3,
        S=4,
    ),
    right(
        "def floored(float(R,S) A) -> (y) { y(r) = 0 y(r) max= A(r,s) }",
        lambda A: np.maximum(np.float32(0), A.max(1)),
        R=3,
        S=4,
    ),
    right(
        """
        def all_forms(double(N) x) -> (a, b, c, d) {
          a +=! x(n)
          a += 2 * x(n)
          b *=! x(n)
          b *= x(n)
          c min=! x(n)
          c min= -x(n)
          d max=! x(n)
          d max= -x(n)
        }
        """,
        lambda x: (3 * x.sum(), x.prod() ** 2, np.minimum(x, -x).min(), np.abs(x).max()),
        N=5,
    ),
    right(
        "def not_numbers(float(R,S) A) -> (a, b) { a(r) max=! A(r,s) b(r) min=! A(r,s) }",
        lambda A: (A.max(1), A.min(1)),
        {"A": special},
        R=3,
        S=3,
    ),
    right(
        "def but_numbers(float(R,S) A) -> (a) { a(r) = -3 a(r) max= fmax(A(r,s), -2) }",
        lambda A: np.maximum(np.float32(-2), np.nanmax(A, 1)),
        {"A": special},
        R=3,
        S=3,
    ),
    right(
        "def negative(float(R,S) A) -> (y) { y(r) max=! -fabs(A(r,s)) - 1 }",
        lambda A: (-np.abs(A) - np.float32(1)).max(1),
        R=2,
        S=3,
    ),
    right(
        "def wrapped(int8(R,S) A) -> (a, b) { a(r) +=! 50 * A(r,s) b(r) *=! A(r,s) }",
        lambda A: ((np.int8(50) * A).sum(1, dtype=np.int8), squashed(A)),
        R=3,
        S=6,
    ),
    right(
        "def unsigned(uint8(R,S) A) -> (a, b) { a(r) min=! A(r,s) b(r) max=! A(r,s) - 1 }",
        lambda A: (A.min(1), (A - np.uint8(1)).max(1)),
        {"A": np.array([[0, 3, 4], [7, 2, 9]], np.uint8)},
    ),
    right(
        "def of_nothing(float(R,S) A, int8(R,S) B) -> (a, b, c, d, e) {"
        " a(r) +=! A(r,s) b(r) *=! A(r,s) c(r) max=! A(r,s) d(r) min=! B(r,s) e(r) max=! B(r,s) }",
        lambda A, B: (
            np.zeros(2, np.float32),
            np.ones(2, np.float32),
            np.full(2, -np.inf, np.float32),
            np.full(2, INT8.max, np.int8),
            np.full(2, INT8.min, np.int8),
        ),
        R=2,
        S=0,
    ),
    right(
        "def into_nothing(float(R,S) A) -> (y) { y(r) = 3 y(r) += A(r,s) }",
        lambda A: np.zeros(0, np.float32),
        R=0,
        S=3,
    ),
    right(
        "def narrow(half(N) x, bfloat16(N) z) -> (a, b, c) { a +=! x(n) b +=! z(n) c max=! z(n) }",
        lambda x, z: (
            x.astype(np.float64).sum().astype(np.float16),
            z.astype(np.float64).sum().astype(ml_dtypes.bfloat16),
            z.astype(np.float64).max().astype(ml_dtypes.bfloat16),
        ),
        N=40,
    ),
    right(
        "def ones(half(N) x) -> (a) { a +=! x(n) }  # beyond 2048, sums of ones stand still in half itself",
        lambda x: np.float16(4096),
        {"x": np.ones(4096, np.float16)},
    ),
    right(
        "def several(double(A,B,C,D) x) -> (y) { y(c) +=! x(a,b,c,d) }",
        lambda x: x.sum((0, 1, 3)),
        A=2,
        B=3,
        C=4,
        D=2,
    ),
    right(
        "def without(float(R,S) A) -> (y) { y(r,s) +=! A(r,s) }  # nothing is reduced",
        lambda A: A,
        R=2,
        S=3,
    ),
    right(
        "def count(float(N) x) -> (y) { y +=! int32(x(n) > 0) }",
        lambda x: np.int32((x > 0).sum()),
        N=9,
    ),
    right(
        "def mean(double(R,S) A) -> (y) { y(r) +=! A(r,s) / S }",
        lambda A: A.mean(1),
        R=3,
        S=4,
    ),
    right(
        """
        def arg_of_most(float(N) x) -> (at) {
          m max=! x(n)
          at min=! x(n) == m ? n : N
        }
        """,
        lambda x: np.int32(x.argmax()),
        N=9,
    ),
)
