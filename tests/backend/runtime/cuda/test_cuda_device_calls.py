"""Kernels called with arrays that a GPU holds: they run there, on a stand-in for CuPy with the names it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import BoundsError, ShapeError, UsageError
from eqsat.runtime.cuda.device.functions import gpu_of
from tests.support.cuda_standin import Array, StandIn, Toolkit

LAYER = """def mlp1(float(B,M) I, float(N,M) W, float(N) bias) -> (O) {
  O(b,n) +=! I(b,m) * W(n,m)
  O(b,n) = fmax(O(b,n) + bias(n), 0) }"""
ROWS = """def rows(float(B,D) x) -> (y, most) {
  most(b) max=! x(b,d)
  e(b,d) = exp(x(b,d) - most(b))
  total(b) +=! e(b,d)
  y(b,d) = e(b,d) / total(b) }"""
RNG = np.random.default_rng(0)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A GPU on which calls run; what is copied to the host is an error until a test takes results from it."""
    made = StandIn()
    toolkit = Toolkit(made, ())
    monkeypatch.setattr("eqsat.runtime.cuda.device.functions.toolkit_of", lambda number: toolkit)
    monkeypatch.setattr("eqsat.runtime.cuda.device.functions.can_launch", lambda: True)
    return made


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def forbid_copies(cuda: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("an array of a GPU is copied to the host")

    monkeypatch.setattr(cuda.cupy, "asnumpy", refused)


def check(cuda: StandIn, made: Any, wanted: Any) -> None:
    """Hold results that a GPU holds against those of the function."""
    results, references = (one if isinstance(one, tuple) else (one,) for one in (made, wanted))
    assert len(results) == len(references)
    cuda.settle()
    for one, other in zip(results, references, strict=True):
        assert isinstance(one, Array) and (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one.held, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("source", [LAYER, ROWS], ids=["a layer", "rows of two results"])
def test_a_call_is_computed_where_its_arrays_are(source: str, cuda: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    (function,) = eqsat.comprehension(source).values()
    arguments = [drawn(5, 9), drawn(6, 9), drawn(6)][: len(function.parameters)]
    kernel, given = eqsat.kernel(function), [cuda.cupy.array(one) for one in arguments]
    forbid_copies(cuda, monkeypatch)
    check(cuda, kernel(*given), function(*arguments))
    assert cuda.launched


def test_one_kernel_serves_every_batch(cuda: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    function = eqsat.comprehension(LAYER).mlp1
    kernel, w, b = eqsat.kernel(function, free="B"), drawn(6, 9), drawn(6)
    held = [cuda.cupy.array(one) for one in (w, b)]
    forbid_copies(cuda, monkeypatch)
    for batch in (1, 5, 64, 65, 200):
        x = drawn(batch, 9)
        check(cuda, kernel(cuda.cupy.array(x), *held), function(x, w, b))
    launches = cuda.functions.values()
    assert len({one.code for one in launches}) == 1
    assert [(one.grid[0], one.numbers) for one in launches] == [
        (1, (1,)), (1, (5,)), (1, (64,)), (2, (65,)), (4, (200,)),
    ]  # fmt: skip


def test_an_extent_of_0_has_a_kernel_of_its_own(cuda: StandIn) -> None:
    function = eqsat.comprehension("def sums(float(B,D) x) -> (y) { y(b) +=! x(b,d) }").sums
    kernel = eqsat.kernel(function, free=("B", "D"))
    for shape in ((3, 0), (0, 4), (3, 4)):
        x = drawn(*shape)
        check(cuda, kernel(cuda.cupy.array(x)), function(x))


def test_numbers_arrays_in_another_order_and_tensors_to_be_updated_are_passed(cuda: StandIn) -> None:
    function = eqsat.comprehension(
        "def update(float a, float(R,S) A, float(S,T) B) -> (C) { C(r,t) += a * A(r,s) * B(s,t) }"
    ).update
    A, B, C = drawn(7, 3), drawn(3, 4), drawn(7, 4)
    kernel, turned = eqsat.kernel(function), np.asfortranarray(A)
    given = cuda.cupy.array(turned)
    given.held = np.asfortranarray(given.held)
    cuda.pool.append(given.held)
    here = cuda.cupy.array(B)
    cuda.settle()
    given.held[...] = turned
    check(cuda, kernel(0.5, given, here), function(0.5, A, B))
    passed = cuda.cupy.array(C)
    check(cuda, kernel(0.5, given, here, C=passed), function(0.5, A, B, C=C.copy()))
    np.testing.assert_array_equal(passed.held, C)


def test_a_subscript_that_does_not_fit_is_the_error_that_it_is_in_the_function(cuda: StandIn) -> None:
    function = eqsat.comprehension("def rows(float(N) x, int(M) at) -> (y) { y(i) = x(at(i)) }").rows
    kernel, x = eqsat.kernel(function), drawn(4)
    at = np.array([3, 0], np.int32)
    check(cuda, kernel(cuda.cupy.array(x), cuda.cupy.array(at)), x[at])
    with pytest.raises(BoundsError, match="passes the bounds of x"):
        kernel(cuda.cupy.array(x), cuda.cupy.array(np.array([3, 4], np.int32)))
    with pytest.raises(ShapeError, match="rows, at: elements of int64"):
        kernel(cuda.cupy.array(x), cuda.cupy.array(np.array([3], np.int64)))


def test_arrays_of_one_gpu_alone_are_computed_on_it(cuda: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    one, host = cuda.cupy.array(drawn(3)), drawn(3)
    other = StandIn(number=1).cupy.array(host)
    assert gpu_of([one, 2.0]) == 0 and gpu_of([other, other]) == 1
    assert gpu_of([one, host]) is gpu_of([one, other]) is gpu_of([host]) is gpu_of([1.0]) is None
    kernel = eqsat.kernel("def twice(float(N) x) -> (y) { y(i) = 2 * x(i) }")
    assert isinstance(kernel(host), np.ndarray) and not cuda.launched


def test_functions_without_kernels_for_a_gpu_are_computed_here(cuda: StandIn) -> None:
    """NumPy reads no array of the stand-in: it is seen to be asked."""
    narrow = eqsat.kernel("def narrow(bfloat16(N) x) -> (y) { y(i) = x(i) }")
    unknown = eqsat.kernel("def unknown(float(N) x) -> (y) { y(i) = erfinv(x(i)) }")
    for kernel in (narrow, unknown):
        with pytest.raises(UsageError, match="no array: arrays of a GPU are not read by NumPy"):
            kernel(cuda.cupy.array(drawn(3)))
    assert not cuda.launched
