"""Operands drawn from an index form are operands that the operator takes."""

import random

from hypothesis import given
from hypothesis import strategies as st

import eqsat.language.ops  # noqa: F401  (registers the operators)
from eqsat.errors import ShapeError
from eqsat.language.draws import form_sample
from eqsat.language.spec import OPS
from eqsat.language.types import TensorType

#: Operators that read more of their attributes than forms say.
_OTHERS = ("cast", "crop_resize", "group_norm", "lrn", "resize", "resize_nearest")
#: Operators whose forms and defaults say all there is to draw: no attribute without a default, nor one of geometry.
DRAWN = sorted(
    n for n, s in OPS.items() if s.form is not None and not s.form.windowed and not s.dtypes and n not in _OTHERS
)


@given(st.sampled_from(DRAWN), st.integers(0, 10**6))
def test_draws_type_and_keep_what_is_known(name: str, seed: int) -> None:
    declared, rng = OPS[name], random.Random(seed)
    sample = form_sample(declared.form, declared.attrs, declared.instances)
    drawn = sample(rng, [None] * declared.min_operands, {})
    if drawn is None:
        return
    shapes, attrs = drawn
    try:
        declared.result_types([TensorType.of("float32", s) for s in shapes], declared.complete(attrs))
    except ShapeError as error:
        assert name in ("prelu", "attention"), error  # one operand bounds another, as no form says
        return
    known = [shapes[0], *([None] * (declared.min_operands - 1))]
    again = sample(rng, known, attrs)
    assert again is None or again[0][0] == shapes[0]
