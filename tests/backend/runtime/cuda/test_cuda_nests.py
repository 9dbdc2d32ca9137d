"""Comprehensions as CUDA kernels, run on the processor: the values of NumPy in every mapping and order of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.ops import OPS
from eqsat.language.terms import DType, Node, TensorType
from eqsat.runtime.c.kernel import computation_of
from eqsat.runtime.cuda.comprehension_kernels import cuda_kernels
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.groups.lowering import lowered_group
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import View
from eqsat.testing.cuda.emulator import build
from tests.support.comprehensions.comprehension_cases import Right, below, drawn, right
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.emulated_corpus import MappedProgram, emulated
from tests.support.comprehensions.programs_tiled import GROUPED, MATMUL, ROWS, TILED

#: Options that lead to different kernels of the same programs.
MAPPINGS: dict[str, Any] = {
    "naive": "naive",
    "default": {},
    "blocks of one warp reduce": {"threads": 32, "reduction_threads": 32, "long_reduction": 2, "fusion": "min"},
    "small tiles": {
        "block_rows": 2, "block_columns": 4, "thread_rows": 2, "thread_columns": 3, "reduced_tile": 5,
        "shared_bytes": 700, "unroll": 7, "fusion": "preserve3",
    },
    "no shared memory": {
        "promote": False, "block_rows": 3, "block_columns": 5, "thread_rows": 3, "thread_columns": 2,
        "long_reduction": 3, "few_elements": 4,
    },
}  # fmt: skip
BARRIER = "__syncthreads();"


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_every_program_computes_what_numpy_does_in_both_orders_of_threads(mapping: str) -> None:
    """One draw of arguments runs with threads ascending, the other with threads descending."""
    options = GpuMapping.of(MAPPINGS[mapping])
    programs = RIGHT if options.is_naive else (*RIGHT, *TILED)
    for one in emulated(programs, options):
        one.check(0)
        one.check(1, descending=True)


def test_all_forms_of_kernels_are_among_those_of_the_programs() -> None:
    def forms(options: Any) -> set[str]:
        kernels = [kernel.code for one in TILED for kernel in MappedProgram.of(one, GpuMapping.of(options)).kernels]
        return {form for code in kernels for form in ("__shared__", "threadIdx.y", "block_reduce") if form in code}

    assert forms({}) == {"__shared__", "threadIdx.y", "block_reduce"}
    assert forms(MAPPINGS["no shared memory"]) == {"threadIdx.y", "block_reduce"}


def test_the_naive_kernel_is_one_loop_per_index() -> None:
    program = right("def mv(float(M,K) A, float(K) x) -> (y) { y(i) +=! A(i,k) * x(k) }", np.matmul, M=3, K=5)
    (kernel,) = MappedProgram.of(program, GpuMapping.naive()).kernels
    assert (kernel.grid, kernel.block, kernel.arguments) == ((1, 1, 1), (1, 1, 1), ("A", "x", "y"))
    assert kernel.code == (
        'extern "C" __global__ void __launch_bounds__(1) mv_0(\n'
        "    const float* __restrict__ A,\n"
        "    const float* __restrict__ x,\n"
        "    float* __restrict__ y) {\n"
        "  for (int i = 0; i < 3; ++i) {\n"
        "    float acc;\n"
        "    acc = 0.0f;\n"
        "    for (int k = 0; k < 5; ++k) {\n"
        "      acc = acc + (A[i * 5 + k] * x[k]);\n"
        "    }\n"
        "    y[i] = acc;\n"
        "  }\n"
        "}\n"
    )


def without_barrier(kernel: KernelSource, number: int) -> KernelSource:
    """The kernel less one of the barriers in its text."""
    parts = kernel.code.split(BARRIER)
    assert 0 <= number < len(parts) - 1
    return replace(kernel, code=BARRIER.join(parts[: number + 1]) + ";" + BARRIER.join(parts[number + 1 :]))


@pytest.mark.parametrize("program", [MATMUL, GROUPED, ROWS], ids=lambda one: one.function.name)
def test_each_barrier_is_needed(program: Right) -> None:
    """Without any one of them, one of the two orders of threads gives other values."""
    whole = MappedProgram.of(program, GpuMapping.of({"reduced_tile": 3}))
    (kernel,) = whole.kernels
    assert kernel.code.count(BARRIER) == 2
    broken = [replace(whole, kernels=(without_barrier(kernel, number),)) for number in range(2)]
    build([kernel, *(one.kernels[0] for one in broken)])
    for descending in (False, True):
        whole.check(descending=descending)
    for one in broken:
        failures = 0
        for descending in (False, True):
            try:
                one.check(descending=descending)
            except (AssertionError, BackendError):
                failures += 1
        assert failures


def shared_arrays(program: Right, **options: Any) -> list[str]:
    """The arrays that blocks of the only kernel with tiles share."""
    kernels = MappedProgram.of(program, GpuMapping.of(options)).kernels
    lines = [line.strip() for kernel in kernels for line in kernel.code.splitlines() if "__shared__" in line]
    return [line.removeprefix("__shared__ ").removesuffix(";") for line in lines]


def test_tiles_beyond_the_limit_are_not_promoted() -> None:
    """The tile of A has 64 rows of 16, that of B 16 of 64; with 2 rows of threads, A's is the smaller."""
    assert shared_arrays(MATMUL) == ["float A_0[1024]", "float B_1[1024]"]
    assert shared_arrays(MATMUL, shared_bytes=8191) == ["float A_0[1024]"]
    assert shared_arrays(MATMUL, shared_bytes=4095) == shared_arrays(MATMUL, promote=False) == []
    assert shared_arrays(MATMUL, block_rows=2, shared_bytes=2048) == ["float A_0[128]"]


