"""Kernels for GPUs proved to compute what statements do, whatever the order of blocks and threads; faults are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import Computation, ElementRead, rebuilt
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.scheduling.gpu_elements import BLOCK, THREAD
from eqsat.runtime.kernels.nests.scheduling.gpu_schedule import gpu_scheduled
from eqsat.runtime.kernels.nests.scheduling.values import own_element
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, GpuKernel, Guard, Loop, Named, Node, ThreadFold
from eqsat.runtime.kernels.polyhedral.child import judge_mapping
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError, UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.legality import check_kernels, check_mapping
from tests.support.comprehensions.comprehension_cases import Right
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.programs_promoted import DEPTHWISE, FARTHEST, LOOKED, PROMOTED, TURNED
from tests.support.comprehensions.programs_tiled import MATMUL, READ_BACK, ROWS, TILED
from tests.support.polyhedral.planted_trees import PAIR, PRODUCT, beginning, computed, of_program

MAPPINGS: dict[str, Any] = {
    "naive": "naive",
    "default": {},
    "blocks of one warp reduce": {"threads": 32, "reduction_threads": 32, "long_reduction": 2, "fusion": "min"},
    "odd tiles": {
        "block_rows": 2, "block_columns": 4, "thread_rows": 2, "thread_columns": 3, "reduced_tile": 5,
        "shared_bytes": 700, "unroll": 7, "fusion": "preserve3",
    },
    "all promoted": {"promote": "reused", "fusion": "min", "block_rows": 8, "reduced_tile": 6},
    "none promoted": {"promote": False, "block_rows": 3, "block_columns": 5, "long_reduction": 3, "few_elements": 4},
}  # fmt: skip


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_the_kernels_of_every_program_are_legal(mapping: str) -> None:
    """But for one, of which dependences say that a term reads the sum of those before it."""
    options = MAPPINGS[mapping]
    for program in (*RIGHT, *TILED, *PROMOTED) if mapping == "default" else (ROWS, *TILED[::2], *PROMOTED):
        if program is not READ_BACK:
            check_mapping(of_program(program), GpuMapping.of(options))


def test_kernels_are_judged_in_a_process_of_its_own() -> None:
    assert judge_mapping(of_program(MATMUL), GpuMapping()).is_legal
    free = judge_mapping(of_program(MATMUL, is_free=True), GpuMapping())
    assert free.answer == "unknown" and "sizes that calls give" in free.reason


#: A node as the nodes in its place; None where it stays.
Change = Callable[[Node], "Sequence[Node] | None"]


def planted(program: Right, change: Change, **options: Any) -> tuple[Computation, list[GpuKernel]]:
    """The kernels of a program, which are legal, with some nodes changed."""
    computation = of_program(program)
    kernels = gpu_scheduled(computation, GpuMapping.of({"fusion": "max", **options}))
    check_kernels(computation, kernels)
    places: list[Node] = []

    def noted(node: Node) -> Sequence[Node] | None:
        found = change(node)
        places.extend([node] if found is not None else [])
        return found

    made = [replace(one, body=tuple(_changed(one.body, noted))) for one in kernels]
    assert len(places) == 1
    return computation, made


def _changed(nodes: Sequence[Node], change: Change) -> list[Node]:
    made: list[Node] = []
    for node in nodes:
        found = change(node)
        if found is not None:
            made += found
        elif isinstance(node, Loop | Guard):
            made.append(replace(node, body=tuple(_changed(node.body, change))))
        else:
            made.append(node)
    return made


def count(nodes: Sequence[Node], kind: type[Node]) -> int:
    """The number of nodes of a kind."""
    inner = sum(count(node.body, kind) for node in nodes if isinstance(node, Loop | Guard))
    return inner + sum(isinstance(node, kind) for node in nodes)


def nth(kind: type[Node], number: int, made: Callable[[Any], Sequence[Node]] = lambda node: ()) -> Change:
    """A change of one node of a kind, the one of a number: left out if nothing else is said."""
    left = [number]

    def change(node: Node) -> Sequence[Node] | None:
        if not isinstance(node, kind):
            return None
        left[0] -= 1
        return made(node) if left[0] == -1 else None

    return change


@pytest.mark.parametrize("program", [MATMUL, TURNED, DEPTHWISE, FARTHEST, LOOKED], ids=lambda one: one.function.name)
def test_a_barrier_that_is_missing_is_found(program: Right) -> None:
    options = {"promote": "reused", "reduced_tile": 4}
    (kernel,) = gpu_scheduled(of_program(program), GpuMapping.of(options))
    barriers = 1 if program is TURNED else 2
    assert count(kernel.body, Barrier) == barriers
    for number in range(barriers):
        computation, kernels = planted(program, nth(Barrier, number), **options)
        with pytest.raises(IllegalScheduleError, match="that run at once meet at"):
            check_kernels(computation, kernels)


def test_a_barrier_between_statements_that_share_a_block_is_needed() -> None:
    computation, kernels = planted(ROWS, nth(Barrier, 0))
    with pytest.raises(IllegalScheduleError, match="m is read before it is written"):
        check_kernels(computation, kernels)
    computation, kernels = planted(ROWS, nth(Barrier, 0, lambda node: [Guard(((_thread(256), 5),), (node,))]))
    with pytest.raises(IllegalScheduleError, match="wait for each other under a condition"):
        check_kernels(computation, kernels)


def _thread(count: int) -> AffineIndex:
    return AffineIndex.variable(THREAD, count)


def test_a_reduced_index_is_mapped_to_threads_that_reduce_together_alone() -> None:
    for program, folds in ((ROWS, 2), (TILED[-2], 3), (TILED[-1], 4)):
        kernels = gpu_scheduled(of_program(program), GpuMapping(long_reduction=20))
        assert sum(count(kernel.body, ThreadFold) for kernel in kernels) == folds
        for number in range(folds):
            computation, kernels = planted(program, nth(ThreadFold, number), long_reduction=20)
            with pytest.raises(IllegalScheduleError):
                check_kernels(computation, kernels)
    given = computed(PRODUCT, M=4, K=5, N=6)
    (product,) = given.statements
    mapped = {"k": AffineIndex.variable(THREAD, 5), "i": AffineIndex.variable(BLOCK, 4)}
    update = Assign(own_element(product), product.value, "+", mapped)
    begun = GpuKernel((beginning(product),))
    for blocks, threads in ((4, 5), (4, 1), (1, 5)):
        loops: Node = Loop("j", 6, (update,))
        at = dict(mapped)
        if blocks == 1:
            loops, at["i"] = Loop("i", 4, (loops,)), AffineIndex.variable("i", 4)
        if threads == 1:
            loops, at["k"] = Loop("k", 5, (loops,)), AffineIndex.variable("k", 5)
        (inner,) = _changed([loops], nth(Assign, 0, lambda node, at=at: [replace(node, environment=at)]))
        kernels = [begun, GpuKernel((inner,), blocks, (threads, 1))]
        if threads == 1:
            check_kernels(given, kernels)
            continue
        with pytest.raises(IllegalScheduleError, match="c is accumulated in parts of which one is lost") as error:
            check_kernels(given, kernels)
        one, other = error.value.instances
        assert (one["i"], one["j"]) == (other["i"], other["j"])


@pytest.mark.parametrize("where", ["blocks", "threads"])
def test_an_index_along_which_a_dependence_runs_is_not_mapped(where: str) -> None:
    """A row reads the one before it, which another block or thread makes."""
    given = computed("def f(float(N,M) a) -> (t, r) { t(i,j) = a(i,j) + 1.0  r(i,j) = t(N - 1 - i,j) * 2.0 }", N=4, M=6)
    variable = AffineIndex.variable(BLOCK if where == "blocks" else THREAD, 4)
    made = [Loop("j", 6, (Assign(own_element(one), one.value, "", {"i": variable}),)) for one in given.statements]
    sides = {"blocks": (4, (1, 1)), "threads": (1, (4, 1))}[where]
    check_kernels(given, [GpuKernel((one,), *sides) for one in made])
    with pytest.raises(IllegalScheduleError, match="t is read before it is written: statement 0") as error:
        check_kernels(given, [GpuKernel(tuple(made), *sides)])
    one, other = error.value.instances
    assert one["i"] + other["i"] == 3
    waiting = GpuKernel((made[0], Barrier(), made[1]), *sides)
    if where == "threads":
        check_kernels(given, [waiting])
        return
    with pytest.raises(IllegalScheduleError, match="t is read before it is written"):
        check_kernels(given, [waiting])


def test_elements_that_no_thread_computes_or_two_do_are_found() -> None:
    given = computed(PAIR, M=5, N=9)
    (kernel,) = gpu_scheduled(given, GpuMapping(threads=32))
    check_kernels(given, [kernel])
    assert isinstance(kernel.blocks, int)
    for fewer in (replace(kernel, blocks=kernel.blocks - 1), replace(kernel, threads=(31, 1))):
        with pytest.raises(IllegalScheduleError, match=r"is not computed|lacks an instance"):
            check_kernels(given, [fewer])
    with pytest.raises(IllegalScheduleError, match=r"is computed twice|run at once"):
        check_kernels(given, [replace(kernel, threads=(64, 1))])
    computation, kernels = planted(MATMUL, nth(Guard, 2, lambda node: node.body), promote=False)
    with pytest.raises(IllegalScheduleError):
        check_kernels(computation, kernels)


def shifted(read: ElementRead) -> ElementRead:
    """The element before one: along the last axis, or the one that an index array has a number of before."""
    first, *rest = read.subscripts
    if isinstance(first, AffineIndex):
        *other, last = rest
        assert isinstance(last, AffineIndex)
        return ElementRead.of(read.buffer, read.dtype, (first, *other, last - 1), read.checked)
    moved = rebuilt(first, lambda one: shifted(one) if isinstance(one, ElementRead) else None)
    return ElementRead.of(read.buffer, read.dtype, (moved, *rest), read.checked)


@pytest.mark.parametrize(("program", "buffer"), [(MATMUL, "A"), (LOOKED, "T")], ids=["A", "T"])
def test_a_copy_of_other_elements_is_found(program: Right, buffer: str) -> None:
    def change(node: Node) -> Sequence[Node] | None:
        if not isinstance(node, Assign) or not isinstance(node.value, ElementRead) or node.value.buffer != buffer:
            return None
        return [replace(node, value=shifted(node.value))]

    computation, kernels = planted(program, change)
    with pytest.raises((IllegalScheduleError, UndecidedScheduleError), match=f"{computation.results[0]}"):
        check_kernels(computation, kernels)


def test_nodes_of_kernels_of_groups_are_not_judged() -> None:
    given = computed(PAIR, M=5, N=9)
    (kernel,) = gpu_scheduled(given, GpuMapping())
    folded = ThreadFold(own_element(given.statements[0]), own_element(given.statements[0]), "+", 32, "lanes")
    with pytest.raises(UndecidedScheduleError, match="a reduction among 32 threads that are no block"):
        check_kernels(given, [replace(kernel, body=(folded, *kernel.body))])
    assert any(isinstance(node, Named) for node in kernel.body)
