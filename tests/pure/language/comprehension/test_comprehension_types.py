"""Element types: all pairs of them, all casts, all literals, and what a stated result takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import ComprehensionTypeError
from tests.support.comprehensions.comprehension_cases import DTYPES
from tests.support.comprehensions.promotion_table import NAMES, PROMOTED

PAIRS = [(a, b) for a in NAMES for b in NAMES]
VALUES = {name: np.array([1, 0, 1] if name == "bool" else [1, 2, 3], DTYPES[name]) for name in NAMES}


def name_of(dtype: Any) -> str:
    return next(name for name in NAMES if DTYPES[name] == dtype)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_types_become_the_one_of_the_table(a: str, b: str) -> None:
    source = f"def f({a}(N) x, {b}(N) y) -> (z, w) {{ z(i) = x(0) == y(0) ? x(i) : y(i) w(i) = x(i) < y(i) }}"
    wanted = PROMOTED[a, b]
    if wanted is None:
        with pytest.raises(ComprehensionTypeError) as caught:
            eqsat.comprehension(source)
        assert caught.value.what.startswith(f"{a} with {b}\n")
        assert caught.value.remedy == "cast one of them: int64(…) or uint64(…)"
        return
    z, w = eqsat.comprehension(source).f(VALUES[a], VALUES[b])
    assert (name_of(z.dtype), name_of(w.dtype)) == (wanted, "bool")
    np.testing.assert_array_equal(z, VALUES[a].astype(DTYPES[wanted]))
    np.testing.assert_array_equal(w, VALUES[a].astype(float) < VALUES[b].astype(float))


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_arithmetic_is_in_the_type_of_the_table(a: str, b: str) -> None:
    source = f"def f({a}(N) x, {b}(N) y) -> (s, d, p) {{ s(i) = x(i) + y(i) d(i) = x(i) - y(i) p(i) = x(i) * y(i) }}"
    wanted = PROMOTED[a, b]
    if wanted in (None, "bool"):
        with pytest.raises(ComprehensionTypeError):
            eqsat.comprehension(source)
        return
    x, y = (VALUES[name].astype(np.int64) for name in (a, b))
    for made, exact in zip(eqsat.comprehension(source).f(VALUES[a], VALUES[b]), (x + y, x - y, x * y), strict=True):
        assert name_of(made.dtype) == wanted
        np.testing.assert_array_equal(made, exact.astype(DTYPES[wanted]))


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_a_value_is_assigned_to_a_stated_type_that_holds_it(a: str, b: str) -> None:
    source = f"def f({a}(N) x) -> ({b}(N) y) {{ y(i) = x(i) }}"
    if PROMOTED[a, b] == b:
        made = eqsat.comprehension(source).f(VALUES[a])
        assert name_of(made.dtype) == b
        np.testing.assert_array_equal(made, VALUES[a].astype(DTYPES[b]))
        return
    with pytest.raises(ComprehensionTypeError) as caught:
        eqsat.comprehension(source)
    assert caught.value.what.startswith(f"{a} assigned to y, which is {b}\n")
    assert (caught.value.expected, caught.value.remedy) == (f"a value that {b} holds", f"cast it: {b}(…)")


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_a_cast_has_its_type(a: str, b: str) -> None:
    made = eqsat.comprehension(f"def f({a}(N) x) -> (y) {{ y(i) = {b}(x(i)) }}").f(VALUES[a])
    assert name_of(made.dtype) == b
    np.testing.assert_array_equal(made, VALUES[a].astype(DTYPES[b]))


@pytest.mark.parametrize("name", NAMES)
def test_literals_take_the_type_that_they_meet(name: str) -> None:
    source = f"def f({name}(N) x) -> (a, b) {{ a(i) = true ? x(i) : 1 b(i) = true ? x(i) : 1.5 }}"
    a, b = eqsat.comprehension(source).f(VALUES[name])
    is_float = name in ("bfloat16", "float16", "float", "double")
    assert name_of(a.dtype) == ("int32" if name == "bool" else name)
    assert name_of(b.dtype) == (name if is_float else "float")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bool"])
@pytest.mark.parametrize("sign", ["+=!", "*=!", "min=!", "max=!"])
def test_reductions_are_of_the_type_of_their_values(name: str, sign: str) -> None:
    made = eqsat.comprehension(f"def f({name}(N) x) -> (y) {{ y {sign} x(i) }}").f(VALUES[name])
    wanted = {"+=!": 6, "*=!": 6, "min=!": 1, "max=!": 3}[sign]
    assert (name_of(made.dtype), made.shape, float(made)) == (name, (), wanted)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bool"])
@pytest.mark.parametrize("sign", ["+=!", "*=!", "min=!", "max=!"])
def test_reductions_of_nothing_are_neutral(name: str, sign: str) -> None:
    made = eqsat.comprehension(f"def f({name}(N) x) -> (y) {{ y {sign} x(i) }}").f(np.zeros(0, DTYPES[name]))
    if DTYPES[name].kind in "iu":
        least, most = np.iinfo(DTYPES[name]).min, np.iinfo(DTYPES[name]).max
    else:
        least, most = -np.inf, np.inf
    assert made.item() == {"+=!": 0, "*=!": 1, "min=!": most, "max=!": least}[sign]


@pytest.mark.parametrize(
    ("alias", "name"),
    [("int", "int32"), ("half", "float16"), ("float32", "float"), ("float64", "double")],
)
def test_other_names_of_types_mean_the_same(alias: str, name: str) -> None:
    sources = [f"def f({one}(N) x) -> ({one}(N) y) {{ y(i) = {one}(x(i)) }}" for one in (alias, name)]
    first, second = (eqsat.comprehension(source).f for source in sources)
    assert first.canonical == second.canonical
    assert first(VALUES[name]).dtype == DTYPES[name]
