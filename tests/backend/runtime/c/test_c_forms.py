"""Forms of kernels and the options that map them to loops: all compute what references do."""

from dataclasses import replace

import pytest

import eqsat
from eqsat.language.graphs.builder import Builder
from eqsat.runtime.c.program.kernels import CKernel, KernelChoice, default_choice
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.c.program.machine import CMachine
from eqsat.runtime.c.program.tuning import candidates, known_choice, tune_program
from eqsat.runtime.c.toolchain import toolchain
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.programs.arena import arrange
from tests.support.c_graphs import GRAPHS, convolution, inputs_of, product, weights
from tests.support.c_programs import assert_same, computed


def kernels_of(graph):
    return [launch.work for launch in c_program(graph).launches if isinstance(launch.work, CKernel)]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_candidate_of_the_tuner_computes_what_the_reference_does(name):
    graph = GRAPHS[name]()
    inputs = inputs_of(graph)
    found = [choice for kernel in kernels_of(graph) for choice in candidates(kernel)]
    # Of the tiles of each form one is enough, but for one convolution and one product.
    firsts = {(choice.form, choice.options.library): choice for choice in found}
    tried = set(found if name in ("conv in groups", "matmul") else firsts.values())
    assert {choice.form for choice in tried} == {form for kernel in kernels_of(graph) for form in kernel.forms}
    for choice in tried:

        def chosen(kernel, choice=choice):
            return choice if choice.form in kernel.forms else default_choice(kernel)

        _, made = computed(graph, inputs, chosen)
        assert_same(graph, made, inputs, 3e-6)


def test_forms_are_those_that_the_shape_allows():
    forms = {name: set().union(*(kernel.forms for kernel in kernels_of(make()))) for name, make in GRAPHS.items()}
    assert forms["conv 3x3"] == {"direct", "unfolded", "winograd"}
    assert forms["conv dilated"] == forms["conv in groups"] == {"direct", "unfolded"}
    assert forms["conv by channel"] == forms["matmul of inputs"] == {"direct"}
    assert forms["matmul"] == {"direct", "packed", "packed_32", "packed_48"}  # of 50 columns
    assert forms["gemm"] == {"direct", "packed", "packed_32"}  # of 34


def text_of(kernel, form, **options):
    return kernel.text(KernelChoice(form, MappingOptions(**options))).code


def test_all_rows_go_by_a_panel_before_the_next_one_is_read():
    (kernel,) = kernels_of(product(20, 64, 80))
    code = text_of(kernel, "packed_32", rows=13, vector_bytes=64, fused_rows=64)
    assert code.count("for (int i1_r") == 0
    assert "for (int i1_r" in text_of(kernel, "packed_32", rows=13, vector_bytes=64)


def test_tiles_of_rows_are_as_even_as_they_can_be():
    (kernel,) = kernels_of(product(20, 64, 64))
    code = text_of(kernel, "packed_32", rows=13, vector_bytes=64)
    assert "acc_9_1" in code and "acc_10_1" not in code  # two tiles of ten rows, not 13 and 7
    (kernel,) = kernels_of(product(25, 64, 64))
    code = text_of(kernel, "packed_32", rows=14, vector_bytes=64)
    assert "acc_12_1" in code and "acc_13_1" not in code  # 13 and 12


def test_windows_are_copied_in_strips_that_are_worth_a_look_at_all_filters():
    def copied(*shape):
        (kernel,) = kernels_of(convolution((1, *shape), (24, shape[0], 3, 3), pads=(1, 1, 1, 1)))
        buffers = kernel.forms["unfolded"].computation.buffers.values()
        return max(one.shape[1] for one in buffers if len(one.shape) == 2 and one.shape[0] == 9 * shape[0])

    assert copied(16, 13, 13) == 169  # 13 is prime: not row by row
    assert copied(16, 6, 100) == 600
    assert copied(128, 60, 60) == 60  # one row is what fits


def test_panels_are_fetched_ahead_and_nothing_else_is():
    (kernel,) = kernels_of(product(20, 64, 64))
    fetched = text_of(kernel, "packed_32", vector_bytes=64, prefetch=2048)
    assert fetched.count("__builtin_prefetch(u0 + ") == fetched.count("__builtin_prefetch(") > 0
    assert "+ 512, 0, 2)" in fetched  # elements of four bytes
    assert "prefetch" not in text_of(kernel, "packed_32", vector_bytes=64)
    # Rows of a matrix that is not put side by side lie apart.
    assert "prefetch" not in text_of(kernel, "direct", vector_bytes=64, prefetch=2048)


def test_a_product_is_computed_in_the_widest_vectors_by_default(monkeypatch):
    (kernel,) = kernels_of(product(20, 64, 64))
    for width, form in ((64, "packed_32"), (32, "packed"), (16, "packed")):
        wide = replace(toolchain(), macros=frozenset({64: {"__AVX512F__"}, 32: {"__AVX__"}, 16: set()}[width]))
        monkeypatch.setattr("eqsat.runtime.c.program.tiles.toolchain", lambda wide=wide: wide)
        choice = default_choice(kernel)
        assert (choice.form, choice.options.vector_bytes) == (form, max(width, 32))
        assert choice in candidates(kernel)
        assert {one.options.vector_bytes for one in candidates(kernel)} == {32, max(width, 32)}


def test_what_follows_a_product_is_computed_in_its_kernel():
    for name, make in GRAPHS.items():
        assert len(c_program(make()).launches) == 1, name


def test_the_fastest_choice_is_kept_and_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("EQSAT_TUNING_CACHE", str(tmp_path / "tuning.sqlite3"))
    graph = GRAPHS["matmul"]()
    (kernel,) = kernels_of(graph)
    assert known_choice(kernel, 1) is None
    assert tune_program(c_program(graph), 1) == 1
    assert known_choice(kernel, 1) in candidates(kernel)
    assert known_choice(kernel, 2) is None  # what BLAS takes is another on two threads
    assert tune_program(c_program(graph), 1) == 0  # it is known by now
    (again,) = kernels_of(GRAPHS["matmul"]())
    assert again.key == kernel.key  # whatever its weights are


def test_constants_that_are_put_side_by_side_are_shared_by_launches():
    b = Builder("twice")
    w = b.constant(weights(32, 32))
    x = eqsat.matmul(b.input("x", (8, 32)), w)
    b.output("y", eqsat.matmul(eqsat.softmax(x), w))
    graph = b.build()
    program, made = computed(graph, inputs := inputs_of(graph), lambda kernel: KernelChoice(next(iter(kernel.forms))))
    assert_same(graph, made, inputs)
    packed = KernelChoice("packed", MappingOptions())
    machine = CMachine(program, arrange(program), lambda k: packed if "packed" in k.forms else default_choice(k), 1)
    assert len(machine.library.prepared) == 1
