"""Functions that one kernel computes in place of several, where that costs less."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import eqsat
from eqsat.language.comprehension.graphs.composition import composed, declare_compositions
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.ops import OPS
from eqsat.runtime.backend import execute

LAYERS = """
def dense(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
  y(n,o) +=! x(n,i) * w(o,i)
  y(n,o) = fmax(y(n,o) + b(o), 0)
}
def rows(float(B,S) z) -> (p) {
  m(r) max=! z(r,s)
  e(r,s) = exp(z(r,s) - m(r))
  t(r) +=! e(r,s)
  p(r,s) = e(r,s) / t(r)
}
def smooth(float(B,N) x) -> (y) { y(b,i) = (x(b,i) + x(b,i+1)) / 2 }
def mean(float(B,N) x) -> (y) { y(b) +=! x(b,i) / N }
def pick(int at, float(B,N) x) -> (y) { y(b) = x(b,at) }
"""


def network(shares: bool = False) -> eqsat.Graph:
    """Two layers and a softmax of functions; the second layer's input is an output too where it `shares`."""
    layers = eqsat.comprehension(LAYERS)
    g = eqsat.Graph("network")
    x = g.input("x", (16, 12))
    for number, (rows, columns) in enumerate(((10, 12), (6, 10))):
        if number and shares:
            g.output("hidden", x)
        x = layers.dense(x, g.input(f"w{number}", (rows, columns)), g.input(f"b{number}", (rows,)))
    g.output("y", layers.rows(x))
    return g.build()


def feeds_of(graph):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(graph.type(name).dims).astype("f") for name in graph.inputs}


@pytest.mark.parametrize(("whole", "operators"), [(1.0, ["dense_dense_rows"]), (99.0, ["dense", "dense", "rows"])])
def test_one_kernel_is_chosen_where_it_costs_less_than_those_it_stands_for(whole, operators):
    graph = network()
    costs = {"dense": 10.0, "rows": 10.0, "dense_dense_rows": whole}
    result = eqsat.optimize(
        graph, device="c-cpu", cost=lambda one: costs.get(one.op, 100.0), measure=False, strict=True
    )
    assert [node.op for node in result.graph.nodes] == operators
    feeds = feeds_of(graph)
    expected = execute(graph, feeds, "numpy")["y"]
    session = ort.InferenceSession(result.to_onnx().SerializeToString())
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(execute(result.graph, feeds, "c")["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("whole", "operators"), [(1.0, ["dense_dense_dense"]), (99.0, ["dense"] * 3)])
def test_three_layers_of_a_perceptron_are_one_kernel_where_that_costs_less(whole, operators):
    layers = eqsat.comprehension(LAYERS)
    g = eqsat.Graph("mlp3")
    x = g.input("x", (128, 20))
    for number, (rows, columns) in enumerate(((16, 20), (8, 16), (2, 8))):
        x = layers.dense(x, g.input(f"w{number}", (rows, columns)), g.input(f"b{number}", (rows,)))
    g.output("y", x)
    graph = g.build()
    costs = {"dense": 10.0, "dense_dense": 20.0, "dense_dense_dense": whole}
    result = eqsat.optimize(
        graph, device="c-cpu", cost=lambda one: costs.get(one.op, 100.0), measure=False, strict=True
    )
    assert [node.op for node in result.graph.nodes] == operators
    feeds = feeds_of(graph)
    expected = execute(graph, feeds, "numpy")["y"]
    np.testing.assert_allclose(execute(result.graph, feeds, "c")["y"], expected, rtol=1e-5, atol=1e-5)


def test_what_others_read_is_made_for_them():
    declared = declare_compositions(network(shares=True))
    assert declared == ("dense_rows",)


@pytest.mark.parametrize(
    ("outer", "inner", "shape", "expected"),
    [
        ("mean", "rows", (3, 5), True),
        ("rows", "smooth", (3, 5), True),
        ("pick", "rows", (3, 5), True),
        # N is a number that `mean` divides by, and has no name where `smooth` makes N - 1 elements.
        ("mean", "smooth", (3, 5), False),
        # One has a row where the other takes a matrix.
        ("mean", "mean", (3, 5), False),
    ],
)
def test_functions_are_put_together_where_sizes_have_names(outer, inner, shape, expected):
    layers = eqsat.comprehension(LAYERS)
    first, second = layers[inner], layers[outer]
    made = composed(second, 0, first)
    assert (made is not None) == expected
    if made is not None:
        x = np.random.default_rng(0).standard_normal(shape).astype("f")
        scalars = [2] if outer == "pick" else []
        np.testing.assert_allclose(made(*scalars, x), second(*scalars, first(x)), rtol=1e-6)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("p(float(N) x) -> (double(N) y) { y(i) = x(i)*x(i) }", "q(double(N) x) -> (y) { y(i) = x(i)/3 }"),
        ("p(int8(N) x) -> (int(N) y) { y(i) = x(i) }", "q(int(N) x) -> (y) { y(i) = x(i)*x(i) }"),
        (
            "p(float(N) x) -> (float(N) y) { y(i) = x(i) where i in 0:1  y(i) = 2 * x(i) where i in 1:N }",
            "q(float(N) x) -> (y) { y(i) = x(i)/3 }",
        ),
    ],
    ids=["a wider float", "a wider integer", "defined in parts"],
)
def test_results_of_a_stated_type_or_size_stay_results(inner, outer):
    functions = eqsat.comprehension(f"def {inner}\ndef {outer}")
    assert composed(functions.q, 0, functions.p) is None


