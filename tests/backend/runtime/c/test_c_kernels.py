"""Kernels of comprehensions in C: called as functions are, with their errors, and readable as text."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError, BoundsError, ComprehensionError, ShapeError, UsageError
from eqsat.runtime.c.library import Libraries
from eqsat.runtime.c.toolchain import COMPILERS, toolchain
from eqsat.runtime.cuda.compiler.store import Store
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.options import MOST_UNROLLED, MappingOptions
from eqsat.runtime.kernels.nests.printing.c_printer import translation_unit
from tests.support.comprehensions.compiled_corpus import text_of
from tests.support.comprehensions.comprehension_corpus import RIGHT

PRODUCT = "def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
NEAR = "def near(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
PANELS = "def panels(float(M,K) A, float(P,K,N) B) -> (C) { C(m,p,n) +=! A(m,k) * B(p,k,n) }"
LOOK_UP = "def rows(float(E,D) T, int(B) at) -> (y) { y(b,d) = T(at(b),d) }"
FUSED = """
def gemm(float(M,K) A, float(K,N) B, float(N) bias) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n)
  C(m,n) = fmax(C(m,n) + bias(n), 0)
}"""
ROWS = """
def normal(float(B,D) x) -> (y) {
  most(b) max=! x(b,d)
  e(b,d) = exp(x(b,d) - most(b))
  total(b) +=! e(b,d)
  y(b,d) = e(b,d) / total(b)
}"""


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def code(source: str, *arguments: Any, **options: Any) -> str:
    return eqsat.emit(source, *arguments, options=options or "default")


def test_naive_text_is_one_loop_for_each_index() -> None:
    assert eqsat.emit(PRODUCT, drawn(2, 3), drawn(4, 3)) == (
        "static int tmm(\n"
        "    const float *restrict A,\n"
        "    const float *restrict B,\n"
        "    float *restrict C,\n"
        "    unsigned char *restrict workspace) {\n"
        "  int failed = 0;\n"
        "  for (int m = 0; m < 2; ++m) {\n"
        "    for (int n = 0; n < 4; ++n) {\n"
        "      float acc;\n"
        "      acc = 0.0f;\n"
        "      for (int k = 0; k < 3; ++k) {\n"
        "        acc = acc + (A[m * 3 + k] * B[n * 3 + k]);\n"
        "      }\n"
        "      C[m * 4 + n] = acc;\n"
        "    }\n"
        "  }\n"
        "  return failed;\n"
        "}\n"
    )


def test_text_for_a_gpu_is_emitted_too() -> None:
    naive = eqsat.emit(PRODUCT, drawn(2, 3), drawn(4, 3), target="cuda")
    assert "__global__" in naive
    assert naive.count("for (int") == 3
    large = drawn(64, 48), drawn(64, 48)
    mapped = eqsat.emit(PRODUCT, *large, target="cuda", options="default")
    assert "__shared__" in mapped
    assert "__syncthreads" in mapped
    assert "__shared__" not in eqsat.emit(PRODUCT, *large, target="cuda", options={"promote": False})
    with pytest.raises(UsageError, match="MappingOptions for cuda"):
        eqsat.emit(PRODUCT, *large, target="cuda", options=MappingOptions())
    with pytest.raises(UsageError, match="GpuMapping for c"):
        eqsat.emit(PRODUCT, *large, options=GpuMapping())


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (70, 90, 50), (5, 7, 300), (64, 64, 64), (33, 1, 9), (0, 3, 4), (3, 0, 4)]
)
@pytest.mark.parametrize("options", ["naive", "default", {"rows": 5, "vectors": 3}, {"library": True}], ids=str)
def test_a_product_of_any_sizes_is_numpys(sizes: tuple[int, int, int], options: Any) -> None:
    m, k, n = sizes
    a, b = drawn(m, k), drawn(n, k)
    made = eqsat.kernel(PRODUCT, options)(a, b)
    assert (made.dtype, made.shape) == (np.float32, (m, n))
    np.testing.assert_allclose(made, a @ b.T, rtol=1e-4, atol=1e-5 * max(k, 1))


def test_one_kernel_serves_many_shapes_and_threads() -> None:
    kernel = eqsat.kernel(PRODUCT)
    operands = [(drawn(m, 9), drawn(5, 9)) for m in (1, 4, 16, 33)] * 4
    results: list[Any] = [None] * len(operands)

    def run(number: int) -> None:
        results[number] = kernel(*operands[number])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(operands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (a, b), made in zip(operands, results, strict=True):
        np.testing.assert_allclose(made, a @ b.T, rtol=1e-4, atol=1e-5)


def test_calls_take_what_calls_of_functions_take() -> None:
    kernel = eqsat.kernel(PRODUCT)
    a, b = drawn(4, 6), drawn(8, 6)
    wanted = eqsat.comprehension(PRODUCT).tmm(a, b)
    np.testing.assert_allclose(kernel(B=b, A=a), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kernel(a[::-1], b[:, ::-1]), a[::-1] @ b[:, ::-1].T, rtol=1e-4, atol=1e-5)
    out = np.empty((4, 8), np.float32)
    assert kernel(a, b, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError):
        kernel(a, drawn(8, 5))
    with pytest.raises(ShapeError):
        kernel(a.astype(np.float64), b)
    with pytest.raises(UsageError):
        kernel(a)


STENCIL = """
def stencil(float(N) x, float(N) w) -> (y, z) {
  y(i) = w(i) * (x(i) + x(i + 1)) where i in 0:N-1
  z(i) = y(i) - x(i)
}"""


def taken(kernel: Any, *arguments: Any, out: Any) -> int:
    """The bytes that a call takes beside its arguments at most."""
    kernel(*arguments, out=out)
    tracemalloc.start()
    try:
        kernel(*arguments, out=out)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_results_may_share_memory_with_what_is_read() -> None:
    kernel, size = eqsat.kernel(STENCIL), 40_000
    x, w = drawn(size), drawn(size)
    wanted = eqsat.comprehension(STENCIL).stencil(x, w)

    def check(memory: Any, first: Any, second: Any, results: Any) -> None:
        memory[...], (given, weights) = 0, (first(memory), second(memory))
        given[...], weights[...] = x, w
        kernel(given, weights, out=results(memory))
        for one, other in zip(results(memory), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)

    rows = [lambda m, k=k: m[k * size : (k + 1) * size] for k in range(2)]
    made = [lambda m, k=k: m[k * size : (k + 1) * size - 1] for k in range(4)]
    memory = np.zeros(5 * size, np.float32)
    check(memory, rows[0], rows[1], lambda m: (made[2](m), made[3](m)))  # apart
    check(memory, rows[0], rows[1], lambda m: (made[0](m), made[2](m)))  # in place
    check(memory, rows[0], rows[1], lambda m: (made[1](m), made[0](m)))
    check(memory, rows[0], rows[1], lambda m: (m[size - 7 : 2 * size - 8], made[2](m)))  # over parts of both
    check(memory, rows[0], rows[1], lambda m: (m[2 * size : 4 * size - 2 : 2], m[4 * size : -1]))  # every other


def test_memory_of_its_own_is_written_at_once_and_other_after_a_copy() -> None:
    kernel, size = eqsat.kernel(STENCIL), 40_000
    x, w, apart = drawn(size), drawn(size), [np.zeros(size - 1, np.float32) for _ in range(2)]
    assert taken(kernel, x, w, out=apart) < 4 * size
    assert taken(kernel, x, w, out=[x[1:], apart[0]]) >= 2 * 4 * (size - 1)
    assert taken(kernel, x, w, out=[np.zeros(2 * size - 2, np.float32)[::2], apart[0]]) >= 2 * 4 * (size - 1)


def test_statements_in_shared_loops_have_copies_of_their_own_of_one_operand() -> None:
    source = """
    def twice(float(B,N) x, float(M,N) W) -> (a, b) {
      a(i,j) +=! x(i,k) * W(j,k) where j in 0:N
      b(i,j) +=! a(i,k) * W(j+N,k) where j in 0:N
    }"""
    x, w = drawn(5, 12), drawn(24, 12)
    for fused_rows in (1, 4):
        a, b = eqsat.kernel(source, options={"fused_rows": fused_rows, "vector_axis": 1})(x, w)
        np.testing.assert_allclose(a, x @ w[:12].T, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(b, x @ w[:12].T @ w[12:].T, rtol=1e-4, atol=1e-4)


def test_a_call_that_fails_leaves_the_memory_for_its_results_as_it_was() -> None:
    kernel, out = eqsat.kernel(LOOK_UP), np.full((3, 4), 7, np.float32)
    table = drawn(5, 4)
    with pytest.raises(BoundsError):
        kernel(table, np.array([0, 1, 9], np.int32), out=out)
    assert (out == 7).all()
    kernel(table, np.array([0, 1, 4], np.int32), out=out)
    np.testing.assert_array_equal(out, table[[0, 1, 4]])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("options", ["naive", {}], ids=str)
def test_a_subscript_out_of_bounds_is_the_error_of_the_function(options: Any, threads: int) -> None:
    if options != "naive" and threads > 1 and not toolchain().has_threads:
        pytest.skip("the compiler has no OpenMP")
    kernel = eqsat.kernel(LOOK_UP, options if options == "naive" else {**options, "threads": threads})
    table = drawn(5, 40)
    np.testing.assert_array_equal(kernel(table, np.array([4, 0], np.int32)), table[[4, 0]])
    for wrong in (5, -1, 2**31 - 1):
        with pytest.raises(BoundsError, match=re.escape("T(at(b), d) passes the bounds of T on axis 0")):
            kernel(table, np.array([0, wrong], np.int32))


def test_a_division_of_integers_by_0_is_the_error_of_the_function() -> None:
    kernel = eqsat.kernel("def d(int(N) a, int(N) b) -> (c) { c(i) = a(i) / b(i) }")
    np.testing.assert_array_equal(kernel(np.array([7, -7], np.int32), np.array([2, 2], np.int32)), [3, -3])
    with pytest.raises(ComprehensionError, match="divides an integer by 0"):
        kernel(np.array([7, -7], np.int32), np.array([2, 0], np.int32))


def test_a_guarded_subscript_is_not_read_where_its_condition_fails() -> None:
    kernel = eqsat.kernel("def shift(float(N) x, int(N) at) -> (y) { y(i) = at(i) >= 0 ? x(at(i)) : 0.5 }")
    made = kernel(np.arange(9, dtype=np.float32), np.array([3, -1, 8, -9, 0, 1, 2, 3, -4], np.int32))
    np.testing.assert_array_equal(made, [3, 0.5, 8, 0.5, 0, 1, 2, 3, 0.5])


def test_statements_element_by_element_are_computed_in_registers() -> None:
    a, b, bias = drawn(9, 33), drawn(33, 40), drawn(40)
    np.testing.assert_allclose(eqsat.kernel(FUSED)(a, b, bias), np.maximum(a @ b + bias, 0), rtol=1e-4, atol=1e-5)
    assert code(FUSED, a, b, bias).count("for (int k ") == code(FUSED, a, b, bias, fusion="min").count("for (int k ")
    assert "fmax_v8f" in code(FUSED, a, b, bias)
    # Each element is written once where statements are joined, and twice where they are not.
    stores = [
        code(FUSED, drawn(4, 8), drawn(8, 8), drawn(8), fusion=way, rows=1).count("store_") for way in ("max", "min")
    ]
    assert stores == [1, 2]


def test_fusion_strategies_share_as_many_loops_as_they_say() -> None:
    x = drawn(16, 30)
    assert code(ROWS, x).count("for (int b_r") == 1
    assert "b_r" not in code(ROWS, x, fusion="min")
    three = "def f(float(A,B,C,D) x) -> (y) { t(a,b,c) +=! x(a,b,c,d) y(a,b,c,d) = x(a,b,c,d) - t(a,b,c) }"
    two = "def f(float(A,B,D) x) -> (y) { t(a) +=! x(a,b,d) y(a,b,d) = x(a,b,d) - t(a) }"
    assert "a_r" in code(three, drawn(8, 3, 5, 9), fusion="preserve3")
    assert "a_r" in code(two, drawn(8, 3, 9), fusion="max")
    assert "a_r" not in code(two, drawn(8, 3, 9), fusion="preserve3")


@pytest.mark.parametrize("name", ["acc", "lanes", "at", "part", "count", "z1"])
def test_tensors_and_indices_may_have_the_names_of_what_a_kernel_makes(name: str) -> None:
    text = f"def f(float(M,K) {name}, float(K,N) w) -> (y) {{ y(i,j) +=! {name}(i,k) * w(k,j) }}"
    x, w = drawn(7, 33), drawn(33, 20)
    np.testing.assert_allclose(eqsat.kernel(text)(x, w), x @ w, rtol=1e-4, atol=1e-4)
    result = f"def f(float(N) x) -> ({name}) {{ {name}(i) = x(i) * 2 }}"
    np.testing.assert_allclose(eqsat.kernel(result)(x[0]), x[0] * 2)
    index = f"def f(float(N) x) -> (y) {{ y({name}) = x((7 * {name}) / 8) where {name} in 0:N }}"
    reads = x[0][[7 * i // 8 for i in range(33)]]
    np.testing.assert_allclose(eqsat.kernel(index)(x[0]), reads)
    assert f"{name}_" in eqsat.emit(index, x[0], target="cuda")


def test_a_caller_says_which_statements_may_share_loops() -> None:
    x = drawn(16, 30)
    halves = [["most", "e"], ["total", "y"]]
    assert code(ROWS, x).count("for (int b_r") == 1
    assert code(ROWS, x, clusters=halves).count("for (int b_r") == 2
    assert code(ROWS, x, clusters=[["most"], ["e"], ["total"], ["y"]]) == code(ROWS, x, fusion="min")
    assert code(ROWS, x, clusters=[["most", "e", "total", "y"]]) == code(ROWS, x)
    asked = []

    def cluster(targets: list[str]) -> list[list[str]]:
        asked.append(targets)
        return [targets[:2], targets[2:]]

    assert code(ROWS, x, clusters=cluster) == code(ROWS, x, clusters=halves)
    assert asked == [["most", "e", "total", "y"]]
    made = eqsat.kernel(ROWS, {"clusters": cluster})(x)
    np.testing.assert_allclose(made, eqsat.comprehension(ROWS).normal(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(UsageError, match=r"normal: clusters with 'mosst'\n  expected most, e, total, y\n.*most"):
        code(ROWS, x, clusters=[["mosst", "e"]])
    for made in ([5], ["most"], {"most": 1}):
        with pytest.raises(UsageError, match="expected lists of the names of targets"):
            code(ROWS, x, clusters=lambda _, made=made: made)
    # Statements of no cluster share with none, and none goes where it must not.
    assert "b_r" not in code(ROWS, x, clusters=[["most"], ["y"]])
    gemm = "def f(float(M,K) A, float(K,N) B) -> (C, d) { C(m,n) +=! A(m,k) * B(k,n) d(n) +=! C(m,n) }"
    assert code(gemm, drawn(8, 9), drawn(9, 7), clusters=[["C", "d"]]) == code(gemm, drawn(8, 9), drawn(9, 7))


def test_copies_are_made_of_what_lies_apart_is_read_again_and_fits() -> None:
    assert "B_p0" in code(PRODUCT, drawn(64, 32), drawn(48, 32))
    assert "B_p0" not in code(PRODUCT, drawn(64, 32), drawn(48, 32), pack=False)
    large = drawn(64, 1024), drawn(1024, 1024)
    assert "B_p0[16384]" in code(PRODUCT, *large)  # a panel of 16 columns, anew for each
    assert "_p0" not in code(PRODUCT, *large, vector_axis=1, is_column_major=False)  # 4 MiB
    assert "_p0" not in code(PRODUCT, drawn(4, 9000), drawn(40, 9000), vector_axis=1)  # a panel of 562 KiB
    assert "_p0" not in code("def t(float(M,N) A) -> (B) { B(i,j) = A(j,i) }", drawn(64, 64))
    written = "def w(float(M,K) A) -> (C, B) { B(n,k) = A(n,k) C(m,n) +=! A(m,k) * B(n,k) }"
    np.testing.assert_allclose(
        eqsat.kernel(written)(drawn(40, 24))[0], drawn(40, 24) @ drawn(40, 24).T, rtol=1e-4, atol=1e-4
    )


def test_every_option_changes_the_text_and_no_result() -> None:
    rng = np.random.default_rng(0)
    source = """
    def two(float(M,K) A, float(N,K) B) -> (C, D) {
      C(m,n) +=! A(m,k) * B(n,k)
      S(m) +=! C(m,n)
      D(m,n) = C(m,n) - S(m)
    }"""
    arguments = [rng.standard_normal(shape, dtype=np.float32) for shape in ((37, 20), (43, 20))]
    wanted = eqsat.comprehension(source).two(*arguments)
    others = {
        "rows": 3, "vectors": 1, "vector_axis": 2, "vector_bytes": 16, "is_column_major": False, "unroll": 4,
        "pack": False, "pack_near": True, "prefetch": 512, "fusion": "min", "fused_rows": 8, "library": True,
        "threads": 2, "is_naive": True, "clusters": [["C"]], "scheduler": "isl",
    }  # fmt: skip
    for_isl = {"skewing", "constraints"}  # tested beside schedules by isl
    assert others.keys() | for_isl == {field.name for field in dataclasses.fields(MappingOptions)}

    def texts(**options: Any) -> list[str]:
        first = [code(one, *arguments, **options) for one in (source, PRODUCT)]
        panels = code(PANELS, arguments[0], drawn(3, 20, 16), **options)
        return [*first, panels, code(NEAR, arguments[0], arguments[1].T.copy(), **options)]

    for name, value in others.items():
        assert texts(**{name: value}) != texts(), name
        if name == "threads" and not toolchain().has_threads:
            continue
        for one, other in zip(eqsat.kernel(source, {name: value})(*arguments), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_options_go_to_json_and_back() -> None:
    clustered = {"clusters": [["most", "e"], ["total"]]}
    for given in (
        {},
        {"rows": 6, "fusion": "min"},
        {"is_naive": True, "vector_bytes": 64},
        {"library": "mkl"},
        {"scheduler": "isl", "skewing": False, "constraints": {"validity": "{ S0[i] -> S1[i] }"}},
        clustered,
    ):
        options = MappingOptions.of(given)
        assert MappingOptions.of(json.loads(json.dumps(options.to_dict()))) == options


REFUSED = {
    "an unknown name": ({"row": 4}, "mapping option 'row' expected rows"),
    "a number that is none": ({"rows": 0}, "rows = 0"),
    "a bool": ({"unroll": True}, "unroll = True"),
    "half an axis": ({"vector_axis": 1.5}, "vector_axis = 1.5"),
    "more threads than there are": ({"threads": 2**31}, "expected at most 4096 threads"),
    "a name for a cluster": ({"clusters": ["C"]}, "clusters = ['C']"),
    "a name in two clusters": ({"clusters": [["C"], ["C"]]}, "expected lists of the names of targets, each in one"),
    "a library that is unknown": ({"library": "onednn"}, "library = 'onednn' expected True, False, scipy, mkl"),
    "a number for a library": ({"library": 1}, "library = 1 expected True, False, scipy, mkl"),
    "vectors of no processor": ({"vector_bytes": 24}, "vector_bytes = 24 expected 16, 32 or 64"),
    "another strategy": ({"fusion": "most"}, "fusion = 'most' expected min, max, preserve3"),
    "too much unrolled": ({"rows": 64, "vectors": 8, "unroll": 16}, f"expected at most {MOST_UNROLLED} copies"),
    "no options": (7, "mapping options 7"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_mean_nothing_are_refused(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(UsageError) as raised:
        MappingOptions.of(given)  # type: ignore[arg-type]
    assert message in " ".join(str(raised.value).split())


def test_what_c_has_no_form_of_is_told() -> None:
    source = "def f(float(N) x) -> (y) { y(i) = erfinv(x(i)) }"
    with pytest.raises(BackendError) as raised:
        eqsat.kernel(source)(drawn(3))
    said = str(raised.value)
    assert "f has no C: erfinv in C" in said and "call the function itself" in said
    with pytest.raises(UsageError, match="target = 'metal'"):
        eqsat.emit(PRODUCT, drawn(2, 3), drawn(2, 3), target="metal")
    with pytest.raises(UsageError, match="a comprehension of 2 functions"):
        eqsat.kernel(PRODUCT + LOOK_UP)


def test_a_text_is_compiled_once_and_found_again(tmp_path: Path) -> None:
    texts = [text_of(RIGHT[number], MappingOptions(), f"p{number}") for number in (0, 1)]
    first = Libraries(toolchain(), Store(tmp_path))
    for _ in range(2):
        for text in texts:
            first.entry(translation_unit(texts), text.entry)
    assert first.compiled == 1
    again = Libraries(toolchain(), Store(tmp_path))
    again.entry(translation_unit(texts), texts[0].entry)
    assert again.compiled == 0
    again.entry(translation_unit(texts), texts[0].entry, ["-O1"])
    assert again.compiled == 1


def test_without_a_compiler_the_error_names_the_remedy() -> None:
    """In a process whose path leads nowhere and that hides the package of zig."""
    script = (
        "import sys, numpy as np, eqsat\nfrom eqsat.errors import BackendError\nsys.modules['ziglang'] = None\n"
        "try:\n    eqsat.kernel('def f(float(N) x) -> (y) { y(i) = x(i) }')(np.ones(3, np.float32))\n"
        "except BackendError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False
    )
    assert "no C compiler is found" in done.stdout, done.stderr
    assert all(name in done.stdout for name in (*COMPILERS, "pip install 'eqsat[c]'"))


def test_vectors_of_exp_and_tanh_are_within_three_units() -> None:
    x = np.concatenate(
        [np.linspace(-110, 95, 200_001), np.linspace(-1, 1, 100_001), [np.inf, -np.inf, np.nan, 0.0, -0.0]]
    )
    x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        for name in ("exp", "tanh"):
            made = eqsat.kernel(f"def f(float(N) x) -> (y) {{ y(i) = {name}(x(i)) }}")(x)
            wanted = getattr(np, name)(x.astype(np.float64))
            assert f"{name}_v8f" in code(f"def f(float(N) x) -> (y) {{ y(i) = {name}(x(i)) }}", x)
            np.testing.assert_array_equal(np.isnan(made), np.isnan(wanted))
            np.testing.assert_array_equal(np.signbit(made[-2:]), np.signbit(wanted[-2:].astype(np.float32)))
            rounded = wanted.astype(np.float32)
            finite = np.isfinite(rounded)
            np.testing.assert_array_equal(made[~finite], rounded[~finite])
            unit = np.maximum(np.spacing(np.abs(wanted[finite]).astype(np.float32)), 2.0**-149)
            assert np.max(np.abs(made[finite] - wanted[finite]) / unit) <= 3


def test_a_compiler_without_threads_is_told_of_and_not_tuned_for(tmp_path: Path) -> None:
    """A compiler that refuses the flag of OpenMP, as one without its library does."""
    refusing = tmp_path / "refusing-cc"
    refusing.write_text('#!/bin/sh\ncase "$*" in *-fopenmp*) exit 1;; esac\nexec cc "$@"\n')
    refusing.chmod(0o755)
    script = (
        "import numpy as np, eqsat\nfrom eqsat.errors import BackendError\nx = np.ones((4, 4), np.float32)\n"
        f"source = {PRODUCT!r}\n"
        "try:\n    eqsat.kernel(source, {'threads': 2})(x, x)\nexcept BackendError as error:\n    print(error)\n"
        "print({one.candidate['threads'] for one in eqsat.autotune(source, x, x, seconds=3, progress=False).history})\n"
    )
    environment = {**os.environ, "CC": str(refusing), "EQSAT_KERNEL_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "a compiler with OpenMP" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "{1}"


def test_a_bound_call_is_the_kernel_alone_and_says_whether_subscripts_fit():
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    kernel = eqsat.kernel(LOOK_UP)
    at = np.array([3, 0], np.int32)
    call = kernel.bind(table, at=at)
    assert call() == call() == 0
    at[1] = 4  # the array itself is read in each call
    assert call() == 1
    with pytest.raises(ShapeError, match="elements of float64"):
        kernel.bind(table.astype(np.float64), at)
