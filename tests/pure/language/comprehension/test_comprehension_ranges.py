"""Ranges of indices: as large as reads allow, in rounds, over whole functions, and as `where` states them."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.errors import (
    BoundsError,
    ComprehensionError,
    ComprehensionSyntaxError,
    RangeError,
    UpdateError,
    UsageError,
)
from eqsat.language.terms import evaluate


def ranges(body: str, parameters: str = "float(N) x, float(M) w", sizes: dict[str, int] | None = None) -> dict:
    """The ranges of the last statement of a function, for N = 10 and M = 3 where nothing else is said."""
    function = eqsat.comprehension(f"def f({parameters}) -> (y) {{ {body} }}").f
    known = {"N": 10, "M": 3, **(sizes or {})}
    shapes = {
        one.name: tuple(known[e] if isinstance(e, str) else e for e in one.extents)
        for one in function.scope.function.parameters
    }
    return dict(function.inferred(shapes, {name: known[name] for name in function.needs}).ranges[-1])


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("y(i) = x(i)", {"i": (0, 10)}),
        ("y(i) = x(i) + w(i)", {"i": (0, 3)}),
        ("y(i) = x(i + 4)", {"i": (0, 6)}),
        ("y(i) = x(3 * i)", {"i": (0, 4)}),
        ("y(i) = x(3 * i + 1)", {"i": (0, 3)}),
        ("y(i) = x(N - 1 - i)", {"i": (0, 10)}),
        ("y(i) = x(7 - 2 * i)", {"i": (0, 4)}),
        ("y(i) = x(-i)", {"i": (0, 1)}),
        ("y(i) +=! x(i + k) * w(k)", {"i": (0, 8), "k": (0, 3)}),
        ("y(i) +=! w(k) * x(k + i)", {"i": (0, 8), "k": (0, 3)}),
        ("y(i) +=! x(2 * i + k) * w(k)", {"i": (0, 4), "k": (0, 3)}),
        ("y(i) +=! x(i + 2 * k) * w(k)", {"i": (0, 6), "k": (0, 3)}),
        ("y(i) +=! x(i + M - 1 - k) * w(k)", {"i": (0, 8), "k": (0, 3)}),
        ("y(i) +=! x(i + k + l) * w(k) * w(l)", {"i": (0, 6), "k": (0, 3), "l": (0, 3)}),
        ("y(i) +=! x(i + k) where k in 0:4", {"i": (0, 7), "k": (0, 4)}),
        ("y(i) +=! x(i + k) where k in -0:1, i in 0:5", {"i": (0, 5), "k": (0, 1)}),
        ("y(i) = x(i) where exists x(i + 2)", {"i": (0, 8)}),
        ("y(i) = x(a) where a = 2 * (i + 1)", {"i": (0, 4)}),
        ("y(i) = x(i) where i in 0:min(N, M)", {"i": (0, 3)}),
        ("y(i) = x(i) where i in 0:max(M, 5) - 1", {"i": (0, 4)}),
        ("y(i) = x(i) where i in 0:N / M", {"i": (0, 3)}),
        ("y(i) = x(i) where i in 0:(M - 7) / 2 + N", {"i": (0, 8)}),
        ("y(i) = x(i) where i in 0:0", {"i": (0, 0)}),
        ("y(i) = x(i) where i in 0:M - 5", {"i": (0, 0)}),
    ],
)
def test_a_range_is_as_large_as_reads_allow(body: str, wanted: dict) -> None:
    assert ranges(body) == wanted


def test_rounds_go_on_from_statement_to_statement() -> None:
    function = eqsat.comprehension(
        """
        def f(float(N) x, float(K) v, float(L) w) -> (y) {
          a(i) +=! v(k) * x(i + k)
          b(i) +=! w(l) * a(i + l)
          y(i) = 0
          y(i) += b(2 * i) + x(i)
        }
        """
    ).f
    inferred = function.inferred({"x": (20,), "v": (3,), "w": (5,)})
    assert inferred.shapes == {"x": (20,), "v": (3,), "w": (5,), "a": (18,), "b": (14,), "y": (7,)}
    assert [dict(box) for box in inferred.ranges] == [
        {"i": (0, 18), "k": (0, 3)},
        {"i": (0, 14), "l": (0, 5)},
        {"i": (0, 7)},
        {"i": (0, 7)},
    ]


def test_ranges_before_any_size_is_known() -> None:
    function = eqsat.comprehension("def f(float(M) I, float(N) K) -> (O) { O(i) +=! K(x) * I(i + x) }").f
    ends = {name: evaluate(high, {"M": 9, "N": 3}) for name, (_, high) in function.symbolic.ranges[0].items()}
    assert ends == {"x": 3, "i": 7}
    for late in (
        "int s, float(N) x) -> (y) { y(i) = x(s * i) }",
        "float(N) x, float(M) w) -> (y) { y(i) = i where i in 0:N / M }",
    ):
        assert eqsat.comprehension(f"def f({late}").f.symbolic is None


@pytest.mark.parametrize("step", [1, 2, 3])
def test_integer_scalars_are_known_at_the_call(step: int) -> None:
    assert ranges("y(i) = x(s * i + 1)", "int s, float(N) x", {"s": step}) == {"i": (0, (10 - 2) // step + 1)}


@pytest.mark.parametrize("planted", ["x(i + k + 1)", "x(i + k - 1)", "x(2 * i + k)", "x(N - i - k)"])
def test_a_planted_step_too_far_is_caught(planted: str) -> None:
    right = "y(i) +=! x(i + k) * w(k) where i in 0:N - M + 1, k in 0:M"
    assert ranges(right) == {"i": (0, 8), "k": (0, 3)}
    with pytest.raises(ComprehensionError) as caught:
        ranges(right.replace("x(i + k)", planted))
    assert isinstance(caught.value, BoundsError | RangeError)


def test_a_stated_range_may_cover_a_part_of_what_is_defined() -> None:
    source = "def f(float(N) x) -> (y) { y(i) = x(i) y(i) = 7 where i in 1:3 y(i) *= 2 where i in 0:2 }"
    made = eqsat.comprehension(source).f(np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(made, [0, 14, 7, 3, 4])


def test_no_more_than_150_operators_are_inside_each_other() -> None:
    def nested(depth: int) -> str:
        return "def f(float(N) x) -> (y) { y(i) = " + "-" * depth + "x(i) }"

    assert eqsat.comprehension(nested(140)).f(np.ones(2, np.float32)).tolist() == [1, 1]
    deep = "def f(float(N) x) -> (y) { y(i) = " + "exp(" * 140 + "x(i)" + ")" * 140 + " }"
    assert eqsat.comprehension(deep).f(np.zeros(1, np.float32)).tolist() == [np.inf]
    for source in (nested(151), nested(20_000), deep.replace("exp(", "exp(sin(").replace(")", "))")):
        with pytest.raises(ComprehensionSyntaxError):
            eqsat.comprehension(source)
    assert eqsat.comprehension(f"def f() -> (y) {{ y = {'(' * 9000}1{')' * 9000} }}").f() == 1


def test_sources_have_at_most_100_000_characters() -> None:
    source = "def f(float(N) x) -> (y) { y(i) = x(i) } #"
    assert len(eqsat.comprehension(source.ljust(100_000))) == 1
    with pytest.raises(ComprehensionSyntaxError, match="a source of 100001 characters"):
        eqsat.comprehension(source.ljust(100_001))


@pytest.mark.parametrize("made", ["a{0} + 1", "a{0} + a{0}"])
def test_names_in_where_do_not_grow_beyond_bounds(made: str) -> None:
    lets = ", ".join(["a0 = x(i)", *(f"a{k + 1} = {made.format(k)}" for k in range(200))])
    with pytest.raises(ComprehensionSyntaxError, match="too large with what where puts in"):
        eqsat.comprehension(f"def f(float(N) x) -> (y) {{ y(i) = a200 where {lets} }}")


@pytest.mark.parametrize("end", ["9223372036854775807", "9223372036854775807 * 4", "s"])
def test_ranges_that_no_machine_counts_are_refused(end: str) -> None:
    function = eqsat.comprehension(f"def f(int64 s) -> (y) {{ y(i) = i where i in 0:{end} }}").f
    with pytest.raises(RangeError, match="a range that is too large to compute y"):
        function(2**62)


@pytest.mark.parametrize(
    "body",
    [
        "y(i,j) = A(i,j) y(i,j) = y(j,i)",
        "y(i,j) = A(i,j) y(i,j) = y(i,j) + y(j,i)",
        "y(i,j) = A(i,j) y(i,j) = y(i,N - 1 - j)",
        "y(i,j) = A(i,j) y(i,j) = y(0,j)",
        "y(i,j) = A(i,j) y(i,j) +=! y(k,k)",
    ],
)
def test_what_is_overwritten_is_read_at_its_own_place_or_along_whole_axes(body: str) -> None:
    with pytest.raises(UpdateError, match="y is read at other elements than those it is written at"):
        eqsat.comprehension(f"def f(float(N,N) A) -> (y) {{ {body} }}")
    copied = body.replace("y(i,j) = A(i,j) ", "c(i,j) = A(i,j) ", 1)
    head, rest = copied.split("c(i,j) = A(i,j) ")[1].split("=", 1)
    rest = rest.replace("y(", "c(") + " where i in 0:N, j in 0:N"
    assert eqsat.comprehension(f"def f(float(N,N) A) -> (y) {{ c(i,j) = A(i,j) {head}={rest} }}")


@pytest.mark.parametrize(
    "body",
    [
        "y(i) = i > 0 && i <= N ? x(i - 1) : 0 where i in 0:N + 2",
        "y(i) +=! x(i + k) * w(k)",
        "y(i) max=! x(2 * i + k) where k in 0:2",
        "y(i) = x((i + 1) % N) where i in 0:N",
        "y(i) = x(N - 1 - i)",
        "y(i) = N > 0 ? x(max(min(p(i), N - 1), 0)) : 0",
    ],
)
def test_bounds_are_proved_for_every_size(body: str) -> None:
    source = f"def f(float(N) x, float(K) w, int(M) p) -> (y) {{ {body} }}"
    assert eqsat.comprehension(source, strict=True).f.open_bounds == ()


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        ("y(i) = x(p(i))", "N = 0"),
        ("y(i) = x(i) where i in 0:5", "N = 0"),
        ("y(i) = x(max(min(p(i), N - 1), 0))", "N = 0"),
        ("y(i) = i > 0 ? x(i) : 0 where i in 0:N + 1", "N = 1"),
        ("y(i) = x(max(p(i), 0) * 2)", "N = "),
    ],
)
def test_bounds_that_sizes_or_elements_decide_are_refused_where_a_proof_is_asked_for(body: str, sizes: str) -> None:
    source = f"def f(float(N) x, int8(M) p) -> (y) {{ {body} }}"
    assert len(eqsat.comprehension(source).f.open_bounds) == 1
    with pytest.raises(BoundsError, match="is not proved to stay inside x on axis 0") as caught:
        eqsat.comprehension(source, strict=True)
    assert sizes in caught.value.expected


def test_ranges_that_depend_on_integer_scalars_are_proved_for_no_size() -> None:
    with pytest.raises(UsageError, match="bounds of f for every size"):
        eqsat.comprehension("def f(int s, float(N) x) -> (y) { y(i) = x(s * i) }", strict=True)