def test_the_tile_of_a_window_is_the_box_that_its_block_reads() -> None:
    """16 columns that 3 taps move along, and 3 rows of taps."""
    sizes = {"block_columns": 16, "thread_columns": 1, "block_rows": 4, "thread_rows": 1, "reduced_tile": 9}
    assert shared_arrays(GROUPED, **sizes) == ["float W1_1[36]", "float I_0[54]"]


def failing(source: str, *arguments: Any) -> Right:
    """A program whose reference is itself, for arguments that its subscripts or divisors do not fit."""
    function = eqsat.comprehension(source)
    (name,) = list(function)
    given = {one.name: value for one, value in zip(function[name].scope.function.parameters, arguments, strict=True)}
    return right(source, lambda *_: None, given)


TABLE, ROW = np.ones((5, 70), np.float32), np.arange(70, dtype=np.int32)
FAILURES = {
    "a subscript beyond the last": failing(
        "def f(float(V,D) T, int32(L) I) -> (O) { O(l,d) = T(I(l),d) }", TABLE, np.array([0, 4, 5], np.int32)
    ),
    "a negative subscript": failing(
        "def f(float(V,D) T, int32(L) I) -> (O) { O(l,d) = T(I(l),d) }", TABLE, np.array([0, -1, 3], np.int32)
    ),
    "a divisor of 0": failing("def f(int32(N) A, int32(N) B) -> (O) { O(i) = A(i) / B(i) }", ROW, ROW[::-1].copy()),
    "a remainder by 0 in a long sum": failing(
        "def f(int32(N) A, int32(N) B) -> (O) { O +=! A(i) % B(i) }", ROW, ROW[::-1].copy()
    ),
    "a subscript in rows that blocks reduce": failing(
        "def f(float(V,D) T, int32(D) I) -> (m,Y) { m(v) max=! T(v,I(d))  Y(v,d) = T(v,d) - m(v) }", TABLE, ROW + 1
    ),
}


def test_kernels_say_that_a_subscript_or_a_divisor_does_not_fit() -> None:
    for mapping in ("naive", {}, {"long_reduction": 2}):
        for title, one in zip(FAILURES, emulated(list(FAILURES.values()), GpuMapping.of(mapping)), strict=True):
            for descending in (False, True):
                assert one.run(0, descending)[1], title


