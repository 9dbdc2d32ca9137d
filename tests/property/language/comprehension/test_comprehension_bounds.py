"""Ranges by trying values, and texts of any kind: what is accepted is inside and as large as can be."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.errors import BoundsError, ComprehensionError, RangeError

FACTORS = st.integers(-3, 3).filter(bool)


@settings(max_examples=120, derandomize=True)
@given(FACTORS, FACTORS, st.integers(-6, 12), st.integers(1, 12), st.integers(1, 4))
def test_a_window_is_inside_and_as_large_as_can_be(a: int, b: int, c: int, n: int, m: int) -> None:
    source = f"def f(float(N) x, float(M) w) -> (y) {{ y(i) +=! x({a} * i + {b} * k + {c}) * w(k) }}"
    inside = [i for i in range(n + 20) if all(0 <= a * i + b * k + c < n for k in range(m))]
    try:
        found = eqsat.comprehension(source).f.inferred({"x": (n,), "w": (m,)}).ranges[0]
    except RangeError:
        assert 0 not in inside
        return
    assert found["k"] == (0, m)
    length = next(count for count in itertools.count() if count not in inside)
    assert found["i"] == (0, length)


@settings(max_examples=120, derandomize=True)
@given(FACTORS, st.integers(-4, 8), st.integers(1, 9), st.integers(-2, 5), st.integers(-2, 9))
def test_a_stated_range_is_accepted_just_where_it_is_inside(a: int, c: int, n: int, low: int, high: int) -> None:
    source = f"def f(float(N) x) -> (y) {{ y +=! x({a} * i + {c}) where i in {low}:{high} }}"
    is_inside = all(0 <= a * i + c < n for i in range(low, high))
    try:
        eqsat.comprehension(source).f.inferred({"x": (n,)})
    except BoundsError:
        # What is outside for all sizes but the smallest is refused where it is defined.
        assert not is_inside
        return
    assert is_inside


@settings(max_examples=150, derandomize=True)
@given(
    st.one_of(st.text(max_size=40), st.text("def(){}->=+*!.,:?&|<>/%#ixyN0123 \n\t", max_size=60)), st.integers(0, 60)
)
def test_any_text_is_a_program_or_an_error_in_words(text: str, at: int) -> None:
    source = "def f(float(N) x) -> (y) { y(i) = x(i) + 2 where i in 0:N }"
    for one in (text, source[:at] + text + source[at:]):
        try:
            eqsat.comprehension(one)
        except ComprehensionError as error:
            assert error.what
