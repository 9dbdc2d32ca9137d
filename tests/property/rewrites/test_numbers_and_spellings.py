"""Numbers in equations are the numbers NumPy computes with, and equations of two spellings of an attribute are proved
where they mean the same for NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.language.arithmetic.floats import Floats
from eqsat.rewrites.instances.instance import draw, evaluated
from eqsat.rewrites.proof.prove import prove
from eqsat.rewrites.rules.loader import laws
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.term import left_terms

LAWS = laws()
SIGNS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
CALLS = {"maximum": np.maximum, "minimum": np.minimum}
NUMBERS = st.one_of(st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False, width=32))


def asked(text):
    return parse_rules(f"r: {text}", origin="asked")[0]


def values(text):
    """The elements of the one operand, and those of the left side, in an instance."""
    rule = asked(text)
    (bindings,) = draw(rule, 1)
    ((result,),) = evaluated(bindings, Floats(), left_terms(rule, bindings))
    return bindings.tensors["x"].array, result


@given(NUMBERS, st.sampled_from([*SIGNS, *CALLS]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_number_in_an_equation_is_the_number_of_numpy(number, operator, first):
    call, sign = CALLS.get(operator), SIGNS.get(operator)
    one, other = (repr(number), "x") if first else ("x", repr(number))
    side = f"{operator}({one}, {other})" if call else f"{one} {operator} {other}"
    x, result = values(f"{side} => {side} if floating(x)")
    with np.errstate(all="ignore"):
        expected = (call or sign)(*((number, x) if first else (x, number)))
    np.testing.assert_array_equal(result, expected)


@given(st.integers(-50, 50), st.integers(-50, 50))
@settings(max_examples=25, deadline=None)
def test_sums_with_numbers_are_equal_where_the_numbers_are(one, other):
    verdict = prove(asked(f"x + {one} => x + {other}"), LAWS).verdict
    assert verdict == ("proved" if one == other else "refuted")


@given(st.sampled_from(["softmax", "hardmax", "cumsum", "log_softmax"]), st.integers(1, 3), st.data())
@settings(max_examples=30, deadline=None)
def test_axes_are_the_same_where_they_are_for_numpy(operator, rank, data):
    one, other = (data.draw(st.integers(-rank, rank - 1)) for _ in range(2))
    proof = prove(asked(f"{operator}(x, axis={one}) => {operator}(x, axis={other}) if rank(x) == {rank}"), LAWS)
    shape = (2, 3, 4)[:rank]
    same = np.cumsum(np.ones(shape), one).tolist() == np.cumsum(np.ones(shape), other).tolist()
    assert (proof.verdict == "proved") == same, proof


@given(st.tuples(*[st.integers(0, 1)] * 4), st.tuples(*[st.integers(1, 2)] * 2), st.booleans())
@settings(max_examples=25, deadline=None)
def test_pads_and_strides_may_be_left_out_where_they_change_nothing(pads, strides, turned):
    sides = f"conv(x, w, pads={pads}, strides={strides})", "conv(x, w)"
    proof = prove(asked(" => ".join(sides[::-1] if turned else sides) + " if rank(x) == 4"), LAWS)
    assert (proof.verdict == "proved") == (not any(pads) and strides == (1, 1)), proof


@pytest.mark.parametrize("dtype", ["int32", "int64", "float16", "float32"])
def test_a_number_has_the_type_of_what_is_beside_it(dtype):
    rule = asked(f"cast(x, to='{dtype}') + 3 => x")
    (bindings,) = draw(rule, 1)
    (term,) = left_terms(rule, bindings)
    assert term.type.dtype.value == dtype == term.operands[1].type.dtype.value
    ((result,),) = evaluated(bindings, Floats(), [term])
    np.testing.assert_array_equal(result, bindings.tensors["x"].array.astype(dtype) + 3)
