"""Libraries with BLAS that are found where wheels lie: what is called, what is kept, and what is left without them."""

import sys

import numpy as np
import pytest

import eqsat
from eqsat.errors import MissingExtraError
from eqsat.runtime.c.blas import blas_names, blas_pointers, installed_mkl
from tests.support.mkl_standin import install, run_with

STATED = """
from eqsat.errors import EqsatError
from eqsat.runtime.c.blas import blas_names, blas_pointers, installed_libraries
print(*blas_names())
print(*installed_libraries())
try:
    blas_pointers("mkl")
except EqsatError as error:
    print(error)
"""
#: The product that is computed, and what is known of it.
KERNEL = """
from eqsat.runtime.c.program.tuning import candidates, fastest_choice, key_of, known_choice
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.records import KernelEntry
from eqsat.runtime.tuning.store import KernelCache
from tests.support.c_graphs import GRAPHS, inputs_of
from tests.support.c_programs import assert_same, c_program, computed

graph = GRAPHS["matmul"]()
(kernel,) = [launch.work for launch in c_program(graph).launches]
by_library = [choice.options.blas for choice in candidates(kernel) if choice.options.blas]
"""
KEPT = (
    KERNEL
    + """
with KernelCache() as cache:
    cache.put(key_of(kernel, 1), KernelEntry(TuningCandidate({"form": "direct", "library": "mkl"}), 1e-6))
choice = fastest_choice(kernel, 1)
print(choice.options.blas, *sorted(set(by_library)))
inputs = inputs_of(graph)
program, made = computed(graph, inputs, lambda kernel: choice)
assert_same(graph, made, inputs)
print("multiply_mkl_s" in kernel.text(choice).code, "multiply_scipy_s" in kernel.text(choice).code)
"""
)
ASKED = (
    KERNEL
    + """
print(known_choice(kernel, 1), fastest_choice(kernel, 1).options.blas != "mkl", *sorted(set(by_library)))
"""
)
#: An entry of a machine with the library, under the key of one without.
MOVED = (
    KERNEL
    + """
with KernelCache() as cache:
    cache.put(key_of(kernel, 1), KernelEntry(TuningCandidate({"form": "direct", "library": "mkl"}), 1e-6))
    assert cache.best(key_of(kernel, 1))["library"] == "mkl"
print(known_choice(kernel, 1))
"""
)
COMPREHENSION = """
import sys
import numpy as np
import eqsat
from eqsat.runtime.c.tuned import autotune, fastest_options, function_of, key_of_kernel, space_of
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.records import KernelEntry
from eqsat.runtime.tuning.store import KernelCache

function = function_of("def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }")
a, b = (np.random.default_rng(0).standard_normal(shape, dtype=np.float32) for shape in ((20, 30), (40, 30)))
inferred, _ = function.bind((a, b), {})
print(*space_of(function, inferred, frozenset(), 1).options["library"])
if sys.argv[1] == "keep":
    with KernelCache() as cache:
        cache.put(key_of_kernel(function, inferred), KernelEntry(TuningCandidate({"library": "mkl"}), 1e-6))
print(fastest_options(function, inferred).blas)
np.testing.assert_allclose(eqsat.kernel(function)(a, b), a @ b.T, rtol=1e-4, atol=1e-4)
"""
THREADS = """
from threadpoolctl import threadpool_info
from eqsat.runtime.c.blas import blas_threads

def threads():
    return [one["num_threads"] for one in threadpool_info() if "libmkl_rt" in one["filepath"]]

with blas_threads(1):
    print(threads())
print(threads())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return install(tmp_path_factory.mktemp("mkl"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("tuning") / "tuning.sqlite3"


def test_a_wheel_is_found_by_what_it_says_of_itself(site, tmp_path):
    found = installed_mkl([str(site)])
    assert found is not None and found.version == "2026.2.0"
    assert found.file("libmkl_rt") == (site.parents[1] / "libmkl_rt.so.3").resolve()
    assert found.file("libmkl_sequential") is None
    assert installed_mkl([str(tmp_path)]) is None


def test_a_library_is_called_where_all_of_it_is_there(site, tmp_path, cache):
    assert run_with(site, STATED, cache=cache) == ["scipy mkl", "mkl 2026.2.0"]
    lacking = install(tmp_path / "lacking", parts=("libmkl_rt.so.3",))
    names, libraries, *error = run_with(lacking, STATED, cache=cache)
    assert (names, libraries) == ("scipy", "")
    assert error == [
        f"{lacking.parents[1] / 'libmkl_rt.so.3'}: oneMKL 2026.2.0 cannot be loaded",
        "  expected all files of its wheel, with integers of four bytes and no threads of its own",
        "  pip install --force-reinstall mkl, or leave products to 'scipy'",
    ]


def test_a_library_whose_integers_are_longer_is_left_alone(tmp_path, cache):
    names, *_ = run_with(install(tmp_path, interface=1), STATED, cache=cache)
    assert names == "scipy"


def test_a_choice_names_its_library_and_is_unknown_without_it(site, tmp_path, cache):
    assert run_with(site, KEPT, cache=cache) == ["mkl mkl scipy", "True False"]
    if "mkl" not in blas_names():
        assert run_with(None, ASKED, cache=cache) == ["None True scipy"]
    newer = install(tmp_path, "2027.0.0")
    assert run_with(newer, ASKED, cache=cache)[0].startswith("None True")  # it may be faster or slower


def test_a_choice_is_not_taken_where_its_library_is_not(tmp_path):
    lacking = install(tmp_path, parts=())
    assert run_with(lacking, MOVED, cache=tmp_path / "moved.sqlite3") == ["None"]


def test_kernels_of_comprehensions_are_chosen_likewise(site, tmp_path):
    cache, lacking = tmp_path / "tuning.sqlite3", install(tmp_path / "lacking", parts=())
    assert run_with(site, COMPREHENSION, "keep", cache=cache) == ["False scipy mkl", "mkl"]
    assert run_with(lacking, COMPREHENSION, "look", cache=cache) == ["False scipy", "None"]
    assert run_with(lacking, COMPREHENSION, "keep", cache=cache) == ["False scipy", "None"]


def test_threads_are_those_of_the_program_and_given_back(site, cache):
    assert run_with(site, THREADS, cache=cache) == ["[1]", "[4]"]


@pytest.mark.skipif("mkl" in blas_names(), reason="oneMKL is installed")
def test_who_asks_for_a_library_that_is_not_here_is_told_what_installs_it():
    with pytest.raises(MissingExtraError) as caught:
        blas_pointers("mkl")
    assert str(caught.value).splitlines() == [
        "mkl is not installed",
        "  expected it for products of matrices by oneMKL",
        "  pip install 'eqsat[mkl]'",
    ]
    assert "mkl" not in sys.modules


def test_text_names_the_library_that_it_calls():
    operands = np.ones((3, 4), np.float32), np.ones((5, 4), np.float32)
    source = "def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
    for given, name in ((True, "scipy"), ("scipy", "scipy"), ("mkl", "mkl")):
        assert f"multiply_{name}_s(" in eqsat.emit(source, *operands, options={"library": given})
