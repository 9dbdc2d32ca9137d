"""False rules near to what proofs know of windows, types and constants: none is proved."""

import numpy as np
import pytest

from eqsat.language.terms import DType, TensorType
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.proof.sizes import prove_sizes
from tests.support.candidates import parsed

POOLED = "slice(max_pool(log(x), **a), axes=(2,), starts=(0,), ends=(1,), steps=(1,))"
SUMMED = "slice(cumsum(log(x), axis=0), axes=(0,), starts=(0,), ends=(1,), steps=(1,))"
CONVOLVED = "conv(x, w, strides=s, pads=(), dilations=(), group=1, activation='none')"
DIFFER = ", ".join(f"dtype({a}) != dtype({b})" for a, b in ("ab", "ac", "ad", "bc", "bd", "cd"))
OTHERS = ", ".join(f"t != '{kind}'" for kind in ("int32", "int16", "int64", "int8", "bool", "float32", "float64"))
FALSE = [
    # Windows with strides do not see all that an operator may see, and neither do slices, or one half of a matrix.
    "max_pool(log(x), **a) => max_pool(log(x), **a) + 0 * reduce_sum(log(x), axes=(2,), keepdims=True) if rank(x) == 3",
    "avg_pool(log(x), **a) => avg_pool(log(x), **a) + 0 * reduce_sum(log(x), axes=(2,), keepdims=True) if rank(x) == 3",
    f"{POOLED} => {POOLED} + 0 * reduce_sum(max_pool(log(x), **a), axes=(2,), keepdims=True) if rank(x) == 3",
    "trilu(log(x), k=0, upper=True)"
    " => trilu(log(x), k=0, upper=True) + 0 * reduce_sum(log(x), axes=(0, 1), keepdims=True) if rank(x) == 2",
    f"{SUMMED} => {SUMMED} + 0 * reduce_sum(log(x), axes=(0,), keepdims=True) if rank(x) == 1",
    # Types that are alike are not the same.
    "relu(x) => relu(x) * fill(shape=(), value=(2.0 if representable(x, 100000.0) and not representable(x, 3.4e38)"
    " else 1.0), dtype=dtype(x))",
    "relu(x) => relu(x) * fill(shape=(), value=(2.0 if dtype(x)[0] == 'b' else 1.0), dtype=dtype(x))",
    "cast(cast(cast(x, to=t), to=u), to='float32') => cast(cast(x, to=t), to='float32') if t[0] == u[0], t[0] == 'i'",
    "(relu(a), relu(b), relu(c), relu(d)) => (relu(a) * fill(shape=(), value=2.0, dtype=dtype(a)), relu(b), relu(c),"
    f" relu(d)) if {DIFFER}",
    f"cast(cast(cast(x, to=t), to='int16'), to='float32') => cast(cast(x, to=t), to='float32') if {OTHERS},"
    " t != 'float16', t != 'bfloat16'",
    # A constant that is nearly a number may be 0, and is not that number where it is asked for.
    "x * c => x * c * fill(shape=(), value=(1.0 if number(c) == 3 else 2.0), dtype=dtype(x))"
    " if rounds(c, 3), spans(x, c)",
    # An element that may not be there is there in larger matrices.
    "x @ c => x @ c * fill(shape=(), value=(1.0 if dim(c, 0) == 3 else 2.0 + 0 * entry(c, 3, 0)), dtype=dtype(x))"
    " if is_even_beside(c), rank(x) == 2, wide(x)",
    # Strides that are left out are no shape.
    f"{CONVOLVED} => {CONVOLVED} + reduce_sum(fill(shape=s, value=0.0, dtype='float32'), axes=(0,), keepdims=True) * 0"
    " if rank(x) == 3, dtype(x) == 'float32'",
]


def test_a_mean_has_a_value_in_every_window() -> None:
    """Shape rules refuse windows of pads alone, of which a mean has no value."""
    first = "slice(avg_pool(x, **a), axes=(2,), starts=(0,), ends=(1,), steps=(1,))"
    beside = "0 * reduce_sum(avg_pool(x, **a), axes=(2,), keepdims=True)"
    assert prove_sizes(parsed(f"{first} => {first} + {beside} if rank(x) == 3"), 300).is_proved


@pytest.mark.parametrize("text", FALSE)
def test_false_rules_are_not_proved(text: str) -> None:
    assert not prove_sizes(parsed(text), 300).is_proved


@pytest.mark.parametrize(
    ("number", "dtype", "said", "is_so"),
    [
        (np.sqrt(2), np.float32, 2**0.5, True),
        (np.sqrt(2), np.float16, 2**0.5, True),
        (np.nextafter(np.float32(3), np.float32(4)), np.float32, 3, True),  # as neighbours round
        (3.001, np.float32, 3, False),
        (0.0, np.float32, 1e-50, False),  # nothing that is divided by is taken for 0
        (0.0, np.float16, 1e-8, False),
        (0.0, np.float32, 0, True),
    ],
)
def test_constants_round_to_numbers_and_to_no_other(number: float, dtype: type, said: float, is_so: bool) -> None:
    array = np.full((2, 3), number, dtype)
    constant = Drawn("c", TensorType(DType.of(array.dtype), array.shape), constant=True, array=array)
    assert bool(FUNCTIONS["rounds"](constant, said)) is is_so
