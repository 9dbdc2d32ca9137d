"""Schedules that isl computes: what shares loops, how they are told to, and the values of what is compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import UsageError
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain
from eqsat.runtime.kernels.nests.scheduling.schedule import scheduled
from eqsat.runtime.kernels.nests.tree import Assign, Guard, Loop, Node, Vector
from eqsat.runtime.kernels.polyhedral.child import ScheduleRequest, computed_plan
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError
from eqsat.runtime.kernels.polyhedral.legality import check_tree
from tests.support.comprehensions.comprehension_cases import Right, check_equal
from tests.support.polyhedral.analyses import NoIslpy
from tests.support.polyhedral.planted_trees import computed, of_program

SGEMM = """
def sgemm(float a, float b, float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) *= b
  C(m,n) += a * A(m,k) * B(k,n)
}
"""
SMOOTHED = """
def smoothed(float(N) x, float(K) w) -> (t, y) {
  t(i) = 2 * x(i)
  y(i) +=! t(i+k) * w(k)
}
"""
#: What is read along diagonals is made just before where loops run along these.
DIAGONAL = """
def diagonal(float(N) x, float(M) z) -> (t, y) {
  t(i) = 2 * x(i)
  y(i,j) = t(i+j) * z(j) where i in 0:N-M+1
}
"""
TURNED = """
def turned(float(N,M) x) -> (t, y) {
  t(i,j) = 2 * x(i,j)
  y(i,j) = t(j,i) + 1
}
"""
MIRRORED = """
def mirrored(float(N) x) -> (t, y) {
  t(i) = 2 * x(i)
  y(i) = t(N-1-i) + 1 where i in 0:N
}
"""
SOFTMAX = """
def softmax(float(N,D) x) -> (m, e, s) {
  m(n) max=! x(n,d)
  e(n,d) = exp(x(n,d) - m(n))
  s(n) +=! e(n,d)
}
"""
APART = "def apart(float(N) x) -> (a, b) { a(i) = x(i) + 1 \n b(i) = 2 * x(i) }"


def by_isl(**options: Any) -> MappingOptions:
    return MappingOptions(scheduler="isl", **options)


def written(nodes: Sequence[Node], names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The tensors that assignments write, in the order of the text, each with the number of the nest it is in."""
    for number, node in enumerate(nodes):
        match node:
            case Loop() | Guard() | Vector():
                yield from ((number, name) for _, name in written(node.body, names))
            case Assign() if node.target.buffer in names:
                yield number, node.target.buffer


def nests(given: Computation, options: MappingOptions) -> list[list[str]]:
    """The tensors that each nest of loops writes, in an order that is proved to keep the dependences.

    Nests that write the same, such as whole tiles and what is left of them, count as one.
    """
    made = scheduled(given, options)
    check_tree(given, made)
    found: dict[int, list[str]] = {}
    for number, name in written(made, [one.target for one in given.statements]):
        found.setdefault(number, []).append(name)
    each = [list(dict.fromkeys(names)) for names in found.values()]
    return [names for before, names in zip([[], *each], each, strict=False) if names != before]


def check_values(source: str, options: MappingOptions, sizes: dict[str, int], **given: Any) -> None:
    program = Right(source, lambda: None, sizes, given)
    function = program.function
    arguments, named = program.arguments(function)
    check_equal(eqsat.kernel(source, options)(*arguments, **named), function(*arguments, **named))


@pytest.mark.parametrize(("fusion", "count"), [("max", 1), ("preserve3", 1), ("min", 2)])
def test_a_product_and_what_it_is_added_to_are_one_nest_or_two(fusion: Any, count: int) -> None:
    sizes = {"M": 32, "N": 40, "K": 5}
    before = np.random.default_rng(2).standard_normal((32, 40)).astype(np.float32)
    given = of_program(Right(SGEMM, lambda: None, sizes, {"C": before}))
    for scheduler in ("isl", "own") if fusion != "preserve3" else ("isl",):
        options = MappingOptions(scheduler=scheduler, fusion=fusion, rows=8, vectors=1)
        made = scheduled(given, options)
        check_tree(given, made)
        assert len([node for node in made if isinstance(node, Loop) and list(written([node], ["C"]))]) == count
        check_values(SGEMM, options, sizes, C=before)


