"""Kernels whose sizes stay arguments: one for all batches, with the values of the function, or why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import BoundsError, UsageError
from eqsat.runtime.c.library import Libraries
from eqsat.runtime.c.toolchain import toolchain
from eqsat.runtime.c.tuned import key_of_kernel, opened_at
from eqsat.runtime.cuda.compiler.store import Store
from eqsat.runtime.tuning.config import TunerConfig
from tests.support.comprehensions.programs_free import BATCHES, PROGRAMS, drawn

OPTIONS = ({}, {"rows": 3, "vectors": 2, "vector_bytes": 16, "is_column_major": False, "fused_rows": 3})


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Libraries:
    """The libraries of kernels, in an empty store, which count what is compiled."""
    made = Libraries(toolchain(), Store(tmp_path))
    monkeypatch.setattr("eqsat.runtime.c.kernel.libraries", lambda: made)
    return made


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_kernel_serves_every_batch(program: str, compilations: Libraries) -> None:
    source, free, shapes = PROGRAMS[program]
    function = next(iter(eqsat.comprehension(source).values()))
    for count, options in enumerate(OPTIONS, 1):
        kernel = eqsat.kernel(function, options, free=free)
        for batch in BATCHES:
            arguments = drawn(shapes(batch))
            np.testing.assert_allclose(kernel(*arguments), function(*arguments), rtol=2e-5, atol=2e-5)
        assert compilations.compiled == count
        assert repr(kernel) == f"Kernel({function.name}, 1 compiled)"


def test_gradients_of_strided_windows_are_one_kernel_for_every_batch(compilations: Libraries) -> None:
    strided = eqsat.comprehension("def f(float(B,N) x, float(3) w) -> (y) { y(b,i) +=! x(b,2 * i + k) * w(k) }").f
    for function in (strided.gradient(), strided.gradient().gradient("d_y", "w")):
        kernel = eqsat.kernel(function, "default", free="B")
        before = compilations.compiled
        for batch in BATCHES:
            x, w = drawn([(batch, 9), (3,)])
            y = strided(x, w)
            arguments = [x, w, *drawn([y.shape, x.shape, w.shape])][: len(function.parameters)]
            for one, other in zip(kernel(*arguments), function(*arguments), strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
        assert compilations.compiled == before + 1


def test_a_running_update_goes_on_with_any_batch(compilations: Libraries) -> None:
    function = eqsat.comprehension("def step(float(B,D) x, float(D) w) -> (s) { s(b,d) += x(b,d) * w(d) }").step
    kernel = eqsat.kernel(function, "default", free="B")
    for batch in BATCHES:
        x, w, s = drawn([(batch, 10), (10,), (batch, 10)])
        kept = s.copy()
        np.testing.assert_allclose(kernel(x, w, s=s), kept + x * w, rtol=1e-5, atol=1e-6)
        out = np.empty_like(s)
        assert kernel(x, w, s=s, out=out) is out
        np.testing.assert_allclose(out, kept + x * w, rtol=1e-5, atol=1e-6)
    assert compilations.compiled == 1


def test_products_by_blas_have_free_rows(compilations: Libraries) -> None:
    source, _, shapes = PROGRAMS["layer"]
    options = {"library": True, "threads": 2} if toolchain().has_threads else {"library": True}
    assert "multiply_scipy_s(" in eqsat.emit(source, *drawn(shapes(3)), options=options, free="B")
    kernel = eqsat.kernel(source, options, free="B")
    for batch in BATCHES:
        arguments = drawn(shapes(batch))
        wanted = eqsat.comprehension(source).mlp1(*arguments)
        np.testing.assert_allclose(kernel(*arguments), wanted, rtol=2e-5, atol=2e-5)
    assert compilations.compiled == 1


def test_loops_go_to_the_argument_and_steps_are_products_with_it() -> None:
    source = "def near(float(K,N) x, float(K) w) -> (y) { y(n) +=! x(k,n) * w(k) }"
    assert eqsat.emit(source, *drawn([(3, 4), (3,)]), free=("N",)) == (
        "static int near(\n"
        "    const float *restrict x,\n"
        "    const float *restrict w,\n"
        "    float *restrict y,\n"
        "    const int N,\n"
        "    unsigned char *restrict workspace) {\n"
        "  int failed = 0;\n"
        "  for (int n = 0; n < N; ++n) {\n"
        "    float acc;\n"
        "    acc = 0.0f;\n"
        "    for (int k = 0; k < 3; ++k) {\n"
        "      acc = acc + (x[(i64)(k) * (N) + n] * w[k]);\n"
        "    }\n"
        "    y[n] = acc;\n"
        "  }\n"
        "  return failed;\n"
        "}\n"
    )


def test_a_size_and_a_tensor_may_have_one_name() -> None:
    source = "def strided(float(W) x, float(M) W) -> (y) { y(i) +=! x(i) * W(j) where j in 0:1 }"
    kernel = eqsat.kernel(source, "default", free=("W", "M"))
    for batch in (1, 9):
        x, w = drawn([(batch,), (batch + 1,)])
        np.testing.assert_allclose(kernel(x, w), x * w[0], rtol=1e-6)


def test_loops_of_other_free_extents_are_not_joined() -> None:
    source = "def two(float(N) a, float(M) b) -> (c, d) { c(i) = a(i) + 1 d(i) = b(i) * 2 + a(0) }"
    kernel = eqsat.kernel(source, "default", free=("N", "M"))
    for n, m in ((3, 9), (9, 3), (17, 16)):
        a, b = drawn([(n,), (m,)])
        c, d = kernel(a, b)
        np.testing.assert_allclose(c, a + 1, rtol=1e-6)
        np.testing.assert_allclose(d, b * 2 + a[0], rtol=1e-6)


def test_subscripts_are_held_against_the_sizes_of_each_call(compilations: Libraries) -> None:
    taken = eqsat.comprehension("def taken(float(N) x, int(M) at) -> (y) { y(i) = x(at(i)) }").taken
    kernel = eqsat.kernel(taken, "default", free=("N", "M"))
    for size in (3, 20):
        x, at = np.arange(size, dtype=np.float32), np.array([0, size - 1], np.int32)
        np.testing.assert_array_equal(kernel(x, at), x[at])
        with pytest.raises(BoundsError):
            kernel(x, np.array([size], np.int32))
    ahead = eqsat.kernel("def ahead(float(N) x) -> (y) { y(i) = x(i + 4) where i in 0:3 }", "default", free="N")
    np.testing.assert_array_equal(ahead(np.arange(7, dtype=np.float32)), [4, 5, 6])
    with pytest.raises(BoundsError, match="passes the bounds of x on axis 0"):
        ahead(np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(ahead(np.arange(9, dtype=np.float32)), [4, 5, 6])
    assert compilations.compiled == 2


def test_calls_without_an_element_get_a_kernel_of_their_own(compilations: Libraries) -> None:
    source, _, shapes = PROGRAMS["layer"]
    kernel = eqsat.kernel(source, "default", free=("B", "M"))
    assert kernel(*drawn(shapes(2))).shape == (2, 21)
    assert kernel(*drawn(shapes(0))).shape == (0, 21)
    bias = np.arange(-3, 18, dtype=np.float32)
    empty = kernel(np.empty((2, 0), np.float32), np.empty((21, 0), np.float32), bias)
    np.testing.assert_array_equal(empty, [np.maximum(bias, 0)] * 2)
    assert compilations.compiled == 3


@pytest.mark.parametrize(
    ("source", "free", "faults"),
    [
        ("def f(float(N) x) -> (y) { y(i) = x(i) }", "n", ["'n', which is no size", "expected N", "did you mean 'N'"]),
        ("def f(float(4) x) -> (y) { y(i) = x(i) }", "N", ["none: all extents of its parameters are numbers"]),
        (
            "def f(float(N) x, int s) -> (y) { y(i) = x(s * i) where i in 0:2 }",
            "s",
            ["'s', an integer scalar", "make it the size of a parameter"],
        ),
        (
            "def f(float(N) x, float(M) z) -> (y) { y(i) = x(i) * z(i) }",
            ("N", "M"),
            ["N, M cannot stay free: i has the extent min(M, N)", "sums of sizes", "leave it out of free"],
        ),
        (
            "def f(float(N,M) x) -> (y) { y(i) = x(i / M, i % M) where i in 0:N * M }",
            ("N", "M"),
            ["N, M cannot stay free: i has the extent M*N", "leave it out of free"],
        ),
        (
            "def f(float(N) x, float(M) z) -> (y) { y(i) = x(i) y(i) = y(i) + z(i) }",
            "N",
            ["N cannot stay free: ", "leave it out of free"],
        ),
    ],
)  # fmt: skip
def test_sizes_that_cannot_stay_free_are_refused_with_the_reason(source: str, free: Any, faults: list[str]) -> None:
    function = eqsat.comprehension(source).f
    arguments = [
        np.zeros((3,) * len(one.extents) if "4" not in source else (4,), np.float32)
        if one.type == "float"
        else 1
        for one in function.scope.function.parameters
    ]  # fmt: skip
    with pytest.raises(UsageError) as error:
        eqsat.kernel(function, "default", free=free)(*arguments)
    for fault in faults:
        assert fault in str(error.value)


def test_what_is_tuned_for_free_sizes_serves_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_TUNING_CACHE", str(tmp_path / "tuning.sqlite3"))
    source, free, shapes = PROGRAMS["layer"]
    config = TunerConfig(generations=1, population=4, elites=1, threads=1)
    tuned = eqsat.autotune(source, *drawn(shapes(9)), config=config, progress=False, kernel_threads=1, free=free)
    options = dict(tuned.candidate)
    other = source.replace("B", "Rows").replace("(b,", "(r,")
    for batch in (9, 40):
        arguments = drawn(shapes(batch))
        assert eqsat.emit(other, *arguments, options="fastest", free="Rows") == eqsat.emit(
            other, *arguments, options=options, free="Rows"
        )
        wanted = eqsat.comprehension(source).mlp1(*arguments)
        np.testing.assert_allclose(eqsat.kernel(source, free=free)(*arguments), wanted, rtol=2e-5, atol=2e-5)


def test_keys_tell_which_sizes_are_free_and_the_values_of_the_others() -> None:
    def key(source: str, rows: int, columns: int, *free: str) -> Any:
        function = next(iter(eqsat.comprehension(source).values()))
        inferred, _ = function.bind(drawn([(rows, columns)]), {})
        return key_of_kernel(function, opened_at(function, inferred, free))

    f, g = "def f(float(N,M) x) -> (y) { y(i) +=! x(i,j) }", "def g(float(P,Q) x) -> (y) { y(a) +=! x(a,b) }"
    assert key(f, 3, 4, "N") == key(f, 5, 4, "N") == key(g, 6, 4, "P")
    kinds = [key(f, 3, 4), key(f, 3, 4, "N"), key(f, 3, 4, "M"), key(f, 3, 4, "N", "M"), key(f, 3, 5, "N")]
    assert len(set(kinds)) == len(kinds)
