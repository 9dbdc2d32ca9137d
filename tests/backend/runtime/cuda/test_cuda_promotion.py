"""Promotion to shared memory: its rule, its boxes and limits, and the values of kernels that promote."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from eqsat.errors import BackendError
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.cuda.comprehension_kernels import cuda_kernels
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import ElementRead, reads
from eqsat.runtime.kernels.nests.extents import value_at
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.source import KernelSource
from eqsat.testing.cuda.emulator import build
from tests.support.comprehensions.comprehension_cases import Right, below, right
from tests.support.comprehensions.emulated_corpus import MappedProgram, emulated
from tests.support.comprehensions.programs_promoted import (
    ADDED,
    DEPTHWISE,
    FARTHEST,
    LOOKED,
    LOOKED_IF,
    NESTED,
    POINTS,
    PROMOTED,
    STENCIL,
    TURNED,
    TURNED_ONCE,
    UNPROMOTED,
)
from tests.support.comprehensions.programs_tiled import COMPUTED_ROWS, MATMUL, READ_BACK, TILED

BARRIER = "__syncthreads();"
#: The rules, and blocks whose tiles are no multiples of anything.
MAPPINGS: dict[str, dict[str, Any]] = {
    "default": {"fusion": "min"},
    "uncoalesced": {"promote": "uncoalesced", "fusion": "min"},
    "reused": {"promote": "reused", "fusion": "min"},
    "odd tiles": {
        "promote": "reused", "block_rows": 5, "block_columns": 7, "thread_rows": 2, "thread_columns": 3,
        "reduced_tile": 4, "unroll_copies": True, "read_only_cache": True, "fusion": "min",
    },
}  # fmt: skip


def shared_of(kernels: tuple[KernelSource, ...]) -> dict[str, int]:
    """The number of elements of each array that threads share, by the buffer that it is a copy of."""
    found = [one for kernel in kernels for one in re.findall(r"__shared__ \w+ (\w+)_\d+\[(\d+)\];", kernel.code)]
    return {name: int(count) for name, count in found}


def shared(program: Right, promote: Any = True, **options: Any) -> dict[str, int]:
    """The arrays that the kernels of a program share."""
    return shared_of(MappedProgram.of(program, GpuMapping.of({"promote": promote, "fusion": "min", **options})).kernels)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_programs_that_promote_compute_what_numpy_does(mapping: str) -> None:
    for one in emulated((*PROMOTED, *UNPROMOTED), GpuMapping.of(MAPPINGS[mapping])):
        one.check(0)
        one.check(1, descending=True)


def test_programs_that_promote_leave_their_sizes_free() -> None:
    made = emulated([TURNED, STENCIL, ADDED, NESTED], GpuMapping.of(MAPPINGS["reused"]), is_free=True)
    for one in made:
        one.check(0)
        one.check(1, descending=True)
    boxes = {one.program.function.name: shared_of(one.kernels) for one in made if one.sizes}
    assert boxes == {
        "turned": {"A": 16 * 18},
        "stencil": {"A": 18 * 16},
        "added": {"A": 16},
        "nested": {"T": 16 * 9, "W1": 9 * 16},
    }


@pytest.mark.parametrize("promote", ["uncoalesced", "reused"])
def test_all_programs_in_tiles_compute_the_same_by_each_rule(promote: str) -> None:
    for one in emulated(TILED, GpuMapping.of({"promote": promote})):
        one.check(0)
        one.check(1, descending=True)


def test_what_is_read_again_and_not_side_by_side_is_promoted() -> None:
    """Blocks have 16 rows and 16 columns of threads; 19 terms are taken 16 at a time, 9 and 5 at once."""
    for promote in (True, "uncoalesced"):
        assert shared(TURNED, promote) == {"A": 16 * (16 + 2)}
        assert shared(STENCIL, promote) == shared(TURNED_ONCE, promote) == {}
        assert shared(ADDED, promote) == {"A": 16}
    assert shared(STENCIL, "reused") == {"A": (16 + 2) * 16}
    assert shared(DEPTHWISE) == {}
    assert shared(DEPTHWISE, "uncoalesced") == {"W1": 3 * 5}
    assert shared(DEPTHWISE, "reused") == {"W1": 3 * 5, "I": (16 + 2) * (16 + 4)}
    assert shared(FARTHEST) == {"B": 256}
    assert shared(FARTHEST, "uncoalesced") == {"A": 256, "B": 256}
    assert shared(MATMUL) == shared(MATMUL, "reused") == {"A": 1024, "B": 1024}
    assert shared(MATMUL, "uncoalesced") == {"A": 1024}
    assert all(shared(one, promote=False) == {} for one in (*PROMOTED, *TILED))


def test_tables_that_index_arrays_look_up_are_promoted_without_regard_to_neighbours() -> None:
    """The box has the indices that the index arrays are read at in place of their values, and the rest as ever."""
    for promote in (True, "uncoalesced", "reused"):
        assert shared(LOOKED, promote)["T"] == shared(COMPUTED_ROWS, promote)["A"] == 16 * 16
        assert shared(NESTED, promote)["T"] == 16 * 9
        assert shared(POINTS, promote)["T"] == 16 * 16
        assert "T" not in shared(LOOKED_IF, promote)


def reached(program: Right, buffer: str, spans: Mapping[str, int]) -> int:
    """The size of the least box round all elements of a buffer that a tile at the first indices reads."""
    (statement,) = MappedProgram.of(program, GpuMapping.naive()).computation.statements
    found: list[ElementRead] = [one for one in reads(statement.value) if one.buffer == buffer]
    places = set()
    for values in product(*map(range, spans.values())):
        at = dict(zip(spans, values, strict=True))
        known = {axis.name: at.get(axis.name, 0) for axis in statement.axes}
        for read in found:
            assert all(isinstance(one, AffineIndex) for one in read.subscripts)
            places.add(tuple(value_at(one, known) for one in read.subscripts if isinstance(one, AffineIndex)))
    count = 1
    for side in zip(*places, strict=True):
        count *= max(side) - min(side) + 1
    return count


def test_boxes_are_the_least_ones_that_hold_what_a_block_reads() -> None:
    sides = {"block_rows": 4, "block_columns": 8, "reduced_tile": 9}
    assert shared(TURNED, **sides)["A"] == reached(TURNED, "A", {"i": 4, "j": 8}) == 8 * 6
    made = shared(DEPTHWISE, "reused", **sides)
    tile = {"h": 4, "w": 8, "r": 1, "s": 5}
    assert made == {name: reached(DEPTHWISE, name, tile) for name in ("I", "W1")} == {"I": 4 * 12, "W1": 5}
    made = shared(FARTHEST, "reused", **sides)
    assert made == {name: reached(FARTHEST, name, {"i": 4, "j": 8, "k": 9}) for name in ("A", "B")}


def test_boxes_beyond_the_limit_are_not_promoted_and_the_smallest_come_first() -> None:
    assert shared(DEPTHWISE, "reused", shared_bytes=1500) == {"W1": 15, "I": 360}
    assert shared(DEPTHWISE, "reused", shared_bytes=1499) == {"W1": 15}
    assert shared(DEPTHWISE, "reused", shared_bytes=59) == {}
    assert shared(LOOKED, shared_bytes=1024) == {"T": 256}
    assert shared(LOOKED, shared_bytes=1023) == shared(TURNED, shared_bytes=1151) == {}


def test_arrays_that_the_kernel_writes_are_not_promoted_nor_what_they_look_up() -> None:
    assert set(shared(READ_BACK, "reused")) == {"A", "B"}
    computation = MappedProgram.of(POINTS, GpuMapping()).computation
    (statement,) = computation.statements
    updated = replace(statement, target="I", is_fresh=False)
    for one, promoted in ((statement, {"A", "T"}), (updated, {"A"})):
        kernels = cuda_kernels(computation.with_statements([one]), GpuMapping(promote="reused"))
        assert set(shared_of(kernels)) == promoted


@pytest.mark.parametrize("program", [TURNED, DEPTHWISE, FARTHEST, ADDED, LOOKED, NESTED], ids=lambda p: p.function.name)
def test_each_barrier_around_copies_is_needed(program: Right) -> None:
    """Without any one of them, one of the two orders of threads gives other values."""
    options = {"promote": "reused", "reduced_tile": 4, "fusion": "min"}
    whole = MappedProgram.of(program, GpuMapping.of(options))
    (place,) = [place for place, kernel in enumerate(whole.kernels) if BARRIER in kernel.code]
    parts = whole.kernels[place].code.split(BARRIER)
    assert len(parts) == (2 if program in (TURNED, ADDED) else 3)
    broken = []
    for number in range(1, len(parts)):
        code = BARRIER.join(parts[:number]) + ";" + BARRIER.join(parts[number:])
        kernels = [*whole.kernels]
        kernels[place] = replace(kernels[place], code=code)
        broken.append(replace(whole, kernels=tuple(kernels)))
    build([kernel for one in (whole, *broken) for kernel in one.kernels])
    for descending in (False, True):
        whole.check(descending=descending)
    for one in broken:
        assert any(is_wrong(one, descending) for descending in (False, True))


def is_wrong(one: MappedProgram, descending: bool) -> bool:
    """True where a run gives other values than NumPy, or its threads do not meet."""
    try:
        one.check(descending=descending)
    except (AssertionError, BackendError):
        return True
    return False


def test_copies_fail_where_a_subscript_that_is_read_passes_the_bounds() -> None:
    """Blocks beyond the last row read no number of one; nor do they copy what no element needs."""
    unused = replace(LOOKED, given={"I": _rows(lambda made: made[:, 0].fill(1000))})
    last = replace(LOOKED, given={"I": _rows(lambda made: made[36:, 1].fill(23))})
    for mapping in MAPPINGS.values():
        good, failing = emulated([unused, last], GpuMapping.of(mapping))
        for descending in (False, True):
            good.check(descending=descending)
            assert failing.run(descending=descending)[1]


def test_a_copy_divides_by_nothing_that_a_condition_keeps_from_being_divided_by() -> None:
    """The subscript is 0 or 1 whatever is divided by, and has no check of its own."""
    divided = right(
        "def f(float(V) T, int32(B) J, float(N) A) -> (O) { O(b,n) = J(b) != 0 ? T(7 % J(b) > 0 ? 1 : 0) * A(n) : 0 }",
        lambda t, j, a: np.where(j != 0, t[(7 % np.where(j == 0, 1, j) > 0) * 1], np.float32(0))[:, None] * a,
        {"J": below(4)},
        V=2, B=37, N=33,
    )  # fmt: skip
    for mapping in MAPPINGS.values():
        for one in emulated([divided], GpuMapping.of(mapping)):
            one.check()
            one.check(descending=True)


def _rows(change: Any) -> Any:
    """Numbers of rows, some of which are changed."""

    def made(rng: Any, shape: Any, dtype: Any) -> Any:
        found = below(23)(rng, shape, dtype)
        change(found)
        return found

    return made


@pytest.mark.skipif(sys.platform != "linux", reason="eqsat asks for NVRTC, which compiles for GPUs, on Linux alone")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_that_promote_compile_for_gpus_without_spills(architecture: str) -> None:
    """One unit for all of them takes the least time: each is in a namespace of its own, as names repeat."""
    made = [MappedProgram.of(one, GpuMapping.of(mapping)) for one in PROMOTED for mapping in MAPPINGS.values()]
    codes = dict.fromkeys(kernel.code for one in made for kernel in one.kernels)
    unit = "\n".join(f"namespace n{i}_ {{\n{code}\n}}".replace('extern "C"', "") for i, code in enumerate(codes))
    log = compile_cubin(unit, arch=architecture).log
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
    assert len(registers) == len(codes) > 20 and max(registers) <= 48
    assert set(re.findall(r"(\d+) bytes spill stores", log)) == {"0"}
