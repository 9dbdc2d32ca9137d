"""Comprehensions in graphs: operators with laws of their own, recognised, written to ONNX and computed."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import onnxruntime as ort
import pytest

import eqsat
from eqsat.errors import ShapeError
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.declaration import registry
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.ops import OPS
from eqsat.language.terms import DType, TensorType
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.definitions import expanded
from eqsat.rewrites.rules.derive import derived_laws, stated_laws
from eqsat.rewrites.rules.evidence import rule_hash
from eqsat.runtime.backend import execute

#: What the laws of a declaration are put to when rules are loaded.
AS_LOADED = Effort(numeric=24, symbolic=6, turned=0)
PRODUCT = "def product({0} A, {1} B) -> (C) {{ C(m,n) +=! {2} }}"
#: Factors of a product of matrices by the order of their indices, either way round.
LAYOUTS = {"mk": ("float(M,K)", "A(m,k)"), "km": ("float(K,M)", "A(k,m)")}
RIGHT = {"kn": ("float(K,N)", "B(k,n)"), "nk": ("float(N,K)", "B(n,k)")}


@pytest.fixture(autouse=True)
def forgotten():
    """Operators that a test declares are gone after it."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        registry.forget(name)


def spellings():
    """Products of matrices: either factor turned, in either order, by other names of indices."""
    for left, right, turned in itertools.product(LAYOUTS, RIGHT, (False, True)):
        (type_a, a), (type_b, b) = LAYOUTS[left], RIGHT[right]
        yield f"{left}-{right}-{turned}", PRODUCT.format(type_a, type_b, f"{b} * {a}" if turned else f"{a} * {b}")
    for name, (type_a, a) in LAYOUTS.items():
        for outer, (type_b, b) in RIGHT.items():
            text = PRODUCT.format(type_a, type_b, f"{a} * {b}").replace("m,", "row,").replace(",m", ",row")
            yield f"{name}-{outer}-renamed", text.replace("n)", "column)").replace("n,", "column,")


def graph_of(text: str, **shapes) -> eqsat.Graph:
    (function,) = eqsat.comprehension(text).values()
    g = eqsat.Graph("spelled")
    g.output("y", function(*(g.input(name, shape) for name, shape in shapes.items())))
    return g.build()


def drawn(graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(graph.type(name).dims).astype(np.float32) for name in graph.inputs}


@pytest.mark.parametrize(("number", "text"), list(enumerate(dict(spellings()).values())), ids=dict(spellings()))
def test_matrix_products_are_recognised_in_any_spelling(number, text):
    """Any other way to compute them is said to be dear."""
    name = f"product{number}"
    text = text.replace("product", name)
    turned_a, turned_b = "float(K,M)" in text, "float(N,K)" in text
    graph = graph_of(text, A=(48, 64) if turned_a else (64, 48), B=(32, 48) if turned_b else (48, 32))
    standard = expanded(graph, [name])
    registry.forget(name)
    result = eqsat.optimize(standard, cost=lambda one: 100.0 if one.op == "einsum" else 1.0, measure=False, strict=True)
    assert {node.op for node in result.graph.nodes} <= {"matmul", "gemm", "transpose"}
    feeds = drawn(graph)
    a, b = (feeds["A"].T if turned_a else feeds["A"]), (feeds["B"].T if turned_b else feeds["B"])
    np.testing.assert_allclose(execute(result.graph, feeds)["y"], a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "equation"),
    [
        ("def f(float(M,K) A, float(M,N) B) -> (C) { C(m,n) +=! A(m,k) * B(m,n) }", "ab,ac->ac"),
        ("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n,k) = A(m,k) * B(k,n) }", "ab,bc->acb"),
        ("def f(float(M,K) A, float(K) b) -> (C) { C(m) +=! A(m,k) * b(k) }", "ab,b->a"),
    ],
)
def test_products_along_other_axes_are_einsums_of_these(text, equation):
    declared = operator_of(eqsat.comprehension(text).f)
    assert declared.laws == (f'f(x0, x1) => einsum(x0, x1, equation="{equation}")',)


@pytest.mark.parametrize(
    "text",
    [
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) + B(k,n) }",
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) max=! A(m,k) * B(k,n) }",
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) where k in 0:1 }",
        "def f(float(M,M) A, float(M,N) B) -> (C) { C(m,n) +=! A(m,m) * B(m,n) }",
        "def f(float(N) A, float(N) B) -> (C) { C(i) = A(N - 1 - i) * B(i) }",
        "def f(float(N) A, float(N) B) -> (C) { C(i) = A(i) * B(i) * 2 }",
        "def f(float(N) A, float(N) B) -> (C) { C(i) += A(i) * B(i) }",
        "def f(int(N) A, int(N) B) -> (C) { C(i) = A(i) * B(i) }",
    ],
)
def test_near_misses_are_no_einsums_of_what_they_read(text):
    assert not [law for law in operator_of(eqsat.comprehension(text).f).laws if "einsum(x0, x1," in law]


