"""Gradients of gradients of windows, whatever they move by: held against differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.errors import RangeError
from tests.support.comprehensions.gradient_differences import check_gradient

#: The value of an element of a window, and whether it has weights.
VALUES = {"x({})": False, "x({}) * w(k)": True, "x({}) * x({}) * w(k)": True, "exp(x({}) * w(k))": True}


@st.composite
def windows(draw: Any) -> tuple[str, list[np.ndarray[Any, Any]]]:
    """A function of windows of a vector, over windows of another one or not, and its arguments."""
    stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    offset, width = draw(st.integers(0, 2)), draw(st.integers(1, 4))
    # From too short for a window to a few of them.
    count = offset + dilation * (width - 1) + stride * draw(st.integers(0, 5)) + draw(st.integers(0, 4))
    value, weighted = draw(st.sampled_from([*VALUES.items()]))
    reduction = draw(st.sampled_from(["+=!", "max=!", "*=!"]))
    place = f"{stride} * i + {dilation} * k" if draw(st.booleans()) else f"{dilation} * k + {stride} * i"
    place = f"N - 1 - ({place})" if draw(st.booleans()) else f"{place} + {offset}" if offset else place
    size = width if draw(st.booleans()) else "K"
    weights = f", double({size}) w" if weighted else ""
    bounds = "" if weighted else f" where k in 0:{width}"
    body = f"y(i) {reduction} {value.replace('{}', place)}{bounds}"
    if draw(st.booleans()):  # windows of windows
        body = f"z(i) = sin(x(i))  {body.replace('x(', 'z(')}  r(i) +=! y(2 * i + k) * y(i) where k in 0:2"
        text = f"def f(double(N) x{weights}) -> (r) {{ {body} }}"
    else:
        text = f"def f(double(N) x{weights}) -> (y) {{ {body} }}"
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return text, [rng.standard_normal(count), *([rng.standard_normal(width)] if weighted else [])]


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(windows())
def test_second_gradients_of_windows_are_what_differences_say(drawn: Any) -> None:
    text, arguments = drawn
    function = eqsat.comprehension(text).f
    try:
        made = function(*arguments)
    except RangeError:
        return  # windows that do not fit would have to begin behind the first element
    first = function.gradient()
    above = np.random.default_rng(7).standard_normal(made.shape)
    check_gradient(function, arguments, {})
    check_gradient(first, [*arguments, above], {})