@pytest.mark.parametrize(
    ("source", "sizes", "shared"),
    [
        (SMOOTHED, {"N": 20, "K": 3}, [["t"], ["t", "y"]]),
        (TURNED, {"N": 9, "M": 6}, [["t", "y"]]),
        (MIRRORED, {"N": 11}, [["t", "y"]]),
        (SOFTMAX, {"N": 6, "D": 37}, [["m", "e", "s"]]),
    ],
)
def test_statements_share_loops_that_are_shifted_turned_and_mirrored(
    source: str, sizes: dict[str, int], shared: list[list[str]]
) -> None:
    given = computed(source, **sizes)
    assert nests(given, by_isl(fused_rows=1)) == shared
    alone = [[one.target] for one in given.statements]
    assert nests(given, by_isl(fusion="min")) == alone
    for options in (by_isl(), by_isl(fused_rows=3, threads=2)):
        check_values(source, options, sizes)


def test_loops_are_skewed_unless_they_may_not_be() -> None:
    sizes = {"N": 20, "M": 5}
    given = computed(DIAGONAL, **sizes)
    assert nests(given, by_isl()) == [["t", "y"]]
    assert any(isinstance(node, Loop) and any(isinstance(one, Guard) for one in node.body)
               for node in scheduled(given, by_isl()))  # fmt: skip
    assert nests(given, by_isl(skewing=False)) == [["t"], ["y"]]
    for skewing in (True, False):
        check_values(DIAGONAL, by_isl(skewing=skewing), sizes)


def narrowed(nodes: Sequence[Node], by: int) -> list[Node]:
    """Loops whose conditions leave out their last element, or take in one more."""
    made: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            node = replace(node, body=tuple(narrowed(node.body, by)))
        elif isinstance(node, Guard):
            ((index, extent),) = node.below
            assert isinstance(extent, int)
            node = replace(node, below=((index, extent - by),))
        made.append(node)
    return made


@pytest.mark.parametrize(
    ("by", "message"), [(1, "is not computed"), (-1, "computes the value of no instance of statement 1")]
)
def test_a_condition_that_leaves_out_an_element_or_takes_in_one_is_found(by: int, message: str) -> None:
    given = computed(DIAGONAL, N=20, M=5)
    made = scheduled(given, by_isl())
    check_tree(given, narrowed(made, 0))
    with pytest.raises(IllegalScheduleError, match=message):
        check_tree(given, narrowed(made, by))


def test_preserve3_shares_loops_where_three_indices_stay_parallel() -> None:
    deep = "def deep(float(A,B,C) x) -> (t, y) { t(i,j,k) = 2 * x(i,j,k) \n y(j,i,k) = t(i,j,k) + x(i,j,0) }"
    given = computed(deep, A=4, B=3, C=5)
    assert nests(given, by_isl(fusion="preserve3", fused_rows=1)) == [["t", "y"]]
    smoothed = computed(SMOOTHED, N=20, K=3)  # of whose one index the rounds have an order
    assert nests(smoothed, by_isl(fusion="preserve3")) == [["t"], ["y"]]


def test_clusters_keep_statements_apart() -> None:
    given = computed(SOFTMAX, N=6, D=5)
    together = by_isl(fused_rows=1, clusters=(("m", "e"), ("s",)))
    assert nests(given, together) == [["m", "e"], ["s"]]
    assert nests(given, by_isl(fused_rows=1, clusters=(("e", "s"),))) == [["m"], ["e", "s"]]
    with pytest.raises(UsageError, match="clusters with 'q'"):
        scheduled(given, by_isl(clusters=(("q",),)))


