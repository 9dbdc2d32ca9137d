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


def squared() -> Any:
    return function("def f(float(N) x) -> (y) { y(i) = x(i) * x(i) }")


def given_in_x(value: str, gradient: str, more: str = "", **options: Any) -> Any:
    """A function of an element each, with its gradient."""
    source = f"def f({more}float(N) x) -> (y) {{ y(i) = {value} }}"
    return function(source).with_gradient(
        f"def back({more}float(N) x, float(N) u) -> (d_x) {{ d_x(i) = {gradient} }}", **options
    )


@pytest.mark.parametrize(
    ("value", "gradient", "more"),
    [
        ("x(i) * x(i)", "i == 0 ? u(i) / (x(i) - x(i)) : -7 * u(i)", ""),
        ("x(i) * x(i)", "i == 0 ? u(i) / (x(i) - x(i)) : 2 * x(i) * u(i)", ""),
        ("x(i) * x(i)", "i == 0 ? 0 * u(i) / (x(i) - x(i)) : 2 * x(i) * u(i)", ""),
        ("i == 0 ? 10000000.0 * x(i) : x(i)", "i == 0 ? 10000000.0 * u(i) : -3.0 * u(i)", ""),
        ("i == 0 ? 1e12 * x(i) : x(i)", "i == 0 ? 1e12 * u(i) : -3.0 * u(i)", ""),
        ("x(i) * x(i) * 0.000003", "0.0 * u(i)", ""),
        ("x(i) * x(i) * 1e-20", "1e-20 * x(i) * u(i)", ""),
        ("sin(1000 * x(i))", "7 * u(i)", ""),
        ("1e6 * x(i) + 1e9", "1.0001e6 * u(i)", ""),
        ("k(i) > 2 ? 3 * x(i) : x(i)", "u(i)", "int(N) k, "),
        ("k(i) < -2 ? 3 * x(i) : x(i)", "u(i)", "int(N) k, "),
        ("k(i) > 20 ? 3 * x(i) : x(i)", "u(i)", "int8(N) k, "),
        ("k > 2 ? 3 * x(i) : x(i)", "u(i)", "int k, "),
        ("k < 0 ? 3 * x(i) : x(i)", "u(i)", "int k, "),
    ],
)
def test_a_wrong_gradient_is_refused_by_each_element(value: str, gradient: str, more: str) -> None:
    with pytest.raises(UsageError, match="back is not the gradient of f in x"):
        given_in_x(value, gradient, more)


@pytest.mark.parametrize(
    ("value", "gradient", "more"),
    [
        ("x(i) + 100000000.0", "u(i)", ""),
        ("x(i) + (m(i) > 0 ? 0.0 : -1000000000.0)", "u(i)", "int(N) m, "),
        ("x(i) + (m(i) > 0 ? 0.0 : -1e30)", "u(i)", "int(N) m, "),
        ("x(i) * x(i) + 1e12", "2 * x(i) * u(i)", ""),
        ("(x(i) * x(i) + 1e8) - 1e8", "2 * x(i) * u(i)", ""),
        ("1 / (x(i) * x(i))", "-2 * u(i) / (x(i) * x(i) * x(i))", ""),
        ("1 / (x(i) * x(i) * x(i))", "-3 * u(i) / (x(i) * x(i) * x(i) * x(i))", ""),
        ("sin(100 * x(i))", "100 * cos(100 * x(i)) * u(i)", ""),
        ("sin(1e6 * x(i))", "1e6 * cos(1e6 * x(i)) * u(i)", ""),
        ("exp(20 * x(i))", "20 * exp(20 * x(i)) * u(i)", ""),
        ("log(-x(i))", "u(i) / x(i)", ""),
        ("x(i) > 0 ? 1.0 : 0.0", "0 * u(i)", ""),
        ("fmax(x(i), 0) * fmax(x(i), 0)", "x(i) > 0 ? 2 * x(i) * u(i) : 0", ""),
        ("x(i) * (4 / k(i))", "u(i) * (4 / k(i))", "int(N) k, "),
        ("x(i) * (k(i) % 5)", "u(i) * (k(i) % 5)", "uint8(N) k, "),
        ("flag ? x(i) : 2 * x(i)", "flag ? u(i) : 2 * u(i)", "bool flag, "),
    ],
)
def test_a_right_gradient_is_taken_whatever_its_size(value: str, gradient: str, more: str) -> None:
    assert given_in_x(value, gradient, more).given is not None


