"""Options of mappings to a GPU: refused, written out and read again, and each with an effect on the text."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from typing import Any

import pytest

from eqsat.errors import UsageError
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.emulated_corpus import MappedProgram
from tests.support.comprehensions.programs_tiled import GATHER, GROUPED, MATMUL, ROWS, TBMM, TILED

#: Another value of each option.
OTHER: dict[str, Any] = {
    "threads": 64, "block_rows": 8, "block_columns": 8, "thread_rows": 2, "thread_columns": 1, "reduced_tile": 8,
    "promote": False, "shared_bytes": 4096, "unroll": 8, "reduction_threads": 64, "long_reduction": 400,
    "few_elements": 1, "fusion": "min", "is_naive": True,
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
    ({"fusion": "all"}, "fusion = 'all'"),
    ({"thread": 3}, "mapping option 'thread'"),
]


def text(**options: Any) -> str:
    """All kernels of the programs."""
    made = GpuMapping.of(options)
    kernels = [kernel for one in TILED for kernel in MappedProgram.of(one, made).kernels]
    return "".join(f"{kernel.code}{kernel.grid}{kernel.block}" for kernel in kernels)


def test_every_option_changes_the_text_and_comes_back() -> None:
    assert OTHER.keys() == {one.name for one in fields(GpuMapping)}
    plain = text()
    for name, value in OTHER.items():
        assert text(**{name: value}) != plain, name
        assert GpuMapping.of({name: value}).to_dict() == {name: value}
    assert GpuMapping.of(OTHER).to_dict() == OTHER and GpuMapping().to_dict() == {}
    assert GpuMapping.of("naive") == GpuMapping.naive() and GpuMapping.of("default") == GpuMapping()
    assert GpuMapping.of({"unroll": 256}).unroll == 256


@pytest.mark.parametrize(("options", "fault"), REFUSED, ids=[fault for _, fault in REFUSED])
def test_options_that_no_gpu_takes_are_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=re.escape(fault)):
        GpuMapping.of(options)


@pytest.mark.skipif(sys.platform != "linux", reason="eqsat asks for NVRTC, which compiles for GPUs, on Linux alone")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_compile_for_gpus_without_spills(architecture: str) -> None:
    """One unit for all of them takes the least time: each is in a namespace of its own, as names repeat."""
    for programs, most in (((MATMUL, TBMM, GROUPED, ROWS, GATHER), 64), (RIGHT, 96)):
        made = [MappedProgram.of(one, GpuMapping()) for one in programs]
        codes = dict.fromkeys(kernel.code for one in made for kernel in one.kernels)
        unit = "\n".join(f"namespace n{i}_ {{\n{code}\n}}".replace('extern "C"', "") for i, code in enumerate(codes))
        log = compile_cubin(unit, arch=architecture).log
        registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
        assert len(registers) == len(codes) and max(registers) <= most
        # Functions of CUDA's library that are called have reports too.
        assert set(re.findall(r"(\d+) bytes spill stores", log)) == {"0"}
