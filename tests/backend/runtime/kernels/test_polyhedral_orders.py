"""Dependences between statements, and orders written by hand that keep them or do not."""

from __future__ import annotations

import pytest

from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.polyhedral.dependences import Dependences
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError
from eqsat.runtime.kernels.polyhedral.legality import check_schedule, check_tree
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.orders import is_legal_order, may_interchange, may_tile
from tests.support.polyhedral.planted_trees import PRODUCT, RECTIFIED, computed, nest, recurrence, stencil, swapped


def test_a_read_depends_on_the_last_writers_before_it() -> None:
    found = Dependences(computed(RECTIFIED, M=3, K=4, N=5))
    flow = isl.UnionMap("{ S0[i,j,k] -> S1[i,j] : 0 <= i < 3 and 0 <= j < 5 and 0 <= k < 4 }")
    assert found.flow.is_equal(flow)
    assert found.anti.is_empty()
    assert found.output.is_empty()


def test_an_overwritten_element_depends_on_reads_and_writes_before() -> None:
    source = """
    def twice(float(N) a) -> (t, r, s) {
      t(i) = a(i)
      r(i) = t(i)
      t(i) += a(i) * 2.0
      s(i) = t(i)
    }
    """
    found = Dependences(computed(source, N=4))
    pairs = "0 <= i < 4"
    assert found.flow.is_equal(
        isl.UnionMap(f"{{ S0[i] -> S1[i] : {pairs}; S0[i] -> S2[i] : {pairs}; S2[i] -> S3[i] : {pairs} }}")
    )
    assert found.anti.is_equal(isl.UnionMap(f"{{ S1[i] -> S2[i] : {pairs} }}"))
    assert found.output.is_equal(isl.UnionMap(f"{{ S0[i] -> S2[i] : {pairs} }}"))


def test_a_computed_subscript_may_be_of_the_whole_axis() -> None:
    source = """
    def looked_up(float(N) a, int32(M) at) -> (t, r) {
      t(i) = a(i) + 1.0
      r(j) = t(at(j)) where j in 0:M
    }
    """
    found = Dependences(computed(source, N=4, M=3))
    assert found.flow.is_equal(isl.UnionMap("{ S0[i] -> S1[j] : 0 <= i < 4 and 0 <= j < 3 }"))


def test_an_illegal_interchange_is_rejected() -> None:
    across, down = stencil(1, 1), stencil(1, 0)
    assert not may_interchange(across, 0, "i", "j")
    assert may_interchange(down, 0, "i", "j")
    assert may_interchange(computed(PRODUCT, M=4, K=5, N=6), 0, "i", "k")
    check_tree(across, [nest(across.statements[0])])
    check_tree(down, [swapped(down.statements[0])])
    with pytest.raises(IllegalScheduleError) as error:
        check_tree(across, [swapped(across.statements[0])])
    assert error.value.statements == (0, 0)
    assert error.value.buffer == "a"
    first, second = error.value.instances
    assert (second["i"] - first["i"], second["j"] - first["j"]) == (1, -1)


def test_an_illegal_tiling_is_rejected() -> None:
    across = stencil(1, 1)
    assert not may_tile(across, 0, {"i": 2, "j": 2})
    assert may_tile(stencil(1, 0), 0, {"i": 2, "j": 2})
    assert may_tile(across, 0, {"i": 2})
    skewed = "{ S0[i,j] -> [floor(i/2), floor((i + j)/2), i, i + j] }"
    assert is_legal_order(across, skewed)
    assert may_tile(computed(PRODUCT, M=70, K=50, N=90), 0, {"i": 32, "j": 32, "k": 32})


def test_the_order_of_statements_is_judged() -> None:
    given = computed(RECTIFIED, M=3, K=4, N=5)
    assert is_legal_order(given, "{ S0[i,j,k] -> [i,j,0,k]; S1[i,j] -> [i,j,1,0] }")
    assert not is_legal_order(given, "{ S0[i,j,k] -> [i,j,k,0]; S1[i,j] -> [i,j,2,1] }")


def test_vectors_along_a_recurrence_are_refused() -> None:
    given = recurrence()
    check_schedule(given, MappingOptions.naive())
    with pytest.raises(IllegalScheduleError, match="a is read before it is written"):
        check_schedule(given, MappingOptions())
