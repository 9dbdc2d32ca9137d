"""Gradients that a caller writes: taken in place of derived ones, and refused where they are not the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import UsageError

#: A layer, and its gradient by what it returned: with 1 - y², no tanh is computed again.
LAYER = """
def layer(float(B,I) x, float(O,I) w) -> (y) {
  y(b,o) +=! x(b,i) * w(o,i)
  y(b,o) = tanh(y(b,o))
}
"""
BACK = """
def back(float(B,I) x, float(O,I) w, float(B,O) up) -> (d_w, d_x) {
  s(b,o) +=! x(b,i) * w(o,i)
  s(b,o) = up(b,o) * (1 - tanh(s(b,o)) * tanh(s(b,o)))
  d_x(b,i) +=! s(b,o) * w(o,i)
  d_w(o,i) +=! s(b,o) * x(b,i)
}
"""
LOG = "def f(float(N) x) -> (y) { y(i) = log(x(i)) }"
LOG_BACK = "def back(float(N) x, float(N) up) -> (d_x) { d_x(i) = up(i) / x(i) }"
CLIPPED = "def f(float(N) x) -> (y) { y(i) = fmax(x(i), 0) }"
#: A gradient in place of the derived one, which is none there: what is passed to be updated, sizes by scalars.
STRIDED = "def f(int s, float(N) x) -> (y) { y(i) = x(s * i) * x(s * i) where i in 0:2 }"
STRIDED_BACK = """
def back(int s, float(N) x, float(2) up) -> (d_x) {
  d_x(i) = 0 where i in 0:N
  d_x(i) += (i == s * k ? 2 * up(k) * x(i) : 0) where k in 0:2
}
"""
LOOK_UP = "def f(float(E) t, int(B) at) -> (y, n) { y(b) = t(at(b)) * t(at(b)) \n n(b) = at(b) }"
LOOK_UP_BACK = """
def back(float(E) t, int(B) at, float(B) up) -> (d_t) {
  d_t(e) +=! e == at(b) ? 2 * up(b) * t(e) : 0 where e in 0:E
}
"""


def function(source: str) -> Any:
    (found,) = eqsat.comprehension(source).values()
    return found


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def test_a_given_gradient_is_that_of_the_function() -> None:
    plain, x, w, up = function(LAYER), drawn(3, 4), drawn(5, 4), drawn(3, 5)
    given = plain.with_gradient(BACK)
    assert plain.given is None
    np.testing.assert_array_equal(given(x, w), plain(x, w))
    d_w, d_x = given.gradient()(x, w, up)
    for made, wanted in zip((d_x, d_w), plain.gradient()(x, w, up), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
    assert given.gradient("x", "w").results == ("d_x", "d_w")
    only = given.gradient("w")
    assert only.results == ("d_w",) and "d_x" not in only.source
    np.testing.assert_allclose(only(x, w, up), d_w)
    np.testing.assert_allclose(eqsat.kernel(given.gradient("w"))(x, w, up), d_w, rtol=1e-5, atol=1e-6)
    assert given.gradient("w").gradient("x").parameters[:3] == ("x", "w", "up")


@pytest.mark.parametrize(
    ("source", "gradient"),
    [(LOG, LOG_BACK), (STRIDED, STRIDED_BACK), (LOOK_UP, LOOK_UP_BACK),
     (CLIPPED, "def back(float(N) x, float(N) up) -> (d_x) { d_x(i) = x(i) > 0 ? up(i) : 0 }"),
     (LAYER.replace("float", "half"), BACK.replace("float", "half")),
     ("def f(float(N) x) -> (s) { s +=! x(i) * x(i) }",
      "def back(float(N) x, float up) -> (d_x) { d_x(i) = 2 * up * x(i) }")],
)  # fmt: skip
def test_gradients_are_held_against_differences_in_float64(source: str, gradient: str) -> None:
    given = function(source).with_gradient(gradient)
    assert given.gradient().source == function(gradient).source


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (LOG_BACK.replace("/ x(i)", "* x(i)"), r"not the gradient of f in x: .* at \[\d\], where differences are"),
        (LOG_BACK.replace("up(i) / x(i)", "1.0001 * up(i) / x(i)"), "back is not the gradient of f in x"),
        (LOG_BACK.replace("up(i) /", "1 /"), "back is not the gradient of f in x"),
        ("def back(float(N) x) -> (d_x) { d_x(i) = 1 / x(i) }", "back of 1 parameters\n.*2: x, the gradient of y"),
        (LOG_BACK.replace("float(N) up", "double(N) up"), "up is float64 of 1 axes\n.*float32 of 1 axes, as y of f is"),
        (LOG_BACK.replace("d_x", "g"), "g, a result of back\n  expected d_x"),
        (LOG_BACK.replace("up(i) / x(i)", "double(up(i) / x(i))"), "d_x is float64 of 1 axes"),
        (LOG_BACK.replace("back", "f"), "a gradient named f\n  expected another name"),
        (
            "def back(float(N) x, float(M) up) -> (d_x) { d_x(i) = up(i) / x(i) where i in 0:1 }",
            r"d_x of shape \[1\]\n  expected \[\d\], as x has",
        ),
        ("def back(float(N) x, float(N) up) -> (d_x) { d_x(i) += up(i) / x(i) }", "d_x, which is updated in place"),
    ],
)  # fmt: skip
def test_what_is_no_gradient_is_refused(gradient: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        function(LOG).with_gradient(gradient)


def test_a_gradient_in_some_parameters_is_none_in_others() -> None:
    partly = BACK.replace("(d_w, d_x)", "(d_w)")
    given = function(LAYER).with_gradient(partly)
    assert given.gradient().results == ("d_w",)
    with pytest.raises(UsageError, match="no gradient in 'x'\n  expected w\n  state d_x in the gradient that is given"):
        given.gradient("x")


def test_arguments_are_those_of_a_caller_where_none_are_drawn() -> None:
    source = "def f(float(N) x, int(B) at) -> (y) { y(b) = x(at(b)) + x(7) }"
    gradient = """
    def back(float(N) x, int(B) at, float(B) up) -> (d_x) {
      d_x(e) +=! (e == at(b) ? up(b) : 0) + (e == 7 ? up(b) : 0) where e in 0:N
    }"""
    with pytest.raises(UsageError, match=r"no small arguments are found that f takes\n.*\n.*arguments=\(…\)"):
        function(source).with_gradient(gradient)
    arguments = (drawn(9), np.array([8, 0, 8], np.int32))
    given = function(source).with_gradient(gradient, arguments=arguments)
    assert given.gradient("x")(*arguments, np.ones(3, np.float32)).tolist() == [1, 0, 0, 0, 0, 0, 0, 3, 2]
    with pytest.raises(UsageError, match="is not the gradient"):
        function(source).with_gradient(gradient.replace("7 ?", "6 ?"), arguments=arguments)
