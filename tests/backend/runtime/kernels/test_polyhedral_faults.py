"""Faults planted in trees of loops, each of which is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import number
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.scheduling.schedule import scheduled
from eqsat.runtime.kernels.nests.scheduling.values import own_element
from eqsat.runtime.kernels.nests.tree import Assign, Local, Loop, Node
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError, UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.legality import check_tree
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


def test_a_fused_pair_in_the_wrong_order_is_found() -> None:
    given = computed(PAIR, M=5, N=9)
    first, second = map(nest, given.statements)
    check_tree(given, [replace(first, body=(*first.body, *second.body))])
    with pytest.raises(IllegalScheduleError, match="t is read before it is written: statement 0") as error:
        check_tree(given, [replace(first, body=(*second.body, *first.body))])
    assert error.value.statements == (0, 1)
    assert error.value.buffer == "t"
    assert error.value.instances[0] == error.value.instances[1]


def test_a_reduced_loop_whose_rounds_run_at_once_is_found() -> None:
    given = computed(PRODUCT, M=4, K=5, N=6)
    (product,) = given.statements
    check_tree(given, [replace(nest(product), kind="parallel")])
    with pytest.raises(IllegalScheduleError, match="run at once meet at acc") as error:
        check_tree(given, [rebuilt_loop(nest(product), "k", lambda loop: replace(loop, kind="parallel"))])
    assert error.value.statements == (0, 0)
    one, other = error.value.instances
    assert one["k"] != other["k"]
    inner: Node = Assign(own_element(product), product.value, "+")
    for kind in ("serial", "parallel"):
        added = Loop("k", 5, (Loop("i", 4, (Loop("j", 6, (inner,)),)),), kind)  # type: ignore[arg-type]
        if kind == "serial":
            check_tree(given, [beginning(product), added])
            continue
        with pytest.raises(IllegalScheduleError, match="c is accumulated in parts of which one is lost"):
            check_tree(given, [beginning(product), added])


def test_imperfect_tiles_are_legal_and_a_dropped_rest_is_found() -> None:
    given = computed(PRODUCT, M=70, K=50, N=90)
    (product,) = given.statements
    check_tree(given, [beginning(product), *accumulating(product, CUBES)])
    with pytest.raises(IllegalScheduleError, match="is not computed") as error:
        check_tree(given, [beginning(product), *accumulating(product, CUBES, whole_only=True)])
    (missing,) = error.value.instances
    assert any(missing[name] >= extent for name, extent in {"i": 64, "j": 64, "k": 32}.items())


@pytest.mark.parametrize("options", [{"rows": 32, "vectors": 4}, {"rows": 4, "vectors": 3, "is_column_major": True}])
def test_a_dropped_store_of_a_tile_in_registers_is_found(options: dict[str, int]) -> None:
    given = computed(PRODUCT, M=70, K=50, N=90)
    nodes = scheduled(given, MappingOptions.of(options))
    check_tree(given, nodes)
    with pytest.raises(IllegalScheduleError, match="is not computed"):
        check_tree(given, nodes[:-1])


def test_what_adds_to_an_element_that_nothing_begins_is_found() -> None:
    given = computed(PRODUCT, M=4, K=5, N=6)
    (product,) = given.statements
    sizes = {"i": 2, "j": 2, "k": 2}
    with pytest.raises(IllegalScheduleError, match="adds to an element that nothing begins"):
        check_tree(given, accumulating(product, sizes))
    with pytest.raises(IllegalScheduleError, match="of which one is lost"):
        check_tree(given, [*accumulating(product, sizes), beginning(product)])
    with pytest.raises(IllegalScheduleError, match="is computed twice"):
        check_tree(given, [beginning(product), *accumulating(product, sizes), *accumulating(product, sizes)])


def test_a_copy_made_before_its_source_is_written_is_found() -> None:
    given = computed(FED, K=8, M=8, N=16)
    nodes = scheduled(given, MappingOptions(fusion="min"))
    check_tree(given, nodes)
    copies = [node for node in nodes if copied(node)]
    assert copies
    with pytest.raises(IllegalScheduleError, match="t is read before it is written") as error:
        check_tree(given, [*copies, *(node for node in nodes if not copied(node))])
    assert error.value.statements == (0, 1)


def copied(node: Node) -> bool:
    """True of a local buffer in memory, and of the loops that fill one."""
    if isinstance(node, Local):
        return not node.is_register
    return isinstance(node, Loop) and all(
        copied(inner) if isinstance(inner, Loop) else isinstance(inner, Assign) and inner.target.buffer.endswith("_p0")
        for inner in node.body
    )


def test_an_epilogue_stored_before_its_sum_ends_is_found() -> None:
    given = computed(RECTIFIED, M=4, K=5, N=6)
    check_tree(given, early_epilogue(given, is_early=False))
    with pytest.raises(IllegalScheduleError, match="c is read before it is computed") as error:
        check_tree(given, early_epilogue(given, is_early=True))
    assert error.value.statements == (0, 1)
    summand, read = error.value.instances
    assert (summand["i"], summand["j"]) == (read["i"], read["j"])
    product, epilogue = map(nest, given.statements)
    (row,), (inside,) = product.body, epilogue.body
    assert isinstance(row, Loop)
    assert isinstance(inside, Loop)
    early = rebuilt_loop(product, "k", lambda loop: replace(loop, body=(*loop.body, *inside.body)))
    with pytest.raises(IllegalScheduleError, match="c is read before it is written") as error:
        check_tree(given, [early])
    assert error.value.statements == (0, 1)


def test_a_value_of_another_element_is_found() -> None:
    given = computed(PAIR, M=5, N=9)
    first, second = given.statements
    j = AffineIndex.variable("j", 9)
    reversed_row = {"j": j * -1 + 8}
    right = Assign(own_element(first), first.value, "", reversed_row)
    check_tree(given, [Loop("i", 5, (Loop("j", 9, (right,)),)), nest(second)])
    column = AffineIndex.variable("column", 9)
    moved = Assign(
        ElementRead.of("t", first.value.dtype, (first.place[0], column)), first.value, "", {"j": (column + 1) % 9}
    )
    with pytest.raises(IllegalScheduleError, match="goes to another element"):
        check_tree(given, [Loop("i", 5, (Loop("column", 9, (moved,)),)), nest(second)])


def test_a_sum_that_nothing_begins_is_found() -> None:
    given = computed(PRODUCT, M=4, K=5, N=6)
    (product,) = given.statements
    without = rebuilt_loop(nest(product), "j", lambda loop: replace(loop, body=(loop.body[0], *loop.body[2:])))
    with pytest.raises(IllegalScheduleError, match="where nothing has been written to it"):
        check_tree(given, [without])


def test_a_value_that_is_added_in_several_rounds_is_found() -> None:
    given = computed(PRODUCT, M=4, K=5, N=6)
    (product,) = given.statements
    part, total = (KernelBuffer(name, product.value.dtype, (), "local") for name in ("part", "total"))
    reads = [ElementRead.of(one.name, one.dtype, ()) for one in (part, total)]
    (k,) = product.reduced
    for rounds in (1, 2):
        body = (
            Local(part, True),
            Assign(reads[0], number(0, part.dtype)),
            Loop(k.name, k.extent, (Assign(reads[0], product.value, "+"),), is_reduced=True),
            Local(total, True),
            Assign(reads[1], number(0, total.dtype)),
            Loop("again", rounds, (Assign(reads[1], reads[0], "+"),)),
            Assign(own_element(product), reads[1]),
        )
        nodes = [Loop("i", 4, (Loop("j", 6, body),))]
        if rounds == 1:
            check_tree(given, nodes)
            continue
        with pytest.raises(IllegalScheduleError, match="several times"):
            check_tree(given, nodes)


def test_values_that_are_none_of_a_statement_are_undecided() -> None:
    given = computed(PAIR, M=5, N=9)
    first, second = given.statements
    doubled = Assign(own_element(first), first.value + first.value)
    with pytest.raises(UndecidedScheduleError, match="understood as no statement"):
        check_tree(given, [Loop("i", 5, (Loop("j", 9, (doubled,)),)), nest(second)])
