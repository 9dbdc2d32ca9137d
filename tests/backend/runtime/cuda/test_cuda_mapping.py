"""Blocks and threads that computations are mapped to: none idle, alike in all branches, in one kernel if it may be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import reads
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.scheduling.gpu_elements import BLOCK, THREAD, THREAD_ROW
from eqsat.runtime.kernels.nests.scheduling.gpu_schedule import gpu_scheduled
from eqsat.runtime.kernels.nests.tree import Assign, Guard, Loop, Named, Node, ThreadFold
from eqsat.runtime.kernels.source import KernelSource
from eqsat.testing.cuda.emulator import build
from tests.support.comprehensions.comprehension_cases import Right, right
from tests.support.comprehensions.emulated_corpus import MappedProgram
from tests.support.comprehensions.programs_promoted import DEPTHWISE, PROMOTED, TURNED
from tests.support.comprehensions.programs_tiled import GROUPED, MATMUL, ROWS, TBMM, TILED
from tests.support.polyhedral.planted_trees import of_program

MAPPINGS: dict[str, Any] = {
    "default": {},
    "small": {"threads": 32, "block_rows": 2, "block_columns": 4, "thread_rows": 2, "reduction_threads": 32},
    "promoted": {"promote": "reused", "fusion": "min", "long_reduction": 20},
}


def scaled(n: int) -> Right:
    """A program of so many elements."""
    return right("def scaled(float(N) A) -> (O) { O(i) = A(i) * 2.0 }", lambda a: a * np.float32(2), N=n)


def product(m: int, n: int) -> Right:
    """A product of so many rows and columns."""
    return right("def mm(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }", np.matmul, M=m, N=n, K=9)


def launched(program: Right, **options: Any) -> list[tuple[int, tuple[int, int]]]:
    """The blocks of each kernel of a program, and the columns and rows of threads in one."""
    kernels = MappedProgram.of(program, GpuMapping.of(options)).kernels
    return [(kernel.grid[0], (kernel.block[0], kernel.block[1])) for kernel in kernels]


def test_blocks_and_threads_without_an_element_are_left_out() -> None:
    """Threads of one index come in warps of 32; of tiles, in powers of two."""
    sizes = {1: (1, 32), 31: (1, 32), 33: (1, 64), 256: (1, 256), 257: (2, 256), 513: (3, 256)}
    for n, (blocks, threads) in sizes.items():
        assert launched(scaled(n)) == [(blocks, (threads, 1))]
    assert launched(product(3, 5)) == [(1, (8, 4))]
    assert launched(product(17, 65)) == [(2, (16, 16))]
    assert launched(product(65, 64)) == [(2, (16, 16))]
    assert launched(product(129, 129)) == [(9, (16, 16))]
    rows = right("def total(float(N,M) A) -> (O) { O(i) +=! A(i,j) }", lambda a: a.sum(1), N=3, M=40)
    assert launched(rows, long_reduction=2) == [(3, (64, 1))]
    assert launched(TURNED) == [(3 * 3, (16, 16))]


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_every_launch_needs_its_last_block_and_some_thread_of_its_last_warp(mapping: str) -> None:
    """Without the last block, or with a block of half the threads, some values are not computed."""
    programs = [MATMUL, GROUPED, TBMM, ROWS, TURNED, DEPTHWISE, scaled(257), scaled(33)]
    cases: list[MappedProgram] = []
    for program in programs:
        whole = MappedProgram.of(program, GpuMapping.of(MAPPINGS[mapping]))
        for place, kernel in enumerate(whole.kernels):
            if kernel.grid[0] > 1:
                cases.append(_with(whole, place, replace(kernel, grid=(kernel.grid[0] - 1, 1, 1))))
            if "block_reduce" not in kernel.code and kernel.block[0] > 32:
                cases.append(_with(whole, place, replace(kernel, block=(kernel.block[0] - 32, *kernel.block[1:]))))
    build([kernel for one in cases for kernel in one.kernels])
    assert len(cases) > 6
    for one in cases:
        with pytest.raises(AssertionError):
            one.check()


def _with(whole: MappedProgram, place: int, kernel: KernelSource) -> MappedProgram:
    kernels = [*whole.kernels]
    kernels[place] = kernel
    return replace(whole, kernels=tuple(kernels))


def _within(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if isinstance(node, Loop | Guard):
            yield from _within(node.body)


def _sums(node: Node) -> Iterator[AffineIndex]:
    """The sums of indices in a node."""
    match node:
        case Named():
            yield node.value
        case Guard():
            yield from (index for index, _ in node.below)
        case Assign():
            for read in (node.target, *reads(node.value)):
                yield from (one for one in read.subscripts if isinstance(one, AffineIndex))
            yield from node.environment.values()


def _sizes(index: AffineIndex) -> Iterator[tuple[str, int]]:
    for variable, _ in index.terms:
        if variable.of is None:
            yield variable.name, variable.size
        else:
            yield from _sizes(variable.of)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_all_branches_of_a_kernel_have_the_threads_of_its_launch(mapping: str) -> None:
    """Every statement names as many blocks, columns and rows of threads, and every reduction has all of them."""
    seen = 0
    for program in (*TILED, *PROMOTED):
        for kernel in gpu_scheduled(of_program(program), GpuMapping.of(MAPPINGS[mapping])):
            wanted = {BLOCK: kernel.blocks, THREAD: kernel.threads[0], THREAD_ROW: kernel.threads[1]}
            for node in _within(kernel.body):
                for name, size in (found for one in _sums(node) for found in _sizes(one)):
                    assert name not in wanted or wanted[name] == size
                    seen += name in wanted
                assert not isinstance(node, ThreadFold) or node.threads == math.prod(kernel.threads)
    assert seen > 100


def test_statements_that_share_rows_are_branches_of_one_kernel() -> None:
    """Three statements of which two reduce a row, and one that makes its elements; alone they are three kernels."""
    (kernel,) = gpu_scheduled(of_program(ROWS), GpuMapping())
    branches = [node for node in kernel.body if isinstance(node, Loop)]
    folds = [node for node in _within(kernel.body) if isinstance(node, ThreadFold)]
    assert (len(branches), len(folds), kernel.threads) == (3, 2, (256, 1))
    assert len(gpu_scheduled(of_program(ROWS), GpuMapping(fusion="min"))) == 3