def test_only_kernels_that_can_fail_take_the_flag() -> None:
    (checked,) = MappedProgram.of(FAILURES["a negative subscript"], GpuMapping()).kernels
    assert checked.arguments == ("T", "I", "O", "failed")
    assert all("failed" not in kernel.arguments for kernel in MappedProgram.of(MATMUL, GpuMapping()).kernels)


def test_elements_and_divisors_under_a_condition_do_not_fail() -> None:
    program = right(
        "def f(float(V) T, int32(L) I, int32(L) D) -> (O,Q) "
        "{ O(l) = I(l) >= 0 && I(l) < V ? T(I(l)) : 0.0  Q(l) = D(l) == 0 ? 0 : I(l) / D(l) }",
        lambda t, i, d: (np.where(i < 5, t[np.minimum(i, 4)], np.float32(0)), i // np.maximum(d, 1) * (d > 0)),
        {"I": lambda rng, shape, dtype: rng.integers(0, 9, shape).astype(dtype), "D": below(3), "T": drawn},
        V=5, L=70,
    )  # fmt: skip
    for mapping in ("naive", {}):
        for one in emulated([program], GpuMapping.of(mapping)):
            one.check()
            one.check(1, descending=True)


def test_names_that_only_cuda_knows_stay_names_of_tensors_and_indices() -> None:
    program = right(
        "def template(float(class,K) new, float(K,N) threadIdx) -> (this) "
        "{ this(or,inside) +=! new(or,block_reduce) * threadIdx(block_reduce,inside) }",
        np.matmul,
        **{"class": 5},
        K=6, N=7,
    )  # fmt: skip
    for mapping in ("naive", {}):
        for one in emulated([program], GpuMapping.of(mapping)):
            one.check()


@pytest.mark.parametrize("mapping", ["naive", "default"])
def test_statements_that_an_int_does_not_count_are_refused(mapping: str) -> None:
    functions = eqsat.comprehension("def f(int8(N,M) A) -> (B) { B(i,j) = A(i,j) }")
    function = functions["f"]
    computation = computation_of(function, function.inferred({"A": (1 << 16, 1 << 15)}, {}))
    with pytest.raises(BackendError, match="2147483648 elements of a statement, more than an int counts"):
        cuda_kernels(computation, GpuMapping.of(mapping))


@pytest.mark.parametrize("name", ["cyl_bessel_i0", "erfcinv", "erfcx", "normcdfinv"])
def test_functions_that_c_has_not_are_refused_for_cuda_too(name: str) -> None:
    function = eqsat.comprehension(f"def f(float(N) A) -> (B) {{ B(i) = {name}(A(i)) }}")["f"]
    with pytest.raises(BackendError, match=f"f has no C: {name} in C"):
        computation_of(function, function.inferred({"A": (3,)}, {}))


@pytest.mark.parametrize("name", ["scatter_elements", "lstm"])
def test_rounds_with_an_order_are_refused(name: str) -> None:
    """Updates of one element follow one another, and so do the steps of a recurrence."""
    types = {
        "scatter_elements": [("float32", (4,)), ("int64", (3,)), ("float32", (3,))],
        "lstm": [("float32", (3, 1, 2)), ("float32", (1, 8, 2)), ("float32", (1, 8, 2))],
    }[name]
    operands = {f"x{n}": TensorType(DType(dtype), shape) for n, (dtype, shape) in enumerate(types)}
    made = OPS[name].result_types(list(operands.values()), attrs := OPS[name].complete({}))
    results = {f"y{n}": one for n, one in enumerate(made)}
    views = {n: View.of(n, one.dtype, one.static) for n, one in (operands | results).items()}
    node = Node(name, tuple(operands), tuple(results), attrs)
    group = Group((node,), operands | results, {n: views[n] for n in operands}, {n: views[n] for n in results})
    computation = lowered_group(group).computation
    for mapping in (GpuMapping(), GpuMapping.naive()):
        with pytest.raises(BackendError, match="in the order of a loop"):
            cuda_kernels(computation, mapping)
