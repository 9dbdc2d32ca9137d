"""Forms of kernels and the options that map them to loops: all compute what references do."""

import pytest

import eqsat
from eqsat.language.graphs.builder import Builder
from eqsat.runtime.c.program.kernels import CKernel, KernelChoice, default_choice
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.c.program.machine import CMachine
from eqsat.runtime.c.program.tuning import candidates, known_choice, tune_program
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.programs.arena import arrange
from tests.support.c_graphs import GRAPHS, inputs_of, weights
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
    assert forms["matmul"] == forms["gemm"] == {"direct", "packed"}


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
