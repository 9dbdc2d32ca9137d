"""Comprehensions in the references of operators: in every arithmetic, with laws, optimised and run."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import eqsat
from eqsat.errors import ShapeError, UsageError
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.arithmetic.residues import PRIME, ResidueNamespace
from eqsat.language.declaration import registry
from eqsat.language.ops import OPS
from eqsat.language.terms import TensorType
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.derive import derived_laws, stated_laws
from eqsat.rewrites.rules.meaning import fingerprint
from eqsat.runtime.backend import execute

#: What the laws of a declaration are put to when rules are loaded.
AS_LOADED = Effort(numeric=24, symbolic=6, turned=0)
SOURCE = """
def project(float(M,K) A, float(K) x) -> (y) { y(i) +=! A(i,k) * x(k) }
def shifted(int step, float scale, float(N) x) -> (y, total) {
    y(i) = scale * x(i + step) + 0.5
    total +=! x(i)
}
"""
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def forgotten():
    """Operators that a test declares are gone after it."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        registry.forget(name)


def declared(**more):
    """An operator whose reference calls a comprehension between operations of its own."""
    functions = eqsat.comprehension(SOURCE)

    @eqsat.op(index="m k, k -> m", multilinear=(0, 1), **more)
    def halved_product(xp, A, x):
        """Half of a matrix times a vector."""
        y = functions.project(xp, A, x=x)
        return xp.multiply(y, xp.number(0.5, y))

    return halved_product


def test_a_call_computes_with_whatever_arithmetic_goes_first():
    functions = eqsat.comprehension(SOURCE)
    a, x = RNG.standard_normal((3, 5)), RNG.standard_normal(5)
    for dtype, near in ((np.float64, 1e-14), (np.float32, 1e-6), (np.float16, 1e-2)):
        made = functions.project(FloatNamespace(), a.astype(dtype), x.astype(dtype))
        assert made.dtype == dtype
        np.testing.assert_allclose(made, a @ x, rtol=near, atol=near)
    one, other = RNG.integers(0, PRIME, (3, 5)), RNG.integers(0, PRIME, 5)
    exact = [sum(int(p) * int(q) for p, q in zip(row, other, strict=True)) % PRIME for row in one]
    assert functions.project(ResidueNamespace(), one, other).tolist() == exact


def test_scalars_are_numbers_and_several_results_a_tuple():
    shifted = eqsat.comprehension(SOURCE).shifted
    x = RNG.standard_normal(6)
    y, total = shifted(FloatNamespace(), 2, 3, x=x)
    np.testing.assert_allclose(y, 3 * x[2:] + 0.5)
    np.testing.assert_allclose(total, x.sum())
    residues = np.arange(6)
    y, _ = shifted(ResidueNamespace(), 2, 3, residues)
    half = pow(2, -1, PRIME)
    assert y.tolist() == [(3 * int(one) + half) % PRIME for one in residues[2:]] and Fraction(1, 2) == 0.5


def test_arguments_that_do_not_fit_are_refused_as_in_any_call():
    project = eqsat.comprehension(SOURCE).project
    with pytest.raises(ShapeError):
        project(FloatNamespace(), np.ones((3, 5)), np.ones(4))
    with pytest.raises(UsageError, match="project without x"):
        project(FloatNamespace(), np.ones((3, 5)))


def graph():
    """Two products of one matrix, whose sum is a product of a sum."""
    operator = declared()
    g = eqsat.Graph("halves")
    a, x, y = g.input("a", (3, 5)), g.input("x", (5,)), g.input("y", (5,))
    g.output("z", eqsat.relu(g.apply(operator.name, a, x) + g.apply(operator.name, a, y)))
    return g.build()


def test_an_operator_that_calls_one_runs_everywhere_and_is_optimised_by_its_laws():
    given = graph()
    feeds = {n: RNG.standard_normal(given.type(n).dims).astype(np.float32) for n in given.inputs}
    wanted = np.maximum(0.5 * feeds["a"] @ (feeds["x"] + feeds["y"]), 0)
    for backend in ("numpy", "c"):
        np.testing.assert_allclose(execute(given, feeds, backend)["z"], wanted, rtol=1e-5, atol=1e-6)
    costs = {"halved_product": 10.0}
    result = eqsat.optimize(
        given, device="numpy-cpu", cost=lambda one: costs.get(one.op, 1.0), measure=False, strict=True
    )
    assert sorted(node.op for node in result.graph.nodes) == ["add", "halved_product", "relu"]
    np.testing.assert_allclose(execute(result.graph, feeds, "numpy")["z"], wanted, rtol=1e-5, atol=1e-6)


def test_laws_of_such_an_operator_are_checked_through_the_text():
    operator = declared(laws=("halved_product(A, x) => halved_product(A, neg(x))",))
    rules = {rule.text: check(rule, AS_LOADED).verdict for rule in derived_laws([operator])}
    assert rules and "refuted" not in rules.values()
    (false,) = stated_laws([operator])
    assert check(false, AS_LOADED).verdict == "refuted"


def test_a_changed_text_makes_evidence_stale():
    def of(text):
        functions = eqsat.comprehension(text)
        (function,) = functions.values()

        def whole(xp, x):
            return functions.f(xp, x)

        def single(xp, x):
            return function(xp, x)

        return fingerprint(whole), fingerprint(single)

    text = "def f(float(N) x) -> (y) { y(i) = x(i) * 2 }"
    assert of(text) == of(text)
    assert all(one != other for one, other in zip(of(text), of(text.replace("2", "3")), strict=True))


def test_an_array_is_no_arithmetic():
    assert not hasattr(TensorType.of("float32", (2,)), "exact")
    with pytest.raises(UsageError, match="project of 3 arguments"):
        eqsat.comprehension(SOURCE).project(np.ones(3), np.ones((3, 5)), np.ones(5))


def test_what_a_text_does_not_state_is_refused_in_a_reference_too():
    """Integers in place of floats, 64 bits in place of 32, and a tensor to be updated of another shape."""
    f = eqsat.comprehension("""
        def halves(float(N) x) -> (y) { y(i) = x(i) / 2 * 2 }
        def squares(int32(N) x) -> (y) { y(i) = x(i) * x(i) }
        def added(float(N) x) -> (y) { y(i) += x(i) }
    """)
    xp, x = FloatNamespace(), np.arange(4.0)
    assert f.halves(xp, x).tolist() == [0.0, 1.0, 2.0, 3.0]
    for call, message in (
        (lambda: f.halves(xp, np.arange(4)), "halves, x: elements of int64\n  expected float32"),
        (lambda: f.squares(xp, np.array([1 << 20])), "squares, x: elements of int64\n  expected int32"),
        (lambda: f.added(xp, x, y=np.ones(7)), r"added, y: shape \[7\]\n  expected shape \[4\]"),
        (lambda: f.added(xp, x, y=1.0), "added, y: 1.0\n  expected a tensor"),
        (lambda: f.halves(xp, [1.0]), "halves, x: a list\n  expected a tensor or a number"),
    ):
        with pytest.raises(ShapeError, match=message):
            call()
    with pytest.raises(UsageError, match="added with out= in a reference"):
        f.added(xp, x, out=np.ones(4))
