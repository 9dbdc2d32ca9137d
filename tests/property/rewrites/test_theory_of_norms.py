"""Normalisations that are spelled out: what is proved is true, and what is false is not proved."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.language.arithmetic.elementary import UndecidedError
from eqsat.language.arithmetic.rows import RowNamespace
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.norms import states_norm

MEAN = "reduce_mean(x, axes=(2,), keepdims=True)"
CENTRED = f"sub(x, {MEAN})"
VARIANCE = f"reduce_mean(mul({CENTRED}, {CENTRED}), axes=(2,), keepdims=True)"
MOMENTS = f"sub(reduce_mean(mul(x, x), axes=(2,), keepdims=True), mul({MEAN}, {MEAN}))"
SQUARES = "reduce_sum(mul(x, x), axes=(2,), keepdims=True)"
SHAPE = {"x": (2, 3, 8)}
EPS = {"e": 1e-5}
GAIN = {"g": (8,), "b": (8,)}
CHANNELS = {"x": (2, 4, 6, 5), "g": (4, 1, 1), "b": (4, 1, 1)}
SPATIAL = "reduce_mean(x, axes=(2, 3), keepdims=True)"
APART = f"sub(x, {SPATIAL})"
IN_CHANNELS = f"div({APART}, sqrt(add(reduce_mean(mul({APART}, {APART}), axes=(2, 3), keepdims=True), e)))"
ONES = "fill(shape=(8,), value=1.0, dtype=dtype(x))"
TOP = "reduce_max(x, axes=(2,), keepdims=True)"


FLOAT32 = 'dtype(x) == "float32"'


def stated(
    left: str, right: str, shapes: dict[str, tuple[int, ...]], numbers: dict[str, float], finite: str | None = None
) -> Rule:
    every = {**shapes, **dict.fromkeys(numbers, ())}
    conditions = [f"rank({name}) == {len(shape)}" for name, shape in every.items()]
    conditions += [f"dim({name}, {axis}) == {d}" for name, shape in every.items() for axis, d in enumerate(shape)]
    conditions += [f"is_all({name}, {value!r})" for name, value in numbers.items()]
    conditions += [f"finite({finite or ', '.join(shapes)})", FLOAT32, f"shape({left}) == shape({right})"]
    (rule,) = parse_rules(f"one: {left} => {right} if {', '.join(conditions)}", origin="identity")
    return rule


LAYER, RMS = "layer_norm(x, g, b, axis=2, epsilon=1e-5)", "rms_norm(x, g, axis=2, epsilon=1e-5)"
INSTANCE = "instance_norm(x, reshape(g, shape=(4,)), reshape(b, shape=(4,)), epsilon=1e-5)"
BOTH, ONE = SHAPE | GAIN, SHAPE | {"g": (8,)}
TURNED = CHANNELS | {"x": (2, 4, 4, 4), "g": (1, 4, 1)}
BY_WIDTH = f"mul(div(x, sqrt(add(div({SQUARES}, n), e))), g)"
BY_NORM = "mul(div(x, sqrt(add(div(pow(reduce_l2(x, axes=(2,), keepdims=True), t), n), e))), g)"
LOWERED = f"reduce_sum(exp({CENTRED}), axes=(2,), keepdims=True)"
STABLE = f"add(log(reduce_sum(exp(sub(x, {TOP})), axes=(2,), keepdims=True)), {TOP})"
LOG_SUM = "reduce_log_sum_exp(x, axes=(2,), keepdims=True)"


@pytest.mark.parametrize(
    ("left", "right", "shapes", "numbers", "true"),
    [
        (f"add(mul(div({CENTRED}, sqrt(add({VARIANCE}, e))), g), b)", LAYER, BOTH, EPS, True),
        (f"add(mul(div({CENTRED}, sqrt(add({MOMENTS}, e))), g), b)", LAYER, BOTH, EPS, True),
        (f"add(mul({CENTRED}, mul(g, pow(add({VARIANCE}, e), h))), b)", LAYER, BOTH, EPS | {"h": -0.5}, True),
        (f"div({CENTRED}, sqrt(add({VARIANCE}, e)))", f"layer_norm(x, {ONES}, axis=2, epsilon=1e-5)", SHAPE, EPS, True),
        (f"add(mul(div({CENTRED}, sqrt(add({VARIANCE}, e))), b), g)", LAYER, BOTH, EPS, False),
        (f"add(mul(div({CENTRED}, sqrt(add({VARIANCE}, e))), g), b)", LAYER, BOTH, {"e": 1e-4}, False),
        (f"add(mul(div(x, sqrt(add({VARIANCE}, e))), g), b)", LAYER, BOTH, EPS, False),
        (BY_WIDTH, RMS, ONE, EPS | {"n": 8.0}, True),
        (BY_WIDTH, RMS, ONE, EPS | {"n": 7.0}, False),
        (BY_NORM, RMS, ONE, EPS | {"n": 8.0, "t": 2.0}, True),
        (f"add(mul({IN_CHANNELS}, g), b)", INSTANCE, CHANNELS, EPS, True),
        (f"add(mul({IN_CHANNELS}, g), b)", INSTANCE, TURNED, EPS, False),
        (f"div(exp({CENTRED}), {LOWERED})", "softmax(x, axis=2)", SHAPE, {}, True),
        (f"div(exp({MEAN}), {LOWERED})", "softmax(x, axis=2)", SHAPE, {}, False),
        (f"sub(x, {LOG_SUM})", "log_softmax(x, axis=2)", SHAPE, {}, True),
        (STABLE, LOG_SUM, SHAPE, {}, True),
        (f"div(x, sqrt({SQUARES}))", "lp_norm(x, axis=2, p=2)", SHAPE, {}, True),
        (f"div(x, sqrt(add({SQUARES}, e)))", "lp_norm(x, axis=2, p=2)", SHAPE, EPS, False),
        (f"sub({TOP}, {TOP})", f"sub({MEAN}, {MEAN})", SHAPE, {}, True),
        (f"{TOP}", f"{MEAN}", SHAPE, {}, False),
    ],
)
def test_a_normalisation_is_named_only_where_it_is_that_one(
    left: str, right: str, shapes: dict[str, tuple[int, ...]], numbers: dict[str, float], true: bool
) -> None:
    rule = stated(left, right, shapes, numbers)
    assert states_norm(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


def test_an_operand_of_which_nothing_is_asked_proves_nothing() -> None:
    numbers = EPS | {"n": 8.0}
    assert states_norm(stated(BY_WIDTH, RMS, ONE, numbers, finite="x, g"))
    assert states_norm(stated(BY_WIDTH, RMS, ONE, numbers, finite="g"))  # infinities make the same of both
    assert not states_norm(stated(BY_WIDTH, RMS, ONE, numbers, finite="x"))
    sizeless = f"one: {BY_WIDTH} => {RMS} if finite(x, g), {FLOAT32}, is_all(n, 8.0), is_all(e, 1e-05)"
    (rule,) = parse_rules(sizeless, origin="identity")
    assert not states_norm(rule)


def test_constants_stand_for_numbers_in_float32_alone() -> None:
    rule = stated(BY_WIDTH, RMS, ONE, EPS | {"n": 8.0})
    (wide,) = parse_rules(
        f"one: {rule.text.replace(' == ' + repr('float32'), ' == ' + repr('float64'))}", origin="identity"
    )
    assert "float64" in wide.text
    assert states_norm(rule)
    assert not states_norm(wide)


def test_comparisons_along_rows_are_left_undecided() -> None:
    xp = RowNamespace((1,), 2)
    x = xp.operand("x", (3, 4))
    assert np.shape(xp.maximum(xp.apply("exp", x), xp.number(0.0))) == (3, 4)
    for compared in (xp.maximum, xp.minimum, xp.less):
        with pytest.raises(UndecidedError):
            compared(x, xp.number(0.0))


def test_what_does_not_vary_along_the_axes_comes_out_of_means_and_maxima() -> None:
    xp = RowNamespace((1,), 2)
    x, row, column = xp.operand("x", (3, 4)), xp.operand("c", (3, 1)), xp.operand("g", (4,))

    def mean(value: object) -> object:
        return xp.divide(xp.sum(value, axis=(1,), keepdims=True), xp.number(4.0))

    def same(one: object, other: object) -> bool:
        return bool(xp.subtract(one, other).flat[0] == 0)

    assert same(mean(xp.multiply(x, row)), xp.multiply(mean(x), row))
    assert not same(mean(xp.multiply(x, column)), xp.multiply(mean(x), column))
    assert same(mean(xp.add(x, row)), xp.add(mean(x), row))
    assert same(xp.sum(mean(x), axis=(1,), keepdims=True), mean(x))
    assert not same(mean(xp.multiply(x, x)), xp.multiply(mean(x), mean(x)))
    top = xp.max(xp.add(x, row), axis=(1,), keepdims=True)
    assert same(top, xp.add(xp.max(x, axis=(1,), keepdims=True), row))
    assert np.shape(top) == (3, 1)
    with pytest.raises(UndecidedError):
        xp.sum(x, axis=(0,), keepdims=True)
    with pytest.raises(UndecidedError):
        xp.apply("abs", x)