def test_a_sum_that_cancels_has_a_gradient_of_nothing() -> None:
    softmax = "s +=! exp(x(i)) y(i) = exp(x(i)) / s"
    total = function(f"def f(float(N) x) -> (t) {{ {softmax} t +=! y(i) }}")
    gradient = f"def back(float(N) x, float u) -> (d_x) {{ {softmax} t +=! y(i) d_x(i) = u * y(i) * (1 - t) }}"
    assert total.with_gradient(gradient).given is not None
    with pytest.raises(UsageError, match="not the gradient"):
        total.with_gradient(gradient.replace("(1 - t)", "(2 - t)"))


@pytest.mark.parametrize(
    ("value", "gradient", "taken"),
    [
        ("x(i) * x(i)", "2 * x(i) * u(i)", [1e18, 2**59, 3, -1e10, 1e-12, 0]),
        ("log(x(i))", "u(i) / x(i)", [1e-10, 1, 1e10]),
        ("x(i) * x(i) * x(i) * x(i)", "4 * x(i) * x(i) * x(i) * u(i)", [0, 0]),
        ("fabs(x(i))", "x(i) > 0 ? u(i) : -u(i)", [0, 1e-6, -1e-6]),
    ],
)
def test_steps_follow_the_arguments_that_are_passed(value: str, gradient: str, taken: list[float]) -> None:
    arguments = (np.array(taken, np.float32),)
    assert given_in_x(value, gradient, arguments=arguments).given is not None
    with pytest.raises(UsageError, match="not the gradient"):
        given_in_x(value, f"({gradient}) + 0.001 * u(i)", arguments=arguments)


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("fabs(x(i))", {"arguments": (np.zeros(4, np.float32),)}),
        ("fabs(x(i)) + 100 * pow(x(i), 4)", {"arguments": (np.zeros(4, np.float32),)}),
        ("x(i) * x(i) + 1e20", {}),
        ("sin(1e12 * x(i))", {}),
    ],
)
def test_a_gradient_that_differences_tell_nothing_of_is_refused(value: str, options: Any) -> None:
    message = (
        "the gradient of f: no element of d_x could be compared with differences\n"
        r"  expected arguments at which f is smooth in x, .*\n  pass others: with_gradient\(source, arguments=\(…\)\)"
    )
    with pytest.raises(UsageError, match=message):
        given_in_x(value, "7 * u(i)", **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (3, r"f: arguments=3\n  expected a tuple of x"),
        (np.zeros(3, np.float32), r"f: arguments=array.*\n  expected a tuple of x"),
        ((np.zeros(0, np.float32),), "f: arguments at which results have no elements\n  expected x of sizes above 0"),
        ((np.full(2, np.inf, np.float32),), "f: arguments at which results are not finite\n  expected x inside"),
    ],
)
def test_arguments_that_tell_nothing_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        given_in_x("x(i) * x(i)", "2 * x(i) * u(i)", arguments=arguments)


@pytest.mark.parametrize("source", [[], None, 3])
def test_what_is_no_text_is_no_gradient(source: Any) -> None:
    with pytest.raises(
        UsageError, match="for a function\n  expected the text of one, or a function of a comprehension"
    ):
        squared().with_gradient(source)


def test_a_source_of_two_functions_is_no_gradient() -> None:
    message = "a source of 2 functions: back, f\n  expected one function\n  pass that one alone"
    with pytest.raises(UsageError, match=message):
        squared().with_gradient(LOG_BACK + LOG)


def test_a_parameter_may_be_named_twice() -> None:
    given = squared().with_gradient(LOG_BACK.replace("/ x(i)", "* 2 * x(i)"))
    assert given.gradient("x", "x").results == squared().gradient("x", "x").results == ("d_x",)


@pytest.mark.parametrize("options", [{}, {"arguments": (np.ones(3, np.float32),)}])
def test_the_gradient_of_integers_is_nothing(options: Any) -> None:
    signs = function("def f(float(N) x) -> (n) { n(i) = x(i) > 0 ? 1 : 0 }")
    gradient = "def back(float(N) x) -> (d_x) { d_x(i) = 0 * x(i) }"
    assert signs.with_gradient(gradient, **options).given is not None
    with pytest.raises(UsageError, match="not the gradient"):
        signs.with_gradient(gradient.replace("0 *", "0.001 *"), **options)
