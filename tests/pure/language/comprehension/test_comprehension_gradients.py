"""Gradients of comprehensions: held against differences in float64, for all of the corpus that has one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import RangeError, UsageError
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.text.printer import print_function
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.gradient_differences import check_gradient, listed

#: What the programs without a gradient do, by how the error says so.
REFUSED = {
    "integer scalars": ("stepped", "image_with_strides", "with_a_step", "backwards"),
    "tensors of a caller's that are updated": ("update", "from_zero", "running"),
}
#: Programs whose values are steps, or whose largest elements are equal: differences say nothing of them.
STEPS = {"casts", "narrow"}


def wide(function: Any) -> Any:
    """The function with double in place of float, half and bfloat16."""
    text = re.sub(r"\b(float|half|bfloat16|float16|float32)\b", "double", print_function(function.scope.function))
    return eqsat.comprehension(text)[function.name]


def with_gradients() -> list[Any]:
    """The programs of the corpus that have parameters and results of floats."""
    found = []
    for program in RIGHT:
        function, types = program.function, program.function.types
        parameters = [one.name for one in function.scope.function.parameters]
        floats = (
            any(types[name].is_float for name in parameters),
            any(types[name].is_float for name in function.results),
        )
        if all(floats):
            found.append(program)
    return found


PROGRAMS = with_gradients()


def test_the_corpus_has_gradients_but_for_what_is_listed() -> None:
    refused = set()
    for program in PROGRAMS:
        try:
            program.function.gradient()
        except UsageError as error:
            assert "has no gradient here" in error.what
            refused.add(program.function.name)
    assert refused == {name for names in REFUSED.values() for name in names}
    assert len(PROGRAMS) - len(refused) >= 95


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.function.name)
def test_a_gradient_is_what_differences_say(program: Any) -> None:
    if program.function.name in {name for names in REFUSED.values() for name in names} | STEPS:
        return
    arguments, named = program.arguments(program.function)
    check_gradient(wide(program.function), arguments, named)


#: Factors that integers could be, conditions inside of conditions, and targets whose type another statement decides.
TRICKY = {
    "integers divided": ("def f(double(N) x) -> (y) { y(i) = x(i) / 2 * 3 }", {}),
    "an index by a size": ("def f(double(N) x) -> (y) { y(i) = i * (x(i) / N) }", {}),
    "integers multiplied": ("def f(double(N) x, int32(N) n) -> (y) { y(i) = n(i) * (n(i) * x(i)) }", {"n": 100_000}),
    "unsigned negated": (
        "def f(double(N) x, uint32(N) n) -> (y) { y(i) = -x(i) * n(i) + n(i) * (1.5 - x(i)) }",
        {"n": 3},
    ),
    "truths multiplied": (
        "def f(double(N) x) -> (y) { y(i) = (1 - x(i)) * (x(i) > 0) + x(i) * (x(i) > -9) * (x(i) < 9) }",
        {},
    ),
    "divided by integers": ("def f(double(N) x, int32(N) n) -> (y) { y(i) = fdivide(x(i), n(i)) }", {"n": 3}),
    "a power of 0": ("def f(double(N) x, uint32(N) n) -> (y) { y(i) = pow(2 + fabs(x(i)), n(i)) }", {"n": 0}),
    "an angle": ("def f(double(N) x, int32(N) n) -> (y) { y(i) = atan2(x(i), n(i)) + atan2(3, x(i)) }", {"n": 100_000}),
    "a type by all": ("def f(double(N) x) -> (y) { y(i) = 3 where i in 0:N y(i) = y(i) / 2 * x(i) }", {}),
    "a stated type": (
        "def f(int32(N) n, double(N) x) -> (double(N) y, double(N) z) { y(i) = n(i) z(i) = y(i) / 2 * x(i) }",
        {"n": 3},
    ),
    "wide integers": (
        "def f(double(N) x, int32(N) n) -> (int64(N) k, y) { k(i) = n(i) y(i) = double(k(i) * k(i)) * x(i) }",
        {"n": 100_000},
    ),
    "an empty range": ("def f(double(N) x, double(M) w) -> (y) { y +=! x(0) + w(i) where i in 0:M-5 }", {}),
    "conditions in conditions": (
        "def f(double(N) x, double(N) w) -> (y) { y(i) = i > 0 ? (x(i-1) > 0 ? w(i) : 0.0) : w(i) where i in 0:N }",
        {},
    ),
    "a larger one under a condition": (
        "def f(double(N) x) -> (y) { y(i) = i > 0 ? fmaxf(x(i-1), x(i)) : expf(x(i)) where i in 0:N }",
        {},
    ),
    "a place under a condition": (
        "def f(double(N) x, int32(N) at) -> (y) { y(i) = i > 0 ? x(at(i-1)) : 0.0 where i in 0:N }",
        {"at": 2},
    ),
    "no division by 0": (
        "def f(double(N) x, int32(N) n) -> (y) { y(i) = n(i) > 0 ? x(6 / n(i) % 3) : (n(i) != 0 ? x(i) : 0.0) }",
        {"n": 0},
    ),
    "a size that is a target": (
        "def f(double(N) x) -> (N) { N(i) = x(i) * x(i) N(i) += x(N-1-i) N(i) += x(N-1-i) * x(i) }",
        {},
    ),
    "a product that goes on": ("def f(double(N) x, double(M) w) -> (y) { y(i) = x(i) y(i) *= w(j) + x(i) }", {}),
    "products of windows": ("def f(double(N) x) -> (y) { y(i) *=! x(i + j) where i in 0:N-1, j in 0:2 }", {}),
    "products from the second on": (
        "def f(double(N) x, double(M) w) -> (y) { y(i) = x(i) y(i) *=! x(i) - w(j) where i in 1:N, j in 1:M }",
        {},
    ),
    "the largest so far": ("def f(double(N) x, double(M) w) -> (y) { y(i) = x(i) y(i) max= w(j) * x(i) }", {}),
    "the least of a part": (
        "def f(double(N) x, double(M) w) -> (y) { y(i) = x(i) y(i) min= w(j) * x(i) where i in 1:3 }",
        {},
    ),
    "a part that is made again": (
        "def f(double(N) x) -> (y) { y(i) = x(i) y(i) +=! y(j) * x(i) where i in 1:3, j in 0:2 y(i) = y(i) * x(i) }",
        {},
    ),
    "parts that overlap": (
        "def f(double(N) x) -> (y) { y(i) = x(i) * x(i) where i in 0:4 y(i) += x(i) where i in 1:3 "
        "y(i) = 2 * y(i) where i in 1:2 }",
        {},
    ),
    "a part of a plane": (
        "def f(double(N) x, double(M) w) -> (y) { y(i,j) = x(i) where i in 0:N, j in 0:M "
        "y(i,j) *= w(j) where i in 1:N-1, j in 0:M }",
        {},
    ),
    "windows that move by two": ("def f(double(N) x, double(M) w) -> (y) { y(i) +=! x(2 * i + j) * w(j) }", {}),
    "windows that move by two and back": (
        "def f(double(N) x) -> (y) { y(i) +=! x(N - 1 - 2 * i - j) * x(i) where i in 0:N/2, j in 0:2 }",
        {},
    ),
    "every third, dilated": ("def f(double(N) x) -> (y) { y(i) +=! x(3 * i + 2 * j) where i in 0:1, j in 0:2 }", {}),
    "moved by a quotient": (
        "def f(double(N) x) -> (y) { y(i) = x(i + N / 2) * x(min(i, N / 3)) where i in 0:N/2 }",
        {},
    ),
    "a rest of a size": ("def f(double(N) x) -> (y) { y(i) = x(i) * x(i) where i in 0:(N + 2) % 4 }", {}),
    "the least of products": (
        "def f(double(N) x, double(M) w) -> (y) { y(i) min=! exp(x(i + j - 1) * w(j)) where i in 0:N, j in 1:M-1 }",
        {},
    ),
}


@pytest.mark.parametrize("name", TRICKY)
def test_gradients_where_integers_and_conditions_meet(name: str) -> None:
    text, given = TRICKY[name]
    function, rng = eqsat.comprehension(text).f, np.random.default_rng(3)
    sizes = {"N": 4, "M": 3}
    arguments = [
        rng.standard_normal(sizes[one.extents[0]])
        if one.name not in given
        else np.full(sizes[one.extents[0]], given[one.name], function.types[one.name].numpy)
        for one in function.scope.function.parameters
    ]
    check_gradient(function, arguments, {})


def test_names_that_a_gradient_cannot_have_are_told_of() -> None:
    taken = eqsat.comprehension("def f(double(N) sin, double(N) x) -> (y) { y(i) = cos(x(i)) * sin(i) }").f
    with pytest.raises(UsageError, match="cos beside a tensor called sin has no gradient here"):
        taken.gradient()
    with pytest.raises(UsageError, match="C, which is updated in place has no gradient here"):
        eqsat.comprehension("def f(double(N) x) -> (C) { C(i) += x(i) }").f.gradient()
    with pytest.raises(UsageError, match="a function without a parameter of floats has no gradient here"):
        eqsat.comprehension("def f(int(N) x) -> (y) { y(i) = double(x(i)) }").f.gradient()
    with pytest.raises(UsageError, match=r"ranges that depend on integer scalars or quotients .* no gradient here"):
        eqsat.comprehension("def f(double(N) x, int s) -> (y) { y(i) = x(s * i) }").f.gradient()
    twice = eqsat.comprehension("def f(double(N) x) -> (y) { y(i) = x(i) * x(i) }").f.gradient("x", "x")
    assert twice.results == ("d_x",)


#: Arguments at which functions are smooth, where those of the others are not in their domain.
PLACES = {"acosh": 1.7, "erfcinv": 0.6, "erfinv": 0.4, "normcdfinv": 0.4, "acos": 0.3, "asin": 0.3, "atanh": 0.3}
WITHOUT = {"lgamma", "tgamma", "remainder", "nextafter"}


@pytest.mark.parametrize("name", sorted(mathematics.FUNCTIONS))
def test_every_function_has_the_derivative_that_differences_say(name: str) -> None:
    count = mathematics.FUNCTIONS[name].arity
    names = "abcd"[:count]
    parameters, read = ", ".join(f"double(N) {one}" for one in names), ", ".join(f"{one}(i)" for one in names)
    text = f"def f({parameters}) -> (y) {{ y(i) = {name}({read}) }}"
    function = eqsat.comprehension(text).f
    if name in WITHOUT:
        with pytest.raises(UsageError, match=f"{name} has no derivative here"):
            function.gradient()
        return
    given = [np.full(1, PLACES.get(name, 0.83) + 0.21 * place) for place in range(count)]
    made = listed(function.gradient()(*given, np.ones(1)))
    for place in range(count):
        ends = [[one + sign * 1e-6 * (at == place) for at, one in enumerate(given)] for sign in (1, -1)]
        wanted = (function(*ends[0]) - function(*ends[1])) / 2e-6
        np.testing.assert_allclose(made[place], wanted, rtol=1e-6, atol=1e-8)


def test_a_gradient_is_a_function_like_any_other() -> None:
    layer = eqsat.comprehension("""
    def layer(float(B,M) x, float(N,M) w, int32(B) at) -> (y, best) {
      y(b,n) +=! x(at(b),m) * w(n,m)
      y(b,n) = fmax(y(b,n), 0)
      best(b) max=! y(b,n)
    }""").layer
    gradient = layer.gradient("w", "x")
    assert (gradient.name, gradient.results) == ("layer_gradient", ("d_w", "d_x"))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 6), (5, 6)))
    at, above, best = np.int32([2, 0, 2, 1]), np.ones((4, 5), np.float32), np.zeros(4, np.float32)
    d_w, d_x = gradient(x, w, at, above, best)
    mask = (x[at] @ w.T > 0).astype(np.float32)
    np.testing.assert_allclose(d_w, mask.T @ x[at], rtol=1e-5)
    wanted = np.zeros_like(x)
    np.add.at(wanted, at, mask @ w)  # rows that are read twice are added to twice
    np.testing.assert_allclose(d_x, wanted, rtol=1e-5, atol=1e-6)
    again = eqsat.comprehension(print_function(gradient.scope.function)).layer_gradient
    np.testing.assert_array_equal(again(x, w, at, above, best)[0], d_w)
    with pytest.raises(UsageError, match="no gradient in 'at'"):
        layer.gradient("at")


@pytest.mark.parametrize("count", [3, 5])
def test_gradients_of_other_extents_than_the_result_has_are_refused(count: int) -> None:
    convolve = eqsat.comprehension("def f(float(N) x, float(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }").f
    x, w = np.ones(5, np.float32), np.ones(2, np.float32)
    assert listed(convolve.gradient()(x, w, np.ones(4, np.float32)))[1].tolist() == [4, 4]
    with pytest.raises(RangeError, match=f"axis 0 of g_y has {count} elements here"):
        convolve.gradient()(x, w, np.ones(count, np.float32))


def test_sizes_may_be_called_as_quotients_are() -> None:
    text = "def f(double(modes) x, double(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }"
    assert eqsat.comprehension(text).f.gradient().results == ("d_x", "d_w")


def test_what_no_gradient_needs_is_left_out() -> None:
    both = eqsat.comprehension("def both(float(N) x) -> (y, n) { y(i) = 2 * x(i) n(i) = int32(x(i)) }").both
    assert [one.statement.target for one in both.gradient().scope.statements] == ["g_y", "d_x"]


def test_equal_elements_share_the_gradient_of_the_largest() -> None:
    largest = eqsat.comprehension("def largest(float(N) x) -> (y) { y max=! x(i) }").largest
    made = largest.gradient()(np.float32([1, 3, 3, 2]), np.float32(2.0))
    np.testing.assert_array_equal(made, np.float32([0, 1, 1, 0]))


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_factors_of_a_product_may_be_zero(zeros: int) -> None:
    product = eqsat.comprehension("def product(double(N) x) -> (y) { y *=! x(i) }").product
    x = np.array([2.0, -3.0, 0.5, 1.5])
    x[:zeros] = 0
    others = [np.prod(np.delete(x, place)) for place in range(4)]
    np.testing.assert_array_equal(product.gradient()(x, 2.0), 2 * np.array(others))
    # The second derivatives are products of all but two factors.
    way = np.array([1.0, -2.0, 3.0, 0.25])
    pairs = [[np.prod(np.delete(x, (a, b))) * (a != b) for b in range(4)] for a in range(4)]
    np.testing.assert_allclose(product.gradient().gradient("x")(x, 2.0, way), 2 * np.array(pairs) @ way)


def test_numbers_before_and_after_an_update_share_the_gradient_of_the_largest() -> None:
    f = eqsat.comprehension("def f(double(N) x, double(M) w) -> (y) { y(i) = x(i) y(i) max= w(j) }").f
    d_x, d_w = f.gradient()(np.array([3.0, 1.0]), np.array([3.0, 3.0, 2.0]), np.array([3.0, 1.0]))
    np.testing.assert_array_equal(d_x, [1, 0])
    np.testing.assert_array_equal(d_w, [1.5, 1.5, 0])


@pytest.mark.parametrize("count", range(1, 8))
def test_windows_that_do_not_fit_have_gradients_of_nothing(count: int) -> None:
    strided = eqsat.comprehension("def f(double(N) x, double(K) w) -> (y) { y(i) +=! x(2 * i + k) * w(k) }").f
    x, w = np.arange(count, dtype=np.float64), np.ones(4)
    try:
        y = strided(x, w)
    except RangeError:
        return
    d_x, d_w = strided.gradient()(x, w, np.ones_like(y))
    assert d_x.sum() == 4 * len(y)
    assert d_w.tolist() == [float(sum(x[place::2][: len(y)])) for place in range(4)]


def test_strided_windows_are_solved_for_what_they_move_by() -> None:
    strided = eqsat.comprehension("def f(float(N) x, float(K) w) -> (y) { y(i) +=! x(2 * i + k) * w(k) }").f
    text = str(strided.gradient("x"))
    # Of each element the windows are walked that hold it, not all windows.
    assert "(p_2 - k) % 2 == 0" in text and text.rstrip("\n}").endswith("where p_2 in 0:N, k in 0:K")


def test_second_derivatives_are_gradients_of_gradients() -> None:
    cube = eqsat.comprehension("def cube(double(N) x) -> (y) { y(i) = x(i) * x(i) * x(i) }").cube
    second = cube.gradient().gradient("x")
    x, one = np.array([0.5, -2.0]), np.ones(2)
    np.testing.assert_allclose(second(x, one, one), 6 * x)


def test_second_derivatives_of_strided_windows_walk_the_windows_alone() -> None:
    strided = eqsat.comprehension("def f(double(N) x, double(K) w) -> (y) { y(i) +=! x(3 * i + 2 * k) * w(k) }").f
    first = strided.gradient("x")
    second = first.gradient("d_y")
    # The gradient in what was passed is what the function makes of the rest: no element is compared with all others.
    assert "d_d_x" in second.parameters and not re.search(r"%|\) ==", str(second))
    rng = np.random.default_rng(0)
    x, w, way = rng.standard_normal(17), rng.standard_normal(3), rng.standard_normal(17)
    y = strided(x, w)
    np.testing.assert_allclose(second(x, w, y, way), strided(way, w), rtol=1e-12)


PADDED = """
def f(double(N,C,H,W) x, double(O,C,3,3) w) -> (y) {
  y(n,o,i,j) +=! 0 < 2*i+a && 2*i+a <= H && 0 < 2*j+b && 2*j+b <= W ? x(n,c,2*i+a-1,2*j+b-1) * w(o,c,a,b) : 0
    where a in 0:3, b in 0:3, i in 0:(H-1)/2+1, j in 0:(W-1)/2+1
  y(n,o,i,j) = tanh(y(n,o,i,j))
}
"""


def test_a_padded_convolution_with_strides_has_third_derivatives() -> None:
    """A quotient of a difference in `where` is one of a function that has gradients as any other."""
    function, rng = eqsat.comprehension(PADDED).f, np.random.default_rng(1)
    x, w = rng.standard_normal((1, 2, 5, 4)), rng.standard_normal((2, 2, 3, 3))
    y = function(x, w)
    assert y.shape == (1, 2, 3, 2)
    arguments = [x, w, rng.standard_normal(y.shape)]
    check_gradient(function.gradient(), arguments, {})
    arguments += [rng.standard_normal(x.shape), rng.standard_normal(w.shape)]
    check_gradient(function.gradient().gradient("x", "w"), arguments, {})


def test_subscripts_of_narrow_integers_are_those_of_subscripts_in_gradients_too() -> None:
    """100 + 200 is 300 in a subscript, and 44 in 8 bits; 0 - 1 is below 0."""
    f = eqsat.comprehension(
        "def f(float(N) x, uint8(M) at, uint8 s) -> (y) { y(i) = x((at(i) + 200) % 3 + (s - 1) / 2) }"
    ).f
    x, at, given = np.arange(5, dtype=np.float32), np.array([100, 90, 7], np.uint8), np.float32([1, 10, 100])
    np.testing.assert_array_equal(f(x, at, 0), np.float32([0, 2, 0]))
    np.testing.assert_array_equal(f.gradient("x")(x, at, 0, given), np.float32([101, 0, 10, 0, 0]))
