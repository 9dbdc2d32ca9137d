"""Options of mappings to a GPU: refused, written out and read again, and each with an effect on the text."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import UsageError
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from tests.support.comprehensions.comprehension_cases import Right, right
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.emulated_corpus import MappedProgram, emulated
from tests.support.comprehensions.programs_tiled import GATHER, GROUPED, MATMUL, READ_BACK, ROWS, TBMM, TILED

#: Tiles of A have 6400 elements where a block has rows of 64 elements.
WIDE = right("def wide(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }", np.matmul, M=64, N=16, K=100)
#: Elements of every narrow type, which functions of CUDA do not know.
NARROW = [
    right(f"def narrow({name}(M,K) A, {name}(M,K) B) -> (C) {{ C(i,j) = A(i,j) {sign} B(i,j) }}", function, M=9, K=70)
    for name, sign, function in (
        ("bool", "&&", np.logical_and),
        ("half", "+", np.add),
        ("bfloat16", "+", np.add),
        ("uint8", "+", np.add),
        ("uint64", "+", np.add),
        ("int16", "+", np.add),
        ("double", "+", np.add),
    )
]
#: Another value of each option.
OTHER: dict[str, Any] = {
    "threads": 64, "block_rows": 8, "block_columns": 8, "thread_rows": 2, "thread_columns": 1, "reduced_tile": 8,
    "promote": False, "shared_bytes": 4096, "unroll": 8, "reduction_threads": 64, "long_reduction": 400,
    "few_elements": 1, "unroll_copies": True, "read_only_cache": True, "fusion": "min", "is_naive": True,
}  # fmt: skip
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"threads": 1025}, "a block of 1025 threads"),
    ({"threads": 0}, "threads = 0"),
    ({"threads": True}, "threads = True"),
    ({"block_rows": 64, "block_columns": 32}, "a block of 2048 threads"),
    ({"reduction_threads": 96}, "reduction_threads = 96"),
    ({"reduction_threads": 16}, "reduction_threads = 16"),
    ({"shared_bytes": 49153}, "shared_bytes = 49153"),
    ({"shared_bytes": -1}, "shared_bytes = -1"),
    ({"unroll": 257}, "4 rows of 4 elements, unrolled 257 times"),
    ({"promote": "no"}, "promote = 'no'"),
    ({"promote": 1.0}, "promote = 1.0"),
    ({"unroll_copies": 1}, "unroll_copies = 1"),
    ({"read_only_cache": None}, "read_only_cache = None"),
    ({"fusion": "all"}, "fusion = 'all'"),
    ({"thread": 3}, "mapping option 'thread'"),
]


def text(**options: Any) -> str:
    """All kernels of the programs."""
    made = GpuMapping.of(options)
    kernels = [kernel for one in TILED for kernel in MappedProgram.of(one, made).kernels]
    return "".join(f"{kernel.code}{kernel.grid}{kernel.block}" for kernel in kernels)


def test_every_option_changes_the_text_and_comes_back() -> None:
    assert OTHER.keys() | {"clusters"} == {one.name for one in fields(GpuMapping)}  # which programs have in common
    plain = text()
    for name, value in OTHER.items():
        assert text(**{name: value}) != plain, name
        assert GpuMapping.of({name: value}).to_dict() == {name: value}
    for promote in ("uncoalesced", "reused"):
        assert GpuMapping.of({"promote": promote}).to_dict() == {"promote": promote}
    assert GpuMapping.of(json.loads(json.dumps(OTHER))).to_dict() == OTHER and GpuMapping().to_dict() == {}
    assert GpuMapping.of("naive") == GpuMapping.naive() and GpuMapping.of("default") == GpuMapping()
    assert GpuMapping.of({"unroll": 256}).unroll == 256


def codes(program: Right, **options: Any) -> list[str]:
    """The kernels of a program."""
    return [kernel.code for kernel in MappedProgram.of(program, GpuMapping.of(options)).kernels]


def test_copies_to_shared_memory_are_unrolled_on_demand() -> None:
    """Both tiles have 1024 elements, which 256 threads copy in 4 turns; of one thread, all turns that an option may."""
    (plain,), (made,) = codes(MATMUL), codes(MATMUL, unroll_copies=True)
    turns = "for (int turn_p = 0; turn_p < 4; ++turn_p) {"
    unrolled = re.compile(rf"#pragma unroll 4\n +(?={re.escape(turns)})")
    assert plain.count(turns) == len(unrolled.findall(made)) == 2 and not unrolled.search(plain)
    assert unrolled.sub("", made) == plain
    single = {"block_rows": 1, "block_columns": 1, "thread_rows": 64, "thread_columns": 16, "unroll": 1}
    (many,) = codes(WIDE, unroll_copies=True, reduced_tile=100, **single)
    assert re.search(r"#pragma unroll 4096\n +for \(int turn_p = 0; turn_p < 6400;", many)


def test_what_a_kernel_never_writes_is_read_through_its_cache_on_demand() -> None:
    """Of an output that is read back, elements are read as ever; so are those of shared memory."""
    plain, made = codes(READ_BACK)[-1], codes(READ_BACK, read_only_cache=True)[-1]
    assert set(re.findall(r"CACHED\((\w+)\[", made)) == {"A", "B"} and "C[" in made
    body = made[made.index('extern "C"') :]
    assert re.sub(r"CACHED\((\w+\[[^\]]*\])\)", r"\1", body) == plain
    assert "const float* __restrict__ A," in made and "    float* __restrict__ C)" in made
    (naive,) = codes(MATMUL, is_naive=True, read_only_cache=True)
    assert "CACHED(A[" in naive and "CACHED(B[" in naive and "CACHED(C[" not in naive


@pytest.mark.parametrize(
    "options", [{"unroll_copies": True, "read_only_cache": True}, {"read_only_cache": True, "is_naive": True}]
)
def test_programs_compute_the_same_with_copies_unrolled_and_reads_cached(options: dict[str, Any]) -> None:
    for one in emulated((*TILED, *NARROW), GpuMapping.of(options)):
        one.check(0)
        one.check(1, descending=True)


def test_a_caller_says_which_statements_may_share_kernels() -> None:
    source = """
    def rows(float(B,D) x) -> (m, e, s) {
      m(b) max=! x(b,d)
      e(b,d) = exp(x(b,d) - m(b))
      s(b) +=! e(b,d)
    }"""
    x = np.zeros((6, 40), np.float32)

    def count(**options: Any) -> int:
        return eqsat.emit(source, x, target="cuda", options=options).count("__global__")

    assert (count(), count(fusion="min")) == (1, 3)
    assert count(clusters=[["m", "e"], ["s"]]) == count(clusters=lambda targets: [targets[:2], targets[2:]]) == 2
    assert GpuMapping.of({"clusters": [["m", "e"]]}).to_dict() == {"clusters": (("m", "e"),)}
    with pytest.raises(UsageError, match="clusters with 'q'"):
        count(clusters=[["q"]])
    with pytest.raises(UsageError, match="clusters = 'me'"):
        GpuMapping(clusters="me")  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "fault"), REFUSED, ids=[fault for _, fault in REFUSED])
def test_options_that_no_gpu_takes_are_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=re.escape(fault)):
        GpuMapping.of(options)


@pytest.mark.skipif(sys.platform != "linux", reason="eqsat asks for NVRTC, which compiles for GPUs, on Linux alone")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_compile_for_gpus_without_spills(architecture: str) -> None:
    """One unit for all of them takes the least time: each is in a namespace of its own, as names repeat."""
    changed = GpuMapping(unroll_copies=True, read_only_cache=True)
    for programs, mapping, most in (
        ((MATMUL, TBMM, GROUPED, ROWS, GATHER), GpuMapping(), 64),
        ((MATMUL, TBMM, GROUPED, ROWS, GATHER, *NARROW), changed, 64),
        (RIGHT, GpuMapping(), 96),
    ):
        made = [MappedProgram.of(one, mapping) for one in programs]
        codes = dict.fromkeys(kernel.code for one in made for kernel in one.kernels)
        unit = "\n".join(f"namespace n{i}_ {{\n{code}\n}}".replace('extern "C"', "") for i, code in enumerate(codes))
        log = compile_cubin(unit, arch=architecture).log
        registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
        assert len(registers) == len(codes) and max(registers) <= most
        # Functions of CUDA's library that are called have reports too.
        assert set(re.findall(r"(\d+) bytes spill stores", log)) == {"0"}
