"""Schedules judged for all values of sizes that stay free: faults that only some of them show are found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.extents import sum_of
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.tree import Loop, Node
from eqsat.runtime.kernels.polyhedral.child import judge_tree
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError
from eqsat.runtime.kernels.polyhedral.legality import check_schedule, check_tree
from eqsat.runtime.kernels.polyhedral.orders import is_legal_order, may_interchange
from tests.support.polyhedral.planted_trees import (
    FED,
    PAIR,
    PRODUCT,
    RECTIFIED,
    accumulating,
    beginning,
    computed,
    early_epilogue,
    nest,
    rebuilt_loop,
)

CUBES = {"i": 32, "j": 32, "k": 32}
EVERY = ("M", "K", "N")
SHIFTED = """
def shifted(float(N) a, float(K) w) -> (t, r) {
  t(i) = a(i) * 2.0
  r(i) +=! t(i + k) * w(k)
}
"""


def sizes_of(error: IllegalScheduleError) -> dict[str, int]:
    """The sizes that a message says a fault is at."""
    (said,) = re.findall(r", with (.*)", error.what)
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", said)}


def test_rests_of_tiles_are_needed_by_some_sizes_alone() -> None:
    """At sizes that are multiples of a tile, whole tiles alone are legal."""
    fixed = computed(PRODUCT, M=64, K=32, N=96)
    check_tree(fixed, [beginning(fixed.statements[0]), *accumulating(fixed.statements[0], CUBES, whole_only=True)])
    given = computed(PRODUCT, EVERY, M=64, K=32, N=96)
    (product,) = given.statements
    check_tree(given, [beginning(product), *accumulating(product, CUBES)])
    with pytest.raises(IllegalScheduleError, match="is not computed") as error:
        check_tree(given, [beginning(product), *accumulating(product, CUBES, whole_only=True)])
    (missing,) = error.value.instances
    sizes = sizes_of(error.value)
    ends = {index: sizes[size] // 32 * 32 for index, size in {"i": "M", "j": "N", "k": "K"}.items()}
    assert any(missing[index] >= end for index, end in ends.items())


def shorter(node: Node, variable: str) -> Node:
    """A nest of which one loop leaves out its last round."""
    assert isinstance(node, Loop)
    return rebuilt_loop(
        Loop("", 1, (node,)), variable, lambda loop: replace(loop, extent=sum_of(loop.extent) - 1)
    ).body[0]


@pytest.mark.parametrize(
    ("variable", "fault"), [("i", "is not computed"), ("k", "lacks an instance of|is not computed")]
)
def test_a_loop_that_ends_one_round_early_is_found(variable: str, fault: str) -> None:
    given = computed(PRODUCT, EVERY, M=4, K=5, N=6)
    (product,) = given.statements
    check_tree(given, [nest(product)])
    with pytest.raises(IllegalScheduleError, match=fault):
        check_tree(given, [shorter(nest(product), variable)])


def test_a_tile_that_passes_the_end_is_found() -> None:
    """Rounded up, the last tile computes what the target has no elements for."""
    given = computed(PAIR, ("M", "N"), M=5, N=9)
    first, second = map(nest, given.statements)
    rounded = rebuilt_loop(Loop("", 1, (first,)), "j", lambda loop: replace(loop, extent=sum_of(loop.extent) + 1))
    check_tree(given, [first, second])
    with pytest.raises(IllegalScheduleError):
        check_tree(given, [rounded.body[0], second])


def test_statements_in_the_wrong_order_are_found() -> None:
    given = computed(PAIR, ("M", "N"), M=5, N=9)
    first, second = map(nest, given.statements)
    check_tree(given, [replace(first, body=(*first.body, *second.body))])
    with pytest.raises(IllegalScheduleError, match="t is read before it is written: statement 0") as error:
        check_tree(given, [replace(first, body=(*second.body, *first.body))])
    assert error.value.instances[0] == error.value.instances[1]
    sizes = sizes_of(error.value)
    assert error.value.instances[0]["i"] < sizes["M"] and error.value.instances[0]["j"] < sizes["N"]


def test_loops_that_are_shared_where_only_one_window_fits_are_found() -> None:
    """With K = 1 each window reads the element that its own round made; with more, later ones."""
    fixed = computed(SHIFTED, N=6, K=1)
    assert is_legal_order(fixed, "{ S0[i] -> [i,0,0]; S1[i,k] -> [i,1,k] }")
    given = computed(SHIFTED, ("N", "K"), N=6, K=1)
    assert is_legal_order(given, "{ S0[i] -> [0,i,0]; S1[i,k] -> [1,i,k] }")
    assert not is_legal_order(given, "{ S0[i] -> [i,0,0]; S1[i,k] -> [i,1,k] }")
    assert may_interchange(given, 1, "i", "k")


def test_rounds_that_run_at_once_meet_where_a_size_is_two_or_more() -> None:
    given = computed(PRODUCT, EVERY, M=4, K=1, N=6)
    (product,) = given.statements
    check_tree(given, [replace(nest(product), kind="parallel")])
    with pytest.raises(IllegalScheduleError, match="run at once meet at acc") as error:
        check_tree(given, [rebuilt_loop(nest(product), "k", lambda loop: replace(loop, kind="parallel"))])
    assert sizes_of(error.value)["K"] >= 2
    fixed = computed(PRODUCT, M=4, K=1, N=6)
    check_tree(fixed, [rebuilt_loop(nest(fixed.statements[0]), "k", lambda loop: replace(loop, kind="parallel"))])


def test_an_epilogue_stored_before_its_sum_ends_is_found() -> None:
    given = computed(RECTIFIED, EVERY, M=4, K=5, N=6)
    check_tree(given, early_epilogue(given, is_early=False))
    with pytest.raises(IllegalScheduleError, match="c is read before it is computed"):
        check_tree(given, early_epilogue(given, is_early=True))


@pytest.mark.parametrize("free", [("M",), ("K",), ("N",), EVERY])
@pytest.mark.parametrize("options", [{}, {"rows": 4, "vectors": 3, "is_column_major": True}, {"fusion": "min"}])
def test_tiles_and_copies_of_free_sizes_are_legal(free: tuple[str, ...], options: Any) -> None:
    for source in (PRODUCT, RECTIFIED, FED):
        check_schedule(computed(source, free, K=8, M=8, N=16), MappingOptions.of(options))


def judged_legal(given: Computation, nodes: list[Node]) -> str:
    return judge_tree(given, nodes).answer


def test_a_process_of_its_own_judges_free_sizes_too() -> None:
    given = computed(PAIR, ("M", "N"), M=5, N=9)
    first, second = map(nest, given.statements)
    assert judged_legal(given, [first, second]) == "legal"
    assert judged_legal(given, [second, first]) == "illegal"
