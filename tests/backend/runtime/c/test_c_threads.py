"""Programs of C on several threads: no two of them meet at an element, and results are those of one thread."""

import numpy as np
import pytest

import eqsat
from eqsat.language.graphs.builder import Builder
from eqsat.runtime.backend import select
from eqsat.runtime.c.blas import blas_threads
from eqsat.runtime.c.program.kernels import SHARED_POINTS, KernelChoice, default_choice
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.c.program.tuning import candidates
from eqsat.runtime.c.toolchain import loop_threads, toolchain
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.scheduling.schedule import scheduled
from eqsat.runtime.kernels.nests.tree import Loop
from eqsat.runtime.kernels.polyhedral.events import events_of
from eqsat.runtime.kernels.polyhedral.faults import UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.legality import check_schedule
from eqsat.runtime.kernels.polyhedral.locals import LocalFlows
from tests.support.c_graphs import GRAPHS, inputs_of, product
from tests.support.c_programs import assert_same, computed


def forms_of(name):
    for launch in c_program(GRAPHS[name]()).launches:
        yield from launch.work.forms.items()


@pytest.mark.parametrize("name", GRAPHS)
def test_no_two_threads_meet_at_an_element(name):
    """Proved of the loops, for every round: also of those inside loops whose rounds share buffers."""
    for form, lowered in forms_of(name):
        for options in (MappingOptions(threads=2), MappingOptions(threads=64, rows=2, vectors=1, fusion="min")):
            events = events_of(lowered.computation, scheduled(lowered.computation, options))
            events = [event for event in events if not event.domain.is_empty()]
            assert any(loop.is_unordered for event in events for loop in event.loops), form
            assert list(LocalFlows(events).races()) == [], form


def test_loops_in_the_order_of_statements_are_proved_but_where_rounds_share_buffers():
    verdicts = set()
    for name in GRAPHS:
        for _, lowered in forms_of(name):
            shares = any(one.around for one in lowered.computation.statements)
            if not shares and name not in ("matmul", "gemm"):
                continue
            try:
                check_schedule(lowered.computation, MappingOptions(threads=3))
                verdicts.add((shares, "legal"))
            except UndecidedScheduleError as error:
                assert "share" in str(error)
                verdicts.add((shares, "undecided"))
    assert verdicts == {(False, "legal"), (True, "undecided")}


@pytest.mark.parametrize("name", GRAPHS)
def test_three_threads_compute_what_the_reference_does(name):
    """Products are left to BLAS, which each thread calls for a part."""
    assert toolchain().has_threads
    graph = GRAPHS[name]()
    inputs = inputs_of(graph)
    for form in {form for form, _ in forms_of(name)}:
        choice = KernelChoice(form, MappingOptions(library=True, threads=3))
        _, made = computed(graph, inputs, lambda kernel, choice=choice: choice)
        assert_same(graph, made, inputs, 3e-6)


def test_products_in_parts_are_cut_along_their_longer_side():
    for rows, columns in ((64, 24), (24, 64), (1, 200), (200, 1)):
        graph = product(rows, 32, columns, constant=False)
        inputs = inputs_of(graph)
        choice = KernelChoice("direct", MappingOptions(library=True, threads=3))
        program, made = computed(graph, inputs, lambda kernel, choice=choice: choice)
        assert_same(graph, made, inputs)
        text = program.launches[0].work.text(choice).code
        assert "#pragma omp parallel for num_threads(3)" in text
        assert "begin" in text, (rows, columns)


def test_short_loops_are_shared_with_those_directly_inside():
    b = Builder("batch")
    b.output("y", eqsat.softmax(b.input("x", (2, 3, 64, 64)), axis=3))
    (launch,) = c_program(b.build()).launches
    (lowered,) = launch.work.forms.values()
    text = launch.work.text(KernelChoice("direct", MappingOptions(threads=4))).code
    assert "collapse(" in text
    loops = [one for one in scheduled(lowered.computation, MappingOptions(threads=4)) if isinstance(one, Loop)]
    assert {one.kind for one in loops} == {"parallel"}


def test_kernels_of_little_work_take_one_thread():
    small, large = product(4, 8, 8), product(128, 64, 64)
    for graph, threads in ((small, 1), (large, 4)):
        (launch,) = c_program(graph).launches
        assert (launch.work.points >= SHARED_POINTS) is (threads > 1)
        assert default_choice(launch.work, 4).options.threads == threads
        tried = {choice.options.threads for choice in candidates(launch.work, 4)}
        assert tried == ({1, 4} if threads > 1 else {1})


def test_a_program_takes_threads_and_leaves_one_to_blas():
    from threadpoolctl import threadpool_info

    graph = product(256, 64, 128)
    inputs = inputs_of(graph)
    program = select("c").compile(graph, threads=2)
    made = program.run(inputs)
    assert_same(graph, made, inputs)
    (machine,) = program.machines.values()
    assert machine.library.threads == 2
    assert loop_threads(2) == 2 and loop_threads(1) == 1 and loop_threads(None) >= 1
    before = [one["num_threads"] for one in threadpool_info() if "scipy.libs" in one["filepath"]]
    with blas_threads(1):
        program.run(inputs)
    assert [one["num_threads"] for one in threadpool_info() if "scipy.libs" in one["filepath"]] == before
    one = select("c").compile(graph, threads=1)
    np.testing.assert_allclose(one.run(inputs)["y"], made["y"], rtol=1e-5, atol=1e-6)
