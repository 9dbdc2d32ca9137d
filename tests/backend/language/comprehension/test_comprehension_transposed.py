"""Transposed convolutions, written from where each element of a filter falls, against sums of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.definitions import expanded
from eqsat.rewrites.rules.derive import stated_laws
from eqsat.runtime.backend import execute


def fallen(x, w, size, stride=1, dilation=1, begin=0):
    """What the elements of filters C,F,K add where they fall on an axis of a size, of images B,C,M."""
    made = np.zeros((x.shape[0], w.shape[1], size), np.float64)
    for i in range(x.shape[2]):
        for k in range(w.shape[2]):
            place = stride * i + dilation * k - begin
            if 0 <= place < size:
                made[:, :, place] += x[:, :, i].astype(float) @ w[:, :, k]
    return made


ONE_AXIS = "def f(float(B,C,M) x, float(C,F,K) w) -> (y) {{ y(b,f,o) +=! {} }}"
STRIDED = "o >= k && (o - k) % 2 == 0 && (o - k) / 2 < M"
PRODUCT = "x(b,c,(o - k) / 2) * w(c,f,k)"
#: The text of the value, the size of the result, how it falls, and whether definitions of NaN are the operator too.
SPELLINGS = {
    "read at a quotient": (f"{STRIDED} ? {PRODUCT} : 0 where o in 0:2 * (M - 1) + K", 9, {"stride": 2}, True),
    "its factors turned, conditions in another order": (
        "2 * M > o - k && 0 == (o - k) % 2 && k <= o ? w(c,f,k) * x(b,c,(o - k) / 2) : 0 where o in 0:2 * (M - 1) + K",
        9,
        {"stride": 2},
        True,
    ),
    "zeros in one factor": (
        f"({STRIDED} ? x(b,c,(o - k) / 2) : 0) * w(c,f,k) where o in 0:2 * (M - 1) + K",
        9,
        {"stride": 2},
        False,
    ),
    "dilated, with borders cut off": (
        "o + 2 >= 2 * k && (o + 2 - 2 * k) % 3 == 0 && (o + 2 - 2 * k) / 3 <= M - 1"
        " ? x(b,c,(o + 2 - 2 * k) / 3) * w(c,f,k) : 0 where o in 0:3 * M + 2 * K - 7",
        11,
        {"stride": 3, "dilation": 2, "begin": 2},
        True,
    ),
    "with more at its end": (f"{STRIDED} ? {PRODUCT} : 0 where o in 0:2 * M + K - 1", 10, {"stride": 2}, True),
    "for all elements, where they fall": (
        "2 * i + k == o + 1 ? x(b,c,i) * w(c,f,k) : 0 where o in 0:2 * (M - 1) + K - 2",
        7,
        {"stride": 2, "begin": 1},
        True,
    ),
    "the equation the other way round": (
        "o == 3 * k + 2 * i ? w(c,f,k) * x(b,c,i) : 0 where o in 0:2 * (M - 1) + 3 * (K - 1) + 1",
        13,
        {"stride": 2, "dilation": 3},
        True,
    ),
    "by steps of one": (
        "o >= k && o - k < M ? x(b,c,o - k) * w(c,f,k) : 0 where o in 0:M + K - 1, k in 0:K",
        6,
        {},
        True,
    ),
}


def given(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype("f") for shape in shapes]


def standard_of(function, arrays):
    """A graph of a function of arrays in standard operators, and what it is fed with."""
    g = eqsat.Graph("transposed")
    names = function.operands
    g.output("y", function(*(g.input(name, array.shape) for name, array in zip(names, arrays, strict=True))))
    graph = g.build()
    return expanded(graph, {node.op for node in graph.nodes}), dict(zip(names, arrays, strict=True))


@pytest.mark.parametrize(("text", "size", "falls", "exact"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_transposed_convolution_is_recognised(text, size, falls, exact):
    function = eqsat.comprehension(ONE_AXIS.format(text)).f
    laws = stated_laws([operator_of(function)])
    assert ["conv_transpose" in rule.text for rule in laws] == ([True] if exact else [False, True])
    for rule in laws:
        assert check(rule, Effort(numeric=24, symbolic=6, turned=0, questions=0)).verdict == "proved", rule.text
    x, w = given((2, 3, 4), (3, 2, 3))
    expected = fallen(x, w, size, **falls)
    np.testing.assert_allclose(function(x, w), expected, rtol=1e-4, atol=1e-5)
    standard, feeds = standard_of(function, [x, w])
    if exact:
        assert {node.op for node in standard.nodes if node.inputs} == {"conv_transpose"}
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_allclose(execute(standard, feeds, backend)["y"], expected, rtol=1e-4, atol=1e-5)


def fallen_twice(x, w):
    """The same along two axes, by steps of 2 and of 3."""
    made = np.zeros((x.shape[0], w.shape[1], 2 * x.shape[2] + w.shape[2] - 2, 3 * x.shape[3] + w.shape[3] - 3))
    for i, j in np.ndindex(x.shape[2:]):
        for k, m in np.ndindex(w.shape[2:]):
            made[:, :, 2 * i + k, 3 * j + m] += x[:, :, i, j].astype(float) @ w[:, :, k, m]
    return made


#: Functions with more axes, and shapes of their operands.
LAYOUTS = {
    "two axes": (
        "def f(float(B,C,H,V) x, float(C,F,K,L) w) -> (y) {"
        " y(b,f,o,p) +=! o >= k && (o - k) % 2 == 0 && (o - k) / 2 < H && 3 * j + l == p"
        " ? x(b,c,(o - k) / 2,j) * w(c,f,k,l) : 0"
        " where o in 0:2 * (H - 1) + K, p in 0:3 * (V - 1) + L, j in 0:V }",
        ((2, 3, 4, 3), (3, 2, 3, 2)),
        fallen_twice,
        {"conv_transpose"},
    ),
    "channels last": (
        "def f(float(B,M,C) x, float(K,C,F) w) -> (y) { y(b,o,f) +=! o >= k && (o - k) % 2 == 0 && (o - k) / 2 < M"
        " ? x(b,(o - k) / 2,c) * w(k,c,f) : 0 where o in 0:2 * (M - 1) + K }",
        ((2, 4, 3), (3, 3, 2)),
        lambda x, w: fallen(x.transpose(0, 2, 1), w.transpose(1, 2, 0), 9, 2).transpose(0, 2, 1),
        {"conv_transpose", "transpose"},
    ),
    "in groups": (
        "def f(float(B,G,C,M) x, float(G,C,F,K) w) -> (y) { y(b,g,f,o) +=! 2 * i + k == o"
        " ? x(b,g,c,i) * w(g,c,f,k) : 0 where o in 0:2 * (M - 1) + K }",
        ((2, 2, 3, 4), (2, 3, 2, 3)),
        lambda x, w: np.stack([fallen(x[:, g], w[g], 9, 2) for g in range(2)], axis=1),
        {"conv_transpose", "reshape"},
    ),
}


@pytest.mark.parametrize(("text", "shapes", "reference", "operators"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_transposed_convolution_is_recognised_in_other_layouts(text, shapes, reference, operators):
    function = eqsat.comprehension(text).f
    for rule in stated_laws([operator_of(function)]):
        assert check(rule, Effort(numeric=24, symbolic=6, turned=0, questions=0)).verdict == "proved", rule.text
    arrays = given(*shapes)
    standard, feeds = standard_of(function, arrays)
    assert {node.op for node in standard.nodes if node.inputs} == operators
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_allclose(execute(standard, feeds, backend)["y"], reference(*arrays), rtol=1e-4, atol=1e-5)


NEAR_MISSES = {
    "a rest of another divisor": STRIDED.replace("% 2", "% 3") + f" ? {PRODUCT} : 0",
    "a rest of one": STRIDED.replace("== 0", "== 1") + f" ? {PRODUCT} : 0",
    "places between as well": f"o >= k && (o - k) / 2 < M ? {PRODUCT} : 0",
    "one element less": STRIDED.replace("< M", "< M - 1") + f" ? {PRODUCT} : 0",
    "without the first part of the filter": f"{STRIDED} && k > 0 ? {PRODUCT} : 0",
    "another number elsewhere": f"{STRIDED} ? {PRODUCT} : 1",
    "a sum": f"{STRIDED} ? x(b,c,(o - k) / 2) + w(c,f,k) : 0",
    "a filter that follows the place": "2 * i + k == o ? x(b,c,i) * w(c,f,i) : 0",
    "an inequation": "2 * i + k <= o ? x(b,c,i) * w(c,f,k) : 0",
    "a part of the elements": "2 * i + k == o ? x(b,c,i) * w(c,f,k) : 0 where i in 0:2",
    "twice the filter's step in the result": "2 * i + k == 2 * o ? x(b,c,i) * w(c,f,k) : 0",
    "a result that is much longer": f"{STRIDED} ? {PRODUCT} : 0 where o in 0:2 * M + 7",
}


@pytest.mark.parametrize("text", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses_are_no_transposed_convolutions(text):
    more = " where k in 0:3, o in 0:2 * (M - 1) + 3"
    text = text if "o in" in text else text + more.replace(" where", ",") if "where" in text else text + more
    function = eqsat.comprehension(ONE_AXIS.replace("C,F,K", "C,F,4" if "w(c,f,i)" in text else "C,F,3").format(text)).f
    assert not any("conv_transpose" in rule.text for rule in stated_laws([operator_of(function)]))
    x, w = given((2, 3, 4), (3, 2, 4 if "w(c,f,i)" in text else 3))
    standard, feeds = standard_of(function, [x, w])
    np.testing.assert_allclose(execute(standard, feeds, "numpy")["y"], function(x, w), rtol=1e-4, atol=1e-5)


DIAGONALS = {
    "one axis": (
        "def f(float(B,M,M) x, float(M,F,K) w) -> (y) {"
        " y(b,f,o) +=! 2*i+k == o ? x(b,i,i) * w(i,f,k) : 0 where o in 0:2*(M-1)+K }",
        ((2, 3, 3), (3, 2, 4)),
    ),
    "two axes": (
        "def f(float(B,C,M,M) x, float(C,F,K,L) w) -> (y) {"
        " y(b,f,o,p) +=! 2*i+k == o && 3*i+l == p ? x(b,c,i,i) * w(c,f,k,l) : 0"
        " where o in 0:2*(M-1)+K, p in 0:3*(M-1)+L }",
        ((2, 3, 3, 3), (3, 2, 2, 4)),
    ),
    "of a filter": (
        "def f(float(B,C,M,N) x, float(C,F,K) w) -> (y) {"
        " y(b,f,o,p) +=! 2*i+k == o && 3*j+k == p ? x(b,c,i,j) * w(c,f,k) : 0"
        " where o in 0:2*(M-1)+K, p in 0:3*(N-1)+K }",
        ((2, 3, 3, 2), (3, 2, 4)),
    ),
}


@pytest.mark.parametrize(("text", "shapes"), DIAGONALS.values(), ids=DIAGONALS)
def test_diagonals_are_no_transposed_convolutions(text, shapes):
    function = eqsat.comprehension(text).f
    assert not any("conv_transpose" in rule.text for rule in stated_laws([operator_of(function)]))
    x, w = given(*shapes)
    standard, feeds = standard_of(function, [x, w])
    np.testing.assert_allclose(execute(standard, feeds, "numpy")["y"], function(x, w), rtol=1e-4, atol=1e-5)