def test_compositions_are_declared_once_and_say_what_they_are():
    names = declare_compositions(network())
    assert names == declare_compositions(network()) == ("dense_dense", "dense_rows", "dense_dense_rows")
    assert OPS["dense_rows"].laws == ("rows(dense(x0, x1, x2)) => dense_rows(x0, x1, x2)",)
    assert function_of("dense_rows") is not None and OPS["dense_rows"].index == ""


def region(*, axis: int = 1, bias: tuple[int, ...] = (16, 7), average: bool = False) -> eqsat.Graph:
    """A function of a user's among operators: scaled before, with a bias, a softmax or a mean behind."""
    windows = eqsat.comprehension("def around(float(B,N) x) -> (y) { y(b,i) = x(b,i) * x(b,i) where exists x(b,i) }")
    g = eqsat.Graph("region")
    x = g.input("x", (16, 7))
    y = windows.around(eqsat.exp(x) * g.input("s", (1, 7))) + g.input("b", bias)
    g.output("y", eqsat.reduce_mean(y, axes=(axis,), keepdims=True) if average else eqsat.softmax(y, axis=axis))
    return g.build()


@pytest.mark.parametrize(
    "how",
    [{}, {"axis": 0}, {"bias": (7,)}, {"bias": (16, 1)}, {"average": True}],
    ids=["rows", "columns", "a vector", "a column", "a mean"],
)
def test_operators_around_a_function_go_into_it_and_all_is_one_kernel(how):
    graph = region(**how)
    declared = declare_compositions(graph)
    whole = max(declared, key=len)
    options = {"device": "c-cpu", "measure": False, "strict": True}
    result = eqsat.optimize(graph, cost=lambda one: 1.0 if one.op == whole else 100.0, **options)
    assert [node.op for node in result.graph.nodes] == [whole]
    assert len(graph.nodes) == 5
    feeds = feeds_of(graph)
    expected = execute(graph, feeds, "numpy")["y"]
    np.testing.assert_allclose(execute(result.graph, feeds, "c")["y"], expected, rtol=1e-5, atol=1e-6)
    session = ort.InferenceSession(result.to_onnx().SerializeToString())
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)
    dear = eqsat.optimize(graph, cost=lambda one: 9999.0 if one.op in declared else 1.0, **options)
    assert not {node.op for node in dear.graph.nodes} & {*declared}


def test_operators_alone_are_left_to_the_groups_of_a_program():
    g = eqsat.Graph("plain")
    x = g.input("x", (16, 7))
    g.output("y", eqsat.softmax(eqsat.exp(x) + x, axis=1))
    assert declare_compositions(g.build()) == ()
