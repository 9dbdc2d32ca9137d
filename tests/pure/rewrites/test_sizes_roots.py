"""What roots, logarithms and powers are of each other is used in proofs for every size, and only where it is true."""

from __future__ import annotations

import pytest

from eqsat.rewrites.proof.sizes import prove_paths
from tests.support.candidates import parsed

HALF = "fill(shape=(), value=0.5, dtype=dtype(x))"
TRUE = (
    f"log(sqrt(x)) => log(x) * {HALF}",
    f"log(reciprocal(sqrt(x))) => -(log(x) * {HALF})",
    "pow(exp(x), y) => exp(x * y)",
    "sqrt(x * x) => abs(x)",
    "sqrt(abs(x)) * sqrt(abs(x)) => abs(x)",
)
FALSE = (
    "sqrt(x * x) => x",
    "log(sqrt(x)) => log(x)",
    f"log(sqrt(x)) => -(log(x) * {HALF})",
    # Sides that are equal by what functions are taken for where they have no value are told apart by where they have.
    "log(abs(x)) => log(x)",
    "log(-x) => log(x)",
    "log(x * x) => log(x) + log(x)",
    "log(pow(x, y)) => log(x) * y",
    "log(pow(x, y)) => log(abs(x)) * y",
    "sqrt(-x) => -sqrt(x)",
    "x - x => log(reciprocal(x)) + log(x)",
    "log(x / y) => log(x) - log(y)",
    "pow(x, y) => pow(abs(x), y)",
    "pow(x, y) => exp(y * log(x))",
    "x / pow(y, z) => x * pow(y, z)",
    "x * pow(y, z) => x / pow(y, -z)",
    "pow(exp(x), y) => exp(x + y)",
    "pow(x, y) * pow(x, -y) => fill(shape=shape(mul(x, y)), value=1.0, dtype=dtype(x))",
    "sqrt(abs(x)) => sqrt(x)",
)


@pytest.mark.parametrize("text", TRUE)
def test_what_roots_and_logarithms_are_of_each_other_is_known(text: str) -> None:
    assert prove_paths(parsed(text), highest=1).is_proved


@pytest.mark.parametrize("text", FALSE)
def test_a_false_rule_of_roots_is_not_proved(text: str) -> None:
    assert not prove_paths(parsed(text), highest=1).is_proved
