"""Comprehensions about numbers: types, casts, conditions, quotients and literals."""

import ml_dtypes
import numpy as np

from tests.support.comprehensions.comprehension_cases import positive, right

BF16 = ml_dtypes.bfloat16
F4, I4 = np.float32, np.int32


def divisors(rng, shape, dtype):
    """Numbers of both signs but 0."""
    return (rng.integers(1, 5, shape) * rng.choice([-1, 1], shape)).astype(dtype)


def quotient(a, b):
    """The quotient of integers, rounded to zero."""
    return np.trunc(a / b).astype(a.dtype)


PROGRAMS = (
    right(
        "def toward_zero(int(N) a, int(N) b) -> (q, r) { q(i) = a(i) / b(i) r(i) = a(i) % b(i) }",
        lambda a, b: (quotient(a, b), a - b * quotient(a, b)),
        {"b": divisors},
        N=40,
    ),
    right(
        "def least_by_minus_one(int8(N) a) -> (q, r) { q(i) = a(i) / -1 r(i) = a(i) % -1 }",
        lambda a: (np.array([-128, 127, -127, 0], np.int8), np.zeros(4, np.int8)),
        {"a": np.array([-128, -127, 127, 0], np.int8)},
    ),
    right(
        "def unsigned_quotient(uint8(N) a, uint8(N) b) -> (q, r) { q(i) = a(i) / b(i) r(i) = a(i) % b(i) }",
        lambda a, b: (a // b, a % b),
        {"b": positive},
        N=20,
    ),
    right(
        "def quotients_of_literals(int(N) a) -> (q) { q(i) = a(i) + -7 / 2 * 10 + -7 % 2 }",
        lambda a: a - I4(31),
        N=3,
    ),
    right(
        "def wraps(int8(N) a, uint8(N) b) -> (c, d, e) { c(i) = a(i) * a(i) d(i) = b(i) - 1 e(i) = -b(i) }",
        lambda a, b: (a * a, b - np.uint8(1), -b),
        {"a": np.array([127, -128, 16], np.int8), "b": np.array([0, 1, 255], np.uint8)},
    ),
    right(
        "def mixed(uint8(N) a, int8(N) b, int16(N) c) -> (d, e) { d(i) = a(i) + b(i) e(i) = a(i) * c(i) }",
        lambda a, b, c: (a.astype(np.int16) + b, a.astype(np.int16) * c),
        N=6,
    ),
    right(
        "def halves(half(N) a, bfloat16(N) b) -> (c, d) { c(i) = a(i) + b(i) d(i) = b(i) * 2 }",
        lambda a, b: (a.astype(F4) + b.astype(F4), (b.astype(F4) * 2).astype(BF16)),
        N=6,
    ),
    right(
        "def integers_beside_halves(int64(N) a, half(N) b) -> (c) { c(i) = a(i) * b(i) }",
        lambda a, b: a.astype(np.float16) * b,
        N=6,
    ),
    right(
        "def casts(float(N) x) -> (a, b, c, d) {"
        " a(i) = int32(x(i)) b(i) = bool(x(i)) c(i) = double(x(i)) d(i) = float16(int8(x(i))) }",
        lambda x: (np.trunc(x).astype(I4), x != 0, x.astype(np.float64), np.trunc(x).astype(np.float16)),
        N=12,
    ),
    right(
        "def casts_that_wrap(int(N) x) -> (a, b, c) { a(i) = uint8(x(i)) b(i) = int8(x(i)) c(i) = uint64(x(i)) }",
        lambda x: (x.astype(np.uint8), x.astype(np.int8), x.astype(np.uint64)),
        {"x": np.array([-1, 255, 256, 300, -129, 2**31 - 1], I4)},
    ),
    right(
        "def indices_are_numbers(float(N) x) -> (a, b, c) { a(i) = i where i in 0:N b(i) = x(i) * i c(i) = N - i"
        " where i in 0:N }",
        lambda x: (np.arange(5, dtype=I4), x * np.arange(5, dtype=F4), np.arange(5, 0, -1, dtype=I4)),
        N=5,
    ),
    right(
        "def literals(float(N) x) -> (a, b, c) { a(i) = x(i) + 1 b(i) = x(i) + .5e1f c(i) = (x(i) + 2.) * 1e-1 }",
        lambda x: (x + 1, x + 5, (x + 2) * F4(0.1)),
        N=5,
    ),
    right(
        "def literals_alone() -> (a, b, c, d) { a = 7 b = 1.5 c = true d = 1 / 4 + 1.0 / 4 }",
        lambda: (I4(7), F4(1.5), np.bool_(True), F4(0.25)),
    ),
    right(
        "def choose(float(N) x, float(N) y) -> (z) { z(i) = x(i) > y(i) ? x(i) : y(i) }",
        np.maximum,
        N=9,
    ),
    right(
        "def chained(float(N) x) -> (s) { s(i) = x(i) > 0 ? 1 : x(i) < 0 ? -1 : 0 }",
        lambda x: np.sign(x).astype(I4),
        N=9,
    ),
    right(
        "def choice_of_types(bool(N) b, int8(N) x, float(N) y) -> (z) { z(i) = b(i) ? x(i) : y(i) }",
        lambda b, x, y: np.where(b, x.astype(F4), y),
        N=9,
    ),
    right(
        "def logic(bool(N) a, bool(N) b) -> (x, y, z) {"
        " x(i) = a(i) && !b(i) || b(i) && !a(i) y(i) = a(i) == b(i) z(i) = !(a(i) || b(i)) }",
        lambda a, b: (a ^ b, a == b, ~(a | b)),
        N=9,
    ),
    right(
        "def tighter(int(N) x) -> (a, b, c) {"
        " a(i) = 1 + 2 * x(i) - 3 % 2 b(i) = x(i) + 1 < 2 * 3 && x(i) != 1 || false c(i) = -x(i) * 2 - -1 }",
        lambda x: (1 + 2 * x - 1, (x + 1 < 6) & (x != 1), -x * 2 + 1),
        N=9,
    ),
    right(
        "def guarded_quotient(int(N) a, int(N) b) -> (q) { q(i) = b(i) != 0 ? a(i) / b(i) : 0 }",
        lambda a, b: np.where(b == 0, 0, quotient(a, np.where(b == 0, 1, b))),
        N=20,
    ),
    right(
        "def short(int(N) a, int(N) b) -> (q, r) {"
        " q(i) = b(i) != 0 && a(i) / b(i) > 1 r(i) = b(i) == 0 || a(i) % b(i) == 0 }",
        lambda a, b: (
            (b != 0) & (quotient(a, np.where(b == 0, 1, b)) > 1),
            (b == 0) | (a % np.where(b == 0, 1, b) == 0),
        ),
        N=20,
    ),
    right(
        "def floats_by_zero(float(N) x) -> (y, z) { y(i) = x(i) / 0 z(i) = 1 / (x(i) - x(i)) }",
        lambda x: (np.array([np.inf, np.nan, -np.inf], F4), np.full(3, np.inf, F4)),
        {"x": np.array([1, 0, -1], F4)},
    ),
    right(
        "def larger(int(N) a, float(N) b, half(N) c) -> (x, y, z) {"
        " x(i) = max(a(i), 2) y(i) = min(a(i), b(i)) z(i) = max(c(i), 0.5) }",
        lambda a, b, c: (np.maximum(a, 2), np.minimum(a.astype(F4), b), np.maximum(c, np.float16(0.5))),
        N=9,
    ),
    right(
        "def functions_of_integers(int(N) n) -> (s) { s(i) = sqrt(n(i)) }",
        lambda n: np.sqrt(n.astype(F4)),
        {"n": positive},
        N=5,
    ),
    right(
        "def stated(float(N) x) -> (double(N) y, int64(N) z) { y(i) = x(i) z(i) = int16(x(i)) }",
        lambda x: (x.astype(np.float64), np.trunc(x).astype(np.int64)),
        N=6,
    ),
    right(
        "def grows(int8(N) a, float(N) b) -> (y) { y(i) = a(i) y(i) += b(i) }  # y is of what it is given in all",
        lambda a, b: a + b,
        N=6,
    ),
)
