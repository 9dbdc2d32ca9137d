"""The search for mappings to a GPU: its space, its generations by times of a made-up clock, and its ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from eqsat.errors import UsageError
from eqsat.runtime.cuda.program.functions import kernel_series
from eqsat.runtime.cuda.program.mappings import MAPPINGS, MappingSearch, candidate_of, distinct, mapping_space
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.tuning.config import TunerConfig
from tests.support.polyhedral.planted_trees import PRODUCT, RECTIFIED, computed

SCALED = "def scaled(float(N) x) -> (y) { y(i) = 2 * x(i) }"
SUMS = "def sums(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"


def kernels_of(given: Computation) -> Callable[[GpuMapping], Hashable]:
    def made(mapping: GpuMapping) -> Hashable:
        return tuple((one.source.code, one.source.block) for one in kernel_series(given, mapping, {}).kernels)

    return made


def clock(mapping: GpuMapping) -> float:
    """Seconds that are least for blocks of 8 by 32 threads with 8 by 2 elements each, in 32 values at a time."""
    wanted = {"block_rows": 8, "block_columns": 32, "thread_rows": 8, "thread_columns": 2, "reduced_tile": 32}
    off = sum(abs(math.log2(getattr(mapping, name) / value)) for name, value in wanted.items())
    return 1e-5 * (1 + 0.3 * off) * (1.0 if mapping.promote else 1.5) * (1 + 0.05 * math.log2(mapping.unroll))


def searched(given: Computation, config: TunerConfig, kind: Any = "genetic") -> dict[GpuMapping, float]:
    search, times = MappingSearch(given, kernels_of(given), config, kind), dict[GpuMapping, float]()
    while batch := search.propose():
        assert not set(batch) & times.keys()
        times |= {mapping: clock(mapping) for mapping in batch}
        search.tell(times)
    return times


def test_a_space_has_the_options_that_change_something() -> None:
    names = {source: mapping_space(computed(source, **sizes)).options.keys() for source, sizes in (
        (SCALED, {"N": 9}), (SUMS, {"M": 4, "N": 300}), (PRODUCT, {"M": 8, "N": 8, "K": 8}),
        (RECTIFIED, {"M": 8, "N": 8, "K": 8}),
    )}  # fmt: skip
    assert names[SCALED] == {"threads", "read_only_cache"}
    assert names[SUMS] == names[SCALED] | {"unroll", "reduction_threads", "long_reduction", "few_elements"}
    assert names[PRODUCT] == names[SUMS] | {
        "block_rows", "block_columns", "thread_rows", "thread_columns", "reduced_tile", "promote",
        "unroll_copies",
    }  # fmt: skip
    assert names[RECTIFIED] == names[PRODUCT] | {"fusion"}
    space = mapping_space(computed(RECTIFIED, M=8, N=8, K=8))
    assert all(candidate_of(space, mapping) is not None for mapping in MAPPINGS)
    assert candidate_of(space, GpuMapping(shared_bytes=4096)) is None  # no option of it
    assert candidate_of(space, GpuMapping(threads=96)) is None


def test_a_search_begins_with_known_mappings_and_finds_faster_ones() -> None:
    given = computed(PRODUCT, M=70, N=90, K=50)
    first = distinct(MAPPINGS, kernels_of(given))
    config = TunerConfig(generations=12, population=24, elites=4)
    times = searched(given, config)
    assert list(times)[: len(first)] == first
    assert min(times.values()) < 0.75 * min(map(clock, first))
    fastest = GpuMapping(block_rows=8, block_columns=32, thread_rows=8, thread_columns=2, reduced_tile=32, unroll=1)
    assert candidate_of(mapping_space(given), fastest) is not None
    assert min(times.values()) <= 1.3 * clock(fastest)
    assert searched(given, config) == times
    assert len({kernels_of(given)(mapping) for mapping in times}) == len(times)


def test_a_random_search_looks_at_other_mappings() -> None:
    given = computed(PRODUCT, M=70, N=90, K=50)
    config = TunerConfig(generations=4, population=12, elites=2)
    genetic, random = (searched(given, config, kind) for kind in ("genetic", "random"))
    assert 24 < len(random) <= 48 and genetic.keys() != random.keys()
    with pytest.raises(UsageError, match=r"search = 'gnetic'\n  expected genetic or random\n  .*genetic"):
        MappingSearch(given, kernels_of(given), config, "gnetic")  # type: ignore[arg-type]


def test_mappings_without_kernels_are_invalid_and_a_small_space_ends() -> None:
    given = computed(SCALED, N=5000)
    times = searched(given, TunerConfig(generations=24, population=4, elites=1))
    assert {mapping.threads for mapping in times} == {32, 64, 128, 256, 512, 1024}
    search = MappingSearch(given, lambda mapping: None, TunerConfig(generations=3, population=4, elites=1))
    assert search.propose() == []
