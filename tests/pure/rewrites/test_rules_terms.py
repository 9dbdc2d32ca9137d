"""Symbolic arithmetic: normal forms settle what the laws of fields, maxima and exponentials settle."""

import numpy as np
import pytest

from eqsat.errors import ShapeError
from eqsat.language.arithmetic.reals import Reals, TermNamespace
from eqsat.language.ops.linear import conv
from eqsat.language.ops.nn.normalisation import softmax
from eqsat.language.terms.types import TensorType

FLOAT = TensorType.of("float64", (2,))
STEPS = 100_000


def settle(a, b) -> set[str]:
    terms = Reals()
    return {terms.settle(x, y, STEPS) for x, y in zip(np.ravel(a), np.ravel(b), strict=True)}


def test_softmax_does_not_change_under_a_shift() -> None:
    terms = Reals()
    x, c = terms.variable("x", (3,)), terms.variable("c", (1,))
    xp = terms.namespace([FLOAT], [FLOAT])
    assert settle(softmax.reference(xp, xp.add(x, c), axis=0), softmax.reference(xp, x, axis=0)) == {"proved"}


def test_maxima_are_homogeneous_and_shift() -> None:
    xp, terms = TermNamespace(), Reals()
    x, y, z = (terms.variable(n, ()) for n in "xyz")
    two = xp.number(2.0, x)
    assert settle(xp.maximum(xp.multiply(two, x), xp.multiply(two, y)), xp.multiply(two, xp.maximum(x, y))) == {
        "proved"
    }
    assert settle(xp.maximum(xp.add(x, z), xp.add(y, z)), xp.add(xp.maximum(x, y), z)) == {"proved"}
    assert settle(xp.maximum(x, xp.maximum(y, z)), xp.maximum(xp.maximum(z, x), y)) == {"proved"}


def test_a_maximum_of_one_term_written_twice_is_that_term() -> None:
    xp, terms = TermNamespace(), Reals()
    x, y, z = (terms.variable(n, ()) for n in "xyz")
    product, sums = xp.multiply(x, xp.add(y, z)), xp.add(xp.multiply(x, y), xp.multiply(z, x))
    assert settle(xp.maximum(product, sums), sums) == {"proved"}


def test_convolution_runs_on_terms_and_is_linear() -> None:
    xp, terms = TermNamespace(), Reals()
    x, y = terms.variable("x", (1, 2, 3, 3)), terms.variable("y", (1, 2, 3, 3))
    w = terms.variable("w", (2, 1, 2, 2))
    attrs = {"group": 2, "pads": (1, 0, 0, 1), "strides": (1, 2)}
    left = conv.reference(xp, xp.add(x, y), w, **attrs)
    right = xp.add(conv.reference(xp, x, w, **attrs), conv.reference(xp, y, w, **attrs))
    assert settle(left, right) == {"proved"}


def test_differences_are_not_proved() -> None:
    xp, terms = TermNamespace(), Reals()
    x = terms.variable("x", ())
    assert settle(xp.apply("erf", x), xp.apply("tanh", x)) == {"unknown"}
    assert settle(xp.add(x, xp.number(1.0, x)), x) == {"differs"}


def test_terms_have_no_order() -> None:
    with pytest.raises(ShapeError, match="no order"):
        TermNamespace().argsort(Reals().variable("x", (2,)), axis=0)
