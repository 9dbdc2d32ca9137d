"""Operands drawn from an index form are operands that the operator takes."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from eqsat.errors import ShapeError
from eqsat.language.declaration.draws import form_sample
from eqsat.language.declaration.spec import REQUIRED, OpSpec
from eqsat.language.ops import OPS
from eqsat.language.terms.types import Shape, TensorType


def says_all(declared: OpSpec) -> bool:
    """True where form and defaults leave no attribute to be drawn: none is missing, none has a value for each axis."""
    named = {t.attribute for t in (*declared.form.terms, declared.form.result)} | {*declared.form.sizes.values()}
    return not any((d is REQUIRED and n not in named) or d == () for n, d in declared.attrs.items())


def takes(declared: OpSpec, shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    """True where the operator takes operands; False where one bounds another, as no form says."""
    try:
        declared.result_types([TensorType.of("float32", s) for s in shapes], declared.complete(attrs))
    except ShapeError as error:
        assert declared.name in ("prelu", "attention"), error
        return False
    return True


#: Operators of floats with a form, but those whose attributes of geometry suit few operands.
WITH_FORM = sorted(n for n, s in OPS.items() if s.form is not None and not s.form.windowed and not s.dtypes)


@given(st.sampled_from([n for n in WITH_FORM if says_all(OPS[n])]), st.integers(0, 10**6))
def test_draws_type_and_keep_what_is_known(name: str, seed: int) -> None:
    declared, rng = OPS[name], random.Random(seed)
    sample = form_sample(declared.form, declared.attrs, declared.instances)
    drawn = sample(rng, [None] * declared.min_operands, {})
    if drawn is None:
        return
    shapes, attrs = drawn
    if not takes(declared, shapes, attrs):
        return
    known = [shapes[0], *([None] * (declared.min_operands - 1))]
    again = sample(rng, known, attrs)
    assert again is None or again[0][0] == shapes[0]


@given(st.sampled_from(WITH_FORM), st.integers(0, 10**6))
def test_forms_complete_the_operand_and_attributes_of_another_draw(name: str, seed: int) -> None:
    """Attributes that forms do not say are drawn by the operator's own rule, with the operand that they suit."""
    declared, rng = OPS[name], random.Random(seed)
    own = declared.drawn(rng, [None] * declared.min_operands, {})
    assume(own is not None and len(own[0][0]) >= declared.form.terms[0].fixed)  # matmul takes vectors too
    assert takes(declared, *own)
    first, attrs = own[0][0], own[1]
    known = [first, *([None] * (declared.min_operands - 1))]
    made = form_sample(declared.form, declared.attrs, declared.instances)(rng, known, attrs)
    assert made is not None and made[0][0] == first
    assert {n: made[1][n] for n in attrs} == attrs
    takes(declared, *made)
