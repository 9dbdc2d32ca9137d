"""Functions of one operand that are spelled out: what is proved is true, and what is false is not proved."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from eqsat.language.arithmetic.elementary import UndecidedError, exact_number, pieces_of
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import OPS
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.functions import states_function

PLACES = np.concatenate([np.linspace(-7.0, 7.0, 57), [-30.0, 1e-3, 30.0]])


FLOAT32 = 'dtype(x) == "float32"'


def stated(left: str, right: str, numbers: str = "", asked: str = f"{FLOAT32}, finite(x)") -> Rule:
    conditions = ", ".join(filter(None, [asked, numbers, f"shape({left}) == shape(x)"]))
    (rule,) = parse_rules(f"one: {left} => {right} if {conditions}", origin="identity")
    return rule


HALF, ONE, SIXTH = "is_all(h, 0.5)", "is_all(u, 1.0)", "is_all(s, 0.1666666716337204)"
CUT = "is_all(t, 3.0), is_all(z, 0.0)"
ROOT, CUBE, BELL = "is_all(r, 1.4142135381698608)", "is_all(k, 0.044714998453855515)", "is_all(b, 0.7978845834732056)"


@pytest.mark.parametrize(
    ("left", "right", "numbers", "true"),
    [
        ("mul(x, add(h, mul(h, erf(div(x, r)))))", "gelu(x)", f"{HALF}, {ROOT}", True),
        ("mul(x, add(h, mul(h, erf(mul(x, r)))))", "gelu(x)", f"{HALF}, {ROOT}", False),
        ("mul(x, add(h, mul(h, erf(div(x, r)))))", "gelu(x)", f"{HALF}, is_all(r, 1.41)", False),
        (
            "mul(mul(x, h), add(u, tanh(mul(mul(x, b), add(u, mul(mul(x, k), x))))))",
            'gelu(x, approximate="tanh")',
            f"{HALF}, {ONE}, {CUBE}, {BELL}",
            True,
        ),
        ("mul(mul(x, h), add(u, tanh(mul(x, h))))", "silu(x)", f"{HALF}, {ONE}", True),
        ("div(x, add(u, exp(neg(x))))", "silu(x)", ONE, True),
        ("div(x, add(u, exp(x)))", "silu(x)", ONE, False),
        ("div(sub(exp(x), exp(neg(x))), add(exp(x), exp(neg(x))))", "tanh(x)", "", True),
        ("log(add(u, exp(x)))", "softplus(x)", ONE, True),
        ("add(relu(x), log(add(u, exp(neg(abs(x))))))", "softplus(x)", ONE, True),
        ("add(relu(x), log(add(u, exp(abs(x)))))", "softplus(x)", ONE, False),
        ("mul(x, tanh(log(add(u, exp(x)))))", "mish(x)", ONE, True),
        ("div(x, add(u, abs(x)))", "softsign(x)", ONE, True),
        ("where(greater(x, z), x, sub(exp(x), u))", "elu(x)", f"{ONE}, is_all(z, 0.0)", True),
        ("where(greater(x, z), x, sub(exp(x), u))", "elu(x, alpha=0.5)", f"{ONE}, is_all(z, 0.0)", False),
        ("where(greater(x, u), x, sub(exp(x), u))", "elu(x)", ONE, False),
        ("maximum(x, mul(x, h))", "leaky_relu(x, alpha=0.5)", HALF, True),
        ("minimum(x, mul(x, h))", "leaky_relu(x, alpha=0.5)", HALF, False),
        ("mul(x, mul(clip(add(x, t), z, p), s))", "hard_swish(x)", f"{SIXTH}, {CUT}, is_all(p, 6.0)", True),
        ("mul(x, mul(clip(add(x, t), z, p), s))", "hard_swish(x)", f"{SIXTH}, {CUT}, is_all(p, 5.0)", False),
        ("sqrt(mul(x, x))", "abs(x)", "", True),
        ("sqrt(mul(x, x))", "identity(x)", "", False),
        ("mul(x, cast(greater(x, z), to='float32'))", "relu(x)", "is_all(z, 0.0)", True),
        ("mul(x, sign(x))", "abs(x)", "", True),
    ],
)  # fmt: skip
def test_a_function_is_named_only_where_it_is_that_one(left: str, right: str, numbers: str, true: bool) -> None:
    rule = stated(left, right, numbers)
    assert states_function(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


def test_nothing_is_proved_of_operands_that_nothing_is_asked_of() -> None:
    assert states_function(stated("mul(x, sigmoid(x))", "silu(x)", asked=FLOAT32))
    assert not states_function(stated("mul(x, sigmoid(x))", "silu(x)", asked="finite(x)"))
    (rule,) = parse_rules(f"one: mul(x, sigmoid(x)) => silu(x) if {FLOAT32}, finite(x)", origin="identity")
    assert not states_function(rule)


def test_constants_stand_for_numbers_in_float32_alone() -> None:
    spelled = "mul(x, add(h, mul(h, erf(div(x, r)))))", "gelu(x)", f"{HALF}, {ROOT}"
    assert states_function(stated(*spelled))
    assert not states_function(stated(*spelled, asked="wide(x), finite(x)"))


@pytest.mark.parametrize(
    ("spelled", "numbers"),
    [("exp(log(x))", ""), ("mul(pow(x, h), pow(x, h))", HALF), ("pow(pow(x, h), t)", f"{HALF}, is_all(t, 2.0)")],
)
def test_what_has_no_number_on_a_half_line_is_no_function_that_has(spelled: str, numbers: str) -> None:
    assert not states_function(stated(spelled, "identity(x)", numbers))


def test_infinities_are_asked_about_where_they_make_a_difference() -> None:
    chosen = ("where(greater(x, z), x, z)", "relu(x)", "is_all(z, 0.0)")  # of NaN 0, where relu has NaN
    assert states_function(stated(*chosen))
    assert not states_function(stated(*chosen, asked=FLOAT32))
    assert states_function(stated("maximum(x, mul(x, h))", "leaky_relu(x, alpha=0.5)", HALF, asked=FLOAT32))


def pool() -> list[str]:
    """Terms of up to three operators."""
    first = ["x", "neg(x)", "exp(x)", "relu(x)", "abs(x)", "tanh(x)", "sigmoid(x)", "add(x, x)", "exp(neg(x))"]
    pairs = [
        f"{op}({a}, {b})" for op in ("add", "sub", "mul", "maximum") for a, b in itertools.product(first, repeat=2)
    ]
    return [*first, *pairs, *(f"{op}({one})" for op in ("relu", "abs", "neg") for one in pairs)]


def values(term: str) -> np.ndarray:
    (rule,) = parse_rules(f"one: {term} => x", origin="candidate")
    floats = FloatNamespace()

    def at(pattern: object) -> np.ndarray:
        if hasattr(pattern, "name"):
            return PLACES
        return np.asarray(OPS[pattern.op].reference(floats, *map(at, pattern.operands)))  # type: ignore[attr-defined]

    with np.errstate(all="ignore"):
        return np.asarray(at(rule.left[0])) if not isinstance(rule.left, str) else PLACES


def test_of_many_terms_those_that_are_proved_to_be_equal_are() -> None:
    rng = random.Random(0)
    terms = rng.sample([term for term in pool() if term != "x"], 160)
    known = {term: values(term) for term in terms}
    same, other = [], []
    for one, two in itertools.combinations(terms, 2):
        a, b = known[one], known[two]
        close = np.isclose(a, b, rtol=1e-9, atol=1e-12)
        if close.all():
            same.append((one, two))
        elif close.any():
            other.append((one, two))  # equal somewhere, as on one side of 0
    assert len(same) >= 20
    proved = [states_function(stated(one, two)) for one, two in same]
    # What is left compares the variable with its exponential, of which no sign is told.
    assert sum(proved) >= 0.6 * len(same)
    assert not any(states_function(stated(one, two)) for one, two in rng.sample(other, 150))


def test_pieces_cover_the_line_and_break_where_functions_do() -> None:
    def read(xp: object) -> object:
        return xp.maximum(xp.minimum(xp.variable, xp.number(3.0)), xp.number(-3.0))  # type: ignore[attr-defined]

    found = {(xp.piece.low, xp.piece.high, xp.piece.at): made for xp, made in pieces_of(read)}
    assert set(found) == {(None, -3, None), (None, None, -3), (-3, 3, None), (None, None, 3), (3, None, None)}
    assert found[None, -3, None] == -3
    assert found[3, None, None] == 3
    with pytest.raises(UndecidedError):
        list(pieces_of(lambda xp: xp.maximum(xp.variable, xp.apply("sin", xp.variable))))


def test_a_constant_in_float32_stands_for_a_number() -> None:
    for value in (1 / 3, 0.1, np.sqrt(2), np.sqrt(0.5), np.sqrt(2 / np.pi), np.log(2), 0.044715, 1e-5, -2.5, 1.702):
        exact = exact_number(float(np.float32(value)))
        assert np.float32(float(exact)) == np.float32(value)
        assert abs(float(exact) - value) < 1e-12 * abs(value)
    with pytest.raises(UndecidedError):
        exact_number(float("inf"))
