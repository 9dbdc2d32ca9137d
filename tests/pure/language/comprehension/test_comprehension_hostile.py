"""Comprehensions that were wrongly accepted, wrongly refused, or ended in an exception of Python."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import eqsat
from eqsat.errors import (
    BoundsError,
    ComprehensionError,
    ComprehensionNameError,
    ComprehensionSyntaxError,
    ComprehensionTypeError,
    EqsatError,
    RangeError,
    ShapeError,
    UsageError,
)
from eqsat.language.comprehension import evaluation
from eqsat.language.comprehension.meaning.element_types import NAMED
from eqsat.language.terms import Array


def _counted(*shape: int, dtype: str = "float32") -> Array:
    made: Array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return made


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(float(N) A, float(M) B) -> (n, o) { n = 1  o(i) = A(i + n) where i in 0:M }", [1, 2]),
        ("def f(float(N) A, float(M) B) -> (n, o) { n = true  o(i) = A(i + n) + B(i) }", [1, 3]),
        ("def f(float(N) A, float(M) B) -> (n, o) { n = 3  o = A(n) }", 3),
    ],
)
def test_scalars_that_are_computed_are_no_indices(source: str, expected: object) -> None:
    _, found = eqsat.comprehension(source).f(_counted(5), _counted(2))
    assert found.tolist() == expected


def test_a_computed_scalar_is_held_against_the_bounds_where_it_is_used() -> None:
    f = eqsat.comprehension("def f(float(N) A) -> (n, o) { n = -1  o = A(n) }").f
    with pytest.raises(BoundsError, match="it is -1"):
        f(_counted(5))
    with pytest.raises(RangeError, match="depends on elements of n"):
        eqsat.comprehension("def f(float(N) A) -> (n, o) { n = 2  o(i) = A(i) where i in 0:n }")


def test_narrow_scalars_do_not_wrap_in_subscripts() -> None:
    table = _counted(1000)
    f = eqsat.comprehension("def f(float(N) A, uint8 k) -> (C) { C(i) = A(i + k * 2) where i in 0:2 }").f
    assert f(table, 200).tolist() == [400, 401]
    f = eqsat.comprehension("def f(float(N) A, int8 k, bool b) -> (C) { C = A(b ? k * 2 : 0) }").f
    assert f(table, 100, True) == 200


def test_scalars_beyond_int64_under_a_condition() -> None:
    f = eqsat.comprehension("def f(float(N) A, uint64 u) -> (C) { C = u < 5 ? A(u) : -1 }").f
    assert f(_counted(9), 2**63 + 5) == -1
    assert f(_counted(9), 4) == 4
    f = eqsat.comprehension("def f(float(N) A, uint64(M) U, uint32 k) -> (C) { C(i) = A(U(i) + k) }").f
    assert f(_counted(9), _counted(3, dtype="uint64"), 4).tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    "subscript",
    ["i < 9 ? i * 4611686018427387904 * 4 : 0", "((i % 7) * 4611686018427387904 * 4) / 4611686018427387904 - 1"],
)
def test_products_beyond_int64_do_not_wrap_into_bounds(subscript: str) -> None:
    f = eqsat.comprehension(f"def f(float(N) A) -> (C) {{ C(i) = A({subscript}) where i in 0:3 }}").f
    with pytest.raises(BoundsError):
        f(_counted(9))


@pytest.mark.parametrize("span", ["0:2 * N", "-2:-1", "-2:2", "N:N + 1", "3:9"])
def test_writes_past_the_target_are_refused(span: str) -> None:
    with pytest.raises(BoundsError, match=r"C\(i\) passes the bounds of C on axis 0"):
        eqsat.comprehension(
            f"def f(float(N) A) -> (C) {{ C(i) = A(i) where i in 0:N  C(i) = 9.0 where i in {span} }}"
        ).f(_counted(4))


def test_the_place_of_a_write_past_the_target() -> None:
    source = "def f(float(N) A) -> (float(N) C) {\n  C(i) += 9.0 where i in 0:N + 1 }"
    with pytest.raises(BoundsError, match="line 2, column 5"):
        eqsat.comprehension(source)


def test_nothing_is_written_by_an_empty_range() -> None:
    f = eqsat.comprehension("def f(float(N) A) -> (C) { C(i) = A(i) where i in 0:N  C(i) = 9.0 where i in 7:7 }").f
    assert f(_counted(4)).tolist() == [0, 1, 2, 3]


def test_a_range_that_breaks_what_exists_asks_for_is_refused() -> None:
    with pytest.raises(BoundsError, match=r"A\(i\) passes the bounds"):
        eqsat.comprehension("def f(float(N) A) -> (C) { C(i) = 1.0 where i in 0:N + 3, exists A(i) }")


def test_a_part_that_where_states_does_not_give_the_shape() -> None:
    f = eqsat.comprehension("def f(float(N) A) -> (C) { C(i) = A(i)  C(i) = 9 where i in 1:3 }").f
    assert f(_counted(5)).tolist() == [0, 9, 9, 3, 4]
    f = eqsat.comprehension("def f(float(N) A) -> (C) { C(i) = 1.0  C(i) += A(i) where i in 2:4 }").f
    assert f(_counted(5)).tolist() == [1, 1, 3, 4]


def test_what_reads_a_cycle_waits_for_its_shape() -> None:
    source = "def f(float(N) A, float(M) B) -> (C, D, O) { C(i) = D(i)  D(i) = C(i) + A(i)  O(i) = C(i) + B(i) }"
    *_, found = eqsat.comprehension(source).f(_counted(3), _counted(5))
    assert found.tolist() == [0, 1, 2]


def test_long_chains_of_statements_are_inferred_in_time_that_grows_with_their_length() -> None:
    count = 3000
    chain = "".join(f"T{k + 1}(i) = T{k}(i) " for k in range(count))
    f = eqsat.comprehension(f"def f(float(N) A) -> (C) {{ T0(i) = A(i) {chain} C(i) = T{count}(i) }}").f
    begin = time.perf_counter()
    assert f.inferred({"A": (7,)}).shapes["C"] == (7,)
    assert time.perf_counter() - begin < 5


def test_results_of_a_stated_shape_are_defined_as_a_whole() -> None:
    header = "def f(float(N,M) A) -> (float(N,M) C)"
    with pytest.raises(RangeError, match="elements of C are not defined"):
        eqsat.comprehension(f"{header} {{ C(i,j) = A(i,j) where i in 1:2 }}").f(_counted(3, 2))
    parts = "C(i,j) = A(i,j) where i in 0:1  C(i,j) = 7 where i in 1:N, j in 0:1  C(i,j) = 8 where i in 1:N, j in 1:M"
    f = eqsat.comprehension(f"{header} {{ {parts} }}").f
    assert f(_counted(3, 2)).tolist() == [[0, 1], [7, 8], [7, 8]]
    updated = eqsat.comprehension(f"{header} {{ C(i,j) += A(i,j) where i in 1:2 }}").f
    assert updated(_counted(3, 2), C=_counted(3, 2)).tolist() == [[0, 1], [4, 6], [4, 5]]


@pytest.mark.parametrize("clauses", ["b = q + 1, q = 2", "b = b + 1", "exists A(b), b = 2", "k in 0:b, b = 2"])
def test_names_of_where_are_not_used_before_they_have_a_value(clauses: str) -> None:
    with pytest.raises(ComprehensionNameError, match="is used before where gives it a value"):
        eqsat.comprehension(f"def f(float(N) A) -> (C) {{ C +=! A(b) * A(k) where {clauses} }}")


@pytest.mark.parametrize("step", ["x{0} + x{0}", "x{0} + 1"])
def test_names_of_where_do_not_grow_beyond_measure(step: str) -> None:
    lets = ", ".join(f"x{number + 1} = {step.format(number)}" for number in range(500))
    with pytest.raises(ComprehensionSyntaxError, match="too large with what where puts in"):
        eqsat.comprehension(f"def f(float(N) A) -> (C) {{ C(i) = A(i) * x500 where x0 = i, {lets} }}")


@pytest.mark.parametrize(
    "body", ["C(A) = 0 where A in 0:N", "C(i) = B + i where B = 3, i in 0:N  B(i) = A(i)", "C(i) = A(i)  D(C) = A(C)"]
)
def test_tensors_are_no_indices(body: str) -> None:
    with pytest.raises(ComprehensionError):
        eqsat.comprehension(f"def f(float(N) A) -> (C) {{ {body} }}")


@pytest.mark.parametrize("most", [1, 4, 1 << 22])
def test_sums_of_narrow_floats_are_rounded_once(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MOST_POINTS", most)
    wide = np.array([60000, 60000, -60000, -60000, 1, 1], np.float16)
    assert eqsat.comprehension("def f(float16(N) A) -> (C) { C +=! A(i) }").f(wide) == 2
    small = np.full(16, 2**-12, np.float16)
    assert eqsat.comprehension("def f(float16(N) A) -> (C) { C = 1 + A(0) * 0  C += A(i) }").f(small) == 1 + 2**-8
    product = np.array([300, 300, 2**-8, 2**-8], np.float16)
    assert eqsat.comprehension("def f(float16(N) A) -> (C) { C *=! A(i) }").f(product) == 90000 / 65536


@pytest.mark.parametrize(
    ("value", "expected"),
    [(np.zeros(2, np.int32), ShapeError), (np.zeros(1, np.int32), ShapeError), (2**70, ShapeError), (2.5, ShapeError)],
)
def test_integer_scalars_of_other_kinds(value: object, expected: type[EqsatError]) -> None:
    with pytest.raises(expected):
        eqsat.comprehension("def f(int k, float(N) A) -> (C) { C(i) = A(i) * k }").f(value, _counted(4))


def test_arguments_and_sources_of_other_kinds() -> None:
    with pytest.raises(UsageError, match="no array"):
        eqsat.comprehension("def f(float(N) A) -> (C) { C(i) = A(i) }").f([[1.0, 2.0], [3.0]])
    for source in (None, b"def f"):
        with pytest.raises(UsageError, match="a source of type"):
            eqsat.comprehension(source)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "out", [5, ([7.0, 7.0], [7.0, 7.0]), (np.float64(1), np.float64(2)), (np.zeros(2), np.zeros(3)), np.zeros((2, 3))]
)
def test_results_are_written_to_arrays_or_nowhere(out: object) -> None:
    f = eqsat.comprehension("def f(double(N) A) -> (C, D) { C(i) = A(i) + 1  D(i) = A(i) }").f
    with pytest.raises(EqsatError):
        f(_counted(2, dtype="float64"), out=out)
    if isinstance(out, tuple) and isinstance(out[0], np.ndarray):
        assert not out[0].any()


def test_results_share_no_memory() -> None:
    f = eqsat.comprehension("def f(double(N) A) -> (C, D) { C(i) = A(i) + 1  D(i) = A(i) }").f
    both = np.zeros((2, 2))
    with pytest.raises(UsageError, match="shares memory"):
        f(_counted(2, dtype="float64"), out=(both[0], both[0]))
    f(_counted(2, dtype="float64"), out=(both[:, 0], both[:, 1]))
    assert both.tolist() == [[1, 0], [2, 1]]


@pytest.mark.parametrize(
    ("extent", "told"),
    [("100000000000000", "does not fit into memory"), ("9223372036854775807 * 4", "too large to compute C")],
)
def test_tensors_that_do_not_fit_into_memory(extent: str, told: str) -> None:
    f = eqsat.comprehension(f"def f(float(N) A) -> (C) {{ C(i) = A(0) where i in 0:{extent} }}").f
    with pytest.raises(RangeError, match=told):
        f(_counted(4))


def test_indices_and_sizes_that_int32_does_not_hold() -> None:
    source = "def f(float(N) A) -> (C) { C +=! double(A(0)) * k where k in 3000000000:3000000003 }"
    with pytest.raises(RangeError, match="k reaches 3000000002"):
        eqsat.comprehension(source).f(_counted(4))
    source = (
        "def f(float(N) A) -> (C) { C +=! A(0) * k where k in 9223372036854775807 * 4:9223372036854775807 * 4 + 2 }"
    )
    with pytest.raises(RangeError, match="too large to compute C"):
        eqsat.comprehension(source).f(_counted(4))
    with pytest.raises(RangeError, match="N reaches 3000000000"):
        eqsat.comprehension("def f(float(N) A) -> (C) { C = A(0) * N }").f(
            np.broadcast_to(np.float32(1), (3_000_000_000,))
        )


def test_the_caret_is_below_its_place_behind_tabs() -> None:
    with pytest.raises(ComprehensionError) as caught:
        eqsat.comprehension("def f(float(N) A) -> (C) {\n\t\tC(i) = B(i) }")
    assert str(caught.value).split("\n")[1:3] == ["  \t\tC(i) = B(i) }", "  \t\t       ^"]


@pytest.mark.parametrize(
    ("dtype", "value", "literal"),
    [
        ("uint8", "A(i) < 256", "256"),
        ("uint8", "A(i) + (A(i) > 1 ? 2 : 300)", "300"),
        ("uint8", "max(A(i), -1)", "-1"),
        ("int8", "A(i) * (128 + 1)", "128"),
        ("int8", "A(i) / -129", "-129"),
        ("int", "A(i) + 3000000000", "3000000000"),
        ("bool", "A(i) ? 3000000000 : 1", "3000000000"),
        ("uint8", "i + 3000000000", "3000000000"),
    ],
)
def test_literals_that_their_type_does_not_hold(dtype: str, value: str, literal: str) -> None:
    source = f"def f({dtype}(N) A) -> (C) {{ C(i) = {value} where i in 0:N }}"
    with pytest.raises(ComprehensionTypeError, match=f"column {source.index(literal) + 1}: {literal} as "):
        eqsat.comprehension(source)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("int8", "A(i) + -128", [-128, -127]),
        ("uint8", "A(i) + uint8(-1)", [255, 0]),
        ("uint8", "int32(A(i)) < 256", [True, True]),
        ("int8", "int64(3000000000) + A(i)", [3000000000, 3000000001]),
        ("uint8", "A(i) + 300.0", [300, 301]),
        ("uint8", "A(i + 1000 - 1000)", [0, 1]),
        ("bool", "A(i) ? 1 : 0", [0, 1]),
    ],
)
def test_literals_that_their_type_holds(dtype: str, value: str, expected: list[object]) -> None:
    f = eqsat.comprehension(f"def f({dtype}(N) A) -> (C) {{ C(i) = {value} where i in 0:N }}").f
    assert f(_counted(2, dtype=dtype)).tolist() == expected


def test_remainders_are_not_rounded() -> None:
    f = eqsat.comprehension("def f(double(N) A, double(N) B) -> (C) { C(i) = remainder(A(i), B(i)) }").f
    rng = np.random.default_rng(0)
    a = np.concatenate([rng.normal(size=50) * 10.0 ** rng.integers(-3, 25, 50), [5, -5, 1, 0.5, 1.5, 2.5, -2.5, 1e308]])
    b = np.concatenate([rng.normal(size=50), [3, 3, np.inf, 1, 1, 1, 1, 1.7e308]])
    assert f(a, b).tolist() == [math.remainder(x, y) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_sines_of_multiples_of_pi_are_exact(dtype: str) -> None:
    source = f"def f({dtype}(N) A) -> (S, C) {{ S(i) = sinpi(A(i))  C(i) = cospi(A(i)) }}"
    given = np.arange(-8, 9).astype(NAMED[dtype].numpy) / 4
    sines, cosines = eqsat.comprehension(source).f(given)
    np.testing.assert_allclose(sines, np.sin(np.pi * given.astype(float)), atol=1e-7)
    np.testing.assert_allclose(cosines, np.cos(np.pi * given.astype(float)), atol=1e-7)
    assert set(np.abs(sines[::2])) == set(np.abs(cosines[::2])) == {0, 1}


@pytest.mark.parametrize("read", ["B", "T"])
def test_updates_and_what_they_update_have_to_agree(read: str) -> None:
    header = "def f(float(N) A, float(M) B) -> (C)"
    f = eqsat.comprehension(f"{header} {{ T(i) = B(i)  C(i) = A(i)  C(i) += {read}(i) }}").f
    for other in (2, 5):
        with pytest.raises(RangeError, match=f"axis 0 of C has {other} elements here"):
            f(_counted(3), _counted(other))


@pytest.mark.parametrize("read", ["B", "T"])
def test_a_target_that_is_read_holds_the_range(read: str) -> None:
    header = "def f(float(N) A, float(M) B) -> (C)"
    f = eqsat.comprehension(f"{header} {{ T(i) = B(i)  C(i) = A(i)  C(i) = C(i) + {read}(i) }}").f
    assert f(_counted(3), _counted(5)).tolist() == [0, 2, 4]
    with pytest.raises(RangeError, match="axis 0 of C has 2 elements here"):
        f(_counted(3), _counted(2))


@pytest.mark.parametrize("outs", [3, 5])
def test_a_bias_of_another_length_is_refused(outs: int) -> None:
    body = "out(i,j) = bias(j)  out(b,o) += in(b,i) * weight(o,i)  out(b,o) = fmaxf(out(b,o), 0)"
    f = eqsat.comprehension(f"def f(float(B,I) in, float(O,I) weight, float(I) bias) -> (out) {{ {body} }}").f
    with pytest.raises(RangeError, match="axis 1 of out"):
        f(_counted(2, 4), _counted(outs, 4), _counted(4))
    assert f(_counted(2, 4), _counted(4, 4), _counted(4)).shape == (2, 4)


def test_comparisons_do_not_stand_in_a_row() -> None:
    with pytest.raises(ComprehensionTypeError, match="< of a comparison"):
        eqsat.comprehension("def f(float(N) A) -> (C) { C(i) = 0 < A(i) < 2 }")
