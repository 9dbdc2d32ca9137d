"""Results judged on inputs of unusual size, where the original itself may have no answer."""

from __future__ import annotations

import numpy as np

import eqsat
from eqsat.costs.model.asked import Application
from eqsat.rewrites.rules.parser import parse_rules


def test_a_softmax_that_overflows_as_it_is_written_is_still_one() -> None:
    """Of large numbers the original makes NaN even in float64: it has no answer that a result could be far from."""
    g = eqsat.Graph("parts")
    x = g.input("x", (64, 128))
    g.output("y", eqsat.exp(x) / eqsat.reduce_sum(eqsat.exp(x), 1, keepdims=True))
    result = eqsat.optimize(g, device="nvidia-h200", measure=False, cache=False)
    assert [node.op for node in result.graph.nodes] == ["softmax"]


def test_a_number_is_as_good_as_an_infinity_that_float64_makes_too() -> None:
    """log(1 + exp(x)) overflows for large x, where softplus is x."""
    g = eqsat.Graph("spelled")
    x = g.input("x", (64, 128))
    g.output("y", eqsat.log(eqsat.exp(x) + 1.0))
    result = eqsat.optimize(g, device="nvidia-h200", measure=False, cache=False)
    assert [node.op for node in result.graph.nodes] == ["softplus"]


def test_an_answer_that_the_original_has_is_not_lost() -> None:
    """A rule that is wrong for large numbers alone: the original has numbers there, and the result none."""
    g = eqsat.Graph("large")
    x = g.input("x", (64, 128))
    g.output("y", eqsat.sigmoid(x) * 2.0)
    (rule,) = parse_rules(
        "overflowing: sigmoid(x) => exp(x) / (exp(x) + fill(shape=(), value=1.0, dtype=dtype(x))) if floating(x)"
    )
    result = eqsat.optimize(g, device="nvidia-h200", measure=False, cache=False, rules=[rule], cost=liking_divisions)
    assert [node.op for node in result.graph.nodes] == ["sigmoid", "mul"]
    assert any("inputs of mean 100" in text for text in result.report.warnings)
    np.testing.assert_allclose(result.compile("numpy")(x=np.full((64, 128), 1e4, np.float32))["y"], 2.0)


def liking_divisions(applied: Application) -> float:
    return 100.0 if applied.op == "sigmoid" else 1.0
