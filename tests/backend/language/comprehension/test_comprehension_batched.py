"""Batched products of matrices written as comprehensions: recognised in any order of their axes, where costs say so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import eqsat
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.language.declaration import registry
from eqsat.language.ops import OPS
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import execute

SIZES = {"b": 3, "m": 8, "k": 6, "n": 5}
#: Orders of the axes of both factors and of the result.
ORDERS = list(itertools.product(("bmk", "bkm", "mbk"), ("bkn", "bnk", "kbn"), ("bmn", "mbn")))


@pytest.fixture(autouse=True)
def forgotten():
    """Operators that a test declares are gone after it."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        registry.forget(name)


def text_of(left, right, result):
    extents = [",".join(axes.upper()) for axes in (left, right)]
    subscripts = [",".join(axes) for axes in (left, right, result)]
    return (
        f"def bmm(float({extents[0]}) X, float({extents[1]}) Y) -> (Z) "
        f"{{ Z({subscripts[2]}) +=! X({subscripts[0]}) * Y({subscripts[1]}) }}"
    )


def graph_of(left, right, result):
    g = eqsat.Graph("batched")
    shapes = [[SIZES[axis] for axis in axes] for axes in (left, right)]
    g.output(
        "z", eqsat.comprehension(text_of(left, right, result)).bmm(g.input("x", shapes[0]), g.input("y", shapes[1]))
    )
    return g.build()


def feeds_of(graph):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(graph.type(name).dims).astype(np.float32) for name in graph.inputs}


@pytest.mark.parametrize(("left", "right", "result"), ORDERS, ids="-".join)
def test_a_batched_product_is_a_product_of_the_library_in_any_order_of_axes(left, right, result):
    graph = graph_of(left, right, result)
    costs = {"einsum": 100.0}
    standard = expanded(graph, ["bmm"])
    registry.forget("bmm")
    found = eqsat.optimize(standard, cost=lambda one: costs.get(one.op, 1.0), measure=False, strict=True)
    names = [node.op for node in found.graph.nodes]
    assert set(names) <= {"matmul", "transpose"} and names.count("matmul") == 1
    feeds = feeds_of(graph)
    wanted = np.einsum(f"{left},{right}->{result}", feeds["x"], feeds["y"])
    np.testing.assert_allclose(execute(found.graph, feeds)["z"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("costs", "operators"),
    [({"bmm": 100.0, "einsum": 10.0}, ["matmul"]), ({"bmm": 100.0}, ["matmul"]), ({"matmul": 100.0}, ["bmm"])],
    ids=["dear", "as dear as its einsum", "cheap"],
)
def test_the_function_is_written_as_a_product_where_it_costs_more(costs, operators):
    graph = graph_of("bmk", "bkn", "bmn")
    price = {"einsum": 100.0, **costs}
    found = eqsat.optimize(graph, cost=lambda one: price.get(one.op, 1.0), measure=False, strict=True)
    assert [node.op for node in found.graph.nodes] == operators
    feeds = feeds_of(graph)
    np.testing.assert_allclose(execute(found.graph, feeds, "numpy")["z"], feeds["x"] @ feeds["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        "Z(b,m,n) +=! X(b,m,k) * Y(b,m,n) where k in 0:K",
        "Z(b,m,n) max=! X(b,m,k) * Y(b,k,n)",
        "Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) where k in 1:K",
        "Z(b,m,n) +=! X(B-1-b,m,k) * Y(b,k,n)",
    ],
)
def test_near_misses_have_no_law_that_says_so(body):
    text = f"def near(float(B,M,K) X, float(B,K,N) Y) -> (Z) {{ {body} }}".replace(
        "float(B,K,N) Y", "float(B,M,N) Y" if "Y(b,m,n)" in body else "float(B,K,N) Y"
    )
    laws = operator_of(eqsat.comprehension(text).near).laws
    assert not [law for law in laws if 'einsum(x0, x1, equation="abc,acd->abd")' in law or "matmul(x0, x1)" in law]