LINEAR = {
    "def f(float(N) x, float(N) y) -> (z) { z(i) = x(i) * y(i) + y(i) }": {1},
    "def f(float(M) I, float(N) K) -> (O) { O(i) +=! K(x) * I(i + x) }": {0, 1},
    "def f(float(N) x, int(N) p) -> (z) { z(i) = x(p(i)) / 2 }": {0},
    "def f(float(N) x, bool(N) c) -> (z) { z(i) = c(i) ? x(i) : 0 }": {0},
    "def f(float(N) x) -> (z) { z(i) = x(i) > 0 ? x(i) : 0 }": set(),
    "def f(float(N) x) -> (z) { z(i) = x(i) + 1 }": set(),
    "def f(float(N) x) -> (z) { z(i) = exp(x(i)) }": set(),
    "def f(float(N) x) -> (z) { z(i) = float(int(x(i))) }": set(),
    "def f(int(N) x) -> (z) { z(i) = x(i) / 2 }": set(),
    "def f(int(N) x, int(N) y) -> (z) { z(i) = 3 * x(i) % 4 + 0 * y(i) }": set(),
    "def f(float(N,M) x) -> (z) { z(i) max=! x(i,k) }": set(),
    "def f(float(N,M) x) -> (z) { z(i) *=! x(i,k) }": set(),
    "def f(float(N) x) -> (z) { t(i) = x(i) * 3 z(i) = t(i) - x(i) }": {0},
    "def f(float(N) x) -> (z) { t(i) = x(i) * 3 z(i) = t(i) * x(i) }": set(),
    "def f(float(N) x, float a) -> (z) { z(i) = a * x(i) }": {0, 1},
}


@pytest.mark.parametrize(("text", "places"), LINEAR.items())
def test_linearity_is_read_off_the_text_and_no_law_of_it_is_false(text, places):
    declared = operator_of(eqsat.comprehension(text).f)
    assert declared.multilinear == places
    laws = [*stated_laws([declared]), *derived_laws([declared])][:8]
    assert not [rule.text for rule in laws if check(rule, AS_LOADED).verdict == "refuted"]


def test_a_convolution_computes_the_same_in_a_graph_and_by_itself():
    strided = eqsat.comprehension(
        """def sconv2d(int sh, int sw, float(N,C,H,W) I, float(F,C,KH,KW) W, float(F) B) -> (O) {
          O(n,f,h,w) = B(f)
          O(n,f,h,w) += I(n,c, sh * h + kh, sw * w + kw) * W(f,c,kh,kw)
        }"""
    ).sconv2d
    g = eqsat.Graph("strided")
    given = [g.input("i", (1, 3, 9, 8)), g.input("w", (4, 3, 3, 2)), g.input("b", (4,))]
    y = strided(2, 3, *given)
    assert y.shape == (1, 4, 4, 3)
    g.output("y", y)
    graph = g.build()
    feeds = drawn(graph)
    expected = strided(2, 3, feeds["i"], feeds["w"], feeds["b"])
    np.testing.assert_allclose(execute(graph, feeds, "numpy")["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        "y(i) = (x(i) > 0) == c(i) ? x(i) : -x(i)",
        "y(i) = !c(i) || x(i) >= 1 ? 1 : x(i) / 2",
        "y(i) = x((i + 1) % N) + i where i in 0:N",
        "y(i) = i > 0 && i < 3 ? x(i - 1) : 0.5 where i in 0:N",
        "y(i) = fmaxf(x(i), 0) + max(x(i), -1) * pow(fabs(x(i)), 2)",
        "y max=! x(i)",
        "y(i) = float(c(i)) * float(i / 2)  y(i) = 7 where i in 1:2",
    ],
)
def test_operators_of_graphs_compute_what_calls_do(body):
    function = eqsat.comprehension(f"def f(float(N) x, bool(N) c) -> (y) {{ {body} }}").f
    g = eqsat.Graph("computed")
    g.output("y", function(g.input("x", (6,)), g.input("c", (6,), "bool")))
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal(6).astype("f"), "c": rng.random(6) < 0.5}
    made = execute(g.build(), feeds, "numpy")["y"]
    expected = function(feeds["x"], feeds["c"])
    assert made.dtype == expected.dtype
    np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_parts_define_a_result_together_in_graphs_too():
    text = "def f(float(N) x) -> (float(N) y) { y(i) = x(i) where i in 0:2 y(i) = 1 where i in 2:N }"
    graph = graph_of(text, x=(5,))
    feeds = drawn(graph)
    expected = eqsat.comprehension(text).f(feeds["x"])
    np.testing.assert_array_equal(execute(graph, feeds, "numpy")["y"], expected)


