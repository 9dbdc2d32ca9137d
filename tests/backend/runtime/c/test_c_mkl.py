"""oneMKL itself, where its wheel is installed: `make test-mkl` installs it."""

import numpy as np
import pytest

import eqsat
from eqsat.runtime.c.blas import blas_names, blas_threads, installed_libraries
from eqsat.runtime.c.program.kernels import KernelChoice
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.c.program.tuning import candidates, known_choice, tune_program
from eqsat.runtime.kernels.nests.options import MappingOptions
from tests.support.c_graphs import GRAPHS, inputs_of
from tests.support.c_programs import assert_same, computed

pytestmark = pytest.mark.skipif("mkl" not in blas_names(), reason="the extra 'mkl' is not installed: make test-mkl")
#: Functions with the shapes of their operands, and the function of MKL that computes them.
PRODUCTS = {
    "transposed": (
        "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        "mkl_s",
        (37, 29),
        (50, 29),
    ),
    "plain": ("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", "mkl_s", (37, 29), (29, 50)),
    "turned": ("def f(float(K,M) A, float(K,N) B) -> (C) { C(n,m) +=! A(k,m) * B(k,n) }", "mkl_s", (29, 37), (29, 50)),
    "many": (
        "def f(float(P,M,K) A, float(P,K,N) B) -> (C) { C(p,m,n) +=! A(p,m,k) * B(p,k,n) }",
        "mkl_s",
        (3, 37, 29),
        (3, 29, 50),
    ),
    "double": (
        "def f(double(M,K) A, double(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        "mkl_d",
        (37, 29),
        (50, 29),
    ),
    "vector": ("def f(float(M,K) A, float(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }", "vector_mkl_s", (37, 29), (29,)),
    "turned vector": (
        "def f(float(K,M) A, float(K) x) -> (y) { y(m) +=! A(k,m) * x(k) }",
        "vector_mkl_s",
        (29, 37),
        (29,),
    ),
    "double vector": (
        "def f(double(M,K) A, double(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }",
        "vector_mkl_d",
        (37, 29),
        (29,),
    ),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_the_reference(name, threads):
    source, called, *shapes = PRODUCTS[name]
    rng = np.random.default_rng(0)
    dtype = np.float64 if "double" in source else np.float32
    operands = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    options = {"library": "mkl", "threads": threads}
    assert f"multiply_{called}(" in eqsat.emit(source, *operands, options=options)
    (function,) = eqsat.comprehension(source).values()
    made = eqsat.kernel(source, options)(*operands)
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(made, function(*operands), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_form_of_a_program_is_that_of_the_reference(name):
    graph = GRAPHS[name]()
    inputs = inputs_of(graph)
    (kernel,) = [launch.work for launch in c_program(graph).launches]
    chosen = [choice for choice in candidates(kernel) if choice.options.blas == "mkl"]
    assert bool(chosen) == any(choice.options.blas == "scipy" for choice in candidates(kernel))
    for choice in chosen:
        _, made = computed(graph, inputs, lambda _, choice=choice: choice)
        assert_same(graph, made, inputs)


def test_a_program_is_tuned_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("EQSAT_TUNING_CACHE", str(tmp_path / "tuning.sqlite3"))
    graph = GRAPHS["matmul"]()
    (kernel,) = [launch.work for launch in c_program(graph).launches]
    assert KernelChoice("direct", MappingOptions(library="mkl")) in candidates(kernel)
    assert tune_program(c_program(graph), 1) == 1
    choice = known_choice(kernel, 1)
    assert choice in candidates(kernel)
    inputs = inputs_of(graph)
    _, made = computed(graph, inputs, lambda _: choice)
    assert_same(graph, made, inputs)
    assert [one.split()[0] for one in installed_libraries()] == ["mkl"]


def test_it_has_no_threads_of_its_own():
    from threadpoolctl import threadpool_info

    with blas_threads(1):
        layers = [one["threading_layer"] for one in threadpool_info() if one["internal_api"] == "mkl"]
    assert layers == ["sequential"]
