"""Every program that Vasilache et al. (arXiv 1802.04730) print, as they say that it behaves, with two exceptions.

Their 1-D convolution has = with an index that is reduced, and their layer has a bias of the size of its input.
"""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.errors import RangeError, UpdateError
from tests.support.comprehensions.comprehension_cases import check_equal
from tests.support.comprehensions.programs_windows import convolved

MV_OF_TWO = """
def mv(float(M,K) A, float(K) x) → (C) {
  C(i) = 0
  C(i) += A(i,k) * x(k)
}
"""
MV = """
def mv(float(M,K) A, float(K) x) → (C) {
  C(i) +=! A(i,k) * x(k)
}
"""
SGEMM = """
def sgemm(float a, float b, float(N,M) A, float(M,K) B) → (C) {
  C(i,j) = b * C(i,j)            # initialization
  C(i,j) += a * A(i,k) * B(k,j) # accumulation
}
"""
FCRELU = """
def fcrelu(float(B,I) in, float(O,I) weight, float(I) bias) → (out) {
  out(i,j) = bias(j)
  out(b,o) += in(b,i) * weight(o,i)
  out(i,j) = fmaxf(out(i,j), 0)
}
"""
CONV2D = """
def conv2d(float(B,IP,H,W) in, float(OP,IP,KH,KW) weight) → (out) {
  out(b,op,h,w) +=! in(b,ip, h + kh, w + kw) * weight(op,ip,kh,kw)
}
"""
MAXPOOL = """
def maxpool2x2(float(B,C,H,W) in) → (out) {
  out(b,c,i,j) max=! in(b,c, 2 * i + kw, 2 * j + kh)
  where kw in 0:2, kh in 0:2
}
"""
GATHER = """
def gather(float(N) X, int(A,B) I) → (Z) {
  Z(i,j) = X(I(i,j))
}
"""
SCONV2D = """
def sconv2d(int sh, int sw, float(N,C,H,W) I, float(F,C,KH,KW) W, float(F) B) → (O) {
  O(n,f,h,w) = B(f)
  O(n,f,h,w) += I(n,c, sh * h + kh, sw * w + kw) * W(f,c,kh,kw)
}
"""
CONV1D = """
def conv1d(float(M) I, float(N) K) → (O) {
  O(i) = K(x) * I(i + x)
}
"""
OUTER = """
def outerProductMM(float(P,Q,R) A, float(S,R,T) B) → (O) {
  O(p,s,q,t) +=! A(p,q,r) * B(s,r,t)
}
"""


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float32)


@pytest.mark.parametrize("source", [MV, MV_OF_TWO])
def test_both_forms_of_a_matrix_by_a_vector(source: str) -> None:
    mv = eqsat.comprehension(source).mv
    A, x = numbers(3, 4), numbers(4)
    check_equal(mv(A, x), A @ x)
    assert (mv.warnings, mv.temporaries, mv.results) == ((), (), ("C",))


def test_sgemm_updates_what_it_is_given_and_starts_at_0_otherwise() -> None:
    sgemm = eqsat.comprehension(SGEMM).sgemm
    A, B, C = numbers(3, 4), numbers(4, 2), numbers(3, 2, seed=1)
    before = C.copy()
    check_equal(sgemm(2.0, 0.5, A, B, C=C), np.float32(2) * (A @ B) + np.float32(0.5) * C)
    check_equal(sgemm(2.0, 0.5, A, B), np.float32(2) * (A @ B))
    np.testing.assert_array_equal(C, before)
    assert sgemm.warnings == ("C is read before it is defined: it is 0 unless C=… is passed",)


def test_sgemm_writes_over_its_own_output() -> None:
    A, B, C = numbers(3, 4), numbers(4, 2), numbers(3, 2, seed=1)
    wanted = A @ B + C
    eqsat.comprehension(SGEMM).sgemm(1.0, 1.0, A, B, C=C, out=C)
    check_equal(C, wanted)


def test_a_layer_as_it_is_printed_needs_as_many_inputs_as_outputs() -> None:
    fcrelu = eqsat.comprehension(FCRELU).fcrelu
    data, weight, bias = numbers(2, 4), numbers(4, 4, seed=1), numbers(4, seed=2)
    check_equal(fcrelu(data, weight, bias), np.maximum(data @ weight.T + bias, 0))
    with pytest.raises(RangeError) as caught:
        fcrelu(data, numbers(3, 4), bias)
    assert caught.value.what.startswith("axis 1 of out has ")
    assert caught.value.remedy == "write where with the range that it is to have"


