"""The 64 functions of comprehensions: their values, their names with an f, their arity, and their types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import ComprehensionNameError
from eqsat.language.comprehension.meaning.mathematics import FUNCTIONS
from tests.support.comprehensions.comprehension_cases import DTYPES
from tests.support.comprehensions.function_values import VALUES

LETTERS = "abcd"


def program(name: str, arity: int, type_: str) -> Any:
    """A function of Python that applies one of the language to each element."""
    parameters = ", ".join(f"{type_}(N) {letter}" for letter in LETTERS[:arity])
    arguments = ", ".join(f"{letter}(i)" for letter in LETTERS[:arity])
    return eqsat.comprehension(f"def f({parameters}) -> (y) {{ y(i) = {name}({arguments}) }}").f


def test_there_are_64_functions_and_a_value_of_each() -> None:
    assert (len(FUNCTIONS), set(VALUES)) == (64, set(FUNCTIONS))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize(("type_", "tolerance"), [("double", 1e-13), ("float", 3e-6)])
def test_a_function_has_the_values_of_mpmath(name: str, type_: str, tolerance: float) -> None:
    exact, points = VALUES[name]
    given = [np.array(column, DTYPES[type_]) for column in zip(*points, strict=True)]
    wanted = [float(exact(*map(float, point))) for point in zip(*given, strict=True)]
    made = program(name, FUNCTIONS[name].arity, type_)(*given)
    assert made.dtype == DTYPES[type_]
    np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_name_with_an_f_means_the_same(name: str) -> None:
    arity = FUNCTIONS[name].arity
    plain, other = program(name, arity, "float"), program(f"{name}f", arity, "float")
    assert plain.canonical == other.canonical
    given = [np.array([0.25, 0.5], np.float32)] * arity
    np.testing.assert_array_equal(plain(*given), other(*given))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("more", [-1, 1])
def test_another_number_of_arguments_is_refused(name: str, more: int) -> None:
    arity = FUNCTIONS[name].arity
    arguments = ", ".join(["x(i)"] * (arity + more))
    source = f"def f(float(N) x) -> (y) {{ y(i) = {name}({arguments}) where i in 0:N }}"
    with pytest.raises(ComprehensionNameError) as caught:
        eqsat.comprehension(source)
    given = arity + more
    assert caught.value.what.split("\n")[0] == f"{name} with {given} argument{'s' * (given != 1)}"
    assert caught.value.expected == f"{arity} argument{'s' * (arity != 1)}"
    assert caught.value.where == f"f: line 1, column {source.index(name + '(') + 1}"


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_narrow_floats_are_computed_in_float_and_integers_become_float(name: str) -> None:
    points, arity = VALUES[name][1], FUNCTIONS[name].arity
    wide, narrow = program(name, arity, "float"), program(name, arity, "half")
    columns = zip(*points, strict=True)
    given = [np.nan_to_num(np.array(column, np.float64), posinf=8, nan=0).clip(-9, 9) for column in columns]
    halves = [one.astype(np.float16) for one in given]
    with np.errstate(all="ignore"):
        wanted = wide(*(one.astype(np.float32) for one in halves)).astype(np.float16)
    np.testing.assert_array_equal(narrow(*halves), wanted)
    whole = [np.array([1, 1], np.int32)] * arity
    made = program(name, arity, "int")(*whole)
    np.testing.assert_array_equal(made, wide(*(one.astype(np.float32) for one in whole)))
    assert made.dtype == np.float32


def test_names_that_only_look_like_functions_are_refused_with_the_nearest() -> None:
    with pytest.raises(ComprehensionNameError) as caught:
        eqsat.comprehension("def f(float(N) x) -> (y) { y(i) = sqrrt(x(i)) }")
    assert caught.value.what.startswith("no tensor or function sqrrt\n")
    assert "sqrt" in caught.value.remedy
    for name in ("expff", "maxf", "minf", "f"):
        with pytest.raises(ComprehensionNameError):
            eqsat.comprehension(f"def g(float(N) x) -> (y) {{ y(i) = {name}(x(i), x(i)) }}")


@pytest.mark.parametrize(("type_", "bits"), [("float", 12), ("double", 30)])
def test_fma_rounds_once(type_: str, bits: int) -> None:
    near = np.array([1 + 2.0**-bits], DTYPES[type_])
    minus = -near * near
    made = program("fma", 3, type_)(near, near, minus)
    assert made.item() == 2.0 ** (-2 * bits)
    huge = np.array([np.finfo(DTYPES[type_]).max], DTYPES[type_])
    assert program("fma", 3, type_)(huge, huge, huge).item() == np.inf
    assert program("fma", 3, type_)(huge, near - near, near).item() == near.item()


def test_special_numbers_go_through_functions_as_in_c() -> None:
    text = """
    def f(float(N) x, float(N) y) -> (a, b, c, d) {
      a(i) = fmod(x(i), y(i))
      b(i) = remainder(x(i), y(i))
      c(i) = fdim(x(i), y(i))
      d(i) = hypot(x(i), y(i))
    }
    """
    x = np.array([np.nan, 1, np.inf, 1, 1], np.float32)
    y = np.array([1, np.nan, 1, 0, np.inf], np.float32)
    a, b, c, d = eqsat.comprehension(text).f(x, y)
    np.testing.assert_array_equal(a, [np.nan, np.nan, np.nan, np.nan, 1])
    np.testing.assert_array_equal(b, [np.nan, np.nan, np.nan, np.nan, 1])
    np.testing.assert_array_equal(c, [np.nan, np.nan, np.inf, 1, 0])
    np.testing.assert_array_equal(d, [np.nan, np.nan, np.inf, 1, np.inf])


@pytest.mark.parametrize(("type_", "bits"), [("float", 23), ("double", 52)])
def test_the_next_number_is_one_of_its_type(type_: str, bits: int) -> None:
    one, two, zero = (np.array([number], DTYPES[type_]) for number in (1, 2, 0))
    following = program("nextafter", 2, type_)
    assert (following(one, two) - one).item() == 2.0**-bits
    assert (one - following(one, zero)).item() == 2.0 ** -(bits + 1)
    assert following(one, one).item() == 1