def test_a_callers_constraints_order_statements_and_bring_them_together() -> None:
    given = computed(APART, N=192)
    validity = {"validity": "{ S1[i] -> S0[j] }"}
    assert [names[0] for names in nests(given, by_isl(constraints=validity))] == ["b", "a"]
    near = {"proximity": "{ S0[i] -> S1[i] }"}
    assert nests(given, by_isl(constraints=near, fused_rows=1)) == [["a", "b"]]
    after = {"proximity": "{ S0[i] -> S1[i] }", "validity": "{ S1[i] -> S0[i] }"}
    assert nests(given, by_isl(constraints=after, fused_rows=1)) == [["b", "a"]]
    for constraints in (validity, near, after):
        check_values(APART, MappingOptions.of({"scheduler": "isl", "constraints": constraints}), {"N": 192})


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ({"validity": "{ S1[i] -> S0[j] }"}, "constraints that no schedule"),
        ({"validity": "S1 before S0"}, "the constraint of validity, 'S1 before S0', which isl does not read"),
        ({"proximity": "{ S1[i,j] -> S0[i] }"}, "S1 with 2 indices\n.*\n.*S0 of 1 indices, S1 of 1 indices"),
        ({"coincidence": "{ S0[i] -> S0[i+1] }"}, "between elements of one statement"),
    ],
)
def test_constraints_that_mean_nothing_are_refused(constraints: dict[str, str], message: str) -> None:
    given = computed(MIRRORED, N=11)
    with pytest.raises(UsageError, match=message):
        scheduled(given, MappingOptions.of({"scheduler": "isl", "constraints": constraints}))


def test_loops_over_what_a_caller_orders_are_no_tiles() -> None:
    """c(i) comes before b(i + 1), so that neither has a loop of its own within a shared one."""
    two = "def f(float(N) a) -> (b, c) { b(i) = a(i) * 2.0  c(i) = b(i) + a(i) }"
    options = {"scheduler": "isl", "constraints": {"validity": "{ S1[i] -> S0[i + 1] }"}, "threads": 2}
    text = eqsat.emit(two, np.ones(4000, np.float32), target="c", options=options)
    assert text.count("for (int") == 1 and "omp parallel" not in text


@pytest.mark.parametrize("count", [5, 1, 0])
def test_constraints_name_statements_by_their_places_also_where_some_have_no_elements(count: int) -> None:
    """Z has no element where N is 1, and b and c stay the second and the third."""
    three = "def g(float(N) a) -> (z, b, c) { z(i) = a(i) + a(i+1)  b(i) = a(i) * 2.0  c(i) = b(i) + a(i) }"
    source = three if count else three.replace("z(i) = a(i) + a(i+1)", "z(i) = a(i)")
    x = np.arange(count, dtype=np.float32)
    for validity in ("{ S0[i] -> S2[i] }", "{ S1[i] -> S2[i] }"):
        options = {"scheduler": "isl", "constraints": {"validity": validity}}
        _, b, c = eqsat.kernel(source, options)(x)
        np.testing.assert_array_equal(b, x * 2)
        np.testing.assert_array_equal(c, x * 3)


def test_options_of_isl_are_read_and_refused() -> None:
    options = MappingOptions.of({"scheduler": "isl", "skewing": False, "constraints": [["validity", "{ }"]]})
    assert MappingOptions.of(options.to_dict()) == options
    with pytest.raises(UsageError, match="scheduler = 'pluto'\n  expected own, isl"):
        MappingOptions.of({"scheduler": "pluto"})
    with pytest.raises(UsageError, match="skewing = 1\n  expected True or False"):
        MappingOptions.of({"skewing": 1})
    with pytest.raises(UsageError, match=r"expected relations of isl by validity, coincidence, proximity"):
        MappingOptions.of({"scheduler": "isl", "constraints": {"order": "{ }"}})
    with pytest.raises(UsageError, match="constraints without isl"):
        MappingOptions.of({"constraints": {"validity": "{ }"}})


def test_without_islpy_or_in_too_little_time_loops_are_those_of_the_own_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = computed(TURNED, N=8, M=3)
    chains = [StatementChain(one, (), frozenset([one.target])) for one in given.statements]
    request = ScheduleRequest(((0, 1),), "max")
    answer = computed_plan(given, chains, request, seconds=1e-3)
    assert answer.plan is None
    assert answer.reason == "not decided in 0.001 s"
    for name in [name for name in sys.modules if name.split(".")[0] == "islpy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoIslpy(), *sys.meta_path])
    with pytest.warns(RuntimeWarning, match="turned: its loops are those that are scheduled without isl: islpy is not"):
        made = scheduled(given, by_isl())
    assert len(made) == len(scheduled(given, MappingOptions()))
