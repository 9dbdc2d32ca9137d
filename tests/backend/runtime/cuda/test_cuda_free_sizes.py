"""Kernels for a GPU whose sizes are arguments: one text for all, with blocks that are counted at the launch."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError, UsageError
from eqsat.language.comprehension.extents.free import with_free
from eqsat.language.terms.dims import evaluate
from eqsat.runtime.c.kernel import computation_of
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.cuda.comprehension_kernels import free_cuda_kernels
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.testing.cuda.computations import run_kernels
from eqsat.testing.cuda.emulator import build
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.emulated_corpus import MappedProgram, emulated
from tests.support.comprehensions.programs_free import BATCHES, PROGRAMS, drawn
from tests.support.comprehensions.programs_tiled import GATHER, GROUPED, MATMUL, ROWS, TBMM, TILED

MAPPINGS: dict[str, Any] = {
    "naive": "naive",
    "default": {},
    "small": {
        "threads": 32, "block_rows": 2, "block_columns": 4, "thread_rows": 2, "thread_columns": 3, "reduced_tile": 5,
        "reduction_threads": 32, "long_reduction": 2, "unroll": 3,
    },
    "apart": {"promote": False, "fusion": "min", "few_elements": 1},
}  # fmt: skip


def free_kernels(source: str, free: tuple[str, ...], arguments: list[Any], options: Any) -> Any:
    """The computation with free sizes, its kernels, and the values that arguments give the sizes."""
    (function,) = eqsat.comprehension(source).values()
    inferred, _ = function.bind(arguments, {})
    computation = computation_of(function, with_free(function, inferred, free))
    kernels = free_cuda_kernels(computation, GpuMapping.of(options))
    names = [name for name in function.scope.sizes if name in free]
    sizes = {c: evaluate(inferred.known[name], {}) for c, name in zip(computation.sizes, names, strict=True)}
    return computation, kernels, sizes


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_one_text_serves_every_batch_in_both_orders_of_threads(mapping: str) -> None:
    made = {}
    for name, (source, free, shapes) in PROGRAMS.items():
        made[name] = [free_kernels(source, free, drawn(shapes(batch)), MAPPINGS[mapping]) for batch in BATCHES]
        texts = {tuple(kernel.text for kernel in kernels) for _, kernels, _ in made[name]}
        assert len(texts) == 1, name
    build([kernel.at(cases[0][2]) for cases in made.values() for kernel in cases[0][1]])
    for name, (source, _, shapes) in PROGRAMS.items():
        (function,) = eqsat.comprehension(source).values()
        for batch, (computation, kernels, sizes) in zip(BATCHES, made[name], strict=True):
            arguments = drawn(shapes(batch))
            given = dict(zip(computation.operands, arguments, strict=True))
            launched = [kernel.at(sizes) for kernel in kernels]
            results, failed = run_kernels(computation, launched, given, sizes=sizes, descending=bool(batch % 2))
            (made_here,) = (results[one] for one in computation.results)
            assert not failed
            wanted = function(*arguments)
            np.testing.assert_allclose(made_here, wanted, rtol=2e-5, atol=2e-5, err_msg=f"{name} of {batch}")


@pytest.mark.parametrize("mapping", ["default", "small", "apart"])
def test_the_corpus_computes_what_numpy_does_with_all_sizes_free_that_may_be(mapping: str) -> None:
    programs = emulated((*RIGHT, *TILED), GpuMapping.of(MAPPINGS[mapping]), is_free=True)
    for one in programs:
        one.check(0)
        one.check(1, descending=True)
    assert sum(bool(one.sizes) for one in programs) > 0.8 * len(programs)


def test_blocks_are_counted_from_the_sizes_of_a_call() -> None:
    source, free, shapes = PROGRAMS["layer"]
    _, (kernel,), _ = free_kernels(source, free, drawn(shapes(3)), {})
    grids = [kernel.at({"B": batch}).grid for batch in (1, 64, 65, 640, 641)]
    assert grids == [(1, 1, 1), (1, 1, 1), (2, 1, 1), (10, 1, 1), (11, 1, 1)]
    assert kernel.at({"B": 65}).numbers == (65,) and kernel.source.arguments == ("I", "W", "bias", "O")
    assert "const int B) {" in kernel.text


def test_indices_are_told_apart_by_the_arguments() -> None:
    source = "def near(float(K,M,N) x, float(K) w) -> (y) { y(m,n) +=! x(k,m,n) * w(k) }"
    text = eqsat.emit(source, *drawn([(3, 4, 5), (3,)]), target="cuda", options={}, free=("M", "N"))
    for part in ("const int total_p = M * N;", "const int n = point_p % N;", "< total_p)", "(i64)(k) * (M) * (N)"):
        assert part in text


def test_more_elements_than_an_int_counts_are_refused_at_the_launch() -> None:
    source = "def twice(float(N,M) x) -> (y) { y(i,j) = 2 * x(i,j) }"
    _, (kernel,), _ = free_kernels(source, ("N", "M"), drawn([(2, 3)]), {})
    assert kernel.at({"N": 1 << 15, "M": 1 << 15}).grid == (1 << 22, 1, 1)
    with pytest.raises(BackendError, match=r"4294967296 elements of a statement") as refused:
        kernel.at({"N": 1 << 16, "M": 1 << 16})
    assert "twice, with N = 65536, M = 65536" in str(refused.value)
    with pytest.raises(BackendError, match=r"536870913 along an axis"):
        kernel.at({"N": (1 << 29) + 1, "M": 1})


def test_sizes_that_no_kernel_leaves_free_are_told_of() -> None:
    with pytest.raises(UsageError, match="N, M cannot stay free: i has the extent"):
        eqsat.emit(
            "def f(float(N,M) x) -> (y) { y(i) = x(i / M, i % M) where i in 0:N*M }",
            *drawn([(2, 3)]), target="cuda", free=("N", "M"),
        )  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="eqsat asks for NVRTC, which compiles for GPUs, on Linux alone")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_with_free_sizes_compile_for_gpus_without_spills(architecture: str) -> None:
    made = [MappedProgram.of(one, GpuMapping(), is_free=True) for one in (MATMUL, TBMM, GROUPED, ROWS, GATHER)]
    assert all(one.sizes for one in made)
    codes = dict.fromkeys(kernel.code for one in made for kernel in one.kernels)
    for source, free, shapes in PROGRAMS.values():
        codes |= dict.fromkeys(one.source.code for one in free_kernels(source, free, drawn(shapes(3)), {})[1])
    unit = "\n".join(f"namespace n{i}_ {{\n{code}\n}}".replace('extern "C"', "") for i, code in enumerate(codes))
    log = compile_cubin(unit, arch=architecture).log
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
    assert len(registers) == len(codes) and max(registers) <= 128
    assert set(re.findall(r"(\d+) bytes spill stores", log)) == {"0"}