def test_a_layer_with_a_bias_of_its_output() -> None:
    fcrelu = eqsat.comprehension(FCRELU.replace("float(I) bias", "float(O) bias")).fcrelu
    data, weight, bias = numbers(2, 4), numbers(3, 4, seed=1), numbers(3, seed=2)
    check_equal(fcrelu(data, weight, bias), np.maximum(data @ weight.T + bias, 0))
    assert fcrelu.temporaries == ()


def test_a_convolution_of_images() -> None:
    x, w = numbers(2, 3, 5, 6), numbers(4, 3, 2, 3, seed=1)
    check_equal(eqsat.comprehension(CONV2D).conv2d(x, w), convolved(x, w))


def test_pooling_needs_the_ranges_that_it_states() -> None:
    x = numbers(2, 3, 4, 6)
    made = eqsat.comprehension(MAXPOOL).maxpool2x2(x)
    check_equal(made, x.reshape(2, 3, 2, 2, 3, 2).max((3, 5)))
    with pytest.raises(RangeError) as caught:
        eqsat.comprehension(MAXPOOL.replace("where kw in 0:2, kh in 0:2", ""))
    assert caught.value.what.startswith("no range of i, j, kw, kh follows from what is read\n")
    assert caught.value.remedy == "write where i in 0:…, j in 0:…, kw in 0:…, kh in 0:…"


def test_gather_reads_by_elements() -> None:
    x, at = numbers(5), np.array([[0, 4, 2], [1, 1, 3]], np.int32)
    check_equal(eqsat.comprehension(GATHER).gather(x, at), x[at])


@pytest.mark.parametrize(("sh", "sw"), [(1, 1), (2, 1), (3, 2)])
def test_a_strided_convolution_whose_w_is_a_size_and_a_tensor(sh: int, sw: int) -> None:
    x, w, bias = numbers(2, 3, 7, 6), numbers(2, 3, 2, 2, seed=1), numbers(2, seed=2)
    made = eqsat.comprehension(SCONV2D).sconv2d(sh, sw, x, w, bias)
    check_equal(made, convolved(x, w, (sh, sw)) + bias[:, None, None])


def test_the_printed_1d_convolution_is_refused_with_a_reduction_as_the_remedy() -> None:
    with pytest.raises(UpdateError) as caught:
        eqsat.comprehension(CONV1D)
    assert caught.value.what == ("= with x, which O is not subscripted by\n    O(i) = K(x) * I(i + x)\n    ^")
    assert caught.value.where == "conv1d: line 3, column 3"
    assert caught.value.expected == "a reduction over it"
    assert caught.value.remedy == "write O(i) +=! …, or min=! or max=!"


def test_the_ranges_of_the_1d_convolution_are_those_of_section_3() -> None:
    conv1d = eqsat.comprehension(CONV1D.replace("O(i) =", "O(i) +=!")).conv1d
    for m, n in [(9, 3), (5, 5), (4, 1)]:
        inferred = conv1d.inferred({"I": (m,), "K": (n,)})
        assert inferred.ranges[0] == {"x": (0, n), "i": (0, m - n + 1)}
        check_equal(conv1d(numbers(m), numbers(n, seed=1)), np.correlate(numbers(m), numbers(n, seed=1), "valid"))


def test_transposition_is_of_another_tensor_alone() -> None:
    made = eqsat.comprehension("def f(float(N,M) b) → (a) { a(i,j) = b(j,i) }").f(numbers(2, 3))
    check_equal(made, numbers(2, 3).T)
    with pytest.raises(UpdateError):
        eqsat.comprehension("def f(float(N,N) b) → (a) { a(i,j) = b(i,j) a(i,j) = a(j,i) }")


def test_an_outer_product_of_matrices() -> None:
    A, B = numbers(2, 3, 4), numbers(5, 4, 2, seed=1)
    made = eqsat.comprehension(OUTER).outerProductMM(A, B)
    check_equal(made, np.matmul(A[:, None], B[None]))
    other = OUTER.replace("O(p,s,q,t)", "O(q,p,t,s)")
    check_equal(eqsat.comprehension(other).outerProductMM(A, B), made.transpose(2, 0, 3, 1))