def test_fmax_passes_over_nan_in_graphs_too():
    graph = graph_of("def f(float(N) x) -> (y) { y(i) = fmaxf(x(i), 0) + fmin(x(i), 2) }", x=(3,))
    made = execute(graph, {"x": np.array([np.nan, -1, 3], np.float32)}, "numpy")["y"]
    np.testing.assert_array_equal(made, [2, -1, 5])


def test_functions_of_one_name_that_differ_in_other_names_are_operators_of_their_own():
    texts = [f"def f(float(N) {one}) -> (y) {{ y(i) = {one}(i) * 2 }}" for one in ("a", "b", "c")]
    assert len({operator_of(eqsat.comprehension(text).f).name for text in texts}) == 3


def test_numbers_that_a_scalar_does_not_hold_are_refused_in_graphs_too():
    strided = eqsat.comprehension("def f(int s, float(N) x) -> (y) { y(i) = x(s * i) }").f
    x = eqsat.Graph("strided").input("x", (6,))
    assert strided(2, x).shape == (3,)
    with pytest.raises(ShapeError, match=r"f, s: 2\.7\n  expected a number of int32"):
        strided(2.7, x)


def test_named_dims_stay_names_and_the_model_that_is_written_runs():
    text = "def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
    graph = graph_of(text, A=("batch", 7), B=(3, 7))
    assert [str(dim) for dim in graph.type(graph.outputs["y"]).dims] == ["batch", "3"]
    session = ort.InferenceSession(to_model(expanded(graph, ["tmm"])).SerializeToString())
    a, b = np.ones((5, 7), np.float32), np.ones((3, 7), np.float32)
    np.testing.assert_array_equal(session.run(None, {"A": a, "B": b})[0], a @ b.T)


def test_functions_of_one_name_and_other_texts_share_neither_operators_nor_evidence():
    texts = [f"def f(float(N) x) -> (y) {{ y(i) = x(i) * {factor} }}" for factor in (2, 3)]
    first, second = (operator_of(eqsat.comprehension(text).f) for text in texts)
    assert first.name == "f" and second.name.startswith("f_")
    assert operator_of(eqsat.comprehension(texts[0]).f) is first
    hashes = []
    for text in texts:
        for name in ("f", second.name):
            registry.forget(name)
        declared = operator_of(eqsat.comprehension(text).f)
        hashes.append([rule_hash(rule) for rule in derived_laws([declared])][:1])
    assert hashes[0] != hashes[1]


def test_operands_that_do_not_fit_are_told_with_the_parameter():
    product = eqsat.comprehension("def f(float(M,K) A, float(K) x) -> (C) { C(m) +=! A(m,k) * x(k) }").f
    g = eqsat.Graph("wrong")
    with pytest.raises(ShapeError, match=r"f, x: axis 0 has 4 elements\n  expected K = 3"):
        product(g.input("A", (2, 3)), g.input("x", (4,)))
    with pytest.raises(ShapeError, match=r"f, A: Tensor\('B', float64\[2, 3\]\)\n  expected float32"):
        product(g.input("B", (2, 3), "float64"), g.input("y", (3,)))


WINDOWS = {
    "a stem": "def f(float(N,C,H,W) x, float(O,C,7,7) k) -> (y) { y(n,o,h,w) +=! x(n,c,2*h+i,2*w+j) * k(o,c,i,j) }",
    "three in a row": (
        "def f(float(H) x, float(9) k) -> (y) {"
        " a(i) +=! x(3*i+j) * k(j) b(i) +=! a(2*i+j) * k(j) y(i) +=! b(i+j) * k(j) }"
    ),
}


@pytest.mark.parametrize("text", WINDOWS.values(), ids=WINDOWS)
def test_sizes_are_drawn_that_have_a_place_for_wide_windows(text):
    """Laws of an operator that no instance is found for are left out."""
    declared = operator_of(eqsat.comprehension(text).f)
    rng = Random(0)
    sizes = set()
    for _ in range(40):
        shapes, _ = declared.drawn(rng, (None, None), {})
        (made,) = declared.result_types([TensorType(DType("float32"), shape) for shape in shapes], {})
        sizes.add(made.shape[-1])
        assert 0 not in made.shape
    assert len(sizes) > 2
    assert declared.drawn(rng, ((1,) * len(shapes[0]), None), {}) is None
