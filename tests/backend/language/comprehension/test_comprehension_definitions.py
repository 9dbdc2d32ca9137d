"""Functions of comprehensions defined by standard operators: recognised, written out, computed, and proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError, ExportModelError
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms import Graph
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.definitions import expanded
from eqsat.rewrites.rules.derive import stated_laws
from eqsat.rewrites.rules.loader import EvidenceWarning
from eqsat.runtime.backend import execute
from tests.support.comprehensions.comprehension_cases import Right, check_equal
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.comprehensions.graph_calls import graph_of_call, ordered

#: Programs that ONNX Runtime has no kernels for: of float64, bfloat16 and products of int8.
NO_KERNELS = {"halves", "narrow", "narrow_layer", "mean_of_window", "gelu", "wrapped"}
#: Its reductions pass over NaN.
PASSES_OVER_NAN = {"not_numbers"}


def named(program: Right) -> str:
    return str(program.function.name)


GRAPHS = [program for program in RIGHT if program.function.operands]


def written(graph: Graph) -> Graph:
    """The graph without operators that were declared from comprehensions."""
    return expanded(graph, {node.op for node in graph.nodes})


@pytest.mark.parametrize("program", GRAPHS, ids=named)
def test_what_a_function_is_written_as_computes_what_numpy_does(program):
    function = program.function
    arguments, more = program.arguments(function, 3)
    graph, feeds = graph_of_call(function, arguments, more)
    standard = written(graph)
    assert not {node.op for node in standard.nodes} & {node.op for node in graph.nodes}
    for backend in ("numpy", "onnxruntime"):
        if backend == "onnxruntime" and function.name in NO_KERNELS:
            with pytest.raises(BackendError, match="ONNX Runtime refuses the graph"):
                execute(standard, feeds, backend)
        elif backend == "numpy" or function.name not in PASSES_OVER_NAN:
            check_equal(ordered(execute(standard, feeds, backend)), program.reference(*arguments, **more))


CONV = "y(n,o,h,w) +=! x(n,c,{sh}h+{dh}kh,{sw}w+{dw}kw) * k(o,c,kh,kw)"
IMAGE, FILTERS = (2, 3, 11, 9), (4, 3, 3, 2)
RECOGNISED = {
    "convolution": (
        f"def f(float(N,C,H,W) x, float(O,C,KH,KW) k) -> (y) {{ {CONV.format(sh='', dh='', sw='', dw='')} }}",
        (IMAGE, FILTERS),
        {"conv": {"strides": (1, 1), "dilations": (1, 1), "group": 1}},
    ),
    "with strides and dilations, its filters first": (
        "def f(float(O,C,KH,KW) k, float(N,C,H,W) x) -> (y) { y(n,o,h,w) +=! k(o,c,kh,kw) * x(n,c,2*h+3*kh,w*3+kw) }",
        (FILTERS, IMAGE),
        {"conv": {"strides": (2, 3), "dilations": (3, 1), "group": 1}},
    ),
    "with strides that are passed": (
        "def f(int s, float(N,C,H) x, float(O,C,K) k) -> (y) { y(n,o,h) +=! x(n,c,s*h+k1) * k(o,c,k1) }",
        (2, (2, 3, 11), (4, 3, 3)),
        {"conv": {"strides": (2,)}},
    ),
    "in groups": (
        "def f(float(N,G,C,H,W) x, float(G,O,C,KH,KW) k) -> (y) {"
        " y(n,g,o,h,w) +=! x(n,g,c,h+kh,w+kw) * k(g,o,c,kh,kw) }",
        ((1, 2, 3, 6, 6), (2, 4, 3, 3, 3)),
        {"reshape": {}, "conv": {"group": 2}},
    ),
    "of channels apart": (
        "def f(float(N,C,H,W) x, float(C,KH,KW) k) -> (y) { y(n,c,h,w) +=! x(n,c,h+kh,w+kw) * k(c,kh,kw) }",
        ((1, 3, 6, 6), (3, 3, 3)),
        {"reshape": {}, "conv": {"group": 3}},
    ),
    "of channels last": (
        "def f(float(N,H,W,C) x, float(O,KH,KW,C) k) -> (y) { y(n,h,w,o) +=! x(n,h+kh,w+kw,c) * k(o,kh,kw,c) }",
        ((1, 6, 6, 3), (4, 3, 3, 3)),
        {"transpose": {}, "conv": {}},
    ),
    "of one axis alone, its filter turned round": (
        "def f(float(M) x, float(K) w) -> (y) { y(i) +=! x(i+k) * w(K-1-k) }",
        ((9,), (3,)),
        {"slice": {}, "reshape": {}, "conv": {"strides": (1,)}},
    ),
    "the largest of windows": (
        "def f(float(N,C,H,W) x) -> (y) { y(n,c,i,j) max=! x(n,c,2*i+a,2*j+b) where a in 0:3, b in 0:2 }",
        ((2, 3, 9, 8),),
        {"max_pool": {"kernel": (3, 2), "strides": (2, 2)}},
    ),
    "the mean of windows": (
        "def f(float(N,C,H) x) -> (y) { y(n,c,i) +=! x(n,c,2*i+a) / 2 where a in 0:2 }",
        ((2, 3, 9),),
        {"avg_pool": {"kernel": (2,), "strides": (2,)}, "mul": {}, "div": {}},
    ),
    "rows of a table": (
        "def f(float(V,D) t, int64(B,L) ids) -> (y) { y(b,l,d) = t(ids(b,l), d) }",
        ((7, 3), np.array([[1, 0], [6, 2]])),
        {"gather": {"axis": 0}},
    ),
    "columns of a table": (
        "def f(float(D,V) t, int(B) ids) -> (y) { y(b,d) = t(d, ids(b)) }",
        ((3, 7), np.array([5, 6], np.int32)),
        {"gather": {"axis": 1}, "transpose": {}},
    ),
    "sums": (
        "def f(float(A,B,C) x) -> (y) { y(b) +=! x(a,b,c) }",
        ((2, 3, 4),),
        {"reduce_sum": {"axes": (0, 2)}, "reshape": {}},
    ),
    "the largest number of a row": (
        "def f(float(A,B) x) -> (y) { y(a) max=! x(a,b) }",
        ((2, 3),),
        {"reduce_max": {"axes": (1,)}, "reshape": {}},
    ),
    "three factors": (
        "def f(float(A,B) u, float(B,C) v, float(C) w) -> (r) { r(a) +=! 2 * u(a,b) * v(b,c) * w(c) }",
        ((2, 3), (3, 4), (4,)),
        {"einsum": {"equation": "ab,bc,c->a"}, "mul": {}},
    ),
}


def graph_with(text: str, given: tuple[Any, ...]) -> tuple[Graph, dict[str, Any], Any]:
    """The graph of a function of arrays, shapes of arrays, and integers; its inputs and its result."""
    (function,) = eqsat.comprehension(text).values()
    rng, g = np.random.default_rng(0), eqsat.Graph("recognised")
    arguments = [rng.standard_normal(one).astype("f") if isinstance(one, tuple) else one for one in given]
    feeds, operands = {}, []
    for one, value in zip(function.scope.function.parameters, arguments, strict=True):
        if isinstance(value, np.ndarray):
            feeds[one.name] = value
            value = g.input(one.name, value.shape, str(value.dtype))
        operands.append(value)
    g.output("y", function(*operands))
    return g.build(), feeds, function(*arguments)


@pytest.mark.parametrize(("text", "given", "operators"), RECOGNISED.values(), ids=RECOGNISED)
def test_library_operators_are_recognised_by_their_subscripts(text, given, operators):
    graph, feeds, expected = graph_with(text, given)
    standard = written(graph)
    computed = [node for node in standard.nodes if node.inputs and node.op not in ("identity",)]
    assert {node.op for node in computed} == {*operators}
    for node in computed:
        asked = operators[node.op]
        assert {name: node.attrs[name] for name in asked} == asked
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_allclose(execute(standard, feeds, backend)["y"], expected, rtol=1e-5, atol=1e-5)


NEAR_MISSES = {
    "a sum, no product": "def f(float(N,C,H) x, float(O,C,K) k) -> (y) { y(n,o,h) +=! x(n,c,h+j) + k(o,c,j) }",
    "the largest product": "def f(float(N,C,H) x, float(O,C,K) k) -> (y) { y(n,o,h) max=! x(n,c,h+j) * k(o,c,j) }",
    "a place that is taken off": "def f(float(N,C,H) x, float(O,C,3) k) -> (y) {"
    " y(n,o,h) +=! x(n,c,h-j+2) * k(o,c,j) where h in 0:H-2 }",
    "filters that vary from place to place": "def f(float(N,C,H) x, float(O,C,H,3) k) -> (y) {"
    " y(n,o,h) +=! x(n,c,h+j) * k(o,c,h,j) where h in 0:H-2 }",
    "fewer windows than fit": "def f(float(N,C,H) x, float(O,C,3) k) -> (y) {"
    " y(n,o,h) +=! x(n,c,h+j) * k(o,c,j) where h in 0:H-3 }",
    "a part of a filter": "def f(float(N,C,H) x, float(O,C,3) k) -> (y) {"
    " y(n,o,h) +=! x(n,c,h+j) * k(o,c,j) where j in 0:2, h in 0:H-2 }",
    "windows that all begin behind the first": "def f(float(N,C,H) x, float(O,C,3) k) -> (y) {"
    " y(n,o,h) +=! x(n,c,h+j+1) * k(o,c,j) }",
    "one window in two axes": "def f(float(N,H,H) x, float(O,3) k) -> (y) {"
    " y(n,o,h) +=! x(n,h+j,h+j) * k(o,j) where h in 0:H-2 }",
    "a border on one side that another number fills": "def f(float(N,C,H) x, float(O,C,3) k) -> (y) {"
    " y(n,o,h) +=! h > 0 ? x(n,c,h+j-1) * k(o,c,j) : 0 where h in 0:H-1, j in 0:3 }",
    "a condition that is no test of bounds": "def f(float(N,C,H) x, float(O,C,3) k) -> (y) {"
    " y(n,o,h) +=! h != 2 ? x(n,c,h+j) * k(o,c,j) : 0 }",
    "the product of windows": "def f(float(N,C,H) x) -> (y) { y(n,c,i) *=! x(n,c,i+a) where a in 0:2 }",
}


@pytest.mark.parametrize("text", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses_are_no_convolutions_and_compute_what_they_say(text):
    shapes = {"H,H)": (2, 6, 6), "(O,C,H,3)": (2, 3, 6, 3), "(O,3)": (2, 3), "(O,C,K)": (2, 3, 3), "(O,C,3)": (2, 3, 3)}
    first = (2, 6, 6) if "float(N,H,H)" in text else (2, 3, 6)
    second = next((shape for mark, shape in shapes.items() if mark != "H,H)" and f"float{mark}" in text), None)
    graph, feeds, expected = graph_with(text, (first,) if second is None else (first, second))
    standard = written(graph)
    assert not {node.op for node in standard.nodes} & {"conv", "max_pool", "avg_pool", *(n.op for n in graph.nodes)}
    np.testing.assert_allclose(execute(standard, feeds, "numpy")["y"], expected, rtol=1e-5, atol=1e-5)


WHOLE = {
    "softmax": (
        """def f(float(M,N) x) -> (y) {
          m(i) max=! x(i,j)
          e(i,j) = exp(x(i,j) - m(i))
          s(i) +=! e(i,j)
          y(i,j) = e(i,j) / s(i) }""",
        ((8, 16),),
        {"softmax"},
    ),
    "layer normalisation": (
        """def f(float(R,S) x, float(S) g, float(S) b) -> (y) {
          mean(r) +=! x(r,s) / S
          var(r) +=! d * d / S where d = x(r,s) - mean(r)
          y(r,s) = (x(r,s) - mean(r)) / sqrt(var(r) + 0.00001) * g(s) + b(s) }""",
        ((8, 16), (16,), (16,)),
        {"layer_norm"},
    ),
    "a layer of a perceptron": (
        """def f(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
          y(n,o) +=! x(n,i) * w(o,i)
          y(n,o) = fmax(y(n,o) + b(o), 0) }""",
        ((4, 8), (6, 8), (6,)),
        {"gemm", "relu"},
    ),
    "a padded convolution with bias and relu": (
        """def f(float(N,C,H,W) x, float(O,C,3,3) k, float(O) b) -> (y) {
          y(n,o,h,w) +=! 0 < h+i && h+i <= H && 0 < w+j && w+j <= W ? x(n,c,h+i-1,w+j-1) * k(o,c,i,j) : 0
            where h in 0:H, w in 0:W, i in 0:3, j in 0:3
          y(n,o,h,w) = fmaxf(y(n,o,h,w) + b(o), 0) }""",
        ((1, 3, 8, 8), (4, 3, 3, 3), (4,)),
        {"conv"},
    ),
}


@pytest.mark.parametrize(("text", "given", "operators"), WHOLE.values(), ids=WHOLE)
def test_layers_that_are_spelled_out_become_the_operators_of_the_library(text, given, operators):
    graph, feeds, expected = graph_with(text, given)
    result = eqsat.optimize(graph, measure=False, strict=True)
    # Of two that cost the same, either may be chosen.
    made = {"relu" if node.op == "maximum" else node.op for node in result.graph.nodes}
    assert made == operators
    np.testing.assert_allclose(result(**feeds)["y"], expected, rtol=1e-4, atol=1e-4)


#: Functions of which small sizes and scalars do not show all: arguments, and what they are.
LARGE = {
    "a range that ends at a number": ("def f(float(N) x) -> (y) { y(i) = x(i) where i in 0:min(N,12) }", ((30,),)),
    "a place that moves from 10 on": ("def f(float(N) x) -> (y) { y(i) = x(i + N/10) where i in 0:N-N/10 }", ((30,),)),
    "a step that grows from 10 on": (
        "def f(float(N) x) -> (y) { y(i) = x(i*(N/10+1)) where i in 0:N/(N/10+1) }",
        ((30,),),
    ),
    "a condition that ends at a number": (
        "def f(float(N) x) -> (y) { y(i) = i < 20 ? x(i) : 0 where i in 0:N }",
        ((30,),),
    ),
    "a condition on a quotient": ("def f(float(N) x) -> (y) { y(i) = i >= N/10 ? x(i) : 0 where i in 0:N }", ((30,),)),
    "a sum of some": ("def f(float(N,M) x) -> (y) { y(i) +=! x(i,j) where j in 0:min(M,10) }", ((3, 30),)),
    "some of the windows": (
        "def f(float(N,C,H) x, float(O,C,3) k) -> (y) { y(n,o,h) +=! x(n,c,h+j) * k(o,c,j) where h in 0:min(H-2,10) }",
        ((1, 2, 30), (2, 2, 3)),
    ),
    "some of a pool": ("def f(float(N) x) -> (y) { y(i) max=! x(2*i+a) where a in 0:2, i in 0:min(N/2,8) }", ((30,),)),
    "a scalar that decides": ("def f(int s, float(N) x) -> (y) { y(i) = s < 4 ? x(i) : 7 where i in 0:N }", (5, (6,))),
    "a scalar beside a test of bounds": (
        "def f(int s, float(N) x) -> (y) { y(i) = s > -4 && i > 0 ? x(i-1) : 0 where i in 0:N }",
        (-7, (6,)),
    ),
    "quotients of integers": ("def f(float(N,K) x, float(K) w) -> (y) { y(i) +=! x(i,k)*w(k)*(3/2) }", ((3, 4), (4,))),
    "a quotient before": ("def f(float(N,K) x, float(K) w) -> (y) { y(i) +=! 7/2 * x(i,j)*w(j) }", ((3, 4), (4,))),
    "a quotient of windows": ("def f(float(N) x) -> (y) { y(i) +=! x(i+a) * (3/2) where a in 0:2 }", ((6,),)),
    "windows of nothing": (
        "def f(float(N,C,H) x, float(O,C,K) k) -> (y) { y(n,o,h) +=! x(n,c,h+j) * k(o,c,j) }",
        ((1, 2, 6), (2, 2, 0)),
    ),
    "as many windows as a scalar says, none": (
        "def f(int s, float(N) x) -> (y) { y(i) +=! x(i+a) / s where a in 0:s }",
        (0, (9,)),
    ),
    "windows of nothing, moved": ("def f(float(N) x, float(K) w) -> (y) { y(i) +=! x(i+k) * w(k) * k }", ((6,), (0,))),
    "rows that a statement defines": (
        "def f(float(N,M) x) -> (float(N,M) y) { y(i,j) = 0  y(i,j) = x(i-1,j) where i in 1:N }",
        ((4, 3),),
    ),
    "rows that two statements define": (
        "def f(float(N) x) -> (float(N) y) { y(i) = x(i) where i in 0:1  y(i) = x(i-1)*2 where i in 1:N }",
        ((5,),),
    ),
    "windows over a temporary": (
        "def f(float(N,C,H) x, float(O,C,K) w) -> (y) { t(n,c,h) = exp(x(n,c,h))  y(n,o,h) +=! t(n,c,h+k) * w(o,c,k) }",
        ((2, 3, 6), (2, 3, 2)),
    ),
    "windows over what is the same all along": (
        "def f(float(N,H) x) -> (y) {"
        " t(n) +=! x(n,h)  u(n,h) = t(n) where h in 0:H  y(n,h) max=! u(n,2*h+k) where k in 0:2 }",
        ((3, 6),),
    ),
    "a stem": (
        "def f(float(N,C,H,W) x, float(O,C,7,7) k) -> (y) { y(n,o,h,w) +=! x(n,c,2*h+i,2*w+j) * k(o,c,i,j) }",
        ((1, 3, 16, 16), (4, 3, 7, 7)),
    ),
    "a far place": ("def f(float(N) x) -> (y) { y(i) = x(i+9) }", ((20,),)),
    "places that elements name, moved": (
        "def f(float(N) x, int(M) p) -> (y) { y(i) = x(p(i)-1) + x(p(i)+2) }",
        ((9,), np.array([1, 6, 3], np.int32)),
    ),
    "places of narrow integers": (
        "def f(float(N) x, int8(M) p) -> (y) { y(i) = x(p(i)*p(i)) }",
        ((200,), np.array([14, 3], np.int8)),
    ),
    "indices that wrap": (
        "def f(int(N) x) -> (y) { y(i) = i*1000000000 > 0 ? x(i) : 0 where i in 0:N }",
        (np.arange(1, 6, dtype=np.int32),),
    ),
    "a scalar that may be 0 alone": ("def f(int s, float(N) x) -> (y) { y(i) = x(i-s) where i in s:N }", (0, (6,))),
    "sizes that are seldom drawn": ("def f(float(N) x) -> (y) { y(i) = x(i) where i in 0:N*(N/300) }", ((300,),)),
    "a range that a scalar cuts": (
        "def f(int s, float(N) x, float(K) w) -> (y) { y(i) +=! x(s*i+k) * w(k) where i in 0:3 }",
        (2, (7,), (6,)),
    ),
    "a quotient beside a scalar": (
        "def f(int s, float(N) x, float(K) w) -> (y) { y(i) +=! x(s*i + k + N/30) * w(k) }",
        (2, (40,), (3,)),
    ),
    "a range of a quotient beside a scalar": (
        "def f(int s, float(N) x) -> (y) { y(i) = x(s*i) + x(i) where i in 0:N/30+3 }",
        (2, (70,)),
    ),
    "a scalar that is called xp": ("def f(int xp, float(N) x) -> (y) { y(i) = x(i) * xp }", (3, (4,))),
    "a scalar with the name of a keyword": ("def f(int lambda, float(N) x) -> (y) { y(i) = x(i) * lambda }", (3, (4,))),
    "numbers by a condition": (
        "def f(bool(N) x) -> (y) { y(i) = x(i) ? 1.5 : 0 }",
        (np.array([True, False, True]),),
    ),
    "a number by a condition on numbers": (
        "def f(float(N) x) -> (y) { y(i) = x(i) + 7 / 2.0 + (1 < 2 ? 3 : 4) + -3 / 2 + 5 % 3 }",
        ((5,),),
    ),
    "a literal of a narrow type": (
        "def f(half(N) x) -> (double(N) y) { y(i) = x(i) * x(i) * 1.1 }",
        (np.array([0.5, 3, 1.25], np.float16),),
    ),
    "a scalar without a sign": ("def f(uint8 s, float(N) x) -> (y) { y(i) = x(i) * s }", (3, (4,))),
    "a factor that is the same in a sum": (
        "def f(float(A,B) u, float(B,A) v) -> (y) { y(a) +=! u(a,b)*v(b,a)*u(a,0) }",
        ((2, 3), (3, 2)),
    ),
    "a logarithm": ("def f(float(N) x) -> (y) { y(i) = log(x(i) * x(i) + 1) + sqrt(fabs(x(i))) }", ((5,),)),
}


@pytest.mark.parametrize(("text", "given"), LARGE.values(), ids=LARGE)
def test_what_small_sizes_do_not_show_is_told_from_formulas(text, given):
    graph, feeds, expected = graph_with(text, given)
    for made in (graph, written(graph), eqsat.optimize(graph, measure=False, strict=True).graph):
        results = execute(made, feeds, "numpy")["y"]
        assert (results.dtype, results.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(results, expected, rtol=1e-5, atol=1e-6)


def test_functions_run_on_other_devices_by_their_definitions_or_on_kernels_of_their_own():
    text, given, operators = WHOLE["a padded convolution with bias and relu"]
    graph, feeds, expected = graph_with(text, given)
    np.testing.assert_allclose(execute(written(graph), feeds, "openvino")["y"], expected, rtol=1e-4, atol=1e-4)
    plan = eqsat.optimize(graph, device="nvidia-h200", measure=False, strict=True)
    assert {node.op for node in plan.graph.nodes} == operators
    assert [launch.label for launch in plan.gpu_program().launches] == ["conv"]
    kept = eqsat.optimize(graph, device="nvidia-h200", rules=[], measure=False)
    assert [node.op for node in kept.graph.nodes] == [graph.nodes[0].op]
    (launch,) = kept.gpu_program().launches
    assert (launch.kind, launch.label) == ("generated", graph.nodes[0].op)


REFUSED = {
    "a range that a caller moves": (
        "def f(float(N) x, int s) -> (y) { y(i) = x(i-s) where i in s:N }",
        ((6,), 0),
        "a range that integer scalars decide",
    ),
    "a function that no operator computes": (
        "def f(float(N) x) -> (y) { y(i) = lgamma(x(i)) }",
        ((5,),),
        "lgamma, which no operator computes",
    ),
}


@pytest.mark.parametrize(("text", "given", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_definition_says_why_it_is_not_written_to_onnx(text, given, reason):
    graph, _, _ = graph_with(text, given)
    with pytest.raises(ExportModelError, match=reason):
        to_model(written(graph))


STEPS = "def f(float(N) x, int s, int at) -> (y) { y(i) = x(s * i + at) }"


@pytest.mark.parametrize("step", [-9, -3, -1, 1, 2, 9])
def test_a_step_that_is_passed_is_one_of_a_slice(step):
    for size, at in ((1, 0), (7, 0), (7, 1), (7, 5), (7, 6)):
        graph, feeds, expected = graph_with(STEPS, ((size,), step, at))
        standard = written(graph)
        assert {node.op for node in standard.nodes} == {"slice"}
        np.testing.assert_array_equal(expected, feeds["x"][at::step])
        np.testing.assert_array_equal(execute(standard, feeds, "onnxruntime")["y"], expected)


CHOSEN = {
    "inside a condition of elements": (
        "def f(float(N) x, int(M) p) -> (y) { y(i) = p(i) > 0 && p(i) < N && x(p(i)) > 0 ? x(p(i)) : -1 }",
        ((5,), np.array([0, 7, -3, 4, 2, 1], np.int32)),
    ),
    "where one does not hold": (
        "def f(float(N) x, int(M) p) -> (y) { y(i) = p(i) < 0 || p(i) >= N ? 2 : x(p(i)) }",
        ((5,), np.array([-5, 9, 0, 4], np.int32)),
    ),
    "along an axis that it does not subscript": (
        "def f(float(N,M) x, int(B) p, bool(B,M) m) -> (y) { y(b,j) = m(b,j) ? x(p(b),j) : 0 }",
        ((4, 3), np.array([3, 0], np.int32), np.array([[True, False, True], [True, False, False]])),
    ),
    "of indices that elements keep inside": (
        "def f(float(N) x, int(N) p) -> (y) { y(i) = p(i) > 0 ? x(i + p(i) - 1) + x(i + 1) : 0 }",
        ((4,), np.array([1, 2, 1, 0], np.int32)),
    ),
    "one that its condition lets pass is asked for as it is": (
        "def f(float(N) x, int(M) p) -> (y) { y(i) = p(i) > 0 ? x(p(i)) : 0 }",
        ((5,), np.array([4, -7], np.int32)),
    ),
}


@pytest.mark.parametrize(("text", "given"), CHOSEN.values(), ids=CHOSEN)
def test_places_that_elements_name_are_looked_at_where_their_condition_holds(text, given):
    graph, feeds, expected = graph_with(text, given)
    standard = written(graph)
    assert not {node.op for node in standard.nodes} & {node.op for node in graph.nodes}
    for backend in ("numpy", "onnxruntime"):
        np.testing.assert_array_equal(execute(standard, feeds, backend)["y"], expected)
    for rule in stated_laws([operator_of(eqsat.comprehension(text).f)]):
        assert check(rule, Effort(numeric=24, symbolic=6, turned=0, questions=0)).verdict != "refuted", rule.text


def test_a_place_out_of_bounds_is_an_error_where_a_condition_lets_it_pass():
    text, _ = CHOSEN["one that its condition lets pass is asked for as it is"]
    graph, feeds, _ = graph_with(text, ((5,), np.array([4, -7], np.int32)))
    feeds["p"] = np.array([4, 5], np.int32)
    with pytest.raises(BackendError):
        execute(written(graph), feeds, "onnxruntime")


def test_tensors_that_are_updated_are_operands_that_may_be_left_out():
    text = "def f(float(N) x) -> (a, b) { a(i) += x(i)  b(i) max= x(i) }"
    function = eqsat.comprehension(text).f
    x, b = np.array([1, -2, 3], np.float32), np.array([5, -5, 0], np.float32)
    for more in ({}, {"a": b}, {"b": b}, {"a": b, "b": x}):
        graph, feeds = graph_of_call(function, [x], more)
        expected = function(x, **{name: array.copy() for name, array in more.items()})
        check_equal(ordered(execute(graph, feeds, "numpy")), expected)
        standard = written(graph)
        # A law names the first of those that are passed, not the second alone.
        assert {"f"} & {node.op for node in standard.nodes} == ({"f"} if [*more] == ["b"] else set())
        check_equal(ordered(execute(standard, feeds, "numpy")), expected)


def test_a_tensor_to_be_updated_has_the_shape_of_the_result():
    function = eqsat.comprehension("def f(float(N) x) -> (m) { m(i) max= x(i) }").f
    g = eqsat.Graph("wrong")
    with pytest.raises(eqsat.EqsatError, match=r"m of float32\[4\]"):
        function(g.input("x", (3,)), m=g.input("m", (4,)))


def test_a_function_whose_definition_is_longer_than_rules_are_takes_part_without():
    text = """def f(float(N) x, float(N,M) z, int(P) p) -> (y) {
      y(i) = (N-1-i >= 0 && N-1-i < N && (N-2)/2+i >= 0 && (N-2)/2+i < M ? z(N-1-i,(N-2)/2+i) : x(0)) > 0
        ? (i%3 < N ? x(i%3) : 0) : (i < P && p(i) >= 0 && p(i) < N ? x(p(i)) : 0) where i in 0:N }"""
    graph, feeds, expected = graph_with(text, ((7,), (7, 2), np.array([0, 1, -1, 9, 2, 3, 4], np.int32)))
    assert [node.op for node in written(graph).nodes] == ["f"]
    result = eqsat.optimize(graph, measure=False, cache=False)
    np.testing.assert_allclose(execute(result.graph, feeds, "numpy")["y"], expected)


def test_a_function_whose_laws_cannot_be_looked_at_takes_part_without_them():
    """Its scalar has the name of an attribute that samples of rules give a value of their own."""
    graph, feeds, expected = graph_with("def f(int dtype, float(N) x) -> (y) { y(i) = x(i) * dtype }", (3, (4,)))
    with pytest.warns(EvidenceWarning, match="laws of 'f' could not be settled"):
        result = eqsat.optimize(graph, measure=False)
    np.testing.assert_allclose(execute(result.graph, feeds, "numpy")["y"], expected)


def test_sizes_that_are_numbers_are_known_where_a_function_is_written_out():
    (function,) = eqsat.comprehension("def f(float(N,M) x) -> (y) { y(i,j) = x(i,j) / N }").values()
    g = eqsat.Graph("named")
    g.output("y", function(g.input("x", ("batch", 4))))
    assert [node.op for node in written(g.build()).nodes] == ["f"]


def test_windows_that_do_not_fit_leave_a_function_as_it_is():
    text = "def f(int s, float(M) x, float(K) w) -> (y) { y(i) +=! x(s*i+k) * w(k) }"
    fits, _, _ = graph_with(text, (2, (5,), (5,)))
    assert "conv" in {node.op for node in written(fits).nodes}
    g = eqsat.Graph("long")
    g.output("y", eqsat.comprehension(text).f(2, g.input("x", (3,)), g.input("w", (5,))))
    assert {node.op for node in written(g.build()).nodes} == {"f"}


def test_nan_is_passed_over_where_elements_may_be_none_and_not_asked_about_where_they_are_finite():
    text = "def f(float(N) x) -> (y) { y(i) = fmax(x(i), 0) }"
    graph, _, _ = graph_with(text, ((3,),))
    feeds = {"x": np.array([np.nan, -1, 2], np.float32)}
    np.testing.assert_array_equal(execute(written(graph), feeds, "onnxruntime")["y"], [0, 0, 2])
    plain = eqsat.optimize(graph, measure=False)
    assert [node.op for node in plain.graph.nodes] == ["relu"]
    kept = eqsat.optimize(graph, measure=False, finite_math=False)
    np.testing.assert_array_equal(kept(**feeds)["y"], [0, 0, 2])


def test_named_dims_stay_names_in_what_is_written():
    text = "def f(float(B,S) x) -> (y) { m(i) max=! x(i,j)  y(i,j) = exp(x(i,j) - m(i)) }"
    (function,) = eqsat.comprehension(text).values()
    g = eqsat.Graph("named")
    g.output("y", function(g.input("x", ("batch", 5))))
    model = to_model(written(g.build()))
    assert [node.op_type for node in model.graph.node] == ["ReduceMax", "Sub", "Exp"]


@pytest.mark.parametrize("program", GRAPHS, ids=named)
def test_no_definition_and_no_law_of_order_is_false(program):
    for rule in stated_laws([operator_of(program.function)]):
        assert check(rule, Effort(numeric=24, symbolic=6, turned=0, questions=0)).verdict != "refuted", rule.text
