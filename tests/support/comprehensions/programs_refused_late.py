"""Comprehensions that are refused for the sizes or the elements that they are called with."""

import numpy as np

from eqsat.errors import BoundsError, ComprehensionError, RangeError
from tests.support.comprehensions.comprehension_cases import wrong

PROGRAMS = (
    wrong(
        "def f(float(N) x, float(M) z) -> (y) { y(i) = x(i) y(@i) += z(i) }",
        RangeError,
        "axis 0 of y has 3 elements here",
        N=4,
        M=3,
    ),
    wrong(
        "def f(float(N) x, float(M) z) -> (float(M) y) { y(@i) = x(i) }",
        RangeError,
        "axis 0 of y has 4 elements here",
        N=4,
        M=3,
    ),
    wrong(
        "def f(float(N) x) -> (y) { y(i) = x(i @+ 1) where i in 0:3 }",
        BoundsError,
        "x(i + 1) passes the bounds of x on axis 0",
        N=3,
    ),
    wrong(
        "def f(float(N) x, int s) -> (y) { y(i) = x(i @+ s) where i in 0:2 }",
        BoundsError,
        "x(i + s) passes the bounds of x on axis 0",
        {"s": 3},
        N=4,
    ),
    wrong(
        "def f(float(N) x, int s) -> (y) { y(@i) = x(s * i) }",
        RangeError,
        "no range of i follows from what is read",
        {"s": 0},
        N=4,
    ),
    wrong(
        "def f(float(N) x, int s) -> (y) { y(@i) = x(i - s) }",
        RangeError,
        "i would have to start at 1",
        {"s": 1},
        N=4,
    ),
    wrong(
        "def f(float(N) x, int(M) p) -> (y) { y(i) = x(@p(i)) }",
        BoundsError,
        "x(p(i)) passes the bounds of x on axis 0",
        {"p": np.array([0, 4], np.int32)},
        N=4,
    ),
    wrong(
        "def f(float(N) x, int(M) p) -> (y) { y(i) = x(@p(i)) }",
        BoundsError,
        "x(p(i)) passes the bounds of x on axis 0",
        {"p": np.array([0, -1], np.int32)},
        N=4,
    ),
    wrong(
        "def f(float(N) x) -> (y) {\n  y(i) = i <= N ? x(@i) : 0 where i in 0:N + 1\n}",
        BoundsError,
        "x(i) passes the bounds of x on axis 0",
        N=4,
    ),
    wrong(
        "def f(int(N) a, int(N) b) -> (y) { y(i) = a(i) @/ b(i) }",
        ComprehensionError,
        "a(i) / b(i) divides an integer by 0",
        {"b": np.zeros(2, np.int32)},
        N=2,
    ),
    wrong(
        "def f(int(N) a) -> (y) { y(i) = a(i) @% 0 }",
        ComprehensionError,
        "a(i) % 0 divides an integer by 0",
        N=2,
    ),
    wrong(
        "def f(float(N) x, int k) -> (float(N) y) { y(@i) = 2 * N where i in 0:k }",
        BoundsError,
        "y(i) passes the bounds of y on axis 0",
        {"k": 5},
        N=4,
    ),
    wrong(
        "def f(float(N) x, int(M) p) -> (y) { t +=! p(m) y = x(@t) }",
        BoundsError,
        "x(t) passes the bounds of x on axis 0",
        {"p": np.array([2, 3, 1], np.int32)},
        N=4,
    ),
)
