"""Rules of floats, whose sides have the same bits, and of real numbers, whose sides may be rounded differently."""

import pytest

from eqsat.rewrites.proof.floats import has_equal_bits, numbers_of
from eqsat.rewrites.rules.loader import shipped_evidence
from tests.support.candidates import parsed


def test_evidence_says_of_which_numbers_each_shipped_rule_is_true() -> None:
    numbers = {name: one.numbers for name, one in shipped_evidence().items()}
    assert set(numbers.values()) == {"float", "real"}
    assert numbers["exp-of-slice"] == "float"
    assert numbers["reduce_sum-of-scaled"] == "real"


@pytest.mark.parametrize(
    "text",
    [
        "relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)",
        "x + y => y + x",
        "-(-x) => x if floating(x)",
        "exp(concat(*xs, axis=k)) => concat(*[exp(x) for x in xs], axis=k)",
    ],
)
def test_rules_of_floats_have_equal_bits(text: str) -> None:
    assert numbers_of(parsed(text)) == "float"


@pytest.mark.parametrize(
    "text",
    [
        "(x + y) + z => x + (y + z) if wide(x)",  # rounded differently
        "x + 0 => x if floating(x)",  # -0 + 0 is 0
        "abs(x) => x if is_nonnegative(x)",  # so is what is made of -0 here
        "relu(transpose(x, perm=p)) => transpose(x, perm=p) if is_all(x, 0)",
        "x - x => fill(shape=shape(x), value=0.0, dtype=dtype(x)) if finite(x), static(x)",
        "maximum(x, y) => maximum(y, x)",  # of zeros of both signs
        "reduce_max(exp(x), axes=a, keepdims=True) => exp(reduce_max(x, axes=a, keepdims=True))",
        "reduce_sum(x * c, axes=a, keepdims=k) => reduce_sum(x, axes=a, keepdims=k) * c if size(c) == 1, wide(x)",
    ],
)
def test_rules_of_real_numbers_are_no_rules_of_floats(text: str) -> None:
    assert numbers_of(parsed(text)) == "real"


def test_bits_tell_what_equality_does_not() -> None:
    assert not has_equal_bits(parsed("x + 0 => x if floating(x)"))
    assert not has_equal_bits(parsed("x * 0 => fill(shape=shape(x), value=0.0, dtype=dtype(x)) if static(x)"))
    assert has_equal_bits(parsed("x * 1 => x if floating(x)"))
